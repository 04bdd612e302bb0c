"""From traced terms to the cheapest terms found: regions, e-graph, rules,
extraction."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from eqsat.egraph import (
    Budget,
    EGraph,
    Engine,
    Inserted,
    Iteration,
    attr_values,
    extend,
    fuse,
    fusions,
    mistyped,
    normal_forms,
    open_engine,
    saturate,
    verify_snapshot,
)
from eqsat.kernels import CostModel
from eqsat.rulelang import Rule, RuleSet, default_rules, own_rules
from eqsat.search.across_regions import second_pass
from eqsat.search.extraction import Cover, build, cover
from eqsat.search.isolation import isolated
from eqsat.search.loop_slices import varying
from eqsat.search.provenance import (
    Origin,
    RegionOrigin,
    Search,
    TermOrigin,
    lines_behind,
    nodes_of,
    rules_behind,
)
from eqsat.search.regions import (
    MOST,
    Region,
    inserted,
    ops_in,
    split,
    stretches,
)
from eqsat.search.unstack import unstacked
from eqsat.search.written_values import written
from eqsat.support import (
    MISFITS,
    EngineError,
    Options,
    RuleError,
    SourceLine,
    VerifyError,
    cached_by_identity,
    cached_property,
    nearest,
    tell_phase,
    verifying,
)
from eqsat.terms import Term, is_constant, postorder

HURRY_S = 1e-4
"""Seconds for each term of a region to be covered in one pass: measured."""
GENEROUS = 3.0
"""How much more than its share of the time a region may take for its cover: of regions
for which there is no time, some are covered well and the others in one pass."""
SPARE = 0.1
"""Part of the deadline that is spent once more on the cover of regions in one pass,
where an iteration of rules took too long."""
SATURATING = 0.4
"""Part of the time that rules may take: what they find is read and covered after."""


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
    own_cost_s: float | None = None
    """What the best program found with a user's own rules costs (s), where the stock
    rules alone found the cheaper one."""
    search: Search | None = None
    """What it went through; None when there was nothing to search."""
    left_out: Sequence[Rule] = ()
    """Rules of a user's that broke the search, which was done without them."""

    @cached_property
    def origins(self) -> dict[Term, Origin]:
        """Where each term of the program comes from."""
        return self.find_origins()


@dataclass
class _Clock:
    phases: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        spent = tell_phase(name, self.last)
        self.phases[name] = self.phases.get(name, 0.0) + spent
        self.last += spent


@dataclass
class _Piece:
    """A distinct region with its place in the e-graph."""

    instances: list[Region]
    base: int
    first_leaf: int
    classes: list[int] = field(default_factory=list)
    """The class of each term of the sample, after saturation."""
    is_free: bool = False
    """Whether rules may change it."""

    @property
    def sample(self) -> Region:
        return self.instances[0]


def optimise(
    roots: Sequence[Term],
    rules: RuleSet,
    options: Options,
    model: CostModel,
    provenance: bool = False,
    seconds: float | None = None,
) -> Optimised:
    """The cheapest program found for ``roots`` within the budget of ``options``, and in
    ``seconds`` where those are given.

    ``provenance``: also keep which rules built each node (half as much time again).
    Always returns a correct program: when the budget ends before anything was found,
    the one that the user wrote; and where there are rules of a user's, never one that
    is dearer than what the stock rules among ``rules`` find alone. Rules of a user's
    that break the search are left out, and a :class:`RuleWarning` names them.
    """

    time_s = options.deadline_s if seconds is None else seconds
    budget = Budget.of(time_s, options.max_nodes)

    def search(some: RuleSet, seconds: float = time_s) -> Optimised:
        part = Budget.of(seconds, options.max_nodes)
        return _optimised(roots, some, options, model, provenance, part)

    admitted = _admitted(rules, options)
    if not any(r.phase == "canonicalise" for r in own_rules(admitted)):
        found, left_out = isolated(search, admitted)
        found.left_out = left_out
        return found
    # Those are in force from the start, so that the stock rules need a search apart.
    first = search(_stock(admitted))
    if not budget.left():
        return first
    again = partial(search, seconds=budget.seconds)
    own, left_out = isolated(again, admitted)
    found = _better(first, own)
    found.left_out = left_out
    return found


def _optimised(
    roots: Sequence[Term],
    rules: RuleSet,
    options: Options,
    model: CostModel,
    provenance: bool,
    budget: Budget,
) -> Optimised:
    """What :func:`optimise` gives, with ``rules`` as they are."""
    clock = _Clock()
    model = model.under(options)
    constant = is_constant(roots)
    baseline = model.program(roots, constant)
    given = roots
    if options.fusion and options.admits("reassociate"):
        roots = unstacked(given)
        constant = is_constant(roots)
    outside = varying(list(postorder(roots))) if options.regions else frozenset()
    kept = _kept(roots, constant, rules, options)
    regions = split(roots, constant, not options.regions, outside, rules.asked, kept)
    pieces = _distinct(regions)
    clock.lap("regions")
    unchanged = Optimised(
        list(given),
        lambda: _own_origins(given),
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
    ops = ops_in(p.sample for p in pieces if not p.sample.is_written)
    engine = open_engine(rules, ops, provenance, keep=True)
    clock.lap("rules")
    searched = _given(pieces, engine, budget)
    clock.lap("insert")
    spare_s = SPARE * options.deadline_s
    job = _Job(
        pieces, searched, regions, outside, roots, rules, model, options, spare_s
    )
    found = _searched(job, engine, budget, clock)
    if found is None:
        unchanged.cut_short = _spent(budget, options)
        return unchanged
    result = found
    result.baseline_cost_s = baseline
    result.cut_short = _spent(budget, options)
    result.regions, result.distinct_regions = len(regions), len(pieces)
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


def _given(pieces: Sequence[_Piece], engine: Engine, budget: Budget) -> list[Inserted]:
    """Put pieces into the engine, which takes some 0.1 ms for a term: those for which
    there is no time are computed as they were written."""
    part = budget.part(SATURATING)
    searched = []
    for p in pieces:
        p.is_free = not p.sample.is_written and part.left()
        if p.is_free:
            searched.append(_inserted(p))
            engine.insert(searched[-1])
    budget.spent = budget.spent or part.spent
    return searched


def _kept(
    roots: Sequence[Term],
    constant: dict[Term, bool],
    rules: RuleSet,
    options: Options,
) -> frozenset[Term]:
    """Terms that are computed as they were written: decisions depend on them, or they
    join more arrays than a region has terms. Rules would see nothing of what these are,
    and the engine takes time with the square of their number: 0.1 s for an op of 250
    arguments, 8 s for one of 1,000."""
    terms = [t for t in postorder(roots) if not constant[t]]
    wide = frozenset(t for t in terms if len(t.args) > MOST)
    if not options.admits("reassociate") or options.admits("fast"):
        return wide
    return wide | written(terms, constant, rules)


@dataclass(frozen=True)
class _Job:
    """What one search is about."""

    pieces: Sequence[_Piece]
    searched: Sequence[Inserted]
    """The pieces that rules may change, as they went into the engine."""
    regions: Sequence[Region]
    """In evaluation order."""
    outside: Collection[Term]
    """Terms that are leaves of all regions."""
    roots: Sequence[Term]
    rules: RuleSet
    model: CostModel
    options: Options
    spare_s: float
    """Seconds beyond the budget in which each region may be covered in one pass: what
    is not fused takes longer to make code of."""


def _searched(
    job: _Job, engine: Engine, budget: Budget, clock: _Clock
) -> Optimised | None:
    """The cheapest program that the stock rules find, or what a user's own rules find
    after them where that costs no more; None where there is no time to look at every
    region once."""
    own = normal_forms(job.rules).own
    with _blamed_on_rules(engine):
        part = budget.part(SATURATING)
        saturate(engine, part, own=False)
        budget.spent = budget.spent or part.spent
        clock.lap("saturate")
        graph, fired = _read(job, engine, budget, clock, own)
        need = HURRY_S * sum(len(p.sample.terms) for p in job.pieces)
        if budget.seconds < need and job.spare_s < need:
            budget.spent = budget.spent or "time"
            engine.close()
            return None
        best = _covered(job, engine, graph, fired, budget, clock)
        if own and budget.left():
            part = budget.part(SATURATING)
            changed = extend(engine, part)
            budget.spent = budget.spent or part.spent
            clock.lap("saturate")
            graph, fired = _read(job, engine, budget, clock, frozenset())
            if changed or own & fired.keys():
                found = _covered(job, engine, graph, fired, budget, clock)
                best = _better(best, found)
    engine.close()
    return best


def _better(stock: Optimised, own: Optimised) -> Optimised:
    """What a user's own rules found, unless the stock rules found a cheaper program."""
    if own.cost_s <= stock.cost_s:
        return own
    stock.fired, stock.own_cost_s = own.fired, own.cost_s
    return stock


def _read(
    job: _Job, engine: Engine, budget: Budget, clock: _Clock, without: Set[str]
) -> tuple[EGraph, dict[str, int]]:
    """What the engine holds, with what fusions build but those ``without``; matches of
    each rule."""
    graph = engine.read()
    found = iter(graph.classes_of(*job.searched))
    for piece in job.pieces:
        free = piece.is_free
        piece.classes = next(found) if free else graph.append(_inserted(piece))
    if verifying():
        verify_snapshot(
            graph, "saturate", [(p.sample.terms, p.classes) for p in job.pieces]
        )
    clock.lap("read")
    fired = dict(engine.fired)
    if job.options.fusion and budget.left():
        named = fusions(job.rules, {n.op.name for n in graph.nodes})
        read = len(graph.nodes)
        fired |= fuse(graph, [f for f in named if f[0].name not in without], budget)
        if verifying():
            verify_snapshot(graph, "fuse", start=read)
    if not verifying() and own_rules(job.rules) and (wrong := mistyped(graph)):
        raise EngineError(_cannot_be(str(wrong.node), engine))
    clock.lap("fuse")
    return graph, fired


def _covered(
    job: _Job,
    engine: Engine,
    graph: EGraph,
    fired: dict[str, int],
    budget: Budget,
    clock: _Clock,
) -> Optimised:
    """The cheapest program found in ``graph``."""
    ran = {step.phase for step in engine.history if isinstance(step, Iteration)}
    if job.options.fusion and budget.left():
        ran.add("fuse")
    work = _Work(
        graph, job.pieces, job.regions, job.outside, job.roots, job.model, job.options
    )
    result = _cover_all(work, budget, job.rules, ran, clock)
    result.fired = fired
    result.cost_s = job.model.program(result.roots, is_constant(result.roots))
    result.classes, result.nodes = len(graph.classes), len(graph.nodes)
    return result


_OF_RULES = ("saturate", "fuse")
"""Stages in which rules build terms."""


@contextmanager
def _blamed_on_rules(engine: Engine) -> Iterator[None]:
    """The user's terms are sound: what does not fit now was built by a rule."""
    try:
        yield
    except (VerifyError, *MISFITS) as error:
        if isinstance(error, VerifyError) and error.stage not in _OF_RULES:
            raise
        raise EngineError(_cannot_be(str(error).splitlines()[0], engine)) from error


def _cannot_be(what: str, engine: Engine) -> str:
    return (
        f"a rule built a term that cannot be: {what}\n"
        f"  rules that fired: {', '.join(sorted(engine.fired))}"
    )


def _spent(budget: Budget, options: Options) -> str:
    if budget.spent == "time":
        return f"deadline_s={options.deadline_s:g} ran out"
    if budget.spent == "nodes":
        return f"the e-graph reached max_nodes={options.max_nodes}"
    return ""


@cached_by_identity
def _stock(rules: RuleSet) -> RuleSet:
    """The stock rules among ``rules``."""
    own = set(own_rules(rules))
    return RuleSet(tuple(r for r in rules if r not in own))


_ADMITTED: dict[tuple[int, str, frozenset[str]], tuple[RuleSet, RuleSet]] = {}


def _admitted(rules: RuleSet, options: Options) -> RuleSet:
    """The rules that the options allow; the same object for the same question."""
    key = (id(rules), options.numerics, options.disable)
    known = _ADMITTED.get(key)
    if known is None or known[0] is not rules:
        _check_names(options.disable, rules)
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


def _check_names(disable: Collection[str], rules: RuleSet) -> None:
    """Raise :class:`RuleError` for a name of no rule and no file. Stock rules may be
    turned off where they are not among ``rules``, as by ``EQSAT_DISABLE``."""
    known = {n for r in rules for n in (r.name, Path(r.file).name)}
    for name in sorted(disable):
        if name not in known:
            known |= {n for r in default_rules() for n in (r.name, Path(r.file).name)}
        if name not in known:
            raise RuleError(f"disable: no rule {name!r}{nearest(name, known)}")


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


def _inserted(piece: _Piece) -> Inserted:
    return inserted(piece.sample, piece.first_leaf, piece.base)


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
            known = tuple(t for t in types if t is not None)
            weights.append(
                model.price(node.op, attr_values(node), known, node.children, out)
            )
    return weights


@dataclass(frozen=True)
class _Work:
    """What extraction chooses from."""

    graph: EGraph
    pieces: Sequence[_Piece]
    regions: Sequence[Region]
    """In evaluation order."""
    outside: Collection[Term]
    """Terms that are leaves of all regions."""
    roots: Sequence[Term]
    model: CostModel
    options: Options

    def cover(self, graph: EGraph, roots: Sequence[int], budget: Budget) -> Cover:
        """The cheapest cover of some classes."""
        return cover(
            graph,
            self.model,
            roots,
            budget,
            optimal=self.options.extract == "exact",
            exact=self.options.numerics == "exact",
        )


@dataclass
class _Built:
    """The program that a cover for each piece makes."""

    roots: list[Term]
    chosen: dict[Term, Term]
    """Results of regions, as written, to the terms chosen for them."""
    places: dict[Term, tuple[TermOrigin, ...]]
    prices_s: dict[Term, float]


def _cover_all(
    work: _Work, budget: Budget, rules: RuleSet, ran: set[str], clock: _Clock
) -> Optimised:
    """The chosen terms of the regions."""
    covers = []
    sizes = [len(p.sample.terms) for p in work.pieces]
    for i, p in enumerate(work.pieces):
        share = min(1.0, GENEROUS * sizes[i] / sum(sizes[i:]))
        reserve = HURRY_S * sum(sizes[i + 1 :])
        mine = Budget.of(share * (budget.seconds - reserve), budget.max_nodes)
        covers.append(work.cover(work.graph, _root_classes(p, p.sample), mine))
        budget.spent = budget.spent or mine.spent
    gaps = [c.gap for c in covers if c.gap is not None]
    built = _built(work, covers)
    clock.lap("extract")
    built = _shifted(work, built, budget)
    clock.lap("second pass")
    search = Search(
        work.graph,
        lambda: _weights(work.graph, work.model),
        [_part(p, c) for p, c in zip(work.pieces, covers, strict=True)],
        built.places,
        built.chosen,
        work.cover,
        lambda others: _price(work, others),
        rules,
        frozenset(ran),
    )
    return Optimised(
        built.roots,
        lambda: {t: _origin(search, p) for t, p in built.places.items()},
        {},
        0.0,
        0.0,
        {},
        "",
        prices_s=built.prices_s,
        optimal_gap=max(gaps) if gaps else None,
        search=search,
    )


def _part(piece: _Piece, found: Cover) -> RegionOrigin:
    roots = _root_classes(piece, piece.sample)
    return RegionOrigin(piece.instances, piece.first_leaf, piece.classes, roots, found)


def _built(work: _Work, covers: Sequence[Cover]) -> _Built:
    """The terms that a cover for each piece makes."""
    done: dict[Term, Term] = {}
    places: dict[Term, tuple[TermOrigin, ...]] = {}
    prices: dict[Term, float] = {}
    chosen = {
        id(region): (i, piece)
        for i, piece in enumerate(work.pieces)
        for region in piece.instances
    }
    for region in work.regions:
        i, piece = chosen[id(region)]
        leaves = {
            piece.first_leaf + k: done.get(leaf, leaf)
            for k, leaf in enumerate(region.leaves)
        }
        made, ways = build(covers[i], leaves, region.terms[0].graph)
        done.update(zip(region.roots, made, strict=True))
        for t, (way, reads) in ways.items():
            places.setdefault(
                t, (TermOrigin(i, region, nodes_of(covers[i], way), reads),)
            )
            if way.price_s is not None:
                prices.setdefault(t, way.price_s)
    return _Built([done.get(r, r) for r in work.roots], done, places, prices)


def _shifted(work: _Work, built: _Built, budget: Budget) -> _Built:
    """The program with kernels across the borders of regions."""
    if len(work.regions) == 1 or not work.options.fusion or not budget.left():
        return built
    exact = work.options.numerics == "exact"
    number, joined = stretches(work.regions)
    where = {t: number[id(p[0].region)] for t, p in built.places.items()}
    again = second_pass(
        built.roots, work.model, budget, exact, where, joined, work.outside
    )
    places = {
        t: tuple(p for part in parts for p in built.places.get(part, ()))
        for t, parts in again.parts.items()
    }
    prices = built.prices_s | again.prices_s
    for t, parts in again.parts.items():
        if t not in prices and len(parts) == 1 and parts[0] in prices:
            prices[t] = prices[parts[0]]  # kept, over other operands
    return _Built(again.roots, built.chosen, built.places | places, prices)


def _price(work: _Work, covers: Sequence[Cover]) -> float:
    """Seconds of the program that a cover for each piece makes."""
    built = _built(work, covers)
    budget = Budget.of(work.options.deadline_s, work.options.max_nodes)
    built = _shifted(work, built, budget)
    return work.model.program(built.roots, is_constant(built.roots))


def _origin(search: Search, places: Sequence[TermOrigin]) -> Origin:
    graph = search.graph
    rules: dict[str, None] = {}
    lines: set[SourceLine] = set()
    for place in places:
        written: dict[int, Term] = {}
        part = search.parts[place.part]
        for cls, t in zip(part.classes, place.region.terms, strict=True):
            written.setdefault(cls, t)
        for i in place.nodes:
            rules.update(dict.fromkeys(rules_behind(graph, graph.nodes[i])))
            lines.update(lines_behind(graph.nodes[i], written))
    return Origin(tuple(rules), tuple(sorted(lines)))


def _root_classes(piece: _Piece, region: Region) -> list[int]:
    place = {t: cls for t, cls in zip(region.terms, piece.classes, strict=True)}
    return [place[r] for r in region.roots]


def _own_origins(roots: Sequence[Term]) -> dict[Term, Origin]:
    return {
        t: Origin((), (t.source,) if t.source is not None else ())
        for t in postorder(roots)
    }
