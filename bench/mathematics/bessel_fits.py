"""Polynomials of functions that have machine code on GPUs alone, in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import mpmath as mp

from bench.mathematics.fit import Fit, Function


def _fit(
    name: str, low: Any, high: Any, terms: int, of: Function, weight: Any, doc: str
) -> Fit:
    return Fit(
        *(name, 32, mp.mpf(low), mp.mpf(high), terms, of),
        weight or (lambda x: 1 / of(x)),
        doc,
    )


# -- quantiles and Γ -------------------------------------------------------------------


@cache
def _quantile(t: Any) -> Any:
    """The z with Φ(-z) = e^(-t²/2), by Newton's method for ln Φ."""
    z = t - mp.log(t * mp.sqrt(2 * mp.pi)) / t
    for _ in range(60):
        p = mp.erfc(z / mp.sqrt(2)) / 2
        step = (mp.log(p) + t * t / 2) * p / mp.npdf(z)
        z += step
        if abs(step) < mp.mpf(10) ** -40:
            break
    return z


def quantiles() -> Iterator[Fit]:
    """Of the normal distribution in its tail, and Γ."""
    yield _fit(
        *("NDTRI_32", "-0.271", "0.271", 14),
        lambda u: _quantile(1 / (u + mp.mpf("0.34"))) * (u + mp.mpf("0.34")),
        None,
        "Φ(-t p(1/t - 0.34)) = e^(-t²/2), 1.64 ≤ t ≤ 14.4",
    )
    yield _fit(
        *("GAMMA_32", "-0.5", "0.5", 11),
        lambda u: mp.gamma(u + mp.mpf("1.5")),
        None,
        "Γ(x) = p(x - 1½), 1 ≤ x ≤ 2",
    )


# -- Bessel ----------------------------------------------------------------------------


def _besseli(order: int, a: Any) -> Any:
    """e^-a Iₙ(a) √a, by its asymptotic series where that converges."""
    if a < 100:
        return mp.besseli(order, a) * mp.exp(-a) * mp.sqrt(a)
    series = term = mp.mpf(1)
    for k in range(1, 60):
        term *= -(4 * order - (2 * k - 1) ** 2) / (8 * k * a)
        series += term
    return series / mp.sqrt(2 * mp.pi)


def _phase(order: int, x: Any) -> tuple[Any, Any]:
    """P and Q x of Jₙ(x) = √(2 / πx) (P cos χ - Q sin χ), χ = x - (n/2 + ¼) π."""
    angle = x - mp.pi / 4 - order * mp.pi / 2
    size = mp.sqrt(2 / (mp.pi * x))
    j, y = mp.besselj(order, x), mp.bessely(order, x)
    p = (j * mp.cos(angle) + y * mp.sin(angle)) / size
    q = (y * mp.cos(angle) - j * mp.sin(angle)) / size
    return p, q * x


LEAST = mp.mpf(10) ** -6
"""In place of 0, where a quotient or a series has its limit."""


def _even(of: Callable[..., Any], order: int, z: Any) -> Any:
    """A Bessel function of √z, over x where it is odd."""
    x = mp.sqrt(max(z, LEAST**4))
    return of(order, x) / x**order


def _besselj(order: int, z: Any) -> Any:
    """Jₙ(x) / xⁿ over z - r², z = x², r the first root."""
    return _even(mp.besselj, order, z) / (z - mp.besseljzero(order, 1) ** 2)


def _far(order: int, r: Any) -> Any:
    return _besseli(order, 1 / max(r, LEAST**4))


def _part(order: int, which: int, v: Any) -> Any:
    return _phase(order, 1 / mp.sqrt(v))[which]


def bessels() -> Iterator[Fit]:
    """Of orders 0 and 1."""
    for n in (0, 1):
        yield _fit(
            *(f"BESSEL_I{n}_32", 0, 25, 10, partial(_even, mp.besseli, n), None),
            f"I_{n}(x) = x^{n} p(x²), 0 ≤ x ≤ 5",
        )
        yield _fit(
            *(f"BESSEL_I{n}_FAR_32", 0, "0.2", 9, partial(_far, n), None),
            f"I_{n}(x) = p(1/x) e^x / √x, x ≥ 5",
        )
        yield _fit(
            *(f"BESSEL_J{n}_32", 0, 16, 8, partial(_besselj, n), None),
            f"J_{n}(x) = x^{n} (x² - r²) p(x²), r its first root, 0 ≤ x ≤ 4",
        )
        for i, part in enumerate("PQ"):
            last = mp.mpf(1) / 16
            yield _fit(
                *(f"BESSEL_J{n}_{part}_32", LEAST, last, 6, partial(_part, n, i), None),
                f"{part}{' x' if i else ''} = p(1/x²) of J_{n}(x) = √(2 / πx) "
                "(P cos χ - Q sin χ), x ≥ 4",
            )
