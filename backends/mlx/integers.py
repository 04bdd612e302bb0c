"""Ops of integers that MLX lacks or leaves to the processor, in ops that it has."""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx

from .arrays import Array, both, is_unsigned


def whole(x: Array, y: Array) -> tuple[Array, Array]:
    """⌊x / y⌋ and x - y ⌊x / y⌋ of integers; 0 of division by 0. The least number by -1
    wraps: MLX leaves both to the processor, which traps."""
    zero = y == 0
    if is_unsigned(x):
        safe = mx.where(zero, mx.ones_like(y), y)
        q = mx.floor_divide(x, safe)
        rest = x - q * safe
    else:
        minus = y == -1
        safe = mx.where(mx.logical_or(zero, minus), mx.ones_like(y), y)
        q = mx.where(minus, mx.negative(x), mx.floor_divide(x, safe))
        rest = mx.where(minus, mx.zeros_like(x), x - q * safe)
    none = mx.zeros_like(q)
    return mx.where(zero, none, q), mx.where(zero, none, rest)


def width(x: Array) -> int:
    """Bits of a number."""
    return int(8 * x.dtype.size)


def left_shift(x: Any, y: Any) -> Array:
    """x 2ʸ; 0 where y is negative, or as large as x is wide."""
    x, y = both(x, y)
    near = _in_width(x, y)
    shifted = mx.left_shift(x, mx.where(near, y, mx.zeros_like(y)))
    return mx.where(near, shifted, mx.zeros_like(shifted))


def right_shift(x: Any, y: Any) -> Array:
    """⌊x 2⁻ʸ⌋; all bits go where y is negative, or as large as x is wide."""
    x, y = both(x, y)
    if not is_unsigned(x):
        last = mx.full(y.shape, width(x) - 1, dtype=y.dtype)
        return mx.right_shift(x, mx.where(_in_width(x, y), y, last))
    near = _in_width(x, y)
    shifted = mx.right_shift(x, mx.where(near, y, mx.zeros_like(y)))
    return mx.where(near, shifted, mx.zeros_like(shifted))


def _in_width(x: Array, y: Array) -> Array:
    low = y < width(x)
    return low if is_unsigned(y) else mx.logical_and(low, y >= 0)


def bitwise_count(x: Array) -> Array:
    """Ones of |x| in binary, uint8."""
    if x.dtype == mx.bool_:
        return x.astype(mx.uint8)
    bits = _magnitude(x).astype(mx.uint64)
    masks = (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F)
    m1, m2, m4 = (mx.array(m, dtype=mx.uint64) for m in masks)
    bits = (bits & m1) + (mx.right_shift(bits, 1) & m1)
    bits = (bits & m2) + (mx.right_shift(bits, 2) & m2)
    bits = (bits & m4) + (mx.right_shift(bits, 4) & m4)
    for by in (8, 16, 32):
        bits = bits + mx.right_shift(bits, by)
    return (bits & mx.array(0x7F, dtype=mx.uint64)).astype(mx.uint8)


def _magnitude(x: Array) -> Array:
    """|x| without a sign, of the width of x."""
    if is_unsigned(x):
        return x
    return mx.abs(x).astype(getattr(mx, f"uint{width(x)}"))


def gcd(x: Any, y: Any) -> Array:
    """The greatest common divisor, by Euclid's steps: as many as numbers of that width
    can need."""
    x, y = both(x, y)
    dtype = x.dtype
    a, b = _magnitude(x), _magnitude(y)
    for _ in range(math.ceil(width(x) / math.log2((1 + math.sqrt(5)) / 2))):
        a, b = mx.where(b == 0, a, b), whole(a, b)[1]
    return a.astype(dtype)


def lcm(x: Any, y: Any) -> Array:
    """The least common multiple."""
    x, y = both(x, y)
    dtype = x.dtype
    found = gcd(x, y)
    a, b = _magnitude(x), _magnitude(y)
    return (whole(a, _magnitude(found))[0] * b).astype(dtype)
