"""The watch over a user's code while it is traced, and code that it need not see.

A watch is a profiler of Python, which is called at each call of a function: three
quarters of the time of tracing. What an operator of a stand-in does is code of eqsat
alone, where no operand brings code of its own.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial, wraps
from types import EllipsisType, FrameType, FunctionType
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy import ndarray  # attributes of np are swapped in a trace

C = TypeVar("C", bound=type)
P = ParamSpec("P")
R = TypeVar("R")
_KNOWN = {
    *(bool, int, float, complex, str, bytes, type(None), EllipsisType, range),
    *(set(np.sctypeDict.values()) - {np.object_}),
}
"""Types whose values run no code of a user's; also classes of eqsat's own that stand
for values and functions of NumPy."""
_UFUNCS = {f for f in vars(np).values() if isinstance(f, np.ufunc)}


class Watch:
    """What the profiler of Python calls while a function is traced."""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        raise NotImplementedError


_profiler = partial(sys.getprofile)
_set_profiler = partial(sys.setprofile)
"""A profiler sees calls of builtin functions, but none of what a partial calls. So the
thread's own profiler can be asked for at each call, and may be one that the user's
function has set."""


class _Aside(threading.local):
    watch: Watch | None = None
    """The watch that :func:`unwatched` took away, for what a user defined."""


_aside = _Aside()


class Unwatched:
    """See :func:`unwatched`; in each call of a program, so no generator."""

    __slots__ = ("_but_users", "_outer", "_watch")

    def __init__(self, but_users: bool) -> None:
        self._but_users = but_users
        self._watch: Watch | None = None
        self._outer: Watch | None = None

    def __enter__(self) -> None:
        before = _profiler()
        if isinstance(before, Watch):
            self._watch, self._outer = before, _aside.watch
            _set_profiler(None)
            _aside.watch = before if self._but_users else None

    def __exit__(self, *_: object) -> None:
        if self._watch is not None:
            _aside.watch = self._outer
            _set_profiler(self._watch)


def unwatched(but_users: bool = False) -> Unwatched:
    """Watch nothing inside: eqsat itself is at work, in a function that is traced; with
    ``but_users`` nothing but what :func:`watched_call` calls."""
    return Unwatched(but_users)


def watched_call(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """What ``function`` returns, the body or the derivative of an op: it is watched
    where a user defined it, and the function that is traced comes to need it."""
    watch = _aside.watch
    own = str(getattr(function, "__module__", "")).startswith("eqsat.")
    if watch is None or own:
        return function(*args, **kwargs)
    before = _profiler()
    _set_profiler(watch)
    try:
        return function(*args, **kwargs)
    finally:
        _set_profiler(before)


def unwatched_methods(cls: C) -> C:
    """``cls`` with methods that are not watched where nothing but what eqsat knows is
    in their arguments: objects of exactly this class or of another such, numbers,
    slices, functions of NumPy. What a user's class does when it is asked for its value
    is watched."""
    _KNOWN.add(cls)
    for name in dir(cls):
        method = getattr(cls, name)
        own = str(getattr(method, "__module__", "")).startswith("eqsat.")
        if isinstance(method, FunctionType) and own and name not in _KEPT:
            setattr(cls, name, _unwatched_method(method))
    return cls


_KEPT = frozenset({"__init__", "__getattr__", "__iter__", "call", "lift", "within"})
"""Methods that are called by others, or too short to gain, or run a user's function."""


def _unwatched_method(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def unseen(*args: Any, **kwargs: Any) -> Any:
        watch = _profiler()
        if not isinstance(watch, Watch):
            return method(*args, **kwargs)
        _set_profiler(None)
        try:
            for a in args:
                if type(a) not in _KNOWN and not _is_plain(a):
                    _set_profiler(watch)
                    break
            else:
                if kwargs and not _is_plain(kwargs):
                    _set_profiler(watch)
            return method(*args, **kwargs)
        finally:
            _set_profiler(watch)

    return unseen


def _is_plain(value: Any) -> bool:
    """Whether no code of a user's runs when eqsat works with ``value``."""
    kind = type(value)
    if kind in _KNOWN:
        return True
    if kind is tuple or kind is list:
        return all(map(_is_plain, value))
    if kind is slice:
        return _is_plain((value.start, value.stop, value.step))
    if kind is ndarray:
        return not value.dtype.hasobject
    if isinstance(value, np.dtype):
        return not value.hasobject
    if kind is dict:
        return all(map(_is_plain, value.values()))
    if kind is np.ufunc:
        return value in _UFUNCS
    if kind is type:
        return value is ndarray or value in _KNOWN
    return callable(value) and _is_numpys(value)


def _is_numpys(function: Any) -> bool:
    """Whether ``function`` is what NumPy's modules hold under its name."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    name = getattr(function, "__name__", "")
    if module is None or getattr(module, name, None) is not function:
        return False
    return module.__name__.partition(".")[0] == "numpy"
