"""The e-graph: terms and rules go into egglog, classes come back.

Terms go in as rules of about 64 actions (one big program is quadratic, because the
bindings copy the source text into every syntax node), and come back through
``freeze()``. egglog's own extractor is never used: it minimises tree cost, which
doubles at every residual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

from eqsat.egraph.engine_pool import Warm, parsed, take
from eqsat.egraph.insertion import Iteration, chunk, program_text, step_command
from eqsat.egraph.normal_form import Edge, Entry, Seen, inner_ops, normal_forms, ops_of
from eqsat.egraph.snapshot import CHUNK, Budget, EGraph, ENode, Inserted
from eqsat.egraph.table_rows import Reader, TableRow, in_order, numbered
from eqsat.rulelang import LEAF_FACTS, Pattern, PatternNode, Rule, RuleSet, egg_schema
from eqsat.support import EngineError, bindings
from eqsat.terms import INPUT, SCALAR, Op, Type, decode


@dataclass
class Engine:
    """One e-graph with the rules that can matter to the ops in it.

    Raises :class:`EngineError` when rules contradict each other (a class with two
    types).
    """

    rules: RuleSet
    ops: Mapping[tuple[str, int], Op]
    signed: bool = False
    """Keep which rule built each node: costs about half as much again."""
    keep: bool = False
    """Work in an engine that serves the next graph too, once this one is closed."""
    fired: dict[str, int] = field(default_factory=dict)
    """Matches of each rule so far."""
    history: list[Inserted | Iteration] = field(default_factory=list)
    """What was inserted and which phases ran, in order."""

    def __post_init__(self) -> None:
        b = bindings()
        self._b = b
        self._span = b.RustSpan("", 0, 0)
        types = b.Run(self._span, b.RunConfig("_types", None))
        self._types = b.RunSchedule(b.Saturate(self._span, types))
        self._forms: list[str] = []
        self._ctors: dict[str, tuple[Op, int]] = {
            "Leaf": (INPUT, 0),
            "Scalar": (SCALAR, 0),
            "ScalarInt": (SCALAR, 0),
        }
        self._typed: set[str] = set()
        self._learnt: list[str] = []
        self._seen: Seen | None = None
        self._normal = normal_forms(self.rules)
        self._loaded: dict[str, Rule] = {}
        """Rewrites that the engine knows, by label."""
        self._active: set[str] = set()
        self._matched: dict[str, int] = {}
        self._roots: dict[str, list[tuple[str, ...]]] = {}
        self._most = 5000
        self._named = 0
        forms = [*egg_schema.PRELUDE, *self._sizes_named(2)]
        for (_, arity), op in self.ops.items():
            forms += self._declared(op, arity)
        self._first = frozenset(self._ctors)
        self._warm = self._opened(forms) if self.keep and not self.signed else None
        self._egg = b.EGraph() if self._warm is None else self._warm.egg
        self._reader = Reader(self._egg)
        self._run(self._parse(forms))

    def _opened(self, forms: Sequence[str]) -> Warm | None:
        """The engine kept for these rules; None where what it has loaded clashes, as
        it does when an op is defined again."""
        warm = take(self.rules)
        try:
            warm.open(forms, self._first)
        except BaseException as error:  # panics of the engine derive from BaseException
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            return None
        return warm

    def close(self) -> None:
        """Give the engine back; the graph is gone then."""
        if self._warm is not None:
            self._warm.close(self._learnt, self._first)
            self._warm = None

    def _sizes_named(self, k: int) -> list[str]:
        """Tables of sizes up to the ``k``-th from the end, where they are new."""
        new = [
            f for i in range(self._named + 1, k + 1) for f in egg_schema.size_table(i)
        ]
        self._named = max(self._named, k)
        return new

    def _parse(self, forms: Iterable[str]) -> list[Any]:
        commands: list[Any] = []
        for form in forms:
            self._forms.append(form)
            if self._warm is None:
                commands += parsed(self._egg, form)
            elif form not in self._warm.loaded:
                self._learnt.append(form)
                commands += parsed(self._egg, form)
        return commands

    def _declared(self, op: Op, arity: int) -> list[str]:
        """Forms that declare a constructor; none when it is known."""
        name = egg_schema.constructor(op, arity)
        if name in self._ctors:
            return []
        self._ctors[name] = (op, arity)
        forms = [egg_schema.declaration(op, arity), *egg_schema.bounds(op, arity)]
        return [*forms, egg_schema.provenance(op, arity)] if self.signed else forms

    def _wake(self, phase: str) -> None:
        """Load the rules of a phase that can match by now.

        Most rules never can match a given program, and a rule costs 0.1 to 0.7 ms to
        load: of 250 stock rules a transformer block needs 30.
        """
        seen = self._look()
        forms: list[str] = []
        for entry in self._normal.fitting(phase, seen.names):
            r = entry[0]
            if r.label in self._loaded or not seen.admits(entry):
                continue
            forms += self._forms_of(entry)
            self._loaded[r.label] = r
            self._active.add(phase)
            if len(entry[1]) > 1:
                self._roots.setdefault(phase, []).append(_root_names(entry[1]))
        if forms:
            self._run([*self._parse(forms), self._types])

    def _forms_of(self, entry: Entry) -> list[str]:
        """What the engine must be told of a rule: constructors, types, the rule."""
        r, _, right = entry
        forms = [f for op, n in ops_of(right) for f in self._declared(op, n)]
        for op, n in inner_ops(right):
            # A root has the type of the class it joins; only what is inside needs one.
            name = egg_schema.constructor(op, n)
            if name not in self._typed:
                self._typed.add(name)
                forms += egg_schema.analyses(op, n)
        most = max((axes.rank for axes in r.signature.inputs), default=0)
        forms += self._sizes_named(most)
        return forms + self._normal.forms(entry, self.signed)

    def _look(self) -> Seen:
        """What is in the graph: its ops, and where it is small, how they are joined."""
        if self._seen is None:
            sizes = dict(self._sizes())
            names = {n for n, size in sizes.items() if size}
            ops = frozenset(self._ctors[n][0].name for n in names)
            self._seen = Seen(names, ops)
            if sum(sizes.values()) <= SMALL:
                self._seen = self._look_closely(names, ops)
        return self._seen

    def _look_closely(self, names: set[str], ops: frozenset[str]) -> Seen:
        functions = self._egg.freeze().functions
        rows = {name: functions[name].rows for name in names}
        holders: dict[Any, list[str]] = {}
        for name, found in rows.items():
            for row in found:
                holders.setdefault(row.output, []).append(name)
        edges: set[Edge] = set()
        attrs: set[tuple[str, Any]] = set()
        for name, found in rows.items():
            op, arity = self._ctors[name]
            sorts = functions[name].input_sorts[arity:]
            for row in found:
                inputs = row.inputs
                for i in range(arity):
                    edges.update((name, i, below) for below in holders[inputs[i]])
                if op.attrs:
                    held = zip(sorts, inputs[arity:], strict=True)
                    attrs.add((name, tuple(self._reader.base(k, v) for k, v in held)))
        types = (self._reader.base("Dims", r.output) for r in functions["type"].rows)
        return Seen(names, ops, edges, attrs, {t[1:] for t in types})

    def _run(self, commands: Iterable[Any]) -> list[Any]:
        try:
            return list(self._egg.run_program(*commands))
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
        b, span = self._b, self._span
        commands: list[Any] = []
        for start in range(0, len(what.terms), CHUNK):
            name = f"_insert{len(self.history)}_{start}"
            head, body = chunk(b, span, what, start)
            commands += [
                b.AddRuleset(span, name),
                b.RuleCommand(b.Rule(span, head, body, name, name)),
                b.RunSchedule(b.Run(span, b.RunConfig(name, None))),
            ]
        self._run([*commands, self._types])

    # -- running -----------------------------------------------------------------------

    def step(self, phase: str) -> bool:
        """One iteration of a phase, then types. Whether anything changed."""
        step = Iteration(phase, self._most if self._risky(phase) else None)
        self.history.append(step)
        changed = self._advance(step_command(self._b, self._span, step), phase)
        if changed:
            self._advance(self._types)
            self._seen = None
        return changed

    def _risky(self, phase: str) -> bool:
        """Whether one iteration might match more than a graph of this size can hold:
        a rule matched often in the last one, or takes several nodes from anywhere."""
        if self._matched.get(phase, 0) > CALM:
            return True
        several = self._roots.get(phase, ())
        sizes = dict(self._sizes()) if several else {}
        tuples = (prod(sizes.get(name, 0) for name in names) for names in several)
        return max(tuples, default=0) > self._most

    def _advance(self, schedule: Any, phase: str = "") -> bool:
        (output,) = self._run([schedule])
        report = output.report
        matches = report.num_matches_per_rule
        for label, n in matches.items():
            if n and label in self._loaded:
                name = self._loaded[label].name
                self.fired[name] = self.fired.get(name, 0) + n
        most = max(matches.values(), default=0)
        self._matched[phase] = max(most, self._matched.get(phase, 0))
        return bool(report.updated)

    def _sizes(self) -> list[tuple[str, int]]:
        (out,) = self._run([self._b.PrintSize(self._span, None)])
        return [(name, n) for name, n in out.sizes if name in self._ctors]

    def size(self) -> int:
        """Number of e-nodes."""
        return sum(n for _, n in self._sizes())

    def saturate(self, budget: Budget) -> None:
        """All phases but fusion, each bounded in iterations, the whole in time and
        size."""
        self._most = max(100, budget.max_nodes // 8)
        self._rounds(budget, 3, (("canonicalise", 3), ("recognise", 1)))
        self._rounds(
            budget,
            3,
            (("algebra", 1), ("user", 1), ("canonicalise", 2), ("recognise", 2)),
        )
        self._rounds(budget, 1, (("merge", 1),))

    def canonicalise(self, budget: Budget) -> None:
        """The phase of normal forms alone."""
        self._rounds(budget, 3, (("canonicalise", 3),))

    def _rounds(
        self, budget: Budget, rounds: int, phases: Sequence[tuple[str, int]]
    ) -> None:
        for _ in range(rounds):
            changed = False
            for phase, times in phases:
                for _ in range(times):
                    if budget.spent or not budget.left():
                        return
                    self._wake(phase)
                    if phase not in self._active or not self.step(phase):
                        break
                    changed = True
                    if self.size() > budget.max_nodes:
                        budget.spent = "nodes"
                        return
            if not changed:
                return

    # -- reading -----------------------------------------------------------------------

    def read(self) -> EGraph:
        """The whole graph as plain lists, in an order that depends on nothing but what
        is in it: neither on hashing nor on what else the engine has loaded."""
        functions = self._egg.freeze().functions
        reader = Reader(self._egg)
        rows: list[TableRow] = []
        for name, (_, arity) in self._ctors.items():
            sorts = functions[name].input_sorts[arity:]
            for row in functions[name].rows:
                if not row.subsumed:
                    inputs = row.inputs
                    values = zip(sorts, inputs[arity:], strict=True)
                    attrs = tuple(reader.base(sort, v) for sort, v in values)
                    rows.append(TableRow(name, attrs, inputs, arity, row.output))
        ids = reader.ids = numbered(rows)
        nodes_ = [self._node(row, ids) for row in in_order(rows, ids)]
        types: list[Type | None] = [None] * len(ids)
        for row in functions["type"].rows:
            cls = ids.get(row.inputs[0])
            if cls is not None:
                types[cls] = decode(reader.base("Dims", row.output))
        constant = [False] * len(ids)
        for row in functions["constant"].rows:
            constant[ids[row.inputs[0]]] = True
        tables = self._tables(functions, reader) if self.signed else {}
        graph = EGraph(types, [[] for _ in types], nodes_, constant, tables=tables)
        graph.complete()
        return graph

    def _node(self, row: TableRow, ids: Mapping[Any, int]) -> ENode:
        rule = self._rule_of(row.name, row.inputs) if self.signed else ""
        children = tuple([ids[v] for v in row.inputs[: row.arity]])
        return ENode(ids[row.cls], self._ctors[row.name][0], row.attrs, children, rule)

    def _tables(self, functions: Any, reader: Reader) -> dict[str, dict[int, Any]]:
        """What conditions of rules ask of a class, for questions asked later."""
        read: dict[str, Callable[[Any], Any]] = {
            "lower": partial(reader.base, "f64"),
            "order": partial(reader.base, "i64"),
            **{name: lambda _: True for name in ("constant", *LEAF_FACTS)},
        }
        ids = reader.ids
        return {
            name: {
                ids[row.inputs[0]]: value(row.output)
                for row in functions[name].rows
                if row.inputs[0] in ids
            }
            for name, value in read.items()
        }

    def _rule_of(self, name: str, inputs: Sequence[Any]) -> str:
        """The rule that built a node first; empty when it was inserted."""
        if self._ctors[name][0].kind == "leaf":
            return ""
        value = self._egg.lookup_function(f"by-{name}", list(inputs))
        return "" if value is None else str(self._egg.value_to_string(value))

    def dump(self) -> Callable[[], str]:
        """What gives the program that made this graph, as egglog text for a bug report.
        It does not keep the graph, which takes some MB, alive."""
        return partial(program_text, self._forms, self.history)


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
            "two values of different shape or dtype were made equal by a rule, so that "
            f"no program can be trusted ({first})\n"
            f"  rules that ran: {', '.join(suspects) or 'none'}"
        )
    return f"the e-graph engine refused: {first}"


CALM = 256
"""Matches of a rule up to which the next iteration of its phase needs no bound."""
SMALL = 1000
"""E-nodes up to which a graph is looked at closely before rules are loaded."""
