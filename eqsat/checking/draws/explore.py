"""The cases of a rule: drawn until every class that the rule admits was reached.

Each case is the one among a few draws that is in the most classes not reached yet.
Then draws go on for the classes that are left, and only cases in one of them count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from eqsat.checking.draws.cases import Case, inside_domain, sample
from eqsat.checking.draws.coverage import Coverage, classes
from eqsat.rulelang import Rule

AMONG = 3
"""Draws that a case is chosen from."""
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


def _cases(
    rule: Rule, coverage: Coverage, rng: Any, examples: int
) -> Iterator[tuple[Case, frozenset[str]]]:
    def draw() -> tuple[Case, frozenset[str]]:
        case = sample(rule, rng)
        return case, classes(case)

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
