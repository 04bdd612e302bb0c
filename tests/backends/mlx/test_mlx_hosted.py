"""What NumPy computes inside of programs on MLX: derivatives by ``mx.grad`` are those
of ``eq.grad``, and where MLX withholds values there is an error, never another number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as sp

import eqsat as eq
from eqsat import ops

mx = pytest.importorskip("mlx.core")
mlx = pytest.importorskip("eqsat.backends.mlx")
lower = pytest.importorskip("eqsat.backends.mlx.lower").lower
ON_GPU = mx.default_device().type == mx.gpu
rng = np.random.default_rng(0)
X = rng.uniform(0.2, 0.8, (3, 5)).astype("f4")
A = (rng.normal(size=(2, 4, 4)) / 2 + 5 * np.eye(4)).astype("f4")
S = A @ A.mT
B = rng.normal(size=(2, 4, 3)).astype("f4")
Case = tuple[Callable[..., Any], list[Any]]
POINTWISE: dict[str, Case] = {
    n: (lambda x, n=n: getattr(sp, n)(x), [X])
    for n in (
        "erfc erfcx erfinv log_ndtr ndtri psi gammaln gamma i0 i0e i1 i1e j0 j1".split()
    )
}
PAIRS: dict[str, Case] = {
    n: (lambda x, y, n=n: getattr(sp, n)(x, y), [X, X[::-1] + 1])
    for n in ("beta", "betaln")
}
MATRICES: dict[str, Case] = {
    "solve": (lambda a, b: np.linalg.solve(a, b), [A, B]),
    "solve, transposed": (lambda a, b: np.linalg.solve(a.mT, b), [A, B]),
    "inv": (lambda a: np.linalg.inv(a), [A]),
    "det": (lambda a: np.linalg.det(a) / 100, [A]),
    "slogdet": (lambda a: np.linalg.slogdet(a)[1], [A]),
    "sign and logarithm": (
        lambda a: np.linalg.slogdet(a)[0] * np.linalg.slogdet(a)[1],
        [A],
    ),
    "cholesky": (lambda s: np.linalg.cholesky(s), [S]),
    "triangle": (lambda a, b: ops.solve_triangular(a, b, lower=True), [A, B]),
    "eigvalsh": (lambda s: np.linalg.eigvalsh(s), [S]),
    "eigh": (lambda s: np.linalg.eigh(s)[1] ** 2, [S]),
    "svd": (lambda b: np.linalg.svd(b, full_matrices=False)[0] ** 2, [B]),
    "svdvals": (lambda b: np.linalg.svd(b, compute_uv=False), [B]),
    "qr": (lambda b: np.linalg.qr(b)[1] ** 2, [B]),
    "pinv": (lambda b: np.linalg.pinv(b), [B]),
    "lstsq": (lambda a, b: np.linalg.lstsq(a[0], b[0])[0], [A, B]),
    "norm": (lambda b: np.linalg.norm(b, 2, axis=(1, 2)), [B]),
}
CASES = POINTWISE | PAIRS | MATRICES


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    f, xs = CASES[name]
    got = eq.jit(f)(*map(mx.array, xs))
    assert isinstance(got, mx.array) and got.dtype == mx.float32
    np.testing.assert_allclose(mlx.to_numpy(got), f(*xs), rtol=2e-4, atol=2e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_derivatives_by_mlx_are_ours(name: str) -> None:
    f, xs = CASES[name]
    fast, by = eq.jit(f), tuple(range(len(xs)))
    weights = rng.uniform(0.5, 1, np.shape(f(*xs))).astype("f4")
    given = [mx.array(x) for x in xs]
    got = mx.grad(lambda *xs: (fast(*xs) * mx.array(weights)).sum(), by)(*given)
    got = got if isinstance(got, tuple) else (got,)
    want = eq.grad(lambda *xs: (f(*xs) * weights).sum(), by)(
        *(x.astype(float) for x in xs)
    )
    ours = eq.grad(lambda *xs: (f(*xs) * weights).sum(), by)(*given)
    for g, o, w in zip(got, ours, want, strict=True):
        size = max(1.0, float(np.abs(w).max()))
        for found in (g, o):
            assert isinstance(found, mx.array)
            near = mlx.to_numpy(found)
            np.testing.assert_allclose(near, w, rtol=1e-3, atol=1e-4 * size)
    value, again = mx.value_and_grad(lambda *xs: (fast(*xs) * 2).sum())(*given)
    assert mx.allclose(value, (fast(*given) * 2).sum(), rtol=1e-5)
    assert mx.isfinite(again).all()


@pytest.mark.parametrize("language", ["metal", "cuda"])
@pytest.mark.parametrize("name", CASES)
def test_a_gpu_needs_no_float64(name: str, language: str) -> None:
    f, xs = CASES[name]
    program = eq.jit(f).lower(*map(mx.array, xs)).program
    assert "float64" not in lower(program, language).source


@pytest.mark.parametrize("name", MATRICES if ON_GPU else CASES)
def test_what_withholds_values_is_an_error(name: str) -> None:
    f, xs = CASES[name]
    fast, given = eq.jit(f), [mx.array(x) for x in xs]
    ways: dict[str, Callable[[], Any]] = {
        "mx.compile and mx.vmap": lambda: mx.compile(fast)(*given),
        "mx.vmap": lambda: mx.vmap(fast)(*(x[None] for x in given)),
        "mx.jvp": lambda: mx.jvp(fast, given, given),
    }
    for what, run in ways.items():
        with pytest.raises(eq.BackendError, match=f"float32 .*inside of .*{what}"):
            mx.eval(run())
    np.testing.assert_allclose(mlx.to_numpy(fast(*given)), f(*xs), rtol=2e-4, atol=2e-5)


@pytest.mark.skipif(ON_GPU, reason="no GPU of MLX has float64")
def test_derivatives_of_float64() -> None:
    x = mx.array(np.linspace(-1, 1, 7), dtype=mx.float64)
    with mx.stream(mx.cpu):
        for f, slope in ((np.exp, np.exp), (np.sin, np.cos)):
            fast = eq.jit(f)
            got = mx.grad(lambda x, fast=fast: fast(x).sum())(x)
            np.testing.assert_allclose(mlx.to_numpy(got), slope(np.linspace(-1, 1, 7)))
