"""From traced terms to the cheapest terms found: regions, e-graph, rules,
extraction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from eqsat.build import infer, scalar
from eqsat.cost import CostModel
from eqsat.egraph import Engine
from eqsat.ematch import fuse
from eqsat.errors import DTypeError, EngineError, ShapeError
from eqsat.exact import extract_exact
from eqsat.extract import Choice, extract
from eqsat.frozen import Budget, EGraph, Inserted, attr_values
from eqsat.insertion import Step
from eqsat.normal import fusions
from eqsat.op import SCALAR, Op
from eqsat.options import Options
from eqsat.origin import Origin, Part, Place, Search, lines_behind, rules_behind
from eqsat.regions import Region, is_constant, split
from eqsat.rulefile import RuleSet
from eqsat.term import Term, postorder


@dataclass
class Optimised:
    """The outcome of one optimisation."""

    roots: list[Term]
    find_origins: Callable[[], dict[Term, Origin]]
    """Where the terms come from; worked out when somebody asks."""
    fired: dict[str, int]
    """Matches of each rule over all phases."""
    cost_s: float
    baseline_cost_s: float
    phases_s: dict[str, float]
    cut_short: str
    """What ran out, in words; empty when nothing did."""
    regions: int = 0
    distinct_regions: int = 0
    classes: int = 0
    nodes: int = 0
    optimal_gap: float | None = None
    dump: Callable[[], str] = lambda: ""
    """The e-graph as egglog text."""
    search: Search | None = None
    """What it went through; None when there was nothing to search."""

    @cached_property
    def origins(self) -> dict[Term, Origin]:
        """Where each term of the program comes from."""
        return self.find_origins()


@dataclass
class _Clock:
    phases: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.phases[name] = self.phases.get(name, 0.0) + now - self.last
        self.last = now


@dataclass
class _Piece:
    """A distinct region with its place in the e-graph."""

    instances: list[Region]
    base: int
    first_leaf: int
    classes: list[int] = field(default_factory=list)
    """The class of each term of the sample, after saturation."""

    @property
    def sample(self) -> Region:
        return self.instances[0]


def optimise(
    roots: Sequence[Term],
    rules: RuleSet,
    options: Options,
    model: CostModel,
    provenance: bool = False,
) -> Optimised:
    """The cheapest program found for ``roots`` within the budget of ``options``.

    ``provenance``: also keep which rules built each node (half as much time again).
    Always returns a correct program: when the budget ends before anything was found,
    the one that the user wrote. Raises :class:`EngineError` when rules contradict each
    other.
    """
    clock = _Clock()
    constant = is_constant(roots)
    baseline = model.program(roots, constant)
    budget = Budget(time.perf_counter() + options.deadline_s, options.max_nodes)
    regions = split(roots, constant, whole=not options.regions)
    pieces = _distinct(regions)
    clock.lap("regions")
    unchanged = Optimised(
        list(roots),
        lambda: _own_origins(roots),
        {},
        baseline,
        baseline,
        clock.phases,
        "",
        len(regions),
        len(pieces),
    )
    if not pieces or not budget.left():
        unchanged.cut_short = _spent(budget, options)
        return unchanged
    admitted = _admitted(rules, options)
    engine = Engine(admitted, _ops(pieces), provenance)
    clock.lap("rules")
    inserted = [_inserted(piece) for piece in pieces]
    for what in inserted:
        engine.insert(what)
    clock.lap("insert")
    engine.saturate(budget)
    clock.lap("saturate")
    with _blamed_on_rules(engine):
        graph = engine.read()
        for piece, what in zip(pieces, inserted, strict=True):
            piece.classes = graph.classes_of(what)
        clock.lap("read")
        fired = dict(engine.fired)
        ran = {step.phase for step in engine.history if isinstance(step, Step)}
        if options.fusion and budget.left():
            ran.add("fuse")
            named = fusions(admitted, {n.op.name for n in graph.nodes})
            fired |= fuse(graph, named, budget)
        clock.lap("fuse")
        weights = _weights(graph, model)
        work = _Work(graph, weights, pieces, regions, roots, model)
        result = _extract_all(work, options, budget, admitted, ran)
    clock.lap("extract")
    result.fired = fired
    result.baseline_cost_s = baseline
    result.cost_s = model.program(result.roots, is_constant(result.roots))
    result.cut_short = _spent(budget, options)
    result.regions, result.distinct_regions = len(regions), len(pieces)
    result.classes, result.nodes = len(graph.classes), len(graph.nodes)
    result.phases_s = clock.phases
    result.dump = engine.dump()
    if result.cost_s > baseline:
        unchanged.fired, unchanged.cut_short = result.fired, result.cut_short
        unchanged.classes, unchanged.nodes = result.classes, result.nodes
        assert result.search is not None
        unchanged.dump = result.dump
        unchanged.search = replace(result.search, won=False)
        return unchanged
    return result


@contextmanager
def _blamed_on_rules(engine: Engine) -> Iterator[None]:
    """The user's terms are sound: what does not fit now was built by a rule."""
    try:
        yield
    except (ShapeError, DTypeError) as error:
        raise EngineError(
            f"a rule built a term that cannot be: {str(error).splitlines()[0]}\n"
            f"  rules that fired: {', '.join(sorted(engine.fired))}"
        ) from error


def _spent(budget: Budget, options: Options) -> str:
    if budget.spent == "time":
        return f"deadline_s={options.deadline_s:g} ran out"
    if budget.spent == "nodes":
        return f"the e-graph reached max_nodes={options.max_nodes}"
    return ""


_ADMITTED: dict[tuple[int, str, frozenset[str]], tuple[RuleSet, RuleSet]] = {}


def _admitted(rules: RuleSet, options: Options) -> RuleSet:
    """The rules that the options allow; the same object for the same question."""
    key = (id(rules), options.numerics, options.disable)
    known = _ADMITTED.get(key)
    if known is None or known[0] is not rules:
        for name in options.disable:
            rules[name]
        chosen = RuleSet(
            tuple(
                r
                for r in rules
                if options.admits(r.numerics) and r.name not in options.disable
            )
        )
        if len(_ADMITTED) > 32:
            _ADMITTED.clear()
        known = _ADMITTED[key] = (rules, chosen)
    return known[1]


def _distinct(regions: Sequence[Region]) -> list[_Piece]:
    by_key: dict[tuple[object, ...], list[Region]] = {}
    for region in regions:
        by_key.setdefault(region.key, []).append(region)
    pieces = []
    base = leaf = 0
    for instances in by_key.values():
        pieces.append(_Piece(instances, base, leaf))
        base += len(instances[0].terms)
        leaf += len(instances[0].leaves)
    return pieces


def _ops(pieces: Sequence[_Piece]) -> dict[tuple[str, int], Op]:
    found: dict[tuple[str, int], Op] = {}
    for piece in pieces:
        leaves = set(piece.sample.leaves)
        for t in piece.sample.terms:
            if t not in leaves and t.op is not SCALAR:
                assert isinstance(t.op, Op)
                found[t.op.name, len(t.args)] = t.op
    return dict(sorted(found.items()))


def _inserted(piece: _Piece) -> Inserted:
    region, first = piece.sample, piece.first_leaf
    return Inserted(
        region.terms,
        {t: first + i for i, t in enumerate(region.leaves)},
        frozenset(first + i for i in region.constants),
        {first + i: names for i, names in region.facts.items()},
        piece.base,
    )


def _weights(graph: EGraph, model: CostModel) -> list[float]:
    """Seconds of each e-node as a kernel; what is known at compile time costs next to
    nothing."""
    weights = []
    for node in graph.nodes:
        out = graph.types[node.cls]
        types = [graph.types[c] for c in node.children]
        if graph.constant[node.cls]:
            weights.append(0.0 if node.op.kind == "leaf" else 1e-12)
        elif out is None or None in types:
            weights.append(1e3)
        else:
            known = [t for t in types if t is not None]
            weights.append(
                model.price(node.op, attr_values(node), known, node.children, out)
            )
    return weights


@dataclass(frozen=True)
class _Work:
    """What extraction chooses from."""

    graph: EGraph
    weights: list[float]
    pieces: Sequence[_Piece]
    regions: Sequence[Region]
    """In evaluation order."""
    roots: Sequence[Term]
    model: CostModel


def _extract_all(
    work: _Work, options: Options, budget: Budget, rules: RuleSet, ran: set[str]
) -> Optimised:
    """The chosen terms of the regions."""
    graph = work.graph
    gaps: list[float] = []
    choices = []
    for piece in work.pieces:
        wanted = _root_classes(piece, piece.sample)
        if options.extract == "exact":
            choice = extract_exact(graph, work.weights, wanted, budget)
        else:
            choice = extract(graph, work.weights, wanted, budget)
        if choice.gap is not None:
            gaps.append(choice.gap)
        choices.append(choice)
    done, places = _built(work, choices)
    search = Search(
        graph,
        work.weights,
        [_part(p, c) for p, c in zip(work.pieces, choices, strict=True)],
        places,
        done,
        lambda others: _price(work, others),
        rules,
        frozenset(ran),
    )
    return Optimised(
        [done.get(r, r) for r in work.roots],
        lambda: {t: _origin(search, p) for t, p in places.items()},
        {},
        0.0,
        0.0,
        {},
        "",
        optimal_gap=max(gaps) if gaps else None,
        search=search,
    )


def _part(piece: _Piece, choice: Choice) -> Part:
    roots = _root_classes(piece, piece.sample)
    return Part(piece.instances, piece.first_leaf, piece.classes, roots, choice)


def _built(
    work: _Work, choices: Sequence[Choice]
) -> tuple[dict[Term, Term], dict[Term, Place]]:
    """The terms that a choice for each piece makes of the results of regions, and where
    all terms come from."""
    done: dict[Term, Term] = {}
    places: dict[Term, Place] = {}
    chosen = {
        id(region): (i, piece)
        for i, piece in enumerate(work.pieces)
        for region in piece.instances
    }
    for region in work.regions:
        i, piece = chosen[id(region)]
        found = _instantiate(work.graph, piece, choices[i], region, done)
        for t, cls in found.items():
            places.setdefault(t, Place(i, region, cls))
    return done, places


def _price(work: _Work, choices: Sequence[Choice]) -> float:
    """Seconds of the program that a choice for each piece makes."""
    done, _ = _built(work, choices)
    roots = [done.get(r, r) for r in work.roots]
    return work.model.program(roots, is_constant(roots))


def _instantiate(
    graph: EGraph,
    piece: _Piece,
    choice: Choice,
    region: Region,
    done: dict[Term, Term],
) -> dict[Term, int]:
    """Build the chosen terms of one instance of a region over its own leaves; the
    class of each."""
    made: dict[int, Term] = {}
    found: dict[Term, int] = {}
    for cls in _postorder(graph, choice, _root_classes(piece, region)):
        node = graph.nodes[choice.nodes[cls]]
        target = region.terms[0].graph
        if node.op is SCALAR:
            made[cls] = scalar(target, node.attrs[0])
        elif node.op.kind == "leaf":
            leaf = region.leaves[node.attrs[0] - piece.first_leaf]
            made[cls] = done.get(leaf, leaf)
        else:
            args = [made[c] for c in node.children]
            attrs = attr_values(node)
            type_ = infer(node.op, tuple(a.type for a in args), attrs)
            if type_ != graph.types[cls]:
                raise EngineError(
                    f"{node.op.name}: {type_} extracted for {graph.types[cls]}"
                )
            made[cls] = target.node(node.op, args, attrs, type_)
            found.setdefault(made[cls], cls)
    for t, cls in zip(region.roots, _root_classes(piece, region), strict=True):
        done[t] = made[cls]
    return found


def _origin(search: Search, place: Place) -> Origin:
    part = search.parts[place.part]
    written: dict[int, Term] = {}
    for cls, t in zip(part.classes, place.region.terms, strict=True):
        written.setdefault(cls, t)
    graph, choice = search.graph, part.choice
    node = graph.nodes[choice.nodes[place.cls]]
    return Origin(
        rules_behind(graph, node), lines_behind(graph, choice, place.cls, written)
    )


def _root_classes(piece: _Piece, region: Region) -> list[int]:
    place = {t: cls for t, cls in zip(region.terms, piece.classes, strict=True)}
    return [place[r] for r in region.roots]


def _postorder(graph: EGraph, choice: Choice, roots: Sequence[int]) -> Iterator[int]:
    seen: set[int] = set()
    for root in roots:
        stack = [(root, 0)]
        while stack:
            cls, i = stack.pop()
            if cls in seen:
                continue
            kids = graph.nodes[choice.nodes[cls]].children
            if i < len(kids):
                stack.append((cls, i + 1))
                if kids[i] not in seen:
                    stack.append((kids[i], 0))
            else:
                seen.add(cls)
                yield cls


def _own_origins(roots: Sequence[Term]) -> dict[Term, Origin]:
    return {
        t: Origin((), (t.source,) if t.source is not None else ())
        for t in postorder(roots)
    }
