"""Windows: a few neighbouring classes chosen anew, optimally or nearly, while all
others keep their nodes."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.egraph import Budget
from eqsat.search.extraction.frontier import frontier, ranks
from eqsat.search.extraction.local_search import GAIN, Chosen
from eqsat.search.extraction.presolve import Reduction
from eqsat.search.extraction.problem import Problem, tree_greedy

SIZE = 20
"""Classes of a window."""
WIDTH = 16
"""Partial choices that the walk within a window keeps for each class."""


def refine(chosen: Chosen, most: int, budget: Budget) -> Chosen:
    """A choice that no window betters, or what was found after ``most`` windows or when
    the budget ended."""
    p = chosen.p
    rank = ranks(p, chosen.best)
    near = _neighbours(p)
    looked, improved = 0, True
    while improved:
        improved = False
        seen: set[int] = set()
        for seed in [c for c in range(len(p.members)) if chosen.refs[c]]:
            if seed in seen or not chosen.refs[seed]:
                continue
            if looked == most or not budget.left():
                return chosen
            looked += 1
            window = _around(near, seed)
            seen.update(window[: SIZE // 3])
            found = _Window(chosen, rank, window).solve(budget)
            if found:
                improved = True
                for n in found:
                    chosen.best[p.cls[n]] = n
                chosen = Chosen(p, chosen.best)
                rank = ranks(p, chosen.best)
    return chosen


def _neighbours(p: Problem) -> list[list[int]]:
    near = [set(below) for below in p.below]
    for c, below in enumerate(p.below):
        for k in below:
            near[k].add(c)
    return [sorted(found) for found in near]


def _around(near: Sequence[Sequence[int]], seed: int) -> list[int]:
    """The classes next to ``seed``, the nearest first."""
    found = {seed: None}
    for c in (order := [seed]):
        for k in near[c]:
            if k not in found:
                if len(order) == SIZE:
                    return order
                found[k] = None
                order.append(k)
    return order


class _Window:
    """The problem of choosing anew for some classes."""

    def __init__(
        self, chosen: Chosen, rank: Sequence[int], window: Sequence[int]
    ) -> None:
        self.chosen, self.p, self.rank = chosen, chosen.p, rank
        self.window = set(window)
        self.inner: set[int] = set()
        """Classes that nothing needs but what lies in the window."""
        self.roots = self._demanded()

    def _demanded(self) -> list[int]:
        """The classes of the window that others need."""
        p, best, refs = self.p, self.chosen.best, self.chosen.refs
        inside = [c for c in self.window if refs[c]]
        taken: dict[int, int] = {}
        for c in (todo := list(inside)):
            for k in p.kids[best[c]]:
                taken[k] = taken.get(k, 0) + 1
                if taken[k] == refs[k] and k not in self.window:
                    self.inner.add(k)
                    todo.append(k)
        return sorted(c for c in inside if refs[c] > taken.get(c, 0))

    def solve(self, budget: Budget) -> list[int]:
        """Better nodes for the classes, or none."""
        best, weight = self.chosen.best, self.p.weight
        inside = [c for c in self.window if self.chosen.refs[c]]
        now = sum(weight[best[c]] for c in (*inside, *self.inner))
        q, origin = self._problem()
        reduction = Reduction(q, budget)
        nodes: list[int] = []
        for part, numbers in reduction.parts():
            walk = frontier(part, tree_greedy(part)).walk(0.5, WIDTH, now, budget)
            if walk is None or not walk.nodes:
                return []
            nodes.extend(numbers[n] for n in walk.nodes)
        found = Chosen(q, reduction.lift(nodes))
        if found.cost >= now * (1 - GAIN):
            return []
        return [origin[found.best[c]] for c, n in enumerate(found.refs) if n]

    def _problem(self) -> tuple[Problem, list[int]]:
        """The problem, and the original of each node. A class outside the window keeps
        its node; one that others need is there and costs nothing. Needs go down in
        rank, so that no cycle can close through what lies outside."""
        p, best, refs = self.p, self.chosen.best, self.chosen.refs
        number = {c: i for i, c in enumerate(self.roots)}
        q = Problem(list(range(len(number))), [[] for _ in number], [], [], [])
        origin = []
        for c in (todo := list(self.roots)):
            for n in p.members[c] if c in self.window else [best[c]]:
                kids = []
                for k in p.kids[n]:
                    if self.rank[k] >= self.rank[c]:
                        break
                    if k in self.window or k in self.inner:
                        kids.append(k)
                    elif not refs[k]:
                        break
                else:
                    for k in kids:
                        if k not in number:
                            number[k] = len(number)
                            q.members.append([])
                            todo.append(k)
                    q.add(number[c], tuple(number[k] for k in kids), p.weight[n])
                    origin.append(n)
        return q, origin
