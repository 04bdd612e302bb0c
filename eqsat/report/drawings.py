"""Graphs of a document as text for Graphviz and for Mermaid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SHAPES = {"input": "ellipse", "constant": "ellipse", "view": "plain"}
"""Shapes of Graphviz for kinds of nodes; boxes for all others."""


def dot(graph: Mapping[str, Any]) -> str:
    """A graph in the language of Graphviz."""
    lines = ["digraph program {", '  node [shape=box, fontname="sans-serif"];']
    for i, node in enumerate(graph["nodes"]):
        label = "\\n".join(_quoted(part) for part in _words(node))
        shape = _SHAPES.get(node["kind"], "box")
        lines.append(f'  n{i} [label="{label}", shape={shape}];')
    lines += [f"  n{a} -> n{b};" for a, b in graph["edges"]]
    return "\n".join([*lines, "}", ""])


def mermaid(graph: Mapping[str, Any]) -> str:
    """A graph as a flow chart of Mermaid."""
    lines = ["flowchart TD"]
    for i, node in enumerate(graph["nodes"]):
        label = "<br/>".join(_entities(part) for part in _words(node))
        left, right = ("([", "])") if node["kind"] in _SHAPES else ("[", "]")
        lines.append(f'  n{i}{left}"{label}"{right}')
    lines += [f"  n{a} --> n{b}" for a, b in graph["edges"]]
    return "\n".join([*lines, ""])


def _words(node: Mapping[str, Any]) -> list[str]:
    return [w for w in (node["name"], node["text"], node["type"]) if w]


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def _entities(text: str) -> str:
    """Text that Mermaid shows as it is: what is not plain as numbered entities."""
    plain = " _.,()[]×=+-"
    return "".join(c if c.isalnum() or c in plain else f"#{ord(c)};" for c in text)
