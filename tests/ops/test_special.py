"""Special functions of SciPy in traced functions: values, edges and slopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as sp

import eqsat as eq

Array = Any
INF, NAN = np.inf, np.nan
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, 3.7, 8.0, -2.5, -3.0, 0.25, 0.75]
EDGES += [1e-30, -1e-30, 1.4616321, 30.0, -40.0, 171.5, 1e5, INF, -INF, NAN]
ONE = (
    "erfc erfcx erfinv erfcinv log_ndtr ndtr ndtri gamma gammaln psi i0 i0e i1 i1e j0 "
    "j1 cosm1 logit log_expit entr expit exp10"
).split()
TWO = "xlogy xlog1py rel_entr kl_div huber beta betaln".split()
TOLERANCE = {"float32": 2e-6, "float64": 1e-13}

both_dtypes = pytest.mark.parametrize("dtype", TOLERANCE)
both_backends = pytest.mark.parametrize("backend", ["numpy", "native"])


def same(got: Array, want: Array, dtype: str) -> None:
    assert got.dtype == want.dtype == np.dtype(dtype)
    tiny = np.finfo(dtype).tiny
    np.testing.assert_allclose(got, want, TOLERANCE[dtype], tiny)


@pytest.mark.sampled(4)
@both_backends
@both_dtypes
@pytest.mark.parametrize("name", ONE)
def test_edges(name: str, dtype: str, backend: str) -> None:
    info, f = np.finfo(dtype), getattr(sp, name)
    with np.errstate(all="ignore"):
        x = np.array([*EDGES, info.max, info.tiny, info.smallest_subnormal], dtype)
        beside = np.nextafter(x, x.dtype.type(INF))
        if name in ("gammaln", "psi"):  # SciPy is less exact beside poles and zeros
            beside = x[:0]
        x = np.concatenate([x, beside, np.linspace(-9, 9, 99)]).astype(dtype)
        got, want = eq.jit(f, backend=backend)(x), f(x.astype(float)).astype(dtype)
        if name in ("gammaln", "erfcinv"):  # SciPy: ∞ of the least; half of it is 0
            least = (x != 0) & (np.abs(x) < 10 * info.tiny)
            got, want = got[~least], want[~least]
        if name == "ndtr":  # x √½ is rounded, which counts x² times in the tail
            got, want = got[~(x < -3)], want[~(x < -3)]
        same(got, want, dtype)


@pytest.mark.sampled(4)
@both_backends
@both_dtypes
@pytest.mark.parametrize("name", TWO)
def test_edges_of_pairs(name: str, dtype: str, backend: str) -> None:
    f = getattr(sp, name)
    x, y = (a.ravel().astype(dtype) for a in np.meshgrid(EDGES, EDGES))
    with np.errstate(all="ignore"):
        got = eq.jit(f, backend=backend)(x, y)
        want = f(x.astype(float), y.astype(float)).astype(dtype)
    if name == "kl_div":  # a sum of three, which may cancel
        with np.errstate(all="ignore"):
            apart = np.abs(got - want)
        fine = apart <= 4 * np.finfo(dtype).eps * (abs(x) + abs(y))
        got, want = (np.where(fine, 0, v).astype(dtype) for v in (got, want))
    same(got, want, dtype)


@both_backends
@pytest.mark.parametrize("name", ["beta", "betaln"])
def test_a_bare_number_takes_the_dtype_of_the_array(name: str, backend: str) -> None:
    op, x = getattr(eq.ops, name), np.float32([0.5, 2.0])
    got = eq.jit(lambda x: (op(1.5, x), op(x[0], 2)), backend=backend)(x)
    for g, want in zip(got, (op(1.5, x), op(x[0], 2)), strict=True):
        same(g, np.asarray(want), "float32")


def test_pseudo_huber_is_a_limit_where_a_square_is_infinite() -> None:
    delta, r = np.array([2.0, 1e200, 0.0, -1.0, INF, 2.0]), np.array([3.0] * 5 + [0.0])
    got = eq.jit(sp.pseudo_huber)(delta, r)
    np.testing.assert_allclose(
        got[[0, 2, 3, 5]], sp.pseudo_huber(delta, r)[[0, 2, 3, 5]]
    )
    np.testing.assert_allclose(got[[1, 4]], 4.5)


def slope(f: Callable[..., Array], x: Array) -> Array:
    return eq.grad(lambda x: f(x).sum())(np.asarray(x, float))


def test_slopes_hold_where_formulas_cancel() -> None:
    far = np.array([-30.0, -5.0, 0.0, 5.0, 40.0])
    hazard = np.exp(-(far**2) / 2 - sp.log_ndtr(far)) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(slope(sp.log_ndtr, far), hazard, rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(slope(sp.i1, [0.0]), [0.5])
    np.testing.assert_allclose(slope(sp.j1, [0.0]), [0.5])
    np.testing.assert_allclose(slope(sp.i0e, [0.0]), [0.0])
    trigamma = [np.pi**2 / 6, np.pi**2 / 2 + 4]
    np.testing.assert_allclose(slope(sp.psi, [1.0, -0.5]), trigamma)
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.5, 0.125, 0.375])
    np.testing.assert_allclose(slope(lambda p: sp.rel_entr(p, q), p), np.log(p / q) + 1)
    np.testing.assert_allclose(slope(lambda q: sp.kl_div(p, q), q), 1 - p / q)
    r = np.array([-3.0, 0.5, 2.0])
    np.testing.assert_allclose(slope(lambda r: sp.huber(1.0, r), r), [-1, 0.5, 1])


def test_the_normal_distribution_keeps_its_tail() -> None:
    x = np.linspace(-12, -6, 64, dtype=np.float32)
    got = eq.jit(sp.ndtr)(x)
    np.testing.assert_allclose(got, sp.ndtr(x.astype(float)), rtol=2e-5)
    log = eq.jit(sp.log_ndtr)(x)
    np.testing.assert_allclose(log, sp.log_ndtr(x.astype(float)), rtol=1e-6)
