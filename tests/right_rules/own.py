"""Right rules of ops that a user defines, and of helpers that build rules."""

import numpy as np

from eqsat import rule
from eqsat.define import composite, pointwise, reduction
from eqsat.ops import (
    absolute,
    concatenate,
    exp,
    logsumexp,
    mean,
    negative,
    sigmoid,
    softplus,
    sum,
    tanh,
)
from eqsat.ops.view import slice_op, transpose_op
from eqsat.terms.op import Axis, Ints


@composite("... -> ...")
def sown_mish(x):
    """x tanh(ln(1 + eˣ))."""
    return x * tanh(softplus(x))


@composite("..., ... -> ...")
def sown_gate(x, y):
    """x σ(y)."""
    return x * sigmoid(y)


@composite("... n -> ... n")
def sown_centred(x):
    """x less its mean."""
    return x - mean(x, axis=-1, keepdims=True)


@composite("m k, k n, n -> m n")
def sown_affine(x, w, b):
    """x w + b."""
    return x @ w + b


sown_softsign = pointwise("sown_softsign", lambda x: x / (1 + np.abs(x)))


@reduction(combine=np.logaddexp, identity=-np.inf)
def sown_log_total(x):
    """log Σ eˣ."""
    return x


@rule("...")
def mish_spelled_out(x):
    """The body of the op."""
    return x * tanh(softplus(x)), sown_mish(x)


@rule("..., ..., ")
def gate_is_linear(x, y, s):
    """(s x) σ(y) = s (x σ(y))."""
    return sown_gate(x * 2.0, y) + s, sown_gate(x, y) * 2.0 + s


@rule("m n, m n, m n", numerics="fast")
def gate_of_two(x, y, z):
    """x σ(z) + y σ(z) = (x + y) σ(z)."""
    return sown_gate(x, z) + sown_gate(y, z), sown_gate(x + y, z)


@rule("m n")
def centred_negative(x):
    """The mean of -x is minus the mean."""
    return sown_centred(negative(x)), negative(sown_centred(x))


@rule("m n")
def centred_of_shifted(x):
    """The mean takes a common number away."""
    return sown_centred(x + 2.0), sown_centred(x)


@rule("m k, k n, n, n")
def affine_bias_added(x, w, b, c):
    """x w + b + c = x w + (b + c)."""
    return sown_affine(x, w, b) + c, sown_affine(x, w, b + c)


@rule("...")
def softsign_is_odd(x):
    """x / (1 + |x|) has the sign of x."""
    return sown_softsign(negative(x)), negative(sown_softsign(x))


@rule("...")
def softsign_of_absolute(x):
    """|x / (1 + |x|)| = |x| / (1 + |x|)."""
    return absolute(sown_softsign(x)), sown_softsign(absolute(x))


@rule("m 3")
def log_total_spelled_out(x):
    """log Σ eˣ by its stock name."""
    return sown_log_total(x, axis=-1, keepdims=True), logsumexp(x, axis=(-1,))


def _pulled_out(op, name):
    def sides(x, y):
        """Σ is linear, where both have all elements."""
        total = sum(op(x, y), axis=-1, keepdims=True)
        return total, op(sum(x, axis=-1, keepdims=True), sum(y, axis=-1, keepdims=True))

    return rule("m n, m n", name=name)(sides)


pulled_out = [_pulled_out(np.add, "own_sum_of_add")]


@rule("...", numerics="exact")
def own_function_of_transpose(x, p: Ints):
    """A function of each element may come before or after."""
    left = transpose_op(sown_softsign(x), perm=p)
    return left, sown_softsign(transpose_op(x, perm=p))


@rule("m n, m k", numerics="exact")
def two_results_as_parts(x, y):
    """eˣ and eʸ are parts of one exponential."""
    n, k = x.shape[-1], y.shape[-1]
    both = exp(concatenate([x, y], axis=-1))
    first = slice_op(both, starts=(0,), sizes=(n,), steps=(1,))
    second = slice_op(both, starts=(n,), sizes=(k,), steps=(1,))
    return (exp(x), exp(y)), (first, second)


@rule("...")
def own_sum_of_negative(x, a: Axis):
    """The minus belongs to each term."""
    left = sum(negative(x) * 2.0, axis=a, keepdims=True)
    return left, sum(x, axis=a, keepdims=True) * -2.0
