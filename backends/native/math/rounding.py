"""Functions of few instructions: roots, rounding, extremes, remainders, neighbours."""

from __future__ import annotations

from .vector_values import F64, SINGLE, EmittedValue, two_product


def sqrt(x: EmittedValue) -> EmittedValue:
    """√x, correctly rounded. 1 square root."""
    return x.sqrt()


def rsqrt(x: EmittedValue) -> EmittedValue:
    """1 / √x. 1 square root, 1 division."""
    return 1.0 / x.sqrt()


def hypot(x: EmittedValue, y: EmittedValue) -> EmittedValue:
    """√(x² + y²); ∞ where either is infinite, even beside NaN.

    f32 is computed in f64. f64 is scaled by a power of two near the larger, so that no
    square overflows or vanishes. 8 / 20 flop, 1 square root.
    """
    a, b = abs(x), abs(y)
    infinite = a.equals(float("inf")) | b.equals(float("inf"))
    if x.format is SINGLE:
        wide, other = x.converted(F64), y.converted(F64)
        root = wide.times_plus(wide, other * other).sqrt().converted(x.element)
    else:
        swap = a < b
        large, small = swap.where(b, a), swap.where(a, b)
        huge, faint = large > 2.0**500, large < 2.0**-459
        scale = huge.where(
            x.constant(2.0**-600), faint.where(x.constant(2.0**600), 1.0)
        )
        back = huge.where(x.constant(2.0**600), faint.where(x.constant(2.0**-600), 1.0))
        large, small = large * scale, small * scale
        square, rest = two_product(large, large)
        root = (square + small.times_plus(small, rest)).sqrt() * back
    return infinite.where(float("inf"), root)


def floor(x: EmittedValue) -> EmittedValue:
    """The largest integer ≤ x; -0 stays. 1 rounding, or 9 flop."""
    if x.host.has_round:
        return x.call("floor")
    near = x.rint()
    return (near > x).where(near - 1.0, near).copysign(x)


def ceil(x: EmittedValue) -> EmittedValue:
    """The smallest integer ≥ x; -0 stays. 1 rounding, or 9 flop."""
    if x.host.has_round:
        return x.call("ceil")
    near = x.rint()
    return (near < x).where(near + 1.0, near).copysign(x)


def trunc(x: EmittedValue) -> EmittedValue:
    """x without its fraction, with its sign. 1 rounding, or 10 flop."""
    if x.host.has_round:
        return x.call("trunc")
    a = abs(x)
    near = a.rint()
    return (near > a).where(near - 1.0, near).copysign(x)


def rint(x: EmittedValue) -> EmittedValue:
    """The nearest integer; of two, the even one. 1 rounding, or 6 flop."""
    return x.rint()


def copysign(x: EmittedValue, y: EmittedValue) -> EmittedValue:
    """|x| with the sign of y. 3 bit operations."""
    return x.copysign(y)


def maximum(x: EmittedValue, y: EmittedValue) -> EmittedValue:
    """The larger of x and y; NaN if either is. Of ±0, either. 3 flop."""
    return x.is_nan().where(x, (x > y).where(x, y))


def minimum(x: EmittedValue, y: EmittedValue) -> EmittedValue:
    """The smaller of x and y; NaN if either is. Of ±0, either. 3 flop."""
    return x.is_nan().where(x, (x < y).where(x, y))


def fmax(x: EmittedValue, y: EmittedValue) -> EmittedValue:
    """The larger of x and y; not NaN if one is not. 3 flop."""
    return y.is_nan().where(x, (x > y).where(x, y))


def fmin(x: EmittedValue, y: EmittedValue) -> EmittedValue:
    """The smaller of x and y; not NaN if one is not. 3 flop."""
    return y.is_nan().where(x, (x < y).where(x, y))


def nextafter(x: EmittedValue, y: EmittedValue) -> EmittedValue:
    """The number next to x in the direction of y. 9 integer ops."""
    bits = x.bits
    down = (x > y) ^ (bits < 0)
    step = down.where(bits.constant(-1), 1)
    least = (y.sign_bit | 1).floats
    moved = x.equals(0.0).where(least, (bits + step).floats)
    nan = (x.is_nan() | y.is_nan()).where(x + y, moved)
    return x.equals(y).where(y, nan)
