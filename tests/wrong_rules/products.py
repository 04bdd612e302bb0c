"""Wrong rules of products, attention, norms and convolutions.

Each is followed by what was meant.
"""

from eqsat import rule
from eqsat.ops import (
    attention_scaled,
    concatenate,
    conv2d,
    gelu,
    layer_norm,
    linear,
    mean,
    rms_norm,
    softmax,
    sum,
)
from eqsat.ops.fused import conv2d_act
from eqsat.ops.view import reshape_op, slice_op
from eqsat.rulelang.condition import before


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


@rule("m k, k n")
def product_commutes(x, y):
    """x y is not y x."""
    return x @ y, y @ x


@rule("m k, k n")
def product_commutes_mended(x, y):
    """x y = (yᵀ xᵀ)ᵀ."""
    return x @ y, (y.mT @ x.mT).mT


@rule("n n, n n")
def product_of_squares_commutes(x, y):
    """x y is not y x, even where the shapes agree."""
    return x @ y, y @ x


@rule("n n, n n")
def product_of_squares_commutes_mended(x, y):
    """(x y) x = x (y x)."""
    return (x @ y) @ x, x @ (y @ x)


@rule("m k, k n")
def transpose_of_product_in_order(x, y):
    """(x y)ᵀ is yᵀ xᵀ; with equal sizes nothing shows but the values."""
    return (x @ y).mT, x.mT @ y.mT


@rule("m k, k n")
def transpose_of_product_in_order_mended(x, y):
    """(x y)ᵀ = yᵀ xᵀ."""
    return (x @ y).mT, y.mT @ x.mT


@rule("m k, k n, k p")
def merged_products_swapped(x, a, b):
    """The first columns belong to the first factor."""
    n, p = a.shape[-1], b.shape[-1]
    y = x @ concatenate([a, b], axis=-1)
    return (x @ a, x @ b), (columns(y, p, n), columns(y, 0, p))


@rule("m k, k n, k p", where=lambda x, a, b: before(a, b))
def merged_products_swapped_mended(x, a, b):
    """x a and x b are columns of x [a b], in this order."""
    n, p = a.shape[-1], b.shape[-1]
    y = x @ concatenate([a, b], axis=-1)
    return (x @ a, x @ b), (columns(y, 0, n), columns(y, n, p))


@rule("... m d, ... n d, ... n e, ")
def attention_scaled_twice(q, k, v, s):
    """The scale counts once."""
    return softmax(q @ k.mT * s) @ v, attention_scaled(q, k, v, s * s)


@rule("... m d, ... n d, ... n e, ")
def attention_scaled_twice_mended(q, k, v, s):
    """softmax(s q kᵀ) v."""
    return softmax(q @ k.mT * s) @ v, attention_scaled(q, k, v, s)


@rule("... n, n, n, ")
def layer_norm_without_mean(x, w, b, eps):
    """An RMS norm does not subtract the mean."""
    return layer_norm(x, w, b, eps), rms_norm(x, w, eps) + b


@rule("... n, n, n, ")
def layer_norm_without_mean_mended(x, w, b, eps):
    """A layer norm is an RMS norm of what differs from the mean."""
    d = x - mean(x, axis=-1, keepdims=True)
    return layer_norm(x, w, b, eps), rms_norm(d, w, eps) + b


@rule("b i h v, o i p q, o 1 1")
def padding_forgotten(x, w, t):
    """A convolution with padding is larger."""
    padded = conv2d(x, w, (1, 1), (1, 1), (1, 1), 1)
    return padded + t, conv2d(x, w, (1, 1), (0, 0), (1, 1), 1) + t


@rule("b i h v, o i p q, o 1 1")
def padding_forgotten_mended(x, w, t):
    """A convolution with padding and a bias, by its other name."""
    padded = conv2d(x, w, (1, 1), (1, 1), (1, 1), 1)
    return padded + t, conv2d_act(x, w, t, padding=(1, 1), act="")


@rule("b i h v, o i p q, b 1 1 1")
def scale_of_image_into_kernel(x, w, s):
    """A scale of each image is none of each channel."""
    y = conv2d(x, w, (1, 1), (0, 0), (1, 1), 1)
    return y * s, conv2d(x, w * s, (1, 1), (0, 0), (1, 1), 1)


@rule("b i h v, o i p q, b 1 1 1")
def scale_of_image_into_kernel_mended(x, w, s):
    """A scale of each image may come before."""
    y = conv2d(x, w, (1, 1), (0, 0), (1, 1), 1)
    return y * s, conv2d(x * s, w, (1, 1), (0, 0), (1, 1), 1)


@rule("b i h v, o i p q")
def shift_before_padding(x, w):
    """A shift of images is none of the padding."""
    shift = reshape_op(
        sum(w, axis=(-3, -2, -1), keepdims=True), shape=(w.shape[0], 1, 1)
    )
    return (
        conv2d(x + 1.0, w, (1, 1), (1, 1), (1, 1), 1),
        conv2d(x, w, (1, 1), (1, 1), (1, 1), 1) + shift,
    )


@rule("b i h v, o i p q")
def shift_before_padding_mended(x, w):
    """A shift of images without padding adds the sum of each kernel."""
    shift = reshape_op(
        sum(w, axis=(-3, -2, -1), keepdims=True), shape=(w.shape[0], 1, 1)
    )
    return (
        conv2d(x + 1.0, w, (1, 1), (0, 0), (1, 1), 1),
        conv2d(x, w, (1, 1), (0, 0), (1, 1), 1) + shift,
    )
