"""Sizes of axes that decide a rule: when it holds for these, it holds for all.

Drawn cases are small. What is true of them alone is refused by more cases, whose sizes
follow from the rule:

- *Long enough.* Slices, pads, steps and shapes that are told by numbers cut an axis in
  parts. Once an axis is longer than these numbers together, a longer one has the same
  parts in the same order. A product of s sums tells at most s places of an axis apart,
  and the result one more. So sizes are above the numbers and the sums together.
- *Enough of them.* Over axes so long, where all other elements of an axis are equal,
  each side is a quotient of polynomials in the size, whose degrees
  (``size_degrees.py``) are bounded. So is every difference of arguments of functions. A
  polynomial of degree d that is 0 at d + 1 sizes is 0 at all; of
  several axes, at all combinations of so many sizes each.
- *All ranks.* What a pattern says under ``...`` counts axes from the end, and is done
  alike for each element of the axes before. The cases have none, one, two, three and
  more of these, missing, of 1 and long in each array; one more is another of them.
- *All remainders.* ``n // 3``, and steps of 3, make a polynomial for each remainder of
  n by 3, and each is decided by itself. Remainders that no case in reach has are left
  out: a condition of the rule does not admit them.

An identity that applies a permutation k times in all is decided by a cycle of more than
k axes. Axes of ``...`` are long where they are not 1, and count as one axis, so that
a rule that tells the size of one from that of another is not decided by this. Of other
attributes and of integers the claim is as wide as the cases: those that
:attr:`Proof.shapes` lists, which are in every class that the rule admits. What the body
of a composite makes of sizes in Python is taken as it comes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.checking.draws import Case, named_axes, roles
from eqsat.checking.proofs.free_functions import Unprovable
from eqsat.checking.proofs.sides import Sides, of_numbers
from eqsat.checking.proofs.size_degrees import (
    Labels,
    SizeDegree,
    SizesOfTerms,
    of_number,
)
from eqsat.rulelang import Expr, PatternNode, Rule, exprs, nodes
from eqsat.terms import INPUT, Term

ROWS = "..."
"""The axes of ``...``, as one axis."""
PLACES = frozenset("starts sizes steps low high shape stride padding dilation".split())
"""Attributes that tell places of an axis."""


@dataclass(frozen=True)
class Needed:
    """Which sizes of an axis decide a rule."""

    least: int
    degree: int = 0
    period: int = 1

    @property
    def sizes(self) -> range:
        """The fewest sizes that may do."""
        return range(self.least, self.least + self.period * (self.degree + 1))


def sizes_needed(rule: Rule, case: Case) -> dict[str, Needed]:
    """For each axis whose size is more than a length, the sizes that decide ``rule``
    when its attributes are those of ``case``; ``...`` are all axes of ``...``.

    Raises :class:`Unprovable` for what is no polynomial in sizes.
    """
    dtype = of_numbers(case)
    assert dtype is not None
    sides = Sides.of(case, dtype, whole=False)
    same = sides.left == sides.right
    sums: Counter[str] = Counter()
    if same or rule.numerics == "exact":
        degree = _most(d.num + d.den + d.by for d in _degrees_of(rule))
    else:
        found = _of_terms(sides)
        degree, sums = found.num, found.sums
    periods, long = _periods(rule, case), places(rule)
    axes = {*degree, *periods} | ({*named_axes(rule), ROWS} if long else set())
    return {
        a: Needed(1 + long + sums[a], degree[a], periods.get(a, 1))
        for a in sorted(axes & _all_axes(rule, case))
    }


def _most(degrees: Iterable[Counter[str]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for d in degrees:
        found |= d
    return found


def _all_axes(rule: Rule, case: Case) -> set[str]:
    """The axes of a case that may have another size, and its integers."""
    own = {*named_axes(rule)} - rule.numbers.keys()
    if any(n != 1 for p in case.arrays for n, a in axes_of(case, p) if a == ROWS):
        own.add(ROWS)
    return own | {*_integers(rule)}


def _integers(rule: Rule) -> list[str]:
    """Integers of a rule that are no attributes."""
    return [p for p, k in rule.numbers.items() if k == "int" and p not in roles(rule)]


def _names(rule: Rule) -> list[str]:
    """What integers in numbers of a rule are made of: sizes, and its own integers."""
    sizes = [a for a in named_axes(rule) if a not in rule.numbers]
    return [*sizes, *_integers(rule)]


def _degrees_of(rule: Rule) -> Iterator[SizeDegree]:
    names = _names(rule)
    for side in (*rule.left, *rule.right):
        yield from (of_number(e, names) for e in exprs(side))


def _of_terms(sides: Sides) -> SizeDegree:
    """What the terms of both sides need."""
    names = _names(sides.case.rule)
    numbers = {t: of_number(e, names) for t, e in sides.numbers.items()}
    first, kinds = _leaves(sides), 1
    for _ in range(2):
        work = SizesOfTerms(dict(first), numbers, kinds)
        found = work.needed(sides.left, sides.right)
        kinds = max(found.sums.values(), default=0) + 2
    met = [*(frozenset().union(*v) for v in first.values()), *work.totals]
    met += [frozenset([a]) for d in numbers.values() for a in d.num + d.den + d.by]
    return replace(found, num=_one_of_each(found.num, met))


def _one_of_each(degrees: Counter[str], met: Sequence[Labels]) -> Counter[str]:
    """``degrees`` of one among axes that arrays have, and that sums go along, together:
    their elements are those of one axis."""
    seen: dict[tuple[Labels, ...], str] = {}
    for a in sorted(degrees):
        seen.setdefault(tuple(m for m in met if a in m), a)
    return Counter({a: degrees[a] for a in seen.values()})


def _leaves(sides: Sides) -> dict[Term, tuple[Labels, ...]]:
    """The axes of the arrays."""
    case = sides.case
    arrays = [p for p in case.rule.params if p in case.arrays]
    found: dict[Term, tuple[Labels, ...]] = {}
    for t in sides.left[0].graph.terms:
        if t.op is INPUT and t not in sides.numbers:
            place: Any = t.attrs[0]
            axes = [a for _, a in axes_of(case, arrays[place])]
            found[t] = tuple(frozenset([a] if a else []) for a in axes)
    return found


def axes_of(case: Case, param: str) -> list[tuple[int, str]]:
    """The dimensions of an array, each with its axis; none where the size is fixed."""
    axes = case.rule.signature.inputs[case.rule.tensors.index(param)]
    shape = case.arrays[param].shape
    rows = len(shape) - axes.rank if axes.variadic else 0
    names = (*axes.before, *(ROWS,) * rows, *axes.after)
    return [
        (n, a if isinstance(a, str) else "") for n, a in zip(shape, names, strict=True)
    ]


# -- numbers that a rule tells ---------------------------------------------------------


def places(rule: Rule) -> int:
    """How far the numbers reach, together, that tell places of an axis."""
    return sum(map(abs, _literals(rule)))


def _literals(rule: Rule) -> Iterator[int]:
    for side in (*rule.left, *rule.right):
        for p in nodes(side):
            if not isinstance(p, PatternNode):
                continue
            for attr, value in zip(p.op.attrs, p.attrs, strict=True):
                if attr in PLACES:
                    yield from _numbers_in(value)


def _numbers_in(value: Any) -> Iterator[int]:
    """Numbers above 1 in an attribute or an expression."""
    if isinstance(value, tuple):
        for v in value:
            yield from _numbers_in(v)
    elif isinstance(value, Expr):
        if value.head != "entry":
            yield from _numbers_in(value.args)
    elif isinstance(value, int) and abs(value) > 1:
        yield value


def _periods(rule: Rule, case: Case) -> dict[str, int]:
    """What sizes are divided by in integers. Raises :class:`Unprovable` where that is
    a size, too."""
    found: dict[str, int] = {}
    for side in (*rule.left, *rule.right):
        for e in exprs(side):
            for d in _divisions(e):
                by = d.args[1]
                if isinstance(by, Expr) and not by.names <= case.numbers.keys():
                    raise Unprovable(f"{d} divides by a size")
                n = by.value(case.numbers) if isinstance(by, Expr) else by
                for a in d.names - rule.numbers.keys():
                    found[a] = math.lcm(found.get(a, 1), max(abs(int(n)), 1))
    return found


def _divisions(e: Expr | float | tuple[Any, ...]) -> Iterator[Expr]:
    if isinstance(e, Expr):
        if e.head in ("//", "%"):
            yield e
        for a in e.args:
            yield from _divisions(a)


__all__ = ["ROWS", "Needed", "axes_of", "places", "sizes_needed"]
