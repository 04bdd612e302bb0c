"""Which classes of arguments a rule admits, and which of them a case is in.

A class is a few words that a report can show: ``m < n``, ``x has fewer axes``, ``p
permutes 3 axes``, ``int8``, ``NaN in x``. What a rule admits follows from its
signature, its parameters and the ops that take them. A verdict is as good as the
classes that its cases reached.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.checking.draws.cases import SPECIAL, Case, dtypes_of, loose
from eqsat.checking.draws.rule_attributes import roles
from eqsat.checking.draws.rule_shapes import named_axes
from eqsat.checking.draws.sample_arrays import LIMIT, Shape
from eqsat.rulelang import PatternNode, Rule
from eqsat.support import Array
from eqsat.terms import broadcast

Key = frozenset[str]
MOST_CASES = 60
TRIES = 15
"""Draws of a class after which it counts as outside the rule's domain when its left
side, or its conditions, had no use for any of them."""


@dataclass
class Coverage:
    """The classes that a rule admits, and what became of the draws of each."""

    rule: Rule
    admitted: frozenset[str] = field(init=False)
    drawn: Counter[str] = field(default_factory=Counter)
    reached: set[str] = field(default_factory=set)
    cases: int = 0
    """Those whose left side had a value."""
    shapes: dict[Key, Case] = field(default_factory=dict)
    """The smallest case for each set of classes of shapes and attributes."""

    def __post_init__(self) -> None:
        self.admitted = frozenset(admitted(self.rule))

    def note(self, classes: frozenset[str]) -> None:
        """A case of these classes was drawn."""
        self.drawn.update(classes & self.admitted)

    def reach(self, case: Case, classes: frozenset[str]) -> None:
        """The left side had a value for a case of these classes."""
        self.cases += 1
        self.reached |= classes & self.admitted
        key = frozenset(c for c in classes & self.admitted if " in " not in c)
        if key not in self.shapes or _size(case) < _size(self.shapes[key]):
            self.shapes[key] = case

    @property
    def spanning(self) -> list[Case]:
        """Small cases that together are in all classes of shapes and attributes, and in
        all pairs of these that were met."""
        found: list[Case] = []
        left = {pair for key in self.shapes for pair in _pairs_of(key)}
        for key in sorted(self.shapes, key=lambda k: _size(self.shapes[k])):
            new = left & _pairs_of(key)
            if new and len(found) < MOST_CASES:
                left -= new
                found.append(self.shapes[key])
        return found

    @property
    def wanted(self) -> frozenset[str]:
        """Classes that no case reached, and that may still be in the domain."""
        open_ = self.admitted - self.reached
        return frozenset(c for c in open_ if self.drawn[c] < _tries(c))

    @property
    def outside(self) -> tuple[str, ...]:
        """Classes of which many draws were made, all outside the rule's domain."""
        return tuple(sorted(self.admitted - self.reached - self.wanted))


def _tries(name: str) -> int:
    """The draws after which a class counts as outside. Conditions change values on
    purpose, so a few tell."""
    return 4 if " in " in name or name.startswith("all ") else TRIES


def _size(case: Case) -> int:
    return sum(a.size for a in case.arrays.values())


def _pairs_of(key: Key) -> set[tuple[str, str]]:
    return set(itertools.combinations_with_replacement(sorted(key), 2))


# -- what a rule admits ----------------------------------------------------------------


def admitted(rule: Rule) -> Iterator[str]:
    """The classes that the signature and the parameters of ``rule`` admit."""
    open_ = _variadic(rule)
    if open_:
        yield from (f"... of {n}" for n in ("0 axes", "1 axis", "2 axes", "3 axes"))
        yield from ("... of 4 axes or more", "a ... axis of 0", "a ... axis of 1")
    if len(open_) > 1:
        for p in open_:
            yield from (f"{p} has fewer axes", f"{p} is stretched")
    names = named_axes(rule)
    for n in names:
        yield from (f"{n} = 0", f"{n} = 1", f"{n} > 1")
    for a, b in _pairs(names):
        yield from (f"{a} < {b}", f"{a} = {b}", f"{a} > {b}")
    for p, kind in rule.numbers.items():
        yield from _of_number(rule, p, kind)
    yield from _of_pairs(rule)
    yield from _of_dtypes(rule)


def _of_pairs(rule: Rule) -> Iterator[str]:
    """Two parameters at once that are no special case of what they stand for."""
    plain = [f"{p} {how}" for p, how in _generic(rule) if how]
    yield from (" and ".join(pair) for pair in itertools.combinations(plain, 2))


def _generic(rule: Rule) -> Iterator[tuple[str, str]]:
    for p, kind in rule.numbers.items():
        if kind != "float":
            role = _role(rule, p)[0]
            yield p, "> 1" if kind == "int" else GENERIC.get(role, "")


GENERIC = {
    "axes": "is another axis",
    "one axis": "is another axis",
    "perm": "is not its own inverse",
    "starts": "starts inside",
    "sizes": "of 2 or more",
    "steps": "of 2 or more",
    "low": "of 2 or more",
    "high": "of 2 or more",
    "stride": "of 2 or more",
    "padding": "of 1",
    "dilation": "of 2 or more",
}
"""For each kind of attribute the class that is no special case."""


def _variadic(rule: Rule) -> list[str]:
    pairs = zip(rule.tensors, rule.signature.inputs, strict=True)
    return [p for p, axes in pairs if axes.variadic]


def _pairs(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs of axes; of many axes neighbours only."""
    if len(names) <= 4:
        return iter(itertools.combinations(names, 2))
    return itertools.pairwise(names)


def _of_number(rule: Rule, p: str, kind: str) -> Iterator[str]:
    if kind == "float":
        for how in ("= 0", "= 1", "< 0", "> 0", "= ∞", "= -∞", "is NaN", "is huge"):
            yield f"{p} {how}"
        return
    role, limit = _role(rule, p)
    if kind == "int":
        axis = ("= -1", "= -2", "= -3")
        yield from (f"{p} {n}" for n in (axis if role == "axis" else INTEGER))
        return
    for words, least in CLASSES.get(role, CLASSES["axes"]):
        if limit is None or least <= limit:
            yield f"{p} {words}"


def _role(rule: Rule, p: str) -> tuple[str, int | None]:
    """What an attribute is for, and the rank of its operand where it is known."""
    found = roles(rule).get(p)
    if found is None:
        return "axes", None
    node, attr = found
    role = node.op.name if attr == "shape" else attr
    if role == "axis" and rule.numbers[p] != "int":
        role = "one axis" if node.op.name in ONE_AXIS else "axes"
    known = role in CLASSES or role == "axis"
    return role if known else "axes", _fixed_rank(rule, node)


def _fixed_rank(rule: Rule, node: PatternNode) -> int | None:
    """A bound on the rank of the first argument where no array has ``...``."""
    if _variadic(rule) or len(node.args) < 1:
        return None
    return max((axes.rank for axes in rule.signature.inputs), default=0)


INTEGER = ("= 0", "= 1", "> 1")
ONE_AXIS = ("argmax", "argmin", "sort", "argsort", "accumulate")
CLASSES: dict[str, tuple[tuple[str, int], ...]] = {
    "axes": (
        ("is the last axis", 1),
        ("is another axis", 2),
        ("is all axes", 1),
        ("is several axes, not all", 3),
    ),
    "one axis": (("is the last axis", 1), ("is another axis", 2)),
    "perm": (
        ("permutes 2 axes", 2),
        ("permutes 3 axes", 3),
        ("permutes 4 axes or more", 4),
        ("is its own inverse", 2),
        ("is not its own inverse", 3),
        ("has a cycle of 4", 4),
    ),
    "starts": (("starts at 0", 1), ("starts inside", 1), ("has several entries", 2)),
    "sizes": (("of 0", 1), ("of 1", 1), ("of 2 or more", 1)),
    "steps": (("of 1", 1), ("of 2 or more", 1), ("of -1", 1), ("of -2 or less", 1)),
    "low": (("of 0", 1), ("of 1", 1), ("of 2 or more", 1), ("has several entries", 2)),
    "high": (("of 0", 1), ("of 1", 1), ("of 2 or more", 1), ("has several entries", 2)),
    "reshape": (
        ("keeps the shape", 1),
        ("merges axes", 2),
        ("splits an axis", 1),
        ("adds an axis of 1", 0),
        ("exchanges sizes", 2),
    ),
    "broadcast_to": (("keeps the shape", 0), ("adds axes", 0), ("stretches", 1)),
    "stride": (("of 1", 1), ("of 2 or more", 1), ("of unequal entries", 2)),
    "padding": (("of 0", 1), ("of 1", 1), ("of unequal entries", 2)),
    "dilation": (("of 1", 1), ("of 2 or more", 1), ("of unequal entries", 2)),
}
"""For each kind of attribute its classes, each with the least rank that has it."""


def _of_dtypes(rule: Rule) -> Iterator[str]:
    arrays = [p for p in rule.tensors if p not in rule.masks]
    if not arrays:
        return
    dtypes = dtypes_of(rule)
    yield from map(str, dtypes)
    if loose(rule):
        yield "an array of another dtype"
    kinds = {k for d in dtypes for k in SPECIAL.get(d, ())}
    for p, axes in zip(rule.tensors, rule.signature.inputs, strict=True):
        if p in arrays:
            several = kinds if axes.tokens else kinds - {*MIXED}
            yield from (f"{k} in {p}" for k in several)
        if p in arrays and axes.tokens and "NaN" in kinds:
            yield from (f"{k} among plain numbers in {p}" for k in AMONG)
    if len(arrays) > 1:
        yield from (f"all {k}" for k in TOGETHER if k in kinds)


AMONG = ("NaN", "an infinity")
"""Values that stand in one array among numbers of the working range."""
MIXED = ("infinities", "poles", "beside 1", "near the end", "both ends")
TOGETHER = ("NaN", "∞", "-∞", "0", "-0", "least", "greatest", *MIXED)
"""Special values that all arrays hold at once, in every element: an infinity beside an
equal one or beside 0, numbers that are nearly equal. Of the last, several."""


# -- what a case is in -----------------------------------------------------------------


def classes(case: Case) -> frozenset[str]:
    """The classes that ``case`` is in."""
    rule = case.rule
    shapes = {p: a.shape for p, a in case.arrays.items()}
    found = {*_of_batch(rule, shapes), *_of_sizes(rule, shapes)}
    for p, value in case.numbers.items():
        found |= {f"{p} {how}" for how in _number_classes(rule, p, value, shapes)}
    found |= {c for c in _of_pairs(rule) if set(c.split(" and ")) <= found}
    arrays = [p for p in rule.tensors if p not in rule.masks]
    found.add("an array of another dtype" if case.others else str(case.dtype))
    held = [_Numbers(p, case.rounded(p)) for p in arrays]
    for h in held:
        found |= {f"{k} in {h.param}" for k in _kinds(h)}
    found |= {*_among_plain(case, held)}
    if len(held) > 1:
        found |= {f"all {k}" for k in TOGETHER if _all_are(held, k)}
    return frozenset(found)


class _Numbers:
    """An array, and the numbers that it holds, each once: the arrays are small."""

    def __init__(self, param: str, array: Array) -> None:
        self.param, self.array = param, array
        self.is_float = array.dtype.kind not in "biu"
        x = array.astype(float) if self.is_float else array
        self.values: frozenset[float] = frozenset(x.ravel().tolist())

    def has_0(self, minus: bool) -> bool:
        """Whether 0, or -0, is among the numbers."""
        if 0 not in self.values:
            return False
        zero, is_minus = self.array == 0, np.signbit(self.array.astype(float))
        return bool((zero & (is_minus == minus)).any())


def _of_batch(rule: Rule, shapes: dict[str, Shape]) -> Iterator[str]:
    own: dict[str, Shape] = {}
    for p, axes in zip(rule.tensors, rule.signature.inputs, strict=True):
        if axes.variadic:
            shape = shapes[p]
            own[p] = shape[len(axes.before) : len(shape) - len(axes.after)]
    if not own:
        return
    whole: Shape = ()
    for s in own.values():
        whole = broadcast(whole, s) or whole
    n = len(whole)
    words = ("0 axes", "1 axis", "2 axes", "3 axes", "4 axes or more")
    yield f"... of {words[min(n, 4)]}"
    if len(own) == 1 or n:
        yield from (f"a ... axis of {k}" for k in (0, 1) if k in whole)
    for p, s in own.items():
        if len(s) < n:
            yield f"{p} has fewer axes"
        if any(a == 1 != b for a, b in zip(s, whole[n - len(s) :], strict=True)):
            yield f"{p} is stretched"


def _of_sizes(rule: Rule, shapes: dict[str, Shape]) -> Iterator[str]:
    size: dict[str, int] = {}
    for p, axes in zip(rule.tensors, rule.signature.inputs, strict=True):
        shape, at = shapes[p], len(axes.before)
        tail = axes.after if axes.variadic else ()
        pairs = zip(axes.before, shape[:at], strict=True)
        ends = zip(tail, shape[len(shape) - len(tail) :], strict=True)
        size |= {str(a): n for a, n in (*pairs, *ends)}
    names = named_axes(rule)
    for n in names:
        yield f"{n} {('= 0', '= 1', '> 1')[min(size[n], 2)]}"
    for a, b in _pairs(names):
        order = (size[a] > size[b]) - (size[a] < size[b])
        yield f"{a} {'=><'[order]} {b}"


def _number_classes(
    rule: Rule, p: str, value: Any, shapes: dict[str, Shape]
) -> Iterator[str]:
    kind = rule.numbers[p]
    if kind == "int":
        yield f"= {value}" if value < 2 else "> 1"
    elif kind == "float":
        yield from _float_classes(value)
    else:
        rank = max(map(len, shapes.values()), default=0)
        yield from _attribute_classes(_role(rule, p)[0], value, shapes, rank)


def _float_classes(v: float) -> Iterator[str]:
    if math.isnan(v):
        yield "is NaN"
    elif math.isinf(v):
        yield "= ∞" if v > 0 else "= -∞"
    elif v in (0, 1):
        yield f"= {v:g}"
    elif abs(v) > 1e6:
        yield "is huge"
    if math.isfinite(v) and v:
        yield "< 0" if v < 0 else "> 0"


def _attribute_classes(
    role: str, value: tuple[int, ...], shapes: dict[str, Shape], rank: int
) -> Iterator[str]:
    n, entries = len(value), set(value)
    if role in ("axes", "one axis"):
        if value == (-1,):
            yield "is the last axis"
        elif n == 1:
            yield "is another axis"
        if n == rank:
            yield "is all axes"
        elif n > 1:
            yield "is several axes, not all"
    elif role == "perm":
        yield from _permutation_classes(value)
    elif role == "reshape":
        yield from _reshape_classes(value, shapes)
    elif role == "broadcast_to":
        old = max(shapes.values(), key=len, default=())
        yield from (["keeps the shape"] if value == old else [])
        yield from (["adds axes"] if n > len(old) else [])
        yield from (["stretches"] if 1 in old and value[n - len(old) :] != old else [])
    else:
        words = {0: "of 0", 1: "of 1", -1: "of -1"}
        for v in entries:
            yield words.get(v, "of 2 or more" if v > 0 else "of -2 or less")
        if role == "starts":
            yield from (["starts at 0"] if 0 in entries else [])
            yield from (["starts inside"] if entries - {0} else [])
        if n > 1:
            yield "has several entries"
        if len(entries) > 1:
            yield "of unequal entries"


def _permutation_classes(perm: tuple[int, ...]) -> Iterator[str]:
    n = len(perm)
    moved = sum(a != i for i, a in enumerate(perm, -n))
    if not moved:
        return
    yield f"permutes {n if n < 4 else '4'} axes{' or more' if n > 3 else ''}"
    own = all(perm[perm[i] + n] == i - n for i in range(n))
    yield "is its own inverse" if own else "is not its own inverse"
    for start in range(n):
        length, at = 1, perm[start] + n
        while at != start and length <= n:
            length, at = length + 1, perm[at] + n
        if length == 4:
            yield "has a cycle of 4"


def _reshape_classes(value: Shape, shapes: dict[str, Shape]) -> Iterator[str]:
    for old in shapes.values():
        if math.prod(old) != math.prod(value):
            continue
        if value == old:
            yield "keeps the shape"
        elif sorted(value) == sorted(old):
            yield "exchanges sizes"
        kept = [n for n in value if n != 1], [n for n in old if n != 1]
        if value.count(1) > old.count(1):
            yield "adds an axis of 1"
        if len(kept[0]) < len(kept[1]):
            yield "merges axes"
        elif len(kept[0]) > len(kept[1]):
            yield "splits an axis"


def _among_plain(case: Case, held: Sequence[_Numbers]) -> Iterator[str]:
    """The arrays that alone hold NaN, or infinities, among plain numbers."""
    limit = LIMIT[case.narrowest]
    floats = {h.param: h.values for h in held if h.is_float}
    odd = {p: [v for v in vs if not math.isfinite(v)] for p, vs in floats.items()}
    if sum(map(bool, odd.values())) != 1:
        return
    if any(limit < abs(v) < math.inf for vs in floats.values() for v in vs):
        return
    (p,) = (p for p, those in odd.items() if those)
    nan = [math.isnan(v) for v in odd[p]]
    if len(odd[p]) < len(floats[p]) and (all(nan) or not any(nan)):
        yield f"{AMONG[0 if all(nan) else 1]} among plain numbers in {p}"


def _all_are(held: Sequence[_Numbers], kind: str) -> bool:
    """Whether all elements of some arrays are special values of a kind."""
    met: set[float] = set()
    for h in held:
        values = SPECIAL.get(h.array.dtype, {}).get(kind)
        if values is None or not h.values:
            return False
        if kind == "NaN":
            if not all(map(math.isnan, h.values)):
                return False
        elif not h.values <= {*values}:
            return False
        if h.is_float and kind in ("0", "-0") and h.has_0(minus=kind == "0"):
            return False
        met |= h.values
    return kind not in MIXED or len(met) > 1


def _kinds(held: _Numbers) -> Iterator[str]:
    """The classes of special values that an array holds."""
    known, values = SPECIAL.get(held.array.dtype), held.values
    if known is None or not values:
        return
    if not held.is_float:
        yield from (k for k, vs in known.items() if not values.isdisjoint(vs))
        return
    tiny = known["denormal"][0]
    is_f8 = held.array.dtype == np.float64
    smallest = tiny / float(np.finfo(np.float64).eps) if is_f8 else 0
    size = {abs(v) for v in values}
    infinite = {v for v in values if math.isinf(v)}
    yield from (["NaN"] if any(map(math.isnan, values)) else [])
    yield from (["∞"] if math.inf in infinite else [])
    yield from (["-∞"] if -math.inf in infinite else [])
    yield from (["infinities"] if len(infinite) == 2 else [])
    yield from (["poles"] if infinite and 0 in values else [])
    yield from (["0"] if held.has_0(minus=False) else [])
    yield from (["-0"] if held.has_0(minus=True) else [])
    least = max(16 * tiny, smallest)
    yield from (["denormal"] if any(0 < v < least for v in size) else [])
    yield from (["huge"] if not size.isdisjoint(map(abs, known["huge"])) else [])
    yield from (["half"] if any(v % 1 == 0.5 for v in size) else [])
    yield from (["whole"] if any(v and v % 1 == 0 for v in size) else [])
    yield from (["beside 1"] if not values.isdisjoint(known["beside 1"]) else [])


__all__ = ["Coverage", "admitted", "classes"]
