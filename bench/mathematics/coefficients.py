"""The coefficients of the native backend's vector mathematics, computed from nothing.

Polynomials are minimax fits of smooth functions on intervals. Coefficients are rounded
to their format. The errors printed are those of the rounded polynomials.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import mpmath as mp

from bench.mathematics.bessel_fits import bessels, quantiles
from bench.mathematics.elementary_fits import (
    angles,
    exponentials,
    inverses,
    logarithms,
    others,
)
from bench.mathematics.fit import LN2, LOG2E, Fit, rounded
from bench.mathematics.special_fits import complements, gammas, inverse_errors

TARGET = Path("backends/native/math/coefficients.py")


def _fits() -> Iterator[Fit]:
    """All of them."""
    for theme in (exponentials, logarithms, angles, inverses, others):
        yield from theme()
    for theme in (complements, inverse_errors, gammas, quantiles, bessels):
        yield from theme()


def _parts(value: Any, *widths: int) -> tuple[float, ...]:
    """``value`` as a sum of numbers of so many bits, the largest first."""
    parts = []
    for width in widths:
        with mp.workprec(width):
            part = +value
        parts.append(float(part))
        value = value - part
    return tuple(parts)


def _two_parts(value: Any, last: int) -> tuple[float, float]:
    """``value`` as a multiple of 2^-last and the rest, both positive: times ∞ each is
    ∞."""
    high = mp.floor(value * 2**last) / 2**last
    return float(high), rounded(value - high, 64)


def _table() -> list[Any]:
    """r ≈ 1 / m in 5 bits, so that m r - 1 is exact, by the first 4 bits of the
    fraction of m, which is from ¾ to 1½; 1 on both sides of 1."""
    found = []
    for i in range(16):
        low, high = ((16 + k) / (32 if i > 7 else 16) for k in (i, i + 1))
        step = 2.0 ** (-4 if i > 7 else -5)
        near = [n * step for n in range(16, 48) if 0.6 < n * step < 1.4]
        best = min(near, key=lambda r: max(abs(low * r - 1), abs(high * r - 1)))
        found.append(mp.mpf(1.0 if i in (0, 15) else best))
    return found


def _split_table(
    values: Sequence[Any], last: int, bits: int
) -> list[tuple[float, ...]]:
    """Numbers as sums: whole multiples of 2^-last, and rests."""
    high = [mp.nint(v * 2**last) / 2**last for v in values]
    rests = (rounded(v - h, bits) for v, h in zip(values, high, strict=True))
    return [tuple(map(float, high)), tuple(rests)]


def _tables() -> list[tuple[str, tuple[float, ...], str]]:
    """What AVX-512 looks up."""
    table = _table()
    ln = _split_table([-mp.log(r) for r in table], 40, 64)
    log2 = _split_table([-mp.log(r, 2) for r in table], 40, 64)
    single = _split_table([-mp.log(r, 2) for r in table], 15, 32)
    roots = [rounded(mp.mpf(2) ** (-mp.mpf(n) / 3), 32) for n in (0, 1, -1)]
    return [
        ("RECIPROCAL", tuple(map(float, table)), "r ≈ 1 / m, ¾ ≤ m < 1½"),
        ("LOG_HIGH", ln[0], "-ln r, multiples of 2⁻⁴⁰"),
        ("LOG_LOW", ln[1], "What LOG_HIGH lacks"),
        ("LOG2_HIGH", log2[0], "-log₂ r, multiples of 2⁻⁴⁰"),
        ("LOG2_LOW", log2[1], "What LOG2_HIGH lacks"),
        ("LOG2_HIGH_32", single[0], "-log₂ r, multiples of 2⁻¹⁵"),
        ("LOG2_LOW_32", single[1], "What LOG2_HIGH_32 lacks"),
        ("ROOTS_OF_TWO", (*roots[:2], *[1.0] * 13, roots[2]), "2^(-n/3), n = 0, 1, -1"),
    ]


def _constants() -> list[tuple[str, tuple[float, ...], str]]:
    """Constants as sums, mostly of short numbers: products with n are exact."""
    half_pi, log10_2 = mp.pi / 2, mp.log(2, 10)
    roots = (mp.besseljzero(n, 1) for n in (0, 1))
    return [
        ("LN2_32", _parts(LN2, 15, 24), "ln 2"),
        ("LN2_64", _two_parts(LN2, 40), "ln 2"),
        ("LOG2E_64", _parts(LOG2E, 53, 53), "1 / ln 2"),
        ("LOG2E_32", _parts(LOG2E, 24, 24), "1 / ln 2"),
        ("LOG10E_32", _parts(1 / mp.log(10), 24, 24), "1 / ln 10"),
        ("LOG10E_64", _parts(1 / mp.log(10), 53, 53), "1 / ln 10"),
        ("LOG10_2_32", _parts(log10_2, 15, 24), "log₁₀ 2"),
        ("LOG10_2_64", _two_parts(log10_2, 41), "log₁₀ 2"),
        ("HALF_PI_FMA", _parts(half_pi, 53, 53, 53), "π/2, for fused multiply-adds"),
        ("HALF_PI", _parts(half_pi, 26, 26, 26, 53), "π/2, for exact products"),
        ("HALF_PI_32", _parts(half_pi, 24, 24), "π/2"),
        ("HALF_PI_64", _parts(half_pi, 53, 53), "π/2"),
        ("TWO_OVER_PI", _parts(2 / mp.pi, 53, 53), "2/π"),
        ("DIGAMMA_ROOT", _parts(mp.findroot(mp.digamma, 1.46), 53, 53), "ψ(x) = 0"),
        ("TWO_THIRDS", _parts(mp.mpf(2) / 3, 53, 53), "2/3"),
        (
            "BESSEL_ROOTS",
            (*map(float, roots),),
            "J₀(x) = 0, J₁(x) = 0, the first x > 0",
        ),
    ]


def _tuple(name: str, values: Sequence[float]) -> list[str]:
    return [f"{name} = (", *(f"    {v!r}," for v in values), ")"]


def text() -> str:
    """The module of coefficients, as Python."""
    lines = [
        '"""Coefficients of the vector mathematics, by ``python -m bench minimax``.',
        "",
        "Minimax fits of the functions named, the lowest power first, by the exchange",
        "algorithm in 60 digits; the error is relative, before rounding in evaluation.",
        '"""',
        "",
    ]
    for name, parts, doc in _constants() + _tables():
        lines += [*_tuple(name, parts), f'"""{doc}."""', ""]
    for fit in _fits():
        coefficients, error = fit.solve()
        click.echo(f"{fit.name:12} {fit.terms:3} terms  2^{error:.1f}", err=True)
        lines += _tuple(fit.name, coefficients)
        lines += [f'"""{fit.doc}: error 2^{error:.1f}."""', ""]
    return "\n".join(lines)
