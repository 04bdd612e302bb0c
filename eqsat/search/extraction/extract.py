"""Extraction: the cheapest program in an e-graph, shared values paid once.

The objective is DAG cost. Reductions settle what they can and split the rest into
parts. For each part the cheapest trees (Knuth 1977), bettered class by class, give a
start; walks over the classes, users first, give better choices, and prove the best one
when they have room for every partial choice; what is not proven is searched on.
:mod:`eqsat.search.extraction.ilp` proves the rest by an integer program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eqsat.egraph import Budget
from eqsat.search.extraction.frontier import frontier
from eqsat.search.extraction.local_search import Chosen
from eqsat.search.extraction.presolve import Reduction, Subproblem
from eqsat.search.extraction.problem import (
    Problem,
    dag_cost,
    in_order,
    tree_greedy,
)
from eqsat.search.extraction.window_search import refine

EFFORT = 12_000
"""Partial choices times nodes that one walk looks at in each part, about: 1 µs each."""
NARROW, BROAD = 4, 256
"""Least and most partial choices that a walk keeps for each class."""
LARGE = 1000
"""Nodes in all parts beyond which there is time for one walk only."""
EXPONENTS = (0.5, 0.0, 1.0)
"""How walks estimate sharing: the price of a class is divided by its users to this
power."""
WINDOWS = 60
"""Windows looked at in all parts together, by size."""
LEAST = 10
"""Windows looked at in each part nevertheless."""


@dataclass
class Solution:
    """What was chosen for a problem."""

    best: list[int]
    """Node of each class that the roots need, -1 for the others."""
    cost: float
    proven: bool
    """Whether no choice is cheaper."""


def solve(p: Problem, budget: Budget, effort: int = EFFORT) -> Solution:
    """The cheapest choice found: whole, free of cycles and of what nothing needs.

    Deterministic unless the budget ends, which stops improvement but never gives a
    choice that is dearer than the cheapest trees. ``effort``: partial choices times
    nodes for one walk. Raises :class:`EngineError` when a root cannot be computed from
    leaves.
    """
    reduction = Reduction(p, budget)
    found = whole(reduction, solve_parts(reduction.parts(), budget, effort))
    if found.proven or budget.left():
        return found
    return min(found, _pruned(p, tree_greedy(p), False), key=lambda s: s.cost)


def solve_parts(
    parts: Sequence[Subproblem], budget: Budget, effort: int = EFFORT
) -> list[tuple[Subproblem, Solution]]:
    """The parts of a reduced problem, each with its solution; as :func:`solve`."""
    nodes = sum(len(part.problem.cls) for part in parts)
    searches = [_Search(part.problem) for part in parts]
    large = nodes > LARGE
    for search in searches:
        if large:
            search.chosen.search(budget)
        else:
            search.chosen.settle(budget)
    for search in searches:
        search.walk(EXPONENTS[:1] if large else EXPONENTS, effort, budget)
    for search in searches:
        if not search.proven:
            share = len(search.p.cls) / nodes
            search.refine(LEAST + int(WINDOWS * share), budget)
    solutions = [_pruned(s.p, s.chosen.best, s.proven) for s in searches]
    return list(zip(parts, solutions, strict=True))


def whole(
    reduction: Reduction, found: Iterable[tuple[Subproblem, Solution]]
) -> Solution:
    """The solution of a problem from those of its parts."""
    nodes: list[int] = []
    proven = True
    for part, solution in found:
        proven &= solution.proven
        nodes.extend(part.origin[n] for n in solution.best if n >= 0)
    return _pruned(reduction.original, reduction.lift(nodes), proven)


class _Search:
    """The best choice so far for a reduced problem."""

    def __init__(self, p: Problem) -> None:
        self.p = p
        self.greedy = tree_greedy(p)
        self.chosen = Chosen(p, self.greedy)
        self.proven = False

    def walk(self, exponents: Sequence[float], effort: int, budget: Budget) -> None:
        """Walk with one estimate after the other, until a walk proves the choice."""
        self.proven = self.chosen.cost <= 0
        line = None
        width = min(max(effort // len(self.p.cls), NARROW), BROAD)
        for exponent in exponents:
            if self.proven:
                return
            if line is None or not line.whole:
                line = frontier(self.p, self.chosen.best)
            walk = line.walk(exponent, width, self.chosen.cost, budget)
            if walk is None:
                continue
            self.proven = walk.complete and line.whole
            if walk.nodes:
                self._try(walk.nodes, budget)

    def _try(self, nodes: Iterable[int], budget: Budget) -> None:
        best = list(self.greedy)
        for n in nodes:
            best[self.p.cls[n]] = n
        other = Chosen(self.p, best)
        if not self.proven:
            other.search(budget)
        if other.cost < self.chosen.cost:
            self.chosen = other

    def refine(self, windows: int, budget: Budget) -> None:
        self.chosen.search(budget)
        self.chosen = refine(self.chosen, windows, budget)


def _pruned(p: Problem, best: Sequence[int], proven: bool) -> Solution:
    """Only what the roots need, checked to be free of cycles."""
    kept = [-1] * len(best)
    for c in in_order(p, best):
        kept[c] = best[c]
    return Solution(kept, dag_cost(p, kept)[0], proven)
