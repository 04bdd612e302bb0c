"""Functions that write to their arguments, called without Python."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from entering import entered
from memory_use import needs_proc, resident

import eqsat as eq

Array = np.ndarray[Any, Any]


def add(x: Array, y: Array) -> Any:
    x += y


def add_and_sum(x: Array, y: Array) -> Any:
    x += y
    return x.sum(), y * 2, {"x": x}


def itself(x: Array, y: Array) -> Any:
    x[1:] = y[:-1]
    return x, x + 1, x


def both(x: Array, y: Array) -> Any:
    x[...], y[...] = y * 2, x + 1
    return y


FUNCTIONS: list[Callable[[Array, Array], Any]] = [add, add_and_sum, itself, both]
X, Y = np.arange(6.0), np.linspace(-1, 1, 6)


def alike(got: Any, want: Any, own: dict[int, int]) -> None:
    """Equal results, and the caller's arrays in the same places."""
    if isinstance(want, (tuple, dict)):
        assert type(got) is type(want) and len(got) == len(want)
        pairs = zip(want, got, strict=True)
        if isinstance(want, dict):
            pairs = ((want[k], got[k]) for k in want)
        for w, g in pairs:
            alike(g, w, own)
    elif want is not None:
        np.testing.assert_array_equal(got, want, strict=True)
        assert own.get(id(want), id(got)) == id(got)
        assert (id(want) in own) == (id(got) in own.values())
    else:
        assert got is None


def agrees(f: Any, x: Any, y: Any) -> None:
    """What ``f`` returns and writes is what its function does with NumPy."""
    x0, y0 = x.copy(), y.copy()
    want = f.fn(x0, y0)
    got = f(x, y)
    alike(got, want, {id(x0): id(x), id(y0): id(y)})
    np.testing.assert_array_equal(x, x0, strict=True)
    np.testing.assert_array_equal(y, y0, strict=True)


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_the_second_call_does_without_python(fn: Any) -> None:
    with entered() as backend:
        f = eq.jit(fn)
    agrees(f, X.copy(), Y.copy())
    assert backend.calls == (0, 1)
    for k in range(4):
        agrees(f, X * k, Y + k)
    assert backend.calls == (4, 0)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (2, 0, 3), (70_000,)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "?"])
def test_shapes_and_dtypes(shape: Any, dtype: str) -> None:
    def flip(x: Array, y: Array) -> Any:
        x[...] = np.where(y, x, y)
        return x, x.sum()

    f = eq.jit(flip)
    draw = np.random.default_rng(1)
    for _ in range(3):
        x, y = (np.array(draw.integers(0, 2, shape)).astype(dtype) for _ in range(2))
        agrees(f, x, y)


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_memory_that_is_shared_is_refused_as_in_the_first_call(fn: Any) -> None:
    f = eq.jit(fn)
    agrees(f, X.copy(), Y.copy())
    agrees(f, X.copy(), Y.copy())
    whole = np.arange(9.0)
    for x, y in ((whole[:6], whole[2:8]), (whole[3:], whole[:6]), (whole[:6],) * 2):
        with pytest.raises(eq.TraceError, match="share memory"):
            f(x, y)
        assert (whole == np.arange(9.0)).all()
    long = np.arange(12.0)
    agrees(f, long[:6], long[6:])  # side by side
    agrees(f, long[6:], long[:6])


def test_arrays_of_steps_that_lie_between_are_written() -> None:
    f = eq.jit(add)
    whole = np.arange(12.0)
    x, y = whole[::2], whole[1::2]
    for _ in range(3):
        agrees(f, x.copy(), y)
    assert len(f._entry) == 1  # an argument that is read may have steps
    for turn in range(1, 4):
        f(x, y)  # no element is shared
        np.testing.assert_array_equal(x, np.arange(0, 12, 2) + turn * y)
    for _ in range(3):
        agrees(f, np.asfortranarray(np.ones((3, 4))), np.ones((3, 4)))


def test_read_only_arrays_are_refused() -> None:
    f = eq.jit(add)
    agrees(f, X.copy(), Y.copy())
    x = X.copy()
    shown = x[:]
    shown.flags.writeable = False
    for frozen in (shown, np.frombuffer(bytes(48))):
        with pytest.raises(eq.EqsatError, match="read-only"):
            f(frozen, Y)
    assert (x == X).all()


def test_memory_that_the_function_reads_outside_is_refused() -> None:
    table = np.arange(8.0)
    large = np.arange(50_000.0)

    def fn(x: Array, y: Array) -> Any:
        x += table[:6] + y + large[:6]

    f = eq.jit(fn)
    for _ in range(3):
        agrees(f, X.copy(), Y.copy())
    for one in (table, large):
        with pytest.raises(eq.TraceError, match="shares memory"):
            f(one[2:8], Y)
    assert (table == np.arange(8.0)).all()


def test_a_constant_argument_is_not_written_over() -> None:
    f = eq.jit(add, constants=["y"])
    whole = np.arange(12.0)
    y = whole[6:]
    agrees_x = whole[:6]
    f(agrees_x, y)
    f(agrees_x, y)
    np.testing.assert_array_equal(agrees_x, np.arange(6) + 2 * y)
    with pytest.raises(eq.TraceError, match="share memory"):
        f(whole[1:7], y)


def test_nothing_is_written_where_an_error_is_raised() -> None:
    def fn(x: Array, places: Array) -> Any:
        x += 1
        x[:2] = np.take(x, places)

    f = eq.jit(fn)
    for _ in range(2):
        x = X.copy()
        f(x, np.array([3, 4]))
        np.testing.assert_array_equal(x, [4, 5, 3, 4, 5, 6])
        with pytest.raises(IndexError):
            f(x, np.array([3, 40]))
        np.testing.assert_array_equal(x, [4, 5, 3, 4, 5, 6])


def test_mapped_files_are_written(tmp_path: Any) -> None:
    place = tmp_path / "x"
    X.tofile(place)
    f = eq.jit(add)
    agrees(f, X.copy(), Y.copy())
    x = np.memmap(place, X.dtype, "r+")
    f(x, Y)
    f(x, Y)
    x.flush()
    np.testing.assert_array_equal(np.fromfile(place), X + Y + Y)


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_references_are_counted(fn: Any) -> None:
    f, x, y = eq.jit(fn), X.copy(), Y.copy()
    f(x, y), f(x, y)
    gc.collect()
    before = sys.getrefcount(x), sys.getrefcount(y), sys.getrefcount(None)
    for _ in range(200):
        f(x, y)
    gc.collect()
    after = sys.getrefcount(x), sys.getrefcount(y), sys.getrefcount(None)
    assert after[:2] == before[:2] and abs(after[2] - before[2]) < 100


@needs_proc
def test_memory_stays_as_it_is() -> None:
    f, x, y = eq.jit(itself), np.ones(4096), np.ones(4096)
    for _ in range(100):
        f(x, y)
    before = resident()
    for _ in range(20_000):
        f(x, y)
    assert resident() - before < 4 << 20
