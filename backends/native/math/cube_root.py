"""The cube root."""

from __future__ import annotations

from . import coefficients as c
from .avx512 import exponent, looked_up, scaled_by, significand
from .logarithm import INF, split_any
from .vector_values import SINGLE, EmittedValue, horner


def cbrt(x: EmittedValue) -> EmittedValue:
    """∛x = 2^k ∛q: x = 2^(3k) q; q^(-1/3) by a polynomial and 1 / 2 steps of third
    order (with AVX-512 one of second order), then a step on ∛q itself. 45 / 52 flop,
    with AVX-512 27 / 30, no division."""
    return _parted(x) if x.host.has_scale else _split(x)


def _parted(x: EmittedValue) -> EmittedValue:
    """With AVX-512: x = 2ᵉ m, e = 3 k + rest, q = 2^rest m, from ½ to 4.

    Of 0 and ∞ the rest is NaN, for which 1 is taken, and k is as infinite as e is.
    """
    single = x.format is SINGLE
    e, m = exponent(x), significand(x, 0, "absolute")
    k = (e * (1.0 / 3.0)).rint()
    rest = k.times_plus(-3.0, e)
    rest = (rest < 1.0).where(rest, 1.0)
    q = scaled_by(m, rest)
    start = looked_up((rest + x.format.magic).bits, c.ROOTS_OF_TWO)
    y = horner(m, c.CBRT_32 if single else c.CBRT_64) * start
    h = (q * y).times_plus(-(y * y), q.constant(1.0))
    y = y.times_plus(h * (1.0 / 3.0), y)
    square = y * y
    root = q * square
    error = (root * root).times_plus(-root, q)
    root = (error * square).times_plus(1.0 / 3.0, root)
    return scaled_by(root, k).copysign(x)


def _split(x: EmittedValue) -> EmittedValue:
    """By integer arithmetic."""
    form = x.format
    a = abs(x)
    e, m = split_any(a)
    shifted = e.times_plus(1.0 / 3.0, x.constant(form.magic + form.bias))
    k = shifted - (form.magic + form.bias)
    left = k.times_plus(-3.0, e) + (form.magic + form.bias)
    q = m * (left.bits << form.fraction).floats
    y = horner(q, c.CBRT)
    for _ in range(1 if form is SINGLE else 2):
        h = 1.0 - q * y * y * y
        y = y.times_plus(h * horner(h, (1 / 3, 2 / 9, 14 / 81)), y)
    root = q * y * y
    error = (root * root).times_plus(-root, q)
    root = (error * y * y).times_plus(1.0 / 3.0, root)
    result = (root * (shifted.bits << form.fraction).floats).copysign(x)
    return ((a > 0.0) & (a < INF)).where(result, x + x)
