"""Attributes of a rule: axes, permutations, shapes and slices that fit the array that
the op takes them of.

The array may be a whole expression: its shape is that of the term which the pattern
makes of the shapes drawn so far. Attributes have one entry or several, of either sign,
at the ends and in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eqsat.checking.draws.rule_shapes import Random
from eqsat.checking.draws.sample_arrays import Shape
from eqsat.rulelang import Expr, PatternNode, PatternVar, Rule, instantiate, nodes
from eqsat.support import EqsatError

INTEGERS = (1, 2, 3, 1, 2, 4, 6, 0, -1)
"""Integers that are no axis, as often as they are drawn."""
Ints = tuple[int, ...]


def integers(rule: Rule, rng: Random) -> dict[str, int]:
    """The parameters of ``rule`` that are integers; an axis is drawn among three."""
    axes = {p for p, (_, attr) in roles(rule).items() if attr == "axis"}
    return {
        p: -int(rng.integers(1, 4)) if p in axes else int(rng.choice(INTEGERS))
        for p, kind in rule.numbers.items()
        if kind == "int"
    }


def roles(rule: Rule) -> dict[str, tuple[PatternNode, str]]:
    """For each parameter that is an attribute: the first node that takes it, arguments
    first, and the name of the attribute."""
    found: dict[str, tuple[PatternNode, str]] = {}
    for side in rule.left:
        for p in nodes(side):
            if isinstance(p, PatternNode):
                for attr, value in zip(p.op.attrs, p.attrs, strict=True):
                    for v in value if isinstance(value, tuple) else (value,):
                        if isinstance(v, Expr) and v.head in rule.numbers:
                            found.setdefault(v.head, (p, attr))
    return found


def draw_attributes(
    rule: Rule, rng: Random, shapes: Mapping[str, Shape], numbers: Mapping[str, Any]
) -> dict[str, Ints]:
    """Values of the parameters of ``rule`` that hold several integers."""
    wanted = [p for p, kind in rule.numbers.items() if kind == "ints"]
    single = [p for p, kind in rule.numbers.items() if kind == "int"]
    found: dict[str, Any] = {}
    for node, _ in roles(rule).values():
        given = dict(zip(node.op.attrs, node.attrs, strict=True))
        open_ = {a: v.head for a, v in given.items() if _is_open(v, wanted, found)}
        entries = [
            (a, i, v.head)
            for a, values in given.items()
            if isinstance(values, tuple) and node.op.name in DRAWN
            for i, v in enumerate(values)
            if _is_open(v, single, found)
        ]
        if not open_ and not entries:
            continue
        shape = operand_shape(rule, node, shapes, {**numbers, **found})
        made = DRAWN.get(node.op.name, _axes)(rng, shape, _lengths(given, found))
        parts = made if isinstance(made, dict) else dict.fromkeys(given, made)
        found |= {param: parts[a] for a, param in open_.items()}
        found |= {p: parts[a][i] for a, i, p in entries if i < len(parts[a])}
    shape = max(shapes.values(), key=len, default=())
    return {p: _axes(rng, shape, None) for p in wanted if p not in found} | found


def _is_open(value: Any, wanted: list[str], found: Mapping[str, Any]) -> bool:
    return isinstance(value, Expr) and value.head in wanted and value.head not in found


def _lengths(given: Mapping[str, Any], found: Mapping[str, Any]) -> int | None:
    """How many entries the attributes of one op have where one of them is known."""
    for v in given.values():
        known = found.get(v.head) if isinstance(v, Expr) else v
        if isinstance(known, tuple):
            return len(known)
    return None


def operand_shape(
    rule: Rule, node: PatternNode, shapes: Mapping[str, Shape], numbers: Any
) -> Shape:
    """The shape of the first argument of ``node``; that of the first array where the
    argument is not defined."""
    first = node.args[0]
    if isinstance(first, PatternVar):
        return shapes[first.name]
    dtype = rule.dtype or np.dtype("i8" if rule.dtypes == "any" else "f8")
    args = [
        (
            numbers.get(p, ())
            if p in rule.numbers
            else np.broadcast_to(
                np.zeros((), bool if p in rule.masks else dtype), shapes[p]
            )
        )
        for p in rule.params
    ]
    try:
        return instantiate(rule, [first], args)[0].shape
    except (EqsatError, ValueError, TypeError, IndexError, ZeroDivisionError):
        return next((s for s in shapes.values() if s), ())


# -- by op -----------------------------------------------------------------------------


def _count(rng: Random, shape: Shape, length: int | None) -> int:
    """How many trailing axes an attribute speaks of: one at least."""
    most = max(len(shape), 1)
    return min(
        most, int(rng.integers(1, min(most, 4) + 1)) if length is None else length
    )


def _axes(rng: Random, shape: Shape, length: int | None) -> Ints:
    """A set of one axis or several."""
    n = max(len(shape), 1)
    k = 1 if rng.integers(2) else _count(rng, shape, length)
    return tuple(sorted(int(a) - n for a in rng.permutation(n)[:k]))


def _permutation(rng: Random, shape: Shape, length: int | None) -> Ints:
    most = len(shape)
    n = int(rng.integers(0, most + 1)) if length is None else length
    n = most if n < 2 else n
    return tuple(int(a) - n for a in rng.permutation(n))


def _new_shape(rng: Random, shape: Shape, length: int | None) -> Ints:
    """A shape of as many elements: axes merged, split, added, exchanged or kept."""
    made = list(shape)
    for _ in range(int(rng.integers(0, 4))):
        how, n = int(rng.integers(4)), len(made)
        at = int(rng.integers(n)) if n else 0
        if how == 0 and n > 1 and at:
            made[at - 1 : at + 1] = [made[at - 1] * made[at]]
        elif how == 1 and n and made[at] > 3:
            parts = [d for d in range(2, made[at]) if made[at] % d == 0]
            if parts:
                d = int(rng.choice(parts))
                made[at : at + 1] = [d, made[at] // d]
        elif how == 2 and n < 7:
            made.insert(at, 1)
        elif n:
            made = [made[int(i)] for i in rng.permutation(n)]
    return (math.prod(shape),) if rng.integers(6) == 0 else tuple(made)


def _broadcast_shape(rng: Random, shape: Shape, length: int | None) -> Ints:
    made = [n if n != 1 or rng.integers(2) else int(rng.integers(1, 4)) for n in shape]
    more = [int(n) for n in rng.integers(1, 4, int(rng.integers(0, 3)))]
    return (*more, *made)


def _slices(rng: Random, shape: Shape, length: int | None) -> dict[str, Ints]:
    """Parts of the trailing axes: whole, at either end, of steps of either sign."""
    k = _count(rng, shape, length)
    rows = [_slice(rng, n) for n in (shape or (1,))[-k:]]
    starts, sizes, steps = (
        tuple(int(v) for v in col) for col in zip(*rows, strict=True)
    )
    return {"starts": starts, "sizes": sizes, "steps": steps}


def _slice(rng: Random, n: int) -> tuple[int, int, int]:
    if not n or rng.integers(12) == 0:
        return 0, 0, 1
    if rng.integers(8) == 0:
        return 0, n, 1
    step = int(rng.choice((1, 1, 2, 2, 3, -1, -2)))
    room = (n - 1) // abs(step) + 1
    size = int(rng.integers(1, room + 1))
    slack = n - 1 - (size - 1) * abs(step)
    low = int(rng.choice((0, slack, rng.integers(slack + 1))))
    return (low if step > 0 else low + (size - 1) * -step), size, step


def _pads(rng: Random, shape: Shape, length: int | None) -> dict[str, Ints]:
    k = _count(rng, shape, length)
    return {a: tuple(map(int, rng.integers(0, 4, k))) for a in ("low", "high")}


def _strides(rng: Random, shape: Shape, length: int | None) -> dict[str, Ints]:
    least = {"stride": 1, "padding": 0, "dilation": 1}
    return {a: tuple(map(int, rng.integers(n, 3, 2))) for a, n in least.items()}


DRAWN: dict[str, Callable[[Random, Shape, int | None], Any]] = {
    "transpose": _permutation,
    "reshape": _new_shape,
    "broadcast_to": _broadcast_shape,
    "slice": _slices,
    "pad": _pads,
    "conv2d": _strides,
    "conv2d_act": _strides,
    "argmax": lambda rng, shape, length: _axes(rng, shape, length)[:1],
    "argmin": lambda rng, shape, length: _axes(rng, shape, length)[:1],
    "sort": lambda rng, shape, length: _axes(rng, shape, length)[:1],
    "argsort": lambda rng, shape, length: _axes(rng, shape, length)[:1],
    "accumulate": lambda rng, shape, length: _axes(rng, shape, length)[:1],
}
"""Attributes that are no set of axes, by op: one value, or one for each attribute."""
