"""Whole programs as one native function that threads run together.

``void program(ptr buffers, i64 thread, i64 threads, ptr barrier)``: each thread runs
its share of every kernel, and waits for the others before the next one. A product and
what follows it row by row run as panels of rows that stay in cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from llvmlite import ir

from eqsat.kernel import Kernel, packed
from eqsat.program import Program
from eqsat.term import Term

from ..kernels.affine import Unsupported
from ..kernels.language import Load, Nest, Store
from ..kernels.lower import Loops, Operand, Piece, Pieces, Product, copy_of, pieces_of
from ..kernels.schedule import WEIGHTS, Target
from . import blas
from .access import PTR, VOID
from .elementwise import I64
from .machine import Host
from .panels import emit_nest
from .places import Memory, Place, Places, aligned
from .shape import check, shape_of

GRAIN_S = 4e-6
"""Work that is worth another thread (s)."""
BYTES_PER_S = 2e10
LANES_PER_S = 2e9
FLOPS_PER_S = 8e10
"""Rough figures of one core: memory, vectors of simple operations, and products."""
TEMPORARY = -2
"""The buffer number of memory between the pieces of a kernel."""
STREAMED_BYTES = 1 << 24
"""Results from which on caches are left to what is read: half of a large L3."""
PANEL_ROWS = 192
"""Rows of a product that are multiplied at once, and stay in cache for what follows."""


@dataclass(frozen=True)
class Step:
    """A nest with the memory of its buffers, and how far its kernel's pieces go."""

    piece: Piece
    memory: tuple[Memory, ...]
    seconds: float


@dataclass(frozen=True)
class Group:
    """Steps that run together, in parts of ``panel`` rows of the first one, a product;
    or a single nest, where there are no rows."""

    steps: tuple[Step, ...]
    rows: int = 0
    panel: int = 0
    private: tuple[tuple[Memory, int], ...] = ()
    """Memory that only this group uses, with the bytes of one row."""

    @property
    def seconds(self) -> float:
        return sum(s.seconds for s in self.steps)


def seconds_of(piece: Piece, host: Host) -> float:
    """About how long one thread takes (s)."""
    if isinstance(piece, Product):
        return blas.flops(piece) / FLOPS_PER_S
    nest = piece.nest
    lanes = shape_of(nest, host).lanes
    total = 0.0
    for p in nest.passes:
        n = nest.rows * prod(v.size for v in p.loops)
        work = sum(WEIGHTS.get(getattr(s, "op", ""), 1) for s in p.body)
        moved = sum(
            nest.buffers[s.buffer].dtype.itemsize
            for s in p.body
            if isinstance(s, (Load, Store))
        )
        total += n * max(work / (lanes * LANES_PER_S), moved / BYTES_PER_S / 2)
    return total


class Layered:
    """The steps of a program before they are code."""

    def __init__(
        self,
        program: Program,
        places: Places,
        host: Host,
        threads: int,
        exact: bool = False,
    ) -> None:
        self.places, self.host, self.threads = places, host, threads
        self.target = Target(threads, exact)
        self.parts: list[Group | Kernel] = []
        """Groups, and kernels that only Python runs."""
        self.reasons: dict[Kernel, str] = {}
        """Why Python runs these."""
        self.temporaries: list[int] = []
        """Bytes of memory between the pieces of kernels."""
        for kernel in program.kernels:
            if not any(r.size for r in kernel.results):
                continue
            try:
                self.parts += self._kernel(kernel)
            except Unsupported as why:
                self.reasons[kernel] = str(why)
                self.parts.append(kernel)
        for i in sorted(places.copied):
            self.parts += self._copy(program, i)

    def _kernel(self, kernel: Kernel) -> list[Group]:
        if "numpy" in kernel.op.lowerings:
            raise Unsupported(f"{kernel.op.name} has a lowering of its own for numpy")
        layouts = {t: self.places.of[t].layout for t in kernel.inputs}
        pieces = pieces_of(kernel, self.target, layouts)
        for p in pieces.pieces:
            if isinstance(p, Loops):
                check(p.nest)
        memory = self._memory(kernel, pieces)
        steps = []
        for p in pieces.pieces:
            operands = p.operands if isinstance(p, Loops) else (p.x, p.y, p.out)
            where = tuple(memory(o) for o in operands)
            if isinstance(p, Loops):
                p = replace(p, nest=self._with_memory(p.nest, where))
            steps.append(Step(p, where, seconds_of(p, self.host)))
        return list(self._groups(steps))

    def _memory(self, kernel: Kernel, pieces: Pieces) -> Callable[[Operand], Memory]:
        tables: list[Memory] = []
        tables += [self.places.constant(t).memory for t in pieces.tables]
        first = len(self.temporaries)
        self.temporaries += [d.itemsize * n for d, n in pieces.temporaries]

        def where(o: Operand) -> Memory:
            if o.kind in ("array", "result"):
                term: Term = o.key if o.kind == "array" else kernel.results[o.key]
                place: Place = self.places.of[term]
                return place.memory
            if o.kind == "table":
                return tables[int(o.key)]
            return Memory(TEMPORARY, first + int(o.key))

        return where

    def _copy(self, program: Program, i: int) -> list[Group]:
        """A result that lies elsewhere, or in another order."""
        root = program.roots[i]
        if root.size == 0:
            return []
        out = Memory(self.places.first_output + i)
        source = self.places.of[root]
        loops = copy_of(root, source.layout, self.target)
        memory = tuple(
            source.memory if o.kind == "array" else out for o in loops.operands
        )
        return [Group((Step(loops, memory, seconds_of(loops, self.host)),))]

    def _with_memory(self, nest: Nest, memory: Sequence[Memory]) -> Nest:
        """The nest, told what lies where: buffers that are the same memory, and results
        that no cache holds until somebody reads them."""
        shared = _shared(nest, memory)
        outputs = range(self.places.first_output, self.places.first_constant)
        read = {s.buffer for s in nest.statements() if isinstance(s, Load)}
        streamed = frozenset(
            i
            for i, m in enumerate(memory)
            if m.buffer in outputs
            and i not in read | shared
            and self._output_bytes(m) >= STREAMED_BYTES
        )
        if not shared and not streamed:
            return nest
        return replace(nest, aliased=shared, streamed=streamed)

    def _output_bytes(self, m: Memory) -> int:
        roots = self.places.program.roots
        return roots[m.buffer - self.places.first_output].nbytes

    # -- panels ------------------------------------------------------------------------

    def _groups(self, steps: Sequence[Step]) -> Iterator[Group]:
        at = 0
        while at < len(steps):
            first = steps[at].piece
            end = at + 1
            if not isinstance(first, Product):
                yield Group((steps[at],))
            else:
                while end < len(steps) and self._follows(steps[at:end], steps[end]):
                    end += 1
                inside = steps[at:end]
                outside = {m for s in (*steps[:at], *steps[end:]) for m in s.memory}
                own = {m for s in inside for m in s.memory if m.buffer == TEMPORARY}
                rows = _rows(first)
                private = tuple(
                    (m, self.temporaries[m.byte] // rows)
                    for m in sorted(own - outside, key=lambda m: m.byte)
                )
                yield Group(tuple(inside), rows, self._panel(first), private)
            at = end

    def _panel(self, p: Product) -> int:
        m = p.sizes[0]
        share = -(-m // max(self.threads // max(prod(p.batch), 1), 1))
        parts = -(-share // PANEL_ROWS)
        return -(-share // parts)

    def _follows(self, before: Sequence[Step], step: Step) -> bool:
        """Whether ``step`` can run for the rows that those before it have computed."""
        product = before[0].piece
        assert isinstance(product, Product)
        made = {s.memory[-1]: s for s in before}
        made |= {
            m: s
            for s in before
            if isinstance(s.piece, Loops)
            for m, b in zip(s.memory, s.piece.nest.buffers, strict=True)
            if b.written
        }
        rows = _rows(product)
        piece = step.piece
        if isinstance(piece, Product):
            x, y, out = step.memory
            same = (piece.batch, piece.sizes[0]) == (product.batch, product.sizes[0])
            packed_x = piece.at[0].strides == _packed(piece, 0)
            return same and x in made and y not in made and out not in made and packed_x
        shape = shape_of(piece.nest, self.host)
        if piece.nest.vertical or piece.nest.chunk is not None or shape.units % rows:
            return False
        return all(
            _is_row_by_row(piece.nest, i, rows)
            for i, m in enumerate(step.memory)
            if m in made or piece.nest.buffers[i].written
        )


def _rows(piece: Piece) -> int:
    """Rows of a product, of all its batch."""
    return prod(piece.batch) * piece.sizes[0] if isinstance(piece, Product) else 0


def _packed(p: Product, which: int) -> tuple[int, ...]:
    m, n, k = p.sizes
    shape = (*p.batch, *((m, k), (k, n), (m, n))[which])
    return packed(shape)


def _is_row_by_row(nest: Nest, buffer: int, rows: int) -> bool:
    """Whether parts of the grid touch the parts of a buffer in the same order."""
    order = (*nest.grid, *max((p.loops for p in nest.passes), key=len))
    for s in nest.statements():
        if not isinstance(s, (Load, Store)) or s.buffer != buffer:
            continue
        if not set(s.at.variables) <= set(order):
            return False
        if prod(v.size for v in nest.grid) % rows or s.at.offset:
            return False
        unit = 1
        for v in reversed([v for v in order if v in s.at.variables]):
            if s.at.coefficient(v) != unit:
                return False
            unit *= v.size
        lead = 1
        for v in nest.grid:
            if lead == rows:
                break
            if v not in s.at.variables:
                return False
            lead *= v.size
        if lead != rows:
            return False
    return True


def _shared(nest: Nest, memory: Sequence[Memory]) -> frozenset[int]:
    """Buffers of which some are written that are the same memory as others."""
    written = {m for m, b in zip(memory, nest.buffers, strict=True) if b.written}
    return frozenset(
        i
        for i, m in enumerate(memory)
        if m in written and sum(m == other for other in memory) > 1
    )


# -- code ------------------------------------------------------------------------------


class Writer:
    """The LLVM module of a program."""

    def __init__(self, parts: Sequence[Group], layered: Layered, name: str) -> None:
        self.layered, self.host, self.places = layered, layered.host, layered.places
        self.module = ir.Module(name)
        self.module.triple = self.host.triple
        self.functions: dict[Nest, ir.Function] = {}
        self.parts = parts
        self.has_products = any(
            isinstance(s.piece, Product) for g in parts for s in g.steps
        )
        self.thread_bytes = self._thread_bytes()
        self.homes = self._homes()
        self.scratch_bytes = self.places.scratch_bytes
        self.thread_start = aligned(self.scratch_bytes)
        self.arena_bytes = self.thread_start + self.thread_bytes * layered.threads
        self.function = ir.Function(
            self.module, ir.FunctionType(VOID, [PTR, I64, I64, PTR]), name
        )
        self.buffers, self.thread, self.threads, self.barrier = self.function.args
        self.entry = self.function.append_basic_block("entry")
        self.b = ir.IRBuilder(self.entry)
        self.pointers: dict[int, ir.Value] = {}
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
        return self.has_products and blas.library().is_held

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
            panels = sum(aligned(g.panel * size) for _, size in g.private)
            most = max(most, aligned(keeps) + panels)
        return most

    def _homes(self) -> dict[Memory, Memory]:
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
        """Pointer ``number`` of the program; -1 is that of scratch memory."""
        if number < 0:
            number = self.places.first_constant + len(self.places.constants)
        found = self.pointers.get(number)
        if found is None:
            with self.b.goto_entry_block():
                at = self.b.gep(self.buffers, [I64(number)], source_etype=PTR)
                found = self.pointers[number] = self.b.load(at, typ=PTR)
        return found

    def _pointer(self, m: Memory) -> ir.Value:
        m = self.homes.get(m, m)
        return self._moved(self._block(m.buffer), m.byte)

    def _moved(self, pointer: ir.Value, by: ir.Value | int) -> ir.Value:
        if by == 0:
            return pointer
        count = I64(by) if isinstance(by, int) else by
        return self.b.gep(pointer, [count], source_etype=ir.IntType(8))

    def _own_scratch(self) -> ir.Value:
        """Scratch memory of this thread."""
        if not self.thread_bytes:
            return ir.Constant(PTR, None)
        mine = self.b.mul(self.thread, I64(self.thread_bytes))
        start = self.b.add(mine, I64(self.thread_start))
        return self._moved(self._block(-1), start)

    # -- parts -------------------------------------------------------------------------

    def _program(self) -> None:
        b = self.b
        body = self.function.append_basic_block("body")
        b.branch(body)
        b.position_at_end(body)
        if self._is_held:
            self._hold(1)
            self._wait()
        for i, g in enumerate(self.parts):
            if i:
                self._wait()
            self._group(g)
        if self._is_held:
            self._wait()
            self._hold(-1)
        b.ret_void()

    def _hold(self, by: int) -> None:
        count = self.module.globals.get("blas_count")
        if count is None:
            count = ir.Function(self.module, ir.FunctionType(VOID, [I64]), "blas_count")
        with self.b.if_then(self.b.icmp_signed("==", self.thread, I64(0))):
            self.b.call(count, [I64(by)])

    def _wait(self) -> None:
        """Until all threads are here."""
        if self.layered.threads == 1:
            return
        wait = self.module.globals.get("barrier_wait")
        if wait is None:
            kind = ir.FunctionType(VOID, [PTR, I64, I64])
            wait = ir.Function(self.module, kind, "barrier_wait")
        with self.b.if_then(self.b.icmp_signed(">", self.threads, I64(1))):
            self.b.call(wait, [self.barrier, self.thread, self.threads])

    def _active(self, g: Group) -> int:
        """Threads that share a group."""
        if g.rows and not blas.library().is_held:
            return 1
        parts = self._count(g)
        return max(1, min(self.layered.threads, parts, int(g.seconds / GRAIN_S)))

    def _count(self, g: Group) -> int:
        """Parts that threads can share."""
        first = g.steps[0].piece
        if isinstance(first, Product):
            return g.rows // first.sizes[0] * -(-first.sizes[0] // g.panel)
        return shape_of(first.nest, self.host).units

    def _group(self, g: Group) -> None:
        b, count, active = self.b, self._count(g), self._active(g)
        if active == 1:
            with b.if_then(b.icmp_signed("==", self.thread, I64(0))):
                self._share(g, I64(0), I64(count))
            return
        sharing: ir.Value = self.threads
        if active < self.layered.threads:
            fewer = b.icmp_signed("<", self.threads, I64(active))
            sharing = b.select(fewer, self.threads, I64(active))
        with b.if_then(b.icmp_signed("<", self.thread, sharing)):
            done = b.mul(self.thread, I64(count))
            start = b.sdiv(done, sharing)
            stop = b.sdiv(b.add(done, I64(count)), sharing)
            self._share(g, start, stop)

    def _share(self, g: Group, start: ir.Value, stop: ir.Value) -> None:
        first = g.steps[0]
        if isinstance(first.piece, Loops):
            pointers = [self._pointer(m) for m in first.memory]
            self._call(first.piece.nest, pointers, start, stop)
            return
        with loop(self.b, start, stop) as part:
            self._panel_of(g, part)

    def _panel_of(self, g: Group, part: ir.Value) -> None:
        """All steps of a group for one panel of rows."""
        b, product = self.b, g.steps[0].piece
        assert isinstance(product, Product)
        m = product.sizes[0]
        panels = -(-m // g.panel)
        batch, first = b.sdiv(part, I64(panels)), b.srem(part, I64(panels))
        first = b.mul(first, I64(g.panel))
        count: ir.Value = I64(g.panel)
        if m % g.panel:
            rest = b.sub(I64(m), first)
            count = b.select(b.icmp_signed("<", rest, count), rest, count)
        row = b.add(b.mul(batch, I64(m)), first)
        known = self._private(g, row)
        for s in g.steps:
            pointers = [known.get(x) or self._pointer(x) for x in s.memory]
            if isinstance(s.piece, Product):
                self._product(s.piece, pointers, batch, first, count)
            else:
                units = shape_of(s.piece.nest, self.host).units // g.rows
                start = b.mul(row, I64(units))
                stop = b.mul(b.add(row, count), I64(units))
                self._call(s.piece.nest, pointers, start, stop)

    def _private(self, g: Group, row: ir.Value) -> dict[Memory, ir.Value]:
        """A panel in this thread's memory, as the place where row 0 would lie."""
        known = {}
        byte = self.thread_bytes
        own = self._own_scratch()
        for m, size in g.private:
            byte -= aligned(g.panel * size)
            start = self._moved(own, byte)
            known[m] = self._moved(start, self.b.neg(self.b.mul(row, I64(size))))
        return known

    def _call(
        self, nest: Nest, pointers: Sequence[ir.Value], start: ir.Value, stop: ir.Value
    ) -> None:
        function = self.functions.get(nest)
        if function is None:
            name = f"kernel{len(self.functions)}"
            function = emit_nest(self.module, nest, name, self.host)
            function.linkage = "internal"
            self.functions[nest] = function
        self.b.call(function, [*pointers, self._own_scratch(), start, stop])

    # -- products ----------------------------------------------------------------------

    def _product(
        self,
        p: Product,
        pointers: Sequence[ir.Value],
        batch: ir.Value,
        first: ir.Value,
        count: ir.Value,
    ) -> None:
        """Rows ``first`` on of one product. BLAS counts by columns, so that the
        operands change places."""
        m, n, k = p.sizes
        x, y, out = pointers
        of_x, of_y = blas.matrix(p.at[0], m, k), blas.matrix(p.at[1], k, n)
        size = p.dtype.itemsize
        x = self._element(p, 0, x, batch, first, size)
        y = self._element(p, 1, y, batch, None, size)
        out = self._element(p, 2, out, batch, first, size)
        number = "double" if size == 8 else "float"
        lead = p.at[2].strides[-2] if m > 1 else n
        args = [
            self._constant("T" if of_y.is_transposed else "N"),
            self._constant("T" if of_x.is_transposed else "N"),
            self._constant(n),
            self._variable(count),
            self._constant(k),
            self._constant(1.0, number),
            y,
            self._constant(of_y.leading),
            x,
            self._constant(of_x.leading),
            self._constant(0.0, number),
            out,
            self._constant(max(lead, n)),
        ]
        name = blas.NAMES[p.dtype.name]
        gemm = self.module.globals.get(name)
        if gemm is None:
            gemm = ir.Function(
                self.module, ir.FunctionType(VOID, [PTR] * len(args)), name
            )
        self.b.call(gemm, args)

    def _element(
        self,
        p: Product,
        which: int,
        pointer: ir.Value,
        batch: ir.Value,
        first: ir.Value | None,
        size: int,
    ) -> ir.Value:
        """The first element of a matrix, or of a row of it."""
        b = self.b
        layout = p.at[which]
        at: ir.Value = I64(layout.offset)
        rest = batch
        for n, stride in zip(p.batch[::-1], layout.strides[-3::-1], strict=True):
            at = b.add(at, b.mul(b.srem(rest, I64(n)), I64(stride)))
            rest = b.sdiv(rest, I64(n))
        if first is not None:
            at = b.add(at, b.mul(first, I64(layout.strides[-2])))
        return self._moved(pointer, b.mul(at, I64(size)))

    def _constant(self, value: float | str, kind: str = "") -> ir.Value:
        """A pointer to a number or letter."""
        element: Any
        if isinstance(value, str):
            element, value = ir.IntType(8), ord(value)
        elif kind:
            element = ir.DoubleType() if kind == "double" else ir.FloatType()
        else:
            element = ir.IntType(blas.library().integer_bits)
        name = f"number.{element}.{value}"
        found = self.module.globals.get(name)
        if found is None:
            found = ir.GlobalVariable(self.module, element, name)
            found.linkage, found.global_constant = "internal", True
            found.initializer = ir.Constant(element, value)
        return found

    def _variable(self, value: ir.Value) -> ir.Value:
        """A pointer to a value."""
        kind = ir.IntType(blas.library().integer_bits)
        with self.b.goto_entry_block():
            place = self.b.alloca(kind)
        if kind.width < 64:
            value = self.b.trunc(value, kind)
        self.b.store(value, place)
        return place


@contextmanager
def loop(b: ir.IRBuilder, start: ir.Value, stop: ir.Value) -> Iterator[ir.Value]:
    """``for i = start; i < stop; i += 1``."""
    head, body, done = (b.append_basic_block(n) for n in ("head", "body", "done"))
    before = b.block
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(I64)
    i.add_incoming(start, before)
    b.cbranch(b.icmp_signed("<", i, stop), body, done)
    b.position_at_end(body)
    yield i
    i.add_incoming(b.add(i, I64(1)), b.block)
    b.branch(head)
    b.position_at_end(done)
