"""The extraction problem: one e-node for each e-class that the roots need, shared
classes paid once, no class computed from itself."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eqsat.support import EngineError, cached_property, counted

NO_LEAVES = "a class that the program needs cannot be computed from its leaves"


class ProblemNode(NamedTuple):
    """One e-node of a problem."""

    cls: int
    kids: Sequence[int]
    """Classes that it needs, in any order, also several times."""
    weight: float
    """Its price, finite and not negative."""


@dataclass
class Problem:
    """An e-graph as extraction sees it: classes and nodes are dense numbers."""

    roots: list[int]
    members: list[list[int]]
    """Nodes of each class."""
    cls: list[int]
    """Class of each node."""
    kids: list[tuple[int, ...]]
    """Distinct classes that each node needs."""
    weight: list[float]
    """Price of each node."""

    @classmethod
    def of(
        cls, classes: int, nodes: Iterable[ProblemNode], roots: Sequence[int]
    ) -> Problem:
        """A problem of ``classes`` classes. Cycles and classes without nodes are
        allowed.

        Raises :class:`EngineError` when a class is out of range, or a weight negative
        or not finite.
        """
        p = cls([], [[] for _ in range(classes)], [], [], [])
        for i, (c, kids, weight) in enumerate(nodes):
            for k in (c, *kids):
                if not 0 <= k < classes:
                    raise EngineError(
                        f"node {i}: class {k} of {counted(classes, 'class')}"
                    )
            if not 0 <= weight < float("inf"):
                raise EngineError(
                    f"node {i}: a weight of {weight:g}, expected 0 or more, finite"
                )
            p.add(c, tuple(dict.fromkeys(kids)), weight)
        for r in roots:
            if not 0 <= r < classes:
                raise EngineError(f"root {r} of {counted(classes, 'class')}")
        p.roots = list(dict.fromkeys(roots))
        return p

    def add(self, c: int, kids: tuple[int, ...], weight: float) -> None:
        """Add a node to class ``c``; ``kids`` are distinct."""
        self.members[c].append(len(self.cls))
        self.cls.append(c)
        self.kids.append(kids)
        self.weight.append(weight)

    @cached_property
    def parents(self) -> list[list[int]]:
        """Nodes that use each class."""
        found: list[list[int]] = [[] for _ in self.members]
        for n, kids in enumerate(self.kids):
            for k in kids:
                found[k].append(n)
        return found

    @cached_property
    def below(self) -> list[set[int]]:
        """Classes that some node of each class needs."""
        return [set().union(*[self.kids[n] for n in m]) for m in self.members]

    def needs_within(
        self, part: Sequence[int]
    ) -> tuple[dict[int, int], dict[int, list[int]]]:
        """How many classes of ``part`` each node of its classes needs, and the nodes
        that need each class."""
        inside = set(part)
        needs: dict[int, int] = {}
        users: dict[int, list[int]] = {c: [] for c in part}
        for c in part:
            for n in self.members[c]:
                needed = [k for k in self.kids[n] if k in inside]
                needs[n] = len(needed)
                for k in needed:
                    users[k].append(n)
        return needs, users

    @cached_property
    def parts(self) -> list[list[int]]:
        """Strongly connected components of the classes, each after those below it."""
        return components(self.below)

    @cached_property
    def part(self) -> list[int]:
        """Place of each class in ``parts``."""
        found = [0] * len(self.members)
        for i, part in enumerate(self.parts):
            for c in part:
                found[c] = i
        return found


def tree_greedy(p: Problem) -> list[int]:
    """The node of the cheapest tree for every class; -1 where there is none. Acyclic by
    construction (Knuth 1977)."""
    cls, parents = p.cls, p.parents
    missing = [len(k) for k in p.kids]
    total = list(p.weight)
    best = [-1] * len(p.members)
    heap = [(total[n], n) for n, m in enumerate(missing) if m == 0]
    heapq.heapify(heap)
    pop, push = heapq.heappop, heapq.heappush
    while heap:
        cost, n = pop(heap)
        c = cls[n]
        if best[c] >= 0:
            continue
        best[c] = n
        for user in parents[c]:
            total[user] += cost
            missing[user] -= 1
            if missing[user] == 0 and best[cls[user]] < 0:
                push(heap, (total[user], user))
    return best


def dag_cost(p: Problem, best: Sequence[int]) -> tuple[float, list[int]]:
    """Price of a choice, and the classes it uses.

    Raises :class:`EngineError` when a class that is needed has no node.
    """
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
            raise EngineError(NO_LEAVES)
        cost += p.weight[n]
        stack.extend(p.kids[n])
    return cost, used


def in_order(p: Problem, best: Sequence[int]) -> list[int]:
    """The classes that a choice uses, each after those it needs.

    Raises :class:`EngineError` when a class needs itself, or has no node.
    """
    done: list[int] = []
    state = [0] * len(best)
    for root in p.roots:
        stack = [root]
        while stack:
            c = stack[-1]
            if state[c] == 0:
                state[c] = 1
                if best[c] < 0:
                    raise EngineError(NO_LEAVES)
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


def components(below: Sequence[Collection[int]]) -> list[list[int]]:
    """The strongly connected components of a graph, each after those that it leads to
    (Tarjan 1972). ``below``: the vertices that each vertex leads to."""
    closed = len(below)
    index = [-1] * len(below)
    low = [0] * len(below)
    found: list[list[int]] = []
    held: list[int] = []
    clock = 0
    for start in range(len(below)):
        if index[start] >= 0:
            continue
        path = [(start, iter(below[start]))]
        index[start] = low[start] = clock
        clock += 1
        held.append(start)
        while path:
            v, rest = path[-1]
            for w in rest:
                if index[w] < 0:
                    index[w] = low[w] = clock
                    clock += 1
                    held.append(w)
                    path.append((w, iter(below[w])))
                    break
                if index[w] < low[v]:
                    low[v] = index[w]
            else:
                path.pop()
                if path and low[v] < low[path[-1][0]]:
                    low[path[-1][0]] = low[v]
                if low[v] == index[v]:
                    part = [held.pop()]
                    while part[-1] != v:
                        part.append(held.pop())
                    for w in part:
                        index[w] = closed
                    found.append(part)
    return found
