"""A property that is computed once, also when several threads ask for it at the same
time.

``functools.cached_property`` has one lock for all objects of a class in Python 3.11,
and none from 3.12 on, where each thread may get a value of its own.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):
    """A property whose function runs once for each object. Other threads wait for it; a
    child of a fork does not wait for a thread of its parent."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.guard = name, f"_{name}_guard"

    @overload
    def __get__(self, instance: None, owner: type) -> once[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        held = instance.__dict__
        process, lock = held.setdefault(self.guard, (os.getpid(), threading.RLock()))
        if process != os.getpid():
            lock = threading.RLock()
            held[self.guard] = os.getpid(), lock
        with lock:
            if self.name not in held:
                held[self.name] = self.function(instance)
        return held[self.name]


def cached_once(function: Callable[..., T]) -> Callable[..., T]:
    """``functools.cache``, but that the function runs once for each set of arguments:
    others wait, so that no value is made that nobody keeps. Machine code needs this:
    what another object links to must live as long as it."""
    kept: dict[tuple[Any, ...], T] = {}
    state = [(os.getpid(), threading.RLock())]

    @functools.wraps(function)
    def get(*args: Any) -> T:
        if args in kept:
            return kept[args]
        process, lock = state[0]
        if process != os.getpid():  # the thread that held it does not live on
            lock = threading.RLock()
            state[0] = os.getpid(), lock
        with lock:
            if args not in kept:
                kept[args] = function(*args)
            return kept[args]

    return get
