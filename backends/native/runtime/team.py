"""How many threads a program may run on, and how many it is worth."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from eqsat.kernels import ATTENTION, CONTRACT, Program

from ..machine import COMMON
from .team_code import IF_AWAKE
from .work_sharing_code import MOST_THREADS

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
        vectors = COMMON.core_vectors_per_s * lanes
        work = k.flops / (COMMON.core_flops_per_s if is_product else vectors)
        total += max(work, k.bytes / COMMON.core_bytes_per_s)
    return total > COMMON.shared_s


def asked(threads: int, seconds: float) -> int:
    """What ``team_run`` is asked for: workers that sleep are woken for longer programs
    alone. ``seconds``: about how long one thread takes."""
    if threads == 1 or seconds >= COMMON.wake_s:
        return threads
    return threads | IF_AWAKE if seconds >= 2 * COMMON.thread_s else 1
