"""Dtypes and constants, and functions of dtypes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eqsat.array_api.delegates import check_device, lazy, of_numpy
from eqsat.lazy import LazyArray

bool = np.bool_
int8 = np.int8
int16 = np.int16
int32 = np.int32
int64 = np.int64
uint8 = np.uint8
uint16 = np.uint16
uint32 = np.uint32
uint64 = np.uint64
float32 = np.float32
float64 = np.float64
complex64 = np.complex64
complex128 = np.complex128

e, inf, nan, newaxis, pi = math.e, math.inf, math.nan, None, math.pi

broadcast_to = of_numpy(np.broadcast_to)
iinfo = np.iinfo


def broadcast_arrays(*arrays: Any) -> list[LazyArray]:
    """The arrays in the shape that they broadcast to."""
    return [*_broadcast(*arrays)]


_broadcast = of_numpy(np.broadcast_arrays)


def _dtype_of(value: Any) -> Any:
    return value.dtype if isinstance(value, LazyArray) else value


def astype(x: Any, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Any:
    """``x`` in ``dtype``; ``x`` itself where it has that and ``copy`` is false."""
    check_device(device)
    if not copy and x.dtype == dtype:
        return lazy(x)
    return lazy(np.astype(x, np.dtype(dtype)))


def can_cast(from_: Any, to: Any, /) -> Any:
    """Whether an array or dtype can be cast to a dtype by the rules of promotion."""
    return np.can_cast(_dtype_of(from_), to)


def finfo(type: Any, /) -> Any:
    """What is to be known of a dtype of floats, or of that of an array."""
    return np.finfo(_dtype_of(type))


def isdtype(dtype: Any, kind: Any) -> Any:
    """Whether a dtype is ``kind``: a dtype, the name of a kind, or a tuple of these."""
    return np.isdtype(np.dtype(dtype), kind)


def result_type(*arrays_and_dtypes: Any) -> Any:
    """The dtype of what is computed of arrays, dtypes and Python numbers."""
    return np.result_type(*map(_dtype_of, arrays_and_dtypes))
