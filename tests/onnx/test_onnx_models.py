"""Models of ONNX as functions: names, parts, programs for shapes, and what is shared
with the rest of eqsat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat as eq

onnx = pytest.importorskip("onnx")
TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
RNG = np.random.default_rng(0)


def value(name: str, shape: Any, element: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, element, shape)


def model(
    nodes: Any,
    inputs: Any,
    outputs: Any,
    initial: Any = None,
    opset: int = 21,
    **more: Any,
) -> Any:
    tensors = [numpy_helper.from_array(v, k) for k, v in (initial or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    opsets = more.pop("opsets", [helper.make_opsetid("", opset)])
    return helper.make_model(graph, opset_imports=opsets, **more)


def layer(size: Any = ("n", 8)) -> Any:
    w = RNG.standard_normal((8, 3), np.float32)
    b = RNG.standard_normal(3, np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    made = model(nodes, [value("x", size)], [value("y", None)], {"w": w, "b": b})
    return made, lambda x: np.maximum(x @ w + b, 0)


def test_paths_bytes_and_messages(tmp_path: Path) -> None:
    proto, want = layer()
    path = tmp_path / "layer.onnx"
    path.write_bytes(proto.SerializeToString())
    x = RNG.standard_normal((5, 8), np.float32)
    for source in (proto, path, str(path), path.read_bytes()):
        f = eq.from_onnx(source)
        np.testing.assert_allclose(f(x), want(x), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(f(x=x), f(x))
        np.testing.assert_array_equal(f.run({"x": x})["y"], f(x))
    assert list(f.inputs) == ["x"] and f.outputs == ("y",)


def test_a_program_for_each_shape_is_kept() -> None:
    proto, want = layer()
    f = eq.from_onnx(proto)
    for n in (1, 4, 1, 7):
        x = RNG.standard_normal((n, 8), np.float32)
        np.testing.assert_allclose(f(x), want(x), rtol=1e-5, atol=1e-6)
    (explained,) = f.explain(x)
    assert len(explained.kernels) == 1 and not f.on_host()


def test_in_jitted_functions_and_gradients() -> None:
    proto, want = layer()
    f = eq.from_onnx(proto)
    x = RNG.standard_normal((4, 8), np.float32)
    both = eq.jit(lambda x: f(x * 2) + 1)
    np.testing.assert_allclose(both(x), want(x * 2) + 1, rtol=1e-5, atol=1e-6)
    slope = eq.grad(lambda x: f(x).sum())(x)
    step = np.float32(1e-2)
    for i in (0, 3):
        d = np.zeros_like(x)
        d[0, i] = step
        fine = (want(x + d).sum() - want(x - d).sum()) / (2 * step)
        assert abs(slope[0, i] - fine) < 1e-2 * max(1, abs(fine))


def test_wrong_arguments_are_named() -> None:
    f = eq.from_onnx(layer()[0])
    x = np.zeros((2, 8), np.float32)
    with pytest.raises(eq.OnnxError, match="input 'x' is missing"):
        f()
    with pytest.raises(eq.OnnxError, match="no input 'z'"):
        f(z=x)
    with pytest.raises(eq.OnnxError, match="twice"):
        f(x, x=x)
    with pytest.raises(eq.OnnxError, match="has 1 input "):
        f(x, x)
    with pytest.raises(eq.DTypeError, match="'x' has dtype float32, got float64"):
        f(x.astype(float))
    with pytest.raises(eq.ShapeError, match=r"'x' has shape \(any, 8\), got \(2, 9\)"):
        f(np.zeros((2, 9), np.float32))


def test_initializers_that_are_inputs_have_a_default() -> None:
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    w = np.float32([2, 3])
    inputs = [value("x", [2]), value("w", [2])]
    f = eq.from_onnx(model(nodes, inputs, [value("y", [2])], {"w": w}))
    x = np.float32([1, 10])
    np.testing.assert_array_equal(f(x), x * w)
    np.testing.assert_array_equal(f(x, w=np.float32([5, 7])), [5, 70])
    np.testing.assert_array_equal(f(x), x * w)


# -- parts -----------------------------------------------------------------------------


def test_shape_arithmetic_is_folded() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["h"]),
        helper.make_node("Exp", ["h"], ["y"]),
    ]
    initial = {"zero": np.array([0]), "rest": np.array([-1])}
    f = eq.from_onnx(model(nodes, [value("x", None)], [value("y", None)], initial))
    for shape in ((2, 3, 4), (5, 2)):
        x = RNG.standard_normal(shape, np.float32)
        np.testing.assert_allclose(f(x), np.exp(x).reshape(len(x), -1), rtol=1e-6)
    assert not f.on_host() and len(f.explain(x)) == 1


def test_a_shape_that_is_an_input_is_part_of_the_program() -> None:
    nodes = [helper.make_node("Reshape", ["x", "to"], ["y"])]
    inputs = [value("x", [6]), value("to", [2], INT)]
    f = eq.from_onnx(model(nodes, inputs, [value("y", None)]))
    x = np.arange(6, dtype=np.float32)
    for to in ([2, 3], [3, 2], [2, 3]):
        np.testing.assert_array_equal(f(x, np.array(to)), x.reshape(to))
    assert not f.on_host()


def test_the_host_computes_what_depends_on_values() -> None:
    nodes = [
        helper.make_node("Sin", ["x"], ["a"]),
        helper.make_node("Greater", ["a", "zero"], ["m"]),
        helper.make_node("NonZero", ["m"], ["places"]),
        helper.make_node("Transpose", ["places"], ["rows"]),
        helper.make_node("GatherND", ["a", "rows"], ["some"]),
        helper.make_node("Exp", ["some"], ["y"]),
    ]
    initial = {"zero": np.float32(0)}
    f = eq.from_onnx(model(nodes, [value("x", None)], [value("y", None)], initial))
    for n in (10, 30):
        x = RNG.standard_normal(n, np.float32)
        a = np.sin(x)
        np.testing.assert_allclose(f(x), np.exp(a[a > 0]), rtol=1e-6)
    (node,) = f.on_host()
    assert "NonZero" in node and len(f.explain(x)) == 2


def test_computed_counts_are_known_to_what_follows() -> None:
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Cast", ["top"], ["k"], to=INT),
        helper.make_node("Reshape", ["k", "one"], ["k1"]),
        helper.make_node("TopK", ["x", "k1"], ["y", "i"]),
    ]
    f = eq.from_onnx(
        model(nodes, [value("x", [5])], [value("y", None)], {"one": np.array([1])})
    )
    for top in (2, 4):
        x = np.float32([0.5, -1, top, 1.5, 0])
        np.testing.assert_array_equal(f(x), np.sort(x)[::-1][:top])
    assert not f.on_host() and len(f.explain(x)) == 2


def test_loops() -> None:
    def body(limit: bool) -> Any:
        stop = "over" if limit else "go"
        nodes = [
            helper.make_node("Mul", ["s", "two"], ["t"]),
            helper.make_node("ReduceSum", ["t"], ["all"], keepdims=0),
            helper.make_node("Less", ["all", "most"], ["over"]),
            helper.make_node("Identity", ["t"], ["row"]),
        ]
        return helper.make_graph(
            nodes,
            "body",
            [
                value("i", [], INT),
                value("go", [], TensorProto.BOOL),
                value("s", [2]),
            ],
            [value(stop, [], TensorProto.BOOL), value("t", [2]), value("row", [2])],
        )

    initial = {"two": np.float32(2), "most": np.float32(100), "n": np.array(5)}
    x = np.float32([1, 3])
    steps = [x * 2**i for i in range(1, 9)]
    for limit, count in ((False, 5), (True, 5)):
        nodes = [
            helper.make_node(
                "Loop",
                ["n" if not limit else "", "", "x"],
                ["y", "rows"],
                body=body(limit),
            )
        ]
        f = eq.from_onnx(
            model(
                nodes,
                [value("x", [2])],
                [value("y", [2]), value("rows", None)],
                initial,
            )
        )
        y, rows = f(x)
        np.testing.assert_array_equal(rows, np.stack(steps[:count]))
        np.testing.assert_array_equal(y, steps[count - 1])
        assert bool(f.on_host()) is limit


def test_branches_are_programs_of_their_own() -> None:
    def branch(op: str) -> Any:
        nodes = [helper.make_node(op, ["x"], ["z"])]
        return helper.make_graph(nodes, op, [], [value("z", None)])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node(
            "If", ["c"], ["y"], then_branch=branch("Exp"), else_branch=branch("Abs")
        ),
    ]
    f = eq.from_onnx(
        model(nodes, [value("x", [3])], [value("y", None)], {"zero": np.float32(0)})
    )
    x = np.float32([1, -0.5, 2])
    np.testing.assert_allclose(f(x), np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(f(-x), np.abs(x))
    assert not f.on_host()


def test_functions_of_a_model_are_expanded() -> None:
    inner = helper.make_function(
        "mine",
        "scaled",
        ["v"],
        ["w"],
        [
            helper.make_node("Constant", [], ["c"]),
            helper.make_node("Mul", ["v", "c"], ["w"]),
        ],
        [helper.make_opsetid("", 21)],
        ["by"],
    )
    ref = onnx.AttributeProto(name="value_float", ref_attr_name="by", type=1)
    inner.node[0].attribute.append(ref)
    nodes = [
        helper.make_node("scaled", ["x"], ["h"], domain="mine", by=3.0),
        helper.make_node("scaled", ["h"], ["y"], domain="mine", by=-2.0),
    ]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    proto = model(
        nodes, [value("x", [2])], [value("y", [2])], opsets=opsets, functions=[inner]
    )
    x = np.float32([1, 5])
    f = eq.from_onnx(proto)
    np.testing.assert_array_equal(f(x), -6 * x)
    (explained,) = f.explain(x)
    assert len(explained.kernels) == 1


def test_text_and_small_types_stay_on_the_host() -> None:
    nodes = [
        helper.make_node("StringConcat", ["a", "b"], ["c"]),
        helper.make_node("Cast", ["x"], ["q"], to=TensorProto.INT4),
        helper.make_node("Cast", ["q"], ["r"], to=FLOAT),
        helper.make_node("Exp", ["r"], ["y"]),
    ]
    text = TensorProto.STRING
    inputs = [value("a", [2], text), value("b", [2], text), value("x", [3])]
    f = eq.from_onnx(model(nodes, inputs, [value("c", [2], text), value("y", [3])]))
    c, y = f(np.array(["p", "q"]), np.array(["r", "s"]), np.float32([1.5, -3, 7]))
    assert c.tolist() == ["pr", "qs"]
    np.testing.assert_allclose(y, np.exp(np.float32([1, -3, 7])), rtol=1e-6)


@pytest.mark.parametrize("opset", [7, 9, 12, 17, 24])
def test_one_model_in_many_opsets(opset: int) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Softmax", ["h"], ["y"], axis=-1 if opset >= 11 else 1),
    ]
    w = RNG.standard_normal((4, 6), np.float32)
    f = eq.from_onnx(
        model(nodes, [value("x", [3, 4])], [value("y", [3, 6])], {"w": w}, opset)
    )
    x = RNG.standard_normal((3, 4), np.float32)
    e = np.exp(x @ w)
    np.testing.assert_allclose(f(x), e / e.sum(-1, keepdims=True), rtol=1e-5)


def test_the_interface_of_backends() -> None:
    from eqsat.onnx import OnnxBackend

    proto, want = layer()
    x = RNG.standard_normal((2, 8), np.float32)
    (y,) = OnnxBackend.prepare(proto).run([x])
    np.testing.assert_allclose(y, want(x), rtol=1e-5, atol=1e-6)
    assert OnnxBackend.supports_device("CPU")
    assert not OnnxBackend.supports_device("CUDA:0")


def test_random_numbers_are_drawn_in_each_call() -> None:
    draws = helper.make_node("RandomUniformLike", ["v"], ["w"])
    opsets = [helper.make_opsetid("", 21)]
    inner = helper.make_function("mine", "noise", ["v"], ["w"], [draws], opsets)
    branch = helper.make_graph([draws], "branch", [], [value("w", None)])
    branch.node[0].input[0] = "x"
    drop = ["x", "half", "yes"]
    nodes = [
        helper.make_node("noise", ["x"], ["a"], domain="mine"),
        helper.make_node("If", ["yes"], ["b"], then_branch=branch, else_branch=branch),
        helper.make_node("Dropout", drop, ["c"]),
        helper.make_node("Dropout", ["ones", "half", "yes"], ["d"]),
        helper.make_node("RandomNormal", [], ["e"], shape=[50]),
        *(helper.make_node("Exp", [n], [n.upper()]) for n in "abcde"),
    ]
    initial = {
        "half": np.float32(0.5),
        "yes": np.array(True),
        "ones": np.ones(50, np.float32),
    }
    outputs = [value(n.upper(), None) for n in "abcde"]
    opsets.append(helper.make_opsetid("mine", 1))
    proto = model(
        nodes, [value("x", [50])], outputs, initial, opsets=opsets, functions=[inner]
    )
    f = eq.from_onnx(proto)
    x = np.ones(50, np.float32)
    for first, second in zip(f(x), f(x), strict=True):
        assert first.shape == (50,) and (first != second).any()


def test_large_arrays_are_no_part_of_a_program() -> None:
    attrs = {"output_height": 2, "output_width": 2}
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("RoiAlign", ["h", "boxes", "batch"], ["y"], **attrs),
        helper.make_node("Reshape", ["y", "to"], ["z"]),
    ]
    initial = {"batch": np.array([0, 0])}
    inputs = [value("x", [1, 1, 6, 6]), value("boxes", [2, 4]), value("to", [1], INT)]
    f = eq.from_onnx(model(nodes, inputs, [value("z", None)], initial))
    boxes = np.float32([[0, 0, 3, 3], [1, 1, 5, 5]])
    for _ in range(3):
        x = RNG.standard_normal((1, 1, 6, 6), np.float32)
        assert f(x, boxes, np.array([-1])).shape == (8,)
    (node,) = f.on_host()
    assert "RoiAlign" in node
    counted = sum(len(p._jitted) for ps in f._plans.values() for p in ps)
    assert counted == 2, "a program for each image"


def test_models_with_parts_on_the_host_refuse_tracing() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["y"])]
    f = eq.from_onnx(model(nodes, [value("x", [3])], [value("y", None, INT)]))
    x = np.float32([0, 1, 2])
    np.testing.assert_array_equal(f(x), [[1, 2]])
    with pytest.raises(eq.EqsatError, match="NonZero"):
        eq.jit(lambda x: f(x))(x)


def test_tables_of_the_model_are_indexed_in_the_program() -> None:
    table = RNG.standard_normal((9, 4), np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["rows"]),
        helper.make_node("Unsqueeze", ["i", "last"], ["pairs"]),
        helper.make_node("GatherND", ["table", "pairs"], ["same"]),
        helper.make_node("Sub", ["rows", "same"], ["none"]),
        helper.make_node("Exp", ["rows"], ["y"]),
    ]
    outputs = [value("y", None), value("none", None)]
    initial = {"table": table, "last": np.array([-1])}
    f = eq.from_onnx(model(nodes, [value("i", [5], INT)], outputs, initial))
    i = np.array([0, 8, -1, 3, 3])
    y, none = f(i)
    np.testing.assert_allclose(y, np.exp(table[i]), rtol=1e-6)
    assert not none.any() and not f.on_host()


def test_spectra_of_signals_without_a_last_axis() -> None:
    nodes = [helper.make_node("STFT", ["x", "hop", "w"], ["y"], onesided=1)]
    initial = {"hop": np.array(8), "w": np.hanning(16).astype(np.float32)}
    f = eq.from_onnx(model(nodes, [value("x", [2, 64])], [value("y", None)], initial))
    x = RNG.standard_normal((2, 64), np.float32)
    frames = np.stack([x[:, i : i + 16] for i in range(0, 49, 8)], 1)
    want = np.fft.rfft(frames * initial["w"])
    np.testing.assert_allclose(f(x)[..., 0], want.real, atol=1e-5)
    np.testing.assert_allclose(f(x)[..., 1], want.imag, atol=1e-5)


def test_a_size_below_0_is_any_size() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    f = eq.from_onnx(model(nodes, [value("x", [-1, 3])], [value("y", None)]))
    assert f.arrays() == {"x": (np.float32, (None, 3))}
    assert f(np.ones((5, 3), np.float32)).shape == (5, 3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op, gates", [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_weights_of_a_recurrent_network_are_in_a_program_once(
    op: str, gates: int
) -> None:
    n, m = 6, 8
    initial = {
        "w": RNG.standard_normal((1, gates * m, n), np.float32),
        "r": RNG.standard_normal((1, gates * m, m), np.float32),
    }
    nodes = [helper.make_node(op, ["x", "w", "r"], ["", "h"], hidden_size=m)]
    f = eq.from_onnx(model(nodes, [value("x", [9, 2, n])], [value("h", None)], initial))
    x = RNG.standard_normal((9, 2, n), np.float32)
    assert f(x).shape == (1, 2, m) and not f.on_host()
    ((plan,),) = f._plans.values()
    (jitted,) = plan._jitted.values()
    program = jitted.lower(x).program
    held = sum(np.prod(t.shape) for t in (*program.constants, *program.folded))
    weights = gates * m * (n + m)
    assert held < 2.5 * weights


def test_pools_of_every_kind_against_their_windows() -> None:
    x = RNG.standard_normal((2, 3, 11, 9), np.float32)
    pads = {"kernel_shape": [3, 4], "strides": [2, 1], "pads": [1, 2, 0, 1]}
    wide = np.pad(x, [(0, 0), (0, 0), (1, 0), (2, 1)], constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 4), (2, 3))[:, :, ::2]
    for op, want in (("MaxPool", np.nanmax), ("AveragePool", np.nanmean)):
        nodes = [helper.make_node(op, ["x"], ["y"], **pads)]
        f = eq.from_onnx(model(nodes, [value("x", None)], [value("y", None)]))
        np.testing.assert_allclose(f(x), want(windows, (-2, -1)), rtol=1e-5, atol=1e-6)
