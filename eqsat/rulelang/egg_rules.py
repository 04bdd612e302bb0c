"""Rules as egglog text, in terms of the tables of :mod:`eqsat.rulelang.egg_schema`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.rulelang.condition import Fact
from eqsat.rulelang.egg_schema import constructor, literal, number, ruleset, text
from eqsat.rulelang.expression import Expr, Number, solve
from eqsat.rulelang.pattern import (
    Num,
    Pattern,
    PatternNode,
    PatternVar,
    exprs,
)
from eqsat.rulelang.rule import Rule
from eqsat.support import RuleError
from eqsat.terms import Axes, dtype_code


def rule_forms(
    rule: Rule,
    left: Sequence[Pattern],
    right: Sequence[Pattern],
    signed: bool = False,
    own: bool = False,
) -> list[str]:
    """One rule as an egglog ``(rule …)`` whose name is its label, after its literals.

    ``signed``: every node that it builds is entered in its table of provenance.
    ``own``: it runs with the user's own rules of its phase.
    """
    writer = _Writer(rule, signed)
    for root in left:
        writer.match(root)
    writer.solve_numbers()
    writer.guard(left)
    known = [f"(literal {number(v)})\n" for v in dict.fromkeys(writer.literals)]
    return [
        *known,
        f"(rule ({' '.join(writer.facts)})\n  ({' '.join(writer.build(left, right))})\n"
        f"  :ruleset {ruleset(rule.phase, own)} :name {text(rule.label)})\n",
    ]


def tells_numbers(rule: Rule, left: Sequence[Pattern]) -> bool:
    """Whether each number of ``rule`` is found from what matches ``left``."""
    writer = _Writer(rule, False)
    for root in left:
        writer.match(root)
    try:
        writer.solve_numbers()
    except RuleError:
        return False
    return True


@dataclass
class _Writer:
    rule: Rule
    signed: bool
    facts: list[str] = field(default_factory=list)
    names: dict[Pattern, str] = field(default_factory=dict)
    built: dict[Pattern, str] = field(default_factory=dict)
    actions: list[str] = field(default_factory=list)
    literals: list[float] = field(default_factory=list)
    bound: set[str] = field(default_factory=set)
    """Number parameters that a fact binds."""
    waiting: list[tuple[str, Expr]] = field(default_factory=list)
    """Numbers that must be what an expression is, whose parameters may follow."""
    axes: set[str] = field(default_factory=set)
    """Axes whose size a fact binds."""
    named: str = ""
    """The first array with named axes."""
    others: list[str] = field(default_factory=list)
    """The arrays before, of whatever axes."""
    tolerant: bool = False
    """Whether numbers are compared within the rounding of the dtype ``dt``."""

    def match(self, pattern: Pattern) -> str:
        """The variable of ``pattern``, with the facts that match it."""
        if pattern in self.names:
            return self.names[pattern]
        if isinstance(pattern, PatternVar):
            name = f"v_{pattern.name}"
        elif isinstance(pattern, Num):
            name = self._match_number(pattern)
        else:
            args = [self.match(a) for a in pattern.args]
            kinds = pattern.op.attrs.values()
            args += [
                self._match_attr(k, v)
                for k, v in zip(kinds, pattern.attrs, strict=True)
            ]
            name = f"n{len(self.names)}"
            call = constructor(pattern.op, len(pattern.args))
            self.facts.append(f"(= {name} ({call} {' '.join(args)}))")
        self.names[pattern] = name
        return name

    def _match_number(self, pattern: Num) -> str:
        name = f"n{len(self.names)}"
        value = pattern.value
        if isinstance(value, Expr):
            if self.rule.numbers.get(value.head) == "float" and not value.args:
                self.bound.add(value.head)
                self.facts.append(f"(= {name} (Scalar c_{value.head}))")
            else:
                self.facts.append(f"(= {name} (Scalar {_variable(_number(name))}))")
                self.waiting.append((name, value))
        elif _is_exact(float(value)):
            self.facts.append(f"(= {name} (Scalar {number(value)}))")
        else:
            self.facts.append(
                f"(= {name} (Scalar k_{name})) (near k_{name} {number(value)} dt)"
            )
            self.literals.append(float(value))
            self.tolerant = True
        return name

    def solve_numbers(self) -> None:
        """Bind the parameters that a number holds in an expression, ``a`` of ``-a``,
        and ask that the expression be the number, up to rounding."""
        floats = {p for p, kind in self.rule.numbers.items() if kind == "float"}
        while self.waiting:
            missing = [(e.names & floats) - self.bound for _, e in self.waiting]
            i = min(range(len(missing)), key=lambda i: len(missing[i]))
            name, e = self.waiting.pop(i)
            k = _number(name)
            for param in missing[i]:
                found = solve(e, param, k) if len(missing[i]) == 1 else None
                if found is None:
                    raise RuleError(
                        f"{self.rule.place}: rule {self.rule.name!r}: the left side "
                        f"comes to hold the one number {e}, which does not tell "
                        f"{' and '.join(sorted(missing[i]))}"
                    )
                self.bound.add(param)
                self.facts.append(f"(= c_{param} {expression(found, 'float')})")
            want = expression(e, "float")
            self.facts.append(
                f"(= tol (tolerance dt)) (<= (abs (- {_variable(k)} "
                f"{want})) (* tol (abs {want})))"
            )
            self.tolerant = True

    def _match_attr(self, kind: str, value: Any) -> str:
        if isinstance(value, Expr):
            return expression(value, value.kind)
        if isinstance(value, tuple) and any(isinstance(v, Expr) for v in value):
            name = f"s{len(self.facts)}"
            self.facts.append(f"(= {len(value)} (vec-length {name}))")
            for i, v in enumerate(value):
                want = expression(v, "int") if isinstance(v, Expr) else str(v)
                self.facts.append(f"(= {want} (vec-get {name} {i}))")
            return name
        return literal(kind, value)

    def guard(self, left: Sequence[Pattern]) -> None:
        """Facts of axes, dtypes, constants' tolerance and domains."""
        wanted = _axes_used(self.rule)
        checked = False
        for pattern in list(self.names):
            if not isinstance(pattern, PatternVar):
                continue
            float_guard = (
                not checked
                and pattern.dtype not in ("any", "bool")
                and bool(pattern.axes.tokens)
            )
            checked |= float_guard
            self._guard_var(pattern, wanted, float_guard)
        for fact in self.rule.facts:
            if fact.text:
                self.facts.append(fact.text.format(*self._subjects(fact)))

    def _subjects(self, fact: Fact) -> Iterator[str]:
        kinds = {getattr(s, "kind", type(s).__name__) for s in fact.subjects}
        for s in fact.subjects:
            if isinstance(s, (Expr, int, float)):
                yield expression(s, "float" if "float" in kinds else "int")
            else:
                yield self.match(s)

    def _guard_var(
        self, var: PatternVar, wanted: Mapping[str, int], float_guard: bool
    ) -> None:
        v = f"v_{var.name}"
        if var.dtype == "bool":
            self.facts.append(f"(= 0 (dtype {v}))")
        elif var.dtype not in ("any", "float") and var.axes.tokens:
            self.facts.append(f"(= {dtype_code(np.dtype(var.dtype))} (dtype {v}))")
        if float_guard:
            if var.dtype == "float":
                self.facts.append(f"(float {v})")
            if self.tolerant:
                self.facts.append(f"(= dt (dtype {v}))")
        if var.dtype in ("any", "float"):
            self.facts += self._one_dtype(var, v)
        if f"{var.name}.dtype" in wanted:
            self.facts.append(f"(= t_{var.name} (dtype {v})) (>= t_{var.name} 0)")
        self.facts += _axis_facts(var.axes, v, wanted, self.axes)

    def _one_dtype(self, var: PatternVar, v: str) -> Iterator[str]:
        """Facts that ``var`` has the dtype of the arrays before it. An array of any
        rank may be a bare number, whose code is below 0.

        The codes are compared as numbers. As one value of two functions, ``(= (dtype a)
        (dtype b))``, they would be something to join arrays by, of which all have the
        same: an iteration over DenseNet-121 took 23 s, now 0.1 s."""
        named = var.axes.rank > 0
        if named and self.named:
            yield f"(= 0 (- (dtype {v}) (dtype {self.named})))"
        elif self.rule.one_dtype:
            for other in self.others:
                yield (
                    f"(= 0 (* (- (dtype {v}) (dtype {other})) "
                    f"(max 0 (+ 1 (min (dtype {v}) (dtype {other}))))))"
                )
        self.named = self.named or (v if named else "")
        self.others.append(v)

    def build(self, left: Sequence[Pattern], right: Sequence[Pattern]) -> list[str]:
        """Actions that build the right sides and join them with the left ones."""
        self.built.update(self.names)
        roots = [self._make(r) for r in right]
        for a, b in zip(left, roots, strict=True):
            self.actions.append(f"(union {self.names[a]} {b})")
        return self.actions

    def _make(self, pattern: Pattern) -> str:
        if pattern in self.built:
            return self.built[pattern]
        if isinstance(pattern, Num):
            value = pattern.value
            inside = (
                expression(value, "float") if isinstance(value, Expr) else number(value)
            )
            name = f"(Scalar {inside})"
        else:
            assert isinstance(pattern, PatternNode)
            args = [self._make(a) for a in pattern.args]
            for kind, value in zip(
                pattern.op.attrs.values(), pattern.attrs, strict=True
            ):
                args.append(_attr(kind, value))
            call = constructor(pattern.op, len(pattern.args))
            inside = f"{call} {' '.join(args)}"
            name = f"r{len(self.built)}"
            self.actions.append(f"(let {name} ({inside}))")
            if self.signed:
                self.actions.append(f"(set (by-{inside}) {text(self.rule.name)})")
        self.built[pattern] = name
        return name


def _attr(kind: str, value: Any) -> str:
    if isinstance(value, Expr):
        return expression(value, value.kind)
    if isinstance(value, tuple) and any(isinstance(v, Expr) for v in value):
        parts = [expression(v, "int") if isinstance(v, Expr) else str(v) for v in value]
        return f"(vec-of {' '.join(parts)})"
    return literal(kind, value)


def _axes_used(rule: Rule) -> dict[str, int]:
    """How many times each axis name counts: in several arguments, or as a number."""
    used: dict[str, int] = {}
    for axes in rule.signature.inputs:
        for a in axes.tokens:
            if isinstance(a, str):
                used[a] = used.get(a, 0) + 1
    for side in (*rule.left, *rule.right):
        for e in exprs(side):
            for n in e.names:
                used[n] = used.get(n, 0) + 1
    for fact in rule.facts:
        for s in fact.subjects:
            if isinstance(s, Expr):
                for n in s.names:
                    used[n] = used.get(n, 0) + 1
    return used


def _axis_facts(
    axes: Axes, v: str, wanted: Mapping[str, int], bound: set[str]
) -> Iterable[str]:
    if not axes.variadic:
        yield f"(= {axes.rank} (rank {v}))"
    elif axes.rank:
        yield f"(d{axes.rank} {v})"
    if axes.before and axes.variadic:
        raise RuleError(f"axes {axes}: a rule names axes after '...', not before it")
    tail = axes.after if axes.variadic else axes.tokens
    places = [(a, len(tail) - i) for i, a in enumerate(tail)]
    for axis, k in places:
        if isinstance(axis, int):
            yield f"(= {axis} (d{k} {v}))"
        elif axis in bound:
            # Were the sizes one variable, the engine would first pair up all arrays of
            # equal sizes: 100 times as slow for the rules of convolutions.
            yield f"(= a_{axis}_{v} (d{k} {v})) (= 0 (- a_{axis} a_{axis}_{v}))"
        elif wanted[axis] > 1:
            bound.add(axis)
            yield f"(= a_{axis} (d{k} {v}))"


def expression(e: Expr | int | float, kind: str) -> str:
    """An expression over sizes (``a_n``) and number parameters (``c_s``)."""
    if not isinstance(e, Expr):
        return number(e) if kind == "float" else str(e)
    if not e.args:
        inside = _variable(e)
    elif e.head == "entry":
        values, i = e.args
        assert isinstance(values, Expr)
        inside = f"(vec-get {_variable(values)} {i})"
    else:
        a, b = (expression(x, e.kind) for x in e.args)
        inside = f"({'/' if e.head == '//' else e.head} {a} {b})"
        if e.head in ("//", "%") and any(map(_may_be_negative, e.args)):
            rest = f"(% (+ (% {a} {b}) {b}) {b})"  # the engine rounds towards 0
            inside = rest if e.head == "%" else f"(/ (- {a} {rest}) {b})"
    return f"(to-f64 {inside})" if kind == "float" and e.kind == "int" else inside


def _number(name: str) -> Expr:
    """The number that the node ``name`` is, apart from every parameter."""
    return Expr(f"{name}?", (), "float")


def _may_be_negative(e: Expr | Number) -> bool:
    """Whether an integer of a rule may be below 0: sizes are not."""
    if not isinstance(e, Expr):
        return e < 0
    return e.head in ("-", "entry") or any(map(_may_be_negative, e.args))


def _variable(e: Expr) -> str:
    if e.kind == "dtype":
        return f"t_{e.head.removesuffix('.dtype')}"
    return f"c_{e.head}" if e.kind in ("float", "ints") else f"a_{e.head}"


def _is_exact(value: float) -> bool:
    """Whether a literal is written exactly in every floating dtype, so that it is
    matched as is."""
    return math.isinf(value) or ((value * 256).is_integer() and abs(value) <= 2048)
