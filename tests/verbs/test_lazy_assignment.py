"""Writing to lazy arrays: every name of the array sees it, what was computed before
keeps the old values. NumPy is the judge."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat as eq

X = np.arange(12.0).reshape(4, 3) - 5
MASK = X > 1
OPERATORS = "iadd isub imul itruediv ifloordiv imod ipow".split()

KEYS: list[tuple[Any, Any]] = [
    (0, 1),
    ((1, 2), 7.5),
    (slice(1, 3), [1, 2, 3]),
    ((..., -1), np.arange(4)),
    ((slice(None), slice(None, None, -1)), X * 2),
    ([2, 0, 2], [[1], [2], [3]]),
    (MASK, 0),
    (MASK, np.arange(MASK.sum())),
    (X[:, 0] > -3, [9.0, 8.0, 7.0]),
    ((None, slice(2)), 4),
    ((), 3),
    (..., X[0]),
]


@pytest.mark.parametrize("known", [True, False], ids=["known", "recorded"])
@pytest.mark.parametrize("lazy", [False, True], ids=["plain", "lazy"])
@pytest.mark.parametrize(("key", "value"), KEYS, ids=str)
def test_items_are_assigned_as_numpy_does(
    key: Any, value: Any, lazy: bool, known: bool
) -> None:
    want = X + 1
    x = other = eq.array(X) + 1
    before = x * 2
    if known:
        x.eval()
    arrays = lazy and isinstance(value, np.ndarray)
    x[eq.array(key) if lazy and key is MASK else key] = (
        eq.array(value) * 1 if arrays else value
    )
    want[key] = value
    for found in (x, other, x + 0, 0 + x, np.stack([x])[0], x.copy(), x[...]):
        np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(before, (X + 1) * 2)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_in_place_change_every_name(name: str) -> None:
    op: Callable[[Any, Any], Any] = getattr(operator, name)
    want, x = X.copy() ** 2, eq.array(X) ** 2
    other, before = x, x + 1
    for y in (3, abs(X[:1]) / 8 + 1, eq.array(abs(X)) / 8 + 1):
        assert op(x, y) is x
        op(want, np.asarray(y))
        np.testing.assert_allclose(np.asarray(other), want)
    np.testing.assert_array_equal(before, X**2 + 1)


def test_writes_follow_each_other() -> None:
    x, want = eq.array(X), X.copy()
    sums = []
    for i in range(4):
        for array in (x, want):
            array[i] += 1
            array *= 2
            array[array > 50] = 50
        sums.append(x.sum())
    np.testing.assert_array_equal(x, want)
    again, kept = X.copy(), []
    for i in range(4):
        again[i] += 1
        again *= 2
        again[again > 50] = 50
        kept.append(again.sum())
    np.testing.assert_array_equal(np.array(eq.evaluate(*sums)), kept)


def test_graphs_see_the_value_of_their_time() -> None:
    x = eq.array(X) * 1
    parts = []
    for i in range(4):
        parts.append(x + i)
        x[i] = 100 * i
    parts.append(x)
    want = X.copy()
    for i, part in enumerate(eq.evaluate(*parts)):
        np.testing.assert_array_equal(part, want + (i if i < 4 else 0))
        if i < 4:
            want[i] = 100 * i


def test_copies_and_what_numpy_views_are_arrays_of_their_own() -> None:
    x = eq.array(X) * 1
    made = [x.copy(), +x, copy.copy(x), copy.deepcopy(x), eq.array(x), x.astype(float)]
    made += [x[:], x.reshape(4, 3), pickle.loads(pickle.dumps(x)), np.copy(x)]
    x[...] = 0
    for m in made:
        np.testing.assert_array_equal(m, X)
        m[0] = 7
        assert np.asarray(m)[0].tolist() == [7.0] * 3
    assert not np.any(x)


def test_values_given_to_numpy_stay() -> None:
    x = eq.array(X)
    shown, source = x.eval(), X.copy()
    x[0], source[0] = 5, 6
    np.testing.assert_array_equal(shown, X)
    assert x[0].tolist() == [5.0] * 3


def test_numbers_are_no_arrays() -> None:
    total = other = eq.array(X).sum()
    total += 1
    assert float(total) == X.sum() + 1 and float(other) == X.sum()


def test_functions_take_what_was_written() -> None:
    x = eq.array(X)
    x[0] = 1
    want = X.copy()
    want[0] = 1
    np.testing.assert_array_equal(eq.jit(lambda a: a * 2)(x), want * 2)
    np.testing.assert_allclose(eq.grad(lambda a: (a * a).sum())(x), want * 2)
    np.testing.assert_allclose(eq.relu(x), np.maximum(want, 0))
    assert isinstance(x, eq.LazyArray) and hash(x) == hash(x)


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (lambda x: operator.setitem(x, 9, 1), IndexError),
        (lambda x: operator.setitem(x, 0, [1, 2]), (ValueError, eq.ShapeError)),
        (lambda x: operator.iadd(x, np.ones((2, 4, 3))), eq.ShapeError),
        (lambda x: operator.iadd(x.astype(int), 0.5), eq.DTypeError),
        (lambda x: np.copyto(x, 0), eq.TraceError),
        (lambda x: x.sort(), eq.TraceError),
    ],
)
def test_what_cannot_be_written(write: Any, error: Any) -> None:
    for x in (eq.array(X), eq.array(X) * 1):
        with pytest.raises(error):
            write(x)
        np.testing.assert_array_equal(x, X)


def test_parts_of_complex_numbers_are_not_written_in_silence() -> None:
    y = eq.array([3 + 1j, 1, 2])
    for name in ("real", "imag"):
        with pytest.raises(eq.TraceError, match=rf"x.{name} = y would change a lazy"):
            setattr(y, name, 9)
    assert np.asarray(y).tolist() == [3 + 1j, 1, 2]
    x = eq.array([1.0, 2.0])
    x.real = 9
    assert np.asarray(x).tolist() == [9, 9]

    def parts(z: np.ndarray) -> np.ndarray:
        z = z.copy()
        z.real = 9
        z.imag = [1, 2]
        return z

    z = np.array([3 + 1j, 4])
    assert eq.jit(parts)(z).tolist() == parts(z).tolist() == [9 + 1j, 9 + 2j]
