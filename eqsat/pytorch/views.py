"""Operators that show or arrange elements, and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat.operator_table import cast, writable
from eqsat.pytorch.table import (
    OF_MEMORY,
    TABLE,
    VIEWS,
    aten,
    axis_of,
    kind_of,
    promoted,
)

VIEWS |= {
    "alias",
    "as_strided.default",
    "detach",
    "diagonal",
    "expand",
    "permute",
    "reshape",
    "select.int",
    "slice.Tensor",
    "split.Tensor",
    "split_with_sizes",
    "squeeze",
    "t",
    "transpose.int",
    "unbind.int",
    "unsqueeze",
    "view.default",
}

OF_MEMORY.add("as_strided.default")

TABLE.update(
    {
        "alias": lambda x: x,
        "detach": lambda x: x,
        "lift_fresh_copy": lambda x: x.copy(),
        "t": lambda x: x.T,
        "_unsafe_view": lambda x, shape: np.reshape(x, shape),
        "reshape": lambda x, shape: np.reshape(x, shape),
        "view.default": lambda x, shape: np.reshape(x, shape),
        "view_copy.default": lambda x, shape: np.reshape(x, shape),
        "permute": lambda x, dims: np.transpose(x, dims),
        "transpose.int": lambda x, a, b: np.swapaxes(x, a, b) if x.ndim else x,
        "unsqueeze": lambda x, dim: np.expand_dims(x, dim),
        "flip": lambda x, dims: np.flip(x, tuple(dims)),
        "triu": lambda x, k=0: np.triu(x, k),
        "tril": lambda x, k=0: np.tril(x, k),
    }
)


@aten("clone", in_float32=False)
def clone(x: Any, *, memory_format: Any = None) -> Any:
    """A copy."""
    return x.copy()


@aten("copy.default", in_float32=False)
def copy(x: Any, values: Any, non_blocking: bool = False) -> Any:
    """``values`` in the shape and the dtype of x."""
    return np.broadcast_to(convert_element_type(values, x.dtype), x.shape).copy()


@aten("expand", in_float32=False)
def expand(x: Any, sizes: Sequence[int], *, implicit: bool = False) -> Any:
    """x with axes of size 1 repeated; -1 keeps a size."""
    new = len(sizes) - x.ndim
    kept = [x.shape[i - new] if n == -1 else n for i, n in enumerate(sizes)]
    return np.broadcast_to(x, tuple(kept))


@aten("squeeze", in_float32=False)
def squeeze(x: Any, dim: Any = None) -> Any:
    """x without axes of size 1, of which ``dim`` may name some."""
    dims = range(x.ndim) if dim is None else dim if isinstance(dim, Sequence) else [dim]
    axes = {axis_of(d, x.ndim) for d in dims}
    return np.reshape(x, [n for a, n in enumerate(x.shape) if n != 1 or a not in axes])


def _key(x: Any, dim: int, part: Any) -> tuple[Any, ...]:
    """The index of a part of one axis."""
    return (*[slice(None)] * axis_of(dim, x.ndim), part)


def _range(
    x: Any, dim: int, start: int | None, end: int | None, step: int
) -> tuple[Any, ...]:
    return _key(x, dim, slice(start, end, step))


@aten("select.int", in_float32=False)
def select(x: Any, dim: int, index: int) -> Any:
    """One place of an axis."""
    return x[_key(x, dim, index)]


@aten("slice.Tensor", in_float32=False)
def slice_(
    x: Any,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Any:
    """A range of an axis."""
    return x[_range(x, dim, start, end, step)]


@aten("select_scatter", in_float32=False)
def select_scatter(x: Any, values: Any, dim: int, index: int) -> Any:
    """x with another value in one place of an axis."""
    y = writable(x, values)
    y[_key(x, dim, index)] = cast(values, x.dtype)
    return y


@aten("slice_scatter", in_float32=False)
def slice_scatter(
    x: Any,
    values: Any,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Any:
    """x with other values in a range of an axis."""
    y = writable(x, values)
    y[_range(x, dim, start, end, step)] = cast(values, x.dtype)
    return y


@aten("cat", in_float32=False)
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Tensors one after another; those of shape (0,) are left out."""
    kept = [t for t in tensors if t.shape != (0,)] or list(tensors[:1])
    dtype = tensors[0].dtype
    for t in tensors[1:]:
        dtype = promoted(dtype, t.dtype)
    return np.concatenate([cast(t, dtype) for t in kept], axis=dim)


@aten("stack", in_float32=False)
def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Tensors along a new axis."""
    return np.stack(tensors, axis=dim)


@aten("split.Tensor", "split_with_sizes", in_float32=False)
def split(x: Any, sizes: Any, dim: int = 0) -> Any:
    """Parts of an axis, of one size or of several."""
    axis = axis_of(dim, x.ndim)
    n = x.shape[axis]
    if isinstance(sizes, int):
        starts = list(range(0, max(n, 1), sizes or 1))
        return tuple(x[_range(x, axis, s, min(s + sizes, n), 1)] for s in starts)
    ends = np.cumsum(sizes).tolist()
    return tuple(
        x[_range(x, axis, e - s, e, 1)] for s, e in zip(sizes, ends, strict=True)
    )


@aten("unbind.int", in_float32=False)
def unbind(x: Any, dim: int = 0) -> Any:
    """The places of an axis."""
    return tuple(select(x, dim, i) for i in range(x.shape[dim]))


@aten("repeat", in_float32=False)
def repeat(x: Any, counts: Sequence[int]) -> Any:
    """x beside itself."""
    return np.tile(x, tuple(counts))


@aten("roll", in_float32=False)
def roll(x: Any, shifts: Any, dims: Any = ()) -> Any:
    """Elements moved along axes, those at the end to the front."""
    return (
        np.roll(x, tuple(shifts), tuple(dims) or None)
        if dims
        else np.reshape(np.roll(np.reshape(x, -1), shifts[0]), x.shape)
    )


@aten("as_strided.default", in_float32=False)
def as_strided(
    x: Any, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Any:
    """Elements of the memory of x, by the steps between them."""
    places = np.full((), offset or 0)
    for n, step in zip(size, stride, strict=True):
        places = np.add.outer(places, np.arange(n) * step)
    flat = np.reshape(x, -1)
    if places.size and places.max() >= flat.shape[0]:
        raise TypeError("memory beyond that of the argument")
    if places.size == x.size and (np.diff(places.ravel()) == 1).all():
        return np.reshape(x, tuple(size))
    return np.take(flat, places)


@aten("diagonal", in_float32=False)
def diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The diagonal of two axes."""
    return np.diagonal(x, offset, dim1, dim2)


@aten("constant_pad_nd", in_float32=False)
def constant_pad_nd(x: Any, pad: Sequence[int], value: Any = 0) -> Any:
    """x with a value around it; below 0, cut."""
    widths = [(0, 0)] * x.ndim
    for i in range(len(pad) // 2):
        widths[-1 - i] = (pad[2 * i], pad[2 * i + 1])
    grown = [(max(a, 0), max(b, 0)) for a, b in widths]
    y = np.pad(x, grown, constant_values=value)
    cuts = [
        slice(max(-a, 0), n - max(-b, 0))
        for (a, b), n in zip(widths, y.shape, strict=True)
    ]
    return y if all(a >= 0 and b >= 0 for a, b in widths) else y[tuple(cuts)]


@aten("_to_copy", in_float32=False)
def to_copy(x: Any, *, dtype: Any = None, device: Any = None, **how: Any) -> Any:
    """A copy in another dtype."""
    if not _is_cpu(device):
        raise TypeError(f"the device {device}")
    return x.copy() if dtype in (None, x.dtype) else convert_element_type(x, dtype)


def _is_cpu(device: Any) -> bool:
    return device is None or str(device).startswith("cpu")


@aten("prims.convert_element_type", in_float32=False)
def convert_element_type(x: Any, dtype: Any) -> Any:
    """x in another dtype."""
    if kind_of(x) == "c" and kind_of(dtype) != "c":
        raise TypeError("complex numbers as real ones")
    return x.astype(dtype)
