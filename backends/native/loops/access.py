"""Elements of memory as LLVM values: addresses, vectors, gathers, kept values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from operator import mul

from llvmlite import ir

from ...loop_ir import FAR, Affine, DType, Gather, Load, LoopVar, Nest, Statement, Store
from ..machine import (
    I8,
    I32,
    I64,
    Host,
    aligned,
    from_memory,
    least,
    memory_type,
    splat,
    to_memory,
    widened,
)
from ..math import declared
from .accumulators import Cell
from .vector_shape import shape_of

PTR = ir.PointerType()
MOST_READS = 16
"""Vectors of memory that are read for one vector of elements that lie apart in it."""


@dataclass
class Strand:
    """One vector of the several that a step computes."""

    lanes: int
    offset: int
    """Of its first lane, in turns of the variable that lanes run along."""
    cells: tuple[tuple[int, ...], ...] = ()
    """What the variables of a stretch are in each lane, where lanes run on from row to
    row."""
    values: dict[int, ir.Value] = field(default_factory=dict)
    """Of the elements of this step."""
    row: dict[int, ir.Value] = field(default_factory=dict)
    """Of its rows, where rows are what lies side by side."""
    carries: dict[int, Cell] = field(default_factory=dict)
    """Running results so far."""
    waiting: dict[Store, ir.Value] = field(default_factory=dict)
    """What is stored together with others that lie between."""


@contextmanager
def loop(
    b: ir.IRBuilder, start: ir.Value, stop: ir.Value, step: int
) -> Iterator[ir.Value]:
    """``for i = start; i < stop; i += step``."""
    head, body, done = (b.append_basic_block(n) for n in ("head", "body", "done"))
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


class Access:
    """Writes loads and stores of a nest, whose buffers are the first arguments of
    ``function``; subclasses write its loops."""

    def __init__(self, function: ir.Function, nest: Nest, host: Host) -> None:
        self.function, self.nest, self.host = function, nest, host
        self.shape = shape_of(nest, host)
        count = len(nest.buffers)
        self.buffers, self.given = function.args[:count], function.args[count:]
        self.keep: ir.Value = None
        """Memory of a row, for what its passes keep."""
        self.entry = function.append_basic_block("entry")
        self.b = ir.IRBuilder(self.entry)
        self.index: dict[LoopVar, ir.Value] = {}
        self.lane: LoopVar | None = None
        """The variable that lanes run along."""
        self.ahead: tuple[LoopVar, ...] = ()
        """The variables of a stretch, where lanes run on from row to row."""
        self.inner: LoopVar | None = None
        """That of the innermost loop, inside of it."""
        self.beside = {s: g for p in nest.passes for g in beside(p.body) for s in g}
        """Stores of a body that fill each other's gaps, in order."""
        self.bases: dict[tuple[int, Affine], ir.Value] = {}
        """Addresses that the innermost loop does not change."""

    def _position(self, at: Affine, strand: Strand) -> ir.Value:
        start = self._sum(at)
        first, *rest = shifts = self._shifts(at, strand)
        if all(n == first for n in rest):
            start = self.b.add(start, I64(first)) if first else start
            return splat(self.b, start, strand.lanes)
        return self.b.add(
            splat(self.b, start, strand.lanes),
            ir.Constant(ir.VectorType(I64, strand.lanes), [I64(n) for n in shifts]),
        )

    def _along(self, at: Affine) -> int:
        """What the next element of a row adds to an index."""
        return 0 if self.lane is None else at.coefficient(self.lane)

    def _shifts(self, at: Affine, strand: Strand) -> list[int]:
        """What each lane adds to an index."""
        along = self._along(at)
        if strand.cells:
            steps = [at.coefficient(v) for v in self.ahead]
            return [sum(map(mul, steps, cell)) for cell in strand.cells]
        return [(strand.offset + i) * along for i in range(strand.lanes)]

    def _sum(self, at: Affine) -> ir.Value:
        total: ir.Value = I64(at.offset)
        for v, c in at.terms:
            i = self.index[v]
            total = self.b.add(total, self.b.mul(i, I64(c)) if c != 1 else i)
        return total

    # -- counts ------------------------------------------------------------------------

    def _divided(self, i: ir.Value, by: int) -> tuple[ir.Value, ir.Value]:
        return self.b.udiv(i, I64(by)), self.b.urem(i, I64(by))

    def _whole(self, low: ir.Value, high: ir.Value, step: int) -> ir.Value:
        """The end of the steps that fit between ``low`` and ``high``."""
        if isinstance(low, ir.Constant) and isinstance(high, ir.Constant):
            return I64(low.constant + (high.constant - low.constant) // step * step)
        b = self.b
        turns = b.sdiv(b.sub(high, low), I64(step))
        return b.add(low, b.mul(turns, I64(step)))

    def _part(self, i: ir.Value, size: int, end: int) -> tuple[ir.Value, ir.Value]:
        b = self.b
        low = b.mul(i, I64(size))
        high = b.add(low, I64(size))
        if end % size == 0 and self.nest.chunk is None:
            return low, high
        return least(b, low, end), least(b, high, end)

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
        inner = [v for v in at.variables if v in (self.lane, self.inner, *self.ahead)]
        outer = without(at, *inner)
        kind = memory_type(self.nest.buffers[buffer].dtype)
        base = self.bases.get((buffer, outer))
        if base is None:
            base = self.b.gep(
                self.buffers[buffer], [self._sum(outer)], source_etype=kind
            )
        moved = self._sum(Affine(0, tuple(t for t in at.terms if t[0] in inner)))
        pointer = base
        if not isinstance(moved, ir.Constant) or moved.constant:
            pointer = self.b.gep(base, [moved], source_etype=kind)
        # A constant of its own: strands share the rest, which LLVM would take apart
        # at length for each of them otherwise.
        shift = self._shifts(at, strand)[lane]
        return (
            self.b.gep(pointer, [I64(shift)], source_etype=kind) if shift else pointer
        )

    def _load(self, s: Load, strand: Strand) -> ir.Value:
        dtype = self.nest.buffers[s.buffer].dtype
        first, *rest = shifts = self._shifts(s.at, strand)
        if all(n == first for n in rest):
            value = self._read_at(self._pointer(s.buffer, s.at, strand), dtype, 1)
            return splat(self.b, value, strand.lanes)
        if is_in_order(shifts):
            return self._read_at(
                self._pointer(s.buffer, s.at, strand), dtype, strand.lanes
            )
        if max(shifts) - min(shifts) < strand.lanes * MOST_READS:
            return self._picked(s, strand, shifts)
        places = [self._pointer(s.buffer, s.at, strand, i) for i in range(strand.lanes)]
        return self._collected(places, dtype)

    def _picked(self, s: Load, strand: Strand, shifts: Sequence[int]) -> ir.Value:
        """Elements that lie near each other: what lies between the first and the last
        of them is read, a vector at a time, and the wanted ones are picked."""
        dtype = self.nest.buffers[s.buffer].dtype
        b, lanes, low = self.b, strand.lanes, min(shifts)
        start = self._pointer(s.buffer, s.at, strand, shifts.index(low))
        size = max(shifts) - low + 1
        width = min(lanes, size)
        kind = memory_type(dtype)
        found: ir.Value = None
        for part in range(-(-size // width)):
            first = min(part * width, size - width)  # nothing past the last one is read
            place = b.gep(start, [I64(first)], source_etype=kind)
            read = b.load(place, typ=widened(kind, width), align=dtype.itemsize)
            of = [(n - low) // width for n in shifts]
            inside = [n - low - first for n in shifts]
            if found is None:
                mask = [j if p == part else 0 for j, p in zip(inside, of, strict=True)]
                found = self._shuffled(read, read, mask)
            elif part in of:
                mask = [
                    lanes + j if p == part else i
                    for i, (j, p) in enumerate(zip(inside, of, strict=True))
                ]
                found = self._shuffled(found, read, mask)
        return from_memory(b, found, dtype, self.host)

    def _shuffled(self, x: ir.Value, y: ir.Value, mask: Sequence[int]) -> ir.Value:
        places = ir.Constant(ir.VectorType(I32, len(mask)), [I32(i) for i in mask])
        return self.b.shuffle_vector(x, y, places)

    def _gather(self, s: Gather, by: ir.Value, strand: Strand) -> ir.Value:
        """``by`` is one number for all lanes, or one for each."""
        dtype = self.nest.buffers[s.buffer].dtype
        kind = memory_type(dtype)
        lanes, shifts = strand.lanes, self._shifts(s.at, strand)
        moves = any(n != shifts[0] for n in shifts)
        if isinstance(by.type, ir.VectorType):
            if self._is_gathered(by.type, dtype) and max(map(abs, shifts)) < FAR:
                return self._gathered(s, by, strand)
            counts = [self.b.extract_element(by, I32(i)) for i in range(lanes)]
        else:
            counts = [by] * (lanes if moves and not is_in_order(shifts) else 1)
        places = [
            self.b.gep(self._pointer(s.buffer, s.at, strand, i), [n], source_etype=kind)
            for i, n in enumerate(counts)
        ]
        if len(places) > 1:
            return self._collected(places, dtype)
        value = self._read_at(places[0], dtype, lanes if moves else 1)
        return splat(self.b, value, lanes)

    def _is_gathered(self, by: ir.VectorType, dtype: DType) -> bool:
        """Whether one instruction reads as many elements at such indices."""
        size, wide = dtype.itemsize, max(dtype.itemsize, by.element.width // 8)
        return self.host.has_gathers and size in (4, 8) and by.count * wide == 64

    def _gathered(self, s: Gather, by: ir.Value, strand: Strand) -> ir.Value:
        """A vector of elements by one instruction."""
        dtype = self.nest.buffers[s.buffer].dtype
        b, lanes, kind = self.b, strand.lanes, memory_type(dtype)
        shifts = self._shifts(s.at, strand)
        if any(n != shifts[0] for n in shifts):
            by = b.add(by, ir.Constant(by.type, [n - shifts[0] for n in shifts]))
        index = "q" if by.type.element.width == 64 else "d"
        letters = "sd" if dtype.kind == "f" else "iq"
        element = f"p{letters[dtype.itemsize == 8]}"
        name = f"llvm.x86.avx512.mask.gather.{index}{element}.512"
        wide = widened(kind, lanes)
        mask = ir.VectorType(ir.IntType(1), lanes)
        call = declared(b, name, [wide, PTR, by.type, mask, I32], wide)
        place = self._pointer(s.buffer, s.at, strand)
        every = ir.Constant(mask, [1] * lanes)
        given = [ir.Constant(wide, ir.Undefined), place, by, every, I32(dtype.itemsize)]
        return from_memory(b, b.call(call, given), dtype, self.host)

    def _collected(self, places: Sequence[ir.Value], dtype: DType) -> ir.Value:
        """The elements at ``places`` as one vector."""
        kind = memory_type(dtype)
        found: ir.Value = ir.Constant(ir.VectorType(kind, len(places)), ir.Undefined)
        for lane, p in enumerate(places):
            one = self.b.load(p, typ=kind, align=dtype.itemsize)
            found = self.b.insert_element(found, one, I32(lane))
        return from_memory(self.b, found, dtype, self.host)

    def _store(self, s: Store, value: ir.Value, strand: Strand) -> None:
        dtype = self.nest.buffers[s.buffer].dtype
        if is_in_order(self._shifts(s.at, strand)):
            stored = self._write(self._pointer(s.buffer, s.at, strand), value, dtype)
            if s.buffer in self.nest.streamed and self._is_aligned(s, strand.lanes):
                stored.align = dtype.itemsize * strand.lanes
                stored.set_metadata("nontemporal", self._flag())
            return
        bits = to_memory(self.b, value, dtype, self.host)
        if self._is_woven(s, strand):
            strand.waiting[s] = bits
            if strand.waiting.keys() >= set(self.beside[s]):
                self._weave(self.beside[s], strand)
            return
        for lane in range(strand.lanes):
            p = self._pointer(s.buffer, s.at, strand, lane)
            one = self.b.extract_element(bits, I32(lane))
            self.b.store(one, p, align=dtype.itemsize)

    def _is_woven(self, s: Store, strand: Strand) -> bool:
        """Whether vectors of several stores make up whole vectors of memory."""
        if s not in self.beside or s.buffer in self.nest.aliased:
            return False
        shifts = self._shifts(s.at, strand)
        return all(b - a == len(self.beside[s]) for a, b in pairwise(shifts))

    def _weave(self, stores: Sequence[Store], strand: Strand) -> None:
        """Write elements of several vectors in turn."""
        parts, lanes = [strand.waiting.pop(s) for s in stores], strand.lanes
        count, first = len(parts), stores[0]
        start = self._pointer(first.buffer, first.at, strand)
        dtype = self.nest.buffers[first.buffer].dtype
        for n in range(count):
            cells = [divmod(n * lanes + i, count) for i in range(lanes)]
            found = parts[0]
            for k, part in enumerate(parts):
                mask = [
                    lanes + at if of == k else (at if k == 0 else i)
                    for i, (at, of) in enumerate(cells)
                ]
                found = self._shuffled(found, part, mask)
            kind = memory_type(dtype)
            place = self.b.gep(start, [I64(n * lanes)], source_etype=kind)
            self.b.store(found, place, align=dtype.itemsize)

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
        return self.b.module.add_metadata([I32(1)])

    # -- what passes keep --------------------------------------------------------------

    def _kept(self, place: int) -> DType:
        return self.nest.keeps[place][0]

    def _place_of(self, place: int, strand: Strand) -> ir.Value:
        """Where the current element of a kept value lies."""
        width = 1
        if self.nest.vertical:
            width = self.shape.lanes * self.shape.unroll
        before = sum(
            aligned(d.itemsize * n * width) for d, n in self.nest.keeps[:place]
        )
        loops = next(p.loops for p in self.nest.passes if p.body)
        at = Affine()
        for i, v in enumerate(loops):
            at += Affine.of(v).times(prod(w.size for w in loops[i + 1 :]))
        element = self.b.mul(self._sum(at), I64(width))
        element = self.b.add(element, I64(strand.offset))
        start = self.b.gep(self.keep, [I64(before)], source_etype=I8)
        return self.b.gep(start, [element], source_etype=memory_type(self._kept(place)))

    def _fence(self) -> None:
        """Stores past the caches become visible before what follows."""
        self.b.call(declared(self.b, "llvm.x86.sse.sfence", []), [])


def is_in_order(shifts: Sequence[int]) -> bool:
    """Whether lanes lie one after the other."""
    return all(b - a == 1 for a, b in pairwise(shifts))


def beside(body: Sequence[Statement]) -> list[list[Store]]:
    """Stores that write neighbouring elements of one buffer."""
    found: dict[tuple[int, tuple[tuple[LoopVar, int], ...]], list[Store]] = {}
    for s in body:
        if type(s) is Store:
            found.setdefault((s.buffer, s.at.terms), []).append(s)
    groups = (sorted(g, key=lambda s: s.at.offset) for g in found.values())
    return [g for g in groups if len(g) > 1 and is_in_order([s.at.offset for s in g])]


def without(at: Affine, *variables: LoopVar | None) -> Affine:
    terms = tuple((v, c) for v, c in at.terms if v not in variables)
    return Affine(at.offset, terms)
