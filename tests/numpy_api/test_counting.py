"""Numbers and elements of bins are counted as NumPy counts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples, seeds

import eqsat as eq
from eqsat.support.errors import BoundsError, DTypeError, ShapeError, TraceError

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal(60), RNG.standard_normal(60)
NUMBERS = RNG.integers(0, 9, 60)


def agree(f: Callable[..., Any], *args: Any, backend: str | None = None) -> None:
    """Results, their dtypes and shapes are those of NumPy."""
    want, got = f(*args), eq.jit(f, backend=backend)(*args)
    several = isinstance(want, tuple)
    for g, w in zip(*((got, want) if several else ([got], [want])), strict=True):
        if isinstance(w, (list, tuple)):
            g, w = np.concatenate(g), np.concatenate(w)
        assert (np.shape(g), g.dtype) == (np.shape(w), w.dtype)
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("dtype", [*"bBhHiIlL", "?"])
@examples(10)
@given(seeds, st.integers(0, 70), st.integers(1, 300))
def test_bincount(backend: str, dtype: str, seed: int, n: int, length: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, min(length, 2 if dtype == "?" else 127), n).astype(dtype)
    length = max(length, 2)
    w = rng.standard_normal(n)
    agree(lambda x: np.bincount(x, minlength=length), x, backend=backend)
    agree(lambda x, w: np.bincount(x, w, length), x, w, backend=backend)
    agree(lambda w: np.bincount(x, w), w, backend=backend)


def test_unsigned_numbers_are_counted_as_int64() -> None:
    for x in ([2**63, 1], [2**64 - 1, 0]):
        numbers, weights = np.array(x, "u8"), np.ones(2)
        for f in (
            lambda n, w: np.bincount(n, w, 4),
            lambda n, w, x=numbers: np.bincount(x, w),
        ):
            with pytest.raises(ValueError, match="negative"):
                f(numbers, weights)
            with pytest.raises(ValueError):
                eq.jit(f)(numbers, weights)


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "u4", "u8"])
@pytest.mark.parametrize("large", [9, 10, 100])
def test_numbers_from_minlength_on_make_longer_results(
    dtype: str, large: int, backend: str
) -> None:
    """NumPy runs the function, whatever is done with the counts."""
    x, w = NUMBERS.astype(dtype), W.copy()

    def squares(x: Any, w: Any) -> Any:
        w[0] = 7
        counts = np.bincount(x, w, minlength=9) ** 2
        return counts, counts.sum(), w

    f = eq.jit(lambda x: np.bincount(x, minlength=9), backend=backend)
    g = eq.jit(squares, backend=backend)
    for value in (3, large, 4, large):
        x[7] = value
        np.testing.assert_array_equal(f(x), np.bincount(x, minlength=9))
        w[0] = 1
        counts, total, written = g(x, w)
        assert written is w and w[0] == 7
        want = squares(x, w)
        assert total.dtype == want[1].dtype
        np.testing.assert_allclose(counts, want[0], rtol=1e-12)
        np.testing.assert_allclose(total, want[1], rtol=1e-12)


@pytest.mark.parametrize("dtype", ["i1", "i4", "i8"])
def test_counts_that_numpy_refuses_are_its_errors(dtype: str) -> None:
    def written(x: Any, w: Any) -> Any:
        w[0] = 7
        return np.bincount(x, minlength=9) + np.ones(9)

    x, w = NUMBERS.astype(dtype), W.copy()
    f = eq.jit(written)
    f(x, w)
    for bad, said in ((-1, "negative"), (9, "broadcast")):
        w[0], x[7] = 1, bad
        with pytest.raises(ValueError, match=said):
            f(x, w)
        assert w[0] == 1


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("bad", [-1, 2, 70])
def test_choices_that_are_not_there_are_numpys_error(bad: int, backend: str) -> None:
    def chosen(i: Any, x: Any) -> Any:
        x[0] = 5
        return np.choose(i, [x, 10.0])

    f, i, x = eq.jit(chosen, backend=backend), np.array([0, 1, 1, 0]), np.arange(4.0)
    np.testing.assert_array_equal(f(i, x), [5, 10, 10, 3])
    i[2], x[0] = bad, 1
    for g in (chosen, f):
        with pytest.raises(ValueError, match="invalid entry in choice array"):
            g(i, x.copy())
    with pytest.raises(ValueError, match="invalid entry"):
        f(i, x)
    assert x[0] == 1


def test_too_many_indices_are_an_index_error() -> None:
    for f in (lambda x: x[0, 0, 0], lambda x: x[0, 0][0], lambda x: x[..., 0, ...]):
        for g in (f, eq.jit(f)):
            with pytest.raises(IndexError):
                g(np.ones((2, 2)))


def test_longer_counts_in_a_gradient_are_a_named_error() -> None:
    f = eq.grad(lambda w, x: (np.bincount(x, w, minlength=4) ** 2).sum())
    np.testing.assert_array_equal(f(np.ones(3), np.array([1, 2, 2])), [2, 4, 4])
    said = r"np.bincount: x has an element below 0 or above 3.*\n  at .*test_counting"
    for bad in (4, -1):
        with pytest.raises(BoundsError, match=said):
            f(np.ones(3), np.array([1, 2, bad]))


BINS: list[Any] = [
    1,
    7,
    [-1, 0, 0.5, 0.5, 2],
    [-2, 0, 1],
    np.linspace(-2, 2, 9),
    np.array([-1.0, 0.2, 0.9, 2.1]),
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("bins", BINS, ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1"])
@examples(10)
@given(seeds, st.integers(0, 80), st.booleans(), st.booleans())
def test_histogram(
    bins: Any, dtype: str, seed: int, n: int, weighted: bool, ranged: bool
) -> None:
    """Elements lie on edges, too."""
    rng = np.random.default_rng(seed)
    x = (rng.integers(-12, 13, n) / 4).astype("f8").clip(0 if dtype == "u1" else -9)
    x = x.astype(dtype)
    range = (-1.5, 1.5) if ranged else None
    w = rng.standard_normal(n)
    if weighted:
        agree(lambda x, w: np.histogram(x, bins, range, weights=w), x, w)
    else:
        agree(lambda x: np.histogram(x, bins, range), x)


def test_histograms_leave_out_nan_and_give_densities() -> None:
    x = X.copy()
    x[::7], x[3], x[5] = np.nan, np.inf, -np.inf
    for bins in (5, [-1, 0, 1], [-1, 0, 0.1, 1]):
        agree(lambda x, b=bins: np.histogram(x, b, (-1, 1), density=True), x)


def test_edges_that_are_traced_and_histograms_of_lazy_arrays() -> None:
    agree(lambda x, e: np.histogram(x, e), X, np.array([-1.0, 0, 0.1, 2]))
    counts, edges = np.histogram(eq.array(X), 5)
    want = np.histogram(X, 5)
    np.testing.assert_array_equal(counts.eval(), want[0])
    np.testing.assert_allclose(np.asarray(edges), want[1])
    np.testing.assert_array_equal(
        np.bincount(eq.array(NUMBERS)).eval(), np.bincount(NUMBERS)
    )


# Histograms of one coordinate run every time, and each function's expressions.
@pytest.mark.slow
def test_histograms_of_several_coordinates() -> None:
    agree(lambda x, y: np.histogram2d(x, y, 5), X, W)
    agree(lambda x, y: np.histogram2d(x, y, [5, [-1, 0, 1]], [(-1, 1), None]), X, W)
    agree(lambda x, y: np.histogram2d(x, y, [-1, 0, 0.3, 1]), X, W)
    agree(lambda x, y: np.histogram2d(x, y, 4, density=True, weights=y**2), X, W)
    points = np.stack([X, W, X * W], 1)
    agree(lambda p: np.histogramdd(p, (4, 3, 2))[0], points)
    agree(lambda p: np.histogram_bin_edges(p, 4), points)


def test_gradients_of_weights() -> None:
    g = eq.grad(lambda w: (np.bincount(NUMBERS, w) ** 2).sum())(W)
    np.testing.assert_allclose(g, 2 * np.bincount(NUMBERS, W)[NUMBERS], rtol=1e-12)
    h = eq.grad(lambda w: (np.histogram(X, 5, (-1, 1), weights=w)[0] ** 2).sum())(W)
    totals, edges = np.histogram(X, 5, (-1, 1), weights=W)
    want = [
        2 * totals[min(np.searchsorted(edges, x, "right") - 1, 4)] * (abs(x) <= 1)
        for x in X.clip(-1.1, 0.999)
    ]
    np.testing.assert_allclose(h[X < 0.999], np.array(want)[X < 0.999], rtol=1e-12)


@pytest.mark.parametrize(
    "options",
    [{}, {"num": 1}, {"num": 0}, {"num": 5, "endpoint": False}, {"retstep": True},
     {"dtype": int}, {"dtype": "f4"}],
    ids=str,
)  # fmt: skip
def test_linspace(options: dict[str, Any]) -> None:
    if options.get("num", 50) != 1:
        agree(lambda x: np.linspace(x[0], x[1], **options), X)
    agree(lambda x: np.linspace(0, x[:3].astype("f4"), 4), X)
    agree(lambda x: np.linspace(x[:3], [[1], [2]], 4, axis=-1), X)
    agree(lambda x: np.logspace(x[0], x[1], 4), X)


@pytest.mark.parametrize(
    ("f", "kind", "message"),
    [
        (lambda i, x: np.bincount(i), TraceError, "pass minlength=n"),
        (lambda i, x: np.bincount(x, minlength=3), DTypeError, "has dtype float64"),
        (lambda i, x: np.bincount(i[None], minlength=9), ShapeError, "one axis"),
        (lambda i, x: np.bincount(i, x[1:], 9), ShapeError, "expected that of x"),
        (lambda i, x: np.bincount(i, minlength=-1), ValueError, "minlength=-1"),
        (lambda i, x: np.histogram(x, "auto"), TraceError, "depends on data"),
        (lambda i, x: np.histogram(x, [1, 0]), ShapeError, "expected rising"),
        (lambda i, x: np.histogram(x, 5, (1, 0)), ShapeError, "two finite numbers"),
        (lambda i, x: np.histogram(x, 0), ValueError, "an int from 1 on"),
    ],
)
def test_errors(f: Callable[..., Any], kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        eq.jit(f)(NUMBERS, X)
