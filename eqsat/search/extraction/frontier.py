"""Extraction as a walk over the classes, users first: which classes are demanded and
not yet computed is all that a partial choice leaves to later classes.

Partial choices with the same demand compete and the cheapest goes on, so that the walk
is exact as long as it has room for every demand; beyond that it keeps those that an
estimate of what is left to pay likes best (a beam). Demands are bit masks.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from eqsat.egraph import Budget
from eqsat.search.extraction.problem import Problem, in_order
from eqsat.support import cached_property

State = tuple[float, float, Any, int]
"""A partial choice: what is paid, the estimate of what is left to pay, the state that
it goes on from, and the node that was chosen then."""
Bucket = dict[int, State]
"""The cheapest partial choice for each demand."""

LOOK = 16
"""Kept partial choices that a further one is compared with."""


class Walk(NamedTuple):
    """What a walk found."""

    cost: float
    nodes: list[int]
    """The chosen nodes."""
    complete: bool
    """Whether no partial choice was dropped for room."""


@dataclass
class Frontier:
    """The classes of a problem, users first, and the nodes that go with that order."""

    p: Problem
    order: list[int]
    allowed: list[list[int]]
    """Nodes of each class whose needs come later."""

    @property
    def whole(self) -> bool:
        """Whether every node goes with the order: there are no cycles."""
        return sum(map(len, self.allowed)) == len(self.p.cls)

    @cached_property
    def place(self) -> list[int]:
        place = [0] * len(self.order)
        for i, c in enumerate(self.order):
            place[c] = i
        return place

    @cached_property
    def steps(self) -> list[list[tuple[float, int, list[int], int]]]:
        """For each place: weight, demand (mask), demand (places) and number of the
        nodes, the cheapest first."""
        steps = []
        for c in self.order:
            nodes = []
            for n in self.allowed[c]:
                places = [self.place[k] for k in self.p.kids[n]]
                mask = 0
                for i in places:
                    mask |= 1 << i
                nodes.append((self.p.weight[n], mask, places, n))
            nodes.sort()
            steps.append(nodes)
        return steps

    def flow(self, exponent: float) -> list[float]:
        """Area flow: an estimate of what each place still costs when it is demanded,
        the price of a class divided among its ``users ** exponent`` takers."""
        users = [0] * len(self.order)
        for nodes in self.steps:
            for i in set().union(*[places for _, _, places, _ in nodes]):
                users[i] += 1
        flow = [0.0] * len(self.order)
        for i in range(len(flow) - 1, -1, -1):
            least = min(
                weight + sum([flow[k] for k in places])
                for weight, _, places, _ in self.steps[i]
            )
            flow[i] = least / users[i] ** exponent if users[i] > 1 else least
        return flow

    @cached_property
    def alone(self) -> list[float]:
        """What each place costs at most when nothing is shared."""
        return self.flow(0.0)

    def walk(
        self, exponent: float, width: int, below: float, budget: Budget
    ) -> Walk | None:
        """The cheapest choice found under the price ``below``; with no nodes when there
        is none, and None when that is open or the budget ended.

        ``exponent``: see :meth:`flow`. ``width``: partial choices kept for each class.
        """
        flow = self.flow(exponent)
        buckets: list[Bucket] = [{} for _ in range(len(self.order) + 1)]
        start = 0
        for r in self.p.roots:
            start |= 1 << self.place[r]
        buckets[(start & -start).bit_length() - 1][start] = (0.0, 0.0, None, -1)
        complete = True
        for i in range(len(self.order)):
            if not buckets[i]:
                continue
            if not budget.left():
                return None
            states = list(buckets[i].items())
            buckets[i] = {}
            if len(states) > width:
                states, dropped = self._kept(states, width)
                complete &= not dropped
            self._spread(i, states, buckets, flow, below)
        end = buckets[-1].get(0)
        if end is None:
            return Walk(below, [], True) if complete else None
        nodes, state = [], end
        while state[2] is not None:
            nodes.append(state[3])
            state = state[2]
        return Walk(end[0], nodes, complete)

    def _spread(
        self,
        i: int,
        states: list[tuple[int, State]],
        buckets: list[Bucket],
        flow: list[float],
        below: float,
    ) -> None:
        """Compute the class at place ``i`` in every way, for partial choices that
        demand it first. Each goes on to the bucket of what it demands next."""
        bit, own, nodes, end = 1 << i, flow[i], self.steps[i], len(self.order)
        for mask, state in states:
            paid, ahead, _, _ = state
            rest = mask ^ bit
            for weight, demand, places, n in nodes:
                cost = paid + weight
                if cost >= below:
                    break
                new = rest | demand
                bucket = buckets[(new & -new).bit_length() - 1 if new else end]
                known = bucket.get(new)
                if known is None:
                    more = ahead - own
                    for k in places:
                        if not rest >> k & 1:
                            more += flow[k]
                    bucket[new] = (cost, more, state, n)
                elif cost < known[0]:
                    bucket[new] = (cost, known[1], state, n)

    def _kept(
        self, states: list[tuple[int, State]], width: int
    ) -> tuple[list[tuple[int, State]], bool]:
        """The partial choices that look best, without those that another one beats even
        when it must pay alone for all that it demands beyond; whether room ran out."""
        alone = self.alone
        states.sort(key=lambda entry: entry[1][0] + entry[1][1])
        kept: list[tuple[int, State]] = []
        for entry in states:
            mask, paid = entry[0], entry[1][0]
            for other, (other_paid, _, _, _) in kept[:LOOK]:
                slack = paid - other_paid
                more = other & ~mask
                while more and slack >= 0:
                    low = more & -more
                    slack -= alone[low.bit_length() - 1]
                    more ^= low
                if slack >= 0:
                    break
            else:
                if len(kept) == width:
                    return kept, True
                kept.append(entry)
        return kept, False


def frontier(p: Problem, best: Sequence[int]) -> Frontier:
    """The classes of ``p`` in an order in which few demands are open at once.

    Where classes are computed from one another, the order follows the choice ``best``
    and the nodes against it are left out.
    """
    rank = ranks(p, best)
    allowed = []
    for c, members in enumerate(p.members):
        mine = rank[c]
        allowed.append([n for n in members if all(rank[k] < mine for k in p.kids[n])])
    return Frontier(p, _users_first(p, allowed), allowed)


def ranks(p: Problem, best: Sequence[int]) -> list[int]:
    """A place for each class such that some node of it needs earlier classes only, and
    that of ``best`` where the roots need it."""
    used: dict[int, int] | None = None
    rank = [-1] * len(p.members)
    count = 0
    for part in p.parts:
        if len(part) > 1:
            if used is None:
                used = {c: i for i, c in enumerate(in_order(p, best))}
            part = _inner_order(p, part, used)
        for c in part:
            rank[c] = count
            count += 1
    return rank


def _inner_order(p: Problem, part: Sequence[int], used: dict[int, int]) -> list[int]:
    """Classes that are computed from one another: those of ``used`` in its order, the
    others as early as they can be."""
    missing, users = p.needs_within(part)
    free = [p.cls[n] for n, count in missing.items() if not count]
    ready = [c for c in free if c not in used]
    wanted = sorted(users.keys() & used.keys(), key=used.__getitem__, reverse=True)
    order: dict[int, None] = {}
    while ready or wanted:
        c = ready.pop() if ready else wanted.pop()
        if c in order:
            continue
        order[c] = None
        for n in users[c]:
            missing[n] -= 1
            if not missing[n] and p.cls[n] not in used:
                ready.append(p.cls[n])
    return list(order)


def _users_first(p: Problem, allowed: Sequence[Sequence[int]]) -> list[int]:
    """The classes, each after all that may use it; next comes the one that opens the
    fewest new demands."""
    count = len(p.members)
    below: list[set[int]] = [set().union(*[p.kids[n] for n in m]) for m in allowed]
    above: list[list[int]] = [[] for _ in range(count)]
    for c, kids in enumerate(below):
        for k in kids:
            above[k].append(c)
    waiting = [len(a) for a in above]
    opens = [len(b) for b in below]
    demanded = [False] * count
    placed = [False] * count
    ready = [(opens[c], c) for c in range(count) if not waiting[c]]
    heapq.heapify(ready)

    def demand(k: int) -> None:
        if not demanded[k]:
            demanded[k] = True
            for c in above[k]:
                opens[c] -= 1
                if not waiting[c] and not placed[c]:
                    heapq.heappush(ready, (opens[c], c))

    for r in p.roots:
        demand(r)
    order = []
    while ready:
        _, c = heapq.heappop(ready)
        if placed[c]:
            continue
        placed[c] = True
        order.append(c)
        for k in sorted(below[c]):
            waiting[k] -= 1
            if not waiting[k]:
                heapq.heappush(ready, (opens[k], k))
            demand(k)
    return order
