"""Rules at work in the engine on the left side of one of them.

A left side goes into the engine as a program that a user might write: traced, constants
folded to leaves, arrays with the bounds that the rule's conditions ask for. Sizes and
numbers are generic, so that nothing holds by accident.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from eqsat.checking.draws import UNDEFINED, Case, inside_domain, sample
from eqsat.egraph import (
    Budget,
    EGraph,
    Inserted,
    canonicalise,
    fuse,
    normal_forms,
    open_engine,
    saturate,
)
from eqsat.ops import exp
from eqsat.rulelang import PatternVar, Rule, RuleSet, trace_sides
from eqsat.search import split
from eqsat.terms import SCALAR, Op, Term, constant, is_constant
from eqsat.trace import Tracer

SMALL_NUMBERS = (3.0, -7.0, 0.3, 5.0, 0.7)
"""Numbers that are no special case of anything."""
LARGE_NUMBERS = (3e6, 7e7, 3e5, 7e5, 5e6)
"""Numbers whose reciprocals float16 does not hold."""
DRAWS = (
    (2, "f4", SMALL_NUMBERS),
    (1, "f2", SMALL_NUMBERS),
    (3, "f8", LARGE_NUMBERS),
    (2, "f4", ()),
    (0, "f4", SMALL_NUMBERS),
    (3, "f4", ()),
    (1, "f8", ()),
    (2, "f2", ()),
)
"""For each program: the number of axes of ``...``, the dtype, and the numbers, drawn
where there are none."""
TRIES = 8
"""Draws for each, until one is generic."""
MOST = 2000
"""E-nodes from which on a graph counts as growing without bound."""
ROUNDS = 6
"""Saturations after which a graph that still grows counts so too."""


@dataclass(frozen=True)
class RuleProgram:
    """Both sides of a rule over the same leaves, as they go into the engine."""

    whole: Inserted
    """The terms of both sides."""
    start: Inserted
    """Those of the left side."""
    left: tuple[Term, ...]
    right: tuple[Term, ...]

    @property
    def ops(self) -> dict[tuple[str, int], Op]:
        """The ops in it, by name and number of arguments."""
        found: dict[tuple[str, int], Op] = {}
        for t in self.whole.terms:
            if t not in self.whole.leaves and t.op is not SCALAR:
                assert isinstance(t.op, Op)
                found[t.op.name, len(t.args)] = t.op
        return dict(sorted(found.items()))


def programs(rule: Rule, seed: int = 0) -> Iterator[RuleProgram]:
    """Programs that compute the left side of ``rule`` on arguments in its domain."""
    for i, (rank, dtype, numbers) in enumerate(DRAWS):
        held = _drawn(rule, np.random.default_rng((seed, i)), rank, numbers)
        if held is None:
            continue
        first = rule.dtype or dtype
        for d in (first, "i4") if rule.dtypes == "any" else (first,):
            made = _program(replace(held, dtype=np.dtype(d)))
            if made is not None:
                yield made
                break


def _drawn(
    rule: Rule, rng: np.random.Generator, rank: int, numbers: Sequence[float]
) -> Case | None:
    """A case in the domain of ``rule``, a generic one where several draws give one."""
    floats = [p for p, kind in rule.numbers.items() if kind == "float"]
    given = dict(zip(floats, numbers, strict=False))
    found: Case | None = None
    for _ in range(TRIES):
        case = sample(rule, rng, rank)
        held = inside_domain(replace(case, numbers={**case.numbers, **given}))
        if held is not None and _is_generic(held):
            return held
        found = found or held
    return found


def _is_generic(case: Case) -> bool:
    """Whether no two attributes are the same, and none is the shape of an array."""
    attrs = [v for v in case.numbers.values() if isinstance(v, tuple)]
    shapes = {a.shape for a in case.arrays.values()}
    return len({*attrs}) == len(attrs) and not shapes & {*attrs}


def _program(case: Case) -> RuleProgram | None:
    """The program of a case; None where a side is not defined, or is a constant."""
    try:
        sides = trace_sides(case.rule, case.args(), _leaves(case))
    except UNDEFINED:
        return None
    roots = [*sides.left, *sides.right]
    regions = split(roots, is_constant(roots), whole=True)
    if not regions or not set(roots) <= set(regions[0].terms):
        return None
    (region,) = regions
    leaves = {t: i for i, t in enumerate(region.leaves)}
    below = _below(sides.left, leaves)
    start = [t for t in region.terms if t in below]
    return RuleProgram(
        Inserted(region.terms, leaves, region.constants, region.facts, len(start)),
        Inserted(start, leaves, region.constants, region.facts, 0),
        sides.left,
        sides.right,
    )


def _below(roots: Iterable[Term], leaves: dict[Term, int]) -> set[Term]:
    """``roots`` and what is below them, down to leaves."""
    seen: set[Term] = set()
    stack = list(roots)
    while stack:
        t = stack.pop()
        if t not in seen:
            seen.add(t)
            stack += () if t in leaves else t.args
    return seen


def _leaves(case: Case) -> Callable[[str, Tracer], Tracer]:
    """What stands for the arrays, so that the engine knows what conditions ask."""
    known: set[str] = set()
    least: dict[str, float] = {}
    for fact in case.rule.facts:
        for s in fact.subjects:
            if isinstance(s, PatternVar) and fact.reads_constants:
                known.add(s.name)
            elif isinstance(s, PatternVar) and (bound := _BOUND.fullmatch(fact.text)):
                least[s.name] = max(least.get(s.name, 0.0), float(bound[1]))

    def leaf(param: str, value: Tracer) -> Tracer:
        if param in known:
            return Tracer(constant(value.term.graph, case.rounded(param)))
        if param not in least:
            return value
        bounded: Tracer = exp(value)
        return bounded + least[param] if least[param] else bounded

    return leaf


_BOUND = re.compile(r"\(>= \(lower \{0\}\) (\S+)\)")
"""The condition that an array has a lower bound, as the engine gets it."""


# -- the engine at work ----------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """What rules make of a left side."""

    fired: dict[str, int]
    """How often each rule matched."""
    meets: bool
    """Whether the right side is in the class of the left one."""


def run(
    program: RuleProgram, rules: RuleSet, fusion: bool, without: Set[str] = frozenset()
) -> Run:
    """Saturate the left side with ``rules``, then look where the right side is.

    The right side itself is only brought to normal form, so that what is written one
    way is found in another. ``fusion``: add the fusions among the rules. ``without``:
    rules to leave out, by name; sets that differ in these alone share what is worked
    out of them. Raises :class:`EngineError` when rules contradict each other.
    """
    engine = open_engine(rules, program.ops, without=without)
    engine.insert(program.start)
    budget = Budget(math.inf, MOST)
    saturate(engine, budget)
    fired = dict(engine.fired)
    engine.insert(program.whole)
    canonicalise(engine, Budget(math.inf, 2 * MOST))
    graph = engine.read()
    if fusion:
        normal = normal_forms(rules)
        fusions = (r for r in rules if r.is_fusion and r.name not in without)
        entries = (normal(r) for r in fusions)
        fired |= fuse(graph, [(r, a[0], b[0]) for r, a, b in entries], budget)
    (found,) = graph.classes_of(program.whole)
    classes = dict(zip(program.whole.terms, found, strict=True))
    meets = all(
        _same(graph, classes[a], classes[b])
        for a, b in zip(program.left, program.right, strict=True)
    )
    return Run(fired, meets)


def _same(graph: EGraph, a: int, b: int) -> bool:
    """Whether two classes are one, or hold the same node: fusions are added without
    joining classes."""
    if a == b:
        return True
    kinds = ({graph.nodes[i][1:4] for i in graph.classes[c]} for c in (a, b))
    return bool(set.intersection(*kinds))


@dataclass(frozen=True)
class Growth:
    """An e-graph that did not come to an end."""

    fired: tuple[str, ...]
    before: int
    """E-nodes of the left side."""
    after: int
    """E-nodes where the measurement stopped."""


def growth(
    program: RuleProgram, rules: RuleSet, without: Set[str] = frozenset()
) -> Growth | None:
    """How ``rules`` grow the e-graph of a left side; None where they come to an end.
    ``without`` as of :func:`run`."""
    engine = open_engine(rules, program.ops, without=without)
    engine.insert(program.start)
    first = size = engine.size()
    for _ in range(ROUNDS):
        saturate(engine, Budget(math.inf, MOST))
        last, size = size, engine.size()
        if size == last:
            return None
        if size > MOST:
            break
    return Growth(tuple(engine.fired), first, size)
