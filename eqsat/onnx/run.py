"""Nodes, computed one after another on arrays or traced values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import onnx.defs
from onnx import FunctionProto, TypeProto

from eqsat.onnx.nodes import ModelGraph, ModelReader, Node
from eqsat.onnx.operators import Repeated, UnknownValueError, is_known
from eqsat.support import EqsatError, OnnxError

Values = dict[str, Any]
Body = Callable[[ModelGraph, Sequence[Any], Values], list[Any]]
"""Computes a graph inside of a node, given its inputs and what is around it."""


@dataclass(frozen=True)
class Call:
    """What a function of the table may ask about the node that it computes."""

    node: Node
    around: Values
    body: Body
    repeated: Repeated | None = None
    """On the host, programs of some steps of the node."""

    @property
    def is_traced(self) -> bool:
        """Whether the node is part of a program."""
        return self.body is inline

    @property
    def outputs(self) -> int:
        """How many outputs are wanted."""
        return len(self.node.outputs)

    @property
    def opset(self) -> int:
        """The opset of its domain."""
        return self.node.opsets[self.node.domain]

    def graph(self, graph: ModelGraph, *inputs: Any) -> list[Any]:
        """The outputs of a graph that is an attribute."""
        return self.body(graph, inputs, self.around)

    def within_a_program(self, around: Values) -> Call:
        """The same as part of a program, with other values around the node."""
        return replace(self, around=around, body=inline, repeated=None)


def inline(graph: ModelGraph, inputs: Sequence[Any], around: Values) -> list[Any]:
    """The outputs of a graph inside of a node, computed node by node."""
    values = within(graph, inputs, around)
    execute(graph.nodes, values, inline)
    return [values[n] for n in graph.outputs]


def within(graph: ModelGraph, inputs: Sequence[Any], around: Values) -> Values:
    """The values with which a graph inside of a node starts."""
    missing = len(graph.inputs) - len(inputs)
    values = {n: around[n] for n in graph.captured}
    values.update(zip(graph.inputs, [*inputs, *[None] * missing], strict=True))
    values.update(graph.constants)
    return values


def execute(
    nodes: Iterable[Node],
    values: Values,
    body: Body,
    repeated: Repeated | None = None,
) -> None:
    """Compute nodes in order; ``values`` has what they read, and gets what they
    give."""
    with unheard():
        for node in nodes:
            found = computed(node, values, body, repeated)
            pairs = zip(node.outputs, found, strict=False)
            values.update({n: v for n, v in pairs if n})


@contextmanager
def unheard() -> Iterator[None]:
    """No warnings of NumPy inside: what overflows in a model is meant to."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def computed(
    node: Node, values: Values, body: Body, repeated: Repeated | None = None
) -> Sequence[Any]:
    """The outputs of one node, inside of :func:`unheard`.

    Raises :class:`OnnxError` with the node's name; :class:`UnknownValueError` goes
    through.
    """
    args = [values[n] if n else None for n in node.inputs]
    try:
        if node.entry is None:
            given = iter(_by_body(node, args, body))
            return [next(given) if name else None for name in node.outputs]
        _refuse_in_trace(node, args, body)
        attributes = dict(node.attributes)
        if "call" in node.entry.parameters:
            attributes["call"] = Call(node, values, body, repeated)
        found = node.entry.function(*args, **attributes)
    except OnnxError:
        raise
    except UnknownValueError as error:
        error.node = error.node or str(node)
        raise
    except Exception as error:
        kind = type(error).__name__
        raise OnnxError(f"{node}: {kind}: {error}") from error
    found = found if isinstance(found, tuple) else (found,)
    if len(found) < len(node.outputs):
        raise OnnxError(f"{node}: output {node.outputs[len(found)]!r} is not supported")
    return [_typed(v, i, node, args) for i, v in enumerate(found)]


def _by_body(node: Node, args: Sequence[Any], body: Body) -> Sequence[Any]:
    """The outputs of a node that is a function."""
    try:
        return body(body_of(node, args), args, {})
    except OnnxError as error:
        if node.body is not None:  # which is in the model
            raise
        raise OnnxError(f"{node}, as the standard writes it: {error}") from error


def _refuse_in_trace(node: Node, args: Sequence[Any], body: Body) -> None:
    """Raise :class:`EqsatError` for a node of the host within what is traced."""
    entry = node.entry
    if entry is not None and entry.on_host and body is inline:
        if entry.drawn or not is_known(*args):
            raise EqsatError("NumPy computes it, on the host")


def _typed(value: Any, place: int, node: Node, args: Sequence[Any]) -> Any:
    """An output with the type that the standard gives it: NumPy may widen one."""
    if isinstance(value, np.generic):
        value = np.asarray(value)
    like = node.alike[place] if place < len(node.alike) else None
    wanted = (
        getattr(args[like], "dtype", None)
        if like is not None and like < len(args)
        else None
    )
    found = getattr(value, "dtype", None)
    if found is None or wanted is None or found == wanted:
        return value
    return value.astype(wanted)


def body_of(node: Node, args: Sequence[Any]) -> ModelGraph:
    """The graph of a node that is a function, for inputs of these types."""
    if node.body is not None:
        return node.body
    types = tuple(_type_of(v) for v in args)
    if types not in node.bodies:
        node.bodies[types] = _stock_body(node, types)
    return node.bodies[types]


def _stock_body(node: Node, types: tuple[bytes, ...]) -> ModelGraph:
    """The body that the standard gives for an operator."""
    opset = node.opsets[node.domain]
    schema = onnx.defs.get_schema(node.op, opset, node.domain)
    by_types = schema.has_context_dependent_function
    if by_types:
        there = schema.context_dependent_function_opset_versions
    else:
        there = schema.function_opset_versions
    # a body that came with a later opset says so, and means the same
    version = max((v for v in there if v <= opset), default=min(there))
    if by_types:
        data = schema.get_context_dependent_function_with_opset_version(
            version, node.proto.SerializeToString(), list(types)
        )
    else:
        data = schema.get_function_with_opset_version(version)
    proto = FunctionProto.FromString(data)
    for name, spec in schema.attributes.items():
        given = {a.name for a in (*node.proto.attribute, *proto.attribute_proto)}
        if spec.default_value.name and name not in given:
            proto.attribute_proto.append(spec.default_value)
        elif name not in (*proto.attribute, *given):
            proto.attribute.append(name)
    proto.attribute.extend(a for a in schema.attributes if a not in proto.attribute)
    return ModelReader(None, node.opsets).function(proto, node.proto)


def _type_of(value: Any) -> bytes:
    made = TypeProto()
    if isinstance(value, (list, tuple)):
        if value:
            made.sequence_type.elem_type.ParseFromString(_type_of(value[0]))
    elif value is not None:
        dtype = np.dtype(value.dtype)
        element = onnx.helper.np_dtype_to_tensor_dtype(dtype)
        made.tensor_type.elem_type = element
        made.tensor_type.shape.SetInParent()
        for n in value.shape:
            made.tensor_type.shape.dim.add().dim_value = n
    return bytes(made.SerializeToString())
