"""Complements of the error function, their logarithm, and the inverse of erf.

All of the complements come from (½ + 9/16 a) e^(a²) erfc a, a ≥ 0, which is one
polynomial of t = (a - 3) / (a + 3) (Shepherd & Laframboise 1981, with another factor:
this one is flat at a = 0, where the rounding of t counts most), and from e^(-a²), for
which a² is computed as a sum of two. Flops are given as f32 / f64, a multiply-add
counting as 1.
"""

from __future__ import annotations

from math import sqrt

from . import coefficients as c
from .exponential import exp_polynomial, reduced, scaled
from .logarithm import INF, log, log_of_sum, sum_of_logs
from .vector_values import F64, SINGLE, EmittedValue, horner, two_product, two_sum


def _scaled_complement(a: EmittedValue) -> EmittedValue:
    """e^(a²) erfc a, a ≥ 0. 13 / 28 flop, 2 divisions."""
    t = 1.0 - 6.0 / (a + 3.0)
    p = horner(t, c.ERFCX32 if a.format is SINGLE else c.ERFCX64)
    return p / a.times_plus(0.5625, a.constant(0.5))


def erfc(x: EmittedValue) -> EmittedValue:
    """1 - erf x, precise in its tail. 33 / 53 flop, 2 divisions."""
    a = abs(x)
    square, low = two_product(*[a.at_most(11.0 if x.format is SINGLE else 28.0)] * 2)
    shifted, r, _ = reduced(-square, 2 * x.format.bias)
    y = scaled(exp_polynomial(r - low) * _scaled_complement(a), shifted)
    return (x < 0.0).where(2.0 - y, y)


def erfcx(x: EmittedValue) -> EmittedValue:
    """e^(x²) erfc x, which is 2 e^(x²) - erfcx(-x). 34 / 54 flop, 2 divisions."""
    a = abs(x)
    y = _scaled_complement(a)
    square, low = two_product(*[a.at_most(10.5 if x.format is SINGLE else 27.5)] * 2)
    shifted, r, _ = reduced(square, 2 * x.format.bias)
    p = exp_polynomial(r + low)
    return (x < 0.0).where(scaled(p + p, shifted) - y, y)


def log_ndtr(x: EmittedValue) -> EmittedValue:
    """ln Φ(x), Φ the normal distribution: ln(½ erfcx a) - x²/2 for x < 0, a = |x| √½,
    else ln(1 - ½ e^(-x²/2) erfcx a). 65 / 105 flop, 2 / 3 divisions."""
    single, below = x.format is SINGLE, x < 0.0
    half = _scaled_complement(abs(x).at_most(2.0**60) * sqrt(0.5)) * 0.5
    square, low = two_product(*[abs(x).at_most(15.0 if single else 39.0)] * 2)
    shifted, r, _ = reduced(square * -0.5, 2 * x.format.bias)
    less = -scaled(exp_polynomial(r - low * 0.5) * half, shifted)
    u, rest = two_sum(x.constant(1.0), less)
    y = sum_of_logs(*log_of_sum(below.where(half, u), below.where(0.0, rest)))
    above = (abs(less) < (1e-30 if single else 1e-200)).where(less, y)
    return below.where(y - x * 0.5 * x, above)


def erfinv(x: EmittedValue) -> EmittedValue:
    """The y whose erf is x: x times a polynomial of w = -ln(1 - x²), or of √w where it
    is large (Giles 2010, GPU Computing Gems 10); f32 in f64. 60 / 105 flop, 1 root."""
    y = x.converted(F64)
    a = abs(y)
    w = -log((1.0 - a) * (a + 1.0))
    s = w.sqrt()
    if x.format is SINGLE:
        far = horner(s - 3.375, c.ERFINV_FAR_32)
        ratio = (w < 6.25).where(horner(w - 3.125, c.ERFINV_32), far)
    else:
        far = (w < 16.0).where(
            horner(s - 3.25, c.ERFINV_FAR_64), horner(s - 5.0, c.ERFINV_TAIL_64)
        )
        ratio = (w < 6.25).where(horner(w - 3.125, c.ERFINV_64), far)
    found = y * a.equals(1.0).where(INF, ratio)
    return (found + 0.0).converted(x.element)  # 0 of -0, as SciPy has it
