"""Calls that were made before go to their program at once, and mean what they meant."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import eqsat as eq

onnx = pytest.importorskip("onnx")
helper = onnx.helper

RNG = np.random.default_rng(3)
NODES = [
    helper.make_node("MatMul", ["a", "b"], ["h"]),
    helper.make_node("Relu", ["h"], ["y"]),
    helper.make_node("ReduceSum", ["y"], ["sum"], keepdims=0),
]


def model(
    nodes: Any = NODES,
    inputs: Any = (("a", ["n", 4]), ("b", [4, "m"])),
    outputs: Any = ("y", "sum"),
    elements: Any = None,
) -> Any:
    def info(name: str, sizes: Any) -> Any:
        return helper.make_tensor_value_info(name, (elements or {}).get(name, 1), sizes)

    graph = helper.make_graph(
        nodes, "g", [info(*i) for i in inputs], [info(o, None) for o in outputs]
    )
    opsets = [helper.make_opsetid("", 17)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return eq.from_onnx(proto.SerializeToString())


def drawn(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def check(found: Any, a: Any, b: Any) -> None:
    y, total = found
    want = np.maximum(a.astype(np.float64) @ b, 0)
    np.testing.assert_allclose(y, want, 1e-5, 1e-6)
    np.testing.assert_allclose(total, want.sum(), 1e-5)
    assert type(y) is type(total) is np.ndarray
    assert (y.dtype, total.dtype, total.shape) == (np.float32, np.float32, ())


def is_direct(f: Any, *args: Any, **named: Any) -> bool:
    return f._direct is not None and f._direct(args, named) is not None


def test_calls_by_position_by_name_and_mixed() -> None:
    f = model()
    for n, m in ((3, 5), (1, 1), (3, 5), (5, 3)):
        a, b = drawn(n, 4), drawn(4, m)
        for _ in range(2):
            check(f(a, b), a, b)
            check(f(b=b, a=a), a, b)
            check(f(a, b=b), a, b)
            check(f.run({"b": b, "a": a}).values(), a, b)
        assert is_direct(f, a, b) and is_direct(f, b=b, a=a) and is_direct(f, a, b=b)
    assert not is_direct(f, drawn(3, 4), drawn(4, 6))


def test_other_memory_and_other_kinds_of_arrays() -> None:
    f, a, b = model(), drawn(3, 4), drawn(4, 5)
    check(f(a, b), a, b)
    frozen = b.copy()
    frozen.flags.writeable = False
    for y in (np.asfortranarray(b), b[:, ::-1], frozen, b.tolist(), frozen.copy() * 2):
        of = np.float32(y) if isinstance(y, list) else y
        check(f(a, of), a, of)
    check(f(a, b.view(np.memmap)), a, b)
    with eq.options(threads=1, numerics="exact"):
        check(f(a, b), a, b)
    check(f(a, b), a, b)


def test_wrong_calls_after_right_ones() -> None:
    f, a, b = model(), drawn(3, 4), drawn(4, 5)
    check(f(a, b), a, b)
    with pytest.raises(eq.DTypeError, match="input 'b' has dtype float32, got float64"):
        f(a, b.astype(np.float64))
    with pytest.raises(eq.ShapeError, match="input 'b' has shape"):
        f(a, drawn(3, 5))
    with pytest.raises(eq.OnnxError, match="'b' is missing"):
        f(a)
    with pytest.raises(eq.OnnxError, match="'a' is given twice"):
        f(a, a=a)
    with pytest.raises(eq.OnnxError, match="no input 'c'"):
        f(a, c=b)
    with pytest.raises(eq.OnnxError, match="3 arguments"):
        f(a, b, b)
    check(f(a, b), a, b)


def test_an_index_out_of_bounds_is_named() -> None:
    node = helper.make_node("Gather", ["a", "i"], ["y"], name="picks")
    f = model([node], (("a", [4]), ("i", [2])), ["y"], {"i": onnx.TensorProto.INT64})
    a, i = drawn(4), np.array([1, -1])
    np.testing.assert_array_equal(f(a, i), a[i])
    np.testing.assert_array_equal(f(a, i + 1), a[i + 1])
    with pytest.raises(IndexError, match="picks"):
        f(a, i + 3)


def test_values_that_are_part_of_a_program_are_looked_at() -> None:
    nodes = [
        helper.make_node("Shape", ["a"], ["s"]),
        helper.make_node("Reshape", ["a", "to"], ["y"]),
    ]
    f = model(nodes, (("a", [6]), ("to", [2])), ["y"], {"to": onnx.TensorProto.INT64})
    for to in ([2, 3], [3, 2], [6, 1], [2, 3]):
        assert f(drawn(6), np.array(to)).shape == tuple(to)


def test_copies_traces_and_explanations() -> None:
    f, a, b = model(), drawn(3, 4), drawn(4, 5)
    check(f(a, b), a, b)
    for other in (copy.copy(f), copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
        check(other(a, b), a, b)
    check(eq.jit(lambda a, b: f(a, b))(a, b), a, b)
    assert f.explain(a, b)
    check(f(a, b), a, b)
    exact = f.compiled_by(lambda function: function)
    check(exact(a, b), a, b)
    check(exact(b=b, a=a), a, b)
