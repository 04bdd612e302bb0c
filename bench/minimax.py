"""Polynomials of the native backend's vector mathematics, computed from nothing.

Each is the minimax fit of a smooth function on an interval: the exchange algorithm of
Remez (1934) over a grid of Chebyshev points, in 60 digits. Coefficients are rounded to
their format; the errors printed are those of the rounded polynomials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import mpmath as mp
import numpy as np

mp.mp.dps = 60

TARGET = Path("backends/native/math/coefficients.py")
LN2, LOG2E = mp.log(2), 1 / mp.log(2)
Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Fit:
    """The polynomial Σ cₖ xᵏ, k < terms, that keeps max |weight (Σ - of)| smallest."""

    name: str
    bits: int
    """Of the format: 32 or 64."""
    low: Any
    high: Any
    terms: int
    of: Function
    weight: Function
    doc: str

    def solve(self) -> tuple[list[float], float]:
        """Rounded coefficients, the lowest power first; log₂ of the largest error."""
        grid = _chebyshev(self.low, self.high, max(400, 60 * self.terms))
        of = [self.of(x) for x in grid]
        weight = [abs(self.weight(x)) for x in grid]
        best = [_rounded(c, self.bits) for c in _remez(grid, of, weight, self.terms)]
        errors = (
            abs(w * (_horner(best, x) - f))
            for w, f, x in zip(weight, of, grid, strict=True)
        )
        return best, float(mp.log(max(errors), 2))


def _chebyshev(low: Any, high: Any, count: int) -> list[Any]:
    """``count`` points from low to high, dense at the ends; an even count omits 0."""
    middle, half = (mp.mpf(high) + low) / 2, (mp.mpf(high) - low) / 2
    return [
        middle - half * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)
    ]


def _horner(coefficients: Sequence[Any], x: Any) -> Any:
    value = mp.mpf(0)
    for c in reversed(coefficients):
        value = value * x + c
    return value


def _rounded(value: Any, bits: int) -> float:
    """``value`` rounded once to the format (mpmath rounds to 24 or 53 bits)."""
    with mp.workprec(24 if bits == 32 else 53):
        return float(+value)


def _remez(grid: list[Any], of: list[Any], weight: list[Any], terms: int) -> list[Any]:
    """Coefficients of the weighted minimax fit on the points of ``grid``."""
    last = len(grid) - 1
    chosen = [
        round(last * (1 - np.cos(np.pi * i / terms)) / 2) for i in range(terms + 1)
    ]
    coefficients: list[Any] = []
    for _ in range(40):
        rows = mp.matrix(terms + 1, terms + 1)
        right = mp.matrix(terms + 1, 1)
        for row, i in enumerate(chosen):
            for k in range(terms):
                rows[row, k] = grid[i] ** k
            rows[row, terms] = (-1) ** row / weight[i]
            right[row] = of[i]
        solved = mp.lu_solve(rows, right)
        coefficients = [solved[k] for k in range(terms)]
        errors = [
            w * (_horner(coefficients, x) - f)
            for w, f, x in zip(weight, of, grid, strict=True)
        ]
        chosen = _alternation(errors, terms + 1)
        if max(map(abs, errors)) < abs(solved[terms]) * 1.001:
            break
    return coefficients


def _alternation(errors: list[Any], wanted: int) -> list[int]:
    """Where the largest errors of alternating sign stand: ``wanted`` of them."""
    peaks: list[int] = []
    for i, e in enumerate(errors):
        if peaks and (errors[peaks[-1]] > 0) == (e > 0):
            if abs(e) > abs(errors[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    while len(peaks) > wanted:
        if len(peaks) - wanted == 1:
            ends = sorted((0, len(peaks) - 1), key=lambda p: abs(errors[peaks[p]]))
            peaks.pop(ends[0])
        else:
            pairs = range(len(peaks) - 1)
            least = min(
                pairs,
                key=lambda p: max(map(abs, (errors[peaks[p]], errors[peaks[p + 1]]))),
            )
            del peaks[least : least + 2]
    if len(peaks) < wanted:
        raise ArithmeticError(f"{len(peaks)} alternations of {wanted}: too few digits")
    return peaks


# -- the polynomials -------------------------------------------------------------------

HALF = LN2 / 2 * mp.mpf("1.0001")
OCTAVE = (-mp.mpf("0.25"), mp.mpf("0.5"))
NEAR = mp.mpf("0.06251")
"""Largest |m r - 1| for m from ¾ to 1½ and r of the table."""
THIRD = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)
"""Largest |s| = |f / (2 + f)| for 1 + f from √½ to √2."""


def _atanh_excess(z: Any, *series: Any) -> Any:
    """(2 atanh(s) / s - Σ series zᵏ) / z^len(series), z = s²."""
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) / s - _horner(series, z)) / z ** len(series)


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


def _exponentials() -> Iterator[Fit]:
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


def _logarithms() -> Iterator[Fit]:
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


def _angles() -> Iterator[Fit]:
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


def _inverses() -> Iterator[Fit]:
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


def _others() -> Iterator[Fit]:
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


def _fits() -> Iterator[Fit]:
    """All of them."""
    from bench.minimax_bessel import bessels, quantiles
    from bench.minimax_special import complements, gammas, inverse_errors

    for theme in (_exponentials, _logarithms, _angles, _inverses, _others):
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
    return float(high), _rounded(value - high, 64)


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
    rests = (_rounded(v - h, bits) for v, h in zip(values, high, strict=True))
    return [tuple(map(float, high)), tuple(rests)]


def _tables() -> list[tuple[str, tuple[float, ...], str]]:
    """What AVX-512 looks up."""
    table = _table()
    ln = _split_table([-mp.log(r) for r in table], 40, 64)
    log2 = _split_table([-mp.log(r, 2) for r in table], 40, 64)
    single = _split_table([-mp.log(r, 2) for r in table], 15, 32)
    roots = [_rounded(mp.mpf(2) ** (-mp.mpf(n) / 3), 32) for n in (0, 1, -1)]
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
