"""The numbers that a rule names, in its sides and its conditions.

What holds on one side of such a number often does not on the other, so they and their
neighbours are drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from eqsat.checking.draws.rule_shapes import Random, named_axes
from eqsat.checking.draws.sample_arrays import FLOATS
from eqsat.rulelang import Expr, Num, Rule, exprs, nodes
from eqsat.support import Array, cached_by_identity

LONGEST = 2000
"""The longest axis that is drawn because a rule names its size."""


class NamedNumbers(NamedTuple):
    """What a rule names."""

    values: tuple[float, ...]
    """Finite numbers."""
    sizes: tuple[int, ...]
    """Those of conditions on sizes."""
    axes: tuple[str, ...]
    """The axes whose sizes conditions ask about."""


@cached_by_identity
def named_numbers(rule: Rule) -> NamedNumbers:
    """The numbers that ``rule`` names."""
    values: list[Any] = []
    for side in (*rule.left, *rule.right):
        values += [p.value for p in nodes(side) if isinstance(p, Num)]
        values += exprs(side)
    sizes: list[Any] = []
    asked: set[str] = set()
    axes = named_axes(rule)
    for fact in rule.facts:
        names = {n for s in fact.subjects if isinstance(s, Expr) for n in s.names}
        values += fact.subjects
        if names.intersection(axes):
            asked |= names.intersection(axes)
            sizes += fact.subjects
    return NamedNumbers(
        tuple(sorted({float(v) for v in _numbers(values) if math.isfinite(v)})),
        tuple(sorted({int(v) for v in _numbers(sizes) if 1 < v <= LONGEST})),
        tuple(sorted(asked)),
    )


def _numbers(values: Any) -> Iterator[float]:
    """The numbers among values and in the expressions among them."""
    stack = list(values)
    while stack:
        v = stack.pop()
        if isinstance(v, Expr):
            stack += v.args
        elif isinstance(v, (int, float)) and not isinstance(v, bool):
            yield v


def neighbours(value: float) -> tuple[float, ...]:
    """A number, and some around it."""
    steps = value - 1, value + 1, value * 2, value / 2, value * 1.001
    return (value, value, *steps, -value)


def number_beside(rule: Rule, rng: Random) -> float | None:
    """A parameter beside a number that ``rule`` names, now and then."""
    values = named_numbers(rule).values
    if not values or rng.integers(3):
        return None
    return float(rng.choice(neighbours(float(rng.choice(values)))))


def sizes_beside(rule: Rule, rng: Random) -> dict[str, int]:
    """Sizes of axes beside those that the conditions of ``rule`` name, often."""
    found = named_numbers(rule)
    if not found.sizes or rng.integers(2):
        return {}
    size = int(rng.choice(found.sizes))
    near = [n for n in (size, size - 1, size + 1, 2 * size) if n <= LONGEST]
    return {str(rng.choice(found.axes)): int(rng.choice(near))}


def with_named(rule: Rule, rng: Random, array: Array, dtype: np.dtype[Any]) -> Array:
    """``array`` with elements beside a number of those that ``rule`` names."""
    if dtype not in FLOATS:
        return array
    value = float(rng.choice(named_numbers(rule).values))
    with np.errstate(all="ignore"):
        held = np.asarray(value).astype(dtype)
        beside = [float(np.nextafter(held, held.dtype.type(e))) for e in (-9e4, 9e4)]
    near = [*neighbours(value), *beside]
    here = rng.uniform(0, 1, array.shape) < 0.5
    return np.where(here, rng.choice(near, array.shape), array)
