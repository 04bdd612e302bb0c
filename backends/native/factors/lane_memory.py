"""Small matrices in vectors, one matrix in each lane, and arithmetic of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from llvmlite import ir

from ...loop_ir import (
    Factoring,
)
from ..loops import loop
from ..machine import I8, I32, I64, constant
from ..math import declared


@dataclass(frozen=True)
class Grid:
    """Vectors in memory: row, column."""

    start: ir.Value
    columns: int


At: TypeAlias = "ir.Value | int"


@dataclass(frozen=True)
class LaneMemory:
    """The matrices of one unit of ``p``, where they lie and in vectors."""

    b: ir.IRBuilder
    p: Factoring
    lanes: int
    number_type: Any
    vector: Any
    """The type of one element of each matrix."""
    places: Sequence[ir.Value]
    """What is read, and the result."""
    fault: ir.Value
    """What notes that there is no result."""
    batch: Sequence[Sequence[ir.Value]]
    """Where the matrix of each lane starts in each of the places (elements)."""

    def _where(self, i: int, lane: int, terms: Sequence[tuple[At, int]]) -> ir.Value:
        b, at = self.b, self.batch[i][lane]
        for index, stride in terms:
            at = b.add(at, b.mul(_value(index), I64(stride)))
        return b.gep(self.places[i], [at], source_etype=self.number_type)

    def gathered(self, i: int, *terms: tuple[At, int]) -> ir.Value:
        """An element of each matrix of operand ``i``."""
        b = self.b
        if self.lanes == 1:
            return b.load(self._where(i, 0, terms), typ=self.number_type)
        vector = ir.Constant(self.vector, ir.Undefined)
        for lane in range(self.lanes):
            one = b.load(self._where(i, lane, terms), typ=self.number_type)
            vector = b.insert_element(vector, one, I32(lane))
        return vector

    def scattered(self, value: ir.Value, *terms: tuple[At, int]) -> None:
        """An element of each matrix of the result."""
        b, last = self.b, len(self.places) - 1
        for lane in range(self.lanes):
            one = value
            if self.lanes > 1:
                one = b.extract_element(value, I32(lane))
            b.store(one, self._where(last, lane, terms))

    def at(self, g: Grid, row: At, column: At) -> ir.Value:
        """Where an element of each matrix is."""
        b = self.b
        at = b.add(b.mul(_value(row), I64(g.columns)), _value(column))
        return b.gep(g.start, [at], source_etype=self.vector)

    def load(self, place: ir.Value) -> ir.Value:
        """An element of each matrix, at its place."""
        return self.b.load(place, typ=self.vector)

    def get(self, g: Grid, row: At, column: At) -> ir.Value:
        """An element of each matrix."""
        return self.load(self.at(g, row, column))

    def put(self, value: ir.Value, g: Grid, row: At, column: At) -> None:
        """Write an element of each matrix."""
        self.b.store(value, self.at(g, row, column))

    @contextmanager
    def each(self, start: At, stop: At) -> Iterator[ir.Value]:
        """A loop over rows, or columns."""
        with loop(self.b, _value(start), _value(stop), 1) as i:
            yield i

    def read(self, i: int, g: Grid, shape: tuple[int, int]) -> None:
        """The matrices of operand ``i``."""
        down, across = self.p.at[i].strides[-2:]
        with self.each(0, shape[0]) as r, self.each(0, shape[1]) as c:
            self.put(self.gathered(i, (r, down), (c, across)), g, r, c)

    def write(self, g: Grid) -> None:
        """The matrices of the result."""
        n, k = self.p.sizes
        with self.each(0, n) as r, self.each(0, k) as c:
            self.scattered(self.get(g, r, c), (r, k), (c, 1))


class LaneCode:
    """Arithmetic of vectors, and the two grids that routines work in."""

    def __init__(self, memory: LaneMemory, a: Grid, x: Grid) -> None:
        self.memory, self.b, self.a, self.x = memory, memory.b, a, x

    def number(self, value: float) -> ir.Constant:
        return constant(self.memory.number_type, self.memory.lanes, value)

    def less_product(self, z: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        """z - x y."""
        return self.intrinsic("fmuladd", self.b.fneg(x), y, z)

    def intrinsic(self, name: str, *args: ir.Value) -> ir.Value:
        """The intrinsic ``llvm.name`` in each lane."""
        kind = "f64" if isinstance(self.memory.number_type, ir.DoubleType) else "f32"
        mangled = kind if self.memory.lanes == 1 else f"v{self.memory.lanes}{kind}"
        types = [a.type for a in args]
        function = declared(self.b, f"llvm.{name}.{mangled}", types, self.memory.vector)
        return self.b.call(function, args)

    def any(self, mask: ir.Value) -> ir.Value:
        """Whether a mask has a lane."""
        if self.memory.lanes == 1:
            return mask
        bits = self.b.bitcast(mask, ir.IntType(self.memory.lanes))
        return self.b.icmp_unsigned("!=", bits, ir.IntType(self.memory.lanes)(0))

    def fail_if(self, mask: ir.Value) -> None:
        """Note that there is no result for a lane of a mask."""
        with self.b.if_then(self.any(mask), likely=False):
            self.b.store(I8(1), self.memory.fault)

    def row_number(self, i: ir.Value) -> ir.Value:
        """An index as a number in each lane."""
        m, one = self.memory, self.b.sitofp(i, self.memory.number_type)
        if m.lanes == 1:
            return one
        none = ir.Constant(m.vector, ir.Undefined)
        first = self.b.insert_element(none, one, I32(0))
        zeros = ir.Constant(ir.VectorType(I32, m.lanes), [I32(0)] * m.lanes)
        return self.b.shuffle_vector(first, first, zeros)

    def exchange(self, g: Grid, k: At, i: At, mask: ir.Value) -> None:
        """Rows ``k`` and ``i`` change places in the lanes of ``mask``."""
        b = self.b
        with b.if_then(self.any(mask)), self.memory.each(0, g.columns) as c:
            here, there = self.memory.at(g, k, c), self.memory.at(g, i, c)
            x, y = self.memory.load(here), self.memory.load(there)
            b.store(b.select(mask, y, x), here)
            b.store(b.select(mask, x, y), there)


def _value(i: At) -> ir.Value:
    return I64(i) if isinstance(i, int) else i
