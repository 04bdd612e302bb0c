"""Matching patterns against an e-graph that was read back, in plain Python.

Fusions are matched here: a fusion adds one e-node and nothing follows from it, so it
needs no saturation. About a hundred of them cost the engine 0.1 s to load and 3 ms to
match here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.egraph.snapshot import Budget, EGraph, ENode
from eqsat.rulelang import Expr, Num, Pattern, PatternNode, PatternVar, Rule, nodes
from eqsat.support import cached_property
from eqsat.terms import ELLIPSIS, SCALAR, Op, Weak, is_float, rounding

Binding = dict[str, Any]
"""Variables to classes; axes, numbers and attributes to their values (``axis:n``,
``number:a``)."""


@dataclass
class Matcher:
    """An e-graph with what matching needs to look up."""

    graph: EGraph
    by_op: dict[Op, list[int]] = field(default_factory=dict)
    by_class: dict[tuple[int, Op], list[int]] = field(default_factory=dict)
    numbers: dict[int, float] = field(default_factory=dict)
    """The number that a class is known to be."""

    def __post_init__(self) -> None:
        for i, node in enumerate(self.graph.nodes):
            if node.op is SCALAR:
                self.numbers[node.cls] = node.attrs[0]
            elif node.op.kind != "leaf":
                self.by_op.setdefault(node.op, []).append(i)
                self.by_class.setdefault((node.cls, node.op), []).append(i)

    def prefer(self, key: Callable[[int], Any]) -> None:
        """Try e-nodes of the least ``key`` first."""
        for group in (*self.by_op.values(), *self.by_class.values()):
            group.sort(key=key)

    @cached_property
    def by_operand(self) -> dict[tuple[Op, int, int], list[int]]:
        """E-nodes by op, place of an operand and its class."""
        found: dict[tuple[Op, int, int], list[int]] = {}
        for op, group in self.by_op.items():
            for i in group:
                for place, cls in enumerate(self.graph.nodes[i].children):
                    found.setdefault((op, place, cls), []).append(i)
        return found

    def matches(self, pattern: Pattern) -> Iterator[tuple[int, Binding]]:
        """Classes that ``pattern`` matches, with each way to bind its variables."""
        if not isinstance(pattern, PatternNode):
            return
        for i in self.by_op.get(pattern.op, ()):
            node = self.graph.nodes[i]
            for bound in self._node(pattern, node, {}):
                yield node.cls, bound

    def found(self, pattern: Pattern) -> bool:
        """Whether ``pattern`` matches a class."""
        return any(True for _ in self.matches(pattern))

    def _class(self, pattern: Pattern, cls: int, bound: Binding) -> Iterator[Binding]:
        if isinstance(pattern, PatternVar):
            found = self.variable(pattern, cls, bound)
            if found is not None:
                yield found
        elif isinstance(pattern, Num):
            found = self._number(pattern, cls, bound)
            if found is not None:
                yield found
        else:
            for i in self.by_class.get((cls, pattern.op), ()):
                yield from self._node(pattern, self.graph.nodes[i], bound)

    def _node(
        self, pattern: PatternNode, node: ENode, bound: Binding
    ) -> Iterator[Binding]:
        if len(node.children) != len(pattern.args):
            return
        if pattern.attrs:
            known = _attributes(pattern.attrs, node.attrs, bound)
            if known is None:
                return
            bound = known
        yield from self._arguments(pattern.args, node.children, 0, bound)

    def _arguments(
        self,
        patterns: Sequence[Pattern],
        classes: Sequence[int],
        i: int,
        bound: Binding,
    ) -> Iterator[Binding]:
        if i == len(patterns):
            yield bound
            return
        for found in self._class(patterns[i], classes[i], bound):
            yield from self._arguments(patterns, classes, i + 1, found)

    def variable(self, var: PatternVar, cls: int, bound: Binding) -> Binding | None:
        """``bound`` with ``var`` standing for a class; None where it cannot."""
        known = bound.get(var.name)
        if known is not None:
            return bound if known == cls else None
        type_ = self.graph.types[cls]
        if type_ is None:
            return None
        dtype, shape = type_
        axes = var.axes
        tail = axes.after if axes.variadic else axes.tokens
        if not var.takes(dtype) or len(shape) < len(tail):
            return None
        if not axes.variadic and len(shape) > len(tail):
            return None
        found = bound | {var.name: cls}
        if not isinstance(dtype, Weak) and is_float(dtype):
            found.setdefault("dtype:", dtype)
        if axes.rank and var.dtype != "bool":
            if found.setdefault("named dtype:", dtype) != dtype:
                return None
        for axis, size in zip(tail, shape[len(shape) - len(tail) :], strict=True):
            if axis == ELLIPSIS:
                continue
            want = (
                axis
                if isinstance(axis, int)
                else found.setdefault(f"axis:{axis}", size)
            )
            if want != size:
                return None
        return found

    def _number(self, pattern: Num, cls: int, bound: Binding) -> Binding | None:
        value = self.numbers.get(cls)
        if value is None:
            return None
        want = pattern.value
        if isinstance(want, Expr):
            if want.args:
                return None
            name = f"number:{want.head}"
            return bound | {name: value} if bound.get(name, value) == value else None
        dtype = bound.get("dtype:")
        slack = rounding(dtype) if dtype is not None else 0.0
        return (
            bound if abs(value - want) <= slack * abs(want) or value == want else None
        )


def _attributes(
    patterns: Sequence[Any], values: Sequence[Any], bound: Binding
) -> Binding | None:
    for want, value in zip(patterns, values, strict=True):
        if isinstance(want, Expr) and not want.args:
            name = f"number:{want.head}"
            if bound.get(name, value) != value:
                return None
            bound = bound | {name: value}
        elif want != value:
            return None
    return bound


def fuse(
    graph: EGraph, rules: Sequence[tuple[Rule, Pattern, Pattern]], budget: Budget
) -> dict[str, int]:
    """Add the e-nodes that fusions build; how often each rule matched.

    Each rule comes with the normal forms of its sides. The right side is one op over
    variables.
    """
    matcher = Matcher(graph)
    present = {op.name for op in matcher.by_op}
    fired: dict[str, int] = {}
    made: dict[tuple[Any, ...], None] = {}
    for rule, left, right in rules:
        if not budget.left():
            break
        if not _op_names(left) <= present:
            continue
        for cls, bound in matcher.matches(left):
            node = _built(right, cls, bound, matcher, rule)
            fired[rule.name] = fired.get(rule.name, 0) + 1
            key = (node.cls, node.op, node.attrs, node.children)
            if key not in made:
                made[key] = None
                graph.add(node)
    return fired


_NAMES: dict[Pattern, frozenset[str]] = {}


def _op_names(pattern: Pattern) -> frozenset[str]:
    known = _NAMES.get(pattern)
    if known is None:
        known = frozenset(
            p.op.name for p in nodes(pattern) if isinstance(p, PatternNode)
        )
        _NAMES[pattern] = known
    return known


def _built(
    right: Pattern, cls: int, bound: Mapping[str, Any], matcher: Matcher, rule: Rule
) -> ENode:
    assert isinstance(right, PatternNode)
    children = []
    for a in right.args:
        if isinstance(a, PatternVar):
            children.append(bound[a.name])
        else:
            assert isinstance(a, Num)
            value = (
                bound[f"number:{a.value.head}"]
                if isinstance(a.value, Expr)
                else a.value
            )
            children.append(matcher.graph.number(float(value)))
    attrs = tuple(
        bound[f"number:{v.head}"] if isinstance(v, Expr) else v for v in right.attrs
    )
    return ENode(cls, right.op, attrs, tuple(children), rule.name)
