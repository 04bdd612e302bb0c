"""Sine, cosine, tangent and their inverses.

x = n π/2 + r with |r| ≤ π/4, n in the low bits after adding 1.5 · 2⁵² to x 2/π. f32 is
reduced in f64, so that r has 24 good bits however close x is to a multiple of π/2; f64
gives r as a sum of two. Beyond the reach of that (2⁴⁸ for f32, 2²⁸ for f64, 2²⁵ without
fused multiply-adds) a branch calls the C library's function for the lanes concerned.
"""

from __future__ import annotations

from typing import NamedTuple

from . import coefficients as c
from .libm_calls import call_lanes
from .vector_values import (
    F64,
    I32,
    SINGLE,
    EmittedValue,
    fast_two_sum,
    horner,
    two_product,
    two_sum,
)


class Angle(NamedTuple):
    """|x| = n π/2 + r + low."""

    quadrant: EmittedValue
    """Integers as wide as the floats, whose low two bits are those of n."""
    r: EmittedValue
    low: EmittedValue | None
    """What r lacks; None where that does not matter."""


def _reach(x: EmittedValue) -> float:
    """The largest |x| that :func:`_reduced` is right for."""
    if not x.host.has_fma:
        return 2.0**25
    return 2.0**48 if x.format is SINGLE else 2.0**28


def _reduced(a: EmittedValue, precise: bool = False) -> Angle:
    """The angle of a ≥ 0; in f32 with ``low`` only when ``precise``.

    8 flop in f64 (11 if precise) / 15 flop; without fused multiply-adds more.
    """
    x = a.converted(F64)
    magic = x.format.magic
    shifted = x.times_plus(c.TWO_OVER_PI[0], x.constant(magic))
    n = shifted - magic
    if a.format is SINGLE:
        r = x
        for part in (c.HALF_PI_FMA if a.host.has_fma else c.HALF_PI)[:3]:
            r = n.times_plus(-part, r)
        quadrant = shifted.bits
        narrow = quadrant.of(quadrant.b.trunc(quadrant.value, quadrant.like(I32)))
        near = r.converted(a.element)
        low = (r - near.converted(F64)).converted(a.element) if precise else None
        return Angle(narrow, near, low)
    first, *parts, last = c.HALF_PI_FMA if a.host.has_fma else c.HALF_PI
    r, rest_of_r = n.times_plus(-first, x), x.constant(0.0)
    for part in parts:
        p, p_low = two_product(n, n.constant(-part))
        r, rest = two_sum(r, p)
        rest_of_r = rest_of_r + (rest + p_low)
    return Angle(shifted.bits, *fast_two_sum(r, n.times_plus(-last, rest_of_r)))


def _sine(angle: Angle) -> EmittedValue:
    """sin(r + low) = r + (r z p(z) + low cos r). 5 / 11 flop."""
    r, low = angle.r, angle.low
    z = r * r
    cubic = r * z * horner(z, c.SIN32 if r.format is SINGLE else c.SIN64)
    if low is not None:
        cubic = cubic + z.times_plus(-0.5, z.constant(1.0)) * low
    return r + cubic


def _cosine(angle: Angle) -> EmittedValue:
    """cos(r + low) = 1 - z/2 + (z² p(z) - r low). 5 / 14 flop."""
    r, low = angle.r, angle.low
    z = r * r
    p = horner(z, c.COS32 if r.format is SINGLE else c.COS64)
    if low is None:
        return p.times_plus(z, -0.5).times_plus(z, 1.0)
    half = z * 0.5
    near = 1.0 - half
    rest = (1.0 - near) - half
    return near + (z * z).times_plus(p, r.times_plus(-low, rest))


def _far(x: EmittedValue, name: str, near: EmittedValue) -> EmittedValue:
    """``near``, but the C library's ``name`` where |x| is out of reach."""
    return call_lanes(name, abs(x) >= _reach(x), near, x)


def _shifted_sine(angle: Angle, ahead: int) -> tuple[EmittedValue, EmittedValue]:
    """sin(|x| + ahead π/2), and the bit of the sign that x would give."""
    quadrant = angle.quadrant + ahead
    odd = (quadrant & 1).differs(0)
    size = quadrant.format.bits
    flip = (quadrant & 2) << (size - 2)
    return odd.where(_cosine(angle), _sine(angle)), flip


def sin(x: EmittedValue) -> EmittedValue:
    """sin x. 35 / 50 flop and a branch."""
    value, flip = _shifted_sine(_reduced(abs(x)), 0)
    return _far(x, "sin", (value.bits ^ flip ^ x.sign_bit).floats)


def cos(x: EmittedValue) -> EmittedValue:
    """cos x. 34 / 49 flop and a branch."""
    value, flip = _shifted_sine(_reduced(abs(x)), 1)
    return _far(x, "cos", (value.bits ^ flip).floats)


def tan(x: EmittedValue) -> EmittedValue:
    """sin x / cos x. 45 / 50 flop, 1 division and a branch."""
    angle = _reduced(abs(x), precise=True)
    s, k = _sine(angle), _cosine(angle)
    odd = (angle.quadrant & 1).differs(0)
    flip = (angle.quadrant & 1) << (x.format.bits - 1)
    ratio = odd.where(k, s) / odd.where(s, k)
    return _far(x, "tan", (ratio.bits ^ flip ^ x.sign_bit).floats)


# -- inverses --------------------------------------------------------------------------

TAN_EIGHTH = 0.41421356
"""tan π/8, about."""


def _arc_of_ratio(y: EmittedValue, x: EmittedValue) -> EmittedValue:
    """The angle of (x, y) in the first quadrant, x and y ≥ 0 and not both 0 or ∞.

    t = y/x, (y - x) / (y + x) or -x/y, |t| ≤ tan π/8, plus 0, π/4 or π/2.
    18 / 25 flop, 1 division.
    """
    single = x.format is SINGLE
    steep, middle = y * TAN_EIGHTH > x, y > x * TAN_EIGHTH
    over = steep.where(-x, middle.where(y - x, y))
    under = steep.where(y, middle.where(y + x, x))
    t = over / under
    high, low = c.HALF_PI_32 if single else c.HALF_PI_64
    base = steep.where(x.constant(high), middle.where(x.constant(high / 2), 0.0))
    rest = steep.where(x.constant(low), middle.where(x.constant(low / 2), 0.0))
    z = t * t
    p = horner(z, c.ATAN32 if single else c.ATAN64)
    return base + (t + (t * z).times_plus(p, rest))


def arctan(x: EmittedValue) -> EmittedValue:
    """The angle in (-π/2, π/2) of tangent x. 20 / 27 flop, 1 division."""
    bound = 2.0**100 if x.format is SINGLE else 2.0**1000
    a = abs(x).at_most(bound)
    return _arc_of_ratio(a, x.constant(1.0)).copysign(x)


def arctan2(y: EmittedValue, x: EmittedValue) -> EmittedValue:
    """The angle of the point (y, x), x its ordinate, with C's special cases.

    Large points are scaled down; one of two zeros or infinities stands for 1.
    40 / 47 flop, 1 division.
    """
    form = x.format
    big = 2.0**100 if form is SINGLE else 2.0**1000
    faint = 2.0**-100 if form is SINGLE else 2.0**-900
    a, b = abs(x), abs(y)
    larger = (a > b).where(a, b)
    scale = (larger > big).where(
        x.constant(2.0 ** -(form.fraction + 3)),
        (larger < faint).where(x.constant(2.0 ** (form.fraction + 3)), 1.0),
    )
    infinite = larger.equals(float("inf"))
    p = infinite.where(a.equals(float("inf")).where(x.constant(1.0), 0.0), a * scale)
    q = infinite.where(b.equals(float("inf")).where(x.constant(1.0), 0.0), b * scale)
    p = larger.equals(0.0).where(1.0, p)
    high, low = c.HALF_PI_32 if form is SINGLE else c.HALF_PI_64
    angle = _arc_of_ratio(q, p)
    behind = (x.constant(2 * high) - angle) + 2 * low
    angle = (x.bits < 0).where(behind, angle).copysign(y)
    return (x.is_nan() | y.is_nan()).where(x + y, angle)


def _arcsine_near(t: EmittedValue, z: EmittedValue) -> EmittedValue:
    """asin t - t, z = t² ≤ ¼. 6 / 14 flop."""
    return t * z * horner(z, c.ASIN32 if t.format is SINGLE else c.ASIN64)


def arcsin(x: EmittedValue) -> EmittedValue:
    """asin x, or π/2 - 2 asin √((1 - |x|) / 2) for |x| > ½. 18 / 26 flop, 1 root."""
    a = abs(x)
    far = a > 0.5
    half = (1.0 - a) * 0.5
    z = far.where(half, a * a)
    t = far.where(half.sqrt(), a)
    rest = _arcsine_near(t, z)
    high, low = c.HALF_PI_32 if x.format is SINGLE else c.HALF_PI_64
    down = high - (t + t + (rest + rest - low))
    return far.where(down, t + rest).copysign(x)


def arccos(x: EmittedValue) -> EmittedValue:
    """2 asin √((1 - x) / 2) for x > ½, π - 2 asin √((1 + x) / 2) for x < -½, else
    π/2 - asin x. 24 / 32 flop, 1 root."""
    a = abs(x)
    far = a > 0.5
    half = (1.0 - a) * 0.5
    z = far.where(half, x * x)
    t = far.where(half.sqrt(), x)
    rest = _arcsine_near(t, z)
    high, low = c.HALF_PI_32 if x.format is SINGLE else c.HALF_PI_64
    twice = t + t + (rest + rest)
    behind = 2 * high - (t + t + (rest + rest - 2 * low))
    near = high - (t + (rest - low))
    return far.where((x < 0.0).where(behind, twice), near)
