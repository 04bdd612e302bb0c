"""Kernels as cuts of the e-graph.

A cut of a class is a set of e-nodes, one for each class inside it, that one kernel can
compute from leaf classes in memory: technology mapping with structural choices
(Chatterjee et al. 2006), where the cells are kernels. Each class keeps its best cuts by
area flow: the price of the kernel and of its leaves, these shared among their users.

What a kernel may be is the business of :mod:`eqsat.kernels.fusion_state`; each cut that
is kept is priced exactly, its body counted once and distinct leaves read once."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from eqsat.egraph import Budget
from eqsat.kernels import (
    LEAF,
    LIBRARY,
    LIGHT,
    PLAIN,
    VIEW,
    State,
    refusal,
)
from eqsat.ops import VIEWS, slice_op
from eqsat.search.extraction.bitset_graph import Dense, bits
from eqsat.search.extraction.dense_node import DenseNode
from eqsat.terms import HALF

PRIORITY = 6
"""Cuts that a class keeps."""
ROUNDS = 4
"""Times that a node is looked at again because the cuts below it changed."""
FEW_MORE = 6
"""Products that are kept apart in the cuts of a class."""
FEW = 2
"""Cuts of each operand that are tried for ops of many operands."""
MOST_CHOICES = 3**6
"""Choices of one cut for each operand that are all tried; of more only a few are."""


class Cut:
    """One kernel that computes a class."""

    __slots__ = (
        "_choice",
        "alone",
        "arithmetic",
        "body",
        "flow",
        "leaves",
        "node",
        "nodes",
        "part",
        "price",
        "serial",
        "state",
        "views_only",
    )
    serial: int
    """Which cut it is; 0 stands for none."""
    node: int
    """The e-node at its root, an index into :attr:`Cuts.nodes`."""
    leaves: int
    """Classes that it reads, as bits."""
    body: int
    """Classes that it computes, as bits."""
    nodes: int
    """The e-nodes inside, as bits."""
    part: dict[int, float] | None
    """Bytes read of leaves that are not read whole."""
    state: State
    arithmetic: float
    """Seconds of its arithmetic."""
    price: float
    flow: float
    """Its price and the flows of its leaves, each shared among its users."""
    alone: float
    """The same when no leaf has another user."""
    views_only: bool
    """Whether it moves elements and does nothing else."""
    _choice: dict[int, int] | None


_Union = tuple[int, int, int, dict[int, float] | None, State, float]
"""Leaves, body, nodes, parts, state and arithmetic of a cut."""


@dataclass
class Cuts(Dense):
    """The cuts of the classes below some roots."""

    budget: Budget
    exact: bool = False
    """Whether every rounding of the program must stay."""
    of: list[list[Cut]] = field(default_factory=list, init=False)
    """Cuts of each class."""
    first: list[int] = field(default_factory=list, init=False)
    """The node of the cheapest tree of each class when every node is a kernel."""
    is_whole: bool = field(default=True, init=False)
    """Whether there was time to look at every node once."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._arithmetic: dict[int, float] = {}
        self._unions: dict[tuple[int, int], _Union | None] = {}
        self._tried: set[tuple[int, ...]] = set()
        self._allowed: dict[tuple[int, int], bool] = {}
        self._fitting: dict[tuple[int, int, int], bool] = {}
        self._made = 0
        self.order = self._greedy()
        self._enumerate()

    # -- a first choice ----------------------------------------------------------------

    def _greedy(self) -> list[int]:
        """Nodes in an order of evaluation. Finds the first choice, and how many of its
        classes use each class."""
        missing = [len(n.distinct) for n in self.nodes]
        total = [self.alone_s(n) for n in self.nodes]
        best: list[int] = [-1] * len(self.classes)
        heap: list[tuple[float, int]] = []
        order: list[int] = []

        def settle(c: int, cost: float) -> None:
            for n in self.users[c]:
                total[n] += cost
                missing[n] -= 1
                if missing[n] == 0:
                    order.append(n)
                    heapq.heappush(heap, (total[n], n))

        done = [not m for m in self.members]
        for c, empty in enumerate(done):
            if empty:
                settle(c, 0.0)
        while heap:
            cost, n = heapq.heappop(heap)
            c = self.nodes[n].cls
            if not done[c]:
                done[c] = True
                best[c] = n
                settle(c, cost)
        self.first = best
        self.refs = [0] * len(self.classes)
        for c in self.needed(best):
            for k in self.nodes[best[c]].distinct:
                self.refs[k] += 1
        return order

    def needed(self, first: Sequence[int]) -> list[int]:
        """The classes that the roots need when each is computed by its node in
        ``first``, operands before those that read them."""
        found: list[int] = []
        seen: set[int] = set()
        stack = [self.number[r] for r in self.roots]
        while stack:
            c = stack.pop()
            if c < 0:
                found.append(~c)
            elif c not in seen:
                seen.add(c)
                if first[c] >= 0:
                    stack.append(~c)
                    stack.extend(self.nodes[first[c]].distinct)
        return found

    # -- enumeration -------------------------------------------------------------------

    def forget(self) -> None:
        """Begin without cuts."""
        self.of = [[] for _ in self.members]
        self.flow = [float("inf") if m else 0.0 for m in self.members]
        self.alone = list(self.flow)

    def _enumerate(self) -> None:
        self.forget()
        rank = {n: i for i, n in enumerate(self.order)}
        work = [*range(len(self.order))]  # ranks, a heap
        for turn in range(ROUNDS):
            waits, again = {*work}, set[int]()
            while work:
                at = heapq.heappop(work)
                if not self.budget.left():
                    self.is_whole = turn > 0
                    return
                n = self.order[at]
                if not self._try(n):
                    continue
                for u in self.users[self.nodes[n].cls]:
                    place = rank.get(u, -1)
                    if 0 <= place <= at:
                        again.add(place)
                    elif place > at and place not in waits:
                        waits.add(place)
                        heapq.heappush(work, place)
            if not again:
                return
            work = sorted(again)

    def _try(self, n: int) -> bool:
        """Add the cuts with node ``n`` at the root; whether anything changed."""
        node = self.nodes[n]
        c = node.cls
        flow = self.flow
        before = flow[c]
        if any(flow[k] == float("inf") for k in node.distinct):
            return False
        changed = False
        self.through_view(n)
        tried = self._tried
        for subs in _choices(self._options(n)):
            key = (n, *(0 if s is None else s.serial for s in subs))
            if key in tried:
                continue
            tried.add(key)
            cut = self.cut_of(n, subs)
            if cut is not None:
                changed |= self.keep(c, cut)
        return changed or flow[c] < before * 0.99

    def through_view(self, n: int) -> None:
        """What a class costs as a view."""
        node = self.nodes[n]
        if node.op in VIEWS:
            c, below = node.cls, node.kids[0]
            view_s = self.model.device.view_s
            flow = (self.flow[below] + view_s) / max(1, self.refs[c])
            self.flow[c] = min(self.flow[c], flow)
            self.alone[c] = min(self.alone[c], self.alone[below] + view_s)

    def _options(self, n: int) -> list[list[Cut | None]]:
        node = self.nodes[n]
        options: list[list[Cut | None]] = []
        for i, k in enumerate(node.distinct):
            mine: list[Cut | None] = [None]
            for cut in self.of[k]:
                if self.fits(n, i, cut.state):
                    mine.append(cut)
            options.append(mine)
        many = sum(len(o) > 1 for o in options)
        if many > 2:
            options = [o[: 1 + FEW] for o in options]
        return options

    def fits(self, n: int, i: int, state: State) -> bool:
        """Whether operand ``i`` can be computed inside when all others are leaves."""
        key = n, i, id(state)  # states live on in those that were asked for
        known = self._fitting.get(key)
        if known is None:
            node = self.nodes[n]
            known = state.kind in LIGHT and node.op.kind == "pointwise"
            if not known:
                kids = [state if k == node.distinct[i] else LEAF for k in node.kids]
                known = self.node_states.of(n, kids) is not None
                self._fitting[key] = known
        return known

    def cut_of(self, n: int, subs: tuple[Cut | None, ...]) -> Cut | None:
        """The cut of node ``n`` over ``subs``, or None where no kernel is it."""
        node = self.nodes[n]
        me = 1 << node.cls
        if node.op is slice_op and node.attrs[-1][-1] != 1 and any(subs):
            return self._merged(n, subs)  # which elements are wanted counts
        leaves, body, nodes, arithmetic = 0, me, 1 << n, node.arithmetic
        light = True
        for k, sub, read in zip(node.distinct, subs, node.reads, strict=True):
            if sub is None:
                if not self.bare[k]:
                    leaves |= 1 << k
                    if read < self.size[k]:
                        return self._merged(n, subs)
                continue
            if sub.part is not None:
                return self._merged(n, subs)
            light &= sub.state.kind in LIGHT
            twice = sub.body & body
            if twice:
                both = sub.nodes & nodes
                shows = (sub.nodes | nodes) & self._views
                if shows or both.bit_count() != twice.bit_count():
                    return self._merged(n, subs)
                arithmetic -= self._working(both)
            leaves |= sub.leaves
            body |= sub.body
            nodes |= sub.nodes
            arithmetic += sub.arithmetic
        if leaves & body:
            if leaves & me or not light or sum(s is not None for s in subs) > 2:
                return self._merged(n, subs)
            if nodes & self._views:  # may show what is inside now once more
                return self._merged(n, subs)
            if all(s is None or s.leaves & body for s in subs):
                return self._merged(n, subs)
            leaves &= ~body
        target = self.model.target
        if leaves.bit_count() >= target.most_arrays and body != me:
            return None
        if body.bit_count() > target.most_nodes:
            return None
        if light and node.op.kind == "pointwise":
            state: State | None = PLAIN
        else:
            state = self.node_states.of(n, self._states(node, subs))
        if state is None and body == me:
            state = State(LIBRARY)
        if state is None or not self._admits(state, node.cls, body):
            return None
        return self._priced(n, leaves, body, nodes, None, state, arithmetic)

    def _working(self, nodes: int) -> float:
        """Seconds of the arithmetic of some nodes."""
        found = self._arithmetic.get(nodes)
        if found is None:
            found = sum(self.nodes[n].arithmetic for n in bits(nodes))
            self._arithmetic[nodes] = found
        return found

    def _states(self, node: DenseNode, subs: Sequence[Cut | None]) -> list[State]:
        by = dict(zip(node.distinct, subs, strict=True))
        states = []
        for k in node.kids:
            sub = by[k]
            states.append(LEAF if sub is None else sub.state)
        return states

    def _admits(self, state: State, c: int, body: int) -> bool:
        """Whether the target runs it. Under exact numerics only what rounds as single
        ops do is one kernel."""
        if body.bit_count() == 1:
            return True
        key = (self.node_states.number_of(state), c)
        allowed = self._allowed.get(key)
        if allowed is None:
            type_ = self.types[c]
            shape = () if type_ is None else type_[1]
            allowed = not refusal(state, shape, self.model.target)
            self._allowed[key] = allowed
        if not allowed or not self.exact:
            return allowed
        if state.kind not in LIGHT:
            return False
        types = (self.types[c] for c in bits(body))
        return not any(t is not None and t[0] in HALF for t in types)

    def _merged(self, n: int, subs: tuple[Cut | None, ...]) -> Cut | None:
        """A cut whose operands share classes: each is computed once, by the first
        choice, and what one reads that another computes is not read."""
        body, nodes = 1 << self.nodes[n].cls, 1 << n
        for sub in subs:
            if sub is None:
                continue
            if sub.body & body:
                for k, m in self.choice(sub).items():
                    if not body >> k & 1:
                        nodes |= 1 << m
            else:
                nodes |= sub.nodes
            body |= sub.body
        key = n, nodes  # many choices of operands come to the same
        if key not in self._unions:
            self._unions[key] = self._union(n, nodes)
        found = self._unions[key]
        return None if found is None else self._priced(n, *found)

    def _union(self, n: int, nodes: int) -> _Union | None:
        """What a kernel of ``nodes`` with ``n`` at the root is; None where there is
        none."""
        c = self.nodes[n].cls
        chosen = {self.nodes[m].cls: m for m in bits(nodes)}
        found = self.closure([c], chosen)
        target = self.model.target
        if found is None or found.leaves.bit_count() >= target.most_arrays:
            return None
        state = found.states[c]
        body = sum(1 << k for k in found.order)
        if not self._admits(state, c, body):
            return None
        inside = sum(1 << chosen[k] for k in found.order)
        return found.leaves, body, inside, found.part, state, found.arithmetic

    def _priced(
        self,
        n: int,
        leaves: int,
        body: int,
        nodes: int,
        part: dict[int, float] | None,
        state: State,
        arithmetic: float,
    ) -> Cut:
        cut = Cut()
        self._made += 1
        cut.serial = self._made
        cut.node, cut.nodes = n, nodes
        cut.leaves, cut.body = leaves, body
        cut.part, cut.state, cut.arithmetic = part, state, arithmetic
        node = self.nodes[n]
        if node.own_s is not None:
            cut.price = node.own_s
        elif node.joined_s is not None and not nodes & (nodes - 1):
            cut.price = node.joined_s
        else:
            traffic = self._reading(leaves) + self._saved(part)
            if nodes & self._products:
                traffic += self.prologue_s(nodes, body)
            views = (nodes & self._views).bit_count()
            cut.price = self.model.kernel_s(
                arithmetic, traffic + self.write_s[node.cls], views
            )
        cut.views_only = state.kind == VIEW.kind
        cut._choice = None
        return cut

    def sum_below(self, cut: Cut) -> Cut:
        """``cut`` with what is below it in its flows."""
        flow = alone = cut.price
        for k in bits(cut.leaves):
            flow += self.flow[k]
            alone += self.alone[k]
        cut.flow, cut.alone = flow, alone
        return cut

    def keep(self, c: int, cut: Cut) -> bool:
        """Put ``cut`` among those of class ``c`` if it is one of the best."""
        kept = self.of[c]
        for other in kept:
            if (
                other.leaves & ~cut.leaves == 0
                and other.price <= cut.price * (1 + 1e-12)
                and (other.state == cut.state or other.state == PLAIN)
                and other.views_only == cut.views_only
            ):
                return False
        self.sum_below(cut)
        kept = [
            o
            for o in kept
            if not (
                cut.leaves & ~o.leaves == 0
                and cut.price <= o.price * (1 + 1e-12)
                and (o.state == cut.state or cut.state == PLAIN)
                and o.views_only == cut.views_only
            )
        ]
        kept.append(cut)
        if len(kept) > PRIORITY:
            kept = self._best(kept)
        self.of[c] = kept
        if not cut.views_only:
            self.flow[c] = min(self.flow[c], cut.flow / max(1, self.refs[c]))
            self.alone[c] = min(self.alone[c], cut.alone)
        return cut in kept

    def _best(self, kept: list[Cut]) -> list[Cut]:
        """Half of them by their price with all that is below, half by area flow, and
        the best of each product that would be lost: what follows it needs the same."""
        kept.sort(key=_alone)
        half = PRIORITY // 2
        rest = sorted(kept[half:], key=_flow)
        chosen = kept[:half] + rest[: PRIORITY - half]
        known = {(o.state.kind, o.state.anchor) for o in chosen}
        for o in rest[PRIORITY - half :]:
            if (o.state.kind, o.state.anchor) not in known and len(known) < FEW_MORE:
                known.add((o.state.kind, o.state.anchor))
                chosen.append(o)
        return chosen

    # -- what a cut is -----------------------------------------------------------------

    def choice(self, cut: Cut) -> dict[int, int]:
        """The e-node of each class inside ``cut``."""
        if cut._choice is None:
            cut._choice = {self.nodes[n].cls: n for n in bits(cut.nodes)}
        return cut._choice


def _choices(
    options: Sequence[Sequence[Cut | None]],
) -> Iterable[tuple[Cut | None, ...]]:
    """One option for each operand, in all ways; of a long join all read from memory,
    one of them inside, or all inside."""
    if prod(map(len, options)) <= MOST_CHOICES:
        return product(*options)
    leaves = tuple(o[0] for o in options)
    alone = [
        (*leaves[:i], cut, *leaves[i + 1 :])
        for i, o in enumerate(options)
        for cut in o[1:2]
    ]
    return [leaves, *alone, tuple(o[1] if len(o) > 1 else o[0] for o in options)]


def _flow(cut: Cut) -> float:
    return cut.flow


def _alone(cut: Cut) -> float:
    return cut.alone
