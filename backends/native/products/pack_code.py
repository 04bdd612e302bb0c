"""Matrices brought into the order that products read."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from ...loop_ir import (
    DType,
)
from ..loops import loop
from ..machine import I64, least, memory_type
from .gemm_code_base import FunctionCode
from .matvec_code import mask


class Order(FunctionCode):
    """Writes ``copy``, ``turn`` and ``back``."""

    def copy(self, source: DType) -> None:
        """``out[r, c] = x[r, c]``: rows of ``x`` are ``xs`` apart, of ``out``
        ``os``."""
        x, xs, out, os, rows, columns = self.function.args
        b, kind = self.b, memory_type(source)
        whole = self.whole(columns, self.lanes)
        with loop(b, I64(0), rows, 1) as r:
            line = self.at(x, self.times(r, xs), kind=kind)
            to = self.at(out, self.times(r, os))
            spans = ((I64(0), whole, self.lanes), (whole, columns, 1))
            for low, high, lanes in spans:
                with loop(b, low, high, lanes) as c:
                    value = self.read(self.at(line, c, kind=kind), lanes, source)
                    self.store(value, self.at(to, c))
        b.ret_void()

    def turn(self, source: DType, exact: bool = False, by_rows: bool = False) -> None:
        """``out[r, c] = x[c, r]``: rows of ``x`` are ``xs`` apart, of ``out`` ``os``.
        ``out`` has room for whole vectors in its rows, unless it is to be ``exact``.

        ``by_rows``: rows that are far apart, as planes of channels, are written one
        group after the other, so that the processor sees where each goes on (sums of 64
        channels of 112×112 places: 0.6 of the time, a network 0.99). Where another
        thread has written what lies there it takes 1.02 to 1.04 times as long: what is
        fetched ahead comes to be read first, and then again to be written."""
        x, xs, out, os, rows, columns = self.function.args
        b, kind, lanes = self.b, memory_type(source), self.lanes
        enough = b.icmp_signed(">=", rows, I64(lanes))
        with b.if_else(enough) as (then, otherwise):
            with then:
                blocks = (rows, columns) if by_rows else (columns, rows)
                with loop(b, I64(0), blocks[0], lanes) as outer:
                    with loop(b, I64(0), blocks[1], lanes) as inner:
                        r, c = (outer, inner) if by_rows else (inner, outer)
                        self._block(r, c, source, exact)
            with otherwise, loop(b, I64(0), columns, 1) as c:
                line = self.at(x, self.times(c, xs), kind=kind)
                with loop(b, I64(0), rows, 1) as r:
                    value = self.read(self.at(line, r, kind=kind), 1, source)
                    self.store(value, self.at(out, self.times(r, os), c))
        b.ret_void()

    def _block(self, r: ir.Value, c: ir.Value, source: DType, exact: bool) -> None:
        """The square from row ``r`` and column ``c`` of the result on."""
        x, xs, out, os, rows, columns = self.function.args
        b, kind, lanes = self.b, memory_type(source), self.lanes
        r = least(b, r, b.sub(rows, I64(lanes)))  # past the end the last rows again
        top = b.sub(b.sub(columns, c), I64(1))
        columns_read = [b.add(c, least(b, I64(n), top)) for n in range(lanes)]
        line = self.at(x, r, kind=kind)
        places = [self.at(line, self.times(n, xs), kind=kind) for n in columns_read]
        kept = self.first(b.sub(columns, c)) if exact else None
        self._square(places, self.at(out, self.times(r, os), c), os, source, kept)

    def _square(
        self,
        places: Sequence[ir.Value],
        out: ir.Value,
        os: ir.Value,
        source: DType,
        kept: ir.Value | None,
    ) -> None:
        """As many rows as columns as a vector has lanes, but for columns that are not
        ``kept``."""
        square = [self.read(place, self.lanes, source) for place in places]
        for value in transposed(self.b, square):
            self.store(value, out, kept)
            out = self.at(out, os)


def transposed(b: ir.IRBuilder, square: Sequence[ir.Value]) -> list[ir.Value]:
    """The transpose of as many vectors as they have lanes, a power of two: squares of
    two, four, … change their corners."""
    rows, lanes = list(square), len(square)
    half = 1
    while half < lanes:
        for i in range(lanes):
            if i & half:
                continue
            low, high = rows[i], rows[i + half]
            first = [n if not n & half else n - half + lanes for n in range(lanes)]
            second = [n + half if not n & half else n + lanes for n in range(lanes)]
            rows[i] = b.shuffle_vector(low, high, mask(first))
            rows[i + half] = b.shuffle_vector(low, high, mask(second))
        half *= 2
    return rows
