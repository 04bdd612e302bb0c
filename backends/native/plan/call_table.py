"""Groups that are alike: what differs between them is where their operands lie.

A long program is a table of calls. Each group that is not like another becomes one
function, which reads the places of its operands from the row of the table that it is
called for, so that machine code grows with what a program does and not with how often.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from ...loop_ir import (
    Loops,
    Piece,
)
from ..loops import alike, runs
from ..machine import Host, MemoryRef
from ..products import Mirroring, Packing
from .groups import Group
from .piece_kinds import kind_of

AnyPiece: TypeAlias = Piece | Packing | Mirroring
PLACES = -4
"""Buffer number of the memory that a row of the table names, by its position."""


@dataclass(frozen=True)
class TableCall:
    """A group as a row of the table."""

    kind: int
    """Which function."""
    memory: tuple[MemoryRef, ...]
    """Of its operands."""
    units: int
    """What threads share (:func:`told_units`)."""


def calls_of(
    groups: Sequence[Group], host: Host, shared: Callable[[Group], object]
) -> tuple[list[Group], list[TableCall]]:
    """The groups that differ, over :data:`PLACES`, and the calls of them in order.
    ``shared``: how threads share a group."""
    kinds: dict[tuple[Any, ...], int] = {}
    distinct: list[Group] = []
    calls = []
    numbers = _Numbers(host)
    for g in groups:
        private = {m for m, _ in g.private}
        every = dict.fromkeys(m for s in g.steps for m in s.memory)
        memory = tuple(m for m in every if m not in private)
        place = {m: MemoryRef(PLACES, i) for i, m in enumerate(memory)}
        place |= {m: MemoryRef(PLACES, ~i) for i, (m, _) in enumerate(g.private)}
        made = _over(g, place)
        is_alone = is_nest(g)
        key = (
            tuple(
                (numbers.of(s.piece, is_alone), s.plan, s.memory) for s in made.steps
            ),
            *(made.rows, made.panel, made.private, made.columns, made.reach),
            shared(g),
        )
        if key not in kinds:
            kinds[key] = len(distinct)
            distinct.append(made)
        calls.append(TableCall(kinds[key], memory, told_units(g, host)))
    return distinct, calls


def is_nest(g: Group) -> bool:
    """Whether a group is a nest by itself, whose code takes the number of its units
    from the row."""
    return len(g.steps) == 1 and isinstance(g.steps[0].piece, Loops)


def code_alone(piece: AnyPiece, host: Host) -> object:
    """What tells the code of such a nest from that of others."""
    assert isinstance(piece, Loops)
    return alike(replace(piece.nest, ranged=runs(piece.nest, host)), host)


def is_run(g: Group, host: Host) -> bool:
    """Whether a group is a long loop by itself, of which threads take some elements."""
    piece = g.steps[0].piece
    return is_nest(g) and isinstance(piece, Loops) and runs(piece.nest, host)


def told_units(g: Group, host: Host) -> int:
    """What threads share of a group, where calls say so: elements of a long loop, units
    of others."""
    piece = g.steps[0].piece
    if isinstance(piece, Loops) and is_run(g, host):
        return piece.nest.elements
    return g.units(host)


def units_at(memory: Sequence[MemoryRef]) -> int:
    """The word of a row in which its units are."""
    return 2 + 2 * len(memory)


class _Numbers:
    """Pieces by number, equal ones by the same; those that are one object are not
    compared."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._of_object: dict[tuple[int, bool], int] = {}
        self._of_value: dict[object, int] = {}

    def of(self, piece: AnyPiece, is_alone: bool) -> int:
        number = self._of_object.get((id(piece), is_alone))
        if number is None:
            alone = is_alone and code_alone(piece, self._host)
            value = alone or kind_of(piece).code(piece)
            number = self._of_value.setdefault(value, len(self._of_value))
            self._of_object[id(piece), is_alone] = number
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
    """The rows of ``calls``: the function, words up to the next row, for each operand
    its block and the byte where it starts there, and the units. ``placed``: where
    memory lies."""
    words: list[int] = []
    for call in calls:
        words += call.kind, units_at(call.memory) + 1
        for m in map(placed, call.memory):
            words += m.buffer, m.byte
        words.append(call.units)
    return np.array(words, np.int64).tobytes()
