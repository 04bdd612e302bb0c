"""Arguments of a rule: drawn as programs hold them, and bent into its domain.

Shapes are those of ``rule_shapes.py``, attributes those of ``rule_attributes.py``,
plain values those of ``sample_arrays.py``. Special values (NaN, infinities, signed
zeros, denormals, halves, the ends of integers) stand alone among plain ones, or mixed.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eqsat.checking.bounds import PRECISION
from eqsat.checking.draws.named_numbers import (
    named_numbers,
    neighbours,
    number_beside,
    sizes_beside,
    with_named,
)
from eqsat.checking.draws.rule_attributes import draw_attributes, integers
from eqsat.checking.draws.rule_shapes import (
    Random,
    draw_shapes,
    fitting_sizes,
    named_axes,
)
from eqsat.checking.draws.sample_arrays import (
    FLOATS,
    INSIDE,
    LIMIT,
    PLAIN,
    VALUES,
    Shape,
    bools,
)
from eqsat.rulelang import Expr, PatternVar, Rule
from eqsat.support import Array, EqsatError
from eqsat.terms import BF16, BOOL

INTEGERS = tuple(np.dtype(t) for t in ("i4", "i8", "u1", "i1", "i2", "u2", "u4", "u8"))
NUMBERS = (1.0, 0.0, -1.0, 2.0, 0.5, -0.3, 3.0, -7.0, 0.1, 50.0, 0.02)
"""Numbers that rules meet, inside every working range with their reciprocals."""
FILLS = (float("-inf"), -1e30, 1e30, -0.0, float("inf"), float("nan"))
"""Numbers outside it, which programs hold now and then and conditions may ask for."""
KINDS = (PLAIN, INSIDE, ("uniform",), PLAIN, ("large",), INSIDE)
"""What the arrays of a case are drawn from."""


UNDEFINED = (EqsatError, ValueError, TypeError, IndexError, ZeroDivisionError)
"""What a side raises for arguments outside its domain."""


def _special_floats(dtype: np.dtype[Any]) -> dict[str, tuple[float, ...]]:
    p = PRECISION[dtype]
    tiny, largest = float(2 * p.tiny) or 5e-324, float(p.largest)
    one = 1 + 2 * float(p.unit)
    # Rounded to a shorter dtype and then to these, 1 + unit is another number.
    shorter = (float(o.unit) for o in PRECISION.values() if o.unit > p.unit)
    ties = (1 + u * (1 + 2 * float(p.unit) / u) for u in shorter)
    return {
        "NaN": (np.nan,),
        "∞": (np.inf,),
        "-∞": (-np.inf,),
        "infinities": (np.inf, -np.inf),
        "poles": (np.inf, -np.inf, 0.0, -0.0),
        "0": (0.0,),
        "-0": (-0.0,),
        "denormal": (tiny, -tiny, 3 * tiny, 7 * tiny, 12 * tiny, 36 * tiny),
        "huge": (largest, -largest, largest / 2, -largest / 3, largest / 4 * 3),
        "half": (0.5, -0.5, 1.5, -1.5, 2.5, 3.5, -2.5),
        "whole": (1.0, -1.0, 2.0, 3.0, -4.0, 8.0),
        "beside 1": (1.0, one, 2 - one, *ties),
    }


SPECIAL = {d: _special_floats(d) for d in FLOATS} | {
    d: {
        "0": (0,),
        "1": (1,),
        "least": (np.iinfo(d).min,),
        "greatest": (np.iinfo(d).max,),
        "near the end": (np.iinfo(d).max, np.iinfo(d).max - 1),
        "both ends": (np.iinfo(d).max, np.iinfo(d).min),
        "few": (1, 2, 3) if np.iinfo(d).min == 0 else (-1, 2, -3, 3),
    }
    for d in INTEGERS
}
"""Special values of each dtype, by the name of their class."""


@dataclass(frozen=True)
class Case:
    """Arguments of a rule: arrays before they are rounded to ``dtype``, and numbers."""

    rule: Rule
    dtype: np.dtype[Any]
    arrays: Mapping[str, Array]
    numbers: Mapping[str, Any]
    others: Mapping[str, np.dtype[Any]] = field(default_factory=dict)
    """Arrays of another dtype."""

    def args(self) -> list[Any]:
        """The arguments in order, the arrays in their dtypes."""
        return [
            self.numbers[p] if p in self.numbers else self.rounded(p)
            for p in self.rule.params
        ]

    def dtype_of(self, param: str) -> np.dtype[Any]:
        """The dtype of an array."""
        return BOOL if param in self.rule.masks else self.others.get(param, self.dtype)

    def rounded(self, param: str) -> Array:
        """An array in its dtype."""
        with np.errstate(all="ignore"):
            return self.arrays[param].astype(self.dtype_of(param))

    def with_array(self, param: str, array: Array) -> Case:
        return replace(self, arrays={**self.arrays, param: array})

    @property
    def narrowest(self) -> np.dtype[Any]:
        """The floating dtype that ends first; float64 where there is none."""
        found = [d for d in map(self.dtype_of, self.arrays) if d in LIMIT]
        return min(found, key=lambda d: LIMIT[d], default=np.dtype("f8"))

    @property
    def finite(self) -> bool:
        """Whether all numbers in the arrays are finite, and the parameters too."""
        given = [self.rounded(p) for p in self.arrays]
        given += [np.asarray(v) for v in self.numbers.values() if isinstance(v, float)]
        return all(
            bool(np.isfinite(a).all()) for a in given if a.dtype.kind not in "biu"
        )

    def within(self, limit: float) -> bool:
        """Whether all numbers in the arrays are in the working range; the parameters
        too, but those of conditions, which may ask for others."""
        args = [self.rounded(p) for p in self.arrays]
        subjects = (s for fact in self.rule.facts for s in fact.subjects)
        asked = {n for s in subjects if isinstance(s, Expr) for n in s.names}
        args += [
            np.asarray(v, float) for p, v in self.numbers.items() if p not in asked
        ]
        return all(
            bool((np.abs(a.astype(float)) <= limit).all())
            for a in args
            if a.dtype.kind not in "biu"
        )


def dtypes_of(rule: Rule) -> tuple[np.dtype[Any], ...]:
    """The dtypes that the arrays of ``rule`` may have."""
    if rule.dtype is not None:
        return (rule.dtype,)
    return (*FLOATS, *INTEGERS, BOOL) if rule.dtypes == "any" else FLOATS


def sample(rule: Rule, rng: Random, rank: int | None = None) -> Case:
    """Arguments of ``rule``, before its conditions are looked at.

    Where ``rank`` is given, each ``...`` stands for that many axes or for fewer, named
    axes differ, no axis is empty, and nothing is special.
    """
    plain = rank is not None
    numbers: dict[str, Any] = {}
    for p, kind in rule.numbers.items():
        if kind == "float":
            odd = not plain and rng.integers(4) == 0
            beside = None if plain else number_beside(rule, rng)
            drawn = float(rng.choice(FILLS if odd else NUMBERS))
            numbers[p] = drawn if beside is None else beside
    numbers |= integers(rule, rng)
    fixed = fitting_sizes(rule, numbers, rng)
    if not plain:
        fixed = sizes_beside(rule, rng) | fixed
    batch = (
        None if rank is None else [int(n) for n in rng.permutation((2, 3, 4))[:rank]]
    )
    shapes = draw_shapes(rule, rng, fixed, batch)
    numbers |= draw_attributes(rule, rng, shapes, numbers)
    allowed = dtypes_of(rule)
    dtype = allowed[int(rng.integers(len(allowed)))]
    others = {} if plain else _others(rule, rng, dtype)
    case = Case(rule, dtype, {}, numbers, others)
    kinds = KINDS[int(rng.integers(len(KINDS)))]
    arrays = {p: _plain(rng, kinds, shapes[p], case.dtype_of(p)) for p in rule.tensors}
    if not plain and named_numbers(rule).values and rng.integers(4) == 0:
        arrays = {
            p: with_named(rule, rng, a, case.dtype_of(p)) for p, a in arrays.items()
        }
    often = 3 if rule.numerics == "exact" or rule.infers else 2
    if not plain and rng.integers(4) < often:
        arrays = _with_specials(case, rng, arrays)
    return replace(case, arrays=arrays)


GRID = 1500
"""Elements of an array that holds special values beside all others."""
MODEST = ("NaN", "∞", "-∞", "0", "-0", "half", "whole")
"""Special values inside the working range, or that every class says something of."""


def plain_numbers(rule: Rule, rng: Random) -> dict[str, Any]:
    """The numbers of ``rule``, as plain as they come."""
    floats = [p for p, kind in rule.numbers.items() if kind == "float"]
    return {p: float(rng.choice(NUMBERS)) for p in floats} | integers(rule, rng)


def special_case(
    rule: Rule, rng: Random, dtype: np.dtype[Any], kinds: Container[str], elements: int
) -> Case:
    """A case of special values alone: arrays of some elements, each drawn by itself
    among ``kinds``. Of many elements, each value of an array stands beside each of the
    others."""
    numbers = plain_numbers(rule, rng)
    inputs = rule.signature.inputs
    open_ = any(axes.variadic for axes in inputs)
    rank = max((axes.rank for axes in inputs), default=1)
    size = 2 if open_ else int(elements ** (1 / max(rank, 1)))
    fixed = dict.fromkeys(named_axes(rule), max(size, 1))
    shapes = draw_shapes(rule, rng, fixed | fitting_sizes(rule, numbers, rng), [])
    row = max(elements // 2**rank, 1)
    shapes = {p: _with_row(rule, p, s, row) for p, s in shapes.items()}
    numbers |= draw_attributes(rule, rng, shapes, numbers)
    case = Case(rule, dtype, {}, numbers)
    arrays = {p: _special(case, rng, p, shapes[p], kinds) for p in rule.tensors}
    return replace(case, arrays=arrays)


def _with_row(rule: Rule, param: str, shape: Shape, row: int) -> Shape:
    axes = rule.signature.inputs[rule.tensors.index(param)]
    at = len(axes.before)
    return (*shape[:at], row, *shape[at:]) if axes.variadic else shape


def _special(
    case: Case, rng: Random, param: str, shape: Shape, kinds: Container[str]
) -> Array:
    dtype = case.dtype_of(param)
    if dtype == BOOL:
        return bools(rng, shape)
    values = [v for k, vs in SPECIAL[dtype].items() if k in kinds for v in vs]
    wide = dtype if dtype.kind in "iu" else np.dtype("f8")
    return np.asarray(rng.choice(np.array([*dict.fromkeys(values)], wide), shape))


def loose(rule: Rule) -> list[str]:
    """The arrays of ``rule`` that may have another dtype than the rest: those without
    named axes, but where the rule asks for one dtype."""
    pairs = list(zip(rule.tensors, rule.signature.inputs, strict=True))
    if rule.dtype is not None or rule.one_dtype or len(pairs) < 2:
        return []
    return [p for p, axes in pairs if not axes.rank and p not in rule.masks]


def _others(rule: Rule, rng: Random, dtype: np.dtype[Any]) -> dict[str, np.dtype[Any]]:
    """Arrays without named axes that have another dtype than the rest, now and then.
    NumPy has no common dtype of the two dtypes of 16 bits."""
    apart = {np.dtype("f2"): BF16, BF16: np.dtype("f2")}
    allowed = [d for d in dtypes_of(rule) if d not in (dtype, apart.get(dtype))]
    free = loose(rule)
    if not free or rng.integers(6):
        return {}
    other = allowed[int(rng.integers(len(allowed)))]
    return {p: other for p in free if rng.integers(2)}


def _plain(rng: Random, kinds: Any, shape: Shape, dtype: np.dtype[Any]) -> Array:
    if dtype == BOOL:
        return bools(rng, shape)
    if dtype in FLOATS:
        return VALUES[str(rng.choice(kinds))](rng, shape, dtype)
    if rng.integers(2):
        return np.asarray(rng.integers(0 if dtype.kind == "u" else -4, 6, shape, dtype))
    info = np.iinfo(dtype)
    return np.asarray(rng.integers(info.min, info.max, shape, dtype, True))


def _with_specials(
    case: Case, rng: Random, arrays: Mapping[str, Array]
) -> dict[str, Array]:
    """``arrays`` with special values of one class or of several, in one of them or in
    all, in every element or in some."""
    if rng.integers(4) == 0:
        return _with_one_special(case, rng, arrays)
    one = rng.choice(list(arrays)) if arrays and rng.integers(3) == 0 else None
    mixed, share = rng.integers(4) == 0, float(rng.choice((0.2, 0.5, 1.0, 1.0)))
    chosen = float(rng.random())
    found = {}
    for p, array in arrays.items():
        classes = SPECIAL.get(case.dtype_of(p))
        if classes is None or one not in (None, p):
            found[p] = array
            continue
        names = [*classes] if mixed else [[*classes][int(chosen * len(classes))]]
        values = np.array([v for n in names for v in classes[n]], array.dtype)
        here = rng.uniform(0, 1, array.shape) < share
        found[p] = np.where(here, rng.choice(values, array.shape), array)
    return found


def _with_one_special(
    case: Case, rng: Random, arrays: Mapping[str, Array]
) -> dict[str, Array]:
    """``arrays`` of plain numbers, and NaN or infinities in one of them."""
    floats = [p for p in arrays if case.dtype_of(p) in FLOATS]
    found = dict(arrays)
    for p in floats:
        found[p] = VALUES["uniform"](rng, arrays[p].shape, case.dtype_of(p))
    if floats:
        p = floats[int(rng.integers(len(floats)))]
        value = (np.nan, np.nan, np.inf, -np.inf)[int(rng.integers(4))]
        here = rng.uniform(0, 1, arrays[p].shape) < 0.3
        found[p] = np.where(here, value, found[p])
    return found


# -- conditions ------------------------------------------------------------------------


def inside_domain(case: Case) -> Case | None:
    """``case`` bent into the rule's domain; None when that cannot be done."""
    held = _bent(case)
    return held and (_unsymmetric(held) or held)


def _bent(case: Case) -> Case | None:
    rule = case.rule
    if rule.where is None:
        return case
    arrays = {p: np.array(a) for p, a in case.arrays.items()}
    for numbers in _alternatives(case):
        tried = [numbers.get(p, arrays.get(p)) for p in rule.params]
        for _ in range(2):
            conditions = _conditions(rule, tried)
            if all(conditions):
                return replace(case, arrays=arrays, numbers=numbers)
            if conditions == (False,):
                break
            for h in conditions:
                if not h:
                    h.mend()
    return None


def _conditions(rule: Rule, args: Sequence[Any]) -> tuple[Any, ...]:
    """The conditions of a rule for its arguments; one that fails where they have no
    value."""
    assert rule.where is not None
    try:
        held = rule.where(*args)
    except (ArithmeticError, IndexError, np.linalg.LinAlgError):
        return (False,)
    return held if isinstance(held, tuple) else (held,)


def _unsymmetric(case: Case) -> Case | None:
    """Every other case of positive definite matrices with other numbers above their
    diagonals, where the left side has a value for them: a factorisation reads the lower
    triangle alone, and a domain guards nothing."""
    domains = [f for f in case.rule.facts if f.is_domain]
    params = {
        s.name
        for f in domains
        if f.name == "positive definite"
        for s in f.subjects
        if isinstance(s, PatternVar)
    }
    if not params or zlib.crc32(str(case.arrays).encode()) % 2:
        return None
    arrays = {
        p: np.tril(a) + np.triu(a, 1) / 2 if p in params else a
        for p, a in case.arrays.items()
    }
    moved = replace(case, arrays=arrays)
    return moved if all(_conditions(case.rule, moved.args())) else None


def _alternatives(case: Case) -> Iterator[dict[str, Any]]:
    """The numbers of ``case``, then others, until a condition holds."""
    named = (n for v in named_numbers(case.rule).values for n in neighbours(v))
    others: dict[str, tuple[Any, ...]] = {
        "float": (*FILLS, *NUMBERS, *named),
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
    "dtypes_of",
    "inside_domain",
    "sample",
]
