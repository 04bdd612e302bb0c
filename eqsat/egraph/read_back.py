"""What an engine holds, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from eqsat.egraph.normal_form import Edge, Seen
from eqsat.egraph.snapshot import EGraph, ENode
from eqsat.egraph.table_rows import Reader, TableRow, in_order, numbered
from eqsat.egraph.vocabulary import Vocabulary
from eqsat.rulelang import LEAF_FACTS
from eqsat.terms import Type, decode


def snapshot_of(egg: Any, words: Vocabulary) -> EGraph:
    """The whole graph as plain lists, in an order that depends on nothing but what
    is in it: neither on hashing nor on what else the engine has loaded."""
    functions = egg.freeze().functions
    reader = Reader(egg)
    rows: list[TableRow] = []
    for name, (_, arity) in words.constructors.items():
        sorts = functions[name].input_sorts[arity:]
        for row in functions[name].rows:
            if not row.subsumed:
                inputs = row.inputs
                values = zip(sorts, inputs[arity:], strict=True)
                attrs = tuple(reader.base(sort, v) for sort, v in values)
                rows.append(TableRow(name, attrs, inputs, arity, row.output))
    ids = reader.ids = numbered(rows)
    nodes_ = [_node(egg, words, row, ids) for row in in_order(rows, ids)]
    types: list[Type | None] = [None] * len(ids)
    for row in functions["type"].rows:
        cls = ids.get(row.inputs[0])
        if cls is not None:
            types[cls] = decode(reader.base("Dims", row.output))
    constant = [False] * len(ids)
    for row in functions["constant"].rows:
        constant[ids[row.inputs[0]]] = True
    tables = _tables(functions, reader) if words.signed else {}
    graph = EGraph(types, [[] for _ in types], nodes_, constant, tables=tables)
    graph.complete()
    return graph


def _node(egg: Any, words: Vocabulary, row: TableRow, ids: Mapping[Any, int]) -> ENode:
    rule = _rule_of(egg, words, row) if words.signed else ""
    children = tuple([ids[v] for v in row.inputs[: row.arity]])
    op, _ = words.constructors[row.name]
    return ENode(ids[row.cls], op, row.attrs, children, rule)


def _tables(functions: Any, reader: Reader) -> dict[str, dict[int, Any]]:
    """What conditions of rules ask of a class, for questions asked later."""
    read: dict[str, Callable[[Any], Any]] = {
        "lower": partial(reader.base, "f64"),
        "order": partial(reader.base, "i64"),
        **{name: lambda _: True for name in ("constant", *LEAF_FACTS)},
    }
    ids = reader.ids
    return {
        name: {
            ids[row.inputs[0]]: value(row.output)
            for row in functions[name].rows
            if row.inputs[0] in ids
        }
        for name, value in read.items()
    }


def _rule_of(egg: Any, words: Vocabulary, row: TableRow) -> str:
    """The rule that built a node first; empty when it was inserted."""
    if words.constructors[row.name][0].kind == "leaf":
        return ""
    value = egg.lookup_function(f"by-{row.name}", list(row.inputs))
    return "" if value is None else str(egg.value_to_string(value))


def seen_closely(
    egg: Any,
    words: Vocabulary,
    reader: Reader,
    names: set[str],
    ops: frozenset[str],
) -> Seen:
    """What is in the graph, and how it is joined."""
    functions = egg.freeze().functions
    rows = {name: functions[name].rows for name in names}
    holders: dict[Any, list[str]] = {}
    for name, found in rows.items():
        for row in found:
            holders.setdefault(row.output, []).append(name)
    edges: set[Edge] = set()
    attrs: set[tuple[str, Any]] = set()
    for name, found in rows.items():
        op, arity = words.constructors[name]
        sorts = functions[name].input_sorts[arity:]
        for row in found:
            inputs = row.inputs
            for i in range(arity):
                edges.update((name, i, below) for below in holders[inputs[i]])
            if op.attrs:
                held = zip(sorts, inputs[arity:], strict=True)
                attrs.add((name, tuple(reader.base(k, v) for k, v in held)))
    types = (reader.base("Dims", r.output) for r in functions["type"].rows)
    return Seen(names, ops, edges, attrs, {t[1:] for t in types})
