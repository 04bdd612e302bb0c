"""Groups that are alike: what differs between them is where their operands lie.

A long program is a table of calls. Each group that is not like another becomes one
function, which reads the places of its operands from the row of the table that it is
called for, so that machine code grows with what a program does and not with how often.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...loop_ir import (
    Piece,
)
from ..machine import MemoryRef
from ..products import Mirroring, Packing
from .groups import Group
from .piece_kinds import kind_of

PLACES = -4
"""Buffer number of the memory that a row of the table names, by its position."""


@dataclass(frozen=True)
class TableCall:
    """A group as a row of the table."""

    kind: int
    """Which function."""
    memory: tuple[MemoryRef, ...]
    """Of its operands."""


def calls_of(groups: Sequence[Group]) -> tuple[list[Group], list[TableCall]]:
    """The groups that differ, over :data:`PLACES`, and the calls of them in order."""
    kinds: dict[tuple[Any, ...], int] = {}
    distinct: list[Group] = []
    calls = []
    numbers = _Numbers()
    for g in groups:
        private = {m for m, _ in g.private}
        every = dict.fromkeys(m for s in g.steps for m in s.memory)
        memory = tuple(m for m in every if m not in private)
        place = {m: MemoryRef(PLACES, i) for i, m in enumerate(memory)}
        place |= {m: MemoryRef(PLACES, ~i) for i, (m, _) in enumerate(g.private)}
        made = _over(g, place)
        key = (
            tuple((numbers.of(s.piece), s.plan, s.memory) for s in made.steps),
            *(made.rows, made.panel, made.private, made.columns, made.reach),
            g.seconds,  # says how many threads share it
        )
        if key not in kinds:
            kinds[key] = len(distinct)
            distinct.append(made)
        calls.append(TableCall(kinds[key], memory))
    return distinct, calls


class _Numbers:
    """Pieces by number, equal ones by the same; those that are one object are not
    compared."""

    def __init__(self) -> None:
        self._of_object: dict[int, int] = {}
        self._of_value: dict[object, int] = {}

    def of(self, piece: Piece | Packing | Mirroring) -> int:
        number = self._of_object.get(id(piece))
        if number is None:
            value = kind_of(piece).code(piece)
            number = self._of_value.setdefault(value, len(self._of_value))
            self._of_object[id(piece)] = number
        return number


def _over(g: Group, place: Mapping[MemoryRef, MemoryRef]) -> Group:
    """The group over other memory."""
    reach = g.reach
    if reach is not None:
        memory, values = place[reach.memory], place[reach.values]
        reach = replace(reach, memory=memory, values=values)
    steps = (replace(s, memory=tuple(place[m] for m in s.memory)) for s in g.steps)
    private = tuple((place[m], size) for m, size in g.private)
    return replace(g, steps=tuple(steps), private=private, reach=reach)


def table(
    calls: Sequence[TableCall], placed: Callable[[MemoryRef], MemoryRef]
) -> bytes:
    """The rows of ``calls``: the function, words up to the next row, and for each
    operand its block and the byte where it starts there. ``placed``: where memory
    lies."""
    words: list[int] = []
    for call in calls:
        words += call.kind, 2 + 2 * len(call.memory)
        for m in map(placed, call.memory):
            words += m.buffer, m.byte
    return np.array(words, np.int64).tobytes()
