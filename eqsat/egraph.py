"""The e-graph: the only module that touches egglog.

``egglog.bindings`` is loaded alone: running ``egglog/__init__.py`` costs 0.3 to 0.7 s, the bindings
30 ms. Terms go in as rules of about 64 actions (one big program is quadratic, because the bindings
copy the source text into every syntax node), and come back through ``freeze()``. egglog's own
extractor is never used: it minimises tree cost, which doubles at every residual.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eqsat import encode
from eqsat.errors import EngineError
from eqsat.op import CONSTANT, INPUT, SCALAR, Op
from eqsat.pattern import Expr, Node, Pattern, Var, match, nodes, substitute
from eqsat.rule import PHASES, Rule, RuleSet
from eqsat.signature import Axes
from eqsat.term import Shape, Term, Type, Weak
from eqsat.typerule import decode, dtype_code, dtype_of_code
from eqsat.typerule import encode as encode_type

CHUNK = 64
Entry = tuple[Rule, Sequence[Pattern], Sequence[Pattern]]
"""A rule with the normal forms of its two sides."""


@lru_cache(maxsize=1)
def bindings() -> Any:
    """The module ``egglog.bindings``, loaded without running the package around it."""
    loaded = sys.modules.get("egglog.bindings")
    if loaded is not None:
        return loaded
    package = importlib.util.find_spec("egglog")
    places = list(package.submodule_search_locations or ()) if package else []
    for place in places:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            file = Path(place) / f"bindings{suffix}"
            if file.exists():
                spec = importlib.util.spec_from_file_location("egglog.bindings", file)
                assert spec is not None and spec.loader is not None
                module = importlib.util.module_from_spec(spec)
                sys.modules["egglog.bindings"] = module
                spec.loader.exec_module(module)
                return module
    raise EngineError("egglog is not installed; eqsat needs egglog >=13.2,<14")


class ENode(NamedTuple):
    """One e-node: ``op(*children, **attrs)`` in the class ``cls``."""

    cls: int
    op: Op
    attrs: tuple[Any, ...]
    children: tuple[int, ...]
    rule: str
    """The rule that built it first, where the engine kept it; empty for a node of the input."""


@dataclass
class EGraph:
    """A saturated e-graph, read back: plain lists, indexed by class."""

    types: list[Type | None]
    classes: list[list[int]]
    """Indices into ``nodes`` for each class."""
    nodes: list[ENode]
    constant: list[bool]
    """Whether the value of a class is known when the program is compiled."""

    def add(self, node: ENode) -> None:
        """Add a node to its class."""
        self.classes[node.cls].append(len(self.nodes))
        self.nodes.append(node)

    def number(self, value: float) -> int:
        """The class of a bare number, new where there is none."""
        for node in self.nodes:
            if node.op is SCALAR and node.attrs[0] == value:
                return node.cls
        self.types.append((Weak.FLOAT, ()))
        self.classes.append([])
        self.constant.append(True)
        self.add(ENode(len(self.types) - 1, SCALAR, (value,), (), ""))
        return len(self.types) - 1

    def classes_of(self, what: Inserted) -> list[int]:
        """The class of each inserted term, found again by congruence."""
        table = {(n.op, n.attrs, n.children): n.cls for n in self.nodes}
        found: dict[Term, int] = {}
        for t in what.terms:
            leaf = what.leaves.get(t)
            if leaf is not None:
                found[t] = table[INPUT, (leaf,), ()]
            else:
                op = t.op
                assert isinstance(op, Op)
                attrs = t.attrs if op is SCALAR else _engine_attrs(op, t.attrs)
                found[t] = table[op, attrs, tuple(found[a] for a in t.args)]
        return [found[t] for t in what.terms]

    def complete(self) -> None:
        """Fill ``classes``, and what follows from children: missing types and constants."""
        for i, node in enumerate(self.nodes):
            self.classes[node.cls].append(i)
            if node.op is SCALAR:
                self.constant[node.cls] = True
        changed = True
        while changed:
            changed = False
            for node in self.nodes:
                if node.op.kind == "leaf":
                    continue
                if not self.constant[node.cls] and all(
                    self.constant[c] for c in node.children
                ):
                    self.constant[node.cls] = changed = bool(node.children)
                if self.types[node.cls] is None:
                    self.types[node.cls] = self._infer(node)
                    changed |= self.types[node.cls] is not None

    def _infer(self, node: ENode) -> Type | None:
        types = [t for c in node.children if (t := self.types[c]) is not None]
        if len(types) < len(node.children):
            return None
        attrs = dict(zip(node.op.attrs, attr_values(node), strict=True))
        return node.op.type_rule.infer(node.op.name, types, attrs)


def _engine_attrs(op: Op, attrs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        dtype_code(np.dtype(v)) if kind == "DTypeName" else v
        for kind, v in zip(op.attrs.values(), attrs, strict=True)
    )


def attr_values(node: ENode) -> tuple[Any, ...]:
    """The attributes of an e-node as those of a term."""
    return tuple(
        str(dtype_of_code(v)) if kind == "DTypeName" else v
        for kind, v in zip(node.op.attrs.values(), node.attrs, strict=True)
    )


@dataclass
class Budget:
    """Time and size that may be spent; ``spent`` names what ran out."""

    deadline: float
    """Moment of :func:`time.perf_counter` after which no more work starts."""
    max_nodes: int
    spent: str = ""

    def left(self) -> bool:
        """Whether there is time left."""
        if not self.spent and time.perf_counter() > self.deadline:
            self.spent = "time"
        return not self.spent


@dataclass
class Inserted:
    """A term graph to insert: terms in order, and what stands for its leaves."""

    terms: Sequence[Term]
    leaves: Mapping[Term, int]
    """Terms that are opaque, with their number."""
    constants: frozenset[int]
    """Numbers of leaves that are known when the program is compiled."""
    facts: Mapping[int, tuple[str, ...]]
    """Relations that hold for constant leaves."""
    base: int
    """First key for the terms; a term's key is ``base`` plus its place."""

    def used_in_later_chunks(self) -> set[int]:
        """Places of terms that a later chunk refers to."""
        place = {t: i for i, t in enumerate(self.terms)}
        return {
            place[a]
            for i, t in enumerate(self.terms)
            if t not in self.leaves
            for a in t.args
            if place[a] // CHUNK != i // CHUNK
        }


@dataclass
class Engine:
    """One e-graph with the rules that can matter to the ops in it.

    Raises :class:`EngineError` when rules contradict each other (a class with two types).
    """

    rules: RuleSet
    ops: Mapping[tuple[str, int], Op]
    signed: bool = False
    """Keep which rule built each node: costs about half as much again."""
    fired: dict[str, int] = field(default_factory=dict)
    """Matches of each rule so far."""
    history: list[Inserted | str] = field(default_factory=list)
    """What was inserted and which phases ran, in order."""

    def __post_init__(self) -> None:
        b = bindings()
        self._b = b
        self._egg = b.EGraph()
        self._span = b.RustSpan("", 0, 0)
        types = b.Run(self._span, b.RunConfig("_types", None))
        self._types = b.RunSchedule(b.Saturate(self._span, types))
        self._forms: list[str] = []
        self._ctors: dict[str, tuple[Op, int]] = {
            "Leaf": (INPUT, 0), "Scalar": (SCALAR, 0), "ScalarInt": (SCALAR, 0)
        }
        self._typed: set[str] = set()
        self._attrs: set[tuple[str, Any]] = set()
        self._flows: set[tuple[str, str]] = set()
        self._free: set[str] = set()
        self._shapes: set[Shape] = set()
        self._normal = normal_forms(self.rules)
        self._waiting: dict[str, list[Rule]] = {phase: [] for phase in PHASES}
        for r in self.rules:
            self._waiting[r.phase].append(r)
        self._loaded: set[str] = set()
        self._active: set[str] = set()
        forms = list(encode.PRELUDE)
        for (_, arity), op in self.ops.items():
            forms += self._declared(op, arity)
        self._run(self._parse(forms))

    def _parse(self, forms: Iterable[str]) -> list[Any]:
        commands: list[Any] = []
        for form in forms:
            self._forms.append(form)
            known = _PARSED.get(form)
            if known is None:
                # Syntax trees belong to no e-graph, so they are parsed once a process.
                known = _PARSED[form] = tuple(self._egg.parse_program(form))
            commands += known
        return commands

    def _declared(self, op: Op, arity: int) -> list[str]:
        """Forms that declare a constructor; none when it is known."""
        name = encode.constructor(op, arity)
        if name in self._ctors:
            return []
        self._ctors[name] = (op, arity)
        forms = [encode.declaration(op, arity), *encode.bounds(op, arity)]
        return [*forms, encode.provenance(op, arity)] if self.signed else forms

    def _wake(self, phase: str) -> None:
        """Load the rules of a phase that can match by now.

        Most rules never can match a given program, and a rule costs 0.1 to 0.7 ms to load. A rule
        waits until all ops of its left side are in the graph, with the attributes that it names,
        and some array has the axes that it names.
        """
        present = {name for name, n in self._sizes() if n}
        names = {self._ctors[name][0].name for name in present}
        waiting = []
        forms: list[str] = []
        for r in self._waiting[phase]:
            if not self._normal.fits(r, names):
                waiting.append(r)
                continue
            _, left, right = entry = self._normal(r)
            if not self._can_match(entry, present):
                waiting.append(r)
                continue
            for op, n in ops_of(right):
                forms += self._declared(op, n)
            for op, n in _inner_ops(right):
                # A root has the type of the class that it joins; only what is inside needs one.
                name = encode.constructor(op, n)
                if name not in self._typed:
                    self._typed.add(name)
                    forms += encode.analyses(op, n)
            self._note_attrs(left, right)
            forms += encode.rule_forms(r, left, right, self.signed)
            self._loaded.add(r.name)
            self._active.add(phase)
        self._waiting[phase] = waiting
        if forms:
            self._run([*self._parse(forms), self._types])

    def _note_attrs(self, left: Sequence[Pattern], right: Sequence[Pattern]) -> None:
        """Keep track of the attributes that nodes built by a rule can have."""
        source = {
            p.attrs[0].head: p.op.name
            for root in left
            for p in nodes(root)
            if isinstance(p, Node) and len(p.attrs) == 1 and isinstance(p.attrs[0], Expr)
        }
        for root in right:
            self._attrs.update(_literal_attrs(root))
            for p in nodes(root):
                if not isinstance(p, Node) or not p.attrs or (p.op.name, p.attrs) in self._attrs:
                    continue
                first = p.attrs[0]
                passed = isinstance(first, Expr) and not first.args and len(p.attrs) == 1
                if passed and isinstance(first, Expr) and first.head in source:
                    self._flows.add((source[first.head], p.op.name))
                else:
                    self._free.add(p.op.name)
        grown = True
        while grown:
            more = {
                (to, attrs)
                for name, attrs in self._attrs
                for source_op, to in self._flows
                if name == source_op
            }
            grown = not more <= self._attrs
            self._attrs |= more

    def _can_match(self, entry: Entry, present: set[str]) -> bool:
        r, left, _ = entry
        need = _needs(r, left)
        return (
            need.ops <= present
            and all(a in self._attrs or a[0] in self._free for a in need.attrs)
            and all(any(_fits(axes, s) for s in self._shapes) for axes in need.axes)
        )

    def _run(self, commands: Iterable[Any]) -> list[Any]:
        try:
            return list(self._egg.run_program(*commands))
        except BaseException as error:  # panics of the engine derive from BaseException
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise EngineError(_explain(str(error), self.fired)) from error

    # -- inserting -------------------------------------------------------------------------------

    def insert(self, what: Inserted) -> None:
        """Put terms into the graph; :meth:`EGraph.classes_of` finds them again."""
        self.history.append(what)
        for t in what.terms:
            self._shapes.add(t.shape)
            if t.attrs and t not in what.leaves:
                self._attrs.add((t.op.name, t.attrs))
        b, span = self._b, self._span
        commands: list[Any] = []
        for start in range(0, len(what.terms), CHUNK):
            name = f"_insert{len(self.history)}_{start}"
            head, body = _chunk(b, span, what, start)
            commands += [
                b.AddRuleset(span, name),
                b.RuleCommand(b.Rule(span, head, body, name, name)),
                b.RunSchedule(b.Run(span, b.RunConfig(name, None))),
            ]
        self._run([*commands, self._types])

    # -- running ---------------------------------------------------------------------------------

    def step(self, phase: str) -> bool:
        """One iteration of a phase, then types. Whether anything changed."""
        self.history.append(phase)
        changed = self._advance(self._schedule(phase))
        if changed:
            self._advance(self._types)
        return changed

    def _schedule(self, phase: str) -> Any:
        b = self._b
        return b.RunSchedule(b.Run(self._span, b.RunConfig(f"_{phase}", None)))

    def _advance(self, schedule: Any) -> bool:
        (output,) = self._run([schedule])
        report = output.report
        for name, n in report.num_matches_per_rule.items():
            if n and name in self._loaded:
                self.fired[name] = self.fired.get(name, 0) + n
        return bool(report.updated)

    def _sizes(self) -> list[tuple[str, int]]:
        (out,) = self._run([self._b.PrintSize(self._span, None)])
        return [(name, n) for name, n in out.sizes if name in self._ctors]

    def size(self) -> int:
        """Number of e-nodes."""
        return sum(n for _, n in self._sizes())

    def saturate(self, budget: Budget) -> None:
        """All phases but fusion, each bounded in iterations, the whole in time and size."""
        self._rounds(budget, 3, (("canonicalise", 3), ("recognise", 1)))
        self._rounds(
            budget, 3, (("algebra", 1), ("user", 1), ("canonicalise", 2), ("recognise", 2))
        )
        self._rounds(budget, 1, (("merge", 1),))

    def _rounds(
        self, budget: Budget, rounds: int, phases: Sequence[tuple[str, int]]
    ) -> None:
        for _ in range(rounds):
            changed = False
            for phase, times in phases:
                for _ in range(times):
                    if not budget.left():
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

    # -- reading ---------------------------------------------------------------------------------

    def read(self) -> EGraph:
        """The whole graph as plain lists, in an order that does not depend on hashing."""
        egg = self._egg
        functions = egg.freeze().functions
        reader = _Reader(egg)
        nodes_: list[ENode] = []
        for name, (op, arity) in self._ctors.items():
            sorts = functions[name].input_sorts
            for row in functions[name].rows:
                if row.subsumed:
                    continue
                inputs = row.inputs
                children = tuple(reader.cls(v) for v in inputs[:arity])
                attrs = tuple(
                    reader.base(sort, v)
                    for sort, v in zip(sorts[arity:], inputs[arity:], strict=True)
                )
                rule = self._rule_of(name, inputs) if self.signed else ""
                nodes_.append(ENode(reader.cls(row.output), op, attrs, children, rule))
        types: list[Type | None] = [None] * len(reader.ids)
        for row in functions["type"].rows:
            cls = reader.ids.get(row.inputs[0])
            if cls is not None:
                types[cls] = decode(reader.base("Dims", row.output))
        constant = [False] * len(reader.ids)
        for row in functions["constant"].rows:
            constant[reader.cls(row.inputs[0])] = True
        graph = EGraph(types, [[] for _ in types], nodes_, constant)
        graph.complete()
        return graph

    def _rule_of(self, name: str, inputs: Sequence[Any]) -> str:
        """The rule that built a node first; empty when it was inserted."""
        if self._ctors[name][0].kind == "leaf":
            return ""
        value = self._egg.lookup_function(f"by-{name}", list(inputs))
        return "" if value is None else str(self._egg.value_to_string(value))

    def dump(self) -> str:
        """The program that made this graph, as egglog text for a bug report."""
        lines = list(self._forms)
        for event in self.history:
            if isinstance(event, str):
                lines.append(f"(run _{event} 1) (run-schedule (saturate (run _types)))")
            else:
                lines += _inserted_text(event)
                lines.append("(run-schedule (saturate (run _types)))")
        return "\n".join(lines) + "\n"


class _Reader:
    """Numbers classes in order of appearance and remembers decoded base values."""

    def __init__(self, egg: Any) -> None:
        self.ids: dict[Any, int] = {}
        self._memo: dict[Any, Any] = {}
        self._convert: dict[str, Callable[[Any], Any]] = {
            "i64": egg.value_to_i64,
            "f64": egg.value_to_f64,
            "String": egg.value_to_string,
            "Dims": lambda v: tuple(egg.value_to_i64(x) for x in egg.value_to_vec(v)),
        }

    def cls(self, value: Any) -> int:
        return self.ids.setdefault(value, len(self.ids))

    def base(self, sort: str, value: Any) -> Any:
        key = (sort, value)
        if key not in self._memo:
            self._memo[key] = self._convert[sort](value)
        return self._memo[key]


def _chunk(b: Any, span: Any, what: Inserted, start: int) -> tuple[list[Any], list[Any]]:
    """Actions that insert one chunk of terms, and the facts that look up earlier ones."""
    place = {t: i for i, t in enumerate(what.terms)}
    end = min(start + CHUNK, len(what.terms))
    again = what.used_in_later_chunks()
    head: list[Any] = []
    needed: dict[int, None] = {}

    def var(i: int) -> Any:
        if i < start:
            needed[i] = None
        return b.Var(span, f"x{i}")

    @lru_cache(maxsize=None)
    def integer(i: int) -> Any:
        return b.Lit(span, b.Int(i))

    @lru_cache(maxsize=None)
    def vector(values: Sequence[int]) -> Any:
        if not values:
            return b.Call(span, "vec-empty", [])
        return b.Call(span, "vec-of", [integer(v) for v in values])

    for i in range(start, end):
        t = what.terms[i]
        leaf = what.leaves.get(t)
        op = t.op
        assert isinstance(op, Op)
        if leaf is not None:
            made = b.Call(span, "Leaf", [integer(leaf)])
        elif op is SCALAR:
            number = t.attrs[0]
            if t.dtype is Weak.FLOAT:
                made = b.Call(span, "Scalar", [b.Lit(span, b.Float(number))])
            else:
                made = b.Call(span, "ScalarInt", [integer(number)])  # type: ignore[arg-type]
        else:
            args = [var(place[a]) for a in t.args]
            for kind, value in zip(op.attrs.values(), t.attrs, strict=True):
                args.append(_attr_tree(b, span, kind, value, vector))
            made = b.Call(span, encode.constructor(op, len(t.args)), args)
        x = b.Var(span, f"x{i}")
        head.append(b.Let(span, f"x{i}", made))
        head.append(b.Set(span, "type", [x], vector(encode_type(t.type))))
        if i in again:
            head.append(b.Set(span, "node", [integer(what.base + i)], x))
        if leaf is not None:
            head.append(b.Set(span, "order", [x], integer(leaf)))
            if leaf in what.constants:
                head.append(b.Expr_(span, b.Call(span, "constant", [x])))
            for fact in what.facts.get(leaf, ()):
                head.append(b.Expr_(span, b.Call(span, fact, [x])))
    body = [
        b.Eq(span, b.Var(span, f"x{i}"), b.Call(span, "node", [integer(what.base + i)]))
        for i in needed
    ]
    return head, body


def _attr_tree(
    b: Any, span: Any, kind: str, value: Any, vector: Callable[[Sequence[int]], Any]
) -> Any:
    sort = encode.SORTS[kind]
    if sort == "Dims":
        return vector(value)
    if sort == "String":
        return b.Lit(span, b.String(value))
    if sort == "f64":
        return b.Lit(span, b.Float(value))
    return b.Lit(span, b.Int(int(encode.literal(kind, value))))


def _inserted_text(what: Inserted) -> Iterable[str]:
    place = {t: what.base + i for i, t in enumerate(what.terms)}
    for t, i in place.items():
        leaf = what.leaves.get(t)
        op = t.op
        assert isinstance(op, Op)
        if leaf is not None:
            call = f"Leaf {leaf}"
        elif op is SCALAR:
            number = t.attrs[0]
            assert isinstance(number, (int, float))
            weak = t.dtype is Weak.FLOAT
            call = f"Scalar {encode.number(number)}" if weak else f"ScalarInt {number}"
        else:
            attrs = zip(op.attrs.values(), t.attrs, strict=True)
            words = [f"$x{place[a]}" for a in t.args] + [encode.literal(k, v) for k, v in attrs]
            call = f"{encode.constructor(op, len(t.args))} {' '.join(words)}"
        dims = " ".join(map(str, encode_type(t.type)))
        yield f"(let $x{i} ({call})) (set (type $x{i}) (vec-of {dims})) (set (node {i}) $x{i})"
        if leaf is not None:
            known = ["constant"] * (leaf in what.constants) + list(what.facts.get(leaf, ()))
            facts = " ".join(f"({fact} $x{i})" for fact in known)
            yield f"(set (order $x{i}) {leaf}) {facts}"


def _explain(message: str, fired: Mapping[str, int]) -> str:
    first = message.strip().splitlines()[-1] if message.strip() else "unknown failure"
    if "Illegal merge" in message or "merge" in message:
        names = ", ".join(sorted(fired)) or "none"
        return (
            f"two values of different shape or dtype were made equal by a rule, so that no program "
            f"can be trusted ({first})\n  rules that fired: {names}"
        )
    return f"the e-graph engine refused: {first}"


_PARSED: dict[str, tuple[Any, ...]] = {}


class _Need(NamedTuple):
    """What must be in a graph before a rule can match."""

    ops: frozenset[str]
    attrs: frozenset[tuple[str, Any]]
    axes: tuple[Axes, ...]
    """Axes of variables of fixed rank."""


_NEEDS: dict[tuple[Pattern, ...], _Need] = {}


def _needs(r: Rule, left: Sequence[Pattern]) -> _Need:
    key = tuple(left)
    known = _NEEDS.get(key)
    if known is None:
        parts = [p for root in left for p in nodes(root)]
        fixed = (p.axes for p in parts if isinstance(p, Var) and not p.axes.variadic)
        known = _NEEDS[key] = _Need(
            frozenset(encode.constructor(op, n) for op, n in ops_of(left)),
            frozenset(a for root in left for a in _literal_attrs(root)),
            tuple(dict.fromkeys(axes for axes in fixed if axes.rank > 1)),
        )
    return known


def _literal_attrs(pattern: Pattern) -> Iterable[tuple[str, Any]]:
    """Attributes in ``pattern`` that have no variables."""
    for p in nodes(pattern):
        if isinstance(p, Node) and p.attrs:
            flat = [v for a in p.attrs for v in (a if isinstance(a, tuple) else (a,))]
            if not any(isinstance(v, Expr) for v in flat):
                yield p.op.name, p.attrs


def _fits(axes: Axes, shape: Shape) -> bool:
    return len(shape) == axes.rank and all(
        a == size for a, size in zip(axes.tokens, shape, strict=True) if isinstance(a, int)
    )


def _inner_ops(side: Iterable[Pattern]) -> Iterable[tuple[Op, int]]:
    for root in side:
        if isinstance(root, Node):
            yield from ops_of(root.args)


def ops_of(side: Iterable[Pattern]) -> Iterable[tuple[Op, int]]:
    """The ops in some patterns, with their numbers of arguments."""
    for root in side:
        for p in nodes(root):
            if isinstance(p, Node):
                yield p.op, len(p.args)


# -- normal forms of patterns ----------------------------------------------------------------------

class NormalForms:
    """Both sides of rules in the form in which the e-graph will hold terms, worked out when asked.

    Canonicalising rules are applied to the patterns of the others as oriented rewrites, so that a
    rule may be written as its author likes: ``x / 2`` in a pattern meets ``0.5 * x`` in a program.
    """

    def __init__(self, rules: RuleSet) -> None:
        self._oriented: dict[Op, list[Rule]] = {}
        for r in rules:
            if r.phase == "canonicalise" and _is_oriented(r):
                root = r.left[0]
                assert isinstance(root, Node)
                self._oriented.setdefault(root.op, []).append(r)
        self._done: dict[Pattern, Pattern] = {}
        self._removed = frozenset(
            op.name
            for op, rs in self._oriented.items()
            if any(op.name not in r.ops(r.right) for r in rs)
        )
        self._lasting: dict[str, frozenset[str]] = {}

    def fits(self, r: Rule, present: Set[str]) -> bool:
        """Whether the ops of the left side that no normal form removes are all ``present``."""
        if not r.hint <= present:
            return False
        lasting = self._lasting.get(r.name)
        if lasting is None:
            removed = frozenset() if r.phase == "canonicalise" else self._removed
            lasting = self._lasting[r.name] = r.ops(r.left) - removed
        return lasting <= present

    def __call__(self, r: Rule) -> Entry:
        """The rule with the normal forms of its left and right sides."""
        if r.phase == "canonicalise":
            return r, r.left, r.right
        left = tuple(_normal(p, self._oriented, self._done) for p in r.left)
        right = tuple(_normal(p, self._oriented, self._done) for p in r.right)
        return r, left, right


_NORMAL: dict[int, tuple[RuleSet, NormalForms]] = {}


def normal_forms(rules: RuleSet) -> NormalForms:
    """The normal forms of a set of rules; kept for the next graph."""
    known = _NORMAL.get(id(rules))
    if known is None or known[0] is not rules:
        if len(_NORMAL) > 16:
            _NORMAL.clear()
        known = _NORMAL[id(rules)] = (rules, NormalForms(rules))
    return known[1]


def fusions(rules: RuleSet, present: Set[str]) -> list[tuple[Rule, Pattern, Pattern]]:
    """Rules of the phase ``fuse`` whose ops are ``present``, with normal forms of their sides."""
    normal = normal_forms(rules)
    found = []
    for r in rules:
        if r.is_fusion and normal.fits(r, present):
            _, left, right = normal(r)
            found.append((r, left[0], right[0]))
    return found


def _is_oriented(r: Rule) -> bool:
    plain = all(set(axes.tokens) <= {"..."} for axes in r.signature.inputs)
    return plain and len(r.left) == 1 and match(r.left[0], r.right[0]) is None


def _normal(
    pattern: Pattern, rules: Mapping[Op, Sequence[Rule]], done: dict[Pattern, Pattern]
) -> Pattern:
    start = pattern
    if start in done or not isinstance(start, Node):
        return done.get(start, start)
    seen = set()
    while pattern not in seen:
        seen.add(pattern)
        if not isinstance(pattern, Node):
            break
        args = tuple(_normal(a, rules, done) for a in pattern.args)
        pattern = Node(pattern.op, args, pattern.attrs)
        for r in rules.get(pattern.op, ()):
            bound = match(r.left[0], pattern)
            if bound is not None and _known_to_hold(r, bound):
                pattern = substitute(r.right[0], bound)
                break
    done[start] = pattern
    return pattern


def _known_to_hold(r: Rule, bound: Mapping[str, Any]) -> bool:
    """Whether the conditions of a rule hold for the numbers it is applied to.

    Conditions on arrays cannot be decided here; a number made of axis sizes counts as good.
    """
    if r.where is None:
        return True
    if not all(isinstance(s, Expr) for fact in r.facts for s in fact.subjects):
        return False
    values = [bound[p] for p in r.params]
    if any(isinstance(bound[p], Expr) for p in r.numbers):
        return True
    conditions = r.where(*values)
    listed = conditions if isinstance(conditions, (tuple, list)) else (conditions,)
    return all(bool(c) for c in listed)
