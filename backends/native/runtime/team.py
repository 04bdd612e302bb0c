"""How many threads a program may run on, and how many it is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.saved import processors

from ..machine import COMMON
from .team_code import IF_AWAKE
from .work_sharing_code import MOST_THREADS

if TYPE_CHECKING:
    from eqsat.kernels import Program


def thread_limit(threads: int = 0) -> int:
    """How many threads ``threads`` (of the options) allows; 0 allows as many as the
    process may use processors: its affinity, and the quota of its container."""
    return min(threads or processors(), MOST_THREADS)


def is_worth_sharing(program: Program, lanes: int) -> bool:
    """Whether a second thread may save time, where a vector has ``lanes`` float32."""
    from eqsat.kernels import ATTENTION, CONTRACT  # 70 ms, which no kept program needs

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
