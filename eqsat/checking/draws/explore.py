"""The cases of a rule: drawn until every class that the rule admits was reached.

Each case is the one among a few draws that is in the most classes not reached yet.
Then draws go on for the classes that are left, and only cases in one of them count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from eqsat.checking.draws.cases import (
    GRID,
    MODEST,
    SPECIAL,
    Case,
    dtypes_of,
    inside_domain,
    sample,
    special_case,
)
from eqsat.checking.draws.coverage import TOGETHER, Coverage, classes
from eqsat.checking.draws.pressed import pressed
from eqsat.checking.draws.sample_arrays import FLOATS
from eqsat.rulelang import Rule

AMONG = 3
"""Draws that a case is chosen from."""
FEW = 6
"""Elements of an array that holds one special value alone."""
MORE = 1200
"""Draws for the classes that are left, for a rule of many classes twice as many."""

Reached = Callable[[Case], bool]
"""Looks at a case; whether the left side has a value for it."""


def explore(rule: Rule, examples: int, seed: int, look: Reached) -> Coverage:
    """Show ``look`` cases of ``rule`` until ``examples`` of them have a value and the
    classes are reached, or until it raises ``StopIteration``. Returns the classes."""
    coverage = Coverage(rule)
    rng = np.random.default_rng(seed)
    try:
        for case in pressed(rule, np.random.default_rng(seed + 1)):
            held = inside_domain(case)
            if held is not None:
                look(held)
        for case, found in _cases(rule, coverage, rng, examples):
            coverage.note(found)
            held = inside_domain(case)
            if held is None:
                continue
            kept = found if held is case else classes(held)
            if look(held):
                coverage.reach(held, kept)
    except StopIteration:
        pass
    return coverage


def _special(rule: Rule, rng: Any) -> Iterator[Case]:
    """Special values of all kinds side by side, of each dtype; then of one kind in all
    arrays."""
    exact = rule.numerics == "exact" or rule.infers
    dtypes = dtypes_of(rule)
    for dtype in dtypes if rule.numerics != "fast" else ():
        if exact or dtype not in FLOATS:
            yield special_case(rule, rng, dtype, SPECIAL.get(dtype, ()), GRID)
        if dtype in FLOATS:
            yield special_case(rule, rng, dtype, MODEST, GRID)
    for kind in TOGETHER:
        for dtype in [d for d in dtypes if kind in SPECIAL.get(d, ())][:1]:
            yield special_case(rule, rng, dtype, (kind,), FEW)


def _cases(
    rule: Rule, coverage: Coverage, rng: Any, examples: int
) -> Iterator[tuple[Case, frozenset[str]]]:
    def draw() -> tuple[Case, frozenset[str]]:
        case = sample(rule, rng)
        return case, classes(case)

    for case in _special(rule, rng):
        yield case, classes(case)
    for _ in range(MORE):
        if coverage.cases >= examples:
            break
        wanted = coverage.wanted
        drawn = [draw() for _ in range(AMONG)]
        yield max(drawn, key=lambda d: len(d[1] & wanted))
    for _ in range(MORE + 4 * len(coverage.admitted)):
        wanted = coverage.wanted
        if not wanted:
            return
        case, found = draw()
        if found & wanted:
            yield case, found
