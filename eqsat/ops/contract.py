"""Contractions: the matrix product and the convolution.

float16 and bfloat16 are summed in float32 and rounded once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat.complex_numbers import call, holds_complex
from eqsat.ops.conv_grad import by_images, by_kernels
from eqsat.ops.pointwise import add, cast, multiply
from eqsat.ops.reduce import sum_op, sum_to
from eqsat.ops.support import dtype_of, in_float32, is_traced, known_sizes, rank
from eqsat.ops.view import (
    array_split,
    expand_dims,
    matrix_transpose,
    reshape,
    squeeze,
)
from eqsat.support import ShapeError, at, caller_line
from eqsat.terms import (
    CONSTANT,
    HALF,
    ONCE,
    AttrVar,
    Custom,
    Ints,
    Type,
    common,
    limits,
    op,
)

# -- matrix product --------------------------------------------------------------------


def _by_left(g: Any, x: Any, y: Any, z: Any) -> Any:
    return _product(g, matrix_transpose(y), x.shape)


def _by_right(g: Any, x: Any, y: Any, z: Any) -> Any:
    if y.ndim == 2 and x.ndim > 2:  # one product that sums over the batch too
        n = math.prod(x.shape[:-1])
        g, x = (reshape(v, (n, v.shape[-1])) for v in (g, x))
    return _product(matrix_transpose(x), g, y.shape)


def _product(x: Any, y: Any, shape: tuple[int, ...]) -> Any:
    """x y, summed to ``shape``; of a column and a row without a product of
    matrices."""
    return sum_to(x * y if x.shape[-1] == 1 else matmul_op(x, y), shape)


@op(
    "... m k, ... k n -> ... m n",
    kind="contract",
    name="matmul",
    flops="2*batch*m*k*n",
    roundings=ONCE,
    vjp=(_by_left, _by_right),
)
@in_float32
def matmul_op(x: Any, y: Any) -> Any:
    """z[i, j] = Σₖ x[i, k] y[k, j] over the last two axes; the others broadcast."""
    return np.matmul(x, y)


def matmul(x: Any, y: Any) -> Any:
    """The matrix product, with NumPy's rules for arrays of one axis.

    Raises :class:`ShapeError` that names the argument whose axes do not fit.
    """
    if not is_traced(x, y):
        return matmul_op.reference(np.asarray(x), np.asarray(y))
    rx, ry = rank(x), rank(y)
    if rx == 1 and ry == 1:
        a, b = known_sizes("matmul", x), known_sizes("matmul", y)
        if a != b:
            raise ShapeError(f"matmul: shapes {a} and {b} differ{at(caller_line())}")
        if holds_complex(x) or holds_complex(y):
            return call("product_of_vectors", x, y)
        return sum_of_products(x, y, 1)
    if rx == 1:
        return squeeze(matrix_product(expand_dims(x, 0), y), -2)
    if ry == 1:
        return squeeze(matrix_product(x, expand_dims(y, -1)), -1)
    return matrix_product(x, y)


def matrix_product(x: Any, y: Any) -> Any:
    """The product of matrices, not of vectors; of small integers by float32."""
    each = _exact_terms(x, y)
    if not each or min(x.ndim, y.ndim) < 2 or x.shape[-1] != y.shape[-2]:
        return matmul_op(x, y)
    return _by_float32(x, y, (-1, -2), each, matmul_op)


def sum_of_products(x: Any, y: Any, axes: int) -> Any:
    """Σ x y over that many trailing axes, in the dtype of the products."""
    dtypes = {dtype_of(x), dtype_of(y)}
    half = dtypes.pop() if len(dtypes) == 1 and dtypes <= HALF else None
    if half is not None:
        x, y = cast(x, np.float32), cast(y, np.float32)
    product = multiply(x, y)
    total = sum_op(product, axis=tuple(range(-axes, 0)))
    shape = known_sizes("sum", product)
    z = reshape(total, shape[: len(shape) - axes])
    return z if half is None else cast(z, half)


# -- integers --------------------------------------------------------------------------

_EXACT = 2**24
"""Up to here float32 has all integers."""
_FEWEST = 64
"""Products that are summed at once, at least."""
_LARGEST = 2**8
"""Up to here bfloat16 and TF32 have all integers, as which GPUs multiply float32."""


def _exact_terms(x: Any, y: Any) -> int:
    """How many products of two integers, of ``x`` and of ``y``, float32 sums in any
    order without rounding; 0 where these are too few, and for what is no integer.
    Nothing multiplies matrices of int32 or int64 as fast: a convolution of 8 bits takes
    a fortieth of the time so."""
    dtypes = [dtype_of(v) for v in (x, y)]
    if any(dtype is None or dtype.kind not in "iu" for dtype in dtypes):
        return 0
    sizes = _magnitude(x), _magnitude(y)
    count = _EXACT // max(math.prod(sizes), 1)
    return count if max(sizes) <= _LARGEST and count >= _FEWEST else 0


def _magnitude(x: Any) -> int:
    """How far from 0 integers may be."""
    if is_traced(x) and x.term.op is not CONSTANT:
        return max(map(abs, limits(x.term) or ()))
    array = x.term.graph.arrays[x.term.attrs[0]] if is_traced(x) else np.asarray(x)
    return max(-int(array.min(initial=0)), int(array.max(initial=0)))


def _by_float32(
    x: Any,
    y: Any,
    axes: tuple[int, int],
    each: int,
    product: Callable[[Any, Any], Any],
) -> Any:
    """A product of integers that sums over ``axes`` of its operands: by float32, at
    most ``each`` of their elements at a time."""
    dtype = np.result_type(x.dtype, y.dtype)
    parts = max(-(-y.shape[axes[1]] // each), 1)
    operands = [
        array_split(cast(v, np.float32), parts, axis)
        for v, axis in zip((x, y), axes, strict=True)
    ]
    sums = [cast(product(*both), np.int32) for both in zip(*operands, strict=True)]
    return cast(functools.reduce(add, sums), dtype)


# -- convolution -----------------------------------------------------------------------


def _conv_type(who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
    """(n, c, h, w) and (o, c / groups, i, j) to (n, o, h', w')."""
    (_, x), (_, w) = types
    if len(x) != 4 or len(w) != 4:
        raise ShapeError(
            f"{who}: arguments 'x' and 'w' have shapes {x} and {w}, expected n c h w "
            f"and o c/groups i j{at(caller_line())}"
        )
    groups = attrs["groups"]
    if groups < 1 or x[1] != w[1] * groups or w[0] % groups:
        raise ShapeError(
            f"{who}: argument 'w' has shape {w}, expected (o, c/groups, i, j) with "
            f"c={x[1]}, groups={groups}{at(caller_line())}"
        )
    stride, padding, dilation = attrs["stride"], attrs["padding"], attrs["dilation"]
    rows = zip(x[2:], w[2:], padding, dilation, strict=True)
    room = [n + 2 * p - d * (k - 1) - 1 for n, k, p, d in rows]
    if min(*room, *padding) < 0 or min(*stride, *dilation, *w[2:]) < 1:
        raise ShapeError(
            f"{who}: a kernel of {w[2:]} does not fit in an image of {x[2:]} with "
            f"stride {stride}, padding {padding} and dilation {dilation}"
            f"{at(caller_line())}"
        )
    out = (n // s + 1 for n, s in zip(room, stride, strict=True))
    return common(types, who), (x[0], w[0], *out)


def _conv_flops(types: Sequence[Type], attrs: dict[str, Any], out: Type) -> float:
    return (
        2
        * float(np.prod(out[1], dtype=float))
        * float(np.prod(types[1][1][1:], dtype=float))
    )


@op(
    Custom(_conv_type),
    kind="contract",
    name="conv2d",
    flops=_conv_flops,
    roundings=ONCE,
    vjp=(by_images, by_kernels),
)
@in_float32
def conv2d_op(
    x: Any,
    w: Any,
    *,
    stride: Ints = (1, 1),
    padding: Ints = (0, 0),
    dilation: Ints = (1, 1),
    groups: int = 1,
) -> Any:
    """y[n, o, r, s] = Σ x[n, c, r·stride + i·dilation, …] w[o, c, i, j] over c, i, j.

    Images are n c h w, with ``padding`` zeros on both sides of h and w; kernels are
    o c/groups i j.
    """
    (sh, sw), (ph, pw), (dh, dw) = stride, padding, dilation
    n = x.shape[0]
    o, each, kh, kw = w.shape
    x = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    reach = ((kh - 1) * dh + 1, (kw - 1) * dw + 1)
    views = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(2, 3))
    views = views[:, :, ::sh, ::sw, ::dh, ::dw]
    h, v = views.shape[2:4]
    views = views.reshape(n, groups, each, h, v, kh, kw)
    columns = views.transpose(0, 1, 3, 4, 2, 5, 6)
    columns = columns.reshape(n, groups, h * v, each * kh * kw)
    kernels = w.reshape(groups, o // groups, each * kh * kw)
    y = np.matmul(kernels, columns.mT)
    return y.reshape(n, o, h, v)


def conv2d(
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
) -> Any:
    """Convolution of images ``x`` (n c h w) with kernels ``w`` (o c/groups i j).

    ``stride``, ``padding`` and ``dilation`` are one int, or one for h and one for w.
    Raises :class:`ShapeError` when channels do not fit, or a kernel is empty or exceeds
    its image.
    """
    attrs = {
        "stride": _pair(stride),
        "padding": _pair(padding),
        "dilation": _pair(dilation),
        "groups": groups,
    }
    convolve = functools.partial(conv2d_op, **attrs)
    if not is_traced(x, w):
        x, w = np.asarray(x), np.asarray(w)
        dtype = np.result_type(x, w)
        _conv_type("conv2d", [(dtype, x.shape), (dtype, w.shape)], attrs)
    elif (each := _exact_terms(x, w)) and x.ndim == w.ndim == 4:
        each //= max(math.prod(w.shape[2:]), 1)
        if each >= w.shape[1] or (each and groups == 1 and x.shape[1] == w.shape[1]):
            return _by_float32(x, w, (1, 1), each, convolve)
    return convolve(x, w)


def _pair(value: Any) -> Any:
    if isinstance(value, AttrVar):
        return value
    return (value, value) if isinstance(value, int) else tuple(value)
