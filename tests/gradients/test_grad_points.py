"""Derivatives where a careless formula has NaN, or 0 where there is a slope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as sp

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
    np.testing.assert_allclose(got, [np.log(0.5), np.log(2), 0, 0])
    np.testing.assert_array_equal(slopes(lambda y: sp.xlogy(np.zeros(4), y), y), 0)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
def test_empty_arrays_are_sorted(shape: tuple[int, ...]) -> None:
    for axis in range(len(shape)):
        got = slopes(lambda x, axis=axis: np.sort(x, axis), np.zeros(shape))
        assert got.shape == shape
