"""Integers whose signed order is the order in which NumPy sorts: NaN is last; alone, or
with the position of an element in the lower half of one of 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from ...loop_ir import (
    DType,
    Ordering,
)
from ..machine import I64, constant, lanes_of, splat, widened

LANES = 8
"""Of the vectors that elements are made integers in."""


def key_type(dtype: DType) -> Any:
    """The LLVM type of the key, and of the bits, of an element."""
    return ir.IntType(8 * dtype.itemsize)


def is_float(dtype: DType) -> bool:
    """Whether elements are floats; bfloat16 is of kind V."""
    return dtype.kind not in "biu"


def _infinity(dtype: DType) -> int:
    """The bits of infinity."""
    return int(np.array(np.inf, dtype).view(f"u{dtype.itemsize}"))


def key(b: ir.IRBuilder, bits: Any, dtype: DType, one_zero: bool = False) -> Any:
    """The key of the bits of an element, or of a vector of them. All NaN are one, and
    with ``one_zero`` -0 and 0 are."""
    kind, lanes = key_type(dtype), lanes_of(bits)

    def number(value: int) -> Any:
        return constant(kind, lanes, value)

    width = 8 * dtype.itemsize
    most = (1 << width - 1) - 1
    if dtype.kind == "u":
        return b.xor(bits, number(most + 1))
    if not is_float(dtype):
        return bits
    size = b.and_(bits, number(most))
    if one_zero:
        zero = b.icmp_unsigned("==", size, number(0))
        bits = b.select(zero, number(0), bits)
    found = _negatives_flipped(b, bits, width)
    is_nan = b.icmp_signed(">", size, number(_infinity(dtype)))
    return b.select(is_nan, number(most), found)


def bits_of(b: ir.IRBuilder, found: Any, dtype: DType) -> Any:
    """The bits of the element, or vector, of a key: the inverse of :func:`key`."""
    width = 8 * dtype.itemsize
    if dtype.kind == "u":
        return b.xor(found, constant(key_type(dtype), lanes_of(found), 1 << width - 1))
    return _negatives_flipped(b, found, width) if is_float(dtype) else found


def _negatives_flipped(b: ir.IRBuilder, bits: Any, width: int) -> Any:
    """Negative numbers the other way round: their bits but the sign."""
    kind, lanes = ir.IntType(width), lanes_of(bits)
    sign = b.ashr(bits, constant(kind, lanes, width - 1))
    return b.xor(bits, b.and_(sign, constant(kind, lanes, (1 << width - 1) - 1)))


def loaded(b: ir.IRBuilder, at: Any, dtype: DType, lanes: int) -> Any:
    """The bits of elements side by side."""
    return b.load(at, align=dtype.itemsize, typ=widened(key_type(dtype), lanes))


def has_pairs(p: Ordering) -> bool:
    """Whether an element and its position are one integer of 64 bits: equal elements
    then come in their order, whatever the sort."""
    return p.is_positions and p.dtype.itemsize <= 4 and p.size < 1 << 31


def pairs(
    b: ir.IRBuilder, p: Ordering, row: ir.Value, i: ir.Value, lanes: int
) -> ir.Value:
    """Elements of a row from ``i`` on, with their positions."""
    at = b.gep(row, [i], source_etype=key_type(p.dtype))
    found = key(b, loaded(b, at, p.dtype, lanes), p.dtype, one_zero=True)
    upper = b.shl(b.sext(found, widened(I64, lanes)), constant(I64, lanes, 32))
    places: Any = i
    if lanes > 1:
        each = ir.Constant(ir.VectorType(I64, lanes), [*range(lanes)])
        places = b.add(splat(b, i, lanes), each)
    return b.or_(upper, places)


def positions(b: ir.IRBuilder, found: ir.Value) -> ir.Value:
    """Those of a pair, or a vector of pairs."""
    return b.and_(found, constant(I64, lanes_of(found), (1 << 32) - 1))
