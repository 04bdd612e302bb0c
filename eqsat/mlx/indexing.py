"""Primitives that read and write where indices say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat.mlx.arrange import AT
from eqsat.mlx.table import primitive
from eqsat.operator_table import UnsupportedError, indexable, writable

Sizes = tuple[int, ...]


def every_place(
    library: Any, indices: Sequence[Any], axes: Sequence[int], sizes: Sizes
) -> tuple[Any, ...]:
    """Indices of all axes for slices of ``sizes`` at indices of some axes, whose axes
    come first. ``library``: NumPy or MLX."""
    lead = indices[0].shape if indices else ()
    ones = [1] * len(sizes)
    key = []
    for axis, n in enumerate(sizes):
        shape = [1] * len(lead) + ones[:axis] + [n] + ones[axis + 1 :]
        key.append(library.reshape(library.arange(n), shape))
    for axis, index in zip(axes, indices, strict=True):
        start = library.reshape(index, (*lead, *ones))
        key[axis] = start if sizes[axis] == 1 else start + key[axis]
    return tuple(key)


def _place(axes: Sequence[int]) -> int:
    """Where NumPy puts the axes of the indices: at the first axis that they index
    where these are neighbours, else in front."""
    low, high = min(axes, default=0), max(axes, default=-1)
    return low if high - low + 1 == len(axes) else 0


@primitive("Gather")
def gather(x: Any, *rest: Any, shape: Sizes) -> Any:
    """Slices of x at indices, whose axes come first."""
    *indices, axes, sizes = rest
    if any(sizes[a] != 1 for a in axes):
        return indexable(x, *indices)[every_place(np, indices, axes, sizes)]
    key: list[Any] = [slice(0, n) for n in sizes]
    for axis, index in zip(axes, indices, strict=True):
        key[axis] = index
    found = indexable(x, *indices)[tuple(key)]
    place, rank = _place(axes), indices[0].ndim if indices else 0
    if place and rank:
        found = np.moveaxis(found, range(place, place + rank), range(rank))
    return np.reshape(found, shape)


@primitive("Scatter")
def scatter(x: Any, *rest: Any) -> Any:
    """x with slices written at indices, added to, and so on."""
    *indices, values, kind, axes = rest
    lead = indices[0].shape if indices else ()
    sizes = values.shape[len(lead) :]
    if sizes == (*(1 for _ in axes), *x.shape[len(axes) :]):  # whole rows
        rows = np.reshape(values, (*lead, *x.shape[len(axes) :]))
        if list(axes) == list(range(len(axes))):
            return _written(x, tuple(indices), rows, kind)
    return _written(x, every_place(np, indices, axes, sizes), values, kind)


def _written(x: Any, key: tuple[Any, ...], values: Any, kind: int) -> Any:
    y = writable(x, values, *key)
    if kind < len(AT):
        AT[kind].at(y, key, values)
    else:
        y[key] = values
    return y


def _along(indices: Any, axis: int) -> tuple[Any, ...]:
    """Indices of all axes, which are those of the places but along one."""
    key = list(np.ogrid[tuple(slice(0, n) for n in indices.shape)])
    key[axis] = indices
    return tuple(key)


@primitive("GatherAxis")
def gather_axis(x: Any, indices: Any, axis: int) -> Any:
    """Elements along an axis, for each place of the indices."""
    return indexable(x, indices)[_along(indices, axis)]


@primitive("ScatterAxis")
def scatter_axis(x: Any, indices: Any, values: Any, kind: int, axis: int) -> Any:
    """x with elements along an axis added to or written, for each place of the
    indices."""
    adds = AT.index(np.add)
    return _written(x, _along(indices, axis), values, len(AT) if kind else adds)


def _box(start: Any, axes: Sequence[int], sizes: Sizes) -> tuple[Any, ...]:
    """The index of a part that begins where ``start`` says, along ``axes``."""
    key = list(np.ogrid[tuple(slice(0, n) for n in sizes)])
    for i, axis in enumerate(axes):
        key[axis] = key[axis] + start[i].astype(np.int64)
    return tuple(key)


@primitive("DynamicSlice")
def dynamic_slice(x: Any, start: Any, axes: Sequence[int], sizes: Sizes) -> Any:
    """A part of x that begins where ``start`` says."""
    return indexable(x, start)[_box(start, axes, sizes)]


@primitive("DynamicSliceUpdate")
def dynamic_slice_update(x: Any, values: Any, start: Any, axes: Sequence[int]) -> Any:
    """x with a part written that begins where ``start`` says."""
    return _written(x, _box(start, axes, values.shape), values, len(AT))


@primitive("MaskedScatter")
def masked_scatter(x: Any, mask: Any, values: Any) -> Any:
    """x with the values of each row, in order, where the mask is true."""
    rows = x.shape[0]
    flat, keep = np.reshape(x, (rows, -1)), np.reshape(mask, (rows, -1))
    given = np.reshape(values, (rows, -1))
    if not given.shape[1]:
        raise UnsupportedError("a mask without values")
    order = np.cumsum(keep.astype(np.int64), axis=1) - 1
    order = np.clip(order, 0, given.shape[1] - 1)
    found = np.take_along_axis(given, order, axis=1)
    return np.reshape(np.where(keep, found, flat), x.shape)
