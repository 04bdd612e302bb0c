"""Products of a matrix by a vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from ..loops import ask, loop
from ..machine import ALIGNMENT, COMMON, I64, constant, least, splat
from ..math import I32
from .gemm_code_base import FunctionCode


@dataclass(frozen=True)
class ColumnSpan:
    """Columns, or elements of a sum, so many at a time; those from ``end`` on, where it
    is given, count for nothing."""

    low: ir.Value
    high: ir.Value
    lanes: int
    end: ir.Value | None = None


class Vectors(FunctionCode):
    """Writes ``line`` and ``dots``."""

    asks = ""
    """How the matrix is asked for ahead, which no second cache holds: ``far``, or
    ``dense``, where each row begins where the one before it ends."""

    def line(self) -> None:
        """``out[j] = Σ x[n] y[n, j]`` for ``columns``: elements of ``x`` are ``xs``
        apart, rows of ``y`` ``ys``. A stretch of ``out`` stays in cache."""
        *_, out, size, columns = self.function.args
        b = self.b
        stretch = COMMON.line_bytes // self.dtype.itemsize
        with loop(b, I64(0), columns, stretch) as j:
            end = least(self.b, b.add(j, I64(stretch)), columns)
            inner = b.add(j, self.whole(b.sub(end, j), self.lanes))
            rest = ColumnSpan(inner, end, *((self.lanes, end) if self.masks else (1,)))
            spans = ColumnSpan(j, inner, self.lanes), rest
            for s in spans:
                with loop(b, s.low, s.high, s.lanes) as i:
                    zero = constant(self.kind, s.lanes, 0)
                    self.store(zero, self.at(out, i), self._mask(i, s.end))
            # Of dense rows fewer are streams enough (Zen 3, rows of 512 and 1024 bytes
            # from memory: 0.92 of the time; from a third cache the same).
            height = COMMON.line_rows // (2 if self.asks == "dense" else 1)
            many = self.whole(size, height)
            for start, stop, rows in ((I64(0), many, height), (many, size, 1)):
                with loop(b, start, stop, rows) as n:
                    for s in spans:
                        self._lines(n, rows, s)
        b.ret_void()

    def _lines(self, n: ir.Value, rows: int, s: ColumnSpan) -> None:
        x, xs, y, ys, out, _, _ = self.function.args
        b = self.b
        at = [b.add(n, I64(r)) for r in range(rows)]
        ones = [b.load(self.at(x, self.times(r, xs)), typ=self.kind) for r in at]
        factors = [splat(b, one, s.lanes) for one in ones]
        lines = [self.at(y, self.times(r, ys)) for r in at]
        with loop(b, s.low, s.high, s.lanes) as i:
            mask, total = self._mask(i, s.end), None
            self._ask(lines, i, s.lanes)
            for factor, line in zip(factors, lines, strict=True):
                value = self.load(self.at(line, i), s.lanes, mask)
                if total is None:
                    total = b.fmul(factor, value)
                else:
                    total = self.times_plus(factor, value, total)
            place = self.at(out, i)
            old = self.load(place, s.lanes, mask)
            self.store(b.fadd(old, total), place, mask)

    def dots(self) -> None:
        """``out[i] = Σ a[i, n] x[n]`` for ``rows``: rows of ``a`` are ``as`` apart,
        elements of ``out`` ``os``."""
        a, a_s, x, out, os, size, rows = self.function.args
        b, step = self.b, 2 * self.lanes
        many, whole = self.whole(size, step), self.whole(size, self.lanes)
        with loop(b, I64(0), rows, COMMON.dot_rows) as i:
            top = b.sub(b.sub(rows, i), I64(1))
            at = [b.add(i, least(self.b, I64(r), top)) for r in range(COMMON.dot_rows)]
            lines = [self.at(a, self.times(r, a_s)) for r in at]
            halves = [self.zero] * (2 * COMMON.dot_rows)
            self._products(ColumnSpan(I64(0), many, self.lanes), halves, lines, x)
            pairs = zip(halves[::2], halves[1::2], strict=True)
            sums = [b.fadd(p, q) for p, q in pairs]
            self._products(ColumnSpan(many, whole, self.lanes), sums, lines, x)
            if self.masks:
                rest = ColumnSpan(whole, size, self.lanes, size)
                self._products(rest, sums, lines, x)
            totals = self._totals(sums)
            if not self.masks:
                self._products(ColumnSpan(whole, size, 1), totals, lines, x)
            for r, total in zip(at, totals, strict=True):
                self.store(total, self.at(out, self.times(r, os)))
        b.ret_void()

    def _products(
        self, s: ColumnSpan, sums: list[ir.Value], lines: list[ir.Value], x: ir.Value
    ) -> None:
        """The products of some columns, if there are any, added to ``sums``."""
        each = len(sums) // len(lines)
        with self.looped(s.low, s.high, each * s.lanes, sums) as n:
            mask = self._mask(n, s.end)
            self._ask(lines, n, each * s.lanes)
            for e in range(each):
                factor = self.load(self.at(x, n, e * s.lanes), s.lanes, mask)
                for r, line in enumerate(lines):
                    place = self.at(line, n, e * s.lanes)
                    value = self.load(place, s.lanes, mask)
                    at = r * each + e
                    sums[at] = self.times_plus(factor, value, sums[at])

    def _mask(self, i: ir.Value, end: ir.Value | None) -> ir.Value | None:
        """Which lanes from ``i`` on come before ``end``; None for all."""
        return None if end is None else self.first(self.b.sub(end, i))

    def _ask(self, lines: list[ir.Value], n: ir.Value, columns: int) -> None:
        """Ask for memory while so many elements of each row are read, from ``n`` on:
        for what lies some way behind them in all rows together, or for as many bytes
        of ``dense`` rows to come, line after line."""
        rows, size, far = len(lines), self.dtype.itemsize, COMMON.ahead_bytes
        if not self.asks or columns < self.lanes:
            return
        if self.asks == "far":
            for line in lines:
                for e in range(0, columns, self.lanes):
                    ask(self.b, self.at(line, n, e), far // rows)
            return
        first = self.at(lines[0], self.times(n, rows))
        for byte in range(0, rows * columns * size, ALIGNMENT):
            ask(self.b, first, far + byte)

    def _totals(self, vectors: list[ir.Value]) -> list[ir.Value]:
        """The sum of the lanes of each. Vectors are added in pairs, halves beside
        halves: 13 steps for four vectors of 16 lanes, one by one 36."""
        b, count = self.b, len(vectors)
        group = self.lanes
        while len(vectors) > 1 and group > 1:
            group //= 2
            both = range(2 * self.lanes)
            low = mask([i for i in both if i % (2 * group) < group])
            high = mask([i for i in both if i % (2 * group) >= group])
            vectors = [
                b.fadd(b.shuffle_vector(x, y, low), b.shuffle_vector(x, y, high))
                for x, y in zip(vectors[::2], vectors[1::2], strict=True)
            ]
        while group > 1:
            group //= 2
            other = mask([i ^ group for i in range(self.lanes)])
            vectors = [b.fadd(v, b.shuffle_vector(v, v, other)) for v in vectors]
        each = count // len(vectors)
        return [
            b.extract_element(v, I32(i * (self.lanes // each)))
            for v in vectors
            for i in range(each)
        ]


def mask(places: Sequence[int]) -> ir.Constant:
    """The lanes that a shuffle takes."""
    return ir.Constant(ir.VectorType(I32, len(places)), [I32(n) for n in places])
