"""The time that one compile has, from the start of the call that needs it."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

now = time.thread_time
"""Processor time of this thread (s), so that what else the machine does changes no
program; where it is busy, the wait is longer."""


class Deadline:
    """A moment, so many seconds from now on in this thread."""

    def __init__(self, seconds: float) -> None:
        self._start, self._seconds = now(), seconds

    @property
    def spent(self) -> float:
        """Seconds since it was made."""
        return now() - self._start

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
