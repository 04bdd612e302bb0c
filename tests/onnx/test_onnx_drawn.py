"""Operators with drawn attributes and shapes, beside what ONNX Runtime computes.

The reference of the package onnx departs from the standard for slices that begin before
an array, and for pools with a padding that ends beyond it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples

import eqsat as eq

onnx = pytest.importorskip("onnx")
helper = onnx.helper
Drawn = tuple[str, int, list[Any], dict[str, Any], int]
"""An operator, its opset, inputs, attributes, and how many outputs it gives."""


class Draws:
    """Draws sizes, choices and arrays."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.rng = np.random.default_rng(data.draw(st.integers(0, 999)))

    def number(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    def numbers(self, count: int, low: int, high: int) -> list[int]:
        return [self.number(low, high) for _ in range(count)]

    def of(self, *values: Any) -> Any:
        return self.data.draw(st.sampled_from(values))

    def array(self, *shape: int) -> Any:
        return self.rng.standard_normal(shape, np.float32)


def conv(d: Draws) -> Drawn:
    rank, group, each = d.number(1, 3), d.of(1, 2), d.number(1, 2)
    kernel = d.numbers(rank, 1, 3)
    attrs: dict[str, Any] = {"group": group, "strides": d.numbers(rank, 1, 2)}
    if d.of(True, False):
        attrs |= {"pads": d.numbers(2 * rank, 0, 2), "dilations": d.numbers(rank, 1, 2)}
    else:
        attrs["auto_pad"] = d.of("SAME_UPPER", "SAME_LOWER", "VALID")
    w = d.array(2 * group, each, *kernel)
    x = d.array(d.number(1, 2), each * group, *d.numbers(rank, 5, 7))
    return "Conv", 11, [x, w, d.array(2 * group)], attrs, 1


def pool(d: Draws) -> Drawn:
    op = d.of("MaxPool", "AveragePool")
    rank = d.number(1, 2)
    kernel = d.numbers(rank, 1, 3)
    attrs: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": d.numbers(rank, 1, 3),
        "pads": [d.number(0, k - 1) for k in kernel] * 2,
        "ceil_mode": d.of(0, 1),
    }
    if op == "AveragePool":
        attrs["count_include_pad"] = d.of(0, 1)
    return op, 19, [d.array(1, 2, *d.numbers(rank, 4, 7))], attrs, 1


def slices(d: Draws) -> Drawn:
    shape = d.numbers(d.number(1, 3), 1, 5)
    n = len(shape)
    starts, ends = d.numbers(n, -7, 7), d.numbers(n, -7, 7)
    steps = [d.of(1, 2, -1, -3) for _ in shape]
    inputs = [d.array(*shape), *map(np.array, (starts, ends, [*range(n)], steps))]
    return "Slice", 13, inputs, {}, 1


def padding(d: Draws) -> Drawn:
    shape = d.numbers(d.number(1, 3), 3, 5)
    mode = d.of("constant", "reflect", "edge")
    pads = np.array(d.numbers(2 * len(shape), 0, 2))
    return "Pad", 13, [d.array(*shape), pads], {"mode": mode}, 1


def gathering(d: Draws) -> Drawn:
    shape = d.numbers(d.number(1, 3), 1, 4)
    axis = d.number(-len(shape), len(shape) - 1)
    places = d.rng.integers(-shape[axis], shape[axis], d.numbers(d.number(0, 2), 1, 3))
    return "Gather", 13, [d.array(*shape), places], {"axis": axis}, 1


def recurrent(d: Draws) -> Drawn:
    op, gates = d.of(("LSTM", 4), ("GRU", 3), ("RNN", 1))
    steps, batch, size, hidden = d.numbers(4, 1, 3)
    inputs = [
        d.array(steps, batch, size),
        d.array(1, gates * hidden, size),
        d.array(1, gates * hidden, hidden),
        d.array(1, 2 * gates * hidden),
    ]
    return op, 14, inputs, {"hidden_size": hidden}, 2


def reduction(d: Draws) -> Drawn:
    op = d.of("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp")
    shape = d.numbers(d.number(1, 4), 1, 4)
    inputs = [d.array(*shape)]
    if d.of(True, False):
        inputs.append(np.array([d.number(-len(shape), len(shape) - 1)]))
    attrs = {"keepdims": d.of(0, 1), "noop_with_empty_axes": d.of(0, 1)}
    return op, 18, inputs, attrs, 1


def sums(d: Draws) -> Drawn:
    shape = d.numbers(d.number(1, 3), 1, 4)
    axis = np.array(d.number(-len(shape), len(shape) - 1))
    attrs = {"exclusive": d.of(0, 1), "reverse": d.of(0, 1)}
    return "CumSum", 14, [d.array(*shape), axis], attrs, 1


FAMILIES = (conv, pool, slices, padding, gathering, recurrent, reduction, sums)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_beside_onnx_runtime(family: Callable[[Draws], Drawn]) -> None:
    runtime = pytest.importorskip("onnxruntime")

    @examples(30)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        op, opset, inputs, attrs, outputs = family(Draws(data))
        names = [f"x{i}" for i in range(len(inputs))]
        results = [f"y{i}" for i in range(outputs)]
        infos = [
            helper.make_tensor_value_info(
                n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape
            )
            for n, v in zip(names, inputs, strict=True)
        ]
        model = helper.make_model(
            helper.make_graph(
                [helper.make_node(op, names, results, **attrs)],
                "g",
                infos,
                [helper.make_tensor_value_info(n, 1, None) for n in results],
            ),
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=9,
        )
        feed = dict(zip(names, inputs, strict=True))
        session = runtime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        want = session.run(None, feed)
        f = eq.from_onnx(model)
        for got, expected in zip(f.run(feed).values(), want, strict=True):
            assert got.shape == expected.shape and got.dtype == expected.dtype
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
        assert not f.on_host()

    check()
