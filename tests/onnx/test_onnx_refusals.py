"""Nodes whose attributes, axes, shapes or indices are wrong are refused by name; and
values at the edge of what is right."""

import numpy as np
import pytest

import eqsat as eq
from eqsat.support import BoundsError, OnnxError

onnx = pytest.importorskip("onnx")
helper, T = onnx.helper, onnx.TensorProto

F = np.float32


def array(*values, dtype=None):
    """An array of float32, or of int64 where all values are integers."""
    found = np.array(values, dtype)
    return found.astype(F) if dtype is None and found.dtype.kind == "f" else found


def ones(*shape):
    return np.ones(shape, F)


def text(*values):
    return np.array(values, object)


def run(op, *inputs, count=1, opset=22, **attributes):
    """The outputs of a model of one node, whose inputs are i0, i1, …"""
    given = {f"i{k}": v for k, v in enumerate(inputs) if v is not None}
    names = [f"i{k}" if v is not None else "" for k, v in enumerate(inputs)]
    outputs = [f"o{k}" for k in range(count)]
    node = helper.make_node(op, names, outputs, name="wrong", **attributes)
    types = [
        helper.make_tensor_value_info(
            n, helper.np_dtype_to_tensor_dtype(v.dtype), [None] * v.ndim
        )
        for n, v in given.items()
    ]
    open_ = [onnx.ValueInfoProto(name=n) for n in outputs]
    graph = helper.make_graph([node], "g", types, open_)
    imports = [helper.make_opsetid("", opset)]
    f = eq.from_onnx(helper.make_model(graph, opset_imports=imports, ir_version=10))
    return [*f.run(given).values()]


def refused(match, op, *inputs, error=OnnxError, **named):
    with pytest.raises(error, match=match) as found:
        run(op, *inputs, **named)
    assert isinstance(found.value, OnnxError)
    assert f"'wrong' ({op} of ai.onnx" in str(found.value)


# -- values of attributes --------------------------------------------------------------

IMAGE = np.arange(8, dtype=F).reshape(1, 2, 2, 2)
GRID = np.full((1, 1, 1, 2), 0.3, F)
KERNEL = ones(1, 2, 2, 2)
SCALES = None, array(1.0, 1, 2, 2)
CELL = ones(1, 1, 1), ones(1, 1, 1), ones(1, 1, 1)
GRAMS = dict(
    max_gram_length=1,
    min_gram_length=1,
    max_skip_count=0,
    ngram_counts=[0],
    ngram_indexes=[0],
    pool_int64s=[1],
)
ROIS = array([0.0, 0, 1, 1]), array(0)


@pytest.mark.parametrize(
    "op, inputs, attribute, value, others",
    [
        ("Conv", (IMAGE, KERNEL), "auto_pad", "SAME", {}),
        ("MaxPool", (IMAGE,), "auto_pad", "same_upper", {"kernel_shape": [2, 2]}),
        ("Resize", (IMAGE, *SCALES), "mode", "bilinear", {}),
        ("Resize", (IMAGE, *SCALES), "nearest_mode", "round", {}),
        ("Resize", (IMAGE, *SCALES), "coordinate_transformation_mode", "half", {}),
        ("Resize", (IMAGE, *SCALES), "keep_aspect_ratio_policy", "larger", {}),
        ("GridSample", (IMAGE, GRID), "mode", "area", {}),
        ("GridSample", (IMAGE, GRID), "padding_mode", "zero", {}),
        ("RNN", CELL, "direction", "backward", {"hidden_size": 1}),
        ("GRU", CELL, "direction", "backward", {"hidden_size": 1}),
        ("LSTM", CELL, "direction", "backward", {"hidden_size": 1}),
        ("Gelu", (IMAGE,), "approximate", "erf", {}),
        ("DepthToSpace", (ones(1, 4, 1, 1),), "mode", "dcr", {"blocksize": 2}),
        ("BitShift", (array(8, dtype="u1"),) * 2, "direction", "left", {}),
        ("LpNormalization", (IMAGE,), "p", 3, {}),
        ("StringNormalizer", (text("Ab"),), "case_change_action", "lower", {}),
        ("TfIdfVectorizer", (array(1, 1),), "mode", "tf", GRAMS),
        ("RoiAlign", (IMAGE, *ROIS), "mode", "mean", {}),
        ("RoiAlign", (IMAGE, *ROIS), "coordinate_transformation_mode", "half", {}),
        ("Pad", (array(1.0), array(1, 1)), "mode", "mirror", {}),
        ("ScatterND", (ones(2), array([0]), ones(1)), "reduction", "plus", {}),
        ("ScatterElements", (ones(2), array(0), ones(1)), "reduction", "plus", {}),
        ("ReverseSequence", (ones(2, 2, 2), array(1, 1)), "time_axis", 2, {}),
        ("NegativeLogLikelihoodLoss", (ones(1, 2), array(0)), "reduction", "avg", {}),
    ],
)
def test_unknown_values_of_attributes(op, inputs, attribute, value, others):
    match = f"attribute '{attribute}' is {value!r}, and allowed are "
    refused(match, op, *inputs, **{attribute: value}, **others)


def test_resize_by_scales_alone_knows_bilinear():
    for value in ("bilinear", "linear"):
        (y,) = run("Resize", IMAGE, SCALES[1], opset=10, mode=value)
        assert y.shape == (1, 2, 4, 4)


# -- axes ------------------------------------------------------------------------------

X = array([3.0, 1, 2], [9, 7, 8])
BYTES = X.astype(np.uint8)


@pytest.mark.parametrize(
    "op, inputs, named, axis",
    [
        ("Softmax", (X,), {}, 5),
        ("LogSoftmax", (X,), {}, -3),
        ("Hardmax", (X,), {}, 2),
        ("Softmax", (X,), {"opset": 11}, 2),
        ("TopK", (X, array(1)), {"count": 2}, 2),
        ("ArgMax", (X,), {}, 2),
        ("Gather", (X, array(0)), {}, 2),
        ("GatherElements", (X, array([0, 1])), {}, 3),
        ("ScatterElements", (X, array([0, 1]), ones(1, 2)), {}, 3),
        ("TensorScatter", (ones(1, 4, 1), ones(1, 1, 1)), {"opset": 24}, 3),
        ("Flatten", (X,), {}, 3),
        ("Concat", (X, X), {}, 2),
        ("Split", (X,), {"count": 1}, 2),
        ("OneHot", (array(0), array(2), array(0, 1)), {}, 2),
        ("QuantizeLinear", (X, ones(3), BYTES[0]), {}, 5),
        ("DequantizeLinear", (BYTES, ones(3)), {}, -3),
        ("Compress", (X, array(True)), {}, 2),
        ("SplitToSequence", (X,), {}, 2),
        ("Unique", (X,), {"count": 4}, 2),
    ],
)
def test_axes_that_an_array_does_not_have(op, inputs, named, axis):
    match = f"attribute 'axis' is {axis}, and allowed are -"
    refused(match, op, *inputs, axis=axis, error=IndexError, **named)


@pytest.mark.parametrize(
    "op, inputs, match",
    [
        ("CumSum", (X, array(2)[0]), "input 'axis' is 2, and allowed are -2 to 1"),
        ("ReduceSum", (X, array(4)), "one of axes .4. is 4, and allowed are -2 to 1"),
        ("ReduceMax", (X, array(0, 0)), "axes .0, 0. hold an axis twice"),
        ("Squeeze", (ones(1, 2), array(2)), "is 2, and allowed are -2 to 1"),
        ("Squeeze", (ones(1, 2), array(1)), "not all of size 1"),
        ("Unsqueeze", (X, array(3)), "is 3, and allowed are -3 to 2"),
        ("Pad", (X, array(1, 1), None, array(2)), "is 2, and allowed are -2 to 1"),
        ("DFT", (ones(1, 4, 1), None, array(2)[0]), "input 'axis' is 2"),
        (
            "Slice",
            (X, array(0, 1), array(1, 2), array(0, -2)),
            "axes .0, -2. hold an axis twice",
        ),
    ],
)
def test_axes_that_are_inputs(op, inputs, match):
    refused(match, op, *inputs)


# -- shapes ----------------------------------------------------------------------------


def weights(*sizes):
    """Of an LSTM: x of one step, w and r."""
    directions, rows, hidden = sizes
    return ones(1, 1, 1), ones(directions, rows, 1), ones(directions, rows, hidden)


@pytest.mark.parametrize(
    "op, inputs, named, match",
    [
        ("ScatterND", (ones(3), array([0, 1]), ones(1)), {}, "'indices' has shape"),
        ("ScatterND", (ones(3, 2), array([0], [1]), ones(1, 2)), {}, "'updates'"),
        ("ScatterElements", (X, array([0, 1, 0]), ones(1, 1)), {}, "'updates' has"),
        ("ScatterElements", (X, array(0), ones(1)), {}, "'indices' has shape"),
        ("GatherElements", (X[:, :1], array([0, 1])), {}, "'indices' has shape"),
        ("GatherND", (X, array([[0]])), {"batch_dims": 1}, "'indices' has shape"),
        ("QuantizeLinear", (ones(2, 1), ones(3)), {}, "'scale' has shape .3,."),
        ("DequantizeLinear", (BYTES[:, :1], ones(3)), {}, "expected .1,."),
        (
            "DequantizeLinear",
            (BYTES, ones(2, 3)),
            {"block_size": 2},
            "expected .2, 2.",
        ),
        ("OneHot", (array(0, 1), array(2), array(0, 1, 7)), {}, "'values' has shape"),
        (
            "TensorScatter",
            (ones(1, 1, 4, 1), ones(1, 2, 1, 1)),
            {"opset": 24},
            "'update' has shape",
        ),
        ("Split", (array(1.0, 2, 3, 4), array(1, 1, 2)), {"count": 2}, "2 outputs"),
        ("Split", (ones(4),), {"count": 2, "num_outputs": 3}, "num_outputs"),
        ("SplitToSequence", (ones(4), array(1, 2)), {}, "do not add to 4"),
        ("Reshape", (ones(4), array(-2, 2)), {}, "input 'shape' is .-2, 2."),
        ("Pad", (ones(3), array(-2, -2)), {}, "cut more than"),
        ("Pad", (ones(3), array(-5, 4)), {}, "cut more than"),
        ("PRelu", (ones(2), ones(3, 2)), {}, "'slope' has shape"),
        ("Clip", (ones(2), ones(2)), {}, "'min' has shape"),
        ("TopK", (X, array(1, 2)), {"count": 2}, "expected one number"),
        ("Trilu", (ones(3),), {}, "expected two axes"),
        ("ReverseSequence", (ones(3, 2), array(1)), {}, "'sequence_lens' has shape"),
        ("LSTM", weights(2, 4, 1), {"hidden_size": 1}, "'W' has shape .2, 4, 1."),
        ("LSTM", weights(1, 4, 1), {"hidden_size": 3}, "expected .1, 12, 1."),
        ("GRU", weights(1, 4, 1), {"hidden_size": 1}, "expected .1, 3, 1."),
        (
            "RNN",
            weights(1, 1, 1),
            {"direction": "bidirectional"},
            "expected .2, 1, 1.",
        ),
        ("LSTM", (*weights(1, 4, 1), ones(1, 4)), {}, "'B' has shape .1, 4."),
        (
            "LSTM",
            (*weights(1, 4, 1), None, array(1, 1, dtype="i4")),
            {},
            "'sequence_lens' has shape",
        ),
        (
            "LSTM",
            (*weights(1, 4, 1), None, None, ones(1, 2, 1)),
            {},
            "'initial_h' has shape",
        ),
        (
            "LSTM",
            (*weights(1, 4, 1), None, None, None, None, ones(1, 1)),
            {},
            "'P' has shape",
        ),
        ("LSTM", weights(1, 4, 1), {"activations": ["Tanh"]}, "activations"),
        ("RNN", weights(1, 1, 1), {"activations": ["Sine"]}, "has 'Sine', and allowed"),
        ("STFT", (ones(1, 8), array(2)[0], ones(1), array(4)[0]), {}, "'window' has"),
        ("Range", (array(0), array(4, 5), array(1)), {}, "expected one number"),
        ("MaxPool", (ones(1, 1, 3),), {"kernel_shape": [4]}, "does not fit an image"),
        (
            "AveragePool",
            (ones(1, 1, 3),),
            {"kernel_shape": [9], "strides": [2], "ceil_mode": 1},
            r"window of .9. .* does not fit an image of .3.",
        ),
        ("LpPool", (ones(1, 1, 2, 2),), {"kernel_shape": [2]}, "kernel_shape .2., exp"),
        (
            "MaxPool",
            (ones(1, 1, 4, 4),),
            {"kernel_shape": [2, 2], "strides": [0, 1]},
            "strides .0, 1., expected 2 numbers, 1 or more",
        ),
        (
            "MaxPool",
            (ones(1, 1, 4, 4),),
            {"kernel_shape": [2, 2], "pads": [-1, 0, 0, 0]},
            "pads .-1, 0, 0, 0., expected 4 numbers, 0 or more",
        ),
        ("Conv", (ones(1, 1, 4, 4), ones(1, 1, 2, 2)), {"pads": [0, 0]}, "pads .0, 0."),
    ],
)
def test_shapes_that_do_not_fit(op, inputs, named, match):
    refused(match, op, *inputs, **named)


def scan(slices, steps, **attributes):
    """A running sum and its negatives."""
    value = [helper.make_tensor_value_info(n, T.FLOAT, [4]) for n in "s x y".split()]
    after = [helper.make_tensor_value_info(n, T.FLOAT, [4]) for n in "t o".split()]
    nodes = [
        helper.make_node("Sum", ["s", "x", "y"], ["t"]),
        helper.make_node("Neg", ["t"], ["o"]),
    ]
    body = helper.make_graph(nodes, "body", value, after)
    inputs = ones(4), ones(slices, 4), ones(steps, 4)
    return dict(body=body, num_scan_inputs=2, **attributes), inputs


def test_inputs_of_a_scan_have_as_many_slices():
    attributes, inputs = scan(2, 3)
    refused(r"\[2, 3\] slices", "Scan", *inputs, count=2, **attributes)


ONE, ZERO = np.array(1, F), np.array(0, np.uint8)
PIXELS = np.ones((1, 1, 3, 3), np.uint8)


@pytest.mark.parametrize(
    "kernels, scales, bias, named, match",
    [
        (2, array(1.0, 1, 1), None, {}, "'w_scale' has shape .3,., expected .2,."),
        (2, ONE, array(1, dtype="i4"), {}, "'B' has shape .1,., expected .2,."),
        (2, ONE, None, {"kernel_shape": [2, 2]}, "'kernel_shape' is .2, 2., and"),
    ],
)
def test_shapes_of_a_quantised_convolution(kernels, scales, bias, named, match):
    w = np.ones((kernels, 1, 1, 1), np.uint8)
    inputs = PIXELS, ONE, ZERO, w, scales, ZERO, ONE, ZERO, bias
    refused(match, "QLinearConv", *inputs, **named)


def test_scales_of_a_quantised_product():
    a = np.ones((2, 3), np.uint8)
    inputs = a, ones(3), ZERO, a.T, ONE, ZERO, ONE, ZERO
    refused(
        "'scale or zero point' has shape .3, 1., expected", "QLinearMatMul", *inputs
    )


def test_axes_and_lengths_of_sequences():
    types = [helper.make_tensor_value_info("x", T.FLOAT, [2])]
    node = helper.make_node
    split = [
        node("SequenceConstruct", ["x", "x"], ["a"]),
        node("SequenceConstruct", ["x"], ["b"]),
    ]
    value = [helper.make_tensor_value_info(n, T.FLOAT, [2]) for n in "uvw"]
    add = helper.make_graph([node("Add", ["u", "v"], ["w"])], "body", value[:2], value)
    del add.output[:2]
    for last, match in (
        (node("ConcatFromSequence", ["a"], ["y"], axis=1), "'axis' is 1, and allowed"),
        (node("SequenceMap", ["a", "b"], ["y"], body=add), r"sequences of \[2, 1\]"),
    ):
        out = [onnx.ValueInfoProto(name="y")]
        model = helper.make_model(
            helper.make_graph([*split, last], "g", types, out),
            opset_imports=[helper.make_opsetid("", 22)],
        )
        with pytest.raises(OnnxError, match=match):
            eq.from_onnx(model)(ones(2))


def test_attributes_of_a_scan_have_as_many_numbers():
    attributes, inputs = scan(2, 2, scan_input_axes=[0])
    refused("'scan_input_axes' is .0., expected 2", "Scan", *inputs, **attributes)


def test_graphs_of_a_scan_and_a_loop_take_what_there_is():
    attributes, inputs = scan(2, 2)
    graph = attributes["body"]
    refused("graph 'body' has 3 inputs", "Scan", *inputs[1:], **attributes)
    refused("graph 'body' has 3 inputs", "Loop", array(3)[0], None, body=graph)


@pytest.mark.parametrize("axis, shape", [(0, (0, 4)), (1, (4, 0)), (-1, (4, 0))])
def test_a_scan_of_no_steps(axis, shape):
    attributes, inputs = scan(0, 0, scan_output_axes=[axis])
    assert run("Scan", *inputs, count=2, **attributes)[1].shape == shape


# -- indices ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op, inputs, named, match",
    [
        ("ScatterElements", (ones(4), array(-6), ones(1)), {}, "-6 is out of bounds"),
        ("ScatterND", (ones(4), array([-6]), ones(1)), {}, "-6 is out of bounds"),
        (
            "ScatterND",
            (ones(4), array([-6]), ones(1)),
            {"reduction": "add"},
            "-6 is out of bounds",
        ),
        (
            "ScatterElements",
            (X, array([5, 0, 0]), ones(1, 3)),
            {"axis": 1},
            "index 5 is out of bounds for axis 1 with size 3",
        ),
        (
            "GatherElements",
            (X, array([3, 0, 0])),
            {"axis": 1},
            "index 3 is out of bounds for axis 1 with size 3",
        ),
        ("GatherND", (X, array([0, -4])), {}, "index -4 is out of bounds for axis 1"),
        ("Gather", (X, array(2)), {}, "index 2 is out of bounds for axis 0"),
        (
            "ReverseSequence",
            (ones(3, 2), array(5, 1)),
            {},
            r"\[5, 1\], and allowed are 0 to 3",
        ),
        ("ReverseSequence", (ones(3, 2), array(-1, 1)), {}, r"\[-1, 1\]"),
        (
            "TensorScatter",
            (ones(1, 4, 1), ones(1, 1, 1), array(-1)),
            {"opset": 24},
            "'write_indices' is .-1.",
        ),
    ],
)
def test_indices_outside_of_an_array(op, inputs, named, match):
    refused(match, op, *inputs, error=BoundsError, **named)


def test_an_index_in_one_of_many_steps():
    value = [helper.make_tensor_value_info("s", T.FLOAT, [])]
    value.append(helper.make_tensor_value_info("i", T.INT64, []))
    after = [helper.make_tensor_value_info("t", T.FLOAT, [])]
    table = onnx.numpy_helper.from_array(ones(5), "table")
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["g"], name="inner"),
        helper.make_node("Add", ["s", "g"], ["t"]),
    ]
    body = helper.make_graph(nodes, "body", value, after, [table])
    indices = np.zeros(80, np.int64)
    assert run("Scan", F(0), indices, body=body, num_scan_inputs=1) == [80]
    indices[70] = 7
    with pytest.raises(BoundsError, match=r"'inner' .* index 7 is out of bounds"):
        run("Scan", F(0), indices, body=body, num_scan_inputs=1)


def test_a_name_of_an_operator_that_is_no_text():
    node = helper.make_node("Relu", ["x"], ["y"])
    types = [helper.make_tensor_value_info(n, T.FLOAT, [1]) for n in "xy"]
    graph = helper.make_graph([node], "g", types[:1], types[1:])
    data = helper.make_model(graph).SerializeToString()
    with pytest.raises(OnnxError, match="unknown operator"):
        eq.from_onnx(data.replace(b"Relu", b"\x80elu"))


def test_indices_counted_from_the_end():
    x, at = array(1.0, 2, 3), array(-3, -1)
    for op, indices in (("ScatterElements", at), ("ScatterND", at[:, None])):
        for reduction, expected in (("none", [5, 2, 6]), ("add", [6, 2, 9])):
            (y,) = run(op, x, indices, array(5.0, 6), reduction=reduction)
            np.testing.assert_array_equal(y, expected)


# -- values at the edge ----------------------------------------------------------------


@pytest.mark.parametrize(
    "texts, to, expected",
    [
        (["9007199254740993", "-3", "1e3"], T.INT64, [9007199254740993, -3, 1000]),
        (["18446744073709551615"], T.UINT64, [18446744073709551615]),
    ],
)
def test_text_as_integers(texts, to, expected):
    (y,) = run("Cast", text(*texts), to=to)
    assert y.tolist() == expected


@pytest.mark.parametrize(
    "to, expected", [(T.UINT16, [65535, 1000, 0]), (T.INT16, [32767, 1000, -32768])]
)
def test_halves_as_16_bits_saturate(to, expected):
    x = np.array([30000, 100, -30000], np.float16)
    (y,) = run("QuantizeLinear", x, np.array(0.1, np.float16), output_dtype=to)
    assert y.tolist() == expected


@pytest.mark.parametrize("value, shape", [(5, (0, 1)), (0, (0, 0))])
def test_places_of_one_number_that_is_not_0(value, shape):
    (y,) = run("NonZero", np.array(value, F))
    assert y.shape == shape and y.dtype == np.int64


@pytest.mark.parametrize("dtype", [np.int32, np.float16, np.float32])
def test_shrink_adds_a_part_of_one(dtype):
    (y,) = run("Shrink", np.array([-5, 1, 5], dtype), lambd=1.5, bias=0.5)
    np.testing.assert_array_equal(y, np.array([-4.5, 0, 4.5]).astype(dtype))
    assert y.dtype == dtype


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_to_negative_powers(dtype):
    x = np.array([2, 1, -1, -1, 0, 3, -2], dtype)
    y = np.array([-1, -5, -3, -2, -1, 2, 3], dtype)
    expected = [0, 1, -1, 1, np.iinfo(dtype).min, 9, -8]
    assert run("Pow", x, y)[0].tolist() == expected


def test_case_of_activations_does_not_count():
    x, w, r = weights(1, 4, 1)
    (a,) = run("LSTM", x, w, r, activations=["sigmoid", "tanh", "TANH"])
    np.testing.assert_array_equal(a, run("LSTM", x, w, r)[0])


@pytest.mark.parametrize("op, gates", [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("layout", [0, 1])
def test_a_sequence_of_no_steps(op, gates, layout):
    x = ones(2, 0, 3) if layout else ones(0, 2, 3)
    w, r = ones(1, gates * 4, 3), ones(1, gates * 4, 4)
    y, h = run(op, x, w, r, count=2, hidden_size=4, layout=layout)
    assert y.shape == ((2, 0, 1, 4) if layout else (0, 1, 2, 4))
    np.testing.assert_array_equal(h, np.zeros((2, 1, 4) if layout else (1, 2, 4)))
