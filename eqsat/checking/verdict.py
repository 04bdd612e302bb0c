"""Whether the two sides of a rule agree on one case, under a numerics class.

``exact``: bit for bit, NaN equal to NaN, +0 apart from -0, whatever the values.
``reassociate``: where both sides are finite they differ by no more than the running
error bounds of the two sides together (:mod:`eqsat.checking.bounds.error_bounds`).
``approximate(tol)``: by ``tol`` max(1, \\|x\\|) more. For the last two, inside the
working range neither side is infinite or NaN where the other is finite.

The working range: \\|x\\| ≤ 1e4 (float16: 1e2) for the arguments, for what an
exponential or a softmax is taken of, and for the reciprocals of divisors that are not
0; in float16 also no intermediate value beyond its largest number. Of values on the
way those of the left side count, in float16 those of both.

What rounding alone decides on the left side is no fault of the right: on which side of
a pole, of the end of a domain or of a step an operand lies, or of 0 where it is
multiplied by an infinity. What it decides on the right side alone is one: a rule may
lead to the side that keeps its digits, and not away from it. So too where the left side
alone overflows on the way, and the right side is the number that it would be else.

A number has the digits that its dtype holds, so its own rounding decides nothing. The
left side ``np.remainder(x, 0.3)`` rounds nothing before its step: no other is right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.checking.bounds import PRECISION, Analysis, ulp
from eqsat.checking.draws import LIMIT, UNDEFINED, Case
from eqsat.rulelang import RuleTerms, evaluate, instantiate, tolerance, trace_sides
from eqsat.support import (
    WIDE,
    Array,
    Ball,
    DTypeError,
    Range,
)
from eqsat.terms import BOOL, Op


@dataclass(frozen=True)
class Outcome:
    """What one case shows. ``reason`` is empty when the sides agree."""

    reason: str = ""
    reached: bool = True
    """Whether the left side is defined for these arguments."""
    ulps: float = 0.0
    left: tuple[Array, ...] = ()
    right: tuple[Array, ...] = ()
    compared: bool = True
    """Whether something was compared: rounding bounds some result."""

    @property
    def finite(self) -> tuple[bool, bool]:
        """Whether some element is finite on one side, and on both."""
        one = both = False
        for a, b in zip(self.left, self.right, strict=True):
            if a.shape == b.shape:
                x, y = _are_finite(a), _are_finite(b)
                one, both = one or bool((x | y).any()), both or bool((x & y).any())
        return one, both


def _are_finite(a: Array) -> Array:
    finite = np.isfinite(a.astype(WIDE)) if a.dtype in PRECISION else True
    return np.broadcast_to(finite, a.shape)


UNREACHED = Outcome(reached=False)


def judge(case: Case, numerics: str) -> Outcome:
    """Evaluate both sides of ``case`` and compare them under ``numerics``."""
    args = case.args()
    try:
        # The pattern asks for the whole slice where NumPy's would be shorter.
        instantiate(case.rule, case.rule.left, args)
        traced = trace_sides(case.rule, args)
        with np.errstate(all="ignore"):
            left = tuple(evaluate(traced.left, traced.inputs))
            right = tuple(evaluate(traced.right, traced.inputs))
    except UNDEFINED as error:
        if not left_is_defined(case, args):
            return UNREACHED
        if case.dtype == BOOL and isinstance(error, DTypeError):
            return UNREACHED  # NumPy has no such op of bools
        why = str(error).splitlines()[0]
        return Outcome(f"the right side fails where the left does not: {why}")
    pairs = list(zip(traced.left, traced.right, strict=True))
    for i, (a, b) in enumerate(pairs):
        which = f"result {i}: " if len(pairs) > 1 else ""
        if a.shape != b.shape:
            why = f"{which}the shapes differ: {a.shape} and {b.shape}"
            return Outcome(why, left=left, right=right)
        if a.dtype != b.dtype:
            why = f"{which}the dtypes differ: {a.dtype} and {b.dtype}"
            return Outcome(why, left=left, right=right)
    return _compared(case, traced, numerics, left, right)


def left_is_defined(case: Case, args: Sequence[Any]) -> bool:
    """Whether the left pattern alone can be built and evaluated for ``args``."""
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    try:
        with np.errstate(all="ignore"):
            evaluate(instantiate(case.rule, case.rule.left, args), arrays)
    except UNDEFINED:
        return False
    return True


def _compared(
    case: Case,
    traced: RuleTerms,
    numerics: str,
    left: tuple[Array, ...],
    right: tuple[Array, ...],
) -> Outcome:
    ulps = 0.0
    reason, compared = "", True
    floats = [i for i, a in enumerate(left) if a.dtype in PRECISION]
    open_ = numerics == "fast" and not case.finite
    for i in range(len(left)):
        a, b = left[i], right[i]
        if a.shape != b.shape or a.dtype != b.dtype:
            reason = reason or f"the values differ in type: {_type(a)} and {_type(b)}"
        elif numerics == "exact" or (i not in floats and not open_):
            reason = reason or bits_differ(a, b)
        if i in floats and a.shape == b.shape and case.finite:
            ulps = max(ulps, ulp(a, b, a.dtype))
    if not reason and numerics != "exact" and floats:
        if case.finite:
            reason, compared = _rounding(
                case, traced, left, right, floats, tolerance(numerics)
            )
            compared |= len(floats) < len(left)
        elif numerics != "fast":
            reason = _beside_specials(
                case, traced, left, right, floats, tolerance(numerics)
            )
    return Outcome(reason, True, ulps, left, right, compared)


def _type(array: Array) -> str:
    return f"{array.dtype} {array.shape}"


def bits_differ(a: Array, b: Array) -> str:
    """Why two arrays of a type are not the same bits, NaN being one number."""
    x, y = (v.astype(WIDE) if v.dtype in PRECISION else v for v in (a, b))
    same = x == y
    if a.dtype in PRECISION:
        same = (same & (np.signbit(x) == np.signbit(y))) | (np.isnan(x) & np.isnan(y))
    if same.all():
        return ""
    at = np.unravel_index(int(np.argmin(same)), same.shape)
    return f"not the same bits{place(at)}: {a[at]} and {b[at]}"


def place(at: Sequence[Any]) -> str:
    """Where in an array, in words."""
    return f" at {tuple(map(int, at))}" if len(at) else ""


def _rounding(
    case: Case,
    traced: RuleTerms,
    left: Sequence[Array],
    right: Sequence[Array],
    floats: Sequence[int],
    tol: float,
) -> tuple[str, bool]:
    """Why floating results differ by more than rounding, or in being finite; and
    whether rounding bounds some result."""
    try:
        balls, span = _balls(case, traced, floats)
    except UNDEFINED:  # a matrix that rounding alone made regular, or singular
        return "", False
    inside = _is_inside(case, span)
    bounded = False
    for k, i in enumerate(floats):
        p, q = balls[2 * k], balls[2 * k + 1]
        reason = far_apart(left[i], right[i], p, q, tol)
        if not reason and inside:
            reason = not_finite(left[i], right[i], p, q)
        if not reason and inside and _is_larger(q, p):
            reason = _lost_digits(case, traced, i, right[i], tol)
        if reason:
            return reason, True
        bounded = bounded or bool(np.isfinite(p.error + q.error).any())
    return "", bounded


def _balls(
    case: Case, traced: RuleTerms, floats: Sequence[int]
) -> tuple[list[Ball], Range]:
    """The balls of both sides of each floating result, in turn, and what is known of
    the values on the way: of poles, those on the way of the left side. A step to
    another whole number is in the balls of the left side alone."""
    dtype = case.narrowest
    span = Range(LIMIT[dtype], narrow=dtype == np.dtype("f2"))
    work = Analysis(traced.inputs, span, sides=True)
    left = work.balls(traced.left[i] for i in floats)
    pole, span.jumps = span.pole, False
    inside = span.inside
    right = work.balls(traced.right[i] for i in floats)
    span.pole = pole
    span.inside = span.inside if span.narrow else inside
    return [ball for pair in zip(left, right, strict=True) for ball in pair], span


LOSS = 1000.0
"""How many times as far as the left side, with rounded arguments, may be from the exact
value the right side may be: the digits that it loses are those that log |x| + log |y|
of float64 loses at most of log |x y|."""


def _is_larger(q: Ball, p: Ball) -> bool:
    """Whether the bound of ``q`` is somewhere beyond what the right side may lose."""
    with np.errstate(all="ignore"):
        return bool((q.error > LOSS * p.error).any())


def _lost_digits(
    case: Case, traced: RuleTerms, i: int, right: Array, tol: float
) -> str:
    """Why the right side is far from the exact value where the left side is near, and
    would be if the arguments had been rounded: it cancels."""
    narrowest = case.narrowest
    work = Analysis(traced.inputs, Range(LIMIT[narrowest]), rounded=True)
    (p,) = work.balls([traced.left[i]])
    underflow = LIMIT[narrowest] ** 2 * PRECISION[narrowest].tiny
    with np.errstate(all="ignore"):
        gap = np.abs(right.astype(WIDE) - p.value)
        room = LOSS * (p.error + underflow) + tol * np.maximum(1, np.abs(p.value))
        lost = np.isfinite(gap) & (gap > room)
    if not lost.any():
        return ""
    at = _largest(gap, lost)
    return (
        f"{right[at]}{place(at)} of the right side, which cancels, differs from the "
        f"exact {float(p.value[at]):.9g} by {float(gap[at]):.3g}; the left side is "
        f"within {float(p.error[at]):.3g}"
    )


def _is_inside(case: Case, span: Range) -> bool:
    """Whether all values of ``case`` stay in the working range."""
    empty = any(not a.size for a in case.arrays.values())
    inside = span.inside and not span.pole and not (empty and span.divided_by_zero)
    return inside and case.within(LIMIT[case.narrowest])


def _beside_specials(
    case: Case,
    traced: RuleTerms,
    left: Sequence[Array],
    right: Sequence[Array],
    floats: Sequence[int],
    tol: float,
) -> str:
    """Why floating results differ for operands that hold NaN or infinities.

    Both sides are finite in the same elements, and what is finite agrees. A left side
    that mixes elements and makes NaN of infinite ones may have more NaN on the right.
    Nothing is asked where plain numbers in their place leave the working range, nor
    beside a sum of no terms; nothing of what is finite where rounding decides whether
    a factor of an infinity is 0. What a bias of -∞ hides may be hidden whole, NaN with
    it. Of a solution by factors whole matrices are compared: which elements of it a
    NaN reaches depends on the order of elimination.
    """
    plain = _plain(case)
    if any(not a.size for a in case.arrays.values()):
        return ""
    try:
        _, span = _balls(plain, trace_sides(plain.rule, plain.args()), floats)
    except UNDEFINED:
        return ""
    if not _is_inside(plain, span):
        return ""
    balls, span = _balls(case, traced, floats)
    infinite = any(map(_holds_infinity, case.args()))
    kinds = {Op.registry[name].kind for name in case.rule.ops(case.rule.left)}
    mixes = not kinds <= {"pointwise", "view"}
    hides = any(f.name == "causal bias" for f in case.rule.facts)
    whole = not {"lu", "cholesky"}.isdisjoint(case.rule.ops(case.rule.left))
    for k, i in enumerate(floats):
        a, b = left[i].astype(WIDE), right[i].astype(WIDE)
        reason = far_apart(left[i], right[i], balls[2 * k], balls[2 * k + 1], tol)
        wrong = _lost(np.isfinite(a), np.isfinite(b), whole)
        if infinite and mixes and np.isnan(a).any():
            wrong &= ~np.isnan(b)
        if hides:
            wrong &= ~np.isnan(a)
        if wrong.any() and not span.pole:
            at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            what = "infinite" if infinite else "NaN"
            pair = f"{left[i][at]} and {right[i][at]}{place(at)}"
            reason = f"{pair}, where an operand is {what}"
        if reason:
            return reason
    return ""


def _holds_infinity(v: Any) -> bool:
    held = np.asarray(v)
    return held.dtype.kind not in "biu" and bool(np.isinf(held.astype(float)).any())


def _lost(a: Array, b: Array, whole: bool) -> Array:
    """Where one of two results alone is as it should be; of ``whole`` matrices, where
    that is so of all elements."""
    if whole and a.ndim > 1:
        a, b = (
            np.broadcast_to(v.all((-2, -1), keepdims=True), v.shape) for v in (a, b)
        )
    return np.asarray(a != b)


ONLY_FINITE = (
    'a rule that holds for finite numbers alone is of the class numerics="fast"'
)


def _plain(case: Case) -> Case:
    """``case`` with 1 in place of what is not finite."""
    with np.errstate(all="ignore"):
        arrays = {
            p: (
                np.where(np.isfinite(case.rounded(p).astype(float)), a, 1)
                if a.dtype.kind == "f"
                else a
            )
            for p, a in case.arrays.items()
        }
    numbers = {
        p: 1.0 if isinstance(v, float) and not math.isfinite(v) else v
        for p, v in case.numbers.items()
    }
    return replace(case, arrays=arrays, numbers=numbers)


def _largest(gap: Array, counts: Array) -> tuple[Any, ...]:
    """Where the largest gap is, of those that count."""
    return np.unravel_index(int(np.argmax(np.where(counts, gap, 0))), gap.shape)


def far_apart(a: Array, b: Array, p: Ball, q: Ball, tol: float) -> str:
    """Why finite elements of ``a`` and ``b``, which should be in the balls, differ by
    more than rounding."""
    x, y = a.astype(WIDE), b.astype(WIDE)
    with np.errstate(all="ignore"):
        gap = np.abs(x - y)
        room = p.error + q.error + tol * np.maximum(1, np.abs(p.value))
        far = np.isfinite(x) & np.isfinite(y) & (gap > room)
    if not far.any():
        return ""
    at = _largest(gap, far)
    return (
        f"{a[at]} and {b[at]}{place(at)} differ by {float(gap[at]):.3g}, "
        f"rounding explains {float(room[at]):.3g}"
    )


def not_finite(a: Array, b: Array, p: Ball, q: Ball) -> str:
    """Why an element is finite in one of ``a`` and ``b`` alone, away from the largest
    number. ``b`` may be what ``a`` is but for an overflow on the way."""
    x, y = a.astype(WIDE), b.astype(WIDE)
    largest = PRECISION[a.dtype].largest
    with np.errstate(all="ignore"):
        same = np.isfinite(x) == np.isfinite(y)
        edge = np.minimum(np.abs(p.value) + p.error, np.abs(q.value) + q.error)
        wrong = ~same & ~(np.isfinite(p.value) & (edge > largest))
        overflowed = ~np.isfinite(x) & np.isinf(p.error) & np.isfinite(q.error)
        wrong &= ~(overflowed & (np.abs(p.value - q.value) <= q.error))
    if not wrong.any():
        return ""
    at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    return f"{a[at]} and {b[at]}{place(at)}: one side alone is not finite"
