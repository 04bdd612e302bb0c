"""How the NumPy backend cuts kernels into blocks, and the text that it writes."""

from __future__ import annotations

import ast
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import bodies
import numpy as np
import pytest
from programs import assert_lowered, assert_near, program_of, small_cache, terms_of

from eqsat import ops
from eqsat.backends.numpy import blocks, interpret, lower
from eqsat.kernels.program import Program
from eqsat.ops.transcendental import exp, tanh

rng = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 64, 67])
@pytest.mark.parametrize("room", [1, 100, 1000, 1 << 20])
def test_any_number_of_rows(rows: int, room: int) -> None:
    with small_cache(room):
        assert_lowered(ops.softmax, draw(rows, 5))
        assert_lowered(ops.layer_norm, draw(2, rows, 3), draw(3), draw(3))
        assert_lowered(ops.linear, draw(rows, 5), draw(5, 3), draw(3))


def test_reductions_over_nothing() -> None:
    empty = draw(3, 0)
    with small_cache(1):
        assert_lowered(lambda x: tanh(ops.sum(exp(x), -1)) + 1.0, empty)
        assert_lowered(lambda x, y: tanh(x @ y) * 2.0, empty, draw(0, 4))


def one_kernel(f: Callable[..., Any], *arrays: np.ndarray) -> str:
    """The source of ``f`` as one kernel, after checking what it computes."""
    return assert_lowered(bodies.fused_op("one_kernel", f, len(arrays)), *arrays, tol=4)


def loops(source: str) -> list[str]:
    return re.findall(r"range\((.*)\)", source)


def test_a_leaf_can_be_read_whole_and_by_rows() -> None:
    x = draw(8, 8)
    with small_cache(200):
        source = one_kernel(lambda x: tanh(x @ x.mT) + x.mT * x, x)
    assert loops(source) == ["0, 8, 2"]


def test_broadcast_leaves_are_read_whole() -> None:
    arrays = draw(8, 6), draw(6), draw(8, 1), draw(1, 6), draw()
    with small_cache(200):
        source = one_kernel(lambda a, b, c, d, e: tanh(a + b) * exp(c + d) * e, *arrays)
    assert loops(source) == ["0, 8, 2"]
    assert "b[" not in source and "d[" not in source and "c[i0:i1]" in source


def test_what_does_not_depend_on_the_loop_is_computed_before_it() -> None:
    with small_cache(300):
        source = one_kernel(lambda x, w: tanh(x * exp(w)) + 1.0, draw(64, 4), draw(4))
    assert source.index("np.exp(b") < source.index("for i0") < source.index("np.tanh")


def test_an_axis_that_is_reduced_is_not_cut() -> None:
    x = draw(6, 5, 4)
    with small_cache(100):
        source = one_kernel(lambda x: x - tanh(ops.mean(x, 0, keepdims=True)), x)
    assert loops(source)[0] == "5" and "range(6" not in source


def test_a_body_without_such_an_axis_runs_in_one_block() -> None:
    with small_cache(1):
        source = one_kernel(lambda x: x - tanh(ops.mean(x)), draw(9))
    assert loops(source) == []


def test_attention_runs_over_heads_and_queries() -> None:
    q, k, v = draw(2, 4, 256, 8), draw(2, 4, 512, 8), draw(2, 4, 512, 8)
    low = lower(program_of(ops.attention, q, k, v))
    assert loops(low.source) == ["2", "4"]
    with small_cache(200 << 10):
        low = lower(program_of(ops.attention, q, k, v))
        assert loops(low.source) == ["2", "4", "0, 256, 64"]
        assert_lowered(ops.attention, q, k, v)


def test_blocks_fit_the_cache() -> None:
    x = draw(1000, 300)
    source = lower(program_of(ops.layer_norm, x, x[0], x[0])).source
    sizes = re.findall(r"np\.empty\(\((\d+), 300\)", source)
    assert 1 < int(sizes[0]) and int(sizes[0]) * 300 * 4 * 3 <= blocks.CACHE_BYTES


def test_a_product_by_weights_is_not_cut() -> None:
    f = lambda *xs: ops.linear(*xs, act="gelu")  # noqa: E731
    with small_cache(4096):
        source = assert_lowered(f, draw(2, 50, 8), draw(8, 16), draw(16))
    before, _, after = source.partition("for i0")
    assert "np.matmul(x.reshape(2 * 50, 8), w, out=out.reshape(2 * 50, 16))" in before
    assert "np.matmul" not in after


def test_intermediates_take_no_memory_of_the_size_of_the_result() -> None:
    x = draw(1 << 20)
    low = lower(program_of(ops.gelu_tanh, x))
    tracemalloc.start()
    low(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < x.nbytes + blocks.CACHE_BYTES


def test_equal_kernels_are_one_function() -> None:
    def f(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = ops.softmax(ops.gelu(x @ w))
        return x

    source = assert_lowered(f, draw(64, 64), draw(64, 64))
    assert source.count("def gelu(") == source.count("def softmax(") == 1
    assert source.count("softmax(gelu_") == 3 or source.count("\n    softmax") == 3


# -- the text --------------------------------------------------------------------------


def test_the_source_is_python_and_readable(golden: Callable[[str, str], None]) -> None:
    def ffn(x: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
        h = ops.linear(x, w, b, act="gelu_tanh")
        return ops.layer_norm(x + ops.linear(h, v, c), c, c)

    arrays = draw(512, 256), draw(256, 1024), draw(1024), draw(1024, 256), draw(256)
    roots, inputs = terms_of(ffn, arrays)
    low = lower(Program.of(roots, inputs, ["x", "w", "b", "v", "c"]))
    golden("ffn.txt", low.source)
    tree = ast.parse(low.source)
    functions = [n.name for n in tree.body if isinstance(n, ast.FunctionDef)]
    assert functions == ["linear", "layer_norm", "program"]
    assert all(len(line) <= 120 for line in low.source.splitlines())
    (got,), (want,) = low(*arrays), interpret(roots, arrays)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_the_function_is_that_of_the_text() -> None:
    x = draw(400, 1000)
    low = lower(program_of(ops.softmax, x))
    assert "for i0 in" in low.source
    scope: dict[str, Any] = {}
    exec(low.source, scope)
    np.testing.assert_array_equal(scope["program"](x)[0], low(x)[0])


def test_inputs_may_be_called_anything() -> None:
    x = draw(4, 4)
    roots, inputs = terms_of(lambda *xs: ops.softmax(sum(xs)) * 2.0, [x] * 6)
    names = ["min", "range", "softmax", "i0", "t0", "special"]
    with small_cache(40):
        (got,) = lower(Program.of(roots, inputs, names))(*[x] * 6)
    assert_near(got, interpret(roots, [x] * 6)[0], 1)
