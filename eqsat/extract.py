"""Extraction: the cheapest program in an e-graph, shared values paid once.

The objective is DAG cost. Tree-greedy (Knuth 1977) gives a start, exact-area recovery
improves one class at a time, and then groups of classes are priced as already paid and
the greedy choice repeated, which finds merges that pay only when all their users take
part (Q, K and V as one product). An integer program is the exact alternative for small
graphs.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import chain, combinations

from eqsat.errors import EngineError
from eqsat.frozen import Budget, EGraph

SUNK = 1e-6
"""Factor on the price of a class that is taken to be paid already."""
CANDIDATES = 12
"""Groups of classes that the local search tries after each improvement."""
PROMISE = 0.4
"""Part of its cost that a group must save at once to be tried: the rest may come from
fusions that it makes possible (gate and up as one product, then ``gated``)."""
MOST_TRIES = 96
"""Greedy choices that the local search makes in all."""


@dataclass
class Choice:
    """One e-node for each class that the roots need."""

    nodes: dict[int, int]
    """Class to index into ``EGraph.nodes``."""
    cost_s: float
    gap: float | None = None
    """Exact mode: relative distance to the proven bound."""


@dataclass
class Problem:
    """The part of an e-graph below some roots, in dense numbers and without dominated
    nodes."""

    roots: list[int]
    classes: list[int]
    """The e-graph's number of each class."""
    cls: list[int]
    """Class of each node."""
    kids: list[tuple[int, ...]]
    """Distinct classes below each node."""
    weight: list[float]
    origin: list[int]
    """Index of each node in the e-graph."""
    members: list[list[int]]
    """Nodes of each class."""
    parents: list[list[int]]
    """Nodes that use each class."""

    @classmethod
    def of(cls, count, node_cls, kids, weight, roots):
        p = cls(
            list(roots),
            list(range(count)),
            list(node_cls),
            list(kids),
            list(weight),
            list(range(len(node_cls))),
            [[] for _ in range(count)],
            [[] for _ in range(count)],
        )
        for n, c in enumerate(p.cls):
            p.members[c].append(n)
            for k in p.kids[n]:
                p.parents[k].append(n)
        return p


def extract(
    graph: EGraph, weights: Sequence[float], roots: Sequence[int], budget: Budget
) -> Choice:
    """The cheapest choice found for ``roots``. ``weights``: seconds of each e-node as a
    kernel.

    Deterministic; stops improving when the budget ends. Raises :class:`EngineError`
    when a root cannot be computed from leaves.
    """
    problem = dense_problem(graph, weights, roots)
    cost, best = _recovered(problem, _tree_greedy(problem, problem.weight), budget)
    cost, best = _sunk_search(problem, best, cost, budget)
    return as_choice(problem, best, cost)


def solve(problem, budget):
    cost, best = _recovered(problem, _tree_greedy(problem, problem.weight), budget)
    cost, best = _sunk_search(problem, best, cost, budget)
    return best, cost


def dense_problem(
    graph: EGraph, weights: Sequence[float], roots: Sequence[int]
) -> Problem:
    number: dict[int, int] = {}
    stack = list(reversed(roots))
    while stack:
        c = stack.pop()
        if c in number:
            continue
        number[c] = len(number)
        for i in graph.classes[c]:
            stack.extend(k for k in graph.nodes[i].children if k not in number)
    p = Problem(
        roots=[number[r] for r in roots],
        classes=list(number),
        cls=[],
        kids=[],
        weight=[],
        origin=[],
        members=[[] for _ in number],
        parents=[[] for _ in number],
    )
    for c, dense in number.items():
        for i, kids in _undominated(graph, weights, c):
            n = len(p.cls)
            p.cls.append(dense)
            p.kids.append(tuple(number[k] for k in kids))
            p.weight.append(weights[i])
            p.origin.append(i)
            p.members[dense].append(n)
            for k in kids:
                p.parents[number[k]].append(n)
    return p


def _undominated(
    graph: EGraph, weights: Sequence[float], c: int
) -> list[tuple[int, list[int]]]:
    """Nodes of a class that no other node beats with fewer needs at no higher price."""
    entries = []
    for i in graph.classes[c]:
        kids = list(dict.fromkeys(graph.nodes[i].children))
        if c not in kids:
            entries.append((weights[i], len(kids), i, kids))
    entries.sort(key=lambda e: e[:3])
    kept: list[tuple[int, list[int]]] = []
    sets: set[frozenset[int]] = set()
    for _, _, i, kids in entries:
        if not _has_subset(sets, kids):
            kept.append((i, kids))
            sets.add(frozenset(kids))
    return kept


def _has_subset(sets: set[frozenset[int]], of: Sequence[int]) -> bool:
    """Whether one of ``sets`` lies within ``of``; looks in the cheaper of two ways."""
    if len(sets) <= 1 << len(of):
        whole = frozenset(of)
        return any(s <= whole for s in sets)
    parts = (combinations(of, n) for n in range(len(of) + 1))
    return any(frozenset(part) in sets for part in chain.from_iterable(parts))


def _tree_greedy(p: Problem, weight: Sequence[float]) -> list[int]:
    """The cheapest tree for every class; -1 where there is none. Acyclic by
    construction."""
    missing = [len(k) for k in p.kids]
    total = list(weight)
    best = [-1] * len(p.members)
    heap = [(total[n], n) for n, m in enumerate(missing) if m == 0]
    heapq.heapify(heap)
    while heap:
        cost, n = heapq.heappop(heap)
        c = p.cls[n]
        if best[c] >= 0:
            continue
        best[c] = n
        for user in p.parents[c]:
            total[user] += cost
            missing[user] -= 1
            if missing[user] == 0:
                heapq.heappush(heap, (total[user], user))
    return best


def dag_cost(p: Problem, best: Sequence[int]) -> tuple[float, list[int]]:
    """Price of a choice, and the classes it uses."""
    seen = [False] * len(best)
    stack = list(p.roots)
    used = []
    cost = 0.0
    while stack:
        c = stack.pop()
        if seen[c]:
            continue
        seen[c] = True
        used.append(c)
        n = best[c]
        if n < 0:
            raise EngineError(
                "a class that the program needs cannot be computed from its leaves"
            )
        cost += p.weight[n]
        stack.extend(p.kids[n])
    return cost, used


def _sunk_search(
    p: Problem, best: list[int], cost: float, budget: Budget
) -> tuple[float, list[int]]:
    """Pretend that a class is paid, choose greedily again, keep what lowers the DAG
    cost.

    Candidates come in the order of what they promise: a class that several chosen ones
    could use saves the sum of what they now cost. Taking the first that helps, in order
    of price, merged two of Q, K and V and then could not merge three.
    """
    paid: set[int] = set()
    tried: set[frozenset[int]] = set()
    tries = 0
    improved = True
    while improved:
        improved = False
        for group, switches in _promising(p, best):
            switched = _switched(p, best, switches, budget)
            if switched is not None and switched[0] < cost * (1 - 1e-9):
                (cost, best), improved = switched, True
                paid = (paid | group) & set(dag_cost(p, best)[1])
                break
            trial_paid = paid | group
            key = frozenset(trial_paid)
            if key in tried:
                continue
            if tries >= MOST_TRIES or not budget.left():
                break
            tried.add(key)
            tries += 1
            trial_cost, trial = _recovered(
                p, _tree_greedy(p, _sunk(p, trial_paid)), budget
            )
            if trial_cost < cost * (1 - 1e-9):
                cost, best, improved = trial_cost, trial, True
                paid = trial_paid & set(dag_cost(p, trial)[1])
                break
    return cost, best


def _switched(
    p: Problem, best: Sequence[int], switches: dict[int, int], budget: Budget
) -> tuple[float, list[int]] | None:
    """The choice with some classes on other nodes, recovered; None when that is cyclic.

    All else stays as it was: choosing greedily anew can lose elsewhere what it gains
    here, as it did for the second of two blocks.
    """
    trial = list(best)
    for c, n in switches.items():
        trial[c] = n
    try:
        in_order(p, trial)
    except EngineError:
        return None
    return _recovered(p, trial, budget)


def _recovered(p: Problem, best: list[int], budget: Budget) -> tuple[float, list[int]]:
    """Exact-area recovery (as in technology mapping): give each class the node that
    costs least given what all others use, until nothing changes. The DAG cost never
    rises.
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
    """A choice under improvement: how often each class is used, and in which order the
    used ones can be computed."""

    def __init__(self, p: Problem, best: list[int]) -> None:
        self.p = p
        self.best = best
        self.refs = [0] * len(p.members)
        for r in p.roots:
            self.refs[r] += 1
        for c in dag_cost(p, best)[1]:
            for k in p.kids[best[c]]:
                self.refs[k] += 1
        self._rank: list[int] = []
        self._above: set[int] | None = None

    def improve(self, c: int) -> bool:
        """Give ``c`` the node that costs least; whether that saved anything."""
        p, old = self.p, self.best[c]
        self._above = None
        freed = p.weight[old] + self._release(old)
        choice, least = old, None
        for n in p.members[c]:
            needed = self._acquire(c, n)
            if needed is None:
                continue
            self._release(n)
            if least is None or needed < least * (1 - 1e-12):
                choice, least = n, needed
        assert least is not None
        self._acquire(c, choice)
        if choice != old:
            self.best[c] = choice
            self._rank = []
        return least < freed * (1 - 1e-9)

    def _release(self, n: int) -> float:
        """Take back the references of node ``n``; the cost that nothing else needs."""
        p, freed = self.p, 0.0
        stack = list(p.kids[n])
        while stack:
            k = stack.pop()
            self.refs[k] -= 1
            if self.refs[k] == 0:
                freed += p.weight[self.best[k]]
                stack.extend(p.kids[self.best[k]])
        return freed

    def _acquire(self, c: int, n: int) -> float | None:
        """Reference the needs of node ``n`` of class ``c``; what they cost, or None
        (and nothing changed) when they need ``c`` itself."""
        p, best, refs = self.p, self.best, self.refs
        needed = p.weight[n]
        taken: list[int] = []
        stack = list(p.kids[n])
        while stack:
            k = stack.pop()
            if best[k] < 0 or (refs[k] and self._needs(k, c)):
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
        """Whether the used class ``k`` is computed from ``c``, or is ``c``."""
        if not self._rank:
            self._rank = [0] * len(self.best)
            for i, used in enumerate(in_order(self.p, self.best)):
                self._rank[used] = i
        if self._rank[k] < self._rank[c]:
            return False
        if self._above is None:
            self._above = {c}
            stack = [c]
            while stack:
                for user in self.p.parents[stack.pop()]:
                    above = self.p.cls[user]
                    chosen = self.refs[above] and self.best[above] == user
                    if chosen and above not in self._above:
                        self._above.add(above)
                        stack.append(above)
        return k in self._above


def in_order(p: Problem, best: Sequence[int]) -> list[int]:
    """The classes that a choice uses, each after those it needs.

    Raises :class:`EngineError` when a class needs itself, or has no node.
    """
    dag_cost(p, best)
    done: list[int] = []
    state = [0] * len(best)
    for root in p.roots:
        stack = [root]
        while stack:
            c = stack[-1]
            if state[c] == 0:
                state[c] = 1
                for k in p.kids[best[c]]:
                    if state[k] == 1:
                        raise EngineError("a chosen class needs its own value")
                    if state[k] == 0:
                        stack.append(k)
            else:
                stack.pop()
                if state[c] == 1:
                    state[c] = 2
                    done.append(c)
    return done


def _sunk(p: Problem, paid: set[int]) -> list[float]:
    weight = list(p.weight)
    for c in paid:
        for n in p.members[c]:
            weight[n] *= SUNK
    return weight


def _promising(
    p: Problem, best: Sequence[int]
) -> list[tuple[set[int], dict[int, int]]]:
    """Groups of classes that would save much if they were paid, the best first, each
    with the nodes by which the chosen classes would use it."""
    _, chosen = dag_cost(p, best)
    used = set(chosen)
    savings: dict[frozenset[int], float] = {}
    switches: dict[frozenset[int], dict[int, int]] = {}
    for k in chosen:
        now = p.weight[best[k]]
        mine: dict[frozenset[int], float] = {}
        for n in p.members[k]:
            saved = now - p.weight[n]
            if n != best[k] and saved > 0:
                missing = frozenset(c for c in p.kids[n] if c not in used)
                group = missing or frozenset(p.kids[n])
                if saved > mine.get(group, 0.0):
                    mine[group] = saved
                    switches.setdefault(group, {})[k] = n
        for group, saved in mine.items():
            savings[group] = savings.get(group, 0.0) + saved
    net = []
    for group, saved in savings.items():
        cost = 0.0
        picks: dict[int, int] = {}
        for c in group:
            extra, more = _cheapest(p, best, used, c, 2)
            cost += extra
            picks |= more
        if saved > PROMISE * cost:
            moves = picks | switches[group]
            net.append((cost - saved, sorted(group | picks.keys()), moves))
    net.sort(key=lambda entry: entry[:2])
    return [(set(group), moves) for _, group, moves in net[:CANDIDATES]]


def _unused(
    p: Problem, best: Sequence[int], used: Set[int], group: Set[int]
) -> set[int]:
    """The classes that a group needs and that nothing has needed so far."""
    found: set[int] = set()
    stack = list(group)
    while stack:
        c = stack.pop()
        if c not in used and c not in found and best[c] >= 0:
            found.add(c)
            stack.extend(p.kids[best[c]])
    return found


def _cheapest(
    p: Problem, best: Sequence[int], used: Set[int], c: int, depth: int
) -> tuple[float, dict[int, int]]:
    """What ``c`` would cost beside the ``used`` classes, and the nodes that do it.

    The choice that a greedy pass made for a class that nothing uses yet says little: it
    may compute again what is at hand.
    """
    if c in used:
        return 0.0, {}
    if depth == 0:
        return sum(p.weight[best[k]] for k in _unused(p, best, used, {c})), {}
    least, picks = float("inf"), {}
    for n in p.members[c]:
        cost, mine = p.weight[n], {c: n}
        for k in p.kids[n]:
            if cost < least and k not in mine:
                extra, more = _cheapest(p, best, used, k, depth - 1)
                cost += extra
                mine |= more
        if cost < least:
            least, picks = cost, mine
    return least, picks


def as_choice(p: Problem, best: Sequence[int], cost: float) -> Choice:
    """The choice in the e-graph's numbers, checked to be free of cycles."""
    used = in_order(p, best)
    return Choice({p.classes[c]: p.origin[best[c]] for c in used}, cost)
