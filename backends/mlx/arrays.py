"""Arrays between NumPy and MLX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from eqsat.terms import BF16

Array = Any
"""An ``mx.array``."""


def mlx_dtype(dtype: np.dtype[Any]) -> Any:
    """MLX's dtype of that name."""
    return mx.bool_ if dtype == np.dtype(bool) else getattr(mx, dtype.name)


def numpy_dtype(x: Array) -> np.dtype[Any]:
    """NumPy's dtype of an array of MLX."""
    name = str(x.dtype).rpartition(".")[2]
    return BF16 if x.dtype == mx.bfloat16 else np.dtype(name.rstrip("_"))


def to_mlx(value: Any) -> Array:
    """An array of any library, or a number, as MLX's; MLX's own as they are."""
    if isinstance(value, mx.array):
        return value
    array = np.array(value, order="C")
    if array.dtype == BF16:
        return mx.array(array.view(np.uint16)).view(mx.bfloat16)
    return mx.array(array, dtype=mlx_dtype(array.dtype))


def to_numpy(value: Any) -> np.ndarray[Any, Any]:
    """An array of MLX as NumPy's, evaluated; others as NumPy takes them."""
    if isinstance(value, mx.array) and value.dtype == mx.bfloat16:
        return np.array(value.view(mx.uint16)).view(BF16)
    if isinstance(value, mx.array):  # whose int64 is C's long long
        return np.array(value).view(numpy_dtype(value))
    return np.array(value)


def any_mlx(values: Sequence[Any]) -> bool:
    """Whether one of ``values`` is an array of MLX."""
    return any(isinstance(v, mx.array) for v in values)


def is_float(x: Any) -> bool:
    """Whether an array of MLX, or a number, is of a floating dtype."""
    if not isinstance(x, mx.array):
        return isinstance(x, float)
    return bool(mx.issubdtype(x.dtype, mx.floating))


def is_unsigned(x: Array) -> bool:
    """Whether the dtype has no sign."""
    return bool(mx.issubdtype(x.dtype, mx.unsignedinteger))


def _like(x: Any, y: Any) -> Array:
    """``x`` as an array of the dtype of ``y``."""
    return x if isinstance(x, mx.array) else mx.array(x, dtype=y.dtype)


def both(x: Any, y: Any) -> tuple[Array, Array]:
    """Two operands as arrays; one of them may be a number."""
    return _like(x, y), _like(y, x)
