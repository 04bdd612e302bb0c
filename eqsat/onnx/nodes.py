"""Graphs of a file as nodes with the functions that compute them, checked by name."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.defs
from onnx import AttributeProto, NodeProto

from eqsat.onnx.operators import (
    EARLIEST,
    LATEST,
    WHOLE_CORNERS,
    Implementation,
    array_of,
    choices,
    dense,
    entry_for,
)
from eqsat.support import OnnxError, counted, nearest

MOST_NODES = 200_000
"""Nodes of a model, functions expanded."""
MOST_DEPTH = 50
"""Functions of a model that call each other."""
_KINDS = AttributeProto.AttributeType
_Around = tuple[set[str], set[str]]


@dataclass(eq=False)
class ModelGraph:
    """Nodes in order, each after those that it reads."""

    name: str
    inputs: list[str]
    outputs: list[str]
    constants: dict[str, np.ndarray[Any, Any]]
    nodes: list[Node]
    types: list[Any] = field(default_factory=list)
    """Of outputs, as messages of ONNX; none where the graph is a function."""
    captured: tuple[str, ...] = ()
    """Names that it reads of the graphs around it."""


@dataclass(eq=False)
class Node:
    """One operator with its attributes."""

    name: str
    op: str
    domain: str
    opsets: Mapping[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    entry: Implementation | None
    """None for a function."""
    body: ModelGraph | None
    """Of a function whose body does not depend on types."""
    proto: Any
    """A ``NodeProto`` of its own, of a function whose body depends on types."""
    reads: tuple[str, ...] = ()
    """Names that it reads, those of its graphs too."""
    alike: tuple[int | None, ...] = ()
    """For each output the input whose type of elements it has."""
    bodies: dict[Any, ModelGraph] = field(default_factory=dict)
    """Of a function whose body depends on types, by these."""

    def __str__(self) -> str:
        domain = self.domain or "ai.onnx"
        version = self.opsets.get(self.domain, "none")
        return f"node {self.name!r} ({self.op} of {domain}, opset {version})"


def versions(imports: Iterable[Any], what: str) -> dict[str, int]:
    """Opsets by domain. Raises :class:`OnnxError` for one that is not known."""
    found: dict[str, int] = {}
    for o in imports:
        domain = "" if o.domain == "ai.onnx" else o.domain
        found[domain] = o.version
        newest = min(LATEST, onnx.defs.onnx_opset_version())
        if domain == "" and not 1 <= o.version <= newest:
            raise OnnxError(
                f"{what}: opset {o.version} of ai.onnx; those from {EARLIEST} to "
                f"{newest} are known"
            )
    return found


class ModelReader:
    """Reads graphs of one model."""

    def __init__(
        self,
        folder: Path | None,
        opsets: Mapping[str, int],
        functions: Iterable[Any] = (),
        producer: str = "",
    ) -> None:
        self.folder = folder
        self.opsets = opsets
        self.producer = producer
        """What wrote the model, which may mean something of its own."""
        self.functions: dict[tuple[str, str, str], Any] = {}
        for f in functions:
            self.functions[(_domain(f.domain), f.name, f.overload)] = f
        self.left = MOST_NODES
        self.bodies: dict[Any, tuple[ModelGraph, int]] = {}
        """Of functions, and how many nodes these have."""
        self.open: list[tuple[str, str, str]] = []
        """Functions that are being expanded."""

    def graph(self, proto: Any, outer: Iterable[str] = ()) -> ModelGraph:
        """A ``GraphProto``; ``outer`` are names that it may read."""
        what = f"graph {proto.name!r}"
        constants = {}
        for tensor in proto.initializer:
            constants[tensor.name] = array_of(
                tensor, self.folder, f"{what}: initializer {tensor.name!r}"
            )
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            constants[name] = dense(sparse, self.folder, f"{what}: {name!r}")
        inputs = [i.name for i in proto.input]
        outputs = [o.name for o in proto.output]
        types = [detached(o.type) for o in proto.output]
        made = ModelGraph(proto.name, inputs, outputs, constants, [], types)
        self._fill(made, proto.node, self.opsets, set(outer), what)
        return made

    def _expanded(self, proto: Any, call: Any) -> ModelGraph:
        """The body of a function of the model; calls with the same attributes share
        one, and count as if they did not."""
        given = b"".join(a.SerializeToString() for a in call.attribute)
        wanted = tuple(bool(o) for o in call.output)
        key = _domain(proto.domain), proto.name, proto.overload, given, wanted
        if key not in self.bodies:
            before = self.left
            self.bodies[key] = self.function(proto, call), before - self.left
        else:
            self._count(self.bodies[key][1], f"function {proto.name!r}")
        return self.bodies[key][0]

    def _count(self, nodes: int, what: str) -> None:
        self.left -= nodes
        if self.left < 0:
            raise OnnxError(f"{what}: more than {MOST_NODES} nodes")

    def function(self, proto: Any, call: Any) -> ModelGraph:
        """The body of a ``FunctionProto`` with the attributes of a node."""
        given = {a.name: a for a in proto.attribute_proto}
        known = {*given, *proto.attribute}
        for a in call.attribute:
            if a.name not in known:
                raise OnnxError(
                    f"node {call.name!r}: function {proto.name!r} has no attribute "
                    f"{a.name!r}{nearest(a.name, known)}"
                )
            given[a.name] = a
        key = (_domain(proto.domain), proto.name, proto.overload)
        if key in self.open:
            raise OnnxError(f"function {proto.name!r} calls itself")
        if len(self.open) >= MOST_DEPTH:
            raise OnnxError(
                f"function {proto.name!r}: more than {MOST_DEPTH} functions that call "
                "each other"
            )
        self.open.append(key)
        what = f"function {proto.name!r}"
        nodes = [_bound(n, given) for n in proto.node]
        wanted = [o for o, c in zip(proto.output, call.output, strict=False) if c]
        made = ModelGraph(proto.name, list(proto.input), wanted, {}, [])
        newest = min(LATEST, onnx.defs.onnx_opset_version())
        own = versions(proto.opset_import, what)
        opsets = {"": newest, **(own or self.opsets)}
        self._fill(made, nodes, opsets, set(), what)
        self.open.pop()
        return made

    def _fill(
        self,
        graph: ModelGraph,
        protos: Iterable[Any],
        opsets: Mapping[str, int],
        outer: set[str],
        what: str,
    ) -> None:
        there = {*graph.inputs, *graph.constants}
        captured: dict[str, None] = {}
        for i, proto in enumerate(_in_order(list(protos))):
            self._count(1, what)
            node = self.node(proto, i, opsets, (there, outer))
            graph.nodes.append(node)
            for name in node.reads:
                if name in there:
                    continue
                if name not in outer:
                    raise OnnxError(
                        f"{node}: input {name!r} is no input, no initializer and no "
                        f"output of a node before{nearest(name, there)}"
                    )
                captured[name] = None
            for name in filter(None, node.outputs):
                if name in there:
                    raise OnnxError(f"{node}: output {name!r} is there already")
                there.add(name)
        for name in graph.outputs:
            if name not in there and name in outer:
                captured[name] = None
            elif name not in there:
                raise OnnxError(
                    f"{what}: output {name!r} is no output of a node"
                    f"{nearest(name, there)}"
                )
        graph.captured = tuple(captured)

    def node(
        self, proto: Any, place: int, opsets: Mapping[str, int], around: _Around
    ) -> Node:
        """A ``NodeProto`` with what computes it; ``around`` are names that its graphs
        may read."""
        domain = _domain(proto.domain)
        op = _text(proto.op_type)
        name = proto.name or f"{op}_{place}"
        node = Node(
            *(name, op, domain, opsets, tuple(proto.input)),
            *(tuple(proto.output), {}, None, None, None),
        )
        own = self.functions.get((domain, proto.op_type, proto.overload))
        if own is not None:
            node.body = self._expanded(own, proto)
            node.reads = tuple(filter(None, node.inputs))
            return node
        self._attributes(node, self._schema(node).attributes, proto, around)
        if node.entry is None:
            node.proto = detached(proto)
        graphs = [g for v in node.attributes.values() for g in _graphs(v)]
        reads = dict.fromkeys(filter(None, node.inputs))
        for g in graphs:
            reads.update(dict.fromkeys(g.captured))
        node.reads = tuple(reads)
        return node

    def _schema(self, node: Node) -> _Schema:
        """What the standard says of an operator; notes what computes it."""
        version = node.opsets.get(node.domain)
        if version is None:
            raise OnnxError(f"{node}: the model imports no opset of this domain")
        try:
            schema = _schema_of(node.op, version, node.domain)
        except onnx.defs.SchemaError as error:
            names = {
                s.name for s in onnx.defs.get_all_schemas() if s.domain == node.domain
            }
            raise OnnxError(
                f"{node}: unknown operator{nearest(node.op, names - {node.op})}"
            ) from error
        if not node.domain and version < EARLIEST:
            later = _schema_of(node.op, EARLIEST, node.domain)
            if later.since != schema.since:
                raise OnnxError(
                    f"{node}: this operator has another meaning before opset {EARLIEST}"
                )
        node.entry = entry_for(node.domain, node.op, schema.since)
        if node.entry is None and not schema.has_body:
            raise OnnxError(f"{node}: operator is not supported")
        node.alike = schema.alike
        (a, b), (c, d) = schema.inputs, schema.outputs
        if not (a <= len(node.inputs) <= b and c <= len(node.outputs) <= d):
            raise OnnxError(
                f"{node}: {counted(len(node.inputs), 'input')} and "
                f"{counted(len(node.outputs), 'output')}, expected {a} to {b} and "
                f"{c} to {d}"
            )
        return schema

    def _attributes(
        self, node: Node, known: Mapping[str, Any], proto: Any, around: _Around
    ) -> None:
        """Read the attributes; those left out have the defaults of the schema, of which
        ``known`` are the attributes."""
        for a in proto.attribute:
            if a.name not in known:
                raise OnnxError(
                    f"{node}: unknown attribute {a.name!r}{nearest(a.name, known)}"
                )
            wanted = int(known[a.name].type.value)
            if a.type != wanted and a.type != AttributeProto.UNDEFINED:
                raise OnnxError(
                    f"{node}: attribute {a.name!r} is {_KINDS.Name(a.type)}, expected "
                    f"{_KINDS.Name(wanted)}"
                )
            value = node.attributes[a.name] = self._value(a, node, around)
            allowed = choices(node.op, a.name, node.opsets[node.domain])
            given = value if isinstance(value, list) else [value]
            if allowed is not None and not all(v in allowed for v in given):
                raise OnnxError(
                    f"{node}: attribute {a.name!r} is {value!r}, and allowed are "
                    f"{', '.join(map(repr, allowed))}"
                )
        asked = None if node.entry is None else node.entry.parameters
        for name, spec in known.items():
            if name in node.attributes:
                if asked is not None and name not in asked:
                    raise OnnxError(f"{node}: attribute {name!r} is not supported")
            elif spec.required:
                raise OnnxError(f"{node}: attribute {name!r} is missing")
            elif spec.default_value.name and (asked is None or name in asked):
                node.attributes[name] = self._value(spec.default_value, node, around)
        places = node.attributes.get("coordinate_transformation_mode")
        if self.producer == "pytorch" and places == "align_corners":
            node.attributes["coordinate_transformation_mode"] = WHOLE_CORNERS

    def _value(self, a: Any, node: Node, around: _Around) -> Any:
        what = f"{node}: attribute {a.name!r}"
        if a.ref_attr_name:
            raise OnnxError(f"{what} refers to {a.ref_attr_name!r} outside a function")
        if a.type == AttributeProto.TENSOR:
            return array_of(a.t, self.folder, what)
        if a.type == AttributeProto.SPARSE_TENSOR:
            return dense(a.sparse_tensor, self.folder, what)
        if a.type == AttributeProto.GRAPH:
            reader = ModelReader(self.folder, node.opsets, (), self.producer)
            reader.functions, reader.open = self.functions, self.open
            reader.left, reader.bodies = self.left, self.bodies
            made = reader.graph(a.g, set().union(*around))
            self.left = reader.left
            return made
        value = onnx.helper.get_attribute_value(a)
        if a.type == AttributeProto.STRING:
            return value.decode("utf-8", "surrogateescape")
        if a.type == AttributeProto.STRINGS:
            return [v.decode("utf-8", "surrogateescape") for v in value]
        if a.type in (AttributeProto.INTS, AttributeProto.FLOATS):
            return list(value)
        if a.type in (
            *(AttributeProto.INT, AttributeProto.FLOAT),
            AttributeProto.TYPE_PROTO,
        ):
            return value
        if a.type == AttributeProto.TENSORS:
            return [array_of(t, self.folder, what) for t in value]
        raise OnnxError(f"{what}: {_KINDS.Name(a.type)} is not supported")


class _Schema(NamedTuple):
    """What is asked of a schema of ONNX, which makes all of it anew each time."""

    since: int
    has_body: bool
    alike: tuple[int | None, ...]
    inputs: tuple[int, int]
    """The least and the most."""
    outputs: tuple[int, int]
    attributes: Mapping[str, Any]


@functools.cache
def _schema_of(op: str, version: int, domain: str) -> _Schema:
    """Raises ``onnx.defs.SchemaError`` for an unknown operator."""
    found: Any = onnx.defs.get_schema(op, version, domain)
    return _Schema(
        found.since_version,
        found.has_function or found.has_context_dependent_function,
        _alike(found),
        (found.min_input, found.max_input),
        (found.min_output, found.max_output),
        found.attributes,
    )


def _alike(schema: Any) -> tuple[int | None, ...]:
    kinds = [i.type_str for i in schema.inputs if i.is_homogeneous]
    return tuple(
        kinds.index(o.type_str) if o.is_homogeneous and o.type_str in kinds else None
        for o in schema.outputs
    )


def detached(message: Any) -> Any:
    """A message of its own: a part of another keeps all of that in memory."""
    return type(message).FromString(message.SerializeToString())


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else _text(name)


def _text(name: str | bytes) -> str:
    """A name of a file, whose bytes may be no text."""
    return name if isinstance(name, str) else name.decode("utf-8", "replace")


def _graphs(value: Any) -> Sequence[ModelGraph]:
    if isinstance(value, ModelGraph):
        return [value]
    return (
        [v for v in value if isinstance(v, ModelGraph)]
        if isinstance(value, list)
        else []
    )


def _in_order(protos: Sequence[Any]) -> Sequence[Any]:
    """Nodes, each behind those whose outputs it reads: the standard wants them so, but
    some tools write others. As they are where they go in circles."""
    maker = {name: i for i, p in enumerate(protos) for name in p.output if name}
    reads = [sorted({maker[n] for n in _read(p) if n in maker}) for p in protos]
    if all(j < i for i, of in enumerate(reads) for j in of):
        return protos
    done: dict[int, None] = {}
    for first in range(len(protos)):
        path, left = [first], {first: iter(reads[first])}
        while path:
            i = path[-1]
            after = next((j for j in left[i] if j not in done), None)
            if after is None:
                done[path.pop()] = None
            elif after in left:
                return protos
            else:
                path.append(after)
                left[after] = iter(reads[after])
    return [protos[i] for i in done]


def _read(proto: Any) -> Iterator[str]:
    """Names that a node reads, and those from outside that its graphs do."""
    yield from filter(None, proto.input)
    for a in proto.attribute:
        for graph in (*([a.g] if a.HasField("g") else ()), *a.graphs):
            own = {i.name for i in (*graph.input, *graph.initializer)}
            own.update(name for node in graph.node for name in node.output)
            yield from ({o.name for o in graph.output} - own)
            for node in graph.node:
                yield from (name for name in _read(node) if name not in own)


def _bound(node: Any, given: Mapping[str, Any]) -> Any:
    """A node of a function's body with the attributes that it refers to; one that is
    not given is left out."""
    made = NodeProto()
    made.CopyFrom(node)
    _bind(made, given)
    return made


def _bind(node: Any, given: Mapping[str, Any]) -> None:
    kept = []
    for a in node.attribute:
        if a.ref_attr_name:
            value = given.get(a.ref_attr_name)
            if value is None:
                continue
            bound = AttributeProto()
            bound.CopyFrom(value)
            bound.name = a.name
            kept.append(bound)
            continue
        for inner in a.g.node if a.HasField("g") else ():
            _bind(inner, given)
        for graph in a.graphs:
            for inner in graph.node:
                _bind(inner, given)
        copied = AttributeProto()
        copied.CopyFrom(a)
        kept.append(copied)
    del node.attribute[:]
    node.attribute.extend(kept)
