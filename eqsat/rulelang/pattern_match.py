"""Patterns matched against patterns, to bring the sides of a rule to normal form."""

from __future__ import annotations

import math
from typing import Any

from eqsat.rulelang.expression import ARITHMETIC, Expr, Number
from eqsat.rulelang.pattern import (
    Num,
    Pattern,
    PatternNode,
    PatternVar,
    nodes,
)

Substitution = dict[str, Any]


def match(pattern: Pattern, subject: Pattern) -> Substitution | None:
    """Bindings of the variables of ``pattern`` that make it ``subject``, or None.

    Number parameters bind only to numbers that are known when the rule is applied:
    literals and axis sizes.
    """
    return _match(pattern, subject, {}, set())


def _match(
    pattern: Pattern,
    subject: Pattern,
    found: Substitution,
    matched: set[tuple[Pattern, Pattern]],
) -> Substitution | None:
    """``found`` with the bindings of ``pattern``; ``matched`` are pairs of operations
    that it makes equal."""
    if isinstance(pattern, PatternVar):
        if (
            isinstance(subject, Num)
            and pattern.axes.tokens
            and not pattern.axes.variadic
        ):
            return None
        if pattern.axes.tokens == () and not is_scalar(subject):
            return None
        return _bind(found, pattern.name, subject)
    if isinstance(pattern, Num):
        if not isinstance(subject, Num):
            return None
        if isinstance(pattern.value, Expr):
            if pattern.value.args:
                return None
            return _bind(found, pattern.value.head, subject.value)
        return found if pattern.value == subject.value else None
    if (pattern, subject) in matched:
        return found
    if not isinstance(subject, PatternNode) or subject.op is not pattern.op:
        return None
    if len(subject.args) != len(pattern.args):
        return None
    for p, s in zip(pattern.attrs, subject.attrs, strict=True):
        if isinstance(p, Expr) and not p.args:
            if _bind(found, p.head, s) is None:
                return None
        elif p != s:
            return None
    for p, s in zip(pattern.args, subject.args, strict=True):
        if _match(p, s, found, matched) is None:
            return None
    matched.add((pattern, subject))
    return found


def is_scalar(subject: Pattern) -> bool:
    """Whether a pattern is a number, or made of numbers and scalars alone."""
    return all(
        p.op.kind == "pointwise"
        if isinstance(p, PatternNode)
        else isinstance(p, Num) or not p.axes.tokens
        for p in nodes(subject)
    )


def _bind(found: Substitution, name: str, value: Any) -> Substitution | None:
    if name in found and found[name] != value:
        return None
    found[name] = value
    return found


def substitute(pattern: Pattern, found: Substitution) -> Pattern:
    """``pattern`` with its variables replaced."""
    made: dict[Pattern, Pattern] = {}
    for p in nodes(pattern):
        if isinstance(p, PatternVar):
            made[p] = found[p.name]
        elif isinstance(p, Num):
            made[p] = Num(evaluate_attribute(p.value, found))
        else:
            attrs = tuple(_substitute_attr(a, found) for a in p.attrs)
            made[p] = PatternNode(p.op, tuple(made[a] for a in p.args), attrs)
    return made[pattern]


def _substitute_attr(value: Any, found: Substitution) -> Any:
    if isinstance(value, Expr):
        return evaluate_attribute(value, found)
    if isinstance(value, tuple):
        return tuple(_substitute_attr(v, found) for v in value)
    return value


def evaluate_attribute(value: Number | Expr, found: Substitution) -> Any:
    """``value`` under ``found``, whose values may be expressions themselves."""
    if not isinstance(value, Expr):
        return value
    if not value.args:
        return found.get(value.head, value)
    a, b = (evaluate_attribute(x, found) for x in value.args)
    if isinstance(a, Expr) or isinstance(b, Expr):
        return Expr(value.head, (a, b), value.kind)
    try:
        return ARITHMETIC[value.head](a, b)
    except ZeroDivisionError:
        return math.nan
