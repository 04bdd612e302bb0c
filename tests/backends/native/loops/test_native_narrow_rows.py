"""Maps of rows that are shorter than a vector, and in whose memory no vectors run on
from row to row: they are computed in vectors that overlap."""

import numpy as np
import pytest

import eqsat as eq

RNG = np.random.default_rng(3)
SIZES = [1, 2, 3, 5, 7, 9, 12, 13, 15, 17]
"""Elements of a row; vectors hold up to 16 float32."""


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_windows(dtype, size, stride):
    """The largest elements of windows: exact, NaN where there is one."""
    rows = 9
    width = (size - 1) * stride + 3
    x = (RNG.standard_normal((4, rows, width)) * 100).astype(dtype)
    if x.dtype.kind == "f":
        x[1, 3, width // 2] = np.nan

    def largest(x):
        ends = (size - 1) * stride + 1
        parts = [
            x[:, i : i + rows - 2, j : j + ends : stride]
            for i in range(3)
            for j in range(3)
        ]
        found = parts[0]
        for p in parts[1:]:
            found = np.maximum(found, p)
        return found

    np.testing.assert_array_equal(eq.jit(largest)(x), largest(x))


@pytest.mark.parametrize("size", SIZES)
def test_rows_with_a_number_each(size):
    """Numbers of a row, and functions of elements, against float64."""
    x = RNG.standard_normal((3, 11, size + 4)).astype(np.float32)
    w = RNG.standard_normal((3, 11, 1)).astype(np.float32)

    def f(x, w):
        return np.exp(x[:, :, 2 : size + 2]) * w + x[:, :, :size]

    want = f(x.astype(np.float64), w.astype(np.float64))
    most = np.abs(want - x[:, :, :size]) + np.abs(x[:, :, :size])
    got = eq.jit(f)(x, w)
    assert (np.abs(got - want) <= 5 * 2.0**-24 * most + 1e-30).all()


@pytest.mark.parametrize("size", [5, 13])
def test_rows_that_are_written_to(size):
    """A row is read and written in place: nothing is computed twice."""

    def f(x):
        x[:, 1:-1, 2 : size + 2] += x[:, 2:, 2 : size + 2]
        return x * 1

    x = RNG.integers(0, 9, (3, 8, size + 5)).astype(np.float32)
    got, want = x.copy(), x.copy()
    np.testing.assert_array_equal(eq.jit(f)(got), f(want))
    np.testing.assert_array_equal(got, want)
