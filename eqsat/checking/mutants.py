"""Mutants: rules broken as people break them, to see whether the check notices.

A mutant is a rule with one change of its right side (an op, the order of operands, an
axis, a number, a variable), or without one of its conditions. The check should refuse
it. One that passes is *equivalent* when its right side is proved to be the rule's own
for other words, or when it is proved itself; otherwise a longer search looks for
arguments that tell it apart, and it is *alive* when none is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.checking.check_rules import refutation
from eqsat.checking.draws import Case
from eqsat.checking.proofs import prove
from eqsat.rulelang import (
    Expr,
    Num,
    Pattern,
    PatternNode,
    PatternVar,
    Rule,
    RulePatterns,
    axis_sizes,
    known_value,
    nodes,
)
from eqsat.terms import Op

PARTNERS = (
    *("add subtract", "multiply divide", "maximum minimum", "max min", "sum mean"),
    *("less less_equal", "greater greater_equal", "equal not_equal", "exp exp2"),
    *("log log2", "sin cos", "floor ceil", "rint trunc", "argmax argmin", "any all"),
    *("logical_and logical_or", "bitwise_and bitwise_or", "tanh sigmoid"),
    *("sqrt rsqrt", "square absolute", "fmax maximum", "softmax log_softmax"),
)
"""Ops that people take for each other."""
MORE = 10
"""How many times as many cases a search for a difference looks at."""
NUDGE = 1.1


@dataclass(frozen=True)
class Mutant:
    """A broken rule, what was done to it, and what the check makes of it."""

    rule: str
    change: str
    fate: str
    """``refused``, ``equivalent`` or ``alive``."""
    reason: str = ""
    """Why it is refused."""


def try_mutants(
    rules: Iterable[Rule], examples: int = 100, seed: int = 0, most: int = 40
) -> list[Mutant]:
    """What becomes of the mutants of ``rules``: of each rule ``most`` at most, spread
    over all changes."""
    found = []
    for rule in rules:
        made = list(mutations(rule))
        step = max(1, -(-len(made) // most))
        found += [_tried(rule, m, what, examples, seed) for m, what in made[::step]]
    return found


def _tried(rule: Rule, mutant: Rule, what: str, examples: int, seed: int) -> Mutant:
    reason, cases = refutation(mutant, examples, seed)
    if not reason:
        if _is_equivalent(rule, mutant, cases, seed):
            return Mutant(rule.name, what, "equivalent")
        reason, _ = refutation(mutant, MORE * examples, seed + 1)
    return Mutant(rule.name, what, "refused" if reason else "alive", reason)


def _is_equivalent(rule: Rule, mutant: Rule, cases: Sequence[Case], seed: int) -> bool:
    if mutant.right == rule.right:
        return prove(mutant, cases, seed) is not None
    sides = RulePatterns(rule.right, mutant.right, rule.facts)
    same = _rule(rule, sides)
    return prove(same, [replace(c, rule=same) for c in cases], seed) is not None


def mutations(rule: Rule) -> Iterator[tuple[Rule, str]]:
    """The mutants of ``rule`` with what was done to each."""
    seen = {rule.right}
    for old in dict.fromkeys(n for root in rule.right for n in nodes(root)):
        for new, what in _changes(rule, old):
            right = tuple(_with(root, old, new) for root in rule.right)
            if right not in seen:
                seen.add(right)
                sides = RulePatterns(rule.left, right, rule.facts)
                yield _rule(rule, sides), what
    for i, fact in enumerate(rule.facts):
        if fact.is_domain:  # it guards nothing
            continue
        kept = (*rule.facts[:i], *rule.facts[i + 1 :])
        sides = RulePatterns(rule.left, rule.right, kept)
        made = replace(_rule(rule, sides), where=_without(rule, i))
        made.__dict__["sides"] = sides
        yield made, f"without the condition {fact}"


# -- changes ---------------------------------------------------------------------------


def _changes(rule: Rule, p: Pattern) -> Iterator[tuple[Pattern, str]]:
    if isinstance(p, PatternVar):
        pairs = zip(rule.tensors, rule.signature.inputs, strict=True)
        for name, axes in pairs:
            if name != p.name and axes == p.axes:
                yield PatternVar(name, axes, p.dtype), f"{p.name} is {name}"
    elif isinstance(p, Num):
        yield from ((Num(n), f"{p.value} is {n}") for n in _other_numbers(p.value))
    else:
        yield from _of_node(p)


def _other_numbers(value: Any) -> Iterator[Any]:
    yield value * NUDGE
    yield value + 1.0
    yield value * -1.0


def _of_node(p: PatternNode) -> Iterator[tuple[Pattern, str]]:
    name, args = p.op.name, p.args
    if len(args) == 2 and not p.op.commutative:
        yield PatternNode(p.op, args[::-1], p.attrs), f"operands of {name} exchanged"
    for pair in PARTNERS:
        ops = pair.split()
        if name in ops:
            other = Op.registry[ops[1 - ops.index(name)]]
            if tuple(other.attrs) == tuple(p.op.attrs):
                yield PatternNode(other, args, p.attrs), f"{name} is {other.name}"
    for a in args[:1] if len(args) == 1 else args:
        if not isinstance(a, Num):
            yield a, f"{name} left out"
    yield PatternNode(Op.registry["negative"], (p,)), f"minus before {name}"
    for i, (attr, kind) in enumerate(p.op.attrs.items()):
        for value in _other_attributes(p.op, attr, kind, p.attrs[i]):
            attrs = (*p.attrs[:i], value, *p.attrs[i + 1 :])
            shown = f"{attr} of {name} is {value}, not {p.attrs[i]}"
            yield PatternNode(p.op, args, attrs), shown


def _other_attributes(op: Op, attr: str, kind: str, value: Any) -> Iterator[Any]:
    if isinstance(value, Expr):
        if value.kind == "int":
            yield from (value + 1, value - 1)
    elif attr in op.choices:
        yield from (c for c in op.choices[attr] if c != value)
    elif kind in ("bool", "Bool"):
        yield type(value)(not value)
    elif isinstance(value, int):
        yield from (value + 1, value - 1)
    elif isinstance(value, float):
        yield value * NUDGE
    elif kind == "DTypeName":
        yield from (d for d in ("float32", "float64", "int32", "int64") if d != value)
    elif isinstance(value, tuple):
        yield from _other_tuples(kind, value)


def _other_tuples(kind: str, value: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if len(set(value)) > 1:
        yield value[::-1]
        yield (*value[1:], value[0])
    for i, v in enumerate(value):
        for other in (v + 1, v - 1):
            if kind != "Axis" or (isinstance(other, int) and -4 < other < 0):
                yield (*value[:i], other, *value[i + 1 :])


def _with(p: Pattern, old: Pattern, new: Pattern) -> Pattern:
    """``p`` with ``new`` wherever ``old`` is."""
    made: dict[Pattern, Pattern] = {}
    for part in nodes(p):
        made[part] = part
        if part is old:
            made[part] = new
        elif isinstance(part, PatternNode):
            args = tuple(made[a] for a in part.args)
            made[part] = PatternNode(part.op, args, part.attrs)
    return made[p]


# -- as rules --------------------------------------------------------------------------


def _rule(rule: Rule, sides: RulePatterns) -> Rule:
    """``rule`` with other sides."""
    made = replace(rule, function=_function(rule, sides), both_ways=False)
    made.__dict__["sides"] = sides
    return made


def _function(rule: Rule, sides: RulePatterns) -> Callable[..., Any]:
    """What computes both ``sides`` of the arguments of ``rule``."""

    def both(*args: Any) -> Any:
        given = dict(zip(rule.params, args, strict=True))
        shapes = {p: given[p].shape for p in rule.tensors}
        names = axis_sizes(rule, shapes) | {p: given[p] for p in rule.numbers}
        made: dict[Pattern, Any] = {}
        return tuple(
            tuple(_value(p, given, names, made) for p in side) for side in sides[:2]
        )

    return both


def _value(p: Pattern, given: Any, names: Any, made: dict[Pattern, Any]) -> Any:
    if p not in made:
        if isinstance(p, PatternVar):
            made[p] = given[p.name]
        elif isinstance(p, Num):
            made[p] = float(known_value(p.value, names))
        else:
            args = [_value(a, given, names, made) for a in p.args]
            known = [known_value(a, names) for a in p.attrs]
            made[p] = p.op(*args, **dict(zip(p.op.attrs, known, strict=True)))
    return made[p]


def _without(rule: Rule, i: int) -> Callable[..., Any]:
    """The conditions of ``rule`` but one."""

    def where(*args: Any) -> Sequence[Any]:
        assert rule.where is not None
        held = rule.where(*args)
        listed = held if isinstance(held, tuple) else (held,)
        return (*listed[:i], *listed[i + 1 :])

    return where


__all__ = ["Mutant", "mutations", "try_mutants"]
