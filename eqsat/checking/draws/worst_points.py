"""Where an approximate rule is worst: a scan of the working range, then closer and
closer looks around the largest errors that were met."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from eqsat.checking.draws.cases import (
    UNDEFINED,
    Case,
    dtypes_of,
    inside_domain,
    plain_numbers,
)
from eqsat.checking.draws.rule_attributes import draw_attributes
from eqsat.checking.draws.rule_shapes import Random, draw_shapes, fitting_sizes
from eqsat.checking.draws.sample_arrays import FLOATS, LIMIT, Shape, bools
from eqsat.rulelang import Rule, evaluate, trace_sides
from eqsat.support import Array

POINTS = 1500
"""Places of the leading axis, each of them a point; fewer where a point is long."""
MOST = 20_000
"""Elements of an array."""
BEST = 24
"""Points around which the search goes on."""
LOOKS = 12
SCANS = 4
CLOSER = 0.4
"""What the width of a look is of the width before."""


def worst_points(rule: Rule, seed: int) -> Iterator[Case]:
    """Cases ever nearer to where the sides of ``rule`` are furthest apart."""
    rng = np.random.default_rng(seed)
    floats = [d for d in dtypes_of(rule) if d in FLOATS]
    plain = [p for p in rule.tensors if p not in rule.masks]
    if not floats or not plain:
        return
    for _ in range(SCANS):
        case = inside_domain(_scan(rule, rng, floats[0]))
        width = 0.2
        for _ in range(LOOKS if case else 0):
            assert case is not None
            yield case
            found = _closer(case, plain, width, rng)
            if found is None:
                break
            case, width = inside_domain(found), width * CLOSER
            if case is None:
                break


def _scan(rule: Rule, rng: Random, dtype: np.dtype[Any]) -> Case:
    """Points all over the working range, most of them near 0."""
    numbers = plain_numbers(rule, rng)
    fixed = fitting_sizes(rule, numbers, rng)
    shapes = draw_shapes(rule, rng, fixed, [])
    for p, axes in zip(rule.tensors, rule.signature.inputs, strict=True):
        if axes.variadic and not axes.before:
            count = min(POINTS, MOST // max(math.prod(shapes[p]), 1))
            shapes[p] = (count, *shapes[p])
    lengths = [s[0] for s in shapes.values() if s]
    least = min(lengths, default=0)
    shapes = {
        p: (least, *shapes[p][1:]) if axes.variadic and not axes.before else shapes[p]
        for p, axes in zip(rule.tensors, rule.signature.inputs, strict=True)
    }
    numbers |= draw_attributes(rule, rng, shapes, numbers)
    case = Case(rule, dtype, {}, numbers)
    limit = LIMIT[dtype]
    arrays = {p: _spread(case, rng, p, s, limit) for p, s in shapes.items()}
    return Case(rule, dtype, arrays, numbers)


def _spread(case: Case, rng: Random, param: str, shape: Shape, limit: float) -> Array:
    if param in case.rule.masks:
        return bools(rng, shape)
    near = rng.uniform(-5, 5, shape)
    whole = rng.uniform(-limit, limit, shape)
    sign = rng.choice((-1.0, 1.0), shape)
    sizes = sign * 10.0 ** rng.uniform(-6, math.log10(limit), shape)
    kind = rng.integers(0, 8, shape)
    far = np.where(kind == 7, whole, sizes)
    return np.asarray(np.where(kind < 5, near, far))


def _closer(case: Case, plain: Sequence[str], width: float, rng: Random) -> Case | None:
    """A case around the worst points of ``case``."""
    score = _apart(case)
    if score is None:
        return None
    arrays = dict(case.arrays)
    lengths = {a.shape[0] for p, a in arrays.items() if p in plain and a.ndim}
    rows = score.shape[0] if score.ndim else 0
    if lengths == {rows} and rows > BEST:
        each = score.reshape(rows, -1).max(1)
        best = np.argsort(-each)[:BEST]
        chosen = np.concatenate([best, rng.choice(best, rows - BEST)])
        kept = BEST
    else:  # no axis of points: the whole case is one
        chosen, kept = None, 0
    for p, a in arrays.items():
        at = a[chosen] if chosen is not None and a.ndim and len(a) == rows else a
        if p in plain:
            noise = width * rng.standard_normal(at.shape) * (np.abs(at) + 0.1)
            noise[:kept] = 0 if kept and noise.ndim else noise[:kept]
            at = at + noise
        arrays[p] = np.asarray(at)
    return Case(case.rule, case.dtype, arrays, case.numbers, case.others)


def _apart(case: Case) -> Array | None:
    """How far the sides are apart, of what the rule allows."""
    args = case.args()
    try:
        traced = trace_sides(case.rule, args)
        with np.errstate(all="ignore"):
            x = np.asarray(evaluate(traced.left, traced.inputs)[0], float)
            y = np.asarray(evaluate(traced.right, traced.inputs)[0], float)
            gap = np.abs(x - y) / np.maximum(1, np.abs(x))
    except UNDEFINED:
        return None
    return np.where(np.isfinite(gap), gap, 0)
