"""How products are computed when their code is generated, and when it is.

Right operands that are constants are brought into panels once, others at each call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from eqsat.kernels import packed
from eqsat.terms import BF16

from ...loop_ir import (
    WIDE,
    DType,
    Layout,
    Product,
)
from ..machine import ALIGNMENT, COMMON, Host, aligned, blas
from .tiles import CHAIN, Panels, Tile, padded, spans, tile

LINE = 64
"""Columns that are multiplied by a row vector come in multiples of these."""


@dataclass(frozen=True)
class GemmPlan:
    """How a product is computed."""

    kind: str
    """``tiles``, or ``pairs`` of bfloat16, by a vector ``line`` or ``dots``, or
    ``rows``: a few, by a matrix that is computed."""
    order: str = ""
    """How the right operand is packed into panels. Empty: it is read where it lies.
    ``done``: beforehand. ``own``: each thread packs what it reads. ``deferred``: each
    thread computes it, a part at a time."""
    bytes: int = 0
    """Memory that each thread needs (bytes)."""
    height: int = 0
    """Rows of a tile."""
    is_column: bool = False
    """Whether the vector is the right operand."""
    is_half: bool = False
    """Whether what is left of the diagonal is left out, tiles at a time, of blocks of
    as many rows as a tile has columns."""
    sums: int = 0
    """Parts of the rows of a matrix that a row vector is multiplied by, each with a sum
    of its own; 0 where there is one sum of all."""
    is_alone: bool = False
    """Whether no other thread writes to the result, and its rows are written one group
    after the other."""


def is_better(host: Host) -> bool:
    """Whether generated products are faster than those of BLAS: where its kernels take
    vectors that are no wider, if the processor multiplies and adds at once.

    With AVX2 in both (OpenBLAS's Zen on a Zen 3, one thread) BLAS takes 1.0 to 1.2
    times as long for one product, 1.05 to 1.9 times for batches of small ones and 1.4
    to 1.9 times for those of a matrix by its own transpose; by a vector 0.9 to 1.7
    times. With AVX-512 in both (OpenBLAS's SkylakeX on an Emerald Rapids, one thread)
    products with bias and relu take BLAS 1.04 to 1.56 times as long from 32 rows on,
    2.5 to 3 times with 8 rows; by a vector both wait for the matrix.
    """
    if host.products != "best":
        return host.products == "own"
    known = blas.vector_bits()
    return host.has_fma and host.vector_bits >= known


def is_of_blas(p: Product, host: Host, is_constant: bool) -> bool:
    """Whether BLAS computes ``p`` sooner than generated code, although that
    :func:`is_better`: OpenBLAS has other kernels for small matrices, which bring
    nothing into panels and are narrow at the ends, where tiles are not full. (Batches
    of 2 to 150 rows and columns: own code reached 0.4 to 0.95 of their speed on a Zen
    4, 0.5 to 0.9 on an Emerald Rapids, up to 10⁶ multiply-adds a matrix; as much where
    tiles are full, 1.05 to 1.2 above that. By a constant in panels, few rows take BLAS
    1 to 1.16 times as long, and 16 rows and more 0.76 to 1.02 times. Where the right
    operand alone is transposed, BLAS sums lanes for each element, at 0.3 to 1 times the
    speed of own code, but at 1.2 to 2.5 times where rows are few and the inner axis is
    the long one, of 32 numbers at least.)"""
    m, n, k = p.sizes
    shape = tile(host, p.dtype)
    if is_constant and m < 2 * shape.rows:
        return False
    plain = p.mapped is None and p.x.dtype == p.y.dtype == p.dtype
    plain = plain and p.dtype.name in blas.LETTERS and min(m, n, k) > 1
    free = host.products == "best" and not host.is_elsewhere
    if not (plain and free and blas.vector_bits() == 512):
        return False
    if m * n * k > COMMON.small_product:
        return False
    x_turns = blas.matrix(p.at[0], m, k).is_transposed
    if blas.matrix(p.at[1], k, n).is_transposed and not x_turns:
        return m < 2 * shape.rows and k >= max(n, 2 * shape.lanes)
    return m * n < padded(m, height(m, shape)) * padded(n, shape.lanes)


def has_pairs(p: Product, host: Host) -> bool:
    """Whether the processor multiplies and sums pairs of both operands."""
    is_bfloat = p.x.dtype == p.y.dtype == BF16 and p.dtype == np.float32
    return is_bfloat and p.sizes[2] % 2 == 0 and host.has_bfloat_pairs


def flops_per_s(host: Host, dtype: DType = WIDE) -> float:
    """What one core computes with float32 or another dtype, roughly (flop/s)."""
    return 2 * 2 * host.tuning.clock_hz * host.vector_bits / (8 * dtype.itemsize)


def merged(p: Product) -> Product:
    """The product with batch axes as rows where all of them meet one right operand."""
    m, n, k = p.sizes
    batch = p.batch
    strides = [list(layout.strides) for layout in p.at]
    x, y, out = strides
    while batch and y[-3] == 0:
        size = batch[-1]
        if m > 1:
            are_rows = x[-3] == m * x[-2] and out[-3] == m * out[-2]
        else:
            are_rows = x[-3] >= k and out[-3] >= n and (x[-1] == 1 or k == 1)
        if not are_rows:
            break
        for s in (x, out):
            row = s[-2] if m > 1 else s[-3]
            s[-3:-1] = [row]
        del y[-3]
        m, batch = m * size, batch[:-1]
    at = [
        Layout(tuple(s), layout.offset) for s, layout in zip(strides, p.at, strict=True)
    ]
    return replace(p, sizes=(m, n, k), batch=batch, at=(at[0], at[1], at[2]))


def as_row(p: Product) -> Product:
    """A column that rows of a transposed matrix make as the row that a vector by the
    matrix makes, which goes through memory in order: for 300×4000 numbers of 8 bytes
    parts of a column took 1.3 times as long, for 4096×4096 of 4 bytes 1.5 times."""
    (m, n, k), (x, y, out) = p.sizes, (layout.strides for layout in p.at)
    plain = p.x.dtype == p.y.dtype == p.dtype and p.mapped is None
    turns = blas.matrix(p.at[0], m, k).is_transposed
    if not (plain and turns and n == 1 and m > 1 and out[-2] == 1):
        return p
    at = (
        Layout((*y[:-2], k, y[-2]), p.at[1].offset),
        Layout((*x[:-2], x[-1], x[-2]), p.at[0].offset),
        Layout((*out[:-2], m, 1), p.at[2].offset),
    )
    return replace(p, x=p.y, y=p.x, sizes=(1, m, k), at=at)


def plan(p: Product, host: Host, panel: int, is_constant: bool) -> GemmPlan:
    """How ``p`` is computed, ``panel`` rows at a time."""
    m, n, k = p.sizes
    x, y, _ = (layout.strides for layout in p.at)
    if p.mapped is not None:
        return _of_mapped(p, host, panel)
    x_turns = blas.matrix(p.at[0], m, k).is_transposed
    of_y = blas.matrix(p.at[1], k, n)
    plain = p.x.dtype == p.y.dtype == p.dtype
    if n == 1 and plain and not x_turns and (y[-2] == 1 or k == 1):
        return GemmPlan("dots", is_column=True)
    # A constant in panels is read in order, with sums in registers.
    is_line = m == 1 and plain and not is_constant
    if is_line and not of_y.is_transposed:
        return GemmPlan("line")
    if is_line and (x[-1] == 1 or k == 1):
        return GemmPlan("dots")
    size = p.dtype.itemsize
    shape = tile(host, p.dtype)
    most = min(panel, m)
    if is_constant and m > 1 and not x_turns and has_pairs(p, host):
        return GemmPlan("pairs", "done", height=height(most, shape))
    room = most * block_row(p, host) * size if is_moved(p, host) else 0
    order = "done"
    if not is_constant:
        near = k * of_y.leading * size <= host.tuning.lying_bytes
        near = near or m <= host.tuning.lying_rows
        near = near or host.saves_memory
        lies = p.y.dtype == p.dtype and not of_y.is_transposed
        if near and lies and n % shape.lanes == 0:
            order = ""
        elif most == m and prod(p.batch) > 1 and any(y[:-2]):
            order = "own"
            room += panel_bytes(p, host)
    return GemmPlan("tiles", order, room, height(most, shape))


def _of_mapped(p: Product, host: Host, panel: int) -> GemmPlan:
    m, _, k = p.sizes
    x = p.at[0].strides
    lies = p.x.dtype == p.dtype and (x[-1] == 1 or k == 1)
    if m <= min(host.tuning.register_rows, panel) and lies:
        return GemmPlan("rows", height=m)
    most = min(panel, m)
    room = most * block_row(p, host) * p.dtype.itemsize if is_moved(p, host) else 0
    room = aligned(room) + part_bytes(p, host)
    return GemmPlan("tiles", "deferred", room, height(most, tile(host, p.dtype)))


def part_bytes(p: Product, host: Host) -> int:
    """Bytes of the part of a panel that is computed at once."""
    return inner(p, host) * tile(host, p.dtype).columns * p.dtype.itemsize


def height(rows: int, shape: Tile) -> int:
    """Rows of the tiles of so many rows: few ones are shared evenly."""
    if rows > COMMON.even_tiles * shape.rows:
        return shape.rows
    return -(-rows // -(-rows // shape.rows))


def inner(p: Product, host: Host) -> int:
    """How much of the inner axis is multiplied at once. Tiles add to the result after
    a chain of products in any case: where a panel of that length stays in the first
    cache, with rows of a tile, it is multiplied by all rows (Zen 3, 2000×1000 by
    1000×128: 0.76 of the time)."""
    k, shape, tuning = p.sizes[2], tile(host, p.dtype), host.tuning
    near = CHAIN * (shape.columns + shape.rows) * p.dtype.itemsize
    most = tuning.strip_bytes // (shape.rows * p.dtype.itemsize)
    if near <= tuning.first_cache_bytes:
        most = CHAIN
    each = padded(-(-k // -(-k // most)), 2)
    if p.mapped is not None:
        each = padded(each, len(p.mapped.rows))
    return min(each, k)


def is_moved(p: Product, host: Host) -> bool:
    """Whether blocks of the left operand are brought into order before they are
    multiplied: they are halves, or their rows lie side by side and are read often."""
    m, _, k = p.sizes
    is_transposed = blas.matrix(p.at[0], m, k).is_transposed
    return p.x.dtype != p.dtype or (is_transposed and not is_turned(p, host))


def is_turned(p: Product, host: Host) -> bool:
    """Whether rows of the left operand lie side by side and are read so: once for each
    of a few tiles, from the first cache, and not from few sets of it (Zen 3, of what
    that cache does not hold: 1.07 to 1.5 times as long as to move them)."""
    m, n, k = p.sizes
    of_x, size = blas.matrix(p.at[0], m, k), p.x.dtype.itemsize
    lies = p.x.dtype == p.dtype and of_x.is_transposed
    few = n * size <= host.tuning.turned_bytes
    few = few and k * of_x.leading * size <= host.tuning.lying_bytes
    return lies and few and of_x.leading * size % host.tuning.set_bytes != 0


def block_row(p: Product, host: Host) -> int:
    """Elements from row to row of such a block: an odd number of lines, so that a
    column of it lies in all sets of a cache (300×500×60 of 8 bytes: 0.88 of the
    time)."""
    size = p.dtype.itemsize
    lines = -(-inner(p, host) * size // ALIGNMENT)
    return (lines | 1) * ALIGNMENT // size


def panel_bytes(p: Product, host: Host) -> int:
    """Bytes of one right operand in panels."""
    return panel_elements(p, host) * p.dtype.itemsize


def panel_elements(p: Product, host: Host) -> int:
    """Numbers of one right operand in panels."""
    _, n, k = p.sizes
    return k * padded(n, tile(host, p.dtype).lanes)


def in_panels(p: Product, host: Host, pairs: bool = False) -> Product:
    """The product with its right operand in panels, packed, without its offset."""
    size = panel_elements(p, host)
    kept = [b if s else 1 for b, s in zip(p.batch, p.at[1].strides, strict=False)]
    steps = packed((*kept, size))[:-1]
    strides = [s if b > 1 else 0 for b, s in zip(kept, steps, strict=True)]
    at = p.at[0], Layout((*strides, 0, 0)), p.at[2]
    dtype = p.y.dtype if pairs else p.dtype
    return replace(p, y=replace(p.y, dtype=dtype), at=at)


@dataclass(frozen=True)
class Packing:
    """The right operand of a product, brought into panels."""

    product: Product
    panels: Panels

    def units(self, host: Host) -> int:
        """Parts that threads can share."""
        return prod(self.panels.kept) * units(self.product, host)


def units(p: Product, host: Host) -> int:
    """Parts in which one right operand is brought into panels."""
    _, n, k = p.sizes
    if blas.matrix(p.at[1], k, n).is_transposed:
        return parts_of(n, tile(host, p.dtype))
    return -(-k // host.tuning.copied_rows)


def parts_of(n: int, shape: Tile) -> int:
    """Parts that columns can have: tiles of full width; narrow ones go with the last
    of them."""
    first = spans(n, shape)[0]
    is_wide = first.vectors == shape.vectors
    return -(-first.columns // shape.columns) if is_wide else 1


def panels(p: Product, host: Host, pairs: bool = False) -> Panels:
    """How the right operand of ``p`` is brought into panels."""
    _, n, k = p.sizes
    shape = tile(host, p.dtype)
    at = p.at[1]
    kept = tuple(b if s else 1 for b, s in zip(p.batch, at.strides, strict=False))
    dtype = "uint16" if pairs else p.dtype.name
    return Panels(kept, (k, n), at, shape.vectors, shape.lanes, dtype, pairs)


def sums_of(p: Product, how: GemmPlan | None, seconds: float, threads: int) -> int:
    """The parts of the rows of a matrix that threads multiply a row vector by, where
    these are worth it and the sums to join are few. Rows are read from end to end, as
    parts of columns are not (Zen 3, GB/s of one thread: 64, by halves of 2 KiB 50, of
    512 bytes 33)."""
    if how is None or how.kind != "line" or prod(p.batch) > 1:
        return 0
    worth = min(threads, int(seconds / COMMON.thread_s))
    return worth if 1 < worth <= p.sizes[2] // (2 * COMMON.line_rows) else 0


def columns_of(p: Product, how: GemmPlan | None, host: Host) -> int:
    """Parts that the columns of a product can have at most."""
    n = p.sizes[1]
    if how is None or how.is_column:
        return 1
    if how.kind == "tiles":
        return parts_of(n, tile(host, p.dtype))
    return max(n // host.tuning.thread_columns, 1)
