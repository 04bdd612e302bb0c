"""Exact extraction: the optimum of the DAG cost, or how far from it a choice may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.egraph import Budget
from eqsat.search.extraction.cycles import loops
from eqsat.search.extraction.extract import (
    Solution,
    solve_parts,
    whole,
)
from eqsat.search.extraction.local_search import Chosen
from eqsat.search.extraction.presolve import Reduction
from eqsat.search.extraction.problem import Problem, in_order, tree_greedy
from eqsat.support import EngineError, OptionError

EFFORT = 200_000
"""As :data:`eqsat.search.extraction.extract.EFFORT`; walks prove most small problems by
themselves."""
PROVEN = 1e-6
"""Relative distance to the bound at which a choice counts as optimal."""
ROUNDS = 60
"""Linear programs solved to find loops."""
STALLED = 1e-4
"""Relative gain below which three such rounds in a row are enough."""
OPTIMAL, INFEASIBLE = 0, 2
"""Answers of the solvers."""
LOOPS_PART = 0.3
"""Part of the time that may go into finding loops."""


@dataclass
class OptimumProof:
    """A choice and what is known of the optimum."""

    solution: Solution
    bound: float
    """No choice is cheaper than this."""

    @property
    def gap(self) -> float:
        """Relative distance of the choice from the bound; 0 when it is optimal."""
        cost = self.solution.cost
        if self.solution.proven or cost <= 0:
            return 0.0
        return max(0.0, (cost - self.bound) / cost)


def solve_exact(p: Problem, budget: Budget) -> OptimumProof:
    """The optimum of a problem: by walks where they prove it, else by an integer
    program (HiGHS through SciPy).

    Raises :class:`EngineError` when a root cannot be computed from leaves, and
    :class:`OptionError` when SciPy is missing.
    """
    reduction = Reduction(p, budget)
    found, short = solve_parts(reduction.parts(), budget, EFFORT), 0.0
    open_ = [i for i, (_, solution) in enumerate(found) if not solution.proven]
    for turn, i in enumerate(open_):
        part, solution = found[i]
        share = budget.part(1 / (len(open_) - turn))
        solution, bound = _by_integers(part.problem, solution, share)
        short += solution.cost - bound
        found[i] = part, solution
    solution = whole(reduction, found)
    solution.proven |= short <= PROVEN * solution.cost
    if not solution.proven:
        budget.spent = budget.spent or "time"
    return OptimumProof(solution, solution.cost - short)


def _by_integers(p: Problem, start: Solution, budget: Budget) -> tuple[Solution, float]:
    """The better of ``start`` and what the integer program finds, and the bound."""
    if not budget.left():
        return start, 0.0
    program = _Program(p, start.cost, budget)
    bound = program.relax()
    found = start
    if bound < start.cost * (1 - PROVEN):
        nodes, proven = program.solve()
        bound = max(bound, proven)
        found = _bettered(p, start, nodes)
    found.proven = bound >= found.cost * (1 - PROVEN)
    return found, min(bound, found.cost)


def _bettered(p: Problem, start: Solution, nodes: Sequence[int]) -> Solution:
    """``start``, or the choice of ``nodes`` when that is cheaper."""
    best = tree_greedy(p)
    for n in nodes:
        best[p.cls[n]] = n
    try:
        in_order(p, best)
    except EngineError:  # the solver keeps rows within a tolerance only
        return start
    chosen = Chosen(p, best)
    if chosen.cost >= start.cost:
        return start
    kept = [n if refs else -1 for n, refs in zip(best, chosen.refs, strict=True)]
    return Solution(kept, chosen.cost, False)


class _Program:
    """One variable for each node, and one that orders each class that can be computed
    from itself.

    A class is taken as often as its nodes together. Rows say that it is taken where
    nodes of one class need it, all of these in one row: at most one of them is.
    """

    def __init__(self, p: Problem, most: float, budget: Budget) -> None:
        try:
            import scipy.optimize
            import scipy.sparse
        except ImportError as error:
            raise OptionError("extract='exact' needs SciPy") from error
        import numpy as np

        self.np, self.sparse, self.optimize = np, scipy.sparse, scipy.optimize
        self.p, self.most, self.budget = p, most, budget
        cyclic = [c for part in p.parts if len(part) > 1 for c in part]
        self.level = {c: len(p.cls) + i for i, c in enumerate(cyclic)}
        self.rows: list[dict[int, float]] = []
        self.least: list[float] = []
        self.price = np.zeros(len(p.cls) + len(cyclic))
        self.price[: len(p.cls)] = np.array(p.weight) / most
        self.upper = np.ones(len(self.price))
        for c, v in self.level.items():
            self.upper[v] = len(p.parts[p.part[c]]) - 1
        for r in p.roots:
            self._need(1.0, p.members[r])
        for c, members in enumerate(p.members):
            users: dict[int, list[int]] = {}
            for n in members:
                for k in p.kids[n]:
                    users.setdefault(k, []).append(n)
            for k, nodes in users.items():
                self._need(0.0, p.members[k], nodes)
                if p.part[k] == p.part[c]:
                    self._order(c, k, nodes)

    def _need(
        self, least: float, taken: Sequence[int], users: Sequence[int] = ()
    ) -> None:
        row = dict.fromkeys(taken, 1.0)
        for n in users:
            row[n] = row.get(n, 0.0) - 1.0
        self.rows.append(row)
        self.least.append(least)

    def _order(self, c: int, k: int, nodes: Sequence[int]) -> None:
        """``c`` comes after ``k`` when one of ``nodes`` is taken."""
        size = float(len(self.p.parts[self.p.part[c]]))
        self.rows.append(
            {self.level[c]: 1.0, self.level[k]: -1.0} | dict.fromkeys(nodes, -size)
        )
        self.least.append(1.0 - size)

    def _matrix(self) -> Any:
        cols = [c for row in self.rows for c in row]
        data = [v for row in self.rows for v in row.values()]
        ends = self.np.cumsum([0, *map(len, self.rows)])
        shape = (len(self.rows), len(self.price))
        return self.sparse.csr_matrix((data, cols, ends), shape=shape)

    def relax(self) -> float:
        """The bound of the linear program, tightened by loops. Rules out the nodes that
        no better choice than the known one can take."""
        loops_end = self.budget.part(LOOPS_PART)
        bound, stalled, hopeless = 0.0, 0, None
        for _ in range(ROUNDS):
            result = self.optimize.linprog(
                self.price,
                A_ub=-self._matrix(),
                b_ub=-self.np.array(self.least),
                bounds=self.np.stack([0 * self.upper, self.upper], axis=1),
                method="highs",
                options={"time_limit": self._left()},
            )
            if result.status != OPTIMAL:
                break
            stalled = stalled + 1 if result.fun < bound * (1 + STALLED) else 0
            bound = float(result.fun)
            hopeless = bound + result.lower.marginals > 1 + PROVEN
            new = loops(self.p, result.x[: len(self.p.cls)].tolist())
            for entries, members in new:
                self._need(0.0, entries, members)
            if not new or stalled == 3 or not loops_end.left():
                break
        if hopeless is not None:
            hopeless[len(self.p.cls) :] = False
            self.upper[hopeless] = 0
        return bound * self.most

    def _left(self) -> float:
        """Seconds for a solver; some, as 0 would mean none at all to it."""
        return max(0.1, self.budget.seconds)

    def solve(self) -> tuple[list[int], float]:
        """The nodes of the best choice found, and the bound; no nodes when there is
        none that is cheaper than the known one."""
        np, nodes = self.np, len(self.p.cls)
        integral = np.zeros(len(self.price))
        integral[:nodes] = 1
        result = self.optimize.milp(
            self.price,
            constraints=self.optimize.LinearConstraint(
                self._matrix(), self.least, np.inf
            ),
            bounds=self.optimize.Bounds(0 * self.upper, self.upper),
            integrality=integral,
            options={"time_limit": self._left(), "mip_rel_gap": PROVEN / 2},
        )
        if result.status == INFEASIBLE:
            return [], self.most
        bound = float(result.mip_dual_bound or 0.0) * self.most
        if result.x is None:
            return [], bound
        taken = [int(n) for n in np.flatnonzero(result.x[:nodes] > 0.5)]
        return sorted(taken, key=lambda n: -self.p.weight[n]), bound
