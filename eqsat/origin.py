"""Where the nodes of a chosen program come from: rules, and the user's lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from eqsat.build import make
from eqsat.errors import SourceLine
from eqsat.expand import body_of
from eqsat.frozen import EGraph, ENode, attr_values
from eqsat.op import INPUT
from eqsat.term import Graph, Term


@dataclass(frozen=True)
class Origin:
    """Where an extracted term comes from."""

    rules: tuple[str, ...]
    """The rules that built its e-node and, below it, the parts of its body that the
    user did not write; empty when the user wrote the node."""
    lines: tuple[SourceLine, ...]
    """The user's lines whose work it does."""

    @classmethod
    def of_all(cls, parts: Iterable[Origin]) -> Origin:
        """Of one kernel that does the work of several."""
        rules: dict[str, None] = {}
        lines: set[SourceLine] = set()
        for part in parts:
            rules.update(dict.fromkeys(part.rules))
            lines.update(part.lines)
        return cls(tuple(rules), tuple(sorted(lines)))


def lines_behind(node: ENode, written: dict[int, Term]) -> tuple[SourceLine, ...]:
    """Lines of the terms that a chosen node stands for: those above its operands."""
    stop = {id(written[c]) for c in node.children if c in written}
    start = written.get(node.cls)
    found: dict[SourceLine, None] = {}
    stack = [start] if start is not None else []
    seen: set[int] = set()
    while stack:
        t = stack.pop()
        if id(t) in seen or id(t) in stop or not t.args:
            continue
        seen.add(id(t))
        if t.source is not None:
            found[t.source] = None
        stack.extend(t.args)
        if len(seen) > 64:
            break
    return tuple(sorted(found))


def rules_behind(graph: EGraph, node: ENode) -> tuple[str, ...]:
    """The rule of ``node``, then those of composites that its body goes through.

    A body is followed in the e-graph: ``linear[gelu]`` was built on a ``gelu`` node,
    which the rule that recognises gelu may have built.
    """
    if not node.rule:
        return ()
    names = {node.rule: None}
    if node.op.body is not None:
        names.update((below.rule, None) for below in _body_nodes(graph, node))
    return tuple(name for name in names if name)


def _body_nodes(graph: EGraph, node: ENode) -> Iterator[ENode]:
    """Nodes of the e-graph that the body of ``node`` applies to its
    operands."""
    types = [graph.types[c] for c in node.children]
    scratch = Graph(sources=False)
    leaves = [
        scratch.node(INPUT, (), (i,), t) for i, t in enumerate(types) if t is not None
    ]
    if len(leaves) < len(types):
        return
    named = dict(zip(node.op.attrs, attr_values(node), strict=True))
    body = body_of(make(node.op, scratch, leaves, named))
    assert body is not None
    bound = dict(zip(leaves, node.children, strict=True))
    yield from _followed(graph, body, node.cls, bound)


def _followed(
    graph: EGraph, body: Term, cls: int, bound: dict[Term, int]
) -> Iterator[ENode]:
    # Nodes that the user wrote come first: a commuted twin explains nothing.
    for i in sorted(graph.classes[cls], key=lambda i: graph.nodes[i].rule != ""):
        node = graph.nodes[i]
        if node.op is not body.op or len(node.children) != len(body.args):
            continue
        if any(
            bound.get(a, c) != c for a, c in zip(body.args, node.children, strict=True)
        ):
            continue
        yield node
        for a, c in zip(body.args, node.children, strict=True):
            if a not in bound and a.args:
                bound[a] = c
                yield from _followed(graph, a, c, bound)
        return
