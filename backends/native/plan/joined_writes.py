"""Results that nests of one kernel write part by part, as a join does.

A nest that writes from the middle of a result on is the nest that writes from its start
on, over memory that starts later: parts that are alike become one function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from ...loop_ir import (
    Loops,
    Operand,
    Piece,
    Statement,
    Store,
)


def joined(pieces: Sequence[Piece]) -> frozenset[Operand]:
    """The results that several of ``pieces`` store parts of, and that none reads."""
    count: Counter[Operand] = Counter()
    others: set[Operand] = set()
    for p in pieces:
        results = {o for o in p.operands if o.kind == "result"}
        if not isinstance(p, Loops):
            others |= results
            continue
        count.update(results)
        for s in p.nest.statements():
            if hasattr(s, "buffer") and type(s) is not Store:
                others.add(p.operands[s.buffer])
    return frozenset(o for o, n in count.items() if n > 1 and o not in others)


def from_start(p: Loops, results: Collection[Operand]) -> tuple[Loops, tuple[int, ...]]:
    """``p`` with the ``results`` that it stores to written from the start of a memory,
    and where each operand starts in its own (bytes); none where all start there."""
    first: dict[int, int] = {}
    for s in p.nest.statements():
        if isinstance(s, Store) and p.operands[s.buffer] in results:
            first[s.buffer] = min(first.get(s.buffer, s.at.offset), s.at.offset)
    if not any(first.values()):
        return p, ()

    def moved(s: Statement) -> Statement:
        if not isinstance(s, Store) or s.buffer not in first:
            return s
        return replace(s, at=replace(s.at, offset=s.at.offset - first[s.buffer]))

    sizes = [b.dtype.itemsize for b in p.nest.buffers]
    starts = tuple(first.get(i, 0) * size for i, size in enumerate(sizes))
    return replace(p, nest=p.nest.changed(moved)), starts
