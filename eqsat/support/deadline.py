"""The time that one compile has, from the start of the call that needs it."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .forks import ForkLock

now = time.thread_time
"""Processor time of this thread (s), so that what else the machine does changes no
program; where it is busy, the wait is longer."""

TURN_S = 5e-4
"""How long a thread runs Python while others wait, where it is to be short (s)."""


class Deadline:
    """A moment, so many seconds from now on in this thread."""

    def __init__(self, seconds: float) -> None:
        self._start, self._seconds = now(), seconds
        self.beside_s = 0.0
        """Processor time of another thread for the same."""

    @property
    def spent(self) -> float:
        """Seconds since it was made."""
        return now() - self._start + self.beside_s

    @property
    def left(self) -> float:
        """Seconds until then; 0 where it has passed."""
        return max(0.0, self._seconds - self.spent)


@contextmanager
def collection_paused() -> Iterator[None]:
    """No cyclic garbage collection inside: compiling makes many objects that live on,
    and one full collection in the middle costs 15 ms, a tenth of compiling a
    transformer block."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


_turns = ForkLock()
_in_turns: list[float] = []
"""How long a turn was before each of those that are inside."""


@contextmanager
def short_turns() -> Iterator[None]:
    """Threads take turns in Python ten times as often inside. One that calls LLVM needs
    a turn for each call, and beside one that writes its text gets on at a third of its
    speed if turns last 5 ms."""
    with _turns():
        _in_turns.append(sys.getswitchinterval())
        sys.setswitchinterval(min(_in_turns[0], TURN_S))
    try:
        yield
    finally:
        with _turns():
            before = _in_turns.pop() if _in_turns else 0.0  # none after a fork inside
            if before and not _in_turns:
                sys.setswitchinterval(before)


def _alone() -> None:
    """In the child of a fork, whatever others were inside of."""
    if _in_turns:
        sys.setswitchinterval(_in_turns[0])
    _in_turns.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alone)
