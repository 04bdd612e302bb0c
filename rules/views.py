"""Views: reshapes and transposes that meet, cancel, or move past what they do not
touch."""

from itertools import permutations

from eqsat import rule
from eqsat.ops import (
    add,
    divide,
    exp,
    log,
    multiply,
    reshape_op,
    rsqrt,
    sqrt,
    subtract,
    tanh,
    transpose_op,
)
from eqsat.rulelang import entry, length, same_shape
from eqsat.terms import Axis, Ints

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


MT = (-1, -2)
"""The permutation that exchanges the last two axes."""
THREE = list(permutations((-3, -2, -1)))
"""Permutations of three axes, those that leave the first one alone among them."""


def minimal(perm):
    """``perm`` (negative axes) without the leading axes that stay."""
    while perm and perm[0] == -len(perm):
        perm = perm[1:]
    return perm


def _spell(perm):
    return "".join(str(-a) for a in perm)


def _three_then(then):
    def sides(x, p: Ints):
        """A permutation of three axes, then another, is one permutation."""
        both = tuple(entry(p, 3 + a) for a in then)
        left = transpose_op(transpose_op(x, perm=p), perm=minimal(then))
        return left, transpose_op(x, perm=both)

    return rule(
        "... i j k",
        where=lambda x, p: length(p, 3),
        dtypes="any",
        numerics="exact",
        name=f"transpose_then_{_spell(then)}",
    )(sides)


def _mt_then(then):
    both = tuple((-3, *MT)[3 + a] for a in then)

    def sides(x):
        """The matrix transpose, then a permutation of three axes, is one
        permutation."""
        left = transpose_op(transpose_op(x, perm=MT), perm=minimal(then))
        return left, transpose_op(x, perm=minimal(both)) if minimal(both) else x

    name = f"matrix_transpose_then_{_spell(then)}"
    return rule("... i j k", dtypes="any", numerics="exact", name=name)(sides)


@rule("... j k", dtypes="any", numerics="exact")
def matrix_transpose_twice(x):
    """xᵀᵀ = x."""
    return x.mT.mT, x


@rule("... i j k", dtypes="any", numerics="exact")
def transpose_of_nothing(x):
    """The permutation that leaves all axes where they are."""
    return transpose_op(x, perm=(-3, -2, -1)), x


@rule("... i j k", dtypes="any", numerics="exact")
def transpose_of_last_two(x):
    """A permutation that leaves the first of three axes where it is."""
    return transpose_op(x, perm=(-3, -1, -2)), x.mT


transposes = [_three_then(p) for p in THREE if minimal(p)] + [
    _mt_then(p) for p in THREE if len(minimal(p)) == 3
]


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
