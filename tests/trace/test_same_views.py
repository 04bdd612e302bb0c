"""Views that show all of an array are arrays of their own, and orders in memory are
those of the arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat as eq

A = np.arange(12.0).reshape(3, 4)

WAYS: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: x.view(),
    "x[:]": lambda x: x[:],
    "x[...]": lambda x: x[...],
    "x[0:3]": lambda x: x[0:3],
    "reshape": lambda x: x.reshape(3, 4),
    "transpose": lambda x: x.transpose(0, 1),
    "swapaxes": lambda x: x.swapaxes(0, 0),
    "split": lambda x: np.split(x, 1)[0],
    "moveaxis": lambda x: np.moveaxis(x, 0, 0),
    "flip": lambda x: np.flip(x, ()),
    "twice turned": lambda x: x.T.T,
    "asarray": lambda x: np.asarray(x),  # as it is found while tracing
    "squeeze": lambda x: np.squeeze(x),
    "atleast_2d": lambda x: np.atleast_2d(x),
    "real": lambda x: x.real,
    "astype": lambda x: x.astype(float, copy=False),
}
STARTS: dict[str, Callable[[Any], Any]] = {
    "computed": lambda a: a + 1,
    "copied": lambda a: a.copy(),
    "made": lambda a: np.zeros((3, 4)) + a,
}


def reshaped(x: Any, y: Any) -> Any:
    y.shape = (12,)
    return x.sum(0)


def told_apart(x: Any, y: Any) -> Any:
    if y is x:
        y = y.copy()
    y[0] = 9
    return x * 2


def written(x: Any, y: Any) -> Any:
    y[0] = 7
    x[1] = 3
    return x + y


@pytest.mark.sampled(4)
@pytest.mark.parametrize("use", [reshaped, told_apart, written])
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("way", WAYS)
def test_what_shows_all_is_as_numpys(way: str, start: str, use: Any) -> None:
    def f(a: Any) -> Any:
        x = STARTS[start](a)
        return use(x, WAYS[way](x))

    np.testing.assert_array_equal(eq.jit(f)(A), f(A))


@pytest.mark.parametrize("way", ["view", "x[:]", "reshape", "transpose", "split"])
def test_the_shape_of_a_view_of_an_argument_may_change(way: str) -> None:
    def f(x: Any) -> Any:
        y = WAYS[way](x)
        y.shape = (12,)
        return y * x.shape[0]

    np.testing.assert_array_equal(eq.jit(f)(A), f(A))


@pytest.mark.parametrize(
    "way",
    [lambda x: x.T, lambda x: x[:, :2], lambda x: x.T[1:], lambda x: x[::-1, ::-1].T],
)
def test_the_shape_of_a_view_of_something_computed_may_not_change(way: Any) -> None:
    def f(x: Any) -> Any:
        y = way(x + 1)
        y.shape = (y.size,)
        return y

    for g in (f, eq.jit(f)):
        with pytest.raises(AttributeError):
            g(A)


def test_rows_of_something_computed_may_take_another_shape() -> None:
    def f(x: Any) -> Any:
        y = (x + 1)[1:]
        y.shape = (y.size,)
        z = (x * 2).T.T
        z.shape = (2, -1)
        return y, z

    for found, want in zip(eq.jit(f)(A), f(A), strict=True):
        np.testing.assert_array_equal(found, want)


BASE = np.arange(24.0).reshape(2, 3, 4)
LYING = [
    BASE,
    np.asfortranarray(BASE),
    BASE.transpose(1, 0, 2),
    BASE[:, ::-1],
    BASE[:, ::2],
    BASE.transpose(2, 0, 1)[::-1],
    BASE[0].T,
    np.arange(6.0).reshape(1, 6),
    np.arange(5.0)[::-1],
]
ORDERED: dict[str, Callable[[Any], Any]] = {
    "ravel K": lambda x: x.ravel("K"),
    "ravel A": lambda x: x.ravel("A"),
    "np.ravel K": lambda x: np.ravel(x, "K"),
    "flatten K": lambda x: x.flatten("K"),
    "flatten A": lambda x: x.flatten(order="A"),
    "reshape A": lambda x: np.reshape(x, -1, order="A"),
    "turned": lambda x: x.T.ravel("K"),
    "reversed": lambda x: x[..., ::-1].ravel("K"),
    "in columns": lambda x: np.zeros(x.shape, order="F").ravel("K") + x.ravel("F"),
}


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("name", ORDERED)
def test_orders_in_memory(name: str, backend: str) -> None:
    f = ORDERED[name]
    compiled = eq.jit(f, backend)
    for x in (*LYING, *LYING):
        np.testing.assert_array_equal(compiled(x), f(x))


def test_an_order_that_is_not_known_is_refused() -> None:
    with pytest.raises(eq.TraceError, match=r"np.ravel: order='K' asks for the order"):
        eq.jit(lambda x: (x + 1).ravel("K"))(BASE)
    with pytest.raises(
        ValueError, match=r"np.reshape: order='K', expected 'C', 'F' or 'A'"
    ):
        eq.jit(lambda x: x.reshape(-1, order="K"))(BASE)


def joined_first(x: Any) -> Any:
    y = np.atleast_1d(x, x)[1]
    z = y[:]
    z *= 2
    x += 10
    return x, y


def apart(x: Any) -> Any:
    a, b = np.atleast_1d(x, x + 5)
    b += 1
    return a, b


def copied(x: Any) -> Any:
    y = x.reshape(x.shape, copy=True)
    y[0] = 7
    return x, y


def row(x: Any) -> Any:
    y = x.ravel() * 2
    z = y[:]
    w = y.ravel("K")
    w[0] = 9
    return y, z


def turned(x: Any) -> Any:
    y = x * 2
    z = np.rot90(y, 4)
    z.shape = z.shape[::-1]
    return y


def with_a_number(x: Any) -> Any:
    return np.atleast_2d(x, 1.0)[1] + x


@pytest.mark.parametrize("f", [joined_first, apart, copied, row, turned, with_a_number])
def test_arrays_of_their_own_are_not_written_to(f: Any) -> None:
    mine, theirs = A.copy(), A.copy()
    got, want = eq.jit(f)(mine), f(theirs)
    for g, w in zip(
        got if isinstance(got, tuple) else [got],
        want if isinstance(want, tuple) else [want],
        strict=True,
    ):
        np.testing.assert_array_equal(g, w)
    np.testing.assert_array_equal(mine, theirs)


def test_views_of_all_take_no_time() -> None:
    """Each is as far from its memory as the one before it."""

    def f(x: Any) -> Any:
        h = x * 0
        for _ in range(30):
            h = h[:].reshape(h.shape)
            h *= 0.5
            h += x
        assert not h.path
        return h

    x = np.ones(4)
    with pytest.raises(AttributeError):  # an array of NumPy has no path
        f(x)
    eq.jit(f)(x)


@pytest.mark.parametrize("order", ["A", "K"])
def test_orders_of_arrays_with_gaps_and_of_repeated_ones(order: Any) -> None:
    gaps = np.arange(16.0).reshape(4, 4)[::2, ::2]
    columns = np.asfortranarray(np.arange(16.0).reshape(4, 4))[::2]
    rows = np.broadcast_to(np.arange(3.0), (2, 3))
    middle = np.broadcast_to(np.arange(6.0).reshape(2, 1, 3), (2, 4, 3))
    for x in (gaps, gaps.T, columns, columns.T, rows, rows.T, middle, middle.T):
        for g in (
            lambda x: x.ravel(order),
            lambda x: x.T.flatten(order),
            lambda x: np.broadcast_to(x, (2, *x.shape)).ravel(order),
        ):
            np.testing.assert_array_equal(eq.jit(g)(x), g(x))
