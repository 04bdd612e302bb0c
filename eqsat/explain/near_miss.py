"""Where a rule's left side nearly matches a saturated e-graph, and what stops it.

The left side is in normal form (:mod:`eqsat.egraph.normal_form`). Matching goes on
after something does not fit, so that the place where most of the pattern matches can be
told from the others. A part of a pattern is an operation, a number or a variable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from eqsat.egraph import Binding, Class, Matcher, attr_values, holds
from eqsat.explain.describe import Readable, show_shape
from eqsat.rulelang import (
    Expr,
    Fact,
    Num,
    Pattern,
    PatternNode,
    PatternVar,
    Rule,
    nodes,
    show,
    show_attribute,
)
from eqsat.terms import SCALAR, rounding

WIDTH = 6
"""Ways to match that are followed at once when some of them may not fit."""
MOST = 512
"""The same when all must fit."""


def rewrites(rule: Rule) -> tuple[Rule, ...]:
    """The rewrites that a rule is."""
    return rule.directions


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


@dataclass
class Overlay:
    """Lays the left sides of one rule over an e-graph.

    ``whole``: only matches in which everything fits.
    """

    matcher: Matcher
    rule: Rule
    words: Readable
    whole: bool = False

    def nearest(self, left: Sequence[Pattern]) -> Partial | None:
        """Where most of ``left`` fits, the first of equals; None where nothing does."""
        best: Partial | None = None
        states = list(self._roots(left[0])) if left else []
        for root in left[1:]:
            states = self._kept([s for x in states for s in self._beside(root, x)])
        for state in states:
            best = self._better(best, self._finished(state))
        if len(left) == 1:
            best = self._within(left[0], best)
        return best

    def at(self, left: Pattern, cls: int) -> Iterator[Partial]:
        """The ways in which one left side matches a class."""
        for state in self._class(left, cls, Partial()):
            yield self._finished(replace(state, roots=(cls,)))

    def building(
        self, node: int, left: Sequence[Pattern], right: Sequence[Pattern]
    ) -> Iterator[Partial]:
        """The ways in which the left sides match so that the right ones may have an
        e-node, :data:`MOST` of each step."""
        states = self._bound_by(node, right)
        for root in left:
            states = self._kept([s for x in states for s in self._beside(root, x)])
        for state in states:
            done = self._finished(state)
            if not done.failures:
                yield done

    def _bound_by(self, node: int, right: Sequence[Pattern]) -> list[Partial]:
        """What variables stand for when a right side has an e-node."""
        op = self.matcher.graph.nodes[node].op
        within = dict.fromkeys(p for r in right for p in nodes(r))
        found: dict[tuple[tuple[str, int], ...], Partial] = {}
        for p in within:
            if isinstance(p, PatternNode) and p.op is op:
                for state in self._node(p, node, Partial()):
                    known = state.bound.items()
                    bound = {k: v for k, v in known if not k.startswith("number:")}
                    key = tuple((k, bound.get(k, -1)) for k in self.rule.tensors)
                    found.setdefault(key, Partial(bound=bound))
        return list(found.values())

    def _roots(self, root: Pattern) -> Iterable[Partial]:
        found: list[Partial] = []
        if isinstance(root, PatternNode):
            for i in self.matcher.by_op.get(root.op, ()):
                cls = self.matcher.graph.nodes[i].cls
                for state in self._node(root, i, Partial()):
                    found.append(replace(state, roots=(cls,)))
                found = self._kept(found) if len(found) > MOST else found
        return self._kept(found)

    def _beside(self, root: Pattern, state: Partial) -> list[Partial]:
        """``state`` with one more left side, over a class of its own."""
        assert isinstance(root, PatternNode)
        found: list[Partial] = []
        over = self._over(root, state) if self.whole else None
        for i in self.matcher.by_op.get(root.op, ()) if over is None else over:
            if self.whole and len(found) >= MOST:
                break
            cls = self.matcher.graph.nodes[i].cls
            if cls not in state.roots:
                for more in self._node(root, i, state):
                    found.append(replace(more, roots=(*more.roots, cls)))
        if found or self.whole:
            return self._kept(found)
        text = f"expected {show(root)} besides, found no other {root.op.name}"
        return [state.failed("op", text, state.roots[-1])]

    def _over(self, pattern: PatternNode, state: Partial) -> list[int] | None:
        """The e-nodes that ``pattern`` can match over one of its variables that are
        bound, the fewest; None where it has no such variable."""
        index, op = self.matcher.by_operand, pattern.op
        fewest: list[int] | None = None
        for place, arg in enumerate(pattern.args):
            classes: list[int] = []
            if isinstance(arg, PatternVar) and arg.name in state.bound:
                classes = [state.bound[arg.name]]
            elif isinstance(arg, PatternNode):
                below = self._over(arg, state)
                if below is None:
                    continue
                nodes_below = (self.matcher.graph.nodes[i] for i in below)
                classes = list(dict.fromkeys(n.cls for n in nodes_below))
            else:
                continue
            found = [i for c in classes for i in index.get((op, place, c), ())]
            if fewest is None or len(found) < len(fewest):
                fewest = found
        return fewest

    def _within(self, root: Pattern, best: Partial | None) -> Partial | None:
        """The better of ``best`` and a match of an inner operation alone."""
        above = {
            a: p for p in nodes(root) if isinstance(p, PatternNode) for a in p.args
        }
        inner = [p for p in above if isinstance(p, PatternNode)]
        for p in sorted(inner, key=parts, reverse=True):
            if best is not None and parts(p) <= best.matched:
                break
            for i in self.matcher.by_op.get(p.op, ()):
                cls = self.matcher.graph.nodes[i].cls
                for state in self._node(p, i, Partial()):
                    there = replace(state.failed("op", "", cls), roots=(cls,))
                    if self.better(best, there):
                        text = self._missing_above(above[p], cls)
                        best = replace(state.failed("op", text, cls), roots=(cls,))
        return best

    def _missing_above(self, want: PatternNode, cls: int) -> str:
        graph = self.matcher.graph
        users = {
            n.op.name for n in graph.nodes if cls in n.children and n.op.kind != "fused"
        }
        used = f"only {', '.join(sorted(users))}" if users else "nothing"
        return f"expected {want.op.name} of {self._named(cls)}, found {used}"

    def better(self, best: Partial | None, other: Partial) -> bool:
        """Whether more of the pattern fits ``other``."""
        return best is None or self._rank(other) > self._rank(best)

    def _better(self, best: Partial | None, other: Partial) -> Partial:
        return other if best is None or self.better(best, other) else best

    def _rank(self, p: Partial) -> tuple[float, ...]:
        graph, by_op = self.matcher.graph, self.matcher.by_op
        rare = sum(1 / len(by_op[graph.nodes[i].op]) for i in p.found)
        mine = sum(graph.nodes[i].rule == "" for i in p.found)
        return p.matched, -len(p.failures), rare, mine

    def _kept(self, states: list[Partial]) -> list[Partial]:
        if self.whole:
            return [s for s in states if not s.failures][:MOST]
        return sorted(states, key=lambda s: (-s.matched, len(s.failures)))[:WIDTH]

    # -- parts -------------------------------------------------------------------------

    def _class(self, pattern: Pattern, cls: int, state: Partial) -> list[Partial]:
        if isinstance(pattern, PatternVar):
            return self._kept([self._variable(pattern, cls, state)])
        if isinstance(pattern, Num):
            return self._kept([self._number(pattern, cls, state)])
        again = state.places.get(pattern)
        if again is not None:
            return self._kept([self._again(pattern, again, cls, state)])
        found = self.matcher.by_class.get((cls, pattern.op), ())
        states = [s for i in found for s in self._node(pattern, i, state)]
        if not found:
            text = f"expected {self._wanted(pattern, state)}, found {self._what(cls)}"
            states = [state.failed("op", text, cls)]
        return self._kept(states)

    def _again(
        self, pattern: PatternNode, first: int, cls: int, state: Partial
    ) -> Partial:
        if first == cls:
            return replace(state, matched=state.matched + parts(pattern))
        one, other = self._named(first), self._named(cls)
        text = f"the rule's {show(pattern)} would be both {one} and {other}"
        return state.failed("variable", text, cls)

    def _node(self, pattern: PatternNode, i: int, state: Partial) -> list[Partial]:
        node = self.matcher.graph.nodes[i]
        if len(node.children) != len(pattern.args):
            return []
        places = {**state.places, pattern: node.cls}
        start = self._attributes(pattern, i, replace(state, places=places))
        fits = len(start.failures) == len(state.failures)
        found = (*state.found, i) if fits else state.found
        states = [replace(start, matched=start.matched + fits, found=found)]
        for a, c in zip(pattern.args, node.children, strict=True):
            states = self._kept([s for x in states for s in self._class(a, c, x)])
        return states

    def _variable(self, var: PatternVar, cls: int, state: Partial) -> Partial:
        bound = self.matcher.variable(var, cls, state.bound)
        if bound is not None:
            return replace(state, bound=bound, matched=state.matched + 1)
        first = state.bound.get(var.name)
        if first is not None:
            one, other = self._named(first), self._named(cls)
            text = f"the rule's {var.name} would be both {one} and {other}"
            return state.failed("variable", text, cls)
        kind, text = self._misfit(var, cls, state.bound)
        bound = {**state.bound, var.name: cls}
        return replace(state, bound=bound).failed(kind, text, cls)

    def _misfit(self, var: PatternVar, cls: int, bound: Binding) -> tuple[str, str]:
        """Why a variable that is not bound yet cannot stand for a class."""
        type_ = self.matcher.graph.types[cls]
        here = f"the rule's {var.name} is {self._named(cls)} here: expected"
        if type_ is None:
            return "shape", f"{here} a known shape"
        dtype, shape = type_
        if not var.takes(dtype):
            wanted = "a floating dtype" if var.dtype == "float" else var.dtype
            return "dtype", f"{here} {wanted}, found {dtype}"
        axes, n = var.axes, var.axes.rank
        if len(shape) < n or not (axes.variadic or len(shape) == n):
            least = "at least " if axes.variadic else ""
            count = f"{least}{n} {'axis' if n == 1 else 'axes'}"
            return "rank", f"{here} {count} ({axes}), found shape {show_shape(type_)}"
        sizes = dict(_sizes(axes.after if axes.variadic else axes.tokens, bound))
        known = "".join(f", {a}={size}" for a, size in sizes.items())
        return "shape", f"{here} axes {axes}{known}, found shape {show_shape(type_)}"

    def _number(self, pattern: Num, cls: int, state: Partial) -> Partial:
        want, value = pattern.value, self.matcher.numbers.get(cls)
        if not isinstance(value, float):
            expected = f"the number {want!r}"
            kind = "constant"
            if isinstance(want, Expr) and not want.args:
                expected, kind = f"a number for {want.head}", "not constant"
            text = f"expected {expected}, found {self._what(cls)}"
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

    # -- conditions --------------------------------------------------------------------

    def _finished(self, state: Partial) -> Partial:
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
            state = state.failed(kind, self._broken(fact, subjects), cls)
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

    def _broken(self, fact: Fact, subjects: Sequence[Any]) -> str:
        said = []
        for subject, value in zip(fact.subjects, subjects, strict=True):
            plain = isinstance(subject, (Expr, int, float))
            name = str(subject) if plain else show(cast(Pattern, subject))
            text = self._named(value.number) if isinstance(value, Class) else value
            said.append(f"{name} = {text}")
        text = f"the condition {fact.name!r} does not hold for {', '.join(said)}"
        if "(lower " in fact.text:
            low = self.matcher.graph.tables.get("lower", {}).get(subjects[0].number)
            known = (
                "no lower bound of it is" if low is None else f"its bound {low:g} is"
            )
            text += f" ({known} known)"
        return text

    def _wanted(self, pattern: PatternNode, state: Partial) -> str:
        """An operation of the left side, over what its variables stand for."""
        shown = []
        for a in pattern.args:
            cls = state.bound.get(a.name) if isinstance(a, PatternVar) else None
            if cls is not None:
                shown.append(self._named(cls))
            else:
                shown.append("…" if isinstance(a, PatternNode) else show(a))
        return f"{pattern.op.name}({', '.join(shown)})"

    def _named(self, cls: int) -> str:
        """A class in words, which take long; of whole matches nobody reads any."""
        return "" if self.whole else self.words.cls(cls)

    def _what(self, cls: int) -> str:
        """What a class is, for a message that expected something else."""
        graph = self.matcher.graph
        ops = {graph.nodes[i].op for i in graph.classes[cls]}
        text = self._named(cls)
        made = sorted({op.name for op in ops if op.kind not in ("leaf", "fused")})
        if SCALAR in ops or not made:
            return text
        return f"{text} ({', '.join(made)})" if len(made) > 1 else text


def _sizes(tail: Iterable[Any], bound: Binding) -> Iterator[tuple[str, int]]:
    for axis in tail:
        if isinstance(axis, str) and f"axis:{axis}" in bound:
            yield axis, bound[f"axis:{axis}"]


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
