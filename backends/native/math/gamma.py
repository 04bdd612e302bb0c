"""The logarithm of the gamma function and its derivative; f32 in f64.

From ¾ to 2¼, or from 1 to 2, both are polynomials times what makes their zeros exact;
numbers up to 8 are brought there by x Γ(x) = Γ(x + 1), and beyond it their asymptotic
series hold (Abramowitz & Stegun 6.1.41, 6.3.18). Flops are given as f32 / f64, a
multiply-add counting as 1.
"""

from __future__ import annotations

import math

from . import coefficients as c
from .libm_calls import call_lanes
from .logarithm import INF, NAN, log
from .vector_values import F64, SINGLE, EmittedValue, horner

LARGE = 8.0
"""From here on the asymptotic series hold."""


def gammaln(x: EmittedValue) -> EmittedValue:
    """ln |Γ(x)|. 105 / 125 flop, 1 / 2 divisions and a branch: negative numbers go to
    the C library."""
    single = x.format is SINGLE
    a = x.converted(F64)
    small, large = a < 0.75, a >= LARGE
    y = small.where(a + 1.0, a)
    factors = small.where(a, 1.0)
    for _ in range(6):
        down, above = y - 1.0, y > 2.25
        factors = above.where(factors * down, factors)
        y = above.where(down, y)
    p = horner(y - 1.5, c.LGAMMA_32 if single else c.LGAMMA_64)
    logarithm = log(large.where(a, factors))
    near = (y - 1.0) * (y - 2.0)
    near = near.times_plus(p, small.where(-logarithm, logarithm))
    inverse = 1.0 / a
    series = horner(inverse * inverse, c.STIRLING_32 if single else c.STIRLING_64)
    rest = inverse.times_plus(series, a.constant(0.5 * math.log(2 * math.pi) - 0.5))
    far = (a - 0.5).times_plus(logarithm - 1.0, rest)
    found = a.equals(-INF).where(-INF, large.where(far, near))  # SciPy's; C has ∞
    found = call_lanes("lgamma", (a < 0.0) & (a > -INF), found, a)
    return found.converted(x.element)


def digamma(x: EmittedValue) -> EmittedValue:
    """Γ′(x) / Γ(x) = ψ(x), and ψ(1 - x) - π cot πx for x < 0. 120 / 145 flop, 4 / 5
    divisions."""
    single = x.format is SINGLE
    given = x.converted(F64)
    below = given < 0.0
    a = below.where(1.0 - given, given)
    y, over, under = a, a.constant(0.0), a.constant(1.0)
    for _ in range(7):  # y from 1 to 2 and the sum of 1 / y on the way, as a quotient
        down, above = y - 1.0, y > 2.0
        over = above.where(over.times_plus(down, under), over)
        under = above.where(under * down, under)
        y = above.where(down, y)
    small = a < 1.0
    over, under = small.where(-1.0, over), small.where(a, under)
    y = small.where(a + 1.0, y)
    p = horner(y - 1.5, c.DIGAMMA_32 if single else c.DIGAMMA_64)
    near = ((y - c.DIGAMMA_ROOT[0]) - c.DIGAMMA_ROOT[1]).times_plus(p, over / under)
    inverse = 1.0 / a
    z = inverse * inverse
    series = horner(z, c.DIGAMMA_FAR_32 if single else c.DIGAMMA_FAR_64)
    far = log(a) - inverse.times_plus(0.5, z * series)
    found = (a >= LARGE).where(far, near)
    found = below.where(found - _pi_cotangent(given), found)
    # The sign of -1/x at ±0.
    found = given.equals(0.0).where(given.constant(-INF).copysign(-given), found)
    return found.converted(x.element)


def _pi_cotangent(x: EmittedValue) -> EmittedValue:
    """π cot πx; NaN of integers. 26 flop, 1 division."""
    r = x - x.rint()
    a = abs(r)
    steep = a > 0.25
    angle = steep.where(0.5 - a, a) * math.pi
    z = angle * angle
    sine = (angle * z).times_plus(horner(z, c.SIN64), angle)
    cosine = (z * z).times_plus(horner(z, c.COS64), z.times_plus(-0.5, z.constant(1.0)))
    over, under = steep.where(sine, cosine), steep.where(cosine, sine)
    return a.equals(0.0).where(NAN, over * math.pi / under).copysign(r)
