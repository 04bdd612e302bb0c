"""How many threads a program may run on, and how many it is worth."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from eqsat.kernels import ATTENTION, CONTRACT, Program

from .team_code import IF_AWAKE
from .work_sharing_code import MOST_THREADS

BYTES_PER_S = 8e10
LANES_PER_S = 3e9
FLOPS_PER_S = 8e10
"""Rough figures of one core: near memory, vectors of simple ops, and products."""
GRAIN_S = 4e-6
"""Work that is worth another thread that waits for it (s)."""
SHARED_S = 1e-5
"""Work from which on a program is made for several threads (s)."""
WAKE_S = 2e-4
"""Work that is worth waking a thread that sleeps: it takes part after 25 µs at best,
100 µs on a busy machine (s)."""
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


def is_worth_sharing(program: Program, lanes: int) -> bool:
    """Whether a second thread may save time, where a vector has ``lanes`` float32."""
    total = 0.0
    for k in program.kernels:
        is_product = k.kind in (CONTRACT, ATTENTION)
        work = k.flops / (FLOPS_PER_S if is_product else LANES_PER_S * lanes)
        total += max(work, k.bytes / BYTES_PER_S)
    return total > SHARED_S


def asked(threads: int, seconds: float) -> int:
    """What ``team_run`` is asked for: workers that sleep are woken for longer programs
    alone. ``seconds``: about how long one thread takes."""
    if threads == 1 or seconds >= WAKE_S:
        return threads
    return threads | IF_AWAKE if seconds >= 2 * GRAIN_S else 1
