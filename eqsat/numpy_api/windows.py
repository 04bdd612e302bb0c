"""NumPy's functions of neighbouring elements, and of columns together: windows,
convolution, slopes, covariance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.numpy_api.arrange import diff, shape, sizes_of
from eqsat.numpy_api.indexing import getitem
from eqsat.numpy_api.operands import array
from eqsat.numpy_api.statistics import average, cast, is_floating
from eqsat.numpy_api.table import covers
from eqsat.ops import dtype_of, negative_axis
from eqsat.support import (
    DTypeError,
    ShapeError,
    TraceError,
    TraceValueError,
    at,
    caller_line,
    counted,
)
from eqsat.terms import is_float

_MANY = 64
"""Terms of a sum, and arrays to be joined, up to which these are written out."""
_LONGEST_EDGE = 512
"""Terms of a convolution up to which the sums at its ends leave out what is off the
array; longer ones multiply zeros there."""


@covers("lib.stride_tricks.sliding_window_view")
def sliding_window_view(x: Any, window_shape: Any, axis: Any = None) -> Any:
    """All windows of ``x``: y[..., i, ..., j] = x[..., i + j, ...] for each axis."""
    name = "np.lib.stride_tricks.sliding_window_view"
    sizes, n = sizes_of(window_shape), len(shape(x))
    axes = tuple(range(n)) if axis is None else sizes_of(axis)
    if len(sizes) != len(axes):
        raise ShapeError(
            f"{name}: {counted(len(sizes), 'size')} of windows for "
            f"{counted(len(axes), 'axis')}"
            f"{at(caller_line())}"
        )
    for size, a in zip(sizes, axes, strict=True):
        k = negative_axis(name, a, n) + n
        count = shape(x)[k] - size + 1
        if count < 1 or size < 0:
            raise ShapeError(
                f"{name}: a window of {size} along axis {a} of shape {shape(x)}"
                f"{at(caller_line())}"
            )
        lead = (slice(None),) * k
        if size <= _MANY:
            parts = [getitem(x, (*lead, slice(j, j + count))) for j in range(size)]
            x = ops.moveaxis(ops.stack(parts, 0), 0, -1)
        else:
            places = np.add.outer(np.arange(count), np.arange(size))
            x = ops.moveaxis(ops.take(x, places, k), k + 1, -1)
    return x


@covers("convolve")
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """yₖ = Σⱼ vⱼ aₖ₋ⱼ of arrays of one axis."""
    a, v = _lines("np.convolve", a, v)
    if shape(v)[0] > shape(a)[0]:
        a, v = v, a
    return _sliding("np.convolve", a, v, mode)


@covers("correlate")
def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """yₖ = Σⱼ aₖ₊ⱼ vⱼ of arrays of one axis."""
    for x in (a, v):
        if not shape(array(x)):
            raise ShapeError(
                f"np.correlate: shape (), expected one axis{at(caller_line())}"
            )
    a, v = _lines("np.correlate", a, v)
    if shape(v)[0] > shape(a)[0]:
        turned = _sliding("np.correlate", v, ops.flip(a, 0), mode)
        return ops.flip(turned, 0)
    return _sliding("np.correlate", a, ops.flip(v, 0), mode)


def _lines(name: str, a: Any, v: Any) -> tuple[Any, Any]:
    """Two arrays of one axis, of their common dtype."""
    a, v = (array(np.asarray(x) if np.isscalar(x) else x) for x in (a, v))
    shapes = shape(a), shape(v)
    if any(len(s) > 1 or s == (0,) for s in shapes):
        raise ShapeError(
            f"{name}: shapes {shapes[0]} and {shapes[1]}, expected one axis, not "
            f"empty{at(caller_line())}"
        )
    dtype = np.result_type(*(dtype_of(x) or x for x in (a, v)))
    one, two = (ops.reshape(cast(x, dtype), (-1,)) for x in (a, v))
    return one, two


def _sliding(name: str, a: Any, v: Any, mode: str) -> Any:
    """Σⱼ vⱼ aₖ₋ⱼ for a ``v`` that is no longer than ``a``."""
    m = shape(v)[0]
    sizes = {"full": (m - 1, m - 1), "same": (m // 2, (m - 1) // 2), "valid": (0, 0)}
    if mode not in sizes:
        raise TraceValueError(
            f"{name}: mode={mode!r}, expected 'full', 'same' or 'valid'"
            f"{at(caller_line())}"
        )
    before, after = sizes[mode]
    if m > _LONGEST_EDGE:
        return _inner(ops.pad(a, ((before, after),)), v)
    parts = [_inner(a, v)]
    if before:
        parts.insert(0, _edge(a, v, np.arange(-before, 0)))
    if after:
        end = shape(a)[0] - m + 1
        parts.append(_edge(a, v, np.arange(end, end + after)))
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, 0)


def _inner(a: Any, v: Any) -> Any:
    """Σⱼ vⱼ aₖ₋ⱼ where all of ``v`` lies on ``a``."""
    m = shape(v)[0]
    if m <= _MANY or not is_floating(a):
        count = shape(a)[0] - m + 1
        total: Any = None
        for j in range(m):
            part = getitem(v, m - 1 - j) * getitem(a, slice(j, j + count))
            total = part if total is None else total + part
        return total
    image = ops.reshape(a, (1, 1, 1, -1))
    kernel = ops.reshape(ops.flip(v, 0), (1, 1, 1, m))
    return ops.reshape(ops.conv2d(image, kernel), (-1,))


def _edge(a: Any, v: Any, first: np.ndarray[Any, Any]) -> Any:
    """The sums for which ``v`` begins at places ``first`` of ``a`` and lies on it in
    part. What is off it is not multiplied: an infinity by 0 would be NaN."""
    n = shape(a)[0]
    places = np.add.outer(first, np.arange(shape(v)[0]))
    on = (places >= 0) & (places < n)
    products = ops.take(a, np.clip(places, 0, n - 1), 0) * ops.flip(v, 0)
    total = ops.sum(ops.where(on, products, 0), axis=-1)
    return cast(total, dtype_of(products))


@covers("gradient")
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Slopes by central differences, at the edges of first or second order. Distances
    are numbers, or for an axis the places of its elements."""
    f = array(f)
    if dtype_of(f) == np.dtype(bool):
        raise DTypeError(
            f"np.gradient: bools have no differences; write x.astype(float)"
            f"{at(caller_line())}"
        )
    if dtype_of(f) is not None and not is_floating(f):
        f = cast(f, float)
    n = len(shape(f))
    axes = [*range(n)] if axis is None else [
        negative_axis("np.gradient", a, n) + n for a in sizes_of(axis)
    ]  # fmt: skip
    steps = list(varargs) or [1.0]
    steps = steps * len(axes) if len(steps) == 1 else steps
    if len(steps) != len(axes):
        raise ShapeError(
            f"np.gradient: {counted(len(varargs), 'distance')} for "
            f"{counted(len(axes), 'axis')}"
            f"{at(caller_line())}"
        )
    if edge_order not in (1, 2) or any(shape(f)[a] <= edge_order for a in axes):
        raise ShapeError(
            f"np.gradient: edge_order={edge_order} of shape {shape(f)}; an axis needs "
            f"more than edge_order elements, which is 1 or 2{at(caller_line())}"
        )
    found = tuple(_slope(f, s, a, edge_order) for s, a in zip(steps, axes, strict=True))
    return found[0] if len(found) == 1 else found


def _slope(f: Any, step: Any, axis: int, edge_order: int) -> Any:
    """The slope along one axis."""
    n = shape(f)[axis]

    def part(start: int, stop: int) -> Any:
        return getitem(f, (*(slice(None),) * axis, slice(start, stop)))

    step = array(step)
    if len(shape(step)):
        if edge_order == 2 or shape(step) != (n,):
            raise TraceError(
                f"np.gradient: places of shape {shape(step)} for an axis of {n}, "
                "expected one for each element, and edge_order=1"
                f"{at(caller_line())}"
            )
        # Before differences, which unsigned integers have none of; bools differ or not.
        differs = is_floating(step) or dtype_of(step) == np.dtype(bool)
        apart = diff(step if differs else cast(step, float))
        apart = apart if is_floating(step) else cast(apart, dtype_of(f))
        apart = ops.reshape(apart, (n - 1, *(1,) * (len(shape(f)) - axis - 1)))
        h, k = getitem(apart, slice(-1)), getitem(apart, slice(1, None))
        inner = (
            -k / (h * (h + k)) * part(0, n - 2)
            + (k - h) / (h * k) * part(1, n - 1)
            + h / (k * (h + k)) * part(2, n)
        )
        first, last = getitem(apart, slice(1)), getitem(apart, slice(n - 2, n - 1))
    else:
        inner = (part(2, n) - part(0, n - 2)) / (2.0 * step)
        first = last = step
    if edge_order == 1:
        low = (part(1, 2) - part(0, 1)) / first
        high = (part(n - 1, n) - part(n - 2, n - 1)) / last
    else:
        a, b, c = -1.5 / step, 2.0 / step, -0.5 / step
        low = a * part(0, 1) + b * part(1, 2) + c * part(2, 3)
        high = -c * part(n - 3, n - 2) - b * part(n - 2, n - 1) - a * part(n - 1, n)
    return cast(ops.concatenate([low, inner, high], axis), dtype_of(f))


@covers("cov")
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    dtype: Any = None,
) -> Any:
    """The covariances of variables, the rows of ``m``, or with ``rowvar=False`` its
    columns."""
    found = [array(v) for v in (m, y) if v is not None]
    if any(len(shape(v)) > 2 for v in found):
        raise ShapeError(
            f"np.cov: shapes {', '.join(str(shape(v)) for v in found)}, expected at "
            f"most two axes{at(caller_line())}"
        )
    dtype = np.dtype(dtype or np.result_type(float, *(dtype_of(v) for v in found)))
    if not is_float(dtype):
        raise DTypeError(f"np.cov: dtype={dtype} is no floating one{at(caller_line())}")
    if ddof is not None and ddof != int(ddof):
        raise TraceError(
            f"np.cov: ddof={ddof!r}, expected an integer{at(caller_line())}"
        )
    rows = []
    for v in found:
        v = (
            ops.reshape(cast(v, dtype), (1, -1))
            if len(shape(v)) < 2
            else cast(v, dtype)
        )
        rows.append(v if rowvar or shape(v)[0] == 1 else ops.transpose(v))
    if not shape(rows[0])[0]:
        return np.empty((0, 0))
    x = rows[0] if len(rows) == 1 else ops.concatenate(rows, 0)
    if not shape(x)[1]:  # NumPy multiplies sums of nothing by ∞
        return ops.squeeze(np.full((shape(x)[0],) * 2, math.nan, dtype))
    x = x - average(x, 1, keepdims=True)
    freedom = max(shape(x)[1] - ((0 if bias else 1) if ddof is None else ddof), 0)
    products = ops.matmul(x, ops.transpose(x)) * dtype.type(np.true_divide(1, freedom))
    return ops.squeeze(products)


@covers("corrcoef")
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, dtype: Any = None) -> Any:
    """The correlations of variables, from -1 to 1."""
    c = cov(x, y, rowvar, dtype=dtype)
    if not shape(c):
        return c / c
    deviation = ops.sqrt(getitem(ops.reshape(c, (-1,)), slice(None, None, len(c) + 1)))
    c = c / ops.expand_dims(deviation, 1) / ops.expand_dims(deviation, 0)
    return ops.clip(c, -1, 1)


@covers("ediff1d")
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Differences of neighbouring elements, with numbers before and after them."""
    flat = ops.ravel(array(ary))
    y = getitem(flat, slice(1, None)) - getitem(flat, slice(-1))
    parts = [to_begin, y, to_end]
    joined = [
        ops.reshape(cast(array(p), dtype_of(y)), (-1,)) for p in parts if p is not None
    ]
    return y if len(joined) == 1 else ops.concatenate(joined, 0)
