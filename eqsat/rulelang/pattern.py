"""Patterns: what a rule's function builds when it is called with pattern variables.

A pattern is a term whose leaves are variables. :mod:`eqsat.rulelang.pattern_value` are
the values that build one; what is known of its shape is in
:mod:`eqsat.rulelang.pattern_shape`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from eqsat.rulelang.expression import Expr, Number
from eqsat.rulelang.expression import entry as entry
from eqsat.terms import BOOL, Axes, DType, Op, is_float


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


def nodes(pattern: Pattern) -> list[Pattern]:
    """Every distinct part of ``pattern``, arguments first."""
    seen: dict[Pattern, None] = {}
    _note(pattern, seen)
    return list(seen)


def _note(p: Pattern, seen: dict[Pattern, None]) -> None:
    """Add ``p`` and its parts to those ``seen``."""
    if p not in seen:
        if isinstance(p, PatternNode):
            for a in p.args:
                _note(a, seen)
        seen[p] = None


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


LONGEST = 2000
"""Characters of the text of a part; a longer one is abridged."""


def show(pattern: Pattern) -> str:
    """A pattern as a readable expression."""
    texts: dict[Pattern, str] = {}
    for p in nodes(pattern):
        text = _shown(p, texts)
        if len(text) > LONGEST and isinstance(p, PatternNode):
            text = f"{p.op.name}(…)"
        texts[p] = text
    return texts[pattern]


def _shown(pattern: Pattern, texts: Mapping[Pattern, str]) -> str:
    if isinstance(pattern, PatternVar):
        return pattern.name
    if isinstance(pattern, Num):
        return (
            f"{pattern.value:g}"
            if isinstance(pattern.value, float)
            else str(pattern.value)
        )
    inside = [texts[a] for a in pattern.args]
    attrs = zip(pattern.op.attrs, pattern.attrs, strict=True)
    inside += [f"{n}={show_attribute(v)}" for n, v in attrs]
    return f"{pattern.op.name}({', '.join(inside)})"


def show_attribute(value: Any) -> str:
    """An attribute, which may hold expressions, as readable text."""
    if isinstance(value, tuple):
        return f"({', '.join(map(str, value))}{',' if len(value) == 1 else ''})"
    return str(value)
