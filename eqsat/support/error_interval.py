"""A value with a bound on its error, and the range of values that a check works in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

WIDE = np.longdouble
"""The precision of the exact values: 64 bits of mantissa where the machine has them."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Precision:
    """Unit roundoff, half the least denormal, and the largest number of a dtype."""

    unit: Any
    tiny: Any
    largest: Any


@dataclass(frozen=True)
class Ball:
    """An exact value, and how far the computed one may be from it."""

    value: Array
    error: Array
    above_0: bool = False
    """Whether no rounding makes the computed value negative."""


@dataclass
class Range:
    """Whether the values met stay in a working range |x| ≤ limit."""

    limit: float
    narrow: bool = False
    """Whether intermediate values count too, as in float16."""
    inside: bool = True
    divided_by_zero: bool = False
    jumps: bool = True
    """Whether a value may be another whole number where rounding decides it."""
    pole: bool = False
    """Whether rounding decides on which side of a pole or of the edge of a domain an
    operand lies: the exact value is then not what a computation need give."""

    def exponent(self, x: Array) -> None:
        """``x`` is the argument of an exponential."""
        self._within(x[np.isfinite(x)], self.limit)

    def spread(self, x: Array) -> None:
        """``x`` is the argument of a softmax: a number and its opposite count."""
        self._within(np.abs(x[np.isfinite(x)]), self.limit)

    def divisor(self, x: Array) -> None:
        """``x`` is divided by: its reciprocal is in the range, or it is 0."""
        self.divided_by_zero |= bool((x == 0).any())
        size = np.abs(x[np.isfinite(x) & (x != 0)])
        if size.size and size.min() * self.limit < 1:
            self.inside = False

    def intermediate(self, x: Array, largest: Any) -> None:
        if self.narrow and (np.isfinite(x) & (np.abs(x) > largest)).any():
            self.inside = False

    def _within(self, x: Array, limit: Any) -> None:
        if x.size and x.max() > limit:
            self.inside = False
