"""Images brought into the order that products and sums read, and kernels of one
channel."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, Self

from llvmlite import ir

from ...loop_ir import (
    DType,
)
from ..loops import loop
from ..machine import (
    I64,
    least,
    memory_type,
    most,
    splat,
)
from ..math import I32
from ..products import FunctionCode, mask

Masks = dict[int, ir.Value | None]
"""By the number of a vector of memory, its lanes that are read; None for all."""
BIAS = 1 << 32
"""Added to a number before it is divided, so that it is not negative."""


@dataclass(frozen=True)
class Block:
    """What the code of some sums depends on: numbers, and pairs of them. Its text is
    part of the name of their function."""

    def __str__(self) -> str:
        numbers = (v if isinstance(v, tuple) else (v,) for v in astuple(self))
        return "_".join("x".join(map(str, n)) for n in numbers)

    @classmethod
    def of(cls, *parts: str) -> Self:
        """What ``str`` was made of, between its underscores."""
        numbers: Any = [tuple(map(int, p.split("x"))) for p in parts]
        return cls(*(n if len(n) > 1 else n[0] for n in numbers))


@dataclass(frozen=True)
class Stencil(Block):
    """What the code of a kernel of one channel depends on; pairs are of h and w."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    rows: int
    """Rows of the result that are computed together."""


class Windows(FunctionCode):
    """Writes ``gather``, ``border`` and ``stencil``."""

    # -- columns of products -----------------------------------------------------------

    def gather(self, source: DType, step: int) -> None:
        """Elements of an image under the kernels at some places, as rows of a panel.

        ``x`` has channels ``xc`` and rows ``xs`` apart, of ``height`` rows of
        ``width``; places are numbered from ``first``, ``columns`` of ``total``,
        ``across`` in a row; panels are ``wide`` and ``apart`` elements long. Kernels
        move by ``sh`` rows and ``step`` elements.
        """
        x, xc, xs, height, width, across, total, *rest = self.function.args
        sh, ph, pw, dh, dw, kh, kw, out, wide, apart, first, columns, channels = rest
        b = self.b
        area = b.mul(kh, kw)
        to_next = b.mul(area, wide)
        with loop(b, I64(0), columns, self.lanes) as v:
            panel = self.at(out, self.times(b.sdiv(v, wide), apart), b.srem(v, wide))
            place = b.add(first, v)
            row, s = b.sdiv(place, across), b.srem(place, across)
            left = least(b, b.sub(total, place), self.lanes)
            parts = b.add(b.sdiv(b.sub(b.add(s, left), I64(1)), across), I64(1))
            with loop(b, I64(0), kh, 1) as i, loop(b, I64(0), kw, 1) as j:
                at = b.add(b.mul(i, kw), j)
                to = self.at(panel, b.mul(at, wide))
                down = b.sub(b.mul(i, dh), ph)
                shift = b.sub(b.mul(j, dw), pw)
                with loop(b, I64(0), parts, 1) as n:
                    # Lanes of one row of places, and those of them in the image.
                    start = b.sub(s, b.mul(n, across))
                    low = most(b, I64(0), b.neg(start))
                    high = least(b, left, b.sub(across, start))
                    y = b.add(b.mul(b.add(row, n), sh), down)
                    is_row = b.icmp_unsigned("<", y, height)
                    before = b.sub(self._places(b.neg(shift), step), start)
                    end = b.sub(self._places(b.sub(width, shift), step), start)
                    low = most(b, low, before)
                    high = b.select(is_row, least(b, high, end), low)
                    column = b.add(self.times(start, step), shift)
                    by = b.add(b.mul(y, xs), column)
                    image = self.at(x, by, kind=memory_type(source))
                    lanes = low, high, b.icmp_signed("==", n, I64(0))
                    ways = (image, xc), (to, to_next), channels
                    self._channels(source, step, lanes, *ways)
        b.ret_void()

    def _places(self, size: ir.Value, step: int) -> ir.Value:
        """How many steps start within ``size`` elements; negative ones before it."""
        if step == 1:
            return size
        b = self.b
        up = b.add(size, I64(BIAS * step + step - 1))
        return b.sub(b.sdiv(up, I64(step)), I64(BIAS))

    def _channels(
        self,
        source: DType,
        step: int,
        lanes: tuple[ir.Value, ir.Value, ir.Value],
        image: tuple[ir.Value, ir.Value],
        to: tuple[ir.Value, ir.Value],
        channels: ir.Value,
    ) -> None:
        """The lanes from low to high of each channel: the first ones with zeros around
        them, others beside what is there."""
        b, (low, high, is_first) = self.b, lanes
        kind = memory_type(source)
        whole = b.and_(
            b.icmp_signed("<=", low, I64(0)), b.icmp_signed(">=", high, I64(self.lanes))
        )

        def each(masks: Masks, merged: ir.Value | None = None) -> None:
            state = [image[0], to[0]]
            with self.carried(I64(0), channels, 1, state):
                at, place = state
                value = self._strided(at, source, step, masks)
                if merged is not None:
                    value = b.select(merged, value, self.load(place, self.lanes))
                self.store(value, place)
                state[:] = [
                    self.at(at, image[1], kind=kind),
                    self.at(place, to[1]),
                ]

        with b.if_else(whole) as (then, otherwise):
            with then:
                each(self._masks(step))
            with otherwise:
                masks = self._masks(step, low, high)
                with b.if_else(is_first) as (first, later):
                    with first:
                        each(masks)
                    with later, b.if_then(b.icmp_signed("<", low, high)):
                        each(masks, self._between(low, high, 0))

    def _masks(
        self, step: int, low: ir.Value | None = None, high: ir.Value | None = None
    ) -> Masks:
        """For each vector that every ``step``-th element of some is in, those that may
        be read: from the one of lane ``low`` to the one before lane ``high``; all, but
        none behind the last one, without these. None where nothing is to be picked."""
        lanes, found = self.lanes, dict[int, ir.Value | None]()
        end = (lanes - 1) * step + 1
        first, last = I64(0), I64(end)
        if low is not None and high is not None:
            first = self.times(low, step)
            last = self.b.sub(self.times(high, step), I64(step - 1))
        for n in sorted({i * step // lanes for i in range(lanes)}):
            whole = low is None and (n + 1) * lanes <= end
            found[n] = None if whole else self._between(first, last, n * lanes)
        return found

    def _strided(
        self, place: ir.Value, source: DType, step: int, masks: Masks
    ) -> ir.Value:
        """Every ``step``-th element from ``place`` on, zeros where ``masks`` says."""
        lanes, found = self.lanes, self.zero
        for n, wanted in masks.items():
            at = self.at(place, n * lanes, kind=memory_type(source))
            value = self.read(at, lanes, source, wanted)
            if step == 1:
                return value
            picks = [i * step - n * lanes for i in range(lanes)]
            lane_of = [lanes + p if 0 <= p < lanes else i for i, p in enumerate(picks)]
            found = self.b.shuffle_vector(found, value, mask(lane_of))
        return found

    def _between(self, low: ir.Value, high: ir.Value, first: int) -> ir.Value:
        """Of lanes that count from ``first``, those from ``low`` to ``high``."""
        b, lanes = self.b, self.lanes
        ramp = ir.Constant(
            ir.VectorType(I32, lanes), [I32(first + n) for n in range(lanes)]
        )
        low, high = (self._clamped(i, first) for i in (low, high))
        above = b.icmp_signed(">=", ramp, splat(b, low, lanes))
        return b.and_(above, b.icmp_signed("<", ramp, splat(b, high, lanes)))

    def _clamped(self, i: ir.Value, first: int) -> ir.Value:
        """``i``, or a bound of lanes that count from ``first``, in 32 bits."""
        i = most(self.b, least(self.b, i, first + self.lanes), I64(first))
        return self.b.trunc(i, I32)

    # -- kernels of one channel --------------------------------------------------------

    def border(self, source: DType) -> None:
        """``rows`` of one channel from ``first`` on, with zeros around them: ``pw``
        elements before each row, and up to ``os`` in all, whole vectors."""
        x, xs, height, width, out, os, first, rows, pw = self.function.args
        b, kind = self.b, memory_type(source)
        with loop(b, I64(0), rows, 1) as r:
            y = b.add(first, r)
            to = self.at(out, self.times(r, os))
            is_row = b.icmp_unsigned("<", y, height)
            line = self.at(x, b.sub(b.mul(y, xs), pw), kind=kind)
            with b.if_else(is_row) as (then, otherwise):
                with then, loop(b, I64(0), os, self.lanes) as e:
                    low = b.sub(pw, e)
                    high = b.add(width, low)
                    inside = b.and_(
                        b.icmp_signed("<=", low, I64(0)),
                        b.icmp_signed(">=", high, I64(self.lanes)),
                    )
                    at, place = self.at(line, e, kind=kind), self.at(to, e)
                    with b.if_else(inside) as (whole, part):
                        with whole:
                            self.store(self.read(at, self.lanes, source), place)
                        with part:
                            wanted = self._between(low, high, 0)
                            value = self.read(at, self.lanes, source, wanted)
                            self.store(value, place)
                with otherwise, loop(b, I64(0), os, self.lanes) as e:
                    self.store(self.zero, self.at(to, e))
        b.ret_void()

    def stencil(self, of: Stencil) -> None:
        """``out[r, s] = Σ w[i, j] x[r sh + i dh, s sw + j dw]`` for ``rows``, as many
        as :attr:`Stencil.rows` at least, of ``across``: rows of ``x`` are ``xs``
        apart."""
        x, xs, w, out, across, rows = self.function.args
        b, (kh, kw), (sh, sw) = self.b, of.kernel, of.stride
        weights = [
            splat(b, b.load(self.at(w, n), typ=self.kind), self.lanes)
            for n in range(kh * kw)
        ]
        with loop(b, I64(0), rows, of.rows) as i:
            # Past the end the last rows again.
            r = least(b, i, b.sub(rows, I64(of.rows)))
            top = self.at(x, b.mul(self.times(r, sh), xs))
            to = self.at(out, b.mul(r, across))
            with loop(b, I64(0), across, self.lanes) as s:
                sums = self._taps(of, self.at(top, self.times(s, sw)), xs, weights)
                left = b.sub(across, s)
                places = [self.at(to, self.times(across, n), s) for n in range(of.rows)]
                whole = b.icmp_signed(">=", left, I64(self.lanes))
                with b.if_else(whole) as (then, otherwise):
                    with then:
                        for total, place in zip(sums, places, strict=True):
                            self.store(total, place)
                    with otherwise:
                        for total, place in zip(sums, places, strict=True):
                            self._store_some(total, place, left)
        b.ret_void()

    def _taps(
        self, of: Stencil, x: ir.Value, xs: ir.Value, weights: list[ir.Value]
    ) -> list[ir.Value]:
        """Sums of some rows of the result; each vector of the image is read once."""
        (kh, kw), (sh, sw), (dh, dw) = of.kernel, of.stride, of.dilation
        sums: list[ir.Value | None] = [None] * of.rows
        wanted: dict[int, list[tuple[int, int]]] = {}
        for n in range(of.rows):
            for i in range(kh):
                wanted.setdefault(n * sh + i * dh, []).append((n, i))
        for row in sorted(wanted):
            line = self.at(x, self.times(xs, row))
            for j in range(kw):
                at = self.at(line, j * dw)
                value = self._strided(at, self.dtype, sw, self._masks(sw))
                for n, i in wanted[row]:
                    weight, old = weights[i * kw + j], sums[n]
                    if old is None:
                        sums[n] = self.b.fmul(weight, value)
                    else:
                        sums[n] = self.times_plus(weight, value, old)
        return [s for s in sums if s is not None]

    def _store_some(self, value: ir.Value, place: ir.Value, count: ir.Value) -> None:
        """The first ``count`` lanes."""
        self.store(value, place, self.first(count))
