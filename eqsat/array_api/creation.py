"""Arrays of values that are given or written down."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from eqsat.array_api.delegates import check_device, of_numpy, values
from eqsat.lazy import LazyArray, array


def _made(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of NumPy, which makes an array of numbers, with a lazy result."""

    @wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        return array(function(*values(args), **values(kwargs)))

    return make


arange = _made(np.arange)
empty = _made(np.empty)
empty_like = of_numpy(np.empty_like)
full = _made(np.full)
full_like = of_numpy(np.full_like)
linspace = _made(np.linspace)
ones = _made(np.ones)
ones_like = of_numpy(np.ones_like)
tril = of_numpy(np.tril)
triu = of_numpy(np.triu)
zeros = _made(np.zeros)
zeros_like = of_numpy(np.zeros_like)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[LazyArray]:
    """Coordinates of the points of a grid, of those along each of its axes."""
    return [*_grid(*arrays, indexing=indexing)]


_grid = of_numpy(np.meshgrid)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = float,
    device: Any = None,
) -> LazyArray:
    """Ones on the ``k``-th diagonal of a matrix of zeros (n_rows, n_cols)."""
    return array(np.eye(n_rows, n_cols, k, dtype or float, device=device))


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> LazyArray:
    """``obj`` as a lazy array; one that is lazy already is given back as it is, unless
    ``copy`` is true or it has another dtype.

    Raises :class:`ValueError` where ``copy`` is false and a copy is needed: arrays of
    NumPy and nested lists are copied always.
    """
    check_device(device)
    if isinstance(obj, LazyArray) and dtype in (None, obj.dtype):
        return obj.copy() if copy else obj
    if copy is False:
        raise ValueError("asarray: copy=False, but a lazy array holds a copy of this")
    return array(values(obj) if isinstance(obj, (list, tuple)) else obj, dtype)


def from_dlpack(
    x: Any, /, *, device: Any = None, copy: bool | None = None
) -> LazyArray:
    """A lazy array of what an array of any library on the CPU holds now, copied; one
    that is lazy already is given back as it is, unless ``copy`` is true.

    Raises :class:`BufferError` where ``copy`` is false and a copy is needed.
    """
    check_device(device)
    if isinstance(x, LazyArray):
        return x.copy() if copy else x
    if copy is False:
        raise BufferError("from_dlpack: copy=False, but a lazy array holds a copy")
    return array(np.from_dlpack(x))
