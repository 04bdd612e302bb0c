"""Code of right operands that are computed where a product reads them."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Any

import numpy as np
from llvmlite import ir

from ...loop_ir import (
    Affine,
    Buffer,
    Load,
    LoopVar,
    Mapped,
    Nest,
    Pass,
    operands,
)
from ..loops import (
    PTR,
    Addresses,
    NestCode,
    Statements,
    Strand,
    VectorMemory,
    begun,
    end_of_steps,
    loop,
    without,
)
from ..machine import (
    COMMON,
    F32,
    I8,
    I32,
    I64,
    Host,
    constant,
    least,
    memory_type,
    splat,
    widened,
)
from ..math import VOID, declared
from .gemm_plan import LINE
from .tiles import tile

ARGUMENTS = {"line": (PTR, I64, PTR, I64, I64, I64), "fill": (PTR, *[I64] * 5)}
"""Of each kind of function, after the memory that the matrix is made of."""
LINE_BYTES = 64
"""Of the first cache: what is asked for at once."""


def nest_of(mapped: Mapped) -> Nest:
    """What is computed, as a nest without loops."""
    buffers = (Buffer(f"b{i}", o.dtype) for i, o in enumerate(mapped.operands))
    return Nest(tuple(buffers), (), (Pass((), (), mapped.body),))


class BlockAddresses(Addresses):
    """Addresses in a block of rows: what all columns share is found once."""

    def __init__(self, code: NestCode, column: LoopVar) -> None:
        super().__init__(code)
        self.column = column

    def outer(self, index: Affine) -> Affine:
        """The part of an index that a block shares."""
        return Affine(0, without(index, self.column).terms)

    def pointer(
        self, buffer: int, index: Affine, strand: Strand, lane: int = 0
    ) -> ir.Value:
        """The address of the first element of a strand."""
        b, kind = self.code.b, memory_type(self.code.nest.buffers[buffer].dtype)
        place = self.base(buffer, self.outer(index))
        if index.coefficient(self.column):
            j = self.code.index[self.column]
            place = b.gep(place, [j], source_etype=kind)
            index += Affine(strand.offset)
        if not index.offset:
            return place
        return b.gep(place, [I64(index.offset)], source_etype=kind)


class MappedCode:
    """Writes a function of a :class:`Mapped` matrix: ``line`` multiplies rows by it,
    ``fill`` brings a part of it into a panel."""

    def __init__(self, code: NestCode, mapped: Mapped) -> None:
        self.code, self.b, self.host = code, code.b, code.host
        self.addresses = BlockAddresses(code, mapped.column)
        self.statements = Statements(VectorMemory(self.addresses))
        self.mapped = mapped
        self.rows = len(mapped.rows)
        self.divisor = 1
        """What the numbers of columns that are asked for are multiples of."""
        self.vectors = tile(code.host, np.dtype(np.float32)).vectors

    def line(self, height: int) -> None:
        """``out[r, j] = Σ x[r, n] y[n, j]`` for ``height`` rows and the columns from
        ``low`` to ``high``: rows of ``x`` and ``out`` are ``xs`` and ``os`` apart. A
        stretch of ``out`` stays in cache."""
        x, xs, out, os, low, high = self.code.given
        b = self.b
        lines = [self._at(x, b.mul(xs, I64(r))) for r in range(height)]
        results = [self._at(out, b.mul(os, I64(r))) for r in range(height)]
        stretch, side = COMMON.line_bytes // 4, COMMON.computed_vectors // height
        self.divisor = gcd(self.mapped.sizes[1], LINE)
        blocks = self.mapped.sizes[0] // self.rows
        with loop(b, low, high, stretch) as start:
            end = least(b, b.add(start, I64(stretch)), high)
            for j, strands in self._columns(start, end, 1):
                for result in results:
                    zero = constant(F32, strands[0].lanes, 0)
                    b.store(zero, self._at(result, j), align=4)
            with loop(b, I64(0), I64(blocks), 1) as block:
                self._begin(block)
                at = b.mul(block, I64(self.rows))
                factors = [
                    [b.load(self._at(line, at, I64(n)), typ=F32) for line in lines]
                    for n in range(self.rows)
                ]
                for j, strands in self._columns(start, end, side):
                    self._times(factors, [self._at(p, j) for p in results], strands)
        b.ret_void()

    def _times(
        self,
        factors: list[list[ir.Value]],
        places: list[ir.Value],
        strands: list[Strand],
    ) -> None:
        """Rows times some columns, added to what lies at ``places``."""
        b, lanes = self.b, strands[0].lanes
        sums: dict[tuple[int, int], ir.Value] = {}
        for n, row in enumerate(self._elements(strands)):
            for r, one in enumerate(factors[n]):
                x = splat(b, one, lanes)
                for s, y in enumerate(row):
                    old = sums.get((r, s))
                    new = b.fmul(x, y) if old is None else self._times_plus(x, y, old)
                    sums[r, s] = new
        for (r, s), total in sums.items():
            place = self._at(places[r], I64(strands[s].offset))
            old = b.load(place, typ=widened(F32, lanes), align=4)
            factor = self._factor(strands[s])
            if factor is None:
                new = b.fadd(old, total)
            else:
                new = self._times_plus(total, factor, old)
            b.store(new, place, align=4)

    def fill(self) -> None:
        """Rows of blocks ``first`` to ``last``, columns ``low`` to ``high``, written
        to ``out``, whose rows are ``os`` apart."""
        out, os, first, last, low, high = self.code.given
        b, n, lanes = self.b, self.mapped.sizes[1], self.host.vector_bits // 32
        panel = self.vectors * lanes
        self.divisor = panel if n % panel == 0 else gcd(n, lanes)
        with loop(b, first, last, 1) as block:
            later = b.add(block, I64(COMMON.computed_ahead))
            self._ask(least(b, later, b.sub(last, I64(1))), low)
            self._begin(block)
            row = b.mul(b.sub(block, first), I64(self.rows))
            lines = [
                self._at(out, b.mul(b.add(row, I64(n)), os)) for n in range(self.rows)
            ]
            for j, strands in self._columns(low, high, self.vectors):
                for line, row in zip(lines, self._elements(strands), strict=True):
                    place = self._at(line, b.sub(j, low))
                    for strand, value in zip(strands, row, strict=True):
                        factor = self._factor(strand)
                        if factor is not None:
                            value = b.fmul(value, factor)
                        b.store(value, self._at(place, I64(strand.offset)), align=4)
        b.ret_void()

    # -- parts -------------------------------------------------------------------------

    def _at(self, pointer: ir.Value, *by: ir.Value) -> ir.Value:
        for n in by:
            pointer = self.b.gep(pointer, [n], source_etype=F32)
        return pointer

    def _columns(
        self, low: ir.Value, high: ir.Value, vectors: int
    ) -> Iterator[tuple[ir.Value, list[Strand]]]:
        """Loops over columns: by so many vectors, by vectors, and one by one. The first
        column of each step, and the strands that it computes."""
        wide = self.host.vector_bits // 32
        for lanes, many in {(wide, vectors): 0, (wide, 1): 0, (1, 1): 0}:
            if low is high:
                return
            fits = self.divisor % (lanes * many) == 0
            whole = high if fits else end_of_steps(self.b, low, high, lanes * many)
            with loop(self.b, low, whole, lanes * many) as j:
                self.code.index[self.mapped.column] = j
                yield j, [Strand(lanes, n * lanes) for n in range(many)]
            low = whole

    def _begin(self, block: ir.Value) -> None:
        """What a block of rows needs at all columns."""
        b = self.b
        size = self.mapped.sizes[0] // self.rows
        for v, unit in self.mapped.block.terms:
            i = b.udiv(block, I64(unit)) if unit > 1 else block
            self.code.index[v] = b.urem(i, I64(v.size)) if unit * v.size < size else i
        self.code.bases = {}
        for s in self.mapped.body:
            if isinstance(s, Load):
                self.addresses.base(s.buffer, self.addresses.outer(s.at))

    def _ask(self, block: ir.Value, low: ir.Value) -> None:
        """Ask for the columns of a panel in a block of rows: they lie far apart."""
        b = self.b
        self._begin(block)
        self.code.index[self.mapped.column] = low
        fetch = declared(b, "llvm.prefetch.p0", [PTR, I32, I32, I32])
        asked = [s for s in self.mapped.body if isinstance(s, Load)]
        asked = [s for s in asked if s.at.coefficient(self.mapped.column)]
        for buffer, at in dict.fromkeys((s.buffer, s.at) for s in asked):
            wide = self.vectors * self.host.vector_bits // 32
            size = wide * self.code.nest.buffers[buffer].dtype.itemsize
            first = self.addresses.pointer(buffer, at, Strand(1, 0))
            for byte in sorted({*range(0, size, LINE_BYTES), size - 1}):
                place = b.gep(first, [I64(byte)], source_etype=I8)
                b.call(fetch, [place, *(I32(f) for f in (0, 3, 1))])

    def _elements(self, strands: list[Strand]) -> Iterator[list[ir.Value]]:
        """The rows of a block, each as soon as it is known."""
        made = {s.target: s for s in self.mapped.body}
        for strand in strands:
            strand.values = {}
        for i in self.mapped.rows:
            for n in self._below(i, made, strands[0].values):
                for strand in strands:
                    self.statements.write(made[n], strand, strand.values, {})
            yield [splat(self.b, s.values[i], s.lanes) for s in strands]

    def _below(
        self, root: int, made: dict[int, Any], known: dict[int, ir.Value]
    ) -> list[int]:
        """What the value ``root`` needs and is not known yet, in order."""
        found, stack = {root} - known.keys(), [root]
        while stack:
            new = {*operands(made[stack.pop()])} - found - known.keys()
            found |= new
            stack += new
        return sorted(found)

    def _factor(self, strand: Strand) -> ir.Value | None:
        """What all rows of a strand are to be multiplied by."""
        i = self.mapped.factor
        if i < 0:
            return None
        made = {s.target: s for s in self.mapped.body}
        for n in self._below(i, made, strand.values):
            self.statements.write(made[n], strand, strand.values, {})
        return splat(self.b, strand.values[i], strand.lanes)

    def _times_plus(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """``x y + z``."""
        if not self.host.has_fma:
            return self.b.fadd(self.b.fmul(x, y), z)
        kind = x.type
        lanes = kind.count if isinstance(kind, ir.VectorType) else 0
        name = f"llvm.fma.v{lanes}f32" if lanes else "llvm.fma.f32"
        return self.b.call(declared(self.b, name, [kind] * 3, kind), [x, y, z])


def function_of(
    module: ir.Module, mapped: Mapped, kind: str, name: str, host: Host, height: int = 0
) -> ir.Function:
    """The function ``line``, of so many rows, or ``fill`` of a matrix."""
    kinds = [*[PTR] * len(mapped.operands), *ARGUMENTS[kind]]
    function = ir.Function(module, ir.FunctionType(VOID, kinds), name)
    function.linkage = "internal"
    begin = begun(function, nest_of(mapped), host)
    begin.lane = mapped.column
    code = MappedCode(begin, mapped)
    if kind == "line":
        code.line(height)
    else:
        code.fill()
    return function
