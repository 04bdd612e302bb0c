"""Calls of convolutions with a kernel in each lane."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from llvmlite import ir

from ...loop_ir import (
    Convolution,
)
from ..loops import loop
from ..machine import I64, least, most
from ..products import GemmPlan, ThreadPart, Values, name_of, tile
from . import kernel_lanes, padded_strips
from .conv_calls import ImageCalls, finished_places, share_of
from .lanes_code import LanesBlock

_ENDLESS = 1 << 40
"""Rows of an image where zeros above and below it count."""


@dataclass(frozen=True)
class TileRun:
    """Tiles of places that one call computes."""

    block: LanesBlock
    image: ir.Value
    """The element of an image that is under the first place (elements)."""
    row: ir.Value
    """The row of an image that this is, counted from the first that is no zeros."""
    place: ir.Value
    """Where its sums lie, in places."""
    rows: ir.Value
    tiles: ir.Value


@dataclass(frozen=True)
class PlacedSums:
    """Sums of places that follow each other, and where they go."""

    sums: ir.Value
    place: ir.Value
    count: ir.Value


@dataclass(frozen=True)
class PlacesOfPart:
    """What a part reads and writes."""

    image: ir.Value
    plane: int
    """Elements of an image from channel to channel."""
    down: int
    """From row to row."""
    across: int
    """Places of a row of sums."""
    runs: Callable[[int], Iterator[TileRun]]
    """By the vectors of kernels of a tile."""
    results: list[PlacedSums]


class LaneCalls:
    """Such convolutions by generated code, image by image."""

    def __init__(self, images: ImageCalls) -> None:
        self.images, self.calls = images, images.calls
        self.b, self.host = images.b, images.host

    def write(
        self, p: Convolution, how: GemmPlan, pointers: Values, part: ThreadPart
    ) -> None:
        """A part of a convolution."""
        x, y, out = pointers
        x = self.calls.element(p, 0, x, part.batch)
        y = self.calls.element(p, 1, y, part.batch)
        out = self.calls.element(p, 2, out, part.batch)
        of = self._line if padded_strips.are_of_columns(p) else self._rows
        where = of(p, y, part)
        b, k = self.b, p.sizes[2]
        each, area = kernel_lanes.channels(p), p.window.area
        room = kernel_lanes.sums_bytes(p, self.host, part.columns)
        sums = self.calls.moved(part.scratch, how.bytes - room)
        stop = b.add(part.first, part.count)
        for s in kernel_lanes.kernel_spans(p, self.host):
            wide = s.vectors * tile(self.host, p.dtype).lanes
            runs = list(where.runs(s.vectors))
            first = most(b, part.first, I64(s.first))
            end = least(b, stop, s.first + s.columns)
            with loop(b, first, end, wide) as m:
                panel = self.calls.at(p.dtype, x, (m, k))
                with loop(b, I64(0), I64(p.channels), each) as c:
                    count = least(b, b.sub(I64(p.channels), c), each)
                    kernels = self.calls.at(p.dtype, panel, (c, area * wide))
                    image = self.calls.at(p.dtype, where.image, (c, where.plane))
                    adds = b.icmp_signed(">", c, I64(0))
                    for run in runs:
                        self.sums(p, where, run, (image, kernels, sums), count, adds)
                kernels = least(b, b.sub(end, m), wide)
                rows = replace(part, first=m, count=kernels)
                for r in where.results:
                    self._place(p, how, (sums, out), rows, r, wide)

    def _place(
        self,
        p: Convolution,
        how: GemmPlan,
        pointers: tuple[ir.Value, ir.Value],
        part: ThreadPart,
        of: PlacedSums,
        wide: int,
    ) -> None:
        """Sums of a tile of kernels, so ``wide``, to the result: of as many places as
        are finished at once.

        Where another thread has read what lies there, each line of a cache takes 9 ns
        to be written, and 37 between processors that share none, not 1 to 2: half of a
        small convolution. To ask for the lines ahead, to write a byte of each first, or
        to write tile by tile while others are computed takes as long or longer."""
        b, (sums, out), lead = self.b, pointers, p.at[2].strides[-2]
        name = name_of("planes" if how.is_alone else "back", p.dtype, p.dtype.name)
        each = finished_places(p, part, wide, tile(self.host, p.dtype).lanes)
        with loop(b, I64(0), of.count, each) as done:
            count = least(b, b.sub(of.count, done), each)
            found = self.calls.at(p.dtype, sums, (b.add(of.sums, done), wide))
            low = b.add(of.place, done)
            to = self.calls.at(p.dtype, out, (part.first, lead), (low, 1))
            self.calls.call(name, [found, wide, to, lead, part.count, count])
            if part.finish is not None:
                part.finish(part.first, part.count, low, b.add(low, count))

    def sums(
        self,
        p: Convolution,
        where: PlacesOfPart,
        run: TileRun,
        pointers: tuple[ir.Value, ir.Value, ir.Value],
        channels: ir.Value,
        adds: ir.Value,
    ) -> None:
        """Sums of some tiles over so many channels, added to others or not."""
        image, kernels, sums = pointers
        w, wide = p.window, run.block.vectors * tile(self.host, p.dtype).lanes
        x = self.calls.at(p.dtype, image, (run.image, 1))
        to = self.calls.at(p.dtype, sums, (run.place, wide))
        apart = where.plane, w.dilation[0] * where.down, w.stride[0] * where.down
        inside = (run.row, w.image[0]) if p.is_finite else (0, _ENDLESS)
        inside = *inside, w.stride[0], w.dilation[0]
        args = [x, *apart, *inside, kernels, channels, to, where.across * wide]
        name = name_of("lanes", p.dtype, run.block)
        self.calls.call(name, [*args, run.rows, run.tiles, adds])

    # -- rows of places ----------------------------------------------------------------

    def _rows(self, p: Convolution, y: ir.Value, part: ThreadPart) -> PlacesOfPart:
        """Some rows: each is cut into tiles of as even a width as can be."""
        b, w, across = self.b, p.window, p.window.places[1]
        low, high = share_of(b, w.places[0], part)
        rows = b.sub(high, low)
        if kernel_lanes.is_read_as_it_lies(p, self.host):
            plane, down = p.at[1].strides[-2:]
            image = self.calls.at(p.dtype, y, (low, w.stride[0] * down))
            before = w.padding[0] * down + w.padding[1]
            image = self.calls.at(p.dtype, image, (I64(-before), 1))
        else:
            strip = self.images.strip(p, y, y, part)
            image, plane, down = strip.image, strip.plane, strip.apart

        def runs(vectors: int) -> Iterator[TileRun]:
            blocks = kernel_lanes.blocks(p, self.host, vectors, part.columns)
            return self.row_runs(p, blocks, low, rows, part.columns, down)

        first, count = (b.mul(n, I64(across)) for n in (low, rows))
        results = [PlacedSums(I64(0), first, count)]
        return PlacesOfPart(image, plane, down, across, runs, results)

    def row_runs(
        self,
        p: Convolution,
        blocks: Iterable[tuple[LanesBlock, int]],
        low: ir.Value,
        rows: ir.Value,
        parts: int,
        down: int,
        each: int = 1,
    ) -> Iterator[TileRun]:
        """Tiles of so many ``rows`` of places, from ``low`` on, of one of so many
        ``parts``. Rows of the image are ``down`` apart, its columns ``each``."""
        b, w, across, done = self.b, p.window, p.window.places[1], 0
        for block, tiles in blocks:
            spans = [(block, I64(0), rows)]
            if not kernel_lanes.are_whole(p, parts, block):
                whole = b.mul(b.sdiv(rows, I64(block.rows)), I64(block.rows))
                single = replace(block, rows=1)
                spans = [(block, I64(0), whole), (single, whole, rows)]
            for code, first, last in spans:
                at = b.mul(first, I64(w.stride[0] * down))
                at = b.add(at, I64(done * w.stride[1] * each))
                row = b.mul(b.add(low, first), I64(w.stride[0]))
                row = b.sub(row, I64(w.padding[0]))
                to = b.add(b.mul(first, I64(across)), I64(done))
                yield TileRun(code, at, row, to, b.sub(last, first), I64(tiles))
            done += tiles * block.across

    # -- places of the only row --------------------------------------------------------

    def _tiles(
        self, p: Convolution, part: ThreadPart
    ) -> tuple[tuple[ir.Value, ir.Value], int]:
        """From which tile to which a part has, and how wide they are."""
        wide, count = kernel_lanes.tiles(p, self.host)
        return share_of(self.b, count, part), wide

    def _line(self, p: Convolution, y: ir.Value, part: ThreadPart) -> PlacesOfPart:
        """Some tiles of the only row. Behind the last whole one comes one that ends
        with the row: of that, what is behind the one before it goes to the result."""
        b, w, n = self.b, p.window, p.sizes[1]
        (low, high), wide = self._tiles(p, part)
        step, left = w.stride[1], n % wide
        end = least(b, high, n // wide)
        whole = b.sub(end, low)
        plane, down = p.at[1].strides[-2:]

        def runs(vectors: int) -> Iterator[TileRun]:
            columns = 0, LanesBlock.reach(wide, w.kernel[1], step, w.dilation[1])
            code = LanesBlock(1, wide, vectors, w.kernel, step, w.dilation[1], columns)
            first, zero = b.mul(low, I64(wide * step)), I64(0)
            yield TileRun(code, first, zero, zero, I64(1), whole)
            if left:
                some = b.sub(high, end)
                place = b.mul(whole, I64(wide))
                yield TileRun(code, I64((n - wide) * step), zero, place, I64(1), some)

        first, count = (b.mul(i, I64(wide)) for i in (low, whole))
        results = [PlacedSums(I64(0), first, count)]
        if left:
            some = b.mul(b.sub(high, end), I64(left))
            behind = b.add(count, I64(wide - left))
            results.append(PlacedSums(behind, I64(n - left), some))
        return PlacesOfPart(y, plane, down, wide, runs, results)
