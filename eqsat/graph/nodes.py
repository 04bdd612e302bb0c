"""The nodes of a graph by name, each checked by itself when it is added."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from eqsat.support import (
    GraphError,
    SourceLine,
    an,
    at,
    caller_line,
    counted,
    nearest,
)
from eqsat.terms import Op, Type

INPUT, CONSTANT = "input", "constant"
LONGEST = 200
"""Characters of a name or of a text in an attribute."""
MOST_AXES = 64
"""As many as NumPy has."""
_INTEGERS = range(-(2**63), 2**64)
_UFUNCS = tuple(
    name
    for name, f in vars(np).items()
    if isinstance(f, np.ufunc) and (f.nin, f.nout) == (2, 1)
)
_TEXTS: Mapping[tuple[str, str], Sequence[str]] = {
    ("accumulate", "ufunc"): _UFUNCS,
    ("argsort", "kind"): ("quicksort", "heapsort", "mergesort", "stable"),
}
"""What attributes that are texts may be, where the op itself does not say."""
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class GraphNode:
    """One node of a :class:`Graph`."""

    name: str
    op: str
    """``input``, ``constant``, or the name of an op."""
    inputs: tuple[str, ...]
    """Names of the nodes that it reads, in order; they may be added later."""
    attributes: Mapping[str, Any]
    type: Type | None
    """Dtype and shape of an input; None for all others, where they follow."""
    value: Any
    """Of a constant: a read-only array, or a Python number."""
    source: SourceLine | None
    """The line that added it."""
    home: NodeTable = field(repr=False)
    """The nodes of its graph."""


@dataclass(eq=False)
class NodeTable:
    """The nodes of one graph in the order in which they were added, and its outputs."""

    by_name: dict[str, GraphNode] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    changes: int = 0
    """How often something was added."""
    _counts: Counter[str] = field(default_factory=Counter)

    def put(
        self,
        op: str,
        name: str | None,
        inputs: tuple[str, ...] = (),
        attributes: Mapping[str, Any] = _NONE,
        type_: Type | None = None,
        value: Any = None,
        source: SourceLine | None = None,
    ) -> GraphNode:
        """Add a node. Without a name it is called by its op and a number."""
        name = self._free(op) if name is None else checked_name(name)
        self.check_free(name)
        line = source or caller_line()
        held = MappingProxyType(dict(attributes))
        made = GraphNode(name, op, inputs, held, type_, value, line, self)
        self.by_name[name] = made
        self.changes += 1
        return made

    def check_free(self, name: str) -> None:
        """Raise :class:`GraphError` for a name that a node has."""
        known = self.by_name.get(name)
        if known is not None:
            raise GraphError(
                f"node {name!r}: there is a node of this name already, "
                f"{an(known.op)}{at(known.source)}"
            )

    def name_of(self, value: Any, who: str) -> str:
        """The name that stands for a node; one that is not there yet may be added."""
        if isinstance(value, GraphNode):
            if value.home is not self:
                raise GraphError(
                    f"{who}: node {value.name!r} belongs to another graph"
                    f"{at(caller_line())}"
                )
            return value.name
        return checked_name(value)

    def _free(self, op: str) -> str:
        while True:
            name = f"{op}_{self._counts[op]}"
            self._counts[op] += 1
            if name not in self.by_name:
                return name


def checked_name(name: Any) -> str:
    """``name``, which is a text that a line can show."""
    if not isinstance(name, str):
        raise GraphError(
            f"a node is named by a text, not by {an(repr(type(name).__name__))}"
            f"{at(caller_line())}"
        )
    if not name or len(name) > LONGEST or not name.isprintable():
        raise GraphError(
            f"node {name[:40]!r}: a name is 1 to {LONGEST} printable characters"
            f"{at(caller_line())}"
        )
    return name


def op_named(op: Any, who: str) -> Op:
    """The op that a node computes, given by name or as it is."""
    name = op.name if isinstance(op, Op) else op
    known = Op.registry.get(name) if isinstance(name, str) else None
    if known is None or known.kind in ("leaf", "kernel"):
        shown = f"{name!r}" if isinstance(name, str) else f"{op!r:.60}"
        names = [n for n, o in Op.registry.items() if o.kind not in ("leaf", "kernel")]
        hint = nearest(name, names) if isinstance(name, str) else ""
        raise GraphError(f"{who}: unknown op {shown:.80}{hint}{at(caller_line())}")
    if isinstance(op, Op) and op is not known:
        raise GraphError(
            f"{who}: op {name!r} is another one than the op of that name"
            f"{at(caller_line())}"
        )
    return known


def with_defaults(
    op: Op, given: Sequence[Any], named: dict[str, Any], who: str
) -> list[Any]:
    """The inputs of a node of ``op``: those given, those in ``named``, which are taken
    out of it, and those that have a default."""
    values = list(given)
    if op.variadic:
        if not values:
            raise GraphError(
                f"{who}: {op.name} takes 1 input or more, got none{at(caller_line())}"
            )
        return values
    for p in op.params[len(values) :]:
        if p not in named and p not in op.defaults:
            break
        values.append(named.pop(p) if p in named else op.defaults[p])
    if len(values) != len(op.params):
        call = f" ({', '.join(op.params)})" if op.params else ""
        raise GraphError(
            f"{who}: {op.name} takes {counted(len(op.params), 'input')}{call}, got "
            f"{len(given)}{at(caller_line())}"
        )
    return values


def checked_attributes(op: Op, given: Mapping[str, Any], who: str) -> dict[str, Any]:
    """All attributes of a node of ``op``, each of the kind that it has."""
    for name in given:
        if name not in op.attrs:
            known = f"; it has {', '.join(op.attrs)}" if op.attrs else "; it has none"
            hint = nearest(name, op.attrs) or known
            raise GraphError(
                f"{who}: {op.name} has no attribute {name!r:.80}{hint}"
                f"{at(caller_line())}"
            )
    found = {}
    for name, kind in op.attrs.items():
        if name not in given and name not in op.attr_defaults:
            raise GraphError(
                f"{who}: {op.name} needs attribute {name!r}{at(caller_line())}"
            )
        value = given[name] if name in given else op.attr_defaults[name]
        try:
            found[name] = _KINDS[kind](value)
        except (TypeError, ValueError, OverflowError, KeyError):
            raise GraphError(
                f"{who}: attribute {name!r} of {op.name} is {value!r:.80}, expected "
                f"{_WORDS.get(kind, kind)}{at(caller_line())}"
            ) from None
        _check_choice(op, name, found[name], who)
    return found


def _check_choice(op: Op, name: str, value: Any, who: str) -> None:
    choices = op.choices.get(name) or _TEXTS.get((op.name, name))
    if choices is not None and value not in choices:
        shown = ", ".join(map(repr, choices[:10]))
        raise GraphError(
            f"{who}: attribute {name!r} of {op.name} is {value!r:.80}, expected one "
            f"of {shown}{at(caller_line())}"
        )


def _integer(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    found = operator.index(value)
    if found not in _INTEGERS:
        raise OverflowError
    return found


def _integers(value: Any) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError
    found = tuple(map(_integer, value))
    if len(found) > MOST_AXES:
        raise ValueError
    return found


def _axis(value: Any) -> Any:
    several = isinstance(value, Iterable)
    return None if value is None else _integers(value) if several else _integer(value)


def _truth(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)) or value in (0, 1):
        return bool(value)
    raise TypeError


def _real(value: Any) -> float:
    if isinstance(value, (bool, np.bool_, str, bytes)):
        raise TypeError
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST:
        raise TypeError
    return value


_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "Axis": _axis,
    "Ints": _integers,
    "int": _integer,
    "bool": _truth,
    "float": _real,
    "str": _text,
    "DTypeName": lambda value: np.dtype(value).name,
}
_WORDS = {
    "Axis": "an axis, several, or None for all",
    "Ints": f"integers, at most {MOST_AXES}",
    "int": "an integer",
    "bool": "True or False",
    "float": "a number",
    "str": "a text",
    "DTypeName": "a dtype",
}
