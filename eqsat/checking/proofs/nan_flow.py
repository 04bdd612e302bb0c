"""What NaN reaches: which operands make an element NaN, on either side of a rule.

Follows the symbols of :mod:`eqsat.checking.proofs.bit_symbols`. Most ops are NaN
wherever an operand is. A ``where`` shows one of two; a comparison may decide which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from eqsat.checking.proofs.bit_symbols import STRICT, Symbols

OF_BOOLS = frozenset(
    "less less_equal equal not_equal isnan isinf isfinite signbit not and or xor any "
    "all logical_not logical_and logical_or logical_xor".split()
)
"""Ops whose result is no number, so never NaN."""
Guard = frozenset[tuple[int, bool]]
"""Conditions, each with whether it holds."""
Leaves = int
"""A set of leaves, a bit each; a leaf may stand under conditions that choose it."""


@dataclass(frozen=True)
class NanLeaves:
    """Leaves whose NaN makes a symbol NaN for certain, and those whose NaN may; and
    those that decide which branch of a ``where`` it is."""

    must: Leaves = 0
    may: Leaves = 0
    decide: Leaves = 0


@dataclass
class NanFlow:
    """What NaN reaches of each of some symbols."""

    symbols: Symbols
    reached: dict[int, NanLeaves] = field(default_factory=dict)
    places: dict[tuple[Guard, int], int] = field(default_factory=dict)

    def same_nan(self, x: int, y: int) -> bool:
        """Whether two symbols that are one function of real numbers are NaN for the
        same operands, and one function too where some are NaN."""
        if x == y:
            return True
        a, b = self.reach(x), self.reach(y)
        same = a.must == a.may == b.must == b.may
        return same and not (a.decide | b.decide) & ~a.must

    def reach(self, symbol: int) -> NanLeaves:
        """What NaN reaches ``symbol``."""
        stack = [symbol]
        while stack:
            s = stack[-1]
            if s in self.reached:
                stack.pop()
                continue
            parts = self.parts(s)
            open_ = [p for p in parts if p not in self.reached]
            stack += open_
            if not open_:
                self.reached[s] = self._reach(s, [self.reached[p] for p in parts])
        return self.reached[symbol]

    def parts(self, s: int) -> tuple[int, ...]:
        """The symbols that a symbol is made of."""
        name, *parts = self.symbols.keys[s]
        if name in ("number", "input", "parameter", "size", "NaN"):
            return ()
        flat = (q for p in parts for q in (p if isinstance(p, tuple) else (p,)))
        return tuple(q for q in flat if type(q) is int)

    def _reach(self, s: int, parts: Sequence[NanLeaves]) -> NanLeaves:
        name, *rest = self.symbols.keys[s]
        if not parts:
            own = 0 if name in ("number", "size") else self._bit(s)
            return NanLeaves(own, own)
        if name == "where":
            return self._of_where(rest[0], *parts)
        if name == "power" and len(rest) == 2 and self.symbols.value(rest[1]):
            return parts[0]
        must = may = decide = 0
        for p in parts:
            must, may, decide = must | p.must, may | p.may, decide | p.decide
        if name in STRICT:
            return NanLeaves(must, may, decide)
        bare = self._bare(may)
        return NanLeaves(0, 0 if name in OF_BOOLS else bare, decide | bare)

    def _of_where(
        self, c: int, chosen: NanLeaves, x: NanLeaves, y: NanLeaves
    ) -> NanLeaves:
        """What NaN reaches x where c, else y. A condition without floats tells
        which."""
        if chosen.decide:
            decide = chosen.decide | x.decide | y.decide
            return NanLeaves(x.must & y.must, x.may | y.may, decide)
        yes, no = (partial(self._under, c, which) for which in (True, False))
        must, may = yes(x.must) | no(y.must), yes(x.may) | no(y.may)
        return NanLeaves(must, may, x.decide | y.decide)

    def _under(self, c: int, which: bool, leaves: Leaves) -> Leaves:
        """``leaves`` under one condition more."""
        made = 0
        for guard, leaf in self._listed(leaves):
            made |= self._bit(leaf, guard | {(c, which)})
        return made

    def _bare(self, leaves: Leaves) -> Leaves:
        """``leaves`` without their conditions."""
        made = 0
        for _, leaf in self._listed(leaves):
            made |= self._bit(leaf)
        return made

    def _bit(self, leaf: int, guard: Guard = frozenset()) -> Leaves:
        return 1 << self.places.setdefault((guard, leaf), len(self.places))

    def _listed(self, leaves: Leaves) -> list[tuple[Guard, int]]:
        known = list(self.places)
        return [known[i] for i in range(leaves.bit_length()) if leaves >> i & 1]
