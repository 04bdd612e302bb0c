"""Bounds on degrees and coefficients of what is computed in a prime field, and how
likely two different values are one residue."""

from __future__ import annotations

import math
from dataclasses import dataclass

LEAST = 1 << 80
"""Primes are drawn between this and twice this."""
PRIMES = 0.6 * LEAST / math.log(LEAST)
"""There are more of them than this: π(2x) - π(x) > 3x / (5 ln x) for x ≥ 20.5.
Rosser & Schoenfeld 1962, corollary 3 of theorem 2."""


@dataclass(frozen=True)
class QuotientBound:
    """A bound on a quotient of polynomials with integer coefficients."""

    num: int = 0
    """Degree of the numerator."""
    den: int = 0
    """Degree of the denominator."""
    bits: float = 0.0
    """log₂ of the sum of the absolute coefficients, of whichever has more."""

    def __mul__(self, o: QuotientBound) -> QuotientBound:
        return QuotientBound(self.num + o.num, self.den + o.den, self.bits + o.bits)

    def __truediv__(self, o: QuotientBound) -> QuotientBound:
        return QuotientBound(self.num + o.den, self.den + o.num, self.bits + o.bits)

    def __add__(self, o: QuotientBound) -> QuotientBound:
        top = max(self.num + o.den, o.num + self.den)
        return QuotientBound(top, self.den + o.den, self.bits + o.bits + 1)

    def __or__(self, o: QuotientBound) -> QuotientBound:
        """One of both."""
        tops = max(self.num, o.num), max(self.den, o.den)
        return QuotientBound(*tops, max(self.bits, o.bits))

    def total(self, n: int) -> QuotientBound:
        """The sum of ``n`` of these."""
        if n < 2:
            return self
        top = self.num + (n - 1) * self.den
        return QuotientBound(top, n * self.den, n * self.bits + math.log2(n))

    def power(self, n: int) -> QuotientBound:
        """The product of ``n`` of these."""
        return QuotientBound(n * self.num, n * self.den, n * self.bits)

    def coincide(self, o: QuotientBound) -> float:
        """How likely two different values of these sizes are one residue, at most.

        By the lemma of Schwartz and Zippel the numerator of their difference, of degree
        d, is 0 at a random point with probability d/p, unless p divides all of its
        coefficients: the random prime divides a number of b bits with probability
        b/80 in the number of primes.
        """
        d = self + o
        return d.num / LEAST + d.bits / math.log2(LEAST) / PRIMES


ATOM = QuotientBound(1)
"""A variable, or what an uninterpreted function gives."""
