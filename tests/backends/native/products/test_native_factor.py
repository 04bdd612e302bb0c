"""Factorisations in machine code: LAPACK's, and of many small matrices in lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from natives import lowered, natively
from programs import program_of
from sizes import examples, seeds

import eqsat as eq
from eqsat.backends.native.factors import small_matrices
from eqsat.backends.native.machine.processor import host

Array = np.ndarray[Any, Any]
ROWS = [1, 2, 3, 5, 8, 16, 17, 40]
BATCHES = [(), (1,), (3,), (9,), (2, 3, 5)]
LAYOUTS = ["packed", "transposed", "reversed", "strided"]
ROUTINES: dict[str, Callable[..., Any]] = {
    "solve": lambda a, b: np.linalg.solve(a, b),
    "solve, transposed": lambda a, b: (
        np.linalg.solve(a, b),
        np.linalg.solve(a.mT, b),
    ),
    "inv": lambda a, b: np.linalg.inv(a),
    "slogdet": lambda a, b: tuple(np.linalg.slogdet(a)),
    "cholesky": lambda a, b: np.linalg.cholesky(a),
    **{
        f"triangle {way}": lambda a, b, way=way: eq.solve_triangular(
            a, b, lower=way[0], transposed=way[1], unit_diagonal=way[2]
        )
        for way in np.ndindex(2, 2, 2)
    },
    "triangle of a view": lambda a, b: eq.solve_triangular(a.mT, b, lower=True),
}


def matrices(rng: np.random.Generator, shape: tuple[int, ...], definite: bool) -> Array:
    """Far from singular; rows must be swapped unless symmetric and ``definite``."""
    n = shape[-1]
    x = rng.uniform(-1, 1, shape) / n + 2 * np.eye(n)
    return x + x.mT if definite else x[..., rng.permutation(n), :]


def laid_out(x: Array, layout: str) -> Array:
    """``x`` in another order in memory."""
    if layout == "transposed":
        return np.ascontiguousarray(x.mT).mT
    if layout == "reversed":
        return np.ascontiguousarray(x[..., ::-1, :])[..., ::-1, :]
    if layout == "strided":
        return np.repeat(x, 2, -1)[..., ::2]
    return x


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ROUTINES)
@examples(14)
@given(
    seeds,
    st.sampled_from(["f4", "f8"]),
    st.sampled_from(ROWS),
    st.integers(1, 34),
    st.sampled_from(BATCHES),
    st.sampled_from(LAYOUTS),
    st.sampled_from([None, "x86-64-v3", "generic"]),
    st.sampled_from([1, 3]),
)
def test_a_routine_is_numpys(
    name: str,
    seed: int,
    dtype: str,
    n: int,
    k: int,
    batch: tuple[int, ...],
    layout: str,
    cpu: str | None,
    threads: int,
) -> None:
    rng = np.random.default_rng(seed)
    definite = name.startswith(("cholesky", "triangle"))
    a = laid_out(matrices(rng, (*batch, n, n), definite).astype(dtype), layout)
    b = laid_out(rng.uniform(-1, 1, (*batch[1:], n, k)).astype(dtype), layout)
    f = ROUTINES[name]
    got = natively(f, a, b, threads=threads, cpu=cpu)
    wide = f(a.astype(float), b.astype(float))
    want = wide if isinstance(wide, tuple) else (wide,)
    rounding = 8 * n * float(np.finfo(dtype).eps)
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (np.dtype(dtype), np.shape(w))
        size = float(np.abs(w).max(initial=1))
        np.testing.assert_allclose(g, w, rtol=rounding, atol=rounding * size)


DECOMPOSITIONS: dict[str, Callable[..., Any]] = {
    "eigh": np.linalg.eigh,
    "eigvalsh": np.linalg.eigvalsh,
    "svd": np.linalg.svd,
    "thin svd": lambda a: np.linalg.svd(a, full_matrices=False),
    "svdvals": np.linalg.svdvals,
    "qr": np.linalg.qr,
    "qr, complete": lambda a: np.linalg.qr(a, "complete"),
    "r": lambda a: np.linalg.qr(a, "r"),
    "pinv": np.linalg.pinv,
    "pinv, cut": lambda a: np.linalg.pinv(a, 0.3),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", DECOMPOSITIONS)
@examples(30)
@given(
    seeds,
    st.sampled_from(["f4", "f8"]),
    st.sampled_from(ROWS),
    st.sampled_from(ROWS),
    st.sampled_from(BATCHES),
    st.sampled_from(LAYOUTS),
    st.sampled_from([1, 3]),
)
def test_a_decomposition_is_numpys(
    name: str,
    seed: int,
    dtype: str,
    m: int,
    n: int,
    batch: tuple[int, ...],
    layout: str,
    threads: int,
) -> None:
    """To the bit, but for products."""
    m = n if name.startswith("eig") else m
    rng = np.random.default_rng(seed)
    a = laid_out(rng.standard_normal((*batch, m, n)).astype(dtype), layout)
    f = DECOMPOSITIONS[name]
    want = f(a)
    got = natively(f, a, threads=threads)
    wanted = want if isinstance(want, tuple) else (want,)
    for g, w in zip(got, wanted, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        if name.startswith("pinv"):
            close = 1e-5 if dtype == "f4" else 1e-13
            size = float(np.abs(w).max(initial=1))
            np.testing.assert_allclose(g, w, rtol=close, atol=close * size)
        else:
            np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("bad", [0, 5])
@pytest.mark.parametrize("f", [np.linalg.eigh, np.linalg.svd, np.linalg.pinv])
def test_what_does_not_converge_is_numpys_error(f: Any, bad: int) -> None:
    a = np.ones((6, 4, 4)) + np.eye(4)
    fast = eq.jit(f)
    fast(a)
    a[bad, 1, 0] = np.nan
    with pytest.raises(np.linalg.LinAlgError, match="did not converge"):
        fast(a)


def test_one_large_matrix_is_left_to_numpy() -> None:
    a = np.eye(200)
    reasons = eq.jit(np.linalg.svdvals).lower(a).executable.reasons
    assert list(reasons.values()) == ["svdvals of one large matrix"]
    assert not eq.jit(np.linalg.svdvals).lower(np.stack([a, a])).executable.reasons
    for shape in ((0, 0), (3, 0), (2, 0, 3)):
        empty = np.ones(shape)
        got, want = eq.jit(np.linalg.svd)(empty), np.linalg.svd(empty)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize(
    ("shape", "threads", "is_held"),
    [((300, 300), 3, False), ((300, 300), 1, True), ((4, 300, 300), 3, True)],
)
def test_blas_has_its_threads_for_one_large_matrix(
    shape: tuple[int, ...], threads: int, is_held: bool
) -> None:
    a = np.ones(shape) + 400 * np.eye(300)
    program = lowered(program_of(lambda a: np.linalg.inv(a) + 1, a), threads)
    assert ("blas_count" in program.source) == is_held
    (got,) = program(a)
    np.testing.assert_allclose(got, np.linalg.inv(a) + 1, rtol=1e-12)


def test_lanes_take_small_matrices_of_a_batch() -> None:
    machine = host()
    whole = machine.vector_bits // 64

    def lanes(n: int, k: int, batch: int) -> int:
        from eqsat.backends.loop_ir.pieces import (
            Factoring,
        )

        piece = Factoring("lu_solve", (), np.dtype("f8"), (n, k), (batch,), ())
        return small_matrices.lanes_of(piece, machine)

    assert lanes(6, 6, 1000) == lanes(16, 32, whole) == whole
    assert lanes(6, 6, 1) == 1
    assert lanes(17, 1, 1000) == lanes(6, 33, 1000) == 0


@pytest.mark.parametrize("n", [3, 20])
def test_one_matrix_for_many_right_sides(n: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((n, n)), rng.standard_normal((4, 5, n, 2))
    (got,) = natively(np.linalg.solve, a, b)
    np.testing.assert_allclose(got, np.linalg.solve(a, b), rtol=1e-10)
    (got,) = natively(np.linalg.solve, b @ b.mT + np.eye(n), b[0, 0])
    np.testing.assert_allclose(got, np.linalg.solve(b @ b.mT + np.eye(n), b[0, 0]))


@pytest.mark.parametrize("n", [4, 20])
@pytest.mark.parametrize("bad", [0, 5, 12])
def test_one_singular_matrix_of_a_batch(n: int, bad: int) -> None:
    a = np.broadcast_to(np.eye(n), (13, n, n)).copy()
    f = eq.jit(np.linalg.inv)
    np.testing.assert_array_equal(f(a), a)
    a[bad, 1, 1] = 0
    with pytest.raises(np.linalg.LinAlgError, match=rf"pivot 1 of matrix \({bad},\)"):
        f(a)
    assert (eq.jit(np.linalg.det)(a) == 0).tolist() == [i == bad for i in range(13)]
