"""Sums of products of images by large kernels, for a few places of theirs."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from ..loops import loop
from ..machine import I64
from ..products import Vectors
from .window_code import Block, Windows


@dataclass(frozen=True)
class TapsBlock(Block):
    """What the code of such sums depends on."""

    kernels: int
    """Computed together."""
    rows: int
    """Of places."""
    across: int
    """Places of a row."""
    step: int
    """From element to element of a kernel, in an image."""
    apart: int
    """From place to place."""


class Taps(Windows, Vectors):
    """Writes ``taps`` and ``fold``."""

    def taps(self, of: TapsBlock) -> None:
        """``sums[k, i, j] += Σ w[k, r, s] x[r, i, s step + j apart]``, a sum in each
        lane, over ``rows`` of ``across``: ``xr`` and ``xi`` apart in ``x``, kernels
        ``wk``, sums ``ok`` vectors. They begin at 0 unless it ``adds``."""
        x, xr, xi, w, wk, rows, across, sums, ok, adds = self.function.args
        b = self.b
        cells = [(i, j) for i in range(of.rows) for j in range(of.across)]
        apart = self.times(ok, self.lanes)
        places = [
            self.at(sums, self.times(apart, k), (i * of.across + j) * self.lanes)
            for k in range(of.kernels)
            for i, j in cells
        ]
        none = ir.Constant(ir.VectorType(ir.IntType(1), self.lanes), None)
        kept = b.select(adds, self.first(I64(self.lanes)), none)
        state = [self.load(p, self.lanes, kept) for p in places]
        with self.carried(I64(0), rows, 1, state) as r:
            top = self.at(x, self.times(xr, r))
            line = self.at(w, self.times(across, r))
            lines = [self.at(line, self.times(wk, k)) for k in range(of.kernels)]
            with self.carried(I64(0), across, self.lanes, state) as s:
                mask = self.first(b.sub(across, s))
                factors = [self.load(self.at(p, s), self.lanes, mask) for p in lines]
                for n, (i, j) in enumerate(cells):
                    at = self.at(top, self.times(xi, i), self.times(s, of.step))
                    at = self.at(at, j * of.apart)
                    value = self._strided(at, self.dtype, of.step, self._masks(of.step))
                    for k, factor in enumerate(factors):
                        c = k * len(cells) + n
                        total = self.times_plus(factor, value, state[c])
                        state[c] = b.select(mask, total, state[c])
        for p, value in zip(places, state, strict=True):
            self.store(value, p)
        b.ret_void()

    def fold(self) -> None:
        """``out[k, n]`` are the sums of the lanes of ``sums[k, n]``, for ``rows`` of
        ``columns``: rows of ``out`` are ``os`` apart."""
        sums, out, os, rows, columns = self.function.args
        b = self.b
        with loop(b, I64(0), rows, 1) as k, loop(b, I64(0), columns, 1) as n:
            at = b.add(self.times(columns, k), n)
            value = self.load(self.at(sums, self.times(at, self.lanes)), self.lanes)
            (total,) = self._totals([value])
            self.store(total, self.at(out, self.times(os, k), n))
        b.ret_void()
