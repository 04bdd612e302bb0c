"""Exact-area recovery, as in technology mapping: each class takes the node that costs
least given what all others use, until nothing changes."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.frozen import Budget
from eqsat.problem import Problem, dag_cost


def recover(
    p: Problem, best: Sequence[int], budget: Budget
) -> tuple[float, list[int]]:
    """A choice that changing any one class cannot better, and its price.

    ``best``: a node for each class, free of cycles where the roots lead. The price
    never rises; stops when the budget ends.
    """
    state = _Recovery(p, list(best))
    improved = True
    while improved:
        improved = False
        for c in dag_cost(p, state.best)[1]:
            if state.refs[c] and len(p.members[c]) > 1 and budget.left():
                improved |= state.improve(c)
    return dag_cost(p, state.best)[0], state.best


class _Recovery:
    """A choice under improvement, and how often it uses each class."""

    def __init__(self, p: Problem, best: list[int]) -> None:
        self.p = p
        self.best = best
        self.refs = [0] * len(p.members)
        for r in p.roots:
            self.refs[r] += 1
        for c in dag_cost(p, best)[1]:
            for k in p.kids[best[c]]:
                self.refs[k] += 1
        self._above: set[int] | None = None

    def improve(self, c: int) -> bool:
        """Give ``c`` the node that costs least; whether that saved anything."""
        p, old = self.p, self.best[c]
        self._above = None
        before = p.weight[old] + self._release(old)
        choice, least = old, None
        for n in p.members[c]:
            if least is not None and p.weight[n] >= least:
                continue
            needed = self._acquire(c, n)
            if needed is None:
                continue
            self._release(n)
            if least is None or needed < least * (1 - 1e-12):
                choice, least = n, needed
        assert least is not None
        self._acquire(c, choice)
        self.best[c] = choice
        return least < before * (1 - 1e-9)

    def _release(self, n: int) -> float:
        """Take back the references of node ``n``; the cost that nothing else needs."""
        p, refs, freed = self.p, self.refs, 0.0
        stack = list(p.kids[n])
        while stack:
            k = stack.pop()
            refs[k] -= 1
            if refs[k] == 0:
                freed += p.weight[self.best[k]]
                stack.extend(p.kids[self.best[k]])
        return freed

    def _acquire(self, c: int, n: int) -> float | None:
        """Reference the needs of node ``n`` of class ``c``; what they cost, or None
        (and nothing changed) when they need ``c`` itself."""
        p, best, refs = self.p, self.best, self.refs
        part, mine = p.part, p.part[c]
        needed = p.weight[n]
        taken: list[int] = []
        stack = list(p.kids[n])
        while stack:
            k = stack.pop()
            if best[k] < 0 or (part[k] == mine and self._needs(k, c)):
                for t in taken:
                    refs[t] -= 1
                return None
            refs[k] += 1
            taken.append(k)
            if refs[k] == 1:
                needed += p.weight[best[k]]
                stack.extend(p.kids[best[k]])
        return needed

    def _needs(self, k: int, c: int) -> bool:
        """Whether the class ``k`` is ``c`` or, being used, is computed from it. Only
        what is strongly connected to ``c`` can be."""
        if self._above is None:
            self._above = {c}
            part, mine = self.p.part, self.p.part[c]
            stack = [c]
            while stack:
                for user in self.p.parents[stack.pop()]:
                    above = self.p.cls[user]
                    if (
                        part[above] == mine
                        and self.refs[above]
                        and self.best[above] == user
                        and above not in self._above
                    ):
                        self._above.add(above)
                        stack.append(above)
        return k in self._above
