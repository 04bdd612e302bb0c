"""Positions of rows in order of which a program reads the first or the last ones alone,
as the largest of many scores: the others are not found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from eqsat.kernels import Kernel, bases_of
from eqsat.terms import Term

from ...loop_ir import Load, Loops, Ordering
from ..machine import Host
from ..sorting import selection
from .buffers import Places
from .groups import Group
from .piece_kinds import kind_of

Columns = tuple[int, int]
"""The first element of each row that is read, and the one behind the last."""
Part = Group | Kernel


def selected(
    parts: Sequence[Part],
    ends: Sequence[tuple[Kernel, int]],
    places: Places,
    host: Host,
) -> list[Part]:
    """The parts of a plan, with orderings that find what is read of them alone where
    that is worth it. ``ends``: kernels, and where the parts of each end."""
    found = list(parts)
    if not any(map(_positions, parts)):
        return found
    starts = [0, *(end for _, end in ends)]
    of = {k: parts[a:b] for a, (k, b) in zip(starts, ends, strict=False)}
    reads = _Reads(of, places)
    for start, (kernel, end) in zip(starts, ends, strict=False):
        for i in range(start, end):
            part, p = parts[i], _positions(parts[i])
            if p is None:
                continue
            assert isinstance(part, Group)
            low, high = reads.of_rows(kernel.results[p.operands[1].key], p.size)
            wanted = replace(p, wanted=min(high, low - p.size, key=abs))
            if selection.is_worth_it(wanted):
                seconds = kind_of(wanted).seconds(wanted, host)
                step = replace(part.steps[0], piece=wanted, seconds=seconds)
                found[i] = replace(part, steps=(step,))
    return found


def _positions(part: object) -> Ordering | None:
    """The positions of long rows that are a result, where ``part`` finds these."""
    p = part.steps[0].piece if isinstance(part, Group) else None
    if not isinstance(p, Ordering) or not p.is_positions:
        return None
    return p if p.operands[1].kind == "result" else None


class _Reads:
    """What is read of values."""

    def __init__(self, parts: Mapping[Kernel, Sequence[Part]], places: Places) -> None:
        """``parts``: those of each kernel."""
        self.parts, self.places = parts, places
        base = bases_of(places.program.steps)
        self.readers: dict[Term, list[Kernel]] = {}
        """The kernels that read a value or a view of it."""
        for k in places.program.kernels:
            for a in dict.fromkeys(base.get(a, a) for a in k.inputs):
                self.readers.setdefault(a, []).append(k)
        self.given: dict[Term, list[Term]] = {}
        """The results of a call that are a value or views of it."""
        for r in places.program.roots:
            self.given.setdefault(base.get(r, r), []).append(r)

    def of_rows(self, made: Term, row: int) -> Columns:
        """The columns that are read of a value, whose rows lie side by side."""
        low, high = row, 0
        for first, end in (*self._by_kernels(made, row), *self._by_call(made, row)):
            if first < 0 or end > row:
                return 0, row
            low, high = min(low, first), max(high, end)
        return low, high

    def _by_call(self, made: Term, row: int) -> Iterator[Columns]:
        home = self.places.of[made]
        for t in self.given.get(made, ()):
            place = self.places.of[t]
            steps = [*zip(t.shape, place.layout.strides, strict=True)]
            start = place.layout.offset - home.layout.offset
            is_there = place.memory == home.memory
            yield _columns(start, steps, row) if is_there else (0, row)

    def _by_kernels(self, made: Term, row: int) -> Iterator[Columns]:
        home = self.places.of[made].memory
        size = made.nbytes // made.size
        readers = self.readers.get(made, ())
        for part in (p for k in readers for p in self.parts.get(k, ())):
            if not isinstance(part, Group):
                yield 0, row
                continue
            for step in part.steps:
                for i, m in enumerate(step.memory):
                    start = m.byte - home.byte
                    if m.buffer == home.buffer and 0 <= start < made.nbytes:
                        yield from _read(step.piece, i, start // size, row)


def _read(piece: object, operand: int, start: int, row: int) -> Iterator[Columns]:
    """What a piece reads of an operand that begins at an element of the value."""
    if not isinstance(piece, Loops):
        yield 0, row
        return
    for s in piece.nest.statements():
        if getattr(s, "buffer", -1) != operand:
            continue
        if isinstance(s, Load):
            steps = [(v.size, c) for v, c in s.at.terms]
            yield _columns(start + s.at.offset, steps, row)
        else:
            yield 0, row


def _columns(start: int, steps: Sequence[tuple[int, int]], row: int) -> Columns:
    """Of elements from ``start`` on, so many apart for each loop; past the ends of a
    row where they are not of the same columns in each."""
    low = high = start % row
    for size, apart in steps:
        if size and apart % row:
            low += min(0, apart * (size - 1))
            high += max(0, apart * (size - 1))
    return low, high + 1
