"""Wrong rules of axes, views, products and reductions."""

from eqsat import rule
from eqsat.op import Axis, Ints
from eqsat.ops import (
    attention_scaled,
    concatenate,
    conv2d,
    exp,
    gelu,
    layer_norm,
    linear,
    log,
    max,
    mean,
    rms_norm,
    softmax,
    sum,
)
from eqsat.ops.view import reshape_op, slice_op, transpose_op
from eqsat.pattern import entry


def columns(y, start, size):
    """Columns ``start`` to ``start + size`` of the last axis."""
    return slice_op(y, starts=(start,), sizes=(size,), steps=(1,))


@rule("... m k, k n, ... n")
def bias_without_guard(x, w, b):
    """A bias of any shape is no bias of a column."""
    return gelu(x @ w + b), linear(x, w, sum(b, axis=-1, keepdims=True), act="gelu")


@rule("... m k, k n, n")
def bias_without_guard_mended(x, w, b):
    """gelu(x w + b) with one b for each column."""
    return gelu(x @ w + b), linear(x, w, b, act="gelu")


@rule("m n, n")
def sum_before_broadcast(x, b):
    """b is added to every row: its sum counts n times only once."""
    return sum(x + b, axis=-2, keepdims=True), sum(x, axis=-2, keepdims=True) + b


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


@rule("m k, k n")
def product_commutes(x, y):
    """x y is not y x."""
    return x @ y, y @ x


@rule("n n, n n")
def product_of_squares_commutes(x, y):
    """x y is not y x, even where the shapes agree."""
    return x @ y, y @ x


@rule("m k, k n")
def transpose_of_product_in_order(x, y):
    """(x y)ᵀ is yᵀ xᵀ; with equal sizes nothing shows but the values."""
    return (x @ y).mT, x.mT @ y.mT


@rule("m k, k n")
def transpose_of_product_mended(x, y):
    """(x y)ᵀ = yᵀ xᵀ."""
    return (x @ y).mT, y.mT @ x.mT


@rule("i j k")
def permutation_composed_backwards(x):
    """Rotations the same way twice do not cancel."""
    return transpose_op(transpose_op(x, perm=(-2, -1, -3)), perm=(-2, -1, -3)), x


@rule("i j k", dtypes="any", numerics="exact")
def permutation_composed_mended(x):
    """Rotations either way cancel."""
    return transpose_op(transpose_op(x, perm=(-2, -1, -3)), perm=(-1, -3, -2)), x


@rule("i j k", where=None)
def permutation_of_attribute(x, p: Ints):
    """The composition takes entries of the first in the order of the second."""
    swapped = (entry(p, 0), entry(p, 1), entry(p, 2))
    return transpose_op(transpose_op(x, perm=p), perm=(-1, -2)), transpose_op(
        x, perm=swapped
    )


@rule("... n")
def first_columns_one_short(x):
    """Columns 1 to n - 1 are not columns 0 to n - 2."""
    return columns(x, 1, x.shape[-1] - 1), columns(x, 0, x.shape[-1] - 1)


@rule("m n, m p")
def part_of_join_off_by_one(x, y):
    """The second part starts at n, not n - 1."""
    n, p = x.shape[-1], y.shape[-1]
    return columns(concatenate([x, y], axis=-1), n - 1, p), y


@rule("m n, m p", dtypes="any", numerics="exact")
def part_of_join_mended(x, y):
    """The second part starts at n."""
    n, p = x.shape[-1], y.shape[-1]
    return columns(concatenate([x, y], axis=-1), n, p), y


@rule("m n")
def reshape_is_transpose(x):
    """A reshape keeps the order of the elements."""
    return reshape_op(x, shape=(x.shape[1], x.shape[0])), x.mT


@rule("m k, k n, k p")
def merged_products_swapped(x, a, b):
    """The first columns belong to the first factor."""
    n, p = a.shape[-1], b.shape[-1]
    y = x @ concatenate([a, b], axis=-1)
    return (x @ a, x @ b), (columns(y, p, n), columns(y, 0, p))


@rule("... n")
def softmax_without_max(x):
    """eˣ / Σ eˣ overflows."""
    return softmax(x), exp(x) / sum(exp(x), axis=-1, keepdims=True)


@rule("... n")
def softmax_without_max_mended(x):
    """e / Σ e with e = exp(x - max x)."""
    e = exp(x - max(x, axis=-1, keepdims=True))
    return softmax(x), e / sum(e, axis=-1, keepdims=True)


@rule("...")
def softmax_over_last_axis_only(x, axis: Axis):
    """The axis is part of a softmax."""
    e = exp(x - max(x, axis=axis, keepdims=True))
    return e / sum(e, axis=axis, keepdims=True), softmax(x)


@rule("... n")
def logsumexp_without_max(x):
    """ln Σ eˣ overflows."""
    m = max(x, axis=-1, keepdims=True)
    right = log(sum(exp(x), axis=-1, keepdims=True))
    return m + log(sum(exp(x - m), axis=-1, keepdims=True)), right


@rule("... m d, ... n d, ... n e, ")
def attention_scaled_twice(q, k, v, s):
    """The scale counts once."""
    return softmax(q @ k.mT * s) @ v, attention_scaled(q, k, v, s * s)


@rule("... m d, ... n d, ... n e, ")
def attention_scaled_once_mended(q, k, v, s):
    """softmax(s q kᵀ) v."""
    return softmax(q @ k.mT * s) @ v, attention_scaled(q, k, v, s)


@rule("... n, n, n, ")
def layer_norm_without_mean(x, w, b, eps):
    """An RMS norm does not subtract the mean."""
    return layer_norm(x, w, b, eps), rms_norm(x, w, eps) + b


@rule("... n")
def mean_over_one_less(x):
    """The mean divides by n, not n - 1."""
    return mean(x, axis=-1, keepdims=True), sum(x, axis=-1, keepdims=True) / (
        x.shape[-1] - 1
    )


@rule("... n")
def mean_over_all_mended(x):
    """The mean divides by n."""
    return mean(x, axis=-1, keepdims=True), sum(x, axis=-1, keepdims=True) / x.shape[-1]


@rule("b i h v, o i p q, o 1 1")
def padding_forgotten(x, w, t):
    """A convolution with padding is larger."""
    padded = conv2d(x, w, (1, 1), (1, 1), (1, 1), 1)
    return padded + t, conv2d(x, w, (1, 1), (0, 0), (1, 1), 1) + t


@rule("b i h v, o i p q, b 1 1 1")
def scale_of_image_into_kernel(x, w, s):
    """A scale of each image is none of each channel."""
    y = conv2d(x, w, (1, 1), (0, 0), (1, 1), 1)
    return y * s, conv2d(x, w * s, (1, 1), (0, 0), (1, 1), 1)


@rule("b i h v, o i p q, b 1 1 1")
def scale_of_image_mended(x, w, s):
    """A scale of each image may come before."""
    y = conv2d(x, w, (1, 1), (0, 0), (1, 1), 1)
    return y * s, conv2d(x * s, w, (1, 1), (0, 0), (1, 1), 1)


@rule("b i h v, o i p q, o 1 1")
def shift_before_padding(x, w, t):
    """A shift of padded images shifts the padding too."""
    y = conv2d(x, w, (1, 1), (1, 1), (1, 1), 1)
    return y * t, conv2d(x + 1.0, w, (1, 1), (1, 1), (1, 1), 1) * t


@rule("m n")
def sum_without_shape(x):
    """A number is no array of the shape of x."""
    return x - x, 0.0
