"""Transposes of convolutions, against sums of scattered kernels in float64."""

import itertools

import numpy as np
import pytest

import eqsat as eq

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

RNG = np.random.default_rng(7)


def scattered(x, w, stride, gap, low, high, more, group):
    """Each element of x adds its kernels to the result; so much is cut away before and
    behind, and ``more`` zeros come behind before that."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    (n, c, *sizes), (_, each, *kernel) = x.shape, w.shape
    rest = zip(sizes, stride, kernel, gap, more, strict=True)
    whole = [(m - 1) * s + (k - 1) * g + 1 + o for m, s, k, g, o in rest]
    y = np.zeros((n, group * each, *whole))
    for j in range(group):
        of = slice(j * c // group, (j + 1) * c // group)
        to = slice(j * each, (j + 1) * each)
        for place in itertools.product(*map(range, kernel)):
            at = [
                slice(p * g, p * g + (m - 1) * s + 1, s)
                for p, g, m, s in zip(place, gap, sizes, stride, strict=True)
            ]
            part = np.tensordot(w[(of, slice(None), *place)], x[:, of], ((0,), (1,)))
            y[(slice(None), to, *at)] += np.moveaxis(part, 0, 1)
    ends = zip(low, whole, high, strict=True)
    return y[(..., *(slice(a, m - b) for a, m, b in ends))]


def found(x, w, stride, gap, low, high, more, group):
    node = helper.make_node(
        "ConvTranspose",
        ["x", "w"],
        ["y"],
        strides=stride,
        dilations=gap,
        pads=[*low, *high],
        output_padding=more,
        group=group,
    )
    inputs = [helper.make_tensor_value_info("x", 1, x.shape)]
    outputs = [helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph(
        [node], "g", inputs, outputs, [numpy_helper.from_array(w, "w")]
    )
    opset = [helper.make_opsetid("", 17)]
    return eq.from_onnx(helper.make_model(graph, opset_imports=opset))(x)


def near(x, w, *rest):
    """Compares; each element is a sum of some products, none longer than a kernel's
    channels and elements: γ of those, of the sum of their magnitudes."""
    got, want = found(x, w, *rest), scattered(x, w, *rest)
    most = scattered(np.abs(x), np.abs(w), *rest)
    count = w.shape[0] * np.prod(w.shape[2:])
    assert got.shape == want.shape
    assert (np.abs(got - want) <= count * 2.0**-24 * most + 1e-30).all()


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("gap", [1, 2])
@pytest.mark.parametrize("cut", [(0, 0), (1, 2)])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5])
def test_images(kernel, stride, cut, gap, group):
    x = RNG.standard_normal((2, 4, 6, 5), np.float32)
    w = RNG.standard_normal((4, 3, kernel, kernel + 1), np.float32)
    low, high = (cut[0], 0), (0, cut[1])
    near(x, w, (stride, 2), (gap, 1), low, high, (0, 1), group)


@pytest.mark.parametrize(("stride", "more"), [(2, 1), (4, 3)])
@pytest.mark.parametrize("kernel", [2, 5])
def test_one_axis_and_three(kernel, stride, more):
    x = RNG.standard_normal((1, 3, 7), np.float32)
    w = RNG.standard_normal((3, 2, kernel), np.float32)
    near(x, w, (stride,), (1,), (1,), (0,), (more,), 1)
    x = RNG.standard_normal((1, 2, 3, 4, 5), np.float32)
    w = RNG.standard_normal((2, 3, 2, kernel, 2), np.float32)
    near(x, w, (1, stride, 2), (1, 1, 1), (0, 1, 0), (1, 0, 0), (0, more, 0), 1)


def test_a_wide_image_by_squares():
    """Kernels as wide as the strides: rows of the result longer than vectors."""
    x = RNG.standard_normal((1, 9, 21, 37), np.float32)
    w = RNG.standard_normal((9, 5, 2, 2), np.float32)
    near(x, w, (2, 2), (1, 1), (0, 0), (0, 0), (0, 0), 1)


@pytest.mark.parametrize("where", ["SAME_UPPER", "SAME_LOWER"])
def test_the_same_size(where):
    x = RNG.standard_normal((1, 2, 6, 7), np.float32)
    w = RNG.standard_normal((2, 3, 3, 4), np.float32)
    node = helper.make_node(
        "ConvTranspose", ["x", "w"], ["y"], strides=[2, 3], auto_pad=where
    )
    inputs = [helper.make_tensor_value_info("x", 1, x.shape)]
    outputs = [helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph(
        [node], "g", inputs, outputs, [numpy_helper.from_array(w, "w")]
    )
    opset = [helper.make_opsetid("", 17)]
    got = eq.from_onnx(helper.make_model(graph, opset_imports=opset))(x)
    total = (1, 1)  # (n - 1) s + k - n s
    low = tuple(t // 2 if where == "SAME_UPPER" else t - t // 2 for t in total)
    high = tuple(t - a for t, a in zip(total, low, strict=True))
    want = scattered(x, w, (2, 3), (1, 1), low, high, (0, 0), 1)
    assert got.shape == (1, 3, 12, 21)
    np.testing.assert_allclose(got, want, atol=1e-5)
