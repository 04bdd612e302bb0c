"""The watch over a user's code while it is traced, and code that it need not see.

A watch is a profiler of Python, which is called at each call of a function: three
quarters of the time of tracing. What an operator of a stand-in does is code of eqsat
alone, where no operand brings code of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import EllipsisType, FrameType, FunctionType
from typing import Any, TypeVar

import numpy as np

C = TypeVar("C", bound=type)
_PLAIN = {
    *(bool, int, float, complex, str, bytes, type(None), EllipsisType, range),
    *(set(np.sctypeDict.values()) - {np.object_}),
}
"""Types whose values run no code of a user's."""
_UFUNCS = {f for f in vars(np).values() if isinstance(f, np.ufunc)}


class Watch:
    """What the profiler of Python calls while a function is traced."""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        raise NotImplementedError


@contextmanager
def unwatched() -> Iterator[None]:
    """Watch nothing inside: eqsat itself is at work, in a function that is traced."""
    before = sys.getprofile()
    if not isinstance(before, Watch):
        yield
        return
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(before)


def unwatched_methods(cls: C) -> C:
    """``cls`` with methods that are not watched where nothing but what eqsat knows is
    in their arguments: arrays of exactly this class, numbers, slices, functions of
    NumPy. What a user's class does when it is asked for its value is watched."""
    for name in dir(cls):
        method = getattr(cls, name)
        own = str(getattr(method, "__module__", "")).startswith("eqsat.")
        if isinstance(method, FunctionType) and own and name not in _KEPT:
            setattr(cls, name, _unwatched_method(method, cls))
    return cls


_KEPT = frozenset({"__init__", "__getattr__", "__iter__", "call", "lift", "within"})
"""Methods that are called by others, or too short to gain, or run a user's function."""


def _unwatched_method(method: Callable[..., Any], cls: type) -> Callable[..., Any]:
    @wraps(method)
    def unseen(*args: Any, **kwargs: Any) -> Any:
        watch = sys.getprofile()
        if not isinstance(watch, Watch):
            return method(*args, **kwargs)
        sys.setprofile(None)
        try:
            if not _are_plain((args, kwargs), cls):
                sys.setprofile(watch)
            return method(*args, **kwargs)
        finally:
            sys.setprofile(watch)

    return unseen


def _are_plain(value: Any, cls: type) -> bool:
    """Whether no code of a user's runs when eqsat works with ``value``."""
    kind = type(value)
    if kind is cls or kind in _PLAIN:
        return True
    if kind is tuple or kind is list:
        return all(_are_plain(v, cls) for v in value)
    if kind is slice:
        return _are_plain((value.start, value.stop, value.step), cls)
    if kind is np.ndarray:
        return not value.dtype.hasobject
    if isinstance(value, np.dtype):
        return not value.hasobject
    if kind is dict:
        return all(_are_plain(v, cls) for v in value.values())
    if kind is np.ufunc:
        return value in _UFUNCS
    if kind is type:
        return value in (cls, np.ndarray) or value in _PLAIN
    return callable(value) and _is_numpys(value)


def _is_numpys(function: Any) -> bool:
    """Whether ``function`` is what NumPy's modules hold under its name."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    name = getattr(function, "__name__", "")
    if module is None or getattr(module, name, None) is not function:
        return False
    return module.__name__.partition(".")[0] == "numpy"
