"""Convolutions, pools, and products of matrices."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.onnx.operators.table import (
    expect_broadcast,
    expect_shape,
    is_known,
    kind_of,
    known,
    operator,
    sized,
)
from eqsat.support import ShapeError

# -- where windows lie -----------------------------------------------------------------


def pads_of(
    image: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Any,
    auto_pad: str,
) -> list[tuple[int, int]]:
    """Elements before and behind along each axis of an image. Raises
    :class:`ShapeError` for a window that none has."""
    d = len(image)
    for name, sizes, count, least in (
        ("kernel_shape", kernel, d, 1),
        ("strides", strides, d, 1),
        ("dilations", dilations, d, 1),
        ("pads", pads or [0] * 2 * d, 2 * d, 0),
    ):
        if len(sizes) != count or min(sizes, default=least) < least:
            raise ShapeError(
                f"{name} {[*sizes]}, expected {count} numbers, {least} or more"
            )
    if auto_pad in ("", "NOTSET"):
        around = pads or [0] * 2 * d
        return list(zip(around[:d], around[d:], strict=True))
    if auto_pad == "VALID":
        return [(0, 0)] * d
    found = []
    for n, k, s, step in zip(image, kernel, strides, dilations, strict=True):
        total = max(0, (-(-n // s) - 1) * s + (k - 1) * step + 1 - n)
        small = total // 2
        upper = auto_pad == "SAME_UPPER"
        found.append((small, total - small) if upper else (total - small, small))
    return found


def _extents(
    image: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[tuple[int, int]],
    ceil: int = 0,
) -> list[int]:
    """How many windows lie along each axis; with ``ceil`` also those that reach beyond
    the padding, if they begin before it. Raises :class:`ShapeError` where none fits."""
    found = []
    for n, k, s, d, (a, b) in zip(image, kernel, strides, dilations, pads, strict=True):
        room = n + a + b - (k - 1) * d - 1
        if room < 0:
            raise ShapeError(
                f"a window of {[*kernel]} with dilations {[*dilations]} does not fit "
                f"an image of {[*image]} with pads {[*pads]}"
            )
        count = (-(-room // s) if ceil else room // s) + 1
        if ceil and (count - 1) * s >= n + a:
            count -= 1
        found.append(count)
    return found


def _views(
    x: Any,
    kernel: Sequence[int],
    extents: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Iterator[Any]:
    """For every place in a window, the elements that windows of a padded image have
    there."""
    for place in itertools.product(*map(range, kernel)):
        key = [
            slice(p * d, p * d + (m - 1) * s + 1, s)
            for p, m, s, d in zip(place, extents, strides, dilations, strict=True)
        ]
        yield x[(..., *key)]


def _padded(
    x: Any,
    kernel: Sequence[int],
    extents: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[tuple[int, int]],
    fill: Any,
) -> Any:
    """x with what windows cover around it."""
    each = []
    for n, k, m, s, d, (a, b) in zip(
        x.shape[2:], kernel, extents, strides, dilations, pads, strict=True
    ):
        each.append((a, max(b, (m - 1) * s + (k - 1) * d + 1 - n - a)))
    if not any(map(any, each)):
        return x
    _fits(x, [(0, 0), (0, 0), *each])
    return np.pad(x, [(0, 0), (0, 0), *each], constant_values=fill)


def _fits(x: Any, pads: Sequence[tuple[int, int]]) -> None:
    """Raise what :func:`sized` does where x is too large with so much around it."""
    sized((n + a + b for n, (a, b) in zip(x.shape, pads, strict=True)), x.dtype)


# -- convolutions ----------------------------------------------------------------------


def convolved(
    x: Any,
    w: Any,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[tuple[int, int]],
    group: int,
) -> Any:
    """A convolution along any number of axes; those of two axes are eqsat's op."""
    d = w.ndim - 2
    if d == 1:
        x, w = np.expand_dims(x, 2), np.expand_dims(w, 2)
        y = convolved(x, w, (1, *strides), (1, *dilations), [(0, 0), *pads], group)
        return y[:, :, 0]
    even = all(a == b >= 0 for a, b in pads)
    if not even:
        _fits(x, [(0, 0), (0, 0), *pads])
        x = np.pad(x, [(0, 0), (0, 0), *pads])
        pads = [(0, 0)] * d
    if d == 2:
        padding = tuple(a for a, _ in pads)
        return ops.conv2d(x, w, tuple(strides), padding, tuple(dilations), group)
    if d == 0:
        raise ValueError("a convolution needs an axis")
    return _by_planes(x, w, strides, dilations, pads, group)


def _by_planes(
    x: Any,
    w: Any,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[tuple[int, int]],
    group: int,
) -> Any:
    """A sum of convolutions along one axis fewer, one for each place of the kernel
    along the first axis."""
    n, c, *_ = x.shape
    (a, b), *inner = pads
    x = np.pad(x, [(0, 0), (0, 0), (a, b), *[(0, 0)] * (x.ndim - 3)])
    s, step, k = strides[0], dilations[0], w.shape[2]
    count = (x.shape[2] - (k - 1) * step - 1) // s + 1
    parts = []
    for i in range(k):
        first = i * step
        plane = x[:, :, first : first + (count - 1) * s + 1 : s]
        plane = np.moveaxis(plane, 2, 1).reshape(n * count, c, *x.shape[3:])
        parts.append(
            convolved(plane, w[:, :, i], strides[1:], dilations[1:], inner, group)
        )
    y = functools.reduce(np.add, parts)
    return np.moveaxis(y.reshape(n, count, *y.shape[1:]), 1, 2)


def per_channel(v: Any, rank: int) -> Any:
    """A vector over channels beside images of ``rank`` axes."""
    return v.reshape((-1,) + (1,) * (rank - 2))


def check_kernels(w: Any, kernel_shape: Any, b: Any, kernels: int) -> None:
    """Raise :class:`ShapeError` for kernels of another shape than the attribute says,
    and for a bias that is not one number for each."""
    if kernel_shape is not None and tuple(kernel_shape) != tuple(w.shape[2:]):
        raise ShapeError(
            f"kernel_shape is {list(kernel_shape)}, and W has shape {tuple(w.shape)}"
        )
    expect_shape("B", b, kernels)


@operator("Conv")
def conv(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    auto_pad: str,
    dilations: Any = None,
    group: int,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """A convolution with a bias."""
    check_kernels(w, kernel_shape, b, w.shape[0])
    d = x.ndim - 2
    steps, gaps = strides or [1] * d, dilations or [1] * d
    around = pads_of(x.shape[2:], w.shape[2:], steps, gaps, pads, auto_pad)
    y = convolved(x, w, steps, gaps, around, group)
    return y if b is None else y + per_channel(b, y.ndim)


@operator("ConvInteger")
def conv_integer(
    x: Any,
    w: Any,
    x0: Any = None,
    w0: Any = None,
    *,
    auto_pad: str,
    dilations: Any = None,
    group: int,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """A convolution of integers less their zero points, in int32."""
    check_kernels(w, kernel_shape, None, w.shape[0])
    d = x.ndim - 2
    steps, gaps = strides or [1] * d, dilations or [1] * d
    around = pads_of(x.shape[2:], w.shape[2:], steps, gaps, pads, auto_pad)
    return convolved(
        _from_zero(x, x0), _from_zero(w, w0, first=True), steps, gaps, around, group
    )


def _from_zero(x: Any, zero: Any, first: bool = False) -> Any:
    """Integers less a zero point, in int32; ``first``: one for each of the first
    axis."""
    wide = x.astype(np.int32)
    if zero is None:
        return wide
    z = zero.astype(np.int32)
    if first and z.ndim == 1 and z.shape[0] > 1:
        z = z.reshape((-1,) + (1,) * (x.ndim - 1))
    return wide - (z.reshape(()) if z.size == 1 else z)


@operator("DeformConv")
def deform_conv(
    x: Any,
    w: Any,
    offset: Any,
    b: Any = None,
    mask: Any = None,
    *,
    dilations: Any = None,
    group: int,
    kernel_shape: Any = None,
    offset_group: int,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """A convolution whose windows' places are moved; between pixels they are
    interpolated."""
    if x.ndim != 4:
        raise ValueError("only images of two axes are supported")
    steps, gaps = strides or [1, 1], dilations or [1, 1]
    around = pads_of(x.shape[2:], w.shape[2:], steps, gaps, pads, "NOTSET")
    n, c, height, width = x.shape
    o, each, kh, kw = w.shape
    check_kernels(w, kernel_shape, b, o)
    rows, columns = _extents((height, width), (kh, kw), steps, gaps, around)
    places = offset_group * kh * kw
    expect_shape("offset", offset, n, 2 * places, rows, columns)
    expect_shape("mask", mask, n, places, rows, columns)
    moves = offset.reshape(n, offset_group, kh * kw, 2, rows, columns)
    i, j = np.divmod(np.arange(kh * kw), kw)
    base_y = (i * gaps[0] - around[0][0])[:, None, None] + (np.arange(rows) * steps[0])[
        :, None
    ]
    base_x = (j * gaps[1] - around[1][0])[:, None, None] + np.arange(columns) * steps[1]
    y = moves[:, :, :, 0] + base_y.astype(x.dtype)
    z = moves[:, :, :, 1] + base_x.astype(x.dtype)
    inside = (y > -1) & (z > -1) & (y < height) & (z < width)
    images = x.reshape(n, offset_group, c // offset_group, height * width)
    total = None
    y0, z0 = np.floor(y), np.floor(z)
    for dy, dz in itertools.product((0, 1), (0, 1)):
        v, u = y0 + dy, z0 + dz
        share = (1 - np.abs(y - v)) * (1 - np.abs(z - u))
        there = inside & (v >= 0) & (v < height) & (u >= 0) & (u < width)
        place = np.clip(v, 0, height - 1) * width + np.clip(u, 0, width - 1)
        place = np.where(there, place, 0).astype(np.int64)
        flat = place.reshape(n, offset_group, 1, -1)
        flat = np.broadcast_to(flat, (*images.shape[:3], flat.shape[-1]))
        value = np.take_along_axis(images, flat, -1)
        value = value.reshape(*images.shape[:3], kh * kw, rows, columns)
        part = value * np.where(there, share, 0)[:, :, None]
        total = part if total is None else total + part
    if mask is not None:
        total = total * mask.reshape(n, offset_group, 1, kh * kw, rows, columns)
    columns_ = total.reshape(n, group, each * kh * kw, rows * columns)  # type: ignore[union-attr]
    kernels = w.reshape(group, o // group, each * kh * kw)
    found = np.matmul(kernels, columns_).reshape(n, o, rows, columns)
    return found if b is None else found + per_channel(b, 4)


@operator("Col2Im")
def col2im(
    x: Any,
    image: Any,
    block: Any,
    *,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """Sums of windows where they overlap."""
    sizes = [int(n) for n in known(image)]
    kernel = [int(n) for n in known(block)]
    d = len(sizes)
    steps, gaps = strides or [1] * d, dilations or [1] * d
    around = pads_of(sizes, kernel, steps, gaps, pads, "NOTSET")
    extents = _extents(sizes, kernel, steps, gaps, around)
    n, c = x.shape[0], x.shape[1] // math.prod(kernel)
    whole = [m + a + b for m, (a, b) in zip(sizes, around, strict=True)]
    parts = x.reshape(n, c, math.prod(kernel), *extents)
    total = None
    for i, place in enumerate(itertools.product(*map(range, kernel))):
        part = parts[:, :, i]
        for j, p in enumerate(place):  # spread along each axis
            a, s, m = 2 + j, steps[j], part.shape[2 + j]
            part = np.expand_dims(part, a + 1)
            widths = [(0, 0)] * part.ndim
            widths[a + 1] = (0, s - 1)
            part = np.pad(part, widths)
            part = part.reshape(*part.shape[:a], m * s, *part.shape[a + 2 :])
            part = part[(slice(None),) * a + (slice(0, (m - 1) * s + 1),)]
            first = p * gaps[j]
            widths = [(0, 0)] * part.ndim
            widths[a] = (first, whole[j] - first - part.shape[a])
            part = np.pad(part, widths)
        total = part if total is None else total + part
    key = [slice(a, a + m) for m, (a, _) in zip(sizes, around, strict=True)]
    return total[(slice(None), slice(None), *key)]  # type: ignore[index]


# -- pools -----------------------------------------------------------------------------


def _lowest(x: Any) -> Any:
    return -np.inf if kind_of(x) == "f" else np.iinfo(x.dtype).min


def _windows(
    image: Sequence[int],
    kernel: Sequence[int],
    strides: Any,
    dilations: Any,
    pads: Any,
    auto_pad: str,
    ceil: int,
) -> tuple[list[tuple[int, int]], tuple[Any, Any, Any, Any]]:
    """What a pool puts around an image; and what windows are: their sizes, how many lie
    along each axis, steps between them and between their elements."""
    d = len(kernel)
    steps, gaps = strides or [1] * d, dilations or [1] * d
    around = pads_of(image, kernel, steps, gaps, pads, auto_pad)
    extents = _extents(image, kernel, steps, gaps, around, ceil)
    return around, (kernel, extents, steps, gaps)


def _joined(
    join: np.ufunc,
    x: Any,
    windows: tuple[Any, Any, Any, Any],
    around: Sequence[tuple[int, int]],
    fill: Any,
) -> Any:
    """All elements of every window, joined by what is associative: along one axis after
    another, h + w of them for a window of h × w. Those of the only window, as of a
    whole image, are reduced: 49 elements written out are 5,000 lines of code."""
    for i, row in enumerate(zip(*windows, around, strict=True)):
        each: list[Any] = [(1, n, 1, 1, (0, 0)) for n in x.shape[2:]]
        each[i] = row
        sizes, counts, steps, gaps, pads = zip(*each, strict=True)
        padded = _padded(x, sizes, counts, steps, gaps, pads, fill)
        if counts[i] == 1 and sizes[i] > 1:
            inside = slice(0, (sizes[i] - 1) * gaps[i] + 1, gaps[i])
            window = padded[(*[slice(None)] * (2 + i), inside)]
            x = join.reduce(window, axis=2 + i, keepdims=True)
            continue
        x = functools.reduce(join, _views(padded, sizes, counts, steps, gaps))
    return x


@operator("MaxPool")
def max_pool(
    x: Any,
    *,
    auto_pad: str,
    ceil_mode: int = 0,
    dilations: Any = None,
    kernel_shape: Any,
    pads: Any = None,
    storage_order: int = 0,
    strides: Any = None,
    call: Any,
) -> Any:
    """The largest element of every window, and its place in x if asked for."""
    given = kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    image, d = x.shape[2:], len(kernel_shape)
    around, rest = _windows(image, *given)
    best = _joined(np.maximum, x, rest, around, _lowest(x))
    if call.outputs == 1:
        return best
    values = list(_views(_padded(x, *rest, around, _lowest(x)), *rest))
    count = math.prod(image)
    order = image[::-1] if storage_order else image
    places = np.arange(count, dtype=np.int64).reshape(order)
    places = places.T if storage_order else places
    places = _padded(places[None, None], *rest, around, -1)
    found = None
    for value, place in reversed(list(zip(values, _views(places, *rest), strict=True))):
        is_best = (value == best) | (value != value)
        chosen = is_best & (place >= 0)  # not the padding, which may be as low
        found = place if found is None else np.where(chosen, place, found)
    planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * d)
    return best, np.broadcast_to(found + planes * count, best.shape)


@operator("AveragePool")
def average_pool(
    x: Any,
    *,
    auto_pad: str,
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Any = None,
    kernel_shape: Any,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """The mean of every window, of what lies in x or in the padding."""
    given = kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    image, d = x.shape[2:], len(kernel_shape)
    around, rest = _windows(image, *given)
    total = _joined(np.add, x, rest, around, 0)
    ones = np.ones((1, 1, *image), np.float64)
    if count_include_pad:
        ones = np.pad(ones, [(0, 0), (0, 0), *around], constant_values=1)
        around = [(0, 0)] * d
    counts = _joined(np.add, ones, rest, around, 0)
    if counts.size and (counts == counts.flat[0]).all():
        return total / int(counts.flat[0])
    return total / counts.astype(x.dtype)


@operator("LpPool")
def lp_pool(
    x: Any,
    *,
    auto_pad: str,
    ceil_mode: int = 0,
    dilations: Any = None,
    kernel_shape: Any,
    p: int,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """(Σ |x|ᵖ)^(1/p) of every window."""
    given = kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    around, rest = _windows(x.shape[2:], *given)
    return _joined(np.add, np.abs(x) ** p, rest, around, 0) ** (1 / p)


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(x: Any, *, call: Any) -> Any:
    """The mean or the largest element of each image."""
    reduce: Callable[..., Any] = np.mean if "Average" in call.node.op else np.max
    return reduce(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalLpPool")
def global_lp_pool(x: Any, *, p: int) -> Any:
    """(Σ |x|ᵖ)^(1/p) of each image."""
    axes = tuple(range(2, x.ndim))
    return np.sum(np.abs(x) ** p, axis=axes, keepdims=True) ** (1 / p)


@operator("MaxUnpool", on_host=True)
def max_unpool(
    x: Any,
    places: Any,
    sizes: Any = None,
    *,
    kernel_shape: Any,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """Elements at the places where a pool found them; 0 elsewhere."""
    d = len(kernel_shape)
    steps = strides or [1] * d
    around = pads or [0] * 2 * d
    natural = [
        (n - 1) * s + k - a - b
        for n, s, k, a, b in zip(
            x.shape[2:], steps, kernel_shape, around[:d], around[d:], strict=True
        )
    ]
    shape = [*x.shape[:2], *natural]
    wanted = shape if sizes is None else [int(n) for n in sizes]
    sized(wanted, x.dtype)
    flat = places.reshape(-1)
    if flat.size and not 0 <= flat.min() <= flat.max() < math.prod(shape):
        raise ShapeError(
            f"places from {flat.min()} to {flat.max()}, expected 0 to "
            f"{math.prod(shape) - 1}"
        )
    y = np.zeros(math.prod(wanted), x.dtype)
    if wanted != shape:  # places are those of the natural shape
        grid = np.unravel_index(flat, shape)
        flat = np.ravel_multi_index(grid, wanted)
    y[flat] = x.reshape(-1)
    return y.reshape(wanted)


# -- products --------------------------------------------------------------------------


@operator("MatMul")
def matmul(x: Any, y: Any) -> Any:
    """The product of matrices."""
    return np.matmul(x, y)


@operator("MatMulInteger")
def matmul_integer(x: Any, y: Any, x0: Any = None, y0: Any = None) -> Any:
    """The product of integers less their zero points, in int32."""
    if x0 is not None and x0.ndim == 1 and x0.shape[0] > 1:
        x0 = x0.reshape(-1, 1)
    return np.matmul(_from_zero(x, x0), _from_zero(y, y0))


@operator("Gemm")
def gemm(
    x: Any,
    y: Any,
    c: Any = None,
    *,
    alpha: float,
    beta: float,
    transA: int,
    transB: int,
) -> Any:
    """alpha x y + beta c, of x or y transposed."""
    z = np.matmul(np.transpose(x) if transA else x, np.transpose(y) if transB else y)
    z = z if alpha == 1 else (z * alpha).astype(x.dtype)
    if c is None or beta == 0:
        return z
    expect_broadcast("C", c, z.shape)
    return z + (c if beta == 1 else (c * beta).astype(x.dtype))


@operator("Einsum")
def einsum(*xs: Any, equation: str) -> Any:
    """A sum of products by subscripts."""
    if is_known(*xs) and xs[0].dtype.kind == "V":  # NumPy has no bfloat16 there
        xs = tuple(x.astype(np.float32) for x in xs)
    return np.einsum(equation.replace(" ", ""), *xs)


@operator("Det")
def det(x: Any) -> Any:
    """Determinants of matrices."""
    return np.linalg.det(x)
