"""Options of one function: given to ``jit``, by ``with options(...)``, by the
environment, or by default. :mod:`.option_table` has them all."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, ContextDecorator
from contextvars import ContextVar
from ctypes import c_int64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec

from eqsat.support.errors import OptionError
from eqsat.support.forks import ForkLock
from eqsat.support.option_table import (
    NUMERICS,
    OF_FUNCTION,
    FrozenDict,
    Option,
    refuse_unknown,
    warn_of_unknown_variables,
)
from eqsat.support.watching import Watch


class _NotGiven:
    """Stands for the value of an option that is not given; shows its default."""

    def __init__(self, option: Option) -> None:
        self.option = option

    def __repr__(self) -> str:
        return repr(self.option.default)


def _default(name: str) -> Any:
    return _NotGiven(OF_FUNCTION[name])


@dataclass(frozen=True)
class Options:
    """Options of one function, as the documentation lists them
    (``eqsat/documentation/howto/options.md``).

    What is not given is what ``with eq.options(...)`` around a call says, else what the
    variable ``EQSAT_<NAME>`` said when the function was made, else the default.
    ``dataclasses.replace`` gives all.

    ``deadline_s``: a quarter of it, but half of what tracing leaves at most, goes
    to the search, which returns the best program found by then, and the rest to
    machine code, piece by piece; NumPy runs what is not written then. The traced
    function itself cannot be cut short, and no piece that was begun:
    ``howto/compile_time.md`` there has the figures. The seconds are processor time of
    the thread that compiles, so that a busy machine changes neither the program nor the
    warnings; there the wait is longer. ``max_nodes``: a user's own rules may
    enlarge any e-graph by an 800th of it.

    Raises :class:`OptionError` for unknown names, with the nearest one, and for values
    out of range.
    """

    numerics: str = _default("numerics")
    deadline_s: float = _default("deadline_s")
    max_nodes: int = _default("max_nodes")
    extract: str = _default("extract")
    regions: bool = _default("regions")
    fusion: bool = _default("fusion")
    disable: frozenset[str] = _default("disable")
    kinds: frozenset[str] = _default("kinds")
    least_elements: int = _default("least_elements")
    threads: int = _default("threads")
    memory_limit: int = _default("memory_limit")
    backends: Mapping[str, Mapping[str, Any]] = _default("backends")
    backend: str | None = _default("backend")
    cache: bool = _default("cache")
    log: frozenset[str] = _default("log")
    progress: bool = _default("progress")
    lazy_limit: int = _default("lazy_limit")
    stats: bool = _default("stats")
    adaptive: bool = _default("adaptive")
    trace: str | os.PathLike[str] | None = _default("trace")  # noqa: RUF009  (a text or None)

    if not TYPE_CHECKING:  # type checkers know the names

        def __new__(cls, *args: Any, **given: Any) -> Options:
            refuse_unknown(given, OF_FUNCTION)
            return super().__new__(cls)

    def __post_init__(self) -> None:
        warn_of_unknown_variables()
        given = {}
        for name, option in OF_FUNCTION.items():
            value = getattr(self, name)
            if isinstance(value, _NotGiven):
                value = option.from_environment()
            else:
                value = given[name] = option.checked(value)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_given", FrozenDict(given))

    @property
    def given(self) -> Mapping[str, Any]:
        """The options that were given, rather than those of the environment or the
        defaults."""
        found: Mapping[str, Any] = vars(self)["_given"]
        return found

    def for_backend(self, name: str, context: OptionContext | None = None) -> Options:
        """These options with what differs for the backend ``name``: those given, before
        those of ``context``, before the others."""
        if context is None and name not in self.backends:
            return self
        values = {n: getattr(self, n) for n in OF_FUNCTION}
        levels = values, {} if context is None else context.given, self.given
        merged: dict[str, Any] = {}
        for level in levels:
            merged |= level
            merged |= level.get("backends", {}).get(name, {})
        return Options(**merged | {"backends": {}})

    @property
    def text(self) -> str:
        """All of them; the same text in every process."""
        return repr([(n, _in_order(getattr(self, n))) for n in OF_FUNCTION])

    def differ(self, context: OptionContext) -> bool:
        """Whether ``context`` changes any of these."""
        return any(
            name not in self.given and value != getattr(self, name)
            for name, value in context.given.items()
        )

    def admits(self, numerics: str) -> bool:
        """Whether rules of class ``numerics`` are used; ``approximate(1e-6)`` counts by
        its name."""
        name = numerics.split("(")[0]
        return NUMERICS.index(name) <= NUMERICS.index(self.numerics)


Options.__new__.__wrapped__ = Options.__init__  # type: ignore[attr-defined]  # shown


# -- with options(...) -----------------------------------------------------------------


class OptionContext:
    """What the ``with`` statements around say; equal for the same options."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given
        self._key = _hashable(given)
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OptionContext) and self._key == other._key


def _in_order(value: Any) -> Any:
    """A value without an order of its own, in one."""
    if isinstance(value, Mapping):
        return sorted((k, _in_order(v)) for k, v in value.items())
    return sorted(value) if isinstance(value, frozenset) else value


def _hashable(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return frozenset((k, _hashable(v)) for k, v in value.items())
    return type(value), value


_context: ContextVar[OptionContext | None] = ContextVar("eqsat options", default=None)
current: Callable[[], OptionContext | None] = _context.get
"""What the ``with`` statements around say; None outside of any."""

CONTEXTS = c_int64(0)
"""``with options(...)`` around some thread or task: those that are open, and those that
were around the making of a task that goes on. While there are none, calls need not ask.
"""
_counting = ForkLock()

_P = ParamSpec("_P")


def _called_like(
    _: Callable[_P, Options],
) -> Callable[
    [Callable[..., AbstractContextManager[None]]],
    Callable[_P, AbstractContextManager[None]],
]:
    def shown(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__wrapped__ = Options  # type: ignore[attr-defined]
        return function

    return shown


@_called_like(Options)
def options(*args: Any, **given: Any) -> AbstractContextManager[None]:
    """Options of the calls inside of ``with eq.options(numerics="exact"):``.

    Takes what :class:`Options` takes. They hold for each call of a function inside,
    whenever the function was made: it has a program of its own for them. Calls
    outside have the programs that they had. ``jit(options=...)`` is stronger, an inner
    ``with`` is stronger than an outer one, and the environment is weaker. A task of
    asyncio has those around its making; a new thread starts with none. What it returns
    may be entered again, in itself and in several threads. Raises
    :class:`OptionError` as :class:`Options` does, and inside of a function that is
    traced: the options of its call are known by then.
    """
    return _Inside(Options(*args, **given).given)


class _Entry:
    """A ``with`` statement, counted as long as a thread or task has it."""

    def __init__(self, of: _Inside, context: OptionContext) -> None:
        self.of = of
        self.context = context
        """What it and those around it say."""
        weakref.finalize(self, _count, -1).atexit = False
        _count(1)


_entries: ContextVar[tuple[_Entry, ...]] = ContextVar("eqsat entries", default=())


class _Inside(ContextDecorator, AbstractContextManager[None]):
    """What ``options`` makes. It knows nothing of a ``with`` that is open: it may be
    entered again, in itself, and in several threads at once."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given

    def __enter__(self) -> None:
        if isinstance(sys.getprofile(), Watch):
            raise OptionError(
                "eq.options(...) inside of a traced function would change nothing; "
                "write the with statement around the call"
            )
        _put(_with(_entries.get(), self))

    def __exit__(self, *error: object) -> None:
        entries = _entries.get()
        places = [i for i, entry in enumerate(entries) if entry.of is self]
        if not places:
            raise OptionError(
                "eq.options(...) is left in a task or thread that has not entered it"
            )
        kept = entries[: places[-1]]
        for entry in entries[places[-1] + 1 :]:  # of generators that wait
            kept = _with(kept, entry.of)
        _put(kept)


def _with(entries: tuple[_Entry, ...], inner: _Inside) -> tuple[_Entry, ...]:
    outer = entries[-1].context.given if entries else {}
    return *entries, _Entry(inner, OptionContext({**outer, **inner.given}))


def _put(entries: tuple[_Entry, ...]) -> None:
    _entries.set(entries)
    _context.set(entries[-1].context if entries else None)


def _count(change: int) -> None:
    with _counting():
        CONTEXTS.value += change
