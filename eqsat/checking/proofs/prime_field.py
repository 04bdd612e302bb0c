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
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from eqsat.checking.proofs.free_functions import (
    FreeFunctions,
    LogPairs,
    Unprovable,
    inverse,
)
from eqsat.checking.proofs.quotient_bound import ATOM, LEAST, QuotientBound
from eqsat.support import Array

WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
"""Bases of the Miller-Rabin test that tell every prime below 3.3e24 > 2⁸¹ for certain.
Sorenson & Webster 2015, arXiv:1509.00864."""


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
class FieldArray:
    """An array of residues, and what is known of it."""

    array: Array
    size: QuotientBound
    addends: tuple[tuple[int, FieldArray], ...] = ()
    """Values with their signs whose sum this is; empty when it is no sum."""


@dataclass
class Field:
    """One trial: a prime, and the residues of variables and functions."""

    p: int
    free: FreeFunctions
    pairs: LogPairs
    additive: bool = False
    """Whether exp(x + y) is taken as exp(x) exp(y), which tells exp of a sum written
    out from exp of the same sum as one value."""

    @staticmethod
    def drawn(rng: random.Random, additive: bool = False) -> Field:
        """A field of a random prime, in which every function is free."""
        p = random_prime(rng)
        free = FreeFunctions(rng, p)
        return Field(p, free, LogPairs(free), additive)

    # -- making values -----------------------------------------------------------------

    def variable(self, shape: Sequence[int]) -> FieldArray:
        """Independent residues."""
        count = math.prod(shape)
        draw = self.free.rng.randrange
        drawn = np.array([draw(self.p) for _ in range(count)], object)
        return FieldArray(drawn.reshape(tuple(shape)), ATOM)

    def number(self, value: Any) -> FieldArray:
        """A rational number: an int, a float as the dyadic number that it is."""
        try:
            exact = Fraction(value)
        except (ValueError, OverflowError):
            raise Unprovable(f"{value} is no rational number") from None
        top, bottom = exact.numerator, exact.denominator
        bits = math.log2(max(abs(top), bottom))
        found = top * inverse(bottom, self.p) % self.p
        return FieldArray(as_objects(found), QuotientBound(0, 0, bits))

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

    # -- arithmetic --------------------------------------------------------------------

    def add(self, x: FieldArray, y: FieldArray) -> FieldArray:
        array = as_objects((x.array + y.array) % self.p)
        parts = _addends(array, x, y, 1) if self.additive else ()
        return FieldArray(array, x.size + y.size, parts)

    def subtract(self, x: FieldArray, y: FieldArray) -> FieldArray:
        array = as_objects((x.array - y.array) % self.p)
        parts = _addends(array, x, y, -1) if self.additive else ()
        return FieldArray(array, x.size + y.size, parts)

    def negative(self, x: FieldArray) -> FieldArray:
        array = as_objects(-x.array % self.p)
        parts = tuple((-s, a) for s, a in x.addends or ((1, x),))
        return FieldArray(array, x.size, parts if self.additive else ())

    def multiply(self, x: FieldArray, y: FieldArray) -> FieldArray:
        return FieldArray(as_objects(x.array * y.array % self.p), x.size * y.size)

    def divide(self, x: FieldArray, y: FieldArray) -> FieldArray:
        over = _each(lambda v: inverse(v, self.p), y.array)
        return FieldArray(as_objects(x.array * over % self.p), x.size / y.size)

    def power(self, x: FieldArray, n: int) -> FieldArray:
        """x to an integer power."""
        if n < 0:
            return self.divide(self.number(1), self.power(x, -n))
        return FieldArray(_each(lambda v: pow(v, n, self.p), x.array), x.size.power(n))

    def sum(self, x: FieldArray, axis: Sequence[int]) -> FieldArray:
        n = math.prod(x.array.shape[a] for a in axis)
        total = np.add.reduce(x.array, axis=tuple(axis), keepdims=True)
        return FieldArray(as_objects(total % self.p), x.size.total(n))

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
            out.flat[i] = self.free.residue(name, key(*values))
        for v in (x, *more):
            self.free.feed(name, args[0].size, v.size)
        return FieldArray(out, ATOM)

    def function(self, name: str, *args: FieldArray) -> FieldArray:
        """A function of which nothing is known."""
        return self.apply(name, args[0], lambda *v: v, *args[1:])

    def odd(self, name: str, x: FieldArray) -> FieldArray:
        """A function with f(-x) = -f(x)."""
        found = self.even(name, x)
        flip = _each(lambda v: 1 if self.free.stands_for_both(v) else -1, x.array)
        return FieldArray(as_objects(found.array * flip % self.p), ATOM)

    def even(self, name: str, x: FieldArray) -> FieldArray:
        """A function with f(-x) = f(x)."""
        first = self.free.stands_for_both
        return self.apply(name, x, lambda v: v if first(v) else self.p - v)

    def largest(self, x: FieldArray, axis: Sequence[int]) -> FieldArray:
        """The maximum over axes, of which this is known: it depends on the set of
        elements alone, and that of one element is this element."""
        axes = sorted(a % x.array.ndim for a in axis)
        rest = [a for a in range(x.array.ndim) if a not in axes]
        kept = [x.array.shape[a] for a in rest]
        rows = x.array.transpose(*rest, *axes).reshape(math.prod(kept), -1)
        self.free.feed("max", x.array.size, x.size)
        found = np.empty(len(rows), object)
        for i, row in enumerate(rows.tolist()):
            values = frozenset(row)
            one = next(iter(values))
            found[i] = self.free.residue("max", values) if len(values) > 1 else one
        shape = [1 if a in axes else n for a, n in enumerate(x.array.shape)]
        return FieldArray(found.reshape(shape), ATOM | x.size)

    def exp(self, x: FieldArray) -> FieldArray:
        """eˣ, of which this is known: e⁰ = 1, e⁻ˣ = 1/eˣ, and e to the power ln x is
        x; when ``additive`` also exp(x + y) = exp(x) exp(y)."""
        if x.addends:
            made = self.number(1)
            for sign, part in x.addends:
                e = self.exp(part)
                made = self.multiply(made, e) if sign > 0 else self.divide(made, e)
            return made
        self.free.feed("exp", x.array.size, x.size)
        size = QuotientBound(1, 1)
        for _, fed in self.free.fed.get("log", ()):
            size = size | fed | QuotientBound() / fed
        return FieldArray(_each(self.pairs.exp, x.array), size)

    def log(self, x: FieldArray) -> FieldArray:
        """ln x, of which this is known: ln eˣ = x."""
        self.free.feed("log", x.array.size, x.size)
        size = ATOM
        for _, fed in self.free.fed.get("exp", ()):
            size = size | fed
        return FieldArray(_each(self.pairs.log, x.array), size)


def _addends(
    array: Array, x: FieldArray, y: FieldArray, sign: int
) -> tuple[tuple[int, FieldArray], ...]:
    """The values with their signs whose sum ``array``, x + y or x - y, is."""
    parts = [*(x.addends or ((1, x),))]
    parts += [(sign * s, a) for s, a in y.addends or ((1, y),)]
    return tuple(
        (s, FieldArray(np.broadcast_to(a.array, array.shape), a.size)) for s, a in parts
    )


def as_objects(values: Any) -> Array:
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
