"""Rows that lie side by side in memory, reduced in panels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from llvmlite import ir

from ...loop_ir import (
    Accumulate,
    LoopVar,
    Pass,
    Statement,
)
from ..machine import COMMON, I8, I64, aligned, least, memory_type
from .accumulators import reducer
from .counted_loops import divided, end_of_steps, loop
from .nest_code import Strand
from .passes import Passes, part_of
from .vector_memory import VectorMemory
from .vector_shape import at_once, panel_of, sums


class RowPanels:
    """Writes the units of a nest whose rows are reduced in panels."""

    def __init__(self, passes: Passes) -> None:
        self.passes, self.code = passes, passes.code
        self.reducer = passes.reductions.reducer
        self.sums = sums(passes.code.nest)

    def write(self, unit: ir.Value) -> None:
        """Reduce a panel of rows that lie side by side, some elements of all of them at
        a time."""
        code, nest = self.code, self.code.nest
        *outer, lane = nest.grid
        panel = panel_of(nest)
        unit, part = divided(code.b, unit, -(-lane.size // panel))
        code.place(unit, outer)
        code.lane = lane
        low, high = part_of(code, part, panel, lane.size)
        groups = self._steps(lane.size, panel)
        at = next(i for i, p in enumerate(nest.passes) if p.body)
        before = [s for p in nest.passes[: at + 1] for s in p.before]
        after = [s for p in nest.passes[at + 1 :] for s in p.before]
        states = PanelStates(self.passes.statements.memory, low)
        for strands in self._side(groups, low, high):
            for s in self.sums:
                for strand in strands:
                    neutral = self.reducer(s).neutral_state(strand.lanes)
                    states.write(s, strand, neutral)
        self._blocks_of_rows(nest.passes[at], before, groups, states, high)
        for strands in self._side(groups, low, high):
            for strand in strands:
                self._run_row(before, strand)
                for s in self.sums:
                    state = states.read(s, strand)
                    strand.row[s.target] = self.reducer(s).result(code.b, state)
                self._run_row(after, strand)

    def _steps(self, rows: int, panel: int) -> list[tuple[int, int]]:
        """Lanes and vectors of each kind of step over a panel: what fits whole panels
        and the last one, which may be shorter."""
        lanes, unroll = self.code.shape.lanes, self.code.shape.unroll
        quarter = max(lanes // 4, 1)
        sizes = {min(rows, panel), rows % panel or panel}
        found = []
        for width, vectors in dict.fromkeys(
            ((lanes, unroll), (lanes, 1), (quarter, 1), (1, 1))
        ):
            step = width * vectors
            if any(size >= step for size in sizes):
                found.append((width, vectors))
            sizes = {size % step for size in sizes}
        return found

    def _run_row(self, statements: Sequence[Statement], strand: Strand) -> None:
        for s in statements:
            self.passes.statements.write(s, strand, strand.row, strand.row)

    def _side(
        self, groups: list[tuple[int, int]], low: ir.Value, high: ir.Value
    ) -> Iterator[list[Strand]]:
        """Loops over the rows of a panel; the strands of each step."""
        code = self.code
        assert code.lane is not None
        for lanes, unroll in groups:
            step = lanes * unroll
            whole = end_of_steps(code.b, low, high, step)
            with loop(code.b, low, whole, step) as i:
                code.index[code.lane] = i
                code.bases = {}
                yield [Strand(lanes, n * lanes) for n in range(unroll)]
            low = whole

    def _blocks_of_rows(
        self,
        p: Pass,
        before: Sequence[Statement],
        groups: list[tuple[int, int]],
        states: PanelStates,
        high: ir.Value,
    ) -> None:
        code, b, low, (*outer, var) = self.code, self.code.b, states.first, p.loops
        with ExitStack() as stack:
            for v in outer:
                turns = loop(b, I64(0), I64(v.size), 1)
                code.index[v] = stack.enter_context(turns)
            start, stop = self.passes.range(p, var, None)
            many = stack.enter_context(loop(b, start, stop, COMMON.panel_part))
            last = least(b, b.add(many, I64(COMMON.panel_part)), stop)
            few = at_once(code.nest, code.host)
            with loop(b, many, last, few) as first:
                end = least(b, b.add(first, I64(few)), last)
                for strands in self._side(groups, low, high):
                    for strand in strands:
                        self._run_row(before, strand)
                    self._block(p, var, strands, (first, end), states)
            careful = [s for s in self.sums if self.reducer(s).is_careful]
            if careful:
                for strands in self._side(groups, low, high):
                    for strand in strands:
                        for s in careful:
                            state = states.read(s, strand)
                            new = self.reducer(s).carried(b, state)
                            states.write(s, strand, new)

    def _block(
        self,
        p: Pass,
        var: LoopVar,
        strands: list[Strand],
        span: tuple[ir.Value, ir.Value],
        states: PanelStates,
    ) -> None:
        """Some elements of a few rows, added to what is known of these rows."""
        code, b = self.code, self.code.b
        parts = {
            s.target: [self.reducer(s).started(code, x.lanes, False) for x in strands]
            for s in self.sums
        }
        self.passes.prepare(p, var, strands)
        low, high = span
        for turns in dict.fromkeys((at_once(code.nest, code.host), 1)):
            whole = end_of_steps(b, low, high, turns)
            with loop(b, low, whole, turns) as i:
                self.passes.step(p, var, i, strands, parts, 0, turns)
            low = whole
        for s in self.sums:
            r = self.reducer(s)
            for strand, part in zip(strands, parts[s.target], strict=True):
                place = states.places(s, strand)[0]
                old = states.memory.read(place, r.dtype, strand.lanes)
                new = r.merged(b, old, part.finished(code))
                states.memory.write(place, new, r.dtype)


class PanelStates:
    """What is known so far of the rows of a panel, in memory of the thread; ``first``
    is the first of the rows."""

    def __init__(self, memory: VectorMemory, first: ir.Value) -> None:
        self.memory, self.code, self.first = memory, memory.code, first

    def places(self, s: Accumulate, strand: Strand) -> list[ir.Value]:
        """Where the state of a reduction lies, for the rows of a strand."""
        code, b = self.code, self.code.b
        assert code.lane is not None
        byte, places = 0, []
        for other in sums(code.nest):
            of = code.dtypes[other.value]
            for _ in range(reducer(other, of, code.host).parts):
                if other is s:
                    places.append(byte)
                byte += aligned(other.dtype.itemsize * panel_of(code.nest))
        row = b.add(b.sub(code.index[code.lane], self.first), I64(strand.offset))
        kind = memory_type(code.dtypes[s.value])
        starts = [b.gep(code.given[0], [I64(n)], source_etype=I8) for n in places]
        return [b.gep(start, [row], source_etype=kind) for start in starts]

    def read(self, s: Accumulate, strand: Strand) -> list[ir.Value]:
        """The state of a reduction."""
        dtype, places = self.code.dtypes[s.value], self.places(s, strand)
        return [self.memory.read(p, dtype, strand.lanes) for p in places]

    def write(self, s: Accumulate, strand: Strand, state: list[ir.Value]) -> None:
        """Keep the state of a reduction."""
        for p, value in zip(self.places(s, strand), state, strict=True):
            self.memory.write(p, value, self.code.dtypes[s.value])
