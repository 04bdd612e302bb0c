"""Cases that press a rule where rounding shows most.

Numbers that lie beside each other, so that their difference loses its digits; rows of
one number; factors whose product no dtype holds; and the arguments that the numbers of
the rule lead to (:mod:`eqsat.checking.draws.solutions`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from eqsat.checking.bounds import PRECISION
from eqsat.checking.draws.cases import INTEGERS, NUMBERS, Case, dtypes_of
from eqsat.checking.draws.rule_attributes import draw_attributes, integers
from eqsat.checking.draws.rule_shapes import (
    Random,
    draw_shapes,
    fitting_sizes,
    named_axes,
)
from eqsat.checking.draws.sample_arrays import FLOATS, LIMIT, Shape
from eqsat.checking.draws.solutions import solutions
from eqsat.rulelang import Rule
from eqsat.support import Array
from eqsat.terms import BOOL

LONG = 100
"""Factors whose product leaves float64, of numbers of the working range."""
ROW = 400
"""Elements of an array of the numbers that a rule leads to."""
PRODUCTS = frozenset(["prod", "accumulate"])


def pressed(rule: Rule, rng: Random) -> Iterator[Case]:
    """Cases that press ``rule``."""
    floats = [d for d in dtypes_of(rule) if d in FLOATS]
    arrays = [p for p in rule.tensors if p not in rule.masks]
    if not arrays:
        return
    for dtype in floats:
        sizes = [s for s in SIZES if s < LIMIT[dtype]]
        draws: list[Draw] = [_one_number, _far]
        draws += [partial(_beside, size=s) for s in (*sizes, 0.9 * LIMIT[dtype])]
        for draw in draws:
            yield _case(rule, rng, dtype, [[4, 5], [3], [], [8]], draw)
    if not PRODUCTS.isdisjoint({*rule.ops(rule.left), *rule.ops(rule.right)}):
        for dtype in floats:
            for draw in (_small_factors, _large_factors):
                yield _case(rule, rng, dtype, [[LONG], [2, LONG]], draw, LONG)
    if any(a or b for a, b in solutions(rule).values()):
        for dtype in dtypes_of(rule):
            if dtype != BOOL:
                yield _case(rule, rng, dtype, [[ROW]], _led_to)
                yield _case(rule, rng, dtype, [[], [1]], _led_to)
                yield _case(rule, rng, dtype, [[LONG]], _led_to_in_rows, LONG)


Draw = Callable[[Case, Random, dict[str, Shape]], dict[str, Array]]
SIZES = (1.0, 7.3, 95.0, 800.0)
"""Of numbers that lie beside each other: among them those whose exponentials float32
and float64 do not hold."""


def _case(
    rule: Rule,
    rng: Random,
    dtype: np.dtype[Any],
    batches: list[list[int]],
    draw: Draw,
    long: int = 0,
) -> Case:
    """A case whose ``...`` are one of ``batches``; a named axis is ``long``."""
    numbers: dict[str, Any] = {
        p: float(rng.choice(NUMBERS)) for p, k in rule.numbers.items() if k == "float"
    }
    numbers |= integers(rule, rng)
    names = named_axes(rule)
    fixed = {str(rng.choice(names)): long} if names and long else {}
    fixed |= fitting_sizes(rule, numbers, rng)
    batch = batches[int(rng.integers(len(batches)))]
    if names and len(batch) == 1 and batch[0] > LONG:
        batch = [math.ceil(batch[0] / 10)]
    shapes = draw_shapes(rule, rng, fixed, batch)
    numbers |= draw_attributes(rule, rng, shapes, numbers)
    case = Case(rule, dtype, {}, numbers)
    return Case(rule, dtype, draw(case, rng, shapes), numbers)


def _each(
    case: Case, rng: Random, shapes: dict[str, Shape], draw: Callable[[Shape], Any]
) -> dict[str, Array]:
    """Arrays of drawn floats, and others as plain as they come."""
    found = {}
    for p, shape in shapes.items():
        dtype = case.dtype_of(p)
        if dtype == BOOL:
            found[p] = np.asarray(rng.uniform(-1, 1, shape) > 0)
        else:
            found[p] = np.asarray(draw(shape), float)
    return found


def _beside(
    case: Case, rng: Random, shapes: dict[str, Shape], size: float
) -> dict[str, Array]:
    """Rows that lie beside each other, in all arrays."""
    unit = float(PRECISION[case.dtype].unit)
    size *= float(rng.choice((1.0, 1.0, -1.0)))
    off = float(rng.choice((0.0, 2 * unit, 20 * unit, math.sqrt(unit))))
    flat = bool(rng.integers(2))
    rows: dict[int, Any] = {}

    def draw(shape: Shape) -> Any:
        n = shape[-1] if shape else 1
        if n not in rows:
            rows[n] = size * (1 if flat else rng.uniform(-1, 1, n))
        noise = off * size * rng.standard_normal(shape)
        return (rows[n] if shape else size) + noise

    return _each(case, rng, shapes, draw)


def _one_number(case: Case, rng: Random, shapes: dict[str, Shape]) -> dict[str, Array]:
    """Rows of one number each, the same in all arrays."""
    column = rng.uniform(-1, 1, 9) * float(rng.choice((1.0, 10.0, 80.0)))

    def draw(shape: Shape) -> Any:
        if len(shape) < 2:
            return np.full(shape, column[0])
        rows = np.resize(column, shape[-2])[:, None]
        return np.broadcast_to(rows if rng.integers(2) else column[0], shape)

    return _each(case, rng, shapes, draw)


def _far(case: Case, rng: Random, shapes: dict[str, Shape]) -> dict[str, Array]:
    """Numbers of all sizes that the working range has, however small."""
    least = math.log10(float(PRECISION[case.dtype].tiny)) * 0.9
    most = math.log10(LIMIT[case.dtype])

    def draw(shape: Shape) -> Any:
        sign = rng.choice((-1.0, 1.0), shape)
        return sign * 10.0 ** rng.uniform(least, most, shape)

    return _each(case, rng, shapes, draw)


def _small_factors(
    case: Case, rng: Random, shapes: dict[str, Shape]
) -> dict[str, Array]:
    return _each(case, rng, shapes, lambda s: 10.0 ** rng.uniform(-4, -3.5, s))


def _large_factors(
    case: Case, rng: Random, shapes: dict[str, Shape]
) -> dict[str, Array]:
    top = math.log10(LIMIT[case.dtype])
    return _each(case, rng, shapes, lambda s: 10.0 ** rng.uniform(top - 0.5, top, s))


def _led_to(case: Case, rng: Random, shapes: dict[str, Shape]) -> dict[str, Array]:
    """The numbers that the numbers of a rule lead to, and their neighbours."""
    found = {}
    for p, shape in shapes.items():
        dtype = case.dtype_of(p)
        if dtype == BOOL:
            found[p] = np.asarray(rng.uniform(-1, 1, shape) > 0)
            continue
        carried, others = solutions(case.rule)[p]
        values = np.array([*carried, *others] or [0.0, 1.0])
        count = math.prod(shape)
        few = rng.choice(carried or values, count)
        drawn = np.where(rng.integers(2, size=count), few, rng.choice(values, count))
        if count > len(values):
            drawn[: len(values)] = values
        if dtype in INTEGERS:
            info = np.iinfo(dtype)
            low, high = max(info.min, -(2**52)), min(info.max, 2**52)
            whole = np.clip(np.rint(drawn), low, high)
            found[p] = whole.reshape(shape).astype(dtype)
            continue
        with np.errstate(all="ignore"):
            held = drawn.astype(dtype)
            beside = [np.nextafter(held, dtype.type(e)) for e in (-6e4, 6e4)]
        kind = rng.integers(0, 8, count)
        held = np.where(kind == 0, beside[0], np.where(kind == 1, beside[1], held))
        unit = float(PRECISION[dtype].unit)
        off = rng.choice((8 * unit, math.sqrt(unit)), count)
        off *= rng.standard_normal(count)
        held = np.where((kind == 2) | (kind == 3), held.astype(float) * (1 + off), held)
        found[p] = held.astype(float).reshape(shape)
    return found


def _led_to_in_rows(
    case: Case, rng: Random, shapes: dict[str, Shape]
) -> dict[str, Array]:
    """Such numbers along the longest axis, and the same ones along all others."""
    lines: dict[str, Shape] = {}
    for p, shape in shapes.items():
        longest = [i for i, n in enumerate(shape) if n == max(shape)]
        at = int(rng.choice(longest)) if longest else 0
        lines[p] = tuple(n if i == at else 1 for i, n in enumerate(shape))
    found = _led_to(case, rng, lines)
    return {p: np.broadcast_to(a, shapes[p]) for p, a in found.items()}
