"""Locks that the child of a fork finds open, and what a fork waits for.

A child has one thread. What other threads of its parent held, nobody lets go.

``logging`` and ``concurrent.futures.thread`` take and release locks at forks, too. They
are imported here, before a fork waits: one that is imported meanwhile releases what it
has not taken, and Python says so.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401
import importlib
import logging  # noqa: F401
import os
import threading
import time
from contextlib import AbstractContextManager
from typing import Any

_PATIENCE_S = 10.0
"""How long a fork waits for imports of other threads (s)."""
_PACKAGES = frozenset(
    "eqsat egglog llvmlite ml_dtypes numpy platformdirs scipy xxhash".split()
)
"""What compiling imports."""
_GATES: list[AbstractContextManager[Any]] = []
_entered: list[AbstractContextManager[Any]] = []
_process = [threading.Lock()]
"""Stands for this process, as a child has another one; held while locks are renewed."""


class ForkLock:
    """A lock of this process: ``with lock():``. A thread may enter again what it holds.
    In a child of a fork nobody holds it."""

    def __init__(self) -> None:
        self._held = _process[0], threading.RLock()

    def __call__(self) -> AbstractContextManager[Any]:
        process, lock = self._held
        if process is _process[0]:
            return lock
        with _process[0]:
            if self._held[0] is not _process[0]:
                self._held = _process[0], threading.RLock()
            return self._held[1]


def hold_during_fork(lock: AbstractContextManager[Any]) -> None:
    """From now on, have a fork wait until no other thread holds ``lock``: for what must
    be whole in the child. Whoever holds it must come to an end by itself."""
    _GATES.append(lock)


def _imports_of_others() -> bool:
    """Whether another thread imports something that compiling needs: a module that is
    half loaded stays so in the child, and to import it waits for ever."""
    known = getattr(importlib, "_bootstrap", None)
    mine = None, threading.get_ident()
    for made in list(getattr(known, "_module_locks", {}).values()):
        lock = made()
        if getattr(lock, "owner", None) not in mine:
            if str(lock.name).partition(".")[0] in _PACKAGES:
                return True
    return False


def _before() -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        for gate in _GATES:
            gate.__enter__()
            _entered.append(gate)
        if not _imports_of_others() or time.monotonic() > deadline:
            return
        _open()  # the import may need what the gates hold
        time.sleep(0.001)


def _open() -> None:
    while _entered:
        _entered.pop().__exit__(None, None, None)


def _in_child() -> None:
    _process[0] = threading.Lock()
    _open()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_open, after_in_child=_in_child)
