"""Elements of memory as LLVM values: vectors, gathers, stores of several together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from llvmlite import ir

from ...loop_ir import (
    FAR,
    DType,
    Gather,
    Load,
    LoopVar,
    Statement,
    Store,
)
from ..machine import (
    COMMON,
    I32,
    I64,
    from_memory,
    memory_type,
    splat,
    to_memory,
    widened,
)
from ..math import declared
from .addresses import Addresses, is_in_order
from .nest_code import PTR, Strand


class VectorMemory:
    """Writes loads and stores at ``addresses``."""

    def __init__(self, addresses: Addresses) -> None:
        self.addresses, self.code = addresses, addresses.code
        bodies = (p.body for p in self.code.nest.passes)
        groups = (g for body in bodies for g in neighbours(body))
        self.neighbours = {s: group for group in groups for s in group}
        """Stores of a body that fill each other's gaps, in order."""

    def read(self, place: ir.Value, dtype: DType, lanes: int) -> ir.Value:
        """Elements side by side."""
        b, kind = self.code.b, widened(memory_type(dtype), lanes)
        bits = b.load(place, typ=kind, align=dtype.alignment)
        return from_memory(b, bits, dtype, self.code.host)

    def write(
        self, place: ir.Value, value: ir.Value, dtype: DType
    ) -> ir.instructions.StoreInstr:
        """Store elements side by side."""
        bits = to_memory(self.code.b, value, dtype, self.code.host)
        return self.code.b.store(bits, place, align=dtype.alignment)

    def dtype(self, s: Load | Gather | Store) -> DType:
        """Of the elements that a statement reads or writes."""
        return self.code.nest.buffers[s.buffer].dtype

    # -- loads -------------------------------------------------------------------------

    def load(self, s: Load, strand: Strand) -> ir.Value:
        """The elements of all lanes."""
        dtype, lanes, pointer = self.dtype(s), strand.lanes, self.addresses.pointer
        first, *rest = shifts = self.addresses.shifts(s.at, strand)
        if all(n == first for n in rest):
            value = self.read(pointer(s.buffer, s.at, strand), dtype, 1)
            return splat(self.code.b, value, lanes)
        if is_in_order(shifts):
            return self.read(pointer(s.buffer, s.at, strand), dtype, lanes)
        if max(shifts) - min(shifts) < lanes * COMMON.most_reads:
            return self._picked(s, strand, shifts)
        places = [pointer(s.buffer, s.at, strand, i) for i in range(lanes)]
        return self._collected(places, dtype)

    def _picked(self, s: Load, strand: Strand, shifts: Sequence[int]) -> ir.Value:
        """Elements that lie near each other: what lies between the first and the last
        of them is read, a vector at a time, and the wanted ones are picked."""
        dtype, b = self.dtype(s), self.code.b
        lanes, low = strand.lanes, min(shifts)
        start = self.addresses.pointer(s.buffer, s.at, strand, shifts.index(low))
        size = max(shifts) - low + 1
        width = min(lanes, size)
        kind = memory_type(dtype)
        parts = sorted({(n - low) // width for n in shifts})
        of = [parts.index((n - low) // width) for n in shifts]
        # Nothing past the last one is read.
        starts = [min(part * width, size - width) for part in parts]
        inside = [n - low - starts[part] for n, part in zip(shifts, of, strict=True)]
        reads = []
        for first in starts:
            place = b.gep(start, [I64(first)], source_etype=kind)
            reads.append(b.load(place, typ=widened(kind, width), align=dtype.alignment))
        picks = [*zip(inside, of, strict=True)]
        mask = [lanes + j if part == 1 else j for j, part in picks]
        found = shuffled(b, reads[0], reads[min(1, len(reads) - 1)], mask)
        for k, read in enumerate(reads[2:], 2):
            mask = [lanes + j if part == k else i for i, (j, part) in enumerate(picks)]
            found = shuffled(b, found, read, mask)
        return from_memory(b, found, dtype, self.code.host)

    def gather(self, s: Gather, by: ir.Value, strand: Strand) -> ir.Value:
        """``by`` is one number for all lanes, or one for each."""
        dtype, b, pointer = self.dtype(s), self.code.b, self.addresses.pointer
        kind = memory_type(dtype)
        lanes, shifts = strand.lanes, self.addresses.shifts(s.at, strand)
        moves = any(n != shifts[0] for n in shifts)
        if isinstance(by.type, ir.VectorType):
            if self._is_gathered(by.type, dtype) and max(map(abs, shifts)) < FAR:
                return self._gathered(s, by, strand)
            counts = [b.extract_element(by, I32(i)) for i in range(lanes)]
        else:
            counts = [by] * (lanes if moves and not is_in_order(shifts) else 1)
        places = [
            b.gep(pointer(s.buffer, s.at, strand, i), [n], source_etype=kind)
            for i, n in enumerate(counts)
        ]
        if len(places) > 1:
            return self._collected(places, dtype)
        value = self.read(places[0], dtype, lanes if moves else 1)
        return splat(b, value, lanes)

    def _is_gathered(self, by: ir.VectorType, dtype: DType) -> bool:
        """Whether one instruction reads as many elements at such indices."""
        size, wide = dtype.itemsize, max(dtype.itemsize, by.element.width // 8)
        has_gathers = self.code.host.has_gathers
        return has_gathers and size in (4, 8) and by.count * wide == 64

    def _gathered(self, s: Gather, by: ir.Value, strand: Strand) -> ir.Value:
        """A vector of elements by one instruction."""
        dtype = self.dtype(s)
        b, lanes, kind = self.code.b, strand.lanes, memory_type(dtype)
        shifts = self.addresses.shifts(s.at, strand)
        if any(n != shifts[0] for n in shifts):
            by = b.add(by, ir.Constant(by.type, [n - shifts[0] for n in shifts]))
        index = "q" if by.type.element.width == 64 else "d"
        letters = "sd" if dtype.kind == "f" else "iq"
        element = f"p{letters[dtype.itemsize == 8]}"
        name = f"llvm.x86.avx512.mask.gather.{index}{element}.512"
        wide = widened(kind, lanes)
        mask = ir.VectorType(ir.IntType(1), lanes)
        call = declared(b, name, [wide, PTR, by.type, mask, I32], wide)
        place = self.addresses.pointer(s.buffer, s.at, strand)
        every = ir.Constant(mask, [1] * lanes)
        given = [ir.Constant(wide, ir.Undefined), place, by, every, I32(dtype.itemsize)]
        return from_memory(b, b.call(call, given), dtype, self.code.host)

    def _collected(self, places: Sequence[ir.Value], dtype: DType) -> ir.Value:
        """The elements at ``places`` as one vector."""
        b, kind = self.code.b, memory_type(dtype)
        found: ir.Value = ir.Constant(ir.VectorType(kind, len(places)), ir.Undefined)
        for lane, p in enumerate(places):
            one = b.load(p, typ=kind, align=dtype.alignment)
            found = b.insert_element(found, one, I32(lane))
        return from_memory(b, found, dtype, self.code.host)

    # -- stores ------------------------------------------------------------------------

    def store(self, s: Store, value: ir.Value, strand: Strand) -> None:
        """Write the elements of all lanes."""
        dtype, b, nest = self.dtype(s), self.code.b, self.code.nest
        pointer = self.addresses.pointer
        if is_in_order(self.addresses.shifts(s.at, strand)):
            stored = self.write(pointer(s.buffer, s.at, strand), value, dtype)
            if s.buffer in nest.streamed and self._is_aligned(s, strand.lanes):
                stored.align = dtype.itemsize * strand.lanes
                stored.set_metadata("nontemporal", b.module.add_metadata([I32(1)]))
            return
        bits = to_memory(b, value, dtype, self.code.host)
        if self._is_woven(s, strand):
            strand.waiting[s] = bits
            if strand.waiting.keys() >= set(self.neighbours[s]):
                self._weave(self.neighbours[s], strand)
            return
        for lane in range(strand.lanes):
            p = pointer(s.buffer, s.at, strand, lane)
            one = b.extract_element(bits, I32(lane))
            b.store(one, p, align=dtype.alignment)

    def _is_woven(self, s: Store, strand: Strand) -> bool:
        """Whether vectors of several stores make up whole vectors of memory."""
        if s not in self.neighbours or s.buffer in self.code.nest.aliased:
            return False
        shifts = self.addresses.shifts(s.at, strand)
        return all(b - a == len(self.neighbours[s]) for a, b in pairwise(shifts))

    def _weave(self, stores: Sequence[Store], strand: Strand) -> None:
        """Write elements of several vectors in turn."""
        parts, lanes = [strand.waiting.pop(s) for s in stores], strand.lanes
        b, count, first = self.code.b, len(parts), stores[0]
        start = self.addresses.pointer(first.buffer, first.at, strand)
        dtype = self.dtype(first)
        for n in range(count):
            cells = [divmod(n * lanes + i, count) for i in range(lanes)]
            found = parts[0]
            for k, part in enumerate(parts):
                mask = [
                    lanes + at if of == k else (at if k == 0 else i)
                    for i, (at, of) in enumerate(cells)
                ]
                found = shuffled(b, found, part, mask)
            kind = memory_type(dtype)
            place = b.gep(start, [I64(n * lanes)], source_etype=kind)
            b.store(found, place, align=dtype.alignment)

    def _is_aligned(self, s: Store, lanes: int) -> bool:
        """Whether each vector that a store writes is aligned to its size."""
        steps = [c for v, c in s.at.terms if v is not self.code.lane] + [s.at.offset]
        return lanes > 1 and all(c % lanes == 0 for c in steps)


def shuffled(
    b: ir.IRBuilder, x: ir.Value, y: ir.Value, mask: Sequence[int]
) -> ir.Value:
    """The lanes of two vectors that ``mask`` names."""
    places = ir.Constant(ir.VectorType(I32, len(mask)), [I32(i) for i in mask])
    return b.shuffle_vector(x, y, places)


def neighbours(body: Sequence[Statement]) -> list[list[Store]]:
    """Stores that write neighbouring elements of one buffer."""
    found: dict[tuple[int, tuple[tuple[LoopVar, int], ...]], list[Store]] = {}
    for s in body:
        if type(s) is Store:
            found.setdefault((s.buffer, s.at.terms), []).append(s)
    groups = (sorted(g, key=lambda s: s.at.offset) for g in found.values())
    return [g for g in groups if len(g) > 1 and is_in_order([s.at.offset for s in g])]
