"""How many threads a program may run on."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from .team_code import MOST_THREADS

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Of the control group of this process, as containers show it."""


def thread_limit(threads: int = 0) -> int:
    """How many threads ``threads`` (of the options) allows; 0 allows as many as the
    process may use processors: its affinity, and the quota of its container."""
    return min(threads or _processors(), MOST_THREADS)


@functools.cache
def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, min(count, _quota(_QUOTA) or count))


def _quota(path: Path) -> int | None:
    """Whole processors of ``path`` ("150000 100000": one and a half), at least 1; None
    without a quota."""
    try:
        allowed, period = path.read_text(encoding="ascii").split()
        return max(1, int(allowed) // int(period))
    except (OSError, ValueError):
        return None
