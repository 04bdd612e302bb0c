"""The passes of a nest over its rows: reductions, and the loops that they run in.

The innermost loop runs in steps of several vectors, then of one, then of one element.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import prod
from typing import Any

from llvmlite import ir

from ...loop_ir import (
    ZERO,
    Accumulate,
    Affine,
    Compute,
    Const,
    Gather,
    Load,
    LoopVar,
    Nest,
    Pass,
    Position,
    Running,
    Statement,
    Store,
    operands,
)
from ..machine import I64, Host, least, splat
from .access import Strand, loop, without
from .accumulators import Reducer, any_nan, reducer
from .arg_extremes import Extreme, Greatest, Positions, Steps, finds_steps, looked_up
from .prefetch import fetch_ahead
from .running_sums import started
from .statements import Statements
from .vector_shape import BLOCK, CAREFUL, overlaps, split


class Passes(Statements):
    """Writes the passes of a nest for rows whose place is known."""

    def __init__(self, function: ir.Function, nest: Nest, host: Host) -> None:
        super().__init__(function, nest, host)
        self.skips_nan = False
        """Whether positions are looked for among numbers only."""
        self.strands: list[Strand] = []
        """Vectors of rows, where these lie side by side."""
        self.wanted: list[ir.Value] = []
        """The first element of a ranged row, and the end of those."""

    def _reducer(self, s: Accumulate) -> Reducer:
        return reducer(s.op, self.dtypes[s.value])

    def _passes(self, block: ir.Value | None) -> None:
        self.row = {}
        for p in self.nest.passes:
            self.bases, self.inner = {}, None
            for s in p.before:
                self._of_row(s)
            if p.body:
                self._pass(p, block)

    def _of_row(self, s: Statement) -> None:
        if self.nest.vertical:
            for strand in self.strands:
                self._statement(s, strand, strand.row, strand.row)
        else:
            self._statement(s, self.single, self.row, self.row)

    def _pass(self, p: Pass, block: ir.Value | None) -> None:
        if not self._looks_twice(p):
            self._reduce(p, block)
            return
        self.skips_nan = True
        reducers = self._reduce(p, block)
        self.skips_nan = False
        looking = Greatest, Steps
        found = [r for one in reducers.values() for r in one if isinstance(r, looking)]
        quick = {t: self.row[t] for t in reducers}
        before = self.b.block
        with self.b.if_then(any_nan(self, found), likely=False):
            self._reduce(p, block)
            after = self.b.block
        for t, value in quick.items():
            either = self.b.phi(value.type)
            either.add_incoming(value, before)
            either.add_incoming(self.row[t], after)
            self.row[t] = either

    def _looks_twice(self, p: Pass) -> bool:
        """Whether positions are looked for among numbers first, and again in rows with
        NaN."""
        if self.nest.vertical:
            return False
        places = [s for s in p.body if isinstance(s, Accumulate) and s.position >= 0]
        plain = all(
            isinstance(s, (Accumulate, Compute, Const, Load, Position)) for s in p.body
        )
        return (
            bool(places)
            and plain
            and all(
                self._reducer(s).dtype.kind == "f"
                and is_rising(self.positions[s.position], p.loops)
                for s in places
            )
        )

    def _reduce(self, p: Pass, block: ir.Value | None) -> dict[int, list[Any]]:
        """Write the loops of a pass; the accumulators by what they reduce."""
        sums = [s for s in p.body if isinstance(s, Accumulate)]
        groups = self._groups(p)
        reducers = {s.target: self._accumulators(s, p, groups, block) for s in sums}
        for strand in self.strands if self.nest.vertical else [self.single]:
            strand.carries = {
                s.target: started(self, s, strand.lanes)
                for s in p.body
                if isinstance(s, Running)
            }
        self._nested(p, list(p.loops), groups, reducers, block)
        for s in sums:
            if self.nest.vertical:
                for strand, r in zip(self.strands, reducers[s.target], strict=True):
                    strand.row[s.target] = r.finished(self)
            else:
                first, *rest = reducers[s.target]
                if isinstance(first, Steps):
                    self.row[s.target] = looked_up(self, p, s, [first, *rest])
                    continue
                for r in rest:
                    first = first.joined(self, r)
                self.row[s.target] = first.to_scalar(self)
        return reducers

    def _accumulators(
        self,
        s: Accumulate,
        p: Pass,
        groups: Sequence[tuple[int, int]],
        block: ir.Value | None,
    ) -> list[Any]:
        """One for each vector of each kind of step; they may be the same."""
        nest, shape, of = self.nest, self.shape, self._reducer(s)
        parted = nest.vertical or nest.ranged or block is not None or nest.chunk
        numbers = self.skips_nan or of.dtype.kind in "iu"
        if s.position >= 0 and numbers and not parted:
            if finds_steps(p, s, shape.lanes, shape.unroll):
                return [
                    r
                    for lanes, unroll in groups
                    for r in [Steps(of, self, lanes)] * unroll
                ]
        return [
            self._started(s, p, lanes, i * lanes)
            for lanes, unroll in groups
            for i in range(unroll)
        ]

    def _started(self, s: Accumulate, p: Pass, lanes: int, offset: int) -> Any:
        """An accumulator for the strand whose lanes start at ``offset``."""
        found = self._reducer(s)
        if s.position < 0:
            return found.started(self, lanes, self._is_long(p))
        at = self.positions[s.position]
        last = at.offset + sum(c * (v.size - 1) for v, c in at.terms)
        bits = 32 if found.dtype.itemsize <= 4 and last < 1 << 31 else 64
        step = at.coefficient(p.loops[-1]) if not self.nest.vertical else 0
        steps = tuple((offset + i) * step for i in range(lanes))
        has_masks = self.host.vector_bits == 512
        where = Positions(bits, steps, is_rising(at, p.loops), has_masks)
        kind = Greatest if self.skips_nan else Extreme
        return kind(found, self, lanes, where)

    def _is_long(self, p: Pass) -> bool:
        """Whether sums need care: many additions one after the other."""
        turns = prod(v.size for v in p.loops)
        if not self.nest.vertical:
            turns //= self.shape.lanes * self.shape.unroll
        return turns > CAREFUL

    def _groups(self, p: Pass) -> list[tuple[int, int]]:
        """Lanes and vectors of each kind of step of the innermost loop."""
        if self.nest.vertical:
            return [(self.strands[0].lanes, len(self.strands))]
        lanes, unroll = self.shape.lanes, self.shape.unroll
        size = p.loops[-1].size
        if self.nest.ranged or (self.nest.chunk is not None and len(p.loops) == 1):
            many = one = single = 1
        else:
            many, one, single = split(size, lanes, unroll)
        groups = []
        if many:
            groups.append((lanes, unroll))
        if one and (unroll > 1 or not many):
            groups.append((lanes, 1))
        if single and lanes > 1 and not overlaps(self.nest, size, lanes):
            groups.append((1, 1))
        return groups

    def _nested(
        self,
        p: Pass,
        loops: list[LoopVar],
        groups: list[tuple[int, int]],
        reducers: dict[int, list[Any]],
        block: ir.Value | None,
    ) -> None:
        var, *rest = loops
        low, high = self._range(p, var, block)
        if rest:
            with loop(self.b, low, high, 1) as i:
                self.index[var] = i
                self._nested(p, rest, groups, reducers, block)
            return
        if self.nest.vertical:
            self._innermost(p, var, low, high, self.strands, reducers, 0, 1)
            return
        self.lane = var
        done = 0
        for lanes, unroll in groups:
            strands = [Strand(lanes, i * lanes) for i in range(unroll)]
            step = lanes * unroll
            whole = self._whole(low, high, step)
            self._innermost(p, var, low, whole, strands, reducers, done, step)
            low = whole
            done += unroll
        width = self.shape.lanes
        if block is None and overlaps(self.nest, var.size, width):
            last = I64(var.size - width)
            strands = [Strand(width, 0)]
            self._innermost(p, var, last, I64(var.size), strands, reducers, 0, width)
        self.lane = None

    def _range(
        self, p: Pass, var: LoopVar, block: ir.Value | None
    ) -> tuple[ir.Value, ir.Value]:
        chunk = self.nest.chunk
        if block is not None:
            return self._part(block, BLOCK, var.size)
        if self.nest.ranged:
            low, high = self.wanted
            return low, high
        if chunk is not None and var == p.loops[0]:
            return self._turns(self.index[chunk], chunk.size, var.size)
        return I64(0), I64(var.size)

    def _turns(self, i: ir.Value, count: int, size: int) -> tuple[ir.Value, ir.Value]:
        """The turns that part ``i`` of so many has of a loop."""
        if not self.nest.ends:
            return self._part(i, -(-size // count), size)
        b, end = self.b, size // self.nest.ends
        first = b.icmp_signed("==", i, I64(0))
        last = b.icmp_signed("==", i, I64(count - 1))
        low = b.select(last, I64(size - end), b.select(first, I64(0), I64(end)))
        high = b.select(last, I64(size), b.select(first, I64(end), I64(size - end)))
        return low, high

    def _innermost(
        self,
        p: Pass,
        var: LoopVar,
        low: ir.Value,
        high: ir.Value,
        strands: list[Strand],
        reducers: dict[int, list[Any]],
        first: int,
        step: int,
    ) -> None:
        """The innermost loop, cut into short ones where sums need care."""
        self.inner = var
        self._prepare(p, var, strands)
        groups = [g[first : first + len(strands)] for g in reducers.values()]
        careful = [g for g in groups if g[0].is_careful]
        if not careful:
            with loop(self.b, low, high, step) as i:
                self._step(p, var, i, strands, reducers, first)
            return
        turns = step * (CAREFUL if self.nest.vertical else 2 * CAREFUL)
        with loop(self.b, low, high, turns) as outer:
            end = least(self.b, self.b.add(outer, I64(turns)), high)
            with loop(self.b, outer, end, step) as i:
                self._step(p, var, i, strands, reducers, first)
            for g in careful:
                if self.nest.vertical:
                    for r in g:
                        r.carried(self, [])
                else:
                    g[0].carried(self, g[1:])

    def _prepare(self, p: Pass, var: LoopVar, strands: list[Strand]) -> None:
        """What the innermost loop needs and does not change: addresses, splats."""
        for s in p.body:
            if isinstance(s, (Load, Store)):
                self._base(s.buffer, without(s.at, var, self.lane))
        if self.nest.vertical:
            return
        lanes = strands[0].lanes
        known = {i: splat(self.b, v, lanes) for i, v in self._read(p).items()}
        for strand in strands:
            strand.row = known

    def _read(self, p: Pass) -> dict[int, ir.Value]:
        """Values of the row that the body reads."""
        used = {i for s in p.body if not isinstance(s, Gather) for i in operands(s)}
        return {i: v for i, v in self.row.items() if i in used}

    def _step(
        self,
        p: Pass,
        var: LoopVar,
        start: ir.Value,
        strands: list[Strand],
        reducers: dict[int, list[Any]],
        first: int,
        turns: int = 1,
    ) -> None:
        """Some turns of the innermost loop, one after the other."""
        seen: dict[int, list[list[ir.Value]]] = {t: [] for t in reducers}
        for turn in range(turns):
            self.index[var] = self.b.add(start, I64(turn)) if turn else start
            fetch_ahead(self, p, var, strands)
            for found in seen.values():
                found.append([])
            for n, strand in enumerate(strands):
                self._body(p, strand, reducers, first + n, seen)
        for target, rows in seen.items():
            group = reducers[target][first : first + len(strands)]
            if group and group[0].notes_nan:
                self._note_nan(group, rows)
            if group and isinstance(group[0], Steps):
                group[0].close(self, self.index[var])

    def _body(
        self,
        p: Pass,
        strand: Strand,
        reducers: dict[int, list[Any]],
        which: int,
        seen: dict[int, list[list[ir.Value]]],
    ) -> None:
        """The statements of a body for one strand; ``seen`` gets what is reduced."""
        strand.values = {}
        for s in p.body:
            if isinstance(s, Accumulate):
                value = self._known(s.value, strand)
                at = self._sum(self.positions.get(s.position, ZERO))
                reducers[s.target][which].add(self, value, at)
                seen[s.target][-1].append(value)
            else:
                self._statement(s, strand, strand.values, strand.row)

    def _note_nan(self, group: list[Any], rows: list[list[ir.Value]]) -> None:
        """Note NaN in the values of a step, two values of one row at a time."""
        if self.nest.vertical:
            columns = [list(column) for column in zip(*rows, strict=True)]
        else:
            (line,) = rows
            columns = [line[i : i + 2] for i in range(0, len(line), 2)]
        for r, values in zip(group, columns, strict=False):
            for x, y in zip_longest(values[::2], values[1::2], fillvalue=values[-1]):
                r.note(self, x, y)

    def _known(self, i: int, strand: Strand) -> ir.Value:
        found = strand.values.get(i)
        if found is None:
            found = strand.row[i]
        return splat(self.b, found, strand.lanes)


def is_rising(at: Affine, loops: Sequence[LoopVar]) -> bool:
    """Whether an index only grows while ``loops`` run."""
    least = 1
    for v in reversed(loops):
        if at.coefficient(v) < least:
            return False
        least = at.coefficient(v) * v.size
    return True
