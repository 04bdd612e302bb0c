"""NumPy's functions that count: how often numbers come, and histograms.

The lengths of results are known while tracing: they follow from ``minlength``, the
number of bins, or their edges.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.numpy_api.arrange import diff, shape
from eqsat.numpy_api.indexing import getitem, limits_of
from eqsat.numpy_api.operands import array, as_index
from eqsat.numpy_api.order import neighbours, searchsorted
from eqsat.numpy_api.spaces import linspace
from eqsat.numpy_api.statistics import cast, is_floating
from eqsat.numpy_api.table import covers
from eqsat.ops import dtype_of
from eqsat.support import (
    DTypeError,
    ShapeError,
    TraceError,
    TraceValueError,
    at,
    caller_line,
    counted,
)
from eqsat.terms import Traced

_INT, _FLOAT, _BOOL = (np.dtype(t) for t in (np.int64, np.float64, bool))


def _values(x: Any) -> Any:
    """``x`` as an array of NumPy where its values are known or can be asked for."""
    if not isinstance(x, Traced):
        return array(np.asarray(x))
    return np.asarray(x) if getattr(x, "has_value", False) else None


# -- numbers ---------------------------------------------------------------------------


@covers("bincount")
def bincount(x: Any, weights: Any = None, minlength: Any = 0) -> Any:
    """How often 0, 1, 2, … are elements of ``x``, integers along one axis; int64. With
    ``weights`` of its shape, the sums of those; float64, but for empty arrays.

    Where ``x`` is traced ``minlength`` is the length of the result. For a number that
    is negative or not below it NumPy runs the jitted function; MLX leaves it out, and
    a program without its function raises an ``IndexError``.
    """
    x = array(x if isinstance(x, Traced) else np.asarray(x))
    if dtype_of(x) == np.dtype(np.uint64):  # whose bits NumPy takes for an int64
        x = cast(x, _INT)
    _check_numbers(x)
    least, most = (0, -1) if shape(x) == (0,) else limits_of(x)
    known = _values(x)
    if known is not None and known.size:
        least, most = int(known.min()), int(known.max())
        if least < 0:
            raise ShapeError(
                f"np.bincount: x has element {least}, expected none below 0"
                f"{at(caller_line())}"
            )
    size = _length(x, known, most, minlength)
    if known is None and (least < 0 or most >= size) and shape(x) != (0,):
        x.leaves_to_numpy(
            f"np.bincount: x has an element below 0 or above {size - 1}, expected 0 to "
            f"{size - 1}, below minlength={size}{at(caller_line())}"
        )
    values: Any = ops.full_like(x, 1, _INT)
    if weights is not None:
        weights = _beside("np.bincount", weights, x, "x")
        if shape(x)[0]:  # NumPy's counts of nothing are int64
            values = cast(weights, _FLOAT)
    return ops.add_at(values, _narrow(x, least, most, size), axis=-1, size=size)


def _narrow(x: Any, least: int, most: int, size: int) -> Any:
    """Integers from ``least`` to ``most`` in few bits, which are less to write and to
    read; ``size`` in the place of those that are below 0 or above it."""
    if least < 0 or most > size:
        x = ops.minimum(cast(x, _INT), size)
        x = ops.where(ops.less(x, 0), size, x)
    fewest = np.min_scalar_type(min(max(most, size), 2**62))
    own = dtype_of(x) or _INT
    return cast(x, fewest) if own == _BOOL or own.itemsize > fewest.itemsize else x


def _check_numbers(x: Any) -> None:
    if len(shape(x)) != 1:
        raise ShapeError(
            f"np.bincount: x has shape {shape(x)}, expected one axis{at(caller_line())}"
        )
    dtype = dtype_of(x) or _INT
    if shape(x)[0] and not np.can_cast(dtype, _INT, "safe"):
        raise DTypeError(
            f"np.bincount: x has dtype {dtype}, expected integers that int64 holds"
            f"{at(caller_line())}"
        )


def _length(x: Any, known: Any, most: int, minlength: Any) -> int:
    """Elements of the result of ``bincount``."""
    least = as_index(minlength)
    if least is None or least < 0:
        raise TraceError(
            f"np.bincount: minlength={minlength!r:.60}, expected an int from 0 on, "
            f"known while tracing{at(caller_line())}"
        )
    if known is not None or shape(x) == (0,):
        return max(least, most + 1)
    if not least:
        raise TraceError(
            f"np.bincount of a traced array ({dtype_of(x)}, shape {shape(x)}) has a "
            "length that depends on data, with minlength=0\n  pass minlength=n, above "
            "the largest element: the result has n elements"
            f"{at(caller_line())}"
        )
    return least


def _beside(name: str, weights: Any, x: Any, called: str) -> Any:
    """Weights, which have the shape of ``x``."""
    weights = array(weights if isinstance(weights, Traced) else np.asarray(weights))
    if shape(weights) != shape(x):
        raise ShapeError(
            f"{name}: weights have shape {shape(weights)}, expected that of {called}, "
            f"{shape(x)}{at(caller_line())}"
        )
    return weights


# -- histograms ------------------------------------------------------------------------


@covers("histogram")
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, Any]:
    """How many elements lie in each bin, or the sums of their ``weights``, and the
    edges of the bins.

    ``bins`` is a number of bins of the same width, from the smallest element to the
    largest or over ``range``, or an array of rising edges. The last bin holds its right
    edge too. Elements outside, and NaN, do not count. Where the edges follow from
    elements that are not all finite, or are traced and fall, NumPy's ValueError, when
    a result that needs them is computed.
    """
    name = "np.histogram"
    a = array(a if isinstance(a, Traced) else np.asarray(a))
    if weights is not None:
        weights = ops.ravel(_beside(name, weights, a, "a"))
    a = ops.ravel(a)
    a = cast(a, np.uint8) if dtype_of(a) == _BOOL else a
    edges, ends = _edges(name, a, bins, range)
    place, inside = _bin(a, edges, ends)
    n = shape(edges)[0] - 1
    counts = _counted(_placed(place, inside, n), weights, n)
    if not density:
        return counts, edges
    widths = cast(diff(edges), _FLOAT)
    return counts / widths / ops.sum(counts), edges


@covers("histogram_bin_edges")
def histogram_bin_edges(
    a: Any, bins: Any = 10, range: Any = None, weights: Any = None
) -> Any:
    """The edges of the bins of :func:`histogram`."""
    a = ops.ravel(array(a))
    a = cast(a, np.uint8) if dtype_of(a) == _BOOL else a
    return _edges("np.histogram_bin_edges", a, bins, range)[0]


@covers("histogram2d")
def histogram2d(
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Any = None,
    density: Any = None,
    weights: Any = None,
) -> tuple[Any, Any, Any]:
    """How many points lie in each bin of a plane, float64, and the edges of the bins
    along both axes."""
    if hasattr(bins, "__len__") and len(bins) != 2:
        bins = [bins, bins]
    counts, edges = histogramdd([x, y], bins, range, density, weights)
    return counts, *edges


@covers("histogramdd")
def histogramdd(
    sample: Any,
    bins: Any = 10,
    range: Any = None,
    density: Any = None,
    weights: Any = None,
) -> tuple[Any, tuple[Any, ...]]:
    """How many of the rows of ``sample``, or points of several arrays of coordinates,
    lie in each bin, float64, and the edges of the bins along all axes."""
    name = "np.histogramdd"
    axes = _coordinates(name, sample)
    bins = [*bins] if hasattr(bins, "__len__") else [bins] * len(axes)
    ranges = [None] * len(axes) if range is None else [*range]
    if len(bins) != len(axes) or len(ranges) != len(axes):
        raise ShapeError(
            f"{name}: {counted(len(bins), 'number')} of bins and "
            f"{counted(len(ranges), 'range')} for {counted(len(axes), 'coordinate')}"
            f"{at(caller_line())}"
        )
    if weights is not None:
        weights = cast(_beside(name, weights, axes[0], "a coordinate"), _FLOAT)
    edges, flat, inside = [], None, None
    for a, b, r in zip(axes, bins, ranges, strict=True):
        found, ends = _edges(name, a, b, r, several=True)
        place, within = _bin(a, found, ends)
        n = shape(found)[0] - 1
        flat = place if flat is None else flat * n + place
        inside = within if inside is None else ops.logical_and(inside, within)
        edges.append(found)
    sizes = [shape(e)[0] - 1 for e in edges]
    whole = math.prod(sizes)
    counts = cast(_counted(_placed(flat, inside, whole), weights, whole), _FLOAT)
    counts = ops.reshape(counts, tuple(sizes))
    if density:
        total = ops.sum(counts)
        for i, e in enumerate(edges):
            counts = counts / ops.reshape(diff(e), (-1, *(1 for _ in sizes[i + 1 :])))
        counts = counts / total
    return counts, tuple(edges)


def _coordinates(name: str, sample: Any) -> list[Any]:
    """The coordinates of points, each an array of one axis, in their common dtype."""
    if isinstance(sample, (Traced, np.ndarray)) and len(shape(sample)) == 2:
        return [getitem(sample, (slice(None), i)) for i in range(shape(sample)[1])]
    lines = [array(v if isinstance(v, Traced) else np.asarray(v)) for v in sample]
    if any(len(shape(v)) != 1 or shape(v) != shape(lines[0]) for v in lines):
        raise ShapeError(
            f"{name}: coordinates of shapes {', '.join(str(shape(v)) for v in lines)}, "
            f"expected one axis of the same size{at(caller_line())}"
        )
    dtype = np.result_type(*(dtype_of(v) or v for v in lines))
    return [cast(v, dtype) for v in lines]


def _edges(
    name: str, a: Any, bins: Any, range: Any, several: bool = False
) -> tuple[Any, tuple[Any, Any] | None]:
    """The edges of bins, and the first and the last where they are equally far apart.
    Those of ``several`` coordinates have the dtype that ``np.linspace`` gives them."""
    if isinstance(bins, str) and not several:
        if (known := _values(a)) is None:
            raise TraceError(
                f"{name}: bins={bins!r} is a number of bins that depends on data\n  "
                f"pass a number, or an array of edges{at(caller_line())}"
            )
        edges = np.histogram_bin_edges(known, bins, range)
        return edges, (edges[0], edges[-1])
    if not isinstance(bins, Traced) and np.ndim(bins) == 0:
        return _equal(name, a, bins, range, several)
    edges = array(bins if isinstance(bins, Traced) else np.asarray(bins))
    if len(shape(edges)) != 1 or not shape(edges)[0]:
        raise ShapeError(
            f"{name}: bins have shape {shape(edges)}, expected a number or the edges "
            f"along one axis{at(caller_line())}"
        )
    if not isinstance(edges, Traced) and np.any(edges[:-1] > edges[1:]):
        raise ShapeError(
            f"{name}: the edges {edges.tolist()!r:.60} fall, expected rising ones"
            f"{at(caller_line())}"
        )
    if isinstance(edges, Traced):
        low, high = neighbours(edges)
        edges = ops.unless(edges, ops.less(high, low), "edges")
    return edges, _far_apart(a, edges)


def _floating(*arrays: Any) -> Any:
    """The dtype of floats in which arrays meet."""
    dtype = np.result_type(*(dtype_of(v) or v for v in arrays))
    return np.result_type(dtype, _FLOAT) if dtype.kind in "iu" else dtype


def _far_apart(a: Any, edges: Any) -> tuple[Any, Any] | None:
    """The ends of edges that are known, where a division finds the bin of each element
    but for one: no edge is half a bin from where it would be if all were as wide."""
    exact = np.result_type(dtype_of(a) or a, dtype_of(edges) or edges)
    if isinstance(edges, Traced) or (exact.kind in "iu" and exact.itemsize > 4):
        return None
    n, ends = len(edges) - 1, (edges[0], edges[-1])
    if n < 1 or not -math.inf < ends[0] < ends[1] < math.inf:
        return None
    places = (edges.astype(_FLOAT) - ends[0]) / (float(ends[1]) - float(ends[0])) * n
    return ends if np.all(np.abs(places - np.arange(n + 1)) < 0.4) else None


def _equal(
    name: str, a: Any, bins: Any, range: Any, several: bool
) -> tuple[Any, tuple[Any, Any]]:
    """The edges of a number of bins of the same width."""
    n = as_index(bins)
    if n is None or n < 1:
        raise TraceValueError(
            f"{name}: bins={bins!r:.60}, expected an int from 1 on, or edges"
            f"{at(caller_line())}"
        )
    first, last = _ends(name, a, range)
    dtype = None if several else _floating(first, last, a)
    edges = linspace(first, last, n + 1, dtype=dtype)
    if not isinstance(edges, Traced) and np.any(edges[:-1] >= edges[1:]):
        raise ShapeError(
            f"{name}: {n} bins from {first} to {last} are too many for {edges.dtype}"
            f"{at(caller_line())}"
        )
    return edges, (first, last)


def _ends(name: str, a: Any, range: Any) -> tuple[Any, Any]:
    """The first and the last edge."""
    if range is not None:
        first, last = range
        known = not isinstance(first, Traced) and not isinstance(last, Traced)
        if known and not -math.inf < first <= last < math.inf:
            raise ShapeError(
                f"{name}: range={range!r:.60}, expected two finite numbers in order"
                f"{at(caller_line())}"
            )
    elif not math.prod(shape(a)):
        first, last, known = 0, 1, True
    else:
        first, last, known = ops.min(a), ops.max(a), not isinstance(a, Traced)
        if not known and is_floating(a):
            finite = ops.logical_and(ops.isfinite(first), ops.isfinite(last))
            first = ops.unless(first, ops.logical_not(finite), "range")
    if known:
        return (first - 0.5, last + 0.5) if first == last else (first, last)
    first, last = (
        cast(v, _FLOAT) if (dtype_of(v) or _FLOAT).kind in "biu" else v
        for v in (first, last)
    )
    same = ops.equal(first, last)
    return ops.where(same, first - 0.5, first), ops.where(same, last + 0.5, last)


def _bin(a: Any, edges: Any, ends: tuple[Any, Any] | None) -> tuple[Any, Any]:
    """The bin of each element, and whether there is one; elsewhere any integer."""
    n = shape(edges)[0] - 1
    if ends is None:
        place = searchsorted(edges, a, "right") - 1
        place = ops.where(ops.equal(a, getitem(edges, -1)), n - 1, place)
        return place, ops.logical_and(place >= 0, place < n)
    first, last = ends
    inside = ops.logical_and(ops.greater_equal(a, first), ops.less_equal(a, last))
    dtype = _floating(a, edges)
    x, edges, first, last = (cast(v, dtype) for v in (a, edges, first, last))
    part = ops.where(inside, (x - first) / (last - first) * n, 0)
    place = ops.minimum(cast(part, np.int32), n - 1)
    # The division may be wrong by one bin beside an edge.
    low, high = ops.take(edges, place, 0), ops.take(edges, place + 1, 0)
    place = ops.where(ops.logical_and(inside, x < low), place - 1, place)
    after = ops.logical_and(ops.logical_and(inside, x >= high), place < n - 1)
    return ops.where(after, place + 1, place), inside


def _placed(place: Any, inside: Any, n: int) -> Any:
    """The places of elements, n for those that have none."""
    return _narrow(ops.where(inside, place, n), 0, n, n)


def _counted(place: Any, weights: Any, n: int) -> Any:
    """How many are at each of ``n`` places, or the sums of their weights in the dtype
    of these; others are at place n."""
    if weights is None:
        return _parts(ops.full_like(place, 1, _INT), place, n)
    own = dtype_of(weights) or _FLOAT
    wide = _INT if own == _BOOL else _FLOAT if own.kind not in "iu" else own
    return cast(_parts(cast(weights, wide), place, n), own)


def _parts(values: Any, place: Any, n: int) -> Any:
    return getitem(ops.add_at(values, place, axis=-1, size=n + 1), slice(n))
