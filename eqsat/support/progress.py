"""What a compile does: one line on a terminal that tells how far it is, once it takes a
second, and its phases for those who ask."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import NamedTuple, TextIO

AFTER_S, EVERY_S = 1.0, 0.1
"""When the line appears, and how often it is drawn (s)."""
_WIDTH = 20
"""Characters of the bar, which is full when the deadline has passed."""
_COMPILES: list[object] = []
"""Those under way. There is one line on a terminal: that of the first."""
now = time.monotonic


class Progress:
    """The line of one compile. ``phase`` is what it does: ``tracing``."""

    def __init__(self, name: str, deadline_s: float, stream: TextIO) -> None:
        self.phase = "tracing"
        self._name, self._deadline_s, self._stream = name, deadline_s, stream
        self._start, self._drawn = now(), 0

    def draw(self) -> None:
        """Draw the line, when its time has come."""
        spent = now() - self._start
        if spent < AFTER_S:
            return
        full = _WIDTH if spent >= self._deadline_s else 0
        full = full or int(_WIDTH * spent / self._deadline_s)
        bar = "#" * full + "." * (_WIDTH - full)
        line = f"eqsat [{bar}] {self._name}: {self.phase}, {spent:.1f} s"
        line = line[: shutil.get_terminal_size().columns - 1]
        self._write(f"\r{line:{self._drawn}}")
        self._drawn = len(line)

    def clear(self) -> None:
        """Take the line away."""
        if self._drawn:
            self._write(f"\r{'':{self._drawn}}\r")
            self._drawn = 0

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # nobody looks any more
            self._stream.write(text)
            self._stream.flush()


@contextmanager
def progress(
    name: str, deadline_s: float, asked: bool = True
) -> Iterator[Callable[[str], None]]:
    """A compile inside, of the function ``name``. Gives what is told its phases.

    Shows nothing where standard error is no terminal, or ``asked`` is false.
    """
    own = object()
    _COMPILES.append(own)
    try:
        if _COMPILES[0] is own and asked and _is_wanted():
            with _shown(Progress(name, deadline_s, sys.stderr)) as show:
                yield show
        else:
            yield lambda phase: None
    finally:
        if own in _COMPILES:  # not in a process that was forked inside
            _COMPILES.remove(own)


@contextmanager
def _shown(line: Progress) -> Iterator[Callable[[str], None]]:
    """A thread draws ``line`` inside."""
    done = threading.Event()
    thread = threading.Thread(
        target=_drawing, args=(line, done), name="eqsat progress", daemon=True
    )
    thread.start()
    try:
        yield lambda phase: setattr(line, "phase", phase)
    finally:
        done.set()
        thread.join()
        line.clear()


def _drawing(line: Progress, done: threading.Event) -> None:
    pause = AFTER_S
    while not done.wait(pause):
        line.draw()
        pause = EVERY_S


def _is_wanted() -> bool:
    return os.environ.get("TERM") != "dumb" and _is_terminal(sys.stderr)


def _is_terminal(stream: TextIO | None) -> bool:
    with suppress(ValueError, AttributeError):  # closed, or no file at all
        return stream is not None and stream.isatty()
    return False


# -- phases ----------------------------------------------------------------------------


class CompilePhase(NamedTuple):
    """What a ``thread`` of the system did from ``start`` (s, of
    :func:`time.perf_counter`) for so many ``seconds``."""

    name: str
    start: float
    seconds: float
    thread: int


_listeners: ContextVar[tuple[list[CompilePhase], ...]] = ContextVar(
    "_listeners", default=()
)


@contextmanager
def phases_inside() -> Iterator[list[CompilePhase]]:
    """The phases that end inside, in order, of this thread and of others that work for
    it: one may lie within another that ends later, or beside it."""
    found: list[CompilePhase] = []
    before = _listeners.set((*_listeners.get(), found))
    try:
        yield found
    finally:
        _listeners.reset(before)


def seconds_of(name: str, phases: Sequence[CompilePhase]) -> float:
    """Seconds that ``phases`` of that name took, those of two threads at once once."""
    total = until = 0.0
    for _, start, seconds, _ in sorted(p for p in phases if p.name == name):
        end = start + seconds
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def tell_phase(name: str, start: float) -> float:
    """A phase that began at ``start`` and ends now; its seconds."""
    seconds = time.perf_counter() - start
    listeners = _listeners.get()
    if listeners:
        made = CompilePhase(name, start, seconds, threading.get_native_id())
        for found in listeners:
            found.append(made)
    return seconds


@contextmanager
def phase(name: str) -> Iterator[None]:
    """A phase that is what happens inside."""
    start = time.perf_counter()
    try:
        yield
    finally:
        tell_phase(name, start)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_COMPILES.clear)
