"""Extraction that must use one e-node: what a program with it would cost."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from eqsat.egraph import Budget, EGraph
from eqsat.search.extraction import Cover
from eqsat.support import EngineError

USED = 1e-3
"""What a value of the chosen program counts for on the way to a forced e-node: it is
there already."""


class Forcing:
    """The covers of ``roots`` that use a given e-node, beside that of the e-nodes
    ``chosen``."""

    def __init__(
        self,
        graph: EGraph,
        weights: Sequence[float],
        roots: Sequence[int],
        chosen: Iterable[int],
        cover: Callable[[EGraph, Sequence[int], Budget], Cover],
    ) -> None:
        self.graph, self.weights, self.roots = graph, weights, roots
        self.cover = cover
        cheap = list(weights)
        for i in chosen:
            cheap[i] *= USED
        self._views = [
            (prices, _Below.of(graph, prices, roots)) for prices in (cheap, weights)
        ]

    def promise(self, node: int) -> float | None:
        """About what a program with ``node`` adds to the chosen one (s); None where no
        program can use it."""
        prices, below = self._views[0]
        way = _way(below, prices, self.roots, node)
        return None if way is None else way[0]

    def choice(self, node: int, budget: Budget) -> Cover | None:
        """The cheapest choice found that uses ``node``; None where none can.

        The classes on a cheapest way from a root down to the node keep one e-node each,
        so that every choice for that e-graph uses it; then extraction chooses the rest
        as it always does. Two ways are tried: by what has to be added to the chosen
        program, and by the cost of trees.
        """
        best: Cover | None = None
        for prices, below in self._views:
            way = _way(below, prices, self.roots, node)
            if way is None:
                return None
            classes = list(self.graph.classes)
            for cls, i in way[1].items():
                classes[cls] = [i]
            only = replace(self.graph, classes=classes)
            try:
                found = self.cover(only, self.roots, budget)
            except EngineError:  # what is left cannot be computed without a cycle
                continue
            if best is None or found.cost_s < best.cost_s:
                best = found
        return best


@dataclass
class _Below:
    """The classes below some roots."""

    graph: EGraph
    users: dict[int, list[int]]
    """E-nodes that use a class."""
    tree: dict[int, float]
    """The cost of the cheapest tree of a class."""

    @classmethod
    def of(cls, graph: EGraph, prices: Sequence[float], roots: Sequence[int]) -> _Below:
        users: dict[int, list[int]] = {}
        stack = list(roots)
        while stack:
            c = stack.pop()
            if c in users:
                continue
            users[c] = []
            for i in graph.classes[c]:
                stack.extend(graph.nodes[i].children)
        for c in users:
            for i in graph.classes[c]:
                for k in dict.fromkeys(graph.nodes[i].children):
                    users[k].append(i)
        return cls(graph, users, _trees(graph, prices, users))


def _trees(
    graph: EGraph, prices: Sequence[float], users: dict[int, list[int]]
) -> dict[int, float]:
    """Knuth's generalisation of Dijkstra's algorithm, over the classes of ``users``."""
    missing = {
        i: len(set(graph.nodes[i].children)) for c in users for i in graph.classes[c]
    }
    total = {i: prices[i] for i in missing}
    heap = [(total[i], i) for i, n in missing.items() if n == 0]
    heapq.heapify(heap)
    tree: dict[int, float] = {}
    while heap:
        cost, i = heapq.heappop(heap)
        cls = graph.nodes[i].cls
        if cls in tree:
            continue
        tree[cls] = cost
        for user in users[cls]:
            total[user] += cost
            missing[user] -= 1
            if missing[user] == 0:
                heapq.heappush(heap, (total[user], user))
    return tree


def _way(
    below: _Below, prices: Sequence[float], roots: Sequence[int], node: int
) -> tuple[float, dict[int, int]] | None:
    """The cost of the cheapest tree of a root that uses ``node``, and the e-node of
    each class on the way from that root down to it."""
    graph, tree = below.graph, below.tree
    start = graph.nodes[node].cls
    if start not in below.users or any(
        k not in tree for k in graph.nodes[node].children
    ):
        return None
    first = prices[node] + sum(tree[k] for k in set(graph.nodes[node].children))
    heap = [(first, start, node, -1)]
    came: dict[int, tuple[int, int]] = {}
    while heap:
        cost, cls, i, from_ = heapq.heappop(heap)
        if cls in came:
            continue
        came[cls] = (i, from_)
        if cls in roots:
            return cost, _traced(came, cls)
        for user in below.users[cls]:
            kids = set(graph.nodes[user].children)
            if all(k in tree for k in kids):
                rest = sum(tree[k] for k in kids if k != cls)
                above = (cost + prices[user] + rest, graph.nodes[user].cls, user, cls)
                heapq.heappush(heap, above)
    return None


def _traced(came: dict[int, tuple[int, int]], cls: int) -> dict[int, int]:
    way = {}
    while cls >= 0:
        way[cls], cls = came[cls]
    return way
