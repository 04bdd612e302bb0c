"""Calls of convolutions in a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from ...loop_ir import (
    Convolution,
)
from ..loops import loop
from ..machine import COMMON, I64, least
from ..products import GemmPlan, OwnCalls, ThreadPart, Values, name_of, spans, tile
from . import conv_plan, few_kernels, padded_strips


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
    first: ir.Value
    """Place."""
    columns: ir.Value
    """Places."""
    size: ir.Value
    """Elements of each column."""
    adds: ir.Value
    """Whether other channels came before."""
    is_last: ir.Value
    """Whether no others come."""


@dataclass(frozen=True)
class Strip:
    """What a part reads of an image, with zeros around it, and what it writes."""

    image: ir.Value
    apart: int
    """Elements from row to row."""
    plane: int
    """Elements from channel to channel."""
    out: ir.Value
    """The first place, of the first kernel."""
    rows: ir.Value
    across: ir.Value
    """Places of each row."""


def finished_places(p: Convolution, part: ThreadPart, kernels: int, step: int) -> int:
    """How many places of so many kernels are finished at once, in whole steps: they are
    in the first caches still, and no other thread has taken the lines that it writes to
    as well. Two threads that share no cache take 0.78 to 0.97 of the time so. All where
    nothing follows."""
    if part.finish is None:
        return p.sizes[1]
    few = COMMON.finished_bytes // (kernels * p.dtype.itemsize)
    return max(few // step, 1) * step


def share_of(
    b: ir.IRBuilder, total: int, part: ThreadPart
) -> tuple[ir.Value, ir.Value]:
    """Those of so many rows, or places, that a part has."""
    if part.columns == 1:
        return I64(0), I64(total)
    low = b.mul(part.column, I64(total))
    count = I64(part.columns)
    return b.sdiv(low, count), b.sdiv(b.add(low, I64(total)), count)


class ImageCalls:
    """Convolutions by generated code, image by image."""

    def __init__(self, calls: OwnCalls) -> None:
        self.calls, self.b, self.host = calls, calls.b, calls.host

    def write(
        self, p: Convolution, how: GemmPlan, pointers: Values, part: ThreadPart
    ) -> None:
        """A part of a convolution."""
        x, y, out = pointers
        x = self.calls.element(p, 0, x, part.batch, part.first)
        y = self.calls.element(p, 1, y, part.batch)
        out = self.calls.element(p, 2, out, part.batch, part.first)
        ways = {"stencil": self._stencil, "slide": self._slide}
        write = ways.get(how.kind, self._windows)
        write(p, how, (x, y, out), part)

    # -- panels ------------------------------------------------------------------------

    def _windows(
        self, p: Convolution, how: GemmPlan, pointers: Values, part: ThreadPart
    ) -> None:
        x, y, out = pointers
        b, area, each = self.b, p.window.area, conv_plan.channels(p)
        shape = tile(self.host, p.dtype)
        ranges = [
            (*columns, conv_plan.is_read_as_it_lies(p, self.host, s.columns))
            for s, columns in zip(
                spans(p.sizes[1], shape),
                self.calls.ranges(p, part.column, part.columns),
                strict=True,
            )
        ]
        with loop(b, I64(0), I64(p.channels), each) as channel:
            count = least(b, b.sub(I64(p.channels), channel), each)
            size = b.mul(count, I64(area))
            images = self.calls.at(p.y.dtype, y, (channel, p.at[1].strides[-2]))
            kernels = self.calls.at(p.dtype, x, (channel, area))
            adds = b.icmp_signed(">", channel, I64(0))
            is_last = b.icmp_signed("==", b.add(channel, count), I64(p.channels))
            for low, high, vectors, as_it_lies in ranges:
                with b.if_then(b.icmp_signed("<", low, high)):
                    columns = b.sub(high, low)
                    wide = vectors * shape.lanes
                    if as_it_lies:
                        panel = self.calls.at(p.dtype, images, (low, 1))
                        lies = I64(p.at[1].strides[-2]), I64(wide)
                    else:
                        panel, lies = part.scratch, (I64(wide), b.mul(size, I64(wide)))
                    at = panel, lies, vectors, low, columns
                    under = Under(*at, size, adds, is_last)
                    if not as_it_lies:
                        self._gather(p, images, count, under)
                    self._multiply(p, how, (kernels, out), part, under)

    def _gather(
        self,
        p: Convolution,
        images: ir.Value,
        count: ir.Value,
        under: Under,
    ) -> None:
        """So many channels of images into a panel."""
        w, (channel, row) = p.window, p.at[1].strides[-2:]
        name = name_of("gather", p.dtype, f"{p.y.dtype.name}_{w.stride[1]}")
        self.calls.call(
            name,
            [
                *(images, channel, row, *w.image, w.places[1], p.sizes[1]),
                *(w.stride[0], *w.padding, *w.dilation, *w.kernel),
                *(under.panel, *under.lies, under.first, under.columns, count),
            ],
        )

    def _multiply(
        self,
        p: Convolution,
        how: GemmPlan,
        pointers: tuple[ir.Value, ir.Value],
        part: ThreadPart,
        under: Under,
    ) -> None:
        """Kernels by what is under them, a block of kernels at a time, and of places as
        many as are finished at once."""
        b, (kernels, out) = self.b, pointers
        lead, apart = (p.at[which].strides[-2] for which in (2, 0))
        step = conv_plan.block(p, how)
        wide = under.vectors * tile(self.host, p.dtype).lanes
        name = name_of("tiles", p.dtype, f"{how.height}x{under.vectors}")
        each = finished_places(p, part, min(step, p.sizes[0]), wide)
        with loop(b, I64(0), part.count, step) as row:
            count = least(b, b.sub(part.count, row), step)
            a = self.calls.at(p.dtype, kernels, (row, apart))
            with loop(b, I64(0), under.columns, each) as done:
                columns = least(b, b.sub(under.columns, done), each)
                panel = b.mul(b.sdiv(done, I64(wide)), under.lies[1])
                panel = self.calls.at(p.dtype, under.panel, (panel, 1))
                low = b.add(under.first, done)
                to = self.calls.at(p.dtype, out, (row, lead), (low, 1))
                args = [a, apart, panel, *under.lies, to, lead]
                self.calls.call(name, [*args, under.size, count, columns, under.adds])
                if part.finish is not None:
                    with b.if_then(under.is_last):
                        end = b.add(low, columns)
                        part.finish(b.add(part.first, row), count, low, end)

    # -- images with zeros around them -------------------------------------------------

    def strip(
        self, p: Convolution, y: ir.Value, out: ir.Value, part: ThreadPart
    ) -> Strip:
        """What a part reads of an image, brought into its scratch memory."""
        b, w = self.b, p.window
        top, left = (I64(0), I64(w.places[0])), (I64(0), I64(w.places[1]))
        if padded_strips.are_of_columns(p):
            left = share_of(self.b, w.places[1], part)
        else:
            top = share_of(self.b, w.places[0], part)
        rows, across = b.sub(top[1], top[0]), b.sub(left[1], left[0])
        (sh, sw), reach = w.stride, (w.kernel[0] - 1) * w.dilation[0] + 1
        apart = padded_strips.longest(p, self.host, part.columns)
        first = b.sub(b.mul(top[0], I64(sh)), I64(w.padding[0]))
        under = b.add(b.mul(rows, I64(sh)), I64(reach - sh))
        before = b.sub(I64(w.padding[1]), b.mul(left[0], I64(sw)))
        name = name_of("border", p.dtype, p.y.dtype.name)
        plane = padded_strips.plane(p, self.host, part.columns)
        with loop(b, I64(0), I64(p.channels), 1) as c:
            image = self.calls.at(p.y.dtype, y, (c, p.at[1].strides[-2]))
            room = self.calls.at(p.dtype, part.scratch, (c, plane))
            args = [image, p.at[1].strides[-1], *w.image, room, apart]
            self.calls.call(name, [*args, first, under, before])
        to = self.calls.at(p.dtype, out, (top[0], w.places[1]), (left[0], 1))
        return Strip(part.scratch, apart, plane, to, rows, across)

    def _stencil(
        self, p: Convolution, how: GemmPlan, pointers: Values, part: ThreadPart
    ) -> None:
        x, y, out = pointers
        of = self.strip(p, y, out, part)
        name = name_of("stencil", p.dtype, conv_plan.stencil(p, how))
        lead, apart = (p.at[which].strides[-2] for which in (2, 0))
        with loop(self.b, I64(0), part.count, 1) as k:
            kernel = self.calls.at(p.dtype, x, (k, apart))
            to = self.calls.at(p.dtype, of.out, (k, lead))
            self.calls.call(name, [of.image, of.apart, kernel, to, of.across, of.rows])
            self._finish(p, part, k)

    def _slide(
        self, p: Convolution, how: GemmPlan, pointers: Values, part: ThreadPart
    ) -> None:
        x, y, out = pointers
        of, way = self.strip(p, y, out, part), few_kernels.way(p, self.host)
        b, (sh, sw), across = self.b, p.window.stride, p.window.places[1]
        sums = few_kernels.sums(p, way, self.host, part.columns)
        in_image, in_kernel = sums.apart
        sizes = sums.count, sums.together, sums.rows, sums.last_rows
        row = sums.columns, sums.rest
        name = name_of("slide", p.dtype, way.block)
        lead, apart = (p.at[which].strides[-2] for which in (2, 0))

        def block(
            kernel: ir.Value, image: ir.Value, to: ir.Value, os: int, wide: Any
        ) -> None:
            args = [image, in_image, sums.down, kernel, in_kernel, *sizes, *row]
            self.calls.call(name, [*args, to, os, wide])

        with loop(b, I64(0), part.count, 1) as k:
            kernel = self.calls.at(p.dtype, x, (k, apart))
            top = self.calls.at(p.dtype, of.out, (k, lead))
            # Past the end the last rows, or places, again.
            step = way.block.rows
            if not way.is_cut:
                with loop(b, I64(0), of.rows, step) as i:
                    r = least(b, i, b.sub(of.rows, I64(step)))
                    image = self.calls.at(p.dtype, of.image, (r, sh * of.apart))
                    to = self.calls.at(p.dtype, top, (r, across))
                    block(kernel, image, to, across, of.across)
            else:
                wide = sums.columns
                step *= wide
                with loop(b, I64(0), of.rows, 1) as r:
                    with loop(b, I64(0), of.across, step) as i:
                        s = least(b, i, b.sub(of.across, I64(step)))
                        at = (r, sh * of.apart), (s, sw)
                        image = self.calls.at(p.dtype, of.image, *at)
                        to = self.calls.at(p.dtype, top, (r, across), (s, 1))
                        block(kernel, image, to, wide, wide)
            self._finish(p, part, k)

    def _finish(self, p: Convolution, part: ThreadPart, k: ir.Value) -> None:
        """What follows for all places of kernel ``k`` of a part."""
        if part.finish is None:
            return
        b, (rows, across) = self.b, p.window.places
        if padded_strips.are_of_columns(p):
            rows, across = across, rows
        low, high = (b.mul(n, I64(across)) for n in share_of(b, rows, part))
        part.finish(b.add(part.first, k), I64(1), low, high)
