"""Reductions in machine code: exact ones against NumPy, sums against exact sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agreement import BF16, FLOATS
from families import (
    EXACT_REDUCTIONS,
    REDUCED,
    REDUCED_EMPTY,
    ROUNDED_REDUCTIONS,
    SUMMED,
    Shape,
    of_reductions,
    ordinary,
    positive,
    reduction,
    rows_of,
)
from hypothesis import given
from hypothesis import strategies as st
from natives import (
    DTYPES,
    Array,
    fused,
    laid,
    layouts,
    mixed,
    natively,
    near,
    same_bits,
    threads,
)
from sizes import examples, seeds, some

import eqsat as eq
from eqsat import ops
from eqsat.backends.native.machine import Tuning, host
from eqsat.terms.op import Op


@pytest.mark.parametrize("name", EXACT_REDUCTIONS)
@examples(6)
@given(seeds, st.sampled_from(REDUCED), layouts, threads)
def test_exact_reductions(
    name: str, seed: int, case: tuple[Shape, Shape], layout: str, threads: int
) -> None:
    op, rng = Op.registry[name], np.random.default_rng(seed)
    shape, axes = reduction(name, case)
    arrays = [laid(mixed(rng, shape, d), layout) for d in some(DTYPES, 5, seed)]
    got = natively(
        lambda *xs: tuple(op(x, axis=axes) for x in xs), *arrays, threads=threads
    )
    with np.errstate(all="ignore"):
        for g, x in zip(got, arrays, strict=True):
            same_bits(g, op.reference(x, axis=axes), signs=False)


@pytest.mark.parametrize("name", ["max", "min", "sum"])
@pytest.mark.parametrize("shape", [(9, 64), (70, 97), (200, 130)])
def test_nan_anywhere_in_a_column_is_seen(name: str, shape: Shape) -> None:
    """Columns are read some rows at a time; the last turn may have fewer."""
    m, n = shape
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    x[np.arange(m), np.arange(m) * 7 % n] = np.nan
    over: Callable[..., Any] = getattr(ops, name)
    (got,) = natively(lambda v: over(v, 0), x)
    same_bits(got, getattr(np, name)(x, axis=0))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["max", "min", "sum", "any"])
@pytest.mark.parametrize("far", ["", "one by one", "several at once"])
@examples(6)
@given(seeds, st.integers(8, 20), st.integers(64, 1200), threads)
def test_columns_of_any_number(
    name: str, far: str, seed: int, m: int, n: int, threads: int
) -> None:
    """Panels of them end at any column; from memory that no cache holds they are read
    one element at a time, or several, as the processor foresees."""
    rng, op = np.random.default_rng(seed), Op.registry[name]
    dtypes = [d for d in DTYPES if d not in FLOATS or name != "sum"]
    arrays = [mixed(rng, (m, n), d) for d in some(dtypes, 3, seed)]
    arrays += [rng.integers(-99, 99, (m, n)).astype(d) for d in ("f4", "f8")]
    with pytest.MonkeyPatch.context() as patch:
        if far:
            patch.setattr(Tuning, "far_bytes", 0)
        patch.setattr(type(host().tuning), "foresees_reads", far == "one by one")
        got = natively(
            lambda *xs: tuple(op(x, axis=(0,)) for x in xs), *arrays, threads=threads
        )
    with np.errstate(all="ignore"):
        for g, x in zip(got, arrays, strict=True):
            same_bits(g, op.reference(x, axis=(0,)), signs=False)


@pytest.mark.parametrize("name", ROUNDED_REDUCTIONS)
@examples(6)
@given(seeds, st.sampled_from(REDUCED), layouts)
def test_integers_wrap_and_odd_floats_meet(
    name: str, seed: int, case: tuple[Shape, Shape], layout: str
) -> None:
    """Integers and bools exactly; of floats NaN and infinities."""
    (shape, axes), op, rng = case, Op.registry[name], np.random.default_rng(seed)
    dtypes = [d for d in DTYPES if d in FLOATS or name != "mean"]
    arrays = [laid(mixed(rng, shape, d), layout) for d in some(dtypes, 5, seed)]
    for x in arrays:
        if x.dtype in FLOATS and x.flags.writeable:
            with np.errstate(all="ignore"):
                x[np.abs(x) > 1e3] = np.inf
                x[np.abs(x) < 1e-3] = 1
    got = natively(lambda *xs: tuple(op(x, axis=axes) for x in xs), *arrays)
    with np.errstate(all="ignore"):
        for g, x in zip(got, arrays, strict=True):
            want = op.reference(x, axis=axes)
            if x.dtype not in FLOATS:
                same_bits(g, want)
            elif name != "prod":
                odd = ~np.isfinite(want)
                same_bits(g[odd], want[odd])
                assert np.isfinite(g[~odd]).all()


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "any", "all"])
def test_of_nothing_a_reduction_is_its_neutral_element(name: str) -> None:
    op = Op.registry[name]
    for shape, axes in REDUCED_EMPTY:
        arrays = [np.zeros(shape, d) for d in DTYPES if d in FLOATS or name != "mean"]
        got = natively(lambda *xs, a=axes: tuple(op(x, axis=a) for x in xs), *arrays)
        for g, x in zip(got, arrays, strict=True):
            with np.errstate(all="ignore"):
                same_bits(g, op.reference(x, axis=axes))


# -- positions -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@examples(25)
@given(
    seeds,
    st.sampled_from(
        [
            (1, 200),
            (3, 70),
            (5, 64),
            (7, 511),
            (200, 5),
            (4, 33, 6),
            (70_001,),
            (2, 40_000),
        ]
    ),
    st.sampled_from(["f4", "f8", "f2", "i1", "i4", "u4", "i8", "u8"]),
    threads,
)
def test_the_first_of_equals_is_chosen(
    name: str, seed: int, shape: Shape, dtype: str, threads: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, shape).astype(dtype)
    y = x.copy()
    if y.dtype.kind == "f":
        y.flat[rng.integers(0, x.size, 3)] = np.nan
    z = np.full(shape, np.inf if y.dtype.kind == "f" else np.iinfo(dtype).max, dtype)
    low = -z if y.dtype.kind == "f" else np.full(shape, np.iinfo(dtype).min, dtype)
    axis = int(rng.integers(-len(shape), 0))
    find: Callable[..., Any] = getattr(ops, name)
    f = lambda *xs: tuple(find(x, a) for x in xs for a in (axis, None))  # noqa: E731
    arrays = [x, y, z, low]
    for g, w in zip(natively(f, *arrays, threads=threads), f(*arrays), strict=True):
        same_bits(np.asarray(g), w)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("n", [1, 131])
@pytest.mark.parametrize("layout", ["packed", "fortran", "reversed", "broadcast"])
def test_positions_of_every_dtype_and_layout(layout: str, n: int) -> None:
    rng = np.random.default_rng(n)
    arrays = [laid(mixed(rng, (3, 2, n), d), layout) for d in some(DTYPES, 2)]
    for find in (ops.argmax, ops.argmin):

        def f(*xs: Any, find: Any = find) -> tuple[Any, ...]:
            return tuple(find(x, a) for x in xs for a in (0, 1, 2, None))

        for g, w in zip(natively(f, *arrays), f(*arrays), strict=True):
            same_bits(np.asarray(g), w)


# -- sums ------------------------------------------------------------------------------

UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}
ROUNDINGS = 24
"""Of a partial sum of 16, and of joining 64 lanes and 4 parts; carrying adds none."""
LENGTHS = (1, 2, 3, 7, 8, 9, 31, 64, 100, 257, 1000, 4097, 65_536, 70_001, 10**6)


def summed(x: Array, threads: int, axis: int, fuse: bool = False) -> Array:
    """The sums of :func:`rows_of` ``x``."""
    rows = rows_of(x, axis)
    f: Any = lambda v: ops.sum(v, None if axis == 9 else axis)  # noqa: E731
    (got,) = natively(fused(f, 1) if fuse else f, rows, threads=threads)
    return np.ravel(got)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", SUMMED, ids=lambda k: k.__name__)
@examples(6)
@given(seeds, st.sampled_from(LENGTHS[:-1]), threads, st.sampled_from([-1, 0, 1, 9]))
def test_errors_of_sums_do_not_grow(
    kind: Any, dtype: str, seed: int, n: int, threads: int, axis: int
) -> None:
    as_dtype = BF16 if dtype == "bfloat16" else np.dtype(dtype)
    with np.errstate(all="ignore"):
        x = kind(np.random.default_rng(seed), n).astype(as_dtype)
    if dtype == "float16":
        x = np.clip(x, -0.5, 0.5).astype(as_dtype)
    got = summed(x, threads, axis)
    wide = x.astype(np.float64)
    unit = UNIT.get(dtype, UNIT["float32"])
    error = ROUNDINGS * unit * math.fsum(np.abs(wide))
    wanted = np.array([math.fsum(wide)] * got.size, np.longdouble)
    flipped = got.copy()
    if axis != 9:
        flipped[1::3] = -flipped[1::3]
    near(flipped, wanted, error)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_errors_of_a_million(dtype: str, threads: int) -> None:
    for kind in SUMMED:
        x = kind(np.random.default_rng(0), 10**6).astype(dtype)
        for axis in (-1, 0, 1, 9):
            got = summed(x, threads, axis)[0]
            error = ROUNDINGS * UNIT[dtype] * math.fsum(np.abs(x.astype(float)))
            assert abs(float(got) - math.fsum(x.astype(float))) <= error


@pytest.mark.parametrize("n", [8, 31, 64, 257, 4097, 20_000])
@pytest.mark.parametrize("kind", [ordinary, positive], ids=lambda k: k.__name__)
def test_sums_are_no_worse_than_numpys(kind: Any, n: int) -> None:
    """The mean square of errors in roundings of Σ|x|, if it is more than one."""
    rng = np.random.default_rng(3)
    rows = np.stack([kind(rng, n) for _ in range(60)]).astype(np.float32)
    wide = rows.astype(np.float64)
    exact = np.array([math.fsum(r) for r in wide])
    size = UNIT["float32"] * np.abs(wide).sum(1)

    def error(sums: Array) -> float:
        return float(np.sqrt(np.mean(((sums - exact) / size) ** 2)))

    for x, axis in ((rows, 1), (rows.T.copy(), 0)):
        (got,) = natively(lambda v, a=axis: ops.sum(v, a), x)
        assert error(got) <= max(error(np.sum(x, axis)), 1)


@examples(20)
@given(seeds, st.integers(1, 300), st.sampled_from(["f4", "f8"]), st.booleans())
def test_products(seed: int, n: int, dtype: str, first: bool) -> None:
    x = np.random.default_rng(seed).uniform(0.9, 1.1, (n, 3)).astype(dtype)
    (got,) = natively(lambda v: ops.prod(v, 0 if first else 1), x)
    want = np.prod(x.astype(np.longdouble), 0 if first else 1)
    count = n if first else 3
    near(got, want, count * UNIT[x.dtype.name] * want)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("n", [7, 300, 70_000])
@pytest.mark.parametrize("threads", [1, 8])
def test_sums_that_are_infinite_or_nan(n: int, threads: int) -> None:
    for odd, want in (
        ((np.inf,), np.inf),
        ((-np.inf,), -np.inf),
        ((np.inf, -np.inf), np.nan),
        ((np.nan, np.inf), np.nan),
        ((3e38, 3e38), np.inf),
    ):
        for place in (0, n // 2, n - len(odd)):
            x = np.ones(n, np.float32)
            x[place : place + len(odd)] = odd
            for g in natively(
                lambda v: (ops.sum(v), ops.sum(v[:, None] * 1.0, 0)), x, threads=threads
            ):
                same_bits(np.ravel(g), np.float32([want]))


# -- several in one kernel -------------------------------------------------------------


@examples(20)
@given(seeds, st.sampled_from([(3, 50), (2, 5, 64), (1, 70_000), (300, 7)]), threads)
def test_rows_with_reductions_of_reductions(
    seed: int, shape: Shape, threads: int
) -> None:
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    (got,) = natively(fused(of_reductions, 1), x, threads=threads)
    wide = of_reductions(x.astype(np.float64))
    near(got, wide, 64 * UNIT["float32"] * np.abs(wide).max())


def less(x: Array, y: Array) -> Array:
    return np.exp(x - np.max(y, axis=-1, keepdims=True))


LESS: dict[str, tuple[Callable[..., Any], bool]] = {
    "the largest of all": (lambda x: less(x, x), True),
    "of columns": (lambda x: np.exp(x - np.max(x, axis=0)), True),
    "of scaled ones": (lambda x: np.sum(less(x * 3, x * 3), axis=-1), True),
    "of others": (lambda x: less(x, x * 0.5), False),
    "of larger ones": (lambda x: less(x * 2, x), False),
    "the smallest": (lambda x: np.exp(x - np.min(x, axis=-1, keepdims=True)), False),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", LESS)
def test_exponentials_of_elements_less_the_largest(name: str, dtype: str) -> None:
    """Whether or not the code may count on that none of the differences is large."""
    f, is_bounded = LESS[name]
    x = np.random.default_rng(0).normal(size=(40, 70)) * 30
    x[3], x[5, 2], x[7, 3], x[9, 1], x[:, 4] = -np.inf, np.nan, np.inf, -np.inf, 90.0
    x = x.astype(BF16 if dtype == "bfloat16" else dtype)
    run = fused(f, 1)
    if dtype in UNIT:
        text = eq.jit(run, options=eq.Options(threads=1)).lower(x).source("llvm")
        assert ("exp_below" in text) == is_bounded
    with np.errstate(all="ignore"):
        want = f(x.astype(np.float64)).astype(x.dtype)
    tolerance = {"float32": 1e-5, "float64": 1e-12}.get(dtype, 0.15)
    (got,) = natively(run, x)
    assert got.dtype == x.dtype
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), tolerance, 1e-30
    )
