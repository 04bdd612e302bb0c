"""The passes of a nest over its rows: reductions, and the loops that they run in.

The innermost loop runs in steps of several vectors, then of one, then of one element.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ...loop_ir import (
    ZERO,
    Accumulate,
    Gather,
    Load,
    LoopVar,
    Pass,
    Running,
    Statement,
    Store,
    operands,
)
from ..machine import COMMON, I64, least, splat
from .accumulators import any_nan
from .addresses import without
from .arg_extremes import Greatest, Steps, looked_up
from .counted_loops import end_of_steps, loop
from .nest_code import NestCode, Strand
from .prefetch import fetch_ahead
from .reductions import Groups, Reductions
from .running_sums import started
from .statements import Statements
from .vector_shape import CAREFUL, overlaps, split

Accumulators = dict[int, list[Any]]
"""Of each reduction, for each vector of each kind of step."""


class Passes:
    """Writes the passes of a nest for rows whose place is known."""

    def __init__(self, statements: Statements) -> None:
        self.statements = statements
        self.code, self.addresses = statements.code, statements.addresses
        self.reductions = Reductions(statements.code)
        self.strands: list[Strand] = []
        """Vectors of rows, where these lie side by side."""

    def write(self, block: ir.Value | None) -> None:
        """All passes over a row, or over a block of a long one."""
        code, self.statements.row = self.code, {}
        for p in code.nest.passes:
            code.bases, code.inner = {}, None
            for s in p.before:
                self.of_row(s)
            if p.body:
                self._pass(p, block)

    def of_row(self, s: Statement) -> None:
        """A statement outside of the loops of a pass."""
        statements = self.statements
        if self.code.nest.vertical:
            for strand in self.strands:
                statements.write(s, strand, strand.row, strand.row)
        else:
            statements.write(s, statements.single, statements.row, statements.row)

    def _pass(self, p: Pass, block: ir.Value | None) -> None:
        if not self.reductions.looks_twice(p):
            self._reduce(p, block)
            return
        self.reductions.skips_nan = True
        reducers = self._reduce(p, block)
        self.reductions.skips_nan = False
        looking = Greatest, Steps
        found = [r for one in reducers.values() for r in one if isinstance(r, looking)]
        b, row = self.code.b, self.statements.row
        quick = {t: row[t] for t in reducers}
        before = b.block
        self.code.bases = {}  # addresses of the loops that are done
        with b.if_then(any_nan(self.code, found), likely=False):
            self._reduce(p, block)
            after = b.block
        self.code.bases = {}
        for t, value in quick.items():
            either = b.phi(value.type)
            either.add_incoming(value, before)
            either.add_incoming(row[t], after)
            row[t] = either

    def _reduce(self, p: Pass, block: ir.Value | None) -> Accumulators:
        """Write the loops of a pass; the accumulators by what they reduce."""
        code, row = self.code, self.statements.row
        sums = [s for s in p.body if isinstance(s, Accumulate)]
        groups, is_block = self._groups(p), block is not None
        reducers = {
            s.target: self.reductions.begun(s, p, groups, is_block) for s in sums
        }
        for strand in self.strands if code.nest.vertical else [self.statements.single]:
            strand.carries = {
                s.target: started(code, s, strand.lanes)
                for s in p.body
                if isinstance(s, Running)
            }
        self._nested(p, list(p.loops), groups, reducers, block)
        for s in sums:
            if code.nest.vertical:
                for strand, r in zip(self.strands, reducers[s.target], strict=True):
                    strand.row[s.target] = r.finished(code)
            else:
                first, *rest = reducers[s.target]
                if isinstance(first, Steps):
                    memory, every = self.statements.memory, [first, *rest]
                    row[s.target] = looked_up(memory, p, s, every)
                    continue
                for r in rest:
                    first = first.joined(code, r)
                row[s.target] = first.to_scalar(code)
        return reducers

    # -- loops -------------------------------------------------------------------------

    def _groups(self, p: Pass) -> Groups:
        nest = self.code.nest
        if nest.vertical:
            return [(self.strands[0].lanes, len(self.strands))]
        lanes, unroll = self.code.shape.lanes, self.code.shape.unroll
        size = p.loops[-1].size
        if nest.ranged or (nest.chunk is not None and len(p.loops) == 1):
            many = one = single = 1
        else:
            many, one, single = split(size, lanes, unroll)
        groups = []
        if many:
            groups.append((lanes, unroll))
        if one and (unroll > 1 or not many):
            groups.append((lanes, 1))
        if single and lanes > 1 and not overlaps(nest, size, lanes):
            groups.append((1, 1))
        return groups

    def _nested(
        self,
        p: Pass,
        loops: list[LoopVar],
        groups: Groups,
        reducers: Accumulators,
        block: ir.Value | None,
    ) -> None:
        code, (var, *rest) = self.code, loops
        low, high = self.range(p, var, block)
        if rest:
            with loop(code.b, low, high, 1) as i:
                code.index[var] = i
                self._nested(p, rest, groups, reducers, block)
            return
        if code.nest.vertical:
            self._innermost(p, var, low, high, self.strands, reducers, 0, 1)
            return
        code.lane = var
        done = 0
        for lanes, unroll in groups:
            strands = [Strand(lanes, i * lanes) for i in range(unroll)]
            step = lanes * unroll
            whole = end_of_steps(code.b, low, high, step)
            self._innermost(p, var, low, whole, strands, reducers, done, step)
            low = whole
            done += unroll
        width = code.shape.lanes
        if block is None and overlaps(code.nest, var.size, width):
            last = I64(var.size - width)
            strands = [Strand(width, 0)]
            self._innermost(p, var, last, I64(var.size), strands, reducers, 0, width)
        code.lane = None

    def range(
        self, p: Pass, var: LoopVar, block: ir.Value | None
    ) -> tuple[ir.Value, ir.Value]:
        """From where to where a loop of a pass runs."""
        nest, chunk = self.code.nest, self.code.nest.chunk
        if block is not None:
            return part_of(self.code, block, COMMON.map_block, var.size)
        if nest.ranged:
            *_, low, high = self.code.given
            return low, high
        if chunk is not None and var == p.loops[0]:
            return self._turns(self.code.index[chunk], chunk.size, var.size)
        return I64(0), I64(var.size)

    def _turns(self, i: ir.Value, count: int, size: int) -> tuple[ir.Value, ir.Value]:
        """The turns that part ``i`` of so many has of a loop."""
        ends = self.code.nest.ends
        if not ends:
            return part_of(self.code, i, -(-size // count), size)
        b, end = self.code.b, size // ends
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
        reducers: Accumulators,
        first: int,
        step: int,
    ) -> None:
        """The innermost loop, cut into short ones where sums need care."""
        code, b, is_vertical = self.code, self.code.b, self.code.nest.vertical
        self.prepare(p, var, strands)
        groups = [g[first : first + len(strands)] for g in reducers.values()]
        careful = [g for g in groups if g[0].is_careful]
        if not careful:
            with loop(b, low, high, step) as i:
                self.step(p, var, i, strands, reducers, first)
            return
        turns = step * (CAREFUL if is_vertical else 2 * CAREFUL)
        with loop(b, low, high, turns) as outer:
            end = least(b, b.add(outer, I64(turns)), high)
            with loop(b, outer, end, step) as i:
                self.step(p, var, i, strands, reducers, first)
            for g in careful:
                if is_vertical:
                    for r in g:
                        r.carried(code, [])
                else:
                    g[0].carried(code, g[1:])

    # -- what a loop repeats -----------------------------------------------------------

    def prepare(self, p: Pass, var: LoopVar, strands: list[Strand]) -> None:
        """What the innermost loop needs and does not change: addresses, splats."""
        code, row = self.code, self.statements.row
        code.inner = var
        for s in p.body:
            if isinstance(s, (Load, Store)):
                self.addresses.base(s.buffer, without(s.at, var, code.lane))
        if code.nest.vertical:
            return
        used = {i for s in p.body if not isinstance(s, Gather) for i in operands(s)}
        lanes = strands[0].lanes
        in_lanes = {i: splat(code.b, v, lanes) for i, v in row.items() if i in used}
        for strand in strands:
            strand.row = in_lanes

    def step(
        self,
        p: Pass,
        var: LoopVar,
        start: ir.Value,
        strands: list[Strand],
        reducers: Accumulators,
        first: int,
        turns: int = 1,
    ) -> None:
        """Some turns of the innermost loop, one after the other."""
        code = self.code
        seen: dict[int, list[list[ir.Value]]] = {t: [] for t in reducers}
        for turn in range(turns):
            code.index[var] = code.b.add(start, I64(turn)) if turn else start
            fetch_ahead(self.addresses, p, var, strands)
            for found in seen.values():
                found.append([])
            for n, strand in enumerate(strands):
                self._body(p, strand, reducers, first + n, seen)
        for target, rows in seen.items():
            group = reducers[target][first : first + len(strands)]
            if group and group[0].notes_nan:
                self.reductions.note_nan(group, rows)
            if group and isinstance(group[0], Steps):
                group[0].close(code, code.index[var])

    def _body(
        self,
        p: Pass,
        strand: Strand,
        reducers: Accumulators,
        which: int,
        seen: dict[int, list[list[ir.Value]]],
    ) -> None:
        """The statements of a body for one strand; ``seen`` gets what is reduced."""
        strand.values, positions = {}, self.code.positions
        for s in p.body:
            if isinstance(s, Accumulate):
                value = strand.values.get(s.value)
                value = strand.row[s.value] if value is None else value
                value = splat(self.code.b, value, strand.lanes)
                at = self.addresses.at(positions.get(s.position, ZERO))
                reducers[s.target][which].add(self.code, value, at)
                seen[s.target][-1].append(value)
            else:
                self.statements.write(s, strand, strand.values, strand.row)


def part_of(
    code: NestCode, i: ir.Value, size: int, end: int
) -> tuple[ir.Value, ir.Value]:
    """Part ``i`` of what is cut into parts of ``size``, up to ``end``."""
    b = code.b
    low = b.mul(i, I64(size))
    high = b.add(low, I64(size))
    if end % size == 0 and code.nest.chunk is None:
        return low, high
    return least(b, low, end), least(b, high, end)
