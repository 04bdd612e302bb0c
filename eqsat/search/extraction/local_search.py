"""Local search on a choice: exact-area recovery, as in technology mapping, and moves
that pay for a shared class or give one up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat.egraph import Budget
from eqsat.search.extraction.problem import Problem, dag_cost

GAIN = 1e-9
"""Least part of the price that counts as an improvement: less is rounding."""


class Chosen:
    """A choice under improvement. Its price never rises.

    ``best``: a node for each class, or -1; what the roots need must be whole and free
    of cycles.
    """

    def __init__(self, p: Problem, best: Sequence[int]) -> None:
        self.p = p
        self.best = list(best)
        self.refs = [0] * len(p.members)
        """How often each class is used."""
        for r in p.roots:
            self.refs[r] += 1
        self.cost, used = dag_cost(p, self.best)
        for c in used:
            for k in p.kids[self.best[c]]:
                self.refs[k] += 1
        self._above: set[int] | None = None
        self._without = -1

    def settle(self, budget: Budget) -> None:
        """Give each class the node that costs least given what all others use, until
        nothing changes or the budget ends."""
        improved = True
        while improved:
            before = self.cost
            for c in dag_cost(self.p, self.best)[1]:
                if self.refs[c] and len(self.p.members[c]) > 1:
                    if not budget.left():
                        return
                    self.cost -= self._improve(c)
            improved = self.cost < before * (1 - GAIN)
        self.cost = dag_cost(self.p, self.best)[0]

    def search(self, budget: Budget) -> None:
        """Settle, then pay for shared classes or give them up wherever that helps."""
        self.settle(budget)
        shared = [(c, users) for c, users in enumerate(self._users()) if len(users) > 1]
        idle = 0
        while idle < len(shared):
            for c, users in shared:
                if not budget.left():
                    return
                idle = 0 if self._turn(c, users) else idle + 1
                if idle >= len(shared):
                    break
        self.settle(budget)

    def _users(self) -> list[dict[int, float]]:
        """For each class those that can use it, with the least price of a node that
        does."""
        p = self.p
        found: list[dict[int, float]] = []
        for nodes in p.parents:
            users: dict[int, float] = {}
            for n in nodes:
                u = p.cls[n]
                if p.weight[n] < users.get(u, float("inf")):
                    users[u] = p.weight[n]
            found.append(users)
        return found

    def _turn(self, c: int, prices: Mapping[int, float]) -> bool:
        """Pay for the unused class ``c``, or forgo it where it is used, and improve the
        classes that could use it, at ``prices``. Whether the total fell; if not,
        nothing changes."""
        users = [u for u in prices if self.refs[u] and u != c]
        if len(users) < 2 or self.best[c] < 0:
            return False
        if not self.refs[c] and not self._promises(c, prices, users):
            return False
        refs, best = list(self.refs), list(self.best)
        forgo, saved = self.refs[c] > 0, 0.0
        if forgo:
            self._without = c
        else:
            self._above = None
            price = self._acquire(c, self.best[c])
            if price is None:
                return False
            self.refs[c] = 1
            saved = self._improve(c) - price
        for u in users:
            if self.refs[u]:
                saved += self._improve(u)
        self._without = -1
        if not forgo:
            self.refs[c] -= 1
            if not self.refs[c]:
                n = self.best[c]
                saved += self.p.weight[n] + self._release(n)
        if saved > GAIN * self.cost:
            self.cost -= saved
            return True
        self.refs, self.best = refs, best
        return False

    def _promises(
        self, c: int, prices: Mapping[int, float], users: Sequence[int]
    ) -> bool:
        """Whether users may save more by ``c`` than it costs: what they use now, and
        what they alone need for that."""
        p, best, refs = self.p, self.best, self.refs
        saved = -min(p.weight[n] for n in p.members[c])
        for u in users:
            now = p.weight[best[u]]
            for k in p.kids[best[u]]:
                if refs[k] == 1:
                    now += p.weight[best[k]]
            saved += max(0.0, now - prices[u])
        return saved > 0

    def _improve(self, c: int) -> float:
        """Give ``c`` the node that costs least; what that saves."""
        p, old = self.p, self.best[c]
        self._above = None
        before = p.weight[old] + self._release(old)
        choice, least = old, None
        for n in p.members[c]:
            if least is not None and p.weight[n] >= least:
                continue
            if self._without >= 0 and self._without in p.kids[n]:
                continue
            needed = self._acquire(c, n)
            if needed is None:
                continue
            self._release(n)
            if least is None or needed < least * (1 - 1e-12):
                choice, least = n, needed
        self._acquire(c, choice)
        self.best[c] = choice
        return 0.0 if least is None else before - least

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
        """Reference the needs of node ``n`` of class ``c``; what they cost with ``n``,
        or None (and nothing changed) when they need ``c`` itself."""
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
        """Whether ``k`` is ``c`` or, being used, is computed from it. Only what is
        strongly connected to ``c`` can be."""
        if self._above is None:
            self._above = {c}
            p, part, mine = self.p, self.p.part, self.p.part[c]
            stack = [c]
            while stack:
                for user in p.parents[stack.pop()]:
                    above = p.cls[user]
                    chosen = self.refs[above] and self.best[above] == user
                    if chosen and part[above] == mine and above not in self._above:
                        self._above.add(above)
                        stack.append(above)
        return k in self._above
