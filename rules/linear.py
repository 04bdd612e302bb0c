"""Products: parallel ones that share an input become one, and low-rank updates get
their name."""

from eqsat import rule
from eqsat.ops import concatenate, slice_op
from eqsat.rulelang import before

PHASE = "merge"


def columns(y, start, size):
    """Columns ``start`` to ``start + size`` of the last axis."""
    return slice_op(y, starts=(start,), sizes=(size,), steps=(1,))


@rule("... m k, k n, k p", where=lambda x, a, b: before(a, b))
def two_products_merge(x, a, b):
    """x a and x b are columns of x [a b]."""
    n, p = a.shape[-1], b.shape[-1]
    y = x @ concatenate([a, b], axis=-1)
    return (x @ a, x @ b), (columns(y, 0, n), columns(y, n, p))


@rule("... m k, k n, k p, k q", where=lambda x, a, b, c: (before(a, b), before(b, c)))
def three_products_merge(x, a, b, c):
    """x a, x b and x c are columns of x [a b c]."""
    n, p, q = a.shape[-1], b.shape[-1], c.shape[-1]
    y = x @ concatenate([a, b, c], axis=-1)
    return (
        (x @ a, x @ b, x @ c),
        (columns(y, 0, n), columns(y, n, p), columns(y, n + p, q)),
    )


@rule("... m k, k n, n, k p, p", where=lambda x, a, s, b, t: before(a, b))
def two_linears_merge(x, a, s, b, t):
    """x a + s and x b + t are columns of x [a b] + [s t]."""
    n, p = a.shape[-1], b.shape[-1]
    y = x @ concatenate([a, b], axis=-1) + concatenate([s, t], axis=-1)
    return (x @ a + s, x @ b + t), (columns(y, 0, n), columns(y, n, p))


@rule(
    "... m k, k n, n, k p, p, k q, q",
    where=lambda x, a, s, b, t, c, u: (before(a, b), before(b, c)),
)
def three_linears_merge(x, a, s, b, t, c, u):
    """x a + s, x b + t and x c + u are columns of x [a b c] + [s t u]."""
    n, p, q = a.shape[-1], b.shape[-1], c.shape[-1]
    y = x @ concatenate([a, b, c], axis=-1) + concatenate([s, t, u], axis=-1)
    return (
        (x @ a + s, x @ b + t, x @ c + u),
        (columns(y, 0, n), columns(y, n, p), columns(y, n + p, q)),
    )
