"""Where elements of memory lie: indices, and addresses of buffers at them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from operator import mul

from llvmlite import ir

from ...loop_ir import (
    Affine,
    LoopVar,
)
from ..machine import I8, I64, aligned, memory_type, splat
from .nest_code import NestCode, Strand


class Addresses:
    """Writes addresses where ``code`` stands."""

    def __init__(self, code: NestCode) -> None:
        self.code = code

    def at(self, index: Affine) -> ir.Value:
        """An index, of the first lane."""
        b, variables = self.code.b, self.code.index
        total: ir.Value = I64(index.offset)
        for v, c in index.terms:
            i = variables[v]
            total = b.add(total, b.mul(i, I64(c)) if c != 1 else i)
        return total

    def in_lanes(self, index: Affine, strand: Strand) -> ir.Value:
        """An index in each lane."""
        b, start = self.code.b, self.at(index)
        first, *rest = shifts = self.shifts(index, strand)
        if all(n == first for n in rest):
            start = b.add(start, I64(first)) if first else start
            return splat(b, start, strand.lanes)
        return b.add(
            splat(b, start, strand.lanes),
            ir.Constant(ir.VectorType(I64, strand.lanes), [I64(n) for n in shifts]),
        )

    def along(self, index: Affine) -> int:
        """What the next element of a row adds to an index."""
        lane = self.code.lane
        return 0 if lane is None else index.coefficient(lane)

    def shifts(self, index: Affine, strand: Strand) -> list[int]:
        """What each lane adds to an index."""
        along = self.along(index)
        if strand.cells:
            steps = [index.coefficient(v) for v in self.code.stretch]
            return [sum(map(mul, steps, cell)) for cell in strand.cells]
        return [(strand.offset + i) * along for i in range(strand.lanes)]

    def base(self, buffer: int, index: Affine) -> ir.Value:
        """The address of a part of an index that the innermost loop does not change."""
        key = buffer, index
        found = self.code.bases.get(key)
        if found is None:
            found = self.code.bases[key] = self._from_start(buffer, index)
        return found

    def _from_start(self, buffer: int, index: Affine) -> ir.Value:
        kind = memory_type(self.code.nest.buffers[buffer].dtype)
        start = self.code.function.args[buffer]
        return self.code.b.gep(start, [self.at(index)], source_etype=kind)

    def pointer(
        self, buffer: int, index: Affine, strand: Strand, lane: int = 0
    ) -> ir.Value:
        """The address of the element in a lane."""
        code, b = self.code, self.code.b
        moving = code.lane, code.inner, *code.stretch
        inner = [v for v in index.variables if v in moving]
        outer = without(index, *inner)
        kind = memory_type(code.nest.buffers[buffer].dtype)
        pointer = code.bases.get((buffer, outer))
        if pointer is None:
            pointer = self._from_start(buffer, outer)
        moved = self.at(Affine(0, tuple(t for t in index.terms if t[0] in inner)))
        if not isinstance(moved, ir.Constant) or moved.constant:
            pointer = b.gep(pointer, [moved], source_etype=kind)
        # A constant of its own: strands share the rest, which LLVM would take apart
        # at length for each of them otherwise.
        shift = self.shifts(index, strand)[lane]
        return b.gep(pointer, [I64(shift)], source_etype=kind) if shift else pointer

    def kept(self, place: int, strand: Strand) -> ir.Value:
        """Where the current element of a value lies that passes keep."""
        code, b, keeps = self.code, self.code.b, self.code.nest.keeps
        width = 1
        if code.nest.vertical:
            width = code.shape.lanes * code.shape.unroll
        before = sum(aligned(d.itemsize * n * width) for d, n in keeps[:place])
        loops = next(p.loops for p in code.nest.passes if p.body)
        index = Affine()
        for i, v in enumerate(loops):
            index += Affine.of(v).times(prod(w.size for w in loops[i + 1 :]))
        element = b.mul(self.at(index), I64(width))
        element = b.add(element, I64(strand.offset))
        start = b.gep(code.given[0], [I64(before)], source_etype=I8)
        return b.gep(start, [element], source_etype=memory_type(keeps[place][0]))


def is_in_order(shifts: Sequence[int]) -> bool:
    """Whether lanes lie one after the other."""
    return all(b - a == 1 for a, b in pairwise(shifts))


def without(at: Affine, *variables: LoopVar | None) -> Affine:
    """The part of an index that ``variables`` do not change."""
    terms = tuple((v, c) for v, c in at.terms if v not in variables)
    return Affine(at.offset, terms)
