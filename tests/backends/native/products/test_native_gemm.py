"""Matrix products in machine code, generated and by BLAS, against wider numbers."""

from __future__ import annotations

import re
from itertools import product as product_of
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from layers import BATCHES, FFN, FFN_WEIGHTS, attention
from natives import Array, fused, laid, natively, near, run
from programs import program_of
from sizes import examples, seeds, some

import eqsat as eq
from eqsat.backends.loop_ir.index_maps import (
    Layout,
)
from eqsat.backends.loop_ir.nest import (
    Operand,
)
from eqsat.backends.loop_ir.pieces import (
    Product,
)
from eqsat.backends.native import program_record
from eqsat.backends.native.function_code import text_of
from eqsat.backends.native.lower import CompiledProgram, _layout
from eqsat.backends.native.machine import blas
from eqsat.backends.native.machine.processor import Host, host
from eqsat.backends.native.products import gemm_plan
from eqsat.backends.native.products.function_names import name_of
from eqsat.backends.native.products.tiles import Panels, Tile, spans, tile
from eqsat.support.errors import OptionError

F32, F64 = np.dtype("f4"), np.dtype("f8")
UNIT = {F32: 2.0**-24, F64: 2.0**-53}
WIDE = {F32: np.float64, F64: np.longdouble}
SIZES = (1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 24, 31, 33, 47, 48, 49, 64, 65, 97, 112, 130)
ORDERS = "packed fortran reversed strided window broadcast".split()
sizes = st.sampled_from(SIZES)
threads = st.sampled_from([1, 3])
whose = st.sampled_from(["own", "own", "blas"])
batches = st.sampled_from(BATCHES)


def product(x: Any, y: Any) -> Any:
    return x @ y


def draw(seed: int, *shape: int, dtype: Any = F32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def right(got: Array, x: Array, y: Array) -> None:
    """``got`` is x y within the roundings of its inner axis."""
    wide = WIDE[x.dtype]
    size = np.abs(x).astype(wide) @ np.abs(y).astype(wide)
    bound = (x.shape[-1] + 1) * UNIT[x.dtype] * size
    near(got, x.astype(wide) @ y.astype(wide), bound)


# -- one product -----------------------------------------------------------------------


@examples(150)
@given(
    seeds,
    st.tuples(sizes, sizes, sizes),
    batches,
    st.sampled_from([F32, F64]),
    st.tuples(st.sampled_from(ORDERS), st.sampled_from(ORDERS)),
    st.booleans(),
    threads,
    whose,
)
@example(0, (130, 9, 5), ((), ()), F32, ("fortran", "fortran"), False, 3, "own")
@example(0, (17, 1, 49), ((), ()), F64, ("packed", "packed"), True, 1, "own")
@example(0, (9, 48, 33), ((3,), (3,)), F32, ("packed", "fortran"), False, 3, "own")
def test_products(
    seed: int,
    shape: tuple[int, int, int],
    batch: tuple[tuple[int, ...], tuple[int, ...]],
    dtype: Any,
    orders: tuple[str, str],
    is_constant: bool,
    threads: int,
    who: str,
) -> None:
    m, n, k = shape
    x = laid(draw(seed, *batch[0], m, k, dtype=dtype), orders[0])
    y = laid(draw(seed + 1, *batch[1], k, n, dtype=dtype), orders[1])
    given, fixed = ([x], [y]) if is_constant else ([x, y], [])
    (got,) = natively(product, *given, constants=fixed, threads=threads, products=who)
    right(got, x, y)


@examples(30)
@given(
    seeds,
    st.sampled_from(["row", "column"]),
    st.sampled_from([1, 2, 7, 64, 515, 1300]),
    st.sampled_from([1, 3, 8, 15, 97, 700]),
    st.tuples(st.sampled_from(ORDERS), st.sampled_from(ORDERS)),
    threads,
    whose,
)
@example(0, "row", 1, 3, ("packed", "strided"), 1, "own")
def test_a_matrix_by_a_vector(
    seed: int,
    side: str,
    n: int,
    k: int,
    orders: tuple[str, str],
    threads: int,
    who: str,
) -> None:
    shapes = ((1, k), (k, n)) if side == "row" else ((n, k), (k, 1))
    x, y = (laid(draw(seed + i, *s), orders[i]) for i, s in enumerate(shapes))
    (got,) = natively(product, x, y, threads=threads, products=who)
    right(got, x, y)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("who", ["own", "blas"])
def test_long_inner_axes_and_many_rows(
    dtype: Any, turned: tuple[int, int], who: str
) -> None:
    x, y = draw(0, 403, 2500, dtype=dtype), draw(1, 2500, 75, dtype=dtype)
    x, y = (
        np.asfortranarray(a) if t else a for a, t in zip((x, y), turned, strict=True)
    )
    for constants in ([], [y]):
        given = [x] if constants else [x, y]
        (got,) = natively(product, *given, constants=constants, threads=3, products=who)
        right(got, x, y)


@pytest.mark.parametrize("dtype", ["f2", "bfloat16"])
@pytest.mark.parametrize("who", ["own", "blas"])
def test_halves_are_summed_in_float32_and_rounded_once(dtype: str, who: str) -> None:
    import ml_dtypes

    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x, y = draw(0, 33, 300).astype(kind), draw(1, 300, 50).astype(kind)
    turned = x.T.copy().T, y.T.copy().T
    cases = [(x, y), turned, (x[:1], y), (x, y[:, :1]), (x[:1], turned[1][:, :20])]
    several = np.stack([y, -y, y[::-1]])
    batch = x.reshape(3, 11, 300), several
    cases += [batch, (batch[0], y)]
    for (a, b), fixed in some([*product_of(cases, (False, True))], 4):
        given, constants = ([a], [b]) if fixed else ([a, b], [])
        (got,) = natively(product, *given, constants=constants, products=who)
        wide_x, wide_y = (v.astype(np.float64) for v in (a, b))
        assert got.dtype == kind
        bound = 301 * UNIT[F32] * (np.abs(wide_x) @ np.abs(wide_y))
        near(got, wide_x @ wide_y, bound)


@pytest.mark.parametrize("who", ["own", "blas"])
def test_products_of_nothing(who: str) -> None:
    for m, n, k in ((3, 4, 0), (0, 4, 3), (3, 0, 4), (1, 5, 0), (0, 0, 0)):
        (got,) = natively(product, draw(0, m, k), draw(1, k, n), products=who)
        np.testing.assert_array_equal(got, np.zeros((m, n), np.float32))


@examples(40)
@given(
    seeds,
    st.tuples(sizes, sizes, sizes),
    st.sampled_from([np.nan, np.inf, -np.inf]),
    st.booleans(),
    st.booleans(),
)
def test_odd_numbers_stay_in_their_row_and_column(
    seed: int, shape: tuple[int, int, int], odd: float, in_x: bool, is_constant: bool
) -> None:
    m, n, k = shape
    x, y = draw(seed, m, k), draw(seed + 1, k, n)
    x[x == 0] = y[y == 0] = 1
    i, j, p = seed % m, seed % n, seed % k
    (x if in_x else y)[(i, p) if in_x else (p, j)] = odd
    given, fixed = ([x], [y]) if is_constant else ([x, y], [])
    (got,) = natively(product, *given, constants=fixed, products="own")
    with np.errstate(invalid="ignore"):
        want = x.astype(np.float64) @ y
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
    others = np.isfinite(want)
    np.testing.assert_allclose(got[others], want[others], 1e-3, 1e-3)


@pytest.mark.parametrize("k", [64, 700, 3000])
def test_errors_are_no_worse_than_those_of_blas(k: int) -> None:
    for seed, low in ((0, -1.0), (1, 0.0)):
        rng = np.random.default_rng(seed)
        x, y = (rng.uniform(low, 1, s).astype(F32) for s in ((300, k), (k, 300)))
        exact = x.astype(np.float64) @ y.astype(np.float64)
        (got,) = natively(product, x, y, products="own")
        ours, theirs = (np.sqrt(np.mean((g - exact) ** 2)) for g in (got, x @ y))
        assert ours <= 1.05 * theirs


@pytest.mark.parametrize("cpu", ["generic", "x86-64-v2", "x86-64-v3"])
@pytest.mark.skipif(host().is_arm, reason="levels of x86-64")
def test_lesser_machines(cpu: str) -> None:
    if cpu == "x86-64-v3" and not host().flags.issuperset(("avx2", "fma")):
        pytest.skip("no AVX2")
    sizes = (7, 5, 9), (13, 33, 40), (1, 40, 20), (20, 1, 19), (100, 70, 64)
    for m, n, k in some(sizes, 2):
        for order in ("packed", "fortran"):
            x, y = (laid(draw(0, *s), order) for s in ((m, k), (k, n)))
            (got,) = natively(product, x, y, cpu=cpu, products="own")
            right(got, x, y)


def test_functions_for_arm() -> None:
    arm = Host("aarch64-unknown-linux-gnu", "generic", "+neon")
    for dtype in (F32, F64):
        assert tile(arm, dtype) == Tile(8, 3, 16 // dtype.itemsize)
        names = [name_of("tiles", dtype, v) for v in ("8x1", "8x2_turned", "5x3")]
        names += [name_of(kind, dtype) for kind in ("line", "dots")]
        names += [name_of(kind, dtype, "float32") for kind in ("copy", "turn")]
        for name in names:
            llvm.parse_assembly(text_of(name, arm)).verify()


# -- products among others -------------------------------------------------------------


@pytest.mark.sampled(8)
@pytest.mark.parametrize("rows", [1, 5, 64, 413])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("fixed", [True, False])
def test_what_follows_a_product(rows: int, threads: int, fixed: bool) -> None:
    weights = [draw(i, *s) / 8 for i, s in enumerate(FFN_WEIGHTS)]
    x = draw(9, rows, 48)
    given, constants = ([x], weights) if fixed else ([x, *weights], [])
    wide = [a.astype(np.float64) for a in (x, *weights)]
    for f in FFN:
        (got,) = natively(
            f, *given, constants=constants, threads=threads, products="own"
        )
        np.testing.assert_allclose(got, f(*wide), 2e-4, 2e-4)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("batch", [(1,), (6,), (2, 3)])
@pytest.mark.parametrize("tokens", [1, 20, 250])
@pytest.mark.parametrize("threads", [1, 3])
def test_attention(batch: tuple[int, ...], tokens: int, threads: int) -> None:
    q, k, v = (draw(i, *batch, tokens, 32) for i in range(3))
    for g in (attention, fused(attention, 3)):
        (got,) = natively(g, q, k, v, threads=threads, products="own")
        want = attention(*(a.astype(np.float64) for a in (q, k, v)))
        np.testing.assert_allclose(got, want, 1e-4, 1e-5)


# -- how they are cut ------------------------------------------------------------------


@given(st.integers(1, 400), st.sampled_from([Tile(8, 3, 16), Tile(6, 2, 8)]))
def test_spans_cover_the_columns(n: int, shape: Tile) -> None:
    first, vectors = 0, 0
    for s in spans(n, shape):
        assert s.first == first and 0 < s.vectors <= shape.vectors
        first += s.columns
        tiles = -(-s.columns // (s.vectors * shape.lanes))
        vectors += tiles * s.vectors
    assert first == n and vectors == -(-n // shape.lanes)
    assert len(spans(n, shape)) <= 2


@given(st.integers(1, 40), st.integers(1, 200), st.booleans())
def test_panels_hold_every_element(k: int, n: int, turned: bool) -> None:
    y = np.arange(2.0 * k * n).reshape(2, k, n)
    memory = y.swapaxes(1, 2).copy() if turned else y
    strides = (k * n, 1, k) if turned else (k * n, n, 1)
    panels = Panels((2,), (k, n), Layout(strides), 3, 16)
    out = np.full(panels.elements, np.nan)
    panels.fill(out, panels.given(memory))
    for part, want in zip(out.reshape(2, -1), y, strict=True):
        for s in spans(n, Tile(8, 3, 16)):
            wide = s.vectors * 16
            for j in range(s.first, s.first + s.columns, wide):
                found = part[j * k : (j + wide) * k].reshape(k, wide)
                end = min(j + wide, s.first + s.columns)
                np.testing.assert_array_equal(found[:, : end - j], want[:, j:end])


@pytest.mark.parametrize("turned", [False, True])
def test_panels_that_are_not_filled_end_with_zeros(
    turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies there is multiplied too, and denormal numbers take long."""
    monkeypatch.setenv("EQSAT_PRODUCTS", "own")
    zeros = re.compile(r"store <\d+ x float> (zeroinit|<float\s+0x0,|<float\s+0\.0,)")
    x = draw(0, 40, 64)
    for n in (10, 64):
        y = draw(1, n, 64).T if turned else draw(1, 64, n)
        source = eq.jit(product).lower(x, y).source()
        assert bool(zeros.search(source)) == (n == 10)


def test_batches_of_one_right_operand_are_rows() -> None:
    array = Operand("array", None, F32)

    def merged(*strides: tuple[int, ...]) -> Product:
        at = Layout(strides[0]), Layout(strides[1]), Layout(strides[2])
        whole = Product(array, array, array, F32, (4, 5, 6), (2, 3), at)
        return gemm_plan.merged(whole)

    all_rows = merged((72, 24, 6, 1), (0, 0, 5, 1), (60, 20, 5, 1))
    assert (all_rows.sizes, all_rows.batch) == ((24, 5, 6), ())
    assert [a.strides for a in all_rows.at] == [(6, 1), (5, 1), (5, 1)]
    some = merged((72, 24, 6, 1), (30, 0, 5, 1), (60, 20, 5, 1))
    assert (some.sizes, some.batch) == ((12, 5, 6), (2,))
    none = merged((0, 24, 1, 4), (0, 0, 5, 1), (60, 20, 5, 1))
    assert (none.sizes, none.batch) == ((4, 5, 6), (2, 3))


AVX2 = Host("x86_64-pc-linux", "znver3", "+fma,+avx2")
AVX512 = Host(
    "x86_64-pc-linux",
    "znver5",
    "+fma,+avx2,+" + ",+".join(("avx512f", "avx512bw", "avx512dq", "avx512vl")),
)


def planned_product(m: int, n: int, k: int, turned: bool = False) -> Product:
    array = Operand("array", None, F32)
    left = (1, m) if turned else (k, 1)
    at = Layout(left), Layout((n, 1)), Layout((n, 1))
    return Product(array, array, array, F32, (m, n, k), (), at)


@pytest.mark.parametrize("machine, registers", [(AVX2, 16), (AVX512, 32)])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_tiles_fill_the_registers(machine: Host, registers: int, dtype: Any) -> None:
    t = tile(machine, dtype)
    used = t.rows * t.vectors + t.vectors + 1
    assert registers - 4 <= used <= registers
    assert t.rows * t.vectors * t.turns == 24


def test_moved_rows_lie_in_all_sets_of_a_cache() -> None:
    for k in (250, 256, 1000, 1008):
        moved = planned_product(300, 60, k, turned=True)
        assert gemm_plan.block_row(moved, AVX2) * F32.itemsize // 64 % 2 == 1
        assert gemm_plan.block_row(moved, AVX2) >= gemm_plan.inner(moved, AVX2)


def test_right_operands_that_the_first_cache_keeps_are_read_where_they_lie() -> None:
    for m, n, k, order in ((48, 64, 64, ""), (48, 64, 300, "done"), (9, 64, 300, "")):
        found = gemm_plan.plan(planned_product(m, n, k), AVX2, m, False)
        assert found.order == order, (m, n, k)


def test_generated_products_are_taken_where_blas_is_narrower_or_as_wide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for core, expected in (("Haswell", True), ("SkylakeX", True), ("?", False)):
        found = blas.BlasLibrary({}, 64, core)
        monkeypatch.setattr(blas, "library", lambda found=found: found)
        assert gemm_plan.is_better(AVX512) == expected
        assert gemm_plan.is_better(AVX2) == (core == "Haswell")


def test_who_computes_products_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_PRODUCTS", "blas")
    assert host().products == "blas" and host(None, "own").products == "own"
    monkeypatch.setenv("EQSAT_PRODUCTS", "mine")
    with pytest.raises(
        OptionError, match="EQSAT_PRODUCTS='mine': expected one of 'best', 'own'"
    ):
        host()


def test_programs_from_disk_have_panels_of_their_own_constants(kept: list[str]) -> None:
    x = draw(0, 20, 30)
    for seed in (1, 2):
        w, v = draw(seed, 30, 100), draw(seed + 5, 40, 30)
        program = program_of(lambda x, w, v: (x @ w, x @ v.mT), x, constants=[w, v])
        made = CompiledProgram(program, [_layout(x)], host(None, "own"), 1)
        for got, y in zip(made.run([x]), (w, v.T), strict=True):
            right(got, x, y)
    assert len(kept) == 1
    found = program_record.recall(kept[0])
    assert found is not None and len(found.packed) == 2 and not found.blas_bits
    assert found.unread == (3, 4)


def test_the_same_whoever_computes() -> None:
    x, w = draw(0, 65, 130), draw(1, 130, 77)
    program = program_of(product, x, w)
    for who in ("own", "blas"):
        (got,), _ = run(program, [x, w], products=who)
        right(got, x, w)


INTEGER_SHAPES = [
    ((3, 4), (4, 5)),
    ((1, 40), (40, 1)),
    ((5, 2, 3, 7), (2, 7, 9)),
    ((70,), (70, 33)),
    ((130, 64), (64, 33)),
]


@pytest.mark.parametrize("dtype", "i1 u1 i2 u2 i4 u4 i8 u8".split())
@pytest.mark.parametrize("shapes", INTEGER_SHAPES)
def test_products_of_integers_are_machine_code(
    dtype: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    x, y = shapes
    info = np.iinfo(dtype)
    rng = np.random.default_rng(len(x))
    a, b = (rng.integers(info.min, info.max, s, dtype, endpoint=True) for s in (x, y))
    f = eq.jit(lambda a, b: (a @ b, ((a + 1) @ b).astype(np.float32) * 0.5))
    with np.errstate(over="ignore"):
        want = f.fn(a, b)
    for got, w in zip(f(a, b), want, strict=True):
        np.testing.assert_array_equal(got, w, strict=True)
    assert f.lower(a, b).executable.reasons == {}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_a_transposed_matrix_by_a_vector(dtype: Any, threads: int) -> None:
    a, v = draw(0, 300, 700, dtype=dtype), draw(1, 300, dtype=dtype)
    many, each = draw(2, 3, 40, 130, dtype=dtype), draw(3, 3, 40, 1, dtype=dtype)
    spread = np.repeat(v, 2)[::2]
    tol = 300 * UNIT[dtype]

    def turned(a: Any, v: Any) -> Any:
        return a.T @ v

    def column(a: Any, v: Any) -> Any:
        return np.tanh(a.T @ v[:, None] + 1) * 2

    def batched(a: Any, v: Any) -> Any:
        return a.swapaxes(-1, -2) @ v

    def both(a: Any, v: Any) -> Any:
        return np.concatenate([a.T @ v[:, None], a.T @ v[:, None] + 1], 1)

    cases = (turned, a, v), (column, a, v), (batched, many, each), (both, a, v)
    for f, x, y in (*cases, (turned, a, spread), (turned, a, v[::-1])):
        (got,) = natively(f, x, y, threads=threads, products="own")
        want = f(x.astype(WIDE[dtype]), y.astype(WIDE[dtype]))
        np.testing.assert_allclose(got, want, rtol=tol, atol=tol * 30)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("k, n", [(1003, 997), (5000, 33), (2001, 64)])
def test_threads_share_the_rows_of_a_matrix(k: int, n: int, dtype: Any) -> None:
    """That a row vector is multiplied by; their sums are added."""
    v, a = draw(0, k, dtype=dtype), draw(1, k, n, dtype=dtype)
    cases: tuple[tuple[Any, Array, Array], ...] = (
        (product, v, a),
        (lambda v, a: a.T @ v, v, a),
        (lambda v, a: np.tanh(v @ a) + 1, v / k, a),
        (product, v[::-1], a),
        (product, v, a[:, ::-1]),
    )
    for f, x, y in cases:
        for threads in (2, 3):
            (got,) = natively(f, x, y, threads=threads, products="own")
            want = f(x.astype(WIDE[dtype]), y.astype(WIDE[dtype]))
            np.testing.assert_allclose(got, want, rtol=0, atol=8 * k * UNIT[dtype])


def test_few_rows_have_one_sum() -> None:
    line, seconds = gemm_plan.GemmPlan("line"), 1e-3
    for k, sums in ((1000, 4), (64, 4), (63, 0), (8, 0)):
        assert gemm_plan.sums_of(planned_product(1, 999, k), line, seconds, 4) == sums
    assert not gemm_plan.sums_of(planned_product(1, 999, 99), line, 1e-6, 4)
    assert not gemm_plan.sums_of(planned_product(1, 999, 99), line, seconds, 1)
