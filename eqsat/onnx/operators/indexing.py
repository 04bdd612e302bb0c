"""Operators that read or write elements at places."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.onnx.operators.table import (
    axes_of,
    axis_of,
    expect_shape,
    ints,
    is_known,
    operator,
)
from eqsat.operator_table import indexable, writable
from eqsat.support import BoundsError, ShapeError


@operator("Slice", until=9)
def slice_fixed(x: Any, *, starts: Any, ends: Any, axes: Any = None) -> Any:
    """Elements from starts to ends along some axes."""
    return _sliced(x, starts, ends, axes, None)


@operator("Slice", since=10)
def slice_(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    """Elements from starts to ends along some axes, by steps."""
    return _sliced(x, ints(starts), ints(ends), ints(axes), ints(steps))


def _sliced(x: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> Any:
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    axes = axes_of(axes, x.ndim)
    lengths = [len(v) for v in (starts, ends, axes, steps)]
    if len({*lengths}) > 1:
        raise ShapeError(
            f"starts, ends, axes and steps have lengths {lengths}, expected equal ones"
        )
    if 0 in steps:
        raise ValueError(f"steps {[*steps]} hold 0")
    key = [slice(None)] * x.ndim
    for a, start, end, step in zip(axes, starts, ends, steps, strict=True):
        n = x.shape[a]
        first = start + n if start < 0 else start
        last = end + n if end < 0 else end
        if step > 0:
            key[a] = slice(min(max(first, 0), n), min(max(last, 0), n), step)
        else:
            last = min(max(last, -1), n - 1)
            first = min(max(first, 0), n - 1)
            key[a] = slice(first, None if last < 0 else last, step)
            if n == 0:
                key[a] = slice(0, 0)
    return x[tuple(key)]


@operator("Gather")
def gather(x: Any, indices: Any, *, axis: int) -> Any:
    """Slices of x at indices along an axis."""
    a = axis_of(axis, x.ndim)
    return np.take(indexable(x, indices), indices, axis=a)


@operator("GatherElements")
def gather_elements(x: Any, indices: Any, *, axis: int) -> Any:
    """Elements of x at indices along an axis."""
    a = _expect_inside(x, indices, axis)
    key = tuple(
        slice(None) if i == a else slice(0, n) for i, n in enumerate(indices.shape)
    )
    return np.take_along_axis(x[key], indices, a)


def _expect_inside(x: Any, indices: Any, axis: int) -> int:
    """The axis from 0. Raises :class:`ShapeError` for indices that reach beyond x along
    another axis."""
    a = axis_of(axis, x.ndim)
    sizes = [n for i, n in enumerate(x.shape) if i != a]
    others = [n for i, n in enumerate(indices.shape) if i != a]
    if indices.ndim != x.ndim or any(map(int.__gt__, others, sizes)):
        raise ShapeError(
            f"input 'indices' has shape {tuple(indices.shape)}, expected rank {x.ndim} "
            f"and sizes up to those of {tuple(x.shape)} but for axis {axis}"
        )
    return a


def _expect_rows(x: Any, indices: Any, batch: int) -> None:
    """Raise :class:`ShapeError` where rows of ``indices`` name no places of x."""
    most = x.ndim - batch
    if not indices.ndim or not 0 <= batch < min(x.ndim, indices.ndim):
        raise ShapeError(
            f"batch_dims is {batch}, for ranks {x.ndim} and {indices.ndim} of 'data' "
            "and 'indices'"
        )
    expect_shape("indices", indices, *x.shape[:batch], *[None] * (indices.ndim - batch))
    if indices.shape[-1] > most:
        raise ShapeError(
            f"input 'indices' has shape {tuple(indices.shape)}, expected a last size "
            f"up to {most} for 'data' of shape {tuple(x.shape)}"
        )


def _grid(shape: Any, extra: int) -> tuple[Any, ...]:
    """Places along each axis of ``shape``, for arrays of ``extra`` more axes."""
    n = len(shape)
    return tuple(
        np.arange(m).reshape((1,) * i + (-1,) + (1,) * (n - i - 1 + extra))
        for i, m in enumerate(shape)
    )


@operator("GatherND")
def gather_nd(x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    """Slices of x at the places that rows of ``indices`` name."""
    _expect_rows(x, indices, batch_dims)
    batch = _grid(x.shape[:batch_dims], indices.ndim - 1 - batch_dims)
    return indexable(x, indices)[(*batch, *_columns(indices))]


def _columns(indices: Any) -> tuple[Any, ...]:
    return tuple(indices[..., i] for i in range(indices.shape[-1]))


_AT = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _written(x: Any, key: tuple[Any, ...], updates: Any, reduction: str) -> Any:
    """x with updates at places, joined to what is there."""
    y = writable(x, updates, *key)
    if reduction == "none":
        y[key] = updates
    else:
        _AT[reduction].at(y, key, updates)
    return y


@operator("Scatter", until=10)
@operator("ScatterElements")
def scatter_elements(
    x: Any, indices: Any, updates: Any, *, axis: int, reduction: str = "none"
) -> Any:
    """x with elements written at indices along an axis."""
    a = _expect_inside(x, indices, axis)
    expect_shape("updates", updates, *indices.shape)
    key = [np.broadcast_to(g, indices.shape) for g in _grid(indices.shape, 0)]
    key[a] = indices
    return _written(x, tuple(key), updates, reduction)


@operator("ScatterND")
def scatter_nd(x: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Any:
    """x with slices written at the places that rows of ``indices`` name."""
    _expect_rows(x, indices, 0)
    last = indices.shape[-1]
    expect_shape("updates", updates, *indices.shape[:-1], *x.shape[last:])
    return _written(x, _columns(indices), updates, reduction)


@operator("TensorScatter")
def tensor_scatter(
    past: Any, update: Any, where: Any = None, *, mode: str, axis: int
) -> Any:
    """A cache with new elements written along an axis, at a place for each batch."""
    a = axis_of(axis, past.ndim)
    if not a:
        raise ShapeError(f"attribute 'axis' is {axis}, the axis of the batch")
    sizes = [None if i == a else n for i, n in enumerate(past.shape)]
    expect_shape("update", update, *sizes)
    expect_shape("write_indices", where, past.shape[0])
    batch, n, m = past.shape[0], past.shape[a], update.shape[a]
    first = np.zeros(batch, np.int64) if where is None else where
    places = first[:, None] + np.arange(m)
    if mode == "circular":
        places = places % n
    elif is_known(first) and (first < 0).any():
        raise BoundsError(f"input 'write_indices' is {first.tolist()}: one is below 0")
    else:
        places = np.where(places < 0, n, places)  # so that a program refuses it
    x, u = np.moveaxis(past, a, 1), np.moveaxis(update, a, 1)
    y = _written(x, (np.arange(batch)[:, None], places), u, "none")
    return np.moveaxis(y, 1, a)


@operator("Compress", on_host=True)
def compress(x: Any, condition: Any, *, axis: int | None = None) -> Any:
    """Slices of x where a condition holds."""
    a = None if axis is None else axis_of(axis, x.ndim)
    expect_shape("condition", condition, None)
    places = np.nonzero(condition)[0]
    return np.take(x.reshape(-1) if axis is None else x, places, axis=a or 0)


@operator("ReverseSequence")
def reverse_sequence(x: Any, lengths: Any, *, batch_axis: int, time_axis: int) -> Any:
    """The first elements of each sequence in reverse."""
    n = x.shape[time_axis]
    expect_shape("sequence_lens", lengths, x.shape[batch_axis])
    if is_known(lengths) and not ((lengths >= 0) & (lengths <= n)).all():
        raise BoundsError(
            f"input 'sequence_lens' is {lengths.tolist()}, and allowed are 0 to {n}"
        )
    lengths = np.where(lengths < 0, n + 1, lengths)  # so that a program refuses it
    time = np.arange(n).reshape(-1, 1)
    places = np.where(time < lengths, lengths - 1 - time, time)
    if time_axis > batch_axis:
        places = places.T
    places = places.reshape(places.shape + (1,) * (x.ndim - 2))
    return np.take_along_axis(x, places, time_axis)
