"""Patterns made into terms: one side of a rule for given arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.build import apply, scalar
from eqsat.op import INPUT
from eqsat.pattern import Expr, Num, Pattern, Var
from eqsat.rule import Rule
from eqsat.term import Graph, Term


def instantiate(rule: Rule, side: Sequence[Pattern], args: Sequence[Any]) -> list[Term]:
    """The terms of ``side`` for arguments of ``rule``.

    Raises :class:`ShapeError` or :class:`DTypeError` when an op is not defined for
    them.
    """
    graph = Graph(sources=False)
    made: dict[Pattern, Term] = {}
    names: dict[str, Any] = {}
    arrays: dict[str, Term] = {}
    for param, value in zip(rule.params, args, strict=True):
        if param in rule.numbers:
            names[param] = value
        else:
            array = np.asarray(value)
            type_ = (array.dtype, array.shape)
            arrays[param] = graph.node(INPUT, (), (len(arrays),), type_)
    names |= axis_sizes(rule, {p: t.shape for p, t in arrays.items()})

    def build(p: Pattern) -> Term:
        found = made.get(p)
        if found is None:
            found = made[p] = _build(p)
        return found

    def _build(p: Pattern) -> Term:
        if isinstance(p, Var):
            return arrays[p.name]
        if isinstance(p, Num):
            return scalar(graph, float(_known(p.value, names)))
        values = [_known(a, names) for a in p.attrs]
        attrs = dict(zip(p.op.attrs, values, strict=True))
        return apply(p.op, graph, [build(a) for a in p.args], attrs)

    return [build(p) for p in side]


def axis_sizes(rule: Rule, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The sizes of the named axes of ``rule``. Raises :class:`ShapeError` when
    ``shapes`` do not fit its signature."""
    bound = rule.signature.bind([shapes[p] for p in rule.tensors], rule.name)
    return {k: v for k, v in bound.items() if isinstance(v, int)}


def _known(value: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(value, Expr):
        return value.value(names)
    if isinstance(value, tuple):
        return tuple(_known(v, names) for v in value)
    return value
