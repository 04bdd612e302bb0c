"""A pattern laid over a class of an e-graph, as far as it fits.

Matching goes on after something does not fit, so that the place where most of the
pattern matches can be told from the others. A part of a pattern is an operation, a
number or a variable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from eqsat.egraph import Binding, Class, Matcher, attr_values, holds
from eqsat.explain.mismatch_words import MismatchWords
from eqsat.rulelang import (
    Expr,
    Num,
    Pattern,
    PatternNode,
    PatternVar,
    Rule,
    show,
    show_attribute,
)
from eqsat.terms import rounding

WIDTH = 6
"""Ways to match that are followed at once when some of them may not fit."""
MOST = 512
"""The same when all must fit."""


@dataclass(frozen=True)
class Failure:
    """One thing that does not fit."""

    kind: str
    """One of :data:`eqsat.explain.why_not.KINDS`."""
    text: str
    cls: int
    """The class that does not fit."""


@dataclass(frozen=True)
class Partial:
    """A pattern laid over an e-graph, as far as it fits."""

    matched: int = 0
    """Parts that fit."""
    bound: Binding = field(default_factory=dict)
    places: Mapping[Pattern, int] = field(default_factory=dict)
    """The class of each operation that was laid over one."""
    found: tuple[int, ...] = ()
    """The e-nodes that fit."""
    roots: tuple[int, ...] = ()
    """The classes of the left sides."""
    failures: tuple[Failure, ...] = ()
    later: tuple[tuple[Num, int], ...] = ()
    """Numbers made of sizes that were not known yet, with their classes."""

    def failed(self, kind: str, text: str, cls: int) -> Partial:
        return replace(self, failures=(*self.failures, Failure(kind, text, cls)))


def parts(pattern: Pattern) -> int:
    """How many parts a pattern has, one that is used twice counted twice."""
    if not isinstance(pattern, PatternNode):
        return 1
    return 1 + sum(parts(a) for a in pattern.args)


@dataclass(frozen=True)
class PartialMatcher:
    """Lays patterns of one rule over classes.

    ``whole``: only matches in which everything fits.
    """

    matcher: Matcher
    rule: Rule
    words: MismatchWords
    whole: bool = False

    def over_class(self, pattern: Pattern, cls: int, state: Partial) -> list[Partial]:
        if isinstance(pattern, PatternVar):
            return self.kept([self._variable(pattern, cls, state)])
        if isinstance(pattern, Num):
            return self.kept([self._number(pattern, cls, state)])
        again = state.places.get(pattern)
        if again is not None:
            return self.kept([self._again(pattern, again, cls, state)])
        found = self.matcher.by_class.get((cls, pattern.op), ())
        states = [s for i in found for s in self.over_node(pattern, i, state)]
        if not found:
            wanted = self.words.wanted(pattern, state.bound)
            text = f"expected {wanted}, found {self.words.what(cls)}"
            states = [state.failed("op", text, cls)]
        return self.kept(states)

    def _again(
        self, pattern: PatternNode, first: int, cls: int, state: Partial
    ) -> Partial:
        if first == cls:
            return replace(state, matched=state.matched + parts(pattern))
        one, other = self.words.named(first), self.words.named(cls)
        text = f"the rule's {show(pattern)} would be both {one} and {other}"
        return state.failed("variable", text, cls)

    def over_node(self, pattern: PatternNode, i: int, state: Partial) -> list[Partial]:
        node = self.matcher.graph.nodes[i]
        if len(node.children) != len(pattern.args):
            return []
        places = {**state.places, pattern: node.cls}
        start = self._attributes(pattern, i, replace(state, places=places))
        fits = len(start.failures) == len(state.failures)
        found = (*state.found, i) if fits else state.found
        states = [replace(start, matched=start.matched + fits, found=found)]
        for a, c in zip(pattern.args, node.children, strict=True):
            states = self.kept([s for x in states for s in self.over_class(a, c, x)])
        return states

    def _variable(self, var: PatternVar, cls: int, state: Partial) -> Partial:
        bound = self.matcher.variable(var, cls, state.bound)
        if bound is not None:
            return replace(state, bound=bound, matched=state.matched + 1)
        first = state.bound.get(var.name)
        if first is not None:
            one, other = self.words.named(first), self.words.named(cls)
            text = f"the rule's {var.name} would be both {one} and {other}"
            return state.failed("variable", text, cls)
        kind, text = self.words.misfit(var, cls, state.bound)
        bound = {**state.bound, var.name: cls}
        return replace(state, bound=bound).failed(kind, text, cls)

    def _number(self, pattern: Num, cls: int, state: Partial) -> Partial:
        want, value = pattern.value, self.matcher.numbers.get(cls)
        if not isinstance(value, float):
            expected = f"the number {want!r}"
            kind = "constant"
            if isinstance(want, Expr) and not want.args:
                expected, kind = f"a number for {want.head}", "not constant"
            text = f"expected {expected}, found {self.words.what(cls)}"
            return state.failed(kind, text, cls)
        fits = replace(state, matched=state.matched + 1)
        if isinstance(want, Expr) and not want.args and want.head in self.rule.numbers:
            key = f"number:{want.head}"
            if state.bound.get(key, value) == value:
                return replace(fits, bound={**state.bound, key: value})
            text = (
                f"the rule's {want.head} would be both {state.bound[key]} and {value}"
            )
            return state.failed("variable", text, cls)
        expected_value = known(want, state.bound)
        if expected_value is None:
            return replace(fits, later=(*state.later, (pattern, cls)))
        if self._is_near(value, expected_value, state):
            return fits
        text = f"expected {_as_text(want, expected_value)}, found {value!r}"
        return state.failed("constant", text, cls)

    def _is_near(self, value: float, want: float, state: Partial) -> bool:
        dtype = state.bound.get("dtype:")
        slack = rounding(dtype) if dtype is not None else 0.0
        return value == want or abs(value - want) <= slack * abs(want)

    def _attributes(self, pattern: PatternNode, i: int, state: Partial) -> Partial:
        node = self.matcher.graph.nodes[i]
        named = zip(node.op.attrs, pattern.attrs, attr_values(node), strict=True)
        for name, want, value in named:
            bound = self._attribute(want, value, state.bound)
            if bound is None:
                text = f"expected {node.op.name} of {name}={show_attribute(want)}"
                text += f", found {name}={show_attribute(value)}"
                return state.failed("attribute", text, node.cls)
            state = replace(state, bound=bound)
        return state

    def _attribute(self, want: Any, value: Any, bound: Binding) -> Binding | None:
        if isinstance(want, tuple) and isinstance(value, tuple):
            if len(want) != len(value):
                return None
            for w, v in zip(want, value, strict=True):
                more = self._attribute(w, v, bound)
                if more is None:
                    return None
                bound = more
            return bound
        if isinstance(want, Expr) and not want.args and want.head in self.rule.numbers:
            key = f"number:{want.head}"
            return {**bound, key: value} if bound.get(key, value) == value else None
        if isinstance(want, Expr):
            size = known(want, bound)
            return bound if size is None or size == value else None
        return bound if want == value else None

    def kept(self, states: list[Partial]) -> list[Partial]:
        if self.whole:
            return [s for s in states if not s.failures][:MOST]
        return sorted(states, key=lambda s: (-s.matched, len(s.failures)))[:WIDTH]

    def finished(self, state: Partial) -> Partial:
        """``state`` with what could only be decided at the end."""
        for pattern, cls in state.later:
            want = known(pattern.value, state.bound)
            value = self.matcher.numbers[cls]
            if want is not None and not self._is_near(value, want, state):
                text = f"expected {_as_text(pattern.value, want)}, found {value!r}"
                state = state.failed("constant", text, cls)
        for fact in self.rule.facts:
            subjects = [self._subject(s, state) for s in fact.subjects]
            if None in subjects or holds(fact, subjects, self.matcher.graph):
                continue
            kind = "not constant" if fact.name == "constant" else "condition"
            cls = next(
                (s.number for s in subjects if isinstance(s, Class)), state.roots[0]
            )
            state = state.failed(kind, self.words.broken(fact, subjects), cls)
        return state

    def _subject(self, subject: Pattern | Expr | float, state: Partial) -> Any:
        """What a condition is about; None where the match did not come so far."""
        if isinstance(subject, (int, float)):
            return subject
        if isinstance(subject, (Expr, Num)):
            return known(
                subject.value if isinstance(subject, Num) else subject, state.bound
            )
        if isinstance(subject, PatternVar):
            cls = state.bound.get(subject.name)
        else:
            cls = state.places.get(subject)
        return None if cls is None else Class(cls)


def _as_text(want: Any, value: float) -> str:
    return f"{want} = {value!r}" if isinstance(want, Expr) else repr(value)


def known(value: Any, bound: Binding) -> Any:
    """``value``, or what the expression comes to; None where a name is not bound."""
    if not isinstance(value, Expr):
        return value
    names = {k.partition(":")[2]: v for k, v in bound.items() if ":" in k}
    if not value.names <= names.keys():
        return None
    try:
        return value.value(names)
    except ZeroDivisionError:
        return None
