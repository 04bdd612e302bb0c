"""Fusions that were taken, the best that were not, and why.

The chosen program is opened into its e-nodes, and each pair of a kernel and one that
reads its result is joined again as a question: no kernel, or at what price.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import cast

from eqsat.body import KERNEL, RESULT
from eqsat.cost import VIEWS, CostModel
from eqsat.dense import Dense, bits
from eqsat.domain import LEAF, State, hindrance, refusal
from eqsat.expand import body_of
from eqsat.joint import together, union
from eqsat.op import INPUT, Op
from eqsat.regions import is_constant, region_of
from eqsat.second import graph_of, opened_program
from eqsat.term import Term, postorder

MOST = 8
"""Fusions not taken that are listed."""


@dataclass(frozen=True)
class Opportunity:
    """A fusion: what one kernel does, or might have done."""

    kernels: tuple[Term, ...]
    """The kernel, or the two that might be one, the producer first."""
    taken: bool
    apart_s: float
    """Seconds of the parts as kernels of their own."""
    fused_s: float | None
    """Seconds of the one kernel; None where there is none."""
    saved_bytes: float
    """Traffic that one kernel saves (bytes)."""
    reason: str
    """Why it was taken or not."""

    @property
    def speedup(self) -> float | None:
        """How many times as long the parts take; None where there is no kernel."""
        return self.apart_s / self.fused_s if self.fused_s else None


def _without_fused(opened: Mapping[Term, list[Term]]) -> dict[Term, list[Term]]:
    """The same with named fusions opened: what they join is apart without them."""
    again: dict[Term, Term] = {}
    found: dict[Term, list[Term]] = {}
    for t, made in opened.items():
        terms: list[Term] = []
        for m in made:
            if m not in again:
                args = [again.get(a, a) for a in m.args]
                plain = m.graph.node(m.op, args, m.attrs, m.type)
                again[m] = _unfused(plain)
            leaves = {again.get(a, a) for a in m.args}
            terms += _inside(again[m], leaves)
        found[t] = list(dict.fromkeys(terms)) or [again.get(made[-1], made[-1])]
    return found


def _unfused(term: Term) -> Term:
    """The body of a named fusion, and of those in it; any other term as it is."""
    done: dict[Term, Term] = {a: a for a in term.args}
    body = body_of(term) if cast(Op, term.op).kind == "fused" else None
    if body is None:
        return term
    for t in postorder([body]):
        if t not in done:
            args = [done[a] for a in t.args]
            done[t] = _unfused(t.graph.node(t.op, args, t.attrs, t.type))
    return done[body]


def _inside(root: Term, leaves: Set[Term]) -> list[Term]:
    """The ops that compute ``root`` from ``leaves``, operands first."""
    found: dict[Term, None] = {}
    stack = [(root, False)]
    while stack:
        t, ready = stack.pop()
        if t in found or t in leaves or not t.args:
            continue
        if ready:
            found[t] = None
        else:
            stack.append((t, True))
            stack.extend((a, False) for a in reversed(t.args))
    return list(found)


@dataclass(frozen=True)
class _Kernel:
    term: Term
    results: tuple[int, ...]
    chosen: Mapping[int, int]
    leaves: int
    price: float


def opportunities(roots: Sequence[Term], model: CostModel) -> list[Opportunity]:
    """The fusions of a program, taken ones first, then the best of those not taken."""
    program = _Opened(roots, model)
    missed = sorted(program.missed(), key=_rank)
    return [*program.taken(), *missed[:MOST]]


def _rank(o: Opportunity) -> tuple[bool, float]:
    """Possible fusions by what they would cost more, then impossible ones by size."""
    if o.fused_s is None:
        return True, -o.saved_bytes
    return False, o.fused_s - o.apart_s


class _Opened:
    """A program as e-nodes, one a class, and which of them each kernel holds."""

    def __init__(self, roots: Sequence[Term], model: CostModel) -> None:
        constant = is_constant(roots)
        opened = _without_fused(opened_program(roots, constant)[0])
        terms = list(dict.fromkeys(m for made in opened.values() for m in made))
        known = dict(constant) | dict.fromkeys(terms, False)
        for m in terms:
            for a in m.args:
                known.setdefault(a, a.op is not INPUT)
        wanted = {opened[r][-1] for r in roots if r in opened}
        self.kernels: list[_Kernel] = []
        if not terms:
            return
        region = region_of(terms, wanted, known)
        graph, classes = graph_of(region)
        place = dict(zip(region.terms, classes, strict=True))
        self.dense = Dense(graph, model, [place[m] for m in terms])
        number = {
            t: self.dense.number[c] for t, c in place.items() if c in self.dense.number
        }
        self.roots = {number[m] for m in wanted}
        self.views: dict[int, tuple[int, int]] = {}
        for t, made in opened.items():
            if t.op is RESULT:
                continue
            if t.op.name in VIEWS:
                c = number[made[-1]]
                node = self.dense.members[c][0]
                self.views[c] = self.dense.nodes[node].kids[0], node
                continue
            self.kernels.append(self._kernel(t, opened, number))

    def _kernel(
        self,
        t: Term,
        opened: Mapping[Term, Sequence[Term]],
        number: Mapping[Term, int],
    ) -> _Kernel:
        dense = self.dense
        results: tuple[int, ...] = (number[opened[t][-1]],)
        if t.op is KERNEL:
            several = [r for r in opened if r.op is RESULT and r.args[0] is t]
            results = tuple(number[opened[r][-1]] for r in several) or results
        chosen = {number[m]: dense.members[number[m]][0] for m in opened[t]}
        found = dense.closure(results, chosen)
        leaves = 0
        if found is not None:
            leaves = found.leaves
        else:
            for n in chosen.values():
                for k in dense.nodes[n].distinct:
                    leaves |= 0 if k in chosen or dense.bare[k] else 1 << k
        return _Kernel(t, results, chosen, leaves, dense.model.term(t))

    def taken(self) -> Iterator[Opportunity]:
        """Kernels of several e-nodes."""
        dense = getattr(self, "dense", None)
        for k in self.kernels:
            if len(k.chosen) < 2 or dense is None:
                continue
            apart = sum(dense.alone_s(n) for n in k.chosen.values())
            inner = [c for c in k.chosen if c not in k.results]
            saved = sum(2 * dense.bytes_of(c) for c in inner)
            for c in bits(k.leaves):
                readers = sum(c in dense.nodes[n].distinct for n in k.chosen.values())
                saved += (readers - 1) * dense.bytes_of(c)
            reason = f"saves {(apart - k.price) * 1e6:.1f} µs"
            yield Opportunity((k.term,), True, apart, k.price, saved, reason)

    def missed(self) -> Iterator[Opportunity]:
        """Pairs of a kernel and one that reads its result, straight or through
        views."""
        maker = {c: k for k in self.kernels for c in k.results}
        seen: set[tuple[int, int]] = set()
        for consumer in self.kernels:
            for leaf in bits(consumer.leaves):
                below, _ = self._path(leaf)
                producer = maker.get(below)
                if producer is None or producer is consumer:
                    continue
                pair = (id(producer), id(consumer))
                if pair not in seen:
                    seen.add(pair)
                    yield self._judged(producer, consumer, below)

    def _path(self, leaf: int) -> tuple[int, dict[int, int]]:
        """The value that a view shows, and the views between as nodes."""
        path: dict[int, int] = {}
        while leaf in self.views:
            below, node = self.views[leaf]
            path[leaf] = node
            leaf = below
        return leaf, path

    def _judged(self, producer: _Kernel, consumer: _Kernel, value: int) -> Opportunity:
        """What joining two kernels would do."""
        dense = self.dense
        chosen = {**producer.chosen, **consumer.chosen}
        for leaf in bits(consumer.leaves):
            below, path = self._path(leaf)
            if below in producer.results:
                chosen |= path
        others = [k for k in self.kernels if k is not producer and k is not consumer]
        needed = [
            r
            for r in producer.results
            if r in self.roots or any(self._reads(k, r) for k in others)
        ]
        results = [*consumer.results, *needed]
        apart = producer.price + consumer.price
        saved = dense.bytes_of(value) * (1 if value in needed else 2)
        pair = producer.term, consumer.term
        joint = union(dense, results, chosen)
        if joint is None:
            reason = hindered(dense, results, chosen)
            return Opportunity(pair, False, apart, None, saved, reason)
        more = (joint.price - apart) * 1e6
        again = ", because others need the value between too" if needed else ""
        reason = f"would cost {more:.1f} µs more{again}"
        if more < 0:
            reason = f"would save {-more:.1f} µs, but the search did not find it"
        return Opportunity(pair, False, apart, joint.price, saved, reason)

    def _reads(self, kernel: _Kernel, value: int) -> bool:
        return any(self._path(leaf)[0] == value for leaf in bits(kernel.leaves))


def hindered(dense: Dense, results: Sequence[int], chosen: Mapping[int, int]) -> str:
    """Why no kernel computes ``results`` by the nodes ``chosen``."""
    target = dense.model.target
    order = dense.above(results, chosen)
    if order is None:
        return "each needs a value of the other"
    if len(order) > target.most_nodes:
        return f"it has {len(order)} e-nodes, at most {target.most_nodes} fit"
    states: dict[int, State] = {}
    leaves: set[int] = set()
    for k in order:
        node = dense.nodes[chosen[k]]
        leaves.update(j for j in node.distinct if j not in chosen and not dense.bare[j])
        kids = [states.get(j, LEAF) for j in node.kids]
        found = dense.state(chosen[k], kids)
        if found is None:
            type_ = dense.types[k]
            assert type_ is not None
            return hindrance(node.op, node.attrs, node.types, type_, kids, target)
        states[k] = found
    if len(results) > target.most_results:
        return f"it has {len(results)} results, at most {target.most_results} fit"
    if len(leaves) + len(results) > target.most_arrays:
        return (
            f"it reads and writes {len(leaves) + len(results)} arrays, at most "
            f"{target.most_arrays} fit"
        )
    state = together(dense, results, [states[k] for k in results])
    if state is None:
        return "its results have different domains"
    root = dense.types[results[0]]
    return refusal(state, () if root is None else root[1], target)
