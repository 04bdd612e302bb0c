"""Statements of kernels as LLVM values, for some lanes at a time."""

from __future__ import annotations

from llvmlite import ir

from ...loop_ir import (
    Accumulate,
    Compute,
    Const,
    Gather,
    Keep,
    Kept,
    Load,
    Nest,
    Position,
    Running,
    Scatter,
    Statement,
    Store,
    Unsupported,
    Within,
    variables,
)
from ..machine import I32, constant, memory_type, register_type, splat
from . import elementwise
from .fault_flags import Checks
from .nest_code import Strand
from .running_sums import run
from .vector_memory import VectorMemory


class Statements:
    """Writes the statements of a nest, but for reductions."""

    def __init__(self, memory: VectorMemory) -> None:
        self.memory, self.addresses = memory, memory.addresses
        self.code = code = memory.code
        self.moving = variables(code.nest)
        self.falls = falls(code.nest)
        self.row: dict[int, ir.Value] = {}
        """Values of the row, scalars."""
        self.single = Strand(1, 0)
        """Of a row, where elements of a row lie side by side."""
        self.checks = Checks(code)

    def write(
        self,
        s: Statement,
        strand: Strand,
        out: dict[int, ir.Value],
        row: dict[int, ir.Value],
    ) -> None:
        """One statement for a strand; ``out`` gets what it computes."""
        lanes, memory, code = strand.lanes, self.memory, self.code

        def value(i: int) -> ir.Value:
            return splat(code.b, out[i] if i in out else row[i], lanes)

        match s:
            case Const():
                out[s.target] = constant(register_type(s.dtype), lanes, s.value)
            case Load():
                out[s.target] = memory.load(s, strand)
            case Compute():
                out[s.target] = self._compute(s, [value(i) for i in s.args])
            case Gather():
                by = self._offset(s.by, strand, out)
                out[s.target] = memory.gather(s, by, strand)
            case Within():
                of = code.dtypes[s.value]
                out[s.target] = self.checks.within(s, value(s.value), of)
            case Running():
                carries = strand if code.nest.vertical else self.single
                cell = carries.carries[s.target]
                out[s.target] = run(code, s, value(s.value), cell, code.host)
            case Position():
                out[s.target] = self.addresses.in_lanes(s.at, strand)
            case Keep():
                place = self.addresses.kept(s.place, strand)
                memory.write(place, value(s.value), code.nest.keeps[s.place][0])
            case Kept():
                place = self.addresses.kept(s.place, strand)
                dtype = code.nest.keeps[s.place][0]
                out[s.target] = memory.read(place, dtype, lanes)
            case Scatter():
                by = self._offset(s.by, strand, out)
                self._scatter(s, by, value(s.value), strand)
            case Store():
                memory.store(s, value(s.value), strand)
            case _:
                raise Unsupported(f"{type(s).__name__} outside of a pass")

    def _scatter(
        self, s: Scatter, by: ir.Value, value: ir.Value, strand: Strand
    ) -> None:
        """Add or write to elements, all lanes of which move together."""
        memory, code, b = self.memory, self.code, self.code.b
        dtype = memory.dtype(s)
        kind = memory_type(dtype)
        single = self.addresses.along(s.at) == 1 or strand.lanes == 1
        for lane in range(1 if single else strand.lanes):
            first = self.addresses.pointer(s.buffer, s.at, strand, lane)
            place = b.gep(first, [by], source_etype=kind)
            added = value if single else b.extract_element(value, I32(lane))
            if s.adds:
                old = memory.read(place, dtype, strand.lanes if single else 1)
                both = [old, added]
                added = elementwise.emit(b, "add", both, dtype, dtype, code.host)
            memory.write(place, added, dtype)

    def _offset(self, by: int, strand: Strand, out: dict[int, ir.Value]) -> ir.Value:
        """How far a gather or a scatter moves: one number, where its lanes move
        together."""
        code = self.code
        if by not in out:
            return strand.row[by] if code.nest.vertical else self.row[by]
        found = out[by]
        moves = not self.moving[by].isdisjoint((code.lane, *code.stretch))
        if moves or not isinstance(found.type, ir.VectorType):
            return found
        return code.b.extract_element(found, I32(0))

    def _compute(self, s: Compute, args: list[ir.Value]) -> ir.Value:
        code = self.code
        is_bounded = s.op == "exp" and s.args[0] in self.falls
        op = "exp_below" if is_bounded else s.op
        return elementwise.computed(code.b, s, args, code.dtypes, code.host, op)


def falls(nest: Nest) -> set[int]:
    """Values less the largest of those that they are among: none is above 0."""
    largest = {
        (s.value, s.target)
        for s in nest.statements()
        if isinstance(s, Accumulate) and s.op == "max"
    }
    return {
        s.target
        for s in nest.statements()
        if isinstance(s, Compute) and s.op == "subtract" and s.args in largest
    }
