"""Lints: what is wrong with a rule beside the identity that it states.

A rule that the engine does not match on its own left side is *dead*: it can never help,
and is refused. The other lints are warnings: a *duplicate* of another rule, a rule that
is *derivable* from others, and rules that together make the e-graph *grow* without
bound. All but the first look at the stock rules as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, cast

from eqsat.checking.report import Lint
from eqsat.checking.rule_trial import Growth, RuleProgram, growth, programs, run
from eqsat.egraph import normal_forms
from eqsat.rulelang import Expr, Num, Pattern, PatternVar, Rule, RuleSet
from eqsat.support import NUMERICS, EqsatError, cached_property


@dataclass
class Linter:
    """The lints of some rules, beside other rules that they will be used with."""

    rules: Sequence[Rule]
    stock: Iterable[Rule] = ()
    seed: int = 0
    _culprits: list[tuple[str, ...]] = field(default_factory=list)
    _drawn: tuple[Rule, list[RuleProgram]] | None = None

    @cached_property
    def others(self) -> list[Rule]:
        """Stock rules of other names."""
        own = {r.name for r in self.rules}
        return [r for r in self.stock if r.name not in own]

    @cached_property
    def all(self) -> RuleSet:
        return RuleSet((*self.rules, *self.others))

    def _programs(self, rule: Rule) -> list[RuleProgram]:
        """The left side of ``rule`` as programs; kept for the lints of one rule."""
        if self._drawn is None or self._drawn[0] is not rule:
            self._drawn = rule, list(programs(rule, self.seed))
        return self._drawn[1]

    def dead(self, rule: Rule) -> str:
        """Why ``rule`` never matches, empty when it does."""
        others = frozenset(r.name for r in self.all if r.phase != "canonicalise")
        others -= {rule.name}
        found = self._programs(rule)
        for program in found:
            try:
                if rule.name in run(program, self.all, rule.is_fusion, others).fired:
                    return ""
            except EqsatError as error:
                said = str(error).split("\n")[0]
                said = said.removeprefix(f"{rule.place}: rule {rule.name!r}: ")
                return f"it breaks the search on its own left side: {said}"
        if not found:
            return ""
        names = ", ".join(dict.fromkeys(f.name for f in rule.facts))
        why = f"; the engine may not see that its conditions hold ({names})"
        return f"it never matches, even on its own left side{why if names else ''}"

    def warnings(self, rule: Rule) -> Iterator[Lint]:
        """What there is to say of ``rule`` alone."""
        twin = self._twin(rule)
        if twin is not None:
            yield twin
        elif names := self._derived_from(rule):
            text = f"follows from {_listed(names)}"
            yield Lint("derivable", text, names)

    # -- duplicates --------------------------------------------------------------------

    @cached_property
    def _keys(self) -> dict[Any, list[Rule]]:
        found: dict[Any, list[Rule]] = {}
        for r in (*self.others, *self.rules):
            found.setdefault(self._key(r), []).append(r)
        return found

    def _key(self, rule: Rule) -> Any:
        _, left, right = normal_forms(self.all)(rule)
        return _Renamed().key(rule, left, right)

    def _twin(self, rule: Rule) -> Lint | None:
        """A rule that says the same, written before this one or in stock."""
        for r in self._keys[self._key(rule)]:
            if r is rule:
                break
            text = f"says the same as {r.name!r} ({r.place})"
            return Lint("duplicate", text, (r.name,))
        for r in self.stock:
            if r.name == rule.name and self._key(r) != self._key(rule):
                text = f"has the name of a stock rule ({r.place}): use another"
                return Lint("duplicate", text, (r.name,))
        return None

    # -- rules that follow from others -------------------------------------------------

    def _derived_from(self, rule: Rule) -> tuple[str, ...]:
        """The rules that ``rule`` follows from, as few as were found; none when it
        does not."""
        strict = _strictness(rule)
        plain = rule.phase == "canonicalise"  # normal forms are made without it
        rest = [
            r
            for r in self.all
            if r is not rule
            and _strictness(r) <= strict
            and (not plain or r.phase == "canonicalise")
        ]
        found = self._programs(rule)
        if not found or not self._reachable(rule, rest):
            return ()
        trial = _Trial(RuleSet(tuple(rest)) if plain else self.all, rule.is_fusion)
        names = frozenset(r.name for r in rest)
        if not all(trial.meets(p, names) is not None for p in found):
            return ()
        fired = trial.meets(found[0], names) or ()
        if trial.meets(found[0], frozenset(fired)) is not None:
            names = frozenset(fired)
        for name in fired:
            if trial.meets(found[0], names - {name}) is not None:
                names -= {name}
        return tuple(n for n in fired if n in names)

    def _reachable(self, rule: Rule, rest: Sequence[Rule]) -> bool:
        """Whether the other rules can build the ops of the right side at all."""
        wanted = rule.ops(rule.right) - rule.ops(rule.left)
        return wanted <= set().union(*(r.ops(r.right) for r in rest))

    # -- rules that feed each other ----------------------------------------------------

    def growing(self, rule: Rule) -> tuple[Rule, Lint] | None:
        """Rules that grow the e-graph of the left side of ``rule`` without bound, and
        the first of them; None where there are none, or they are known by now."""
        own = {r.name for r in self.rules}
        program = next(iter(self._programs(rule)), None)
        if program is None:
            return None
        trial = _Trial(self.all)
        known = {c[0] for c in self._culprits}
        rest = frozenset(r.name for r in self.all if r.name not in known)
        found = trial.growth(program, rest)
        if found is None:
            return None
        names = trial.fewest(program, found, own)
        if not own & set(names):
            return None
        names = tuple(sorted(names, key=lambda n: n not in own))
        self._culprits.append(names)
        how = (
            f"{_listed(names)} feed each other" if len(names) > 1 else "it feeds itself"
        )
        text = (
            f"the e-graph grows without bound: {how} ({found.before} to "
            f"{found.after} e-nodes on the left side of {rule.name!r})"
        )
        first = next(r for r in self.rules if r.name == names[0])
        return first, Lint("growth", text, names)


def _strictness(rule: Rule) -> int:
    return NUMERICS.index(rule.numerics.split("(")[0])


def _listed(names: Sequence[str]) -> str:
    *most, last = map(repr, names)
    return f"{', '.join(most)} and {last}" if most else last


@dataclass(frozen=True)
class _Trial:
    """Some of the rules of a set at work; each is asked for by its name."""

    rules: RuleSet
    fusion: bool = False

    def _but(self, names: Set[str]) -> frozenset[str]:
        return frozenset(r.name for r in self.rules if r.name not in names)

    def meets(self, program: RuleProgram, names: Set[str]) -> tuple[str, ...] | None:
        """The rules that fired on the way to the right side; None where it is not
        met."""
        try:
            found = run(program, self.rules, self.fusion, self._but(names))
        except EqsatError:
            return None
        return tuple(found.fired) if found.meets else None

    def growth(self, program: RuleProgram, names: Set[str]) -> Growth | None:
        """How the e-graph grows; None where it comes to an end."""
        try:
            return growth(program, self.rules, self._but(names))
        except EqsatError:
            return None

    def fewest(
        self, program: RuleProgram, found: Growth, own: Set[str]
    ) -> tuple[str, ...]:
        """As few of the rules as still grow without bound, own rules rather than
        others."""
        kept = frozenset(found.fired)
        for name in sorted(found.fired, key=lambda n: n in own):
            if self.growth(program, kept - {name}) is not None:
                kept -= {name}
        return tuple(r.name for r in self.rules if r.name in kept)


# -- rules up to the names of their variables ------------------------------------------


@dataclass
class _Renamed:
    """Names of variables, numbers and axes in order of appearance, and parts of
    patterns."""

    names: dict[tuple[str, str], int] = field(default_factory=dict)
    parts: dict[Pattern, int] = field(default_factory=dict)
    keys: list[Any] = field(default_factory=list)
    """Of each part what is equal for equal ones, which names those below by number."""

    def key(self, rule: Rule, left: Sequence[Pattern], right: Sequence[Pattern]) -> Any:
        sides = tuple(tuple(map(self._pattern, side)) for side in (left, right))
        facts = frozenset(
            (f.text, tuple(map(self._subject, f.subjects))) for f in rule.facts
        )
        return sides, facts, tuple(self.keys)

    def _name(self, kind: str, name: str) -> int:
        return self.names.setdefault((kind, name), len(self.names))

    def _subject(self, s: Pattern | Expr | float) -> Any:
        plain = isinstance(s, (Expr, int, float))
        return self._expr(s) if plain else self._pattern(cast(Pattern, s))

    def _pattern(self, p: Pattern) -> int:
        if p not in self.parts:
            self.keys.append(self._part(p))
            self.parts[p] = len(self.parts)
        return self.parts[p]

    def _part(self, p: Pattern) -> Any:
        if isinstance(p, PatternVar):
            axes = tuple(
                self._name("axis", a) if isinstance(a, str) and a != "..." else str(a)
                for a in p.axes.tokens
            )
            return self._name("array", p.name), axes, p.dtype
        if isinstance(p, Num):
            return self._expr(p.value)
        args = tuple(map(self._pattern, p.args))
        return p.op.name, args, tuple(map(self._attribute, p.attrs))

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._attribute, value))
        return self._expr(value) if isinstance(value, Expr) else repr(value)

    def _expr(self, e: Any) -> Any:
        if not isinstance(e, Expr):
            return repr(e)
        if not e.args:
            kind = "axis" if e.kind == "int" else "number"
            return self._name(kind, e.head)
        return e.head, tuple(map(self._expr, e.args))
