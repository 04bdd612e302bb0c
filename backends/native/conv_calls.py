"""Calls of convolutions in a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from ..kernels.pieces import Convolution, Piece, Product
from . import convolutions
from .access import loop
from .convert import I64, least
from .gemm import Packing, Plan
from .gemm_calls import OwnCalls, Part
from .gemm_code import name_of
from .tiles import spans, tile


@dataclass(frozen=True)
class Under:
    """What is under the kernels, at some places of some channels: in a panel, or where
    the image lies."""

    panel: ir.Value
    lies: tuple[ir.Value, ir.Value]
    """Elements from row to row of a vector's columns, and from one vector to the next.
    """
    vectors: int
    """Of a tile."""
    columns: ir.Value
    """Places."""
    size: ir.Value
    """Elements of each column."""
    adds: ir.Value
    """Whether other channels came before."""


class ImageCalls(OwnCalls):
    """Products and convolutions by generated code."""

    def part(
        self,
        p: Piece | Packing,
        how: Plan,
        pointers: Sequence[ir.Value],
        part: Part,
        scratch: ir.Value,
    ) -> None:
        """A part of a product or convolution, with memory of this thread."""
        if isinstance(p, Product):
            self.product(p, how, pointers, part, scratch)
        elif isinstance(p, Convolution):
            self.convolution(p, how, pointers, part, scratch)

    def convolution(
        self,
        p: Convolution,
        how: Plan,
        pointers: Sequence[ir.Value],
        part: Part,
        scratch: ir.Value,
    ) -> None:
        """A part of a convolution, with memory of this thread."""
        x, y, out = pointers
        x = self.element(p, 0, x, part.batch, part.first)
        y = self.element(p, 1, y, part.batch)
        out = self.element(p, 2, out, part.batch, part.first)
        write = self._stencil if how.kind == "stencil" else self._windows
        write(p, how, (x, y, out), part, scratch)

    def places(
        self, p: Convolution, how: Plan, part: Part
    ) -> tuple[ir.Value, ir.Value]:
        """The first place of a part, and that behind its last one."""
        if how.kind == "stencil":
            low, high = self._rows(p, part)
            across = I64(p.window.places[1])
            return self.b.mul(low, across), self.b.mul(high, across)
        ranges = list(self._ranges(p, part.column, part.columns))
        return ranges[0][0], ranges[-1][1] if len(ranges) == 1 else self._end(ranges)

    def _end(self, ranges: Sequence[tuple[ir.Value, ir.Value, int]]) -> ir.Value:
        """Behind the last place: of the last range that is not empty."""
        end = ranges[0][1]
        for low, high, _ in ranges[1:]:
            some = self.b.icmp_signed(">", high, low)
            end = self.b.select(some, high, end)
        return end

    # -- panels ------------------------------------------------------------------------

    def _windows(
        self,
        p: Convolution,
        how: Plan,
        pointers: Sequence[ir.Value],
        part: Part,
        scratch: ir.Value,
    ) -> None:
        x, y, out = pointers
        b, area, each = self.b, p.window.area, convolutions.channels(p)
        shape = tile(self.host, p.dtype)
        ranges = [
            (*columns, convolutions.is_read_as_it_lies(p, self.host, s.columns))
            for s, columns in zip(
                spans(p.sizes[1], shape),
                self._ranges(p, part.column, part.columns),
                strict=True,
            )
        ]
        with loop(b, I64(0), I64(p.channels), each) as channel:
            count = least(b, b.sub(I64(p.channels), channel), each)
            size = b.mul(count, I64(area))
            images = self._at(p.y.dtype, y, (channel, p.at[1].strides[-2]))
            kernels = self._at(p.dtype, x, (channel, area))
            adds = b.icmp_signed(">", channel, I64(0))
            for low, high, vectors, as_it_lies in ranges:
                with b.if_then(b.icmp_signed("<", low, high)):
                    columns = b.sub(high, low)
                    wide = vectors * shape.lanes
                    if as_it_lies:
                        panel = self._at(p.dtype, images, (low, 1))
                        lies = I64(p.at[1].strides[-2]), I64(wide)
                    else:
                        panel, lies = scratch, (I64(wide), b.mul(size, I64(wide)))
                    under = Under(panel, lies, vectors, columns, size, adds)
                    if not as_it_lies:
                        self._gather(p, images, count, low, under)
                    to = self._at(p.dtype, out, (low, 1))
                    self._multiply(p, how, kernels, part.count, under, to)

    def _gather(
        self,
        p: Convolution,
        images: ir.Value,
        count: ir.Value,
        low: ir.Value,
        under: Under,
    ) -> None:
        """So many channels of images, from place ``low`` on, into a panel."""
        w, (channel, row) = p.window, p.at[1].strides[-2:]
        name = name_of("gather", p.dtype, f"{p.y.dtype.name}_{w.stride[1]}")
        self._function(
            name,
            [
                *(images, channel, row, *w.image, w.places[1], p.sizes[1]),
                *(w.stride[0], *w.padding, *w.dilation, *w.kernel),
                *(under.panel, *under.lies, low, under.columns, count),
            ],
        )

    def _multiply(
        self,
        p: Convolution,
        how: Plan,
        kernels: ir.Value,
        rows: ir.Value,
        under: Under,
        to: ir.Value,
    ) -> None:
        """So many kernels by what is under them, a block of kernels at a time."""
        b = self.b
        lead, apart = (p.at[which].strides[-2] for which in (2, 0))
        step = convolutions.block(p, how)
        name = name_of("tiles", p.dtype, f"{how.height}x{under.vectors}")
        with loop(b, I64(0), rows, step) as row:
            count = least(b, b.sub(rows, row), step)
            a = self._at(p.dtype, kernels, (row, apart))
            c = self._at(p.dtype, to, (row, lead))
            args = [a, apart, under.panel, *under.lies, c, lead]
            self._function(name, [*args, under.size, count, under.columns, under.adds])

    # -- stencils ----------------------------------------------------------------------

    def _rows(self, p: Convolution, part: Part) -> tuple[ir.Value, ir.Value]:
        """The rows of places of a part."""
        b, rows = self.b, I64(p.window.places[0])
        if part.columns == 1:
            return I64(0), rows
        low = b.mul(part.column, rows)
        count = I64(part.columns)
        return b.sdiv(low, count), b.sdiv(b.add(low, rows), count)

    def _stencil(
        self,
        p: Convolution,
        how: Plan,
        pointers: Sequence[ir.Value],
        part: Part,
        scratch: ir.Value,
    ) -> None:
        x, y, out = pointers
        b, w = self.b, p.window
        low, high = self._rows(p, part)
        rows = b.sub(high, low)
        first = b.sub(b.mul(low, I64(w.stride[0])), I64(w.padding[0]))
        reach = (w.kernel[0] - 1) * w.dilation[0] + 1 - w.stride[0]
        count = b.add(b.mul(rows, I64(w.stride[0])), I64(reach))
        apart = convolutions.line(p, self.host)
        self._function(
            name_of("border", p.dtype, p.y.dtype.name),
            [
                *(y, p.at[1].strides[-1], *w.image, scratch, apart),
                *(first, count, w.padding[1]),
            ],
        )
        to = self._at(p.dtype, out, (low, w.places[1]))
        name = name_of("stencil", p.dtype, convolutions.stencil(p, how))
        self._function(name, [scratch, apart, x, to, w.places[1], rows])
