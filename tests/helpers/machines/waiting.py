"""Waits for what must happen, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

HANG_S = 600.0
"""What takes so long never comes."""


def until(is_so: Callable[[], bool], pause_s: float = 0.0) -> None:
    """Return once ``is_so()``. Raises :class:`AssertionError` when it hangs."""
    end = time.monotonic() + HANG_S
    while not is_so():
        assert time.monotonic() < end, "it never happens"
        time.sleep(pause_s)
