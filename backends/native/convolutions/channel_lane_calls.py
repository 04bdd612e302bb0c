"""Calls of convolutions with a channel in each lane."""

from __future__ import annotations

from collections.abc import Iterator

from llvmlite import ir

from ...loop_ir import (
    Convolution,
)
from ..loops import loop
from ..machine import I1, I64, constant, least, memory_type
from ..products import GemmPlan, ThreadPart, Values, name_of, tile
from . import channel_lanes
from .kernel_lane_calls import LaneCalls, PlacesOfPart, TileRun


class ChannelCalls:
    """Such convolutions by generated code, image by image."""

    def __init__(self, lanes: LaneCalls) -> None:
        self.lanes, self.calls = lanes, lanes.calls
        self.b, self.host = lanes.b, lanes.host

    def write(
        self, p: Convolution, how: GemmPlan, pointers: Values, part: ThreadPart
    ) -> None:
        """A part of a convolution."""
        b, calls, w = self.b, self.calls, p.window
        x, y, out = pointers
        x = calls.element(p, 0, x, part.batch, part.first)
        y = calls.element(p, 1, y, part.batch)
        out = calls.element(p, 2, out, part.batch, part.first)
        (kernel, _), (plane, _), (lead, _) = (at.strides[-2:] for at in p.at)
        y = calls.at(p.y.dtype, y, (part.first, plane))
        lanes, n = tile(self.host, p.dtype).lanes, p.sizes[1]
        of_image, of_kernels, _ = channel_lanes.memory(p, self.host)
        image = part.scratch
        kernels = calls.moved(image, of_image)
        sums = calls.moved(kernels, of_kernels)
        above, below = channel_lanes.around(p)
        row = w.image[1] * lanes
        inside = calls.at(p.dtype, image, (I64(above), row))
        for start, count in ((0, above), (above + w.image[0], below)):
            self._zeros(p, calls.at(p.dtype, image, (I64(start), row)), count * row)
        # Where the first place begins, which may be in the zeros beside the image.
        left = calls.at(p.dtype, image, (I64(-w.padding[1]), lanes))

        def runs(vectors: int) -> Iterator[TileRun]:
            blocks = channel_lanes.blocks(p, self.host)
            rows = I64(0), I64(w.places[0])
            return self.lanes.row_runs(p, blocks, *rows, 1, row, lanes)

        where = PlacesOfPart(left, 0, row, w.places[1], runs, [])
        turn = name_of("turn", p.dtype, p.y.dtype.name)
        turned = name_of("turn", p.dtype, p.x.dtype.name)
        back = name_of("back", p.dtype, p.dtype.name)
        with loop(b, I64(0), part.count, lanes) as g:
            count = least(b, b.sub(part.count, g), lanes)
            at = calls.at(p.y.dtype, y, (g, plane))
            calls.call(turn, [at, plane, inside, lanes, w.image[0] * w.image[1], count])
            at = calls.at(p.x.dtype, x, (g, kernel))
            calls.call(turned, [at, kernel, kernels, lanes, w.area, count])
            for run in where.runs(1):
                self.lanes.sums(p, where, run, (left, kernels, sums), I64(1), I1(0))
            at = calls.at(p.dtype, out, (g, lead))
            calls.call(back, [sums, lanes, at, lead, count, n])
            if part.finish is not None:
                part.finish(b.add(part.first, g), count, I64(0), I64(n))

    def _zeros(self, p: Convolution, at: ir.Value, count: int) -> None:
        lanes = tile(self.host, p.dtype).lanes
        with loop(self.b, I64(0), I64(count), lanes) as i:
            to = self.calls.at(p.dtype, at, (i, 1))
            zero = constant(memory_type(p.dtype), lanes, 0)
            self.b.store(zero, to, align=p.dtype.itemsize)
