"""Calls of convolutions with a channel in each lane."""

from __future__ import annotations

from dataclasses import replace

from llvmlite import ir

from ...loop_ir import (
    Convolution,
)
from ..loops import loop
from ..machine import I1, I64, constant, least, memory_type
from ..products import GemmPlan, ThreadPart, Values, name_of, tile
from . import channel_lanes, kernel_lanes
from .conv_calls import ImageCalls


class ChannelCalls:
    """Such convolutions by generated code, image by image."""

    def __init__(self, images: ImageCalls) -> None:
        self.calls, self.b, self.host = images.calls, images.b, images.host

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
        turn = name_of("turn", p.dtype, p.y.dtype.name)
        turned = name_of("turn", p.dtype, p.x.dtype.name)
        back = name_of("back", p.dtype, p.dtype.name)
        with loop(b, I64(0), part.count, lanes) as g:
            count = least(b, b.sub(part.count, g), lanes)
            at = calls.at(p.y.dtype, y, (g, plane))
            calls.call(turn, [at, plane, inside, lanes, w.image[0] * w.image[1], count])
            at = calls.at(p.x.dtype, x, (g, kernel))
            calls.call(turned, [at, kernel, kernels, lanes, w.area, count])
            self._sums(p, (image, kernels, sums), row, lanes)
            at = calls.at(p.dtype, out, (g, lead))
            calls.call(back, [sums, lanes, at, lead, count, n])
            if part.finish is not None:
                part.finish(b.add(part.first, g), count, I64(0), I64(n))

    def _sums(
        self,
        p: Convolution,
        pointers: tuple[ir.Value, ir.Value, ir.Value],
        row: int,
        lanes: int,
    ) -> None:
        """Sums of all places of a vector of channels."""
        w, done = p.window, 0
        image, kernels, sums = pointers
        rows, across = w.places
        for block, tiles in channel_lanes.blocks(p, self.host):
            whole = rows if kernel_lanes.are_whole(p, 1, block) else rows // block.rows
            whole = rows if kernel_lanes.are_whole(p, 1, block) else whole * block.rows
            single = replace(block, rows=1)
            for code, first, last in ((block, 0, whole), (single, whole, rows)):
                if first == last:
                    continue
                down = first * w.stride[0]
                at = down * row + (done * w.stride[1] - w.padding[1]) * lanes
                to = (first * across + done) * lanes
                args = [
                    self.calls.at(p.dtype, image, (I64(at), 1)),
                    *(0, w.dilation[0] * row, w.stride[0] * row),
                    *(down - w.padding[0], w.image[0], w.stride[0], w.dilation[0]),
                    *(kernels, 1, self.calls.at(p.dtype, sums, (I64(to), 1))),
                    *(
                        across * lanes,
                        last - first,
                        tiles,
                        I1(0),
                    ),
                ]
                self.calls.call(name_of("lanes", p.dtype, code), args)
            done += tiles * block.across

    def _zeros(self, p: Convolution, at: ir.Value, count: int) -> None:
        lanes = tile(self.host, p.dtype).lanes
        with loop(self.b, I64(0), I64(count), lanes) as i:
            to = self.calls.at(p.dtype, at, (i, 1))
            zero = constant(memory_type(p.dtype), lanes, 0)
            self.b.store(zero, to, align=p.dtype.itemsize)
