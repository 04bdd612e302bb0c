"""Both sides of a rule as primitives, for the shapes and numbers of a case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.checking.draws import UNDEFINED, Case, dtypes_of, loose
from eqsat.ops import cast
from eqsat.rulelang import Expr, Rule, instantiate
from eqsat.terms import HALF, INPUT, Op, Term, TermGraph, Weak, scalar
from eqsat.trace import Tracer, body_of, rebuilt

Kind = tuple[np.dtype[Any], np.dtype[Any]]
"""The dtype of arrays with named axes, and of the others that may have their own."""


@dataclass
class Sides:
    """Both sides of a case as primitives over the same leaves."""

    case: Case
    left: list[Term]
    right: list[Term]
    numbers: dict[Term, Expr]

    @staticmethod
    def of(case: Case, dtype: Kind, whole: bool = True) -> Sides:
        """The sides over arrays of ``dtype``. ``numbers`` are the terms of number
        expressions; integers are numbers of their own when ``whole``."""
        numbers: dict[Term, Expr] = {}
        rule = case.rule
        roots = _terms(case, [*rule.left, *rule.right], dtype, numbers, whole)
        opened = rebuilt(roots, {}, _opened)
        n = len(rule.left)
        return Sides(case, opened[:n], opened[n:], numbers)


def _terms(
    case: Case,
    side: Sequence[Any],
    dtype: Kind,
    numbers: dict[Term, Expr] | None = None,
    whole: bool = True,
) -> list[Term]:
    """The terms of a side over arrays of ``dtype``. ``numbers`` gets the terms of
    number expressions."""
    held = {} if numbers is None else numbers

    def expression(graph: TermGraph, e: Expr, names: Mapping[str, Any]) -> Term:
        if e.kind == "int" and whole:
            return scalar(graph, float(e.value(names)))
        term = graph.node(INPUT, (), (str(e),), (Weak.FLOAT, ()))
        held[term] = e
        return term

    return instantiate(case.rule, side, _args(case, dtype), expression=expression)


def _args(case: Case, dtype: Kind) -> list[Any]:
    """The numbers of a case, and arrays of its shapes."""
    own = loose(case.rule)
    return [
        (
            case.numbers[p]
            if p in case.numbers
            else np.broadcast_to(
                np.zeros((), bool if p in case.rule.masks else dtype[p in own]),
                case.arrays[p].shape,
            )
        )
        for p in case.rule.params
    ]


def kinds(rule: Rule) -> Iterator[Kind]:
    """Dtypes that stand for all that the rule admits."""
    if rule.dtype is not None:
        yield rule.dtype, rule.dtype
        return
    ops = [Op.registry[n] for n in {*rule.ops(rule.left), *rule.ops(rule.right)}]
    casts = any(op.name == "cast" or op.body is not None for op in ops)
    names = ("f8", "f2", *(("i8", "u1", "?") if rule.dtypes == "any" else ()))
    for d in dtypes_of(rule) if casts else map(np.dtype, names):
        yield d, d
    if loose(rule):
        yield np.dtype("f4"), np.dtype("f8")


def _opened(term: Term) -> Term | None:
    """The body of a composite; of half precision it is computed in float32 and rounded
    once."""
    op = term.op
    assert isinstance(op, Op)
    if op.body is None or term.dtype not in HALF:
        return body_of(term)
    wide = [
        cast(Tracer(a), dtype="float32") if a.dtype in HALF else Tracer(a)
        for a in term.args
    ]
    found: Tracer = cast(op.body(*wide, **op.attr_dict(term)), dtype=str(term.dtype))
    return found.term


def reached(case: Case, dtype: Kind) -> bool:
    """Whether the left side is defined."""
    try:
        instantiate(case.rule, case.rule.left, _args(case, dtype))
    except UNDEFINED:
        return False
    return True


def of_numbers(case: Case) -> Kind | None:
    """The dtype that real numbers are told in: float64, or int64 where the left side is
    not defined for floats; None where it is for neither."""
    rule = case.rule
    first = rule.dtype or np.dtype("f8")
    for d in (
        (first, np.dtype("i8"), np.dtype("?")) if rule.dtypes == "any" else (first,)
    ):
        if reached(case, (d, d)):
            return d, d
    return None


__all__ = ["Kind", "Sides", "kinds", "of_numbers", "reached"]
