"""Ops, types and rules as egglog text.

Every op is a constructor named in CamelCase (``layer_norm`` → ``LayerNorm``;
``concatenate`` of three arrays → ``Concatenate3``); a bare number is ``(Scalar 0.5)``
or ``(ScalarInt 2)``, a leaf ``(Leaf 3)``. Tables: ``type`` (``[dtype code, sizes…]``),
``lower`` (a lower bound of every element), ``order`` of leaves, and the relations of
:mod:`eqsat.condition`. Guards read ``rank``, ``dtype``, ``d1`` (the last size), ``d2``
… and ``near`` (a number that rounds to a literal), all derived from these, because each
overloaded primitive (``-``, ``>=``, ``abs``) in a rule costs the engine 0.15 ms of type
inference: with them written out, 168 rules took 0.28 s to load. With provenance, each
constructor has a table ``by-…`` that names the rule which built a node first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.condition import LEAF_FACTS
from eqsat.errors import RuleError
from eqsat.op import Op
from eqsat.pattern import Expr, Node, Num, Pattern, Var, exprs
from eqsat.rule import PHASES, Rule
from eqsat.signature import Axes
from eqsat.term import Weak
from eqsat.typerule import BF16, FLOAT_CODE, dtype_code, rounding

SORTS = {
    "Axis": "Dims",
    "Ints": "Dims",
    "int": "i64",
    "bool": "i64",
    "DTypeName": "i64",
    "str": "String",
    "float": "f64",
}

NEWLINE = chr(10)
_TOLERANCES = [
    f"(set (tolerance {dtype_code(d)}) {rounding(d)})"
    for d in (Weak.FLOAT, np.dtype("f2"), BF16, np.dtype("f4"), np.dtype("f8"))
]
_TOLERANCES = [
    f"(set (tolerance {dtype_code(d)}) {rounding(d)})"
    for d in (Weak.FLOAT, np.dtype("f2"), BF16, np.dtype("f4"), np.dtype("f8"))
]
_PRELUDE = f"""
(sort Dims (Vec i64))
(sort T)
(constructor Leaf (i64) T)
(constructor Scalar (f64) T)
(constructor ScalarInt (i64) T)
(function node (i64) T :no-merge)
(function type (T) Dims :no-merge)
(function order (T) i64 :no-merge)
(function lower (T) f64 :merge (max old new))
(function bcast (Dims Dims) Dims :no-merge)
(function rank (T) i64 :no-merge)
(function dtype (T) i64 :no-merge)
(relation float (T))
(relation literal (f64))
(relation near (f64 f64 i64))
(function tolerance (i64) f64 :no-merge)
(relation need (Dims Dims))
(relation constant (T))
{NEWLINE.join(f"(relation {name} (T))" for name in LEAF_FACTS)}
(ruleset _types)
{NEWLINE.join(f"(ruleset _{phase})" for phase in PHASES)}
{NEWLINE.join(_TOLERANCES)}
(rule ((= e (Scalar c))) ((set (type e) (vec-of -1)) (set (lower e) c))
 :ruleset _types :name "type-scalar")
(rule ((= e (ScalarInt c))) ((set (type e) (vec-of -2)))
 :ruleset _types :name "type-int")
(rule ((= t (type e)))
 ((set (rank e) (- (vec-length t) 1)) (set (dtype e) (vec-get t 0)))
 :ruleset _types :name "type-rank")
(rule ((= d (dtype e)) (>= d {FLOAT_CODE})) ((float e))
 :ruleset _types :name "type-float")
(rule ((= e (Scalar c)) (literal l) (= tol (tolerance d))
  (<= (abs (- c l)) (* tol (abs l))))
 ((near c l d)) :ruleset _types :name "near-literal")
(rule ((need s t) (= s t)) ((set (bcast s t) s)) :ruleset _types :name "bcast-same")
(rule ((need s t) (!= s t) (> (vec-length s) 1) (> (vec-length t) 1))
 ((need (vec-pop s) (vec-pop t))) :ruleset _types :name "bcast-need")
(rule ((need s t) (!= s t) (> (vec-length s) 1) (> (vec-length t) 1)
  (= u (bcast (vec-pop s) (vec-pop t)))
  (= m (vec-get s (- (vec-length s) 1))) (= m (vec-get t (- (vec-length t) 1))))
 ((set (bcast s t) (vec-push u m))) :ruleset _types :name "bcast-equal")
(rule ((need s t) (!= s t) (> (vec-length s) 1) (> (vec-length t) 1)
  (= u (bcast (vec-pop s) (vec-pop t)))
  (= m (vec-get s (- (vec-length s) 1))) (= n (vec-get t (- (vec-length t) 1)))
  (!= m n) (= 0 (* (- m 1) (- n 1))))
 ((set (bcast s t) (vec-push u (* m n)))) :ruleset _types :name "bcast-one")
(rule ((need s t) (!= s t) (= 1 (vec-length t)) (> (vec-length s) 1)
  (= d (max (vec-get s 0) (vec-get t 0))))
 ((set (bcast s t) (vec-set s 0 d))) :ruleset _types :name "bcast-left")
(rule ((need s t) (!= s t) (= 1 (vec-length s)) (> (vec-length t) 1)
  (= d (max (vec-get s 0) (vec-get t 0))))
 ((set (bcast s t) (vec-set t 0 d))) :ruleset _types :name "bcast-right")
(rule ((need s t) (!= s t) (= 1 (vec-length s)) (= 1 (vec-length t))
  (= d (max (vec-get s 0) (vec-get t 0))))
 ((set (bcast s t) (vec-of d))) :ruleset _types :name "bcast-scalars")
"""
PRELUDE = tuple(f"{form}\n" for form in re.split(r"\n(?=\()", _PRELUDE.strip()))
"""Sorts, tables and the rules of broadcasting, a form each."""

# Lower bounds that need no more than the bounds of the arguments. NaN is not excluded
# by a bound.
_SAME = "(= l (lower x))", "l"
_LOWER: dict[str, tuple[str, str, str]] = {
    # op: arguments, facts, bound
    "exp": ("x", "", "0.0"),
    "absolute": ("x", "", "0.0"),
    "sigmoid": ("x", "", "0.0"),
    "sqrt": ("x", "(= l (lower x)) (> l 0.0) (< l 1.0)", "l"),
    "rsqrt": ("x", "", "0.0"),
    "relu": ("x", "", "0.0"),
    "softmax": ("x a", "", "0.0"),
    "add": ("x y", "(= l (+ (lower x) (lower y)))", "l"),
    "multiply": ("x y", "(>= (lower x) 0.0) (>= (lower y) 0.0)", "0.0"),
    "divide": ("x y", "(>= (lower x) 0.0) (>= (lower y) 0.0)", "0.0"),
    "maximum": ("x y", "(= l (lower y))", "l"),
    "minimum": ("x y", "(= l (min (lower x) (lower y)))", "l"),
    "mean": ("x a", *_SAME),
    "max": ("x a", *_SAME),
    "min": ("x a", *_SAME),
    "sum": ("x a", "(>= (lower x) 0.0)", "0.0"),
    "reshape": ("x a", *_SAME),
    "transpose": ("x a", *_SAME),
    "broadcast_to": ("x a", *_SAME),
}


def size_table(k: int) -> list[str]:
    """The table of the ``k``-th size from the end, and the rule that fills it."""
    return [
        f"(function d{k} (T) i64 :no-merge)\n",
        f"(rule ((= t (type e)) (> (vec-length t) {k})) "
        f"((set (d{k} e) (vec-get t (- (vec-length t) {k})))) "
        f':ruleset _types :name "type-d{k}")\n',
    ]


def constructor(op: Op, arity: int) -> str:
    """The name of the constructor of ``op``."""
    name = "".join(part.capitalize() for part in op.name.split("_"))
    return f"{name}{arity}" if op.variadic else name


def declaration(op: Op, arity: int) -> str:
    """The constructor of ``op``."""
    name = constructor(op, arity)
    sorts = " ".join(["T"] * arity + [SORTS[k] for k in op.attrs.values()])
    return f"(constructor {name} ({sorts}) T)\n"


def provenance(op: Op, arity: int) -> str:
    """The table that names the rule which built a node of ``op`` first."""
    name = constructor(op, arity)
    sorts = " ".join(["T"] * arity + [SORTS[k] for k in op.attrs.values()])
    return f"(function by-{name} ({sorts}) String :merge old)\n"


def analyses(op: Op, arity: int) -> Iterator[str]:
    """Rules that give new nodes of ``op`` their type and lower bound."""
    name = constructor(op, arity)
    args = [f"x{i}" for i in range(arity)]
    attrs = [f"q_{a}" for a in op.attrs]
    call = f"({name} {' '.join([*args, *attrs])})"
    for i, body in enumerate(op.type_rule.egg(call, args, attrs) or ()):
        yield f'(rule {body} :ruleset _types :name "type-{name}-{i}")\n'


def bounds(op: Op, arity: int) -> Iterator[str]:
    """Rules that give nodes of ``op`` a lower bound."""
    name = constructor(op, arity)
    if op.name == "multiply":
        yield (
            f"(rule ((= e ({name} x x))) ((set (lower e) 0.0)) :ruleset _types "
            f':name "lower-square")\n'
        )
    if op.name in _LOWER:
        args, facts, bound = _LOWER[op.name]
        yield (
            f"(rule ((= e ({name} {args})) {facts}) ((set (lower e) {bound})) "
            f':ruleset _types :name "lower-{name}")\n'
        )


def number(value: float) -> str:
    """A float as egglog reads it."""
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(float(value))


def text(value: str) -> str:
    """A string as egglog reads it."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def literal(kind: str, value: Any) -> str:
    """An attribute without variables."""
    sort = SORTS[kind]
    if sort == "Dims":
        return f"(vec-of {' '.join(map(str, value))})" if value else "(vec-empty)"
    if kind == "DTypeName":
        return str(dtype_code(np.dtype(value)))
    if sort == "String":
        return text(value)
    return number(value) if sort == "f64" else str(int(value))


def rule_forms(
    rule: Rule, left: Sequence[Pattern], right: Sequence[Pattern], signed: bool = False
) -> list[str]:
    """One rule as an egglog ``(rule …)`` whose name is the rule's, after its literals.

    ``signed``: every node that it builds is entered in its table of provenance.
    """
    writer = _Writer(rule, signed)
    for root in left:
        writer.match(root)
    writer.guard(left)
    known = [f"(literal {number(v)})\n" for v in dict.fromkeys(writer.literals)]
    return [
        *known,
        f"(rule ({' '.join(writer.facts)})\n  ({' '.join(writer.build(left, right))})\n"
        f"  :ruleset _{rule.phase} :name {text(rule.name)})\n",
    ]


@dataclass
class _Writer:
    rule: Rule
    signed: bool
    facts: list[str] = field(default_factory=list)
    names: dict[Pattern, str] = field(default_factory=dict)
    built: dict[Pattern, str] = field(default_factory=dict)
    actions: list[str] = field(default_factory=list)
    literals: list[float] = field(default_factory=list)
    tolerant: bool = False
    """Whether numbers are compared within the rounding of the dtype ``dt``."""

    def match(self, pattern: Pattern) -> str:
        """The variable of ``pattern``, with the facts that match it."""
        if pattern in self.names:
            return self.names[pattern]
        if isinstance(pattern, Var):
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
        if (
            isinstance(value, Expr)
            and not value.args
            and value.head in self.rule.numbers
        ):
            self.facts.append(f"(= {name} (Scalar c_{value.head}))")
        elif not isinstance(value, Expr) and _is_exact(float(value)):
            self.facts.append(f"(= {name} (Scalar {number(value)}))")
        elif isinstance(value, Expr):
            want = expression(value, "float")
            self.facts.append(f"(= {name} (Scalar k_{name})) (= tol (tolerance dt))")
            self.facts.append(f"(<= (abs (- k_{name} {want})) (* tol (abs {want})))")
            self.tolerant = True
        else:
            self.facts.append(
                f"(= {name} (Scalar k_{name})) (near k_{name} {number(value)} dt)"
            )
            self.literals.append(float(value))
            self.tolerant = True
        return name

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
            if not isinstance(pattern, Var):
                continue
            float_guard = (
                not checked and pattern.dtype == "float" and bool(pattern.axes.tokens)
            )
            checked |= float_guard
            self._guard_var(pattern, wanted, float_guard)
        for fact in self.rule.facts:
            subjects = [
                expression(s, s.kind) if isinstance(s, Expr) else self.match(s)
                for s in fact.subjects
            ]
            self.facts.append(fact.text.format(*subjects))

    def _guard_var(
        self, var: Var, wanted: Mapping[str, int], float_guard: bool
    ) -> None:
        v = f"v_{var.name}"
        if var.dtype == "bool":
            self.facts.append(f"(= 0 (dtype {v}))")
        if float_guard:
            self.facts.append(f"(float {v})")
            if self.tolerant:
                self.facts.append(f"(= dt (dtype {v}))")
        self.facts += _axis_facts(var.axes, v, wanted)

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
            assert isinstance(pattern, Node)
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


def _axis_facts(axes: Axes, v: str, wanted: Mapping[str, int]) -> Iterable[str]:
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
        elif wanted[axis] > 1:
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
        head = "/" if e.head == "//" else e.head
        inside = f"({head} {a} {b})"
    return f"(to-f64 {inside})" if kind == "float" and e.kind == "int" else inside


def _variable(e: Expr) -> str:
    return f"c_{e.head}" if e.kind in ("float", "ints") else f"a_{e.head}"


def _is_exact(value: float) -> bool:
    """Whether a literal is written exactly in every floating dtype, so that it is
    matched as is."""
    return math.isinf(value) or ((value * 256).is_integer() and abs(value) <= 2048)
