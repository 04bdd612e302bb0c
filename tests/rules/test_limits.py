"""Limits of integers, and indices that nothing needs to check for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizes import some

import eqsat as eq
from eqsat.support.errors import DTypeError
from eqsat.terms.integer_range import limits
from eqsat.trace.trace import trace

rng = np.random.default_rng(0)

OPS: list[Callable[[Any, int], Any]] = [
    lambda x, n: np.maximum(x, n),
    lambda x, n: np.minimum(x, n),
    lambda x, n: np.clip(x, -abs(n), abs(n)),
    lambda x, n: x + n,
    lambda x, n: n - x,
    lambda x, n: x * n,
    lambda x, n: x % (abs(n) + 1),
    lambda x, n: x // (abs(n) + 1),
    lambda x, n: x & abs(n),
    lambda x, n: np.where(x < n, x, n),
    lambda x, n: np.where((x >= -n) & (x <= n), x * x, n),
    lambda x, n: np.where(x > 0, x, -3) + np.where(x >= n, 1, 2),
    lambda x, n: x.astype(np.int16),
    lambda x, n: x.astype(np.int64) * x,
    lambda x, n: np.concatenate([x[1:], x[:1] * 2]),
    lambda x, n: (x > n).astype(np.int8),
    lambda x, n: np.argmax(np.stack([x, x + n]), axis=0),
]
"""Each keeps the shape."""


@given(
    st.lists(
        st.tuples(st.sampled_from(OPS), st.integers(0, 100)), min_size=1, max_size=6
    ),
    st.sampled_from(["i1", "u1", "i2", "u2", "i4", "i8"]),
)
def test_values_are_within_their_limits(
    steps: list[tuple[Callable[[Any, int], Any], int]], dtype: str
) -> None:
    def chain(x: Any) -> Any:
        for f, n in steps:
            x = f(x, n)
        return x

    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, 400, dtype, endpoint=True)
    x[:5] = info.min, info.max, 0, 1, info.max - 1
    with np.errstate(all="ignore"):
        try:
            want = chain(x)
            (term,) = trace(chain, [x]).outputs
        except (OverflowError, DTypeError):  # a number that the dtype does not hold
            return
    found = limits(term)
    assert found is not None
    assert found[0] <= want.min() and want.max() <= found[1]


def source(f: Any, *args: Any) -> str:
    return str(f.lower(*args).source("native"))


def test_limits_that_are_known() -> None:
    x = np.zeros((4, 6), np.int64)
    for f, want in (
        (lambda x: np.clip(x, 2, 9), (2, 9)),
        (lambda x: np.where(x < 0, np.maximum(x, -6) + 6, np.minimum(x, 5)), (0, 5)),
        (lambda x: x.argmax(1) * 6, (0, 30)),
        (lambda x: x % 7 + 1, (1, 7)),
        (lambda x: (x > 0) & (x < 3), (0, 1)),
    ):
        (term,) = trace(f, [x]).outputs
        assert limits(term) == want
    (term,) = trace(lambda x: x * 0.5, [x]).outputs
    assert limits(term) is None


def near(f: Any, *args: Any) -> None:
    np.testing.assert_allclose(f(*args), f.fn(*args), 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", ["i4", "i8", "u1", "u4"])
def test_indices_that_are_clipped_are_not_checked(dtype: str) -> None:
    x = rng.random((30, 40), np.float32)
    i, j = (rng.integers(0, 100, 77).astype(dtype) for _ in range(2))
    low = (lambda j: np.minimum(j, 39)) if dtype.startswith("u") else (lambda j: j & 31)
    for f in (
        eq.jit(lambda x, i, j: x[np.clip(i, 0, 29), np.clip(j, 0, 39)]),
        eq.jit(lambda x, i, j: x[np.clip(i, 0, 29)][:, 3] + x[i % 30, low(j)]),
    ):
        near(f, x, i, j)
        assert " to " not in source(f, x, i, j).split("define")[0]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "u4", "u8"])
@pytest.mark.parametrize("of", ["f4", "f8", "i4", "i8", "u1", "?"])
def test_gathers_of_every_width(dtype: str, of: str) -> None:
    x = rng.integers(0, 100, (9, 11, 5)).astype(of)
    low = 0 if dtype.startswith("u") else -9
    i, j = (rng.integers(low, 9, 70).astype(dtype) for _ in range(2))
    every = [
        eq.jit(lambda x, i, j: x[i, j]),
        eq.jit(lambda x, i, j: x[i, j, 3]),
        eq.jit(lambda x, i, j: x[:, i, 2]),
        eq.jit(lambda x, i, j: x[i][:, ::2] * x[j][:, ::2]),
        eq.jit(lambda x, i, j: x[:, :, 1].T[i, j % 9]),
    ]
    for f in some(every, 1):
        near(f, x, i, j)


@pytest.mark.parametrize("dtype", ["i4", "i8", "u4"])
def test_indices_out_of_bounds_are_errors(dtype: str) -> None:
    x = rng.random((20, 1000), np.float32)
    f = eq.jit(lambda x, i, j: x[i, j])
    i, j = np.zeros(50, dtype), np.zeros(50, dtype)
    near(f, x, i, j)
    worst = [20, np.iinfo(dtype).max] + [-21, np.iinfo(dtype).min] * (dtype[0] == "i")
    for bad in worst:
        for k in (i, j):
            k[33] = bad if k is i else (bad if abs(int(bad)) > 100 else 50 * int(bad))
            with pytest.raises(IndexError):
                f(x, i, j)
            k[33] = 0


@pytest.mark.parametrize("size", [3, 200, 256, 257, 65536, 65537])
def test_known_indices_are_few_bits(size: int) -> None:
    x = rng.random(size, np.float32)
    i = rng.integers(-size, size, 100)
    i[:2] = -size, size - 1
    near(eq.jit(lambda x: x[i] + np.take(x, i) + np.take(x, i + 5, mode="clip")), x)
    near(eq.jit(lambda x: np.take(x, i - 3 * size, mode="wrap")), x)
    with pytest.raises(IndexError):
        eq.jit(lambda x: np.take(x, i + 1))(x)
