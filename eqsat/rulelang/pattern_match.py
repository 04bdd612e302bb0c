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
)

Substitution = dict[str, Any]


def match(
    pattern: Pattern, subject: Pattern, found: Substitution | None = None
) -> Substitution | None:
    """Bindings of the variables of ``pattern`` that make it ``subject``, or None.

    Number parameters bind only to numbers that are known when the rule is applied:
    literals and axis sizes.
    """
    found = {} if found is None else found
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
        if match(p, s, found) is None:
            return None
    return found


def is_scalar(subject: Pattern) -> bool:
    """Whether a pattern is a number, or made of numbers and scalars alone."""
    if isinstance(subject, PatternNode):
        return subject.op.kind == "pointwise" and all(
            is_scalar(a) for a in subject.args
        )
    return isinstance(subject, Num) or not subject.axes.tokens


def _bind(found: Substitution, name: str, value: Any) -> Substitution | None:
    if name in found and found[name] != value:
        return None
    found[name] = value
    return found


def substitute(pattern: Pattern, found: Substitution) -> Pattern:
    """``pattern`` with its variables replaced."""
    if isinstance(pattern, PatternVar):
        return found[pattern.name]  # type: ignore[no-any-return]
    if isinstance(pattern, Num):
        return Num(evaluate_attribute(pattern.value, found))
    attrs = tuple(_substitute_attr(a, found) for a in pattern.attrs)
    return PatternNode(
        pattern.op, tuple(substitute(a, found) for a in pattern.args), attrs
    )


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
