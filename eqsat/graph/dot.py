"""Graphs as DOT, for Graphviz, and back.

A node carries its entry of the JSON form, apart from its inputs: these are the edges,
labelled with their positions.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from eqsat.graph.document import (
    MOST_EDGES,
    MOST_NODES,
    check_characters,
    checked_text,
    parsed_json,
)
from eqsat.support import GraphError

_MOST_LINES = MOST_NODES + MOST_EDGES + 4
_TEXT = r'"([^"\\]*(?:\\.[^"\\]*)*)"'
_HEAD = re.compile(rf"digraph eqsat \{{\n  graph \[eqsat={_TEXT}\];\n")
_NODE = re.compile(rf"  {_TEXT} \[eqsat={_TEXT}, label={_TEXT}(?:, peripheries=2)?\];")
_EDGE = re.compile(rf'  {_TEXT} -> {_TEXT} \[label="([0-9]{{1,6}})"\];')


def dot_of(document: Mapping[str, Any]) -> str:
    """The DOT text of a document."""
    head = {k: v for k, v in document.items() if k != "nodes"}
    lines = ["digraph eqsat {", f"  graph [eqsat={_quoted(_dump(head))}];"]
    outputs = set(document["outputs"])
    edges = []
    for entry in document["nodes"]:
        name = _quoted(entry["name"])
        rest = {k: v for k, v in entry.items() if k not in ("name", "inputs")}
        end = ", peripheries=2" if entry["name"] in outputs else ""
        shown = f"eqsat={_quoted(_dump(rest))}, label={_quoted(_label(entry))}"
        lines.append(f"  {name} [{shown}{end}];")
        for i, read in enumerate(entry.get("inputs", ())):
            edges.append(f'  {_quoted(read)} -> {name} [label="{i}"];')
    return checked_text("\n".join([*lines, *edges, "}", ""]))


def _label(entry: Mapping[str, Any]) -> str:
    """What Graphviz shows of a node."""
    words = [entry["op"], *(f"{k}={v}" for k, v in entry.get("attributes", {}).items())]
    kind = str(entry["number"]) if "number" in entry else entry["dtype"]
    sizes = "×".join(map(str, entry.get("shape", ())))
    return f"{entry['name']}: {' '.join(words)}, {kind} {sizes}".rstrip()


def parsed_dot(text: str) -> dict[str, Any]:
    """The document of a DOT text that :func:`dot_of` wrote; edges may be others.

    Raises :class:`GraphError` that names the line for anything else.
    """
    check_characters(text)
    if text.count("\n") > _MOST_LINES:
        raise GraphError(f"DOT: a graph's file has at most {_MOST_LINES} lines")
    head = _HEAD.match(text)
    if head is None:
        raise GraphError("DOT: only what to_dot writes is read; the first lines differ")
    document = _object(head[1], 2)
    lines = text[head.end() :].split("\n")
    if lines[-2:] != ["}", ""]:
        raise GraphError("DOT: the end of the graph is missing")
    nodes: dict[str, dict[str, Any]] = {}
    reads: dict[str, dict[int, str]] = defaultdict(dict)
    for number, line in enumerate(lines[:-2], 3):
        node, edge = _NODE.fullmatch(line), _EDGE.fullmatch(line)
        if node is not None:
            name = _unquoted(node[1])
            if name in nodes:
                raise GraphError(f"DOT: line {number}: node {name!r} is there twice")
            nodes[name] = _object(node[2], number)
        elif edge is not None:
            start, end, place = _unquoted(edge[1]), _unquoted(edge[2]), int(edge[3])
            if place in reads[end]:
                raise GraphError(
                    f"DOT: line {number}: node {end!r} has input {place} twice"
                )
            reads[end][place] = start
        else:
            raise GraphError(f"DOT: line {number}: unknown text {line.strip()!r:.80}")
    return {**document, "nodes": _with_inputs(nodes, reads)}


def _with_inputs(
    nodes: Mapping[str, dict[str, Any]], reads: Mapping[str, Mapping[int, str]]
) -> list[dict[str, Any]]:
    """The entries of the nodes, with their inputs as the edges say."""
    for name, places in reads.items():
        if name not in nodes:
            raise GraphError(f"DOT: an edge leads to {name!r}, which is no node")
        if sorted(places) != list(range(len(places))):
            raise GraphError(
                f"DOT: node {name!r} has inputs {sorted(places)}, not 0 to "
                f"{len(places) - 1}"
            )
    found = []
    for name, entry in nodes.items():
        inputs = [s for _, s in sorted(reads.get(name, {}).items())]
        is_leaf = not inputs and entry.get("op") in ("input", "constant")
        found.append({**entry, "name": name, **({} if is_leaf else {"inputs": inputs})})
    return found


def _object(text: str, number: int) -> dict[str, Any]:
    found = parsed_json(_unquoted(text))
    if not isinstance(found, dict):
        raise GraphError(f"DOT: line {number}: expected an object")
    return found


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
