"""Operators that make tensors of sizes and numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat.pytorch.table import aten, default_dtype, kind_of


def _made(shape: Sequence[int], value: Any, dtype: Any) -> Any:
    return np.full(tuple(shape), value, dtype)


@aten("full.default", in_float32=False)
def full(shape: Sequence[int], value: Any, *, dtype: Any = None, **how: Any) -> Any:
    """A tensor with one value everywhere."""
    return _made(shape, value, dtype)


@aten("full_like.default", in_float32=False)
def full_like(x: Any, value: Any, *, dtype: Any = None, **how: Any) -> Any:
    """A tensor of the shape of x with one value everywhere."""
    return _made(x.shape, value, dtype or x.dtype)


@aten("scalar_tensor.default", in_float32=False)
def scalar_tensor(value: Any, *, dtype: Any = None, **how: Any) -> Any:
    """A number as a tensor."""
    return _made((), value, dtype)


@aten("zeros.default", in_float32=False)
def zeros(shape: Sequence[int], *, dtype: Any = None, **how: Any) -> Any:
    """A tensor of zeros."""
    return _made(shape, 0, dtype or default_dtype())


@aten("empty.memory_format", "empty_permuted.default", in_float32=False)
def empty(shape: Sequence[int], *rest: Any, dtype: Any = None, **how: Any) -> Any:
    """A tensor whose values nobody knows: zeros."""
    return _made(shape, 0, dtype or default_dtype())


@aten("ones.default", in_float32=False)
def ones(shape: Sequence[int], *, dtype: Any = None, **how: Any) -> Any:
    """A tensor of ones."""
    return _made(shape, 1, dtype or default_dtype())


@aten(
    *("empty_like.default", "new_empty.default", "new_zeros.default"),
    "zeros_like.default",
    in_float32=False,
)
def zeros_like(x: Any, shape: Any = None, *, dtype: Any = None, **how: Any) -> Any:
    """A tensor of zeros, of the shape of x or another."""
    return _made(x.shape if shape is None else shape, 0, dtype or x.dtype)


@aten("ones_like.default", "new_ones.default", in_float32=False)
def ones_like(x: Any, shape: Any = None, *, dtype: Any = None, **how: Any) -> Any:
    """A tensor of ones, of the shape of x or another."""
    return _made(x.shape if shape is None else shape, 1, dtype or x.dtype)


@aten("new_full.default", in_float32=False)
def new_full(
    x: Any, shape: Sequence[int], value: Any, *, dtype: Any = None, **how: Any
) -> Any:
    """A tensor with one value everywhere, of the dtype of x."""
    return _made(shape, value, dtype or x.dtype)


@aten("arange.default", "arange.start", "arange.start_step", in_float32=False)
def arange(*bounds: Any, dtype: Any = None, **how: Any) -> Any:
    """Numbers a step apart."""
    start, end, step = (0, *bounds, 1)[-3:] if len(bounds) == 1 else (*bounds, 1)[:3]
    places = np.arange(math.ceil((end - start) / step))
    if all(kind_of(v) != "f" for v in (start, end, step)):
        return start + places * step
    if dtype is not None and kind_of(dtype) != "f":
        raise TypeError("integers between bounds that are none")
    return (start + places.astype(np.float64) * step).astype(dtype or default_dtype())


@aten("eye.default", "eye.m", in_float32=False)
def eye(n: int, m: int | None = None, *, dtype: Any = None, **how: Any) -> Any:
    """Ones on the diagonal, zeros elsewhere."""
    return np.eye(n, m, dtype=np.float64)
