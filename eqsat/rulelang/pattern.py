"""Patterns: what a rule's function builds when it is called with pattern variables.

A pattern is a term whose leaves are variables of unknown rank. The same function that
computes on arrays builds it, because pattern values carry the same operators as traced
arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from eqsat.numpy_api import Operators
from eqsat.support import RuleError
from eqsat.terms import BOOL, ELLIPSIS, AttrVar, Axes, DType, Op, is_float

Number = int | float


@dataclass(frozen=True)
class Expr(AttrVar):
    """Arithmetic over axis sizes and number parameters: ``name``, ``a*b``, ``1.0/n``.

    ``kind`` is ``int``, ``float`` or ``ints`` (a whole tuple-valued attribute).
    """

    head: str
    args: tuple[Expr | Number, ...] = ()
    kind: str = "int"

    def _join(self, op: str, a: Any, b: Any) -> Any:
        if isinstance(a, PatternValue) or isinstance(b, PatternValue):
            return NotImplemented
        kinds = {x.kind if isinstance(x, Expr) else type(x).__name__ for x in (a, b)}
        if "ints" in kinds:
            raise RuleError(
                f"{self}: a tuple parameter has no arithmetic; use a helper"
            )
        kind = "float" if "float" in kinds or op == "/" else "int"
        return Expr(op, (a, b), kind)

    def __add__(self, o: Any) -> Any:
        return self._join("+", self, o)

    def __radd__(self, o: Any) -> Any:
        return self._join("+", o, self)

    def __sub__(self, o: Any) -> Any:
        return self._join("-", self, o)

    def __rsub__(self, o: Any) -> Any:
        return self._join("-", o, self)

    def __mul__(self, o: Any) -> Any:
        return self._join("*", self, o)

    def __rmul__(self, o: Any) -> Any:
        return self._join("*", o, self)

    def __truediv__(self, o: Any) -> Any:
        return self._join("/", self, o)

    def __rtruediv__(self, o: Any) -> Any:
        return self._join("/", o, self)

    def __floordiv__(self, o: Any) -> Any:
        return self._join("//", self, o)

    def __neg__(self) -> Expr:
        return Expr("-", (-0.0 if self.kind == "float" else 0, self), self.kind)

    def __index__(self) -> int:
        raise RuleError(
            f"the size {self} of a pattern is not known when the rule is built"
        )

    @property
    def names(self) -> frozenset[str]:
        """The variables in this expression."""
        if not self.args:
            return frozenset([self.head])
        return frozenset().union(*(a.names for a in self.args if isinstance(a, Expr)))

    def value(self, bound: Mapping[str, Number]) -> Number:
        """The number this stands for under ``bound``."""
        if not self.args:
            return bound[self.head]
        a, b = (x.value(bound) if isinstance(x, Expr) else x for x in self.args)
        return ARITHMETIC[self.head](a, b)

    def __str__(self) -> str:
        if not self.args:
            return self.head
        a, b = self.args
        return f"{a}[{b}]" if self.head == "entry" else f"({a} {self.head} {b})"


ARITHMETIC: dict[str, Callable[[Any, Any], Number]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "entry": lambda a, b: a[b],
}


def solve(e: Expr, name: str, value: Expr) -> Expr | None:
    """What ``name`` is where ``e`` is ``value``: of ``1.0 / a`` = k, a = ``1.0 / k``.
    None unless ``e`` has ``name`` once, under + - * / alone."""
    if not e.args:
        return value if e.head == name else None
    a, b = e.args
    inside = [isinstance(x, Expr) and name in x.names for x in (a, b)]
    if inside == [True, False] and isinstance(a, Expr):
        opposite = {"+": "-", "-": "+", "*": "/", "/": "*"}.get(e.head)
        return solve(a, name, Expr(opposite, (value, b), "float")) if opposite else None
    if inside == [False, True] and isinstance(b, Expr):
        rest = {
            "+": ("-", (value, a)),
            "-": ("-", (a, value)),
            "*": ("/", (value, a)),
            "/": ("/", (a, value)),
        }.get(e.head)
        return solve(b, name, Expr(*rest, "float")) if rest else None
    return None


def entry(values: tuple[int, ...] | Expr, i: int) -> Any:
    """Entry ``i`` of a tuple-valued parameter, counted from the front."""
    return Expr("entry", (values, i)) if isinstance(values, Expr) else values[i]


class _Interned:
    """Patterns are hash-consed: equal ones are one object, so they hash and compare by
    identity."""

    __slots__ = ()
    _made: ClassVar[dict[tuple[Any, ...], Any]] = {}

    @classmethod
    def _intern(cls, key: tuple[Any, ...]) -> Any:
        """The object of that key, and whether it is new."""
        whole = (cls, *key)
        found = cls._made.get(whole)
        if found is not None:
            return found, False
        found = cls._made[whole] = object.__new__(cls)
        return found, True


class PatternVar(_Interned):
    """A variable that stands for any array of the given axes.

    ``dtype`` is ``bool``, or what the arrays of the rule hold: ``float``, ``any`` or
    the name of a dtype.
    """

    __slots__ = ("axes", "dtype", "name")
    name: str
    axes: Axes
    dtype: str

    def __new__(cls, name: str, axes: Axes, dtype: str = "float") -> PatternVar:
        self, new = cls._intern((name, axes, dtype))
        if new:
            self.name, self.axes, self.dtype = name, axes, dtype
        return cast(PatternVar, self)

    def takes(self, dtype: DType) -> bool:
        """Whether it can stand for an array of ``dtype``. Scalars may have any."""
        if self.dtype == "bool":
            return dtype == BOOL
        if self.dtype == "any" or not self.axes.tokens:
            return True
        return is_float(dtype) if self.dtype == "float" else dtype == self.dtype


class Num(_Interned):
    """A bare number: a literal, or an expression over sizes and number parameters."""

    __slots__ = ("value",)
    value: Number | Expr

    def __new__(cls, value: Number | Expr) -> Num:
        self, new = cls._intern((type(value), value))
        if new:
            self.value = value
        return cast(Num, self)


class PatternNode(_Interned):
    """``op(*args, **attrs)``; attribute values are literals, :class:`Expr`, or tuples
    of these."""

    __slots__ = ("args", "attrs", "op")
    op: Op
    args: tuple[Pattern, ...]
    attrs: tuple[Any, ...]

    def __new__(
        cls, op: Op, args: tuple[Pattern, ...], attrs: tuple[Any, ...] = ()
    ) -> PatternNode:
        self, new = cls._intern((op, args, attrs))
        if new:
            self.op, self.args, self.attrs = op, args, attrs
        return cast(PatternNode, self)


Pattern = PatternVar | Num | PatternNode


class PatternValue(Operators):
    """A pattern under construction, with the operators and methods of an array."""

    __slots__ = ("pattern",)

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern

    def lift(
        self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]
    ) -> PatternValue:
        settled = op.settle(attrs, None)
        return PatternValue(
            PatternNode(op, tuple(as_pattern(a) for a in args), tuple(settled.values()))
        )

    @property
    def shape(self) -> _Sizes:
        """Sizes of a variable's named axes."""
        if not isinstance(self.pattern, PatternVar):
            raise RuleError(
                f"{self}: only a variable has a shape in a rule, not an expression"
            )
        return _Sizes(self.pattern)

    @property
    def ndim(self) -> int:
        sizes = self.shape
        if sizes.var.axes.variadic:
            raise RuleError(f"{self}: the rank of {sizes.var.axes} is not fixed")
        return sizes.var.axes.rank

    def __repr__(self) -> str:
        return show(self.pattern)

    def __bool__(self) -> bool:
        raise RuleError(f"{self}: a rule cannot branch on the value of an array")


class _Sizes:
    def __init__(self, var: PatternVar) -> None:
        self.var = var

    def __getitem__(self, i: int) -> Expr | int:
        axes = self.var.axes
        tokens = axes.tokens
        try:
            token = tokens[i]
        except IndexError:
            token = ELLIPSIS
        if token == ELLIPSIS or (axes.variadic and (i >= 0 or -i > len(axes.after))):
            raise RuleError(f"{self.var.name}: axis {i} of {axes} is not named")
        return token if isinstance(token, int) else Expr(token)

    def __iter__(self) -> Iterator[Expr | int]:
        if self.var.axes.variadic:
            raise RuleError(
                f"{self.var.name}: the rank of {self.var.axes} is not fixed"
            )
        return iter([self[i] for i in range(self.var.axes.rank)])

    def __len__(self) -> int:
        return sum(1 for _ in self)


def as_pattern(value: Any) -> Pattern:
    """A pattern from what a rule's function handles: pattern values, numbers,
    expressions."""
    if isinstance(value, PatternValue):
        return value.pattern
    if isinstance(value, Expr):
        return Num(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RuleError(
            f"a rule may use its parameters and numbers, not {type(value).__name__!r} "
            f"{value!r:.60}"
        )
    if math.isnan(value):
        raise RuleError("a rule may not use NaN, which equals nothing")
    return Num(float(value))


def nodes(pattern: Pattern) -> list[Pattern]:
    """Every distinct part of ``pattern``, arguments first."""
    seen: dict[Pattern, None] = {}

    def walk(p: Pattern) -> None:
        if p not in seen:
            if isinstance(p, PatternNode):
                for a in p.args:
                    walk(a)
            seen[p] = None

    walk(pattern)
    return list(seen)


def own_exprs(pattern: Pattern) -> list[Expr]:
    """The number expressions of ``pattern`` itself, not of its arguments."""
    if isinstance(pattern, Num):
        return [pattern.value] if isinstance(pattern.value, Expr) else []
    if not isinstance(pattern, PatternNode) or not pattern.attrs:
        return []
    flat = [v for a in pattern.attrs for v in (a if isinstance(a, tuple) else (a,))]
    return [v for v in flat if isinstance(v, Expr)]


def exprs(pattern: Pattern) -> list[Expr]:
    """Every number expression in ``pattern``."""
    return [e for p in nodes(pattern) for e in own_exprs(p)]


def show(pattern: Pattern) -> str:
    """A pattern as a readable expression."""
    if isinstance(pattern, PatternVar):
        return pattern.name
    if isinstance(pattern, Num):
        return (
            f"{pattern.value:g}"
            if isinstance(pattern.value, float)
            else str(pattern.value)
        )
    inside = [show(a) for a in pattern.args]
    attrs = zip(pattern.op.attrs, pattern.attrs, strict=True)
    inside += [f"{n}={show_attribute(v)}" for n, v in attrs]
    return f"{pattern.op.name}({', '.join(inside)})"


def show_attribute(value: Any) -> str:
    """An attribute, which may hold expressions, as readable text."""
    if isinstance(value, tuple):
        return f"({', '.join(map(str, value))}{',' if len(value) == 1 else ''})"
    return str(value)
