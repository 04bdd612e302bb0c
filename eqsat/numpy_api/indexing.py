"""Indexing: ``x[key]`` as slices, reshapes and takes, with NumPy's meaning.

Integers, slices, ``...`` and ``None`` become one slice and one reshape. Integer arrays,
traced or not, become a take; several of them become one take along their joined axes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import bool_, ndarray  # attributes of np are swapped in a trace

from eqsat import ops
from eqsat.numpy_api.at_end import AtEnd
from eqsat.numpy_api.operands import holds_traced, settled, stacked
from eqsat.ops import dtype_of, negative_axis, window
from eqsat.support import (
    BoundsError,
    ShapeError,
    TraceIndexError,
    an,
    at,
    caller_line,
    counted,
    untraceable,
)
from eqsat.terms import AttrVar, Term, Traced, limits

_WHOLE = slice(None)


def getitem(x: Any, key: Any) -> Any:
    """``x[key]`` for a traced array ``x``.

    Raises :class:`TraceError` for a traced boolean mask, whose result has no fixed
    shape, and :class:`BoundsError` for an index out of bounds.
    """
    items = key_items(key, x.shape)
    parts = _whole_axes(items, x.shape)
    y, axes = _basic(x, parts)
    if not axes:
        return y
    return _gather(y, axes, [k for k in parts if _is_array(k)], are_together(items))


def are_together(items: Sequence[Any]) -> bool:
    """Whether integers and arrays of them stand side by side in a key: NumPy puts the
    axes of the arrays in their place then, and in front of the others else."""
    places = [i for i, k in enumerate(items) if isinstance(k, int) or _is_array(k)]
    return not places or places[-1] - places[0] == len(places) - 1


def check_key(x: Any, key: Any) -> None:
    """Raise :class:`ShapeError` for a key with traced masks that fits no array of this
    shape, and :class:`BoundsError` for integers in it out of bounds."""
    keys = key if isinstance(key, tuple) else (key,)
    axis = 0
    for k in key_parts(tuple(map(_nowhere, keys)), x.shape):
        if k is not None:
            row_of(k, x.shape[axis], axis)
            axis += 1


def _nowhere(k: Any) -> Any:
    """A mask that is false everywhere, in the place of a traced one."""
    masks = isinstance(k, Traced) and k.known_shape and dtype_of(k) == np.dtype(bool)
    return np.zeros(k.shape, np.bool_) if masks else k


def key_parts(key: Any, shape: Sequence[int]) -> list[Any]:
    """``key`` as an int, a slice or integers for each axis, and None between them."""
    return _whole_axes(key_items(key, shape), shape)


def key_items(key: Any, shape: Sequence[int]) -> list[Any]:
    """The parts of a key, with the positions of masks that are known."""
    keys = [_key(k) for k in (key if isinstance(key, tuple) else (key,))]
    items: list[Any] = []
    axis = 0
    for i, k in enumerate(keys):
        items.extend(_mask(k, shape, axis) if is_mask(k) else [k])
        if k is Ellipsis:
            axis = len(shape) - sum(map(_width, keys[i + 1 :]))
        else:
            axis += _width(k)
    return items


def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Any:
    """One index along ``axis`` for every place of the others, as NumPy has it."""
    if axis is None:
        return take_along_axis(ops.ravel(x), indices, 0)
    return getitem(x, key_along("np.take_along_axis", x, indices, axis))


def key_along(who: str, x: Any, indices: Any, axis: int) -> tuple[Any, ...]:
    """The key of one index along ``axis`` for every place of the others."""
    n = len(x.shape)
    if len(indices.shape) != n:
        raise ShapeError(
            f"{who}: the indices have {counted(len(indices.shape), 'axis')}, the array "
            f"has {n}{at(caller_line())}"
        )
    axis = negative_axis(who, axis, n) + n
    places = np.ogrid[tuple(slice(size) for size in x.shape)]
    return tuple(indices if a == axis else places[a] for a in range(n))


def _key(k: Any) -> Any:
    """One part of a key: an int, a slice, None, ``...``, an integer array or a mask."""
    if k is None or k is Ellipsis or isinstance(k, (slice, AttrVar)):
        return k
    if isinstance(k, Traced):
        return _traced_index(k)
    if isinstance(k, AtEnd):
        k.refuse("an index by {}")
    if isinstance(k, (list, tuple, range)):
        if holds_traced(k):
            return _traced_index(stacked(settled(k)))
        k = np.asarray(k, dtype=None if np.size(k) else np.intp)
    if isinstance(k, ndarray) and k.ndim and (is_mask(k) or k.dtype.kind in "iu"):
        return k if is_mask(k) else k.astype(np.intp)
    index = None if isinstance(k, (bool, bool_)) else _as_int(k)
    if index is not None:
        return index
    what = f"{k.dtype} array" if isinstance(k, np.ndarray) else f"{type(k).__name__!r}"
    said = (
        f"a traced array cannot be indexed by {an(what)}; use integers, slices, "
        f"`...`, None, or integer arrays{at(caller_line())}"
    )
    if isinstance(k, (bool, bool_)) or is_mask(k):  # which NumPy takes
        raise untraceable(said)
    raise TraceIndexError(said)


def _as_int(k: Any) -> int | None:
    try:
        return operator.index(k)
    except TypeError:
        return None


def is_mask(k: Any) -> bool:
    """Whether a part of a key is a mask that is known when tracing."""
    return isinstance(k, ndarray) and k.dtype == np.dtype(bool)


def _width(k: Any) -> int:
    """How many axes a part of a key takes up."""
    return 0 if k is None or k is Ellipsis else k.ndim if is_mask(k) else 1


def _traced_index(k: Any) -> Any:
    if k.dtype == np.dtype(bool):
        if getattr(k, "has_value", False):
            return np.asarray(k)
        said = "x[mask] cannot be traced: the shape of its result depends on data"
        advice = (
            "use np.where(mask, x, 0), which keeps the shape, or index outside the "
            f"traced function{at(caller_line())}"
        )
        raise untraceable(f"{said}\n  {advice}")
    if k.dtype.kind not in "iu":
        raise TraceIndexError(
            f"a traced array cannot be indexed by a traced {k.dtype} array; use "
            f"k.astype(int){at(caller_line())}"
        )
    return k


def _mask(mask: np.ndarray[Any, Any], shape: Sequence[int], axis: int) -> list[Any]:
    """A mask that is known when tracing, as the positions that it selects."""
    if mask.ndim == 0 or mask.shape != tuple(shape[axis : axis + mask.ndim]):
        raise BoundsError(
            f"a boolean index of shape {mask.shape} does not fit axes {axis} to "
            f"{axis + mask.ndim} of an array of shape {tuple(shape)}"
            f"{at(caller_line())}"
        )
    return list(mask.nonzero())


def _is_array(k: Any) -> bool:
    return isinstance(k, (ndarray, Traced))


def _whole_axes(items: Sequence[Any], shape: Sequence[int]) -> list[Any]:
    """``items`` with ``...`` and missing axes written out as whole slices."""
    count = sum(1 for k in items if k is not None and k is not Ellipsis)
    places = [i for i, k in enumerate(items) if k is Ellipsis]
    if len(places) > 1:
        raise BoundsError(f"an index has more than one `...`{at(caller_line())}")
    if count > len(shape):
        raise BoundsError(
            f"{counted(count, 'index')} for an array of {counted(len(shape), 'axis')}, "
            f"shape {tuple(shape)}"
            f"{at(caller_line())}"
        )
    i = places[0] if places else len(items)
    return [*items[:i], *[_WHOLE] * (len(shape) - count), *items[i + 1 :]]


def _basic(x: Any, parts: Sequence[Any]) -> tuple[Any, list[int]]:
    """``x`` indexed by all parts but the arrays, and the axes that wait for those."""
    starts: list[int] = []
    sizes: list[int] = []
    steps: list[int] = []
    shape: list[int] = []
    waiting: list[int] = []
    for k in parts:
        if k is None:
            shape.append(1)
            continue
        axis = len(starts)
        start, size, step = extent_of(k, x.shape[axis], axis)
        if not isinstance(k, (int, AttrVar)):
            shape.append(size)
        if _is_array(k):
            waiting.append(len(shape) - 1)
        starts.append(start)
        sizes.append(size)
        steps.append(step)
    return ops.reshape(window(x, starts, sizes, steps), tuple(shape)), waiting


def extent_of(k: Any, n: Any, axis: int) -> tuple[Any, Any, int]:
    """Where what a part of a key takes of an axis of ``n`` starts, how many elements
    it has and how far they are apart.

    Where ``n`` is a symbol of a pattern, bounds count as lying inside the axis.
    """
    if not isinstance(n, AttrVar) and not _has_symbol(k):
        row = row_of(k, n, axis)
        return row.start, len(row), row.step
    if not isinstance(k, slice):
        return (0, n, 1) if _is_array(k) else (_row_of_symbols(k, n), 1, 1)
    step = 1 if k.step is None else operator.index(k.step)
    first, last = (0, n) if step > 0 else (n - 1, -1)
    start = first if k.start is None else _counted(k.start, n)
    stop = last if k.stop is None else _counted(k.stop, n)
    count = stop - start if step > 0 else start - stop
    symbol = next(s for s in (n, k.start, k.stop) if isinstance(s, AttrVar))
    bounds = (start, stop) if step > 0 else (stop + 1, start + 1)
    for low, high in ((0, bounds[0]), (0, count), (bounds[1], n)):
        symbol.grant("<=", low, high)
    return start, (count + abs(step) - 1) // abs(step), step


def _row_of_symbols(k: Any, n: Any) -> Any:
    i = _counted(k, n)
    symbol = n if isinstance(n, AttrVar) else k
    symbol.grant("<=", 0, i)
    symbol.grant("<", i, n)
    return i


def _has_symbol(k: Any) -> bool:
    parts = (k.start, k.stop) if isinstance(k, slice) else (k,)
    return any(isinstance(p, AttrVar) for p in parts)


def _counted(bound: Any, n: Any) -> Any:
    """A bound of a slice, counted from the front."""
    return bound + n if isinstance(bound, int) and bound < 0 else bound


def row_of(k: Any, n: int, axis: int) -> range:
    """The elements that a part of a key takes of an axis of ``n``: all for an array."""
    if isinstance(k, int):
        i = _in_bounds(k, n, axis)
        return range(i, i + 1)
    return range(*k.indices(n)) if isinstance(k, slice) else range(n)


def _in_bounds(i: int, n: int, axis: int) -> int:
    if not -n <= i < n:
        raise BoundsError(
            f"index {i} is out of bounds for axis {axis} of size {n}{at(caller_line())}"
        )
    return i % n


def _gather(y: Any, axes: Sequence[int], indices: Sequence[Any], together: bool) -> Any:
    """``y`` with ``axes`` replaced by those of ``indices``, in front unless
    ``together``."""
    try:
        rank = len(np.broadcast_shapes(*(i.shape for i in indices)))
    except ValueError:
        shapes = ", ".join(str(tuple(i.shape)) for i in indices)
        raise BoundsError(
            f"index arrays of shapes {shapes} do not broadcast{at(caller_line())}"
        ) from None
    sizes = [y.shape[a] for a in axes]
    checked = [in_bounds(i, n, a) for i, n, a in zip(indices, sizes, axes, strict=True)]
    first = axes[0]
    if len(axes) == 1:
        z = ops.take(y, checked[0], axis=first)
        return (
            z if together else ops.moveaxis(z, range(first, first + rank), range(rank))
        )
    if not together:
        y = ops.moveaxis(y, axes, range(len(axes)))
        first = 0
    shape = tuple(y.shape)
    joined = (*shape[:first], math.prod(sizes), *shape[first + len(axes) :])
    return ops.take(ops.reshape(y, joined), _ravelled(checked, sizes), axis=first)


def flat_places(indices: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Where integers, some of them arrays, point to in the elements of the first axes
    of ``sizes``, one after the other."""
    arrays = [np.asarray(i) if isinstance(i, int) else i for i in indices]
    used = sizes[: len(arrays)]
    checked = [
        in_bounds(i, n, a) for a, (i, n) in enumerate(zip(arrays, used, strict=True))
    ]
    return _ravelled(checked, used)


def in_bounds(index: Any, n: int, axis: int) -> Any:
    """``index``, which must be in an axis of ``n`` as far as it is known."""
    if isinstance(index, np.ndarray) and index.size:
        _in_bounds(int(index.min()), n, axis)
        _in_bounds(int(index.max()), n, axis)
    return index


def _ravelled(indices: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Flat positions in shape ``sizes``; out of bounds when any index is."""
    flat: Any = None
    valid: Any = None
    dtype = _wide_enough(indices, sizes)
    for index, n in zip(indices, sizes, strict=True):
        if isinstance(index, np.ndarray):
            index = np.where(index < 0, index + n, index).astype(dtype)
            flat = index if flat is None else flat * n + index
            continue
        least, most = limits_of(index)
        index = index.astype(dtype)
        if least < 0:
            index = ops.where(index < 0, index + n, index)
        if least < -n:
            valid = _both(valid, index >= 0)
        if most >= n:
            valid = _both(valid, index < n)
        flat = index if flat is None else flat * n + index
    return flat if valid is None else ops.where(valid, flat, math.prod(sizes))


def _both(x: Any, y: Any) -> Any:
    return y if x is None else x & y


def limits_of(index: Any) -> tuple[int, int]:
    """The least and the greatest value that integers may have."""
    if isinstance(index, np.ndarray):
        return (int(index.min()), int(index.max())) if index.size else (0, 0)
    term, whole = getattr(index, "term", None), np.iinfo(np.int64)
    found = limits(term) if isinstance(term, Term) else None
    if found is None or found[1] > whole.max:  # which may be negative as an int64
        return whole.min, whole.max
    return found


def _wide_enough(indices: Sequence[Any], sizes: Sequence[int]) -> np.dtype[Any]:
    """The dtype of flat positions: vectors hold twice as many of 32 bits. Positions of
    what is out of bounds may overflow."""
    narrow = np.iinfo(np.int32)
    ends = [limits_of(i) for i in indices]
    fits = all(narrow.min <= a and b <= narrow.max for a, b in ends)
    return np.dtype(np.int32 if fits and math.prod(sizes) <= narrow.max else np.int64)
