"""Vector mathematics of the native backend against exact results."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
from llvmlite import ir
from math_bounds import EXACT, LONG, bound
from sizes import is_whole, some

from bench.mathematics.ulp import (
    BINARY,
    BY_DIGITS,
    SCIPY,
    CompileTarget,
    all_floats,
    arguments,
    compiled,
    loop_text,
    reference,
    sample,
    ulps,
)
from eqsat.backends.native.math import FUNCTIONS, MathTarget
from eqsat.support.errors import BackendError
from eqsat.terms.op import Op

COUNT = 1 << (18 if is_whole() else 14)
DTYPES = ("float32", "float64")

both_dtypes = pytest.mark.parametrize("dtype", DTYPES)
every_function = pytest.mark.parametrize("name", FUNCTIONS)


def targets(dtype: str) -> list[tuple[CompileTarget, int]]:
    """This machine and one without its extensions, and the vector length there."""
    return [
        (CompileTarget.native(), 64 // np.dtype(dtype).itemsize),
        (CompileTarget.generic(), 4),
    ]


@both_dtypes
@every_function
def test_errors_of_samples(name: str, dtype: str) -> None:
    if dtype == "float64" and not LONG and name not in EXACT:
        pytest.skip("long double is no longer than float64 here")
    values = arguments(name, dtype, COUNT)
    wanted, size = reference(name, *values)
    few = name in SCIPY and dtype == "float64"
    assert values[0].size >= (BY_DIGITS if few else COUNT)
    for target, width in targets(dtype):
        got = compiled(name, len(values), dtype, width, target)(*values)
        errors = ulps(got, wanted, size)
        worst = int(errors.argmax())
        assert errors[worst] <= bound(name), (
            target.cpu,
            [v[worst] for v in values],
            f"got {got[worst]!r}, expected {wanted[worst]!r}",
        )


@pytest.mark.sampled(8)
@both_dtypes
@every_function
def test_every_width_and_neighbour_gives_the_same_bits(name: str, dtype: str) -> None:
    values = arguments(name, dtype, 1 << 13)
    as_bits = np.uint32 if dtype == "float32" else np.uint64
    for target, width in some(targets(dtype), 1):
        one, *others = (
            compiled(name, len(values), dtype, n, target)(*values)
            for n in ((1, 2, 4, 8, 16) if is_whole() else (1, 2, width))
        )
        for other in others:
            assert np.array_equal(np.isnan(one), np.isnan(other))
            number = ~np.isnan(one)
            assert np.array_equal(
                one[number].view(as_bits), other[number].view(as_bits)
            )


@both_dtypes
@pytest.mark.parametrize("name", BINARY)
def test_pairs_of_special_values(name: str, dtype: str) -> None:
    info = np.finfo(dtype)
    some = [0, 0.5, 1, 1.5, 2, 3, 4, 7, info.max, info.tiny, np.inf]
    some += [info.smallest_subnormal, 2.0**info.nmant, 2.0**info.nmant + 1]
    signed = [s * v for v in some for s in (1, -1)] + [np.nan]
    x, y = np.array(list(product(signed, signed)), dtype).T.copy()
    wanted, size = reference(name, x, y)
    for target, width in targets(dtype):
        got = compiled(name, 2, dtype, width, target)(x, y)
        errors = ulps(got, wanted, size)
        wrong = errors > bound(name)
        assert not wrong.any(), (x[wrong], y[wrong], got[wrong], wanted[wrong])


@pytest.mark.parametrize("name", ["exp", "log1p", "power", "sin", "hypot", "fmod"])
def test_what_is_not_relied_on_is_not_used(name: str) -> None:
    """Products and sums are not fused behind the back of code that counts on both."""
    here = CompileTarget.native()
    without = CompileTarget(here.cpu, here.features, MathTarget())
    values = arguments(name, "float64", 1 << 13)
    plain, elsewhere = (
        compiled(name, len(values), "float64", 4, target)(*values)
        for target in (without, CompileTarget.generic())
    )
    assert np.array_equal(plain, elsewhere, equal_nan=True)


@both_dtypes
def test_denormal_results_are_not_flushed(dtype: str) -> None:
    info = np.finfo(dtype)
    low = np.linspace(np.log(info.smallest_subnormal), np.log(info.tiny), 1000)
    for name in ("exp", "sigmoid"):
        for target, width in targets(dtype):
            got = compiled(name, 1, dtype, width, target)(low.astype(dtype))
            assert (got > 0).sum() > 990
            assert (got < info.tiny).sum() > 990


@both_dtypes
def test_exponentials_of_no_large_numbers_have_the_bits_of_all(dtype: str) -> None:
    """Of what is at most 40, infinities and NaN among it, and denormal results."""
    edges = [40.0, 0.0, -0.0, -np.inf, np.nan, -1e30, *np.linspace(-760, 40, 100_000)]
    (x,) = arguments("exp", dtype, COUNT)
    x = np.concatenate([x[~(x > 40)], np.linspace(-120, 40, 100_000), edges])
    x = x.astype(dtype)
    as_bits = np.uint32 if dtype == "float32" else np.uint64
    for target, width in targets(dtype):
        few, every = (
            compiled(name, 1, dtype, width, target)(x) for name in ("exp_below", "exp")
        )
        assert np.array_equal(np.isnan(few), np.isnan(x))
        is_number = ~np.isnan(x)
        assert np.array_equal(
            few[is_number].view(as_bits), every[is_number].view(as_bits)
        )


@both_dtypes
def test_slow_paths_of_angles_run_beside_fast_ones(dtype: str) -> None:
    x = np.tile(np.array([1, 1e30, 2, np.inf, 3, 5e7, -0.0, np.nan], dtype), 8)
    for name in ("sin", "cos", "tan"):
        wanted, _ = reference(name, x)
        for target, width in targets(dtype):
            got = compiled(name, 1, dtype, width, target)(x)
            assert ulps(got, wanted).max() <= bound(name)


@every_function
def test_no_fast_math_flag(name: str) -> None:
    text = loop_text(
        name, 2 if name in BINARY else 1, "float32", 8, MathTarget(True, True)
    )
    assert not re.search(r"\b(fast|nnan|ninf|nsz|arcp|contract|afn|reassoc)\b", text)


BRANCHING = {"cos", "floor_divide", "fmod", "gammaln", "remainder", "sin", "tan"}
"""Ops with a branch for rare arguments."""


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - BRANCHING))
def test_no_branch_and_no_call(name: str) -> None:
    text = loop_text(
        name, 2 if name in BINARY else 1, "float64", 4, MathTarget(True, True)
    )
    assert len(re.findall(r"^\S+:$", text, re.MULTILINE)) == 3
    called = set(re.findall(r"@\"?([\w.]+)\"?\(", text)) - {"loop"}
    assert {c for c in called if not c.startswith("llvm.")} == set()


def test_names_are_those_of_pointwise_ops() -> None:
    named = {name for name in FUNCTIONS if name != "normal_cdf"}
    assert {Op.registry[name].kind for name in named} == {"pointwise"}


def test_integers_are_refused_by_name() -> None:
    kind = ir.VectorType(ir.IntType(16), 8)
    function = ir.Function(ir.Module(), ir.FunctionType(kind, [kind]), "f")
    builder = ir.IRBuilder(function.append_basic_block())
    with pytest.raises(BackendError, match="<8 x i16>, expected float or double"):
        FUNCTIONS["exp"](builder, function.args[0], MathTarget())


def test_what_a_host_has() -> None:
    assert MathTarget.of({"fma": True, "sse4.1": True}, "x86_64") == MathTarget(
        True, True
    )
    assert MathTarget.of({"sse4.1": True}, "AMD64") == MathTarget(False, True)
    assert MathTarget.of({}, "x86_64") == MathTarget(False, False)
    assert MathTarget.of({}, "arm64") == MathTarget(True, True)


def test_units_in_the_last_place() -> None:
    tiny = np.finfo(np.float32).smallest_subnormal
    largest = np.finfo(np.float32).max
    inf, nan = np.inf, np.nan
    got = np.array([1, 1, tiny, -0.0, inf, inf, nan, 2, nan, largest], np.float32)
    exact_values = [1, 1 + 2.0**-23, 0, 0, inf, largest, nan, nan, 1, inf]
    errors = ulps(got, np.array(exact_values, np.float64))
    assert errors.tolist() == [0, 1, 1, inf, 0, 1, 0, inf, inf, inf]


def test_samples_cover_every_exponent() -> None:
    x = sample("float32", 1 << 14)
    assert np.unique(x[np.isfinite(x)].view(np.uint32) >> 23).size == 510
    assert np.isnan(x).any() and np.isinf(x).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - set(BINARY)))
def test_all_floats(name: str) -> None:
    runs = [compiled(name, 1, "float32", w, t) for t, w in targets("float32")]
    for x in all_floats():
        with np.errstate(all="ignore"):
            wanted, size = reference(name, x)
            # What is surely close enough needs no careful look.
            rounded = wanted.astype(np.float32)
            unit = np.spacing(np.abs(rounded if size is None else size))
            for run in runs:
                got = run(x)
                fine = np.abs(got - wanted) < 0.49 * bound(name) * unit
                fine &= wanted != 0
                fine |= got.view(np.uint32) == rounded.view(np.uint32)
                fine |= np.isnan(got) & np.isnan(wanted)
                sizes = None if size is None else size[~fine]
                errors = ulps(got[~fine], wanted[~fine], sizes)
                assert not errors.size or errors.max() <= bound(name), x[~fine][
                    errors.argmax()
                ]
