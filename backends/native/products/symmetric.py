"""Products of a matrix by its own transpose: blocks on and above the diagonal are
computed, and what is below them is written from those.

Both halves have the same bits: the products of two rows are summed in one order.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from llvmlite import ir

from ...loop_ir import DType, Operand, Product
from ..loops import loop
from ..machine import I64, Host, MemoryRef, memory_type
from .function_names import name_of
from .gemm_calls import OwnCalls
from .gemm_plan import flops_per_s
from .tiles import spans, tile


def is_symmetric(p: Product, x: MemoryRef, y: MemoryRef) -> bool:
    """Whether the right operand is the left one, transposed."""
    m, n, _ = p.sizes
    left, right = p.at[0], p.at[1]
    turned = (*right.strides[:-2], right.strides[-1], right.strides[-2])
    same = x == y and p.x.dtype == p.y.dtype and p.mapped is None
    return same and m == n and (left.offset, left.strides) == (right.offset, turned)


def computed_share(n: int, dtype: DType, host: Host) -> float:
    """The share of the elements of a result that are computed."""
    shape = tile(host, dtype)
    rows = shape.columns
    found = 0
    for first in range(0, n, rows):
        count = min(rows, n - first)
        for s in spans(n, shape):
            wide = s.vectors * shape.lanes
            skipped = min(max(first - s.first, 0) // wide * wide, s.columns)
            found += count * (s.columns - skipped)
    return found / n**2


def is_halved(p: Product, host: Host, is_read: bool) -> bool:
    """Whether a symmetric product had better be computed by halves. ``is_read``: if all
    of it is computed, rows of it are read while they are in cache."""
    n = p.sizes[0]
    saved = (
        p.flops / flops_per_s(host, p.dtype) * (1 - computed_share(n, p.dtype, host))
    )
    mirroring = Mirroring(p)
    moved = mirroring.seconds(host)
    if is_read:
        moved += 2 * mirroring.nbytes / host.tuning.core_bytes_per_s
    return saved > moved


@dataclass(frozen=True)
class Mirroring:
    """What is below the diagonal of a product is what is above it."""

    product: Product

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (self.product.out,)

    @property
    def nbytes(self) -> int:
        """Of the result (bytes)."""
        p = self.product
        return prod(p.batch) * p.sizes[0] ** 2 * p.dtype.itemsize

    def blocks(self, host: Host) -> int:
        """Blocks of rows of one matrix: as many rows as a vector has lanes, and those
        that are left in the last one."""
        return max(self.product.sizes[0] // tile(host, self.product.dtype).lanes, 1)

    def units(self, host: Host) -> int:
        """Parts that threads can share."""
        return prod(self.product.batch) * self.blocks(host)

    def seconds(self, host: Host) -> float:
        """About how long one thread takes (s)."""
        return self.nbytes / 2 / host.tuning.packed_per_s


def mirror(calls: OwnCalls, of: Mirroring, unit: ir.Value, out: ir.Value) -> None:
    """One of the units: rows up to the diagonal are columns down to it."""
    b, p, dtype = calls.b, of.product, of.product.dtype
    n, lead = p.sizes[0], p.at[2].strides[-2]
    blocks, lanes = of.blocks(calls.host), tile(calls.host, dtype).lanes
    batch, which = b.sdiv(unit, I64(blocks)), b.srem(unit, I64(blocks))
    first = b.mul(which, I64(lanes))
    is_last = b.icmp_signed("==", which, I64(blocks - 1))
    count = b.select(is_last, b.sub(I64(n), first), I64(lanes))
    out = calls.element(p, 2, out, batch)
    column = calls.at(dtype, out, (first, 1))
    row = calls.at(dtype, out, (first, lead))
    calls.call(
        name_of("back", dtype, dtype.name), [column, lead, row, lead, count, first]
    )
    corner, kind = calls.at(dtype, row, (first, 1)), memory_type(dtype)
    with loop(b, I64(1), count, 1) as i, loop(b, I64(0), i, 1) as j:
        source = calls.at(dtype, corner, (j, lead), (i, 1))
        place = calls.at(dtype, corner, (i, lead), (j, 1))
        b.store(b.load(source, typ=kind), place)
