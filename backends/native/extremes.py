"""Positions of the largest or smallest values: a running best value and its position in
each lane, joined at the end."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from .convert import I64, constant, lanes_of, register_type, splat, widened
from .reductions import Cell, Context, Reducer, halves

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


class Extreme:
    """The first position of the largest or smallest value; of NaN, the first NaN."""

    is_careful = False
    notes_nan = False

    def __init__(self, of: Reducer, c: Context, lanes: int, where: Positions) -> None:
        self.of, self.lanes, self.where = of, lanes, where
        kind = register_type(of.dtype)
        self.value = Cell(c, widened(kind, lanes), constant(kind, lanes, of.neutral()))
        # Nothing beats a neutral element only where all are: the first one is at 0.
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
            take = self._wins(b, new[0], old[0])
        else:
            take = self._is_better(b, self._placed(b, old), self._placed(b, new))
        self.value.set(b, b.select(take, new[0], old[0]))
        self.place.set(b, b.select(take, new[1], old[1]))

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
        sign = ">" if self.of.op == "argmax" else "<"
        over = b.fcmp_unordered(sign, v, a)
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
            pair = wide[0]
            for other in wide[1:]:
                pair = best(b, pair, other)
            while lanes_of(pair[0]) > 1:
                (a, v), (i, j) = (halves(b, x) for x in pair)
                pair = best(b, (a, i), (v, j))
            found.append(pair)
        first = found[0]
        for other in found[1:]:
            first = best(b, first, other)
        return b.sext(first[1], I64) if self.of.kind != I64 else first[1]
