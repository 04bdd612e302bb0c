"""Nests as LLVM functions ``void f(ptr b0, …, ptr keep, i64 start, i64 stop)``.

A call runs the *units* from ``start`` to ``stop``: rows of the grid, blocks of rows
that lie side by side, or blocks of one long loop. The innermost loop runs in steps of
several vectors, then of one, then of one element.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import zip_longest
from math import prod
from typing import Any

from llvmlite import ir

from ..kernels.affine import ZERO, Affine, Var
from ..kernels.language import (
    Accumulate,
    Compute,
    Const,
    Gather,
    Load,
    Nest,
    Pass,
    Position,
    Running,
    Statement,
    Store,
    operands,
)
from .access import PTR, Strand, loop, without
from .ahead import ask_for_rows, fetch_ahead, picked_rows
from .convert import I64, least, splat
from .extremes import Extreme, Greatest, Positions
from .machine import Host
from .math.values import VOID
from .reductions import Reducer, any_nan, reducer
from .running import started
from .shape import (
    BLOCK,
    CAREFUL,
    Stretch,
    blocks,
    overlaps,
    rows_of,
    split,
    stretch,
)
from .statements import Statements


class Emitter(Statements):
    """Writes the function of a nest."""

    def __init__(self, module: ir.Module, nest: Nest, name: str, host: Host) -> None:
        params = [PTR] * (len(nest.buffers) + 1) + [I64, I64] * (1 + nest.ranged)
        function = ir.Function(module, ir.FunctionType(VOID, params), name)
        super().__init__(function, nest, host)
        self.keep, self.start, self.stop, *self.wanted = self.given
        for i, p in enumerate(self.buffers):
            if i not in nest.aliased:
                p.add_attribute("noalias")
        self.keep.add_attribute("noalias")
        self.skips_nan = False
        """Whether positions are looked for among numbers only."""
        self.strands: list[Strand] = []
        if (ahead := stretch(nest, host)) is not None:
            self._on_and_on(ahead)
        else:
            with loop(self.b, self.start, self.stop, 1) as unit:
                self.unit(unit)
        if nest.streamed and not host.is_arm:
            self._fence()
        self.checks.note(self.buffers)
        self.b.ret_void()

    # -- loops -------------------------------------------------------------------------

    def unit(self, unit: ir.Value) -> None:
        """One unit of the work."""
        if self.nest.vertical:
            self._side_by_side(unit)
            return
        count = blocks(self.nest)
        block = None
        if count > 1:
            unit, block = self._divided(unit, count)
        if self.nest.ordered:
            self._in_order(unit)
            return
        picked = picked_rows(self)
        if picked and block is None:
            self._ask_for_next(unit, picked)
        self._place(unit, self.nest.grid)
        self._passes(block)

    def _in_order(self, unit: ir.Value) -> None:
        """All points of the ordered variables, one after the other."""
        ordered = self.nest.ordered
        self._place(unit, self.nest.grid[: -len(ordered)])
        with ExitStack() as stack:
            for v in ordered:
                turns = loop(self.b, I64(0), I64(v.size), 1)
                self.index[v] = stack.enter_context(turns)
            self._passes(None)

    def _ask_for_next(self, unit: ir.Value, picked: Sequence[Gather]) -> None:
        """Ask for what the row after ``unit`` picks."""
        b, (p, *_) = self.b, self.nest.passes
        last = b.sub(self.stop, I64(1))
        self._place(least(b, b.add(unit, I64(1)), last), self.nest.grid)
        self.row = {}
        for s in p.before:
            self._of_row(s)
        ask_for_rows(self, picked, self.row, p.loops[0])

    def _place(self, unit: ir.Value, grid: Sequence[Var]) -> None:
        """The grid variables of row number ``unit``."""
        for v in reversed(grid[1:]):
            unit, self.index[v] = self._divided(unit, v.size)
        if grid:
            self.index[grid[0]] = unit

    def _on_and_on(self, ahead: Stretch) -> None:
        """Rows that are shorter than a vector, as many at a time as fill vectors."""
        outer = self.nest.grid[: -len(ahead.inner)]
        count, b = ahead.across.size, self.b
        rows = rows_of(ahead.size, self.shape.lanes)
        first, start = self._divided(self.start, count)
        last = b.udiv(b.add(self.stop, I64(count - 1)), I64(count))
        with loop(b, first, last, 1) as i:
            self._place(i, outer)
            begun = b.mul(i, I64(count))
            low = b.select(b.icmp_signed("==", i, first), start, I64(0))
            high = least(b, b.sub(self.stop, begun), count)
            whole = self._whole(low, high, rows)
            with loop(b, low, whole, rows) as row:
                self.index[ahead.across] = row
                self._run_on(ahead, rows)
            with loop(b, whole, high, 1) as row, ExitStack() as stack:
                self.index[ahead.across] = row
                for v in ahead.inner[:-1]:
                    turns = loop(b, I64(0), I64(v.size), 1)
                    self.index[v] = stack.enter_context(turns)
                self._passes(None)

    def _run_on(self, ahead: Stretch, rows: int) -> None:
        """Some rows from end to end."""
        (p,) = self.nest.passes
        width = self.shape.lanes
        self.ahead, self.lane = ahead.variables, p.loops[0]
        for v in ahead.inner:
            self.index[v] = I64(0)
        self.bases, self.inner = {}, None
        for start in range(0, rows * ahead.size, width):
            cells = tuple(ahead.cell(start + i) for i in range(width))
            strand = Strand(width, 0, cells)
            for s in (*p.before, *p.body):
                self._statement(s, strand, strand.values, strand.values)
        self.ahead, self.lane = (), None

    def _side_by_side(self, unit: ir.Value) -> None:
        """Units of rows that lie side by side: blocks of several vectors of them, then
        vectors, then single rows."""
        *outer, lane = self.nest.grid
        lanes, unroll = self.shape.lanes, self.shape.unroll
        counts = split(lane.size, lanes, unroll)
        unit, part = self._divided(unit, sum(counts))
        self._place(unit, outer)
        b, first, at = self.b, 0, 0
        self.lane = lane
        for count, width, strands in zip(
            counts, (lanes, lanes, 1), (unroll, 1, 1), strict=True
        ):
            if count:
                inside = b.and_(
                    b.icmp_signed(">=", part, I64(first)),
                    b.icmp_signed("<", part, I64(first + count)),
                )
                with b.if_then(inside):
                    step = b.mul(b.sub(part, I64(first)), I64(width * strands))
                    self.index[lane] = b.add(step, I64(at))
                    self.strands = [Strand(width, i * width) for i in range(strands)]
                    self._passes(None)
            first += count
            at += count * width * strands

    def _reducer(self, s: Accumulate) -> Reducer:
        return reducer(s.op, self.dtypes[s.value])

    # -- passes ------------------------------------------------------------------------

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
        found = [r for one in reducers.values() for r in one if isinstance(r, Greatest)]
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
        reducers = {
            s.target: [
                self._started(s, p, lanes, i * lanes)
                for lanes, unroll in groups
                for i in range(unroll)
            ]
            for s in sums
        }
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
                for r in rest:
                    first = first.joined(self, r)
                self.row[s.target] = first.to_scalar(self)
        return reducers

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
        loops: list[Var],
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
        self, p: Pass, var: Var, block: ir.Value | None
    ) -> tuple[ir.Value, ir.Value]:
        chunk = self.nest.chunk
        if block is not None:
            return self._part(block, BLOCK, var.size)
        if self.nest.ranged:
            low, high = self.wanted
            return low, high
        if chunk is not None and var == p.loops[0]:
            return self._part(self.index[chunk], -(-var.size // chunk.size), var.size)
        return I64(0), I64(var.size)

    def _innermost(
        self,
        p: Pass,
        var: Var,
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

    def _prepare(self, p: Pass, var: Var, strands: list[Strand]) -> None:
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
        var: Var,
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


def is_rising(at: Affine, loops: Sequence[Var]) -> bool:
    """Whether an index only grows while ``loops`` run."""
    least = 1
    for v in reversed(loops):
        if at.coefficient(v) < least:
            return False
        least = at.coefficient(v) * v.size
    return True
