"""Reductions in registers: an accumulator for each vector, joined at the end.

Sums of many numbers are carried over to a compensated total every few additions
(Neumaier 1974), so that their error does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from llvmlite import ir

from eqsat.terms import Op

from ...loop_ir import (
    REDUCTIONS,
    Accumulate,
    Const,
    DType,
    Joining,
    Unsupported,
)
from ..machine import I1, I32, Host, constant, lanes_of, register_type, widened
from . import elementwise


class Context(Protocol):
    """What writes code: a builder, and the block that opens the function."""

    b: ir.IRBuilder
    entry: ir.Block


def reducer(s: Accumulate, dtype: DType, host: Host) -> Reducer:
    """The reduction ``s`` of values of ``dtype``. Raises :class:`Unsupported`."""
    if s.op in ("sum", "prod") and dtype == np.dtype(bool):
        raise Unsupported(f"{s.op} of bools")
    register_type(dtype)
    if s.joining is not None:
        return _Fold(s.op, dtype, s.joining, host)
    if s.op not in REDUCTIONS:
        raise Unsupported(f"reduction {s.op!r} in machine code")
    return Reducer(s.op, dtype)


@dataclass(frozen=True)
class Reducer:
    """A reduction, not yet begun."""

    op: str
    dtype: DType

    def started(self, c: Context, lanes: int, is_long: bool) -> Any:
        """An accumulator of so many lanes at its neutral element; not for positions,
        which :class:`.arg_extremes.Extreme` keeps."""
        if self.op in ("max", "min") and self.dtype.kind == "f":
            return _Bound(self, c, lanes)
        if self.op == "sum" and self.dtype.kind == "f" and is_long:
            return _Careful(self, c, lanes)
        return _Plain(self, c, lanes)

    @property
    def _is_max(self) -> bool:
        """Whether the largest is looked for; else the smallest is."""
        if self.op not in ("max", "min", "argmax", "argmin"):
            raise Unsupported(f"reduction {self.op!r} in machine code")
        return self.op in ("max", "argmax")

    @property
    def is_signed(self) -> bool:
        return self.dtype.kind == "i"

    def neutral(self) -> float:
        """What changes no result."""
        return Op.registry[self.op].neutral(self.dtype)

    def combine(self, b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
        """Two partial results as one; of floats, neither is NaN for max and min."""
        is_float = self.dtype.kind == "f"
        if self.op == "sum":
            return b.fadd(x, y) if is_float else b.add(x, y)
        if self.op == "prod":
            return b.fmul(x, y) if is_float else b.mul(x, y)
        if self.op == "any":
            return b.or_(x, y)
        if self.op == "all":
            return b.and_(x, y)
        if self.dtype == np.dtype(bool):
            return b.or_(x, y) if self._is_max else b.and_(x, y)
        return b.select(self.beats(b, y, x), y, x)

    # -- what is known of a row between blocks of its elements -------------------------

    @property
    def parts(self) -> int:
        """Numbers that are kept: of a float sum a part, the total before it, and what
        rounding lost."""
        return 3 if self.is_careful else 1

    @property
    def is_careful(self) -> bool:
        """Whether partial results are carried over to a compensated total."""
        return self.op == "sum" and self.dtype.kind == "f"

    def neutral_state(self, lanes: int) -> list[ir.Value]:
        """The state before the first element."""
        kind = register_type(self.dtype)
        first = constant(kind, lanes, self.neutral())
        return [first, *[constant(kind, lanes, 0.0)] * (self.parts - 1)]

    def merged(self, b: ir.IRBuilder, old: ir.Value, part: ir.Value) -> ir.Value:
        """The first part of a state with one more partial result."""
        new = self.combine(b, old, part)
        if self.op in ("max", "min") and self.dtype.kind == "f":
            nan = constant(register_type(self.dtype), lanes_of(new), float("nan"))
            new = b.select(b.fcmp_unordered("uno", old, part), nan, new)
        return new

    def carried(self, b: ir.IRBuilder, state: list[ir.Value]) -> list[ir.Value]:
        """The state with the part added to the total."""
        part, total, lost = state
        total, rest = two_sum(b, total, part)
        zero = self.neutral_state(lanes_of(part))[0]
        return [zero, total, b.fadd(lost, rest)]

    def result(self, b: ir.IRBuilder, state: list[ir.Value]) -> ir.Value:
        """The reduction of all elements."""
        return compensated(b, *state[1:]) if self.is_careful else state[0]

    def beats(self, b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
        """Whether x is larger, or for min smaller, than y."""
        sign = ">" if self._is_max else "<"
        if self.dtype.kind == "f":
            return b.fcmp_ordered(sign, x, y)
        return (b.icmp_signed if self.is_signed else b.icmp_unsigned)(sign, x, y)


@dataclass(frozen=True)
class _Fold(Reducer):
    """A reduction that a user defines by how it joins two values."""

    joining: Joining
    host: Host

    def neutral(self) -> float:
        return self.joining.identity

    def combine(self, b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
        values, dtypes = {0: x, 1: y}, {0: self.dtype, 1: self.dtype}
        for s in self.joining.body:
            dtypes[s.target] = s.dtype
            if isinstance(s, Const):
                kind = register_type(s.dtype)
                values[s.target] = constant(kind, lanes_of(x), s.value)
            else:
                args = [values[a] for a in s.args]
                values[s.target] = elementwise.computed(b, s, args, dtypes, self.host)
        return values[self.joining.result]


def two_sum(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
    """x + y and what its rounding loses. Knuth 1969, 4.2.2."""
    s = b.fadd(x, y)
    back = b.fsub(s, x)
    return s, b.fadd(b.fsub(x, b.fsub(s, back)), b.fsub(y, back))


def compensated(b: ir.IRBuilder, total: ir.Value, lost: ir.Value) -> ir.Value:
    """A total with what rounding lost: of an infinite one that is NaN, and no part."""
    known = b.fcmp_ordered("==", lost, lost)
    zero = constant(
        total.type if lanes_of(total) == 1 else total.type.element,
        lanes_of(total),
        0.0,
    )
    return b.fadd(total, b.select(known, lost, zero))


class Cell:
    """A variable in a register: memory that LLVM promotes."""

    def __init__(self, c: Context, kind: Any, start: ir.Value) -> None:
        with c.b.goto_block(c.entry):
            self.place = c.b.alloca(kind)
        self.kind = kind
        c.b.store(start, self.place)

    def get(self, b: ir.IRBuilder) -> ir.Value:
        return b.load(self.place, typ=self.kind)

    def set(self, b: ir.IRBuilder, value: ir.Value) -> None:
        b.store(value, self.place)


class _Plain:
    is_careful = False
    notes_nan = False
    """Whether :meth:`_Bound.note` has to be called for each value as well."""

    def __init__(self, of: Reducer, c: Context, lanes: int) -> None:
        self.of, self.lanes = of, lanes
        kind = register_type(of.dtype)
        self.cell = Cell(c, widened(kind, lanes), constant(kind, lanes, of.neutral()))

    def add(self, c: Context, value: ir.Value, position: ir.Value) -> None:
        self.cell.set(c.b, self.of.combine(c.b, self.cell.get(c.b), value))

    def finished(self, c: Context) -> ir.Value:
        """The result in each lane."""
        return self.cell.get(c.b)

    def joined(self, c: Context, other: _Plain) -> _Joined:
        return _Joined(self.of, self.parts(c) + other.parts(c))

    def parts(self, c: Context) -> list[ir.Value]:
        return [self.finished(c)]

    def to_scalar(self, c: Context) -> ir.Value:
        return _Joined(self.of, self.parts(c)).to_scalar(c)


@dataclass
class _Joined:
    """Partial results of several accumulators."""

    of: Reducer
    values: list[ir.Value]

    def joined(self, c: Context, other: _Plain) -> _Joined:
        return _Joined(self.of, self.values + other.parts(c))

    def to_scalar(self, c: Context) -> ir.Value:
        wide = [v for v in self.values if lanes_of(v) > 1]
        single = [v for v in self.values if lanes_of(v) == 1]
        if wide:
            single.insert(0, across(self.of, c.b, tree(self.of, c.b, wide)))
        return tree(self.of, c.b, single)


def across(of: Reducer, b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The lanes of a vector as one."""
    while lanes_of(value) > 1:
        low, high = halves(b, value)
        value = of.combine(b, low, high)
    return value


def tree(of: Reducer, b: ir.IRBuilder, values: list[ir.Value]) -> ir.Value:
    """Neighbours joined in pairs, until one is left."""
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        rest = values[len(values) // 2 * 2 :]
        values = [of.combine(b, x, y) for x, y in pairs] + rest
    return values[0]


def halves(b: ir.IRBuilder, value: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The lower and the upper half of the lanes; scalars of two."""
    n = lanes_of(value)
    if n == 2:
        return b.extract_element(value, I32(0)), b.extract_element(value, I32(1))
    mask = ir.VectorType(I32, n // 2)
    low = ir.Constant(mask, [I32(i) for i in range(n // 2)])
    high = ir.Constant(mask, [I32(i) for i in range(n // 2, n)])
    return b.shuffle_vector(value, value, low), b.shuffle_vector(value, value, high)


def in_a_row(b: ir.IRBuilder, vectors: list[ir.Value]) -> ir.Value:
    """Vectors of one width, a power of two of them, as one."""
    while len(vectors) > 1:
        places = ir.Constant(
            ir.VectorType(I32, 2 * lanes_of(vectors[0])),
            [I32(i) for i in range(2 * lanes_of(vectors[0]))],
        )
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [b.shuffle_vector(x, y, places) for x, y in pairs]
    return vectors[0]


class _Careful(_Plain):
    """A sum carried over to a compensated total."""

    is_careful = True

    def __init__(self, of: Reducer, c: Context, lanes: int) -> None:
        super().__init__(of, c, lanes)
        kind = register_type(of.dtype)
        zero = constant(kind, lanes, 0.0)
        self.zero = zero
        self.total = Cell(c, widened(kind, lanes), zero)
        self.lost = Cell(c, widened(kind, lanes), zero)

    def carried(self, c: Context, others: Sequence[_Careful]) -> None:
        """Move the partial sum, and those of ``others``, to the total, with what
        rounding loses there."""
        b = c.b
        parts = [self.cell.get(b)]
        for other in others:
            parts.append(other.cell.get(b))
            other.cell.set(b, self.zero)
        total, rest = two_sum(b, self.total.get(b), tree(self.of, b, parts))
        self.total.set(b, total)
        self.lost.set(b, b.fadd(self.lost.get(b), rest))
        self.cell.set(b, self.zero)

    def finished(self, c: Context) -> ir.Value:
        return compensated(c.b, self.total.get(c.b), self.lost.get(c.b))


class NotesNan:
    """NaN noted apart: one instruction a comparison, where a comparison that hands NaN
    on takes three."""

    notes_nan = True

    def begin_noting(self, c: Context, lanes: int) -> None:
        """No NaN so far."""
        self.ordered = Cell(c, widened(I1, lanes), constant(I1, lanes, 1))

    def note(self, c: Context, x: ir.Value, y: ir.Value) -> None:
        """Note whether one of two values is NaN, which one comparison tells."""
        ordered = c.b.fcmp_ordered("ord", x, y)  # and "and": one instruction with masks
        self.ordered.set(c.b, c.b.and_(self.ordered.get(c.b), ordered))


def any_nan(c: Context, parts: Sequence[NotesNan]) -> ir.Value:
    """Whether NaN was among the values of ``parts``."""
    every = Reducer("all", np.dtype(bool))
    return c.b.not_(_Joined(every, [p.ordered.get(c.b) for p in parts]).to_scalar(c))


class _Bound(NotesNan, _Plain):
    """The largest or smallest float."""

    def __init__(self, of: Reducer, c: Context, lanes: int) -> None:
        super().__init__(of, c, lanes)
        self.begin_noting(c, lanes)

    def finished(self, c: Context) -> ir.Value:
        nan = constant(register_type(self.of.dtype), self.lanes, float("nan"))
        return c.b.select(self.ordered.get(c.b), self.cell.get(c.b), nan)

    def joined(self, c: Context, other: _Plain) -> Any:
        return _Bounds(self.of, [self]).joined(c, other)

    def to_scalar(self, c: Context) -> ir.Value:
        return _Bounds(self.of, [self]).to_scalar(c)


@dataclass
class _Bounds:
    of: Reducer
    parts: list[Any]

    def joined(self, c: Context, other: Any) -> _Bounds:
        return _Bounds(self.of, [*self.parts, other])

    def to_scalar(self, c: Context) -> ir.Value:
        b = c.b
        value = _Joined(self.of, [p.cell.get(b) for p in self.parts]).to_scalar(c)
        return b.select(
            any_nan(c, self.parts), ir.Constant(value.type, float("nan")), value
        )
