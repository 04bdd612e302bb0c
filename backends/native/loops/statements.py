"""Statements of kernels as LLVM values, for some lanes at a time."""

from __future__ import annotations

import numpy as np
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
    Within,
    variables,
)
from ..machine import I32, Host, constant, memory_type, register_type, splat
from . import elementwise
from .access import Access, Strand
from .fault_flags import Checks
from .running_sums import run


class Statements(Access):
    """Writes the statements of a nest, but for reductions."""

    def __init__(self, function: ir.Function, nest: Nest, host: Host) -> None:
        super().__init__(function, nest, host)
        self.dtypes = {
            s.target: s.dtype
            for s in nest.statements()
            if not isinstance(s, (Keep, Store))
        }
        self.moving = variables(nest)
        self.positions = {
            s.target: s.at for s in nest.statements() if isinstance(s, Position)
        }
        self.falls = falls(nest)
        self.row: dict[int, ir.Value] = {}
        """Values of the row, scalars."""
        self.single = Strand(1, 0)
        """Of a row, where elements of a row lie side by side."""
        self.checks = Checks(self)

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
            case Gather():
                out[s.target] = self._gather(s, self._offset(s.by, strand, out), strand)
            case Within():
                of = self.dtypes[s.value]
                out[s.target] = self.checks.within(s, value(s.value), of)
            case Running():
                carries = strand if self.nest.vertical else self.single
                cell = carries.carries[s.target]
                out[s.target] = run(self, s, value(s.value), cell, self.host)
            case Position():
                out[s.target] = self._position(s.at, strand)
            case Keep():
                self._write(
                    self._place_of(s.place, strand), value(s.value), self._kept(s.place)
                )
            case Kept():
                place, dtype = self._place_of(s.place, strand), self._kept(s.place)
                out[s.target] = self._read_at(place, dtype, lanes)
            case Scatter():
                by = self._offset(s.by, strand, out)
                self._scatter(s, by, value(s.value), strand)
            case Store():
                self._store(s, value(s.value), strand)

    def _scatter(
        self, s: Scatter, by: ir.Value, value: ir.Value, strand: Strand
    ) -> None:
        """Add or write to elements, all lanes of which move together."""
        dtype = self.nest.buffers[s.buffer].dtype
        kind = memory_type(dtype)
        along = self._along(s.at)
        single = along == 1 or strand.lanes == 1
        for lane in range(1 if single else strand.lanes):
            first = self._pointer(s.buffer, s.at, strand, lane)
            place = self.b.gep(first, [by], source_etype=kind)
            added = value if single else self.b.extract_element(value, I32(lane))
            if s.adds:
                old = self._read_at(place, dtype, strand.lanes if single else 1)
                both = [old, added]
                added = elementwise.emit(self.b, "add", both, dtype, dtype, self.host)
            self._write(place, added, dtype)

    def _offset(self, by: int, strand: Strand, out: dict[int, ir.Value]) -> ir.Value:
        """How far a gather or a scatter moves: one number, where its lanes move
        together."""
        if by not in out:
            return strand.row[by] if self.nest.vertical else self.row[by]
        found = out[by]
        moves = not self.moving[by].isdisjoint((self.lane, *self.ahead))
        if moves or not isinstance(found.type, ir.VectorType):
            return found
        return self.b.extract_element(found, I32(0))

    def _compute(self, s: Compute, args: list[ir.Value]) -> ir.Value:
        of = self.dtypes[s.args[-1]]
        if s.op == "where" and self.dtypes[s.args[0]] != np.dtype(bool):
            dtype = self.dtypes[s.args[0]]
            boolean = np.dtype(bool)
            args[0] = elementwise.emit(
                self.b, "cast", [args[0]], dtype, boolean, self.host
            )
        is_bounded = s.op == "exp" and s.args[0] in self.falls
        op = "exp_below" if is_bounded else s.op
        return elementwise.emit(self.b, op, args, of, s.dtype, self.host)


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
