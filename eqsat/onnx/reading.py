"""Models of files, read and checked: their graph, and what their inputs must be."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto

from eqsat.onnx.nodes import ModelGraph, ModelReader, detached, versions
from eqsat.onnx.operators import dtype_of, has_external_data
from eqsat.support import DTypeError, OnnxError, ShapeError
from eqsat.terms import Traced

Sizes = tuple[int | str | None, ...]


@dataclass(frozen=True)
class OpenedModel:
    """What a model says of itself."""

    graph: ModelGraph
    inputs: dict[str, Any]
    """Types of inputs by name, as messages of ONNX."""
    defaults: dict[str, Any]
    """Types of inputs that have a value if none is given."""
    checks: dict[str, Callable[[Any], Any]]
    """What takes an input as arrays, and raises where it is not of its type."""
    optional: frozenset[str]
    is_one_file: bool
    """Whether all of it is in one file."""

    def arrays(self) -> dict[str, tuple[Any, Sizes | None]]:
        """As :meth:`.OnnxModel.arrays`."""
        return {
            n: (dtype_of(t.tensor_type.elem_type, f"input {n!r}"), _sizes(t))
            for n, t in self.inputs.items()
            if t.WhichOneof("value") == "tensor_type"
        }


def opened(model: ModelProto, folder: Path | None) -> OpenedModel:
    """The model of a message; ``folder`` has its external data. Raises
    :class:`OnnxError`."""
    if not model.HasField("graph"):
        raise OnnxError("the model has no graph")
    opsets = versions(model.opset_import, "the model")
    reader = ModelReader(folder, opsets, model.functions, model.producer_name)
    graph = reader.graph(model.graph)
    declared = {i.name: detached(i.type) for i in model.graph.input}
    initial = graph.constants
    return OpenedModel(
        graph,
        {n: t for n, t in declared.items() if n not in initial},
        {n: t for n, t in declared.items() if n in initial},
        {n: _check(n, t) for n, t in declared.items()},
        frozenset(
            n for n, t in declared.items() if t.WhichOneof("value") == "optional_type"
        ),
        not has_external_data(model),
    )


def parsed(data: bytes, what: str) -> ModelProto:
    """The message in the bytes of a file. Raises :class:`OnnxError`."""
    try:
        return onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise OnnxError(f"{what} is damaged, or no model of ONNX: {error}") from None


def _check(name: str, type_: Any) -> Callable[[Any], Any]:
    """What takes an input as arrays, and raises where it is not of the type that the
    model declares."""
    kind = type_.WhichOneof("value")
    if kind == "optional_type":
        inner = _check(name, type_.optional_type.elem_type)
        return lambda value: None if value is None else inner(value)
    if kind == "sequence_type":
        return functools.partial(
            _check_sequence, name, _check(name, type_.sequence_type.elem_type)
        )
    if kind != "tensor_type":
        raise OnnxError(f"input {name!r}: {kind} is not supported")
    dtype = dtype_of(type_.tensor_type.elem_type, f"input {name!r}")
    sizes = _sizes(type_)
    if sizes is not None:
        sizes = tuple(n if isinstance(n, int) else None for n in sizes)
    return functools.partial(_check_array, name, dtype, sizes)


def _sizes(type_: Any) -> Sizes | None:
    """Sizes of a tensor's axes: numbers, names or None; None for any shape. One below 0
    is no size: some exporters write -1."""
    tensor = type_.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(
        (
            d.dim_value
            if d.HasField("dim_value") and d.dim_value >= 0
            else d.dim_param or None
        )
        for d in tensor.shape.dim
    )


def _check_sequence(name: str, check: Callable[[Any], Any], value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        raise DTypeError(f"input {name!r} is a sequence, got {type(value).__name__}")
    return [*map(check, value)]


def _check_array(
    name: str, dtype: Any, sizes: tuple[int | None, ...] | None, value: Any
) -> Any:
    array: Any = value if isinstance(value, Traced) else np.asarray(value)
    if dtype.kind == "O" and array.dtype.kind in "US":
        array = array.astype(object)
    if array.dtype != dtype:
        raise DTypeError(f"input {name!r} has dtype {dtype}, got {array.dtype}")
    found = array.shape
    if sizes is not None and (
        len(sizes) != len(found)
        or any(n is not None and n != m for n, m in zip(sizes, found, strict=True))
    ):
        shown = ", ".join("any" if n is None else str(n) for n in sizes)
        raise ShapeError(f"input {name!r} has shape ({shown}), got {tuple(found)}")
    return array
