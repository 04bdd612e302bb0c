"""The time that one compile has, from the start of the call that needs it."""

from __future__ import annotations

import time

now = time.thread_time
"""Processor time of this thread (s), so that what else the machine does changes no
program; where it is busy, the wait is longer."""


class TimeIsUpError(Exception):
    """Work was given up since its deadline has passed."""


class Deadline:
    """A moment, so many seconds from now on in this thread."""

    def __init__(self, seconds: float) -> None:
        self._end = now() + seconds

    @property
    def left(self) -> float:
        """Seconds until then; 0 where it has passed."""
        return max(0.0, self._end - now())

    def check(self) -> None:
        """Raise :class:`TimeIsUpError` where it has passed."""
        if now() > self._end:
            raise TimeIsUpError
