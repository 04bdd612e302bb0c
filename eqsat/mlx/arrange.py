"""Primitives that make and arrange elements, and compute nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat.mlx.table import primitive
from eqsat.operator_table import writable

Sizes = tuple[int, ...]
AT = (np.maximum, np.minimum, np.add, np.multiply)
"""How a value that is written is joined to what is there, by MLX's number; the number
after these replaces it."""


@primitive("Reshape", "Flatten", "Unflatten", "Squeeze", "ExpandDims")
def reshape(x: Any, *arguments: Any, shape: Sizes) -> Any:
    """The same elements in another shape."""
    return np.reshape(x, shape)


@primitive("Transpose")
def transpose(x: Any, axes: Sequence[int]) -> Any:
    """x with its axes in another order."""
    return np.transpose(x, tuple(axes))


@primitive("Arange")
def arange(start: float, stop: float, step: float, *, shape: Sizes, dtype: Any) -> Any:
    """Numbers a step apart."""
    return (start + np.arange(*shape) * step).astype(dtype)


@primitive("Concatenate")
def concatenate(*rest: Any) -> Any:
    """Arrays one after another."""
    *arrays, axis = rest
    return np.concatenate(arrays, axis=axis)


@primitive("Split")
def split(x: Any, indices: Sequence[int], axis: int) -> Any:
    """Parts of an axis, which begin at ``indices``."""
    bounds = [0, *indices, x.shape[axis]]
    lead = (slice(None),) * (axis % x.ndim)
    return tuple(x[(*lead, slice(a, b))] for a, b in itertools.pairwise(bounds))


@primitive("Pad")
def pad(
    x: Any, value: Any, axes: Sequence[int], low: Sequence[int], high: Sequence[int]
) -> Any:
    """x with a value before and behind some axes."""
    widths = [(0, 0)] * x.ndim
    for axis, a, b in zip(axes, low, high, strict=True):
        widths[axis] = (a, b)
    if isinstance(value, np.ndarray):
        return np.pad(x, widths, constant_values=value.item())
    shape = [a + n + b for n, (a, b) in zip(x.shape, widths, strict=True)]
    y = writable(np.broadcast_to(value, shape), value)
    inside = zip(x.shape, widths, strict=True)
    y[tuple(slice(a, a + n) for n, (a, _) in inside)] = x
    return y


# -- slices ----------------------------------------------------------------------------


def _ranges(start: Sequence[int], step: Sequence[int], shape: Sizes) -> Any:
    """The index of a part of the given shape. The end of a slice that counts down to
    the first element has no number."""
    ends = (a + n * s for a, s, n in zip(start, step, shape, strict=True))
    return tuple(
        slice(a, None if end < 0 else end, s) if n else slice(0, 0)
        for a, end, s, n in zip(start, ends, step, shape, strict=True)
    )


@primitive("Slice")
def slice_(x: Any, start: Sizes, stop: Sizes, step: Sizes, *, shape: Sizes) -> Any:
    """Ranges of all axes."""
    return x[_ranges(start, step, shape)]


@primitive("SliceUpdate")
def slice_update(
    x: Any, values: Any, kind: int, start: Sizes, stop: Sizes, step: Sizes
) -> Any:
    """x with ranges of its axes written, added to, and so on."""
    y = writable(x, values)
    key = _ranges(start, step, values.shape)
    y[key] = AT[kind](y[key], values) if kind < len(AT) else values
    return y


# -- steps in memory -------------------------------------------------------------------


@primitive("AsStrided")
def as_strided(x: Any, sizes: Sizes, strides: Sizes, offset: int) -> Any:
    """Elements of x as they lie in memory, by the steps between them."""
    found = _windows(x, sizes, strides, offset)
    if found is not None:
        return found
    places = np.full((), offset)
    for n, step in zip(sizes, strides, strict=True):
        places = np.add.outer(places, np.arange(n) * step)
    if places.size and not 0 <= places.min() <= places.max() < x.size:
        raise TypeError("memory beyond that of the argument")
    return np.take(np.reshape(x, -1), places)


def _windows(x: Any, sizes: Sizes, strides: Sizes, offset: int) -> Any:
    """The same as slices of x, where each step is one along an axis of x and no step
    leaves that axis; None where it is not so."""
    if not x.size or 0 in sizes or not 0 <= offset < x.size:
        return None
    own = [math.prod(x.shape[a + 1 :]) for a in range(x.ndim)]
    steps: list[list[tuple[int, int]]] = [[] for _ in own]
    for place, (n, stride) in enumerate(zip(sizes, strides, strict=True)):
        if n == 1 or stride == 0:
            continue
        fitting = (a for a, s in enumerate(own) if stride % s == 0 < stride // s)
        axis = next((a for a in fitting if x.shape[a] > 1), None)
        if axis is None:
            return None
        steps[axis].append((place, stride // own[axis]))
    firsts = [int(i) for i in np.unravel_index(offset, x.shape)]
    order: list[int] = []
    axis = 0
    for first, moves in zip(firsts, steps, strict=True):
        reach = first + sum((sizes[p] - 1) * s for p, s in moves)
        if reach >= x.shape[axis]:
            return None
        x = _moved(x, axis, first, [(sizes[p], s) for p, s in moves])
        axis += len(moves)
        order += [p for p, _ in moves]
    y = np.transpose(x, np.argsort(order)) if order else x
    moved = [n if p in order else 1 for p, n in enumerate(sizes)]
    return np.broadcast_to(np.reshape(y, moved), sizes)


def _moved(x: Any, axis: int, first: int, moves: Sequence[tuple[int, int]]) -> Any:
    """x with one axis opened to an axis for each move, of so many steps so wide."""
    lead = (slice(None),) * axis
    if not moves:
        return x[(*lead, first)]
    (n, step), *inner = moves
    if not inner:
        return x[(*lead, slice(first, first + (n - 1) * step + 1, step))]
    (m, each), *_ = inner
    if n < m or len(inner) > 1:
        parts = [_moved(x, axis, first + i * step, inner) for i in range(n)]
        return np.stack(parts, axis)
    parts = [_moved(x, axis, first + i * each, [(n, step)]) for i in range(m)]
    return np.stack(parts, axis + 1)
