"""NumPy's functions of order: quantiles, search in sorted arrays, interpolation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.numpy_api.arrange import shape
from eqsat.numpy_api.indexing import getitem, take_along_axis
from eqsat.numpy_api.operands import array, judged
from eqsat.numpy_api.statistics import cast, is_floating, largest, smallest
from eqsat.numpy_api.table import covers
from eqsat.ops import dtype_of, negative_axis, rank
from eqsat.support import (
    BoundsError,
    ShapeError,
    TraceError,
    TraceValueError,
    at,
    caller_line,
    counted,
)
from eqsat.terms import Traced, normal_axes

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


@covers("quantile")
def quantile(
    a: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """The value below which a share ``q`` of the elements lies, between the two nearest
    elements by ``method``; NaN where there is one. ``q`` is known when tracing."""
    return _quantile("np.quantile", a, _shares("np.quantile", q, 1), q, axis, method,
                     keepdims)  # fmt: skip


@covers("percentile")
def percentile(
    a: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """:func:`quantile` of ``q`` in percent."""
    shares = _shares("np.percentile", q, 100)
    return _quantile("np.percentile", a, shares, q, axis, method, keepdims)


def _shares(name: str, q: Any, whole: int) -> np.ndarray[Any, Any]:
    """``q`` as shares from 0 to 1; integers stay such, which NumPy takes elements for
    as they are."""
    if isinstance(q, Traced):
        raise TraceError(
            f"{name}: q must be known while tracing; pass a Python number"
            f"{at(caller_line())}"
        )
    shares: np.ndarray[Any, Any] = np.asarray(q if whole == 1 else np.divide(q, whole))
    if shares.dtype.kind in "bu":
        shares = shares.astype(int)
    if not np.all((shares >= 0) & (shares <= 1)):
        raise ShapeError(f"{name}: q={q!r}, expected 0 to {whole}{at(caller_line())}")
    return shares


def _last(name: str, a: Any, axis: Any) -> tuple[Any, int, tuple[int, ...]]:
    """``a`` with ``axis`` as its last one, the size of that, and the shape of what
    keeps its axes."""
    axes = normal_axes(name, axis, rank(a))
    sizes = shape(a)
    kept = tuple(1 if i in axes else s for i, s in enumerate(sizes, -len(sizes)))
    n = math.prod(sizes[i] for i in axes)
    moved = ops.moveaxis(a, axes, range(-len(axes), 0))
    lead = shape(moved)[: len(sizes) - len(axes)]
    return ops.reshape(moved, (*lead, n)), n, kept


def _quantile(
    name: str,
    a: Any,
    shares: np.ndarray[Any, Any],
    q: Any,
    axis: Any,
    method: str,
    keepdims: bool,
) -> Any:
    if method not in _METHODS:
        raise TraceError(
            f"{name}: method={method!r} is not supported in a traced function; "
            f"{', '.join(_METHODS)} are{at(caller_line())}"
        )
    a = array(a)
    last, n, kept = _last(name, a, axis)
    if not n:
        raise BoundsError(f"{name}: no elements along axis {axis}{at(caller_line())}")
    dtype = _dtype(a, shares, q, method)
    last = ops.sort(last)
    found = _between(method, last, shares * (n - 1), dtype)
    if is_floating(a):
        end = getitem(last, (..., slice(n - 1, n)))
        ends = end if np.ndim(shares) else getitem(end, (..., 0))
        ends = ops.reshape(ends, shape(end)[:-1] + (1,) * np.ndim(shares))
        found = ops.where(ops.isnan(ends), cast(ends, dtype_of(found)), found)
    return _arranged(found, np.ndim(shares), kept, keepdims)


def _dtype(a: Any, shares: np.ndarray[Any, Any], q: Any, method: Any) -> Any:
    """The dtype of quantiles: that of floats, unless arrays of shares are wider."""
    share: Any = shares
    if type(q) in (int, float):
        share = q if shares.dtype.kind == "i" else 0.5
    return np.quantile(np.zeros(1, dtype_of(a)), share, method=method).dtype


def _arranged(found: Any, axes: int, kept: tuple[int, ...], keepdims: bool) -> Any:
    """The axes of the shares first."""
    if axes:
        found = ops.moveaxis(found, range(-axes, 0), range(axes))
    if keepdims:
        found = ops.reshape(found, (*shape(found)[:axes], *kept))
    return found


def _between(method: str, x: Any, place: Any, dtype: Any) -> Any:
    """What lies at ``place`` of the last axis, between two elements: as NumPy computes
    it, the one before and the one behind even where ``place`` is an element."""
    low, high = np.floor(place).astype(int), np.ceil(place).astype(int)
    part = place - low
    if method in ("lower", "higher", "nearest") or (
        method == "linear" and place.dtype.kind == "i"
    ):
        up = part > 0.5 if method == "nearest" else method == "higher"
        half = (part == 0.5) & (low % 2 == 1) & (method == "nearest")
        places = np.where(up | half, high, low)
        return getitem(x, (..., places if np.ndim(places) else int(places)))
    if method == "midpoint":
        part = np.where(part > 0, 0.5, 0.0)
    high = np.minimum(low + 1, shape(x)[-1] - 1)
    low, high = (p if np.ndim(p) else int(p) for p in (low, high))
    a, b = (getitem(x, (..., p)) for p in (low, high))
    return _mixed(a, b, part.astype(place.dtype), dtype)


def _mixed(a: Any, b: Any, part: Any, dtype: Any) -> Any:
    """``a`` and ``b``, ``part`` of the way from one to the other. As NumPy computes it:
    in ``dtype``, but floats are subtracted in their own, and the rest of the way in
    that of ``part``."""
    if not is_floating(a):
        a, b = cast(a, dtype), cast(b, dtype)
    apart = cast(b - a, dtype)
    before = cast(a, dtype) + apart * cast(part, dtype)
    behind = cast(b, dtype) - apart * cast(1 - part, dtype)
    return ops.where(part >= 0.5, behind, before)


# -- NaN does not count ----------------------------------------------------------------


@covers("nanquantile")
def nanquantile(
    a: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """:func:`quantile` of the elements that are not NaN; NaN where there are none."""
    shares = _shares("np.nanquantile", q, 1)
    return _nan_quantile("np.nanquantile", a, shares, q, axis, method, keepdims)


@covers("nanpercentile")
def nanpercentile(
    a: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """:func:`percentile` of the elements that are not NaN; NaN where there are none."""
    shares = _shares("np.nanpercentile", q, 100)
    return _nan_quantile("np.nanpercentile", a, shares, q, axis, method, keepdims)


@covers("nanmedian")
def nanmedian(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The middle one of the elements that are not NaN; NaN where there are none."""
    a = array(a)
    last, n, kept = _last("np.nanmedian", a, axis)
    if not n:
        return ops.mean(a, axis=axis, keepdims=keepdims)
    last = ops.sort(last if is_floating(a) else cast(last, float))
    count = ops.sum(ops.logical_not(ops.isnan(last)), axis=-1, keepdims=True)
    places = [ops.maximum(count - 1, 0) // 2, ops.minimum(count // 2, n - 1)]
    low, high = (take_along_axis(last, p, -1) for p in places)
    y = getitem(ops.mean(ops.stack([low, high]), 0), (..., 0))
    return ops.reshape(y, kept) if keepdims else y


def _nan_quantile(
    name: str,
    a: Any,
    shares: np.ndarray[Any, Any],
    q: Any,
    axis: Any,
    method: str,
    keepdims: bool,
) -> Any:
    a = array(a)
    if not is_floating(a):
        return _quantile(name[:3] + name[6:], a, shares, q, axis, method, keepdims)
    if method != "linear" or np.ndim(shares) > 1:
        raise TraceError(
            f"{name}: only method='linear', and q of at most one axis, is supported in "
            f"a traced function{at(caller_line())}"
        )
    last, n, kept = _last(name, a, axis)
    if not n:
        raise BoundsError(f"{name}: no elements along axis {axis}{at(caller_line())}")
    dtype = _dtype(a, shares, q, method)
    last = ops.sort(last)
    count = ops.sum(ops.logical_not(ops.isnan(last)), axis=-1, keepdims=True)
    end = ops.maximum(count - 1, 0)
    if shares.dtype.kind == "i":
        found = take_along_axis(last, end * np.atleast_1d(shares), -1)
    else:
        place = cast(end, shares.dtype) * np.atleast_1d(shares)
        low = ops.floor(place)
        places = [ops.cast(low, int), ops.minimum(ops.cast(low, int) + 1, end)]
        x, y = (take_along_axis(last, p, -1) for p in places)
        found = _mixed(x, y, place - low, dtype)
    if not np.ndim(shares):
        found = getitem(found, (..., 0))
    return _arranged(found, np.ndim(shares), kept, keepdims)


@covers("nanargmax")
def nanargmax(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Where the largest element that is not NaN lies. Where there is none, NumPy's
    ValueError, when a result that needs it is computed."""
    return _nan_place(ops.argmax, largest, -math.inf, a, axis, keepdims)


@covers("nanargmin")
def nanargmin(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Where the smallest element that is not NaN lies. Where there is none, NumPy's
    ValueError, when a result that needs it is computed."""
    return _nan_place(ops.argmin, smallest, math.inf, a, axis, keepdims)


def _nan_place(
    place: Any, extreme: Any, end: float, a: Any, axis: Any, keepdims: bool
) -> Any:
    a = array(a)
    if not is_floating(a):
        return place(a, axis=axis, keepdims=keepdims)
    nan = ops.isnan(a)
    found = place(ops.where(nan, end, a), axis=axis, keepdims=keepdims)
    return ops.unless(found, ops.all(nan, axis=axis), "all_nan")


# -- partitions ------------------------------------------------------------------------


@covers("partition")
def partition(a: Any, kth: Any, axis: int | None = -1, kind: Any = None) -> Any:
    """``a`` with what is smaller than the elements at ``kth`` before these and what is
    larger behind them: in order, which is one of the results that NumPy allows."""
    judged("np.partition", "kind of partition", kind)
    _check_places("np.partition", a, kth, axis)
    return ops.sort(a, axis)


@covers("argpartition")
def argpartition(a: Any, kth: Any, axis: int | None = -1, kind: Any = None) -> Any:
    """Positions of the elements of :func:`partition`; int64."""
    judged("np.argpartition", "kind of partition", kind)
    _check_places("np.argpartition", a, kth, axis)
    return ops.argsort(a, axis)


def _check_places(name: str, a: Any, kth: Any, axis: int | None) -> None:
    sizes = shape(a) or (1,)
    if axis is None:
        n = math.prod(sizes)
    else:
        n = sizes[negative_axis(name, axis, len(sizes))]
    if isinstance(kth, Traced):
        raise TraceError(f"{name}: kth must be known while tracing{at(caller_line())}")
    if np.asarray(kth).dtype.kind not in "iu" and np.size(kth):
        raise TraceError(f"{name}: kth={kth!r}, expected ints{at(caller_line())}")
    if math.prod(sizes) and not all(-n <= k < n for k in np.ravel(kth)):
        raise ShapeError(
            f"{name}: kth={kth!r}, expected places among {counted(n, 'element')}"
            f"{at(caller_line())}"
        )


# -- sorted arrays ---------------------------------------------------------------------


@covers("searchsorted")
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Where elements ``v`` belong in ``a``, one sorted axis: how many elements of it
    are smaller, or with ``side="right"`` not larger; int64."""
    if side not in ("left", "right"):
        raise TraceValueError(
            f"np.searchsorted: side={side!r}, expected 'left' or 'right'"
            f"{at(caller_line())}"
        )
    a, v = array(a), array(np.asarray(v) if np.isscalar(v) else v)
    if len(shape(a)) != 1:
        raise ShapeError(
            f"np.searchsorted: a has shape {shape(a)}, expected one axis"
            f"{at(caller_line())}"
        )
    if sorter is not None:
        if shape(sorter) != shape(a):
            raise ShapeError(
                f"np.searchsorted: sorter has shape {shape(sorter)}, expected that of "
                f"a, {shape(a)}{at(caller_line())}"
            )
        a = ops.take(a, sorter, 0)
    dtype = np.result_type(*(dtype_of(x) or x for x in (a, v)))
    a, v = cast(a, dtype), cast(v, dtype)
    n = shape(a)[0]
    found = ops.zeros_like(v, int) if isinstance(v, Traced) else np.zeros(shape(v), int)
    step = 1 << n.bit_length() - 1 if n else 0
    while step:
        end = found + step
        x = ops.take(a, ops.minimum(end, n) - 1, 0)
        before = _less(x, v) if side == "left" else ops.logical_not(_less(v, x))
        found = ops.where(ops.logical_and(end <= n, before), end, found)
        step >>= 1
    return found


def _less(x: Any, y: Any) -> Any:
    """x < y, in the order in which NaN is the largest."""
    if not is_floating(x):
        return ops.less(x, y)
    nan = ops.logical_and(ops.isnan(y), ops.logical_not(ops.isnan(x)))
    return ops.logical_or(ops.less(x, y), nan)


def neighbours(x: Any) -> tuple[Any, Any]:
    """The elements of one axis but for the last one, and those that follow them."""
    return getitem(x, slice(None, -1)), getitem(x, slice(1, None))


@covers("digitize")
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """The bin of each element, between rising or falling bounds; int64."""
    bins = array(bins)
    if len(shape(bins)) != 1:
        raise ShapeError(
            f"np.digitize: bins have shape {shape(bins)}, expected one axis"
            f"{at(caller_line())}"
        )
    n = shape(bins)[0]
    if not isinstance(bins, Traced):
        try:
            np.digitize([], bins)
        except ValueError as error:
            raise ShapeError(
                f"np.digitize: {error}; they are {bins.tolist()!r:.60}"
                f"{at(caller_line())}"
            ) from None
    side = "left" if right else "right"
    if n < 2:
        return searchsorted(bins, x, side)
    if not isinstance(bins, Traced):
        falls = bool(bins[0] > bins[-1])
        found = searchsorted(bins[::-1] if falls else bins, x, side)
        return n - found if falls else found
    falls = ops.greater(getitem(bins, 0), getitem(bins, n - 1))
    before, behind = neighbours(bins)
    turned = ops.where(falls, ops.less(before, behind), ops.less(behind, before))
    bins = ops.unless(bins, turned, "bins")
    found = searchsorted(ops.where(falls, ops.flip(bins, 0), bins), x, side)
    return ops.where(falls, n - found, found)


@covers("interp")
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
    """The piecewise linear function through ``(xp, fp)``, with rising ``xp``; float64.
    Outside it is ``left`` and ``right``, by default the values at the ends."""
    x, xp, fp = (cast(array(np.asarray(v) if np.isscalar(v) else v), float)
                 for v in (x, xp, fp))  # fmt: skip
    if len(shape(xp)) != 1 or shape(xp) != shape(fp) or not shape(xp)[0]:
        raise ShapeError(
            f"np.interp: xp of shape {shape(xp)} and fp of shape {shape(fp)}, expected "
            f"one axis of the same size{at(caller_line())}"
        )
    n = shape(xp)[0]
    ends = [ops.take(v, np.asarray(i), 0) for v in (xp, fp) for i in (0, n - 1)]
    low, high, first, last = ends
    place = ops.maximum(searchsorted(xp, x, "right") - 1, 0)
    after = ops.minimum(place + 1, n - 1)
    x0, x1 = ops.take(xp, place, 0), ops.take(xp, after, 0)
    y0, y1 = ops.take(fp, place, 0), ops.take(fp, after, 0)
    slope = (y1 - y0) / ops.where(after == place, 1.0, x1 - x0)
    y = slope * (x - x0) + y0
    again = slope * (x - x1) + y1
    again = ops.where(ops.logical_and(ops.isnan(again), y0 == y1), y0, again)
    y = ops.where(ops.isnan(y), again, y)
    y = ops.where(ops.logical_or(x == x0, after == place), y0, y)
    y = ops.where(x < low, first if left is None else left, y)
    y = ops.where(x > high, last if right is None else right, y)
    return ops.where(ops.isnan(x), x, y)
