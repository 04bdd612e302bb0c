"""Sums of products of images by kernels, one in each lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from ..loops import PTR, loop
from ..machine import I64, least, most, splat
from ..math import I32, declared
from .window_code import Block, Windows

WRITTEN_OUT = 3
"""Columns of a kernel that are written out; of more, a loop is compiled in 0.6 of the
time, and takes 1.005 to 1.015 of theirs (3×3 to 7×7)."""


@dataclass(frozen=True)
class LanesBlock(Block):
    """What the code of such sums depends on; the kernel is of h and w."""

    rows: int
    """Of places."""
    across: int
    """Places of a row."""
    vectors: int
    """Of kernels."""
    kernel: tuple[int, int]
    step: int
    """From place to place, in elements of an image."""
    apart: int
    """From element to element of a kernel's row."""
    inside: tuple[int, int]
    """Columns under the places of which the image has some: from which to which. The
    others are zeros."""
    own: int = 0
    """Whether each lane has an image of its own, side by side with the others."""

    @classmethod
    def reach(cls, across: int, kernel: int, step: int, apart: int) -> int:
        """Columns under so many places."""
        return (across - 1) * step + (kernel - 1) * apart + 1


class Lanes(Windows):
    """Writes ``lanes``."""

    def lanes_of(self, of: LanesBlock) -> None:
        """``out[r, s, k] = Σ w[c, i, j, k] x[c, r, i, s step + j apart]``, or added to
        ``out``, for ``rows`` of so many ``tiles``. Channels of ``x`` are ``xc`` apart,
        rows of kernels ``xi``, of places ``xr``; rows of ``out`` ``os``.

        The image under them has ``height`` rows, of which row ``first`` is under the
        first of a kernel at the first place, ``sh`` and ``dh`` rows from there others.
        What lies above and below it is left out, and columns beside it: a tenth of a
        kernel of 3×3 at 14×14 places, a fifth at 7×7.

        The first tiles ask for the kernels that lie behind these, a vector a turn: they
        are read next, and may be far away."""
        x, xc, xi, xr, *rest, out, os, rows, tiles, adds = self.function.args
        first, height, sh, dh, w, channels = rest
        b, wide, high = self.b, of.vectors * self.lanes, of.kernel[0]
        count = of.rows * of.across * of.vectors
        taps = self.times(channels, high * of.kernel[1])
        with loop(b, I64(0), rows, of.rows) as r, loop(b, I64(0), tiles, 1) as t:
            each = self.lanes if of.own else 1
            top = self.at(x, b.mul(r, xr), self.times(t, of.across * of.step * each))
            to = self.at(out, b.mul(r, os), self.times(t, of.across * wide))
            number = b.add(b.mul(b.sdiv(r, I64(of.rows)), tiles), t)
            vector = b.add(least(b, number, I64(of.vectors - 1)), I64(of.vectors))
            ask = self.at(w, b.mul(vector, self.times(taps, self.lanes)))
            state = [self.zero] * count + [w, ask]
            if high > 1:
                above = b.add(first, b.mul(r, sh))
                low, end = self._inside(of, above, height, sh, dh)
                left_out = self.times(b.sub(b.add(low, I64(high)), end), of.kernel[1])
                state[-2:] = self._past(of, state, self.times(low, of.kernel[1]))
            with self.carried(I64(0), channels, 1, state) as c:
                plane = self.at(top, b.mul(c, xc))
                if high == 1:
                    self._line(of, plane, xr, state)
                else:
                    with self.carried(low, end, 1, state) as i:
                        self._line(of, self.at(plane, b.mul(i, xi)), xr, state)
                    state[-2:] = self._past(of, state, left_out)
            self._put(of, to, os, state[:count], splat(b, adds, self.lanes))
        b.ret_void()

    def _inside(
        self,
        of: LanesBlock,
        above: ir.Value,
        height: ir.Value,
        sh: ir.Value,
        dh: ir.Value,
    ) -> tuple[ir.Value, ir.Value]:
        """From which to which row of the kernels there is an image under some row of
        the places of a tile, the first of which is at row ``above``; at least one."""
        b, high = self.b, of.kernel[0]
        last = b.add(above, self.times(sh, of.rows - 1))
        more = b.sub(dh, I64(1))
        low = most(b, b.sdiv(b.sub(more, last), dh), I64(0))
        low = least(b, low, I64(high - 1))
        end = b.sdiv(b.add(b.sub(height, above), more), dh)
        return low, most(b, least(b, end, I64(high)), b.add(low, I64(1)))

    def _past(
        self, of: LanesBlock, state: list[ir.Value], taps: ir.Value
    ) -> list[ir.Value]:
        """The weights and what is asked for, so many taps on."""
        return [
            self.at(state[-2], self.times(taps, of.vectors * self.lanes)),
            self.at(state[-1], self.times(taps, self.lanes)),
        ]

    def _line(
        self, of: LanesBlock, line: ir.Value, xr: ir.Value, state: list[ir.Value]
    ) -> None:
        """One row of the kernels of a channel."""
        fetch = declared(self.b, "llvm.prefetch.p0", [PTR, I32, I32, I32])
        lines = self._rows(of, line, xr)
        reach = of.reach(of.across, of.kernel[1], of.step, of.apart)
        each = self.lanes if of.own else 1
        if of.kernel[1] > WRITTEN_OUT and of.inside == (0, reach):
            state += lines
            with self.carried(I64(0), I64(of.kernel[1]), 1, state):
                lines = state[-of.rows :]
                self._column(of, 0, lines, state, fetch)
                state[-of.rows :] = [self.at(p, of.apart * each) for p in lines]
            del state[-of.rows :]
            return
        for j in range(of.kernel[1]):
            self._column(of, j, lines, state, fetch)

    def _rows(self, of: LanesBlock, first: ir.Value, apart: ir.Value) -> list[ir.Value]:
        """Where the rows of a tile start."""
        more = (self.at(first, self.times(apart, r)) for r in range(1, of.rows))
        return [first, *more]

    def _column(
        self,
        of: LanesBlock,
        j: int,
        lines: Sequence[ir.Value],
        state: list[ir.Value],
        fetch: ir.Function,
    ) -> None:
        """Column ``j`` of the row."""
        at = of.rows * of.across * of.vectors
        wide, (weights, ask) = of.vectors * self.lanes, state[at : at + 2]
        y = [
            self.load(self.at(weights, v * self.lanes), self.lanes)
            for v in range(of.vectors)
        ]
        self.b.call(fetch, [ask, *(I32(f) for f in (0, 2, 1))])
        n = 0
        for place in lines:
            for s in range(of.across):
                column = s * of.step + j * of.apart
                if not of.inside[0] <= column < of.inside[1]:
                    n += of.vectors
                    continue
                one = self._element(of, place, column)
                for v in range(of.vectors):
                    state[n] = self.times_plus(one, y[v], state[n])
                    n += 1
        state[at : at + 2] = self.at(weights, wide), self.at(ask, self.lanes)

    def _element(self, of: LanesBlock, row: ir.Value, column: int) -> ir.Value:
        """One element of a row in all lanes, or of each lane's own image."""
        if of.own:
            return self.load(self.at(row, column * self.lanes), self.lanes)
        one = self.b.load(self.at(row, column), typ=self.kind)
        return splat(self.b, one, self.lanes)

    def _put(
        self,
        of: LanesBlock,
        to: ir.Value,
        os: ir.Value,
        sums: list[ir.Value],
        adds: ir.Value,
    ) -> None:
        """Store a tile, or add it to what is there."""
        rows = self._rows(of, to, os)
        each = of.across * of.vectors
        for n, value in enumerate(sums):
            place = self.at(rows[n // each], n % each * self.lanes)
            before = self.load(place, self.lanes, adds)
            self.store(self.b.fadd(value, before), place)
