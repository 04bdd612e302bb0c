"""Ops and types as egglog text.

Every op is a constructor named in CamelCase (``layer_norm`` → ``LayerNorm``;
``concatenate`` of three arrays → ``Concatenate3``); a bare number is ``(Scalar 0.5)``
or ``(ScalarInt 2)``, a leaf ``(Leaf 3)``. Tables: ``type`` (``[dtype code, sizes…]``),
``lower`` (a lower bound of every element), ``order`` of leaves, and the relations of
:mod:`eqsat.rulelang.condition`. Guards read ``rank``, ``dtype``, ``d1`` (the last
size), ``d2`` … and ``near`` (a number that rounds to a literal), all derived from
these, because each overloaded primitive (``-``, ``>=``, ``abs``) in a rule costs the
engine 0.15 ms of type inference: with them written out, 168 rules took 0.28 s to load.
With provenance, each constructor has a table ``by-…`` that names the rule which built a
node first."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from eqsat.ops import multiply
from eqsat.rulelang.condition import LEAF_FACTS
from eqsat.rulelang.rule import PHASES
from eqsat.terms import BF16, FLOAT_CODE, Op, Weak, dtype_code, rounding

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


def ruleset(phase: str, own: bool) -> str:
    """The engine's name for the rules of a phase: the stock ones, or a user's
    ``own``."""
    return f"_own_{phase}" if own else f"_{phase}"


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
{NEWLINE.join(f"(ruleset {ruleset(p, o)})" for p in PHASES for o in (False, True))}
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
# by a bound. Integers wrap around.
_SAME = "(= l (lower x))", "l"
_LOWER: dict[str, tuple[str, str, str]] = {
    # op: arguments, facts, bound
    "exp": ("x", "", "0.0"),
    "absolute": ("x", "(float e)", "0.0"),
    "sigmoid": ("x", "", "0.0"),
    "sqrt": ("x", "(= l (lower x)) (> l 0.0) (< l 1.0)", "l"),
    "rsqrt": ("x", "", "0.0"),
    "relu": ("x", "", "0.0"),
    "softmax": ("x a", "", "0.0"),
    "add": ("x y", "(float e) (= l (+ (lower x) (lower y)))", "l"),
    "multiply": ("x y", "(float e) (>= (lower x) 0.0) (>= (lower y) 0.0)", "0.0"),
    "divide": ("x y", "(>= (lower x) 0.0) (>= (lower y) 0.0)", "0.0"),
    "maximum": ("x y", "(= l (lower y))", "l"),
    "minimum": ("x y", "(= l (min (lower x) (lower y)))", "l"),
    "mean": ("x a", *_SAME),
    "max": ("x a", *_SAME),
    "min": ("x a", *_SAME),
    "sum": ("x a", "(float e) (>= (lower x) 0.0)", "0.0"),
    "reshape": ("x a", *_SAME),
    "transpose": ("x a", *_SAME),
    "broadcast_to": ("x a", *_SAME),
    "slice": ("x a b c", *_SAME),
    "pad": ("x y a b", "(= l (min (lower x) (lower y)))", "l"),
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


def constructors() -> dict[str, Op]:
    """The ops by constructor; variadic ones without the number of their arrays."""
    ops = [op for op in Op.registry.values() if op.kind != "leaf"]
    return {constructor(op, 0).removesuffix("0" * op.variadic): op for op in ops}


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
    if op is multiply:
        yield (
            f"(rule ((= e ({name} x x)) (float e)) ((set (lower e) 0.0)) "
            f':ruleset _types :name "lower-square")\n'
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
