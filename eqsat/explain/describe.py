"""E-classes and e-nodes of a search as text that its user can read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from eqsat.egraph import attr_values
from eqsat.rulelang import show_attribute
from eqsat.search import Search, TermOrigin
from eqsat.support import SourceLine
from eqsat.terms import SCALAR, Op, Term, Type

DEPTHS = (5, 4, 3, 2)
"""Levels of operations that are shown, the most that fit; ``…`` is what is below."""
WIDTH = 48
"""Characters that fit."""


class Readable:
    """Names classes as the program names them, or as what the user wrote.

    ``place``: which instance of a region is meant; without it, the first of each.
    ``known``: names that some classes have here. ``like``: one of the same search,
    whose work is not done again.
    """

    def __init__(
        self,
        search: Search,
        names: Mapping[Term, str],
        place: TermOrigin | None = None,
        known: Mapping[int, str] | None = None,
        like: Readable | None = None,
    ) -> None:
        self.search = search
        self.known = dict(known or {})
        self._names = names
        parts = [(part.classes, part.regions[0].terms) for part in search.parts]
        self._written: dict[int, list[Term]] = (
            _by_class(parts) if like is None else like._written
        )
        here: list[tuple[Sequence[int], Sequence[Term]]] = []
        if place is not None:
            here.append((search.parts[place.part].classes, place.region.terms))
        self._here = _by_class(here)

    def written(self, cls: int, op: Op | None = None) -> Term | None:
        """What the user wrote of a class: a term of ``op`` where there is one."""
        terms = [*self._here.get(cls, ()), *self._written.get(cls, ())]
        return next((t for t in terms if t.op is op), terms[0] if terms else None)

    def line(self, cls: int, op: Op | None = None) -> SourceLine | None:
        """The user's line that made a class; None for an input or a number."""
        term = self.written(cls, op)
        return term.source if term is not None and term.args else None

    def cls(self, cls: int) -> str:
        """A class: its name, the number that it is, or an operation that makes it."""
        return _fitting(lambda depth: self._cls(cls, depth))

    def node(self, i: int) -> str:
        """An e-node: its op over its operands."""
        return _fitting(lambda depth: self._node(i, depth))

    def _cls(self, cls: int, depth: int) -> str:
        if cls in self.known:
            return self.known[cls]
        term = self.written(cls)
        if term is not None:
            return self._term(term, depth)
        ids = self.search.graph.classes[cls]
        return self._node(ids[0], depth) if ids else "…"

    def _node(self, i: int, depth: int) -> str:
        node = self.search.graph.nodes[i]
        if node.op.kind == "leaf":
            return _number(node.attrs[0]) if node.op is SCALAR else "an input"
        parts = [self._cls(c, depth - 1) for c in node.children] if depth > 0 else []
        return _call(node.op, parts, attr_values(node), depth)

    def _term(self, term: Term, depth: int) -> str:
        name = self._names.get(term) or self._names.get(
            self.search.chosen.get(term, term)
        )
        if name is not None:
            return name
        op = cast(Op, term.op)
        if op is SCALAR:
            return _number(cast(float, term.attrs[0]))
        if not term.args:
            return "a constant"
        parts = [self._term(a, depth - 1) for a in term.args] if depth > 0 else []
        return _call(op, parts, term.attrs, depth)

    def shape(self, cls: int) -> str:
        """The shape of a class: ``512×768``, or ``a scalar``."""
        return show_shape(self.search.graph.types[cls])


def _by_class(
    parts: Iterable[tuple[Sequence[int], Sequence[Term]]],
) -> dict[int, list[Term]]:
    """The terms of each class."""
    found: dict[int, list[Term]] = {}
    for classes, terms in parts:
        for cls, t in zip(classes, terms, strict=True):
            found.setdefault(cls, []).append(t)
    return found


def _fitting(text: Callable[[int], str]) -> str:
    """The text of most levels that fits, or else of the fewest."""
    shown = ""
    for depth in DEPTHS:
        shown = text(depth)
        if len(shown) <= WIDTH:
            break
    return shown


def show_shape(type_: Type | None) -> str:
    if type_ is None:
        return "an unknown shape"
    return "×".join(map(str, type_[1])) or "a scalar"


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _call(op: Op, parts: Sequence[str], attrs: Sequence[Any], depth: int) -> str:
    if depth <= 0:
        return f"{op.name}(…)"
    named = zip(op.attrs, attrs, strict=True)
    shown = [
        f"{n}={show_attribute(v)}" for n, v in named if op.attr_defaults.get(n) != v
    ]
    return f"{op.name}({', '.join([*parts, *shown])})"
