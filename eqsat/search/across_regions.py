"""The second pass over a program of several regions: kernels across their borders.

The kernels of the first pass are opened again and grouped by other borders, none of
which cuts a kernel, so that what the first borders kept apart lies side by side. Each
distinct group is covered anew, without rewriting: a group that comes out cheaper
replaces its kernels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.egraph import Budget, EGraph
from eqsat.kernels import CostModel
from eqsat.search.extraction import Cover, CoverOption, build, cover, inside
from eqsat.search.regions import Region, inserted, region_of
from eqsat.terms import INPUT, SCALAR, Term, is_constant, postorder
from eqsat.trace import KERNEL, RESULT, KernelBody

GAIN = 1e-6
"""Part of its cost that a group must save to be replaced."""


@dataclass
class Second:
    """The outcome of the second pass."""

    roots: list[Term]
    parts: dict[Term, tuple[Term, ...]]
    """Each new kernel to those of the first pass whose work it does."""
    prices_s: dict[Term, float]
    """What the new kernels were taken for (s)."""


@dataclass
class _Group:
    """Kernels and views of the first pass in a row, and what they open to."""

    closed: list[Term] = field(default_factory=list)
    terms: dict[Term, None] = field(default_factory=dict)
    values: dict[Term, None] = field(default_factory=dict)
    """The results of the kernels, as terms."""
    has_border: bool = False
    """Whether a border of regions lies within."""


def second_pass(
    roots: Sequence[Term],
    model: CostModel,
    budget: Budget,
    exact: bool,
    where: Mapping[Term, int],
    joined: Collection[int] = (),
    outside: Collection[Term] = (),
) -> Second:
    """The program again, covered by other groups. ``where``: the region of each kernel
    and view, or the stretch of small ones, by its number in evaluation order;
    ``joined``: stretches of several; ``outside``: terms of no region."""
    constant = is_constant(roots)
    opened, owner = opened_program(roots, constant, outside)
    groups = _groups(opened, where, joined)
    regions = _regions(roots, groups, opened, constant, outside)
    known: dict[tuple[object, ...], Cover | None] = {}
    final: dict[Term, Term] = {}
    parts: dict[Term, tuple[Term, ...]] = {}
    prices: dict[Term, float] = {}
    for group, region in zip(groups, regions, strict=True):
        if region.key not in known:
            known[region.key] = None
            if group.has_border:
                cost = sum(model.term(t) for t in group.closed)
                found = _covered(region, model, budget, exact)
                if found is not None and found.cost_s < cost * (1 - GAIN):
                    known[region.key] = found
        chosen = known[region.key]
        if chosen is None:
            _keep(group, opened, final, parts)
        else:
            prices |= _replace(chosen, region, final, parts, owner)
    out = [final.get(opened[r][-1], r) if r in opened else r for r in roots]
    return Second(out, parts, prices)


def opened_program(
    roots: Sequence[Term], constant: Mapping[Term, bool], outside: Collection[Term] = ()
) -> tuple[dict[Term, list[Term]], dict[Term, Term]]:
    """What each kernel and view opens to, its value last, and whose part a term is;
    those ``outside`` stay closed."""
    opened: dict[Term, list[Term]] = {}
    owner: dict[Term, Term] = {}

    def value(t: Term) -> Term:
        return opened[t][-1] if t in opened else t

    for t in postorder(roots):
        if constant[t] or t.op is INPUT or t in outside:
            continue
        args = [value(a) for a in t.args]
        if t.op is RESULT:
            kernel = t.args[0]
            body = kernel.attrs[0]
            assert isinstance(body, KernelBody) and isinstance(t.attrs[0], int)
            operands = [value(a) for a in kernel.args]
            opened[t] = [body.apply(t.graph, operands)[body.results[t.attrs[0]]]]
            continue
        if t.op is KERNEL:
            body = t.attrs[0]
            assert isinstance(body, KernelBody)
            made = body.apply(t.graph, args)[body.arity :]
            made = [m for m in made if m.op is not SCALAR]
        else:
            made = [t.graph.node(t.op, args, t.attrs, t.type)]
        opened[t] = made
        for m in made:
            owner.setdefault(m, t)
    return opened, owner


def _groups(
    opened: Mapping[Term, list[Term]],
    where: Mapping[Term, int],
    joined: Collection[int],
) -> list[_Group]:
    """The second half of each region with the first half of the next, so that groups
    repeat where regions do. A region of which one kernel is more than half stays whole:
    a group ends after it if a border lies within already. So does what is alone.

    What an earlier group gives is not computed again; what is inside a kernel there may
    be inside one here too.
    """
    by_region: dict[int, list[list[Term]]] = {}
    whole: dict[Term, list[Term]] = {}
    for t in opened:
        if t.op is RESULT:  # stays with its kernel, wherever it is first read
            whole[t.args[0]].append(t)
        else:
            whole[t] = [t]
            by_region.setdefault(where[t], []).append(whole[t])
    groups = [_Group()]
    given: set[Term] = set()

    def end() -> None:
        given.update(groups[-1].values)
        groups.append(_Group())

    for region in sorted(by_region):
        kernels = by_region[region]
        half = sum(len(opened[t]) for k in kernels for t in k) / 2
        groups[-1].has_border = bool(groups[-1].closed) or region in joined
        done, is_cut = 0, False
        for kernel in kernels:
            if done >= half and not is_cut and len(by_region) > 1:
                end()
                groups[-1].has_border = region in joined
                is_cut = True
            group = groups[-1]
            for t in kernel:
                done += len(opened[t])
                group.closed.append(t)
                group.values[opened[t][-1]] = None
                new = (m for m in opened[t] if m not in given)
                group.terms.update(dict.fromkeys(new))
        if not is_cut and groups[-1].has_border:
            end()
    return [g for g in groups if g.closed]


def _regions(
    roots: Sequence[Term],
    groups: Sequence[_Group],
    opened: Mapping[Term, list[Term]],
    constant: Mapping[Term, bool],
    outside: Collection[Term],
) -> list[Region]:
    wanted = {opened[r][-1] for r in roots if r in opened}
    known = constants_with((m for g in groups for m in g.terms), constant)
    regions: list[Region] = []
    for g in reversed(groups):
        later = wanted & g.values.keys()
        regions.append(region_of(list(g.terms), later, known, outside))
        wanted.update(a for m in g.terms for a in m.args if a not in g.terms)
    return regions[::-1]


def constants_with(
    terms: Iterable[Term], constant: Mapping[Term, bool]
) -> dict[Term, bool]:
    """``constant`` with what the kernels of a program opened to, and what that reads:
    bare numbers among them were in no term before."""
    opened = list(terms)
    known = {**constant, **dict.fromkeys(opened, False)}
    for m in opened:
        for a in m.args:
            known.setdefault(a, a.op is not INPUT)
    return known


def _covered(
    region: Region, model: CostModel, budget: Budget, exact: bool
) -> Cover | None:
    graph, classes = graph_of(region)
    if not budget.left():
        return None
    place = dict(zip(region.terms, classes, strict=True))
    return cover(graph, model, [place[r] for r in region.roots], budget, exact=exact)


def graph_of(region: Region) -> tuple[EGraph, list[int]]:
    """An e-graph in which each term is a class of its own."""
    graph = EGraph([], [], [], [])
    return graph, graph.append(inserted(region))


def _keep(
    group: _Group,
    opened: Mapping[Term, list[Term]],
    final: dict[Term, Term],
    parts: dict[Term, tuple[Term, ...]],
) -> None:
    """The kernels of the first pass over what their operands have become."""
    again: dict[Term, Term] = {}
    for t in group.closed:
        args = [
            again.get(a) or final.get(opened[a][-1] if a in opened else a, a)
            for a in t.args
        ]
        made = t.graph.node(t.op, args, t.attrs, t.type)
        again[t] = made
        if not _has_results(t):
            final.setdefault(opened[t][-1], made)
        parts.setdefault(made, (t,))


def _has_results(t: Term) -> bool:
    """Whether a term is a kernel that other terms read the results of."""
    body = t.attrs[0] if t.op is KERNEL else None
    return isinstance(body, KernelBody) and len(body.results) > 1


def _replace(
    chosen: Cover,
    region: Region,
    final: dict[Term, Term],
    parts: dict[Term, tuple[Term, ...]],
    owner: Mapping[Term, Term],
) -> dict[Term, float]:
    """Build the new cover of a group; what its kernels were taken for."""
    leaves = {i: final.get(t, t) for i, t in enumerate(region.leaves)}
    made, ways = build(chosen, leaves, region.terms[0].graph)
    final.update(zip(region.roots, made, strict=True))
    for t, (way, _) in ways.items():
        terms = [region.terms[c] for c in _classes(chosen, way)]
        found = dict.fromkeys(owner[m] for m in terms if m in owner)
        parts.setdefault(t, tuple(found))
    priced = ((t, way.price_s) for t, (way, _) in ways.items())
    return {t: price for t, price in priced if price is not None}


def _classes(chosen: Cover, way: CoverOption) -> list[int]:
    """The e-graph's classes that a way computes."""
    cuts = chosen.cuts
    kernel = way.cut or way.joint
    mine = [way.cls] if kernel is None else list(inside(cuts, kernel))
    return [cuts.classes[c] for c in mine]
