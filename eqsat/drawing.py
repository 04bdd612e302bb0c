"""The Hypothesis strategy that draws the arguments of a rule.

Shapes: named axes of pairwise distinct sizes, some of size 0 or 1; the axes of ``...``
broadcast. Values: several kinds, those inside the working range and those outside.
Numbers and attributes fit the op that takes them, and conditions are mended or met.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from eqsat.ball import Array
from eqsat.bounds import PRECISION
from eqsat.pattern import Expr, Node, Var, exprs, nodes
from eqsat.rule import Rule
from eqsat.typerule import BF16

FLOATS = (np.dtype("f8"), np.dtype("f4"), np.dtype("f2"), BF16)
INTEGERS = tuple(np.dtype(t) for t in ("i4", "i1", "u1"))
LIMIT = {d: 1e2 if d == np.dtype("f2") else 1e4 for d in FLOATS}
"""The working range |x| ≤ limit of each floating dtype."""
NUMBERS = (1.0, 0.0, -1.0, 2.0, 0.5, -0.3, 3.0, -7.0, 0.1, 50.0, 0.02)
"""Numbers that rules meet, inside every working range with their reciprocals."""
FILLS = (float("-inf"), -1e30, 1e30, -0.0)
"""Numbers outside it, which conditions may ask for."""
GRID = (2, 3, 4, 5, 6, 7, 8)
"""Sizes of the named axes of a rule, pairwise distinct."""


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
    numbers = {p: _one_of(rng, NUMBERS) for p in _params(rule, "float")}
    numbers |= {p: _one_of(rng, (1, 2, 3)) for p in _params(rule, "int")}
    shapes = _shapes(rule, rng, _images(rule, numbers, rng), rank)
    for p in _params(rule, "ints"):
        numbers[p] = _attribute(rule, p, shapes, rng)
    dtype = _one_of(rng, dtypes_of(rule))
    kinds = _one_of(rng, OFTEN if rule.numerics == "exact" else SELDOM)
    arrays = {}
    for p in rule.tensors:
        if p in rule.masks:
            arrays[p] = rng.uniform(-1, 1, shapes[p]) > 0
        elif dtype in FLOATS:
            arrays[p] = VALUES[_one_of(rng, kinds)](rng, shapes[p], dtype)
        else:
            info = np.iinfo(dtype)
            arrays[p] = rng.integers(info.min, info.max, shapes[p], dtype, True)
    return Case(rule, dtype, arrays, numbers)


def _one_of(rng: np.random.Generator, options: Sequence[Any]) -> Any:
    return options[int(rng.integers(len(options)))]


def _params(rule: Rule, kind: str) -> list[str]:
    return [p for p in rule.params if rule.numbers.get(p) == kind]


# -- values ----------------------------------------------------------------------------


def _uniform(rng: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    return np.asarray(rng.uniform(-2, 2, shape))


def _large(rng: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    return np.asarray(rng.uniform(-1, 1, shape) * LIMIT[dtype] * rng.choice([1.0, 0.1]))


def _tiny(rng: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    least = 1e-3 if dtype == np.dtype("f2") else 1e-20
    return np.asarray(rng.uniform(-least, least, shape))


def _denormal(rng: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    least = max(float(2 * PRECISION[dtype].tiny), 5e-324)
    return np.asarray(rng.integers(-9, 9, shape) * least)


def _zeros(rng: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    return np.asarray(rng.choice([0.0, -0.0], shape))


def _repeated(rng: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    return np.full(shape, rng.uniform(-2, 2) * rng.choice([1.0, 10.0]))


def _small_integers(rng: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    return np.asarray(rng.integers(-3, 4, shape) * 1.0)


def _special(rng: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    rare = rng.choice([np.inf, -np.inf, np.nan, 0.0, -0.0], shape)
    common = rng.uniform(-2, 2, shape)
    return np.asarray(np.where(rng.uniform(0, 1, shape) < 0.5, rare, common))


def _huge(rng: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    return np.asarray(rng.uniform(-1, 1, shape) * float(PRECISION[dtype].largest))


VALUES: dict[str, Callable[[Any, tuple[int, ...], Any], Array]] = {
    "uniform": _uniform,
    "integers": _small_integers,
    "large": _large,
    "repeated": _repeated,
    "zeros": _zeros,
    "tiny": _tiny,
    "denormal": _denormal,
    "special": _special,
    "huge": _huge,
}
"""Kinds of values, those outside the working range last."""
INSIDE = tuple(VALUES)[:-2]
"""Kinds of values in the working range."""
PLAIN = ("uniform", "uniform", "large", "integers")
OUTSIDE = ("special", "uniform", "special", "huge")
OFTEN = (INSIDE, OUTSIDE, OUTSIDE, PLAIN)
"""What the arrays of a case are drawn from, for rules that hold outside the range."""
SELDOM = (PLAIN, INSIDE, ("uniform",), PLAIN, INSIDE, ("large",), PLAIN, OUTSIDE)


# -- shapes ----------------------------------------------------------------------------

Shape = tuple[int, ...]


def _shapes(
    rule: Rule,
    rng: np.random.Generator,
    fixed: Mapping[str, int],
    rank: int | None = None,
) -> dict[str, Shape]:
    """Shapes of the arrays of ``rule``, in which the axes ``fixed`` have their size."""
    tokens = [a for axes in rule.signature.inputs for a in axes.tokens]
    names = [a for a in dict.fromkeys(tokens) if isinstance(a, str) and a != "..."]
    grid = GRID if len(names) <= len(GRID) else range(2, len(names) + 2)
    size = dict(zip(names, map(int, rng.permutation(grid)), strict=False))
    some = _one_of(rng, (2, 1, 3, 0, 2))
    sizes = (1, 2, 3, 5) if rank is None else (2, 3, 4)
    batch = [int(b) for b in rng.permutation(sizes)[: some if rank is None else rank]]
    unusual = _one_of(rng, (None, None, None, 1, 1, 0)) if rank is None else None
    if unusual is not None and names:
        size[_one_of(rng, names)] = unusual
        size[_one_of(rng, names)] = unusual
    elif unusual == 0 and batch:
        batch[0] = 0
    size |= fixed
    whole = bool(_params(rule, "ints")) or len(rule.tensors) == 1
    shapes = {}
    for name, axes in zip(rule.tensors, rule.signature.inputs, strict=True):
        shape: list[int] = []
        for a in axes.tokens:
            if a != "...":
                shape.append(a if isinstance(a, int) else size[a])
            else:
                shape += batch if whole else _broadcastable(batch, rng)
        shapes[name] = tuple(shape)
    return shapes


def _broadcastable(batch: list[int], rng: np.random.Generator) -> list[int]:
    """Axes that broadcast to ``batch``: all of them, or fewer, or some of size 1."""
    if rng.integers(2):
        return batch
    kept = batch[rng.integers(len(batch) + 1) :]
    return [b if rng.integers(2) else 1 for b in kept]


def _images(
    rule: Rule, numbers: Mapping[str, Any], rng: np.random.Generator
) -> dict[str, int]:
    """Sizes that fit where a convolution or a number of groups asks for them."""
    size: dict[str, int] = {}
    for side in rule.left:
        for p in nodes(side):
            if not isinstance(p, Node):
                continue
            if p.op.name == "conv2d" and all(isinstance(a, Var) for a in p.args):
                _, i, h, v, o, j, kh, kw = (
                    t for a in p.args if isinstance(a, Var) for t in a.axes.tokens
                )
                groups = numbers.get(getattr(p.attrs[3], "head", ""), p.attrs[3])
                each = _one_of(rng, (1, 2, 3))
                size[str(j)] = each
                size[str(i)] = each * groups
                size[str(o)] = groups * _one_of(rng, (1, 2))
                size[str(kh)] = _one_of(rng, (1, 2, 3))
                size[str(kw)] = _one_of(rng, (2, 1, 3))
                size[str(h)] = _one_of(rng, (5, 4, 6))
                size[str(v)] = _one_of(rng, (6, 5, 7))
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


def _attribute(
    rule: Rule, param: str, shapes: Mapping[str, Shape], rng: np.random.Generator
) -> tuple[int, ...]:
    """A value of an attribute parameter, by the op whose attribute it is."""
    wanted = Expr(param, (), "ints")
    shape = next((s for s in shapes.values() if s), ())
    for side in rule.left:
        for p in nodes(side):
            if isinstance(p, Node) and wanted in p.attrs:
                if isinstance(p.args[0], Var):
                    shape = shapes[p.args[0].name]
                attr = list(p.op.attrs)[p.attrs.index(wanted)]
                return tuple(_one_of(rng, _fitting(p.op.name, attr, shape)))
    return tuple(_one_of(rng, _axes(len(shape))))


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
