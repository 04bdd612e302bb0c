"""Arithmetic in a random prime field: where the proofs of rules evaluate terms.

A value is an array of residues modulo a prime, with a bound on the rational function
that it stands for. A function that is no polynomial is *uninterpreted*: to each new
argument belongs a new random residue, to an old one the old residue. What holds for
every function in its place holds for the function itself.

The prime is drawn anew for each trial from those between 2⁸⁰ and 2⁸¹, so that no choice
of numbers in a rule can vanish modulo it but by chance.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from eqsat.support import Array

LEAST = 1 << 80
"""Primes are drawn between this and twice this."""
PRIMES = 0.6 * LEAST / math.log(LEAST)
"""There are more of them than this: π(2x) - π(x) > 3x / (5 ln x) for x ≥ 20.5.
Rosser & Schoenfeld 1962, corollary 3 of theorem 2."""
WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
"""Bases of the Miller-Rabin test that tell every prime below 3.3e24 > 2⁸¹ for certain.
Sorenson & Webster 2015, arXiv:1509.00864."""


class Unprovable(Exception):
    """A term that has no value in a field: an infinite number, a division by 0."""


def is_prime(n: int) -> bool:
    """Whether ``n`` < 3.3e24 is prime."""
    if n < 2 or any(n % a == 0 for a in WITNESSES):
        return n in WITNESSES
    twos = ((n - 1) & -(n - 1)).bit_length() - 1
    for a in WITNESSES:
        x = pow(a, (n - 1) >> twos, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def random_prime(rng: random.Random) -> int:
    """A prime between 2⁸⁰ and 2⁸¹, each as likely as the others."""
    while True:
        n = LEAST + rng.randrange(LEAST) | 1
        if is_prime(n):
            return n


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


@dataclass(frozen=True)
class FieldArray:
    """An array of residues, and what is known of it."""

    array: Array
    size: QuotientBound
    addends: tuple[tuple[int, FieldArray], ...] = ()
    """Values with their signs whose sum this is; empty when it is no sum."""


@dataclass
class Field:
    """One trial: a prime, and the residues of variables and functions."""

    rng: random.Random
    additive: bool = False
    """Whether exp(x + y) is taken as exp(x) exp(y), which tells exp of a sum written
    out from exp of the same sum as one value."""
    p: int = 0
    residues: dict[tuple[str, Any], int] = field(default_factory=dict)
    logs: dict[int, int] = field(default_factory=dict)
    """Residues of logarithms, with the residues that these are logarithms of."""
    exponents: dict[int, int] = field(default_factory=dict)
    """Residues of exponentials, with their exponents."""
    fed: dict[str, list[tuple[int, QuotientBound]]] = field(default_factory=dict)
    """What each function was applied to: numbers of residues, with their sizes."""

    def __post_init__(self) -> None:
        self.p = self.p or random_prime(self.rng)

    # -- making values -----------------------------------------------------------------

    def variable(self, shape: Sequence[int]) -> FieldArray:
        """Independent residues."""
        count = math.prod(shape)
        drawn = np.array([self.rng.randrange(self.p) for _ in range(count)], object)
        return FieldArray(drawn.reshape(tuple(shape)), ATOM)

    def number(self, value: Any) -> FieldArray:
        """A rational number: an int, a float as the dyadic number that it is."""
        try:
            exact = Fraction(value)
        except (ValueError, OverflowError):
            raise Unprovable(f"{value} is no rational number") from None
        top, bottom = exact.numerator, exact.denominator
        bits = math.log2(max(abs(top), bottom))
        found = top * self._inverse(bottom) % self.p
        return FieldArray(_array(found), QuotientBound(0, 0, bits))

    def constants(self, array: Array) -> FieldArray:
        """An array of numbers."""
        made = [self.number(v) for v in np.asarray(array).ravel().tolist()]
        size = QuotientBound()
        for v in made:
            size = size | v.size
        out = np.empty(len(made), object)
        out[:] = [v.array.item() for v in made]
        return FieldArray(out.reshape(np.shape(array)), size)

    def named(self, name: str) -> FieldArray:
        """A constant that is no rational number, as one that could be any."""
        return self.apply(
            name, FieldArray(np.empty((), object), QuotientBound()), lambda *_: ()
        )

    def _inverse(self, x: int) -> int:
        try:
            return pow(x, -1, self.p)
        except ValueError:
            raise Unprovable("a division by 0") from None

    # -- arithmetic --------------------------------------------------------------------

    def add(self, x: FieldArray, y: FieldArray) -> FieldArray:
        array = _array((x.array + y.array) % self.p)
        return FieldArray(array, x.size + y.size, self._addends(array, x, y, 1))

    def subtract(self, x: FieldArray, y: FieldArray) -> FieldArray:
        array = _array((x.array - y.array) % self.p)
        return FieldArray(array, x.size + y.size, self._addends(array, x, y, -1))

    def negative(self, x: FieldArray) -> FieldArray:
        array = _array(-x.array % self.p)
        parts = tuple((-s, a) for s, a in x.addends or ((1, x),))
        return FieldArray(array, x.size, parts if self.additive else ())

    def _addends(
        self, array: Array, x: FieldArray, y: FieldArray, sign: int
    ) -> tuple[tuple[int, FieldArray], ...]:
        if not self.additive:
            return ()
        parts = [*(x.addends or ((1, x),))]
        parts += [(sign * s, a) for s, a in y.addends or ((1, y),)]
        return tuple(
            (s, FieldArray(np.broadcast_to(a.array, array.shape), a.size))
            for s, a in parts
        )

    def multiply(self, x: FieldArray, y: FieldArray) -> FieldArray:
        return FieldArray(_array(x.array * y.array % self.p), x.size * y.size)

    def divide(self, x: FieldArray, y: FieldArray) -> FieldArray:
        inverse = _each(self._inverse, y.array)
        return FieldArray(_array(x.array * inverse % self.p), x.size / y.size)

    def power(self, x: FieldArray, n: int) -> FieldArray:
        """x to an integer power."""
        if n < 0:
            return self.divide(self.number(1), self.power(x, -n))
        return FieldArray(_each(lambda v: pow(v, n, self.p), x.array), x.size.power(n))

    def sum(self, x: FieldArray, axis: Sequence[int]) -> FieldArray:
        n = math.prod(x.array.shape[a] for a in axis)
        total = np.add.reduce(x.array, axis=tuple(axis), keepdims=True)
        return FieldArray(_array(total % self.p), x.size.total(n))

    # -- functions ---------------------------------------------------------------------

    def apply(
        self, name: str, x: FieldArray, key: Callable[..., Any], *more: FieldArray
    ) -> FieldArray:
        """An uninterpreted function of elements, told apart by ``key`` of them."""
        args = np.broadcast_arrays(x.array, *(m.array for m in more), subok=False)
        out = np.empty(args[0].shape, object)
        for i, values in enumerate(
            zip(*(a.ravel().tolist() for a in args), strict=True)
        ):
            out.flat[i] = self.residue(name, key(*values))
        for v in (x, *more):
            self._feed(name, args[0].size, v.size)
        return FieldArray(out, ATOM)

    def residue(self, name: str, key: Any) -> int:
        """The residue of a function for one argument; never 0, and drawn when new."""
        found = self.residues.get((name, key))
        if found is None:
            found = self.residues[name, key] = self.rng.randrange(1, self.p)
        return found

    def _feed(self, name: str, count: int, size: QuotientBound) -> None:
        self.fed.setdefault(name, []).append((count, size))

    def function(self, name: str, *args: FieldArray) -> FieldArray:
        """A function of which nothing is known."""
        return self.apply(name, args[0], lambda *v: v, *args[1:])

    def odd(self, name: str, x: FieldArray) -> FieldArray:
        """A function with f(-x) = -f(x)."""
        found = self.even(name, x)
        flip = _each(lambda v: 1 if self._first(v) else -1, x.array)
        return FieldArray(_array(found.array * flip % self.p), ATOM)

    def even(self, name: str, x: FieldArray) -> FieldArray:
        """A function with f(-x) = f(x)."""
        return self.apply(name, x, lambda v: v if self._first(v) else self.p - v)

    def _first(self, v: int) -> bool:
        """Which of v and -v stands for both."""
        return 2 * v <= self.p

    def largest(self, x: FieldArray, axis: Sequence[int]) -> FieldArray:
        """The maximum over axes, of which this is known: it depends on the set of
        elements alone, and that of one element is this element."""
        axes = sorted(a % x.array.ndim for a in axis)
        rest = [a for a in range(x.array.ndim) if a not in axes]
        kept = [x.array.shape[a] for a in rest]
        rows = x.array.transpose(*rest, *axes).reshape(math.prod(kept), -1)
        self._feed("max", x.array.size, x.size)
        found = np.empty(len(rows), object)
        for i, row in enumerate(rows.tolist()):
            values = frozenset(row)
            one = next(iter(values))
            found[i] = self.residue("max", values) if len(values) > 1 else one
        shape = [1 if a in axes else n for a, n in enumerate(x.array.shape)]
        return FieldArray(found.reshape(shape), ATOM | x.size)

    def larger(self, x: FieldArray, y: FieldArray) -> FieldArray:
        """The larger of two, as the maximum of a row of two."""
        pair = np.stack(np.broadcast_arrays(x.array, y.array, subok=False), -1)
        found = self.largest(FieldArray(pair, x.size | y.size), (-1,))
        return FieldArray(found.array[..., 0], found.size)

    def exp(self, x: FieldArray) -> FieldArray:
        """eˣ, of which this is known: e⁰ = 1, e⁻ˣ = 1/eˣ, and e to the power ln x is
        x; when ``additive`` also exp(x + y) = exp(x) exp(y)."""
        if x.addends:
            made = self.number(1)
            for sign, part in x.addends:
                e = self.exp(part)
                made = self.multiply(made, e) if sign > 0 else self.divide(made, e)
            return made
        self._feed("exp", x.array.size, x.size)
        size = QuotientBound(1, 1)
        for _, fed in self.fed.get("log", ()):
            size = size | fed | QuotientBound() / fed
        return FieldArray(_each(self._exp, x.array), size)

    def _exp(self, v: int) -> int:
        minus = -v % self.p
        if v == 0:
            return 1
        if v in self.logs:
            return self.logs[v]
        if minus in self.logs:
            return self._inverse(self.logs[minus])
        found = self.residue("exp", v if self._first(v) else minus)
        found = found if self._first(v) else self._inverse(found)
        self.exponents[found] = v
        return found

    def log(self, x: FieldArray) -> FieldArray:
        """ln x, of which this is known: ln eˣ = x."""
        self._feed("log", x.array.size, x.size)
        size = ATOM
        for _, fed in self.fed.get("exp", ()):
            size = size | fed
        return FieldArray(_each(self._log, x.array), size)

    def _log(self, v: int) -> int:
        if v in self.exponents:
            return self.exponents[v]
        found = self.residue("log", v)
        self.logs[found] = v
        return found

    # -- what a trial is worth ---------------------------------------------------------

    def doubt(self) -> float:
        """At most how likely it is that two different arguments of a function were one
        residue, or opposite ones, so that the function was not free."""
        doubt = 0.0
        families = dict(self.fed)
        inverse = families.pop("exp", []) + families.pop("log", [])
        # Arguments of exp and ln are compared with the values of the other as well.
        families["exp and ln"] = 2 * inverse
        for fed in families.values():
            n = sum(count for count, _ in fed) + 1
            size = QuotientBound(1, 1)
            for _, s in fed:
                size = size | s
            # All pairs, twice: an argument and its opposite count as one.
            doubt += n * n * size.coincide(size)
        return doubt


def _array(values: Any) -> Array:
    """An array of objects, also of rank 0, where NumPy gives a bare number."""
    if isinstance(values, np.ndarray):
        return values
    out = np.empty((), object)
    out[()] = values
    return out


def _each(f: Callable[[int], int], array: Array) -> Array:
    out = np.empty(array.shape, object)
    for i, v in enumerate(array.ravel().tolist()):
        out.flat[i] = f(v)
    return out
