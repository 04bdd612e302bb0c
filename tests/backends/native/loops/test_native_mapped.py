"""Products by constants in few bits, which stay so in memory, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from layers import GROUPS, by_groups, nibbles, quantised, whole
from natives import Array, laid, near
from programs import program_of
from sizes import examples

import eqsat as eq
from eqsat.backends.loop_ir.index_maps import (
    Affine,
    LoopVar,
    reshape_index,
)
from eqsat.backends.native.lower import CompiledProgram, _layout
from eqsat.backends.native.machine.processor import host

F32 = np.dtype("f4")
UNIT = 2.0**-24
ROWS = (1, 2, 3, 4, 5, 8, 9, 33, 70)
COLUMNS = (1, 7, 16, 17, 48, 49, 64, 100, 130)


def compiled(f: Any, x: Array, constants: Any, threads: int = 1) -> CompiledProgram:
    program = program_of(f, x, constants=constants)
    return CompiledProgram(program, [_layout(x)], host(None, "own"), threads)


def right(f: Any, x: Array, constants: Any, got: Array) -> None:
    """``got`` is right within the roundings of its inner axis and of the weights."""
    identity = np.eye(x.shape[-1])
    wide = [c if c.dtype.kind in "iu" else c.astype(np.float64) for c in constants]
    y = f(identity, *wide).astype(np.float64)
    bound = (x.shape[-1] + 4) * UNIT * (np.abs(x).astype(np.float64) @ np.abs(y))
    near(got, x.astype(np.float64) @ y, bound)


@examples(60)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([4, 8]),
    st.sampled_from(ROWS),
    st.sampled_from(COLUMNS),
    st.sampled_from(GROUPS),
    st.sampled_from(["packed", "fortran", "window", "strided"]),
    st.sampled_from([1, 3]),
)
@example(0, 8, 33, 100, (9, 130), "fortran", 3)
@example(0, 4, 1, 130, (4, 128), "packed", 3)
@example(0, 8, 2, 1, (1, 32), "packed", 3)
def test_groups_of_few_bits(
    seed: int,
    bits: int,
    m: int,
    n: int,
    groups: tuple[int, int],
    order: str,
    threads: int,
) -> None:
    rng = np.random.default_rng(seed)
    constants = quantised(rng, bits, *groups, n)
    x = laid(rng.standard_normal((m, groups[0] * groups[1])).astype(F32), order)
    f = nibbles if bits == 4 else by_groups
    made = compiled(f, x, constants, threads)
    (got,) = made.run([x])
    right(f, x, constants, got)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_constants_stay_in_few_bits(bits: int, rows: int) -> None:
    rng = np.random.default_rng(0)
    constants = quantised(rng, bits, 4, 128, 96)
    x = rng.standard_normal((rows, 512)).astype(F32)
    made = compiled(nibbles if bits == 4 else by_groups, x, constants)
    held = sum(a.nbytes for a in made.places.constants)
    assert made.deferred == (0,) and held < 1.3 * sum(a.nbytes for a in constants)


@pytest.mark.parametrize("m", [1, 4, 6, 50])
def test_integers_shifted_before_they_are_floats(m: int) -> None:
    rng = np.random.default_rng(m)
    constants = quantised(rng, 8, 1, 64, 80)
    x = rng.standard_normal((m, 64)).astype(F32)
    made = compiled(whole, x, constants)
    (got,) = made.run([x])
    assert made.deferred == (0,)
    right(whole, x, constants, got)


@pytest.mark.parametrize("m", [1, 4, 40])
@pytest.mark.parametrize("kind", ["f2", "bfloat16"])
def test_halves_are_read_as_they_are_for_few_rows(m: int, kind: str) -> None:
    import ml_dtypes

    half = np.dtype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind)
    rng = np.random.default_rng(m)
    x = rng.standard_normal((m, 96)).astype(F32)
    y = rng.standard_normal((96, 50)).astype(half)
    made = compiled(lambda x, y: x @ y.astype(np.float32), x, [y])
    (got,) = made.run([x])
    assert made.deferred == ((0,) if m <= 16 else ())
    bound = 97 * UNIT * (np.abs(x) @ np.abs(y.astype(np.float64)))
    near(got, x.astype(np.float64) @ y.astype(np.float64), bound)


def test_what_else_reads_a_constant_keeps_it_whole() -> None:
    rng = np.random.default_rng(0)
    q, x = rng.integers(-9, 9, (32, 32), np.int8), rng.random((5, 32), np.float32)
    for f in (
        lambda x, q: (x @ (q * np.float32(0.5)), q * np.float32(0.5)),
        lambda x, q: (q * np.float32(0.5)) @ x.T,
        lambda x, q: x @ (q * np.float32(0.5)).cumsum(0),
    ):
        made = compiled(f, x, [q])
        want = f(x, q)
        got = made.run([x])
        assert made.deferred == ()
        for a, b in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
            np.testing.assert_allclose(a, b, 1e-5, 1e-4)


@pytest.mark.parametrize("rows", [1, 20])
def test_batches_and_what_follows(rows: int) -> None:
    rng = np.random.default_rng(0)
    constants = quantised(rng, 8, 2, 64, 60)
    x = rng.standard_normal((3, rows, 128)).astype(F32)

    def f(x: Any, *w: Any) -> Any:
        return np.maximum(by_groups(x, *w) + 1, 0)

    for threads in (1, 3):
        (got,) = compiled(f, x, constants, threads).run([x])
        y = by_groups(np.eye(128), *constants)
        want = np.maximum(x.astype(np.float64) @ y + 1, 0)
        np.testing.assert_allclose(got, want, 1e-4, 0.1)


def test_programs_from_disk_compute_their_own_constants(kept: list[str]) -> None:
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        constants = quantised(rng, 4, 2, 32, 40)
        x = rng.standard_normal((6, 64)).astype(F32)
        made = compiled(nibbles, x, constants)
        assert made.deferred == (0,)
        (got,) = made.run([x])
        right(nibbles, x, constants, got)
    assert len(kept) == 1


def test_a_known_row_of_a_block_is_a_digit() -> None:
    block = Affine.of(LoopVar("k", 8))
    index = reshape_index((block.times(4) + Affine(3),), (32,), (16, 2))
    assert [str(e) for e in index] == ["2 k + 1", "1"]


@examples(60)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(ROWS),
    st.sampled_from(COLUMNS),
    st.sampled_from([1, 2, 3, 16, 96, 301, 600, 1026, 2500]),
    st.booleans(),
    st.sampled_from([1, 3]),
)
@example(0, 70, 100, 2500, True, 3)
def test_bfloat16_are_multiplied_in_pairs(
    seed: int, m: int, n: int, k: int, is_cast: bool, threads: int
) -> None:
    import ml_dtypes

    rng = np.random.default_rng(seed)
    x, y = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), (k, n)))

    def f(x: Any, y: Any) -> Any:
        return x.astype(F32) @ y.astype(F32) if is_cast else x @ y

    made = compiled(f, x, [y], threads)
    (got,) = made.run([x])
    wide, other = x.astype(np.float64), y.astype(np.float64)
    assert got.dtype == (F32 if is_cast else y.dtype)
    near(got, wide @ other, (k + 1) * UNIT * (np.abs(wide) @ np.abs(other)))


@pytest.mark.skipif(not host().has_bfloat_pairs, reason="no AVX512-BF16")
def test_pairs_are_no_worse_than_float32_and_keep_odd_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import ml_dtypes

    monkeypatch.setenv("EQSAT_PRODUCTS", "own")
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s) for s in ((40, 1000), (1000, 60)))
    x, y = x.astype(ml_dtypes.bfloat16), y.astype(ml_dtypes.bfloat16)

    def f(x: Any, y: Any) -> Any:
        return x.astype(F32) @ y.astype(F32)

    g = eq.jit(f, constants=[1])
    assert '@"pairs_float32_' in g.lower(x, y).source("llvm")
    wide, other = x.astype(np.float64), y.astype(np.float64)
    exact = wide @ other
    got = g(x, y)
    ours, theirs = (np.sqrt(np.mean((g - exact) ** 2)) for g in (got, f(x, y)))
    assert ours <= 1.05 * theirs
    x[3, 7], x[5, 2], y[9, 11] = np.nan, np.inf, -np.inf
    got = eq.jit(f, constants=[1])(x, y)
    with np.errstate(invalid="ignore"):
        want = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
