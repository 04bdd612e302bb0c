"""When a program was last called, counted in programs made since.

Machine code writes it, in two instructions: a call that Python does not see counts.
"""

from __future__ import annotations

import ctypes

_CLOCK = ctypes.c_int64(0)
"""The programs that this process has made."""


def clock_address() -> int:
    """Where machine code reads the clock, 8 bytes."""
    return ctypes.addressof(_CLOCK)


def tick() -> None:
    """A program was made."""
    _CLOCK.value += 1


class LastUse:
    """The time of the last call of one program."""

    __slots__ = ("__weakref__", "_time")

    def __init__(self) -> None:
        self._time = ctypes.c_int64(_CLOCK.value)

    @property
    def address(self) -> int:
        """Where machine code writes the time, 8 bytes, as long as this object lives."""
        return ctypes.addressof(self._time)

    @property
    def time(self) -> int:
        """When it was, on the clock."""
        return self._time.value

    def now(self) -> None:
        """The program is called."""
        self._time.value = _CLOCK.value
