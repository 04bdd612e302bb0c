"""Whole programs as one native function that threads run together.

``void program(ptr buffers, i64 thread, i64 threads, i64 turn)``: each thread takes
parts of every step (:mod:`.runtime.work_sharing_code`), and waits until all are done
before the next one; at turn 0 it runs alone. A product and what follows it row by row
run as panels of rows that stay in cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from llvmlite import ir

from eqsat.support import verifying

from ..loop_ir import (
    Contraction,
    Convolution,
    Factoring,
    Loops,
    Nest,
    Network,
    Ordering,
    Product,
)
from .convolutions import TurnedCalls
from .factors import Decompositions, LaneFactors, eig_svd_qr, lanes_of, lapack_calls
from .loops import PTR, emit_nest, loop, shape_of, sweep_direction
from .machine import I8, I64, MemoryRef, aligned, blas
from .math import VOID, declared
from .plan import (
    FEW,
    PANELS,
    PLACES,
    TEMPORARY,
    Frame,
    Group,
    Layered,
    PlanStep,
    calls_of,
    constant_words,
    table,
    verify_arena,
    verify_table,
)
from .products import BlasCalls, Packing, ThreadPart
from .runtime import GRAIN_S, MOST_PARTS
from .sorting import library_sorts, sort_networks

PART_S = 4e-6
"""Work of a part, where a thread has several of a step (s)."""


class ProgramWriter:
    """The LLVM module of a program."""

    def __init__(self, parts: Sequence[Group], layered: Layered, name: str) -> None:
        self.layered, self.host, self.places = layered, layered.host, layered.places
        self.module = ir.Module(name)
        self.module.triple = self.host.triple
        self.functions: dict[Nest, ir.Function] = {}
        self.parts = parts
        self.calls_blas = any(self._is_call(s) for g in parts for s in g.steps)
        self.thread_bytes = self._thread_bytes()
        self.homes = self._homes()
        self.thread_start = aligned(self.places.scratch_bytes)
        self.arena_bytes = self.thread_start + self.thread_bytes * layered.threads
        if verifying():
            own = self.thread_start, self.thread_bytes, self.arena_bytes
            verify_arena(layered, parts, self.homes, own)
        self.b = ir.IRBuilder()
        self.blas = BlasCalls(self.b, self.module)
        self.factors = Decompositions(self.b, self.module)
        self.lane_factors = LaneFactors(self.b, self.module, self.host)
        self.own = TurnedCalls(self.b, self.module, self.host)
        kind = ir.FunctionType(VOID, [PTR, I64, I64, I64])
        function = ir.Function(self.module, kind, name)
        self.frame = Frame(function, self._begun(function), *function.args)
        self._program()

    @property
    def text(self) -> str:
        """The module as LLVM IR."""
        text = str(self.module)
        if not self._is_held:
            return text
        lines = text.splitlines()  # the definition replaces the declaration
        kept = [x for x in lines if not x.startswith('declare void @"blas_count"')]
        return "\n".join(kept) + blas.HOLD_IR

    @property
    def _is_held(self) -> bool:
        """Whether BLAS is held to one thread: not where all that it does is to factor
        large matrices one at a time, for which it has threads."""
        if not self.calls_blas or not blas.library().is_held:
            return False
        calls = [s.piece for g in self.parts for s in g.steps if self._is_call(s)]
        ones = [p for p in calls if isinstance(p, Factoring) and p.matrices == 1]
        large = any(p.flops >= lapack_calls.LARGE_FLOPS for p in ones)
        return self.layered.threads == 1 or not large or len(ones) < len(calls)

    def _is_call(self, s: PlanStep) -> bool:
        """Whether a step is computed by BLAS or LAPACK."""
        if isinstance(s.piece, Factoring):
            return not lanes_of(s.piece, self.host)
        return isinstance(s.piece, Product) and s.plan is None

    @property
    def seconds(self) -> float:
        """About how long one thread takes (s)."""
        return sum(g.seconds for g in self.parts)

    @property
    def most_threads(self) -> int:
        """Threads that are worth waking."""
        return max((self._active(g) for g in self.parts), default=1)

    # -- memory ------------------------------------------------------------------------

    def _thread_bytes(self) -> int:
        """Scratch memory of one thread: what passes keep, and panels."""
        most = 0
        for g in self.parts:
            keeps = max(
                (
                    shape_of(s.piece.nest, self.host).keep_bytes
                    for s in g.steps
                    if isinstance(s.piece, Loops)
                ),
                default=0,
            )
            factors = (
                eig_svd_qr.scratch_bytes(s.piece, self.host)
                for s in g.steps
                if isinstance(s.piece, Factoring)
            )
            keeps = max(keeps, *factors, 0)
            products = max((s.plan.bytes for s in g.steps if s.plan), default=0)
            panels = sum(aligned(g.panel * size) for _, size in g.private)
            most = max(most, aligned(max(keeps, products)) + panels)
        return most

    def _homes(self) -> dict[MemoryRef, MemoryRef]:
        """Where temporaries lie that several groups use."""
        private = {m for g in self.parts for m, _ in g.private}
        homes = {}
        for g in self.parts:
            for s in g.steps:
                for m in s.memory:
                    if m.buffer == TEMPORARY and m not in private and m not in homes:
                        size = self.layered.temporaries[m.byte]
                        homes[m] = self.places.scratch(size)
        return homes

    def _block(self, number: int) -> ir.Value:
        """Pointer ``number`` of the program."""
        found = self.frame.pointers.get(number)
        if found is None:
            with self.b.goto_entry_block():
                found = self._loaded(I64(number))
            self.frame.pointers[number] = found
        return found

    def _loaded(self, number: ir.Value) -> ir.Value:
        at = self.b.gep(self.frame.buffers, [number], source_etype=PTR)
        return self.b.load(at, typ=PTR)

    def _placed(self, m: MemoryRef) -> MemoryRef:
        """The pointer of the program and the byte where ``m`` starts."""
        if m.buffer == PANELS:
            m = self.layered.panel_places[m.byte]
        m = self.homes.get(m, m)
        return m if m.buffer >= 0 else MemoryRef(self._scratch, m.byte)

    @property
    def _scratch(self) -> int:
        """The pointer of scratch memory."""
        return self.places.first_constant + len(self.places.constants)

    def _pointer(self, m: MemoryRef) -> ir.Value:
        if m.buffer != PLACES:
            m = self._placed(m)
            return self.own.moved(self._block(m.buffer), m.byte)
        found = self.frame.pointers.get(m)
        if found is None:
            with self.b.goto_entry_block():
                block, byte = self._word(2 + 2 * m.byte), self._word(3 + 2 * m.byte)
                found = self.own.moved(self._loaded(block), byte)
            self.frame.pointers[m] = found
        return found

    def _word(self, i: int) -> ir.Value:
        """A word of the table."""
        assert self.frame.row is not None
        at = self.b.gep(self.frame.row, [I64(i)], source_etype=I64)
        return self.b.load(at, typ=I64)

    def _own_scratch(self) -> ir.Value:
        """Scratch memory of this thread."""
        if not self.thread_bytes:
            return ir.Constant(PTR, None)
        mine = self.b.mul(self.frame.thread, I64(self.thread_bytes))
        start = self.b.add(mine, I64(self.thread_start))
        return self.own.moved(self._block(self._scratch), start)

    # -- parts -------------------------------------------------------------------------

    def _begun(self, function: ir.Function) -> ir.Block:
        """Write into ``function`` from now on; its first block."""
        entry, body = (function.append_basic_block(n) for n in ("entry", "body"))
        self.b.position_at_end(entry)
        self.b.branch(body)
        self.b.position_at_end(body)
        return entry

    def _program(self) -> None:
        b = self.b
        fault = self.places.fault
        if fault is not None or self._is_held:
            with self._parts(1, I64(1)):
                if fault is not None:
                    b.store(I8(0), self._pointer(fault))
                if self._is_held:
                    self._hold(1)
        if len(self.parts) <= FEW:
            self._swept()
        else:
            self._table()
        if self._is_held:
            with self._parts(1, I64(1)):
                self._hold(-1)
        end, back = self._turn(), self.frame.back
        if back is not None:
            self._call_team("sweep_next", VOID, self.frame.turn, back)
            end = sweep_direction.next_turn(b, end, back)
        if self.frame.before is not None:
            self._call_team("turns_end", VOID, self.frame.thread, end)
        b.ret_void()

    def _swept(self) -> None:
        """All groups, those that are swept in turns of direction."""
        slices = [self._slice(g) for g in self.parts]
        if any(slices):
            turn = self.frame.turn
            self.frame.back = self._call_team("sweep_now", I64, turn)
        for g, units in zip(self.parts, slices, strict=True):
            self._group(g, units)

    def _slice(self, g: Group) -> int:
        """Units that are swept at once; 0 where the direction does not count."""
        piece = g.steps[0].piece
        return (
            sweep_direction.slice_of(piece.nest, self.host)
            if isinstance(piece, Loops)
            else 0
        )

    def _table(self) -> None:
        """The groups as functions, called for one row of a table after the other."""
        b, frame = self.b, self.frame
        distinct, calls = calls_of(self.parts)
        if verifying():
            verify_table(self.parts, distinct, calls)
        after = b.block
        functions = [self._step(i, g) for i, g in enumerate(distinct)]
        self.frame = frame
        b.position_at_end(after)
        with b.goto_block(frame.entry):
            row, number, parts = b.alloca(PTR), b.alloca(I64), b.alloca(I64)
        rows = constant_words(self.module, "rows", table(calls, self._placed))
        begun = I64(0) if frame.before is None else frame.before[0]
        for place, value in ((row, rows), (number, frame.number), (parts, begun)):
            b.store(value, place)
        with loop(b, I64(0), I64(len(calls)), 1):
            at = b.load(row, typ=PTR)
            kind, words = (
                b.load(b.gep(at, [I64(i)], source_etype=I64), typ=I64) for i in (0, 1)
            )
            b.store(b.gep(at, [words], source_etype=I64), row)
            given = b.load(number, typ=I64), b.load(parts, typ=I64)
            args = at, frame.buffers, frame.thread, frame.threads, frame.turn, *given
            over = b.append_basic_block("over")
            which = b.switch(kind, over)
            for i, function in enumerate(functions):
                case = b.append_basic_block(f"case{i}")
                which.add_case(I64(i), case)
                b.position_at_end(case)
                b.store(b.call(function, args), parts)
                b.branch(over)
            b.position_at_end(over)
            b.store(b.add(given[0], I64(1)), number)
        if self.layered.threads > 1:
            frame.number = b.load(number, typ=I64)
            frame.before = b.load(parts, typ=I64), self._turn(-1)

    def _step(self, number: int, g: Group) -> ir.Function:
        """The function of a group: given a row of the table, what the program was
        given, how many steps there were before and parts of the last one, it gives the
        parts of its own."""
        kind = ir.FunctionType(I64, [PTR, PTR, *[I64] * 5])
        function = ir.Function(self.module, kind, f"step{number}")
        function.linkage = "internal"
        row, buffers, thread, threads, turn, steps, parts = function.args
        entry = self._begun(function)
        self.frame = Frame(
            function, entry, buffers, thread, threads, turn, steps, row=row
        )
        b = self.b
        if self.layered.threads > 1:
            is_first = b.icmp_signed("==", steps, I64(0))
            self.frame.before = parts, b.select(is_first, I64(0), self._turn(-1))
        self._group(g)
        b.ret(I64(1) if self.frame.before is None else self.frame.before[0])
        return function

    def _hold(self, by: int) -> None:
        self.b.call(declared(self.b, "blas_count", [I64]), [I64(by)])

    # -- threads -----------------------------------------------------------------------

    def _call_team(self, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
        function = declared(self.b, name, [a.type for a in args], result)
        return self.b.call(function, args)

    def _turn(self, more: int = 0) -> ir.Value:
        """That of the next step, and so many later; 0 where one thread runs alone."""
        b, frame = self.b, self.frame
        alone = b.icmp_signed("==", frame.turn, I64(0))
        after = b.add(frame.number, I64(more)) if more else frame.number
        return b.select(alone, frame.turn, b.add(frame.turn, after))

    @contextmanager
    def _parts(
        self, each: int, sharing: ir.Value
    ) -> Iterator[tuple[ir.Value, ir.Value]]:
        """A step that so many threads share, of which each has some parts; a thread
        begins when the step before is over. Yields a part and how many there are."""
        b, frame = self.b, self.frame
        if self.layered.threads == 1:
            yield I64(0), I64(1)
            return
        if frame.before is not None:
            self._call_team("parts_wait", VOID, *frame.before)
        turn = self._turn()
        alone = b.icmp_signed("==", frame.turn, I64(0))
        parts = b.select(alone, I64(1), b.mul(sharing, I64(each)))
        with b.goto_block(frame.entry):
            whose = b.alloca(I64)
        b.store(frame.thread, whose)
        look, body, end = (b.append_basic_block(x) for x in ("look", "part", "over"))
        start = b.block
        b.branch(look)
        b.position_at_end(look)
        made = b.phi(I64, "made")
        made.add_incoming(I64(0), start)
        args = frame.thread, whose, sharing, I64(each), turn
        part = self._call_team("part_claim", I64, *args)
        b.cbranch(b.icmp_signed("<", part, I64(0)), end, body)
        b.position_at_end(body)
        yield part, parts
        made.add_incoming(b.add(made, I64(1)), b.block)
        b.branch(look)
        b.position_at_end(end)
        self._call_team("parts_done", VOID, made, turn)
        frame.before = parts, turn
        number = frame.number
        is_constant = isinstance(number, ir.Constant)
        after = I64(number.constant + 1) if is_constant else b.add(number, I64(1))
        frame.number = after

    def _active(self, g: Group) -> int:
        """Threads that share a group."""
        first = g.steps[0]
        piece = first.piece
        calls = g.rows > 0
        if isinstance(piece, Factoring):
            calls = not lanes_of(piece, self.host)
        if calls and first.plan is None and not blas.library().is_held:
            return 1
        parts = self._count(g)
        return max(1, min(self.layered.threads, parts, int(g.seconds / GRAIN_S)))

    def _count(self, g: Group) -> int:
        """Parts that threads can share."""
        first = g.steps[0].piece
        if isinstance(first, Contraction):
            panels = -(-first.sizes[0] // g.panel)
            return g.rows // first.sizes[0] * panels * g.columns
        if isinstance(first, Packing):
            return first.units(self.host)
        if isinstance(first, Factoring):
            return lapack_calls.units(first, self.host)
        if isinstance(first, Ordering):
            return first.rows
        if isinstance(first, Network):
            return sort_networks.units(first, self.host)
        return shape_of(first.nest, self.host).units

    def _group(self, g: Group, units: int = 0) -> None:
        b, count, active = self.b, self._count(g), self._active(g)
        fewer = b.icmp_signed("<", self.frame.threads, I64(active))
        sharing = b.select(fewer, self.frame.threads, I64(active))
        most = min(count // active, MOST_PARTS) if active > 1 else 1
        each = max(1, min(most, int(g.seconds / active / PART_S)))
        back = self.frame.back if units else None
        with self._parts(each, sharing) as (part, parts):
            if back is not None:
                part = sweep_direction.part_of(b, part, each, back, self.frame.turn)
            done = b.mul(part, I64(count))
            start = b.sdiv(done, parts)
            stop = b.sdiv(b.add(done, I64(count)), parts)
            self._share(g, (start, stop), units)
        if back is not None:
            self.frame.back = b.xor(back, I64(1))

    def _share(self, g: Group, span: tuple[ir.Value, ir.Value], units: int) -> None:
        first, (start, stop) = g.steps[0], span
        if isinstance(first.piece, Loops):
            nest = first.piece.nest
            pointers = [self._pointer(m) for m in first.memory]
            back = self.frame.back
            if not units or back is None:
                self._call(nest, pointers, start, stop)
                return
            run = partial(self._call, nest, pointers)
            sweep_direction.in_slices(self.b, units, span, back, run)
            return
        if isinstance(first.piece, Network):
            x, out = (self._pointer(m) for m in first.memory)
            sort_networks.emit(self.b, first.piece, self.host, x, out, start, stop)
            return
        if isinstance(first.piece, Ordering):
            pointers = [self._pointer(m) for m in first.memory]
            self.own.names.add(library_sorts.name_of(first.piece))
            library_sorts.emit(self.b, first.piece, pointers, start, stop)
            return
        with loop(self.b, start, stop, 1) as part:
            if isinstance(first.piece, Packing):
                y, panels = (self._pointer(m) for m in first.memory)
                of = first.piece
                self.own.pack(of.product, of.panels, part, y, panels)
            elif isinstance(first.piece, Factoring):
                pointers = [self._pointer(m) for m in first.memory]
                lanes = lanes_of(first.piece, self.host)
                write = self.lane_factors.matrices if lanes else self.factors.matrix
                write(first.piece, pointers, part, self._own_scratch())
            else:
                self._panel_of(g, part)

    def _panel_of(self, g: Group, part: ir.Value) -> None:
        """All steps of a group for one panel of rows."""
        b, product = self.b, g.steps[0].piece
        assert isinstance(product, Contraction)
        m = product.sizes[0]
        panels = -(-m // g.panel)
        part, column = b.sdiv(part, I64(g.columns)), b.srem(part, I64(g.columns))
        batch, first = b.sdiv(part, I64(panels)), b.srem(part, I64(panels))
        first = b.mul(first, I64(g.panel))
        count: ir.Value = I64(g.panel)
        if m % g.panel:
            rest = b.sub(I64(m), first)
            count = b.select(b.icmp_signed("<", rest, count), rest, count)
        row = b.add(b.mul(batch, I64(m)), first)
        known = self._private(g, row)
        where = ThreadPart(batch, first, count, column, g.columns)
        wanted: tuple[ir.Value, ...] = ()
        if isinstance(product, Convolution) and len(g.steps) > 1:
            assert g.steps[0].plan is not None
            wanted = self.own.places(product, g.steps[0].plan, where)
        parts = dict[int, ThreadPart]()
        if g.reach is not None:
            of = self._pointer(g.reach.memory), self._pointer(g.reach.values)
            reach = self.own.reach(g.reach, of, batch, row, count)
            wanted = I64(0), reach
            parts = {0: replace(where, width=reach), 2: replace(where, inner=reach)}
        for i, s in enumerate(g.steps):
            pointers = [known.get(x) or self._pointer(x) for x in s.memory]
            if isinstance(s.piece, Loops):
                nest = s.piece.nest
                units = shape_of(nest, self.host).units // g.rows
                start = b.mul(row, I64(units))
                stop = b.mul(b.add(row, count), I64(units))
                ranges = wanted if nest.ranged else ()
                self._call(nest, pointers, start, stop, *ranges)
            elif s.plan is not None:
                scratch = self._own_scratch()
                part_of = parts.get(i, where)
                self.own.part(s.piece, s.plan, pointers, part_of, scratch)
            elif isinstance(s.piece, Product):
                self.blas.product(s.piece, pointers, batch, first, count)

    def _private(self, g: Group, row: ir.Value) -> dict[MemoryRef, ir.Value]:
        """A panel in this thread's memory, as the place where row 0 would lie."""
        known = {}
        byte = self.thread_bytes
        own = self._own_scratch()
        for m, size in g.private:
            byte -= aligned(g.panel * size)
            start = self.own.moved(own, byte)
            known[m] = self.own.moved(start, self.b.neg(self.b.mul(row, I64(size))))
        return known

    def _call(
        self, nest: Nest, pointers: Sequence[ir.Value], *ranges: ir.Value
    ) -> None:
        function = self.functions.get(nest)
        if function is None:
            name = f"kernel{len(self.functions)}"
            function = emit_nest(self.module, nest, name, self.host)
            function.linkage = "internal"
            self.functions[nest] = function
        self.b.call(function, [*pointers, self._own_scratch(), *ranges])
