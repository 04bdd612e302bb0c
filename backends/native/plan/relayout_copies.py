"""Copies, in another order, of what vectors would read from far apart again and again.

Points that lie row by row, ``x y z x y z``, and that each of many others is compared
with, come to lie column by column before: distances of 1000 points from 1000 in space
take 0.47 of the time, overlaps of 600 boxes with 800 0.39.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ...loop_ir import (
    Accumulate,
    Affine,
    Buffer,
    Compute,
    Const,
    Contraction,
    DType,
    Gather,
    Load,
    Loops,
    LoopVar,
    Nest,
    Operand,
    Pass,
    Piece,
    Pieces,
    Statement,
    Store,
    Within,
)
from ..loops import lanes
from ..machine import COMMON, Host

ADDED = ("sum", "max", "min", "mean", "prod")
"""Reductions of such rows."""

Place = tuple[int, Affine]
"""Of a load: its buffer and address."""


def with_copies(made: Pieces, host: Host) -> Pieces:
    """``made`` with such copies before the nests that read them. The nests have been
    through :func:`~..loops.vector_shape.with_lane_axis`."""
    pieces: list[Piece] = []
    temporaries = list(made.temporaries)
    for p in made.pieces:
        # What follows a product is computed with it, row by row.
        if isinstance(p, Loops) and not any(isinstance(q, Contraction) for q in pieces):
            side = _beside(p.nest, host) or p.nest
            *copies, p = _copied(replace(p, nest=side), temporaries)
            pieces += copies
        pieces.append(p)
    if len(pieces) == len(made.pieces):
        return made
    return replace(made, pieces=pieces, temporaries=temporaries)


def _copied(p: Loops, temporaries: list[tuple[DType, int]]) -> list[Loops]:
    """The nest of ``p`` after its copies, for which there is new memory."""
    nest = p.nest
    is_small = nest.elements < COMMON.copy_elements
    if nest.chunk is not None or nest.ordered or nest.ranged or is_small:
        return [p]
    found: dict[DType, dict[Place, LoopVar]] = {}
    for load, lane in _strided_loads(nest):
        found.setdefault(load.dtype, {})[load.buffer, load.at] = lane
    copies: list[Loops] = []
    homes: dict[Place, Place] = {}
    operands = list(p.operands)
    for dtype, places in found.items():
        size = sum(_size(at) for _, at in places)
        if size * dtype.itemsize > COMMON.copy_bytes:
            continue
        home = Operand("temporary", len(temporaries), dtype)
        temporaries.append((dtype, size))
        start = 0
        alike: dict[tuple[LoopVar, ...], list[tuple[Place, Affine]]] = {}
        for place, lane in places.items():
            _, at = place
            others = (v for v in at.variables if v != lane)
            to = _packed(at, lane, start)
            alike.setdefault((*others, lane), []).append((place, to))
            homes[place] = len(operands), to
            start += _size(at)
        copies += [_copy(p.operands, home, *copy) for copy in alike.items()]
        operands.append(home)
    return [*copies, _reading(nest, operands, homes)] if copies else [p]


def _beside(nest: Nest, host: Host) -> Nest | None:
    """The nest with lanes along its rows, where copies make their elements lie side by
    side: sums of 16 in lanes of their own take a quarter of the time of sums of lanes.
    """
    first, *others = nest.passes
    stores = [s.at for s in nest.statements() if isinstance(s, Store)]
    along = [v for v in nest.grid if all(at.coefficient(v) == 1 for at in stores)]
    kinds = (Load, Compute, Const, Accumulate)
    simple = all(isinstance(s, kinds) for s in first.body) and bool(first.loops)
    alone = not any(q.loops for q in others) and not nest.keeps
    added = all(s.op in ADDED for s in first.body if isinstance(s, Accumulate))
    free = not nest.vertical and nest.chunk is None and not nest.ordered
    if not (simple and alone and added and free and along):
        return None
    rest = (v for v in nest.grid if v != along[-1])
    side = replace(nest, vertical=True, grid=(*rest, along[-1]))
    row = prod(v.size for v in first.loops)
    few = along[-1].size < host.tuning.turned_vectors * lanes(side, host)
    if row > host.tuning.turned_row or few:
        return None
    far = {load.at for load, _ in _strided_loads(side)}
    loads = [s.at for s in nest.statements() if isinstance(s, Load)]
    near = all(at in far or at.coefficient(along[-1]) in (0, 1) for at in loads)
    return side if near and far and nest.elements >= host.tuning.copy_elements else None


def _strided_loads(nest: Nest) -> list[tuple[Load, LoopVar]]:
    """Loads that vectors make from far apart, each element many times, and the variable
    that lanes run along."""
    found: list[tuple[Load, LoopVar]] = []
    for q in nest.passes:
        lane = nest.grid[-1] if nest.vertical else q.loops[-1] if q.loops else None
        stores = [s.at for s in q.body if isinstance(s, Store)]
        if lane is None or any(abs(at.coefficient(lane)) > 1 for at in stores):
            continue
        for s in (*q.before, *q.body):
            if isinstance(s, Load) and abs(s.at.coefficient(lane)) > 1:
                again = nest.elements >= COMMON.reread * _size(s.at)
                if again and not nest.buffers[s.buffer].written:
                    found.append((s, lane))
    return found


def _size(at: Affine) -> int:
    """Elements that an address reaches."""
    return prod(v.size for v in at.variables)


def _packed(at: Affine, lane: LoopVar, start: int) -> Affine:
    """The same elements from ``start`` on, side by side along ``lane``."""
    found, step = Affine(start), 1
    for v in (lane, *(v for v in at.variables if v != lane)):
        found += Affine(0, ((v, step),))
        step *= v.size
    return found


def _copy(
    sources: Sequence[Operand],
    home: Operand,
    variables: tuple[LoopVar, ...],
    places: Sequence[tuple[Place, Affine]],
) -> Loops:
    """A nest that copies what lies at ``places`` to other addresses in ``home``."""
    read = sorted({buffer for (buffer, _), _ in places})
    operands = (*(sources[i] for i in read), home)
    buffers = tuple(Buffer(f"b{i}", o.dtype, o is home) for i, o in enumerate(operands))
    body: list[Statement] = []
    for n, ((buffer, at), to) in enumerate(places):
        body.append(Load(n, home.dtype, read.index(buffer), at))
        body.append(Store(len(read), to, n))
    *grid, lane = variables
    return Loops(
        Nest(buffers, tuple(grid), (Pass((), (lane,), tuple(body)),)), operands
    )


def _reading(
    nest: Nest, operands: Sequence[Operand], homes: dict[Place, Place]
) -> Loops:
    """``nest`` with its loads from where copies are, and without what it no longer
    reads."""

    def moved(s: Statement) -> Statement:
        if isinstance(s, Load) and (s.buffer, s.at) in homes:
            buffer, at = homes[s.buffer, s.at]
            return replace(s, buffer=buffer, at=at)
        return s

    written = {i for i, b in enumerate(nest.buffers) if b.written}
    nest = nest.changed(moved)
    used = sorted({s.buffer for s in nest.statements() if isinstance(s, _ACCESSES)})
    number = {old: new for new, old in enumerate(used)}

    def numbered(s: Statement) -> Statement:
        if isinstance(s, _ACCESSES):
            return replace(s, buffer=number[s.buffer])
        return s

    buffers = tuple(
        Buffer(f"b{new}", operands[old].dtype, old in written)
        for new, old in enumerate(used)
    )
    nest = replace(nest.changed(numbered), buffers=buffers)
    return Loops(nest, tuple(operands[i] for i in used))


_ACCESSES = (Load, Gather, Store, Within)
