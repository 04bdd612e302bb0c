"""What the nodes of a graph compute: their order, their types, and their function."""

from __future__ import annotations

import inspect
import keyword
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from eqsat.graph.nodes import CONSTANT, INPUT, MOST_AXES, GraphNode, NodeTable
from eqsat.support import (
    BoundsError,
    DTypeError,
    EqsatError,
    GraphError,
    RangeError,
    ShapeError,
    SourceLine,
    at,
    caller_line,
    counted,
    nearest,
)
from eqsat.terms import INPUT as INPUT_LEAF
from eqsat.terms import Op, Shape, Term, TermGraph, Traced, Type, Weak, apply, constant
from eqsat.trace import Tracer

_MOST_BYTES = 2**62
"""Bytes of one value that a shape may stand for: no machine has them."""
_ONE_AXIS = frozenset("accumulate argmax argmin argsort sort".split())


def ordered(table: NodeTable) -> list[GraphNode]:
    """All nodes, each after those that it reads, else as they were added.

    Raises :class:`GraphError` for an input that is no node and for a cycle.
    """
    done: dict[str, None] = {}
    for first in table.by_name:
        path: dict[str, int] = {}  # nodes that wait, and how many inputs are looked at
        stack = [first]
        while stack:
            name = stack[-1]
            if name in done:
                stack.pop()
                continue
            inputs = table.by_name[name].inputs
            i = path.get(name, 0)
            if i == len(inputs):
                path.pop(name, None)
                done[name] = None
                stack.pop()
                continue
            path[name] = i + 1
            wanted = inputs[i]
            if wanted not in table.by_name:
                raise _missing(table, table.by_name[name], i)
            if wanted in path:
                raise _cycle(table, [*path], wanted)
            if wanted not in done:
                stack.append(wanted)
    return [table.by_name[n] for n in done]


def _missing(table: NodeTable, node: GraphNode, i: int) -> GraphError:
    wanted = node.inputs[i]
    return GraphError(
        f"node {node.name!r}: input {i} is {wanted!r}, and there is no such node"
        f"{nearest(wanted, table.by_name)}{at(node.source)}"
    )


def _cycle(table: NodeTable, waiting: Sequence[str], start: str) -> GraphError:
    names = [*waiting[waiting.index(start) :], start]
    if len(names) > 8:
        names = [*names[:4], "…", *names[-3:]]
    shown = ", which reads ".join(n if n == "…" else repr(n) for n in names)
    return GraphError(
        f"node {start!r} depends on itself: {shown}{at(table.by_name[start].source)}"
    )


def validated(table: NodeTable) -> dict[str, Type]:
    """The dtype and shape of each node of a graph with which nothing is wrong."""
    types = types_of(table)
    _check_outputs(table)
    return types


def _check_outputs(table: NodeTable) -> None:
    """Raise :class:`GraphError` for a graph without outputs, and for a node that no
    output needs. An input may be there without being read, as a parameter may."""
    if not table.outputs:
        raise GraphError("the graph has no output; write graph.output(node)")
    for name in table.outputs:
        node = table.by_name.get(name)
        if node is None:
            raise GraphError(
                f"output {name!r}: there is no such node{nearest(name, table.by_name)}"
            )
        if node.op == CONSTANT and not isinstance(node.value, np.ndarray):
            raise GraphError(
                f"output {name!r} is a bare number{at(node.source)}\n  "
                "write graph.constant(numpy.asarray(number))"
            )
    needed = set(table.outputs)
    stack = [*needed]
    while stack:
        for name in table.by_name[stack.pop()].inputs:
            if name not in needed:
                needed.add(name)
                stack.append(name)
    for name, node in table.by_name.items():
        if name not in needed and node.op != INPUT:
            raise GraphError(
                f"node {name!r} ({node.op}) dangles: no output needs it"
                f"{at(node.source)}"
            )


def types_of(table: NodeTable) -> dict[str, Type]:
    """The dtype and shape of each node, in topological order.

    Raises what is wrong with a node: :class:`GraphError`, :class:`ShapeError` or
    :class:`DTypeError` with its name and the line that added it.
    """
    graph = TermGraph(sources=False)
    made: dict[str, Any] = {}
    inputs = 0
    found: dict[str, Type] = {}
    for node in ordered(table):
        if node.op == INPUT:
            type_ = cast(Type, node.type)
            made[node.name] = graph.node(INPUT_LEAF, (), (inputs,), type_)
            inputs += 1
        elif node.op == CONSTANT:
            array = isinstance(node.value, np.ndarray)
            made[node.name] = constant(graph, node.value) if array else node.value
            type_ = type_of_constant(node.value)
        else:
            term = _typed(node, graph, [made[n] for n in node.inputs])
            made[node.name] = term
            type_ = term.type
        found[node.name] = type_
    return found


def type_of_constant(value: Any) -> Type:
    """The dtype and shape of an array or a Python number."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape
    return (Weak.FLOAT if isinstance(value, float) else Weak.INT), ()


def _typed(node: GraphNode, graph: TermGraph, args: Sequence[Any]) -> Term:
    """The term of one node."""
    op = Op.registry[node.op]
    try:
        term = apply(op, graph, args, node.attributes)
    except EqsatError as error:
        raise _named(node, error) from error
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise GraphError(
            f"node {node.name!r}: {op.name}: the attributes do not fit the inputs "
            f"({type(error).__name__}: {error}){at(node.source)}"
        ) from error
    wrong = min(term.shape, default=0) < 0 or (op.name == "iota" and term.ndim != 1)
    if wrong or term.nbytes > _MOST_BYTES or term.ndim > MOST_AXES:
        raise ShapeError(
            f"node {node.name!r}: {op.name}: an array of shape {term.shape} cannot be "
            f"made{at(node.source)}"
        )
    if op.name in _ONE_AXIS and len(settled(node, args)["axis"]) != 1:
        raise ShapeError(
            f"node {node.name!r}: {op.name} takes one axis, got "
            f"{node.attributes['axis']}{at(node.source)}"
        )
    return term


def settled(node: GraphNode, args: Sequence[Any]) -> dict[str, Any]:
    """The attributes of a node in normal form; its inputs tell the number of axes."""
    return Op.registry[node.op].settle(node.attributes, np.ndim(args[0]) if args else 0)


def _named(node: GraphNode, error: EqsatError) -> EqsatError:
    """``error`` with the node's name, and the line that added it."""
    text = str(error).removesuffix(at(caller_line()))
    kind: type[EqsatError] = GraphError
    if isinstance(error, (ShapeError, BoundsError)):
        kind = ShapeError
    elif isinstance(error, (DTypeError, RangeError)):
        kind = DTypeError
    return kind(f"node {node.name!r}: {text}{at(node.source)}")


# -- as a function ---------------------------------------------------------------------


class _Step(NamedTuple):
    """One node: what is computed of which values."""

    op: Op | None
    """None for inputs and constants."""
    args: tuple[int, ...]
    attributes: Mapping[str, Any]
    value: Any
    source: SourceLine | None


def function_of(table: NodeTable) -> Callable[..., Any]:
    """A Python function of the inputs in order: the one output, or a tuple of several.

    It calls the ops in topological order, on arrays and on traced values.
    """
    nodes = ordered(table)
    inputs = [n for n in table.by_name.values() if n.op == INPUT]
    places = {n.name: i for i, n in enumerate(inputs)}
    steps: list[_Step] = []
    for n in nodes:
        if n.op == INPUT:
            continue
        places[n.name] = len(inputs) + len(steps)
        op = None if n.op == CONSTANT else Op.registry[n.op]
        args = tuple(places[a] for a in n.inputs)
        steps.append(_Step(op, args, dict(n.attributes), n.value, n.source))
    wanted = tuple((n.name, cast(Type, n.type)) for n in inputs)
    rows, roots = tuple(steps), tuple(places[n] for n in table.outputs)

    def graph(*arrays: Any) -> Any:
        values = list(_checked(wanted, arrays))
        some = next((v for v in values if isinstance(v, Traced)), None)
        for row in rows:
            values.append(_computed(row, values, some))
        results = tuple(_result(values, r, len(wanted)) for r in roots)
        return results[0] if len(results) == 1 else results

    names = [name for name, _ in wanted]
    if all(n.isidentifier() and not keyword.iskeyword(n) for n in names):
        only = inspect.Parameter.POSITIONAL_ONLY
        parameters = [inspect.Parameter(n, only) for n in names]
        graph.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return graph


def _computed(row: _Step, values: Sequence[Any], some: Any) -> Any:
    """The value of a step; ``some`` is a traced value, if there is one."""
    if row.op is None:
        is_array = type(some) is Tracer and isinstance(row.value, np.ndarray)
        return Tracer(constant(some.term.graph, row.value)) if is_array else row.value
    args = [values[i] for i in row.args]
    like = next((a for a in args if isinstance(a, Traced)), some)
    if like is None:
        return row.op(*args, **row.attributes)
    graph = like.term.graph if type(like) is Tracer else None
    if graph is None:
        return like.lift(row.op, args, row.attributes)
    graph.line = row.source
    try:
        return like.lift(row.op, args, row.attributes)
    finally:
        graph.line = None


def _result(values: Sequence[Any], place: int, inputs: int) -> Any:
    """A value as a result: an array, also one without axes."""
    value = values[place]
    if place < inputs:
        return value
    if isinstance(value, Tracer):
        value.is_array = True
        return value
    return np.array(value)


def _checked(
    wanted: Sequence[tuple[str, Type]], arrays: Sequence[Any]
) -> Iterable[Any]:
    """The arrays for the inputs, of the dtypes and shapes that these have."""
    if len(arrays) != len(wanted):
        names = ", ".join(name for name, _ in wanted)
        raise GraphError(
            f"the graph has {counted(len(wanted), 'input')} ({names}), got "
            f"{counted(len(arrays), 'array')}{at(caller_line())}"
        )
    for (name, (dtype, shape)), array in zip(wanted, arrays, strict=True):
        given: Any = array if isinstance(array, Traced) else np.asarray(array)
        found: tuple[Any, Shape] = given.dtype, tuple(given.shape)
        if found != (dtype, shape):
            kind = DTypeError if found[0] != dtype else ShapeError
            raise kind(
                f"input {name!r} has dtype {dtype} and shape {shape}, got {found[0]} "
                f"and {found[1]}{at(caller_line())}"
            )
        yield given


def checked_size(type_: Type, who: str) -> Type:
    """``type_``, whose array some machine could hold."""
    dtype, shape = type_
    size = math.prod(shape) * cast(Any, dtype).itemsize
    if len(shape) > MOST_AXES or min(shape, default=0) < 0 or size > _MOST_BYTES:
        raise ShapeError(
            f"{who}: an array of shape {shape} cannot be made{at(caller_line())}"
        )
    return type_
