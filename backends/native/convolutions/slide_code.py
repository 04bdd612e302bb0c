"""Kernels moved along images that have zeros around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from ..loops import loop
from ..machine import I64, least, splat
from .window_code import Block, Windows

State = list[ir.Value]


@dataclass(frozen=True)
class SlideBlock(Block):
    """The sums that registers hold, and what their code depends on."""

    stride: int
    """From place to place of a row, in elements of the image."""
    dilation: int
    """From element to element of a kernel's row."""
    rows: int
    vectors: int
    """Of each row."""


class Slides(Windows):
    """Writes ``slide``."""

    def slide(self, of: SlideBlock) -> None:
        """``out[r, s] = Σ w[c, i, j] x[c, r + i, s stride + j dilation]`` for some rows
        and ``across`` places, at least a vector of them: stretches, such as channels,
        of ``x`` are ``xc`` apart, its rows ``xs``; stretches of ``w`` ``wc``, its rows
        ``kw``, rows of ``out`` ``os``.

        Of ``count`` stretches each has ``kh`` rows, as many as the block has at least,
        the last one ``last`` and ``rest`` elements of another. Sums start anew after
        ``each``. What is read of a row of ``x`` is multiplied by all rows of ``w`` that
        it counts for, and by no other: what is in no sum may be infinite.
        """
        x, xc, xs, w, wc, *sizes, out, os, across = self.function.args
        count, each, kh, last, kw, rest = sizes
        b, wide = self.b, of.vectors * self.lanes
        end = b.sub(count, I64(1))
        with loop(b, I64(0), across, wide) as i:
            # Past the end the last places again.
            top = b.sub(across, I64(self.lanes))
            starts = [b.add(i, I64(v * self.lanes)) for v in range(of.vectors)]
            places = [least(b, s, top) for s in starts]
            under = [self.times(s, of.stride) for s in places]
            totals: State = [self.zero] * (of.rows * of.vectors)
            with self.carried(I64(0), count, each, totals) as first:
                behind = least(b, b.add(first, each), count)
                sums: State = [self.zero] * len(totals)
                with self.carried(first, behind, 1, sums) as c:
                    image = self.at(x, b.mul(c, xc))
                    kernel = self.at(w, b.mul(c, wc))
                    is_last = b.icmp_signed("==", c, end)
                    rows = b.select(is_last, last, kh)
                    more = b.select(is_last, rest, I64(0))
                    shape = rows, kw, more
                    self._stretch(of, (image, xs), (kernel, *shape), under, sums)
                totals[:] = [b.fadd(t, s) for t, s in zip(totals, sums, strict=True)]
            for n, total in enumerate(totals):
                r, v = divmod(n, of.vectors)
                self.store(total, self.at(out, self.times(os, r), places[v]))
        b.ret_void()

    def _stretch(
        self,
        of: SlideBlock,
        image: tuple[ir.Value, ir.Value],
        kernel: tuple[ir.Value, ir.Value, ir.Value, ir.Value],
        under: Sequence[ir.Value],
        sums: State,
    ) -> None:
        """What one stretch adds to ``sums``."""
        b, (x, xs), (w, kh, kw, rest) = self.b, image, kernel

        def row(y: ir.Value, low: int, high: int) -> None:
            """Row ``y`` of the image, for some rows of the result."""
            rows = range(low, high)
            lines = {r: self.at(w, b.mul(b.sub(y, I64(r)), kw)) for r in rows}
            tops = dict.fromkeys(rows, self.at(x, b.mul(y, xs)))
            with self.carried(I64(0), kw, 1, sums) as j:
                self._column(of, under, tops, lines, j, sums)

        others = of.rows - 1
        for y in range(others):
            row(I64(y), 0, y + 1)
        with self.carried(I64(others), kh, 1, sums) as y:
            row(y, 0, of.rows)
        for n in range(others):
            row(b.add(kh, I64(n)), n + 1, of.rows)

        rows = range(of.rows)
        end = dict.fromkeys(rows, self.at(w, b.mul(kh, kw)))
        tops = {r: self.at(x, b.mul(b.add(kh, I64(r)), xs)) for r in rows}
        with self.looped(I64(0), rest, 1, sums) as j:
            self._column(of, under, tops, end, j, sums)

    def _column(
        self,
        of: SlideBlock,
        under: Sequence[ir.Value],
        tops: dict[int, ir.Value],
        lines: dict[int, ir.Value],
        j: ir.Value,
        sums: State,
    ) -> None:
        """Element ``j`` of a kernel's row, for the rows of the result in ``lines``,
        times what lies under it in ``tops``, for vectors of places that lie ``under``.
        """
        b, masks = self.b, self._masks(of.stride)
        known: dict[ir.Value, list[ir.Value]] = {}
        for r, line in lines.items():
            top = tops[r]
            if top not in known:
                place = self.at(top, self.times(j, of.dilation))
                known[top] = [
                    self._strided(self.at(place, v), self.dtype, of.stride, masks)
                    for v in under
                ]
            one = splat(b, b.load(self.at(line, j), typ=self.kind), self.lanes)
            for v, value in enumerate(known[top]):
                n = r * of.vectors + v
                sums[n] = self.times_plus(one, value, sums[n])
