"""Primitives that reduce axes, run along them, and order them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.mlx.table import primitive
from eqsat.operator_table import UnsupportedError

Sizes = tuple[int, ...]
_REDUCTIONS = (np.all, np.any, np.sum, np.prod, np.min, np.max)
_RUNNING = (
    np.maximum.accumulate,
    np.minimum.accumulate,
    np.cumsum,
    np.cumprod,
)


@primitive("Reduce", in_float32=True)
def reduce(x: Any, kind: int, axes: Sequence[int], *, shape: Sizes) -> Any:
    """And, or, sum, product, least and largest element over some axes."""
    find = _REDUCTIONS[kind]
    if find in (np.min, np.max):
        _refuse_complex(x)
    found = find(x, axis=tuple(axes), keepdims=True)
    return np.reshape(found, shape)


def _refuse_complex(x: Any) -> None:
    """NumPy orders complex numbers in another way than MLX."""
    if np.dtype(x.dtype).kind == "c":
        raise UnsupportedError("complex numbers")


@primitive("ArgReduce")
def arg_reduce(x: Any, kind: int, axis: int, *, shape: Sizes) -> Any:
    """The place of the least or the largest element."""
    _refuse_complex(x)
    find = (np.argmin, np.argmax)[kind]
    x = x.astype(np.int8) if x.dtype == bool else x
    return np.reshape(find(x, axis=axis, keepdims=True), shape)


@primitive("Softmax", in_float32=True)
def softmax(x: Any, precise: bool) -> Any:
    """eˣ / Σ eˣ along the last axis."""
    _refuse_complex(x)
    return ops.softmax(x, axis=(-1,))


@primitive("LogSumExp", in_float32=True)
def logsumexp(x: Any, *, shape: Sizes) -> Any:
    """ln Σ eˣ along the last axis."""
    _refuse_complex(x)
    return np.reshape(ops.logsumexp(x, axis=(-1,)), shape)


@primitive("Scan", in_float32=True)
def scan(
    x: Any, kind: int, axis: int, reverse: bool, inclusive: bool, *, dtype: Any
) -> Any:
    """Maxima, minima, sums or products up to each element of an axis, or up to the
    one before it; from the end where ``reverse``."""
    if kind >= len(_RUNNING):
        raise UnsupportedError("running sums of logarithms")
    _refuse_complex(x)
    x = np.flip(x, axis) if reverse else x
    y = _RUNNING[kind](x, axis=axis)
    if not inclusive:
        lead = (slice(None),) * (axis % x.ndim)
        first = np.full_like(y[(*lead, slice(0, 1))], _start(kind, dtype))
        y = np.concatenate([first, y[(*lead, slice(0, -1))]], axis=axis)
    return np.flip(y, axis) if reverse else y


def _start(kind: int, dtype: np.dtype[Any]) -> Any:
    """What stands before the first element."""
    if kind > 1:
        return (0, 1)[kind - 2]
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return (limits.min, limits.max)[kind]
    if dtype.kind == "b":
        return bool(kind)
    return (-np.inf, np.inf)[kind]


@primitive("Sort")
def sort(x: Any, axis: int) -> Any:
    """Elements of an axis in order."""
    _refuse_complex(x)
    return np.sort(x, axis=axis)


@primitive("ArgSort")
def argsort(x: Any, axis: int) -> Any:
    """Where elements of an axis in order were. Equal elements keep their order."""
    _refuse_complex(x)
    return np.argsort(x, axis=axis, stable=True)


@primitive("Partition")
def partition(x: Any, kth: int, axis: int) -> Any:
    """Elements of an axis, those before the k-th no larger. All are in order here."""
    return sort(x, axis)


@primitive("ArgPartition")
def argpartition(x: Any, kth: int, axis: int) -> Any:
    """Where the elements of ``Partition`` were."""
    return argsort(x, axis)
