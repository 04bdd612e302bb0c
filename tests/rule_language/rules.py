"""One rule for each part of the rule language; rules.egg says the same as egglog
text."""

from eqsat import rule
from eqsat.ops import (
    concatenate,
    conv2d,
    cosh,
    exp,
    gelu,
    gelu_tanh,
    linear,
    log_softmax,
    mean,
    sinh,
    softmax,
    sqrt,
    sum,
    tanh,
    where,
)
from eqsat.ops.view import reshape_op, slice_op, transpose_op
from eqsat.rulelang.condition import at_least, before, length, moderate
from eqsat.rulelang.pattern import entry
from eqsat.terms.op import Axis, Ints


@rule("... m k, k n, k n", phase="algebra", both_ways=True)
def both_ways(x, a, b):
    """x (a + b) = x a + x b."""
    return x @ (a + b), x @ a + x @ b


@rule("...", numerics="exact", both_ways=True)
def any_axes(x):
    """x + x = 2 x."""
    return x + x, x * 2.0


@rule("... n", phase="recognise")
def size_as_number(x):
    """Σ x / n = mean(x) over the last axis."""
    return sum(x, axis=-1, keepdims=True) / x.shape[-1], mean(x, axis=-1, keepdims=True)


@rule("... m 1, 1 n")
def literal_size(x, y):
    """x y = x ∘ y where one axis alone is summed."""
    return x @ y, x * y


@rule("... n n")
def repeated_axis(x):
    """xᵀ xᵀ = (x x)ᵀ."""
    return x.mT @ x.mT, (x @ x).mT


@rule("..., ...", where=lambda x, c, y: moderate(c), numerics=None)
def number(x, c: float, y):
    """x / c + y / c = (x + y) (1 / c)."""
    return x / c + y / c, (x + y) * (1.0 / c)


@rule("...")
def two_numbers(x, a: float, b: float):
    """(x + a) - b = x + (a - b)."""
    return (x + a) - b, x + (a - b)


@rule("...", phase="recognise")
def axis(x, a: Axis):
    """exp log_softmax(x) = softmax(x)."""
    return exp(log_softmax(x, axis=a)), softmax(x, axis=a)


@rule("... i j k", where=lambda x, p: length(p, 3), dtypes="any", numerics="exact")
def entries(x, p: Ints):
    """Two permutations of three axes are one."""
    return (
        transpose_op(transpose_op(x, perm=p), perm=(-2, -3, -1)),
        transpose_op(x, perm=(entry(p, 1), entry(p, 0), entry(p, 2))),
    )


@rule("...", dtypes="any", numerics="exact")
def tuples(x, a: Ints, b: Ints):
    """Only the last shape counts."""
    return reshape_op(reshape_op(x, shape=a), shape=b), reshape_op(x, shape=b)


@rule("b i h v, o j p0 q0, o 1 1")
def integers(x, w, r: Ints, p: Ints, d: Ints, g: int, s):
    """conv(x, w) s = conv(x, w s)."""
    column = reshape_op(s, shape=(w.shape[0], 1, 1, 1))
    return conv2d(x, w, r, p, d, g) * s, conv2d(x, w * column, r, p, d, g)


@rule("n, n, n, n", dtypes="any", numerics="exact")
def mask(m: "bool", x, y, z):
    """Of two choices by one mask the first counts."""
    return where(m, where(m, x, y), z), where(m, x, z)


@rule("...", where=lambda x: at_least(x, 0))
def domain(x):
    """√(x x) = x where x ≥ 0."""
    return sqrt(x * x), x


def columns(y, start, size):
    return slice_op(y, starts=(start,), sizes=(size,), steps=(1,))


@rule("... m k, k n, k p", phase="merge", where=lambda x, a, b: before(a, b))
def results(x, a, b):
    """x a and x b are columns of x [a b]."""
    n, p = a.shape[-1], b.shape[-1]
    y = x @ concatenate([a, b], axis=-1)
    return (x @ a, x @ b), (columns(y, 0, n), columns(y, n, p))


@rule("m k, k n, n", phase="fuse")
def fusion(x, w, b):
    """gelu(x w + b) is one kernel."""
    return gelu(x @ w + b), linear(x, w, b, act="gelu")


@rule("...", numerics="approximate(1e-3)")
def near(x):
    """gelu and its tanh form differ little."""
    return gelu(x), gelu_tanh(x)


@rule("m n, ", numerics="exact")
def scalar(x, s):
    """x s = s x for a scalar s."""
    return tanh(x) * s, s * tanh(x)


@rule("..., ...")
def wrong(x, y):
    """sinh x cosh y + cosh y sinh x is not sinh(x + y): this rule is wrong."""
    return sinh(x) * cosh(y) + cosh(y) * sinh(x), sinh(x + y)
