"""Convolutions with a kernel in each lane: sums of a tile of places by some vectors of
kernels stay in registers while the kernels, which are constants in panels, run past,
and each number of the image is read where it lies. Nothing is gathered, and no lane is
empty because an image has few places, such as 7×7. Sums are brought into the order of
the result in the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, pairwise, product
from math import gcd, prod

from eqsat.kernels import packed

from ...loop_ir import (
    Convolution,
    Layout,
)
from ..machine import COMMON, Host
from ..products import (
    CHAIN,
    LINE,
    GemmPlan,
    Panels,
    Tile,
    TileSpan,
    padded,
    spans,
    tile,
)
from . import padded_strips
from .lanes_code import LanesBlock
from .shares import evenest, longest


def are_worth_it(p: Convolution, host: Host, lying: bool) -> bool:
    """Whether ``p``, whose kernels are constants, is computed so and not with panels of
    what is under the kernels, or with images that are ``lying`` as such. Compared is
    how many vectors are multiplied, or could be, for an element of the result."""
    w, (m, n, k), tuning = p.window, p.sizes, host.tuning
    lanes = tile(host, p.dtype).lanes
    is_small = w.kernel[1] <= tuning.lanes_taps and w.area <= CHAIN
    of_row = padded_strips.are_of_columns(p)
    if of_row and (n < tiles(p, host)[0] or not is_read_as_it_lies(p, host)):
        return False
    if host.vector_bits < 512 or not (is_small and p.channels and m >= lanes):
        return False
    of_places = k / lanes * padded(n, lanes) / n
    gathered = 0.0 if lying else tuning.lanes_gathered[w.stride[1] > 1] * k / m
    of_kernels = inside(p, host) * k / lanes * padded(m, lanes) / m
    return of_kernels + tuning.lanes_turned < of_places + gathered


def plan(p: Convolution, host: Host, threads: int) -> tuple[GemmPlan, int, int]:
    """How ``p`` is computed, how many kernels a part has, and in how many parts the
    rows of places are."""
    size, rows = p.dtype.itemsize, p.window.places[0]
    if padded_strips.are_of_columns(p):
        rows = tiles(p, host)[1]
    least = padded_strips.parts_of_memory(p, host)
    if is_read_as_it_lies(p, host):
        least = -(-p.channels * prod(p.window.image) * size // host.tuning.image_bytes)
    units = prod(p.batch)
    most = padded(least, threads // gcd(units, threads))
    parts = max(min(most, rows), 1)
    kernels = p.sizes[0]
    few = units * parts < host.tuning.even_parts * threads
    if 1 < threads and (few or _moves_less(p, threads)):
        fewer = max(min(least, rows), 1)
        kernels, parts = _shares(p, host, threads, rows, (fewer, parts))
    image = 0
    if not is_read_as_it_lies(p, host):
        image = p.channels * padded_strips.plane(p, host, parts) * size
    room = padded(image, LINE) + sums_bytes(p, host, parts)
    how = GemmPlan("lanes", "own", room, is_alone=threads == 1)
    return how, kernels, parts


def _shares(
    p: Convolution, host: Host, threads: int, rows: int, parts: tuple[int, int]
) -> tuple[int, int]:
    """Kernels of a part, and parts of the ``rows``: as few parts as memory asks for, of
    some kernels each, or more and of all kernels, as leaves less to the thread with the
    most. Seven rows are no work for two, but the kernels of 7×7 are many.

    Kernels are preferred where less moves between processors then: where two share no
    cache, resnet50 takes 0.95 of the time so, a detector of text 0.94."""
    few, many = parts
    m, units = p.sizes[0], prod(p.batch)
    lanes = tile(host, p.dtype).lanes
    starts = {
        first
        for s in kernel_spans(p, host)
        for first in range(s.first, s.first + s.columns, s.vectors * lanes)
    }
    found = [(m, many)]
    for each in sorted(starts):  # where a panel of kernels begins, others can
        if 2 * threads * each >= m and starts.issuperset(range(0, m, each)):
            found.append((each, few))

    def work(each: int, parts: int) -> list[int]:
        cut = pairwise([rows * i // parts for i in range(parts + 1)])
        heights = [min(each, m - i) for i in range(0, m, each)]
        return [k * (b - a) for k, (a, b) in product(heights, cut)] * units

    if _moves_less(p, threads):
        found = [*found[1:], found[0]]
    return evenest(found, [longest(work(*f), threads) for f in found])


def _moves_less(p: Convolution, threads: int) -> bool:
    """Whether less moves between processors where threads share kernels, of which each
    reads the whole image, than where they share places, of which each reads all
    kernels, and at whose borders two write to the same line of a cache for each kernel:
    two at 14×14 places."""
    (m, n, k), size = p.sizes, p.dtype.itemsize
    if prod(p.batch) % threads == 0 or n * size % (LINE * threads) == 0:
        return False
    image = p.channels * prod(p.window.image) * size
    return image < m * (k * size + COMMON.shared_line_cost * LINE)


def sums_bytes(p: Convolution, host: Host, parts: int) -> int:
    """Bytes of the sums of a tile of kernels, for the places of a part."""
    rows, each = p.window.places
    if padded_strips.are_of_columns(p):
        each, rows = tiles(p, host)
    wide = kernel_spans(p, host)[0].vectors * tile(host, p.dtype).lanes
    return padded(-(-rows // parts) * each * wide * p.dtype.itemsize, LINE)


def inside(p: Convolution, host: Host) -> float:
    """The share of the elements under the kernels that are multiplied, where zeros
    around images are left out."""
    if not p.is_finite:
        return 1.0
    w, share = p.window, 1.0
    of_axis = zip(
        w.image, w.kernel, w.places, w.stride, w.padding, w.dilation, strict=True
    )
    for size, taps, places, step, before, apart in of_axis:
        starts = range(-before, taps * apart - before, apart)  # of the first place
        ends = [min(-(-(size - at) // step), places) for at in starts]
        firsts = [max(-(at // step), 0) for at in starts]
        some = zip(firsts, ends, strict=True)
        share *= sum(max(end - first, 0) for first, end in some) / (places * taps)
    return share


def is_read_as_it_lies(p: Convolution, host: Host) -> bool:
    """Whether nothing beside an image is multiplied, whose channels lie in different
    sets of a cache."""
    w, apart = p.window, p.at[1].strides[-2] * p.dtype.itemsize
    spans = zip(w.image, w.kernel, w.places, w.stride, w.dilation, strict=True)
    inside = all((n - 1) * s + (k - 1) * d < size for size, k, n, s, d in spans)
    plain = (w.padding == (0, 0) and inside) or _leaves_out_zeros(p, host)
    return plain and p.y.dtype == p.dtype and apart % host.tuning.set_bytes != 0


def _leaves_out_zeros(p: Convolution, host: Host) -> bool:
    """Whether no zero around an image is multiplied: tiles are of one row of places,
    and each row has one of the image under it."""
    w, taps = p.window, range(p.window.kernel[0])
    vectors = min(s.vectors for s in kernel_spans(p, host))
    is_one = 2 * w.places[1] > lanes_across(host, vectors)
    tops = [r * w.stride[0] - w.padding[0] for r in range(w.places[0])]
    some = all(any(0 <= t + i * w.dilation[0] < w.image[0] for i in taps) for t in tops)
    return p.is_finite and some and is_one and not padded_strips.are_of_columns(p)


# -- kernels ---------------------------------------------------------------------------


def panels(p: Convolution, host: Host) -> Panels:
    """How the kernels of ``p`` are brought into panels."""
    m, _, k = p.sizes
    at, of = p.at[0], shape(p, host)
    kept = tuple(b if s else 1 for b, s in zip(p.batch, at.strides, strict=False))
    *batch, apart, along = at.strides
    turned = Layout((*batch, along, apart), at.offset)
    return Panels(kept, (k, m), turned, of.vectors, of.lanes, p.dtype.name)


def in_panels(p: Convolution, host: Host) -> Convolution:
    """``p`` with its kernels in panels, without their offset."""
    m, _, k = p.sizes
    kept = panels(p, host).kept
    steps = packed((*kept, k * padded(m, tile(host, p.dtype).lanes)))[:-1]
    strides = [s if b > 1 else 0 for b, s in zip(kept, steps, strict=True)]
    at = Layout((*strides, 0, 0)), *p.at[1:]
    return replace(p, x=replace(p.x, dtype=p.dtype), at=at)


def shape(p: Convolution, host: Host) -> Tile:
    """The widest tile of kernels: of two vectors where threes are not even, which takes
    as long, so that threads can share them. Places of one column have a pointer each:
    twelve of them do not fit in registers."""
    widest = tile(host, p.dtype)
    vectors = -(-p.sizes[0] // widest.lanes)
    in_pairs = vectors % 2 == 0 and vectors % widest.vectors != 0
    return replace(widest, vectors=2) if in_pairs and p.window.places[1] > 1 else widest


def kernel_spans(p: Convolution, host: Host) -> list[TileSpan]:
    """Kernels by the widths of their tiles."""
    return spans(p.sizes[0], shape(p, host))


def channels(p: Convolution) -> int:
    """Channels whose products are summed one after the other."""
    most = max(CHAIN // p.window.area, 1)
    return -(-p.channels // -(-p.channels // most))


# -- places ----------------------------------------------------------------------------


def lanes_across(host: Host, vectors: int) -> int:
    """Most places of a tile, beside so many vectors of kernels."""
    return min(host.tuning.lanes_sums // vectors, host.tuning.lanes_places)


def blocks(
    p: Convolution, host: Host, vectors: int, parts: int
) -> Iterator[tuple[LanesBlock, int]]:
    """Tiles of a row of places, or several of narrow ones, beside so many vectors of
    kernels, and how many of each follow each other: as even as can be. The rows are in
    so many ``parts``."""
    w, across = p.window, p.window.places[1]
    most = lanes_across(host, vectors)
    count = -(-across // most)
    width, more = divmod(across, count)
    longest = -(-w.places[0] // parts)
    rows = -(-longest // -(-longest // max(most // across, 1)))
    step, apart = w.stride[1], w.dilation[1]

    def block(wide: int, done: int = 0, is_finite: bool = False) -> LanesBlock:
        reach = LanesBlock.reach(wide, w.kernel[1], step, apart)
        left = w.padding[1] - done * step
        inside = (
            (max(left, 0), min(left + w.image[1], reach)) if is_finite else (0, reach)
        )
        return LanesBlock(rows, wide, vectors, w.kernel, step, apart, inside)

    if p.is_finite:
        done, found = 0, []
        for i in range(count):
            wide = width + (i < more)
            found.append(block(wide, done, True))
            done += wide
        yield from ((of, len([*same])) for of, same in groupby(found))
        return
    for wide, tiles in ((width + 1, more), (width, count - more)):
        if tiles:
            yield block(wide), tiles


def are_whole(p: Convolution, parts: int, block: LanesBlock) -> bool:
    """Whether tiles have all rows of each of so many ``parts``."""
    return block.rows == 1 or p.window.places[0] % (parts * block.rows) == 0


def tiles(p: Convolution, host: Host) -> tuple[int, int]:
    """Places of a tile of the only row of an image, whatever the vectors of kernels,
    and how many tiles there are: those with fewest places that count twice."""
    n, most = p.sizes[1], host.tuning.lanes_sums // shape(p, host).vectors
    wide = min(range(most, most // 2, -1), key=lambda each: -(-n // each) * each)
    return wide, -(-n // wide)
