"""Programs that functions keep, of the whole process: a bound on how many.

A program over the bound is dropped, the one that was called longest ago first. Its
function finds it again when it is called so: on disk, or by compiling. What runs at
that moment is freed when it has run.
"""

from __future__ import annotations

import weakref
from typing import Protocol

from eqsat.support import ForkLock, LastUse, setting, tick


class Keeper(Protocol):
    """A function that keeps programs."""

    def drop(self, used: LastUse) -> None:
        """Let the program that ``used`` is of go."""


_kept: weakref.WeakKeyDictionary[LastUse, weakref.ref[Keeper]]
_kept = weakref.WeakKeyDictionary()
_lock = ForkLock()


def most() -> int:
    """How many programs may be kept. Raises :class:`OptionError`."""
    return int(setting("max_programs"))


def count() -> int:
    """How many programs functions keep now."""
    with _lock():
        return len(_kept)


def keep(keeper: Keeper, used: LastUse) -> None:
    """Count a program that ``keeper`` has made, for as long as ``used`` lives; drop
    others that are too many."""
    bound = most()
    with _lock():
        tick()
        used.now()
        _kept[used] = weakref.ref(keeper)
        spare = max(0, len(_kept) - bound)
        oldest = sorted(_kept, key=lambda used: used.time)[:spare] if spare else []
        dropped = [(_kept.pop(use)(), use) for use in oldest]
    for owner, use in dropped:
        if owner is not None:
            owner.drop(use)
