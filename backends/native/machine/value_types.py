"""Types of values in registers and in memory, and the way between them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir

from ...loop_ir import (
    DType,
    Unsupported,
)
from .processor import Host

I1, I8, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()


def register_type(dtype: DType) -> Any:
    """The LLVM type of a value of ``dtype`` while it is computed with."""
    if dtype == np.dtype(bool):
        return I1
    if dtype.kind == "f":
        return {2: F16, 4: F32, 8: F64}[dtype.itemsize]
    if dtype.kind in "iuc":  # complex numbers are moved, bits as they are
        return ir.IntType(8 * dtype.itemsize)
    raise Unsupported(f"values of {dtype}")


def memory_type(dtype: DType) -> Any:
    """The LLVM type of an element of ``dtype`` in memory."""
    if dtype == np.dtype(bool):
        return I8
    return (
        ir.IntType(16)
        if dtype.itemsize == 2 and _is_half(dtype)
        else register_type(dtype)
    )


def _is_half(dtype: DType) -> bool:
    return dtype.name in ("float16", "bfloat16")


def widened(element: Any, lanes: int) -> Any:
    """``element``, or the vector of so many."""
    return element if lanes == 1 else ir.VectorType(element, lanes)


def lanes_of(value: ir.Value) -> int:
    """Lanes of a value; 1 of a scalar."""
    return value.type.count if isinstance(value.type, ir.VectorType) else 1


def constant(element: Any, lanes: int, number: float) -> ir.Constant:
    """``number`` in each lane."""
    if isinstance(element, ir.IntType):
        number = int(number) & ((1 << element.width) - 1)
    one = ir.Constant(element, number)
    if lanes == 1:
        return one
    return ir.Constant(ir.VectorType(element, lanes), [one] * lanes)


def splat(b: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    """A scalar in each lane."""
    if lanes == 1 or isinstance(value.type, ir.VectorType):
        return value
    if isinstance(value, ir.Constant):
        return ir.Constant(ir.VectorType(value.type, lanes), [value] * lanes)
    undefined, first, mask = _splat_constants(value.type, lanes)
    one = b.insert_element(undefined, value, first)
    return b.shuffle_vector(one, undefined, mask)


@functools.cache
def _splat_constants(
    kind: ir.Type, lanes: int
) -> tuple[ir.Constant, ir.Constant, ir.Constant]:
    """What :func:`splat` is written of. They keep their text, which all others make
    anew: a fifth of the time that writing kernels of products took."""
    undefined = ir.Constant(ir.VectorType(kind, lanes), ir.Undefined)
    mask = ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
    return undefined, ir.Constant(I32, 0), mask


# -- memory ----------------------------------------------------------------------------


def from_memory(b: ir.IRBuilder, value: ir.Value, dtype: DType, host: Host) -> ir.Value:
    """What an element in memory is as a value: bools one bit, halves float32."""
    lanes = lanes_of(value)
    if dtype == np.dtype(bool):
        return b.icmp_unsigned("!=", value, constant(I8, lanes, 0))
    if dtype.name == "bfloat16":
        wide = b.zext(value, widened(I32, lanes))
        return b.bitcast(b.shl(wide, constant(I32, lanes, 16)), widened(F32, lanes))
    if dtype.name == "float16":
        return _from_half(b, value, host)
    return value


def to_memory(b: ir.IRBuilder, value: ir.Value, dtype: DType, host: Host) -> ir.Value:
    """A value as an element in memory, halves rounded to nearest, ties to even."""
    lanes = lanes_of(value)
    if dtype == np.dtype(bool):
        return b.zext(value, widened(I8, lanes))
    if dtype.name == "bfloat16":
        return _to_bfloat(b, value)
    if dtype.name == "float16":
        return _to_half(b, value, host)
    return value


def _has_half(host: Host) -> bool:
    return host.is_arm or "f16c" in host.flags


def _from_half(b: ir.IRBuilder, value: ir.Value, host: Host) -> ir.Value:
    lanes = lanes_of(value)
    if _has_half(host):
        return b.fpext(b.bitcast(value, widened(F16, lanes)), widened(F32, lanes))

    def c(n: float, element: Any = I32) -> ir.Constant:
        return constant(element, lanes, n)

    wide = b.zext(value, widened(I32, lanes))
    sign = b.shl(b.and_(wide, c(0x8000)), c(16))
    rest = b.shl(b.and_(wide, c(0x7FFF)), c(13))
    # Exponent and fraction as float32 bits are too small by 2^112, denormals included.
    scaled = b.fmul(b.bitcast(rest, widened(F32, lanes)), c(2.0**112, F32))
    special = b.icmp_unsigned(">=", rest, c(0x7C00 << 13))
    bits = b.bitcast(scaled, widened(I32, lanes))
    bits = b.select(special, b.or_(rest, c(0x7F800000)), bits)
    return b.bitcast(b.or_(bits, sign), widened(F32, lanes))


def _to_half(b: ir.IRBuilder, value: ir.Value, host: Host) -> ir.Value:
    lanes = lanes_of(value)
    i16 = ir.IntType(16)
    if _has_half(host):
        return b.bitcast(b.fptrunc(value, widened(F16, lanes)), widened(i16, lanes))

    def c(n: float, element: Any = I32) -> ir.Constant:
        return constant(element, lanes, n)

    def as_int(x: ir.Value) -> ir.Value:
        return b.bitcast(x, widened(I32, lanes))

    bits = as_int(value)
    sign = b.lshr(b.and_(bits, c(0x80000000)), c(16))
    size = b.and_(bits, c(0x7FFFFFFF))
    # Adding 2^(e + 13) rounds off the 13 bits that a half lacks; below the smallest
    # normal half the same number fits all denormals.
    up = b.add(b.and_(size, c(0x7F800000)), c(13 << 23))
    up = b.select(
        b.icmp_unsigned("<", size, c(113 << 23)), c((113 + 13 - 1 + 1) << 23), up
    )
    magnitude = b.bitcast(size, widened(F32, lanes))
    unit = b.bitcast(up, widened(F32, lanes))
    rounded = b.fsub(b.fadd(magnitude, unit), unit)
    half = b.lshr(as_int(b.fmul(rounded, c(2.0**-112, F32))), c(13))
    half = b.select(b.icmp_unsigned(">=", size, c(0x477FF000)), c(0x7C00), half)
    half = b.select(b.icmp_unsigned(">", size, c(0x7F800000)), c(0x7E00), half)
    return b.trunc(b.or_(half, sign), widened(i16, lanes))


def _to_bfloat(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    lanes = lanes_of(value)

    def c(n: int) -> ir.Constant:
        return constant(I32, lanes, n)

    bits = b.bitcast(value, widened(I32, lanes))
    odd = b.and_(b.lshr(bits, c(16)), c(1))
    up = b.lshr(b.add(b.add(bits, c(0x7FFF)), odd), c(16))
    quiet = b.or_(b.lshr(bits, c(16)), c(0x40))
    nan = b.fcmp_unordered("uno", value, value)
    return b.trunc(b.select(nan, quiet, up), widened(ir.IntType(16), lanes))


def least(b: ir.IRBuilder, x: ir.Value, y: ir.Value | int) -> ir.Value:
    """The smaller one."""
    y = I64(y) if isinstance(y, int) else y
    return b.select(b.icmp_signed("<", x, y), x, y)


def most(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """The larger one."""
    return b.select(b.icmp_signed(">", x, y), x, y)
