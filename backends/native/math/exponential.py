"""Exponentials: eˣ, 2ˣ, eˣ - 1, the hyperbolic functions, σ, erf and Φ.

All split x = n ln 2 + r with |r| ≤ ln 2 / 2. Adding 1.5 · 2^fraction to x / ln 2 rounds
it and leaves n in the low bits, whence 2ⁿ comes by a shift. Flops are given as
f32 / f64, a multiply-add counting as 1.
"""

from __future__ import annotations

from typing import NamedTuple

from . import coefficients as c
from .avx512 import can_scale, fraction, scaled_by
from .vector_values import SINGLE, EmittedValue, Format, horner


class ReducedArgument(NamedTuple):
    """x = n ln 2 + r."""

    shifted: EmittedValue
    """n, plus what was asked for, in the low bits."""
    r: EmittedValue
    low: EmittedValue | None = None
    """What r lacks, where asked for."""


def reduced(x: EmittedValue, low_bits: int, precise: bool = False) -> ReducedArgument:
    """n and r of a moderate x; the bits of ``shifted`` end in those of n + low_bits.

    ln 2 is a short number and a rest, so that the product with n is exact. 4 flop, 2
    more for ``low``.
    """
    single = x.format is SINGLE
    log2e = (c.LOG2E_32 if single else c.LOG2E_64)[0]
    high, low = c.LN2_32 if single else c.LN2_64
    magic = x.format.magic + low_bits
    shifted = x.times_plus(log2e, x.constant(magic))
    n = shifted - magic
    near = n.times_plus(-high, x)
    r = n.times_plus(-low, near)
    return ReducedArgument(
        shifted, r, n.times_plus(-low, near - r) if precise else None
    )


def power_of_two(shifted: EmittedValue) -> EmittedValue:
    """2ⁿ, from the low bits n + bias. 1 integer op."""
    return (shifted.bits << shifted.format.fraction).floats


def halves_of_power(shifted: EmittedValue) -> tuple[EmittedValue, EmittedValue]:
    """2^⌊n/2⌋ and 2^⌈n/2⌉, from the low bits n + 2 bias: their product may be 0,
    denormal or infinite. 4 integer ops."""
    fraction = shifted.format.fraction
    both = shifted.bits << fraction
    first = (shifted.bits << (fraction - 1)) & (-1 << fraction)
    return first.floats, (both - first).floats


def scaled(p: EmittedValue, shifted: EmittedValue) -> EmittedValue:
    """p 2ⁿ rounded once, from the low bits n + 2 bias. 6 flop, with AVX-512 1."""
    if can_scale(p):
        return scaled_by(p, shifted - (p.format.magic + 2 * p.format.bias))
    first, second = halves_of_power(shifted)
    return p * first * second


def _exp_bounds(form: Format) -> tuple[float, float]:
    """Beyond them eˣ is 0 or ∞."""
    return (-104.0, 89.0) if form is SINGLE else (-746.0, 710.0)


def exp_polynomial(r: EmittedValue) -> EmittedValue:
    """eʳ, |r| ≤ ln 2 / 2. 6 / 11 flop."""
    p = horner(r, c.EXP32 if r.format is SINGLE else c.EXP64)
    return p.times_plus(r, 1.0).times_plus(r, 1.0)


def exp(x: EmittedValue) -> EmittedValue:
    """eˣ. 18 / 23 flop.

    An r that is no remainder, of an x too large for n, is harmless to the f32
    polynomial: its degree is even, so that it is positive, and 2ⁿ makes it infinite.
    """
    low, high = _exp_bounds(x.format)
    if not (can_scale(x) and x.format is SINGLE):
        x = x.at_most(high)
    shifted, r, _ = reduced(x.at_least(low), 2 * x.format.bias)
    return scaled(exp_polynomial(r), shifted)


def exp_below(x: EmittedValue) -> EmittedValue:
    """eˣ of an x that is at most 40, or NaN: the bits of :func:`exp` in 14 / 19 flop.

    So is x less the largest of its row. 2ⁿ is then made as 2^(n + 65) 2⁻⁶⁵, of which
    the first is never denormal (in f64 with 513). Both are odd: what is added to n is
    even as it is in :func:`exp`, and without multiply-adds ties round alike.
    """
    if can_scale(x):
        return exp(x)
    low, _ = _exp_bounds(x.format)
    up = 65 if x.format is SINGLE else 513
    shifted, r, _ = reduced(x.at_least(low), x.format.bias + up)
    return exp_polynomial(r) * power_of_two(shifted) * 2.0**-up


def exp2_polynomial(r: EmittedValue) -> EmittedValue:
    """2ʳ, |r| ≤ ½. 6 / 12 flop."""
    p = horner(r, c.EXP2_32 if r.format is SINGLE else c.EXP2_64)
    return p.times_plus(r, 1.0)


def exp2(x: EmittedValue) -> EmittedValue:
    """2ˣ; integers give powers of two. 17 / 23 flop, with AVX-512 9 / 15."""
    low, high = (-151.0, 129.0) if x.format is SINGLE else (-1076.0, 1025.0)
    if x.host.has_scale:
        return scaled_by(exp2_polynomial(fraction(x)), x.rint())
    x = x.at_most(high).at_least(low)
    magic = x.format.magic + 2 * x.format.bias
    shifted = x + magic
    r = x - (shifted - magic)
    return scaled(exp2_polynomial(r), shifted)


def expm1_polynomial(r: EmittedValue, low: EmittedValue | None = None) -> EmittedValue:
    """eʳ - 1 = r + (r² p(r) + low), |r| ≤ ln 2 / 2. 7 / 12 flop."""
    p = horner(r, c.EXPM1_32 if r.format is SINGLE else c.EXPM1_64)
    if low is None:
        return (r * r).times_plus(p, r)
    return r + (r * r).times_plus(p, low)


def scaled_expm1(x: EmittedValue, down: int, precise: bool = False) -> EmittedValue:
    """(eˣ - 1) 2^-down, for x from about -bias to where that overflows.

    eˣ - 1 = 2ⁿ (eʳ - 1) + (2ⁿ - 1). 14 / 19 flop; 3 more without the error of r.
    """
    shifted, r, low = reduced(x, x.format.bias - down, precise)
    power = power_of_two(shifted)
    return expm1_polynomial(r, low).times_plus(power, power - 2.0**-down)


def _or_itself(x: EmittedValue, result: EmittedValue) -> EmittedValue:
    """``result`` of an odd function with slope 1, but x where x is as good as 0."""
    tiny = 1e-30 if x.format is SINGLE else 1e-200
    return (abs(x) < tiny).where(x, result)


def expm1(x: EmittedValue) -> EmittedValue:
    """eˣ - 1, precise near 0. 20 / 25 flop."""
    low, high = (-18.0, 89.0) if x.format is SINGLE else (-38.0, 710.0)
    half = scaled_expm1(x.at_most(high).at_least(low), 1)
    return _or_itself(x, half + half)


def sinh(x: EmittedValue) -> EmittedValue:
    """(E + E / (E + 1)) / 2 with the sign of x, E = e^|x| - 1.

    23 / 28 flop, 1 division.
    """
    a = abs(x).at_most(89.6 if x.format is SINGLE else 710.7)
    quarter = scaled_expm1(a, 2)
    rest = quarter / (quarter + 0.25)
    return _or_itself(x, rest.times_plus(0.5, quarter + quarter).copysign(x))


def cosh(x: EmittedValue) -> EmittedValue:
    """(e^|x| + e^-|x|) / 2. 16 / 21 flop, 1 division."""
    a = abs(x).at_most(89.6 if x.format is SINGLE else 710.7)
    shifted, r, _ = reduced(a, x.format.bias - 2)
    quarter = exp_polynomial(r) * power_of_two(shifted)
    return quarter.times_plus(2.0, 0.125 / quarter)


def tanh(x: EmittedValue) -> EmittedValue:
    """h / (h + 1) with the sign of x, h = (e^2|x| - 1) / 2.

    As h - h y for small y = h / (h + 1), whose rounding errors then hardly count.
    26 / 31 flop, 1 division.
    """
    a = abs(x).at_most(10.0 if x.format is SINGLE else 22.0)
    h = scaled_expm1(a + a, 1, precise=True)
    y = h / (h + 1.0)
    return (y < 0.3).where(h.times_plus(-y, h), y).copysign(x)


def sigmoid(x: EmittedValue) -> EmittedValue:
    """1 / (1 + e⁻ˣ) = 2ⁿ / (2ⁿ + e⁻ʳ), x = n ln 2 + r.

    e⁻ʳ - 1 is added to the smaller of 2ⁿ and 1, and that to the larger. 24 / 29 flop, 1
    division; 7 less with AVX-512.
    """
    low, high = (-104.0, 30.0) if x.format is SINGLE else (-746.0, 50.0)
    shifted, r, _ = reduced(x.at_most(high).at_least(low), 2 * x.format.bias)
    p = horner(-r, c.EXP32 if x.format is SINGLE else c.EXP64).times_plus(-r, 1.0)
    power = scaled(x.constant(1.0), shifted)
    under = p.times_plus(-r, power.at_most(1.0)) + power.at_least(1.0)
    return scaled(1.0 / under, shifted)


def erf(x: EmittedValue) -> EmittedValue:
    """2/√π ∫₀ˣ exp(-t²) dt: a polynomial up to 1, then 1 - 2^p(|x|).

    29 / 54 flop, no division.
    """
    single = x.format is SINGLE
    end, centre = (4.0, 0.0) if single else (6.0, 2.0)
    a = abs(x).at_most(end)
    p = horner(a - centre if centre else a, c.ERFC32 if single else c.ERFC64)
    magic = x.format.magic + x.format.bias
    shifted = p + magic
    r = p - (shifted - magic)
    e = exp2_polynomial(r)
    far = 1.0 - e * power_of_two(shifted)
    near = a.times_plus(horner(a * a, c.ERF32 if single else c.ERF64), a)
    return (a > 1.0).where(far, near).copysign(x)


def normal_cdf(x: EmittedValue) -> EmittedValue:
    """Φ(x) = ½ (1 + erf(x √½)): 2^p(|x|) where x is negative, else 1 less that.

    The error is that of erf near 1, absolute: where Φ is below half the last place of
    1, it is 0. 25 / 43 flop, no division: 10 less than ½ (1 + erf(x √½)). With AVX-512
    2 less: its vectors do 2 operations of any kind a cycle, so each counts.
    """
    single = x.format is SINGLE
    a = abs(x)
    p = horner(a, c.NORMAL32 if single else c.NORMAL64)
    if can_scale(p):
        n = p.rint()
        e = scaled_by(exp2_polynomial(p - n), n)
    else:
        magic = x.format.magic + x.format.bias
        shifted = p + magic
        e = exp2_polynomial(p - (shifted - magic)) * power_of_two(shifted)
    tail = (a >= (5.7 if single else 8.3)).where(0.0, e)
    return (x >= 0.0).where(1.0 - tail, tail)
