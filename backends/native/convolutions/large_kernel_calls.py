"""Calls of convolutions in a program whose kernels are columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llvmlite import ir

from ..loops import loop
from ..machine import I64, least
from ..products import GemmPlan, OwnCalls, ThreadPart, Values, name_of, spans, tile
from . import few_places, large_kernels
from .conv_calls import share_of
from .large_kernels import ImageBatch, ImageBlocks


@dataclass(frozen=True)
class PatchRows:
    """What is under the kernels of some images: rows of a product."""

    images: ir.Value
    low: ir.Value
    """The first row of places."""
    places: ir.Value
    """Rows of places."""
    each: ir.Value
    """Places of an image."""


@dataclass(frozen=True)
class Inner:
    """A stretch of the inner axis."""

    channel: ir.Value
    """The first one."""
    channels: ir.Value
    low: ir.Value
    """The first element of each channel of a kernel."""
    size: ir.Value
    """Elements of each."""


class LargeKernelCalls:
    """Convolutions by large kernels, by generated code."""

    def __init__(self, calls: OwnCalls) -> None:
        self.calls, self.b, self.host = calls, calls.b, calls.host

    def write(
        self, p: ImageBlocks, how: GemmPlan, pointers: Values, part: ThreadPart
    ) -> None:
        """A part of a convolution."""
        write = self._taps if how.kind == "taps" else self._product
        write(p, how, pointers, part)

    def _product(
        self, p: ImageBlocks, how: GemmPlan, pointers: Values, part: ThreadPart
    ) -> None:
        b, of, area = self.b, large_kernels.stretch(p, self.host), p.window.area
        x, y, out = (
            self.calls.element(p, i, pointer, part.batch)
            for i, pointer in enumerate(pointers)
        )
        rows = self._rows_of(p, part)
        of_panels, of_strip, _ = large_kernels.memory(p, self.host)
        strip = self.calls.moved(part.scratch, of_panels)
        sums, lead = self.calls.moved(strip, of_strip), of.sums
        if p.sums_in_place:
            sums, lead = out, p.steps[1]
        with loop(b, I64(0), I64(p.channels), of.channels) as channel:
            count = least(b, b.sub(I64(p.channels), channel), of.channels)
            with loop(b, I64(0), I64(area), of.size) as low:
                size = least(b, b.sub(I64(area), low), of.size)
                inner = Inner(channel, count, low, size)
                self._columns(p, of, x, part.scratch, inner)
                adds = b.icmp_signed(">", b.add(channel, low), I64(0))
                with loop(b, I64(0), rows.images, of.images) as image:
                    images = least(b, b.sub(rows.images, image), of.images)
                    under = self.calls.at(p.y.dtype, y, (image, p.steps[0]))
                    some = PatchRows(images, rows.low, rows.places, rows.each)
                    self._gather(p, of, under, strip, inner, some)
                    to = self.calls.at(p.dtype, sums, (b.mul(image, rows.each), lead))
                    total = b.mul(images, rows.each)
                    ways = (strip, part.scratch, to)
                    self._by_tiles(p, of, how, ways, inner, (total, lead, adds))
        if not p.sums_in_place:
            self._scatter(p, lead, sums, out, rows)

    def _rows_of(self, p: ImageBlocks, part: ThreadPart) -> PatchRows:
        """The rows of a part: of a block of images, and some rows of places."""
        b, wide = self.b, p.window.places[1]
        block = b.sdiv(part.batch, I64(p.batch[1]))
        images = least(b, b.sub(I64(p.images), b.mul(block, I64(p.each))), p.each)
        low, places = share_of(self.b, p.window.places[0], part)
        places = b.sub(places, low)
        return PatchRows(images, low, places, b.mul(places, I64(wide)))

    def _kernels(self, p: ImageBlocks) -> Iterator[tuple[ir.Value, ir.Value, int]]:
        """Kernels by widths of tiles: from, to, vectors."""
        for s in spans(p.sizes[0], tile(self.host, p.dtype)):
            yield I64(s.first), I64(s.first + s.columns), s.vectors

    def _columns(
        self,
        p: ImageBlocks,
        of: ImageBatch,
        x: ir.Value,
        panels: ir.Value,
        inner: Inner,
    ) -> None:
        """A stretch of the kernels brought into panels."""
        b, lanes = self.b, tile(self.host, p.dtype).lanes
        lead, apart = p.at[0].strides[-2:]
        name = name_of("turn", p.dtype, p.x.dtype.name)
        with loop(b, I64(0), inner.channels, 1) as c:
            source = self.calls.at(
                p.dtype, x, (b.add(inner.channel, c), apart), (inner.low, 1)
            )
            for low, high, vectors in self._kernels(p):
                wide = vectors * lanes
                with loop(b, low, high, wide) as j:
                    k = self.calls.at(p.dtype, source, (j, lead))
                    to = self.calls.at(
                        p.dtype, panels, (j, of.inner), (c, of.size * wide)
                    )
                    count = least(b, b.sub(high, j), wide)
                    self.calls.call(name, [k, lead, to, wide, inner.size, count])

    def _gather(
        self,
        p: ImageBlocks,
        of: ImageBatch,
        images: ir.Value,
        strip: ir.Value,
        inner: Inner,
        rows: PatchRows,
    ) -> None:
        """What is under a stretch of the kernels at each place of some images: the
        elements of a kernel are gathered as places are, and places as elements."""
        b, w, (channel, row) = self.b, p.window, p.at[1].strides[-2:]
        name = name_of("gather", p.dtype, f"{p.y.dtype.name}_{w.dilation[1]}")
        above = b.sub(I64(w.padding[0]), b.mul(rows.low, I64(w.stride[0])))
        with loop(b, I64(0), inner.channels, 1) as c:
            image = self.calls.at(p.y.dtype, images, (b.add(inner.channel, c), channel))
            to = self.calls.at(p.dtype, strip, (c, of.size))
            self.calls.call(
                name,
                [
                    *(image, p.steps[0], row, *w.image, w.kernel[1], w.area),
                    *(w.dilation[0], above, w.padding[1], *w.stride),
                    *(rows.places, w.places[1], to, of.wide, 0),
                    *(inner.low, inner.size, rows.images),
                ],
            )

    def _by_tiles(
        self,
        p: ImageBlocks,
        of: ImageBatch,
        how: GemmPlan,
        ways: tuple[ir.Value, ir.Value, ir.Value],
        inner: Inner,
        sums: tuple[ir.Value, int, ir.Value],
    ) -> None:
        """Rows by panels, into sums, or added to them."""
        b, lanes = self.b, tile(self.host, p.dtype).lanes
        (strip, panels, to), (rows, lead, adds) = ways, sums
        size = b.mul(inner.channels, inner.size)
        for low, high, vectors in self._kernels(p):
            wide = vectors * lanes
            panel = self.calls.at(p.dtype, panels, (low, of.inner))
            c = self.calls.at(p.dtype, to, (low, 1))
            name = name_of("tiles", p.dtype, f"{how.height}x{vectors}")
            args = [strip, of.wide, panel, wide, wide * of.inner, c, lead]
            self.calls.call(name, [*args, size, rows, b.sub(high, low), adds])

    def _scatter(
        self, p: ImageBlocks, lead: int, sums: ir.Value, out: ir.Value, rows: PatchRows
    ) -> None:
        """Sums to where the result lies."""
        b, name = self.b, name_of("back", p.dtype, p.dtype.name)
        with loop(b, I64(0), rows.images, 1) as image:
            x = self.calls.at(p.dtype, sums, (b.mul(image, rows.each), lead))
            first = (rows.low, p.window.places[1])
            to = self.calls.at(p.dtype, out, (image, p.steps[1]), first)
            apart = p.at[2].strides[-2]
            self.calls.call(name, [x, lead, to, apart, p.sizes[0], rows.each])

    # -- few images --------------------------------------------------------------------

    def _taps(
        self, p: ImageBlocks, how: GemmPlan, pointers: Values, part: ThreadPart
    ) -> None:
        b, w, host = self.b, p.window, self.host
        x = self.calls.element(p, 0, pointers[0], part.batch, part.first)
        y = self.calls.element(p, 1, pointers[1], part.batch)
        out = self.calls.element(p, 2, pointers[2], part.batch, part.first)
        sums = self.calls.moved(part.scratch, few_places.memory(p, host)[0])
        each, across = few_places.band(p, host), few_places.line(p, host)
        with (
            loop(b, I64(0), I64(p.channels), 1) as channel,
            loop(b, I64(0), I64(w.kernel[0]), each) as row,
        ):
            rows = least(b, b.sub(I64(w.kernel[0]), row), each)
            image = self.calls.at(p.y.dtype, y, (channel, p.at[1].strides[-2]))
            first = b.sub(b.mul(row, I64(w.dilation[0])), I64(w.padding[0]))
            more = b.mul(b.sub(rows, I64(1)), I64(w.dilation[0]))
            self.calls.call(
                name_of("border", p.dtype, p.y.dtype.name),
                [
                    *(image, p.at[1].strides[-1], *w.image, part.scratch, across),
                    *(first, b.add(more, I64(few_places.lines(p, 1))), w.padding[1]),
                ],
            )
            kernels = self.calls.at(
                p.dtype, x, (channel, p.at[0].strides[-1]), (row, w.kernel[1])
            )
            adds = b.icmp_signed(">", b.add(channel, row), I64(0))
            ways = part.scratch, kernels, sums
            self._blocks_of_kernels(p, how.height, ways, (part.count, rows, adds))
        args = [sums, out, p.at[2].strides[-2], part.count, p.sizes[1]]
        self.calls.call(name_of("fold", p.dtype), args)

    def _blocks_of_kernels(
        self,
        p: ImageBlocks,
        each: int,
        ways: tuple[ir.Value, ir.Value, ir.Value],
        counts: tuple[ir.Value, ir.Value, ir.Value],
    ) -> None:
        """A band of the rows of each kernel, added to its sums; parts but the last one
        have whole blocks."""
        b, (count, rows, adds) = self.b, counts
        rest = p.sizes[0] % each
        whole = b.sub(count, b.srem(count, I64(each)))
        with loop(b, I64(0), whole, each) as k:
            self._block_of_kernels(p, each, ways, k, rows, adds)
        if rest:
            with b.if_then(b.icmp_signed("<", whole, count)):
                self._block_of_kernels(p, rest, ways, whole, rows, adds)

    def _block_of_kernels(
        self,
        p: ImageBlocks,
        kernels: int,
        ways: tuple[ir.Value, ir.Value, ir.Value],
        first: ir.Value,
        rows: ir.Value,
        adds: ir.Value,
    ) -> None:
        (image, x, sums), w, n = ways, p.window, p.sizes[1]
        lead, lanes = p.at[0].strides[-2], tile(self.host, p.dtype).lanes
        across, each = few_places.line(p, self.host), few_places.blocks(p, self.host)[1]
        x = self.calls.at(p.dtype, x, (first, lead))
        sums = self.calls.at(p.dtype, sums, (first, n * lanes))
        for i in range(0, w.places[0], each):
            of = few_places.block(p, kernels, min(each, w.places[0] - i))
            size = p.dtype.itemsize
            under = self.calls.moved(image, i * w.stride[0] * across * size)
            to = self.calls.moved(sums, i * w.places[1] * lanes * size)
            steps = w.dilation[0] * across, w.stride[0] * across
            args = [under, *steps, x, lead, rows, w.kernel[1], to, n, adds]
            self.calls.call(name_of("taps", p.dtype, of), args)
