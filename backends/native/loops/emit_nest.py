"""Nests as LLVM functions ``void f(ptr b0, …, ptr keep, i64 start, i64 stop)``.

A call runs the *units* from ``start`` to ``stop``: rows of the grid, blocks of rows
that lie side by side, or blocks of one long loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from llvmlite import ir

from ...loop_ir import Gather, LoopVar, Nest
from ..machine import I64, Host, least
from ..math import VOID
from .access import PTR, Strand, loop
from .passes import Passes
from .prefetch import ask_for_rows, picked_rows
from .vector_shape import VectorRun, blocks, rows_of, split, stretch


class Emitter(Passes):
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

    def _place(self, unit: ir.Value, grid: Sequence[LoopVar]) -> None:
        """The grid variables of row number ``unit``."""
        for v in reversed(grid[1:]):
            unit, self.index[v] = self._divided(unit, v.size)
        if grid:
            self.index[grid[0]] = unit

    def _on_and_on(self, ahead: VectorRun) -> None:
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

    def _run_on(self, ahead: VectorRun, rows: int) -> None:
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
