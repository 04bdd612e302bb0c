"""A graph as steps: programs of eqsat, and operators between them that PyTorch runs.

What runs where is found by tracing each operator once. Programs and operators then
alternate as seldom as their dependencies allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node

from eqsat.operator_table import UnsupportedError, said
from eqsat.pytorch.graph_nodes import (
    computed,
    handler_of,
    is_item,
    is_number,
    is_plain,
    is_seen_through,
    name_of,
    read_by,
    value_of,
)
from eqsat.pytorch.table import DTYPES
from eqsat.support import EqsatError
from eqsat.trace import Spec, trace


class TorchFallback(NamedTuple):
    """Operators that stay in PyTorch."""

    op: str
    reason: str
    times: int = 1
    """How often it stands in graphs."""


@dataclass(eq=False)
class Step:
    """Nodes that run together, in a program of eqsat or in PyTorch."""

    in_program: bool
    nodes: list[Node] = field(default_factory=list)
    reads: list[Node] = field(default_factory=list)
    gives: list[Node] = field(default_factory=list)
    """Nodes that later steps or the caller read."""


def steps_of(
    module: GraphModule, known: Mapping[Node, Any]
) -> tuple[list[Step], dict[Node, str]]:
    """The steps of a graph, and why nodes are PyTorch's. ``known``: nodes that are
    constants of programs."""
    nodes = [n for n in module.graph.nodes if _runs(n)]
    reasons = _unsupported(nodes, known)
    places = _placed(nodes, reasons, known)
    steps = {p: Step(p % 2 == 0) for p in sorted(set(places.values()))}
    for node in nodes:
        if node in places:
            steps[places[node]].nodes.append(node)
    made = list(steps.values())
    _connect(made, module, known)
    return made, reasons


def _runs(node: Node) -> bool:
    """Whether a node is an operation. Numbers are part of what reads them."""
    if node.op in ("placeholder", "output", "get_attr") or is_number(node):
        return False
    if node.op != "call_function":
        raise EqsatError(
            f"node {node.name!r} of the graph is {node.op}, expected call_function"
        )
    return True


def root_of(node: Node) -> Node:
    """The node whose tensor a node shows, itself where it computes."""
    while is_seen_through(node):
        source = node.args[0]
        assert isinstance(source, Node)
        node = source
    return node


# -- what the table has ----------------------------------------------------------------


def _unsupported(nodes: Sequence[Node], known: Mapping[Node, Any]) -> dict[Node, str]:
    """Nodes that no program can compute, and why."""
    reasons: dict[Node, str] = {}
    entries = {n for node in nodes for n in (node, *read_by(node)) if n not in known}
    stand_ins = [n for n in entries if is_plain(value_of(n))]
    specs = [
        Spec(tuple(value_of(n).shape), DTYPES[value_of(n).dtype]) for n in stand_ins
    ]

    def attempt(*given: Any) -> None:
        passed = dict(zip(stand_ins, given, strict=True))
        values: dict[Node, Any] = dict(known)

        def value(node: Node) -> Any:
            if is_number(node):
                return value_of(node)
            if node in values:
                return values[node]
            if node not in passed:
                raise UnsupportedError(f"its argument {node.name!r} is no plain tensor")
            return passed[node]

        for node in nodes:
            if is_item(node):
                source = node.args[0]
                if source in reasons:
                    reasons[node] = ""
                else:
                    values[node] = computed(node, value)
                continue
            try:
                handler_of(node)
                values[node] = computed(node, value)
            except Exception as error:  # whatever NumPy or eqsat says against it
                reasons[node] = said(error)

    trace(attempt, specs)
    return reasons


# -- what runs when --------------------------------------------------------------------


def _placed(
    nodes: Sequence[Node], reasons: Mapping[Node, str], known: Mapping[Node, Any]
) -> dict[Node, int]:
    """The step of each node: even for programs, odd for PyTorch. Views are in none:
    whoever reads one makes it of what it shows."""
    places: dict[Node, int] = {}
    barrier = -1  # nodes with effects run in order, after and before all others
    random = -1  # draws of random numbers run in order
    for node in nodes:
        if node not in reasons and is_seen_through(node):
            continue
        if is_item(node):
            source = node.args[0]
            assert isinstance(source, Node)
            places[node] = places[source]
            continue
        before = [places.get(root_of(n), -1) for n in read_by(node) if n not in known]
        in_program = node not in reasons
        before.append(barrier)
        if _has_effects(node):
            before += places.values()
        if _is_random(node):
            before.append(random)
        place = max(p + (p % 2 == in_program) for p in before)
        places[node] = place
        if _has_effects(node):
            barrier = place
        if _is_random(node):
            random = place
    return places


def _has_effects(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return not is_item(node)
    return bool(schema.is_mutable) or not schema.returns


def _is_random(node: Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def _connect(steps: Sequence[Step], module: GraphModule, known: Any) -> None:
    """Find what each step reads and gives."""
    maker = {n: step for step in steps for n in step.nodes}
    wanted: dict[Node, None] = {}
    for step in steps:
        reads: dict[Node, None] = {}
        for node in step.nodes:
            for read in read_by(node):
                root = root_of(read) if step.in_program else read
                own = maker.get(root_of(read)) is step
                if not own and not (step.in_program and root in known):
                    reads[root] = None
        step.reads = list(reads)
        wanted.update(dict.fromkeys(map(root_of, reads)))
    (output,) = [n for n in module.graph.nodes if n.op == "output"]
    wanted.update(dict.fromkeys(map(root_of, output.all_input_nodes)))
    for step in steps:
        step.gives = [n for n in step.nodes if n in wanted]


def fallbacks_of(reasons: Mapping[Node, str]) -> list[TorchFallback]:
    """What stays in PyTorch, counted by operator and reason."""
    counts: dict[tuple[str, str], int] = {}
    for node, reason in reasons.items():
        if isinstance(node.target, torch._ops.OperatorBase):
            key = name_of(node), reason
            counts[key] = counts.get(key, 0) + 1
    return [TorchFallback(op, reason, n) for (op, reason), n in counts.items()]


__all__ = ["Step", "TorchFallback", "fallbacks_of", "root_of", "steps_of"]
