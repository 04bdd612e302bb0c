"""Patterns made into terms: one side of a rule for given arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from eqsat.rulelang.expression import Expr
from eqsat.rulelang.fact import Fact
from eqsat.rulelang.pattern import Num, Pattern, PatternVar
from eqsat.terms import INPUT, Signature, Term, TermGraph, apply, scalar


class Equation(Protocol):
    """What is asked of a rule here."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def function(self) -> Callable[..., Any]:
        """Its two sides for arguments."""

    @property
    def signature(self) -> Signature:
        """The axes of the arrays."""

    @property
    def params(self) -> tuple[str, ...]:
        """All parameters in order."""

    @property
    def numbers(self) -> Mapping[str, str]:
        """Parameters that are no arrays, with their kinds."""

    @property
    def tensors(self) -> tuple[str, ...]:
        """Parameters that are arrays."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The conditions."""


Expression = Callable[[TermGraph, Expr, Mapping[str, Any]], Term]
"""Makes a term of a number expression, given what its names stand for."""


def instantiate(
    rule: Equation,
    side: Sequence[Pattern],
    args: Sequence[Any],
    *,
    expression: Expression | None = None,
) -> list[Term]:
    """The terms of ``side`` for arguments of ``rule``.

    ``expression`` makes the term of a number that is an expression; by default it is
    the number that it comes to. Raises :class:`ShapeError` or :class:`DTypeError` when
    an op is not defined for the arguments.
    """
    graph = TermGraph(sources=False)
    made: dict[Pattern, Term] = {}
    arrays: dict[str, Term] = {}
    for param, value in zip(rule.params, args, strict=True):
        if param not in rule.numbers:
            array = np.asarray(value)
            type_ = (array.dtype, array.shape)
            arrays[param] = graph.node(INPUT, (), (len(arrays),), type_)
    names = number_names(rule, args)

    def build(p: Pattern) -> Term:
        found = made.get(p)
        if found is None:
            found = made[p] = _build(p)
        return found

    def _build(p: Pattern) -> Term:
        if isinstance(p, PatternVar):
            return arrays[p.name]
        if isinstance(p, Num):
            if expression is not None and isinstance(p.value, Expr):
                return expression(graph, p.value, names)
            return scalar(graph, float(known_value(p.value, names)))
        values = [known_value(a, names) for a in p.attrs]
        attrs = dict(zip(p.op.attrs, values, strict=True))
        return apply(p.op, graph, [build(a) for a in p.args], attrs)

    return [build(p) for p in side]


def number_names(rule: Equation, args: Sequence[Any]) -> dict[str, Any]:
    """What names in the number expressions of ``rule`` stand for: its parameters that
    are numbers, and sizes of axes of other names."""
    given = dict(zip(rule.params, args, strict=True))
    arrays = {p: np.asarray(given[p]) for p in rule.tensors}
    return {
        **axis_sizes(rule, {p: a.shape for p, a in arrays.items()}),
        **{p: given[p] for p in rule.numbers},
        **{f"{p}.dtype": a.dtype.name for p, a in arrays.items()},
    }


def axis_sizes(rule: Equation, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The sizes of the named axes of ``rule``. Raises :class:`ShapeError` when
    ``shapes`` do not fit its signature."""
    bound = rule.signature.bind([shapes[p] for p in rule.tensors], rule.name)
    return {k: v for k, v in bound.items() if isinstance(v, int)}


def known_value(value: Any, names: Mapping[str, Any]) -> Any:
    """A number or an attribute of a pattern, given what its names stand for."""
    if isinstance(value, Expr):
        return value.value(names)
    if isinstance(value, tuple):
        return tuple(known_value(v, names) for v in value)
    return value
