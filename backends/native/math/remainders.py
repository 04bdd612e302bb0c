"""Remainders and the quotient without fraction, as C and NumPy define them."""

from __future__ import annotations

from .libm_calls import call_lanes
from .rounding import floor, trunc
from .vector_values import F64, SINGLE, EmittedValue, two_product

INF = float("inf")


def fmod(x: EmittedValue, y: EmittedValue) -> EmittedValue:
    """x - y trunc(x / y), exact, of the sign of x; NaN for y = 0 or infinite x.

    Where |x / y| has more bits than a division gives, a branch calls the C library.
    16 flop (f32 in f64), 1 division and a branch.
    """
    a, b = abs(x), abs(y)
    if x.format is SINGLE:
        wide, by = a.converted(F64), b.converted(F64)
        q = trunc(wide / by)
        rare = q >= 2.0**29
        rest = wide - q * by
        rest = (rest < 0.0).where(rest + by, rest).converted(x.element)
    else:
        q = trunc(a / b)
        p, p_low = two_product(q, b)
        rare = q >= 2.0**53
        if x.host.has_fma:
            rest = q.times_plus(-b, a)
        else:
            rest = (a - p) - p_low
            rare = rare | (b >= 2.0**990) | (a >= 2.0**990)
        rest = (rest < 0.0).where(rest + b, rest)
    rest = ((a < INF) & b.equals(INF)).where(a, rest)
    return call_lanes("fmod", rare, rest.copysign(x), x, y)


def remainder(x: EmittedValue, y: EmittedValue) -> EmittedValue:
    """x - y ⌊x / y⌋, of the sign of y. 24 flop, 1 division and a branch."""
    return _floored(x, y)[0]


def _floored(
    x: EmittedValue, y: EmittedValue
) -> tuple[EmittedValue, EmittedValue, EmittedValue]:
    """The remainder of the sign of y, C's, and whether they differ by y."""
    rest = fmod(x, y)
    moved = rest.differs(0.0) & ((rest.bits ^ y.bits) < 0)
    of_y = moved.where(rest + y, rest)
    zero = y.constant(0.0).copysign(y)
    return (rest.equals(0.0) & y.differs(0.0)).where(zero, of_y), rest, moved


def floor_divide(x: EmittedValue, y: EmittedValue) -> EmittedValue:
    """⌊x / y⌋, such that x is y times it plus the remainder; x / 0 for y = 0.

    34 flop, 3 divisions and a branch.
    """
    _, rest, moved = _floored(x, y)
    quotient = (x - rest) / y
    quotient = moved.where(quotient - 1.0, quotient)
    whole = floor(quotient)
    whole = (quotient - whole > 0.5).where(whole + 1.0, whole)
    ratio = x / y
    whole = quotient.equals(0.0).where(whole.constant(0.0).copysign(ratio), whole)
    return y.equals(0.0).where(ratio, whole)
