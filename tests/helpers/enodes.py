"""The e-graph of a function, and the value of each of its nodes by NumPy references."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np
from evaluate import evaluate

from eqsat.egraph.snapshot import EGraph, ENode, attr_values
from eqsat.kernels.cost_model import CostModel
from eqsat.rulelang.ruleset import RuleSet
from eqsat.rulelang.stock_rules import default_rules
from eqsat.search.optimise import Optimised
from eqsat.support.options import Options
from eqsat.terms.op import INPUT, SCALAR
from eqsat.terms.term import Term, Type, Weak
from eqsat.trace.call_arguments import flatten_arguments
from eqsat.trace.trace import trace

line = import_module("eqsat.search.optimise")  # also the name of its function


@dataclass
class Saturated:
    """An e-graph as extraction sees it, with the values of its leaves."""

    graph: EGraph
    leaves: dict[int, Any]
    done: Optimised


def saturated(
    f: Callable[..., Any],
    *args: Any,
    rules: RuleSet | None = None,
    options: Options | None = None,
    constants: Sequence[str] = (),
) -> Saturated:
    """What ``optimise`` makes of ``f`` traced over ``args``, up to extraction."""
    call = flatten_arguments(f, args, {}, constants)
    traced = trace(f, call)
    seen: list[Any] = []
    cover_all = line._cover_all

    def spy(work: Any, *rest: Any) -> Any:
        seen.append((work.graph, work.pieces))
        return cover_all(work, *rest)

    options = options or Options()
    with mock.patch.object(line, "_cover_all", spy):
        done = line.optimise(
            traced.outputs, rules or default_rules(), options, CostModel(), True
        )
    assert seen, "nothing to optimise"
    graph, pieces = seen[-1]  # with the rules of a user's too
    terms: dict[int, Term] = {}
    for piece in pieces:
        for i, t in enumerate(piece.sample.leaves):
            terms[piece.first_leaf + i] = t
    with np.errstate(all="ignore"):
        values = evaluate(list(terms.values()), call.arrays)
    return Saturated(graph, dict(zip(terms, values, strict=True)), done)


class Values:
    """The values of all classes, and which nodes do not agree with their class."""

    def __init__(self, graph: EGraph, leaves: Mapping[int, Any]) -> None:
        self.graph = graph
        self.leaves = leaves
        self.of: dict[int, Any] = {}
        self.reached = 0
        self.wrong: list[str] = []
        users: dict[int, list[int]] = {}
        missing = [len(set(n.children)) for n in graph.nodes]
        for i, node in enumerate(graph.nodes):
            for c in set(node.children):
                users.setdefault(c, []).append(i)
        ready = [i for i, m in enumerate(missing) if not m]
        with np.errstate(all="ignore"):
            while ready:
                node = graph.nodes[ready.pop()]
                self.reached += 1
                if self._visit(node):
                    for user in users.get(node.cls, ()):
                        missing[user] -= 1
                        if not missing[user]:
                            ready.append(user)

    def _visit(self, node: ENode) -> bool:
        """Compute one node and compare; whether its class had no value before."""
        value = self._value(node)
        type_ = self.graph.types[node.cls]
        if not _has_type(value, type_):
            found = np.asarray(value)
            self._blame(node, f"is {found.dtype} {found.shape}, its class {type_}")
        known = self.of.get(node.cls)
        if known is not None and not _near(value, known):
            self._blame(node, f"is {value}, its class {known}")
        self.of.setdefault(node.cls, value)
        return known is None

    def _value(self, node: ENode) -> Any:
        if node.op is SCALAR:
            return node.attrs[0]
        if node.op is INPUT:
            return self.leaves[node.attrs[0]]
        args = [self.of[c] for c in node.children]
        attrs = dict(zip(node.op.attrs, attr_values(node), strict=True))
        value = node.op.reference(*args, **attrs)
        type_ = self.graph.types[node.cls]
        if type_ is not None and isinstance(type_[0], Weak) and np.ndim(value) == 0:
            return type_[0].value(value)
        return value

    def _blame(self, node: ENode, what: str) -> None:
        attrs = ", ".join(map(repr, attr_values(node)))
        self.wrong.append(
            f"{node.op.name}[{attrs}] of {node.children}, built by "
            f"{node.rule or 'the user'}, {what[:400]}"
        )


def _has_type(value: Any, type_: Type | None) -> bool:
    if type_ is None:
        return False
    dtype, shape = type_
    if isinstance(dtype, Weak):
        return type(value) is dtype.value and shape == ()
    found = np.asarray(value)
    return (found.dtype, found.shape) == type_


def _near(a: Any, b: Any, rtol: float = 1e-9) -> bool:
    """Equal up to ``rtol`` of the largest element; NaN and ∞ in the same places."""
    x, y = np.asarray(a), np.asarray(b)
    if x.shape != y.shape:
        return False
    if x.dtype.kind in "biu" or y.dtype.kind in "biu":
        return bool(np.array_equal(x, y))
    x, y = x.astype(float), y.astype(float)
    finite = np.isfinite(y)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return False
    scale = np.max(np.abs(y[finite]), initial=0.0)
    return bool(np.all(np.abs(x[finite] - y[finite]) <= rtol * scale))


def check(s: Saturated) -> Values:
    """The values of all classes. Raises when a node is wrong, or is not reached from
    the leaves: that would be a cycle which no extraction can use."""
    values = Values(s.graph, s.leaves)
    assert not values.wrong, "\n".join(values.wrong[:20])
    unreached = len(s.graph.nodes) - values.reached
    assert unreached == 0, f"{unreached} of {len(s.graph.nodes)} nodes"
    return values
