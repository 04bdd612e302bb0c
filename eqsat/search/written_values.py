"""What flows into decisions keeps the values that the user wrote.

Rules of the class ``reassociate`` move a value by its rounding, so that a decision upon
it (:mod:`eqsat.kernels.decisions`) is not that of NumPy: ``x * 3 / 3 == x``. What one
is computed from is computed as it was written, where such a rule would change it; all
else is free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.egraph import (
    Budget,
    EGraph,
    Matcher,
    normal_forms,
    open_engine,
    saturate,
)
from eqsat.kernels import rounds, zones
from eqsat.rulelang import PHASES, RuleSet
from eqsat.search.regions import Region, inserted, ops_in, region_of
from eqsat.support import cached_by_identity
from eqsat.terms import Term

BUDGET_S, MAX_NODES = 0.2, 1000
"""Of the search for other spellings of what a decision is computed from. One that
is not done counts as changed."""


def written(
    terms: Sequence[Term], constant: Mapping[Term, bool], rules: RuleSet
) -> frozenset[Term]:
    """Those of ``terms`` that are computed as they were written: the zones that a rule
    would change."""
    found: list[Term] = []
    known: dict[tuple[Any, ...], bool] = {}
    for zone in zones(terms):
        if not any(map(rounds, zone)):
            continue
        region = region_of(zone, set(), constant, asked=())
        if region.key not in known:
            known[region.key] = _is_changed(region, rules)
        if known[region.key]:
            found += zone
    return frozenset(found)


def _is_changed(zone: Region, rules: RuleSet) -> bool:
    """Whether a rule that may round otherwise matches within ``zone``, or within what
    exact rules make of it."""
    as_written = EGraph([], [], [], [])
    as_written.append(inserted(zone))
    if _matches(as_written, rules):  # most do, and the engine takes 4 ms
        return True
    graph = _spellings(zone, _exact(rules))
    return graph is None or _matches(graph, rules)


def _matches(graph: EGraph, rules: RuleSet) -> bool:
    """Whether a rule that may round otherwise matches."""
    matcher = Matcher(graph)
    present = frozenset(op.name for op in matcher.by_op)
    forms = normal_forms(rules)
    for phase in PHASES:
        for rule, left, _ in forms.fitting(phase, present) if phase != "fuse" else ():
            sides = (left[0], rule.left[0])
            if rule.numerics != "exact" and any(map(matcher.found, sides)):
                return True
    return False


def _spellings(zone: Region, rules: RuleSet) -> EGraph | None:
    """``zone`` with all that ``rules`` make of it; None where that is too much."""
    if len(zone.terms) > MAX_NODES:
        return None
    budget = Budget.of(BUDGET_S, MAX_NODES)
    engine = open_engine(rules, ops_in([zone]), keep=True)
    engine.insert(inserted(zone))
    saturate(engine, budget)
    graph = None if budget.spent else engine.read()
    engine.close()
    return graph


@cached_by_identity
def _exact(rules: RuleSet) -> RuleSet:
    """The exact ones of ``rules``."""
    exact = (r for r in rules if r.numerics == "exact" and r.phase != "fuse")
    return RuleSet(tuple(exact))


__all__ = ["written"]
