"""What a match of one side of a rule tells, and what the other side needs to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat.rulelang.expression import Expr, solve
from eqsat.rulelang.pattern import (
    Num,
    Pattern,
    PatternVar,
    exprs,
    nodes,
    own_exprs,
)

NAMES = ("left", "right")


def gap(
    matched: Sequence[Pattern],
    built: Sequence[Pattern],
    numbers: Mapping[str, str],
    names: tuple[str, str] = NAMES,
) -> str:
    """Why a match of one side does not tell enough to build the other one; empty when
    it does. ``numbers``: the parameters that are no arrays, with their kinds."""
    here, there = names
    known = bound(matched, numbers)
    seen = used(matched)
    free = [v for v in used(built) if v not in known and v not in seen]
    if free:
        uses = ", ".join(map(repr, free))
        return f"the {there} side uses {uses}, which the {here} side lacks"
    for e in (e for root in matched for e in exprs(root)):
        untold = " and ".join(map(repr, sorted(e.names - known)))
        if untold:
            return f"the {here} side has {e}, from which {untold} cannot be told"
    return ""


def used(side: Sequence[Pattern]) -> dict[str, None]:
    """Names of the variables, number parameters and axes that ``side`` speaks of."""
    found: dict[str, None] = {}
    for root in side:
        for p in nodes(root):
            if isinstance(p, PatternVar):
                found[p.name] = None
            else:
                for e in own_exprs(p):
                    found.update((n, None) for n in sorted(e.names))
    return found


def bound(side: Sequence[Pattern], numbers: Mapping[str, str]) -> set[str]:
    """Names that a match of ``side`` tells.

    An array tells its axes; a number or an attribute tells the parameter that stands
    there alone, and a number computed from one parameter tells that too
    (:func:`eqsat.rulelang.pattern.solve`). An attribute that is computed tells nothing.
    """
    found: set[str] = set()
    computed: list[Expr] = []
    floats = {p for p, kind in numbers.items() if kind == "float"}
    for root in side:
        for p in nodes(root):
            if isinstance(p, PatternVar):
                axes = (a for a in p.axes.tokens if isinstance(a, str))
                found |= {p.name, f"{p.name}.dtype", *axes}
            elif isinstance(p, Num):
                computed += own_exprs(p)
            else:
                found |= {e.head for e in own_exprs(p) if not e.args}
    for _ in list(computed):
        for e in computed:
            name, *more = sorted(e.names - found) or [""]
            if name in floats and not more and solve(e, name, e) is not None:
                found.add(name)
    return found
