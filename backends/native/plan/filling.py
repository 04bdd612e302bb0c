"""Arrays that a second thread fills while code is written and compiled."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from threading import Thread

BESIDE_BYTES = 1 << 20
"""Arrays from this size on are filled beside. Threads change places in milliseconds."""
PART_BYTES = 1 << 25
"""What two threads share comes in parts of about this size."""


class Filling:
    """Arrays that are filled by :meth:`finish`. Memory that a process has not touched
    yet may come at 0.2 GB/s: large arrays can take longer than their program's code."""

    def __init__(self) -> None:
        self._small: list[Callable[[], None]] = []
        self._large: deque[Callable[[], None]] = deque()
        self._thread: Thread | None = None
        self._failed: list[BaseException] = []

    def add(self, fill: Callable[[], None], nbytes: int) -> None:
        """An array of so many bytes."""
        if nbytes < BESIDE_BYTES:
            self._small.append(fill)
        else:
            self._large.append(fill)

    def begin(self) -> None:
        """Let a second thread fill the large ones."""
        if not self._large:
            return
        run = copy_context().run
        thread = Thread(None, run, "eqsat constants", (self._fill_large,))
        try:
            thread.start()
        except RuntimeError:  # no thread is begun any more where Python ends
            return
        self._thread = thread

    def finish(self) -> None:
        """Fill what is left, and wait for the second thread. Raises what it raised."""
        for fill in self._small:
            fill()
        self._small.clear()
        self._fill_large()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failed:
            raise self._failed.pop()

    def _fill_large(self) -> None:
        while True:
            try:
                fill = self._large.popleft()
            except IndexError:
                return
            try:
                fill()
            except BaseException as error:  # raised in the thread that waits
                self._large.clear()
                self._failed.append(error)
