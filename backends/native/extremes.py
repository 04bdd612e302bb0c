"""Positions of the largest or smallest values: a running best value and its position in
each lane, joined at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from .convert import I1, I64, constant, lanes_of, register_type, splat, widened
from .reductions import Cell, Context, NotesNan, Reducer, across, tree

Pair = tuple[ir.Value, ir.Value]
"""A value and its position."""


@dataclass(frozen=True)
class Positions:
    """How the positions of the values that an accumulator sees are counted."""

    bits: int
    """Of an integer that holds any of them: as wide as a value where that will do, so
    that one mask picks both."""
    steps: tuple[int, ...]
    """What is added to the position of a vector for each of its lanes."""
    is_ordered: bool
    """Whether each lane sees them from the first to the last."""
    has_masks: bool
    """Whether the processor has registers for masks. Without them one that is kept from
    one turn to the next is packed and unpacked."""


class Extreme:
    """The first position of the largest or smallest value; of NaN, the first NaN."""

    is_careful = False
    notes_nan = False

    def __init__(self, of: Reducer, c: Context, lanes: int, where: Positions) -> None:
        self.of, self.lanes, self.where = of, lanes, where
        kind = register_type(of.dtype)
        self.value = Cell(c, widened(kind, lanes), constant(kind, lanes, of.neutral()))
        # Nothing beats a neutral element only where all are: the first one is at 0.
        self.sign = ">" if of.op == "argmax" else "<"
        self.numbers: Cell | None = None
        """Whether there was no NaN so far."""
        if where.is_ordered and where.has_masks and of.dtype.kind == "f":
            self.numbers = Cell(c, widened(I1, lanes), constant(I1, lanes, 1))
        self.kind = ir.IntType(where.bits)
        self.place = Cell(c, widened(self.kind, lanes), constant(self.kind, lanes, 0))

    def add(self, c: Context, value: ir.Value, position: ir.Value) -> None:
        """Look at a vector, whose first lane is at ``position``."""
        b = c.b
        if self.kind != I64:
            position = b.trunc(position, self.kind)
        new = value, splat(b, position, self.lanes)
        old = self.value.get(b), self.place.get(b)
        if self.where.is_ordered:
            take = self._beats(b, value, old[0])
        else:
            take = self._is_better(b, self._placed(b, old), self._placed(b, new))
        self.value.set(b, b.select(take, new[0], old[0]))
        self.place.set(b, b.select(take, new[1], old[1]))

    def _beats(self, b: ir.IRBuilder, v: ir.Value, a: ir.Value) -> ir.Value:
        """:meth:`_wins`, with what does not wait for the value before apart."""
        if self.numbers is None:
            return self._wins(b, v, a)
        numbers = self.numbers.get(b)
        self.numbers.set(b, b.and_(numbers, b.fcmp_ordered("ord", v, v)))
        return b.and_(numbers, b.fcmp_unordered(self.sign, v, a))

    def _placed(self, b: ir.IRBuilder, pair: Pair) -> Pair:
        """The pair with the position of each lane."""
        if self.lanes == 1:
            return pair[0], b.add(pair[1], self.kind(self.where.steps[0]))
        steps = [self.kind(n) for n in self.where.steps]
        ramp = ir.Constant(ir.VectorType(self.kind, self.lanes), steps)
        return pair[0], b.add(pair[1], ramp)

    def _wins(self, b: ir.IRBuilder, v: ir.Value, a: ir.Value) -> ir.Value:
        """Whether a later value takes the place of an earlier one."""
        if self.of.dtype.kind != "f":
            return self.of.beats(b, v, a)
        over = b.fcmp_unordered(self.sign, v, a)
        return b.and_(over, b.fcmp_ordered("ord", a, a))

    def _is_better(self, b: ir.IRBuilder, x: Pair, y: Pair) -> ir.Value:
        """Whether ``y`` comes before ``x``, in whatever order they were seen."""
        (a, i), (v, j) = x, y
        earlier = b.icmp_signed("<", j, i)
        if self.of.dtype.kind == "f":
            neither = b.fcmp_unordered("uno", a, a), b.fcmp_unordered("uno", v, v)
            same = b.or_(b.fcmp_ordered("==", v, a), b.and_(*neither))
        else:
            same = b.icmp_unsigned("==", v, a)
        return b.or_(self._wins(b, v, a), b.and_(same, earlier))

    def best(self, b: ir.IRBuilder, x: Pair, y: Pair) -> Pair:
        """The better one of two values with their positions."""
        take = self._is_better(b, x, y)
        return b.select(take, y[0], x[0]), b.select(take, y[1], x[1])

    def pair(self, b: ir.IRBuilder) -> Pair:
        """The value and the position of each lane."""
        return self._placed(b, (self.value.get(b), self.place.get(b)))

    def finished(self, c: Context) -> ir.Value:
        """The position in each lane, where lanes are rows."""
        place = self.place.get(c.b)
        return c.b.sext(place, widened(I64, self.lanes)) if self.kind != I64 else place

    def joined(self, c: Context, other: Extreme) -> _Extremes:
        return _Extremes(self, [self, other])

    def to_scalar(self, c: Context) -> ir.Value:
        return _Extremes(self, [self]).to_scalar(c)


class Greatest(NotesNan, Extreme):
    """The same among numbers: NaN never wins, and is noted for two vectors at a time.
    Of a row without any the position is right, for two thirds of the instructions."""

    def __init__(self, of: Reducer, c: Context, lanes: int, where: Positions) -> None:
        super().__init__(of, c, lanes, where)
        self.numbers = None
        self.begin_noting(c, lanes)

    def _wins(self, b: ir.IRBuilder, v: ir.Value, a: ir.Value) -> ir.Value:
        return b.fcmp_ordered(self.sign, v, a)


@dataclass
class _Extremes:
    of: Extreme
    parts: list[Extreme]

    def joined(self, c: Context, other: Extreme) -> _Extremes:
        return _Extremes(self.of, [*self.parts, other])

    def to_scalar(self, c: Context) -> ir.Value:
        b, best = c.b, self.of.best
        wide = [p.pair(b) for p in self.parts if p.lanes > 1]
        found = [p.pair(b) for p in self.parts if p.lanes == 1]
        if wide:
            found.append(self._first(b, wide))
        first = found[0]
        for other in found[1:]:
            first = best(b, first, other)
        return b.sext(first[1], I64) if self.of.kind != I64 else first[1]

    def _first(self, b: ir.IRBuilder, pairs: Sequence[Pair]) -> Pair:
        """The best value of all lanes, then the first of its positions: fewer steps one
        after the other than joining pairs."""
        dtype, kind = self.of.of.dtype, self.of.kind
        values, lanes = [v for v, _ in pairs], lanes_of(pairs[0][0])
        reach = Reducer("max" if self.of.of.op == "argmax" else "min", dtype)
        value = across(reach, b, tree(reach, b, values))
        whole = splat(b, value, lanes)
        if dtype.kind == "f" and not self.of.notes_nan:
            either = Reducer("any", np.dtype(bool))
            nans = [b.fcmp_unordered("uno", v, v) for v in values]
            nan = across(either, b, tree(either, b, nans))
            value = b.select(nan, ir.Constant(value.type, float("nan")), value)
            same = [b.fcmp_ordered("==", v, whole) for v in values]
            is_best = [b.select(nan, n, s) for n, s in zip(nans, same, strict=True)]
        elif dtype.kind == "f":
            is_best = [b.fcmp_ordered("==", v, whole) for v in values]
        else:
            is_best = [b.icmp_signed("==", v, whole) for v in values]
        first = Reducer("min", np.dtype(f"int{kind.width}"))
        none = constant(kind, lanes, int(first.neutral()))
        places = [
            b.select(take, p, none) for take, (_, p) in zip(is_best, pairs, strict=True)
        ]
        return value, across(first, b, tree(first, b, places))
