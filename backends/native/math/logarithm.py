"""Logarithms and the inverse hyperbolic functions.

All split a positive x = 2ᵉ m with m from ¾ to 1½ (f64 from √½ to √2 where that takes
integer arithmetic on its bits). With AVX-512 f64 takes r ≈ 1 / m from a table of 16, so
that ln m = ln(m r) - ln r without a division: m r - 1 is exact and at most 1/16. Flops
are given as f32 / f64, a multiply-add counting as 1; AVX-512 takes 10 / 16 less.
"""

from __future__ import annotations

from typing import NamedTuple

from . import coefficients as c
from .avx512 import exponent, looked_up, scaled_by, significand
from .exponential import exp, exp2
from .vector_values import (
    SINGLE,
    EmittedValue,
    Pair,
    fast_two_sum,
    horner,
    two_product,
    two_sum,
)

INF, NAN = float("inf"), float("nan")
_THREE_QUARTERS = 0x3F400000
"""¾ as f32."""
_ROOT_HALF = 0x3FE6A09E667F3BCD
"""√½ as f64."""


def split(x: EmittedValue) -> Pair:
    """e and m of a positive normal x. 5 / 6 integer ops."""
    form, bits = x.format, x.bits
    one = form.bias << form.fraction
    if form is SINGLE:
        above = bits - _THREE_QUARTERS
        e = x.of(x.b.sitofp((above >> form.fraction).value, x.type))
        return e, (bits - (above & (-1 << form.fraction))).floats
    # Neither arithmetic shifts nor conversions of 64-bit integers are in AVX2.
    above = bits + (one - _ROOT_HALF)
    shifted = above.shift_in_zeros(form.fraction) | (
        (form.fraction + form.bias) << form.fraction
    )
    e = shifted.floats - (2.0**form.fraction + form.bias)
    return e, (bits - (above & (-1 << form.fraction)) + one).floats


def split_any(x: EmittedValue) -> Pair:
    """As :func:`split`, of denormals too. 9 / 10 flop."""
    form = x.format
    tiny = x < form.smallest_normal
    e, m = split(tiny.where(x * 2.0**form.fraction, x))
    return e - tiny.where(x.constant(form.fraction), 0.0), m


def parted(x: EmittedValue, negative: str = "NaN") -> Pair:
    """e and m of any x with AVX-512: e is -∞ of 0 and ∞ of ∞, and m NaN of negative
    numbers, or that of their magnitude if ``negative`` is ``absolute``. 4 flop."""
    m = significand(x, 3, negative)
    return exponent(x) - exponent(m), m


class Reciprocal(NamedTuple):
    """What is known of 1 / m, m from ¾ to 1½. AVX-512."""

    place: EmittedValue
    """Of the tables: the first 4 bits of the fraction."""
    r: EmittedValue
    """A number of 5 bits, 1 where m is nearest to 1."""
    f: EmittedValue
    """m r - 1, exactly."""

    @staticmethod
    def of(m: EmittedValue) -> Reciprocal:
        """3 flop."""
        place = m.bits.shift_in_zeros(m.format.fraction - 4)
        r = looked_up(place, c.RECIPROCAL)
        return Reciprocal(place, r, m.times_plus(r, -1.0))


def _log_parts(m: EmittedValue, rest: EmittedValue | None = None) -> Pair:
    """ln(m + rest) ≈ large + small, the rest being small, and small too unless large is
    0. 11 / 15 flop, 0 / 1 division; with AVX-512 11 / 21 flop, no division."""
    if m.format is SINGLE or not m.host.has_scale:
        f = m - 1.0
        return _log1p_parts(f if rest is None else f + rest)
    near = Reciprocal.of(m)
    f = near.f if rest is None else rest.times_plus(near.r, near.f)
    square = f * f
    small = square.times_plus(-0.5, square * f * horner(f, c.LOG_NEAR_64))
    high = looked_up(near.place, c.LOG_HIGH)
    large, lost = fast_two_sum(high, f)
    return large, small + (looked_up(near.place, c.LOG_LOW) + lost)


def _log1p_parts(f: EmittedValue) -> Pair:
    """ln(1 + f) ≈ large + small, where large is f, or close to it, and small ≪ large.

    f32: f and f² p(f). f64, as s = f / (2 + f): f and s (z p(z) + f²/2) - f²/2, because
    ln(1 + f) = 2 atanh s = f - f²/2 + s f²/2 + s z p(z) (Ng, fdlibm, 1993).
    10 / 14 flop, 0 / 1 division.
    """
    if f.format is SINGLE:
        return f, f * f * horner(f, c.LOG32)
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    p = z * horner(z, c.LOG64)
    return f, s * (p + half_square) - half_square


def _exponent_and_log(
    x: EmittedValue,
) -> tuple[EmittedValue, EmittedValue, EmittedValue]:
    """e and the parts of ln m."""
    e, m = parted(x) if x.host.has_scale else split_any(x)
    return e, *_log_parts(m)


def _special(x: EmittedValue, result: EmittedValue) -> EmittedValue:
    """``result``, but the logarithm of 0, ∞, negative numbers and NaN. 6 flop."""
    result = x.equals(INF).where(INF, result)
    result = x.equals(0.0).where(-INF, result)
    return (x >= 0.0).where(result, NAN)


def _unless_parted(x: EmittedValue, result: EmittedValue) -> EmittedValue:
    """:func:`_special`, which :func:`parted` makes needless."""
    return result if x.host.has_scale else _special(x, result)


def log(x: EmittedValue) -> EmittedValue:
    """ln x = e ln 2 + ln m. 28 / 33 flop, 0 / 1 division."""
    return _unless_parted(x, sum_of_logs(*_exponent_and_log(x)))


def log2(x: EmittedValue) -> EmittedValue:
    """log₂ x = e + ln m / ln 2, exact for powers of 2. 28 / 33 flop, 0 / 1 division."""
    e, large, small = _exponent_and_log(x)
    high, low = c.LOG2E_32 if x.format is SINGLE else c.LOG2E_64
    y = large + small
    product = y.times_plus(low, y * high)
    return _unless_parted(x, e + product)


def log10(x: EmittedValue) -> EmittedValue:
    """log₁₀ x = e log₁₀ 2 + ln m / ln 10. 29 / 34 flop, 0 / 1 division."""
    single = x.format is SINGLE
    e, large, small = _exponent_and_log(x)
    scale = c.LOG10E_32 if single else c.LOG10E_64
    high, low = c.LOG10_2_32 if single else c.LOG10_2_64
    y = large + small
    rest = e.times_plus(low, y * scale[1])
    return _unless_parted(x, e.times_plus(high, y.times_plus(scale[0], rest)))


def log1p(x: EmittedValue) -> EmittedValue:
    """ln(1 + x), precise near 0: 1 + x = u + l exactly, f = m - 1 + l 2⁻ᵉ.

    35 / 40 flop, 0 / 1 division.
    """
    u, rest = two_sum(x, x.constant(1.0))
    y = sum_of_logs(*log_of_sum(u, rest))
    y = (abs(x) < (1e-30 if x.format is SINGLE else 1e-200)).where(x, y)
    return _special(u, y)


def log_of_sum(
    u: EmittedValue, rest: EmittedValue
) -> tuple[EmittedValue, EmittedValue, EmittedValue]:
    """e and the two parts of ln(m + rest 2⁻ᵉ), u = 2ᵉ m being positive and normal and
    the rest small beside it. 18 / 23 flop, 0 / 1 division."""
    if u.host.has_scale:
        e, m = parted(u)
        return e, *_log_parts(m, scaled_by(rest, -e))
    e, m = split(u)
    return e, *_log_parts(m, rest * 0.5 * _twice_power_of_minus(u, m))


def sum_of_logs(
    e: EmittedValue, large: EmittedValue, small: EmittedValue
) -> EmittedValue:
    """e ln 2 + large + small."""
    high, low = c.LN2_32 if e.format is SINGLE else c.LN2_64
    return e.times_plus(high, large + e.times_plus(low, small))


def _twice_power_of_minus(u: EmittedValue, m: EmittedValue) -> EmittedValue:
    """2 · 2⁻ᵉ where u = 2ᵉ m: the exponents of m and u differ by e. Twice, because 2⁻ᵉ
    of the largest u is too small for a normal number."""
    two = (u.format.bias + 1) << u.format.fraction
    return (m.bits - u.bits + two).floats


def _larger_and_distance(
    x: EmittedValue, y: EmittedValue
) -> tuple[EmittedValue, EmittedValue, EmittedValue]:
    """The larger, minus the distance of the other, and what that lacks, being rounded:
    where the larger is near 0 the result is near the power of the distance. NaN where
    either is."""
    larger = x.is_nan().where(x, (x > y).where(x, y))
    down, low = two_sum((x > y).where(y, x), -larger)
    down = x.equals(y).where(0.0, down)
    return larger, down, ((down < 0.0) & (down > -INF)).where(low, 0.0)


def logaddexp(x: EmittedValue, y: EmittedValue) -> EmittedValue:
    """ln(eˣ + eʸ) = max + ln(1 + e^-|x - y|).

    The error is relative to the sum of both parts' magnitudes. 58 / 72 flop, 0 / 1
    division.
    """
    larger, down, rest = _larger_and_distance(x, y)
    ratio = exp(down)
    u = fast_two_sum(x.constant(1.0), ratio.times_plus(rest, ratio))
    return larger + sum_of_logs(*log_of_sum(*u))


def logaddexp2(x: EmittedValue, y: EmittedValue) -> EmittedValue:
    """log₂(2ˣ + 2ʸ), as :func:`logaddexp`. 62 / 76 flop, 0 / 1 division."""
    larger, down, rest = _larger_and_distance(x, y)
    ratio = exp2(down)
    ratio = (ratio * c.LN2_64[0]).times_plus(rest, ratio)
    u = fast_two_sum(x.constant(1.0), ratio)
    e, large, small = log_of_sum(*u)
    high, low = c.LOG2E_32 if x.format is SINGLE else c.LOG2E_64
    product, lost = two_product(large, large.constant(high))
    y = product + (small * high + large.times_plus(low, lost))
    return larger + (e + y)


def arctanh(x: EmittedValue) -> EmittedValue:
    """ln(1 + 2|x| + 2x² / (1 - |x|)) / 2 with the sign of x.

    40 / 45 flop, 1 / 2 divisions.
    """
    a = abs(x).at_most(2.0)
    twice = a + a
    return (log1p(twice.times_plus(a / (1.0 - a), twice)) * 0.5).copysign(x)


def _log_of_twice(large: EmittedValue, argument: EmittedValue) -> EmittedValue:
    """ln(1 + argument), but ln 2 + ln(1 + large) where 1 / large² vanishes."""
    single = large.format is SINGLE
    far = large > (2.0**14 if single else 2.0**28)
    ln2 = c.LN2_32 if single else c.LN2_64
    extra = far.where(large.constant(sum(ln2)), 0.0)
    return log1p(far.where(large, argument)) + extra


def arcsinh(x: EmittedValue) -> EmittedValue:
    """ln(1 + |x| + x² / (1 + √(x² + 1))) with the sign of x.

    48 / 53 flop, 1 root, 1 / 2 divisions.
    """
    a = abs(x)
    root = a.times_plus(a, a.constant(1.0)).sqrt()
    return _log_of_twice(a - 1.0, a + a * (a / (root + 1.0))).copysign(x)


def arccosh(x: EmittedValue) -> EmittedValue:
    """ln(1 + d + √(d² + 2d)), d = x - 1; NaN below 1.

    46 / 51 flop, 1 root, 0 / 1 division.
    """
    d = x - 1.0
    y = _log_of_twice(d, d + d.times_plus(d, d + d).sqrt())
    return (x < 1.0).where(NAN, y)
