"""Workloads as ONNX graphs, built with the onnx package as exporters build them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.peers import UnsupportedWorkload
from bench.peers.net import Net
from bench.workloads import Quantised, Workload, mapped

OPSET = 21
TYPES = {
    "float64": TensorProto.DOUBLE,
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}


def _operator(op: str, mirrored: bool) -> Callable[[OnnxValue, Any], OnnxValue]:
    def method(self: OnnxValue, other: Any) -> OnnxValue:
        if not isinstance(other, OnnxValue):
            other = self.net.constant(np.array(other, self.dtype))
        a, b = (other, self) if mirrored else (self, other)
        return self.net.node(op, [a, b], np.broadcast_shapes(a.shape, b.shape))

    return method


class OnnxValue:
    """An edge of the graph: its name, shape and dtype, with NumPy's operators."""

    def __init__(
        self, net: GraphNet, name: str, shape: Sequence[int], dtype: str
    ) -> None:
        self.net, self.name, self.dtype = net, name, dtype
        self.shape = tuple(int(n) for n in shape)

    __add__, __radd__ = _operator("Add", False), _operator("Add", True)
    __sub__, __rsub__ = _operator("Sub", False), _operator("Sub", True)
    __mul__, __rmul__ = _operator("Mul", False), _operator("Mul", True)
    __truediv__, __rtruediv__ = _operator("Div", False), _operator("Div", True)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def reshape(self, *shape: int) -> OnnxValue:
        if -1 in shape:
            rest = int(np.prod([n for n in shape if n != -1]))
            whole = int(np.prod(self.shape))
            shape = tuple(whole // rest if n == -1 else n for n in shape)
        wanted = self.net.constant(np.array(shape, np.int64))
        return self.net.node("Reshape", [self, wanted], shape)

    def __matmul__(self, w: OnnxValue) -> OnnxValue:
        lead = np.broadcast_shapes(self.shape[:-2], w.shape[:-2])
        shape = (*lead, *self.shape[:-1][-1:], *w.shape[1:][-1:])
        return self.net.node("MatMul", [self, w], shape)

    def __neg__(self) -> OnnxValue:
        return self.net.same("Neg", self)

    @property
    def T(self) -> OnnxValue:
        return self.net.swap(self, -1, -2)

    def __getitem__(self, key: Any) -> OnnxValue:
        """Rows, slices of axes, one of an axis, or new axes."""
        if isinstance(key, int):
            return self.net.take(self, self.net.constant(np.array(key, np.int64)))
        keys = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis in keys:
            at, used = keys.index(Ellipsis), sum(k is not None for k in keys) - 1
            keys[at : at + 1] = [slice(None)] * (self.ndim - used)
        keys += [slice(None)] * (self.ndim - sum(k is not None for k in keys))
        cuts = [slice(k, k + 1) if isinstance(k, int) else k for k in keys]
        cut = self.net.sliced(self, [k for k in cuts if k is not None])
        left = iter(cut.shape)
        shape = [1 if k is None else next(left) for k in keys]
        kept = [n for n, k in zip(shape, keys, strict=True) if not isinstance(k, int)]
        return cut if tuple(kept) == cut.shape else cut.reshape(*kept)

    def sum(self, axis: int, keepdims: bool = False) -> OnnxValue:
        return self.net.reduce("ReduceSum", self, axis, keepdims)

    def mean(self, axis: int, keepdims: bool = False) -> OnnxValue:
        return self.net.reduce("ReduceMean", self, axis, keepdims)


def _same(op: str, **attrs: Any) -> Any:
    return lambda self, x: self.same(op, x, **attrs)


def _reduced(op: str, axis: int | None, keep: bool = False) -> Any:
    return lambda self, x: self.reduce(op, x, axis, keep)


class GraphNet(Net):
    """Nodes and constants of a graph."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(
        self,
        op: str,
        args: Sequence[OnnxValue],
        shape: Sequence[int],
        dtype: str | None = None,
        **attrs: Any,
    ) -> OnnxValue:
        """A node with one result, of the dtype of the first argument if not given."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [a.name for a in args], [name], **attrs))
        return OnnxValue(self, name, shape, dtype or args[0].dtype)

    def constant(self, a: Any) -> OnnxValue:
        """An initializer. Raises :class:`UnsupportedWorkload` for dtypes that ONNX
        lacks."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(a), name))
        return OnnxValue(self, name, a.shape, str(a.dtype))

    def same(self, op: str, x: OnnxValue, *more: OnnxValue, **attrs: Any) -> OnnxValue:
        """A node whose result has the shape of its first argument."""
        return self.node(op, [x, *more], x.shape, **attrs)

    def reduce(self, op: str, x: OnnxValue, axis: int | None, keep: bool) -> OnnxValue:
        if axis is None:
            return self.node(op, [x], (), keepdims=0)
        shape = [*x.shape]
        shape[axis : axis + 1 or None] = [1] if keep else []
        axes = self.constant(np.array([axis], np.int64))
        return self.node(op, [x, axes], shape, keepdims=int(keep))

    def sliced(self, x: OnnxValue, cuts: Sequence[slice]) -> OnnxValue:
        """``x`` cut along its axes."""
        ranges = [range(n)[k] for n, k in zip(x.shape, cuts, strict=True)]
        if all(len(r) == n for r, n in zip(ranges, x.shape, strict=True)):
            return x
        steps = [(r.start, r.stop, a, r.step) for a, r in enumerate(ranges)]
        parts = [self.constant(part) for part in np.array(steps, np.int64).T]
        return self.node("Slice", [x, *parts], [len(r) for r in ranges])

    def swap(self, x: OnnxValue, i: int, j: int) -> OnnxValue:
        perm = [*range(x.ndim)]
        perm[i], perm[j] = perm[j], perm[i]
        return self.node("Transpose", [x], [x.shape[a] for a in perm], perm=perm)

    def take(self, table: OnnxValue, ids: OnnxValue) -> OnnxValue:
        return self.node("Gather", [table, ids], (*ids.shape, *table.shape[1:]), axis=0)


class OnnxNet(GraphNet):
    """The operators of ONNX; each call adds nodes."""

    relu, sigmoid, gelu = _same("Relu"), _same("Sigmoid"), _same("Gelu")
    sqrt, tanh = _same("Sqrt"), _same("Tanh")
    softmax = _same("Softmax", axis=-1)
    log_softmax = _same("LogSoftmax", axis=-1)
    mean = _reduced("ReduceMean", -1, keep=True)
    total = _reduced("ReduceSum", None)
    column_sum = _reduced("ReduceSum", 0)
    column_max = _reduced("ReduceMax", 0)

    def argmax(self, x: OnnxValue) -> OnnxValue:
        attrs = {"axis": -1, "keepdims": 0}
        return self.node("ArgMax", [x], x.shape[:-1], "int64", **attrs)

    def cumsum(self, x: OnnxValue) -> OnnxValue:
        return self.same("CumSum", x, self.constant(np.array(-1, np.int64)))

    def layer_norm(
        self, x: OnnxValue, g: OnnxValue, b: OnnxValue, eps: float = 1e-5
    ) -> OnnxValue:
        return self.same("LayerNormalization", x, g, b, epsilon=eps)

    def group_norm(
        self, x: OnnxValue, g: OnnxValue, b: OnnxValue, groups: int, eps: float = 1e-5
    ) -> OnnxValue:
        return self.same("GroupNormalization", x, g, b, num_groups=groups, epsilon=eps)

    def batch_norm(
        self,
        x: OnnxValue,
        mean: OnnxValue,
        var: OnnxValue,
        g: OnnxValue,
        b: OnnxValue,
        eps: float = 1e-5,
    ) -> OnnxValue:
        return self.same("BatchNormalization", x, g, b, mean, var, epsilon=eps)

    def conv2d(
        self,
        x: OnnxValue,
        w: OnnxValue,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
    ) -> OnnxValue:
        n, _, h, v = x.shape
        o, _, i, j = w.shape
        sides = ((a + 2 * padding - k) // stride + 1 for a, k in ((h, i), (v, j)))
        pads = [padding] * 4
        return self.node(
            "Conv",
            [x, w],
            (n, o, *sides),
            pads=pads,
            strides=[stride] * 2,
            group=groups,
        )

    def concat(self, xs: Sequence[OnnxValue], axis: int = 0) -> OnnxValue:
        shape = [*xs[0].shape]
        shape[axis] = sum(x.shape[axis] for x in xs)
        return self.node("Concat", xs, shape, axis=axis)

    def stack(self, xs: Sequence[OnnxValue], axis: int) -> OnnxValue:
        shape = [*xs[0].shape]
        shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, 1)
        return self.concat([x.reshape(*shape) for x in xs], axis)

    def roll(self, x: OnnxValue, by: int, axis: int) -> OnnxValue:
        """Two slices, as ONNX has no such operator."""
        whole = [slice(None)] * axis
        parts = (slice(-by, None), slice(None, -by))
        return self.concat([x[(*whole, part)] for part in parts], axis)

    def pad(self, x: OnnxValue, by: int) -> OnnxValue:
        """Zeros around all axes."""
        pads = self.constant(np.array([by] * 2 * x.ndim, np.int64))
        return self.node("Pad", [x, pads], [n + 2 * by for n in x.shape])

    def banded(self, x: OnnxValue) -> OnnxValue:
        m, n = x.shape[-2:]
        late = np.where(np.tril(np.ones((m, n), bool)), 0, -np.inf)
        return x + self.constant(late.astype(x.dtype))

    def quantised_matmul(self, x: OnnxValue, w: Any) -> OnnxValue:
        """DequantizeLinear by blocks, which runtimes fuse with the product."""
        q, scale, zero, rows = w
        wide = self.node(
            "DequantizeLinear", [q, scale, zero], q.shape, scale.dtype, axis=0,
            block_size=rows,
        )  # fmt: skip
        return x @ wide

    def held(self, a: Any) -> Any:
        """A weight as an initializer; a quantised matrix as those of its parts."""
        if not isinstance(a, Quantised):
            return self.constant(a)
        q = np.asarray(a.q)
        if q.dtype == np.int8:
            parts = (self.constant(q), self.constant(a.scale), self.constant(a.zero))
            return (*parts, len(q) // len(a.scale))
        q = np.stack([q & 15, q >> 4], 1).reshape(-1, q.shape[-1])
        parts = (self.four_bits(q), self.constant(a.scale), self.four_bits(a.zero))
        return (*parts, len(q) // len(a.scale))

    def four_bits(self, a: Any) -> OnnxValue:
        """An initializer of unsigned numbers of 4 bits, two to a byte."""
        name = f"c{len(self.constants)}"
        flat = np.ascontiguousarray(a, np.uint8).reshape(-1, 2)
        packed = (flat[:, 0] | flat[:, 1] << 4).tobytes()
        self.constants.append(
            helper.make_tensor(name, TensorProto.UINT4, a.shape, packed, raw=True)
        )
        return OnnxValue(self, name, a.shape, "uint4")


def graph(w: Workload, inputs: list[Any], weights: list[Any]) -> bytes:
    """``w`` as a serialised model with inputs ``x0``, ``x1``, … and one output.

    Raises :class:`UnsupportedWorkload` for what ONNX or the builder lacks.
    """
    if w.argnums:
        raise UnsupportedWorkload("no gradients")
    net = OnnxNet()
    dtypes = [str(a.dtype) for a in inputs]
    for dtype in dtypes:
        if dtype not in TYPES:
            raise UnsupportedWorkload(f"no {dtype} input")
    values = [
        OnnxValue(net, f"x{i}", a.shape, str(a.dtype)) for i, a in enumerate(inputs)
    ]
    y = w.fn(net, *values, *mapped(weights, net.held))
    model = helper.make_model(
        helper.make_graph(
            net.nodes,
            "workload",
            [
                helper.make_tensor_value_info(v.name, TYPES[v.dtype], v.shape)
                for v in values
            ],
            [helper.make_tensor_value_info(y.name, TYPES[y.dtype], y.shape)],
            net.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=10,
    )
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())
