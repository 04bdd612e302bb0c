"""The pool of memory: never used twice at once, bounded, given back when asked."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from natives import run_in_child

import eqsat as eq
from eqsat.backends.native.machine import COMMON
from eqsat.backends.native.runtime import result_pool
from eqsat.backends.native.runtime.result_pool import fresh
from eqsat.backends.native.runtime.shared_runtime import is_available
from eqsat.kernels.backend import backend_named

pytestmark = pytest.mark.skipif(not is_available(), reason="objects lie otherwise")
F4, MANY = np.dtype(np.float32), COMMON.pooled_bytes


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    gc.collect()
    result_pool.release()
    yield
    result_pool.release()


def place(array: np.ndarray[Any, Any]) -> int:
    return int(array.ctypes.data)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (MANY,), (4, MANY), (2, 0, 3)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "?", "i2"])
def test_arrays_are_like_those_of_numpy(shape: tuple[int, ...], dtype: str) -> None:
    y, like = fresh(shape, np.dtype(dtype)), np.empty(shape, dtype)
    assert str(y.flags) == str(like.flags)
    assert (y.shape, y.strides, y.dtype) == (like.shape, like.strides, like.dtype)
    assert y.base is None


@pytest.mark.parametrize("nbytes", [MANY, MANY + 4, 10**6, 2**22, 2**22 + 12])
def test_large_arrays_start_on_a_cache_line(nbytes: int) -> None:
    held = [fresh((nbytes // 4,), F4) for _ in range(5)]
    assert all(place(y) % 64 == 0 for y in held)
    for i, y in enumerate(held):
        y[:] = i
    assert [float(y.min()) for y in held] == [0, 1, 2, 3, 4]


def test_results_of_both_ways_start_on_a_cache_line() -> None:
    f = eq.jit(lambda x: (x + 1, x * 2), backend="native")
    x = np.ones(MANY, np.float32)
    for _ in range(3):
        assert all(place(y) % 64 == 0 and y.flags.owndata for y in f(x))


def test_memory_is_used_again_when_nobody_looks_at_it() -> None:
    y = fresh((MANY,), F4)
    where = place(y)
    view: Any = y[3:][::2].T
    held = memoryview(view)
    del y, view
    others = [fresh((MANY,), F4) for _ in range(4)]
    assert where not in [place(o) for o in others]
    del held, others
    assert result_pool.kept_bytes() == 5 * 4 * MANY
    assert where in [place(o) for o in [fresh((MANY,), F4) for _ in range(5)]]


def test_a_block_serves_only_what_fills_most_of_it() -> None:
    y = fresh((10 * MANY,), F4)
    where = place(y)
    del y
    assert place(fresh((MANY,), F4)) != where
    assert place(fresh((9 * MANY,), F4)) == where


def test_no_more_is_kept_than_allowed() -> None:
    before = result_pool.limit(10 * 4 * MANY)
    try:
        held = [fresh((MANY,), F4) for _ in range(30)]
        del held
        assert result_pool.kept_bytes() == 10 * 4 * MANY
        large = fresh((11 * MANY,), F4)
        del large
        assert result_pool.kept_bytes() == 10 * 4 * MANY
        assert result_pool.limit(4 * MANY) == 10 * 4 * MANY
        assert result_pool.kept_bytes() == 4 * MANY
    finally:
        result_pool.limit(before)
    held = [fresh((MANY,), F4) for _ in range(300)]
    del held
    assert result_pool.kept_bytes() <= 64 * 4 * MANY


def test_memory_goes_back_when_asked() -> None:
    backend_named("native")
    y, z = fresh((MANY,), F4), fresh((MANY,), F4)
    z[:] = kept = np.arange(MANY)
    del y
    assert result_pool.kept_bytes() > 0
    eq.release_memory()
    assert result_pool.kept_bytes() == 0
    np.testing.assert_array_equal(z, kept)


def test_an_array_can_be_resized() -> None:
    y = fresh((MANY,), F4)
    y[:] = np.arange(MANY)
    y.resize(4 * MANY, refcheck=False)
    np.testing.assert_array_equal(y[:MANY], np.arange(MANY))
    y.resize(8, refcheck=False)
    np.testing.assert_array_equal(y, np.arange(8))


def test_tracemalloc_sees_it() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        y = fresh((16 * MANY,), F4)
        assert tracemalloc.get_traced_memory()[0] - before >= 64 * MANY
        del y
        assert tracemalloc.get_traced_memory()[0] - before < MANY
    finally:
        tracemalloc.stop()


def test_too_much_is_a_memory_error() -> None:
    y = fresh((MANY,), F4)
    del y
    with pytest.raises(MemoryError):
        fresh((2**60,), F4)
    assert result_pool.kept_bytes() == 0  # it was needed


def test_arrays_outlive_the_interpreter_s_modules() -> None:
    code = (
        "import sys, numpy as np, eqsat as eq\n"
        "x = np.ones(100_000, np.float32)\n"
        "f = eq.jit(lambda x: x + 1)\n"
        "sys.held = [f(x) for _ in range(5)]\n"
        "import builtins; builtins.held = f(x)\n"
    )
    assert run_in_child(code) == ""
