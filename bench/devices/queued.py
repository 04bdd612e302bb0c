"""What a device takes for a call, whatever its host takes.

Calls are handed over while the device is busy with a *plug* that was started first, so
that all of them wait in its queue when it gets to them. Behind equal plugs the totals
of many calls and of few differ by the device's time for the calls between, if the host
was done each time before the plug was. A plug has to last equally long each time:
where there is one, it is a kernel that looks at a clock. (Products, whose time follows
the power that is left, gave 3 to 15 µs for a copy that takes 5.)

Such a kernel also tells when it ended, by the device's clock: one before the calls and
one after them, and the host's clock is not needed. (The host notices the end of a round
some 50 µs sooner or later: of 41 rounds, the median for what takes 2.1 µs was 0.6 to
2.6 in neighbouring runs, and single rounds were negative.)
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.reports import Record

LEAST_PLUG_S = 1e-3
MOST_PLUG_S = 0.06
LEAST = 4
"""Calls of the larger number of them."""
MOST = 72
"""As many as fit in the queues of both: PyTorch waits where 1,024 kernels are under
way, MLX where more than 10 groups of calls are."""
CALLS_S = 0.006
"""Seconds that the most calls aim at."""
IN_TIME = 0.8
"""The share of a plug in which the host has to be done."""


@dataclass(frozen=True)
class Queue:
    """A device that works in order on what it is handed."""

    plug: Callable[[float], Any]
    """Keeps the device busy for so many seconds, about; the same number for as long."""
    hand: Callable[[int], Any]
    """Records and starts so many calls; their results, which are not there yet."""
    wait: Callable[[Any], None]
    """Waits for results, in a time that does not depend on how many there are."""
    between: Callable[[Any, Any], float] | None = None
    """Seconds from the end of a plug to that of another, by the device's clock; it
    waits for both. None where a device has no clock."""
    clock: Callable[[], float] = time.perf_counter

    def run(self, plug_s: float, calls: int) -> tuple[float, float]:
        """Seconds until all was handed over, and until all was done: by the device's
        clock without the plug, by the host's with it."""
        start = self.clock()
        held = self.plug(plug_s)
        found = self.hand(calls)
        if self.between is not None:
            last = self.plug(0.0)
            handed = self.clock() - start
            return handed, self.between(held, last)
        handed = self.clock() - start
        self.wait(found)
        return handed, self.clock() - start


@dataclass(frozen=True)
class QueueSize:
    """How many calls a queue is given behind how long a plug."""

    plug_s: float
    many: int

    @property
    def few(self) -> int:
        """The smaller number of them."""
        return self.many // 4

    def longer(self) -> QueueSize:
        """Behind a longer plug, for a host that was late."""
        return replace(self, plug_s=min(2 * self.plug_s, MOST_PLUG_S))


class NotInTime(Exception):
    """The host takes longer than the longest plug."""


def sized(queue: Queue, once_s: float, most: int) -> QueueSize:
    """Calls, ``most`` at most, that a host can hand over while a plug lasts; one takes
    both ``once_s`` or less. Raises :class:`NotInTime`."""
    calls = max(LEAST, min(int(CALLS_S / once_s), MOST, most))
    plug_s = min(max(2 * calls * once_s, LEAST_PLUG_S), MOST_PLUG_S)
    while True:
        queue.run(plug_s, calls)
        handed, _ = queue.run(plug_s, calls)
        if handed < IN_TIME * plug_s:
            break
        if 2 * handed <= MOST_PLUG_S:
            plug_s = 2 * handed
        elif calls > LEAST:  # or a queue is full, whose end the host waits for
            calls = max(calls // 2, LEAST)
        else:
            raise NotInTime(f"{calls} calls took the host {handed * 1e3:.1f} ms")
    plug_s = max(2 * handed, LEAST_PLUG_S)
    size = QueueSize(plug_s, calls)
    queue.run(plug_s, size.few)
    return size


def slope(queue: Queue, size: QueueSize) -> float | None:
    """Seconds of the device for a call, by one round; None where the host was not done
    while the plug lasted."""
    handed_few, few = queue.run(size.plug_s, size.few)
    handed_many, many = queue.run(size.plug_s, size.many)
    if max(handed_few, handed_many) > IN_TIME * size.plug_s:
        return None
    return (many - few) / (size.many - size.few)


def told(size: QueueSize, slopes: Sequence[float | None]) -> Record:
    """What a result says of rounds: ``device_s`` (median, min, max), or why not."""
    said: Record = {
        "queued": {
            "calls": [size.few, size.many],
            "plug_s": size.plug_s,
            "late_rounds": slopes.count(None),
        }
    }
    known = [s for s in slopes if s is not None]
    if 2 * len(known) <= len(slopes):
        return said | {"device_reason": "the host was not done while the plug lasted"}
    middle = statistics.median(known)
    if middle <= 0:
        return said | {"device_reason": "the plug's time varies more than the calls'"}
    return said | {"device_s": {"median": middle, "min": min(known), "max": max(known)}}
