"""A model as a function."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from eqsat.jit import jit
from eqsat.onnx.nodes import ModelGraph, ModelReader, detached, versions
from eqsat.onnx.plan import Compile, Plan
from eqsat.onnx.tensors import dtype_of, has_external_data
from eqsat.support import DTypeError, OnnxError, ShapeError, counted, nearest
from eqsat.terms import Traced

if TYPE_CHECKING:
    from onnx import ModelProto

    from eqsat.explain import Explanation


class OnnxModel:
    """A model of ONNX as a function of its inputs, by position or by name. Made by
    :func:`eqsat.from_onnx`.

    It gives the output, or a tuple of several in their order; :meth:`run` gives them by
    name. Arrays are checked against the types that the model declares. It can be called
    in functions of :func:`eqsat.jit` and :func:`eqsat.grad` if nothing of it runs on
    the host.
    """

    def __init__(
        self,
        proto: ModelProto,
        folder: Path | None,
        compile: Compile,
        content: bytes | None = None,
    ) -> None:
        opsets = versions(proto.opset_import, "the model")
        self._compile, self._content = compile, content
        self._graph = ModelReader(folder, opsets, proto.functions).graph(proto.graph)
        initial = self._graph.constants
        declared = {i.name: detached(i.type) for i in proto.graph.input}
        self.inputs = {n: declared[n] for n in declared if n not in initial}
        """Types of inputs by name, as messages of ONNX."""
        self.defaults = {n: declared[n] for n in declared if n in initial}
        """Types of inputs that have a value if none is given."""
        self.outputs = tuple(o.name for o in proto.graph.output)
        """Names of outputs."""
        self._checks = {n: _check(n, t) for n, t in declared.items()}
        self._optional = {
            n for n, t in declared.items() if t.WhichOneof("value") == "optional_type"
        }
        self._plans: dict[frozenset[str], Plan] = {}

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The output, or a tuple of several."""
        found = self._outputs(args, named)
        return found[0] if len(found) == 1 else tuple(found)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name; names of inputs may be no names of Python."""
        return dict(zip(self.outputs, self._outputs((), inputs), strict=True))

    def explain(self, *args: Any, **named: Any) -> list[Explanation]:
        """What optimising did, for each program that a call runs; those of graphs
        inside of nodes that run on the host are left out."""
        plan, values = self._planned(args, named)
        plan.called = []
        try:
            plan(values)
            return [jitted.explain(*arrays) for jitted, arrays in plan.called]
        finally:
            plan.called = None

    def arrays(self) -> dict[str, tuple[Any, tuple[int | str | None, ...] | None]]:
        """Dtype and sizes of each input that is an array. A size that is not fixed is
        the axis's name, or None; sizes are None where any shape will do."""
        return {
            n: (dtype_of(t.tensor_type.elem_type, f"input {n!r}"), _sizes(t))
            for n, t in self.inputs.items()
            if t.WhichOneof("value") == "tensor_type"
        }

    def compiled_by(self, compile: Compile) -> OnnxModel:
        """The same model with ``compile`` in the place of :func:`eqsat.jit`: it makes
        of a function of arrays one that gives the same results."""
        other = copy.copy(self)
        other._compile, other._plans, other._content = compile, {}, None
        return other

    def on_host(self) -> dict[str, str]:
        """Nodes that NumPy computes between programs, and why, as found so far."""
        plans = self._plans.values()
        return {str(n): why for p in plans for n, why in p.on_host.items()}

    def _outputs(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        plan, values = self._planned(args, named)
        found = plan(values)
        return [*map(_own, found)] if plan.on_host else found

    def _planned(
        self, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> tuple[Plan, dict[str, Any]]:
        values = self._given(args, named)
        key = frozenset(values).intersection(self.defaults)
        if key not in self._plans:
            g = self._graph
            constants = {k: v for k, v in g.constants.items() if k not in key}
            inputs = [n for n in g.inputs if n not in constants]
            graph = ModelGraph(g.name, inputs, g.outputs, constants, g.nodes)
            self._plans[key] = Plan(graph, self._compile, self._content)
        return self._plans[key], values

    def _given(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        known = self._checks
        names = self.inputs
        if len(args) > len(names):
            raise OnnxError(
                f"the model has {counted(len(names), 'input')} ({', '.join(names)}), "
                f"got {counted(len(args), 'argument')}"
            )
        given = dict(zip(names, args, strict=False))
        for name, value in named.items():
            if name not in known:
                raise OnnxError(f"there is no input {name!r}{nearest(name, known)}")
            if name in given:
                raise OnnxError(f"input {name!r} is given twice")
            given[name] = value
        for name in names:
            if name not in given:
                if name not in self._optional:
                    raise OnnxError(f"input {name!r} is missing")
                given[name] = None
        return {n: known[n](v) for n, v in given.items()}


def _own(value: Any) -> Any:
    """A result of the host in memory of its own: it may show an argument's."""
    if isinstance(value, list):
        return [*map(_own, value)]
    is_view = isinstance(value, np.ndarray) and not value.flags.owndata
    return value.copy() if is_view else value


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


def _sizes(type_: Any) -> tuple[int | str | None, ...] | None:
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


def read(source: Any, folder: Any, options: Mapping[str, Any]) -> OnnxModel:
    """What :func:`eqsat.from_onnx` gives."""
    data = None
    if isinstance(source, onnx.ModelProto):
        proto = source
    else:
        if isinstance(source, (bytes, bytearray, memoryview)):
            data, what = bytes(source), "the model"
        else:
            path = Path(source)
            what = f"model {str(path)!r}"
            if not path.is_file():
                raise OnnxError(f"{what}: there is no such file")
            data = path.read_bytes()
            folder = path.parent if folder is None else folder
        try:
            proto = onnx.ModelProto.FromString(data)
        except DecodeError as error:
            raise OnnxError(
                f"{what} is damaged, or no model of ONNX: {error}"
            ) from None
    if not proto.HasField("graph"):
        raise OnnxError("the model has no graph")
    compile: Callable[..., Any] = functools.partial(jit, **options)
    content = None
    if data is not None and not has_external_data(proto):
        content = hashlib.sha256(data).digest()
    folder = None if folder is None else Path(folder)
    return OnnxModel(proto, folder, compile, content)
