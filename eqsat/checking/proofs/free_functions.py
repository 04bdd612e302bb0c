"""Functions of which nothing is known but a few identities: each new argument gets a
new random residue, an old one its old residue."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from eqsat.checking.proofs.quotient_bound import QuotientBound


class Unprovable(Exception):
    """A term that has no value in a field: an infinite number, a division by 0."""


def inverse(x: int, p: int) -> int:
    """1/x modulo p."""
    try:
        return pow(x, -1, p)
    except ValueError:
        raise Unprovable("a division by 0") from None


@dataclass
class FreeFunctions:
    """The residues of uninterpreted functions modulo ``p``, by name and argument."""

    rng: random.Random
    p: int
    residues: dict[tuple[str, Any], int] = field(default_factory=dict)
    fed: dict[str, list[tuple[int, QuotientBound]]] = field(default_factory=dict)
    """What each function was applied to: numbers of residues, with their sizes."""

    def residue(self, name: str, key: Any) -> int:
        """The residue of a function for one argument; never 0, and drawn when new."""
        found = self.residues.get((name, key))
        if found is None:
            found = self.residues[name, key] = self.rng.randrange(1, self.p)
        return found

    def feed(self, name: str, count: int, size: QuotientBound) -> None:
        """Note that a function is applied to ``count`` residues."""
        self.fed.setdefault(name, []).append((count, size))

    def stands_for_both(self, v: int) -> bool:
        """Whether v, and not -v, stands for both."""
        return 2 * v <= self.p

    def doubt(self) -> float:
        """At most how likely it is that two different arguments of a function were one
        residue, or opposite ones, so that the function was not free."""
        doubt = 0.0
        families = dict(self.fed)
        inverses = families.pop("exp", []) + families.pop("log", [])
        # Arguments of exp and ln are compared with the values of the other as well.
        families["exp and ln"] = 2 * inverses
        for fed in families.values():
            n = sum(count for count, _ in fed) + 1
            size = QuotientBound(1, 1)
            for _, s in fed:
                size = size | s
            # All pairs, twice: an argument and its opposite count as one.
            doubt += n * n * size.coincide(size)
        return doubt


@dataclass
class LogPairs:
    """Residues of exponentials and logarithms, each the inverse of the other."""

    free: FreeFunctions
    logs: dict[int, int] = field(default_factory=dict)
    """Residues of logarithms, with the residues that these are logarithms of."""
    exponents: dict[int, int] = field(default_factory=dict)
    """Residues of exponentials, with their exponents."""

    def exp(self, v: int) -> int:
        """eᵛ."""
        minus = -v % self.free.p
        if v == 0:
            return 1
        if v in self.logs:
            return self.logs[v]
        if minus in self.logs:
            return inverse(self.logs[minus], self.free.p)
        first = self.free.stands_for_both(v)
        found = self.free.residue("exp", v if first else minus)
        found = found if first else inverse(found, self.free.p)
        self.exponents[found] = v
        return found

    def log(self, v: int) -> int:
        """ln v."""
        if v in self.exponents:
            return self.exponents[v]
        found = self.free.residue("log", v)
        self.logs[found] = v
        return found
