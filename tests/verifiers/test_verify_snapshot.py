"""Defects planted in the snapshot of an e-graph are caught, each by its rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planted import caught

import eqsat as eq
from eqsat.egraph.snapshot import EGraph, ENode
from eqsat.egraph.verify import verify
from eqsat.jit import jit
from eqsat.terms.op import Op
from eqsat.terms.term import Term

X, W, B = (np.ones(s, np.float32) for s in ((6, 8), (8, 4), (4,)))


def layer(x: Any, w: Any, b: Any) -> Any:
    return eq.softmax(eq.gelu(x @ w + b))


@pytest.fixture(scope="module")
def made() -> tuple[EGraph, list[Term], list[int]]:
    """A saturated e-graph, the terms that went in, and the class of each."""
    found = jit(layer).lower(X, W, B).optimised.search
    assert found is not None
    (part,) = found.parts
    return found.graph, list(part.regions[0].terms), list(part.classes)


Made = tuple[EGraph, list[Term], list[int]]


def copied(graph: EGraph, **changes: Any) -> EGraph:
    """The graph with lists of its own."""
    lists: dict[str, Any] = {
        "types": [*graph.types],
        "classes": [[*c] for c in graph.classes],
        "nodes": [*graph.nodes],
        "constant": [*graph.constant],
    }
    return replace(graph, **lists | changes)


def place(graph: EGraph, name: str) -> int:
    """An e-node of the op called ``name``."""
    return next(i for i, n in enumerate(graph.nodes) if n.op.name == name)


def changed(graph: EGraph, i: int, **fields: Any) -> EGraph:
    """The graph with other fields of an e-node."""
    broken = copied(graph)
    broken.nodes[i] = broken.nodes[i]._replace(**fields)
    return broken


def test_what_saturation_makes_breaks_no_rule(made: Made) -> None:
    graph, terms, classes = made
    verify(graph, "saturate", [(terms, classes)])


def test_a_child_that_does_not_exist(made: Made) -> None:
    i = place(made[0], "matmul")
    kids = made[0].nodes[i].children
    broken = changed(made[0], i, children=(kids[0], 10_000))
    with caught("saturate", f"e-node {i}, matmul", "its children exist"):
        verify(broken, "saturate")


def test_a_wrong_number_of_children(made: Made) -> None:
    i = place(made[0], "matmul")
    broken = changed(made[0], i, children=made[0].nodes[i].children[:1])
    with caught("saturate", f"e-node {i}, matmul", "arity"):
        verify(broken, "saturate")


def test_a_type_that_disagrees_within_a_class(made: Made) -> None:
    graph = copied(made[0])
    cls = graph.nodes[place(graph, "matmul")].cls
    graph.types[cls] = np.dtype(np.float64), (6, 4)
    with caught("saturate", f"of class {cls}", "its type is that of its class"):
        verify(graph, "saturate")


def test_a_shape_that_no_type_rule_allows(made: Made) -> None:
    i = place(made[0], "matmul")
    left, _ = made[0].nodes[i].children
    broken = changed(made[0], i, children=(left, left))
    with caught("fuse", f"e-node {i}, matmul", "its type is that of its class"):
        verify(broken, "fuse")


def test_a_class_that_is_made_of_itself(made: Made) -> None:
    graph = copied(made[0])
    type_ = graph.types[graph.nodes[place(graph, "matmul")].cls]
    cls = len(graph.classes)
    graph.types.append(type_)
    graph.classes.append([])
    graph.constant.append(False)
    graph.add(ENode(cls, Op.registry["exp"], (), (cls,), ""))
    with caught("saturate", f"class {cls}", "can be built from leaves"):
        verify(graph, "saturate")


def test_a_node_that_is_listed_twice(made: Made) -> None:
    graph = copied(made[0])
    i = place(graph, "matmul")
    other = (graph.nodes[i].cls + 1) % len(graph.classes)
    graph.classes[other].append(i)
    with caught("saturate", f"e-node {i}", "listed once, by its class"):
        verify(graph, "saturate")


def test_a_class_without_a_node(made: Made) -> None:
    graph = copied(made[0])
    graph.types.append(graph.types[0])
    graph.classes.append([])
    graph.constant.append(False)
    with caught("saturate", f"class {len(graph.classes) - 1}", "a class has an e-node"):
        verify(graph, "saturate")


def test_a_class_without_a_type_entry(made: Made) -> None:
    broken = copied(made[0], types=made[0].types[:-1])
    with caught("saturate", "e-graph", "each class has an entry of types"):
        verify(broken, "saturate")


def test_what_is_made_of_constants_but_is_none(made: Made) -> None:
    graph = copied(made[0])
    number = graph.number(2.0)
    cls = len(graph.classes)
    graph.types.append(graph.types[number])
    graph.classes.append([])
    graph.constant.append(False)
    graph.add(ENode(cls, Op.registry["negative"], (), (number,), ""))
    with caught("saturate", f"of class {cls}", "what is made of constants is one"):
        verify(graph, "saturate")


def test_a_missing_root(made: Made) -> None:
    graph, terms, classes = made
    gone = [*classes[:-1], len(graph.classes)]
    with caught("saturate", terms[-1].op.name, "each inserted term has a class"):
        verify(graph, "saturate", [(terms, gone)])
    with caught("saturate", terms[-1].op.name, "each inserted term has a class"):
        verify(graph, "saturate", [(terms, classes[:-1])])


def test_a_root_in_a_class_of_another_type(made: Made) -> None:
    graph, terms, classes = made
    swapped = [*classes[:-1], classes[terms.index(leaf(terms, W))]]
    with caught("saturate", terms[-1].op.name, "the class of a term has its type"):
        verify(graph, "saturate", [(terms, swapped)])


def leaf(terms: list[Term], x: Any) -> Term:
    return next(t for t in terms if t.op.name == "input" and t.shape == x.shape)


def test_a_fact_of_a_class_that_does_not_exist(made: Made) -> None:
    broken = copied(made[0], tables={"positive": {10_000: True}})
    with caught("saturate", "table positive", "its classes exist"):
        verify(broken, "saturate")
