"""Memory of results: arrays whose memory is kept for others when nobody uses them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..machine import COMMON
from .pool_code import ALIGNMENT, KEPT_BYTES
from .shared_runtime import is_available, objects

__all__ = [
    "KEPT_BYTES",
    "arena_maker",
    "fresh",
    "kept_bytes",
    "limit",
    "maker",
    "release",
]

Array = np.ndarray[Any, Any]
_NEW = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.py_object, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64
)


def fresh(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array that is not initialised. It owns its memory, which goes back to the pool
    with the last view of it; from ``Tuning.pooled_bytes`` on it starts on a cache
    line. Raises :class:`MemoryError`."""
    return maker(shape, dtype)()


def maker(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], Array]:
    """What makes such arrays, in a tenth of the time."""
    nbytes = dtype.itemsize * prod(shape)
    if nbytes < COMMON.pooled_bytes:
        return functools.partial(np.empty, shape, dtype)
    if not is_available():
        return functools.partial(_in_block, shape, dtype, nbytes)
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    new, rank = _new_array(), len(shape)

    def make() -> Array:
        made: Array = new(dtype, rank, ctypes.addressof(sizes), nbytes)
        return made

    return make


def arena_maker(nbytes: int) -> Callable[[], Array]:
    """What makes scratch memory of a program, which starts on a cache line."""
    size = max(nbytes, COMMON.pooled_bytes)  # smaller ones lie anywhere
    return maker((size,), np.dtype(np.uint8))


def _in_block(shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> Array:
    block = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return np.ndarray(shape, dtype, block.data, start)


@functools.cache
def _new_array() -> Callable[..., Any]:
    return _NEW(objects().address("new_array"))


def kept_bytes() -> int:
    """Memory that nobody uses and that is kept for the next call (bytes)."""
    return _call("pool_kept")


def limit(nbytes: int) -> int:
    """Keep ``nbytes`` at most (:data:`KEPT_BYTES` unless told); what was allowed
    before."""
    return _call("pool_limit", nbytes)


def release() -> None:
    """Give all memory back that is kept."""
    if is_available():
        free: Callable[[], None] = ctypes.PYFUNCTYPE(None)(
            objects().address("pool_release")
        )
        free()


def _call(name: str, *values: int) -> int:
    """A function of the pool; Python's lock is held meanwhile."""
    if not is_available():
        return 0
    kinds = [ctypes.c_int64] * len(values)
    function = ctypes.PYFUNCTYPE(ctypes.c_int64, *kinds)(objects().address(name))
    return int(function(*values))
