"""Recipes: calls that are spelled alike record alike, and no others do."""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from lazily import W, X

import eqsat as eq
from eqsat.lazy.recipes import RECIPES

V = np.arange(3.0)
CALLS: dict[str, Callable[[Any], Any]] = {
    "two": lambda x: x + x,
    "reflected": lambda x: 2.0 - x,
    "array": lambda x: x * V,
    "array from the left": lambda x: V - x,
    "method": lambda x: x.sum(-1),
    "method, named": lambda x: x.mean(axis=0, keepdims=True),
    "function": lambda x: np.sum(x, axis=(0, 1)),
    "nested": lambda x: np.concatenate([x, x + 1.0], axis=1),
    "ufunc": lambda x: np.tanh(x),
    "ufunc of two": lambda x: np.maximum(x, 0.25),
    "ufunc, named": lambda x: np.add(x, x, dtype=np.float64),
    "slices": lambda x: (x + 1)[1:, ::-1],
    "new axis": lambda x: (x + 1)[:, None, 0],
    "property": lambda x: (x + 1).T,
    "shape": lambda x: x.reshape(3, -1),
    "same shape": lambda x: x.reshape(4, 3),
    "op": lambda x: eq.softmax(x, axis=0),
    "cast": lambda x: x.astype(np.float64),
    "copy": lambda x: x.copy(),
    "power": lambda x: (x * x) ** 0.5,
    "unary": lambda x: abs(-x),
    "comparison": lambda x: x > 0.5,
    "truth": lambda x: ~(x > 0.5) & (x == x),
    "choice": lambda x: np.where(x > 0, x, 0),
    "several": lambda x: np.stack(np.split(x, 3, axis=1)),
    "in place": lambda x: operator.iadd(x, 1.5),
    "mask": lambda x: x[x > 0.5],
    "known index": lambda x: x[:, np.array([2, 0])],
    "real": lambda x: x.real,
    "scalar": lambda x: x * np.float32(1.5) + np.float64(2),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_recipe_gives_what_numpy_gives(name: str) -> None:
    call = CALLS[name]
    for data in (X, X * 2, X[:2].repeat(2, axis=0)):
        for _ in range(2):
            found, want = call(eq.array(data)), call(data.copy())
            assert (found.shape, found.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(np.asarray(found), want, rtol=3e-6)


def test_calls_of_one_spelling_share_a_recipe() -> None:
    made = np.tanh(eq.array(X)), np.tanh(eq.array(X * 2)), np.tanh(eq.array(X[:2]))
    assert made[0].recipe is made[1].recipe is not made[2].recipe


def test_numbers_that_are_equal_and_not_the_same() -> None:
    """``1 == 1.0 == True`` and ``0.0 == -0.0``, and what they record differs."""
    ints = np.array([3, -4], np.int32)
    for number in (1, 1.0, True, np.float32(1), np.int8(1), 0.0, -0.0, 0, False):
        for f in (operator.mul, operator.add, np.copysign, lambda x, n: n - x):
            found = np.asarray(f(eq.array(ints), number))
            want = f(ints, number)
            assert found.dtype == want.dtype and found.tobytes() == want.tobytes()


def test_one_array_twice_is_not_two_arrays() -> None:
    x, y = eq.array(X), eq.array(X * 3)
    pairs = itertools.product((x, y), repeat=2)
    for a, b in [*pairs, *itertools.product((x + 0, y + 0), repeat=2)]:
        np.testing.assert_array_equal(np.asarray(a - b), np.asarray(a) - np.asarray(b))
    once = x * 2.0
    np.testing.assert_array_equal(np.asarray(once - once), X * 0)
    np.testing.assert_array_equal(np.asarray(x * 2.0 - y * 2.0), X * 2 - X * 6)


def test_a_graph_that_shares_is_not_one_that_does_not() -> None:
    for _ in range(2):
        a, b = eq.array(X), eq.array(X + 1)
        shared = (a + b) * (a + a)
        apart = (a + b) * (b + a)
        np.testing.assert_allclose(np.asarray(shared), (X + X + 1) * (X + X), 1e-5)
        np.testing.assert_allclose(np.asarray(apart), (X + X + 1) * (X + 1 + X), 1e-5)


def test_what_depends_on_values_has_no_recipe() -> None:
    for scale in (1, -1):
        x = eq.array(X * scale) + 0
        np.testing.assert_array_equal(np.asarray(x[x > 0]), (X * scale)[X * scale > 0])
        data = X * scale
        assert np.array_equal(np.asarray(x), data)  # of the values


def test_errors_and_results_name_the_line_of_their_own_call() -> None:
    x = eq.array(X)
    np.tanh(x)
    line = sys._getframe().f_lineno + 1
    made = np.tanh(x)
    assert (made.term.source.file, made.term.source.line) == (__file__, line)
    for _ in range(2):
        with pytest.raises(eq.ShapeError) as error:
            x @ x
        assert f"{__file__}:{sys._getframe().f_lineno - 1}" in str(error.value)


def test_arrays_of_numpy_are_taken_as_they_are() -> None:
    w = W.copy()
    made = eq.array(X) @ w
    w[:] = 0
    np.testing.assert_allclose(np.asarray(made), X @ W, rtol=1e-5)


def test_recipes_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat.lazy.recipes._MOST", 5)
    x = eq.array(X)
    for i in range(30):
        x * (i + 0.125)
    assert len(RECIPES) <= 5


def test_values_that_are_known_end_what_was_recorded() -> None:
    x = eq.array(X)
    y = np.tanh(x) + 1
    z = y * 2
    y.eval()
    assert y.recipe is None and y.given == ()
    np.testing.assert_allclose(np.asarray(z), (np.tanh(X) + 1) * 2, rtol=1e-6)
