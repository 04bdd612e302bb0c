"""Polynomials of the error functions and of the gamma function."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import mpmath as mp

from bench.mathematics.fit import Fit, Function

NO_ZERO = mp.mpf(10) ** -15
"""From zeros of a function, where its quotient is taken a little beside them."""


def _inverse(of: Function) -> Function:
    return lambda u: 1 / of(u)


def _scaled_complement(t: Any) -> Any:
    """(½ + 9/16 a) e^(a²) erfc a of t = (a - 3) / (a + 3)."""
    a = 3 * (1 + t) / (1 - t)
    if a < 60:
        return (mp.mpf(1) / 2 + 9 * a / 16) * mp.erfc(a) * mp.exp(a * a)
    series, term = mp.mpf(0), mp.mpf(1)
    for n in range(1, 60):
        series += term
        term *= -(2 * n - 1) / (2 * a * a)
    return (mp.mpf(1) / 2 + 9 * a / 16) * series / (a * mp.sqrt(mp.pi))


def complements() -> Iterator[Fit]:
    """erfcx."""
    for bits, terms in ((32, 12), (64, 25)):
        yield Fit(
            f"ERFCX{bits}",
            bits,
            -1,
            1 - mp.mpf(10) ** -12,
            terms,
            _scaled_complement,
            lambda t: 1 / _scaled_complement(t),
            "(½ + 9/16 a) e^(a²) erfc a = p(t), t = (a - 3) / (a + 3), a ≥ 0",
        )


@cache
def _inverse_ratio(w: Any) -> Any:
    """erf⁻¹(y) / y where w = -ln(1 - y²), by Newton's method for ln erfc."""
    if w < mp.mpf(10) ** -22:
        return mp.sqrt(mp.pi) / 2
    y = mp.sqrt(-mp.expm1(-w))
    wanted = -w - mp.log1p(y)
    x = mp.sqrt(w - mp.log(w + 1) / 2 - 0.49) if w > 1 else y * mp.sqrt(mp.pi) / 2
    for _ in range(60):
        e = mp.erfc(x)
        step = (mp.log(e) - wanted) * e * mp.sqrt(mp.pi) / 2 * mp.exp(x * x)
        x += step
        if abs(step) < mp.mpf(10) ** -40:
            break
    return x / y


def inverse_errors() -> Iterator[Fit]:
    """erf⁻¹ in the middle, by w, and towards ±1, by √w."""
    for name, terms, low, high, power in (
        ("ERFINV_32", 11, 0, "6.25", 1),
        ("ERFINV_FAR_32", 9, "2.5", "4.25", 2),
        ("ERFINV_64", 22, 0, "6.25", 1),
        ("ERFINV_FAR_64", 18, "2.5", 4, 2),
        ("ERFINV_TAIL_64", 17, 4, "6.1", 2),
    ):
        middle = (mp.mpf(low) + mp.mpf(high)) / 2
        if name == "ERFINV_TAIL_64":
            middle = mp.mpf(5)

        def of(u: Any, middle: Any = middle, power: int = power) -> Any:
            return _inverse_ratio((u + middle) ** power)

        yield Fit(
            name,
            64,
            mp.mpf(low) - middle,
            mp.mpf(high) - middle,
            terms,
            of,
            _inverse(of),
            f"erf⁻¹(y) / y = p({'w' if power == 1 else '√w'} - {float(middle):g}), "
            f"w = -ln(1 - y²), from {low} to {high}",
        )


def _beside(x: Any, *zeros: Any) -> Any:
    near = [z for z in zeros if abs(x - z) < NO_ZERO]
    return near[0] + NO_ZERO if near else x


def _lgamma(u: Any) -> Any:
    """ln Γ(x) / ((x - 1) (x - 2)), x = u + 1½."""
    x = _beside(u + mp.mpf("1.5"), 1, 2)
    return mp.loggamma(x) / ((x - 1) * (x - 2))


ROOT = mp.findroot(mp.digamma, 1.46)


def _digamma(u: Any) -> Any:
    """ψ(x) / (x - root), x = u + 1½."""
    x = _beside(u + mp.mpf("1.5"), ROOT)
    return mp.digamma(x) / (x - ROOT)


def _stirling(z: Any) -> Any:
    """x times what ln Γ(x) is more than (x - ½) ln x - x + ½ ln 2π, z = 1/x²."""
    if z < mp.mpf(10) ** -10:
        return mp.mpf(1) / 12 - z / 360
    x = 1 / mp.sqrt(z)
    return x * (mp.loggamma(x) - (x - 0.5) * mp.log(x) + x - mp.log(2 * mp.pi) / 2)


def _digamma_series(z: Any) -> Any:
    """x² times what ψ(x) is less than ln x - 1/(2x), z = 1/x²."""
    if z < mp.mpf(10) ** -10:
        return mp.mpf(1) / 12 - z / 120
    x = 1 / mp.sqrt(z)
    return (mp.log(x) - 1 / (2 * x) - mp.digamma(x)) / z


def gammas() -> Iterator[Fit]:
    """ln Γ and ψ."""
    themes: list[tuple[str, Any, Any, int, int, Function, str]] = [
        (
            *("LGAMMA", mp.mpf("-0.75"), mp.mpf("0.75"), 14, 27, _lgamma),
            "ln Γ(x) = (x - 1) (x - 2) p(x - 1½), ¾ ≤ x ≤ 2¼",
        ),
        (
            *("STIRLING", 0, mp.mpf(1) / 64, 3, 7, _stirling),
            "ln Γ(x) = (x - ½) ln x - x + ½ ln 2π + p(1/x²) / x, x ≥ 8",
        ),
        (
            *("DIGAMMA", mp.mpf("-0.5"), mp.mpf("0.5"), 12, 22, _digamma),
            "ψ(x) = (x - root) p(x - 1½), 1 ≤ x ≤ 2",
        ),
        (
            *("DIGAMMA_FAR", 0, mp.mpf(1) / 64, 4, 8, _digamma_series),
            "ψ(x) = ln x - 1/(2x) - p(1/x²) / x², x ≥ 8",
        ),
    ]
    for name, low, high, single, double, of, doc in themes:
        for bits, terms in ((32, single), (64, double)):
            yield Fit(
                *(f"{name}_{bits}", 64, low, high, terms, of),
                _inverse(of),
                doc,
            )
