"""E-graphs in the JSON format of egraph-serialize, as extraction-gym uses it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from eqsat.search.extraction.problem import Problem, ProblemNode
from eqsat.support.errors import EqsatError


class FormatError(EqsatError, ValueError):
    """A file is not an e-graph in JSON."""


def load(path: Path) -> Problem:
    """The problem that a file states: ``nodes`` (each with ``eclass``, ``children`` as
    names of nodes, ``cost``, 1 when absent) and ``root_eclasses``.

    Raises :class:`FormatError`, which names the file and what is missing or wrong.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FormatError(f"{path}: not a JSON file: {error}") from error
    try:
        return problem_of(data)
    except EqsatError as error:
        raise FormatError(f"{path}: {error}") from error


def problem_of(data: Any) -> Problem:
    """The problem that parsed JSON states; raises :class:`FormatError`."""
    nodes = _part(data, "the file", "nodes", dict)
    roots = _part(data, "the file", "root_eclasses", list)
    if not roots:
        raise FormatError("root_eclasses is empty")
    number: dict[str, int] = {}
    of_node: dict[str, int] = {}
    for name, node in nodes.items():
        eclass = _part(node, f"node {name!r}", "eclass", str)
        of_node[name] = number.setdefault(eclass, len(number))
    entries = []
    for name, node in nodes.items():
        kids = []
        for child in _part(node, f"node {name!r}", "children", list, []):
            if not isinstance(child, str) or child not in of_node:
                raise FormatError(
                    f"node {name!r}: the child {child!r} is none of the nodes"
                )
            kids.append(of_node[child])
        entries.append(ProblemNode(of_node[name], kids, _cost(name, node)))
    for r in roots:
        if not isinstance(r, str) or r not in number:
            raise FormatError(f"root_eclasses: {r!r} is the eclass of no node")
    return Problem.of(len(number), entries, [number[r] for r in roots])


def _part(data: Any, where: str, key: str, kind: type, default: Any = None) -> Any:
    if not isinstance(data, dict):
        raise FormatError(f"{where} is {_kind(data)}, expected an object")
    value = data.get(key, default)
    if value is None:
        raise FormatError(f"{where} lacks {key!r}")
    if not isinstance(value, kind):
        raise FormatError(
            f"{where}: {key!r} is {_kind(value)}, expected {_NAMES[kind]}"
        )
    return value


_NAMES: dict[type, str] = {dict: "an object", list: "an array", str: "a string"}


def _kind(value: object) -> str:
    return _NAMES.get(type(value), repr(value))


def _cost(name: str, node: dict[str, Any]) -> float:
    cost = node.get("cost", 1.0)
    good = isinstance(cost, int | float) and not isinstance(cost, bool)
    if not good or not math.isfinite(cost) or cost < 0:
        raise FormatError(
            f"node {name!r}: the cost is {cost!r}, expected a number of 0 or more"
        )
    return float(cost)
