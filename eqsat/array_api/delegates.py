"""Functions of the standard that NumPy has with the same meaning.

NumPy's functions of lazy arrays are recorded; what cannot be recorded is computed by
NumPy of the values at once. Either way the result is lazy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import numpy as np

from eqsat.lazy import LazyArray, array_with, setting_of
from eqsat.support import TraceError

DEVICE = "cpu"
"""The device that arrays are on."""


def of_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with lazy arrays for the arrays that it returns."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            found = function(*args, **kwargs)
        except TraceError:
            found = function(*values(args), **values(kwargs))
        return lazy(found, (args, kwargs))

    return call


def by_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, computed at once: only values tell the shape of its result."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return lazy(function(*values(args), **values(kwargs)), (args, kwargs))

    return call


def lazy(found: Any, given: Any = ()) -> Any:
    """What NumPy returned, nested as it may be, with lazy arrays in it, for the backend
    of those among what was ``given``."""
    if isinstance(found, LazyArray):
        return found
    if isinstance(found, (np.ndarray, np.generic)):
        return array_with(found, setting_of(given))
    if isinstance(found, tuple) and hasattr(found, "_fields"):
        return type(found)(*(lazy(f, given) for f in found))
    if isinstance(found, (tuple, list)):
        return type(found)(lazy(f, given) for f in found)
    return found


def values(arguments: Any) -> Any:
    """Arguments, nested as they may be, with NumPy's arrays for lazy ones."""
    if isinstance(arguments, LazyArray):
        return np.asarray(arguments)
    if isinstance(arguments, Mapping):
        return {k: values(v) for k, v in arguments.items()}
    if isinstance(arguments, (tuple, list)):
        return type(arguments)(map(values, arguments))
    return arguments


def check_device(device: Any) -> None:
    """Raise :class:`ValueError` unless ``device`` is None or the device of arrays."""
    if device not in (None, DEVICE):
        raise ValueError(f"device {device!r}: arrays are on the device {DEVICE!r}")
