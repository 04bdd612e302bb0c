"""Derivatives where a careless formula has NaN, or 0 where there is a slope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as sp
from mpmath import mp

import eqsat as eq

NAN, INF = np.nan, np.inf
MASK = np.array([[False, True, True, True]] * 2)
PARTS = np.array([[NAN, 1.0, 2.0, 4.0], [INF, 1.0, -2.0, 0.5]])


def slopes(f: Callable[..., Any], x: Any, backend: str | None = None) -> Any:
    return eq.grad(lambda x: f(x).sum(), backend=backend)(np.asarray(x))


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", ["var", "std", "mean", "sum", "prod"])
def test_what_does_not_count_has_slope_0(name: str, backend: str) -> None:
    function = getattr(np, name)
    got = slopes(lambda x: function(x, axis=1, where=MASK), PARTS, backend)
    want = slopes(lambda x: function(x, axis=1), PARTS[:, 1:], backend)
    np.testing.assert_array_equal(got[:, 0], 0)
    np.testing.assert_allclose(got[:, 1:], want, rtol=1e-12)


@pytest.mark.parametrize("name", ["nanvar", "nanstd", "nanmean", "nansum", "nanmax"])
def test_slopes_pass_over_nan(name: str) -> None:
    got = slopes(getattr(np, name), PARTS[0])
    want = slopes(getattr(np, name.removeprefix("nan")), PARTS[0, 1:])
    assert got[0] == 0
    np.testing.assert_allclose(got[1:], want, rtol=1e-12)


def test_slopes_at_0_and_at_integers() -> None:
    x = np.array([-2.0, -1.5, -1.0, 0.0, 0.5, 1.0])
    np.testing.assert_array_equal(slopes(lambda x: np.modf(x)[0], x), 1)
    legs = slopes(lambda x: np.hypot(x, np.array([0, 0, 0, 0, 0, 1.0])), x[::-1])
    np.testing.assert_array_equal(legs, [1, 1, 0, -1, -1, -2 / np.hypot(2, 1)])
    y = np.array([0.5, 2.0, 0.0, INF])
    got = slopes(lambda x: sp.xlogy(x, y), np.zeros(4))
    np.testing.assert_allclose(got, [np.log(0.5), np.log(2), -INF, INF])
    np.testing.assert_array_equal(slopes(lambda y: sp.xlogy(np.zeros(4), y), y), 0)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
def test_empty_arrays_are_sorted(shape: tuple[int, ...]) -> None:
    for axis in range(len(shape)):
        got = slopes(lambda x, axis=axis: np.sort(x, axis), np.zeros(shape))
        assert got.shape == shape


# -- vectors of equal values -----------------------------------------------------------

EQUAL = np.diag([1.0, 1.0, 2.0])
RISING = np.arange(1.0, 10.0).reshape(3, 3)
LOW = np.array([[2.0, 0.0], [1.0, 0.0], [3.0, 0.0], [0.0, 0.0]])


def svd(a: Any) -> Any:
    return np.linalg.svd(a, full_matrices=False)


def eigh_product(a: Any) -> Any:
    w, v = np.linalg.eigh(a)
    return (v * w) @ v.mT * RISING


def svd_product(a: Any) -> Any:
    u, s, vt = svd(a)
    return (u * s) @ vt * RISING


UNDEFINED: dict[str, tuple[Callable[..., Any], Any]] = {
    "eigenvectors": (lambda a: np.linalg.eigh(a)[1][0] ** 2 * RISING[0], EQUAL),
    "one of a pair": (lambda a: np.linalg.eigh(a)[1][:, 0] * RISING[0], EQUAL),
    "beside another": (
        lambda a: np.linalg.eigh(a)[1] * RISING,
        np.stack([RISING, EQUAL]),
    ),
    "a product": (eigh_product, EQUAL),
    "left": (lambda a: svd(a)[0][0] ** 2 * RISING[0], EQUAL),
    "right": (lambda a: svd(a)[2] * RISING, EQUAL),
    "of both": (svd_product, EQUAL),
    "of 0": (lambda a: svd(a)[0][:, 1:] * RISING[:, 1:], np.diag([1.0, 0, 0])),
    "tall, of 0": (lambda a: svd(a)[0][:, 1], LOW),
    "wide, of 0": (lambda a: svd(a)[2][1], LOW.T),
    "values twice": (
        lambda a: eq.grad(lambda a: np.sum(np.linalg.eigvalsh(a) ** 3))(a) * RISING,
        EQUAL,
    ),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", UNDEFINED)
def test_vectors_of_equal_values_have_no_slope(name: str, backend: str) -> None:
    f, a = UNDEFINED[name]
    got = slopes(f, a, backend)
    assert not np.isfinite(got[-1] if a.ndim > 2 else got).all()
    if a.ndim > 2:  # the other matrix has its own
        np.testing.assert_allclose(got[0], slopes(f, a[0]), rtol=1e-12)


DEFINED: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "eigenvalues": (lambda a: np.linalg.eigh(a)[0] ** 3, EQUAL, 3 * EQUAL**2),
    "eigenvalues alone": (np.linalg.eigvalsh, EQUAL, np.eye(3)),
    "singular values": (lambda a: svd(a)[1] ** 3, EQUAL, 3 * EQUAL**2),
    "singular values alone": (np.linalg.svdvals, EQUAL, np.eye(3)),
    "a nuclear norm": (
        lambda a: np.linalg.norm(a, "nuc"),
        np.diag([2.0, 0, 0]),
        np.diag([1.0, 0, 0]),
    ),
    "of a tall matrix": (lambda a: svd(a)[1] ** 2, LOW, 2 * LOW),
    "of a wide matrix": (lambda a: svd(a)[1] ** 2, LOW.T, 2 * LOW.T),
    "a vector of another": (
        lambda a: np.outer(*np.repeat(np.linalg.eigh(a)[1].mT[2:], 2, 0)) * RISING,
        EQUAL,
        [[0, 0, 0], [0, 0, 0], [10, 14, 0]],
    ),
    "another, turned": (
        lambda a: np.outer(*np.repeat(svd(a)[0][None, :, 0], 2, 0)) * RISING,
        EQUAL[::-1, ::-1],
        [[0, 2, 10 / 3], [4, 0, 0], [20 / 3, 0, 0]],
    ),
}


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", DEFINED)
def test_what_counts_no_such_vector_has_its_slope(name: str, backend: str) -> None:
    f, a, want = DEFINED[name]
    np.testing.assert_allclose(slopes(f, a, backend), want, rtol=1e-12, atol=1e-15)


# -- determinants ----------------------------------------------------------------------

WHOLE = np.random.default_rng(2)
SINGULAR = {
    "of 0": np.zeros((3, 3)),
    "0": np.zeros((1, 1)),
    "rank 1": np.outer([1.0, 2.0, 3.0], [1.0, 1.0, 0.0]),
    "rank 2 of 3": np.arange(9.0).reshape(3, 3),
    "pivots of 0": np.eye(4, k=1),
    "a pivot of 0 in between": np.array([[1.0, 2, 3], [2, 4, 7], [0, 0, 5]]),
    "rank 4 of 5": (
        WHOLE.integers(-3, 4, (5, 4)) @ WHOLE.integers(-3, 4, (4, 5))
    ).astype(float),
    "rank 3 of 5": (
        WHOLE.integers(-3, 4, (5, 3)) @ WHOLE.integers(-3, 4, (3, 5))
    ).astype(float),
    "beside others": np.stack([EQUAL, RISING - 5, np.zeros((3, 3))]),
    "regular": WHOLE.normal(size=(4, 4)),
    "none": np.zeros((0, 2, 2)),
}


def cofactors(a: Any) -> Any:
    if a.ndim > 2:
        return np.reshape([cofactors(m) for m in a], a.shape)
    out, n = np.empty(a.shape), len(a)
    for i, j in np.ndindex(n, n):
        minor = np.delete(np.delete(a, i, 0), j, 1)
        out[i, j] = (-1) ** (i + j) * np.linalg.det(minor)
    return out


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", SINGULAR)
def test_slopes_of_determinants_are_cofactors(
    name: str, backend: str, dtype: str
) -> None:
    """Up to roundings of a product of n - 1 numbers of the matrix, and of ln ε, by
    which a pivot of 0 is part of it."""
    a = SINGULAR[name].astype(dtype)
    value, got = eq.value_and_grad(lambda a: np.linalg.det(a).sum(), backend=backend)(a)
    assert got.dtype == a.dtype
    n = a.shape[-1]
    eps, size = float(np.finfo(dtype).eps), max(1.0, np.abs(a).max(initial=0))
    error = size ** (n - 1) * n**n * eps * (1 - np.log(eps))
    np.testing.assert_allclose(got, cofactors(a.astype(float)), rtol=0, atol=error)
    want = np.linalg.det(a.astype(float)).sum()
    np.testing.assert_allclose(value, want, rtol=0, atol=error * size)


def test_cofactors_of_singular_matrices_have_no_slope() -> None:
    twice = eq.grad(lambda a: (eq.grad(np.linalg.det)(a) ** 2).sum())
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix: inv: pivot 1"):
        twice(np.array([[1.0, 2.0], [2.0, 4.0]]))


# -- entropies -------------------------------------------------------------------------

OF_ONE = np.array([0.0, -0.0, 1e-300, 0.5, 1.0, 1e300, INF, -1.0, -INF, NAN])
OF_TWO = np.array(
    [
        (x, y)
        for x in (0.0, -0.0, 1e-300, 0.5, 2.0, 1e300, -1.0, NAN)
        for y in (0.0, -0.0, 1e-300, 0.5, 2.0, 1e300, -1.0, INF, NAN)
    ]
).T


def by_log(x: Any, y: Any) -> Any:
    return np.where((x > 0) & (y > 0), np.log(x) - np.log(y), np.log(x / y))


def of_relative_entropy(x: Any, y: Any, slope: Any, of_zeros: float) -> Any:
    """NaN where the function is ∞ or NaN for all x or y nearby."""
    slope = np.where((x == 0) & (y == 0), of_zeros, slope)
    return np.where((x >= 0) & ((y > 0) | ((x == 0) & (y == 0))), slope, NAN)


SLOPES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "rel_entr": (
        lambda x, y: of_relative_entropy(x, y, by_log(x, y) + 1, INF),
        lambda x, y: of_relative_entropy(x, y, -x / y, 0),
    ),
    "kl_div": (
        lambda x, y: of_relative_entropy(x, y, by_log(x, y), INF),
        lambda x, y: of_relative_entropy(x, y, 1 - x / y, 1),
    ),
    "xlogy": (
        lambda x, y: np.log(y),
        lambda x, y: np.where((x == 0) & (y == 0), 0, x / y),
    ),
    "xlog1py": (
        lambda x, y: np.log1p(y),
        lambda x, y: np.where((x == 0) & (y == -1), 0, x / (1 + y)),
    ),
}
"""By x and by y."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_slopes_of_entropy_at_its_edges(backend: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(OF_ONE, requires_grad=True)
    torch.special.entr(x).sum().backward()
    got = slopes(sp.entr, OF_ONE, backend)
    np.testing.assert_allclose(got, x.grad.numpy(), rtol=1e-14)
    np.testing.assert_allclose(
        got[:5], [INF, INF, -1 - np.log(1e-300), np.log(2) - 1, -1]
    )
    twice = slopes(
        lambda x: eq.grad(lambda x: sp.entr(x).sum())(x), OF_ONE[:7], backend
    )
    np.testing.assert_allclose(twice, -1 / OF_ONE[:7])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", SLOPES)
def test_slopes_of_entropies_of_two_at_their_edges(name: str, backend: str) -> None:
    f = getattr(sp, name)
    got = eq.grad(lambda x, y: f(x, y).sum(), argnums=(0, 1), backend=backend)(*OF_TWO)
    for g, want in zip(got, SLOPES[name], strict=True):
        np.testing.assert_allclose(g, want(*OF_TWO), rtol=1e-12, atol=1e-15)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_the_slope_of_x_ln_x_has_its_limit(backend: str) -> None:
    x = np.array([0.0, 1e-300, 0.5])
    for f in (
        sp.xlogy,
        lambda x, y: -sp.entr(x) + 0 * y,
        lambda x, y: sp.rel_entr(x, 1.0),
    ):
        np.testing.assert_allclose(
            slopes(lambda x, f=f: f(x, x), x, backend), np.log(x) + 1, rtol=1e-14
        )
    hidden = slopes(lambda x: np.where(x > 0, sp.entr(x), 0), x, backend)
    np.testing.assert_allclose(hidden, [0, *(-np.log(x[1:]) - 1)], rtol=1e-14)
    pair = lambda x: np.where(x[:, None] > 0, sp.rel_entr(x[:, None], [1.0, 2]), 0)  # noqa: E731
    assert slopes(pair, x, backend)[0] == 0


# -- squares of lengths ----------------------------------------------------------------

SQUARES: dict[str, Callable[..., Any]] = {
    "abs(x)**2": lambda x: np.sum(np.abs(x) ** 2),
    "abs(x)**2.0": lambda x: np.sum(np.power(np.fabs(x), 2.0)),
    "abs(x) * abs(x)": lambda x: np.sum(np.abs(x) * np.abs(x)),
    "square(abs(x))": lambda x: np.sum(np.square(np.abs(x))),
    "norm(x)**2": lambda x: np.linalg.norm(x) ** 2,
    "norm of each": lambda x: np.sum(np.linalg.norm(x[:, None], axis=1) ** 2),
    "sqrt(x @ x)**2": lambda x: np.sqrt(np.sum(x * x)) ** 2,
    "hypot": lambda x: np.sum(np.hypot(x, 0.0) ** 2),
    "hypot, broadcast": lambda x: np.sum(np.hypot(x[:, None], x) ** 2) / 6,
    "a choice": lambda x: np.sum(np.where(x < 9, np.abs(x) ** 2, np.exp(x))),
    "std": lambda x: 3 * (np.std(x) ** 2 + np.mean(x) ** 2),
}
"""Σx² of three numbers, with a root inside."""


def second(f: Callable[..., Any], x: Any, backend: str) -> Any:
    """All second derivatives of ``f``, by parts of each of ``x`` if it is complex."""
    first, rows = eq.grad(f).fn, np.eye(x.size, dtype=x.dtype)
    units = [*rows, *(1j * rows)] if x.dtype.kind == "c" else rows
    return [
        eq.grad(lambda x, v=v: np.sum(np.real(np.conj(v) * first(x))), backend=backend)(
            x
        )
        for v in units
    ]


@pytest.mark.parametrize("x", [[0.0, 0, 0], [0, 2, -1], [1, -0.0, 3]], ids=str)
@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", SQUARES)
def test_squares_of_lengths_have_second_derivatives(
    name: str, backend: str, x: list[float]
) -> None:
    f = SQUARES[name]
    for dtype, tol in (("f8", 1e-14), ("f4", 1e-5)):
        a = np.array(x, dtype)
        value, got = eq.value_and_grad(f, backend=backend)(a)
        assert got.dtype == a.dtype
        np.testing.assert_allclose(value, f(a), rtol=tol)
        np.testing.assert_allclose(got, 2 * a, rtol=tol, atol=tol)
        np.testing.assert_allclose(second(f, a, backend), 2 * np.eye(3), atol=4 * tol)


@pytest.mark.parametrize("z", [[0j, 0], [1 + 2j, 0], [0, -2j]], ids=str)
@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", list(SQUARES)[:6])
def test_squares_of_complex_lengths_have_second_derivatives(
    name: str, backend: str, z: list[complex]
) -> None:
    f, x = SQUARES[name], np.array(z)
    if name == "abs(x)**2.0":
        f = lambda x: np.sum(np.power(np.abs(x), 2.0))  # noqa: E731
    np.testing.assert_allclose(eq.grad(f, backend=backend)(x), 2 * x, rtol=1e-14)
    want = [*2 * np.eye(2), *2j * np.eye(2)]
    np.testing.assert_allclose(second(f, x, backend), want, atol=1e-14)


HIGHER: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "abs(x)**4": (lambda x: np.abs(x) ** 4, lambda x: x**4),
    "abs(x)**6": (lambda x: np.abs(x) ** 6.0, lambda x: x**6),
    "a square of a square": (lambda x: (np.abs(x) ** 2) ** 2, lambda x: x**4),
    "hypot": (lambda x: np.hypot(x, 2 * x) ** 4, lambda x: 25 * x**4),
    "norm": (
        lambda x: np.linalg.norm(np.stack([x, 2 * x]), axis=0) ** 4,
        lambda x: 25 * x**4,
    ),
    "a norm of order 4": (
        lambda x: np.linalg.norm(np.stack([x, x]), 4, axis=0) ** 4,
        lambda x: 2 * x**4,
    ),
    "complex": (lambda x: np.abs(x * (3 + 4j)) ** 4, lambda x: 625 * x**4),
}


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", HIGHER)
def test_even_powers_of_lengths_have_all_derivatives(name: str, backend: str) -> None:
    f, exact = HIGHER[name]
    x = np.array([-2.0, 0.0, 0.5])
    g = f
    for order in range(1, 5):
        g = eq.grad(lambda x, g=g: g(x).sum(), backend=backend).fn
        want = [float(mp.diff(exact, mp.mpf(v), order)) for v in x]
        got = eq.jit(g, backend=backend)(x)
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-8)


def test_lengths_themselves_keep_a_slope_of_0() -> None:
    x = np.zeros(3)
    for f in (lambda x: np.abs(x).sum(), np.linalg.norm):
        np.testing.assert_array_equal(eq.grad(f)(x), 0)
        both = lambda x, f=f: f(x) ** 2 + f(x)  # noqa: E731
        np.testing.assert_array_equal(eq.grad(both)(x), 0)


# -- limits ----------------------------------------------------------------------------

LIMITS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sinc": (np.sinc, lambda x: mp.sinc(mp.pi * x)),
    "i0": (sp.i0, lambda x: mp.besseli(0, x)),
    "i1": (sp.i1, lambda x: mp.besseli(1, x)),
    "j0": (sp.j0, lambda x: mp.besselj(0, x)),
    "j1": (sp.j1, lambda x: mp.besselj(1, x)),
    "cosm1": (sp.cosm1, lambda x: mp.cos(x) - 1),
    "pseudo_huber": (
        lambda x: sp.pseudo_huber(2.0, x),
        lambda x: 4 * (mp.sqrt(1 + (x / 2) ** 2) - 1),
    ),
    "hypot": (lambda x: np.hypot(x, 1.0), lambda x: mp.sqrt(x * x + 1)),
    "xlog1py": (lambda x: sp.xlog1py(x, x), lambda x: x * mp.log(1 + x)),
    "logaddexp": (
        lambda x: np.logaddexp(x, 0.0 * x),
        lambda x: mp.log(1 + mp.exp(x)),
    ),
    "power": (lambda x: np.power(x, np.array(3.0)), lambda x: x**3),
    "prod": (
        lambda x: np.prod(np.stack([x, x, x + 1]), 0),
        lambda x: x * x * (x + 1),
    ),
}


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", LIMITS)
def test_derivatives_of_all_orders_near_0(name: str, backend: str) -> None:
    """The terms that cancel are of the size of 1, or of π to the power of the order."""
    f, exact = LIMITS[name]
    x = np.array([-1e-3, -0.0, 0.0, 1e-9, 1e-5, 0.3, 0.32, 0.9])
    g = f
    for order in range(1, 5):
        g = eq.grad(lambda x, g=g: g(x).sum(), backend=backend).fn
        with mp.workdps(60):
            want = [mp.diff(exact, mp.mpf(v), order, h=mp.mpf("1e-12")) for v in x]
        got = eq.jit(g, backend=backend)(x)
        np.testing.assert_allclose(
            got, np.array(want, float), rtol=1e-12, atol=1e-14 * np.pi**order
        )


@pytest.mark.parametrize("f", [sp.i0e, sp.i1e])
def test_derivatives_beside_a_jump(f: Any) -> None:
    """Of exp(-|x|) I, whose second derivatives jump at 0."""
    order = 0 if f is sp.i0e else 1
    exact = lambda x: mp.exp(-x) * mp.besseli(order, x)  # noqa: E731
    x = np.array([1e-9, 1e-5, 0.9, 1.1])
    g = f
    for n in range(1, 5):
        g = eq.grad(lambda x, g=g: g(x).sum()).fn
        with mp.workdps(60):
            want = [mp.diff(exact, mp.mpf(v), n, h=mp.mpf("1e-12")) for v in x]
        np.testing.assert_allclose(eq.jit(g)(x), np.array(want, float), rtol=1e-11)
