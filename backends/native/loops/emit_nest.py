"""Nests as LLVM functions ``void f(ptr b0, …, ptr keep, i64 start, i64 stop)``.

A call runs the *units* from ``start`` to ``stop``: rows of the grid, blocks of rows
that lie side by side, or blocks of one long loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from llvmlite import ir

from ...loop_ir import (
    Gather,
    LoopVar,
    Nest,
)
from ..machine import I64, Host, least
from ..math import VOID, declared
from .addresses import Addresses
from .counted_loops import divided, end_of_steps, loop
from .nest_code import PTR, NestCode, Strand, begun
from .passes import Passes
from .prefetch import ask_for_rows, picked_rows
from .row_panels import RowPanels
from .statements import Statements
from .vector_memory import VectorMemory
from .vector_shape import VectorRun, blocks, check, is_wide, rows_of, split, stretch


def emit_nest(module: ir.Module, nest: Nest, name: str, host: Host) -> ir.Function:
    """The function of ``nest`` in ``module``. Raises :class:`Unsupported`."""
    check(nest, host)
    params = [PTR] * (len(nest.buffers) + 1) + [I64, I64] * (1 + nest.ranged)
    function = ir.Function(module, ir.FunctionType(VOID, params), name)
    code = begun(function, nest, host)
    keep, start, stop, *_ = code.given
    for i, p in enumerate(code.buffers):
        if i not in nest.aliased:
            p.add_attribute("noalias")
    keep.add_attribute("noalias")
    passes = Passes(Statements(VectorMemory(Addresses(code))))
    if (run := stretch(nest, host)) is not None:
        _run_on(passes, run)
    else:
        units = RowPanels(passes) if is_wide(nest) else Units(passes)
        with loop(code.b, start, stop, 1) as unit:
            units.write(unit)
    if nest.streamed and not host.is_arm:
        # Stores past the caches become visible before what follows.
        code.b.call(declared(code.b, "llvm.x86.sse.sfence", []), [])
    passes.statements.checks.note(code.buffers)
    code.b.ret_void()
    return function


class Units:
    """Writes one unit of the work: rows, or blocks of them."""

    def __init__(self, passes: Passes) -> None:
        self.passes, self.code = passes, passes.code
        self.picked = picked_rows(passes.code.nest)

    def write(self, unit: ir.Value) -> None:
        """One unit of the work."""
        code, nest = self.code, self.code.nest
        if nest.vertical:
            self._side_by_side(unit)
            return
        count = blocks(nest)
        block = None
        if count > 1:
            unit, block = divided(code.b, unit, count)
        if nest.ordered:
            self._in_order(unit)
            return
        if self.picked and block is None:
            self._ask_for_next(unit, self.picked)
        code.place(unit, nest.grid)
        self.passes.write(block)

    def _in_order(self, unit: ir.Value) -> None:
        """All points of the ordered variables, one after the other."""
        code, ordered = self.code, self.code.nest.ordered
        code.place(unit, code.nest.grid[: -len(ordered)])
        with _nested(code, ordered):
            self.passes.write(None)

    def _ask_for_next(self, unit: ir.Value, picked: Sequence[Gather]) -> None:
        """Ask for what the row after ``unit`` picks."""
        code, b, (p, *_) = self.code, self.code.b, self.code.nest.passes
        _, _, stop, *_ = code.given
        last = b.sub(stop, I64(1))
        code.place(least(b, b.add(unit, I64(1)), last), code.nest.grid)
        statements = self.passes.statements
        statements.row = {}
        for s in p.before:
            self.passes.of_row(s)
        ask_for_rows(self.passes.addresses, picked, statements.row, p.loops[0])

    def _side_by_side(self, unit: ir.Value) -> None:
        """Units of rows that lie side by side: blocks of several vectors of them, then
        vectors, then single rows."""
        code, b = self.code, self.code.b
        *outer, lane = code.nest.grid
        lanes, unroll = code.shape.lanes, code.shape.unroll
        counts = split(lane.size, lanes, unroll)
        unit, part = divided(b, unit, sum(counts))
        code.place(unit, outer)
        first, at = 0, 0
        code.lane = lane
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
                    code.index[lane] = b.add(step, I64(at))
                    every = [Strand(width, i * width) for i in range(strands)]
                    self.passes.strands = every
                    self.passes.write(None)
            first += count
            at += count * width * strands


def _nested(code: NestCode, variables: Sequence[LoopVar]) -> ExitStack:
    """Loops over all that ``variables`` may be, inside of which code is written."""
    with ExitStack() as stack:
        for v in variables:
            turns = loop(code.b, I64(0), I64(v.size), 1)
            code.index[v] = stack.enter_context(turns)
        return stack.pop_all()


def _run_on(passes: Passes, run: VectorRun) -> None:
    """Rows that are shorter than a vector, as many at a time as fill vectors."""
    code, b, count = passes.code, passes.code.b, run.across.size
    _, begin, stop = code.given
    outer = code.nest.grid[: -len(run.inner)]
    rows = rows_of(run.size, code.shape.lanes)
    first, start = divided(b, begin, count)
    last = b.udiv(b.add(stop, I64(count - 1)), I64(count))
    with loop(b, first, last, 1) as i:
        code.place(i, outer)
        done = b.mul(i, I64(count))
        low = b.select(b.icmp_signed("==", i, first), start, I64(0))
        high = least(b, b.sub(stop, done), count)
        whole = end_of_steps(b, low, high, rows)
        with loop(b, low, whole, rows) as row:
            code.index[run.across] = row
            _end_to_end(passes.statements, run, rows)
        code.shape = replace(code.shape, lanes=1 << run.inner[-1].size.bit_length() - 1)
        with loop(b, whole, high, 1) as row:
            code.index[run.across] = row
            with _nested(code, run.inner[:-1]):
                passes.write(None)


def _end_to_end(statements: Statements, run: VectorRun, rows: int) -> None:
    """Some rows, vector by vector."""
    code, (p,) = statements.code, statements.code.nest.passes
    width = code.shape.lanes
    code.stretch, code.lane = run.variables, p.loops[0]
    for v in run.inner:
        code.index[v] = I64(0)
    code.bases, code.inner = {}, None
    for start in range(0, rows * run.size, width):
        cells = tuple(run.cell(start + i) for i in range(width))
        strand = Strand(width, 0, cells)
        for s in (*p.before, *p.body):
            statements.write(s, strand, strand.values, strand.values)
    code.stretch, code.lane = (), None
