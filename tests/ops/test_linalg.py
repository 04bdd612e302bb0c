"""NumPy's linear algebra, traced: values, types, errors, and what is shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples, seeds

import eqsat as eq
from eqsat import ops
from eqsat.support.errors import DTypeError, ShapeError, TraceError

Array = np.ndarray[Any, Any]
BACKENDS = ["numpy", "native"]

SPELLINGS: dict[str, Callable[..., Any]] = {
    "solve": lambda a, b, v, s: np.linalg.solve(a, b),
    "solve of a vector": lambda a, b, v, s: np.linalg.solve(a, v),
    "solve of lists": lambda a, b, v, s: np.linalg.solve(a[0], [1, 2, 3, 4]),
    "inv": lambda a, b, v, s: np.linalg.inv(a),
    "det": lambda a, b, v, s: np.linalg.det(a),
    "slogdet": lambda a, b, v, s: tuple(np.linalg.slogdet(a)),
    "cholesky": lambda a, b, v, s: np.linalg.cholesky(s),
    "cholesky, upper": lambda a, b, v, s: np.linalg.cholesky(s, upper=True),
    "matrix_power": lambda a, b, v, s: np.linalg.matrix_power(a, -5),
    "no power": lambda a, b, v, s: np.linalg.matrix_power(a, 0),
    "multi_dot": lambda a, b, v, s: np.linalg.multi_dot([v, a[0], b[0], b[0].T, v]),
    "tensorsolve": lambda a, b, v, s: np.linalg.tensorsolve(
        np.kron(a[0], np.eye(3)).reshape(4, 3, 4, 3), b[0, :, :1] + np.arange(3)
    ),
    "tensorinv": lambda a, b, v, s: np.linalg.tensorinv(a[0].reshape(4, 2, 2), 1),
    "eigh": lambda a, b, v, s: np.linalg.eigh(s).eigenvalues,
    "eigenvectors": lambda a, b, v, s: abs(np.linalg.eigh(s, "U")[1]),
    "eigvalsh": lambda a, b, v, s: np.linalg.eigvalsh(a, UPLO="U"),
    "svd": lambda a, b, v, s: tuple(map(abs, np.linalg.svd(b))),
    "thin svd": lambda a, b, v, s: tuple(
        map(abs, np.linalg.svd(b.mT, full_matrices=False))
    ),
    "svdvals": lambda a, b, v, s: np.linalg.svdvals(b),
    "svd without vectors": lambda a, b, v, s: np.linalg.svd(b, compute_uv=False),
    "qr": lambda a, b, v, s: tuple(np.linalg.qr(b)),
    "qr, complete": lambda a, b, v, s: tuple(np.linalg.qr(b, "complete")),
    "qr, wide": lambda a, b, v, s: np.linalg.qr(b.mT, "complete").R,
    "r": lambda a, b, v, s: np.linalg.qr(b, mode="r"),
    "pinv": lambda a, b, v, s: np.linalg.pinv(b),
    "pinv, cut": lambda a, b, v, s: np.linalg.pinv(b @ b.mT, rcond=1e-3),
    "pinv, rtol": lambda a, b, v, s: np.linalg.pinv(b, rtol=None),
    "matrix_rank": lambda a, b, v, s: np.linalg.matrix_rank(b @ b.mT),
    "matrix_rank, tol": lambda a, b, v, s: np.linalg.matrix_rank(a, tol=[0.5, 9.0]),
    "matrix_rank of a vector": lambda a, b, v, s: np.linalg.matrix_rank(v),
    "cond": lambda a, b, v, s: np.linalg.cond(b),
    "cond, -2": lambda a, b, v, s: np.linalg.cond(b, -2),
    "cond, 1": lambda a, b, v, s: np.linalg.cond(a, 1),
    "cond, fro": lambda a, b, v, s: np.linalg.cond(a, "fro"),
    "lstsq": lambda a, b, v, s: np.linalg.lstsq(b[0], v, rcond=None),
    "lstsq, columns": lambda a, b, v, s: np.linalg.lstsq(b[0], a[0])[:2],
    "lstsq, wide": lambda a, b, v, s: np.linalg.lstsq(b[0].T, b[0, :3]),
    "norms": lambda a, b, v, s: tuple(
        np.linalg.norm(b[0], ord=p) for p in (1, -1, 2, -2, np.inf, -np.inf, "nuc")
    ),
    "norm, kept": lambda a, b, v, s: np.linalg.norm(b, 1, (2, 0), keepdims=True),
    "matrix_norm": lambda a, b, v, s: np.linalg.matrix_norm(b, ord=2, keepdims=True),
}


def drawn(seed: int, dtype: Any) -> tuple[Array, ...]:
    """a (2, 4, 4) that needs its rows swapped, b (2, 4, 3), v (4), s (2, 4, 4) that is
    positive definite."""
    rng = np.random.default_rng(seed)
    rows = rng.permuted(np.arange(4))
    a = (rng.normal(size=(2, 4, 4)) / 2 + 5 * np.eye(4))[:, rows]
    b, v = rng.normal(size=(2, 4, 3)), rng.normal(size=4)
    s = rng.normal(size=(2, 4, 4))
    given = a, b, v, s @ s.mT + 4 * np.eye(4)
    if np.dtype(dtype).kind == "i":
        given = tuple(np.rint(x * 3) for x in given)
    return tuple(x.astype(dtype) for x in given)


def agree(got: Any, want: Any, rounding: float) -> None:
    many = isinstance(want, tuple)
    for g, w in zip(got, want, strict=True) if many else [(got, want)]:
        w = np.asarray(w)
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        size = max(1.0, float(np.abs(w).max(initial=0)))
        np.testing.assert_allclose(g, w, rtol=rounding, atol=rounding * size)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SPELLINGS)
@examples(2)
@given(seeds, st.sampled_from(["f4", "f8", "i8"]))
def test_a_function_is_numpys(name: str, backend: str, seed: int, dtype: str) -> None:
    f, args = SPELLINGS[name], drawn(seed, dtype)
    rounding = 2e-4 if dtype == "f4" else 1e-9
    if "rank" in name or ("pinv" in name and "cut" not in name):
        args = drawn(seed, "f8")
        rounding = 1e-9
    agree(eq.jit(f, backend=backend)(*args), f(*args), rounding)


@pytest.mark.parametrize("name", ["solve", "lstsq"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["f8", "i8"])
def test_a_matrix_is_factored_in_the_dtype_of_the_result(
    name: str, backend: str, dtype: str
) -> None:
    a, b = drawn(0, "f4")[0][0], np.arange(1, 5, dtype=dtype)

    def f(a: Any, b: Any) -> Any:
        return np.linalg.solve(a, b) if name == "solve" else np.linalg.lstsq(a, b)[0]

    assert f(a, b).dtype == "f8"
    agree(eq.jit(f, backend=backend)(a, b), f(a, b), 1e-12)


SIZES = [(0, 0), (3, 0, 0), (0, 2, 2), (1, 1), (2, 1, 3, 3)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", SIZES)
def test_empty_and_single(backend: str, shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(0).normal(size=shape) + 4 * np.eye(shape[-1])

    def f(a: Any) -> Any:
        sign, log = np.linalg.slogdet(a)
        solved = np.linalg.solve(a, np.ones((shape[-1], 2)))
        return np.linalg.inv(a), np.linalg.det(a), sign, log, solved

    agree(eq.jit(f, backend=backend)(a), f(a), 1e-12)


ONES = np.ones(3, "f4")
SINGULAR = {
    "solve": lambda a: np.linalg.solve(a, ONES),
    "inv": lambda a: np.linalg.inv(a) + 1,
    "cholesky": np.linalg.cholesky,
    "solve_triangular": lambda a: ops.solve_triangular(a, ONES, lower=True),
    "a factor that is known": lambda a: np.linalg.solve(np.linalg.cholesky(a), a),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("backend", [*BACKENDS, "mlx"])
@pytest.mark.parametrize("name", SINGULAR)
@pytest.mark.parametrize("batch", [(), (3,), (40,)])
def test_a_singular_matrix_is_an_error(
    name: str, backend: str, batch: tuple[int, ...]
) -> None:
    if backend == "mlx":
        mx = pytest.importorskip("mlx.core")
    f = SINGULAR[name]
    good = np.broadcast_to(np.eye(3, dtype="f4"), (*batch, 3, 3)).copy()
    bad = good.copy()
    bad[..., 2, 2] = 0 if not batch else np.arange(batch[0]) != 2
    jitted = eq.jit(f, backend=backend)
    wrap = mx.array if backend == "mlx" else np.asarray
    np.testing.assert_allclose(np.asarray(jitted(wrap(good))), f(good))
    with pytest.raises(np.linalg.LinAlgError):
        np.asarray(jitted(wrap(bad)))
    np.testing.assert_allclose(np.asarray(jitted(wrap(good))), f(good))


def test_a_singular_matrix_has_a_determinant() -> None:
    a = np.ones((2, 3, 3))
    for backend in BACKENDS:
        sign, log = eq.jit(lambda a: tuple(np.linalg.slogdet(a)), backend=backend)(a)
        assert sign.tolist() == [0, 0] and log.tolist() == [-np.inf] * 2
        assert eq.jit(np.linalg.det, backend=backend)(a).tolist() == [0, 0]


def test_a_determinant_that_overflows_on_the_way() -> None:
    a = np.diag([1e200, 1e200, 1e-300])
    np.testing.assert_allclose(eq.jit(np.linalg.det)(a), 1e100, rtol=1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_stays_in_its_matrix(backend: str) -> None:
    a = np.broadcast_to(np.eye(3) * 2, (20, 3, 3)).copy()
    a[7, 1, 1] = np.nan
    x = eq.jit(np.linalg.inv, backend=backend)(a)
    assert np.isnan(x[7]).any()
    np.testing.assert_array_equal(np.delete(x, 7, 0), np.delete(a, 7, 0) / 4)


def test_errors_say_what_was_expected() -> None:
    def of(f: Callable[..., Any], *args: Any) -> Any:
        return eq.jit(f)(*args)

    with pytest.raises(ShapeError, match=r"expected square matrices \.\.\. n n"):
        of(np.linalg.inv, np.ones((2, 3)))
    with pytest.raises(DTypeError, match="float16, expected float32 or float64"):
        of(np.linalg.det, np.ones((2, 2), np.float16))
    with pytest.raises(DTypeError, match="expected float32 or float64"):
        of(np.linalg.svdvals, np.ones((2, 2), np.float16))
    with pytest.raises(
        ShapeError, match=r"solve: argument 'b' has shape \(3, 1\), expected"
    ):
        of(np.linalg.solve, np.ones((2, 2)), np.ones((3, 1)))
    with pytest.raises(TraceError, match="mode='raw'"):
        of(lambda a: np.linalg.qr(a, "raw"), np.ones((2, 2)))
    with pytest.raises(ValueError, match="UPLO"):
        of(lambda a: np.linalg.eigh(a, "X"), np.ones((2, 2)))
    with pytest.raises(TraceError, match="full_matrices=False"):
        eq.grad(lambda a: np.linalg.svd(a)[0].sum())(np.ones((3, 2)))
    with pytest.raises(TraceError, match=r"eq\.solve_triangular"):
        import scipy.linalg

        of(lambda a: scipy.linalg.solve_triangular(a, np.ones(2)), np.eye(2))


# -- what is shared --------------------------------------------------------------------


def kernels(f: Callable[..., Any], *args: Array) -> list[str]:
    """The ops of the kernels of ``f``, whose values are NumPy's."""
    fast = eq.jit(f, options=eq.Options(fusion=False))
    agree(fast(*args), f(*args), 1e-8)
    return [k.op.name for k in fast.lower(*args).program.kernels]


def test_all_that_is_asked_of_a_matrix_shares_its_factorisation() -> None:
    a, b, v, _ = drawn(0, "f8")

    def f(a: Any, b: Any, v: Any) -> Any:
        sign, log = np.linalg.slogdet(a)
        x = np.linalg.solve(a, v), np.linalg.solve(a.mT, b), np.linalg.inv(a) @ b
        return *x, sign * log, np.linalg.det(a), v @ np.linalg.inv(a[0]) @ v

    found = kernels(f, a, b, v)
    assert found.count("lu") == 2 and "lu_inv" not in found  # of a, and of a[0]


def test_a_known_factor_is_not_factored() -> None:
    _, b, _, s = drawn(0, "f8")

    def f(s: Any, b: Any) -> Any:
        low = np.linalg.cholesky(s)
        x = np.linalg.solve(low.mT, np.linalg.solve(low, b))
        return x, np.linalg.inv(low) @ b, np.linalg.solve(low @ low.mT, b)

    found = kernels(f, s, b)
    assert "lu" not in found and found.count("solve_triangular") == 2


def test_a_gradient_shares_the_factorisation() -> None:
    a, _, v, _ = drawn(0, "f8")

    def loss(a: Any, v: Any) -> Any:
        return v @ np.linalg.solve(a, v) + np.linalg.slogdet(a)[1]

    found = eq.grad(loss).lower(a[0], v).program.kernels
    assert sum("lu" == k.op.name for k in found) == 1


def test_log_likelihood_and_its_gradient() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 2)), rng.normal(size=30)

    def loss(scale: Any, x: Any, y: Any) -> Any:
        d = ((x[:, None] - x[None]) / scale) ** 2
        k = np.exp(-0.5 * d.sum(-1)) + 0.1 * np.eye(30)
        low = np.linalg.cholesky(k)
        z = np.linalg.solve(low, y)
        return 0.5 * z @ z + np.log(np.diagonal(low)).sum()

    scale = np.array([0.7, 1.3])
    value, g = eq.value_and_grad(loss)(scale, x, y)
    np.testing.assert_allclose(value, loss(scale, x, y))
    for i in range(2):
        step = np.eye(2)[i] * 1e-6
        slope = (loss(scale + step, x, y) - loss(scale - step, x, y)) / 2e-6
        np.testing.assert_allclose(g[i], slope, rtol=1e-6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(40, 40), (400, 400), (10, 30, 30), (1000, 3, 3)])
def test_the_logarithm_of_a_determinant_does_not_overflow(
    shape: tuple[int, ...], dtype: str, backend: str
) -> None:
    n = shape[-1]
    a = np.broadcast_to(np.eye(n), shape).astype(dtype) * np.dtype(dtype).type(1e30)
    got = eq.jit(lambda a: np.log(np.linalg.det(a)), backend=backend)(a)
    np.testing.assert_allclose(got, n * np.log(1e30), rtol=1e-6)


def test_solutions_and_inverses_of_one_matrix_share_its_factors() -> None:
    def f(a: Any, b: Any, c: Any) -> Any:
        rest = np.linalg.solve(a.T, c), np.linalg.inv(a) @ b, np.linalg.det(a)
        return np.linalg.solve(a, b), np.linalg.solve(a, c), *rest

    rng = np.random.default_rng(1)
    a, b, c = rng.normal(size=(7, 7)), rng.normal(size=(7, 3)), rng.normal(size=7)
    used = [name for k in eq.jit(f).explain(a, b, c).kernels for name in k.ops]
    assert used.count("lu") == 1
    for got, want in zip(eq.jit(f)(a, b, c), f(a, b, c), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 0, 3), (0, 3, 3)])
def test_norms_and_ranks_of_nothing_are_numpys(shape: tuple[int, ...]) -> None:
    x, axes = np.zeros(shape), (-2, -1)
    functions: list[Callable[[Any], Any]] = [
        *(lambda x, p=p: np.linalg.norm(x, p, axes) for p in ("fro", "nuc", 2)),
        *(lambda x, p=p: np.linalg.norm(x, p, -1) for p in (1, 2, np.inf)),
        *(lambda x, p=p: np.linalg.vector_norm(x, ord=p) for p in (0, 2, np.inf)),
        *(lambda x, p=p: np.linalg.norm(x, p, axes) for p in (1, np.inf)),
        np.linalg.matrix_rank,
    ]
    for f in functions:
        np.testing.assert_array_equal(eq.jit(lambda x, f=f: f(x), "numpy")(x), f(x))
