"""Views: reshapes and transposes that meet, cancel, or move past what they do not touch."""

from itertools import permutations, product

from eqsat import rule
from eqsat.condition import same_shape
from eqsat.op import Axis, Ints
from eqsat.ops import add, divide, exp, log, multiply, rsqrt, sqrt, subtract, tanh
from eqsat.ops.view import reshape_op, transpose_op

PHASE = "canonicalise"


@rule("...", dtypes="any", numerics="exact")
def reshape_of_reshape(x, a: Ints, b: Ints):
    """Only the last shape counts."""
    return reshape_op(reshape_op(x, shape=a), shape=b), reshape_op(x, shape=b)


@rule("...", dtypes="any", numerics="exact", where=lambda x, a: same_shape(x, a))
def reshape_to_same(x, a: Ints):
    """A reshape to the shape that x has is x."""
    return reshape_op(x, shape=a), x


def _number_inside(name, combine):
    def sides(x, a: float, s: Ints):
        """A number may be applied before or after a reshape."""
        return reshape_op(combine(x, a), shape=s), combine(reshape_op(x, shape=s), a)

    return rule("...", numerics="exact", phase=PHASE, name=f"reshape_of_{name}")(sides)


def _reshape_inside(op):
    def sides(x, s: Ints):
        """f(x) reshaped is f of x reshaped, for a pointwise f."""
        return reshape_op(op(x), shape=s), op(reshape_op(x, shape=s))

    return rule("...", numerics="exact", phase=PHASE, name=f"reshape_of_{op.name}")(
        sides
    )


reshapes = [
    _number_inside("sum", lambda x, a: x + a),
    _number_inside("product", lambda x, a: x * a),
    *map(_reshape_inside, (exp, log, rsqrt, sqrt)),
]


def _dropped_axis(op):
    def sides(x, s):
        """A leading axis of size 1 may be dropped: it broadcasts back."""
        return op(x, reshape_op(s, shape=(s.shape[1],))), op(x, s)

    name = f"{op.name}_without_leading_axis"
    return rule("... m n, 1 n", numerics="exact", phase=PHASE, name=name)(sides)


dropped = [_dropped_axis(op) for op in (add, subtract, multiply, divide)]


def minimal(perm):
    """``perm`` (negative axes) without the leading axes that stay."""
    while perm and perm[0] == -len(perm):
        perm = perm[1:]
    return perm


def composed(first, then):
    """The permutation of ``first`` followed by ``then``."""
    n = max(len(first), len(then))
    first = tuple(range(-n, -len(first))) + first
    then = tuple(range(-n, -len(then))) + then
    return minimal(tuple(first[a] for a in then))


PERMUTATIONS = [
    p for n in (2, 3) for p in permutations(range(-n, 0)) if minimal(p) == p and p
]


def _transpose_of_transpose(first, then):
    both = composed(first, then)

    def sides(x):
        """Two transposes are one."""
        left = transpose_op(transpose_op(x, perm=first), perm=then)
        return left, transpose_op(x, perm=both) if both else x

    axes = "... " + " ".join("pqr"[: max(len(first), len(then))])
    name = f"transpose_{_spell(first)}_then_{_spell(then)}"
    return rule(axes, dtypes="any", numerics="exact", phase=PHASE, name=name)(sides)


def _spell(perm):
    return "".join(str(-a) for a in perm)


transposes = [_transpose_of_transpose(p, q) for p, q in product(PERMUTATIONS, repeat=2)]


@rule("... m k, ... k n", phase="algebra")
def transpose_of_product(x, y):
    """(x y)ᵀ = yᵀ xᵀ."""
    return (x @ y).mT, y.mT @ x.mT


@rule("... k m, ... n k", phase="algebra")
def product_of_transposes(x, y):
    """xᵀ yᵀ = (y x)ᵀ."""
    return x.mT @ y.mT, (y @ x).mT


def _past(op):
    def sides(x, p: Axis):
        """f(xᵀ) = f(x)ᵀ for a pointwise f."""
        return op(transpose_op(x, perm=p)), transpose_op(op(x), perm=p)

    return rule(
        "...", numerics="exact", phase="algebra", name=f"{op.name}_of_transpose"
    )(sides)


pointwise_of_transpose = [_past(op) for op in (exp, tanh)]
