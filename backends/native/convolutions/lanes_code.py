"""Sums of products of images by kernels, one in each lane."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from ..loops import PTR, loop
from ..machine import I64, least, splat
from ..math import I32, declared
from .window_code import Block, Windows


@dataclass(frozen=True)
class LanesBlock(Block):
    """What the code of such sums depends on; the pair is of h and w."""

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


class Lanes(Windows):
    """Writes ``lanes``."""

    def lanes_of(self, of: LanesBlock) -> None:
        """``out[r, s, k] = Σ w[c, i, j, k] x[c, r, i, s step + j apart]``, or added to
        ``out``, for ``rows`` of so many ``tiles``. Channels of ``x`` are ``xc`` apart,
        rows of kernels ``xi``, of places ``xr``; rows of ``out`` ``os``.

        The first tiles ask for the kernels that lie behind these, a vector a turn: they
        are read next, and may be far away."""
        x, xc, xi, xr, w, channels, out, os, rows, tiles, adds = self.function.args
        b, wide = self.b, of.vectors * self.lanes
        count = of.rows * of.across * of.vectors
        taps = self.times(channels, of.kernel[0] * of.kernel[1])
        with loop(b, I64(0), rows, of.rows) as r, loop(b, I64(0), tiles, 1) as t:
            top = self.at(x, b.mul(r, xr), self.times(t, of.across * of.step))
            to = self.at(out, b.mul(r, os), self.times(t, of.across * wide))
            number = b.add(b.mul(b.sdiv(r, I64(of.rows)), tiles), t)
            vector = b.add(least(b, number, I64(of.vectors - 1)), I64(of.vectors))
            ask = self.at(w, b.mul(vector, self.times(taps, self.lanes)))
            state = [self.zero] * count + [w, ask]
            with self.carried(I64(0), channels, 1, state) as c:
                plane = self.at(top, b.mul(c, xc))
                if of.kernel[0] == 1:
                    self._line(of, plane, xr, state)
                else:
                    with self.carried(I64(0), I64(of.kernel[0]), 1, state) as i:
                        self._line(of, self.at(plane, b.mul(i, xi)), xr, state)
            self._put(of, to, os, state[:count], adds)
        b.ret_void()

    def _line(
        self, of: LanesBlock, line: ir.Value, xr: ir.Value, state: list[ir.Value]
    ) -> None:
        """One row of the kernels of a channel."""
        wide, (weights, ask) = of.vectors * self.lanes, state[-2:]
        fetch = declared(self.b, "llvm.prefetch.p0", [PTR, I32, I32, I32])
        lines = [self.at(line, self.times(xr, r)) for r in range(of.rows)]
        for j in range(of.kernel[1]):
            y = [
                self.load(self.at(weights, j * wide + v * self.lanes), self.lanes)
                for v in range(of.vectors)
            ]
            place = self.at(ask, j * self.lanes)
            self.b.call(fetch, [place, *(I32(f) for f in (0, 2, 1))])
            n = 0
            for place in lines:
                for s in range(of.across):
                    at = self.at(place, s * of.step + j * of.apart)
                    one = splat(self.b, self.b.load(at, typ=self.kind), self.lanes)
                    for v in range(of.vectors):
                        state[n] = self.times_plus(one, y[v], state[n])
                        n += 1
        across = of.kernel[1]
        state[-2:] = self.at(weights, across * wide), self.at(ask, across * self.lanes)

    def _put(
        self,
        of: LanesBlock,
        to: ir.Value,
        os: ir.Value,
        sums: list[ir.Value],
        adds: ir.Value,
    ) -> None:
        """Store a tile, or add it to what is there."""
        b, each = self.b, of.across * of.vectors
        places = [
            self.at(to, self.times(os, n // each), n % each * self.lanes)
            for n in range(len(sums))
        ]
        with b.if_else(adds) as (more, first):
            with more:
                for place, value in zip(places, sums, strict=True):
                    self.store(b.fadd(self.load(place, self.lanes), value), place)
            with first:
                for place, value in zip(places, sums, strict=True):
                    self.store(value, place)
