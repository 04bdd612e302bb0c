"""Operators that read and write where indices say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat.operator_table import cast, indexable, writable
from eqsat.pytorch.reductions import ordered
from eqsat.pytorch.table import aten, axis_of


@aten("embedding", in_float32=False)
def embedding(
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Rows of a table."""
    return np.take(weight, indices, axis=0)


@aten("embedding_dense_backward")
def embedding_dense_backward(
    g: Any, indices: Any, count: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    """Rows of g, added up where they were read."""
    if scale_grad_by_freq:
        raise TypeError("scale_grad_by_freq")
    if padding_idx >= 0:
        g = np.where(np.expand_dims(indices == padding_idx, -1), 0, g)
    rows = np.reshape(g, (-1, g.shape[-1]))
    made = writable(np.zeros((count, g.shape[-1]), g.dtype), g, indices)
    np.add.at(made, np.reshape(indices, -1), rows)
    return made


@aten("index_select", in_float32=False)
def index_select(x: Any, dim: int, indices: Any) -> Any:
    """Places of an axis."""
    if x.ndim == 0:
        return x.copy()
    return np.take(x, np.reshape(indices, -1), axis=axis_of(dim, x.ndim))


def _keys(indices: Sequence[Any]) -> tuple[Any, ...]:
    """Indices as NumPy takes them. Masks have a shape that depends on values."""
    for i in indices:
        if i is not None and (i.dtype == bool or i.dtype == np.uint8):
            raise TypeError("an index that is a mask")
    return tuple(slice(None) if i is None else i for i in indices)


@aten("index.Tensor", "_unsafe_index.Tensor", in_float32=False)
def index(x: Any, indices: Sequence[Any]) -> Any:
    """x[indices]."""
    return indexable(x, *indices)[_keys(indices)]


@aten("index_put.default", "_unsafe_index_put.default", in_float32=False)
def index_put(
    x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False
) -> Any:
    """x with other values at indices, or with values added there."""
    if len(indices) == 1 and indices[0].dtype == bool and not accumulate:
        mask = indices[0]
        if values.size != 1:
            raise TypeError("a mask and several values")
        mask = np.reshape(mask, mask.shape + (1,) * (x.ndim - mask.ndim))
        return np.where(mask, cast(np.reshape(values, ()), x.dtype), x)
    y = writable(x, values, *indices)
    if accumulate:
        np.add.at(y, _keys(indices), cast(values, x.dtype))
    else:
        y[_keys(indices)] = cast(values, x.dtype)
    return y


@aten("gather", in_float32=False)
def gather(x: Any, dim: int, indices: Any, *, sparse_grad: bool = False) -> Any:
    """Elements along an axis, for each place of ``indices``."""
    if x.ndim == 0:
        return np.broadcast_to(x, indices.shape)
    axis = axis_of(dim, x.ndim)
    return indexable(x, indices)[_along(indices, axis)]


def _along(indices: Any, axis: int) -> tuple[Any, ...]:
    """Indices of all axes, which are those of the places but along one axis."""
    shape = indices.shape
    return tuple(
        (
            indices
            if a == axis
            else np.reshape(
                np.arange(n), [-1 if b == a else 1 for b in range(len(shape))]
            )
        )
        for a, n in enumerate(shape)
    )


def _scattered(x: Any, dim: int, indices: Any, values: Any, adds: bool) -> Any:
    if x.ndim == 0:
        raise TypeError("a scatter to a tensor without axes")
    y = writable(x, values, indices)
    if getattr(values, "ndim", 0):
        values = values[tuple(slice(0, n) for n in indices.shape)]
    key = _along(indices, axis_of(dim, x.ndim))
    if adds:
        np.add.at(y, key, cast(values, x.dtype))
    else:
        y[key] = cast(values, x.dtype)
    return y


@aten("scatter.src", "scatter.value", in_float32=False)
def scatter(x: Any, dim: int, indices: Any, values: Any) -> Any:
    """x with values where indices say, along an axis."""
    return _scattered(x, dim, indices, values, False)


@aten("scatter_add")
def scatter_add(x: Any, dim: int, indices: Any, values: Any) -> Any:
    """x with values added where indices say, along an axis."""
    return _scattered(x, dim, indices, values, True)


@aten("index_add")
def index_add(x: Any, dim: int, indices: Any, values: Any, *, alpha: Any = 1) -> Any:
    """x with values added at places of an axis."""
    if x.ndim == 0:
        raise TypeError("an index_add to a tensor without axes")
    axis = axis_of(dim, x.ndim)
    y = np.moveaxis(writable(x, values, indices), axis, 0).copy()
    rows = np.moveaxis(cast(values, x.dtype), axis, 0)
    np.add.at(y, np.reshape(indices, -1), rows if alpha == 1 else rows * alpha)
    return np.moveaxis(y, 0, axis)


@aten("topk", in_float32=False)
def topk(
    x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    """The largest or smallest elements of an axis, and their places."""
    if x.ndim == 0:
        raise TypeError("topk of a tensor without axes")
    first = (*[slice(None)] * axis_of(dim, x.ndim), slice(0, k))
    values, places = ordered(x, dim, largest)
    return values[first], places[first]
