"""Polynomials of exponentials, logarithms, angles and their inverses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mpmath as mp

from bench.mathematics.fit import LN2, LOG2E, Fit, Function, horner

HALF = LN2 / 2 * mp.mpf("1.0001")
OCTAVE = (-mp.mpf("0.25"), mp.mpf("0.5"))
NEAR = mp.mpf("0.06251")
"""Largest |m r - 1| for m from ¾ to 1½ and r of the table."""
THIRD = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)
"""Largest |s| = |f / (2 + f)| for 1 + f from √½ to √2."""


def _atanh_excess(z: Any, *series: Any) -> Any:
    """(2 atanh(s) / s - Σ series zᵏ) / z^len(series), z = s²."""
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) / s - horner(series, z)) / z ** len(series)


def _erfc_log(centre: int) -> Function:
    return lambda u: mp.log(mp.erfc(u + centre), 2)


def _erfc_weight(centre: int) -> Function:
    return lambda u: mp.erfc(u + centre) * LN2


def _normal_log(a: Any) -> Any:
    """log₂ Φ(-a) of the normal distribution."""
    return mp.log(mp.erfc(a / mp.sqrt(2)) / 2, 2)


def _normal_weight(bits: int) -> Function:
    """Errors of Φ count as such, and beyond 2^-bits relative to it."""
    least = mp.mpf(2) ** -bits
    return lambda a: LN2 * max(mp.erfc(a / mp.sqrt(2)) / 2, least)


def exponentials() -> Iterator[Fit]:
    """eʳ, eʳ - 1 and 2ʳ."""
    for bits, terms in ((32, 5), (64, 10)):
        yield Fit(
            f"EXP{bits}",
            bits,
            -HALF,
            HALF,
            terms,
            lambda r: (mp.exp(r) - 1 - r) / r**2,
            lambda r: r**2 / mp.exp(r),
            "eʳ = 1 + r + r² p(r), |r| ≤ ln 2 / 2",
        )
    for bits, terms in ((32, 6), (64, 11)):
        yield Fit(
            f"EXPM1_{bits}",
            bits,
            -HALF,
            HALF,
            terms,
            lambda r: (mp.expm1(r) - r) / r**2,
            lambda r: r**2 / mp.expm1(r),
            "eʳ - 1 = r + r² p(r), |r| ≤ ln 2 / 2",
        )
    for name, bits, terms in (
        ("EXP2_32", 32, 6),
        ("EXP2_64", 64, 12),
        ("EXP2_POWER", 64, 7),
    ):
        yield Fit(
            name,
            bits,
            mp.mpf("-0.50001"),
            mp.mpf("0.50001"),
            terms,
            lambda r: (mp.mpf(2) ** r - 1) / r,
            lambda r: r / mp.mpf(2) ** r,
            "2ʳ = 1 + r p(r), |r| ≤ ½",
        )


def logarithms() -> Iterator[Fit]:
    """ln and log₂."""
    yield Fit(
        "LOG32",
        32,
        *OCTAVE,
        9,
        lambda f: (mp.log1p(f) - f) / f**2,
        lambda f: f**2 / mp.log1p(f),
        "ln(1 + f) = f + f² p(f), ¾ ≤ 1 + f ≤ 1½",
    )
    for name, bits, terms in (
        ("LOG_NEAR_32", 32, 4),
        ("LOG_NEAR_64", 64, 9),
        ("LOG_NEAR_POWER", 64, 11),
    ):
        yield Fit(
            name,
            bits,
            -NEAR,
            NEAR,
            terms,
            lambda f: (mp.log1p(f) - f + f * f / 2) / f**3,
            lambda f: f**3 / mp.log1p(f),
            "ln(1 + f) = f - f²/2 + f³ p(f), |f| ≤ 1/16",
        )
    z_max = THIRD**2 * mp.mpf("1.0001")
    yield Fit(
        "LOG64",
        64,
        0,
        z_max,
        7,
        lambda z: _atanh_excess(z, 2),
        lambda z: z / 2,
        "2 atanh s = 2 s + s z p(z), z = s² ≤ 0.0295",
    )
    yield Fit(
        "LOG2_POWER",
        64,
        0,
        z_max,
        5,
        lambda z: 2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) * LOG2E,
        lambda z: mp.mpf(1),
        "2 atanh s / ln 2 = s p(z), z = s² ≤ 0.0295",
    )
    yield Fit(
        "LOG_POWER",
        64,
        0,
        z_max,
        7,
        lambda z: _atanh_excess(z, 2, mp.mpf(2) / 3),
        lambda z: z**2 / 2,
        "2 atanh s = 2 s + 2/3 s z + s z² p(z), z = s² ≤ 0.0295",
    )


def angles() -> Iterator[Fit]:
    """Sine and cosine."""
    quarter = (mp.pi / 4 * mp.mpf("1.0001")) ** 2
    for bits, sines, cosines in ((32, 3, 3), (64, 6, 6)):
        yield Fit(
            f"SIN{bits}",
            bits,
            0,
            quarter,
            sines,
            lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
            lambda z: z / (mp.sin(mp.sqrt(z)) / mp.sqrt(z)),
            "sin r = r + r z p(z), z = r², |r| ≤ π/4",
        )
        yield Fit(
            f"COS{bits}",
            bits,
            0,
            quarter,
            cosines,
            lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2,
            lambda z: z**2 / mp.cos(mp.sqrt(z)),
            "cos r = 1 - z/2 + z² p(z), z = r², |r| ≤ π/4",
        )


def inverses() -> Iterator[Fit]:
    """Of tangent and sine."""
    eighth = (mp.tan(mp.pi / 8) * mp.mpf("1.0001")) ** 2
    for bits, terms in ((32, 4), (64, 11)):
        yield Fit(
            f"ATAN{bits}",
            bits,
            0,
            eighth,
            terms,
            lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
            lambda z: z / (mp.atan(mp.sqrt(z)) / mp.sqrt(z)),
            "atan t = t + t z p(z), z = t², |t| ≤ tan π/8",
        )
    for bits, terms in ((32, 5), (64, 13)):
        yield Fit(
            f"ASIN{bits}",
            bits,
            0,
            mp.mpf("0.25"),
            terms,
            lambda z: (mp.asin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
            lambda z: z / (mp.asin(mp.sqrt(z)) / mp.sqrt(z)),
            "asin t = t + t z p(z), z = t² ≤ ¼",
        )


def others() -> Iterator[Fit]:
    """erf, Φ, and where cube roots start."""
    for bits, terms, tail, end, centre in ((32, 7, 8, 4, 0), (64, 13, 19, 6, 2)):
        yield Fit(
            f"ERF{bits}",
            bits,
            0,
            1,
            terms,
            lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1,
            lambda z: 1 / (mp.erf(mp.sqrt(z)) / mp.sqrt(z)),
            "erf x = x + x p(x²), |x| ≤ 1",
        )
        yield Fit(
            f"ERFC{bits}",
            bits,
            1 - centre,
            end - centre,
            tail,
            _erfc_log(centre),
            _erfc_weight(centre),
            f"log₂ erfc a = p(a - {centre}), 1 ≤ a ≤ {end}",
        )
    for bits, terms, limit, tail in ((32, 10, "5.7", 15), (64, 22, "8.3", 50)):
        yield Fit(
            f"NORMAL{bits}",
            bits,
            0,
            mp.mpf(limit),
            terms,
            _normal_log,
            _normal_weight(tail),
            f"log₂ Φ(-a) = p(a), 0 ≤ a ≤ {limit}",
        )
    for name, bits, low, high, terms in (
        ("CBRT", 32, mp.sqrt(0.5) / 2, 3, 6),
        ("CBRT_32", 32, 1, 2, 3),
        ("CBRT_64", 64, 1, 2, 6),
    ):
        yield Fit(
            name,
            bits,
            low,
            high,
            terms,
            lambda x: x ** (mp.mpf(-1) / 3),
            lambda x: x ** (mp.mpf(1) / 3),
            f"x^(-1/3) ~ p(x), {float(low):.3g} ≤ x ≤ {float(high):.3g}",
        )
