"""Fusions that were taken, the best that were not, and why.

The chosen program is opened into its e-nodes, and each pair of a kernel and one that
reads its result is joined again as a question: no kernel, or at what price.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from eqsat.kernels import (
    LEAF,
    CostModel,
    Program,
    View,
    hindrance,
    inner,
    refusal,
    show_bytes,
)
from eqsat.search import (
    constants_with,
    graph_of,
    opened_program,
    region_of,
)
from eqsat.search.extraction import Dense, Joint, bits, together, union
from eqsat.support import counted
from eqsat.terms import Op, Term, is_constant, postorder
from eqsat.trace import body_of

MOST = 8
"""Fusions not taken that are listed."""


@dataclass(frozen=True)
class Fusion:
    """Ops that are one kernel, or two kernels that might have been one."""

    kernels: tuple[str, ...]
    """The kernel; or the two, the one that the other reads first."""
    taken: bool
    apart_s: float
    """Seconds of the parts as kernels of their own."""
    fused_s: float | None
    """Seconds of the one kernel; None where no kernel can do it."""
    saved_bytes: float
    """Traffic that one kernel saves (bytes)."""
    reason: str
    """What it saves, or why it was not taken."""

    @property
    def speedup(self) -> float | None:
        """How many times as long the parts take; None where no kernel can do it."""
        return self.apart_s / self.fused_s if self.fused_s else None

    def record(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            **asdict(self),
            "kernels": list(self.kernels),
            "speedup": self.speedup,
        }

    def __str__(self) -> str:
        names = " + ".join(self.kernels)
        if self.taken:
            return f"{names}: {self.reason}, {show_bytes(self.saved_bytes)}"
        return f"{names} apart: {self.reason}"


def fusions(program: Program, model: CostModel) -> tuple[Fusion, ...]:
    """The fusions of a program: those taken, then the best of those not taken."""
    opened = _Opened(program, model)
    missed = sorted(opened.missed(), key=_rank)
    return (*opened.taken(), *missed[:MOST])


def _rank(o: Fusion) -> tuple[bool, float]:
    """Possible fusions by what they would cost more, then impossible ones by size."""
    if o.fused_s is None:
        return True, -o.saved_bytes
    return False, o.fused_s - o.apart_s


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
            terms += [i for i in inner([again[m]], leaves) if i.args]
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


class _Opened:
    """A program as e-nodes, one a class, and which of them each kernel holds."""

    def __init__(self, program: Program, model: CostModel) -> None:
        roots = program.roots
        constant = is_constant(roots)
        opened = _without_fused(opened_program(roots, constant)[0])
        terms = list(dict.fromkeys(m for made in opened.values() for m in made))
        wanted = {opened[r][-1] for r in roots if r in opened}
        self.kernels: dict[str, Joint] = {}
        self.views: dict[int, tuple[int, int]] = {}
        if not terms:
            return
        region = region_of(terms, wanted, constants_with(terms, constant))
        graph, classes = graph_of(region)
        place = dict(zip(region.terms, classes, strict=True))
        self.dense = dense = Dense(graph, model, [place[m] for m in terms])
        number = {m: dense.number[place[m]] for m in terms}
        self.roots = {number[m] for m in wanted}
        for step in program.steps:
            mine = opened[step.term]
            chosen = {number[m]: dense.members[number[m]][0] for m in mine}
            if isinstance(step, View):
                ((c, node),) = chosen.items()
                self.views[c] = dense.nodes[node].kids[0], node
            else:
                results = tuple(number[opened[r][-1]] for r in step.results)
                price = model.term(step.term)
                kernel = Joint(results, chosen, dense.leaves(chosen), price)
                self.kernels[step.name] = kernel
        self.readers: dict[int, set[str]] = {}
        for name, kernel in self.kernels.items():
            for leaf in bits(kernel.leaves):
                self.readers.setdefault(self._path(leaf)[0], set()).add(name)

    def taken(self) -> Iterator[Fusion]:
        """Kernels of several e-nodes."""
        for name, k in self.kernels.items():
            if len(k.chosen) < 2:
                continue
            nodes = [self.dense.nodes[n] for n in k.chosen.values()]
            apart = sum(map(self.dense.alone_s, nodes))
            inside = [c for c in k.chosen if c not in k.results]
            saved = sum(2 * self.dense.bytes_of(c) for c in inside)
            for c in bits(k.leaves):
                readers = sum(c in n.distinct for n in nodes)
                saved += (readers - 1) * self.dense.bytes_of(c)
            reason = f"saves {(apart - k.price) * 1e6:.1f} µs"
            yield Fusion((name,), True, apart, k.price, saved, reason)

    def missed(self) -> Iterator[Fusion]:
        """Pairs of a kernel and one that reads its result, straight or through
        views."""
        maker = {c: name for name, k in self.kernels.items() for c in k.results}
        for consumer, kernel in self.kernels.items():
            values = (self._path(leaf)[0] for leaf in bits(kernel.leaves))
            first = {maker[v]: v for v in reversed(list(values)) if v in maker}
            for producer in sorted(first, key=first.__getitem__):
                yield self._judged(producer, consumer, first[producer])

    def _path(self, leaf: int) -> tuple[int, dict[int, int]]:
        """The value that a view shows, and the views between as nodes."""
        path: dict[int, int] = {}
        while leaf in self.views:
            below, node = self.views[leaf]
            path[leaf] = node
            leaf = below
        return leaf, path

    def _judged(self, first: str, second: str, value: int) -> Fusion:
        """What joining two kernels, of which the second reads ``value`` of the first,
        would do."""
        dense = self.dense
        producer, consumer = self.kernels[first], self.kernels[second]
        chosen = {**producer.chosen, **consumer.chosen}
        for leaf in bits(consumer.leaves):
            below, path = self._path(leaf)
            if below in producer.results:
                chosen |= path
        needed = [
            r
            for r in producer.results
            if r in self.roots or self.readers.get(r, set()) - {first, second}
        ]
        results = [*consumer.results, *needed]
        apart = producer.price + consumer.price
        saved = dense.bytes_of(value) * (1 if value in needed else 2)
        joint = union(dense, results, chosen)
        if joint is None:
            reason = hindered(dense, results, chosen)
            return Fusion((first, second), False, apart, None, saved, reason)
        more = (joint.price - apart) * 1e6
        again = ", because others need the value between too" if needed else ""
        reason = f"would cost {more:.1f} µs more{again}"
        if more < 0:
            reason = f"would save {-more:.1f} µs, but the search did not find it"
        return Fusion((first, second), False, apart, joint.price, saved, reason)


def hindered(dense: Dense, results: Sequence[int], chosen: Mapping[int, int]) -> str:
    """Why no kernel computes ``results`` by the nodes ``chosen``."""
    target = dense.model.target
    ops = (dense.nodes[n].op for n in chosen.values())
    opaque = next((op for op in ops if op.opaque), None)
    if opaque is not None:
        return f"{opaque.name}: {opaque.opaque}"
    order = dense.above(results, chosen)
    if order is None:
        return "each needs a value of the other"
    if len(order) > target.most_nodes:
        found = counted(len(order), "e-node")
        return f"it has {found}, at most {target.most_nodes} fit"
    states, stuck = dense.states(order, chosen)
    if stuck is not None:
        node, type_ = dense.nodes[chosen[stuck]], dense.types[stuck]
        assert type_ is not None
        kids = [states.get(j, LEAF) for j in node.kids]
        return hindrance(node.op, node.attrs, node.types, type_, kids, target)
    if len(results) > target.most_results:
        found = counted(len(results), "result")
        return f"it has {found}, at most {target.most_results} fit"
    arrays = dense.leaves({k: chosen[k] for k in order}).bit_count() + len(results)
    if arrays > target.most_arrays:
        found = counted(arrays, "array")
        return f"it reads and writes {found}, at most {target.most_arrays} fit"
    state = together(dense, results, [states[k] for k in results])
    if state is None:
        return "its results have different domains"
    root = dense.types[results[0]]
    return refusal(state, () if root is None else root[1], target)
