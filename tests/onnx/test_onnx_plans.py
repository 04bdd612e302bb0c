"""A call decides nothing for others: what runs on the host follows from its shapes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import eqsat as eq

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
RNG = np.random.default_rng(5)


def drawn(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def info(name: str, sizes: Any, element: int = 1) -> Any:
    return helper.make_tensor_value_info(name, element, sizes)


def model(
    nodes: Any, inputs: Any, outputs: Any, initial: Any = None, by: str = ""
) -> Any:
    tensors = [numpy_helper.from_array(a, n) for n, a in (initial or {}).items()]
    graph = helper.make_graph(
        nodes, "g", inputs, [info(o, None) for o in outputs], tensors
    )
    opsets = [helper.make_opsetid("", 17)]
    made = helper.make_model(
        graph, opset_imports=opsets, ir_version=8, producer_name=by
    )
    return eq.from_onnx(made)


def lstm() -> Any:
    node = helper.make_node("LSTM", ["x", "w", "r"], ["", "h"], hidden_size=6)
    initial = {"w": drawn(1, 24, 5), "r": drawn(1, 24, 6)}
    return model([node], [info("x", ["t", "b", 5])], ["h"], initial)


def plans(f: Any) -> list[Any]:
    return [p for of in f._plans.values() for p in of]


def test_long_sequences_leave_short_ones_as_they_are() -> None:
    f, short, long = lstm(), drawn(9, 2, 5), drawn(66, 2, 5)
    before = f(short)
    far = f(long)
    assert "more than 64 steps" in str(f.on_host())
    np.testing.assert_array_equal(f(short), before)
    np.testing.assert_array_equal(f(long), far)
    first, other = plans(f)
    assert not first.on_host and other.on_host
    f(drawn(70, 1, 5))
    assert len(plans(f)) == 2, "one plan for all long sequences"
    assert f._direct((short,), {}) is not None
    assert f._direct((long,), {}) is None
    assert len(f.explain(short)) == 1


def test_the_plan_of_the_first_call_serves_others_that_it_fits() -> None:
    f, long = lstm(), drawn(66, 1, 5)
    wanted = f(long)
    np.testing.assert_allclose(f(drawn(9, 2, 5)).shape, (1, 2, 6))
    np.testing.assert_array_equal(f(long), wanted)
    assert len(plans(f)) == 1


@pytest.mark.parametrize("first", [True, False])
def test_a_refused_call_decides_nothing(first: bool) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    sizes = ["n", "c", "h", "v"]
    f = model([node], [info("x", sizes)], ["y"], {"w": drawn(4, 3, 3, 3)})
    if not first:
        f(drawn(1, 3, 9, 9))
    for wrong in (drawn(1, 2, 9, 9), drawn(2, 5, 4, 4)):
        with pytest.raises(eq.OnnxError, match="Conv"):
            f(wrong)
    assert f(drawn(1, 3, 9, 9)).shape == (1, 4, 7, 7)
    assert not f.on_host() and len(plans(f)) == 1


def test_an_output_that_is_an_input_is_a_copy() -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    rows = helper.make_node("NonZero", ["y"], ["z"])
    for nodes, outputs in (([relu], ["y", "x"]), ([relu, rows], ["x", "z"])):
        f = model(nodes, [info("x", ["n"])], outputs)
        x = drawn(5)
        for _ in range(2):
            found = f(x)[outputs.index("x")]
            np.testing.assert_array_equal(found, x)
            assert not np.shares_memory(found, x)


def test_nodes_in_another_order() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["late", "late"], ["twice"])],
        "then",
        [],
        [info("twice", None)],
    )
    nodes = [
        helper.make_node("Sub", ["h", "x"], ["y"]),
        helper.make_node("If", ["yes"], ["h"], then_branch=body, else_branch=body),
        helper.make_node("Exp", ["x"], ["late"]),
    ]
    f = model(nodes, [info("x", [3])], ["y"], {"yes": np.array(True)})
    x = drawn(3)
    np.testing.assert_allclose(f(x), 2 * np.exp(x) - x, 1e-5)
    local = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["late"])], "local", [], [info("late", None)]
    )
    nodes = [
        helper.make_node("Add", ["h", "x"], ["late"]),
        helper.make_node("If", ["yes"], ["h"], then_branch=local, else_branch=local),
    ]
    f = model(nodes, [info("x", [3])], ["late"], {"yes": np.array(True)})
    np.testing.assert_allclose(f(x), np.zeros(3))
    circle = [
        helper.make_node("Add", ["x", "b"], ["a"]),
        helper.make_node("Add", ["x", "a"], ["b"]),
    ]
    with pytest.raises(eq.OnnxError, match="input 'b' is no input"):
        model(circle, [info("x", [3])], ["b"])


@pytest.mark.parametrize("chain", [True, False])
def test_many_nodes_in_another_order(chain: bool) -> None:
    from eqsat.onnx.nodes import _in_order

    names = [f"x{i}" for i in range(50_001)]
    if chain:
        pairs = list(pairwise(names))[::-1]
        nodes = [helper.make_node("Neg", [a], [b]) for a, b in pairs]
    else:
        nodes = [helper.make_node("Concat", names, ["y"])]
        nodes += [helper.make_node("Neg", ["x"], [n]) for n in names]
    ordered = _in_order(nodes)
    assert ordered[-1] is nodes[0] and len(ordered) == len(nodes)


@pytest.mark.parametrize("like", [True, False])
def test_few_drawn_numbers_are_no_part_of_a_program(like: bool) -> None:
    made = helper.make_node("RandomNormal", [], ["r"], shape=[3])
    if like:
        made = helper.make_node("RandomNormalLike", ["x"], ["r"])
    f = model(
        [made, helper.make_node("Add", ["r", "x"], ["y"])], [info("x", [3])], ["y"]
    )
    x = drawn(3)
    found = [f(x).tobytes() for _ in range(5)]
    assert len(set(found)) == 5
    assert sum(len(p._jitted) for p in plans(f)) == 1


def test_what_is_no_model_and_no_option_is_named() -> None:
    f = model([helper.make_node("Relu", ["x"], ["y"])], [info("x", [3])], ["y"])
    with pytest.raises(eq.OnnxError, match="inputs is a 'list', expected arrays by"):
        f.run([drawn(3)])
    with pytest.raises(eq.OnnxError, match="source is a 'NoneType', expected a path"):
        eq.from_onnx(None)
    with pytest.raises(eq.OnnxError, match="it is a folder"):
        eq.from_onnx(".")
    with pytest.raises(eq.OptionError, match="no option 'backnd'; did you mean"):
        eq.from_onnx(b"", backnd="numpy")
    with pytest.raises(eq.OptionError, match=r"options=eq.Options\(threads=…\) has it"):
        eq.from_onnx(b"", threads=1)


# -- images ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("scales", [(1.5, 1.5), (1.7, 0.6), (1.2, 1.2), (0.7, 2.3)])
@pytest.mark.parametrize("aligned", [True, False])
def test_scales_that_leave_a_part(mode: str, scales: Any, aligned: bool) -> None:
    torch = pytest.importorskip("torch")
    if mode == "nearest" and aligned:
        aligned = False
    how = "align_corners" if aligned else "half_pixel"
    node = helper.make_node(
        "Resize",
        ["x", "", "scales"],
        ["y"],
        mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode),
        coordinate_transformation_mode="asymmetric" if mode == "nearest" else how,
        nearest_mode="floor",
        cubic_coeff_a=-0.75,
    )
    by = {"scales": np.array([1, 1, *scales], np.float32)}
    x = drawn(1, 2, 7, 9)
    f = model([node], [info("x", [1, 2, 7, 9])], ["y"], by, "pytorch")
    options = {} if mode == "nearest" else {"align_corners": aligned}
    want = torch.nn.functional.interpolate(
        torch.from_numpy(x), scale_factor=scales, mode=mode, **options
    )
    np.testing.assert_allclose(f(x), want, 1e-5, 1e-5)


def test_whole_numbers_are_met() -> None:
    node = helper.make_node(
        "Resize",
        ["x", "", "", "sizes"],
        ["y"],
        mode="nearest",
        coordinate_transformation_mode="half_pixel",
        nearest_mode="floor",
    )
    f = model([node], [info("x", [24])], ["y"], {"sizes": np.array([56])})
    x = np.arange(24, dtype=np.float32)
    exact = np.floor((2 * np.arange(56) + 1) * 24 / 112 - 0.5)
    np.testing.assert_array_equal(f(x), np.clip(exact, 0, 23))


def test_no_images_are_resized_to_none() -> None:
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear")
    sizes = {"sizes": np.array([0, 3, 8, 8])}
    f = model([node], [info("x", ["n", 3, "h", "w"])], ["y"], sizes)
    assert f(drawn(0, 3, 4, 4)).shape == (0, 3, 8, 8)
    with pytest.raises(eq.OnnxError, match="axis 2 has no elements, and 8 are wanted"):
        f(drawn(0, 3, 0, 4))


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_without_samples_are_zero(mode: str) -> None:
    node = helper.make_node(
        "RoiAlign", ["x", "r", "i"], ["y"], output_height=2, output_width=2, mode=mode
    )
    regions = [info("r", [3, 4]), info("i", [3], onnx.TensorProto.INT64)]
    f = model([node], [info("x", [1, 1, 8, 8]), *regions], ["y"])
    r = np.array([[3, 3, 3, 3], [5, 5, 2, 2], [1, 1, 5, 5]], np.float32)
    y = f(abs(drawn(1, 1, 8, 8)), r, np.zeros(3, np.int64))
    assert (y[:2] == 0).all() and (y[2] > 0).all()


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_samples_at_no_place(padding: str, mode: str) -> None:
    node = helper.make_node(
        "GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding
    )
    inputs = [info("x", [1, 1, 5, 5]), info("g", [1, 1, 3, 2])]
    f, grid = model([node], inputs, ["y"]), drawn(1, 1, 3, 2) / 3
    x = drawn(1, 1, 5, 5)
    y = f(x, grid)
    bad = grid.copy()
    bad[0, 0, 1, 0] = np.nan
    found = f(x, bad)
    np.testing.assert_array_equal(found[..., [0, 2]], y[..., [0, 2]])


@pytest.mark.parametrize("centred", [0, 1])
def test_boxes_that_overlap_no_better_one(centred: int) -> None:
    names = ["b", "s", "k", "o", "t"]
    node = helper.make_node("NonMaxSuppression", names, ["y"], center_point_box=centred)
    types = [1, 1, onnx.TensorProto.INT64, 1, 1]
    inputs = [info(n, None, t) for n, t in zip(names, types, strict=True)]
    f = model([node], inputs, ["y"])

    def shared(a: Any, b: Any) -> float:
        sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
        inside = np.prod(np.maximum(sides, 0))
        whole = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - inside
        return float(inside / whole) if whole > 0 else 0.0

    for count, limit, most, least in ((150, 10, 0.3, 0.2), (90, 999, 0.5, -1.0)):
        boxes = RNG.random((1, count, 4)).astype(np.float32)
        scores = np.round(RNG.random((1, 2, count)), 2).astype(np.float32)
        low, high = boxes[0, :, :2], boxes[0, :, 2:]
        ends = np.minimum(low, high), np.maximum(low, high)
        if centred:
            middle, half = low[:, ::-1], high[:, ::-1] / 2
            ends = middle - half, middle + half
        corners, want = np.concatenate(ends, 1), []
        for c in range(2):
            kept: list[int] = []
            for i in np.argsort(-scores[0, c], kind="stable"):
                is_far = all(shared(corners[i], corners[k]) <= most for k in kept)
                if scores[0, c, i] > least and is_far and len(kept) < limit:
                    kept.append(int(i))
            want += [(0, c, k) for k in kept]
        given = np.array([limit]), np.float32([most]), np.float32([least])
        np.testing.assert_array_equal(f(boxes, scores, *given), want)


def test_sequences_that_grow_in_a_long_loop_compile_nothing_more() -> None:
    seq = helper.make_tensor_sequence_value_info
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["x_in", "half"], ["x_out"]),
            helper.make_node("SequenceInsert", ["s_in", "x_out"], ["s_out"]),
            helper.make_node("Identity", ["go"], ["go_out"]),
        ],
        "body",
        [info("i", [], 7), info("go", [], 9), info("x_in", [3]), seq("s_in", 1, None)],
        [info("go_out", [], 9), info("x_out", [3]), seq("s_out", 1, None)],
    )
    nodes = [
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("Loop", ["n", "", "x", "none"], ["last", "all"], body=body),
        helper.make_node("ConcatFromSequence", ["all"], ["y"], axis=0, new_axis=1),
    ]
    compiled = []

    def compile(function: Any) -> Any:
        made = eq.jit(function)
        compiled.append(made)
        return made

    inputs = [info("x", [3]), info("n", [], onnx.TensorProto.INT64)]
    f = model(nodes, inputs, ["y"], {"half": np.float32([0.5])}).compiled_by(compile)
    x = drawn(3)
    for steps in (70, 90, 70):
        want = x * np.float32(0.5) ** np.arange(1, steps + 1)[:, None]
        np.testing.assert_allclose(f(x, np.array(steps)), want, 1e-5)
    assert sum(len(c._lowered) for c in compiled) < 10
