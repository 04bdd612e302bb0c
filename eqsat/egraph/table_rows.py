"""Rows of the engine's tables, in an order that depends on nothing but the e-graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class TableRow(NamedTuple):
    """An e-node as the engine gives it."""

    name: str
    """Its constructor."""
    attrs: tuple[Any, ...]
    inputs: Sequence[Any]
    """Its children, then its attributes, as values of the engine."""
    arity: int
    cls: Any


def numbered(rows: Sequence[TableRow]) -> dict[Any, int]:
    """Numbers for the classes: first those that hold a node without children, then
    those that hold a node over these, and so on; each time in the order of the
    nodes."""
    ids: dict[Any, int] = {}
    users: dict[Any, list[int]] = {}
    missing = []
    for i, row in enumerate(rows):
        kids = set(row.inputs[: row.arity])
        missing.append(len(kids))
        for kid in kids:
            users.setdefault(kid, []).append(i)
    ready = [i for i, n in enumerate(missing) if not n]
    while ready:
        new = [rows[i] for i in ready if rows[i].cls not in ids]
        new.sort(key=lambda row: _key(row, ids))
        fresh = dict.fromkeys(row.cls for row in new)
        for cls in fresh:
            ids[cls] = len(ids)
        ready = []
        for cls in fresh:
            for i in users.get(cls, ()):
                missing[i] -= 1
                if not missing[i]:
                    ready.append(i)
    return ids


def _key(row: TableRow, ids: Mapping[Any, int]) -> tuple[Any, ...]:
    return row.name, row.attrs, [ids[v] for v in row.inputs[: row.arity]]


def in_order(rows: Iterable[TableRow], ids: Mapping[Any, int]) -> list[TableRow]:
    """The nodes by their classes, operands first, then by what they are."""
    return sorted(rows, key=lambda row: (ids[row.cls], *_key(row, ids)))


class Reader:
    """Remembers decoded base values, and the numbers of classes."""

    def __init__(self, egg: Any) -> None:
        self.ids: dict[Any, int] = {}
        self._memo: dict[Any, Any] = {}
        self._convert: dict[str, Callable[[Any], Any]] = {
            "i64": egg.value_to_i64,
            "f64": egg.value_to_f64,
            "String": egg.value_to_string,
            "Dims": lambda v: tuple(egg.value_to_i64(x) for x in egg.value_to_vec(v)),
        }

    def base(self, sort: str, value: Any) -> Any:
        key = (sort, value)
        if key not in self._memo:
            self._memo[key] = self._convert[sort](value)
        return self._memo[key]
