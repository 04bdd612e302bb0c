"""Loops in fractional choices: sets of classes that are computed from one another with
too little that comes from outside.

An acyclic choice that takes some class of a set must also take a node of the set that
needs nothing in it; answer set programs know this as a loop formula (Lin and Zhao
2004). As a row of a linear program: the takings of such nodes sum to at least the
takings of any one class.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from eqsat.search.extraction.problem import Problem

MISSING = 1e-4
"""Least shortfall that makes a row worth adding."""
STEPS = 12
"""Sets tried in each strongly connected component."""


class CycleRow(NamedTuple):
    """A row: the ``entries`` are taken at least as often as ``members`` together."""

    entries: tuple[int, ...]
    members: tuple[int, ...]
    """The nodes of one class."""


def loops(p: Problem, taken: Sequence[float]) -> list[CycleRow]:
    """Rows that ``taken``, how far each node is taken, does not keep."""
    found: dict[CycleRow, None] = {}
    for part in p.parts:
        if len(part) > 1:
            for classes in _unsupported(p, part, taken):
                found.update(dict.fromkeys(_rows(p, classes, taken)))
    return list(found)


def _unsupported(
    p: Problem, part: Sequence[int], taken: Sequence[float]
) -> Iterator[set[int]]:
    """Sets of classes that only nodes taken little make from outside."""
    width = _widest(p, part, taken)
    bounds = sorted({w for w in width.values() if 1e-6 < w < 1 - 1e-6}, reverse=True)
    for bound in [*bounds[:: max(1, len(bounds) // STEPS)], 1e-5]:
        yield {c for c in part if width.get(c, 0.0) <= bound}


def _widest(
    p: Problem, part: Sequence[int], taken: Sequence[float]
) -> dict[int, float]:
    """For each class the best derivation from outside ``part``, measured by the node in
    it that is taken least."""
    width: dict[int, float] = {}
    missing, users = p.needs_within(part)
    heap = [(-taken[n], n) for n, count in missing.items() if not count]
    heapq.heapify(heap)
    while heap:
        least, n = heapq.heappop(heap)
        c = p.cls[n]
        if c in width:
            continue
        width[c] = -least
        for user in users[c]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(heap, (max(least, -taken[user]), user))
    return width


def _rows(p: Problem, classes: set[int], taken: Sequence[float]) -> Iterator[CycleRow]:
    """The row of a set for its class that is taken most, and that of what the class is
    computed from within the set."""
    if not classes:
        return
    share = {c: sum(taken[n] for n in p.members[c]) for c in sorted(classes)}
    most = max(share, key=share.__getitem__)
    near = {most}
    for c in (todo := [most]):
        for n in p.members[c]:
            if taken[n] > 1e-6:
                new = classes.intersection(p.kids[n]) - near
                near |= new
                todo.extend(sorted(new))
    for found in (classes, near):
        entries = tuple(
            n
            for c in sorted(found)
            for n in p.members[c]
            if found.isdisjoint(p.kids[n])
        )
        if sum(taken[n] for n in entries) < share[most] - MISSING:
            yield CycleRow(entries, tuple(p.members[most]))
