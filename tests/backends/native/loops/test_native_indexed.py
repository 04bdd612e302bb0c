"""Running results, elements at computed indices and integer powers in machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agreement import BF16
from families import (
    EXTREMES,
    TAKES,
    exact_running,
    integer_powers,
    power_arguments,
    running,
    running_sums,
    take_arguments,
    taken,
)
from hypothesis import given
from hypothesis import strategies as st
from natives import (
    DTYPES,
    INTEGERS,
    Array,
    called,
    fused,
    laid,
    layouts,
    lowered,
    mixed,
    natively,
    run,
    same_bits,
    threads,
)
from programs import program_of
from sizes import examples, seeds, some

import eqsat as eq
from eqsat import ops
from eqsat.backends.native.machine.processor import host
from eqsat.ops.position import take
from eqsat.ops.scan import cumprod, cumsum
from eqsat.support.options import Options

sizes = st.sampled_from([1, 2, 3, 7, 8, 9, 16, 17, 31, 33, 64, 130, 300])
shapes = st.one_of(
    st.tuples(sizes), st.tuples(st.integers(1, 5), sizes),
    st.tuples(sizes, st.integers(1, 5)), st.tuples(st.integers(1, 3), sizes, sizes),
)  # fmt: skip

# -- running results -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@examples(12)
@given(seeds, shapes, layouts, threads)
def test_running_results(
    dtype: Any, seed: int, shape: Any, layout: str, threads: int
) -> None:
    rng = np.random.default_rng(seed)
    x = laid(mixed(rng, shape, dtype), layout)
    names = exact_running(dtype)
    for axis in some(range(-len(shape), 0), 1, shape):
        f = running(names, axis)
        with np.errstate(all="ignore"):
            wanted = [a.astype(a.dtype) for a in f(x)]
        for name, g, w in zip(
            names, natively(f, x, threads=threads), wanted, strict=True
        ):
            same_bits(g, w, signs=name not in EXTREMES)


def errors(got: Array, x: Array, axis: int) -> Array:
    """Of running sums, in roundings of the running sums of magnitudes."""
    wide = x.astype(np.longdouble)
    unit = np.finfo(x.dtype).eps / 2
    size = np.cumsum(np.abs(wide), axis)
    return np.abs(got - np.cumsum(wide, axis)) / (unit * size)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [5, 16, 100, 1000, 20_000])
def test_running_sums_are_no_worse_than_numpys(dtype: str, n: int) -> None:
    """The mean square of their errors, if it is more than one."""
    rng = np.random.default_rng(n)
    for rows in (rng.standard_normal((30, n)), rng.random((30, n)) + 0.5):
        for x, axis in ((rows.astype(dtype), 1), (rows.T.astype(dtype).copy(), 0)):
            (got,) = natively(lambda v, a=axis: cumsum(v, a), x)
            ours, theirs = errors(got, x, axis), errors(np.cumsum(x, axis), x, axis)
            assert np.mean(ours**2) <= max(np.mean(theirs**2), 1)


@examples(25)
@given(seeds, shapes, st.sampled_from(["f4", "f8", "f2", BF16]), layouts)
def test_running_products_and_exact_sums_are_numpys(
    seed: int, shape: Any, dtype: Any, layout: str
) -> None:
    """One factor after the other: grouped ones overflow where these do not."""
    x = laid(mixed(np.random.default_rng(seed), shape, dtype), layout)
    for axis in range(-len(shape), 0):
        (got,) = natively(lambda v, a=axis: cumprod(v, a), x)
        with np.errstate(all="ignore"):
            same_bits(got, cumprod(x, axis))
    program = program_of(lambda v: cumsum(v, -1), x)
    (got,) = called(eq_exact(program), x)
    with np.errstate(all="ignore"):
        same_bits(got, cumsum(x, -1))


def eq_exact(program: Any) -> Any:
    """Native code that rounds each op as it is written."""
    from eqsat.backends.native import NativeProgram

    return NativeProgram(program, host(), 1, exact=True)


# Running results of every dtype run every time.
@pytest.mark.slow
@examples(20)
@given(seeds, st.sampled_from([(3, 50), (2, 5, 64), (300, 7), (5, 1)]), threads)
def test_running_sums_with_neighbours(seed: int, shape: Any, threads: int) -> None:
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    wide = x.astype(np.float64)
    for f in running_sums(shape):
        for g in (f, *([fused(f, 1)] if not isinstance(f(x), tuple) else [])):
            want = f(wide)
            want = want if isinstance(want, tuple) else (want,)
            for got, w in zip(natively(g, x, threads=threads), want, strict=True):
                scale = np.abs(w).max() + np.abs(wide).sum()
                np.testing.assert_allclose(got, w, rtol=2e-5, atol=1e-6 * scale)


def test_running_results_of_odd_ends() -> None:
    for x in ([np.inf, 1, -np.inf, 2], [1, np.nan, 2], [-0.0, -0.0, 0.0, -0.0], [-0.0]):
        for dtype in ("f4", "f8"):
            for n in (0, 7, 30):
                a = np.array([*x, *([1.0] * n)], dtype)
                with np.errstate(all="ignore"):
                    for g, w in (
                        (natively(lambda v: cumsum(v), a)[0], np.cumsum(a)),
                        (natively(lambda v: cumsum(v, 0), a[:, None])[0][:, 0],
                         np.cumsum(a)),
                    ):  # fmt: skip
                        same_bits(np.ascontiguousarray(g), w)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_running_sums_of_nothing(shape: Any) -> None:
    x = np.zeros(shape, np.float32)
    for axis in range(len(shape)):
        same_bits(natively(lambda v, a=axis: cumsum(v, a), x)[0], np.cumsum(x, axis))


# -- elements at computed indices ------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@examples(12)
@given(
    seeds, shapes, layouts, st.sampled_from([(), (1,), (5,), (33,), (2, 3)]), threads
)
def test_take(
    dtype: Any, seed: int, shape: Any, layout: str, many: Any, threads: int
) -> None:
    rng = np.random.default_rng(seed)
    x = laid(mixed(rng, shape, dtype), layout)
    for axis in range(-len(shape), 0):
        at = laid(taken(rng, x, axis, many), layout)
        (got,) = natively(lambda v, i, a=axis: take(v, i, a), x, at, threads=threads)
        same_bits(got, np.take(x, at, axis))


# Elements of every dtype are taken every time.
@pytest.mark.slow
@examples(25)
@given(seeds, threads)
def test_take_with_neighbours(seed: int, threads: int) -> None:
    given_ = take_arguments(np.random.default_rng(seed))
    for f in TAKES:
        want = f(*given_)
        want = want if isinstance(want, tuple) else (want,)
        for got, x in zip(natively(f, *given_, threads=threads), want, strict=True):
            np.testing.assert_allclose(got, x, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("bad", [7, -8, 2**62, -(2**62)])
def test_an_index_out_of_bounds_is_numpys_error(bad: int, threads: int) -> None:
    x = np.arange(7 * 5.0).reshape(7, 5).astype(np.float32)
    fs: list[Callable[[Any, Any], Any]] = [
        lambda v, i: take(v, i, 0),
        lambda v, i: take(v, i, 0)[:2] + 1,
        lambda v, i: ops.sum(take(v, i, 0)),
        lambda v, i: take(v * 2, i, 0) @ v.T,
        lambda v, i: np.exp(take(v, i, 0)).T + take(i, i * 0, 0),
    ]
    for f in fs:
        for many in (3, 4000):
            at = np.arange(many) % 7 - 3
            program = lowered(program_of(f, x, at), threads)
            assert not program.reasons
            fine = called(program, x, at)
            at[-1] = bad
            for _ in range(2):
                with pytest.raises(IndexError, match=f"index {bad} is out of bounds"):
                    program(x, at)
            at[-1] = 3
            for g, w in zip(called(program, x, at), fine, strict=True):
                assert g.shape == w.shape


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "u1"])
@pytest.mark.parametrize("bad", [3, 5, 100, -4, -6, -100])
def test_an_index_that_is_always_out_of_bounds_is_numpys_error(
    bad: int, dtype: str
) -> None:
    """Its limits are known, and none of it is an element."""
    if bad < 0 and dtype == "u1":
        return
    x, i = np.arange(12.0).reshape(3, 4), np.zeros(5, dtype)
    always = np.array(bad, dtype)
    fs: list[Callable[[Any, Any], Any]] = [
        lambda x, i: x[i * 0 + always],
        lambda x, i: np.take(x, np.maximum(np.minimum(i, always), always), 0) + 1,
        lambda x, i: x[(i * 0)[0] + always],
        lambda x, i: np.take_along_axis(x, (i[:3, None] * 0 + always), 0),
    ]
    for f in fs:
        with pytest.raises(IndexError):
            f(x, i)
        for backend in ("native", "numpy"):
            with pytest.raises(IndexError):
                eq.jit(f, backend=backend)(x, i)

    def adds(x: Any, i: Any) -> None:
        np.add.at(x, i * 0 + always, 1)

    def sets(x: Any, i: Any) -> None:
        x[i * 0 + always] = 1

    for f in (adds, sets):
        for backend in ("native", "numpy"):
            with pytest.raises(IndexError):
                eq.jit(f, backend=backend)(x, i)
            same_bits(x, np.arange(12.0).reshape(3, 4))


def test_a_jit_raises_it_from_every_entry() -> None:
    f = eq.jit(lambda v, i: np.take(v, i, axis=0) + 1, options=Options(threads=1))
    x, good, bad = np.ones((4, 3), np.float32), np.array([0, -1]), np.array([0, 4])
    same_bits(f(x, good), x[good] + 1)
    for _ in range(3):
        with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0"):
            f(x, bad)
        same_bits(f(x, good), x[good] + 1)
    for wrong in (np.array([-5]), np.array([4]), np.full(2, 4, np.uint64)):
        with pytest.raises(IndexError):
            f(x, wrong)


def test_nothing_is_taken_from_nothing() -> None:
    x, at = np.zeros((0, 3), np.float32), np.zeros(2, np.int64)
    got, _ = run(program_of(lambda v, i: take(v, i, 0), x, at[:0]), [x, at[:0]])
    assert got[0].shape == (0, 3)
    f = eq.jit(lambda v, i: np.take(v, i, axis=0))
    with pytest.raises(IndexError):
        f(x, at)


# -- integer powers --------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@examples(15)
@given(seeds, sizes, layouts)
def test_integer_powers_wrap(dtype: Any, seed: int, n: int, layout: str) -> None:
    rng, f = np.random.default_rng(seed), integer_powers
    x, y = (laid(a, layout) for a in power_arguments(rng, dtype, n))
    with np.errstate(all="ignore"):
        for g, w in zip(natively(f, x, y), f(x, y), strict=True):
            same_bits(g, w)


def test_a_negative_exponent_is_numpys_error() -> None:
    x = np.arange(1, 40)
    for f in (lambda a, b: a**b, lambda a, b: (a**b)[:3], lambda a, b: ops.sum(a**b)):
        program = lowered(program_of(f, x, x))
        assert not program.reasons
        called(program, x, x % 5)
        bad = x % 5
        bad[20] = -1
        with pytest.raises(ValueError, match="negative integer powers"):
            program(x, bad)
