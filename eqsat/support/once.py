"""Properties and functions that are computed once.

``functools.cached_property`` has one lock for all objects of a class in Python 3.11, so
that one compile waits for another, and the child of a fork for a thread that it does
not have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from eqsat.support.forks import ForkLock

A = TypeVar("A")
K = TypeVar("K")
T = TypeVar("T")
MOST = 16
"""Objects that :func:`cached_by_identity` keeps results for."""


class cached_property(Generic[T]):
    """A property that is kept when it was computed, without a lock: of threads that ask
    at the same time each may compute it."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return self._kept(instance.__dict__, instance)

    def _kept(self, held: dict[str, Any], instance: Any) -> T:
        value = held[self.name] = self.function(instance)
        return value


class once(cached_property[T]):
    """A property whose function runs once for each object. Other threads wait for it; a
    child of a fork does not wait for a thread of its parent."""

    def _kept(self, held: dict[str, Any], instance: Any) -> T:
        lock: ForkLock = held.setdefault(f"_{self.name}_guard", ForkLock())
        with lock():
            if self.name not in held:
                held[self.name] = self.function(instance)
        value: T = held[self.name]
        return value


def cached_by_identity(function: Callable[[K], T]) -> Callable[[K], T]:
    """``functools.cache`` for an object that takes long to hash or to compare: the same
    object for the same question, of the last few that were asked of."""
    kept: dict[int, tuple[K, T]] = {}

    @functools.wraps(function)
    def get(of: K) -> T:
        known = kept.get(id(of))
        if known is None or known[0] is not of:
            if len(kept) > MOST:
                kept.clear()
            known = kept[id(of)] = of, function(of)
        return known[1]

    return get


def kept_by_first(function: Callable[[Any, A], T]) -> Callable[[Any, A], T]:
    """``functools.cache`` for a question about an object that takes long to hash, and
    about something that does not: the first keeps the answers for as long as it
    lives."""
    name = f"_{function.__name__}"

    @functools.wraps(function)
    def get(of: Any, about: A) -> T:
        kept: dict[A, T] = of.__dict__.setdefault(name, {})
        if about not in kept:
            kept[about] = function(of, about)
        return kept[about]

    return get


def cached_once(function: Callable[..., T]) -> Callable[..., T]:
    """``functools.cache``, but that the function runs once for each set of arguments:
    others wait, so that no value is made that nobody keeps. Machine code needs this:
    what another object links to must live as long as it."""
    kept: dict[tuple[Any, ...], T] = {}
    locks: dict[tuple[Any, ...], ForkLock] = {}
    short = ForkLock()

    @functools.wraps(function)
    def get(*args: Any) -> T:
        if args in kept:
            return kept[args]
        with short():
            lock = locks.setdefault(args, ForkLock())
        with lock():
            if args not in kept:
                kept[args] = function(*args)
        return kept[args]

    return get
