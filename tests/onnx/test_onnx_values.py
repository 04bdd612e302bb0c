"""Values that operators of ONNX must give where those of others, or NumPy's own, would
be wrong: infinite and large numbers, borders, sizes that are rounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import helper

import eqsat as eq

F32 = np.float32
NAN, INF = np.nan, np.inf


def run(
    op: str, inputs: Mapping[str, Any], outputs: int = 1, opset: int = 22, **attrs: Any
) -> list[Any]:
    """The outputs of a model of one node."""
    given = {name: np.asarray(v) for name, v in inputs.items() if v is not None}
    kinds = {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in given.items()}
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(
        op, [n if n in given else "" for n in inputs], names, **attrs
    )
    infos = [
        helper.make_tensor_value_info(n, kinds[n], [None] * v.ndim)
        for n, v in given.items()
    ]
    results = [helper.make_empty_tensor_value_info(n) for n in names]
    graph = helper.make_graph([node], "g", infos, results)
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return list(eq.from_onnx(model).run(given).values())


@pytest.mark.parametrize("mean", [0, 100, 5000, 1e5])
@pytest.mark.parametrize("op", ["Layer", "Group", "Instance", "MeanVariance"])
def test_normalisations_keep_their_digits(op: str, mean: float) -> None:
    """The variance is that of what is left without the mean."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((2, 6, 8, 8)) + mean).astype(F32)
    ones, zeros = np.ones(6, F32), np.zeros(6, F32)
    inputs: dict[str, Any] = {"x": x, "scale": ones, "b": zeros}
    shape, axes, attrs = x.shape, (2, 3), dict[str, Any]()
    if op == "Layer":
        inputs = {"x": x, "scale": np.ones((8, 8), F32)}
        attrs = {"axis": 2}
    elif op == "Group":
        shape, axes, attrs = (2, 3, 2, 8, 8), (2, 3, 4), {"num_groups": 3}
    elif op == "MeanVariance":
        inputs, attrs = {"x": x}, {"axes": [2, 3]}
    (got,) = run(f"{op}Normalization", inputs, **attrs)
    exact = x.astype(np.float64).reshape(shape)
    d = exact - exact.mean(axes, keepdims=True)
    eps = 0 if op == "MeanVariance" else 1e-5
    want = (d / np.sqrt((d * d).mean(axes, keepdims=True) + eps)).reshape(x.shape)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-7 * mean + 2e-5)


def test_a_scale_is_broadcast_to_what_is_normalised_and_no_further() -> None:
    x = np.arange(24, dtype=F32).reshape(2, 3, 4)
    (got,) = run("LayerNormalization", {"x": x, "s": np.full(4, 2, F32)}, axis=1)
    d = x - x.mean((1, 2), keepdims=True)
    want = 2 * d / np.sqrt((d * d).mean((1, 2), keepdims=True) + 1e-5)
    np.testing.assert_allclose(got, want, 1e-5)
    for shape in ((5, 4), (2, 2, 3, 4), (3,)):
        with pytest.raises(eq.OnnxError, match=r"LayerNormalization_0.*scale: shape"):
            run("LayerNormalization", {"x": x, "s": np.ones(shape, F32)}, axis=1)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("InstanceNormalization", [3, 3], {}),
        ("BatchNormalization", [1, 1, 1, 1], {}),
        ("GroupNormalization", [2, 2], {"num_groups": 1}),
    ],
)
def test_factors_of_other_numbers_of_channels_are_refused(
    op: str, inputs: list[int], attrs: dict[str, Any]
) -> None:
    given = {f"v{i}": np.ones(n, F32) for i, n in enumerate(inputs)}
    x = np.ones((1, 4, 2), F32)
    with pytest.raises(eq.OnnxError, match=r"expected \(4,\)"):
        run(op, {"x": x, **given}, **attrs)


@pytest.mark.parametrize(
    ("opset", "scales", "want"),
    [
        (10, (0.6, 0.6), [[1, 3]]),  # what is before a place where it shrinks: behind
        (10, (1.6, 0.6), [[1, 3], [1, 3], [5, 7]]),
        (9, (1.0, 1.5), [[1, 1, 2, 3, 3, 4], [5, 5, 6, 7, 7, 8]]),
    ],
)
def test_nearest_elements_before_opset_11(
    opset: int, scales: tuple[float, float], want: Any
) -> None:
    x = np.arange(1, 9, dtype=F32).reshape(1, 1, 2, 4)
    op = "Resize" if opset == 10 else "Upsample"
    given = {"x": x, "s": np.array([1, 1, *scales], F32)}
    (got,) = run(op, given, opset=opset, mode="nearest")
    np.testing.assert_array_equal(got[0, 0], want)


@pytest.mark.parametrize("odd", [INF, -INF, NAN])
@pytest.mark.parametrize(
    ("mode", "scale", "antialias", "reached"),
    [
        ("linear", 1.5, 0, 2),
        ("linear", 0.5, 1, 1),
        ("linear", 2, 0, 3),
        ("cubic", 1.5, 0, 4),
    ],
)
def test_an_infinite_element_reaches_its_neighbours_alone(
    odd: float, mode: str, scale: float, antialias: int, reached: int
) -> None:
    x = np.ones((1, 1, 1, 6), F32)
    x[..., 0] = odd
    sizes = np.array([1, 1, 1, scale], F32)
    given = {"x": x, "roi": None, "s": sizes}
    (got,) = run("Resize", given, mode=mode, antialias=antialias)
    row = got.reshape(-1)
    assert not np.isfinite(row[:reached]).any()
    np.testing.assert_allclose(row[reached:], 1, rtol=1e-6)


def test_what_lies_on_an_element_is_that_element_alone() -> None:
    x = np.array([INF, 2, NAN, 4, 5, INF], F32).reshape(1, 1, 1, 6)
    given = {"x": x, "roi": None, "s": np.array([1, 1, 1, 3], F32)}
    for mode in ("linear", "cubic"):
        (got,) = run("Resize", given, mode=mode)
        np.testing.assert_array_equal(got.reshape(-1)[1::3], x.reshape(-1))


def test_samples_of_a_region_are_counted_in_its_dtype() -> None:
    x = (np.arange(64) ** 2 % 17).astype(F32).reshape(1, 1, 8, 8)
    given = {"x": x, "r": np.array([[0, -1, 2, 9]], F32), "b": np.array([0])}
    size = {"output_height": 2, "output_width": 1, "sampling_ratio": 0}
    (got,) = run("RoiAlign", given, opset=16, spatial_scale=0.8, **size)
    np.testing.assert_allclose(got.reshape(-1), [4.285, 7.3425], 1e-5)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    "x",
    [
        np.zeros((1, 2, 2, 3), np.uint8),
        np.full((1, 2, 2, 3), -128, np.int8),
        np.full((1, 2, 2, 3), -INF, F32),
        np.array([[[[3, NAN, 1], [2, 5, NAN]]] * 2], F32),
    ],
    ids=["uint8", "int8", "-inf", "nan"],
)
def test_places_of_maxima_are_inside(x: Any, order: int) -> None:
    """Padding is not the largest element, were it as large."""
    attrs = {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1], "storage_order": order}
    best, places = run("MaxPool", {"x": x}, 2, **attrs)
    flat = np.transpose(x, (0, 1, 3, 2)) if order else x
    np.testing.assert_array_equal(flat.reshape(-1)[places], best)
    for r, s in np.ndindex(best.shape[2:]):
        for c in range(2):
            inside = places[0, c, r, s] - 6 * c
            row, column = divmod(inside, 3) if not order else divmod(inside, 2)[::-1]
            assert r - 1 <= row <= r and s - 1 <= column <= s


ONES = np.ones((1, 1, 4, 4), F32)
W = np.ones((1, 1, 2, 2), F32)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "text"),
    [
        ("Conv", {"x": ONES, "w": W}, {"kernel_shape": [3, 2]}, "kernel_shape"),
        ("ConvTranspose", {"x": ONES, "w": W}, {"kernel_shape": [1, 2]}, "kernel_"),
        ("Conv", {"x": ONES, "w": W, "b": np.ones(2, F32)}, {}, "'B'"),
        ("ConvTranspose", {"x": ONES, "w": W, "b": np.ones(3, F32)}, {}, "'B'"),
        ("Gemm", {"a": np.ones((1, 2), F32), "b": W[0, 0], "c": W[0, 0]}, {}, "'C'"),
        (
            "DeformConv",
            {"x": ONES, "w": W, "o": np.zeros((1, 8, 2, 2), F32)},
            {},
            "'offset'",
        ),
        (
            "MaxUnpool",
            {"x": np.ones((1, 1, 2), F32), "i": np.array([[[0, -1]]])},
            {"kernel_shape": [2], "strides": [2]},
            "places from -1",
        ),
        ("LpNormalization", {"x": ONES}, {"axis": 4}, "axis"),
        ("Resize", {"x": ONES, "r": None, "s": np.ones(1, F32)}, {"axes": [5]}, "axes"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    op: str, inputs: dict[str, Any], attrs: dict[str, Any], text: str
) -> None:
    opset = {"opset": 19} if op != "DeformConv" else {"opset": 22}
    with pytest.raises(eq.OnnxError, match=f"node '{op}_0'.*{text}"):
        run(op, inputs, **opset, **attrs)


def test_a_transposed_convolution_of_no_images() -> None:
    given = {"x": np.zeros((0, 1, 3), F32), "w": np.ones((1, 1, 2), F32)}
    (got,) = run("ConvTranspose", given, strides=[2])
    assert got.shape == (0, 1, 6)


def test_errors_in_what_the_standard_writes_name_the_node_of_the_model() -> None:
    x = np.ones((1, 2, 3), F32)
    text = r"^node 'Attention_0'.*as the standard writes"
    with pytest.raises(eq.OnnxError, match=text):
        run(
            "Attention",
            {"q": x, "k": x, "v": x},
            opset=23,
            q_num_heads=2,
            kv_num_heads=2,
        )
