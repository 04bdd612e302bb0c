"""Infinities, NaN and sizes of 0 where a shorter way to compute would give something
else than NumPy, and values that NumPy refuses."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat as eq

BACKENDS = "native", "numpy"
INF, NAN = np.inf, np.nan


def _of(function: Callable[..., Any], args: Any) -> Any:
    with warnings.catch_warnings(action="ignore"):
        try:
            return function(*args)
        except (ValueError, TypeError, ArithmeticError) as error:
            return type(error)


def _as_numpy(function: Callable[..., Any], *args: Any, rtol: float = 1e-6) -> None:
    args = tuple(np.asarray(a) for a in args)
    expected = _of(function, args)
    for backend in BACKENDS:
        found = _of(eq.jit(function, backend=backend), args)
        if isinstance(expected, type):
            assert isinstance(found, type) and issubclass(found, expected)
            continue
        assert not isinstance(found, type), found
        assert np.asarray(found).dtype == np.asarray(expected).dtype
        assert np.shape(found) == np.shape(expected)
        np.testing.assert_allclose(found, expected, rtol)


ROWS = (
    np.array([1, 2, INF]),
    np.array([-INF, 1.0, 5, INF]),
    np.array([-1e308, 1e308]),
    np.array([NAN, 1.0, INF]),
    np.array([NAN, NAN]),
    np.array([[1, 2, INF], [NAN, 3, 1.0]]),
    np.array([1, 9, INF, 3], np.float32),
    np.array([3, 1]),
    np.array([[1, 2, 7], [4, 3, 1]], np.int32),
    np.array([5.0]),
)
SHARES: tuple[Any, ...] = (0, 1, [0, 1], True, 0.5, 0.25, [0.0, 0.4], np.float32(0.5))


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
@pytest.mark.parametrize("method", ["linear", "midpoint", "lower", "nearest"])
@pytest.mark.parametrize("share", SHARES, ids=repr)
def test_quantiles(name: str, method: str, share: Any) -> None:
    if name == "nanquantile" and method != "linear":
        pytest.skip("only linear is supported")
    for row in ROWS:
        _as_numpy(lambda x: getattr(np, name)(x, share, axis=-1, method=method), row)
    of_hundred = f"{name[:-8]}percentile"
    if share is not True:
        _as_numpy(
            lambda x: getattr(np, of_hundred)(x, np.multiply(share, 100)), ROWS[0]
        )


LINES = (
    ([1.0, 2, 3, 4], [INF, 1.0]),
    ([1.0, 2, 3, 4, 5], [0, 1.0, NAN]),
    ([1.0, 2, INF, 4], [1.0, 2, 3]),
    ([INF, 1.0], [1.0, 2, 3, -INF]),
    ([1, 2, 3], [4, 5]),
    ([True, False, True], [True, True]),
    ([1.0], [2.0]),
)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_no_infinity_is_multiplied_by_what_is_off_the_array(
    name: str, mode: Any
) -> None:
    for one, two in LINES:
        _as_numpy(lambda x, y: getattr(np, name)(x, y, mode), one, two)
    rng = np.random.default_rng(0)
    one, two = rng.standard_normal(200), rng.standard_normal(70)
    two[-1] = INF
    _as_numpy(lambda x, y: getattr(np, name)(x, y, mode), one, two, rtol=1e-9)


@pytest.mark.parametrize(
    ("function", "dtype", "values"),
    [
        (lambda x: x * 1e200 * 1e200, "f8", [0, 1e-300]),
        (lambda x: -x * 1e200 * 1e200 + 1, "f8", [0, 1e-300]),
        (lambda x: x * 1e30 * 1e30, "f4", [0, 1e-30]),
        (lambda x: x * 1e-30 * 1e-30, "f4", [INF, 1e38]),
        (lambda x: x / 1e-30 / 1e-30, "f4", [0, 1e-30]),
        (lambda x: x * 300 * 300, "f2", [0, 0.5]),
    ],
)
def test_numbers_do_not_merge_out_of_range(
    function: Callable[..., Any], dtype: Any, values: Any
) -> None:
    _as_numpy(function, np.array(values, dtype), rtol=1e-2 if dtype == "f2" else 1e-6)


def test_a_literal_operand_of_einsum_broadcasts() -> None:
    _as_numpy(lambda x: np.einsum("ij,ij->ij", x, np.ones((1, 3))), np.ones((2, 3)))
    _as_numpy(lambda x: np.einsum("ij,j->i", x, np.ones(1)), np.ones((2, 3)))
    _as_numpy(lambda x: np.einsum(x, [0, 1], np.ones((1, 3)), [0, 1]), np.ones((2, 3)))


@pytest.mark.parametrize("shape", [(2, 0), (0,), (0, 3), (2, 1), (3, 4)])
def test_covariances_of_few(shape: tuple[int, ...]) -> None:
    _as_numpy(np.cov, np.ones(shape))
    _as_numpy(np.corrcoef, np.ones(shape))


def test_condition_numbers_of_zeros() -> None:
    for x in (np.zeros((2, 2)), np.eye(2), np.zeros((2, 2, 2)), np.zeros((2, 3))):
        for p in (None, 2, -2):
            _as_numpy(lambda x, p=p: np.linalg.cond(x, p), x)


def test_angles_of_bools() -> None:
    _as_numpy(np.angle, [True, False])
    _as_numpy(lambda x: np.angle(x, deg=True), [True, False])


REFUSED: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (np.nanargmax, ([NAN, NAN],)),
    (np.nanargmax, ([NAN, 1, 3.0],)),
    (lambda x: np.nanargmin(x, 1), ([[NAN, 1], [NAN, NAN]],)),
    (lambda x: np.nanargmin(x, 1), ([[NAN, 1], [NAN, 2]],)),
    (lambda x, e: np.histogram(x, e)[0], ([1.0, 2], [0, 2, 1.0])),
    (lambda x, e: np.histogram(x, e)[0], ([1.0, 2], [0, 1, 2.0])),
    (lambda x: np.histogram(x, 4)[0], ([1.0, NAN, 2],)),
    (lambda x: np.histogram(x, 4)[0], ([1.0, INF, 2],)),
    (lambda x: np.histogram(x, 4)[0], ([1.0, 5, 2],)),
    (lambda x: np.histogram2d(x, x, 2)[0], ([1.0, NAN],)),
    (lambda x: np.histogram_bin_edges(x, 3), ([1.0, NAN],)),
    (np.digitize, ([1.0, 2, 3], [1.0, 3, 2])),
    (np.digitize, ([1.0, 2, 3], [3.0, 2, 1])),
    (np.digitize, ([1.0, 2, 3], [1.0, 2, 2])),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_values_that_numpy_refuses(case: int) -> None:
    function, args = REFUSED[case]
    _as_numpy(function, *args)


def test_what_no_result_needs_is_not_refused() -> None:
    assert eq.jit(lambda x: (np.nanargmax(x), x + 1)[1])(np.array([NAN])).shape == (1,)


def _written(x: Any, mask: Any) -> Any:
    x[mask] = 0
    return x


def test_errors_of_nothing_and_of_masks_are_numpys() -> None:
    with pytest.raises(IndexError):
        eq.jit(_written)(np.ones((2, 3)), np.ones(3, bool))
    for axis in (None, 0):
        with pytest.raises(IndexError):
            eq.jit(lambda x, axis=axis: np.quantile(x, 0.5, axis=axis))(np.zeros(0))


def test_decimals_beyond_all_powers() -> None:
    for decimals in (400, -400, 308):
        _as_numpy(lambda x, d=decimals: np.round(x, d), [1.5, 0.0, INF])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
@pytest.mark.parametrize("number", [0.5, np.float32(0.5), np.asarray(0.5), -0.5, 1.5])
def test_powers_of_one_half_are_roots_where_numpy_takes_roots(
    dtype: type[np.number], number: Any
) -> None:
    x = np.array([-np.inf, -0.0, 0.0, 4, -4, np.inf, np.nan])
    x = x.astype(dtype) if dtype is not np.int8 else np.array([-4, 0, 9], dtype)

    def signed(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y = np.power(x, number)
        return y, np.copysign(1, np.where(np.isnan(y), 1, y))

    for backend in BACKENDS:
        with np.errstate(all="ignore"):
            expected = signed(x)
            found = eq.jit(signed, backend=backend)(x)
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, 1e-6)
