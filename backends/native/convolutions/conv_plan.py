"""How convolutions are computed: as products with panels of what is under the kernels,
which each thread gathers for some columns at a time, or kernels of one channel as they
are, small ones written out, others of few kernels in loops (:mod:`.few_kernels`).
Constant kernels have a lane each where that leaves fewer lanes empty, or saves
gathering (:mod:`.kernel_lanes`).

Larger kernels that read each row of an image where it lies, with zeros between rows,
are not faster than panels, though gathering is a seventh of the time of 64 kernels:
vectors that begin anywhere in a line take two loads (199 Gflop/s where panels give
219), and the places between rows are computed in vain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import gcd, prod

from ...loop_ir import (
    Convolution,
    Layout,
    Load,
    Loops,
    Nest,
    Piece,
    Store,
    Unsupported,
)
from ..loops import is_map
from ..machine import COMMON, Host, MemoryRef
from ..products import LINE, GemmPlan, height, padded, parts_of, spans, tile
from . import (
    channel_lanes,
    few_kernels,
    few_places,
    kernel_lanes,
    large_kernels,
    padded_strips,
)
from .shares import evenest, longest
from .window_code import Stencil

MOST_STRIDE = 32
"""Steps from place to place up to which code is made for them."""


@dataclass(frozen=True)
class ConvolutionParts:
    """The parts of a convolution that threads share."""

    plan: GemmPlan
    rows: int
    """Kernels of one part."""
    columns: int
    """Parts of the places of an image."""


def check(p: Convolution) -> None:
    """Raise :class:`Unsupported` where there is no code for ``p``."""
    step, word = p.window.stride[1], "stride"
    if p.turned:
        step, word = p.window.dilation[1], "dilation"
    if step > MOST_STRIDE:
        raise Unsupported(f"a convolution with a {word} of {step}")


def cut(
    p: Convolution, host: Host, threads: int, is_constant: bool = False
) -> tuple[Convolution, ConvolutionParts]:
    """How ``p`` is computed, and as what; ``is_constant``: whether its kernels are
    known beforehand."""
    plain = _plain(p) if p.turned and p.channels == 1 else p
    if channel_lanes.are_worth_it(plain, host):
        of_channels = channel_lanes.of_channels(plain)
        how, rows = channel_lanes.plan(of_channels, host, threads)
        return of_channels, ConvolutionParts(how, rows, 1)
    if p.turned and few_places.are_worth_it(p, host):
        of = large_kernels.of_images(p, 1)
        how, rows = few_places.plan(of, host, threads)
        return of, ConvolutionParts(how, rows, 1)
    if plain is not p and few_kernels.are_worth_it(plain, host):
        p = plain
    if p.turned:
        of, columns = large_kernels.in_blocks(p, threads)
        return of, ConvolutionParts(large_kernels.plan(of, host), p.sizes[0], columns)
    if is_stencil(p, host):
        return p, _stencil(p, host, threads)
    if few_kernels.are_worth_it(p, host):
        how, columns = few_kernels.plan(p, host, threads)
        return p, ConvolutionParts(how, p.sizes[0], columns)
    lying = is_read_as_it_lies(p, host, p.sizes[1])
    if is_constant and kernel_lanes.are_worth_it(p, host, lying):
        parts = ConvolutionParts(*kernel_lanes.plan(p, host, threads))
        return kernel_lanes.in_panels(p, host), parts
    return p, _windows(p, host, threads)


def _plain(p: Convolution) -> Convolution:
    """``p`` of one channel, which is turned, as one that is not."""
    x, y, out = p.at
    plain = Layout((*x.strides[:-1], 1), x.offset)
    return replace(p, at=(plain, y, out), turned=False)


def is_stencil(p: Convolution, host: Host) -> bool:
    """Whether kernels of one channel are written out."""
    w, m, most = p.window, p.sizes[0], host.tuning
    if p.channels > 1 or m > most.stencil_kernels or w.area > most.stencil_taps:
        return False
    is_best = w.area <= most.best_taps or w.stride != (1, 1)
    return is_best or not few_kernels.are_worth_it(p, host)


# -- panels ----------------------------------------------------------------------------


def _is_matrix(p: Convolution) -> bool:
    """Whether an image is the right operand of a product as it lies: its rows are far
    apart, so that for many kernels panels are worth their while."""
    w, one = p.window, (1, 1)
    lies = w.places == w.image and w.image[0] == 1 and p.y.dtype == p.dtype
    few = p.sizes[0] <= COMMON.lying_kernels
    return few and lies and (w.kernel, w.stride, w.padding) == (one, one, (0, 0))


def is_read_as_it_lies(p: Convolution, host: Host, columns: int) -> bool:
    """Whether so many places of an image are read without a panel. Tiles read whole
    vectors, and what lies behind an image is not to be read."""
    return _is_matrix(p) and columns % tile(host, p.dtype).lanes == 0


def channels(p: Convolution) -> int:
    """Channels whose elements are multiplied at once."""
    most = max(COMMON.conv_inner // p.window.area, 1)
    return -(-p.channels // -(-p.channels // most)) if p.channels else 1


def _windows(p: Convolution, host: Host, threads: int) -> ConvolutionParts:
    n, shape, size = p.sizes[1], tile(host, p.dtype), p.dtype.itemsize
    inner = channels(p) * p.window.area
    whole = parts_of(n, shape)
    most = max(host.tuning.conv_panel_bytes // (inner * shape.columns * size), 1)
    columns, rows = _shares(p, host, threads, -(-whole // most), whole)
    each = -(-whole // columns) * shape.columns
    widest = max(
        (
            padded(
                min(s.columns, each) if s.vectors == shape.vectors else s.columns,
                s.vectors * shape.lanes,
            )
            for s in spans(n, shape)
            if not is_read_as_it_lies(p, host, s.columns)
        ),
        default=0,
    )
    room = inner * widest * size
    return ConvolutionParts(
        GemmPlan("windows", "own", room, height(rows, shape)), rows, columns
    )


def _shares(
    p: Convolution, host: Host, threads: int, least: int, whole: int
) -> tuple[int, int]:
    """Parts of the columns of ``p``, at least so many of the ``whole``, and the kernels
    of a part: those by which the thread with the most work has the least. Columns are
    gathered again for each part of the kernels; 14×14 places are four tiles of which
    the last is nearly empty, and halves of these are no halves of the work.
    """
    units, m, shape = prod(p.batch), p.sizes[0], tile(host, p.dtype)
    first = min(padded(least, threads // gcd(units, threads)), whole)
    most = -(-m // (2 * shape.rows))
    found = []
    for columns in dict.fromkeys((first, least)):
        parts = units * columns
        if parts >= host.tuning.even_parts * threads or threads == 1:
            return columns, m
        for more in (threads // gcd(parts, threads), threads):
            rows = -(-m // min(more, most))
            whole_tiles = padded(rows, height(rows, shape))
            found.append((columns, whole_tiles if rows < m else m))
    work = [_longest(p, host, threads, whole, *f) for f in found]
    return evenest(found, work)


def _longest(
    p: Convolution, host: Host, threads: int, whole: int, columns: int, rows: int
) -> float:
    """The work of the thread that has the most, as a share of all products."""
    m, n, _ = p.sizes
    shape = tile(host, p.dtype)
    gathered = host.tuning.lanes_gathered[p.window.stride[1] > 1] * shape.lanes
    if is_read_as_it_lies(p, host, n):
        gathered = 0.0
    starts = [min(whole * j // columns * shape.columns, n) for j in range(columns)]
    kernels = [min(rows, m - i) for i in range(0, m, rows)]
    widths = [b - a for a, b in pairwise([*starts, n])]
    units = prod(p.batch) * [(k + gathered) * w for k in kernels for w in widths]
    return longest(units, threads) / (m * n)


def block(p: Convolution, how: GemmPlan) -> int:
    """Kernels that are multiplied by all columns before others are."""
    most = COMMON.conv_kernel_bytes // (channels(p) * p.window.area * p.dtype.itemsize)
    return max(most // how.height, 1) * how.height


# -- stencils --------------------------------------------------------------------------


def stencil(p: Convolution, how: GemmPlan) -> Stencil:
    """The code that computes ``p``."""
    w = p.window
    return Stencil(w.kernel, w.stride, w.dilation, how.height)


def _stencil(p: Convolution, host: Host, threads: int) -> ConvolutionParts:
    w, lanes = p.window, tile(host, p.dtype).lanes
    rows = w.places[0]
    of_columns = padded_strips.are_of_columns(p)
    many = host.tuning.stencil_rows
    least = host.tuning.stencil_places if of_columns else many
    parts = padded_strips.parts(p, host, threads, least)
    each = 1 if of_columns else rows // parts
    at_once = many if each >= many else 1
    # Vectors that start in a row may end behind the last one.
    more = 2 * lanes * w.stride[1] + (w.kernel[1] - 1) * w.dilation[1]
    room = (padded_strips.plane(p, host, parts) + more) * p.dtype.itemsize
    return ConvolutionParts(
        GemmPlan("stencil", "own", padded(room, LINE), at_once), p.sizes[0], parts
    )


# -- what follows ----------------------------------------------------------------------


def follows(p: Convolution, nest: Nest) -> bool:
    """Whether ``nest`` can run for some of the places of some channels of ``p``: its
    rows are the channels, its loop the places."""
    is_other = nest.vertical or nest.chunk is not None or not is_map(nest)
    if p.turned or is_other:
        return False
    loops = nest.passes[0].loops
    is_place = len(loops) == 1 and loops[0].size == p.sizes[1]
    return is_place and nest.rows == p.rows


def in_place(
    pieces: Sequence[Piece], memory: Sequence[tuple[MemoryRef, ...]], temporary: int
) -> list[tuple[MemoryRef, ...]]:
    """``memory`` of the operands of ``pieces``, with each convolution that only one
    nest reads, element by element, in the memory which that writes; ``temporary`` is
    the buffer number of memory between pieces."""
    found = list(memory)
    for i, p in enumerate(pieces):
        if not isinstance(p, Convolution) or i + 1 == len(pieces):
            continue
        between, after = found[i][-1], pieces[i + 1]
        others = [*found[:i], found[i][:-1], *found[i + 2 :]]
        if between.buffer != temporary or not isinstance(after, Loops):
            continue
        if any(between in them for them in others):
            continue
        out = _replaced(after.nest, found[i + 1].index(between), p)
        if out is None or found[i + 1].count(found[i + 1][out]) > 1:
            continue
        home = found[i + 1][out]
        if home in found[i]:
            continue
        found[i] = (*found[i][:-1], home)
        found[i + 1] = tuple(home if m == between else m for m in found[i + 1])
    return found


def _replaced(nest: Nest, which: int, p: Convolution) -> int | None:
    """The buffer of which ``nest`` writes each element where it has read the one of
    buffer ``which``, the result of ``p``."""
    if not follows(p, nest):
        return None
    loads = [s for s in nest.statements() if isinstance(s, Load) and s.buffer == which]
    places = {s.at for s in loads}
    stores = [s for s in nest.statements() if isinstance(s, Store)]
    same = [s for s in stores if {s.at} == places]
    for s in same:
        if (
            nest.buffers[s.buffer].dtype == p.dtype
            and sum(t.buffer == s.buffer for t in stores) == 1
        ):
            return s.buffer
    return None
