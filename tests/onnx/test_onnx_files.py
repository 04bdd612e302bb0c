"""Files that are refused: by name, before memory is taken."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples

import eqsat as eq

onnx = pytest.importorskip("onnx")
TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper

FLOAT = TensorProto.FLOAT


def made(
    node: Any = None, opset: int = 21, tensors: Any = (), functions: Any = ()
) -> Any:
    node = node or helper.make_node("Relu", ["x"], ["y"], name="first")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [2])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        list(tensors),
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions))


def refused(proto: Any, text: str, **given: Any) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(eq.OnnxError, match=text):
            eq.from_onnx(proto, **given)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


NODES: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: made(helper.make_node("Rellu", ["x"], ["y"], name="n")),
        r"'n' \(Rellu of ai.onnx, opset 21\): unknown operator; did you mean 'Relu'",
    ),
    (
        lambda: made(helper.make_node("Relu", ["x"], ["y"], name="n", alpha=1.0)),
        r"node 'n' \(Relu of ai.onnx, opset 21\): unknown attribute 'alpha'",
    ),
    (
        lambda: made(helper.make_node("Softmax", ["x"], ["y"], name="n", axis=1.5)),
        "attribute 'axis' is FLOAT, expected INT",
    ),
    (
        lambda: made(helper.make_node("Gather", ["x"], ["y"], name="n")),
        "'n'.*1 input and 1 output, expected 2 to 2",
    ),
    (
        lambda: made(helper.make_node("Concat", ["x"], ["y"], name="n")),
        "'n'.*attribute 'axis' is missing",
    ),
    (
        lambda: made(helper.make_node("Relu", ["z"], ["y"], name="n")),
        "'n'.*input 'z' is no input",
    ),
    (
        lambda: made(helper.make_node("Relu", ["x"], ["x"], name="n")),
        "'n'.*output 'x' is there already",
    ),
    (
        lambda: made(helper.make_node("Relu", ["x"], ["z"], name="n")),
        "output 'y' is no output of a node",
    ),
    (
        lambda: made(helper.make_node("Relu", ["x"], ["y"], name="n", domain="other")),
        "'n'.*of other, opset none.*imports no opset",
    ),
    (lambda: made(opset=1000), "opset 1000 of ai.onnx; those from 7 to"),
    (lambda: made(opset=0), "opset 0"),
    (
        lambda: made(helper.make_node("Reshape", ["x"], ["y"], name="n"), opset=4),
        "'n'.*opset 4.*another meaning before opset 7",
    ),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make, text", NODES)
def test_nodes(make: Callable[[], Any], text: str) -> None:
    refused(make(), text)


def tensor(**given: Any) -> Any:
    about = {"name": "w", "data_type": FLOAT, "dims": [2], **given}
    return TensorProto(**about)


TENSORS: list[tuple[Any, str]] = [
    (tensor(raw_data=b"1234567"), "'w': 7 bytes are there, expected 8"),
    (tensor(dims=[2**40, 2**20], raw_data=b"12345678"), "8 bytes are there, expected"),
    (tensor(dims=[2**62, 2**62]), "0 values in float_data are there"),
    (tensor(dims=[-2], raw_data=b""), "shape"),
    (tensor(dims=[1] * 65, raw_data=b"1234"), "shape"),
    (tensor(float_data=[1.0]), "1 values in float_data are there, expected 2"),
    (tensor(data_type=77, raw_data=b"12345678"), "unknown type of elements 77"),
    (tensor(data_type=TensorProto.STRING, string_data=[b"a"]), "1 strings"),
    (
        tensor(data_type=TensorProto.INT4, raw_data=b"12"),
        "2 bytes are there, expected 1",
    ),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("wrong, text", TENSORS)
def test_tensors(wrong: Any, text: str) -> None:
    refused(made(tensors=[wrong]), text)


def external(location: str, **given: int) -> Any:
    t = tensor(data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **given}.items():
        t.external_data.add(key=key, value=str(value))
    return t


def test_external_data_in_the_folder(tmp_path: Path) -> None:
    w = np.float32([3, 4])
    (tmp_path / "w.bin").write_bytes(b"1234" + w.tobytes() + b"5678")
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    proto = made(node, tensors=[external("w.bin", offset=4, length=8)])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    x = np.float32([1, 10])
    for f in (eq.from_onnx(path), eq.from_onnx(proto, folder=tmp_path)):
        np.testing.assert_array_equal(f(x), x * w)
    refused(proto, "the folder is not known")


def test_external_data_elsewhere(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(b"12345678")
    (inside / "short").write_bytes(b"1234")
    os.symlink(tmp_path / "secret", inside / "link")
    os.mkfifo(inside / "pipe") if hasattr(os, "mkfifo") else None
    wrong = {
        "../secret": "outside of",
        str(tmp_path / "secret"): "outside of",
        "a/../../secret": "outside of",
        "link": "outside of",
        "": "outside of",
        ".": "external data",
        "missing": "external data",
        "short": "has 4 bytes, and the tensor needs those from 0 to 8",
    }
    for location, text in wrong.items():
        refused(made(tensors=[external(location)]), text, folder=inside)
    for attrs in ({"offset": -4}, {"offset": 2**70}, {"length": 2**50}):
        proto = made(tensors=[external("short", **attrs)])
        refused(proto, "bytes", folder=inside)


def test_functions_that_grow_or_call_themselves() -> None:
    def function(name: str, calls: str, times: int) -> Any:
        nodes = [
            helper.make_node(calls, [f"v{i}"], [f"v{i + 1}"], domain="mine")
            for i in range(times)
        ]
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
        return helper.make_function("mine", name, ["v0"], [f"v{times}"], nodes, opsets)

    call = helper.make_node("f0", ["x"], ["y"], domain="mine")
    refused(made(call, functions=[function("f0", "f0", 1)]), "'f0' calls itself")
    many = [function(f"f{i}", f"f{i + 1}", 100) for i in range(9)]
    last = function("f9", "Relu", 1)
    last.node[0].domain = ""
    refused(made(call, functions=[*many, last]), "more than 200000 nodes")


def test_functions_that_call_others_without_end() -> None:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    chain = [
        helper.make_function(
            "mine",
            f"f{i}",
            ["a"],
            ["b"],
            [helper.make_node(f"f{i + 1}", ["a"], ["b"], domain="mine")],
            opsets,
        )
        for i in range(5000)
    ]
    call = helper.make_node("f0", ["x"], ["y"], domain="mine")
    refused(made(call, functions=chain), "more than 50 functions that call each other")


def test_sparse_tensors_are_bounded() -> None:
    proto = made()
    sparse = proto.graph.sparse_initializer.add()
    sparse.values.CopyFrom(numpy_helper.from_array(np.float32([1]), "s"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([0]), "i"))
    sparse.dims.extend([2**30, 2**30])
    refused(proto, "sparse tensor of shape")
    del sparse.dims[:]
    sparse.dims.extend([4])
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([4]), "i"))
    refused(proto, "outside of shape")


def test_arrays_made_of_sizes_are_bounded() -> None:
    node = helper.make_node("Expand", ["x", "to"], ["y"], name="n")
    shape = numpy_helper.from_array(np.array([2**40, 2]), "to")
    f = eq.from_onnx(made(node, tensors=[shape]))
    with pytest.raises(eq.OnnxError, match=r"'n'.*the most is"):
        f(np.zeros(2, np.float32))


def test_what_is_no_model(tmp_path: Path) -> None:
    refused(b"no model at all", "damaged|no graph")
    refused(b"", "no graph")
    refused(tmp_path / "none.onnx", "no such file")
    refused(tmp_path, "is a folder")


@examples(300)
@given(st.data())
def test_damaged_bytes_never_crash(data: st.DataObject) -> None:
    w = numpy_helper.from_array(np.arange(2, dtype=np.float32), "w")
    whole = made(helper.make_node("Mul", ["x", "w"], ["y"]), tensors=[w])
    text = bytearray(whole.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(text)))
    try:
        eq.from_onnx(bytes(text[:cut] if data.draw(st.booleans()) else text))
    except eq.OnnxError:
        pass
