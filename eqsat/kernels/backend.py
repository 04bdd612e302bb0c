"""What a backend is, and those that are installed."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Hashable
from ctypes import c_int64
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from eqsat.support import BackendError, LastUse, Options

if TYPE_CHECKING:
    from eqsat.kernels.cost_model import CostModel
    from eqsat.kernels.program import Program
    from eqsat.trace import Arguments, Trace


class Executable(Protocol):
    """A program that a backend has lowered.

    One that knows its workspace has ``workspace_bytes``, without results; one that uses
    several threads, how many at most, ``threads``. ``timed(*arrays)``, if it is there,
    gives the results and the seconds of the program alone.
    """

    @property
    def source(self) -> str: ...

    def __call__(self, *arrays: Any) -> list[Any]: ...


class Entry(Protocol):
    """A callable that serves calls it has learnt, and asks another for the rest: the
    one it was made with, or that of the last ``ask``."""

    @property
    def function(self) -> Callable[..., Any]: ...

    def learn(self, call: Arguments, trace: Trace, program: Any, used: LastUse) -> None:
        """Serve calls like ``call``; ``used`` is told of each."""

    def forget(self, key: Hashable) -> None:
        """Serve no call of this key without asking."""

    def ask(self, fallback: Callable[..., Any]) -> None: ...

    def watching(
        self, contexts: c_int64, asking: Callable[..., Any]
    ) -> Callable[..., Any]:
        """A function for the same calls that asks ``asking`` instead while ``contexts``
        is not 0."""


class Backend(Protocol):
    """What the entry-point group ``eqsat.backends`` names.

    One that can check arguments faster than Python has ``entry(slow) -> Entry | None``
    too: ``slow`` is called for what the entry has not learnt. One that keeps memory
    between calls has ``release_memory()``. One whose programs may run at once, in
    several threads of Python, has ``team(options) -> int``, the threads of a program,
    and ``run_alone(change)``, which keeps programs to one thread each while the sum of
    all ``change`` is not 0. One that keeps memory has ``pooled_bytes() -> int``, too.
    One that knows better than its cost model what a clock shows has ``clock``, a
    :class:`ClockModel`.
    """

    @property
    def name(self) -> str: ...

    def lower(self, program: Program, options: Options) -> Executable: ...

    @property
    def model(self) -> CostModel: ...


@functools.cache
def backend_named(name: str) -> Backend:
    """The backend of that name. Raises :class:`BackendError` that lists those
    installed."""
    try:
        if name in _OWN:  # reading the entry points takes 30 ms
            backend: Backend = importlib.import_module(f"eqsat.backends.{name}").backend
        else:
            backend = _entry_point(name).load()
    except ImportError as error:
        folder = str(Path(__file__).resolve().parents[1])
        raise BackendError(
            f"backend {name!r} does not load: {error}\n"
            f"  eqsat runs from {folder}; if that is a source tree, install it with "
            "pip install -e . or work in another folder"
        ) from error
    _loaded.append(backend)
    return backend


_OWN = ("native", "numpy")


def _entry_point(name: str) -> Any:
    from importlib.metadata import entry_points

    found = {e.name: e for e in entry_points(group="eqsat.backends")}
    if name not in found:
        raise BackendError(
            f"no backend {name!r}; installed: {', '.join(sorted(found)) or 'none'}"
        )
    return found[name]


_loaded: list[Backend] = []


def release_memory() -> None:
    """Give memory back that backends keep for the next call; arrays stay as they
    are."""
    for backend in _loaded:
        release = getattr(backend, "release_memory", None)
        if release is not None:
            release()


def pooled_bytes() -> int:
    """Memory that nobody uses and that backends keep for the next call (bytes)."""
    pools = (getattr(backend, "pooled_bytes", int) for backend in _loaded)
    return sum(pool() for pool in pools)


def default_backend() -> Backend:
    """``native``, or ``numpy`` where machine code cannot be made."""
    try:
        return backend_named("native")
    except BackendError:
        return backend_named("numpy")


@functools.cache
def printer(language: str) -> Callable[[Program], str] | None:
    """What writes programs in a language that is no backend's, by the entry-point
    group ``eqsat.languages``."""
    from importlib.metadata import entry_points

    found = list(entry_points(group="eqsat.languages", name=language))
    return found[0].load() if found else None
