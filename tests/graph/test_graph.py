"""Graphs built node by node: what they say of themselves, run, and refuse."""

from __future__ import annotations

import doctest
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graphs import arguments, block, block_by_nodes, block_by_standard, small
from numpy.testing import assert_array_equal

import eqsat as eq

HERE = re.compile(r"\n  at .*\.py:\d+\n.*")
"""The end of a message that names a line of this file."""
X = np.arange(6, dtype=np.float32).reshape(2, 3)

BUILT = """
g.add("gelu_", x)
g.add(np.tanh, x)
g.add("input", x)
g.add("add", [x])
g.add("add", [x, x, x])
g.add("layer_norm", x)
g.add("layer_norm", x, eps=1e-5)
g.add("layer_norm", [x, b, b], axis=-1)
g.add("concatenate", [], axis=0)
g.add("sum", x)
g.add("sum", x, axes=0)
g.add("softmax", x, axis="last")
g.add("softmax", x, axis=0.5)
g.add("reshape", x, name="r", shape=6)
g.add("reshape", x, name="r", shape=(2**70,))
g.add("tanh", x, dtype="f4")
g.add("cast", x, dtype="f5")
g.add("accumulate", x, ufunc="load", axis=0)
g.add("linear", [x, w, b], act="tan")
g.add("tanh", x, name="x")
g.add("tanh", x, name="")
g.add("tanh", x, name="a\\nb")
g.add("tanh", x, name=3)
g.add("tanh", other, name="y")
g.output(other)
g.input("x", (2, 3), "float32")
g.input("n", (-1, 3), "float32")
g.input("n", (2**40, 2**40), "float32")
g.input("n", (2, 3), "complex256")
g.constant(2**80)
g.constant(np.zeros(3, "G"))
g.constant(np.ma.ones(3))
g.constant("x")
g.add("add", [x, None])
eq.jit(g.constant)(np.ones(3))
g.dependencies("z")
"""
"""What is refused at once."""

VALID = """
pass
g.output("z")
g.output(g.add("tanh", "z", name="y"))
g.output(g.add("tanh", "xx", name="y"))
g.add("tanh", "d", name="c"); g.output(g.add("tanh", "c", name="d"))
g.add("add", ["x", "a"], name="a"); g.output("a")
g.output(x); g.add("tanh", x, name="y")
g.output(x); g.constant(2.0, "two")
g.constant(2.0, "two"); g.output("two")
g.output(g.add("matmul", [x, x], name="y"))
g.output(g.add("matmul", [x, b], name="y"))
g.output(g.add("add", [x, w], name="y"))
g.output(g.add("reshape", x, name="y", shape=(5,)))
g.output(g.add("reshape", x, name="y", shape=(-2, -3)))
g.output(g.add("iota", [], name="y", shape=(2, 3), dtype="int64"))
g.output(g.add("broadcast_to", x, name="y", shape=(2**60, 2, 3)))
g.output(g.add("softmax", x, name="y", axis=2))
g.output(g.add("sort", x, name="y", axis=(0, 1)))
g.output(g.add("argmax", x, name="y", axis=None))
g.output(g.add("slice", x, name="y", starts=(0,), sizes=(4,), steps=(1,)))
g.output(g.add("slice", x, name="y", starts=(0,), sizes=(2, 2), steps=(1, 1)))
g.output(g.add("take", [x, x], name="y", axis=-1))
g.output(g.add("conv2d", [x, w], name="y"))
g.output(g.add("bitwise_and", [x, x], name="y"))
"""
"""What only the whole graph tells."""

CALLS = """
g.run()
g.run(X)
g.run(X, X, x=X)
g.run(X, z=X)
g.run(X, X, X)
g.run(X, X.T)
g.run(X, y=X.astype(float))
g.run(X, X[:1])
g.function()(X)
g.function()(X, X.T)
eq.jit(g.function())(X, X.T)
eq.Graph.from_function(write, X)
eq.Graph.from_function(np.unique, X)
eq.Graph.from_arrays(X)
eq.Graph.from_arrays(lazy + 1, inputs={"x": lazy + 1})
eq.Graph.from_arrays(lazy + 1, inputs={"x": lazy, "y": lazy})
"""
"""What is refused of a graph ``x + y``, and of what is no graph."""


def write(x: Any) -> Any:
    x[0] = 1
    return x


def message(code: str, names: dict[str, Any]) -> str:
    try:
        exec(compile(code, "user.py", "exec"), dict(names))
    except eq.EqsatError as error:
        return f"{type(error).__name__}: {HERE.sub('', str(error))}"
    except Exception as error:
        return f"no error of eqsat's: {error!r}"
    return "no error"


def unfinished() -> dict[str, Any]:
    g, other = eq.Graph(), eq.Graph().input("far", (2, 3), "float32")
    x, w = g.input("x", (2, 3), "float32"), g.input("w", (3, 4), "float32")
    b = g.input("b", (4,), "float32")
    return {"g": g, "x": x, "w": w, "b": b, "other": other, "np": np, "eq": eq}


def sum_of_two() -> dict[str, Any]:
    g = eq.Graph()
    x, y = (g.input(n, (2, 3), "float32") for n in "xy")
    g.output(g.add("add", [x, y]))
    known = {"g": g, "X": X, "eq": eq, "np": np, "write": write}
    return {**known, "lazy": eq.array(X)}


def test_messages(golden: Callable[[str, str], None]) -> None:
    found = []
    for lines, made, end in (
        (BUILT, unfinished, ""),
        (VALID, unfinished, "\ng.validate()"),
        (CALLS, sum_of_two, ""),
    ):
        for line in lines.strip().split("\n"):
            said = message(line + end, made())
            assert not said.startswith("no error"), (line, said)
            found.append(f">>> {line}\n{said}\n")
    golden("graph_messages.txt", "\n".join(found))


def test_the_example_runs() -> None:
    found = doctest.testmod(sys.modules["eqsat.graph.graph"])
    assert (found.failed, found.attempted) == (0, 5)


def test_what_a_graph_says_of_itself() -> None:
    g = eq.Graph()
    g.output("end")
    g.add("add", ["second", "x"], name="end")
    g.add("tanh", "first", name="second")
    g.add("tanh", "x", name="first")
    g.input("x", (2, 3), "float32")
    g.input("unused", (), "int32")
    assert list(g.nodes) == ["end", "second", "first", "x", "unused"]
    assert [n.name for n in g.order()] == ["x", "first", "second", "end", "unused"]
    assert [n.name for n in g.dependencies("second")] == ["x", "first"]
    assert g.outputs == ("end",) and g.nodes["end"].inputs == ("second", "x")
    assert g.edges == [
        ("second", "end"),
        ("x", "end"),
        ("first", "second"),
        ("x", "first"),
    ]
    assert g.validate()["end"] == (np.dtype("f4"), (2, 3))
    found = g.run(X, unused=np.int32(0))
    np.testing.assert_allclose(found, np.tanh(np.tanh(X)) + X, rtol=1e-6)


def test_a_long_chain_is_no_recursion() -> None:
    g, n = eq.Graph(), 5000
    g.output(f"n{n - 1}")
    for i in reversed(range(n)):
        g.add("tanh", f"n{i - 1}" if i else "x", name=f"n{i}")
    g.input("x", (), "float32")
    assert len(g.validate()) == n + 1 and len(g.dependencies(f"n{n - 1}")) == n


def test_results_are_arrays_one_or_a_tuple() -> None:
    g = eq.Graph()
    g.output(g.add("sum", g.input("x", (2, 3), "float32"), axis=None))
    assert type(g.run(X)) is np.ndarray and g.run(X).shape == (1, 1)
    g.output("x", g.constant(np.float32(7)))
    total, x, seven = g.run(X)
    assert total == 15 and type(seven) is np.ndarray and seven == 7
    assert_array_equal(x, X)
    numpys = g.function()(X)
    assert [a.dtype for a in numpys] == [total.dtype, x.dtype, seven.dtype]
    assert all(type(a) is np.ndarray for a in numpys)


def test_what_is_added_later_is_run() -> None:
    g = eq.Graph()
    x = g.input("x", (2, 3), "float32")
    g.output(x)
    before = g.function()
    assert_array_equal(g.run(X), X)
    g.output(g.add("negative", x))
    assert_array_equal(g.run(X)[1], -X)
    assert_array_equal(before(X), X)


def test_constants_are_copied() -> None:
    g, c = eq.Graph(), X.copy()
    g.output(g.add("add", [g.input("x", (2, 3), "float32"), c]))
    c[:] = 100
    assert_array_equal(g.run(X), X + X)
    with pytest.raises(ValueError, match="read-only"):
        g.nodes["constant_0"].value[0] = 1


def test_inputs_are_one_or_a_list_and_may_be_named() -> None:
    g = eq.Graph()
    x = g.input("x", (2, 3), "float32")
    ones = np.ones((2, 3), np.float32)
    y = g.add("binary_act", inputs=[x, ones], op="subtract", act="relu", name="y")
    g.output(g.add("rms_norm", y, w=ones[0], eps=1e-3), g.add("tanh", ones))
    want = np.maximum(X - 1, 0)
    want /= np.sqrt((want * want).mean(-1, keepdims=True) + 1e-3)
    found, tanh = g.run(X)
    np.testing.assert_allclose(found, want, rtol=1e-5)
    np.testing.assert_allclose(tanh, np.tanh(ones), rtol=1e-6)


def test_what_is_refused_adds_nothing() -> None:
    names = unfinished()
    g, x, other = names["g"], names["x"], names["other"]
    before = list(g.nodes)
    for inputs, name in (([2.0, other], "y"), ([2.0, None], "y"), ([2.0, x], "x")):
        with pytest.raises(eq.EqsatError):
            g.add("add", inputs, name=name)
    assert list(g.nodes) == before


def test_a_graph_is_compiled_once() -> None:
    g = block_by_nodes()
    program = g.compile()
    assert len(program._lowered) == 1
    program(*arguments())
    assert len(program._lowered) == 1


def ways() -> dict[str, Callable[..., Any]]:
    """The block, written in every way."""
    given = arguments()
    lazy = dict(zip(block.__code__.co_varnames, map(eq.array, given), strict=False))
    recorded = eq.Graph.from_arrays(block(*lazy.values()), inputs=lazy)
    standard = block_by_standard(*lazy.values())
    by_nodes = block_by_nodes()
    return {
        "NumPy": eq.jit(block),
        "graph": by_nodes.compile(),
        "traced": eq.Graph.from_function(block, *given).compile(),
        "lazy": recorded.compile(),
        "standard": eq.Graph.from_arrays(standard, inputs=lazy).compile(),
        "JSON": eq.Graph.from_json(by_nodes.to_json()).compile(),
        "DOT": eq.Graph.from_dot(by_nodes.to_dot()).compile(),
    }


def test_a_block_written_in_every_way_is_one_program_of_the_same_bits() -> None:
    given = arguments()
    made = ways()
    listings = {str(fn.lower(*given).program) for fn in made.values()}  # type: ignore[attr-defined]
    assert len(listings) == 1 and "layer_norm" in listings.pop()
    results = {fn(*given).tobytes() for fn in made.values()}
    for written in (block, block_by_standard):
        results.add(written(*map(eq.array, given)).eval().tobytes())
    results.add(block_by_nodes().function()(*map(eq.array, given)).eval().tobytes())
    assert len(results) == 1
    want = block_by_nodes().function()(*given)
    np.testing.assert_allclose(made["graph"](*given), want, rtol=1e-4, atol=1e-4)


def test_an_optimised_graph_has_fused_ops_as_nodes() -> None:
    found = block_by_nodes().optimize()
    names = {n.op for n in found.nodes.values()}
    assert {"layer_norm_linear", "linear_residual"} & names, names
    assert list(found.nodes)[: len(arguments())] == list(block_by_nodes().nodes)[:13]
    given = arguments()
    np.testing.assert_allclose(
        found.run(*given), block_by_nodes().run(*given), rtol=1e-4, atol=1e-4
    )
    assert len(found.nodes) < len(block_by_nodes().nodes)
    again = eq.Graph.from_json(found.to_json())
    assert again.to_json() == found.to_json()


def test_an_optimised_graph_has_the_ops_of_generated_kernels() -> None:
    g = eq.Graph()
    x = g.input("x", (64, 65), "float32")
    y = g.add("exp", g.add("add", [g.add("tanh", x), 1.0]))
    g.output(y, g.add("sum", y, axis=-1))
    found = g.optimize()
    assert {n.op for n in found.nodes.values()} >= {"tanh", "exp", "sum"}
    given = np.linspace(-2, 2, 64 * 65, dtype=np.float32).reshape(64, 65)
    for a, b in zip(found.run(given), g.run(given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_a_graph_is_a_function_for_gradients() -> None:
    g = eq.Graph()
    x = g.input("x", (2, 3), "float32")
    total = g.add("sum", g.add("square", x), axis=None)
    g.output(g.add("reshape", total, shape=()))
    assert_array_equal(eq.grad(g.function())(X), 2 * X)


def test_known_lazy_arrays_are_inputs_or_constants() -> None:
    x, w = eq.array(X), eq.array(X.T)
    y = np.tanh(x @ w)
    g = eq.Graph.from_arrays(y, y + 1, inputs={"x": x})
    assert [n for n, d in g.nodes.items() if d.op == "input"] == ["x"]
    other = X + 1
    np.testing.assert_allclose(g.run(other)[1], np.tanh(other @ X.T) + 1, rtol=1e-6)
    fixed = eq.Graph.from_arrays(y)
    assert_array_equal(fixed.run(), y.eval())


def test_arguments_that_nobody_can_write_to_are_constants_of_a_function() -> None:
    w = X.copy()
    w.flags.writeable = False
    g = eq.Graph.from_function(lambda p: (p["x"] * p["w"], 2.0), {"x": X, "w": w})
    assert [n for n, d in g.nodes.items() if d.op == "input"] == ["p['x']"]
    assert_array_equal(g.run(X), X * X)
    assert_array_equal(g.run(**{"p['x']": X}), X * X)


def test_every_kind_of_node_runs_as_by_numpy() -> None:
    g = small()
    square = np.array([[3, 1, 2], [0, 4, 5]], np.float32)
    given = square, np.array([1, 0])
    for a, b in zip(g.run(*given), g.function()(*given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
