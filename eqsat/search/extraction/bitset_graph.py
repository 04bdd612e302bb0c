"""The part of an e-graph below some roots, in small numbers for bit masks.

What a set of its e-nodes takes as one kernel is worked out here: the state of each
value (:mod:`eqsat.kernels.fusion_state`), what is read, and how long that takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.egraph import EGraph, attr_values
from eqsat.kernels import (
    LEAF,
    TURNED,
    CostModel,
    State,
    join,
    nbytes,
    read_bytes,
    refusal,
    times_computed,
)
from eqsat.ops import (
    VIEWS,
    broadcast_to_op,
    concatenate_op,
    reshape_op,
    transpose_op,
)
from eqsat.search.extraction.dense_node import DenseNode
from eqsat.search.extraction.node_states import NodeStates
from eqsat.terms import INPUT, SCALAR, Op, Type, Weak


@dataclass(frozen=True)
class Closure:
    """What some nodes of a kernel need and do."""

    order: list[int]
    """The classes inside, operands first."""
    states: dict[int, State]
    leaves: int
    part: dict[int, float] | None
    arithmetic: float
    traffic: float
    """Seconds to read the leaves."""
    views: int


def bits(mask: int) -> list[int]:
    """The places of the ones of ``mask``, ascending."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


@dataclass
class Dense:
    """The classes below ``roots`` and the e-nodes that may compute them."""

    graph: EGraph
    model: CostModel
    roots: Sequence[int]
    named: bool = field(default=False, kw_only=True)
    """Whether named fusions stay even where the target has no use for them."""
    classes: list[int] = field(default_factory=list, init=False)
    """The e-graph's number of each class."""
    number: dict[int, int] = field(default_factory=dict, init=False)
    """And back."""
    nodes: list[DenseNode] = field(default_factory=list, init=False)
    members: list[list[int]] = field(default_factory=list, init=False)
    """Nodes of each class; none for what comes from outside and for constants."""

    def __post_init__(self) -> None:
        self._traffic: dict[int, float] = {0: 0.0}
        self._views = 0
        self._products = 0
        """Nodes, as bits, that multiply what one kernel may compute as it reads it."""
        self._long = 0
        """Nodes, as bits, that take time again for each place that is wanted."""
        self.dropped = False
        self._reach()
        self._measure()
        self._gather()
        self.node_states = NodeStates(self.nodes, self.types, self.model.target)

    def _reach(self) -> None:
        graph, number = self.graph, self.number
        stack = list(reversed(self.roots))
        while stack:
            c = stack.pop()
            if c in number:
                continue
            number[c] = len(number)
            if not graph.constant[c]:
                for i in graph.classes[c]:
                    stack.extend(k for k in graph.nodes[i].children if k not in number)
        self.classes = list(number)

    def _measure(self) -> None:
        """Sizes and times of each class."""
        graph, device = self.graph, self.model.device
        self.types = [graph.types[c] for c in self.classes]
        whole = [0.0 if t is None else nbytes(t) for t in self.types]
        self.size = self._shown(list(whole))
        self.read_s = [device.traffic_s(n) for n in self.size]
        self.write_s = [device.traffic_s(n) for n in whole]
        self.bare = [
            any(
                graph.nodes[i].op is SCALAR
                or (graph.nodes[i].op is INPUT and _is_weak(graph.types[c]))
                for i in graph.classes[c]
            )
            for c in self.classes
        ]

    def _is_leaf(self, c: int) -> bool:
        """Whether a class of the e-graph comes from outside."""
        graph = self.graph
        return any(graph.nodes[i].op.kind == "leaf" for i in graph.classes[c])

    def _is_off(self, i: int) -> bool:
        """Whether the target has no use for a named fusion, and there is another way
        to compute its class."""
        graph = self.graph
        e = graph.nodes[i]
        types = tuple(t for k in e.children if (t := graph.types[k]) is not None)
        out = graph.types[e.cls]
        if out is None or len(types) < len(e.children):
            return True
        target = self.model.target
        leaves = [LEAF] * len(types)
        state = join(e.op, attr_values(e), types, out, leaves, target, e.cls)
        if state is None or not refusal(state, out[1], target):
            return False
        return any(graph.nodes[j].op.kind != "fused" for j in graph.classes[e.cls])

    def _shown(self, size: list[float]) -> list[float]:
        """Bytes to read of each class: a broadcast shows fewer than it has."""
        graph, number = self.graph, self.number
        for c in reversed(self.classes):
            for i in graph.classes[c]:
                node = graph.nodes[i]
                if node.op is broadcast_to_op and node.children[0] in number:
                    at, below = number[c], number[node.children[0]]
                    size[at] = min(size[at], size[below])
        return size

    def _gather(self) -> None:
        graph, number = self.graph, self.number
        self.members = [[] for _ in self.classes]
        self.place: dict[int, int] = {}  # of each e-node among the nodes
        for c, at in number.items():
            if graph.constant[c] or graph.types[c] is None or self._is_leaf(c):
                continue
            seen: dict[Any, int] = {}
            # Of two kernels that cost the same, the first stays: the named one.
            for i in sorted(
                graph.classes[c], key=lambda i: graph.nodes[i].op.body is None
            ):
                e = graph.nodes[i]
                if e.op.kind == "leaf" or c in e.children:
                    continue
                types = tuple(graph.types[k] for k in e.children)
                kids = tuple(number[k] for k in e.children)
                key = (e.op, e.attrs, tuple(sorted(kids)) if e.op.commutative else kids)
                if key in seen:
                    self.place[i] = seen[key]
                    continue
                if None in types:
                    continue
                if e.op.kind == "fused" and not self.named and self._is_off(i):
                    self.dropped = True
                    continue
                seen[key] = self.place[i] = len(self.nodes)
                self.members[at].append(len(self.nodes))
                if e.op in VIEWS:
                    self._views |= 1 << len(self.nodes)
                if e.op.kind == "contract":
                    self._products |= 1 << len(self.nodes)
                node = self._node(at, i, kids, types)
                if self.model.counts_repeated(node.arithmetic, _known(self.types[at])):
                    self._long |= 1 << len(self.nodes)
                self.nodes.append(node)
        self.users: list[list[int]] = [[] for _ in self.classes]
        for n, node in enumerate(self.nodes):
            for k in node.distinct:
                self.users[k].append(n)

    def _node(
        self, at: int, origin: int, kids: tuple[int, ...], types: tuple[Any, ...]
    ) -> DenseNode:
        e = self.graph.nodes[origin]
        op, attrs, out = e.op, attr_values(e), _known(self.types[at])
        distinct = tuple(dict.fromkeys(kids))
        written = nbytes(out)
        reads = tuple(
            read_bytes(op, kids.index(k), self.size[k], written) for k in distinct
        )
        work = self.model.arithmetic_s(op, attrs, types, out, self._is_gram(e.children))
        return DenseNode(
            at,
            op,
            attrs,
            kids,
            distinct,
            types,
            work,
            reads,
            tuple(
                (k, r / max(1, self.size[k]))
                for k, r in zip(distinct, reads, strict=True)
            ),
            origin,
            self.model.own(op) is not None,
            self.model.own_s(op, attrs, types, out),
            _joined_s(self.graph, self.model, origin),
        )

    def _is_gram(self, children: Sequence[int]) -> bool:
        """Whether one of the first two operands is the other, transposed."""
        if len(children) < 2 or self.model.target.gram_share == 1:
            return False
        nodes, classes = self.graph.nodes, self.graph.classes
        x, y = children[:2]
        return any(
            n.op is transpose_op and attr_values(n) == TURNED and n.children[0] == of
            for turned, of in ((x, y), (y, x))
            for n in (nodes[i] for i in classes[turned])
        )

    # -- prices ------------------------------------------------------------------------

    def alone_s(self, n: DenseNode) -> float:
        """Seconds of an e-node as a kernel of its own, or as a view."""
        if n.op in VIEWS:
            return self.model.device.view_s
        if n.own_s is not None:
            return n.own_s
        if n.joined_s is not None:
            return n.joined_s
        traffic = sum(self.model.device.traffic_s(r) for r in n.reads)
        return self.model.kernel_s(n.arithmetic, traffic + self.write_s[n.cls])

    def prologue_s(self, nodes: int, body: int) -> float:
        """Seconds that the left operand of a product takes in the cache, where a kernel
        of these nodes and classes computes it; of attention none."""
        products = bits(nodes & self._products)
        if len(products) != 1:
            return 0.0
        (n,) = products
        left = self.nodes[n].kids[0]
        size = self.bytes_of(left)
        of = {self.nodes[m].cls: m for m in bits(nodes)} if body >> left & 1 else {}
        while left in of and self.nodes[of[left]].op in VIEWS:
            left = self.nodes[of[left]].kids[0]
        return self.model.device.panel_s(size) if left in of else 0.0

    def bytes_of(self, c: int) -> float:
        """Bytes of a value in memory."""
        type_ = self.types[c]
        return 0.0 if type_ is None else nbytes(type_)

    # -- kernels -----------------------------------------------------------------------

    def closure(
        self, results: Iterable[int], chosen: Mapping[int, int]
    ) -> Closure | None:
        """What computing ``results`` by the nodes ``chosen`` takes; None for a cycle
        or where no kernel holds it."""
        order = self.above(results, chosen)
        if order is None or len(order) > self.model.target.most_nodes:
            return None
        states, stuck = self.states(order, chosen)
        if stuck is not None:
            return None
        leaves, nodes, readers = 0, 0, 0
        reads: dict[int, float] = {}
        for k in order:
            n = chosen[k]
            nodes |= 1 << n
            inner = self.nodes[n]
            for kid, read in zip(inner.distinct, inner.reads, strict=True):
                if kid in chosen:
                    readers |= 1 << n
                elif not self.bare[kid]:
                    leaves |= 1 << kid
                    reads[kid] = reads.get(kid, 0.0) + read
        if readers & self._views and nodes & self._long:
            times = times_computed(results, self._readings(order, chosen))
            arithmetic = sum(self._repeated_s(chosen[k], n) for k, n in times.items())
        else:  # of each value one place is wanted, or it takes no time at others
            arithmetic = sum(self.nodes[chosen[k]].arithmetic for k in reversed(order))
        views = (nodes & self._views).bit_count()
        part = {k: r for k, r in reads.items() if r < self.size[k]} or None
        traffic = self._reading(leaves) + self._saved(part)
        return Closure(order, states, leaves, part, arithmetic, traffic, views)

    def _repeated_s(self, n: int, times: float) -> float:
        """Seconds of the arithmetic of a node that is done so many times."""
        node = self.nodes[n]
        return self.model.repeated_s(
            node.arithmetic, _known(self.types[node.cls]), times
        )

    def _readings(
        self, order: Sequence[int], chosen: Mapping[int, int]
    ) -> Iterator[tuple[int, Op, tuple[Any, ...], list[tuple[int, float]]]]:
        """What classes read of others inside of a kernel, results first."""
        for k in reversed(order):
            inner = self.nodes[chosen[k]]
            inside = [(j, part) for j, part in inner.parts if j in chosen]
            yield k, inner.op, inner.attrs, inside

    def states(
        self, order: Iterable[int], chosen: Mapping[int, int]
    ) -> tuple[dict[int, State], int | None]:
        """The states of classes, given operands first, and the first one that no
        kernel holds; None where one kernel holds them all."""
        found: dict[int, State] = {}
        for k in order:
            kids = [found.get(j, LEAF) for j in self.nodes[chosen[k]].kids]
            state = self.node_states.of(chosen[k], kids)
            if state is None:
                return found, k
            found[k] = state
        return found, None

    def leaves(self, chosen: Mapping[int, int]) -> int:
        """The classes, as bits, that the nodes ``chosen`` read from memory."""
        kids = (k for n in chosen.values() for k in self.nodes[n].distinct)
        return sum(1 << k for k in set(kids) if k not in chosen and not self.bare[k])

    def _saved(self, part: Mapping[int, float] | None) -> float:
        """What reading only parts of some leaves changes (s); not positive."""
        if part is None:
            return 0.0
        device = self.model.device
        return sum(device.traffic_s(r) - self.read_s[k] for k, r in part.items())

    def above(
        self, roots: Iterable[int], chosen: Mapping[int, int]
    ) -> list[int] | None:
        """The classes of ``chosen`` below ``roots``, operands first; None for a
        cycle."""
        done: list[int] = []
        state: dict[int, int] = {}
        stack = list(roots)
        while stack:
            k = stack[-1]
            if state.get(k) == 2:
                stack.pop()
                continue
            if state.get(k) == 1:
                state[k] = 2
                done.append(k)
                stack.pop()
                continue
            state[k] = 1
            for j in reversed(self.nodes[chosen[k]].distinct):
                if j in chosen:
                    if state.get(j) == 1:
                        return None
                    if j not in state:
                        stack.append(j)
        return done

    def _reading(self, leaves: int) -> float:
        found = self._traffic.get(leaves)
        if found is None:
            found = self._traffic[leaves] = sum(self.read_s[k] for k in bits(leaves))
        return found


def _joined_s(graph: EGraph, model: CostModel, node: int) -> float | None:
    """Seconds of a join alone, whose parts are computed where they go."""
    e = graph.nodes[node]
    if e.op is not concatenate_op or not model.target.joins_in_place:
        return None
    types = tuple(_known(graph.types[k]) for k in e.children)
    made = [
        e.children.index(k) == i and _is_made(graph, k)
        for i, k in enumerate(e.children)
    ]
    return model.joined_s(e.op, attr_values(e), types, made)


def _is_made(graph: EGraph, c: int) -> bool:
    """Whether a kernel may write a class, or what it is a reshape of."""
    seen, stack = {c}, [c]
    while stack:
        c = stack.pop()
        if graph.constant[c]:
            continue
        for node in (graph.nodes[i] for i in graph.classes[c]):
            if node.op.kind != "leaf" and node.op not in VIEWS:
                return True
            if node.op is reshape_op and node.children[0] not in seen:
                seen.add(node.children[0])
                stack.append(node.children[0])
    return False


def _known(type_: Type | None) -> Type:
    """The type of a class that has nodes."""
    assert type_ is not None
    return type_


def _is_weak(type_: Type | None) -> bool:
    """Whether a value is a bare number."""
    return type_ is not None and isinstance(type_[0], Weak)
