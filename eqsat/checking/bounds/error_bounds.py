"""Running error analysis: every value of a term with a bound on its rounding error.

A term is evaluated in extended precision, and each node gets a bound on how far a
computation in its dtype may be from the exact value: the errors of the operands carried
through the operation, plus the roundings of the operation itself. Bounds are balls, not
first derivatives, so large relative errors of short dtypes stay covered. A function of
the C library or of NumPy counts as 4 ulp, an arithmetic operation and a square root as
half an ulp, a sum of n terms as n roundings. Composites are opened, so a fused body
that rounds less often has a smaller error than its bound.

N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2002, §3.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from eqsat.checking.bounds.error_rules import PROPAGATE, STEPS, monotone
from eqsat.checking.bounds.signs import never_negative
from eqsat.ops import (
    MOVES,
    add,
    cast_op,
    divide,
    multiply,
    square,
    subtract,
    sum_op,
    take_op,
)
from eqsat.rulelang import leaf_value
from eqsat.support import WIDE, Array, Ball, Precision, Range
from eqsat.terms import (
    BF16,
    CONSTANT,
    HALF,
    INPUT,
    LIBRARY,
    SCALAR,
    DType,
    Op,
    Term,
    Weak,
    is_float,
)
from eqsat.trace import body_of, pairs_of

F4, F8 = np.dtype("f4"), np.dtype("f8")


PRECISION = {
    np.dtype("f2"): Precision(WIDE(2.0**-11), WIDE(2.0**-25), WIDE(65504.0)),
    BF16: Precision(WIDE(2.0**-8), WIDE(2.0**-134), WIDE(2.0**128 - 2.0**120)),
    F4: Precision(WIDE(2.0**-24), WIDE(2.0**-150), WIDE(2.0**128 - 2.0**104)),
    F8: Precision(WIDE(2.0**-53), WIDE(5e-324), WIDE(1.7976931348623157e308)),
}


@dataclass
class Analysis:
    """Balls of terms over given inputs, in one working range."""

    inputs: Sequence[Any]
    range: Range
    coarse: bool = False
    """Whether functions round their operands first, and give 0 for what is below the
    least normal number, as MLX's do: its ``exp`` is 63 ulp off at 90."""
    halves: bool = False
    """Whether sums of halves are added in halves, not in float32."""
    sides: bool = False
    """Whether the terms are sides of a rule. What no operation rounds is exact then
    where a step is decided: a number is what its dtype holds, and excuses no step."""
    rounded: bool = False
    """Whether the numbers of inputs count as rounded to their dtypes: a bound is then
    no less than what that alone makes of a value."""
    known: dict[Term, Ball] = field(default_factory=dict)

    def balls(self, roots: Iterable[Term]) -> list[Ball]:
        """The balls of ``roots``, which are over floats."""
        with np.errstate(all="ignore"):
            return [self.ball(t) for t in roots]

    def ball(self, term: Term) -> Ball:
        known, stack = self.known, [term]
        while stack:  # terms may be deeper than Python's stack
            t = stack[-1]
            missing = [a for a in t.args if a not in known]
            if missing and t not in known:
                stack.extend(missing)
                continue
            stack.pop()
            if t not in known:
                known[t] = self._ball(t)
        return known[term]

    def _ball(self, term: Term) -> Ball:
        if term.op is SCALAR:
            return _exact(np.asarray(term.attrs[0], dtype=float))
        if term.op in (INPUT, CONSTANT):
            held = _exact(leaf_value(term, self.inputs))
            of_floats = self.rounded and is_float(term.dtype)
            return _off_by_a_unit(held, term.dtype) if of_floats else held
        assert isinstance(term.op, Op)
        if term.op.name in ("softmax", "log_softmax", "logsumexp"):
            self.range.spread(self.ball(term.args[0]).value)
        body = body_of(term) or pairs_of(term)
        if body is not None:
            return self.ball(body)
        dtype = _computed_in(term)
        args = self._operands(term, dtype)
        decides = not is_float(term.dtype) and term.op not in MOVES
        has_steps = decides or term.op.name in STEPS
        at = self._at_steps(term, args, dtype) if has_steps and self.sides else args
        value = _value(term, at)
        if decides:
            return Ball(value, _decision_error(term, at, value, self.range))
        error = self._propagated(term, args, value)
        if has_steps and self.range.jumps:
            error = error + STEPS[term.op.name](at, value, self.range)
        if not is_float(term.dtype):
            return Ball(value, error)
        return self._rounded(term, args, value, error, dtype)

    def _at_steps(self, term: Term, args: list[Ball], dtype: Any) -> list[Ball]:
        """The operands of ``term`` where it decides on a step. What no operation
        rounds is exact there, as each number in it is what its dtype holds."""
        held = self._of_held_numbers._operands(term, dtype)
        return [_exact_or(a, b) for a, b in zip(held, args, strict=True)]

    @cached_property
    def _of_held_numbers(self) -> Analysis:
        span = replace(self.range, jumps=True)
        return _OfHeldNumbers(self.inputs, span, self.coarse, self.halves)

    def _operands(self, term: Term, dtype: Any) -> list[Ball]:
        """The operands of ``term``, whose roundings are those of ``dtype``."""
        assert isinstance(term.op, Op)
        args = [self._operand(self.ball(a), a.dtype, dtype) for a in term.args]
        if self._is_coarse(term.op):
            args = [_off_by_a_unit(a, dtype) for a in args]
        return args

    def _operand(self, ball: Ball, dtype: DType, wanted: Any) -> Ball:
        return _as_operand(ball, dtype, wanted)

    def _propagated(self, term: Term, args: list[Ball], value: Array) -> Array:
        dtype = _computed_in(term)
        sums = PRECISION[F4 if dtype in HALF and not self.halves else dtype]
        return _propagated(term, args, value, self.range, sums)

    def _is_exact(self, op: Op, args: list[Ball], value: Array, dtype: Any) -> Any:
        """Where arithmetic does not round: its operands are exact numbers of few
        digits, and the result is a number of the dtype. So halves stay halves: no
        rounding explains that a ``floor`` differs there."""
        few: Any = True
        for a in args:
            few = few & (a.error == 0)
        if not np.any(few):
            return False
        for a in args:
            few = few & (a.value.astype("f2") == a.value)
        held = value.astype(dtype).astype(WIDE) == value
        back = value * args[1].value == args[0].value if op is divide else True
        return few & held & back

    def _is_coarse(self, op: Op) -> bool:
        return self.coarse and op.kind == "pointwise" and op.roundings >= LIBRARY

    def _rounded(
        self, term: Term, args: list[Ball], value: Array, error: Array, dtype: Any
    ) -> Ball:
        """The ball after the roundings of the operation itself."""
        assert isinstance(term.op, Op)
        p = PRECISION[dtype]
        n = term.op.roundings
        size = np.abs(value)
        error = carried = np.broadcast_to(error, value.shape)
        if n:
            rounded = np.asarray(size + error)
            if term.op.name in _LARGER_AND_REST:
                rounded += np.abs(np.maximum(args[0].value, args[1].value))
            rounded *= n * p.unit
            rounded += error
            if term.op not in (add, subtract, sum_op):
                exact = (value == 0) & (rounded == 0)
                if term.op in (multiply, divide, square) and exact.any():
                    exact &= _zero_operand(args)
                if term.op.name in _NEVER_0:
                    exact &= ~np.isfinite(args[0].value)
                if term.op.name == "power":
                    exact &= (args[0].value == 0) | ~np.isfinite(args[1].value)
                least = p.tiny / p.unit if self._is_coarse(term.op) else p.tiny
                rounded += n * least
                rounded[exact] = 0
            if term.op in _ARITHMETIC:
                rounded[self._is_exact(term.op, args, value, dtype)] = 0
            error = rounded
        self.range.intermediate(value, p.largest)
        finite = np.isfinite(value)
        # NaN and infinities are looked for once: there are none in most arrays.
        if not (finite.all() and np.isfinite(error).all()):
            error = np.where(np.isnan(error), np.inf, error)
            error = np.where(np.isinf(value) & np.isfinite(carried), 0, error)
        size += error
        beyond = finite & (size > p.largest)
        error = np.where(beyond, np.inf, error) if beyond.any() else error
        return Ball(value, error, never_negative(term, args))


class _OfHeldNumbers(Analysis):
    """Of terms whose numbers are exact: each is what the dtype beside it holds. All
    arithmetic rounds: a sum of such numbers is no other than that of the numbers."""

    def _is_exact(self, *_: Any) -> bool:
        return False

    def _operand(self, ball: Ball, dtype: DType, wanted: Any) -> Ball:
        if not isinstance(dtype, Weak):
            return ball
        return replace(ball, value=ball.value.astype(wanted).astype(WIDE))


def _exact_or(held: Ball, other: Ball) -> Ball:
    """``held`` where it has no error, and ``other`` elsewhere."""
    rounded = held.error != 0
    if rounded.all():
        return other
    value = np.where(rounded, other.value, held.value)
    return Ball(value, np.where(rounded, other.error, 0), other.above_0)


def _exact(array: Any) -> Ball:
    array = np.asarray(array)
    value = array.astype(WIDE) if array.dtype.kind not in "biu" else array
    return Ball(value, np.zeros(array.shape, WIDE), bool((value >= 0).all()))


def _computed_in(term: Term) -> Any:
    """The floating dtype whose roundings count in ``term``."""
    for dtype in (term.dtype, *(a.dtype for a in term.args)):
        if not isinstance(dtype, Weak) and dtype in PRECISION:
            return dtype
    return F8


def _as_operand(ball: Ball, dtype: DType, wanted: Any) -> Ball:
    """A bare number as an operation of dtype ``wanted`` takes it: rounded.

    In float64 too, as rules compute numbers of numbers; those of few digits are exact.
    """
    if not isinstance(dtype, Weak):
        return ball
    if wanted == F8:
        short = ball.value.astype("f2") == ball.value
        off = np.where(short, 0, PRECISION[F8].unit * np.abs(ball.value))
    else:
        off = np.abs(ball.value.astype(wanted).astype(WIDE) - ball.value)
    return replace(ball, error=ball.error + np.where(np.isfinite(off), off, 0))


def _off_by_a_unit(ball: Ball, dtype: Any) -> Ball:
    """An operand that is rounded once more."""
    off = PRECISION[dtype].unit * np.abs(ball.value)
    return replace(ball, error=ball.error + np.where(np.isfinite(off), off, 0))


def _value(term: Term, args: list[Ball]) -> Array:
    """The exact value of a primitive, as far as the wide precision goes."""
    op, values = term.op, [a.value for a in args]
    assert isinstance(op, Op)
    if op is cast_op:
        if is_float(term.dtype):
            return values[0].astype(WIDE)
        return values[0].astype(op.attr_dict(term)["dtype"])
    if op.special:  # which takes no long double
        values = [v.astype(float) for v in values]
    found = np.asarray(op.reference(*_weak(term, values), **op.attr_dict(term)))
    return found.astype(WIDE) if is_float(term.dtype) else found


def _weak(term: Term, values: list[Array]) -> list[Any]:
    """The operands ``values``, in which a bare number beside integers stays one: an
    array of it would make floats of them."""
    if any(a.op is not SCALAR and is_float(a.dtype) for a in term.args):
        return list(values)
    pairs = zip(term.args, values, strict=True)
    return [a.attrs[0] if a.op is SCALAR else v for a, v in pairs]


_NEVER_0 = frozenset(["exp", "exp2", "cosh"])
"""Functions of finite numbers that are 0 by underflow alone, of the wide precision."""
_ARITHMETIC = (add, subtract, multiply, divide, square)
_LARGER_AND_REST = frozenset(["logaddexp", "logaddexp2"])
"""Sums of the larger operand and of a logarithm, which may cancel."""


def _zero_operand(args: list[Ball]) -> Any:
    """Where an operand is exactly 0."""
    zero: Any = False
    for a in args:
        zero = zero | ((a.value == 0) & (a.error == 0))
    return zero


def _decision_error(term: Term, args: list[Ball], value: Array, span: Range) -> Array:
    """How far a bool or an integer made of floats may be off: 0 when rounding cannot
    change it."""
    op = term.op
    assert isinstance(op, Op)
    errors = [a.error for a in args]
    if not any(e.any() for e in errors):
        return np.zeros(value.shape, WIDE)
    if len(args) == 2 and value.dtype == bool and op.kind == "pointwise":
        gap = np.abs(args[0].value.astype(WIDE) - args[1].value.astype(WIDE))
        near = (gap <= errors[0] + errors[1]) & (errors[0] + errors[1] > 0)
        return np.broadcast_to(np.where(near, WIDE(1), 0), value.shape)
    if op.name in ("isnan", "isinf", "isfinite"):
        return np.where(np.isinf(errors[0]), WIDE(1), 0)
    unsure: Any = True
    if op.name == "logical_not" and args[0].value.dtype == bool:
        return np.broadcast_to(errors[0], value.shape)
    if op.name == "cast" and value.dtype == bool:
        unsure = (np.abs(args[0].value) <= errors[0]) & (errors[0] > 0)
    elif op.name == "cast" and not span.jumps:
        unsure = ~np.isfinite(errors[0])
    elif op.name == "cast":
        low, high = (np.trunc(args[0].value + e) for e in (-errors[0], errors[0]))
        unsure = low != high
    elif op.name in ("argmax", "argmin", "argsort"):
        unsure = _order_is_unsure(op.name, args[0], value, op.attr_dict(term)["axis"])
    return np.broadcast_to(np.where(unsure, WIDE(np.inf), 0), value.shape)


def _order_is_unsure(name: str, x: Ball, value: Array, axes: Sequence[int]) -> Array:
    """Of each row, along one of the ``axes``, whether rounding may change its order, or
    which element is the first of it."""
    (axis,) = axes
    sign = -1 if name == "argmax" else 1
    order = np.argsort(sign * x.value, axis=axis, kind="stable")
    low, high = (
        np.take_along_axis(sign * x.value + e, order, axis) for e in (-x.error, x.error)
    )
    count = 1 if name != "argsort" else max(x.value.shape[axis] - 1, 0)
    high, low = (np.moveaxis(v, axis, -1) for v in (high, low))
    apart = (high[..., :count] < low[..., 1 : count + 1]).all(axis=-1)
    unsure = np.asarray(~apart & x.error.any(axis=axis))
    return np.expand_dims(unsure, axis) if value.ndim == x.value.ndim else unsure


def _propagated(
    term: Term, args: list[Ball], value: Array, span: Range, sums: Precision
) -> Array:
    """The errors of the operands as they show in the value, whose sums are accumulated
    in the precision ``sums``."""
    assert isinstance(term.op, Op)
    attrs = term.op.attr_dict(term)
    if term.op is take_op and args[1].error.any():
        return np.full(value.shape, np.inf, WIDE)
    if term.op in MOVES:
        errors = [a.error for a in args]
        if term.op is take_op:  # whose indices are no elements
            errors[1] = args[1].value
        return np.asarray(term.op.reference(*errors, **attrs))
    rule = PROPAGATE.get(term.op.name)
    if rule is not None:
        return np.asarray(rule(args, value, span, attrs, sums))
    if len(args) == 1 and term.op.kind == "pointwise":
        return monotone(term.op.reference, args[0], value, span)
    if not any(a.error.any() for a in args):
        return np.zeros(value.shape, WIDE)
    return np.full(value.shape, np.inf, WIDE)


def ulp(a: Array, b: Array, dtype: Any) -> float:
    """The largest difference of two arrays of a floating ``dtype``, in units in the
    last place of the larger number."""
    p = PRECISION[np.dtype(dtype)]
    x, y = a.astype(WIDE), b.astype(WIDE)
    both = np.isfinite(x) & np.isfinite(y)
    if not both.any():
        return 0.0
    x, y = x[both], y[both]
    size = np.maximum(np.abs(x), np.abs(y))
    _, exponent = np.frexp(size)
    spacing = np.maximum(np.ldexp(2 * p.unit, exponent - 1), 2 * p.tiny)
    found = float(np.max(np.abs(x - y) / spacing))
    return found if math.isfinite(found) else math.inf
