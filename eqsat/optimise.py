"""From traced terms to the cheapest terms found: regions, e-graph, rules,
extraction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from eqsat.cost import CostModel
from eqsat.cover import Cover, Way, build, cover, inside
from eqsat.egraph import Engine
from eqsat.ematch import fuse
from eqsat.errors import DTypeError, EngineError, ShapeError, SourceLine
from eqsat.frozen import Budget, EGraph, Inserted
from eqsat.normal import fusions
from eqsat.op import SCALAR, Op
from eqsat.options import Options
from eqsat.origin import Origin, lines_behind, rules_behind
from eqsat.regions import Region, is_constant, split
from eqsat.rulefile import RuleSet
from eqsat.second import second_pass
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
    prices_s: dict[Term, float] = field(default_factory=dict)
    """What extraction took each kernel for (s)."""
    dump: Callable[[], str] = lambda: ""
    """The e-graph as egglog text."""

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
    model = model.under(options)
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
        if options.fusion and budget.left():
            named = fusions(admitted, {n.op.name for n in graph.nodes})
            fired |= fuse(graph, named, budget)
        clock.lap("fuse")
        result = _cover_all(graph, model, pieces, regions, roots, options, budget)
    clock.lap("extract")
    if len(regions) > 1 and options.fusion and budget.left():
        _shifted(result, model, budget, options)
        clock.lap("second pass")
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
        unchanged.dump = result.dump
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
        files = {Path(r.file).name for r in rules}
        for name in options.disable - files:
            rules[name]
        chosen = RuleSet(
            tuple(
                r
                for r in rules
                if options.admits(r.numerics)
                and not options.disable & {r.name, Path(r.file).name}
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


@dataclass(frozen=True)
class _Place:
    """How a term of the chosen program is computed."""

    piece: _Piece
    cover: Cover
    region: Region
    way: Way


def _cover_all(
    graph: EGraph,
    model: CostModel,
    pieces: Sequence[_Piece],
    regions: Sequence[Region],
    roots: Sequence[Term],
    options: Options,
    budget: Budget,
) -> Optimised:
    """The chosen terms of ``regions``, which are in evaluation order."""
    done: dict[Term, Term] = {}
    places: dict[Term, _Place] = {}
    chosen: dict[int, tuple[_Piece, Cover]] = {}
    gaps: list[float] = []
    prices: dict[Term, float] = {}
    for piece in pieces:
        found = cover(
            graph,
            model,
            _root_classes(piece, piece.sample),
            budget,
            optimal=options.extract == "exact",
            exact=options.numerics == "exact",
        )
        if found.gap is not None:
            gaps.append(found.gap)
        chosen.update((id(region), (piece, found)) for region in piece.instances)
    for region in regions:
        piece, found = chosen[id(region)]
        leaves = {
            piece.first_leaf + i: done.get(leaf, leaf)
            for i, leaf in enumerate(region.leaves)
        }
        made, ways = build(found, leaves, region.terms[0].graph)
        done.update(zip(region.roots, made, strict=True))
        for t, way in ways.items():
            places.setdefault(t, _Place(piece, found, region, way))
            if way.price_s is not None:
                prices.setdefault(t, way.price_s)
    return Optimised(
        [done.get(r, r) for r in roots],
        lambda: {t: _origin(graph, p) for t, p in places.items()},
        {},
        0.0,
        0.0,
        {},
        "",
        prices_s=prices,
        optimal_gap=max(gaps) if gaps else None,
    )


def _shifted(
    result: Optimised, model: CostModel, budget: Budget, options: Options
) -> None:
    """Look for kernels across the borders of regions."""
    first = result.find_origins
    again = second_pass(result.roots, model, budget, options.numerics == "exact")
    result.roots = again.roots
    result.prices_s |= again.prices_s

    def find_origins() -> dict[Term, Origin]:
        known = first()
        return {
            t: Origin.of_all(known[p] for p in parts if p in known)
            for t, parts in again.parts.items()
        }

    result.find_origins = find_origins


def _origin(graph: EGraph, place: _Place) -> Origin:
    written: dict[int, Term] = {}
    for cls, t in zip(place.piece.classes, place.region.terms, strict=True):
        written.setdefault(cls, t)
    cuts, way = place.cover.cuts, place.way
    kernel = way.cut or way.joint
    if kernel is None:
        node = graph.nodes[way.node]
        return Origin(rules_behind(graph, node), lines_behind(node, written))
    rules: dict[str, None] = {}
    lines: dict[SourceLine, None] = {}
    for n in inside(cuts, kernel).values():
        node = graph.nodes[cuts.nodes[n].origin]
        rules.update(dict.fromkeys(rules_behind(graph, node)))
        lines.update(dict.fromkeys(lines_behind(node, written)))
    return Origin(tuple(rules), tuple(sorted(lines)))


def _root_classes(piece: _Piece, region: Region) -> list[int]:
    place = {t: cls for t, cls in zip(region.terms, piece.classes, strict=True)}
    return [place[r] for r in region.roots]


def _own_origins(roots: Sequence[Term]) -> dict[Term, Origin]:
    return {
        t: Origin((), (t.source,) if t.source is not None else ())
        for t in postorder(roots)
    }
