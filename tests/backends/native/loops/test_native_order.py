"""Rows in order as machine code: the elements and the positions that NumPy finds."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import program_of
from sizes import examples, some

import eqsat as eq
from eqsat import ops
from eqsat.backends.native import NativeProgram
from eqsat.backends.native.machine.processor import host
from eqsat.backends.native.sorting import library_sorts as native_order
from eqsat.backends.native.sorting import sort_networks

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [
    *map(np.dtype, ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")),
    *(np.dtype("f2"), BF16, np.dtype("f4"), np.dtype("f8")),
]
KINDS = ("quicksort", "stable", "heapsort", "mergesort")
rng = np.random.default_rng(11)


def drawn(shape: tuple[int, ...], dtype: Any, ties: bool) -> Any:
    """Elements with some that are equal and, of floats, NaN, ±0 and ±∞."""
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        x = rng.integers(ends.min, ends.max, shape, dtype, endpoint=True)
        return x % dtype.type(5) if ties else x
    x = (rng.standard_normal(shape) * (1 if ties else 1e3)).round(0 if ties else 6)
    special = [np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1e-40]
    at = rng.random(shape) < 0.3
    return np.where(at, rng.choice(special, shape), x).astype(dtype)


def lowered(f: Any, shape: tuple[int, ...], dtype: Any, threads: int) -> NativeProgram:
    low = NativeProgram(program_of(f, np.zeros(shape, dtype)), host(), threads)
    assert not low.reasons
    return low


def run(f: Any, x: Any, threads: int) -> Any:
    (found,) = lowered(f, x.shape, x.dtype, threads)(x)
    return found


def same(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype
    if found.dtype == BF16:  # of which NumPy tells no NaN
        found, expected = (a.astype(np.float32) for a in (found, expected))
    np.testing.assert_array_equal(found, expected)


def is_ordered(x: Any, found: Any, axis: int, stable: bool) -> bool:
    """Whether ``found`` are positions that put ``x`` in order, equal ones in theirs."""
    same = np.sort(found, axis) == np.expand_dims(
        np.arange(x.shape[axis]), [i for i in range(x.ndim) if i != axis % x.ndim]
    )
    values = np.take_along_axis(x, found, axis)
    by_numpy = ops.argsort(x, axis, "stable")
    if stable:
        return bool(np.array_equal(found, by_numpy))
    wanted = np.take_along_axis(x, by_numpy, axis)
    equal = np.array_equal(values, wanted, equal_nan=x.dtype.kind in "fV")
    return bool(same.all() and equal)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_of_every_dtype(dtype: Any, threads: int) -> None:
    assert dtype.name in native_order.dtypes()
    for shape, axis in (((700,), -1), ((40, 17), -1), ((33, 35), 0), ((3, 41, 2), 1)):
        sort = lowered(lambda x, axis=axis: ops.sort(x, axis), shape, dtype, threads)
        for ties in (False, True):
            x = drawn(shape, dtype, ties)
            (found,) = sort(x)
            same(found, ops.sort(x, axis))
    for kind in KINDS:
        for ties in (False, True):
            x = drawn((40, 19), dtype, ties)
            found = run(lambda x, kind=kind: ops.argsort(x, -1, kind), x, threads)
            assert found.dtype == np.int64
            assert is_ordered(x, found, -1, kind in ("stable", "mergesort"))


def test_networks_put_all_rows_of_bits_in_order() -> None:
    """The 0-1 principle: Knuth, The Art of Computer Programming, volume 3, 5.3.4."""
    for size in range(1, 17):
        rows = np.arange(1 << size)[:, None] >> np.arange(size) & 1
        for low, high in sort_networks.exchanges(size):
            a, b = rows[:, low].copy(), rows[:, high].copy()
            rows[:, low], rows[:, high] = np.minimum(a, b), np.maximum(a, b)
        assert (np.diff(rows, axis=1) >= 0).all()
    counts = {n: len([*sort_networks.exchanges(n)]) for n in (2, 4, 8, 16, 32)}
    assert counts == {2: 1, 4: 5, 8: 19, 16: 63, 32: 191}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_short_rows_in_vectors(dtype: Any) -> None:
    every = [
        *(((41, n), -1) for n in (1, 2, 3, 4, 8, 9, 12, 16, 32)),
        *(((n, 85), 0) for n in (2, 9, 13, 32)),
        *(((3, 9, 21), 1), ((5, 6, 3), 1), ((2, 4, 7, 18), 1), ((7, 4, 3, 5), 0)),
    ]
    for shape, axis in some(every, 4):
        x = drawn(shape, dtype, True)
        same(run(lambda x, axis=axis: ops.sort(x, axis), x, 2), ops.sort(x, axis))
        y = x.T
        found = run(lambda x, axis=axis: ops.sort(ops.transpose(x), -1 - axis), x, 1)
        same(found, ops.sort(y, -1 - axis))


@given(st.data())
@examples(40)
def test_rows_that_lie_anywhere(data: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=3)))
    dtype = data.draw(st.sampled_from(DTYPES))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    order = data.draw(st.permutations(range(len(shape))))
    step = data.draw(st.sampled_from([1, 2, -1]))
    x = drawn(shape, dtype, data.draw(st.booleans())).transpose(order)[::step]
    threads = data.draw(st.sampled_from([1, 2]))
    low = NativeProgram(program_of(lambda x: ops.sort(x, axis), x), host(), threads)
    same(low(x)[0], ops.sort(x, axis))
    low = NativeProgram(
        program_of(lambda x: ops.argsort(x.T, -1 - axis, "stable"), x), host(), threads
    )
    np.testing.assert_array_equal(low(x)[0], ops.argsort(x.T, -1 - axis, "stable"))


def test_sorts_of_what_is_computed_and_joined() -> None:
    x = drawn((30, 9), np.dtype("f4"), False)

    def f(x: Any) -> Any:
        y = ops.sort(ops.transpose(x) * 2.0, 0)
        return ops.concatenate([ops.sort(x, 0), ops.transpose(y)], 1) + 1.0

    joined = np.concatenate([np.sort(x, 0), np.sort(x * 2, 1)], 1) + 1
    for threads in (1, 2):
        np.testing.assert_array_equal(run(f, x, threads), joined)


@pytest.mark.parametrize("axis", [-1, 0, None])
def test_partitions(axis: int | None) -> None:
    x = drawn((12, 14), np.dtype("f4"), False)
    for kth in (3, -2, [0, 5]):
        made = eq.jit(lambda x, kth=kth: np.partition(x, kth, axis))(x)
        found = eq.jit(lambda x, kth=kth: np.argpartition(x, kth, axis))(x)
        flat, along = (x.ravel(), 0) if axis is None else (x, axis)
        np.testing.assert_array_equal(np.take_along_axis(flat, found, along), made)
        wanted, places = np.partition(x, kth, axis), np.ravel(kth)
        np.testing.assert_array_equal(
            made.take(places, along), wanted.take(places, along)
        )
    for kth in (14, -15, [0, 168]):
        with pytest.raises(eq.ShapeError, match="expected places"):
            eq.jit(lambda x, kth=kth: np.partition(x[:1], kth))(x)
