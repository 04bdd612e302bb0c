"""Cases that press a rule where rounding shows most.

Numbers that lie beside each other, so that their difference loses its digits; rows of
one number; factors whose product no dtype holds; numbers whose sum it does not; and
the arguments that the numbers of the rule lead to
(:mod:`eqsat.checking.draws.solutions`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from eqsat.checking.bounds import PRECISION
from eqsat.checking.draws.cases import INTEGERS, Case, dtypes_of, plain_numbers
from eqsat.checking.draws.named_numbers import named_numbers
from eqsat.checking.draws.rule_attributes import draw_attributes
from eqsat.checking.draws.rule_shapes import (
    Random,
    draw_shapes,
    fitting_sizes,
    named_axes,
)
from eqsat.checking.draws.sample_arrays import FLOATS, LIMIT, Shape, bools
from eqsat.checking.draws.solutions import solutions
from eqsat.rulelang import Rule
from eqsat.support import Array
from eqsat.terms import BOOL

LONG = 100
"""Factors whose product leaves float64, of numbers of the working range."""
ROW = 400
"""Elements of an array of the numbers that a rule leads to."""
PRODUCTS = frozenset(["prod", "accumulate"])
STEPPED = frozenset("floor ceil rint trunc cast floor_divide remainder fmod".split())
"""Functions of many steps."""
STEPS = 100
"""How many steps to each side of 0 are looked at."""


def pressed(rule: Rule, rng: Random) -> Iterator[Case]:
    """Cases that press ``rule``."""
    if all(p in rule.masks for p in rule.tensors):
        return
    ops = {*rule.ops(rule.left), *rule.ops(rule.right)}
    led = any(a or b for a, b in solutions(rule).values())
    for dtype in dtypes_of(rule):
        for way in ways(dtype, ops, led):
            yield _case(rule, rng, dtype, way)
    for dtype in [d for d in dtypes_of(rule) if d in FLOATS]:
        for power in (1.0, 0.5):
            yield _case(rule, rng, dtype, Way(partial(_overflowing, power=power)))


def _case(rule: Rule, rng: Random, dtype: np.dtype[Any], way: Way) -> Case:
    numbers = plain_numbers(rule, rng)
    fixed, batch = way.sizes(named_axes(rule), rng)
    fixed |= fitting_sizes(rule, numbers, rng)
    shapes = draw_shapes(rule, rng, fixed, batch)
    numbers |= draw_attributes(rule, rng, shapes, numbers)
    case = Case(rule, dtype, {}, numbers)
    dtypes = {p: case.dtype_of(p) for p in rule.tensors}
    named = [*named_numbers(rule).values]
    named += [n for n in numbers.values() if isinstance(n, float) and math.isfinite(n)]
    arrays = way.draw(Pressing(dtype, dtypes, solutions(rule), named), rng, shapes)
    return Case(rule, dtype, arrays, numbers)


@dataclass(frozen=True)
class Pressing:
    """What arrays are asked for."""

    dtype: np.dtype[Any]
    """The floating dtype that ends first, or that of integers."""
    dtypes: Mapping[Any, np.dtype[Any]]
    """That of each array."""
    led_to: Mapping[Any, tuple[list[float], list[float]]]
    """As :func:`eqsat.checking.draws.solutions.led_to` gives it."""
    named: Sequence[float]
    """The numbers of the rule."""


Draw = Callable[[Pressing, Random, Mapping[Any, Shape]], dict[Any, Array]]
SIZES = (1.0, 7.3, 95.0, 800.0)
"""Of numbers that lie beside each other: among them those whose exponentials float32
and float64 do not hold."""


@dataclass(frozen=True)
class Way:
    """A way to press: a draw, sizes for ``...``, and one for a named axis, if any."""

    draw: Draw
    batches: Sequence[Sequence[int]] = ((4, 5), (3,), (), (8,))
    long: int = 0
    name: int | None = None
    """Which named axis is long: any, where no number is given."""

    def sizes(
        self, names: Sequence[str], rng: Random
    ) -> tuple[dict[str, int], list[int]]:
        """Sizes for a named axis, and for the axes of ``...``."""
        at = rng.integers(len(names) or 1) if self.name is None else self.name
        fixed = {names[at]: self.long} if self.long and at < len(names) else {}
        batch = list(self.batches[int(rng.integers(len(self.batches)))])
        if names and batch and batch[0] > LONG:
            batch[0] = math.ceil(batch[0] / 10)
        return fixed, batch


def ways(
    dtype: np.dtype[Any], ops: Collection[str], led: bool, times: int = 1
) -> Iterator[Way]:
    """The ways to press what is made of ``ops``, in arrays of ``dtype``. ``led``:
    whether its numbers lead anywhere. ``times``: how often what is left to chance is
    drawn."""
    if dtype in FLOATS:
        sizes = [*(s for s in SIZES if s < LIMIT[dtype]), 0.9 * LIMIT[dtype]]
        for _ in range(times):
            yield Way(_one_number)
            yield Way(_far)
            yield from (Way(partial(_beside, size=s)) for s in sizes)
        if not PRODUCTS.isdisjoint(ops):
            for draw in (_small_factors, _large_factors):
                yield Way(draw, ((LONG,), (2, LONG)), LONG)
    if led and dtype != BOOL:
        yield Way(_led_to, ((ROW,),))
        yield Way(_led_to, ((), (1,)))
        yield from (Way(_led_to_in_rows, ((LONG,),)) for _ in range(times))
        yield Way(_led_to_in_rows, ((),), LONG, 0)
        yield Way(_led_to_in_rows, ((),), LONG, 1)
    if dtype in FLOATS and not STEPPED.isdisjoint(ops):
        yield Way(_on_steps, ((ROW,),))


def _each(
    case: Pressing,
    rng: Random,
    shapes: Mapping[Any, Shape],
    draw: Callable[[Shape], Any],
) -> dict[Any, Array]:
    """Arrays of drawn floats, and others as plain as they come."""
    found = {}
    for p, shape in shapes.items():
        dtype = case.dtypes[p]
        if dtype == BOOL:
            found[p] = bools(rng, shape)
        elif dtype in INTEGERS:
            found[p] = rng.integers(0, 6, shape).astype(dtype)
        else:
            found[p] = np.asarray(draw(shape), float)
    return found


def _beside(
    case: Pressing, rng: Random, shapes: Mapping[Any, Shape], size: float
) -> dict[Any, Array]:
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


def _one_number(
    case: Pressing, rng: Random, shapes: Mapping[Any, Shape]
) -> dict[Any, Array]:
    """Rows of one number each, the same in all arrays."""
    column = rng.uniform(-1, 1, 9) * float(rng.choice((1.0, 10.0, 80.0)))

    def draw(shape: Shape) -> Any:
        if len(shape) < 2:
            return np.full(shape, column[0])
        rows = np.resize(column, shape[-2])[:, None]
        return np.broadcast_to(rows if rng.integers(2) else column[0], shape)

    return _each(case, rng, shapes, draw)


def _far(case: Pressing, rng: Random, shapes: Mapping[Any, Shape]) -> dict[Any, Array]:
    """Numbers of all sizes that the working range has, however small."""
    least = math.log10(float(PRECISION[case.dtype].tiny)) * 0.9
    most = math.log10(LIMIT[case.dtype])

    def draw(shape: Shape) -> Any:
        sign = rng.choice((-1.0, 1.0), shape)
        return sign * 10.0 ** rng.uniform(least, most, shape)

    return _each(case, rng, shapes, draw)


def _overflowing(
    case: Pressing, rng: Random, shapes: Mapping[Any, Shape], power: float
) -> dict[Any, Array]:
    """Numbers of which two add up, or for half the ``power`` two multiply, to what no
    dtype holds; those at one place are of one sign more often than not."""
    top = float(PRECISION[case.dtype].largest) ** power

    def draw(shape: Shape) -> Any:
        sign = np.where(rng.uniform(0, 1, shape) < 0.8, 1.0, -1.0)
        return sign * top * rng.uniform(0.4, 1.2 if power < 1 else 1.0, shape)

    return _each(case, rng, shapes, draw)


def _small_factors(
    case: Pressing, rng: Random, shapes: Mapping[Any, Shape]
) -> dict[Any, Array]:
    return _each(case, rng, shapes, lambda s: 10.0 ** rng.uniform(-4, -3.5, s))


def _large_factors(
    case: Pressing, rng: Random, shapes: Mapping[Any, Shape]
) -> dict[Any, Array]:
    top = math.log10(LIMIT[case.dtype])
    return _each(case, rng, shapes, lambda s: 10.0 ** rng.uniform(top - 0.5, top, s))


def _led_to(
    case: Pressing, rng: Random, shapes: Mapping[Any, Shape]
) -> dict[Any, Array]:
    """The numbers that the numbers of a rule lead to, and their neighbours."""
    found = {}
    for p, shape in shapes.items():
        dtype = case.dtypes[p]
        if dtype == BOOL:
            found[p] = bools(rng, shape)
            continue
        carried, others = case.led_to[p]
        values = np.array([*carried, *others] or [0.0, 1.0])
        count = math.prod(shape)
        few = rng.choice(carried or values, count)
        drawn = np.where(rng.integers(2, size=count), few, rng.choice(values, count))
        sure = min(len(values), count // 2)  # these as they are, the rest by chance
        drawn[:sure] = values[:sure]
        if dtype in INTEGERS:
            info = np.iinfo(dtype)
            low, high = max(info.min, -(2**52)), min(info.max, 2**52)
            whole = np.clip(np.rint(drawn), low, high)
            found[p] = whole.reshape(shape).astype(dtype)
            continue
        found[p] = _and_beside(drawn, dtype, rng, sure).reshape(shape)
    return found


def _and_beside(
    drawn: Array, dtype: np.dtype[Any], rng: Random, sure: int = 0
) -> Array:
    """Numbers of ``dtype``, many moved a little; the first ones stay for ``sure``."""
    count = len(drawn)
    with np.errstate(all="ignore"):
        held = drawn.astype(dtype)
        beside = [np.nextafter(held, dtype.type(e)) for e in (-6e4, 6e4)]
    kind = rng.integers(0, 8, count)
    kind[:sure] = 7
    held = np.where(kind == 0, beside[0], np.where(kind == 1, beside[1], held))
    unit = float(PRECISION[dtype].unit)
    off = rng.choice((8 * unit, math.sqrt(unit)), count)
    off *= rng.standard_normal(count)
    held = np.where((kind == 2) | (kind == 3), held.astype(float) * (1 + off), held)
    return held.astype(float)


def _on_steps(
    case: Pressing, rng: Random, shapes: Mapping[Any, Shape]
) -> dict[Any, Array]:
    """Multiples of halves, of the numbers of a rule and of their reciprocals, and their
    neighbours: that is where steps are. All are in the working range."""
    limit = LIMIT[case.dtype]
    numbers = [abs(n) for n in case.named if n]
    units = [0.5, 0.5, *numbers, *(1 / n for n in numbers)]
    units = [u for u in units if 1 / limit < u < limit]
    found = {}
    for p, shape in shapes.items():
        dtype, count = case.dtypes[p], math.prod(shape)
        if dtype not in FLOATS:
            found.update(_each(case, rng, {p: shape}, np.zeros))
            continue
        steps = rng.choice(units, count)
        times = rng.integers(-STEPS, STEPS + 1, count)
        times = np.where(np.abs(times * steps) < limit, times, 1)
        found[p] = _and_beside(times * steps, dtype, rng).reshape(shape)
    return found


def _led_to_in_rows(
    case: Pressing, rng: Random, shapes: Mapping[Any, Shape]
) -> dict[Any, Array]:
    """Such numbers along the longest axis, and the same ones along all others."""
    lines: dict[Any, Shape] = {}
    for p, shape in shapes.items():
        longest = [i for i, n in enumerate(shape) if n == max(shape)]
        at = int(rng.choice(longest)) if longest else 0
        lines[p] = tuple(n if i == at else 1 for i, n in enumerate(shape))
    found = _led_to(case, rng, lines)
    return {p: np.broadcast_to(a, shapes[p]) for p, a in found.items()}
