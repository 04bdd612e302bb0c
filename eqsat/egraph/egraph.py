"""The e-graph: terms and rules go into egglog, classes come back.

Terms go in as rules of about 64 actions (one big program is quadratic, because the
bindings copy the source text into every syntax node), and come back through
``freeze()``. egglog's own extractor is never used: it minimises tree cost, which
doubles at every residual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

from eqsat.egraph.engine_pool import Warm, opened, parsed
from eqsat.egraph.insertion import Iteration, chunk, program_text, step_command
from eqsat.egraph.normal_form import Entry, NormalForms, Seen, normal_forms
from eqsat.egraph.read_back import seen_closely, snapshot_of
from eqsat.egraph.snapshot import CHUNK, EGraph, Inserted
from eqsat.egraph.table_rows import Reader
from eqsat.egraph.vocabulary import Vocabulary
from eqsat.rulelang import Pattern, PatternNode, Rule, RuleSet, egg_schema
from eqsat.support import EngineError, RuleFailure, bindings, cached_property
from eqsat.terms import Op


@dataclass
class Engine:
    """One e-graph with the rules that can matter to the ops in it. Made by
    :func:`open_engine`."""

    rules: RuleSet
    normal: NormalForms
    words: Vocabulary
    egg: Any
    """The e-graph of egglog."""
    warm: Warm | None
    """Where ``egg`` is kept for the next graph."""
    first: frozenset[str]
    """The constructors that it began with."""
    without: Set[str] = frozenset()
    """Rules that are left out, by name."""
    fired: dict[str, int] = field(default_factory=dict)
    """Matches of each rule so far."""
    history: list[Inserted | Iteration] = field(default_factory=list)
    """What was inserted and which phases ran, in order."""
    _forms: list[str] = field(default_factory=list)
    """All that it was told."""
    _learnt: list[str] = field(default_factory=list)
    """What the engine did not know before."""
    _loaded: dict[str, Rule] = field(default_factory=dict)
    """Rewrites that the engine knows, by label."""
    _roots: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    """By ruleset: the constructors of left sides of several roots."""
    _matched: dict[str, int] = field(default_factory=dict)
    _active: set[str] = field(default_factory=set)
    """Rulesets that have rules."""
    _copies: int = 0
    """Copies of ``egg`` begun before steps that may be undone."""
    _seen: Seen | None = None
    most: int = 5000
    """Matches of a rule beyond which it sits out a risky step."""

    @cached_property
    def _reader(self) -> Reader:
        return Reader(self.egg)

    def load(self, forms: Iterable[str]) -> None:
        """Tell the engine of ``forms``; it gives what they are about its types."""
        self._run(self._parse(forms))

    def close(self) -> None:
        """Give the engine back; the graph is gone then."""
        if self.warm is not None:
            self.warm.close(self._learnt, self.first, self._copies)
            self.warm = None

    def _parse(self, forms: Iterable[str]) -> list[Any]:
        commands: list[Any] = []
        for form in forms:
            self._forms.append(form)
            if self.warm is None:
                commands += parsed(self.egg, form)
            elif form not in self.warm.loaded:
                self._learnt.append(form)
                commands += parsed(self.egg, form)
        return commands

    def wake(self, phase: str, own: bool) -> bool:
        """Load the rules of a phase that can match by now; whether it has any.

        Most rules never can match a given program, and a rule costs 0.1 to 0.7 ms to
        load: of 250 stock rules a transformer block needs 30.
        """
        seen, name = self._look(), egg_schema.ruleset(phase, own)
        before = len(self._loaded)
        for entry in self.normal.fitting(phase, seen.names):
            r = entry[0]
            if r.label in self._loaded or r.name in self.without:
                continue
            if own != (r.name in self.normal.own):
                continue
            if not seen.admits(entry):
                continue
            self._load_rule(entry)
            self._loaded[r.label] = r
            self._active.add(name)
            if len(entry[1]) > 1:
                self._roots.setdefault(name, []).append(_root_names(entry[1]))
        if len(self._loaded) > before:
            self._run([_types()])
        return name in self._active

    def _load_rule(self, entry: Entry) -> None:
        """Tell the engine of a rule, by itself: it stops at the first that is wrong."""
        r = entry[0]
        try:
            self.load(self.words.of_rule(entry, self.normal))
        except Exception as error:  # what a rule holds may fail anywhere
            raise RuleFailure(r.name, str(error)) from error

    def _look(self) -> Seen:
        """What is in the graph: its ops, and where it is small, how they are joined."""
        if self._seen is None:
            sizes = dict(self._sizes())
            names = {
                n for n, size in sizes.items() if size
            } & self.words.constructors.keys()
            ops = frozenset(self.words.constructors[n][0].name for n in names)
            self._seen = Seen(names, ops)
            if sum(sizes.values()) <= SMALL:
                self._seen = seen_closely(
                    self.egg, self.words, self._reader, names, ops
                )
        return self._seen

    def _run(self, commands: Iterable[Any]) -> list[Any]:
        try:
            return list(self.egg.run_program(*commands))
        except BaseException as error:  # panics of the engine derive from BaseException
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise EngineError(_explain(str(error), self._suspects())) from error

    def _suspects(self) -> list[str]:
        """The rules of the phase that ran last."""
        last = self.history[-1] if self.history else None
        phase = getattr(last, "phase", "")
        known = {r.name for r in self._loaded.values() if r.phase == phase}
        return [r.name for r in self.rules if r.name in known]

    # -- inserting ---------------------------------------------------------------------

    def insert(self, what: Inserted) -> None:
        """Put terms into the graph; :meth:`EGraph.classes_of` finds them again."""
        self.history.append(what)
        self._seen = None
        b, span = bindings(), _span()
        commands: list[Any] = []
        for start in range(0, len(what.terms), CHUNK):
            name = f"_insert{len(self.history)}_{start}"
            head, body = chunk(b, span, what, start)
            commands += [
                b.AddRuleset(span, name),
                b.RuleCommand(b.Rule(span, head, body, name, name)),
                b.RunSchedule(b.Run(span, b.RunConfig(name, None))),
            ]
        self._run([*commands, _types()])

    # -- running -----------------------------------------------------------------------

    def step(self, step: Iteration) -> bool:
        """One iteration of a phase, then types. Whether anything changed."""
        self.history.append(step)
        changed = self._advance(step_command(bindings(), _span(), step), step.ruleset)
        if changed:
            self._advance(_types())
            self._seen = None
        return changed

    def attempt(self, step: Iteration, most: int) -> bool | None:
        """A step that is undone if it leaves more than so many e-nodes: None then."""
        matched, fired = dict(self._matched), dict(self.fired)
        self._run([bindings().Push(1)])
        self._copies += 1
        changed = self.step(step)
        if self.size() <= most:
            return changed
        self._run([bindings().Pop(_span(), 1)])
        self._copies -= 1
        self.history.pop()
        self._matched, self.fired, self._seen = matched, fired, None
        return None

    def is_risky(self, ruleset: str) -> bool:
        """Whether one iteration might match more than a graph of this size can hold:
        a rule matched often in the last one, other phases have made the graph large
        since, or a rule takes several nodes from anywhere."""
        if self._matched.get(ruleset, 0) > CALM or self.size() > SMALL:
            return True
        several = self._roots.get(ruleset, ())
        sizes = dict(self._sizes()) if several else {}
        tuples = (prod(sizes.get(name, 0) for name in names) for names in several)
        return max(tuples, default=0) > self.most

    def _advance(self, schedule: Any, ruleset: str = "") -> bool:
        (output,) = self._run([schedule])
        report = output.report
        matches = report.num_matches_per_rule
        for label, n in matches.items():
            if n and label in self._loaded:
                name = self._loaded[label].name
                self.fired[name] = self.fired.get(name, 0) + n
        most = max(matches.values(), default=0)
        self._matched[ruleset] = max(most, self._matched.get(ruleset, 0))
        return bool(report.updated)

    def _sizes(self) -> list[tuple[str, int]]:
        (out,) = self._run([bindings().PrintSize(_span(), None)])
        return [(name, n) for name, n in out.sizes if name in self.words.constructors]

    def size(self) -> int:
        """Number of e-nodes."""
        return sum(n for _, n in self._sizes())

    def classes(self) -> int:
        """Number of classes."""
        (out,) = self._run([bindings().PrintSize(_span(), "type")])
        return int(out.size)

    # -- reading -----------------------------------------------------------------------

    def read(self) -> EGraph:
        """The whole graph as plain lists, in an order that depends on nothing but what
        is in it: neither on hashing nor on what else the engine has loaded."""
        return snapshot_of(self.egg, self.words)

    def dump(self) -> Callable[[], str]:
        """What gives the program that made this graph, as egglog text for a bug report.
        It does not keep the graph, which takes some MB, alive."""
        return partial(program_text, self._forms, self.history)


def open_engine(
    rules: RuleSet,
    ops: Mapping[tuple[str, int], Op],
    signed: bool = False,
    keep: bool = False,
    without: Set[str] = frozenset(),
) -> Engine:
    """An engine for terms of ``ops``.

    ``signed``: keep which rule built each node, which costs about half as much again.
    ``keep``: work in an engine that serves the next graph too, once this one is closed.
    ``without``: rules to leave out, by name; normal forms are those of all ``rules``.

    Raises :class:`EngineError` when rules contradict each other (a class with two
    types).
    """
    words = Vocabulary(signed)
    forms = words.of_ops(ops)
    first = frozenset(words.constructors)
    keep = keep and not signed and not without
    warm = opened(rules, forms, first) if keep else None
    egg = bindings().EGraph() if warm is None else warm.egg
    engine = Engine(rules, normal_forms(rules), words, egg, warm, first, without)
    engine.load(forms)
    return engine


def _span() -> Any:
    return bindings().RustSpan("", 0, 0)


def _types() -> Any:
    """The command that gives new nodes their types."""
    b, span = bindings(), _span()
    return b.RunSchedule(b.Saturate(span, b.Run(span, b.RunConfig("_types", None))))


def _root_names(left: Sequence[Pattern]) -> tuple[str, ...]:
    """The constructors of a rule's left sides."""
    return tuple(
        egg_schema.constructor(p.op, len(p.args))
        for p in left
        if isinstance(p, PatternNode)
    )


def _explain(message: str, suspects: Sequence[str]) -> str:
    first = message.strip().splitlines()[-1] if message.strip() else "unknown failure"
    if "Illegal merge" in message or "merge" in message:
        return (
            "a rule made two values of different shape or dtype equal, so no program "
            f"can be trusted ({first})\n"
            f"  rules that ran: {', '.join(suspects) or 'none'}"
        )
    return f"the e-graph engine refused: {first}"


CALM = 256
"""Matches of a rule up to which the next iteration of its phase needs no bound."""
SMALL = 1000
"""E-nodes up to which a graph is looked at closely before rules are loaded, and an
iteration needs no bound."""
