"""Covers: the cheapest set of kernels and views that computes some classes.

Every cut that was kept becomes a node of an ordinary extraction problem, whose operands
are the leaves of the cut. A view is a node that costs next to nothing. Where a reshape
needs its operand packed, it asks for a second class that only kernels can give.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.egraph import Budget, EGraph, attr_values
from eqsat.kernels import CostModel, strides_of_view
from eqsat.ops import VIEWS, reshape_op
from eqsat.search.extraction.bitset_graph import bits
from eqsat.search.extraction.cuts import Cut, Cuts
from eqsat.search.extraction.extract import solve
from eqsat.search.extraction.ilp import solve_exact
from eqsat.search.extraction.multi_result import Joint, joints
from eqsat.search.extraction.one_pass import hurry, written
from eqsat.search.extraction.problem import Problem, ProblemNode, tree_greedy
from eqsat.support import EngineError, cached_property
from eqsat.terms import INPUT, SCALAR, Term, infer, scalar
from eqsat.trace import KernelBody, body_above, kernel_terms

ENUMERATING = 0.7
"""Part of the time for a cover that its cuts may take: then they are chosen from."""
FOLDED_S = 1e-12
"""Price of an op over constants (s): not free, so that fewer win a tie."""


@dataclass(frozen=True)
class CoverOption:
    """One way to compute a class: a cut, or an e-node that is no kernel."""

    cls: int
    """The class, in the numbers of the cuts."""
    cut: Cut | None = None
    node: int = -1
    """An e-node of the graph: a leaf, a view, or an op over constants."""
    joint: Joint | None = None
    """Kernels that were joined, of which the class is a result."""

    @property
    def price_s(self) -> float | None:
        """Seconds that extraction took its kernel for; None for what is no kernel."""
        kernel = self.cut or self.joint
        return None if kernel is None else kernel.price


@dataclass
class Cover:
    """The chosen way for each class that the roots need, operands first."""

    cuts: Cuts
    ways: list[tuple[int, CoverOption]]
    """Places and how they are computed; a place is a class, or a packed one."""
    kids: dict[int, tuple[int, ...]]
    """The places that each way reads."""
    roots: list[int]
    cost_s: float
    gap: float | None = None
    bodies: dict[int, tuple[KernelBody, tuple[int, ...]]] = field(default_factory=dict)


def cover(
    graph: EGraph,
    model: CostModel,
    roots: Sequence[int],
    budget: Budget,
    *,
    optimal: bool = False,
    exact: bool = False,
) -> Cover:
    """The cheapest cover of ``roots`` found within the budget.

    ``optimal``: by an integer program. ``exact``: no kernel may round otherwise than
    its ops do one by one. Raises :class:`EngineError` when a root cannot be computed.
    """
    found = covering(graph, model, roots, budget.part(ENUMERATING), exact=exact)
    covers = [found.solved(budget, optimal)] if found.cuts.is_whole else []
    if not budget.left() or not covers:
        # What was looked at only in part may be dearer than what one pass finds.
        for first in (found.cuts.first, written(found.cuts)):
            if first is not None:
                hurry(found.cuts, first)
                covers += _if_any(Covering(found.cuts, roots), budget)
    if not covers:
        patient = Budget(math.inf, budget.max_nodes)
        return covering(graph, model, roots, patient, exact=exact).solved(budget, False)
    return min(covers, key=lambda c: c.cost_s)


def _if_any(found: Covering, budget: Budget) -> list[Cover]:
    """The cover; none where the cuts cannot compute the roots."""
    try:
        return [found.solved(budget, False)]
    except EngineError:
        return []


def covering(
    graph: EGraph,
    model: CostModel,
    roots: Sequence[int],
    budget: Budget,
    *,
    exact: bool = False,
) -> Covering:
    """The extraction problem that :func:`cover` solves."""
    cuts = Cuts(graph, model, roots, budget, exact)
    found = Covering(cuts, roots)
    if cuts.dropped and cuts.is_whole:
        trees = tree_greedy(found.problem)
        if any(trees[r] < 0 for r in found.roots):
            # A fused op that the user called may have no other form than itself.
            cuts = Cuts(graph, model, roots, budget, exact, named=True)
            found = Covering(cuts, roots)
    return found


class Covering:
    """The extraction problem of some cuts."""

    def __init__(self, cuts: Cuts, roots: Sequence[int]) -> None:
        self.cuts = cuts
        self.ways: list[CoverOption] = []
        self.cls: list[int] = []
        self.kids: list[tuple[int, ...]] = []
        self.weight: list[float] = []
        self.packed: dict[int, int] = {}
        self.count = len(cuts.classes)
        self.roots = [cuts.number[r] for r in roots]
        self._add_constants()
        for c in range(len(cuts.classes)):
            self._add(c)
        for c, place in list(self.packed.items()):
            for cut in cuts.of[c]:
                self._put(place, CoverOption(c, cut), bits(cut.leaves), cut.price)

    def _put(
        self, place: int, way: CoverOption, kids: Sequence[int], weight: float
    ) -> None:
        self.ways.append(way)
        self.cls.append(place)
        self.kids.append(tuple(dict.fromkeys(kids)))
        self.weight.append(weight)

    def _add_constants(self) -> None:
        """Give the classes below constants numbers: cuts do not look into them."""
        cuts, graph = self.cuts, self.cuts.graph
        stack = [c for c in cuts.classes if graph.constant[c]]
        while stack:
            for i in graph.classes[stack.pop()]:
                for k in graph.nodes[i].children:
                    if k not in cuts.number:
                        cuts.number[k] = self.count
                        self.count += 1
                        cuts.classes.append(k)
                        stack.append(k)

    def _add(self, c: int) -> None:
        cuts = self.cuts
        graph, number = cuts.graph, cuts.number
        cls = cuts.classes[c]
        leaf = [i for i in graph.classes[cls] if graph.nodes[i].op.kind == "leaf"]
        if leaf:
            self._put(c, CoverOption(c, node=leaf[0]), (), 0.0)
            return
        for i in graph.classes[cls]:
            node = graph.nodes[i]
            if graph.constant[cls]:
                if cls not in node.children:
                    kids = [number[k] for k in node.children]
                    self._put(c, CoverOption(c, node=i), kids, FOLDED_S)
            elif node.op in VIEWS and cls not in node.children:
                kid = number[node.children[0]]
                if node.op is reshape_op and not self._shows(i):
                    kid = self._packed(kid)
                self._put(c, CoverOption(c, node=i), (kid,), cuts.model.device.view_s)
        if c < len(cuts.of):
            for cut in cuts.of[c]:
                if not cut.views_only or len(cuts.members[c]) == 0:
                    self._put(c, CoverOption(c, cut), bits(cut.leaves), cut.price)

    def _packed(self, c: int) -> int:
        place = self.packed.get(c)
        if place is None:
            place = self.packed[c] = self.count
            self.count += 1
        return place

    def _shows(self, i: int) -> bool:
        """Whether a reshape is a view of its operand however that is computed."""
        graph = self.cuts.graph
        node = graph.nodes[i]
        below = node.children[0]
        shape = attr_values(node)[0]
        if any(graph.nodes[j].op.kind == "leaf" for j in graph.classes[below]):
            return True  # what comes from outside costs nothing, and is packed
        for j in graph.classes[below]:
            view = graph.nodes[j]
            if view.op not in VIEWS or view.op is reshape_op:
                continue
            inside = graph.types[view.children[0]]
            assert inside is not None
            attrs = dict(zip(view.op.attrs, attr_values(view), strict=True))
            strides = strides_of_view(view.op, attrs, inside[1], None)
            outer = graph.types[below]
            assert strides is not None and outer is not None
            if strides_of_view(node.op, {"shape": shape}, outer[1], strides) is None:
                return False
        return True

    @cached_property
    def problem(self) -> Problem:
        """A class for each place, a node for each way."""
        entries = map(ProblemNode, self.cls, self.kids, self.weight)
        return Problem.of(self.count, entries, self.roots)

    def solved(self, budget: Budget, optimal: bool) -> Cover:
        """The cheapest cover found, then with kernels of several results."""
        problem, gap = self.problem, None
        if optimal:
            proof = solve_exact(problem, budget)
            found, gap = proof.solution, proof.gap
        else:
            found = solve(problem, budget)
        best, cost = found.best, found.cost
        ways = {c: self.ways[n] for c, n in enumerate(best) if n >= 0}
        kids = {c: self.kids[n] for c, n in enumerate(best) if n >= 0}
        order = list(_in_order(self.roots, kids))
        if not self.cuts.exact:
            cost -= self._joined(order, ways, kids, budget)
            order = list(_in_order(self.roots, kids))
        places = [(place, ways[place]) for place in order]
        return Cover(self.cuts, places, kids, self.roots, cost, gap)

    def _joined(
        self,
        order: Sequence[int],
        ways: dict[int, CoverOption],
        kids: dict[int, tuple[int, ...]],
        budget: Budget,
    ) -> float:
        """Put kernels that are cheaper as one into ``ways``; the seconds saved."""
        cuts = self.cuts
        kernels, others = [], []
        for place in order:
            cut = ways[place].cut
            if cut is not None and place < len(cuts.of):
                kernels.append(Joint((place,), cuts.choice(cut), cut.leaves, cut.price))
            elif kids[place]:
                others.append((place, kids[place]))
        saved = sum(k.price for k in kernels)
        for joint in joints(cuts, kernels, others, self.roots, budget):
            saved -= joint.price
            for c in joint.results:
                cut = ways[c].cut
                if cut is None or cuts.choice(cut) is not joint.chosen:
                    ways[c] = CoverOption(c, joint=joint)
                    kids[c] = tuple(bits(joint.leaves))
        return saved


def _in_order(
    roots: Sequence[int], kids: Mapping[int, tuple[int, ...]]
) -> Iterator[int]:
    done: set[int] = set()
    for root in roots:
        stack = [(root, 0)]
        while stack:
            place, i = stack.pop()
            if place in done:
                continue
            mine = kids[place]
            if i < len(mine):
                stack.append((place, i + 1))
                if mine[i] not in done:
                    stack.append((mine[i], 0))
            else:
                done.add(place)
                yield place


def build(
    cover: Cover, leaves: dict[int, Term], target: Any
) -> tuple[list[Term], dict[Term, tuple[CoverOption, dict[int, Term]]]]:
    """The terms of a cover in the graph ``target``: its roots, and of each term the way
    that made it and the e-graph's classes that it reads. ``leaves``: the terms of the
    e-graph's leaf numbers."""
    graph = cover.cuts.graph
    number = cover.cuts.number
    made: dict[int, Term] = dict(_numbers(cover.cuts, leaves))
    ways: dict[Term, tuple[CoverOption, dict[int, Term]]] = {}
    for place, way in cover.ways:
        if place in made:
            continue
        if way.joint is not None:
            body, reads = _body(cover, way.joint, way.joint.results)
            terms = kernel_terms(body, [made[k] for k in reads], target)
            read = {cover.cuts.classes[k]: made[k] for k in reads}
            for c, term in zip(way.joint.results, terms, strict=True):
                made[c] = term
                ways.setdefault(term, (way, read))
            if len(terms) > 1:
                ways.setdefault(terms[0].args[0], (way, read))
            continue
        if way.cut is not None:
            root = cover.cuts.nodes[way.cut.node].cls
            body, reads = _body(cover, way.cut, (root,))
            (term,) = kernel_terms(body, [made[k] for k in reads], target)
        else:
            reads = tuple(number[k] for k in graph.nodes[way.node].children)
            reads = tuple(k for k in reads if k in made)
            node = graph.nodes[way.node]
            if node.op is SCALAR:
                term = scalar(target, node.attrs[0])
            elif node.op.kind == "leaf":
                term = leaves[node.attrs[0]]
            else:
                below = cover.kids[place]  # of a view it may be a packed operand
                one = len(node.children) == 1
                args = [made[below[0] if one else number[k]] for k in node.children]
                attrs = attr_values(node)
                type_ = infer(node.op, tuple(a.type for a in args), attrs)
                term = target.node(node.op, args, attrs, type_)
        wanted = graph.types[cover.cuts.classes[way.cls]]
        if term.args and term.type != wanted:
            raise EngineError(f"{term.op.name}: {term.type} extracted for {wanted}")
        made[place] = term
        if term.args:
            read = {cover.cuts.classes[k]: made[k] for k in reads}
            ways.setdefault(term, (way, read))
    return [made[r] for r in cover.roots], ways


def inside(cuts: Cuts, kernel: Cut | Joint) -> Mapping[int, int]:
    """The e-node of each class inside a kernel."""
    return cuts.choice(kernel) if isinstance(kernel, Cut) else kernel.chosen


def _body(
    cover: Cover, kernel: Cut | Joint, results: Sequence[int]
) -> tuple[KernelBody, tuple[int, ...]]:
    """The body of a kernel and the classes that are its arguments, in the order in
    which it reads them."""
    known = cover.bodies.get(id(kernel))
    if known is not None:
        return known
    cuts = cover.cuts
    mine = inside(cuts, kernel)
    chosen: dict[int, tuple[Any, tuple[Any, ...], tuple[int, ...]]] = {}
    leaves: dict[int, None] = {}
    stack = list(results)[::-1]
    while stack:
        k = stack.pop()
        if k in chosen or k in leaves:
            continue
        value = _number(cuts, k) if k not in mine and cuts.bare[k] else None
        if value is not None:
            chosen[k] = (SCALAR, value, ())
        elif k in mine:
            node = cuts.nodes[mine[k]]
            chosen[k] = (node.op, node.attrs, node.kids)
            stack.extend(reversed(node.distinct))
        else:
            leaves[k] = None
    types = {k: t for k in results if (t := cuts.types[k]) is not None}
    body = body_above(results, chosen, tuple(leaves), types)
    cover.bodies[id(kernel)] = body, tuple(leaves)
    return cover.bodies[id(kernel)]


def _numbers(cuts: Cuts, leaves: Mapping[int, Term]) -> Iterator[tuple[int, Term]]:
    """The bare numbers that come from outside: no kernel waits for them."""
    for c, cls in enumerate(cuts.classes[: len(cuts.bare)]):
        if cuts.bare[c]:
            for i in cuts.graph.classes[cls]:
                node = cuts.graph.nodes[i]
                if node.op is INPUT:
                    yield c, leaves[node.attrs[0]]


def _number(cuts: Cuts, c: int) -> tuple[Any, ...] | None:
    """The value of a class that is a bare number."""
    graph = cuts.graph
    for i in graph.classes[cuts.classes[c]]:
        if graph.nodes[i].op is SCALAR:
            return graph.nodes[i].attrs
    return None
