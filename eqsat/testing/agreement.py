"""Whether two computations agree, under a numerics class.

No tolerance is chosen: a floating result may differ by the running error bounds
(:mod:`eqsat.checking.bounds`) of the terms that the two computations are made of,
and an integer or a bool not at all. Elements of which the bounds say nothing, because
rounding alone decides them, are counted as undecided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import numpy as np

from eqsat.checking import (
    LIMIT,
    PRECISION,
    Analysis,
    bits_differ,
    far_apart,
    not_finite,
    place,
)
from eqsat.rulelang import leaf_value, tolerance
from eqsat.support import WIDE, Array, Ball, Range, counted
from eqsat.terms import CONSTANT, INPUT, Term, Weak, postorder

F2, F8 = np.dtype("f2"), np.dtype("f8")


@dataclass(frozen=True)
class Agreement:
    """What comparing two computations found."""

    reason: str = ""
    """Why they do not agree; empty when they do."""
    elements: int = 0
    undecided: int = 0
    """Elements of which the error bounds say nothing."""


@dataclass(frozen=True)
class Computed:
    """Arrays, and the terms over ``inputs`` that tell how they are computed."""

    arrays: Sequence[Any]
    terms: Sequence[Term]
    inputs: Sequence[Any]
    halves: bool = False
    """Whether sums of halves are added in halves, as NumPy adds them."""


def agreement(
    left: Computed,
    right: Computed,
    numerics: str = "reassociate",
    *,
    strict: bool = False,
) -> Agreement:
    """Compare ``left`` with ``right`` under a class of ``numerics``. ``strict``: what
    rounding decides on the right alone is no excuse, as for the sides of a rule."""
    if len(left.arrays) != len(right.arrays):
        return Agreement(
            f"{counted(len(left.arrays), 'result')} and {len(right.arrays)}"
        )
    pairs = [
        (np.asarray(a), np.asarray(b))
        for a, b in zip(left.arrays, right.arrays, strict=True)
    ]
    exact = numerics == "exact"
    judge = _exactly if exact else _by_bounds(left, right, numerics, strict)
    elements = undecided = 0
    for i, (a, b) in enumerate(pairs):
        reason = _type(a, b)
        unsure = 0
        if not reason:
            reason, unsure = judge(i, a, b)
        if reason:
            return Agreement(f"result {i}: {reason}" if len(pairs) > 1 else reason)
        elements += a.size
        undecided += unsure
    return Agreement("", elements, undecided)


Judge = Callable[[int, Array, Array], tuple[str, int]]
"""Why two arrays of a type, results of that number, do not agree; elements undecided.
"""


def _exactly(i: int, a: Array, b: Array) -> tuple[str, int]:
    return bits_differ(a, b), 0


def _by_bounds(left: Computed, right: Computed, numerics: str, strict: bool) -> Judge:
    dtypes, leaves = _met(left)
    more, others = _met(right)
    limit = min((LIMIT[d] for d in dtypes | more), default=LIMIT[F8])
    span = Range(limit, narrow=F2 in dtypes | more)
    work = Analysis(left.inputs, span, halves=left.halves, sides=strict)
    known = work.balls(left.terms)
    pole, span.jumps = span.pole, not strict
    alone = span.inside
    if not _are_alike(left, right):
        work = Analysis(right.inputs, span, halves=right.halves, sides=strict)
    found = work.balls(right.terms)
    inside = alone if strict and not span.narrow else span.inside
    inside = inside and not (pole if strict else span.pole)
    inside = inside and all(_within(v, limit) for v in (*leaves, *others))

    def judge(i: int, a: Array, b: Array) -> tuple[str, int]:
        p, q = known[i], found[i]
        reason = _values(a, b, p, q, numerics, inside)
        return reason, _undecided(a, b, p, q, inside)

    return judge


def _are_alike(left: Computed, right: Computed) -> bool:
    """Whether a term has the same bounds on both sides: they read the same arrays."""
    same = len(left.inputs) == len(right.inputs) and all(
        map(is_, left.inputs, right.inputs)
    )
    return same and left.halves == right.halves


def _met(side: Computed) -> tuple[set[Any], list[Array]]:
    """The floating dtypes and the leaves of the terms."""
    met = list(postorder(side.terms))
    leaves = [leaf_value(t, side.inputs) for t in met if t.op in (INPUT, CONSTANT)]
    dtypes = {t.dtype for t in met if not isinstance(t.dtype, Weak)}
    return dtypes & LIMIT.keys(), [np.asarray(v) for v in leaves]


def _within(leaf: Array, limit: float) -> bool:
    """Whether all numbers are in the working range; integers always are."""
    if leaf.dtype not in PRECISION:
        return True
    return bool(np.all(np.abs(leaf.astype(float)) <= limit))


def _type(a: Array, b: Array) -> str:
    if (a.dtype, a.shape) == (b.dtype, b.shape):
        return ""
    return f"the types differ: {a.dtype} {a.shape} and {b.dtype} {b.shape}"


def _values(a: Array, b: Array, p: Ball, q: Ball, numerics: str, inside: bool) -> str:
    if a.dtype in PRECISION:
        reason = far_apart(a, b, p, q, tolerance(numerics))
        return reason or (not_finite(a, b, p, q) if inside else "")
    sure = np.broadcast_to((p.error == 0) & (q.error == 0), a.shape)
    wrong = sure & (a != b)
    if not wrong.any():
        return ""
    at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    return f"{a[at]} and {b[at]}{place(at)} differ"


def _undecided(a: Array, b: Array, p: Ball, q: Ball, inside: bool) -> int:
    with np.errstate(all="ignore"):
        sure = np.isfinite(p.error + q.error)
        if a.dtype not in PRECISION:
            sure = (p.error == 0) & (q.error == 0)
        else:
            x, y = np.isfinite(a.astype(WIDE)), np.isfinite(b.astype(WIDE))
            sure = (sure & x & y) | (~x & ~y) | (inside & (x != y))
    return int(a.size - np.count_nonzero(np.broadcast_to(sure, a.shape)))
