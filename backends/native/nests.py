"""Nests as LLVM functions ``void f(ptr b0, …, ptr keep, i64 start, i64 stop)``.

A call runs the *units* from ``start`` to ``stop``: rows of the grid, blocks of rows
that lie side by side, or blocks of one long loop. The innermost loop runs in steps of
several vectors, then of one, then of one element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir

from ..kernels.affine import Affine, Unsupported, Var
from ..kernels.language import (
    Accumulate,
    Compute,
    Const,
    DType,
    Keep,
    Kept,
    Load,
    Nest,
    Pass,
    Position,
    Statement,
    Store,
)
from . import elementwise
from .elementwise import (
    I64,
    constant,
    from_memory,
    memory_type,
    register_type,
    splat,
    to_memory,
    widened,
)
from .machine import Host
from .reductions import Reducer, reducer

PANEL = 512
"""Rows that are reduced together where rows lie side by side in memory."""
MIN_PANEL = 64
BLOCK = 8192
"""Elements in a unit of a long loop."""
PTR = ir.PointerType()
VOID = ir.VoidType()
UNROLL = 4
"""Vectors in a step of the innermost loop, where its work is light."""
AHEAD = 16
"""Rows that are asked for before they are read, where rows lie side by side."""
LIGHT = 24
"""Statements of a body up to which its work is light."""


@dataclass(frozen=True)
class Shape:
    """How a nest is cut for one host."""

    lanes: int
    unroll: int
    units: int
    """What a call's ``start`` and ``stop`` count."""
    keep_bytes: int
    """Memory of one thread for what passes keep."""


def shape_of(nest: Nest, host: Host) -> Shape:
    """How ``nest`` is cut."""
    lanes = _lanes(nest, host)
    heavy = max((len(p.body) for p in nest.passes), default=0) > LIGHT
    unroll = 1 if heavy else UNROLL
    if is_wide(nest):
        last = nest.grid[-1].size
        units = nest.rows // last * -(-last // PANEL)
        states = sum(
            reducer(s.op, s.dtype).parts * _aligned(s.dtype.itemsize * PANEL)
            for s in _sums(nest)
        )
        return Shape(lanes, UNROLL, units, states)
    if nest.vertical:  # whole cache lines of each row, whatever the work
        unroll = UNROLL if heavy else 2 * UNROLL
        last = nest.grid[-1].size
        units = nest.rows // last * sum(_split(last, lanes, unroll))
    else:
        units = nest.rows * _blocks(nest)
    width = lanes * unroll if nest.vertical else 1
    keeps = sum(_aligned(d.itemsize * n * width) for d, n in nest.keeps)
    return Shape(lanes, unroll, units, keeps)


def is_wide(nest: Nest) -> bool:
    """Whether the rows of a nest that lie side by side are reduced in panels: blocks of
    elements of all rows of the panel in turn, so that memory is read in order."""
    bodies = [p for p in nest.passes if p.body]
    if not nest.vertical or len(bodies) != 1 or nest.keeps:
        return False
    (p,) = bodies
    plain = all(s.op not in ("argmax", "argmin") for s in _sums(nest))
    stores = any(isinstance(s, (Store, Position)) for s in p.body)
    enough = nest.grid[-1].size >= MIN_PANEL and p.loops[-1].size >= CAREFUL
    return bool(_sums(nest)) and plain and not stores and enough


def _sums(nest: Nest) -> list[Accumulate]:
    return [s for s in nest.statements() if isinstance(s, Accumulate)]


def _aligned(size: int) -> int:
    return -(-size // 64) * 64


def _lanes(nest: Nest, host: Host) -> int:
    """Elements in a vector: as many of the widest number as a register holds."""
    sizes = [b.dtype.itemsize for b in nest.buffers]
    for s in nest.statements():
        if isinstance(s, (Load, Compute)) and s.dtype != np.dtype(bool):
            sizes.append(s.dtype.itemsize)
    widest = max(sizes)
    positions = any(isinstance(s, Position) for s in nest.statements())
    if (
        positions
        and widest == 8
        and all(b.dtype.itemsize <= 4 or b.written for b in nest.buffers)
    ):
        widest = 4
    return max(host.vector_bits // (8 * widest), 1)


def _split(size: int, lanes: int, unroll: int) -> tuple[int, int, int]:
    """Steps of several vectors, of one, and of one element."""
    many, rest = divmod(size, lanes * unroll)
    return many, *divmod(rest, lanes)


def _is_map(nest: Nest) -> bool:
    """Whether the elements of a row are independent."""
    return len(nest.passes) == 1 and not any(
        isinstance(s, Accumulate) for s in nest.statements()
    )


def _blocks(nest: Nest) -> int:
    """Units of one row."""
    loops = nest.passes[0].loops
    if not _is_map(nest) or len(loops) != 1 or loops[0].size < 2 * BLOCK:
        return 1
    return -(-loops[0].size // BLOCK)


@dataclass
class Strand:
    """One vector of the several that a step computes."""

    lanes: int
    offset: int
    """Of its first lane, in turns of the variable that lanes run along."""
    values: dict[int, ir.Value] = field(default_factory=dict)
    """Of the elements of this step."""
    row: dict[int, ir.Value] = field(default_factory=dict)
    """Of its rows, where rows are what lies side by side."""


def emit_nest(module: ir.Module, nest: Nest, name: str, host: Host) -> ir.Function:
    """The function of ``nest`` in ``module``. Raises :class:`Unsupported`."""
    check(nest)
    return _Emitter(module, nest, name, host).function


def check(nest: Nest) -> None:
    """Raise :class:`Unsupported` for a statement that has no code here."""
    dtypes: dict[int, DType] = {}
    for b in nest.buffers:
        memory_type(b.dtype)
    for s in nest.statements():
        if isinstance(s, Compute):
            of = dtypes[s.args[-1]]
            if not elementwise.is_supported(s.op, of, s.dtype):
                raise Unsupported(f"{s.op} of {of}")
        if isinstance(s, Accumulate):
            reducer(s.op, dtypes[s.value])
        if not isinstance(s, (Keep, Store)):
            dtypes[s.target] = s.dtype


class _Emitter:
    def __init__(self, module: ir.Module, nest: Nest, name: str, host: Host) -> None:
        self.nest, self.host = nest, host
        self.shape = shape_of(nest, host)
        params = [PTR] * (len(nest.buffers) + 1) + [I64, I64]
        self.function = ir.Function(module, ir.FunctionType(VOID, params), name)
        *self.buffers, self.keep, start, stop = self.function.args
        for i, p in enumerate(self.buffers):
            if i not in nest.aliased:
                p.add_attribute("noalias")
        self.keep.add_attribute("noalias")
        self.entry = self.function.append_basic_block("entry")
        self.b = ir.IRBuilder(self.entry)
        self.dtypes = {
            s.target: s.dtype
            for s in nest.statements()
            if not isinstance(s, (Keep, Store))
        }
        self.index: dict[Var, ir.Value] = {}
        self.lane: Var | None = None
        """The variable that lanes run along."""
        self.inner: Var | None = None
        """That of the innermost loop, inside of it."""
        self.row: dict[int, ir.Value] = {}
        """Values of the row, scalars."""
        self.strands: list[Strand] = []
        self.bases: dict[tuple[int, Affine], ir.Value] = {}
        with self.loop(start, stop, 1) as unit:
            self._unit(unit)
        if nest.streamed and not host.is_arm:
            self._fence()
        self.b.ret_void()

    def _fence(self) -> None:
        """Stores past the caches become visible before what follows."""
        name = "llvm.x86.sse.sfence"
        fence = self.b.module.globals.get(name)
        if fence is None:
            fence = ir.Function(self.b.module, ir.FunctionType(VOID, []), name)
        self.b.call(fence, [])

    # -- loops -------------------------------------------------------------------------

    @contextmanager
    def loop(self, start: ir.Value, stop: ir.Value, step: int) -> Iterator[ir.Value]:
        """``for i = start; i < stop; i += step``."""
        b = self.b
        head = self.function.append_basic_block("head")
        body = self.function.append_basic_block("body")
        done = self.function.append_basic_block("done")
        before = b.block
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(I64)
        i.add_incoming(start, before)
        b.cbranch(b.icmp_signed("<", i, stop), body, done)
        b.position_at_end(body)
        yield i
        i.add_incoming(b.add(i, I64(step)), b.block)
        b.branch(head)
        b.position_at_end(done)

    def _unit(self, unit: ir.Value) -> None:
        if is_wide(self.nest):
            self._panel(unit)
            return
        if self.nest.vertical:
            self._side_by_side(unit)
            return
        blocks = _blocks(self.nest)
        block = None
        if blocks > 1:
            unit, block = self._divided(unit, blocks)
        self._place(unit, self.nest.grid)
        self._passes(block)

    def _divided(self, i: ir.Value, by: int) -> tuple[ir.Value, ir.Value]:
        return self.b.udiv(i, I64(by)), self.b.urem(i, I64(by))

    def _place(self, unit: ir.Value, grid: Sequence[Var]) -> None:
        """The grid variables of row number ``unit``."""
        for v in reversed(grid[1:]):
            unit, self.index[v] = self._divided(unit, v.size)
        if grid:
            self.index[grid[0]] = unit

    def _side_by_side(self, unit: ir.Value) -> None:
        """Units of rows that lie side by side: blocks of several vectors of them, then
        vectors, then single rows."""
        *outer, lane = self.nest.grid
        lanes, unroll = self.shape.lanes, self.shape.unroll
        counts = _split(lane.size, lanes, unroll)
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

    # -- panels ------------------------------------------------------------------------

    def _panel(self, unit: ir.Value) -> None:
        """Reduce a panel of rows that lie side by side, some elements of all of them at
        a time."""
        *outer, lane = self.nest.grid
        unit, part = self._divided(unit, -(-lane.size // PANEL))
        self._place(unit, outer)
        self.lane = lane
        low, high = self._part(part, PANEL, lane.size)
        last = lane.size % PANEL or PANEL
        many, *rest = _split(last, self.shape.lanes, self.shape.unroll)
        split = (max(many, lane.size // PANEL), *rest)
        widths = ((self.shape.lanes, UNROLL), (self.shape.lanes, 1), (1, 1))
        groups = [w for w, n in zip(widths, split, strict=True) if n]
        at = next(i for i, p in enumerate(self.nest.passes) if p.body)
        before = [s for p in self.nest.passes[: at + 1] for s in p.before]
        after = [s for p in self.nest.passes[at + 1 :] for s in p.before]
        for strands in self._side(groups, low, high):
            for s in _sums(self.nest):
                r = self._reducer(s)
                for strand in strands:
                    self._keep_state(s, strand, low, r.neutral_state(strand.lanes))
        self._blocks_of_rows(self.nest.passes[at], before, groups, low, high)
        for strands in self._side(groups, low, high):
            for strand in strands:
                self._run_row(before, strand)
                for s in _sums(self.nest):
                    r = self._reducer(s)
                    state = self._state(s, strand, low)
                    strand.row[s.target] = r.result(self.b, state)
                self._run_row(after, strand)

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
            with self.loop(low, whole, step) as i:
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
                loop = self.loop(I64(0), I64(v.size), 1)
                self.index[v] = stack.enter_context(loop)
            start, stop = self._range(p, var, None)
            many = stack.enter_context(self.loop(start, stop, BLOCKS * CAREFUL))
            last = self._before(many, BLOCKS * CAREFUL, stop)
            with self.loop(many, last, CAREFUL) as first:
                end = self._before(first, CAREFUL, last)
                for strands in self._side(groups, low, high):
                    for strand in strands:
                        self._run_row(before, strand)
                    self._block(p, var, strands, (first, end), low)
            careful = [s for s in _sums(self.nest) if self._reducer(s).is_careful]
            if careful:
                for strands in self._side(groups, low, high):
                    for strand in strands:
                        for s in careful:
                            state = self._state(s, strand, low)
                            new = self._reducer(s).carried(self.b, state)
                            self._keep_state(s, strand, low, new)

    def _before(self, start: ir.Value, size: int, stop: ir.Value) -> ir.Value:
        """``start + size``, at most ``stop``."""
        end = self.b.add(start, I64(size))
        return self.b.select(self.b.icmp_signed("<", end, stop), end, stop)

    def _reducer(self, s: Accumulate) -> Reducer:
        return reducer(s.op, self.dtypes[s.value])

    def _block(
        self,
        p: Pass,
        var: Var,
        strands: list[Strand],
        span: tuple[ir.Value, ir.Value],
        low: ir.Value,
    ) -> None:
        """Some elements of a few rows, added to what is known of these rows."""
        sums = _sums(self.nest)
        parts = {
            s.target: [self._reducer(s).started(self, x.lanes, False) for x in strands]
            for s in sums
        }
        self._innermost(p, var, *span, strands, parts, 0, 1)
        for s in sums:
            r = self._reducer(s)
            for strand, part in zip(strands, parts[s.target], strict=True):
                old = self._state(s, strand, low)
                new = r.merged(self.b, old, part.finished(self))
                self._keep_state(s, strand, low, new)

    def _state_places(
        self, s: Accumulate, strand: Strand, low: ir.Value
    ) -> list[ir.Value]:
        """Where the state of a reduction lies, for the rows of a strand."""
        assert self.lane is not None
        byte, places = 0, []
        for other in _sums(self.nest):
            r = reducer(other.op, other.dtype)
            for _ in range(r.parts):
                if other is s:
                    places.append(byte)
                byte += _aligned(other.dtype.itemsize * PANEL)
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

    # -- passes ------------------------------------------------------------------------

    def _passes(self, block: ir.Value | None) -> None:
        self.row = {}
        for p in self.nest.passes:
            self.bases = {}
            for s in p.before:
                self._of_row(s)
            if p.body:
                self._pass(p, block)

    def _of_row(self, s: Statement) -> None:
        if self.nest.vertical:
            for strand in self.strands:
                self._statement(s, strand, strand.row, strand.row)
        else:
            strand = Strand(1, 0)
            self._statement(s, strand, self.row, self.row)

    def _pass(self, p: Pass, block: ir.Value | None) -> None:
        sums = [s for s in p.body if isinstance(s, Accumulate)]
        groups = self._groups(p)
        reducers = {
            s.target: [
                self._reducer(s).started(self, lanes, self._is_long(p))
                for lanes, unroll in groups
                for _ in range(unroll)
            ]
            for s in sums
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
        if self.nest.chunk is not None and len(p.loops) == 1:
            many = one = single = 1
        else:
            many, one, single = _split(size, lanes, unroll)
        groups = []
        if many:
            groups.append((lanes, unroll))
        if one and (unroll > 1 or not many):
            groups.append((lanes, 1))
        if single and lanes > 1:
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
            with self.loop(low, high, 1) as i:
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
        self.lane = None

    def _whole(self, low: ir.Value, high: ir.Value, step: int) -> ir.Value:
        """The end of the steps that fit between ``low`` and ``high``."""
        if isinstance(low, ir.Constant) and isinstance(high, ir.Constant):
            return I64(low.constant + (high.constant - low.constant) // step * step)
        b = self.b
        turns = b.sdiv(b.sub(high, low), I64(step))
        return b.add(low, b.mul(turns, I64(step)))

    def _range(
        self, p: Pass, var: Var, block: ir.Value | None
    ) -> tuple[ir.Value, ir.Value]:
        chunk = self.nest.chunk
        if block is not None:
            return self._part(block, BLOCK, var.size)
        if chunk is not None and var == p.loops[0] and self._is_chunked(p):
            return self._part(self.index[chunk], -(-var.size // chunk.size), var.size)
        return I64(0), I64(var.size)

    def _is_chunked(self, p: Pass) -> bool:
        return any(isinstance(s, Accumulate) for s in p.body)

    def _part(self, i: ir.Value, size: int, end: int) -> tuple[ir.Value, ir.Value]:
        b = self.b
        low = b.mul(i, I64(size))
        high = b.add(low, I64(size))
        if end % size == 0 and self.nest.chunk is None:
            return low, high
        low = b.select(b.icmp_signed("<", low, I64(end)), low, I64(end))
        high = b.select(b.icmp_signed("<", high, I64(end)), high, I64(end))
        return low, high

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
        self._looped(p, var, low, high, strands, reducers, first, step)
        self.inner = None

    def _looped(
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
        groups = [g[first : first + len(strands)] for g in reducers.values()]
        careful = [g for g in groups if g[0].is_careful]
        if not careful:
            with self.loop(low, high, step) as i:
                self._step(p, var, i, strands, reducers, first)
            return
        turns = step * (CAREFUL if self.nest.vertical else 2 * CAREFUL)
        with self.loop(low, high, turns) as outer:
            end = self.b.add(outer, I64(turns))
            end = self.b.select(self.b.icmp_signed("<", end, high), end, high)
            with self.loop(outer, end, step) as i:
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
                self._base(s.buffer, _without(s.at, var, self.lane))
        if self.nest.vertical:
            return
        lanes = strands[0].lanes
        known = {i: splat(self.b, v, lanes) for i, v in self._read(p).items()}
        for strand in strands:
            strand.row = known

    def _read(self, p: Pass) -> dict[int, ir.Value]:
        """Values of the row that the body reads."""
        used: set[int] = set()
        for s in p.body:
            if isinstance(s, Compute):
                used.update(s.args)
            elif isinstance(s, (Store, Keep, Accumulate)):
                used.add(s.value)
        return {i: v for i, v in self.row.items() if i in used}

    def _fetch_ahead(self, p: Pass, var: Var, strands: list[Strand]) -> None:
        """Ask for rows to come: processors foresee steps within a page alone."""
        if not self.nest.vertical:
            return
        ahead_rows = CAREFUL if is_wide(self.nest) else AHEAD
        module = self.b.module
        name = "llvm.prefetch.p0"
        fetch = module.globals.get(name)
        if fetch is None:
            i32 = ir.IntType(32)
            kind = ir.FunctionType(VOID, [PTR, i32, i32, i32])
            fetch = ir.Function(module, kind, name)
        flags = [ir.IntType(32)(n) for n in (0, 3, 1)]
        for s in p.body:
            if not isinstance(s, Load):
                continue
            size = self.nest.buffers[s.buffer].dtype.itemsize
            stride = s.at.coefficient(var) * size
            if abs(stride) < 256 or self._along(s.at) != 1:
                continue
            wide = strands[-1].offset + strands[-1].lanes
            first = self._pointer(s.buffer, s.at, Strand(1, 0))
            for byte in range(0, wide * size, 64):
                ahead = I64(stride * ahead_rows + byte)
                p_ = self.b.gep(first, [ahead], source_etype=ir.IntType(8))
                self.b.call(fetch, [p_, *flags])

    def _step(
        self,
        p: Pass,
        var: Var,
        i: ir.Value,
        strands: list[Strand],
        reducers: dict[int, list[Any]],
        first: int,
    ) -> None:
        self.index[var] = i
        self._fetch_ahead(p, var, strands)
        for n, strand in enumerate(strands):
            strand.values = {}
            for s in p.body:
                if isinstance(s, Accumulate):
                    value = self._known(s.value, strand)
                    at = self._known(s.position, strand) if s.position >= 0 else None
                    reducers[s.target][first + n].add(self, value, at)
                else:
                    self._statement(s, strand, strand.values, strand.row)

    def _known(self, i: int, strand: Strand) -> ir.Value:
        found = strand.values.get(i)
        if found is None:
            found = strand.row[i]
        return splat(self.b, found, strand.lanes)

    # -- statements --------------------------------------------------------------------

    def _statement(
        self,
        s: Statement,
        strand: Strand,
        out: dict[int, ir.Value],
        row: dict[int, ir.Value],
    ) -> None:
        lanes = strand.lanes

        def value(i: int) -> ir.Value:
            return splat(self.b, out[i] if i in out else row[i], lanes)

        match s:
            case Const():
                out[s.target] = constant(register_type(s.dtype), lanes, s.value)
            case Load():
                out[s.target] = self._load(s, strand)
            case Compute():
                out[s.target] = self._compute(s, [value(i) for i in s.args])
            case Position():
                out[s.target] = self._position(s.at, strand)
            case Keep():
                self._write(
                    self._place_of(s.place, strand), value(s.value), self._kept(s.place)
                )
            case Kept():
                place, dtype = self._place_of(s.place, strand), self._kept(s.place)
                out[s.target] = self._read_at(place, dtype, lanes)
            case Store():
                self._store(s, value(s.value), strand)

    def _compute(self, s: Compute, args: list[ir.Value]) -> ir.Value:
        of = self.dtypes[s.args[-1]]
        if s.op == "where" and self.dtypes[s.args[0]] != np.dtype(bool):
            dtype = self.dtypes[s.args[0]]
            boolean = np.dtype(bool)
            args[0] = elementwise.emit(
                self.b, "cast", [args[0]], dtype, boolean, self.host
            )
        return elementwise.emit(self.b, s.op, args, of, s.dtype, self.host)

    def _position(self, at: Affine, strand: Strand) -> ir.Value:
        along = self._along(at)
        start = self._sum(at)
        if strand.offset and along:
            start = self.b.add(start, I64(strand.offset * along))
        if strand.lanes == 1 or not along:
            return splat(self.b, start, strand.lanes)
        ramp = [I64(i * along) for i in range(strand.lanes)]
        return self.b.add(
            splat(self.b, start, strand.lanes),
            ir.Constant(ir.VectorType(I64, strand.lanes), ramp),
        )

    def _along(self, at: Affine) -> int:
        """What the next lane adds to an index."""
        return 0 if self.lane is None else at.coefficient(self.lane)

    def _sum(self, at: Affine) -> ir.Value:
        total: ir.Value = I64(at.offset)
        for v, c in at.terms:
            i = self.index[v]
            total = self.b.add(total, self.b.mul(i, I64(c)) if c != 1 else i)
        return total

    # -- memory ------------------------------------------------------------------------

    def _base(self, buffer: int, at: Affine) -> ir.Value:
        """The address of a part of an index that the innermost loop does not change."""
        key = buffer, at
        found = self.bases.get(key)
        if found is None:
            kind = memory_type(self.nest.buffers[buffer].dtype)
            found = self.b.gep(self.buffers[buffer], [self._sum(at)], source_etype=kind)
            self.bases[key] = found
        return found

    def _pointer(
        self, buffer: int, at: Affine, strand: Strand, lane: int = 0
    ) -> ir.Value:
        inner = [v for v in at.variables if v in (self.lane, self.inner)]
        outer = _without(at, *inner)
        kind = memory_type(self.nest.buffers[buffer].dtype)
        moved = I64(0)
        base = self.bases.get((buffer, outer))
        if base is None:
            base = self.b.gep(
                self.buffers[buffer], [self._sum(outer)], source_etype=kind
            )
        for v in inner:
            c = at.coefficient(v)
            i = self.index[v]
            moved = self.b.add(moved, self.b.mul(i, I64(c)) if c != 1 else i)
        pointer = base
        if not isinstance(moved, ir.Constant) or moved.constant:
            pointer = self.b.gep(base, [moved], source_etype=kind)
        # A constant of its own: strands share the rest, which LLVM would take apart
        # at length for each of them otherwise.
        shift = (strand.offset + lane) * self._along(at)
        return (
            self.b.gep(pointer, [I64(shift)], source_etype=kind) if shift else pointer
        )

    def _load(self, s: Load, strand: Strand) -> ir.Value:
        dtype = self.nest.buffers[s.buffer].dtype
        along = self._along(s.at)
        if along == 0 or strand.lanes == 1:
            value = self._read_at(self._pointer(s.buffer, s.at, strand), dtype, 1)
            return splat(self.b, value, strand.lanes)
        if along == 1:
            return self._read_at(
                self._pointer(s.buffer, s.at, strand), dtype, strand.lanes
            )
        kind = memory_type(dtype)
        gathered: ir.Value = ir.Constant(
            ir.VectorType(kind, strand.lanes), ir.Undefined
        )
        for lane in range(strand.lanes):
            p = self._pointer(s.buffer, s.at, strand, lane)
            one = self.b.load(p, typ=kind, align=dtype.itemsize)
            gathered = self.b.insert_element(gathered, one, ir.IntType(32)(lane))
        return from_memory(self.b, gathered, dtype, self.host)

    def _store(self, s: Store, value: ir.Value, strand: Strand) -> None:
        dtype = self.nest.buffers[s.buffer].dtype
        along = self._along(s.at)
        if along == 1 or strand.lanes == 1:
            stored = self._write(self._pointer(s.buffer, s.at, strand), value, dtype)
            if s.buffer in self.nest.streamed and self._is_aligned(s, strand.lanes):
                stored.align = dtype.itemsize * strand.lanes
                stored.set_metadata("nontemporal", self._flag())
            return
        bits = to_memory(self.b, value, dtype, self.host)
        for lane in range(strand.lanes):
            p = self._pointer(s.buffer, s.at, strand, lane)
            one = self.b.extract_element(bits, ir.IntType(32)(lane))
            self.b.store(one, p, align=dtype.itemsize)

    def _read_at(self, place: ir.Value, dtype: DType, lanes: int) -> ir.Value:
        kind = widened(memory_type(dtype), lanes)
        bits = self.b.load(place, typ=kind, align=dtype.itemsize)
        return from_memory(self.b, bits, dtype, self.host)

    def _write(
        self, place: ir.Value, value: ir.Value, dtype: DType
    ) -> ir.instructions.StoreInstr:
        bits = to_memory(self.b, value, dtype, self.host)
        return self.b.store(bits, place, align=dtype.itemsize)

    def _is_aligned(self, s: Store, lanes: int) -> bool:
        """Whether each vector that a store writes is aligned to its size."""
        steps = [c for v, c in s.at.terms if v is not self.lane] + [s.at.offset]
        return lanes > 1 and all(c % lanes == 0 for c in steps)

    def _flag(self) -> ir.MDValue:
        return self.b.module.add_metadata([ir.IntType(32)(1)])

    # -- what passes keep --------------------------------------------------------------

    def _kept(self, place: int) -> DType:
        return self.nest.keeps[place][0]

    def _place_of(self, place: int, strand: Strand) -> ir.Value:
        """Where the current element of a kept value lies."""
        width = 1
        if self.nest.vertical:
            width = self.shape.lanes * self.shape.unroll
        before = sum(
            _aligned(d.itemsize * n * width) for d, n in self.nest.keeps[:place]
        )
        loops = next(p.loops for p in self.nest.passes if p.body)
        at = Affine()
        for i, v in enumerate(loops):
            at += Affine.of(v).times(prod(w.size for w in loops[i + 1 :]))
        element = self.b.mul(self._sum(at), I64(width))
        element = self.b.add(element, I64(strand.offset))
        start = self.b.gep(self.keep, [I64(before)], source_etype=ir.IntType(8))
        return self.b.gep(start, [element], source_etype=memory_type(self._kept(place)))


BLOCKS = 4
"""Blocks of rows of a panel, after which sums are carried over."""
CAREFUL = 8
"""Additions in a row, after which a partial sum is carried over."""


def _without(at: Affine, *variables: Var | None) -> Affine:
    terms = tuple((v, c) for v, c in at.terms if v not in variables)
    return Affine(at.offset, terms)
