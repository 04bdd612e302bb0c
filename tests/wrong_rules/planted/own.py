"""Wrong rules of ops that a user defines, and of helpers that build rules."""

import numpy as np

from eqsat import rule
from eqsat.define import composite, pointwise, reduction
from eqsat.ops import (
    absolute,
    concatenate,
    exp,
    log,
    log1p,
    logsumexp,
    matmul,
    max,
    maximum,
    mean,
    minimum,
    negative,
    prod,
    sigmoid,
    softplus,
    sqrt,
    sum,
    tanh,
    where,
)
from eqsat.ops.view import reshape_op, slice_op, transpose_op
from eqsat.rulelang.condition import at_least
from eqsat.terms.op import Axis, Ints


@composite("... -> ...")
def planted_mish(x):
    """x tanh(ln(1 + eˣ))."""
    return x * tanh(softplus(x))


@composite("..., ... -> ...")
def planted_gate(x, y):
    """x σ(y)."""
    return x * sigmoid(y)


@composite("... n -> ... n")
def planted_centred(x):
    """x less its mean."""
    return x - mean(x, axis=-1, keepdims=True)


@composite("m k, k n, n -> m n")
def planted_affine(x, w, b):
    """x w + b."""
    return x @ w + b


planted_softsign = pointwise("planted_softsign", lambda x: x / (1 + np.abs(x)))


@reduction(combine=np.logaddexp, identity=-np.inf)
def planted_log_total(x):
    """log Σ eˣ."""
    return x


@rule("...")
def mish_without_tanh(x):
    """The tanh is missing."""
    return planted_mish(x), x * softplus(x)


@rule("...")
def mish_is_odd(x):
    """mish is neither odd nor even."""
    return planted_mish(negative(x)), negative(planted_mish(x))


@rule("..., ...")
def gate_swapped(x, y):
    """The second one is the gate."""
    return planted_gate(x, y), y * sigmoid(x)


@rule("..., ..., ...")
def gate_of_sum(x, y, z):
    """A gate is not linear in the second one."""
    return planted_gate(x, y + z), planted_gate(x, y) + planted_gate(x, z)


@rule("m n")
def centred_and_scaled_by_sum(x):
    """The mean is taken away, not the sum."""
    return planted_centred(x), x - sum(x, axis=-1, keepdims=True)


@rule("n n")
def centred_transpose(x):
    """Columns are centred, not rows."""
    return planted_centred(x.mT), planted_centred(x).mT


@rule("m k, k n, n")
def affine_bias_scaled(x, w, b):
    """The bias is not doubled."""
    return planted_affine(x * 2.0, w, b), planted_affine(x, w, b) * 2.0


@rule("m k, k n, n")
def affine_of_negative(x, w, b):
    """The bias keeps its sign."""
    return planted_affine(negative(x), w, b), negative(planted_affine(x, w, b))


@rule("...")
def softsign_twice(x):
    """x / (1 + |x|) twice is x / (1 + 2 |x|)."""
    return planted_softsign(planted_softsign(x)), x / (1.0 + absolute(x))


@rule("m n")
def log_total_is_maximum(x):
    """The largest alone is a bound."""
    return planted_log_total(x, axis=-1, keepdims=True), max(x, -1, keepdims=True)


@rule("m n")
def log_total_of_double(x):
    """2 log Σ eˣ is log (Σ eˣ)²."""
    left = planted_log_total(x * 2.0, axis=-1, keepdims=True)
    return left, planted_log_total(x, axis=-1, keepdims=True) * 2.0


@rule("..., ...")
def ratio_within_limits(x, y):
    """0 is a divisor that is at least 0."""
    return exp(log(absolute(x)) - log(absolute(y))), x / y


@rule("...", where=lambda x: at_least(x, 0.0))
def own_ratio_of_nonnegative(x):
    """Where x is 0 the left side is NaN: more than 0 is needed."""
    return x / sqrt(x * x), where(x == x, 1.0 + x * 0.0, x)


def _pulled_out(op, name):
    def sides(x, y, a: Axis):
        """What broadcasts counts once for each element."""
        total = sum(op(x, y), axis=a, keepdims=True)
        return total, op(sum(x, axis=a, keepdims=True), sum(y, axis=a, keepdims=True))

    return rule("..., ...", name=name)(sides)


pulled_out = [
    _pulled_out(np.add, "own_sum_of_add"),
    _pulled_out(np.subtract, "own_sum_of_subtract"),
    _pulled_out(np.maximum, "own_sum_of_maximum"),
]


def _moved(view, name):
    def sides(x, y, p: Ints):
        """What broadcasts has other axes."""
        return view(x * y + x, p), view(x, p) * view(y, p) + view(x, p)

    return rule("..., ...", name=name)(sides)


moved = [
    _moved(lambda x, p: reshape_op(x, shape=p), "own_reshape_of_polynomial"),
    _moved(lambda x, p: transpose_op(x, perm=p), "own_transpose_of_polynomial"),
]


@rule("m n, m n")
def two_results_swapped(x, y):
    """The parts are exchanged."""
    n = x.shape[-1]
    both = exp(concatenate([x, y], axis=-1))
    first = slice_op(both, starts=(0,), sizes=(n,), steps=(1,))
    second = slice_op(both, starts=(n,), sizes=(n,), steps=(1,))
    return (exp(x), exp(y)), (second, first)


@rule("..., ...", both_ways=True)
def turned_only_one_way(x, y):
    """max(x, y) - y is 0 where x is below y."""
    return maximum(x, y) - y, maximum(x - y, 0.0 * x) + minimum(x, y) * 1e-3


@rule("m n")
def product_as_exponential(x):
    """ln |x| forgets the signs."""
    logs = sum(log(absolute(x)), axis=-1, keepdims=True)
    return prod(x, axis=-1, keepdims=True), exp(logs)


@rule("m k, k n")
def matmul_in_log_space(x, y):
    """log Σ is of products, not of sums of logarithms."""
    return log(matmul(exp(x), exp(y))), x @ y


@rule("m n, ")
def tempered_logsumexp(x, s):
    """s log Σ e^(x/s) is but a bound of log Σ eˣ."""
    return logsumexp(x / s, axis=(-1,)) * s, logsumexp(x, axis=(-1,))


@rule("...")
def softplus_of_wrong_sign(x):
    """ln(1 + e^|x|) where e^-|x| is meant."""
    return log1p(exp(negative(absolute(x)))), softplus(absolute(x))
