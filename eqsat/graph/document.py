"""Graphs as documents, the plain data of a JSON file, and back.

What is read is looked at value by value: nothing in a file is run, unpickled or
imported, and sizes are bounded before memory is taken.
"""

from __future__ import annotations

import base64
import json
import math
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from eqsat.graph.meaning import (
    checked_size,
    settled,
    type_of_constant,
    validated,
)
from eqsat.graph.nodes import (
    CONSTANT,
    INPUT,
    MOST_AXES,
    GraphNode,
    NodeTable,
    checked_attributes,
    checked_name,
    op_named,
    with_defaults,
)
from eqsat.graph.of_terms import frozen
from eqsat.support import GraphError, an, counted, nearest
from eqsat.terms import BF16, Op, Type

VERSION = 1
MOST_TEXT = 64 << 20
"""Characters of a file."""
MOST_NODES = 50_000
MOST_EDGES = 4 * MOST_NODES
MOST_CONSTANTS = 32 << 20
"""Bytes of all constants of a file."""
_MOST_MARKS = 40 * MOST_NODES
"""Brackets and commas of a file, which bound the memory that its values take."""
_DTYPES: dict[str, np.dtype[Any]] = {
    d.name: d
    for d in (
        *map(np.dtype, "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16".split()),
        BF16,
    )
}
_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_HEAD = ("eqsat", "version", "nodes", "outputs")


# -- writing ---------------------------------------------------------------------------


def document_of(table: NodeTable) -> dict[str, Any]:
    """The document of a valid graph.

    Raises :class:`GraphError` where it is larger than what can be read.
    """
    types = validated(table)
    _check_counts(len(types), sum(len(n.inputs) for n in table.by_name.values()))
    room = MOST_CONSTANTS
    for node in table.by_name.values():
        if isinstance(node.value, np.ndarray):
            room -= node.value.nbytes
            if room < 0:
                raise GraphError(
                    f"node {node.name!r}: with this constant of {node.value.nbytes} "
                    f"bytes the constants exceed {MOST_CONSTANTS} bytes, the most that "
                    "a file holds\n  make it an input of the graph"
                )
    nodes = [_entry(n, types) for n in table.by_name.values()]
    return {
        "eqsat": "graph",
        "version": VERSION,
        "nodes": nodes,
        "outputs": list(table.outputs),
    }


def _entry(node: GraphNode, types: Mapping[str, Type]) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": node.name, "op": node.op}
    if node.op not in (INPUT, CONSTANT):
        entry["inputs"] = list(node.inputs)
        if node.attributes:
            shapes = [np.broadcast_to(0, types[n][1]) for n in node.inputs[:1]]
            attributes = settled(node, shapes)
            kinds = Op.registry[node.op].attrs
            entry["attributes"] = {
                k: bool(v) if kinds[k] == "bool" else _plain(v)
                for k, v in attributes.items()
            }
    dtype, shape = types[node.name]
    if node.op == CONSTANT and not isinstance(node.value, np.ndarray):
        return {**entry, "number": _plain(node.value)}
    entry |= {"dtype": str(dtype), "shape": list(shape)}
    if node.op == CONSTANT:
        held = _little(cast("np.ndarray[Any, Any]", node.value))
        entry["data"] = base64.b64encode(held.tobytes()).decode("ascii")
    return entry


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def _little(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bytes of an array in the order of files, and back."""
    return array if sys.byteorder == "little" else array.byteswap()


def json_of(document: Mapping[str, Any]) -> str:
    """The text of a document, a node on each line."""
    dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
    nodes = ",\n  ".join(dump(n) for n in document["nodes"])
    head = f'{{"eqsat": "graph", "version": {document["version"]},\n'
    outputs = dump(document["outputs"])
    return checked_text(f'{head} "nodes": [\n  {nodes}],\n "outputs": {outputs}}}\n')


def checked_text(text: str) -> str:
    """A text that is short enough to be read again."""
    _check_length(len(text.encode("utf-8")), "bytes")
    return text


def _check_counts(nodes: int, edges: int) -> None:
    if nodes > MOST_NODES or edges > MOST_EDGES:
        raise GraphError(
            f"a graph's file has at most {MOST_NODES} nodes and {MOST_EDGES} inputs of "
            f"nodes, got {nodes} and {edges}"
        )


def _count_inputs(entry: Any) -> int:
    inputs = entry.get("inputs") if isinstance(entry, dict) else None
    return len(inputs) if isinstance(inputs, list) else 0


# -- reading ---------------------------------------------------------------------------


def text_in(file: str | os.PathLike[str]) -> str:
    """The text of a file, if it is not too long."""
    with Path(file).open("rb") as opened:
        data = opened.read(MOST_TEXT + 1)
    _check_length(len(data), "bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise GraphError(f"a graph's file is text in UTF-8: {error}") from None


def _check_length(length: int, what: str) -> None:
    if length > MOST_TEXT:
        raise GraphError(f"a graph's file has at most {MOST_TEXT} {what}")


def check_characters(text: str) -> None:
    """Raise :class:`GraphError` for a text that is too long to be looked at."""
    _check_length(len(text), "characters")


def parsed_json(text: str) -> Any:
    """The values of a JSON text. Raises :class:`GraphError` for one that is none."""
    check_characters(text)
    marks = sum(map(text.count, "[{,"))
    if marks > _MOST_MARKS:
        raise GraphError(
            f"a graph's file has at most {_MOST_MARKS} brackets and commas, got {marks}"
        )
    try:
        return json.loads(
            text, object_pairs_hook=_without_repeats, parse_constant=_no_number
        )
    except RecursionError:
        raise GraphError("the file is nested too deeply for a graph") from None
    except ValueError as error:
        if isinstance(error, GraphError):
            raise
        raise GraphError(f"the file is no JSON: {error}") from None


def _without_repeats(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [k for k, _ in pairs]
        twice = next(k for k in keys if keys.count(k) > 1)
        raise GraphError(f"the file has {twice!r:.80} twice in one place")
    return found


def _no_number(text: str) -> Any:
    raise GraphError(
        f'the file has the number {text}; write it as a text: "nan", "inf"'
    )


def fill(table: NodeTable, document: Any) -> None:
    """Add the nodes of a document to an empty table, and check the whole.

    Raises :class:`GraphError`, :class:`ShapeError` or :class:`DTypeError` that names
    what is wrong.
    """
    top = _object(document, "the file", _HEAD, _HEAD)
    if top["eqsat"] != "graph":
        raise GraphError(
            f"the file is of {top['eqsat']!r:.80}, not of a graph of eqsat"
        )
    if type(top["version"]) is not int or top["version"] != VERSION:
        raise GraphError(
            f"the file has version {top['version']!r:.80}; this eqsat reads version "
            f"{VERSION}"
        )
    entries = _list(top["nodes"], "nodes")
    _check_counts(len(entries), sum(map(_count_inputs, entries)))
    said: dict[str, Any] = {}
    room = MOST_CONSTANTS
    for i, entry in enumerate(entries):
        room = _add(table, entry, f"entry {i} of nodes", said, room)
    outputs = _list(top["outputs"], "outputs")
    table.outputs += [checked_name(n) for n in outputs]
    for name, (dtype, shape) in validated(table).items():
        told = said.get(name)
        if told is not None and told != (str(dtype), shape):
            raise GraphError(
                f"node {name!r} is {dtype} of shape {shape}, and the file says "
                f"{told[0]} of shape {told[1]}"
            )


def _add(
    table: NodeTable, entry: Any, place: str, said: dict[str, Any], room: int
) -> int:
    """Add one node; what is left of ``room``, the bytes for constants."""
    keys = _object(entry, place, ("name", "op"))
    name = checked_name(keys["name"])
    who = f"node {name!r}"
    if name in table.by_name:
        raise GraphError(f"{who}: there is a node of this name already")
    op = keys["op"]
    if op == INPUT:
        _object(entry, who, ("dtype", "shape"), ("name", "op", "dtype", "shape"))
        table.put(INPUT, name, type_=_type(entry, who))
    elif op == CONSTANT and "number" in keys:
        _object(entry, who, (), ("name", "op", "number"))
        table.put(CONSTANT, name, value=_number(entry["number"], who))
    elif op == CONSTANT:
        wanted = ("name", "op", "dtype", "shape", "data")
        _object(entry, who, wanted, wanted)
        array = _array(entry, who, room)
        table.put(CONSTANT, name, value=array)
        return room - array.nbytes
    else:
        _add_op(table, name, entry, said)
    return room


def _add_op(
    table: NodeTable, name: str, entry: Mapping[str, Any], said: dict[str, Any]
) -> None:
    who = f"node {name!r}"
    known = ("name", "op", "inputs", "attributes", "dtype", "shape")
    _object(entry, who, ("inputs",), known)
    op = op_named(entry["op"], who)
    inputs = [checked_name(n) for n in _list(entry["inputs"], f"{who}: inputs")]
    if len(with_defaults(op, inputs, {}, who)) != len(inputs):
        raise GraphError(f"{who}: a file gives all inputs of {op.name}")
    given = _object(entry.get("attributes", {}), f"{who}: attributes")
    values = {k: _attribute(op.attrs.get(k, ""), v, who) for k, v in given.items()}
    attributes = checked_attributes(op, values, who)
    table.put(op.name, name, tuple(inputs), attributes)
    if "dtype" in entry or "shape" in entry:
        dtype = entry.get("dtype")
        said[name] = dtype, _shape(entry.get("shape"), who)


def _attribute(kind: str, value: Any, who: str) -> Any:
    """An attribute as the op takes it: texts that stand for numbers and dtypes."""
    if kind == "float" and isinstance(value, str):
        return _number(value, who)
    if kind == "DTypeName":
        return _dtype(value, who).name
    return value


def _object(
    value: Any, who: str, needed: Collection[str] = (), known: Collection[str] = ()
) -> Mapping[str, Any]:
    """``value``, which has the keys ``needed`` and no others than ``known``, if any."""
    if not isinstance(value, dict):
        raise GraphError(f"{who}: expected an object, got {_shown(value)}")
    for key in needed:
        if key not in value:
            raise GraphError(f"{who}: {key!r} is missing")
    for key in value:
        if known and key not in known:
            raise GraphError(f"{who}: unknown key {key!r:.80}{nearest(key, known)}")
    return value


def _list(value: Any, who: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise GraphError(f"{who}: expected a list, got {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return "null" if value is None else an(repr(type(value).__name__))


def _number(value: Any, who: str) -> int | float:
    found = _NUMBERS.get(value) if isinstance(value, str) else value
    if type(found) is int and -(2**63) <= found < 2**64:
        return found
    if type(found) is float:
        return found
    raise GraphError(f"{who}: {value!r:.80} is no number")


def _dtype(value: Any, who: str) -> np.dtype[Any]:
    found = _DTYPES.get(value) if isinstance(value, str) else None
    if found is None:
        hint = nearest(value, _DTYPES) if isinstance(value, str) else ""
        raise GraphError(f"{who}: unknown dtype {value!r:.80}{hint}")
    return found


def _shape(value: Any, who: str) -> tuple[int, ...]:
    sizes = _list(value, f"{who}: shape")
    if (
        not all(type(n) is int and 0 <= n < 2**62 for n in sizes)
        or len(sizes) > MOST_AXES
    ):
        raise GraphError(f"{who}: shape {value!r:.80} is no list of sizes")
    return tuple(sizes)


def _type(entry: Mapping[str, Any], who: str) -> Type:
    type_ = _dtype(entry["dtype"], who), _shape(entry["shape"], who)
    return checked_size(type_, who)


def _array(entry: Mapping[str, Any], who: str, room: int) -> np.ndarray[Any, Any]:
    """The array of a constant, of at most ``room`` bytes."""
    dtype, shape = cast("tuple[np.dtype[Any], tuple[int, ...]]", _type(entry, who))
    size = math.prod(shape) * dtype.itemsize
    text = entry["data"]
    if size > room:
        raise GraphError(
            f"{who}: {counted(size, 'byte')}; a file has at most "
            f"{MOST_CONSTANTS} bytes of constants"
        )
    if not isinstance(text, str):
        raise GraphError(f"{who}: data is {_shown(text)}, expected text in base64")
    if len(text) != -(-size // 3) * 4:
        raise GraphError(
            f"{who}: data of {counted(len(text), 'character')}, but {dtype} of shape "
            f"{shape} has {counted(-(-size // 3) * 4, 'character')} in base64"
        )
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise GraphError(f"{who}: data is no base64: {error}") from None
    if len(data) != size or (dtype == np.dtype(bool) and max(data, default=0) > 1):
        raise GraphError(f"{who}: data is not of {dtype} of shape {shape}")
    held = np.frombuffer(bytearray(data), dtype).reshape(shape)
    assert type_of_constant(held) == (dtype, shape)
    return frozen(_little(held))
