"""How the type of a view or a gather follows from its argument and attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.support import DTypeError, ShapeError, at, caller_line
from eqsat.terms.term import Shape, Type
from eqsat.terms.type_rules import MAX_AXES, common, is_float, typing


@dataclass(frozen=True)
class Permuted:
    """The trailing axes in the order of ``perm``, negative axis numbers."""

    def infer(self, who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        dtype, shape = types[0]
        perm = attrs["perm"]
        n = len(perm)
        if sorted(perm) != list(range(-n, 0)) or n > len(shape):
            raise ShapeError(
                f"{who}: {perm} does not permute shape {shape}{at(caller_line())}"
            )
        return dtype, shape[: len(shape) - n] + tuple(shape[p] for p in perm)

    def egg(
        self, call: str, args: Sequence[str], attrs: Sequence[str]
    ) -> list[str] | None:
        p = attrs[0]
        rules = []
        for n in range(2, MAX_AXES):
            result = "(vec-pop " * n + "t" + ")" * n
            for i in range(n):
                result = f"(vec-push {result} (vec-get t (+ r (vec-get {p} {i}))))"
            facts = (
                f"(= t (type {args[0]})) (= {n} (vec-length {p})) (= r (vec-length t))"
            )
            rules.append(typing(call, facts + f" (> r {n})", result))
        return rules


@dataclass(frozen=True)
class Sliced:
    """The trailing axes get the sizes of the attribute ``sizes``."""

    def infer(self, who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        dtype, shape = types[0]
        sizes = attrs["sizes"]
        for a, (start, size, step) in enumerate(
            zip(attrs["starts"], sizes, attrs["steps"], strict=True), -len(sizes)
        ):
            last = start + (size - 1) * step
            if size < 0 or (
                size and not (0 <= start < shape[a] and 0 <= last < shape[a])
            ):
                raise ShapeError(
                    f"{who}: start {start}, size {size}, step {step} leave axis {a} of "
                    f"{shape}"
                    f"{at(caller_line())}"
                )
        return dtype, shape[: len(shape) - len(sizes)] + tuple(sizes)

    def egg(
        self, call: str, args: Sequence[str], attrs: Sequence[str]
    ) -> list[str] | None:
        rules = []
        for n in range(1, MAX_AXES):
            head = "(vec-pop " * n + "t" + ")" * n
            facts = (
                f"(= t (type {args[0]})) (= {n} (vec-length {attrs[1]})) "
                f"(> (vec-length t) {n})"
            )
            rules.append(typing(call, facts, f"(vec-append {head} {attrs[1]})"))
        return rules


@dataclass(frozen=True)
class ToShape:
    """The shape is the attribute ``shape``; ``dtype_attr`` names the attribute of the
    dtype."""

    dtype_attr: str | None = None
    check: Callable[[Shape, Shape], bool] = lambda old, new: True

    def infer(self, who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        shape = tuple(attrs["shape"])
        if types and not self.check(types[0][1], shape):
            raise ShapeError(
                f"{who}: shape {types[0][1]} cannot become {shape}{at(caller_line())}"
            )
        return (
            np.dtype(attrs[self.dtype_attr]) if self.dtype_attr else types[0][0]
        ), shape

    def egg(
        self, call: str, args: Sequence[str], attrs: Sequence[str]
    ) -> list[str] | None:
        if self.dtype_attr:
            result = f"(vec-append (vec-of {attrs[1]}) {attrs[0]})"
            return [typing(call, "", result)]
        facts = f"(= t (type {args[0]})) (= d (vec-get t 0))"
        return [typing(call, facts, f"(vec-append (vec-of d) {attrs[0]})")]


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """``shape`` without a negative axis."""
    return shape[:axis] + shape[len(shape) + axis + 1 :]


@dataclass(frozen=True)
class Joined:
    """Sizes along the attribute ``axis`` (negative) add up; the other axes are
    equal."""

    def infer(self, who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        axis = attrs["axis"]
        first = types[0][1]
        joins = -len(first) <= axis < 0
        rest = _without(first, axis)
        for s in {s for _, s in types}:
            if len(s) != len(first) or not joins or _without(s, axis) != rest:
                i = next(i for i, t in enumerate(types) if t[1] == s)
                raise ShapeError(
                    f"{who}: argument {i} of shape {s} does not join {first} along "
                    f"axis {axis}"
                    f"{at(caller_line())}"
                )
        total = sum(s[axis] for _, s in types)
        k = len(first) + axis
        shape = (*first[:k], total, *first[k + 1 :])
        return common(types, who), shape

    def egg(
        self, call: str, args: Sequence[str], attrs: Sequence[str]
    ) -> list[str] | None:
        facts = " ".join(f"(= t{i} (type {a}))" for i, a in enumerate(args))
        facts += f" (= k (+ (vec-length t0) {attrs[0]}))"
        total = "(vec-get t0 k)"
        for i in range(1, len(args)):
            total = f"(+ {total} (vec-get t{i} k))"
        return [typing(call, facts, f"(vec-set t0 k {total})")]


@dataclass(frozen=True)
class Padded:
    """The trailing axes grow by the attributes ``low`` and ``high``, before and
    behind."""

    def infer(self, who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        dtype, shape = types[0]
        low, high = attrs["low"], attrs["high"]
        n = len(low)
        if len(high) != n or n > len(shape) or min((*low, *high), default=0) < 0:
            raise ShapeError(
                f"{who}: {low} before and {high} behind do not pad shape {shape}"
                f"{at(caller_line())}"
            )
        if types[1][1] != ():
            raise ShapeError(
                f"{who}: argument 'value' has shape {types[1][1]}, expected one number"
                f"{at(caller_line())}"
            )
        tail = zip(low, shape[len(shape) - n :], high, strict=True)
        return dtype, shape[: len(shape) - n] + tuple(a + s + b for a, s, b in tail)

    def egg(
        self, call: str, args: Sequence[str], attrs: Sequence[str]
    ) -> list[str] | None:
        low, high = attrs
        rules = []
        for n in range(1, MAX_AXES):
            result = "t"
            for i in range(n):
                grown = f"(+ (vec-get {low} {i}) (vec-get {high} {i}))"
                at_ = f"(- r {n - i})"
                result = f"(vec-set {result} {at_} (+ (vec-get t {at_}) {grown}))"
            facts = (
                f"(= t (type {args[0]})) (= {n} (vec-length {low})) "
                "(= r (vec-length t))"
            )
            rules.append(typing(call, facts + f" (> r {n})", result))
        return rules


@dataclass(frozen=True)
class Gathered:
    """The axes of the second argument, integers, in place of the attribute ``axis``
    (negative)."""

    def infer(self, who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        (dtype, shape), (index_dtype, index_shape) = types
        axis = attrs["axis"]
        if not -len(shape) <= axis < 0:
            raise ShapeError(
                f"{who}: axis {axis} is out of bounds for shape "
                f"{shape}{at(caller_line())}"
            )
        if is_float(index_dtype):
            raise DTypeError(
                f"{who}: indices have dtype {index_dtype}, expected "
                f"integers{at(caller_line())}"
            )
        k = len(shape) + axis
        return dtype, shape[:k] + index_shape + shape[k + 1 :]

    def egg(
        self, call: str, args: Sequence[str], attrs: Sequence[str]
    ) -> list[str] | None:
        rules = []
        for n in range(1, MAX_AXES):
            head = "(vec-pop " * n + "t" + ")" * n
            result = f"(vec-append {head} (vec-remove i 0))"
            for k in range(n - 1, 0, -1):
                result = f"(vec-push {result} (vec-get t (- r {k})))"
            facts = f"(= t (type {args[0]})) (= i (type {args[1]})) (= {attrs[0]} -{n})"
            rules.append(
                typing(call, f"{facts} (= r (vec-length t)) (> r {n})", result)
            )
        return rules
