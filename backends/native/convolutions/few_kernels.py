"""Convolutions by few kernels, such as ``np.convolve`` and blurs: sums of some rows and
vectors stay in registers while a kernel moves past.

What is read of a row of an image counts for several rows of the result, since vectors
that begin anywhere in a line of memory take two loads. Where there is one row, it is
cut into rows of a few vectors, and a long kernel into rows as long. With AVX-512
(float32, Gmac/s): 29 for kernels of 3 rows, 47 of 5, 65 of 7 and more, 58 for lines
that are cut, 30 where nothing counts twice, 18 with strides. Products with panels make
85, when what is under the kernels has been gathered; that is as slow as 3.5 for one
kernel of one channel, 5.5 of many.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...loop_ir import (
    Convolution,
)
from ..machine import Host, Tuning
from ..products import LINE, GemmPlan, padded, tile
from . import padded_strips
from .slide_code import SlideBlock

STRETCH = 1024
"""Numbers of a sum that are added one after the other."""


@dataclass(frozen=True)
class SlidePlan:
    """How a convolution is computed."""

    block: SlideBlock
    is_cut: bool
    """Whether lines and kernels are cut into rows."""


def are_worth_it(p: Convolution, host: Host) -> bool:
    """Whether ``p`` is computed so: where gathering what is under the kernels takes
    longer than panels save."""
    w, is_empty = p.window, 0 in (*p.sizes, *p.batch)
    if is_empty or w.area == 1 or w.places[1] < tile(host, p.dtype).lanes:
        return False
    return p.sizes[0] <= _most_kernels(p, way(p, host), host.tuning)


def _most_kernels(p: Convolution, of: SlidePlan, most: Tuning) -> int:
    """See above: about g / (1 / s - 1 / 85) for g of gathering and s of the sums."""
    several = p.channels > 1
    if of.is_cut:
        return most.slide_kernels_cut[of.block.rows < most.slide_rows]
    if of.block.stride > 1:
        return most.slide_kernels_strided
    kh, kw = p.window.kernel
    if of.block.rows > 2 and of.block.rows * of.block.vectors > 4:
        limits = most.slide_kernels_rows[several]
        return limits[0 if kh < 5 else 1 if kh < 7 else 2]
    return most.slide_kernels_once[several + (several and kw <= 8)]


def way(p: Convolution, host: Host) -> SlidePlan:
    """How ``p`` is computed; the same for each part of it."""
    w, lanes = p.window, tile(host, p.dtype).lanes
    sums = 16 if host.is_arm or host.vector_bits == 512 else 8
    (kh, kw), (sh, sw), (dh, dw) = w.kernel, w.stride, w.dilation
    rows, across = w.places
    most, vectors = host.tuning.slide_rows, host.tuning.slide_vectors
    wide = vectors * lanes
    cuts = min(most, kw // wide, across // (2 * wide))
    if p.channels == kh == 1 and sw == dw and cuts >= host.tuning.slide_cuts:
        return SlidePlan(SlideBlock(sw, dw, cuts, vectors), True)
    together = min(most, kh, rows) if sh == dh else 1
    vectors = -(-across // lanes)
    most = sums // max(together, 2)
    vectors = -(-vectors // -(-vectors // most))
    return SlidePlan(SlideBlock(sw, dw, together, vectors), False)


@dataclass(frozen=True)
class Sums:
    """The sums of a kernel in stretches, each of some rows, or of a channel: one number
    after the other, the error of a sum would grow with all that it has."""

    count: int
    rows: int
    """Of the kernel in each stretch; the last one may have more."""
    last_rows: int
    columns: int
    """Elements of such a row."""
    rest: int
    """Those of one more row of the last stretch."""
    down: int
    """From row to row, in the image."""
    apart: tuple[int, int]
    """From stretch to stretch, in the image and in the kernel."""
    together: int
    """Stretches that are added one number after the other."""


def sums(p: Convolution, of: SlidePlan, host: Host, parts: int) -> Sums:
    """Those of one kernel, where there are so many parts."""
    w, apart = p.window, padded_strips.longest(p, host, parts)
    (rows, columns), rest, down = w.kernel, 0, w.dilation[0] * apart
    if p.channels > 1:
        between = padded_strips.plane(p, host, parts), w.area
        together = max(STRETCH // w.area, 1)
        return Sums(p.channels, rows, rows, columns, 0, down, between, together)
    if rows == 1:
        size = columns
        columns = of.block.vectors * tile(host, p.dtype).lanes
        if not of.is_cut:
            columns = min(size, STRETCH)
        rows, rest = divmod(size, columns)
        down = columns * w.dilation[1]
    least = host.tuning.slide_reuse * of.block.rows if rows > 1 else 1
    each = max(STRETCH // columns, least)
    count = max(rows // each, 1)
    each = min(each, rows)
    last = rows - (count - 1) * each
    between = each * down, each * columns
    return Sums(count, each, last, columns, rest, down, between, 1)


def plan(p: Convolution, host: Host, threads: int) -> tuple[GemmPlan, int]:
    """How ``p`` is computed, and in how many parts the places of an image are."""
    block = way(p, host).block
    least = block.rows
    if padded_strips.are_of_columns(p):
        least *= block.vectors * tile(host, p.dtype).lanes
    parts = padded_strips.parts(p, host, threads, least)
    room = p.channels * padded_strips.plane(p, host, parts) * p.dtype.itemsize
    return GemmPlan("slide", "own", padded(room, LINE), block.rows), parts
