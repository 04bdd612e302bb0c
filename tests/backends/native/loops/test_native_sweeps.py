"""Sweeps through memory in either direction: each unit once, and the same results."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pytest
from entering import loaded
from llvmlite import ir

import eqsat as eq
from eqsat.backends.native.loops import PTR, sweep_direction
from eqsat.backends.native.machine import COMMON, I64, Tuning
from eqsat.backends.native.math.vector_values import VOID
from eqsat.backends.native.runtime.shared_runtime import runtime
from eqsat.support.options import Options

MANY = 3 * COMMON.sweep_bytes // 4 + 13
"""Elements of float32 that are more than two threads hold."""


def function_of(write: Callable[..., ir.Value | None], result: ir.Type) -> Any:
    """A function of a pointer and five integers, ``program``."""
    module = ir.Module("test")
    function = ir.Function(
        module, ir.FunctionType(result, [PTR] + [I64] * 5), "program"
    )
    b = ir.IRBuilder(function.append_basic_block())
    found = write(b, *function.args)
    b.ret_void() if found is None else b.ret(found)
    kind = ctypes.CFUNCTYPE(
        None if found is None else ctypes.c_int64,
        ctypes.c_void_p,
        *[ctypes.c_int64] * 5,
    )
    library = loaded(str(module))
    return library, kind(library.address("program"))


@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("units", [1, 3, 8])
@pytest.mark.parametrize("span", [(0, 1), (0, 8), (5, 22), (7, 8), (4, 4)], ids=str)
def test_slices_are_all_units_once(
    units: int, span: tuple[int, int], back: int
) -> None:
    def write(b: Any, numbers: Any, start: Any, stop: Any, back: Any, *_: Any) -> None:
        def run(low: ir.Value, high: ir.Value) -> None:
            at = b.load(numbers, typ=I64)
            for value in (low, high):
                b.store(value, b.gep(numbers, [at], source_etype=I64))
                at = b.add(at, I64(1))
            b.store(at, numbers)

        sweep_direction.in_slices(b, units, (start, stop), back, run)

    library, function = function_of(write, VOID)
    numbers = np.zeros(64, np.int64)
    numbers[0] = 1
    function(numbers.ctypes.data, *span, back, 0, 0)
    ran = [(int(a), int(z)) for a, z in numbers[1 : numbers[0]].reshape(-1, 2)]
    start, stop = span
    cut = [(i, min(i + units, stop)) for i in range(start, stop, units)]
    assert ran == (cut[::-1] if back else cut)
    del library


@pytest.mark.parametrize("each", [1, 2, 5])
def test_parts_are_those_of_the_same_thread(each: int) -> None:
    def write(b: Any, _: Any, part: Any, back: Any, turn: Any, *__: Any) -> ir.Value:
        return sweep_direction.part_of(b, part, each, back, turn)

    library, function = function_of(write, I64)
    parts = range(3 * each)
    own = [function(None, p, 1, 7, 0, 0) for p in parts]
    assert own == [p // each * each + each - 1 - p % each for p in parts]
    assert [function(None, p, 0, 7, 0, 0) for p in parts] == [*parts]
    assert function(None, 0, 1, 0, 0, 0) == 0  # alone, with all in one part
    del library


def test_turns_say_the_direction() -> None:
    def write(b: Any, _: Any, turn: Any, wanted: Any, *__: Any) -> ir.Value:
        return sweep_direction.next_turn(b, turn, wanted)

    library, function = function_of(write, I64)
    for turn in (1, 2, 3, 1 << 40):
        for wanted in (0, 1):
            found = function(None, turn, wanted, 0, 0, 0)
            assert found in (turn, turn + 1) and found % 2 == wanted
    assert [function(None, 0, w, 0, 0, 0) for w in (0, 1)] == [0, 0]
    del library


def direction() -> int:
    """That of the next program which runs alone."""
    now = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    return int(now(runtime().address("sweep_now"))(0))


def scaled(x: Any) -> Any:
    return np.tanh(x) * 2


def test_large_arrays_are_swept_to_and_fro() -> None:
    f = eq.jit(scaled, options=Options(threads=1))
    for size, steps in ((MANY, 1), (1000, 0)):
        x = np.linspace(-3, 3, size, dtype=np.float32)
        f(x)
        seen = []
        for _ in range(4):
            seen.append(direction())
            f(x)
        turned = [(a + b) % 2 for a, b in pairwise(seen)]
        assert turned == [steps] * 3


def two_steps(x: Any) -> Any:
    return x - x.mean()


def rows(x: Any) -> Any:
    return eq.softmax(x[: x.size // 91 * 91].reshape(-1, 91))


def columns(x: Any) -> Any:
    return x[: x.size // 91 * 91].reshape(-1, 91).sum(0)


FUNCTIONS = {
    "map": scaled,
    "sum": lambda x: x.sum(),
    "variance": lambda x: x.var(),
    "maximum": lambda x: x.max(),
    "two steps": two_steps,
    "rows": rows,
    "columns": columns,
    "running": lambda x: np.cumsum(x[: x.size // 91 * 91].reshape(-1, 91), axis=1),
    "reversed": lambda x: x[::-1] * 2 + x,
    "in place": lambda x: (x + 1, x * 2),
}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_do_not_depend_on_the_direction(name: str, threads: int) -> None:
    x = np.random.default_rng(0).standard_normal(2 * MANY).astype(np.float32)
    with mock.patch.object(Tuning, "sweep_bytes", 1 << 60):
        still = eq.jit(FUNCTIONS[name], options=Options(threads=threads))
        want = still(x)
    f = eq.jit(lambda x: FUNCTIONS[name](x), options=Options(threads=threads))
    is_one_unit = threads == 1 and name == "two steps"
    if threads > 1 or name != "columns":  # one unit or several, by the width of vectors
        assert ("sweep_now" in f.lower(x).source("llvm")) != is_one_unit
    for _ in range(4):
        for got, w in zip(several(f(x)), several(want), strict=True):
            np.testing.assert_array_equal(got, w)


def several(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


# Sweeps in both directions run every time, and threads that call one function.
@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_several_python_threads(threads: int) -> None:
    x = np.random.default_rng(0).standard_normal(MANY).astype(np.float32)
    f = eq.jit(two_steps, options=Options(threads=threads))
    want = f(x)
    with ThreadPoolExecutor(6) as pool:
        for got in pool.map(f, [x] * 30):
            np.testing.assert_array_equal(got, want)


def test_one_thread_reduces_as_several_do() -> None:
    """To the bit; whole numbers, whose sums are exact, are added once each."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(MANY).astype(np.float32)
    whole = rng.integers(-8, 9, MANY).astype(np.float32)
    alone, shared = (
        eq.jit(lambda x: x.sum(), options=Options(threads=n)) for n in (1, 2)
    )
    assert alone(x) == shared(x)
    assert abs(float(alone(x)) - x.sum(dtype=np.float64)) <= 2.0**-24 * np.abs(x).sum()
    assert alone(whole) == shared(whole) == whole.sum(dtype=np.int64)


COLUMNS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(0),
    "maximum": lambda x: x.max(0),
    "variance": lambda x: x.var(0),
    "two": lambda x: (x.sum(0), x.min(0) * 2),
    "any": lambda x: (x > 3).any(0),
    "middle": lambda x: x.reshape(2, 1024, -1).sum(1),
    "product": lambda x: (1 + x / 1024).prod(0),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", COLUMNS)
def test_columns_in_parts(name: str) -> None:
    x = np.random.default_rng(0).standard_normal((2048, 512)).astype(np.float32)
    x[5, 7], x[9, 11] = np.nan, -np.inf
    f = eq.jit(COLUMNS[name], options=Options(threads=1))
    assert "chunk" in f.lower(x).source("llvm")
    with np.errstate(all="ignore"):
        want = COLUMNS[name](x.astype(np.float64))
    for _ in range(2):
        for got, w in zip(several(f(x)), several(want), strict=True):
            np.testing.assert_allclose(got, w, rtol=2e-6, atol=2e-5)
