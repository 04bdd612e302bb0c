"""Why a rule is not in the chosen program."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from eqsat.egraph import Budget, normal_forms, ops_of
from eqsat.explain.derivation import Derivations, inner_classes
from eqsat.explain.forced_choice import Forcing
from eqsat.explain.near_miss import Overlay
from eqsat.explain.partial_match import Partial, parts
from eqsat.rulelang import Pattern, PatternNode, PatternVar, Rule, RuleSet, show
from eqsat.search import Optimised, RegionOrigin
from eqsat.support import (
    Options,
    RuleError,
    SourceLine,
    cached_property,
    counted,
    nearest,
)
from eqsat.terms import Term

KINDS = {
    "winner": "it is in the chosen program",
    "absent": "the rule is not in the set",
    "disabled": "an option turns it off",
    "numerics": "its numerics class is not admitted",
    "cost": "what it built costs more",
    "consumer": "what it fuses is needed by something else too",
    "nothing new": "it matched, and built nothing that was not there",
    "unused": "no program can use what it built",
    "budget": "the search ended before it could match",
    "region": "its match crosses a border between regions",
    "op": "an operation is missing",
    "shape": "the sizes of axes do not fit",
    "rank": "the number of axes does not fit",
    "dtype": "a dtype does not fit",
    "variable": "one name stands for two values",
    "constant": "a number differs",
    "attribute": "an attribute differs",
    "condition": "a condition of where= does not hold",
    "not constant": "something is not known when the program is compiled",
}
"""Kinds of answers."""

TRIED = 8
"""E-nodes of a rule that are priced, those that promise most first."""


@dataclass(frozen=True)
class WhyNot:
    """Why a rule is not in the chosen program; ``str()`` is the answer in words.

    ``kind`` is one of these. The first that applies is given: ``absent``,
    ``disabled`` and ``numerics`` are about the rule; ``winner``, ``nothing new``,
    ``unused``, ``consumer`` and ``cost`` about one that matched; ``budget`` and
    ``region`` about a search that could not show it a match; the others say what is
    wrong where its left side matches best.
    """

    rule: str
    kind: str
    text: str
    """What stops it, or that nothing does."""
    place: str = ""
    """File and line of the rule."""
    line: SourceLine | None = None
    """The user's line that it is about."""
    fired: int = 0
    """Matches, over all e-graph iterations."""
    pattern: str = ""
    """Its left side in the form in which it is matched, where nothing matched all of
    it."""
    matched: int = 0
    """Parts of the left side (operations, numbers, variables) that fit at best."""
    parts: int = 0
    """Parts of the left side."""
    classes: int = 0
    """E-classes with an operation of the root of its left side."""
    kernels: tuple[str, ...] = ()
    """Kernels of the chosen program that it led to."""
    cost_s: float | None = None
    """Seconds of the chosen program, where costs decided."""
    forced_cost_s: float | None = None
    """Seconds of the best program found that uses what the rule built."""

    @property
    def lost_s(self) -> float | None:
        """By how many seconds it lost."""
        if self.cost_s is None or self.forced_cost_s is None:
            return None
        return self.forced_cost_s - self.cost_s

    def record(self) -> dict[str, Any]:
        """Everything as plain dicts, lists, numbers and strings."""
        line = None if self.line is None else str(self.line)
        return {**asdict(self), "line": line, "kernels": list(self.kernels)}

    def to_json(self) -> str:
        """Everything as JSON text."""
        return json.dumps(self.record(), indent=1)

    def __str__(self) -> str:
        lines = [f"{self.rule}: {self.text}"]
        if self.pattern:
            lines.append(f"  left side  {self.pattern}")
        if self.matched:
            lines.append(
                f"  nearest    {self.matched} of {counted(self.parts, 'part')} fit"
            )
        if self.line is not None:
            lines.append(f"  line {self.line}  {self.line.text}".rstrip())
        if self.place:
            lines.append(f"  rule {self.place}")
        return "\n".join(lines)


@dataclass
class Question:
    """A search and what is known of it, to answer questions about rules."""

    done: Optimised
    rules: RuleSet
    options: Options
    kernels: Mapping[str, frozenset[str]]
    """The rules that each kernel came about by."""
    again: Callable[[Options], Optimised]
    """The same search under other options."""
    derivations: Derivations | None
    """None where nothing was searched."""

    def why_not(self, rule: str | Rule) -> WhyNot:
        """The first reason that applies."""
        name = rule if isinstance(rule, str) else rule.name
        answer = self._excluded(name, rule)
        if answer is None:
            known = self.rules[name]
            fired = self.done.fired.get(name, 0)
            answer = self._fired(known, fired) if fired else self._silent(known)
            answer = replace(answer, place=known.place, fired=fired)
        return answer

    # -- about the rule ----------------------------------------------------------------

    def _excluded(self, name: str, rule: str | Rule) -> WhyNot | None:
        """Why a rule was not in the search at all."""
        try:
            known = self.rules[name]
        except RuleError:
            here = counted(len(self.rules), "rule")
            text = f"no rule {name!r} is among the {here} in use"
            if isinstance(rule, Rule):
                text += "; give it to jit(rules=…)"
                return WhyNot(name, "absent", text, rule.place)
            text += nearest(name, (r.name for r in self.rules))
            return WhyNot(name, "absent", text)
        if isinstance(rule, Rule) and rule is not known:
            text = f"the rule in use of that name is another one, at {known.place}"
            return WhyNot(name, "absent", text, rule.place)
        if name in self.options.disable:
            text = f"turned off by Options(disable={{{name!r}}})"
            return WhyNot(name, "disabled", text, known.place)
        if known.is_fusion and not self.options.fusion:
            text = "turned off by Options(fusion=False)"
            return WhyNot(name, "disabled", text, known.place)
        if not self.options.admits(known.numerics):
            loosest = known.numerics.partition("(")[0]
            text = (
                f"its numerics class is {known.numerics!r} and the options admit "
                f"{self.options.numerics!r}; Options(numerics={loosest!r}) admits it"
            )
            return WhyNot(name, "numerics", text, known.place)
        return None

    # -- about one that matched --------------------------------------------------------

    def _fired(self, rule: Rule, fired: int) -> WhyNot:
        times = _times(fired)
        search, derivations = self.done.search, self.derivations
        assert search is not None and derivations is not None
        won = tuple(k for k, rules in self.kernels.items() if rule.name in rules)
        if won:
            some = ", ".join(won[:4])
            more = f" and {len(won) - 4} more" if len(won) > 4 else ""
            text = f"it matched {times}, and led to {some}{more}"
            return WhyNot(rule.name, "winner", text, kernels=won)
        nodes = search.graph.nodes
        built = {i for i, n in enumerate(nodes) if n.rule == rule.name}
        if search.won and any(built & part.used for part in search.parts):
            text = f"it matched {times}, and built a view or a constant that is used"
            return WhyNot(rule.name, "winner", text)
        if not built and self.done.own_cost_s is not None:
            price = _compared(self.done.own_cost_s, self.done.cost_s)
            text = (
                f"it matched {times}, but lost: the best program found with the rules "
                f"that do not come with eqsat costs {price}"
            )
            return WhyNot(rule.name, "cost", text)
        if not built:
            text = f"it matched {times}, and built nothing that was not there"
            if all(isinstance(r, PatternVar) for r in rule.right):
                text = f"it matched {times}, and says that two values are one"
            return WhyNot(rule.name, "nothing new", text)
        return self._lost(rule, times, built)

    def _lost(self, rule: Rule, times: str, built: set[int]) -> WhyNot:
        """By how much a rule lost that built something."""
        best = self._best_forced(built)
        if best is None:
            text = f"it matched {times}, but no program can use what it built"
            return WhyNot(rule.name, "unused", text)
        node, part, cost = best
        chosen = self.done.cost_s
        price = f"the best program found with it costs {_compared(cost, chosen)}"
        kind, text, line = "cost", f"it matched {times}, but lost: {price}", None
        assert self.derivations is not None
        shared = self._shared(node, part)
        if shared is not None:
            what, users, line = shared
            kind = "consumer"
            text = (
                f"it matched {times}, but {what} is needed by {users} too, so that the "
                f"fused kernel would compute it again: {price}"
            )
        if line is None:
            match = self.derivations.match(node)
            made = self.derivations.search.graph.nodes[node].cls
            classes = (made, *(match.roots if match is not None else ()))
            lines = map(self.derivations.words.line, classes)
            line = next((x for x in lines if x is not None), None)
        return WhyNot(
            rule.name, kind, text, line=line, cost_s=chosen, forced_cost_s=cost
        )

    def _best_forced(self, built: set[int]) -> tuple[int, RegionOrigin, float] | None:
        """The node of ``built`` with the cheapest program that uses it, in which part,
        and its cost (s)."""
        search = self.done.search
        assert search is not None
        promising = []
        for k, part in enumerate(search.parts):
            forcing = Forcing(
                search.graph, search.weights, part.roots, part.used, search.cover
            )
            for i in sorted(built):
                promise = forcing.promise(i)
                if promise is not None:
                    promising.append((promise, k, i, i, forcing))
        promising.sort(key=lambda p: p[:3])
        best: tuple[int, RegionOrigin, float] | None = None
        budget = Budget.of(max(1.0, self.options.deadline_s), 1)
        for _, k, i, node, forcing in promising[:TRIED]:
            choice = forcing.choice(i, budget)
            if choice is not None:
                choices = [p.cover for p in search.parts]
                choices[k] = choice
                cost = search.price(choices)
                if best is None or cost < best[2]:
                    best = node, search.parts[k], cost
        return best

    def _shared(
        self, node: int, part: RegionOrigin
    ) -> tuple[str, str, SourceLine | None] | None:
        """What a kernel of ``node`` would compute again: a value of its match that
        something else of the chosen program uses too. Its text, its other users, and
        the line of one."""
        assert self.derivations is not None
        search, words = self.derivations.search, self.derivations.words
        graph, chosen = search.graph, part.nodes
        made, match = graph.nodes[node], self.derivations.match(node)
        fuses = made.op.body is not None or made.op.kind == "library"
        if match is None or made.cls not in match.roots or not fuses or not search.won:
            return None
        inside = inner_classes(match)
        own = {*inside, *match.roots}
        for cls in inside:
            if graph.constant[cls] or cls in made.children or cls not in chosen:
                continue
            users = [
                c
                for c, i in chosen.items()
                if c not in own and cls in graph.nodes[i].children
            ]
            said = [words.cls(c) for c in users]
            if cls in part.roots:
                said.append(self._outside(words.written(cls)))
            if said:
                line = words.line(users[0]) if users else words.line(cls)
                return words.cls(cls), " and ".join(said), line
        return None

    def _outside(self, term: Term | None) -> str:
        """Who uses a term outside its region."""
        search = self.done.search
        assert search is not None
        if term is not None and search.chosen.get(term, term) in self.done.roots:
            return "the caller"
        return "a later part of the program"

    # -- about one that did not match --------------------------------------------------

    def _silent(self, rule: Rule) -> WhyNot:
        search, derivations = self.done.search, self.derivations
        cut = self.done.cut_short
        if search is None or derivations is None:
            text = f"nothing was searched: {cut or 'the program has no operations'}"
            return WhyNot(rule.name, "budget" if cut else "op", text)
        way, best = self._nearest(rule)
        if best is not None and not best.failures:
            text = (
                f"it matches what was found, but the search ended before it ran: {cut}"
            )
            if not cut:
                text = "it matches what was found last, after the bounded rounds it had"
            return WhyNot(rule.name, "budget", text, line=self._line(best))
        if cut and rule.phase not in search.phases:
            text = f"the search ended before its phase {rule.phase!r}: {cut}"
            return WhyNot(rule.name, "budget", text)
        if self.options.regions and sum(len(p.regions) for p in search.parts) > 1:
            n = self._whole.fired.get(rule.name, 0)
            if n:
                text = (
                    f"a match crosses a border between regions; with "
                    f"Options(regions=False) it matches {_times(n)}"
                )
                return WhyNot(rule.name, "region", text)
        return self._stopped(way, best, cut)

    @cached_property
    def _whole(self) -> Optimised:
        """The same search in one piece."""
        return self.again(replace(self.options, regions=False))

    def _nearest(self, rule: Rule) -> tuple[Rule, Partial | None]:
        """The rewrite of a rule that fits best, and where."""
        assert self.derivations is not None
        words, matcher = self.derivations.words, self.derivations.matcher
        best: tuple[Rule, Partial | None] | None = None
        for way in rule.directions:
            overlay = Overlay(matcher, way, words)
            found = overlay.nearest(self._left(way))
            if best is None or (found is not None and overlay.better(best[1], found)):
                best = way, found
        assert best is not None
        return best

    def _left(self, rule: Rule) -> Sequence[Pattern]:
        """The left side in normal form."""
        assert self.derivations is not None
        return normal_forms(self.derivations.search.rules)(rule)[1]

    def _stopped(self, rule: Rule, best: Partial | None, cut: str) -> WhyNot:
        """What is wrong where most of the left side fits."""
        left = self._left(rule)
        assert self.derivations is not None
        by_op = self.derivations.matcher.by_op
        root, *_ = left
        roots = by_op.get(root.op, ()) if isinstance(root, PatternNode) else ()
        graph = self.derivations.search.graph
        ops = sorted({op.name for op, _ in ops_of(left)})
        answer = WhyNot(
            rule.name,
            "op",
            f"it never matched: the program has none of {', '.join(ops)}",
            pattern=" , ".join(map(show, left)),
            parts=sum(map(parts, left)),
            classes=len({graph.nodes[i].cls for i in roots}),
        )
        if best is None:
            return answer
        first, *more = best.failures
        text = f"it never matched: {first.text}"
        if more:
            text += f" (and {len(more)} more)"
        if cut:
            text += f"; the search was cut short: {cut}"
        return replace(
            answer,
            kind=first.kind,
            text=text,
            matched=best.matched,
            line=self._line(best),
        )

    def _line(self, match: Partial) -> SourceLine | None:
        """The user's line of the first class that has one: of what fails, then of
        what matches."""
        assert self.derivations is not None
        words, graph = self.derivations.words, self.derivations.search.graph
        classes: Sequence[int] = [
            *(f.cls for f in match.failures[:1]),
            *match.roots,
            *(graph.nodes[i].cls for i in match.found),
        ]
        return next((line for c in classes if (line := words.line(c))), None)


def _us(seconds: float) -> str:
    """Microseconds, to at least three figures."""
    us = seconds * 1e6
    return f"{us:.1f}" if us >= 10 else f"{us:.3g}"


def _compared(cost: float, chosen: float) -> str:
    """Two costs (s): ``24.5 µs, 1.5 µs (6.5 %) more than the 23.0 µs of …``."""
    more = cost - chosen
    if abs(more) <= 1e-9 * chosen:
        return f"{_us(cost)} µs, as much as the chosen one"
    percent = abs(more) / chosen * 100 if chosen else 0.0
    share = f"{percent:.0f}" if percent >= 10 else f"{percent:.2g}"
    return (
        f"{_us(cost)} µs, {_us(abs(more))} µs ({share} %) "
        f"{'more' if more > 0 else 'less'} than the {_us(chosen)} µs of the chosen one"
    )


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"
