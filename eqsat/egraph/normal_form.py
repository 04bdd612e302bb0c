"""Patterns in the form in which the e-graph holds terms, and what a rule needs before
it can match."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from eqsat.rulelang import (
    PHASES,
    Expr,
    Fact,
    Num,
    Pattern,
    PatternNode,
    PatternVar,
    Rule,
    RuleSet,
    egg_schema,
    is_scalar,
    match,
    nodes,
    own_exprs,
    own_rules,
    rule_forms,
    substitute,
    tells_numbers,
    used,
)
from eqsat.support import cached_by_identity
from eqsat.terms import Axes, Op, Shape, dtype_code

Entry = tuple[Rule, Sequence[Pattern], Sequence[Pattern]]
"""A rule with its two sides as the e-graph holds them."""


Edge = tuple[str, int, str]
"""A constructor, the place of an argument, a constructor of that argument's class."""


class MatchNeed(NamedTuple):
    """What must be in a graph before a rule can match."""

    ops: frozenset[str]
    """Constructors."""
    edges: frozenset[Edge]
    attrs: frozenset[tuple[str, Any]]
    """Constructors with attributes that have no variables."""
    axes: tuple[Axes, ...]
    """Axes of variables of fixed rank."""


_NEEDS: dict[tuple[Pattern, ...], MatchNeed] = {}


def needs(left: Sequence[Pattern]) -> MatchNeed:
    """What the normal form of a left side needs."""
    key = tuple(left)
    known = _NEEDS.get(key)
    if known is None:
        parts = [p for root in left for p in nodes(root)]
        inner = [(p, _name(p)) for p in parts if isinstance(p, PatternNode)]
        fixed = (
            p.axes for p in parts if isinstance(p, PatternVar) and not p.axes.variadic
        )
        known = _NEEDS[key] = MatchNeed(
            frozenset(name for _, name in inner),
            frozenset(
                (name, i, _name(a))
                for p, name in inner
                for i, a in enumerate(p.args)
                if not isinstance(a, PatternVar)
            ),
            frozenset((name, _held(p)) for p, name in inner if _is_literal(p)),
            tuple(dict.fromkeys(axes for axes in fixed if axes.rank > 1)),
        )
    return known


def _name(pattern: PatternNode | Num) -> str:
    if isinstance(pattern, Num):
        return "Scalar"
    return egg_schema.constructor(pattern.op, len(pattern.args))


def _is_literal(pattern: PatternNode) -> bool:
    """Whether attributes are there, without variables."""
    return bool(pattern.attrs) and not own_exprs(pattern)


def _held(pattern: PatternNode) -> tuple[Any, ...]:
    """The attributes as the engine holds them: dtypes by their codes."""
    kinds = pattern.op.attrs.values()
    return tuple(
        dtype_code(np.dtype(v)) if kind == "DTypeName" else v
        for kind, v in zip(kinds, pattern.attrs, strict=True)
    )


@dataclass(frozen=True)
class Seen:
    """What is in an e-graph. ``edges`` is None where nobody looked closely."""

    constructors: Set[str]
    names: frozenset[str]
    """Names of the ops."""
    edges: Set[Edge] | None = None
    attrs: Set[tuple[str, Any]] = frozenset()
    shapes: Set[Shape] = frozenset()

    def admits(self, entry: Entry) -> bool:
        """Whether the left side of a rule can match, as far as this tells."""
        need = needs(entry[1])
        if not need.ops <= self.constructors or self.edges is None:
            return need.ops <= self.constructors
        return (
            need.edges <= self.edges
            and need.attrs <= self.attrs
            and all(any(fits(axes, s) for s in self.shapes) for axes in need.axes)
        )


def fits(axes: Axes, shape: Shape) -> bool:
    """Whether ``shape`` has the rank and the literal sizes of ``axes``."""
    return len(shape) == axes.rank and all(
        a == size
        for a, size in zip(axes.tokens, shape, strict=True)
        if isinstance(a, int)
    )


def inner_ops(side: Iterable[Pattern]) -> Iterable[tuple[Op, int]]:
    """The ops below the roots of some patterns, with their numbers of arguments."""
    for root in side:
        if isinstance(root, PatternNode):
            yield from ops_of(root.args)


def ops_of(side: Iterable[Pattern]) -> Iterable[tuple[Op, int]]:
    """The ops in some patterns, with their numbers of arguments."""
    for root in side:
        for p in nodes(root):
            if isinstance(p, PatternNode):
                yield p.op, len(p.args)


class NormalForms:
    """Both sides of rules in the form in which the e-graph will hold terms, worked out
    when asked.

    Canonicalising rules are applied to the patterns of the others as oriented rewrites,
    so that a rule may be written as its author likes: ``x / 2`` in a pattern meets
    ``0.5 * x`` in a program.
    """

    def __init__(self, rules: RuleSet) -> None:
        oriented = [r for r in rules if r.phase == "canonicalise" and _is_oriented(r)]
        self._oriented = _by_root(r for r in oriented if r.dtype is None)
        self._of_any = _by_root(r for r in oriented if r.dtypes == "any")
        """Those that hold for integers and bools too."""
        self._by_phase: dict[str, list[Rule]] = {phase: [] for phase in PHASES}
        for r in rules:
            self._by_phase[r.phase] += r.directions
        self._fitting: dict[tuple[str, frozenset[str]], list[Entry]] = {}
        self._forms: dict[tuple[str, bool], list[str]] = {}
        self._done: dict[Pattern, Pattern] = {}
        self._done_any: dict[Pattern, Pattern] = {}
        self._removed = frozenset(
            op.name
            for op, rs in self._oriented.items()
            if any(op.name not in r.ops(r.right) for r in rs)
        )
        self._lasting: dict[str, frozenset[str]] = {}
        self.own = frozenset(
            r.name for r in own_rules(rules) if r.phase != "canonicalise"
        )
        """Names of the rules that wait until the stock ones are done: a user's, but for
        normal forms."""

    def fits(self, r: Rule, present: Set[str]) -> bool:
        """Whether the ops of the left side that no normal form removes are all
        ``present``."""
        if not r.hint <= present:
            return False
        lasting = self._lasting.get(r.label)
        if lasting is None:
            removed = frozenset() if r.phase == "canonicalise" else self._removed
            lasting = self._lasting[r.label] = r.ops(r.left) - removed
        return lasting <= present

    def fitting(self, phase: str, present: frozenset[str]) -> list[Entry]:
        """The rewrites of a phase that fit what is ``present``."""
        known = self._fitting.get((phase, present))
        if known is None:
            if len(self._fitting) > 256:
                self._fitting.clear()
            rules = self._by_phase[phase]
            fit = (r for r in rules if self.fits(r, present))
            known = [entry for r in fit for entry in self.entries(r)]
            self._fitting[phase, present] = known
        return known

    def forms(self, entry: Entry, signed: bool) -> list[str]:
        """A rewrite as the engine reads it (:func:`rule_forms`)."""
        key = entry[0].label, signed
        own = entry[0].name in self.own
        known = self._forms.get(key)
        if known is None:
            known = self._forms[key] = rule_forms(*entry, signed, own)
        return known

    def __call__(self, r: Rule) -> Entry:
        """The rule with the normal forms of its left and right sides."""
        return self.entries(r)[0]

    def entries(self, r: Rule) -> list[Entry]:
        """The rule as the engine gets it: in the normal form of floats and, where it
        holds for integers and bools too, in theirs.

        Where the normal form of a left side is a variable alone, or has lost one, or
        has made one number of two, the rule stands as it was written: the graph holds
        that form too.
        """
        if r.phase == "canonicalise":
            return [(r, r.left, r.right)]
        first = r, *self._sides(r, self._oriented, self._done)
        if r.dtypes != "any":
            return [first]
        left, right = self._sides(r, self._of_any, self._done_any)
        if left == first[1]:
            return [first]
        spelt = copy(r)
        spelt.spelling = " (integers)"
        return [first, (spelt, left, right)]

    def _sides(
        self, r: Rule, rules: Mapping[Op, Sequence[Rule]], done: dict[Pattern, Pattern]
    ) -> tuple[Sequence[Pattern], Sequence[Pattern]]:
        left = tuple(_normal(p, rules, done) for p in r.left)
        right = tuple(_normal(p, rules, done) for p in r.right)
        return (left if _matches(r, left) else r.left), right


@cached_by_identity
def normal_forms(rules: RuleSet) -> NormalForms:
    """The normal forms of a set of rules; kept for the next graph."""
    return NormalForms(rules)


def fusions(rules: RuleSet, present: Set[str]) -> list[tuple[Rule, Pattern, Pattern]]:
    """Rules of the phase ``fuse`` whose ops are ``present``, with normal forms of their
    sides."""
    fitting = normal_forms(rules).fitting("fuse", frozenset(present))
    return [(r, left[0], right[0]) for r, left, right in fitting]


def _by_root(rules: Iterable[Rule]) -> dict[Op, list[Rule]]:
    found: dict[Op, list[Rule]] = {}
    for r in rules:
        root = r.left[0]
        assert isinstance(root, PatternNode)
        found.setdefault(root.op, []).append(r)
    return found


def _matches(r: Rule, left: Sequence[Pattern]) -> bool:
    """Whether ``left`` binds what the rule's own left side binds."""
    if left == r.left:
        return True
    whole = all(isinstance(p, PatternNode) for p in left)
    bound = whole and used(r.left).keys() <= used(left).keys()
    return bound and (not r.numbers or tells_numbers(r, left))


def _is_oriented(r: Rule) -> bool:
    plain = all(set(axes.tokens) <= {"..."} for axes in r.signature.inputs)
    return plain and len(r.left) == 1 and match(r.left[0], r.right[0]) is None


def _normal(
    pattern: Pattern, rules: Mapping[Op, Sequence[Rule]], done: dict[Pattern, Pattern]
) -> Pattern:
    start = pattern
    if start in done or not isinstance(start, PatternNode):
        return done.get(start, start)
    seen = set()
    while pattern not in seen:
        seen.add(pattern)
        if not isinstance(pattern, PatternNode):
            break
        args = tuple(_normal(a, rules, done) for a in pattern.args)
        pattern = PatternNode(pattern.op, args, pattern.attrs)
        for r in rules.get(pattern.op, ()):
            bound = match(r.left[0], pattern)
            if bound is not None and _known_to_hold(r, bound):
                pattern = substitute(r.right[0], bound)
                break
    done[start] = pattern
    return pattern


def _known_to_hold(r: Rule, bound: Mapping[str, Any]) -> bool:
    """Whether the conditions of a rule hold for the numbers it is applied to.

    Conditions on arrays cannot be decided here; a number made of axis sizes counts as
    good.
    """
    if r.where is None:
        return True
    for fact in r.facts:
        for s in fact.subjects:
            if isinstance(s, (Expr, int, float)):
                continue
            if fact.name != "not scalar" or is_scalar(substitute(s, dict(bound))):
                return False
    values = [bound[p] for p in r.params]
    if any(isinstance(bound[p], Expr) for p in r.numbers):
        return True
    conditions = r.where(*values)
    listed = conditions if isinstance(conditions, (tuple, list)) else (conditions,)
    return all(isinstance(c, Fact) or bool(c) for c in listed)
