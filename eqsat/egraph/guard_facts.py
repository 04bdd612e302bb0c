"""Conditions of rules, decided on an e-graph that was read back.

A condition is written in the engine's language
(:class:`eqsat.rulelang.condition.Fact`). Here its text is evaluated over plain values,
so that a question about a rule that did not fire needs no engine."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.egraph.snapshot import EGraph
from eqsat.rulelang import Fact
from eqsat.support import EngineError
from eqsat.terms import encode


@dataclass(frozen=True)
class Class:
    """An e-class as a value of the engine's language."""

    number: int


class _Undefined(Exception):
    """A table has no entry: the engine finds no match."""


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPUTE: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "vec-length": len,
    "vec-get": lambda values, i: values[i],
    "vec-of": lambda *values: values,
    "vec-append": lambda *parts: sum(parts, ()),
    "/": operator.floordiv,
    "%": operator.mod,
    "guard": bool,
    "not": operator.not_,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    **{f"bool-{head}": compare for head, compare in _COMPARE.items()},
}


def holds(fact: Fact, subjects: Sequence[Any], graph: EGraph) -> bool:
    """Whether ``fact`` holds of ``subjects``: classes, numbers and tuples of integers.

    Raises :class:`EngineError` for a condition that is written in other words.
    """
    forms = list(_parsed(fact.text))
    try:
        return all(_value(form, subjects, graph) is not False for form in forms)
    except _Undefined:
        return False


def _parsed(text: str) -> Iterator[Any]:
    """The forms of ``text`` as nested lists of words."""
    stack: list[list[Any]] = [[]]
    for word in re.findall(r"[()]|[^\s()]+", text):
        if word == "(":
            stack.append([])
        elif word == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(word)
    yield from stack[0]


def _value(form: Any, subjects: Sequence[Any], graph: EGraph) -> Any:
    if isinstance(form, str):
        if form.startswith("{"):
            return subjects[int(form[1:-1])]
        return float(form) if re.search(r"[.einf]", form) else int(form)
    head, *rest = form
    args = [_value(part, subjects, graph) for part in rest]
    if head in _COMPARE:
        return _COMPARE[head](*args)
    if head in _COMPUTE:
        return _COMPUTE[head](*args)
    return _looked_up(head, args[0].number, graph)


def _looked_up(table: str, cls: int, graph: EGraph) -> Any:
    """The entry of a class in one of the engine's tables."""
    type_ = graph.types[cls]
    size = re.fullmatch(r"d(\d+)", table)
    if table in ("type", "rank", "dtype") or size:
        if type_ is None:
            raise _Undefined
        code, *shape = encode(type_)
        if size:
            if len(shape) < int(size[1]):
                raise _Undefined
            return shape[-int(size[1])]
        return {"type": (code, *shape), "rank": len(shape), "dtype": code}[table]
    if table not in graph.tables:
        raise EngineError(f"the table {table!r} was not read back")
    if cls not in graph.tables[table]:
        raise _Undefined
    return graph.tables[table][cls]
