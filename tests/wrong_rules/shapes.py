"""Wrong rules of axes, views and reductions.

Each is followed by what was meant.
"""

from eqsat import rule
from eqsat.ops import concatenate, exp, max, mean, softmax, sum
from eqsat.ops.view import reshape_op, slice_op, transpose_op
from eqsat.rulelang.condition import length
from eqsat.rulelang.pattern import entry
from eqsat.terms.op import Axis, Ints


def columns(y, start, size):
    """Columns ``start`` to ``start + size`` of the last axis."""
    return slice_op(y, starts=(start,), sizes=(size,), steps=(1,))


@rule("m n, n")
def sum_before_broadcast(x, b):
    """b is added to every row: its sum counts n times only once."""
    return sum(x + b, axis=-2, keepdims=True), sum(x, axis=-2, keepdims=True) + b


@rule("m n, n")
def sum_before_broadcast_mended(x, b):
    """b is added to every row: its sum counts m times."""
    left = sum(x + b, axis=-2, keepdims=True)
    return left, sum(x, axis=-2, keepdims=True) + b * x.shape[0]


@rule("..., ...")
def sum_of_broadcast(x, y):
    """Σ (x + y) is Σ x + Σ y only where neither broadcasts."""
    left = sum(x + y, axis=-1, keepdims=True)
    return left, sum(x, axis=-1, keepdims=True) + sum(y, axis=-1, keepdims=True)


@rule("m n, m n")
def sum_of_broadcast_mended(x, y):
    """Σ (x + y) = Σ x + Σ y."""
    left = sum(x + y, axis=-1, keepdims=True)
    return left, sum(x, axis=-1, keepdims=True) + sum(y, axis=-1, keepdims=True)


@rule("m n")
def sum_over_wrong_axis(x):
    """The transpose moves the axis."""
    return sum(x.mT, axis=-1, keepdims=True), sum(x, axis=-1, keepdims=True)


@rule("m n")
def sum_over_wrong_axis_mended(x):
    """Rows of the transpose are columns."""
    return sum(x.mT, axis=-1, keepdims=True), sum(x, axis=-2, keepdims=True).mT


@rule("n n")
def square_transpose(x):
    """xᵀ is not x, even where the shapes agree."""
    return x.mT.mT.mT, x


@rule("n n")
def square_transpose_mended(x):
    """xᵀᵀᵀ = xᵀ."""
    return x.mT.mT.mT, x.mT


@rule("i j k")
def permutation_composed_backwards(x):
    """Rotations the same way twice do not cancel."""
    return transpose_op(transpose_op(x, perm=(-2, -1, -3)), perm=(-2, -1, -3)), x


@rule("i j k", dtypes="any", numerics="exact")
def permutation_composed_backwards_mended(x):
    """Rotations either way cancel."""
    return transpose_op(transpose_op(x, perm=(-2, -1, -3)), perm=(-1, -3, -2)), x


@rule("i j k", where=None)
def permutation_of_attribute(x, p: Ints):
    """The composition takes entries of the first in the order of the second."""
    swapped = (entry(p, 0), entry(p, 1), entry(p, 2))
    return transpose_op(transpose_op(x, perm=p), perm=(-1, -2)), transpose_op(
        x, perm=swapped
    )


@rule("i j k", where=lambda x, p: length(p, 3))
def permutation_of_attribute_mended(x, p: Ints):
    """The last two entries of the first are exchanged."""
    swapped = (entry(p, 0), entry(p, 2), entry(p, 1))
    return transpose_op(transpose_op(x, perm=p), perm=(-1, -2)), transpose_op(
        x, perm=swapped
    )


@rule("... n")
def first_columns_one_short(x):
    """Columns 1 to n - 1 are not columns 0 to n - 2."""
    return columns(x, 1, x.shape[-1] - 1), columns(x, 0, x.shape[-1] - 1)


@rule("... n", dtypes="any", numerics="exact")
def first_columns_one_short_mended(x):
    """Columns 0 to n - 1 are all of them."""
    return columns(x, 0, x.shape[-1]), x


@rule("m n, m p")
def part_of_join_off_by_one(x, y):
    """The second part starts at n, not n - 1."""
    n, p = x.shape[-1], y.shape[-1]
    return columns(concatenate([x, y], axis=-1), n - 1, p), y


@rule("m n, m p", dtypes="any", numerics="exact")
def part_of_join_off_by_one_mended(x, y):
    """The second part starts at n."""
    n, p = x.shape[-1], y.shape[-1]
    return columns(concatenate([x, y], axis=-1), n, p), y


@rule("m n")
def reshape_is_transpose(x):
    """A reshape keeps the order of the elements."""
    return reshape_op(x, shape=(x.shape[1], x.shape[0])), x.mT


@rule("m n", dtypes="any", numerics="exact")
def reshape_is_transpose_mended(x):
    """A reshape and back is nothing."""
    m, n = x.shape
    return reshape_op(reshape_op(x, shape=(n, m)), shape=(m, n)), x


@rule("...")
def softmax_over_last_axis_only(x, axis: Axis):
    """The axis is part of a softmax."""
    e = exp(x - max(x, axis=axis, keepdims=True))
    return e / sum(e, axis=axis, keepdims=True), softmax(x)


@rule("...")
def softmax_over_last_axis_only_mended(x, axis: Axis):
    """e / Σ e over the axes of the maximum and of the sum."""
    e = exp(x - max(x, axis=axis, keepdims=True))
    return e / sum(e, axis=axis, keepdims=True), softmax(x, axis=axis)


@rule("... n")
def mean_over_one_less(x):
    """The mean divides by n, not n - 1."""
    return mean(x, axis=-1, keepdims=True), sum(x, axis=-1, keepdims=True) / (
        x.shape[-1] - 1
    )


@rule("... n")
def mean_over_one_less_mended(x):
    """The mean divides by n."""
    return mean(x, axis=-1, keepdims=True), sum(x, axis=-1, keepdims=True) / x.shape[-1]


@rule("m n")
def sum_without_shape(x):
    """A number is no array of the shape of x."""
    return x - x, 0.0


@rule("m n")
def sum_without_shape_mended(x):
    """x - x = 0 x, which has the shape of x."""
    return x - x, x * 0.0
