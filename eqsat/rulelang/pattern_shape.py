"""What is known of the shape and the dtype of a pattern, by the axes of its variables.

A shape is a tuple of sizes: numbers, expressions over named axes, and None for a size
that is not known. ``...`` in front stands for axes of unknown number; what follows it
is counted from the end. So ``(...,)`` says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from eqsat.rulelang.expression import Expr
from eqsat.rulelang.pattern import Num, Pattern, PatternVar
from eqsat.terms import (
    ELLIPSIS,
    Axes,
    BySignature,
    Gathered,
    Joined,
    Padded,
    Permuted,
    Pointwise,
    ReducedAxes,
    Sliced,
    ToDType,
    ToShape,
    TypeRule,
)

PatternShape = tuple[Any, ...]
UNKNOWN: PatternShape = (ELLIPSIS,)


def is_fixed(shape: PatternShape) -> bool:
    """Whether the number of axes is known."""
    return shape[:1] != UNKNOWN


def tail_of(shape: PatternShape) -> PatternShape:
    """The sizes that are counted from the end: all where there is no ``...``."""
    return shape if is_fixed(shape) else shape[1:]


@cache
def shape_of(pattern: Pattern) -> PatternShape:
    """What is known of the shape of a pattern."""
    if isinstance(pattern, Num):
        return ()
    if isinstance(pattern, PatternVar):
        return _of_axes(pattern.axes)
    rule: TypeRule = pattern.op.type_rule
    if isinstance(inner := getattr(rule, "rule", None), BySignature):
        rule = inner
    attrs = dict(zip(pattern.op.attrs, pattern.attrs, strict=True))
    shapes = [shape_of(a) for a in pattern.args]
    if isinstance(rule, Pointwise):
        return joint(shapes)
    if isinstance(rule, BySignature):
        return _by_signature(rule, shapes)
    if isinstance(rule, ToDType):
        return shapes[0]
    if isinstance(rule, ReducedAxes):
        return _reduced(shapes[0], attrs["axis"])
    if isinstance(rule, ToShape):
        return attrs["shape"] if isinstance(attrs["shape"], tuple) else UNKNOWN
    return _of_view(rule, shapes, attrs)


def _of_axes(axes: Axes) -> PatternShape:
    tokens = (ELLIPSIS, *axes.after) if axes.variadic else axes.tokens
    return tuple(a if a == ELLIPSIS or isinstance(a, int) else Expr(a) for a in tokens)


def joint(shapes: Sequence[PatternShape]) -> PatternShape:
    """The shape that some broadcast to."""
    fixed = all(map(is_fixed, shapes))
    tails = [tail_of(s) for s in shapes]
    n = max(map(len, tails), default=0)
    places = [
        _met([_size(s, a) for s in shapes if a >= -len(tail_of(s)) or not is_fixed(s)])
        for a in range(-n, 0)
    ]
    return tuple(places) if fixed else (ELLIPSIS, *places)


def _size(shape: PatternShape, axis: int) -> Any:
    """The size of an axis counted from the end; None where it is not known."""
    tail = tail_of(shape)
    return tail[axis] if axis >= -len(tail) else None


def _met(sizes: Sequence[Any]) -> Any:
    """The size of an axis where axes of these sizes meet."""
    long = [s for s in sizes if s != 1]
    first = next((s for s in long if isinstance(s, int)), long[0] if long else 1)
    return first if isinstance(first, int) or all(s == first for s in long) else None


def _by_signature(rule: BySignature, shapes: Sequence[PatternShape]) -> PatternShape:
    bound: dict[str, Any] = {}
    lead: list[PatternShape] = []
    for axes, shape in zip(rule.signature.inputs, shapes, strict=True):
        names = axes.after if axes.variadic else axes.tokens
        for a, name in enumerate(names, -len(names)):
            if isinstance(name, str):
                found = _size(shape, a)
                bound[name] = found if bound.get(name) is None else bound[name]
        if axes.variadic:
            tail = tail_of(shape)
            rest = tail[: max(len(tail) - len(names), 0)]
            lead.append(rest if is_fixed(shape) else (ELLIPSIS, *rest))
    out = rule.signature.outputs[0]
    first = joint(lead) if out.variadic else ()
    rest = out.after if out.variadic else out.tokens
    return (*first, *(a if isinstance(a, int) else bound.get(a) for a in rest))


def _grown(shape: PatternShape, n: int) -> list[Any]:
    """The last ``n`` sizes, and those before that are known."""
    tail = tail_of(shape)
    return [*[None] * (n - len(tail)), *tail]


def _back(shape: PatternShape, sizes: Sequence[Any]) -> PatternShape:
    return tuple(sizes) if is_fixed(shape) else (ELLIPSIS, *sizes)


def _reduced(shape: PatternShape, axis: Any) -> PatternShape:
    if isinstance(axis, Expr):
        return _back(shape, [None for _ in tail_of(shape)])
    sizes = _grown(shape, -min(axis, default=0))
    for a in axis:
        sizes[a] = 1
    return _back(shape, sizes)


def _of_view(
    rule: TypeRule, shapes: Sequence[PatternShape], attrs: dict[str, Any]
) -> PatternShape:
    """The shape of what moves elements; of other ops nothing is known."""
    known = all(isinstance(v, tuple | int) for v in attrs.values())
    if not known and isinstance(rule, Permuted | Sliced | Padded | Joined):
        return _back(shapes[0], [None for _ in tail_of(shapes[0])])
    if isinstance(rule, Permuted):
        perm = attrs["perm"]
        sizes = _grown(shapes[0], len(perm))
        moved = [None if isinstance(p, Expr) else sizes[p] for p in perm]
        return _back(shapes[0], [*sizes[: len(sizes) - len(perm)], *moved])
    if isinstance(rule, Sliced):
        sizes = _grown(shapes[0], len(attrs["sizes"]))
        return _back(shapes[0], [*sizes[: -len(attrs["sizes"])], *attrs["sizes"]])
    if isinstance(rule, Padded):
        sizes = _grown(shapes[0], len(attrs["low"]))
        for a, more in enumerate(
            zip(attrs["low"], attrs["high"], strict=True), -len(attrs["low"])
        ):
            sizes[a] = None if sizes[a] is None else sizes[a] + more[0] + more[1]
        return _back(shapes[0], sizes)
    if isinstance(rule, Joined):
        return _joined(shapes, attrs["axis"])
    if isinstance(rule, Gathered) and known:
        return _gathered(shapes[0], shapes[1], attrs["axis"])
    return UNKNOWN


def _joined(shapes: Sequence[PatternShape], axis: int) -> PatternShape:
    like = next((s for s in shapes if is_fixed(s)), shapes[0])
    n = max(len(tail_of(s)) for s in shapes)
    sizes = [
        next((s for s in (_size(s, a) for s in shapes) if s is not None), None)
        for a in range(-max(n, -axis), 0)
    ]
    parts = [_size(s, axis) for s in shapes]
    sizes[axis] = None if None in parts else sum(parts[1:], start=parts[0])
    return _back(like, sizes)


def _gathered(x: PatternShape, places: PatternShape, axis: int) -> PatternShape:
    sizes = _grown(x, -axis)
    behind = sizes[len(sizes) + axis + 1 :]
    if not is_fixed(places):
        return (ELLIPSIS, *tail_of(places), *behind)
    return _back(x, [*sizes[: len(sizes) + axis], *places, *behind])


# -- dtypes ----------------------------------------------------------------------------


@cache
def dtype_of_pattern(pattern: Pattern) -> Any:
    """The dtype of a pattern: one of NumPy's, the expression that is the dtype of a
    variable, or None for a bare number and where nothing is known."""
    if isinstance(pattern, Num):
        return None
    if isinstance(pattern, PatternVar):
        if pattern.dtype not in ("any", "float"):
            return np.dtype(pattern.dtype)
        return Expr(f"{pattern.name}.dtype", (), "dtype")
    rule = pattern.op.type_rule
    fixed = getattr(rule, "dtype", None)
    if fixed is not None:
        return fixed
    if "dtype" in pattern.op.attrs:
        given = dict(zip(pattern.op.attrs, pattern.attrs, strict=True))["dtype"]
        return given if isinstance(given, Expr) else np.dtype(given)
    own = pattern.op.own | ({0} if getattr(rule, "mask", False) else set())
    args = pattern.args[:1] if pattern.op.promotion == "first" else pattern.args
    found = (dtype_of_pattern(a) for i, a in enumerate(args) if i not in own)
    return next((d for d in found if d is not None), None)
