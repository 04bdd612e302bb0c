"""Rows that lie side by side in memory, reduced in panels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from llvmlite import ir

from ...loop_ir import Accumulate, LoopVar, Nest, Pass, Statement
from ..machine import I64, Host, aligned, least, memory_type
from .access import Strand, loop
from .emit_nest import Emitter
from .vector_shape import PART, at_once, check, is_wide, panel_of, sums


class PanelEmitter(Emitter):
    """Writes the function of a nest whose rows are reduced in panels."""

    def unit(self, unit: ir.Value) -> None:
        """Reduce a panel of rows that lie side by side, some elements of all of them at
        a time."""
        *outer, lane = self.nest.grid
        panel = panel_of(self.nest)
        unit, part = self._divided(unit, -(-lane.size // panel))
        self._place(unit, outer)
        self.lane = lane
        low, high = self._part(part, panel, lane.size)
        groups = self._steps(lane.size, panel)
        at = next(i for i, p in enumerate(self.nest.passes) if p.body)
        before = [s for p in self.nest.passes[: at + 1] for s in p.before]
        after = [s for p in self.nest.passes[at + 1 :] for s in p.before]
        for strands in self._side(groups, low, high):
            for s in sums(self.nest):
                r = self._reducer(s)
                for strand in strands:
                    self._keep_state(s, strand, low, r.neutral_state(strand.lanes))
        self._blocks_of_rows(self.nest.passes[at], before, groups, low, high)
        for strands in self._side(groups, low, high):
            for strand in strands:
                self._run_row(before, strand)
                for s in sums(self.nest):
                    r = self._reducer(s)
                    state = self._state(s, strand, low)
                    strand.row[s.target] = r.result(self.b, state)
                self._run_row(after, strand)

    def _steps(self, rows: int, panel: int) -> list[tuple[int, int]]:
        """Lanes and vectors of each kind of step over a panel: what fits whole panels
        and the last one, which may be shorter."""
        lanes, unroll = self.shape.lanes, self.shape.unroll
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
            self._statement(s, strand, strand.row, strand.row)

    def _side(
        self, groups: list[tuple[int, int]], low: ir.Value, high: ir.Value
    ) -> Iterator[list[Strand]]:
        """Loops over the rows of a panel; the strands of each step."""
        assert self.lane is not None
        for lanes, unroll in groups:
            step = lanes * unroll
            whole = self._whole(low, high, step)
            with loop(self.b, low, whole, step) as i:
                self.index[self.lane] = i
                self.bases = {}
                yield [Strand(lanes, n * lanes) for n in range(unroll)]
            low = whole

    def _blocks_of_rows(
        self,
        p: Pass,
        before: Sequence[Statement],
        groups: list[tuple[int, int]],
        low: ir.Value,
        high: ir.Value,
    ) -> None:
        *outer, var = p.loops
        with ExitStack() as stack:
            for v in outer:
                turns = loop(self.b, I64(0), I64(v.size), 1)
                self.index[v] = stack.enter_context(turns)
            start, stop = self._range(p, var, None)
            many = stack.enter_context(loop(self.b, start, stop, PART))
            last = least(self.b, self.b.add(many, I64(PART)), stop)
            few = at_once(self.nest, self.host)
            with loop(self.b, many, last, few) as first:
                end = least(self.b, self.b.add(first, I64(few)), last)
                for strands in self._side(groups, low, high):
                    for strand in strands:
                        self._run_row(before, strand)
                    self._block(p, var, strands, (first, end), low)
            careful = [s for s in sums(self.nest) if self._reducer(s).is_careful]
            if careful:
                for strands in self._side(groups, low, high):
                    for strand in strands:
                        for s in careful:
                            state = self._state(s, strand, low)
                            new = self._reducer(s).carried(self.b, state)
                            self._keep_state(s, strand, low, new)

    def _block(
        self,
        p: Pass,
        var: LoopVar,
        strands: list[Strand],
        span: tuple[ir.Value, ir.Value],
        low: ir.Value,
    ) -> None:
        """Some elements of a few rows, added to what is known of these rows."""
        reduced = sums(self.nest)
        parts = {
            s.target: [self._reducer(s).started(self, x.lanes, False) for x in strands]
            for s in reduced
        }
        self.inner = var
        self._prepare(p, var, strands)
        low_row, high_row = span
        for turns in dict.fromkeys((at_once(self.nest, self.host), 1)):
            whole = self._whole(low_row, high_row, turns)
            with loop(self.b, low_row, whole, turns) as i:
                self._step(p, var, i, strands, parts, 0, turns)
            low_row = whole
        for s in reduced:
            r = self._reducer(s)
            for strand, part in zip(strands, parts[s.target], strict=True):
                place = self._state_places(s, strand, low)[0]
                old = self._read_at(place, r.dtype, strand.lanes)
                new = r.merged(self.b, old, part.finished(self))
                self._write(place, new, r.dtype)

    def _state_places(
        self, s: Accumulate, strand: Strand, low: ir.Value
    ) -> list[ir.Value]:
        """Where the state of a reduction lies, for the rows of a strand."""
        assert self.lane is not None
        byte, places = 0, []
        for other in sums(self.nest):
            r = self._reducer(other)
            for _ in range(r.parts):
                if other is s:
                    places.append(byte)
                byte += aligned(other.dtype.itemsize * panel_of(self.nest))
        row = self.b.add(self.b.sub(self.index[self.lane], low), I64(strand.offset))
        kind = memory_type(self.dtypes[s.value])
        starts = [
            self.b.gep(self.keep, [I64(n)], source_etype=ir.IntType(8)) for n in places
        ]
        return [self.b.gep(start, [row], source_etype=kind) for start in starts]

    def _state(self, s: Accumulate, strand: Strand, low: ir.Value) -> list[ir.Value]:
        dtype = self.dtypes[s.value]
        return [
            self._read_at(p, dtype, strand.lanes)
            for p in self._state_places(s, strand, low)
        ]

    def _keep_state(
        self, s: Accumulate, strand: Strand, low: ir.Value, state: list[ir.Value]
    ) -> None:
        places = self._state_places(s, strand, low)
        for p, value in zip(places, state, strict=True):
            self._write(p, value, self.dtypes[s.value])


def emit_nest(module: ir.Module, nest: Nest, name: str, host: Host) -> ir.Function:
    """The function of ``nest`` in ``module``. Raises :class:`Unsupported`."""
    check(nest)
    kind = PanelEmitter if is_wide(nest) else Emitter
    return kind(module, nest, name, host).function
