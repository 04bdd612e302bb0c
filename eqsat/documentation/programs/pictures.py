"""Draws pictures of the documentation, of what eqsat finds: ``python pictures.py``.

``egraph.svg``: the e-graph of a product of three matrices, before and after the rules.
``gate.svg``: the program of the README, before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

import eqsat as eq

PICTURES = Path(__file__).resolve().parents[1] / "pictures"
BLUE, GREY, GREEN = "#0a6ebd", "#777", "#d8f0dc"


def svg(width: int, height: int, body: Sequence[str]) -> str:
    """A picture on a white card, so that it reads on dark pages too."""
    lines = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="14" fill="#222">\n'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#777"/></marker>'
        f'</defs>\n<rect width="{width}" height="{height}" rx="8" fill="#fff"/>\n'
        f"{lines}\n</svg>\n"
    )


def box(x: float, y: float, w: float, h: float, style: str) -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" width="{w:.0f}" height="{h:.0f}"'
    return f'<rect {place} rx="5" {style}/>'


def words(x: float, y: float, text: str, style: str = "") -> str:
    anchor = 'text-anchor="middle"'
    return f'<text x="{x:.0f}" y="{y:.0f}" {anchor} {style}>{escape(text)}</text>'


def arrow(x0: float, y0: float, x1: float, y1: float) -> str:
    path = f"M{x0:.0f} {y0:.0f}L{x1:.0f} {y1:.0f}"
    return f'<path d="{path}" stroke="{GREY}" marker-end="url(#head)"/>'


# -- an e-graph ------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """An e-node: its text, the classes that it reads, the rule that built it."""

    text: str
    reads: tuple[int, ...]
    rule: str
    chosen: bool


Graph = dict[int, list[Node]]
"""E-nodes by the number of their e-class."""


def product(x: Any, a: Any, b: Any) -> Any:
    """The product of three matrices; the right one is written to come first."""
    return x @ (a @ b)


def egraph() -> Graph:
    """The e-graph of :func:`product` for a small ``x`` and a large ``a @ b``."""
    shapes = {"x": (8, 512), "a": (512, 16), "b": (16, 512)}
    arrays = [np.ones(s, np.float32) for s in shapes.values()]
    graph: Any = eq.jit(product).explain(*arrays)._asked.done.search.graph  # type: ignore[union-attr]
    names = {shape: name for name, shape in shapes.items()}
    found: Graph = {}
    for number, nodes in enumerate(graph.classes):
        for i in nodes:
            n = graph.nodes[i]
            text = "@" if n.children else names[graph.types[number][1]]
            found.setdefault(number, []).append(Node(text, n.children, n.rule, False))
    return _with_choice(found)


def _with_choice(graph: Graph) -> Graph:
    """The graph, with the nodes of the cheapest program marked: those of the rule."""
    (top,) = (c for c, nodes in graph.items() if len(nodes) == 2)
    needed, todo = set(), [top]
    while todo:
        c = todo.pop()
        best = next((n for n in graph[c] if n.rule), graph[c][0])
        needed.add((c, best))
        todo += best.reads
    return {
        c: [Node(n.text, n.reads, n.rule, (c, n) in needed) for n in nodes]
        for c, nodes in graph.items()
    }


def spelled(graph: Graph, c: int, first: bool = True) -> str:
    """A term of a class, as NumPy writes it."""
    node = graph[c][0 if first else -1]
    if not node.reads:
        return node.text
    left, right = (spelled(graph, r) for r in node.reads)
    return f"({left} @ {right})"


def draw_egraph(graph: Graph) -> str:
    """Inputs below, results above. A dashed box is a class; blue nodes are chosen."""
    level: dict[int, int] = {}

    def rank(c: int) -> int:
        if c not in level:
            level[c] = 1 + max((rank(r) for n in graph[c] for r in n.reads), default=-1)
        return level[c]

    rows: dict[int, list[int]] = {}
    for c in sorted(graph):
        rows.setdefault(rank(c), []).append(c)
    inputs = {n.text: c for c in rows[0] for n in graph[c]}
    rows[0] = [inputs[n] for n in ("x", "a", "b")]
    rows[1].sort(key=lambda c: [rows[0].index(r) for r in graph[c][0].reads])
    width, at = 640, {}
    for row, classes in rows.items():
        for i, c in enumerate(classes):
            gap = (260, 150)[row > 0]
            at[c] = (width / 2 + gap * (i - (len(classes) - 1) / 2), 320 - 115 * row)
    body = [words(320, 28, "one e-class holds both ways; blue: the cheapest program")]
    for c, nodes in graph.items():
        x, y = at[c]
        w = 66 * len(nodes)
        style = f'fill="#f6f6f6" stroke="{GREY}" stroke-dasharray="5 3"'
        body.append(box(x - w / 2, y - 26, w, 52, style))
        if nodes[0].reads:
            told = " = ".join(
                spelled(graph, c, k == 0)[1:-1] for k in range(len(nodes))
            )
            body.append(words(x, y - 34, told, f'font-size="12" fill="{GREY}"'))
        for i, n in enumerate(nodes):
            nx = x + 66 * (i - (len(nodes) - 1) / 2)
            fill = f'fill="{BLUE}"' if n.chosen else f'fill="#fff" stroke="{GREY}"'
            ink = 'fill="#fff"' if n.chosen else ""
            body += [box(nx - 22, y - 16, 44, 32, fill), words(nx, y + 5, n.text, ink)]
            for side, r in zip((-9, 9), n.reads, strict=False):
                body.append(arrow(nx + side, y + 16, at[r][0] + side / 2, at[r][1] - 52
                                  if graph[r][0].reads else at[r][1] - 26))  # fmt: skip
    rules = sorted({n.rule for nodes in graph.values() for n in nodes if n.rule})
    told = f"built by the rule {', '.join(rules)}"
    body.append(words(320, 370, told, f'font-size="12" fill="{GREY}"'))
    return svg(width, 385, body)


# -- a program before and after --------------------------------------------------------


def gate(a: Any, b: Any, c: Any, d: Any) -> Any:
    """The program of the README."""
    return np.maximum(a * b + c, 0) / (1 + np.exp(-d))


STEPS = ("a * b", "… + c", "maximum(…, 0)", "-d", "exp(…)", "1 + …", "… / …")
"""What NumPy does for :func:`gate`, each over whole arrays."""


def kernels() -> tuple[int, list[str]]:
    """Kernels of :func:`gate` as written, and the names of those that eqsat makes."""
    arrays = [np.ones(65536, np.float32)] * 4
    explanation = eq.jit(gate).explain(*arrays)
    return explanation.baseline_kernels, [k.name for k in explanation.kernels]


def draw_kernels(before: int, after: Sequence[str]) -> str:
    assert before == len(STEPS) and len(after) == 1
    body = [
        words(
            320, 28, "np.maximum(a * b + c, 0) / (1 + np.exp(-d))", 'font-weight="bold"'
        ),
        words(160, 62, f"NumPy: {before} passes over memory"),
        words(480, 62, f"eqsat: {len(after)} kernel, one pass"),
    ]
    for i, step in enumerate(STEPS):
        y = 78 + 34 * i
        body += [
            box(30, y, 150, 26, f'fill="#fff" stroke="{GREY}"'),
            words(105, y + 18, step, 'font-size="13"'),
            arrow(180, y + 13, 222, y + 13),
            box(224, y, 66, 26, 'fill="#fde3d8"'),
            words(257, y + 17, "memory", 'font-size="12"'),
        ]
    height = 34 * len(STEPS) - 8
    body.append(
        box(370, 78, 150, height, f'fill="#fff" stroke="{BLUE}" stroke-width="2"')
    )
    for i, step in enumerate(STEPS):
        body.append(words(445, 96 + 34 * i, step, 'font-size="13"'))
    middle = 78 + height / 2
    body += [
        arrow(520, middle, 552, middle),
        box(554, middle - 13, 66, 26, f'fill="{GREEN}"'),
        words(587, middle + 4, "memory", 'font-size="12"'),
        words(
            320, 340, "between the steps numbers stay in registers", 'font-size="12"'
        ),
    ]
    return svg(640, 355, body)


DRAWN: dict[str, Callable[[], str]] = {
    "egraph.svg": lambda: draw_egraph(egraph()),
    "gate.svg": lambda: draw_kernels(*kernels()),
}

if __name__ == "__main__":
    for name, draw in DRAWN.items():
        (PICTURES / name).write_text(draw(), encoding="utf-8")
