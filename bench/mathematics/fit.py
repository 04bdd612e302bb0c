"""Minimax polynomials, by the exchange algorithm of Remez (1934).

It runs over a grid of Chebyshev points, in 60 digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.dps = 60

Function = Callable[[Any], Any]
LN2, LOG2E = mp.log(2), 1 / mp.log(2)


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
        best = [rounded(c, self.bits) for c in _remez(grid, of, weight, self.terms)]
        errors = (
            abs(w * (horner(best, x) - f))
            for w, f, x in zip(weight, of, grid, strict=True)
        )
        return best, float(mp.log(max(errors), 2))


def _chebyshev(low: Any, high: Any, count: int) -> list[Any]:
    """``count`` points from low to high, dense at the ends; an even count omits 0."""
    middle, half = (mp.mpf(high) + low) / 2, (mp.mpf(high) - low) / 2
    return [
        middle - half * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)
    ]


def horner(coefficients: Sequence[Any], x: Any) -> Any:
    value = mp.mpf(0)
    for c in reversed(coefficients):
        value = value * x + c
    return value


def rounded(value: Any, bits: int) -> float:
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
            w * (horner(coefficients, x) - f)
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
        raise ArithmeticError(f"{len(peaks)} of {wanted} alternations: too few digits")
    return peaks
