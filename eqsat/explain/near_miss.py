"""Where a rule's left side nearly matches a saturated e-graph.

The left side is in normal form (:mod:`eqsat.egraph.normal_form`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from eqsat.egraph import Matcher
from eqsat.explain.describe import Readable
from eqsat.explain.mismatch_words import MismatchWords
from eqsat.explain.partial_match import MOST, Partial, PartialMatcher, parts
from eqsat.rulelang import Pattern, PatternNode, PatternVar, Rule, nodes, show


class Overlay:
    """Lays the left sides of one rule over an e-graph.

    ``whole``: only matches in which everything fits.
    """

    def __init__(
        self, matcher: Matcher, rule: Rule, readable: Readable, whole: bool = False
    ) -> None:
        self.matcher, self.rule, self.whole = matcher, rule, whole
        self.words = MismatchWords(matcher, readable, silent=whole)
        self.laid = PartialMatcher(matcher, rule, self.words, whole)

    def nearest(self, left: Sequence[Pattern]) -> Partial | None:
        """Where most of ``left`` fits, the first of equals; None where nothing does."""
        best: Partial | None = None
        states = list(self._roots(left[0])) if left else []
        for root in left[1:]:
            states = self.laid.kept([s for x in states for s in self._beside(root, x)])
        for state in states:
            best = self._better(best, self.laid.finished(state))
        if len(left) == 1:
            best = self._within(left[0], best)
        return best

    def at(self, left: Pattern, cls: int) -> Iterator[Partial]:
        """The ways in which one left side matches a class."""
        for state in self.laid.over_class(left, cls, Partial()):
            yield self.laid.finished(replace(state, roots=(cls,)))

    def building(
        self, node: int, left: Sequence[Pattern], right: Sequence[Pattern]
    ) -> Iterator[Partial]:
        """The ways in which the left sides match so that the right ones may have an
        e-node, :data:`MOST` of each step."""
        states = self._bound_by(node, right)
        for root in left:
            states = self.laid.kept([s for x in states for s in self._beside(root, x)])
        for state in states:
            done = self.laid.finished(state)
            if not done.failures:
                yield done

    def _bound_by(self, node: int, right: Sequence[Pattern]) -> list[Partial]:
        """What variables stand for when a right side has an e-node."""
        op = self.matcher.graph.nodes[node].op
        within = dict.fromkeys(p for r in right for p in nodes(r))
        found: dict[tuple[tuple[str, int], ...], Partial] = {}
        for p in within:
            if isinstance(p, PatternNode) and p.op is op:
                for state in self.laid.over_node(p, node, Partial()):
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
                for state in self.laid.over_node(root, i, Partial()):
                    found.append(replace(state, roots=(cls,)))
                found = self.laid.kept(found) if len(found) > MOST else found
        return self.laid.kept(found)

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
                for more in self.laid.over_node(root, i, state):
                    found.append(replace(more, roots=(*more.roots, cls)))
        if found or self.whole:
            return self.laid.kept(found)
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
                for state in self.laid.over_node(p, i, Partial()):
                    there = replace(state.failed("op", "", cls), roots=(cls,))
                    if self.better(best, there):
                        text = self.words.missing_above(above[p], cls)
                        best = replace(state.failed("op", text, cls), roots=(cls,))
        return best

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
