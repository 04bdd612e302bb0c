"""xʸ = 2^(y log₂ |x|), with the special cases of C's ``pow``.

log₂ needs as many more bits as y log₂ |x| has before the point: f32 is therefore
computed in f64, and f64 with sums of two numbers. With AVX-512 both are: instructions
take numbers apart, tables of 16 stand in registers, and nothing is divided.
"""

from __future__ import annotations

from . import coefficients as c
from .avx512 import fraction, looked_up, scaled_by
from .exponential import exp2_polynomial, power_of_two, scaled
from .logarithm import INF, NAN, Reciprocal, parted, split, split_any
from .vector_values import (
    F64,
    SINGLE,
    EmittedValue,
    Pair,
    fast_two_sum,
    horner,
    two_product,
)


def power(x: EmittedValue, y: EmittedValue) -> EmittedValue:
    """xʸ. 55 flop in f64 / 150 flop, 1 division; with AVX-512 59 / 70 flop."""
    base = abs(x)
    if x.host.has_scale:
        return _signed(x, y, _power_by_table(base, y))
    if x.format is SINGLE:
        magnitude = _power_single(base.converted(F64), y.converted(F64))
        magnitude = magnitude.converted(x.element)
    else:
        magnitude = _power_double(base, y)
    return _signed(x, y, (base.equals(1.0) & y.equals(y)).where(1.0, magnitude))


def _signed(x: EmittedValue, y: EmittedValue, magnitude: EmittedValue) -> EmittedValue:
    """xʸ from |x|ʸ: the sign, and NaN where x < 0 is finite and y no integer."""
    half = y * 0.5
    if x.host.has_scale:
        whole = fraction(y).equals(0.0)
        odd = abs(fraction(half)).equals(0.5)
    else:
        whole = y.rint().equals(y)
        odd = whole & half.rint().differs(half)
    signed = odd.where(magnitude.copysign(x), magnitude)
    wrong = (x < 0.0) & (x > -INF) & ~whole
    signed = wrong.where(NAN, signed)
    return (y.equals(0.0) | x.equals(1.0)).where(1.0, signed)


def _power_by_table(base: EmittedValue, y: EmittedValue) -> EmittedValue:
    """baseʸ, base ≥ 0. AVX-512."""
    single = base.format is SINGLE
    high, low = _log2_by_table(base)
    # Far beyond what decides between 0 and ∞, and finite: 1 to the ∞ is 1.
    far = 2.0**60 if single else 2.0**90
    y = y.at_most(far).at_least(-far)
    z = y * high
    rest = y.times_plus(low, y.times_plus(high, -z))
    rest = (abs(z) < (200.0 if single else 1100.0)).where(rest, 0.0)
    return scaled_by(exp2_polynomial(fraction(z) + rest), z.rint())


def _log2_by_table(base: EmittedValue) -> Pair:
    """log₂ as a sum of two, with an error of about 2⁻³² / 2⁻⁶² of it; the second is
    NaN where the first is infinite.

    ln m = f - f²/2 + f³ p(f) - ln r, where f = m r - 1: the first two in sums of two.
    AVX-512.
    """
    single = base.format is SINGLE
    e, m = parted(base, "absolute")
    place, _, f = Reciprocal.of(m)
    square = f * f
    lost = f.times_plus(f, -square)
    h = square.times_plus(-0.5, f)
    h_low = lost.times_plus(-0.5, square.times_plus(-0.5, f - h))
    p = horner(f, c.LOG_NEAR_32 if single else c.LOG_NEAR_POWER)
    h_low = (square * f).times_plus(p, h_low)
    log2e, log2e_low = c.LOG2E_32 if single else c.LOG2E_64
    g = h * log2e
    g_low = h.times_plus(log2e_low, h.times_plus(log2e, -g))
    g_low = h_low.times_plus(log2e, g_low)
    of_r = (c.LOG2_HIGH_32, c.LOG2_LOW_32) if single else (c.LOG2_HIGH, c.LOG2_LOW)
    high, rest = fast_two_sum(e + looked_up(place, of_r[0]), g)
    return high, rest + (g_low + looked_up(place, of_r[1]))


def _special(base: EmittedValue, log: EmittedValue) -> EmittedValue:
    """``log``, but -∞ of 0, ∞ of ∞ and NaN of NaN. 6 flop."""
    log = base.equals(0.0).where(-INF, log)
    return (base < INF).where(log, base)


def _power_single(base: EmittedValue, y: EmittedValue) -> EmittedValue:
    """baseʸ in f64, to 33 bits, and 2^±200 for what no f32 holds. base ≥ 0."""
    e, m = split(base)
    f = m - 1.0
    s = f / (f + 2.0)
    log = _special(base, s.times_plus(horner(s * s, c.LOG2_POWER), e))
    z = (y * log).at_most(200.0).at_least(-200.0)
    magic = z.format.magic + z.format.bias
    shifted = z + magic
    r = z - (shifted - magic)
    p = horner(r, c.EXP2_POWER).times_plus(r, 1.0)
    return p * power_of_two(shifted)


def _power_double(base: EmittedValue, y: EmittedValue) -> EmittedValue:
    """baseʸ, base ≥ 0."""
    high, low = _log2_pair(base)
    high = _special(base, high)
    # Far beyond what decides between 0 and ∞, and small enough to split.
    y = y.at_most(2.0**65).at_least(-(2.0**65))
    z, rest = two_product(y, high)
    rest = y.times_plus(low, rest)
    rest = (abs(z) < 1100.0).where(rest, 0.0)
    z = z.at_most(1100.0).at_least(-1100.0)
    magic = z.format.magic + 2 * z.format.bias
    shifted = z + magic
    r = (z - (shifted - magic)) + rest
    p = horner(r, c.EXP2_64).times_plus(r, 1.0)
    return scaled(p, shifted)


def _log2_pair(base: EmittedValue) -> Pair:
    """log₂ of a positive f64 as a sum of two, with an error of about 2⁻⁶³ of it.

    s = f / (2 + f), ln m = 2 s + s z (2/3 + z p(z)), z = s², in sums of two but for
    z p(z), which is less than 1 % of 2/3.
    """
    e, m = split_any(base)
    s, s_low = _quotient(m - 1.0)
    z, z_low = two_product(s, s)
    z_low = (s + s).times_plus(s_low, z_low)
    t, t_low = fast_two_sum(z.constant(c.TWO_THIRDS[0]), z * horner(z, c.LOG_POWER))
    t_low = t_low + c.TWO_THIRDS[1]
    v, v_low = _product((s, s_low), _product((z, z_low), (t, t_low)))
    g, g_low = fast_two_sum(s + s, v)
    g, g_low = fast_two_sum(g, g_low + (s_low + s_low + v_low))
    log2e = g.constant(c.LOG2E_64[0]), g.constant(c.LOG2E_64[1])
    h, h_low = _product((g, g_low), log2e)
    high, low = fast_two_sum(e, h)
    return fast_two_sum(high, low + h_low)


def _quotient(f: EmittedValue) -> Pair:
    """f / (2 + f) as a sum of two."""
    d, d_low = fast_two_sum(f.constant(2.0), f)
    inverse = 1.0 / d
    s = f * inverse
    p, p_low = two_product(s, d)
    return s, s.times_plus(-d_low, (f - p) - p_low) * inverse


def _product(a: Pair, b: Pair) -> Pair:
    """The product of two sums of two, without the product of their small parts."""
    p, low = two_product(a[0], b[0])
    return p, a[0].times_plus(b[1], a[1].times_plus(b[0], low))
