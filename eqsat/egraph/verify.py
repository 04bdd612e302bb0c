"""What must hold of an e-graph that was read back.

Each function is a rule, or a few that are checked together; see
:mod:`eqsat.support.verification`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from eqsat.egraph.snapshot import EGraph, ENode, attr_values
from eqsat.support import Broken, EqsatError, refuse
from eqsat.terms import Term, Type

Written = Sequence[tuple[Sequence[Term], Sequence[int]]]
"""Inserted terms, and the class of each."""


def verify(graph: EGraph, stage: str, written: Written = (), start: int = 0) -> None:
    """Raise :class:`VerifyError` where the nodes from ``start`` on, the classes, or
    those of the ``written`` terms break a rule; ``stage`` made them."""
    rules = (
        _lists(graph),
        _nodes(graph, start),
        _membership(graph),
        _types(graph, start),
        _constants(graph, start),
        _finite(graph),
        _tables(graph),
        _roots(graph, written),
    )
    refuse(stage, chain.from_iterable(rules))


def mistyped(graph: EGraph) -> Broken | None:
    """An e-node whose class has another type than its op gives it, or None."""
    return next(_types(graph, 0), None)


def _name(i: int, node: ENode) -> str:
    return f"e-node {i}, {node.op.name}{node.children} of class {node.cls}"


def _lists(graph: EGraph) -> Iterator[Broken]:
    count = len(graph.classes)
    for name in ("types", "constant"):
        found = len(getattr(graph, name))
        if found != count:
            yield Broken("e-graph", f"each class has an entry of {name}", found, count)


def _nodes(graph: EGraph, start: int) -> Iterator[Broken]:
    """Each e-node stands in a class that exists, over classes that exist."""
    classes = range(len(graph.classes))
    for i, node in enumerate(graph.nodes[start:], start):
        if node.cls not in classes:
            yield Broken(_name(i, node), "its class exists", node.cls, classes)
        for c in node.children:
            if c not in classes:
                yield Broken(_name(i, node), "its children exist", c, classes)
        op = node.op
        if not op.variadic and len(node.children) != len(op.params):
            expected = len(op.params)
            yield Broken(_name(i, node), "arity", len(node.children), expected)
        if len(node.attrs) != len(op.attrs):
            yield Broken(_name(i, node), "attributes", node.attrs, tuple(op.attrs))


def _membership(graph: EGraph) -> Iterator[Broken]:
    """Each e-node is listed once, by its own class, and no class is empty."""
    listed = [-1] * len(graph.nodes)
    for cls, members in enumerate(graph.classes):
        if not members:
            yield Broken(f"class {cls}", "a class has an e-node", "none", "one or more")
        for i in members:
            if i not in range(len(graph.nodes)):
                yield Broken(f"class {cls}", "its e-nodes exist", i, len(graph.nodes))
                continue
            if listed[i] >= 0 or graph.nodes[i].cls != cls:
                rule = "an e-node is listed once, by its class"
                yield Broken(_name(i, graph.nodes[i]), rule, cls, graph.nodes[i].cls)
            listed[i] = cls
    if -1 in listed:
        i = listed.index(-1)
        rule = "an e-node is listed once, by its class"
        yield Broken(_name(i, graph.nodes[i]), rule, "nowhere", graph.nodes[i].cls)


def _types(graph: EGraph, start: int) -> Iterator[Broken]:
    """All e-nodes of a class have its type, by the type rule of their ops."""
    known: dict[tuple[object, ...], Type | EqsatError] = {}
    for i, node in enumerate(graph.nodes[start:], start):
        type_ = graph.types[node.cls]
        types = [graph.types[c] for c in node.children]
        if node.op.kind == "leaf" or type_ is None or None in types:
            continue
        given = tuple(t for t in types if t is not None)
        key = node.op, node.attrs, given
        if key not in known:
            known[key] = _inferred(node, given)
        if known[key] != type_:
            rule = "its type is that of its class"
            yield Broken(_name(i, node), rule, known[key], type_)


def _inferred(node: ENode, types: Sequence[Type]) -> Type | EqsatError:
    attrs = dict(zip(node.op.attrs, attr_values(node), strict=True))
    try:
        return node.op.type_rule.infer(node.op.name, types, attrs)
    except EqsatError as error:
        return error


def _constants(graph: EGraph, start: int) -> Iterator[Broken]:
    """What is made of constants is one."""
    for i, node in enumerate(graph.nodes[start:], start):
        over = bool(node.children) and all(graph.constant[c] for c in node.children)
        if over and not graph.constant[node.cls]:
            yield Broken(_name(i, node), "what is made of constants is one", 0, 1)


def _finite(graph: EGraph) -> Iterator[Broken]:
    """Each class stands for a finite term: it can be built from leaves."""
    users: dict[int, list[int]] = {}
    missing = []
    for i, node in enumerate(graph.nodes):
        kids = set(node.children)
        missing.append(len(kids))
        for c in kids:
            users.setdefault(c, []).append(i)
    built: set[int] = set()
    ready = [n.cls for n in graph.nodes if not n.children]
    while ready:
        cls = ready.pop()
        if cls in built:
            continue
        built.add(cls)
        for i in users.get(cls, ()):
            missing[i] -= 1
            if not missing[i]:
                ready.append(graph.nodes[i].cls)
    for cls in range(len(graph.classes)):
        if cls not in built:
            nodes = [_name(i, graph.nodes[i]) for i in graph.classes[cls]]
            rule = "a class can be built from leaves"
            yield Broken(f"class {cls}", rule, f"a cycle: {nodes}", "a finite term")


def _tables(graph: EGraph) -> Iterator[Broken]:
    """What is known of classes is of classes that exist."""
    classes = range(len(graph.classes))
    held: Mapping[str, Mapping[int, object]] = {**graph.tables}
    for name, table in held.items():
        for cls in table:
            if cls not in classes:
                yield Broken(f"table {name}", "its classes exist", cls, classes)


def _roots(graph: EGraph, written: Written) -> Iterator[Broken]:
    """Each inserted term has a class, of its type."""
    for terms, classes in written:
        if len(terms) != len(classes):
            rule = "each inserted term has a class"
            yield Broken(repr(terms[-1]), rule, len(classes), len(terms))
        for t, cls in zip(terms, classes, strict=False):
            if cls not in range(len(graph.classes)):
                rule = "each inserted term has a class"
                yield Broken(repr(t), rule, cls, range(len(graph.classes)))
            elif graph.types[cls] != t.type:
                rule = "the class of a term has its type"
                yield Broken(repr(t), rule, graph.types[cls], t.type)
