"""The Hypothesis strategy that draws the arguments of a rule.

Shapes and values are those of :mod:`eqsat.checking.sample_arrays`. Numbers and
attributes fit the op that takes them, and conditions are mended or met."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from eqsat.checking.sample_arrays import (
    FLOATS,
    INSIDE,
    LIMIT,
    OUTSIDE,
    PLAIN,
    UNUSUAL,
    VALUES,
    Pick,
    Shape,
    fitting_shapes,
    one_of,
    shuffled,
)
from eqsat.rulelang import Expr, PatternNode, PatternVar, Rule, exprs, nodes
from eqsat.support import Array

INTEGERS = tuple(np.dtype(t) for t in ("i4", "i1", "u1"))
NUMBERS = (1.0, 0.0, -1.0, 2.0, 0.5, -0.3, 3.0, -7.0, 0.1, 50.0, 0.02)
"""Numbers that rules meet, inside every working range with their reciprocals."""
FILLS = (float("-inf"), -1e30, 1e30, -0.0)
"""Numbers outside it, which conditions may ask for."""
OFTEN = (INSIDE, OUTSIDE, OUTSIDE, PLAIN)
"""What the arrays of a case are drawn from, for rules that hold outside the range."""
SELDOM = (PLAIN, INSIDE, ("uniform",), PLAIN, INSIDE, ("large",), PLAIN, OUTSIDE)


@dataclass(frozen=True)
class Case:
    """Arguments of a rule: arrays before they are rounded to ``dtype``, and numbers."""

    rule: Rule
    dtype: np.dtype[Any]
    arrays: Mapping[str, Array]
    numbers: Mapping[str, Any]

    def args(self) -> list[Any]:
        """The arguments in order, the arrays in ``dtype``."""
        with np.errstate(all="ignore"):
            return [
                self.numbers[p] if p in self.numbers else self.rounded(p)
                for p in self.rule.params
            ]

    def rounded(self, param: str) -> Array:
        array = self.arrays[param]
        return array if array.dtype == bool else array.astype(self.dtype)

    def with_array(self, param: str, array: Array) -> Case:
        return replace(self, arrays={**self.arrays, param: array})

    @property
    def finite(self) -> bool:
        """Whether all numbers in the arrays are finite in ``dtype``."""
        args = (self.rounded(p) for p in self.arrays)
        return all(bool(np.isfinite(a).all()) for a in args if a.dtype != bool)

    def within(self, limit: float) -> bool:
        """Whether all numbers in the arrays are in the working range."""
        args = (self.rounded(p) for p in self.arrays)
        return all(
            bool((np.abs(a.astype(float)) <= limit).all())
            for a in args
            if a.dtype.kind not in "biu"
        )


def dtypes_of(rule: Rule) -> tuple[np.dtype[Any], ...]:
    """The dtypes that the arrays of ``rule`` may have."""
    if rule.dtype is not None:
        return (rule.dtype,)
    return FLOATS + INTEGERS if rule.dtypes == "any" else FLOATS


@st.composite
def cases(draw: st.DrawFn, rule: Rule, fresh: Callable[[], int], count: int) -> Case:
    """Arguments of ``rule``, before its conditions are looked at.

    ``fresh`` gives another number for each case, which goes into the seed of values and
    sizes: Hypothesis favours small draws and repeats parts of earlier ones, so that
    without it a third of the cases would have one element. Bits are drawn, enough for
    ``count`` cases and more, because into integers Hypothesis mixes numbers from the
    modules that happen to be loaded.
    """
    bits = [draw(st.booleans()) for _ in range(count.bit_length() + 3)]
    seed = sum(bit << i for i, bit in enumerate(bits))
    return sample(rule, np.random.default_rng((seed, fresh())))


def sample(rule: Rule, rng: np.random.Generator, rank: int | None = None) -> Case:
    """Arguments of ``rule``. Where ``rank`` is given, each ``...`` stands for that many
    axes or for fewer, and no axis is empty."""

    def pick(n: int) -> int:
        return int(rng.integers(n))

    numbers: dict[str, Any] = {p: one_of(pick, NUMBERS) for p in _params(rule, "float")}
    numbers |= {p: one_of(pick, (1, 2, 3)) for p in _params(rule, "int")}
    fixed = image_sizes(rule, numbers, pick)
    batch = None if rank is None else shuffled(pick, (2, 3, 4))[:rank]
    unusual = UNUSUAL if rank is None else (None,)
    shapes = shapes_of(rule, pick, fixed, batch, unusual)
    for p in _params(rule, "ints"):
        numbers[p] = attribute(rule, p, shapes, pick)
    dtype = one_of(pick, dtypes_of(rule))
    kinds = one_of(pick, OFTEN if rule.numerics == "exact" else SELDOM)
    arrays = {}
    for p in rule.tensors:
        if p in rule.masks:
            arrays[p] = rng.uniform(-1, 1, shapes[p]) > 0
        elif dtype in FLOATS:
            arrays[p] = VALUES[one_of(pick, kinds)](rng, shapes[p], dtype)
        else:
            info = np.iinfo(dtype)
            arrays[p] = rng.integers(info.min, info.max, shapes[p], dtype, True)
    return Case(rule, dtype, arrays, numbers)


def _params(rule: Rule, kind: str) -> list[str]:
    return [p for p in rule.params if rule.numbers.get(p) == kind]


# -- shapes ----------------------------------------------------------------------------


def shapes_of(
    rule: Rule,
    pick: Pick,
    fixed: Mapping[str, int],
    batch: Sequence[int] | None = None,
    unusual: Sequence[int | None] = UNUSUAL,
) -> dict[str, Shape]:
    """Shapes of the arrays of ``rule``, in which the axes ``fixed`` have their size."""
    inputs = rule.signature.inputs
    whole = bool(_params(rule, "ints")) or len(rule.tensors) == 1
    shapes = fitting_shapes(
        inputs, pick, fixed, batch=batch, whole=whole, unusual=unusual
    )
    return dict(zip(rule.tensors, shapes, strict=True))


def image_sizes(rule: Rule, numbers: Mapping[str, Any], pick: Pick) -> dict[str, int]:
    """Sizes that fit where a convolution or a number of groups asks for them."""
    size: dict[str, int] = {}
    for side in rule.left:
        for p in nodes(side):
            if not isinstance(p, PatternNode):
                continue
            if p.op.name == "conv2d" and all(isinstance(a, PatternVar) for a in p.args):
                _, i, h, v, o, j, kh, kw = (
                    t
                    for a in p.args
                    if isinstance(a, PatternVar)
                    for t in a.axes.tokens
                )
                groups = numbers.get(getattr(p.attrs[3], "head", ""), p.attrs[3])
                each = one_of(pick, (1, 2, 3))
                size[str(j)] = each
                size[str(i)] = each * groups
                size[str(o)] = groups * one_of(pick, (1, 2))
                size[str(kh)] = one_of(pick, (1, 2, 3))
                size[str(kw)] = one_of(pick, (2, 1, 3))
                size[str(h)] = one_of(pick, (5, 4, 6))
                size[str(v)] = one_of(pick, (6, 5, 7))
        for e in exprs(side):
            size |= _multiples(e, numbers)
    return size


def _multiples(e: Expr, numbers: Mapping[str, Any]) -> dict[str, int]:
    """Axes that an integer parameter divides, as multiples of it."""
    found: dict[str, int] = {}
    if e.head == "//" and isinstance(e.args[1], Expr) and e.args[1].head in numbers:
        names = sorted(e.names - numbers.keys())
        for k, name in enumerate(names, 2):
            found[name] = numbers[e.args[1].head] * k
    return found


def attribute(
    rule: Rule, param: str, shapes: Mapping[str, Shape], pick: Pick
) -> tuple[int, ...]:
    """A value of an attribute parameter, by the op whose attribute it is."""
    wanted = Expr(param, (), "ints")
    shape = next((s for s in shapes.values() if s), ())
    for side in rule.left:
        for p in nodes(side):
            if isinstance(p, PatternNode) and wanted in p.attrs:
                if isinstance(p.args[0], PatternVar):
                    shape = shapes[p.args[0].name]
                attr = list(p.op.attrs)[p.attrs.index(wanted)]
                return tuple(one_of(pick, _fitting(p.op.name, attr, shape)))
    return tuple(one_of(pick, _axes(len(shape))))


def _fitting(op: str, attr: str, shape: Shape) -> list[tuple[int, ...]]:
    """Values that an attribute of ``op`` may take for an operand of ``shape``."""
    last = shape[-1] if shape else 1
    if op == "reshape":
        n = int(np.prod(shape, dtype=int))
        return [shape, (n,), (1, n), (n, 1), shape[::-1], shape]
    if op == "transpose":
        ranks = range(min(2, len(shape)), min(len(shape), 3) + 1)
        return [q for r in ranks for q in itertools.permutations(range(-r, 0))]
    if op == "conv2d":
        least = 0 if attr == "padding" else 1
        return list(itertools.product(range(least, 3), repeat=2))
    if op == "slice":
        most = {"starts": max(last - 1, 0), "sizes": last, "steps": 2}[attr]
        return [(i,) for i in range(min(1, most), most + 1)]
    if op == "pad":
        return [(0,), (1,), (2,)]
    if op == "broadcast_to":
        return [shape, (2, *shape)]
    return _axes(len(shape))


def _axes(rank: int) -> list[tuple[int, ...]]:
    """Sets of one or two axes."""
    single = [(a,) for a in range(-rank, 0)]
    return [*single, *itertools.combinations(range(-rank, 0), 2)] or [(-1,)]


# -- conditions ------------------------------------------------------------------------


def inside_domain(case: Case) -> Case | None:
    """``case`` bent into the rule's domain; None when that cannot be done."""
    rule = case.rule
    if rule.where is None:
        return case
    arrays = {p: np.array(a) for p, a in case.arrays.items()}
    for numbers in _alternatives(case):
        tried = [numbers.get(p, arrays.get(p)) for p in rule.params]
        for _ in range(2):
            held = rule.where(*tried)
            conditions = held if isinstance(held, tuple) else (held,)
            if all(conditions):
                return replace(case, arrays=arrays, numbers=numbers)
            for h in conditions:
                if not h:
                    h.mend()
    return None


def _alternatives(case: Case) -> Iterator[dict[str, Any]]:
    """The numbers of ``case``, then others, until a condition holds."""
    others: dict[str, tuple[Any, ...]] = {
        "float": (*FILLS, *NUMBERS),
        "int": (1, 2),
    }
    free = [p for p in case.numbers if case.rule.numbers[p] in others]
    choices = [(case.numbers[p], *others[case.rule.numbers[p]]) for p in free]
    for values in itertools.islice(itertools.product(*choices), 60):
        yield {**case.numbers, **dict(zip(free, values, strict=True))}


__all__ = [
    "FLOATS",
    "LIMIT",
    "Case",
    "attribute",
    "cases",
    "dtypes_of",
    "image_sizes",
    "inside_domain",
    "sample",
    "shapes_of",
]
