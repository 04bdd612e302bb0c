"""How the e-nodes of a program came about: which rule built each one, of which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from eqsat.egraph import ENode, Matcher, engine_attrs, normal_forms
from eqsat.explain.describe import Readable
from eqsat.explain.near_miss import Overlay
from eqsat.explain.partial_match import Partial, known
from eqsat.rulelang import Expr, Num, Pattern, PatternNode, PatternVar
from eqsat.search import Search
from eqsat.terms import SCALAR


@dataclass(frozen=True)
class Derived:
    """An e-node and how far it is from the program that was chosen."""

    node: int
    depth: int
    """Rules between it and an e-node of the program; 0 for that one itself."""


@dataclass
class Derivations:
    """The derivations of the e-nodes of one search."""

    search: Search
    words: Readable
    matcher: Matcher = field(init=False)
    _table: dict[tuple[Any, ...], int] = field(init=False)
    _memo: dict[int, Partial | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.search.graph
        self.matcher = Matcher(graph)
        self.matcher.prefer(lambda i: graph.nodes[i].rule != "")
        self._table = {
            (n.op, n.attrs, n.children, _is_float(n)): n.cls for n in graph.nodes
        }

    def of(self, node: int) -> Iterator[Derived]:
        """``node``, then all that rules made it of, those nearest to it first below
        it."""
        yield from self._below(node, 0, set())

    def _below(self, node: int, depth: int, seen: set[int]) -> Iterator[Derived]:
        seen.add(node)
        yield Derived(node, depth)
        match = self.match(node)
        for i in match.found if match is not None else ():
            if i not in seen:
                yield from self._below(i, depth + 1, seen)

    def match(self, node: int) -> Partial | None:
        """A match of the rule that built ``node`` from which it follows; None for a
        node that no rule built, and where the match is gone."""
        if node not in self._memo:
            self._memo[node] = next(self._matches(node), None)
        return self._memo[node]

    def _matches(self, node: int) -> Iterator[Partial]:
        made = self.search.graph.nodes[node]
        if not made.rule:
            return
        normal = normal_forms(self.search.rules)
        for rule in self.search.rules[made.rule].directions:
            for _, left, right in normal.entries(rule):
                overlay = Overlay(self.matcher, rule, self.words, whole=True)
                if len(left) == 1:
                    for match in overlay.at(left[0], made.cls):
                        if self._builds(right[0], match, made):
                            yield match
                for match in overlay.building(node, left, right):
                    if any(self._builds(r, match, made) for r in right):
                        yield match

    def _builds(self, right: Pattern, match: Partial, made: ENode) -> bool:
        """Whether the right side has ``made`` in it under a match."""
        seen: list[tuple[Any, ...]] = []
        self._class(right, match, seen)
        return (made.op, made.attrs, made.children, _is_float(made)) in seen

    def _class(
        self, pattern: Pattern, match: Partial, seen: list[tuple[Any, ...]]
    ) -> int | None:
        """The class of a right side; ``seen`` collects the e-nodes that it has."""
        if isinstance(pattern, PatternVar):
            cls: int | None = match.bound[pattern.name]
            return cls
        if isinstance(pattern, Num):
            value = known(pattern.value, match.bound)
            if value is None:
                return None
            return self._table.get((SCALAR, (float(value),), (), True))
        args = [self._class(a, match, seen) for a in pattern.args]
        attrs = [_attribute(v, match) for v in pattern.attrs]
        if None in args:
            return None
        key = (pattern.op, engine_attrs(pattern.op, tuple(attrs)), tuple(args), False)
        seen.append(key)
        return self._table.get(key)


def _attribute(value: Any, match: Partial) -> Any:
    if isinstance(value, tuple):
        return tuple(_attribute(v, match) for v in value)
    return known(value, match.bound) if isinstance(value, Expr) else value


def _is_float(node: ENode) -> bool:
    return node.op is SCALAR and isinstance(node.attrs[0], float)


def inner_classes(match: Partial) -> tuple[int, ...]:
    """The classes that a match computes on the way to its left sides."""
    inside = (c for p, c in match.places.items() if isinstance(p, PatternNode))
    return tuple(dict.fromkeys(c for c in inside if c not in match.roots))
