"""The two sides of a rule over arrays: as terms, and as the references compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.rulelang.condition import is_regular
from eqsat.rulelang.expression import Expr
from eqsat.rulelang.fact import Fact, Held
from eqsat.rulelang.instantiate import Equation, instantiate, number_names
from eqsat.rulelang.pattern import PatternNode, PatternVar
from eqsat.support import EqsatError
from eqsat.terms import (
    CONSTANT,
    INPUT,
    SCALAR,
    Op,
    Term,
    TermGraph,
    constant,
    postorder,
    scalar,
)
from eqsat.trace import Tracer


@dataclass(frozen=True)
class RuleTerms:
    """Both sides as terms over the same inputs."""

    left: tuple[Term, ...]
    right: tuple[Term, ...]
    inputs: tuple[Any, ...]


def trace_sides(
    rule: Equation,
    args: Sequence[Any],
    leaf: Callable[[str, Tracer], Tracer] = lambda param, value: value,
) -> RuleTerms:
    """The sides of ``rule`` for arguments of these shapes, dtypes and numbers.

    ``leaf`` makes what stands for an array parameter of the input of that name. Raises
    what building a term raises when the shapes are outside a side's domain.
    """
    graph = TermGraph(sources=False)
    arrays: list[Any] = []
    values: list[Any] = []
    for param, value in zip(rule.params, args, strict=True):
        if param in rule.numbers:
            values.append(value)
            continue
        array = np.asarray(value)
        type_ = (array.dtype, array.shape)
        traced = Tracer(graph.node(INPUT, (), (len(arrays),), type_))
        values.append(leaf(param, traced))
        arrays.append(array)
    left, right = rule.function(*values)
    return RuleTerms(_terms(graph, left), _terms(graph, right), tuple(arrays))


def _terms(graph: TermGraph, side: Any) -> tuple[Term, ...]:
    parts = side if isinstance(side, (tuple, list)) else (side,)
    return tuple(_term(graph, p) for p in parts)


def _term(graph: TermGraph, value: Any) -> Term:
    if isinstance(value, Tracer):
        return value.term
    if isinstance(value, (int, float)):
        return scalar(graph, value)
    return constant(graph, np.asarray(value))


def leaf_value(term: Term, inputs: Sequence[Any]) -> Any:
    """What an input, a constant or a bare number stands for."""
    held: Any = term.attrs[0]
    if term.op is INPUT:
        return inputs[held]
    return term.graph.arrays[held] if term.op is CONSTANT else held


def evaluate(roots: Iterable[Term], inputs: Sequence[Any]) -> list[Any]:
    """The values of ``roots`` by the ops' references, in the dtypes of the terms."""
    outputs = tuple(roots)
    values: dict[Term, Any] = {}
    for term in postorder(outputs):
        if not term.args and term.op in (INPUT, CONSTANT, SCALAR):
            values[term] = leaf_value(term, inputs)
        else:
            assert isinstance(term.op, Op)
            args = [values[a] for a in term.args]
            values[term] = term.op.reference(*args, **term.op.attr_dict(term))
    return [np.asarray(values[t]) for t in outputs]


def sides(rule: Equation, *args: Any) -> tuple[Any, Any]:
    """What both sides of ``rule`` compute of ``args``, through the ops' references.

    Arrays are taken as NumPy takes them, numbers and attributes as they are; the result
    is a pair of arrays, or of tuples of arrays for a rule of several results.

    >>> import eqsat as eq
    >>> sides(eq.default_rules()["times_one"], np.float32([2.0]))
    (array([2.], dtype=float32), array([2.], dtype=float32))
    """
    traced = trace_sides(rule, args)
    with np.errstate(all="ignore"):
        left = tuple(evaluate(traced.left, traced.inputs))
        right = tuple(evaluate(traced.right, traced.inputs))
    return (left[0], right[0]) if len(left) == len(right) == 1 else (left, right)


# -- conditions of arrays --------------------------------------------------------------


def held(rule: Equation, args: Sequence[Any]) -> tuple[Held, ...]:
    """The conditions of ``rule`` for given arguments, each with what bends the arrays
    so that it holds.

    A domain (:func:`eqsat.condition.domain`) holds wherever the left side has a value.
    """
    return tuple(_held(rule, fact, args) for fact in rule.facts)


def _held(rule: Equation, fact: Fact, args: Sequence[Any]) -> Held:
    values = [_subject_value(rule, s, args) for s in fact.subjects]
    with np.errstate(all="ignore"):
        holds = bool(fact.test(*values))
        if not holds and fact.is_domain:
            of_matrices = fact.name in ("regular", "positive definite")
            fits = not of_matrices or all(map(is_regular, values))
            holds = fits and _left_has_value(rule, args)
    return Held(holds, lambda: fact.mend(*values), fact.name)


def _subject_value(rule: Equation, subject: Any, args: Sequence[Any]) -> Any:
    given = dict(zip(rule.params, args, strict=True))
    if isinstance(subject, PatternVar):
        return given[subject.name]
    if isinstance(subject, Expr):
        known = {p: given[p] for p in rule.numbers}
        return subject.value(
            known if subject.names <= {*known} else number_names(rule, args)
        )
    if isinstance(subject, PatternNode):
        arrays = [given[p] for p in rule.tensors]
        return evaluate(instantiate(rule, [subject], args), arrays)[0]
    return getattr(subject, "value", subject)


def _left_has_value(rule: Equation, args: Sequence[Any]) -> bool:
    """Whether the left side is finite everywhere."""
    try:
        traced = trace_sides(rule, args)
        left = evaluate(traced.left, traced.inputs)
    except (EqsatError, np.linalg.LinAlgError):
        return False
    return all(bool(np.all(np.isfinite(v))) for v in left)
