"""Loops and recurrent networks of more steps than one program holds, against NumPy in
float64."""

import numpy as np
import pytest

import eqsat as eq

onnx = pytest.importorskip("onnx")
TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper

RNG = np.random.default_rng(5)
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
LENGTHS = np.array([83, 1, 70], np.int32)
"""Of sequences; 83 steps are 5 parts and 3 steps."""


def value(name, shape=None, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, initial):
    tensors = [numpy_helper.from_array(a, n) for n, a in initial.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return eq.from_onnx(made)


# -- recurrent networks ----------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rnn(x, states, r, b):
    return (np.tanh(x + states[0] @ r.T + b),)


def gru(x, states, r, b):
    (h,), m = states, r.shape[1]
    z, reset = np.split(sigmoid(x[:, : 2 * m] + h @ r[: 2 * m].T + b[: 2 * m]), 2, 1)
    new = np.tanh(x[:, 2 * m :] + (reset * h) @ r[2 * m :].T + b[2 * m :])
    return ((1 - z) * new + z * h,)


def lstm(x, states, r, b):
    h, c = states
    i, o, f, new = np.split(x + h @ r.T + b, 4, 1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(new)
    return sigmoid(o) * np.tanh(c), c


CELLS = {"RNN": (rnn, 1, 1), "GRU": (gru, 3, 1), "LSTM": (lstm, 4, 2)}
"""A step, its gates, and its states."""


def expected(op, x, w, r, b, lengths, backward):
    """Outputs and last states of one direction, in float64."""
    cell, _, count = CELLS[op]
    x, w, r, b = (np.asarray(a, np.float64) for a in (x, w, r, b))
    half = len(b) // 2
    states = (np.zeros((x.shape[1], r.shape[1])),) * count
    y = np.zeros((*x.shape[:2], r.shape[1]))
    order = range(len(x))
    for t in reversed(order) if backward else order:
        new = cell(x[t] @ w.T + b[:half], states, r, b[half:])
        going = (t < lengths)[:, None]
        states = tuple(np.where(going, n, s) for n, s in zip(new, states, strict=True))
        y[t] = np.where(going, new[0], 0)
    return y, *states


@pytest.mark.sampled(18)
@pytest.mark.parametrize("weights", ["constant", "given"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", CELLS)
def test_long_sequences(op, direction, weights):
    _, gates, count = CELLS[op]
    m, inside, length, batch = 7, 5, 83, len(LENGTHS)
    ways = 2 if direction == "bidirectional" else 1
    shapes = {
        "w": (ways, gates * m, inside),
        "r": (ways, gates * m, m),
        "b": (ways, 2 * gates * m),
    }
    arrays = {n: RNG.normal(0, 0.5, s).astype(np.float32) for n, s in shapes.items()}
    outputs = ["y", "h", "c"][: 1 + count]
    ends = {"direction": direction, "hidden_size": m}
    node = helper.make_node(op, ["x", "w", "r", "b", "lengths"], outputs, **ends)
    given = {} if weights == "constant" else arrays
    inputs = [value("x", [length, batch, inside])]
    inputs += [value(n, a.shape) for n, a in given.items()]
    initial = {"lengths": LENGTHS, **(arrays if not given else {})}
    f = model([node], inputs, [value(n) for n in outputs], initial)
    for _ in range(2):  # the second call has other values in its way
        arrays |= {
            n: RNG.normal(0, 0.5, a.shape).astype("f4") for n, a in given.items()
        }
        x = RNG.standard_normal((length, batch, inside), np.float32)
        named = {n: arrays[n] for n in given}
        found = f.run({"x": x, **named})
        for d in range(ways):
            backward = direction == "reverse" or d == 1
            one = [arrays[n][d] for n in ("w", "r", "b")]
            y, *last = expected(op, x, *one, LENGTHS, backward)
            # Each step rounds sums of some 12 products; cells forget what came before.
            np.testing.assert_allclose(found["y"][:, d], y, atol=2e-5)
            for name, state in zip(outputs[1:], last, strict=True):
                np.testing.assert_allclose(found[name][d], state, atol=2e-5)
    assert f.on_host()


# -- Scan ------------------------------------------------------------------------------


def scanned(body, states, inputs, outputs, **attributes):
    return helper.make_node(
        "Scan", inputs, outputs, body=body, num_scan_inputs=1, **attributes
    )


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("length", [65, 80, 83])
def test_a_long_scan(length, axis, turned):
    """s' = s × factor + x, where the factor is around the graph; gives s' and -s'."""
    nodes = [
        helper.make_node("Mul", ["s", "factor"], ["less"]),
        helper.make_node("Add", ["less", "x"], ["next"]),
        helper.make_node("Neg", ["next"], ["negative"]),
        helper.make_node("Identity", ["next"], ["row"]),
    ]
    ends = [value(n, [3]) for n in ("next", "row", "negative")]
    body = helper.make_graph(nodes, "body", [value("s", [3]), value("x", [3])], ends)
    scan = scanned(
        body,
        1,
        ["start", "xs"],
        ["last", "rows", "others"],
        scan_input_axes=[axis],
        scan_input_directions=[turned],
        scan_output_axes=[0, axis],
        scan_output_directions=[0, turned],
    )
    shape = [length, 3] if axis == 0 else [3, length]
    inputs = [value("start", [3]), value("xs", shape), value("factor", [])]
    names = ("last", "rows", "others")
    f = model([scan], inputs, [value(n) for n in names], {})
    for factor in (0.5, -0.75):
        start = RNG.standard_normal(3).astype(np.float32)
        xs = RNG.standard_normal(shape).astype(np.float32)
        last, rows, others = f(start, xs, np.float32(factor))
        state, found = start.astype(np.float64), []
        steps = xs if axis == 0 else xs.T
        for x in steps[::-1] if turned else steps:
            state = state * factor + x
            found.append(state)
        wanted = np.stack(found)
        # An error of 2⁻²⁴ of numbers up to 20 in each step, which the factor halves.
        np.testing.assert_allclose(last, state, atol=1e-5)
        np.testing.assert_allclose(rows, wanted, atol=1e-5)
        order = wanted[::-1] if turned else wanted
        np.testing.assert_allclose(np.moveaxis(others, axis, 0), -order, atol=1e-5)


def test_a_long_scan_whose_graph_asks_for_values():
    """s' = s + Σ of a range up to x: no program knows how long that is."""
    nodes = [
        helper.make_node("Range", ["zero", "x", "one"], ["range"]),
        helper.make_node("ReduceSum", ["range"], ["sum"], keepdims=0),
        helper.make_node("Add", ["s", "sum"], ["next"]),
        helper.make_node("Identity", ["next"], ["row"]),
    ]
    ends = [value(n, [], INT) for n in ("next", "row")]
    starts = [value("s", [], INT), value("x", [], INT)]
    body = helper.make_graph(nodes, "body", starts, ends)
    scan = scanned(body, 1, ["start", "xs"], ["last", "rows"])
    inputs = [value("start", [], INT), value("xs", [70], INT)]
    initial = {"zero": np.array(0), "one": np.array(1)}
    outputs = [value(n, None, INT) for n in ("last", "rows")]
    f = model([scan], inputs, outputs, initial)
    xs = RNG.integers(0, 9, 70)
    wanted = np.cumsum(xs * (xs - 1) // 2) + 3
    for _ in range(2):
        last, rows = f(np.array(3), xs)
        np.testing.assert_array_equal(rows, wanted)
        assert last == wanted[-1]
