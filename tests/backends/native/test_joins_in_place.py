"""Kernels write their results where a join wants them, and nothing is written over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples

import eqsat as eq
from eqsat import ops

RNG = np.random.default_rng(0)
X = RNG.integers(-9, 9, (16, 32)).astype(np.float32)
W = RNG.integers(-2, 3, (32, 32)).astype(np.float32)
B = RNG.integers(-2, 3, 32).astype(np.float32)


def layer(x: Any, w: Any) -> Any:
    """A product with what follows, one kernel."""
    return np.maximum(x @ w + B, 0)


def two(x: Any, w: Any) -> Any:
    return np.concatenate([layer(x, w), layer(x, w.T)]) @ w


def returned(x: Any, w: Any) -> Any:
    return np.concatenate([layer(x, w), layer(x, w.T)])


def nested(x: Any, w: Any) -> Any:
    """Each join is a part of the next one, as in a dense block."""
    for _ in range(3):
        x = np.concatenate([x, layer(x, w)[:16]])
    return x.sum(0), x


def both_ways(x: Any, w: Any) -> Any:
    """Parts that are read before and after the join dies."""
    a, b = layer(x, w), layer(x, w.T)
    joined = np.concatenate([a, b]) @ w
    return np.cumsum(joined, axis=0), a @ w.T, (b + a) @ w


def twice(x: Any, w: Any) -> Any:
    """A part is joined with itself, and with a reshape of itself."""
    a = layer(x, w)
    flat = a.reshape(32, 16).reshape(16, 32)
    return np.concatenate([a, a, flat]) @ w


def two_joins(x: Any, w: Any) -> Any:
    a, b = layer(x, w), layer(x, w.T)
    return np.concatenate([a, b]) @ w, np.concatenate([b, a]) @ w.T


def a_result_too(x: Any, w: Any) -> Any:
    a = layer(x, w)
    return np.concatenate([a, layer(a, w)]) @ w, a


def overwritten(x: Any, w: Any) -> Any:
    """The join dies in a kernel that could be written in its place."""
    a = layer(x, w)
    joined = np.concatenate([a, layer(a, w)])
    return np.cumsum(np.sort(joined, axis=1), axis=0) * 2, np.sort(a, axis=0) @ w


def reshaped(x: Any, w: Any) -> Any:
    a, b = layer(x, w), layer(x, w.T)
    return np.stack([a, b]).sum(1), np.concatenate([a.reshape(-1), b.reshape(-1)])[::3]


def flat(x: Any, w: Any) -> Any:
    """Reshapes of the parts are joined, and no part lies in two joins."""
    return np.concatenate([layer(x, w).reshape(-1), layer(x, w.T).reshape(-1)])[::3]


def unaligned(x: Any, w: Any) -> Any:
    """A part that starts in the middle of a line is copied."""
    a, b = layer(x[:3, :], w)[:, :5] @ w[:5, :7], layer(x, w)[:, :7] @ w[:7, :7]
    return np.concatenate([a, b, a]) @ w[:7]


def mixed(x: Any, w: Any) -> Any:
    """Parts that come from outside, are constants, empty, or views of others."""
    a = layer(x, w)
    parts = [x, a, np.ones((4, 32), np.float32), a[:0], a[::2], a.T @ a]
    return np.concatenate(parts) @ w


def by_columns(x: Any, w: Any) -> Any:
    return np.concatenate([layer(x, w), layer(x, w.T)], axis=1) @ np.vstack([w, w])


def by_numpy(x: Any, w: Any) -> Any:
    """Some kernels are NumPy's."""
    a = np.fft.fft(layer(x, w), axis=0).real.astype(np.float32)
    return np.concatenate([a, layer(x, w.T)]) * 2, np.concatenate([layer(x, w), a])


FUNCTIONS: list[Callable[..., Any]] = [
    *(two, returned, nested, both_ways, twice, two_joins, a_result_too, overwritten),
    *(reshaped, flat, unaligned, mixed, by_columns, by_numpy),
]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_results_are_those_of_numpy(
    f: Callable[..., Any], dtype: str, threads: int
) -> None:
    x, w = X.astype(dtype), W.astype(dtype)
    g = eq.jit(f, backend="native", options=eq.Options(threads=threads))
    for _ in range(2):  # memory of the first call is used again
        found, want = g(x, w), f(x, w)
        found, want = (v if isinstance(v, tuple) else (v,) for v in (found, want))
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-3)


def sorted_parts(x: Any, w: Any) -> Any:
    return np.sort(np.concatenate([np.sort(x, axis=0), layer(x, w)]), axis=0)


def sorted_blocks(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = np.concatenate([x, np.sort(x, axis=0)[:16].T.reshape(16, -1) @ w])
        x = np.cumsum(x, axis=0)
    return x


@pytest.mark.parametrize("f", [returned, flat, sorted_parts])
def test_parts_are_not_copied(f: Callable[..., Any]) -> None:
    kernels = eq.jit(f, backend="native").explain(X, W).kernels
    joins = [k for k in kernels if k.ops == ("concatenate",)]
    assert joins and all(k.estimate_s == 0 for k in joins)


@pytest.mark.parametrize("f", [sorted_parts, sorted_blocks])
def test_joins_of_what_is_sorted(f: Callable[..., Any]) -> None:
    found = eq.jit(f, backend="native")(X, W)
    np.testing.assert_allclose(found, f(X, W), rtol=1e-5, atol=1e-3)


def test_the_limit_of_memory_counts_parts_once() -> None:
    x = np.ones((512, 512), np.float32)

    def f(x: Any) -> Any:
        return np.concatenate([np.sort(x, axis=0), np.sort(x, axis=1)]).cumsum(0)[7]

    low = eq.jit(f, backend="native").lower(x)
    assert low.peak_bytes < 5.5 * x.nbytes  # sorting takes one of them


OPS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + 1,
    lambda x, y: np.maximum(x, y[:1]),
    lambda x, y: np.cumsum(x, axis=0),
    lambda x, y: np.sort(x, axis=0),
    lambda x, y: x[::2],
    lambda x, y: x[:16],
    lambda x, y: np.concatenate([x, y]),
    lambda x, y: np.concatenate([y, x, y[:3]]),
    lambda x, y: np.concatenate([np.sort(x, axis=1), np.cumsum(y, axis=1)]),
    lambda x, y: x.reshape(-1, 8)[:16].repeat(2, axis=1),
]


@examples(60)
@given(
    st.lists(
        st.tuples(*[st.integers(0, 99)] * 3),
        min_size=2,
        max_size=12,
    ),
    st.lists(st.integers(0, 99), min_size=1, max_size=3),
)
def test_random_programs_of_joins(
    steps: list[tuple[int, int, int]], chosen: list[int]
) -> None:
    def f(x: Any) -> Any:
        values = [x, np.sort(x, axis=0)]
        for op, a, b in steps:
            a, b = a % len(values), b % len(values)
            values.append(OPS[op % len(OPS)](values[a], values[b])[:200])
        return tuple(values[-1 - i % len(values)] for i in chosen)

    x = np.arange(16 * 16, dtype=np.int32).reshape(16, 16)[::-1] * 7 % 101
    for found, want in zip(eq.jit(f, backend="native")(x), f(x), strict=True):
        np.testing.assert_array_equal(found, want)


def branch(x: Any, w: Any, s: Any) -> Any:
    """A convolution, scaled, as a batch norm leaves it."""
    return np.maximum(ops.conv2d(x, w, padding=w.shape[-1] // 2) * s[:, None, None], 0)


def branches(x: Any, w: Any, kernels: Any, wide: Any, s: Any) -> Any:
    """A block of branches, and what the next one computes of it."""
    joined = np.concatenate([branch(x, w, s), *(branch(x, k, s) for k in kernels)], 1)
    pooled = ops.avg_pool2d(joined, 3, 1, 1)
    return branch(joined, wide, s), branch(pooled, wide, s)


def test_what_a_window_reads_of_a_join_is_not_copied_either() -> None:
    rng = np.random.default_rng(0)
    shapes = (1, 64, 14, 14), (64, 64, 1, 1), (2, 64, 64, 3, 3), (64, 192, 1, 1), (64,)
    args = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    kernels = eq.jit(branches, backend="native").explain(*args).kernels
    joins = [k for k in kernels if "concatenate" in k.ops]
    assert [k.ops for k in joins] == [("concatenate",)]
    assert joins[0].estimate_s == 0
