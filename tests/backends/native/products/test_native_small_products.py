"""Products of matrices narrower than vectors, alone and in kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eqsat as eq
from eqsat.backends.native.machine import blas, host
from eqsat.backends.native.products import gemm_plan
from eqsat.kernels import backend_named

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(0)


def drawn(dtype: str, *shapes: tuple[int, ...]) -> list[Array]:
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def near(got: Array, want: Array, *args: Array) -> None:
    """``want`` is of ``args`` in float64; sums of ten numbers of a few units."""
    assert (got.shape, got.dtype) == (want.shape, args[0].dtype)
    tolerance = 64 * np.finfo(args[0].dtype).eps
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=8 * tolerance)


@given(
    batch=st.sampled_from([(), (1,), (7,), (40,), (3, 13), (300,)]),
    m=st.integers(1, 18),
    k=st.integers(1, 9),
    n=st.integers(1, 9),
    shared=st.sampled_from(["", "x", "y"]),
    dtype=st.sampled_from(["f4", "f8"]),
    threads=st.sampled_from([1, 2]),
)
def test_batches_of_small_matrices(
    batch: tuple[int, ...],
    m: int,
    k: int,
    n: int,
    shared: str,
    dtype: str,
    threads: int,
) -> None:
    x, y = drawn(
        dtype,
        (m, k) if shared == "x" else (*batch, m, k),
        (k, n) if shared == "y" else (*batch, k, n),
    )
    f = eq.jit(lambda x, y: x @ y, options=eq.Options(threads=threads))
    near(f(x, y), x.astype("f8") @ y.astype("f8"), x)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_what_is_around_small_products(dtype: str) -> None:
    def moved(x: Array, r: Array, t: Array) -> Array:
        y = np.einsum("nij,nj->ni", r, x - t) + t
        y = y[::2] * 2
        return (y - y.mean(-1, keepdims=True)) @ r[0].T

    args = drawn(dtype, (50, 3), (50, 3, 3), (3,))
    near(eq.jit(moved)(*args), moved(*(a.astype("f8") for a in args)), *args)


def test_infinities_and_nan_in_small_products() -> None:
    x, y = drawn("f4", (40, 3, 3), (40, 3, 2))
    x[::3, 1, 1], y[::4, 2, 0], y[::5, 1] = np.inf, np.nan, 0
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(eq.jit(np.matmul)(x, y), x @ y, 1e-5, 1e-5)


def test_small_matrices_are_multiplied_in_loops() -> None:
    x, y = drawn("f4", (100, 3, 3), (100, 3, 1))
    f = eq.jit(np.matmul)
    near(f(x, y), x.astype("f8") @ y.astype("f8"), x)
    assert "multiply(" in f.lower(x, y).source("native")
    wide = drawn("f4", (100, 30, 30), (100, 30, 30))
    assert "multiply(" not in f.lower(*wide).source("native")


def test_strided_and_constant_small_matrices() -> None:
    r, x = drawn("f8", (3, 3), (3, 60, 2))
    fixed = r.copy()
    fixed.flags.writeable = False
    f = eq.jit(lambda x: x.T @ fixed)
    near(f(x), x.T @ r, x)
    near(eq.jit(lambda x, r: x @ r.T)(x.T, r), x.T @ r.T, x)


@pytest.mark.parametrize("after", ["", "relu"])
@pytest.mark.parametrize(
    ("sizes", "turned", "by_blas"),
    [
        ((20, 33, 17), False, True),
        ((16, 48, 17), False, False),
        ((200, 100, 100), False, False),
        ((20, 33, 17), True, False),
        ((5, 33, 70), True, True),
    ],
)
def test_blas_multiplies_what_does_not_fill_tiles(
    sizes: tuple[int, int, int],
    turned: bool,
    by_blas: bool,
    after: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where its kernels are as wide: a matrix of 10⁶ multiply-adds at most; and few
    rows by a transposed matrix."""
    if (host().vector_bits, blas.vector_bits()) != (512, 512):
        pytest.skip("BLAS has no kernels for small matrices that are as wide")
    monkeypatch.setenv("EQSAT_PRODUCTS", "best")
    m, n, k = sizes
    x, y = drawn("f4", (5, m, k), (5, n, k) if turned else (5, k, n))

    def f(x: Array, y: Array) -> Array:
        found = x @ (y.swapaxes(-1, -2) if turned else y)
        return np.maximum(found, 0) if after else found

    fast = eq.jit(f, backend="native", options=eq.Options(threads=1))
    np.testing.assert_allclose(fast(x, y), f(x, y), rtol=1e-4, atol=1e-4)
    assert ("sgemm" in fast.lower(x, y).source()) == by_blas


def test_generated_code_multiplies_few_rows_by_constants() -> None:
    x, y = drawn("f4", (6, 17), (17, 33))
    fast = eq.jit(lambda x: x @ y, backend="native")
    assert "sgemm" not in fast.lower(x).source() or not gemm_plan.is_better(host())


def test_saved_programs_need_no_blas_where_generated_code_is_better(
    tmp_path: Path,
) -> None:
    if not gemm_plan.is_better(host()):
        pytest.skip("BLAS computes all products here")
    x, y = drawn("f4", (5, 20, 17), (5, 17, 33))
    low = eq.jit(lambda x, y: x @ y, backend="native").lower(x, y)
    made = backend_named("native").portable(low.program, eq.Options(), "native")
    assert made.blas == 0
    low.save(tmp_path / "product.eqsat")
    near(eq.load(tmp_path / "product.eqsat")(x, y), x.astype("f8") @ y.astype("f8"), x)


@pytest.mark.parametrize("shape", [(5, 90, 70), (3, 20, 17), (60, 33), (4, 3, 50)])
@pytest.mark.parametrize("threads", [1, 2])
def test_small_matrices_by_their_own_transposes(
    shape: tuple[int, ...], threads: int
) -> None:
    (x,) = drawn("f8", shape)
    options = eq.Options(threads=threads)
    for f in (
        lambda x: x @ x.swapaxes(-1, -2),
        lambda x: x.swapaxes(-1, -2) @ x,
        lambda x: np.tanh(x @ x.swapaxes(-1, -2)) @ x,
    ):
        near(eq.jit(f, options=options)(x) / 64, f(x) / 64, x)
