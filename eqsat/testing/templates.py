"""Sides of stock rules as parts of programs, so that the rules have something to do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.checking import (
    NUMBERS,
    PRECISION,
    Case,
    Shape,
    draw_attributes,
    draw_shapes,
    fitting_sizes,
    inside_domain,
    one_of,
)
from eqsat.ops import iota_op
from eqsat.rulelang import (
    Num,
    Pattern,
    PatternNode,
    PatternVar,
    Rule,
    default_rules,
    evaluate_attribute,
)
from eqsat.terms import Axes
from eqsat.testing.builder import Builder
from eqsat.testing.composing import call, existing_or_leaf

OPERATORS = {
    "add": "{0} + {1}",
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "divide": "{0} / {1}",
    "negative": "-{0}",
    "matmul": "{0} @ {1}",
}
REDUCTIONS = ("sum", "prod", "mean", "max", "min")
LIFTED = {
    "at least": "(np.abs({x}) + 0.5)",
    "regular": "({x} / (np.abs({x}) + 1.0) * {small} + np.eye({n}, dtype={x}.dtype))",
    "positive definite": (
        "(({x} + {x}.mT) / (np.abs({x} + {x}.mT) + 1.0) * {small}"
        " + np.eye({n}, dtype={x}.dtype))"
    ),
}
"""Conditions by how their names begin, and values inside them of any finite ``x``. The
diagonal of a matrix (... n n) is larger than the rest of its row, which is ``small``.
"""
OF_MATRICES = ("regular", "positive definite")
F4 = np.dtype("f4")


def template(b: Builder) -> None:
    """The left side of a stock rule, now and then the right one, over values that are
    there and new leaves."""
    rule = one_of(b.pick, tuple(default_rules()))
    made = _Template.of(b, rule)
    if made is None:
        return
    side = rule.right if b.pick(5) == 4 else rule.left
    if b.allowed is None or rule.ops(side) <= {*b.allowed, "scalar"}:
        roots = [made.code(p) for p in side]
        b.wanted += [r for r in roots if r and r in b.names(_any)]


@dataclass
class _Template:
    """A rule with an operand for each variable and a value for each number."""

    builder: Builder
    rule: Rule
    operands: Mapping[str, str]
    names: Mapping[str, Any]
    made: dict[Pattern, str | None]

    @classmethod
    def of(cls, b: Builder, rule: Rule) -> _Template | None:
        numbers: dict[str, Any] = {}
        for p, kind in rule.numbers.items():
            if kind in ("float", "int"):
                numbers[p] = one_of(b.pick, NUMBERS if kind == "float" else (1, 2, 3))
        rng = np.random.default_rng(b.pick(64))
        fixed = fitting_sizes(rule, numbers, rng)
        if rule.dtype not in (None, b.dtype):
            return None
        param, x, batch = _bound(b, rule, fixed)
        if batch is None:
            batch = [int(n) for n in rng.permutation((2, 3, 5))[: b.pick(4)]]
        shapes = draw_shapes(rule, rng, fixed, batch)
        dtype = b.dtype if b.dtype in PRECISION or rule.dtypes == "any" else F4
        if x is not None:
            shapes[param], dtype = b.shape(x), b.dtype_of(x)
        numbers |= draw_attributes(rule, rng, shapes, numbers)
        case = inside_domain(_drawn(b, rule, dtype, shapes, numbers))
        if case is None:
            return None
        operands = {p: _operand(b, case, p) for p in rule.tensors if p != param}
        if x is not None:
            operands[param] = _lifted(b, rule, param, x)
        sizes = _sizes(rule, shapes)
        return cls(b, rule, operands, {**sizes, **case.numbers}, {})

    def code(self, p: Pattern) -> str | None:
        """The name of the value of ``p``, or the code of an operand; None when one of
        its steps is refused."""
        if p not in self.made:
            self.made[p] = self._code(p)
        return self.made[p]

    def _code(self, p: Pattern) -> str | None:
        if isinstance(p, PatternVar):
            return self.operands[p.name]
        if isinstance(p, Num):
            return _number(evaluate_attribute(p.value, dict(self.names)))
        args = [self.code(a) for a in p.args]
        known = [a for a in args if a is not None]
        if len(known) < len(args):
            return None
        code = _call(p, known, dict(self.names), self.builder.names(_any)[0])
        return self.builder.take(code, self.rule.name, inner=True)


def _bound(
    b: Builder, rule: Rule, fixed: dict[str, int]
) -> tuple[str, str | None, Sequence[int] | None]:
    """A parameter and a value for it; its axes go into ``fixed``. Its batch too."""
    given = _of_constants(rule) | (_asked(rule, OF_MATRICES) if b.wild else set())
    names = [p for p in rule.tensors if p not in rule.masks and p not in given]
    axes = dict(zip(rule.tensors, rule.signature.inputs, strict=True))
    open_ = [p for p in names if axes[p].tokens and not fixed.keys() & axes[p].tokens]
    if not open_ or not b.pick(4):
        return "", None, None
    param = one_of(b.pick, open_)
    x = b.some(
        lambda n: (
            b.floating(n)
            and rule.dtype in (None, b.dtype_of(n))
            and _fits(axes[param], b.shape(n))
        )
    )
    if x is None:
        return "", None, None
    shape, tail = b.shape(x), axes[param].after
    if not axes[param].variadic:
        tail = axes[param].tokens
    rest = len(shape) - len(tail)
    fixed |= {str(a): n for a, n in zip(tail, shape[rest:], strict=True)}
    return param, x, shape[:rest] if axes[param].variadic else None


def _fits(axes: Axes, shape: Shape) -> bool:
    tail = axes.after if axes.variadic else axes.tokens
    if len(shape) < axes.rank or (not axes.variadic and len(shape) > axes.rank):
        return False
    sizes = [*zip(tail, shape[len(shape) - len(tail) :], strict=True)]
    known = dict(sizes)
    return all(n == (a if isinstance(a, int) else known[a]) for a, n in sizes)


def _sizes(rule: Rule, shapes: Mapping[str, Shape]) -> dict[str, int]:
    found: dict[str, int] = {}
    for p, axes in zip(rule.tensors, rule.signature.inputs, strict=True):
        tail = axes.after if axes.variadic else axes.tokens
        sizes = shapes[p][len(shapes[p]) - len(tail) :]
        found |= {str(a): n for a, n in zip(tail, sizes, strict=True)}
    return found


def _of_constants(rule: Rule) -> set[str]:
    """Parameters that must be known at compile time."""
    facts = [f for f in rule.facts if f.reads_constants and f.name != "constant"]
    return {s.name for f in facts for s in f.subjects if isinstance(s, PatternVar)}


def _asked(rule: Rule, conditions: Sequence[str]) -> set[str]:
    """Parameters that one of ``conditions`` speaks of."""
    facts = [f for f in rule.facts if f.name in conditions]
    return {s.name for f in facts for s in f.subjects if isinstance(s, PatternVar)}


def _drawn(
    b: Builder,
    rule: Rule,
    dtype: np.dtype[Any],
    shapes: Mapping[str, Shape],
    numbers: Mapping[str, Any],
) -> Case:
    rng = np.random.default_rng(b.pick(1 << 16))
    arrays = {p: rng.uniform(-2, 2, shapes[p]) for p in rule.tensors}
    masks = {p: a > 0 for p, a in arrays.items() if p in rule.masks}
    return Case(rule, dtype, {**arrays, **masks}, numbers)


def _operand(b: Builder, case: Case, param: str) -> str:
    array = case.rounded(param)
    if param in _of_constants(case.rule):
        return b.hold(array, fixed=True)
    beyond = b.wild and param in _asked(case.rule, OF_MATRICES)  # NaN has no factors
    if param in case.rule.masks or beyond:
        return b.hold(array)
    axes = dict(zip(case.rule.tensors, case.rule.signature.inputs, strict=True))
    if not axes[param].tokens and b.pick(4):
        return repr(one_of(b.pick, (0.5, 1.0, 0.125, 2.0, -1.0)))
    x = existing_or_leaf(b, array.shape, case.dtype)
    return _lifted(b, case.rule, param, x)


def _lifted(b: Builder, rule: Rule, param: str, x: str) -> str:
    """``x``, moved to where the conditions of the rule hold."""
    for fact in rule.facts:
        if any(isinstance(s, PatternVar) and s.name == param for s in fact.subjects):
            for name, code in LIFTED.items():
                if fact.name.startswith(name):
                    n = b.shape(x)[-1] if b.shape(x) else 1
                    return code.format(x=x, n=n, small=0.5 / max(n, 1))
    return x


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return f"{'-' if value < 0 else ''}np.inf"


def _any(name: str) -> bool:
    return True


def _call(p: PatternNode, args: Sequence[str], names: dict[str, Any], like: str) -> str:
    """The code of a node; ``like`` is any value, for ops without arguments."""
    attrs = {
        n: (
            evaluate_attribute(v, names)
            if not isinstance(v, tuple)
            else tuple(evaluate_attribute(i, names) for i in v)
        )
        for n, v in zip(p.op.attrs, p.attrs, strict=True)
    }
    if p.op is iota_op:
        return f"ops.iota({attrs['shape'][0]}, {like})"
    if p.op.name in OPERATORS:
        return OPERATORS[p.op.name].format(*args)
    if p.op.name in REDUCTIONS:
        return f"ops.{p.op.name}({args[0]}, axis={attrs['axis']}, keepdims=True)"
    return call(p.op, args, attrs)
