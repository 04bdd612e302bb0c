"""How evenly threads share the parts of a convolution, which each has in a row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

NEAR = 1.05
"""How much more work a thread may have where less is prepared again."""
T = TypeVar("T")


def longest(work: Sequence[float], threads: int) -> float:
    """The work of the thread that has the most, of parts with so much each."""
    ends = [len(work) * t // threads for t in range(threads + 1)]
    return max(sum(work[a:b]) for a, b in pairwise(ends))


def evenest(found: Sequence[T], longest_work: Sequence[float]) -> T:
    """Of ways to share, by the work of the thread that has the most: the first, unless
    another is better by more than a little."""
    best = min(longest_work)
    is_near = longest_work[0] <= NEAR * best
    return found[0] if is_near else found[longest_work.index(best)]
