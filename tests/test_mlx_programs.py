"""The programs of the native backend's tests on MLX: on its default device, and with
generated kernels on the model of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any

import bodies
import families
import numpy as np
import nvcc
import pytest
from agreement import BF16, FLOATS, drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from natives import DTYPES, INTEGERS, LAYOUTS, Array, fused, laid, mixed
from programs import assert_near, program_of
from test_backend_numpy import NETWORKS

import eqsat as eq
from eqsat import ops
from eqsat.backends.numpy import interpret
from eqsat.op import Op
from eqsat.ops.pointwise import cast, tanh, where
from eqsat.ops.position import take
from eqsat.program import Program
from eqsat.term import postorder
from eqsat.testing import (
    Computed,
    agreement,
    fuzzing,
    optimised_agreement,
    random_program,
)

mx = pytest.importorskip("mlx.core")
mlx = pytest.importorskip("eqsat.backends.mlx")
modelled = pytest.importorskip("modelled")

ON_GPU = mx.default_device().type == mx.gpu
F64 = np.dtype("f8")
OF_NVIDIA = pytest.mark.skipif(nvcc.COMPILER is None, reason="no nvcc")
WAYS: list[Any] = ["device"]
"""MLX's default device; kernels in a language on the model of a GPU; kernels compiled
by NVIDIA's compiler, not run. Only the first needs the device."""
if not ON_GPU:
    slow = pytest.mark.slow
    WAYS += [pytest.param("metal", marks=slow), pytest.param("cuda", marks=slow)]
    WAYS.append(pytest.param("nvcc", marks=[slow, OF_NVIDIA]))
every_way = pytest.mark.parametrize("way", WAYS)
Case = tuple[Callable[..., Any], list[Any]]


def placed(x: Array, layout: str) -> Any:
    """An array of MLX whose elements, those of ``laid(x, layout)``, lie so."""
    x = laid(x, layout)
    if layout == "broadcast" and x.ndim and x.shape[0]:
        return mx.broadcast_to(mlx.to_mlx(x[:1]), x.shape)
    if layout == "fortran":
        return mx.transpose(mlx.to_mlx(x.T))
    if layout == "reversed":
        return mlx.to_mlx(np.flip(x))[(slice(None, None, -1),) * x.ndim]
    if layout == "strided" and x.ndim:
        return mlx.to_mlx(np.repeat(x, 3, axis=-1))[..., ::3]
    if layout == "window" and x.ndim:
        return mlx.to_mlx(np.pad(x, 1))[(slice(1, -1),) * x.ndim]
    if layout == "misaligned":
        return mlx.to_mlx(np.r_[np.zeros(1, x.dtype), x.ravel()])[1:].reshape(x.shape)
    return mlx.to_mlx(x)


def has_float64(program: Program) -> bool:
    return any(t.dtype == F64 for t in postorder(program.roots))


def check(
    way: str,
    cases: Iterable[Case],
    layout: str = "packed",
    tol: float | None = None,
    fuse: bool = True,
) -> int:
    """Each program computes what its references do, as it is written and as one kernel:
    up to ``tol`` roundings, or what rounding explains. The number of kernels."""
    found = [x for f, xs in cases for x in forms(f, xs, layout, fuse)]
    return check_programs(way, found, layout, tol)


def check_programs(
    way: str,
    found: Sequence[tuple[Program, Computed]],
    layout: str = "packed",
    tol: float | None = None,
) -> int:
    """Each program computes what is told beside it. The number of kernels that were
    generated."""
    if way != "device" or ON_GPU:
        found = [x for x in found if not has_float64(x[0])]
    given = [[placed(x, layout) for x in w.inputs] for _, w in found]
    if way == "device":
        runs: list[Any] = [mlx.lower(p) for p, _ in found]
        count = sum(r.source.count("ops.kernel(") for r in runs)
    else:
        language = "cuda" if way == "nvcc" else way
        runs = [modelled.Modelled(p, language) for p, _ in found]
        both = [*zip(runs, given, strict=True)]
        if way == "nvcc":
            units = modelled.units_of(both)
            nvcc.assert_compiles(units)
            return len(units)
        count = len(modelled.compiled(both))
    for run, xs, (program, wanted) in zip(runs, given, found, strict=True):
        with np.errstate(all="ignore"):
            got = [mlx.to_numpy(y) for y in run(*xs)]
            agrees(got, wanted, program, tol)
    return count


def forms(
    f: Callable[..., Any], arrays: Sequence[Array], layout: str, fuse: bool
) -> Iterator[tuple[Program, Computed]]:
    """Programs of ``f``, and what its references compute."""
    seen = [laid(x, layout) for x in arrays]
    program = program_of(f, *seen)
    with np.errstate(all="ignore"):
        want = interpret(program.roots, seen)
    wanted = Computed(want, program.roots, seen)
    yield program, wanted
    if fuse and len(want) == 1 == len({x.dtype for x in seen}):
        yield program_of(fused(f, len(arrays)), *seen), wanted
    elif fuse:  # an op takes arguments of one dtype and has one result
        yield eq.jit(f, backend="mlx").lower(*seen).program, wanted


def agrees(
    got: Sequence[Array], wanted: Computed, program: Program, tol: float | None
) -> None:
    for g, w in zip(got, wanted.arrays, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        if tol is not None:
            assert_near(g, w, tol)
    if tol is None:
        made = Computed(got, program.roots, wanted.inputs)
        assert not (found := agreement(wanted, made)).reason, found


# -- ops -------------------------------------------------------------------------------


def shared(items: Sequence[Any], turn: int, of: int) -> list[Any]:
    """Every ``of``-th item."""
    return [*items[turn % of :: of]]


def pointwise(name: str, seed: int, part: slice) -> Iterator[Case]:
    """An op of each dtype of a part of those that it takes."""
    op, rng = Op.registry[name], np.random.default_rng(seed)
    shape = 2, (37, 64, 130)[seed % 3]
    for dtype in families.admitted(name)[part]:
        yield (
            lambda *xs: op(*xs),
            families.arguments(name, rng, [shape] * len(op.params), dtype),
        )


TENS = [families.POINTWISE[i : i + 10] for i in range(0, len(families.POINTWISE), 10)]


@every_way
@pytest.mark.parametrize("names", TENS, ids=lambda names: f"{names[0]}-{names[-1]}")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pointwise_ops(way: str, names: list[str], layout: str) -> None:
    """On the model some dtypes of each op in each layout, all in all layouts."""
    i = LAYOUTS.index(layout)
    turns = len(LAYOUTS) if way != "device" else 2 if ON_GPU else 1
    part = slice(i % turns, None, turns)
    check(way, (c for n in names for c in pointwise(n, i, part)), layout, 4)


@every_way
@pytest.mark.parametrize("shapes", families.BROADCAST, ids=str)
def test_shapes_that_broadcast(way: str, shapes: Any) -> None:
    rng = np.random.default_rng(1)
    dtypes = [np.dtype(d) for d in ("f4", BF16, "i4", "u1", "?")]
    cases: list[Case] = []
    for name in families.SAMPLE:
        op = Op.registry[name]
        for d in dtypes:
            if d in families.admitted(name):
                xs = families.arguments(name, rng, shapes[: len(op.params)], d)
                cases.append((lambda *xs, op=op: op(*xs), xs))
    check(way, cases, "reversed", 4)


@every_way
@pytest.mark.parametrize("layout", LAYOUTS)
def test_where(way: str, layout: str) -> None:
    rng = np.random.default_rng(0)
    fs = [
        lambda c, x, z: where(c, x, z),
        lambda c, x, z: where(c, z, 1),
        lambda c, x, z: where(x, x, z),
    ]
    cases = []
    for d in shared(DTYPES, LAYOUTS.index(layout), 4):
        x, z = mixed(rng, (2, 65), d), mixed(rng, (65,), d)
        cases += [(f, [rng.random((2, 65)) < 0.5, x, z]) for f in fs]
    check(way, cases, layout, 0)


@every_way
@pytest.mark.parametrize("a", DTYPES, ids=str)
def test_casts(way: str, a: Any) -> None:
    rng = np.random.default_rng(0)
    cases = []
    for b in DTYPES:
        x = families.castable(rng, a, b, 37)
        cases.append((lambda x, b=b: cast(x, b), [x]))
        cases.append((lambda x, b=b: cast(x, b) == cast(x, b)[:1], [x]))
    check(way, cases, "strided", 0)


# -- reductions ------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize(
    "name", [*families.EXACT_REDUCTIONS, *families.ROUNDED_REDUCTIONS]
)
def test_reductions(way: str, name: str) -> None:
    rng = np.random.default_rng(0)
    for i, layout in enumerate(LAYOUTS):
        if way != "device" and i % 3:
            continue
        cases: list[Case] = []
        for j, case in enumerate([*families.REDUCED, *families.REDUCED_EMPTY]):
            shape, axes = families.reduction(name, case)
            f = families.reduction_over(name, axes)
            if 0 in shape and name in ("max", "min", "argmax", "argmin"):
                continue
            for d in (
                DTYPES
                if way == "device" and not ON_GPU
                else shared(DTYPES, i + j, len(LAYOUTS))
            ):
                if name == "mean" and d not in FLOATS:
                    continue
                x = mixed(rng, shape, d)
                if name in families.ROUNDED_REDUCTIONS and d in FLOATS:
                    x = drawn(i + j, shape, d, False)
                cases.append((f, [x]))
        check(way, cases, layout, 4)


@every_way
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != F64], ids=str)
def test_positions(way: str, dtype: Any) -> None:
    rng = np.random.default_rng(7)
    shape: Any
    cases: list[Case] = []
    for shape in ((3, 2, 131), (40, 7)):
        x = mixed(rng, shape, dtype)
        few = rng.integers(0, 3, shape).astype(dtype)
        for a in (*range(len(shape)), None):
            for f in families.positions(a):
                cases += [(f, [x]), (f, [few])]
    check(way, cases, "packed", 0)
    check(way, cases[:4], "reversed", 0)


@every_way
@pytest.mark.parametrize("dtype", ["f4", "f2", BF16], ids=str)
def test_sums_that_are_infinite_or_nan(way: str, dtype: Any) -> None:
    cases: list[Case] = []
    for n in (7, 300, 70_000) if way == "device" else (7, 300):
        for odd in ((np.inf,), (-np.inf,), (np.inf, -np.inf), (np.nan, np.inf)):
            for place in (0, n // 2, n - len(odd)):
                x = np.ones(n, dtype)
                x[place : place + len(odd)] = odd
                if dtype == "f2":
                    x[np.isfinite(x)] = 0.25
                cases.append((lambda v: ops.sum(v), [x]))
                cases.append((lambda v: ops.sum(v[:, None] * 1.0, 0), [x]))
    check(way, cases if way == "device" else cases[::5], tol=4)


@every_way
@pytest.mark.parametrize("shape", [(3, 50), (2, 5, 64), (1, 70_000), (300, 7)], ids=str)
def test_rows_with_reductions_of_reductions(way: str, shape: Any) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    check(way, [(families.of_reductions, [x])], tol=8)


@every_way
@pytest.mark.parametrize("kind", families.SUMMED, ids=lambda k: k.__name__)
@pytest.mark.parametrize("dtype", ["f4", "f2", BF16], ids=str)
def test_errors_of_sums(way: str, kind: Any, dtype: Any) -> None:
    cases: list[Case] = []
    for i, n in enumerate((1, 9, 64, 257, 4097, 70_001)):
        with np.errstate(all="ignore"):
            x = kind(np.random.default_rng(i), n).astype(dtype)
        x = np.clip(x, -0.5, 0.5).astype(dtype) if dtype == "f2" else x
        for axis in (-1, 0, 1, 9):
            rows = families.rows_of(x, axis)
            cases.append((lambda v, a=axis: ops.sum(v, None if a == 9 else a), [rows]))
    check(way, cases if way == "device" else cases[::3])


# -- running results and computed indices ----------------------------------------------


@every_way
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_running_results(way: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for shape, layout in (
        ((33,), "packed"),
        ((5, 17), "reversed"),
        ((2, 3, 8), "fortran"),
    ):
        cases: list[Case] = []
        for axis in range(-len(shape), 0):
            x = mixed(rng, shape, dtype)
            names = families.exact_running(dtype)
            cases.append((families.running(names, axis), [x]))
        check(way, cases, layout, 0)


@every_way
@pytest.mark.parametrize("shape", [(3, 50), (2, 5, 64), (300, 7), (5, 1)], ids=str)
def test_running_sums_with_neighbours(way: str, shape: Any) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    check(way, [(f, [x]) for f in families.running_sums(shape)])


def test_running_sums_of_nothing() -> None:
    for shape in ((0,), (0, 3), (3, 0)):
        x = np.zeros(shape, np.float32)
        fs = [lambda v, a=axis: ops.cumsum(v, a) for axis in range(len(shape))]
        check("device", [(f, [x]) for f in fs], tol=0)


@every_way
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_take(way: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for shape, layout in (
        ((33,), "packed"),
        ((5, 17), "reversed"),
        ((2, 3, 8), "fortran"),
    ):
        cases: list[Case] = []
        x = mixed(rng, shape, dtype)
        for axis in range(-len(shape), 0):
            for many in ((), (1,), (5,), (2, 3)):
                at = families.taken(rng, x, axis, many)
                cases.append((lambda v, i, a=axis: take(v, i, a), [x, at]))
        check(way, cases, layout, 0)


@every_way
def test_take_with_neighbours(way: str) -> None:
    given = families.take_arguments(np.random.default_rng(0))
    check(way, [(f, given) for f in families.TAKES], tol=4)


@every_way
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_powers_wrap(way: str, dtype: Any) -> None:
    xs = families.power_arguments(np.random.default_rng(0), dtype, 31)
    check(way, [(families.integer_powers, xs)], tol=0)


# -- views -----------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize("layout", LAYOUTS)
def test_chains_of_views(way: str, layout: str) -> None:
    cases: list[Case] = []
    for seed in range(40 if way == "device" else 8):
        rng = np.random.default_rng(seed)
        dtype = DTYPES[(seed + LAYOUTS.index(layout)) % len(DTYPES)]
        x = mixed(rng, rng.permutation([2, 3, 35])[: rng.integers(1, 4)], dtype)
        cases.append((families.views(seed, 1 + seed % 6), [x]))
    check(way, cases, layout, 0)


@every_way
@pytest.mark.parametrize("layout", LAYOUTS)
def test_views_of_inputs_in_any_layout(way: str, layout: str) -> None:
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    for fs in (families.OF_INPUTS, families.RESHAPES):
        check(way, [(f, [x]) for f in fs], layout, 2)


@every_way
@pytest.mark.parametrize("shape", families.TRANSPOSED, ids=str)
def test_transposes(way: str, shape: Any) -> None:
    for dtype in ("f4", "i1", "?", BF16):
        x = mixed(np.random.default_rng(2), shape, dtype)
        check(way, [(f, [x]) for f in families.TRANSPOSES], tol=0)


@every_way
def test_arrays_without_elements(way: str) -> None:
    for dtype in ("f4", BF16):
        e, x = np.zeros((4, 0), dtype), np.ones((4, 6), dtype)
        check(way, [(families.of_nothing, [e, x])], tol=0)


# -- products and networks -------------------------------------------------------------


@every_way
@pytest.mark.parametrize("layout", LAYOUTS)
def test_networks(way: str, layout: str) -> None:
    i = LAYOUTS.index(layout)
    cases: list[Case] = []
    names = [*NETWORKS]
    for k, name in enumerate(names if way == "device" else shared(names, i, 4)):
        f, shapes = NETWORKS[name]
        dtype = (
            FLOATS[(k + i) % 3] if way != "device" or ON_GPU else FLOATS[(k + i) % 4]
        )
        cases.append((f, [drawn(i + j, s, dtype, False) for j, s in enumerate(shapes)]))
    check(way, cases, layout)


@every_way
@pytest.mark.parametrize("batch", families.BATCHES, ids=str)
def test_products(way: str, batch: Any) -> None:
    rng = np.random.default_rng(0)
    cases: list[Case] = []
    for m, n, k in ((3, 17, 8), (1, 33, 64), (9, 1, 5), (33, 24, 65)):
        for dtype in ("f4", "f2", BF16, "f8"):
            x = rng.standard_normal((*batch[0], m, k)).astype(dtype)
            y = rng.standard_normal((*batch[1], k, n)).astype(dtype)
            cases += [
                (lambda x, y: x @ y, [x, y]),
                (lambda x, y: tanh(x @ y) + 1, [x, y]),
            ]
    for layout in ("packed", "fortran") if way == "device" else ("strided",):
        check(way, cases, layout)


@every_way
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_what_follows_a_product(way: str, rows: int) -> None:
    rng = np.random.default_rng(0)
    shapes = [(rows, 48), *families.FFN_WEIGHTS]
    xs = [rng.standard_normal(s).astype(np.float32) / 8 for s in shapes]
    check(way, [(f, xs) for f in families.FFN])


@every_way
@pytest.mark.parametrize("batch", [(1,), (6,), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f2", BF16], ids=str)
def test_attention(way: str, batch: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    cases: list[Case] = []
    for tokens in (1, 20, 130):
        shape = (*batch, tokens, 32)
        xs = [rng.standard_normal(shape).astype(dtype) for _ in "qkv"]
        cases.append((families.attention, xs))
    check(way, cases)


@every_way
def test_programs_of_many_rows(way: str) -> None:
    check(way, families.shared_out(np.random.default_rng(0)))


@every_way
@pytest.mark.parametrize("bits", [4, 8])
def test_integers_of_few_bits(way: str, bits: int) -> None:
    rng = np.random.default_rng(0)
    cases: list[Case] = []
    for groups, each in families.GROUPS:
        for m, n in ((1, 7), (5, 64), (33, 130)):
            w = families.quantised(rng, bits, groups, each, n)
            x = rng.standard_normal((m, groups * each)).astype(np.float32)
            cases.append(
                (families.nibbles if bits == 4 else families.by_groups, [x, *w])
            )
            if bits == 8 and groups == 1:
                cases.append((families.whole, [x, *w]))
    check(way, cases if way == "device" else cases[::3])


@settings(max_examples=60, derandomize=True, database=None)
@given(
    st.integers(0, 99),
    families.drawn_convolutions(),
    st.sampled_from(["f4", "f2", BF16]),
)
def test_convolutions(seed: int, case: Any, dtype: Any) -> None:
    shape, kernel, attrs = case
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal(s).astype(dtype) for s in (shape, kernel))
    check("device", [(lambda x, w: ops.conv2d(x, w, **attrs), [x, w])], fuse=False)


# -- random programs -------------------------------------------------------------------


@every_way
@pytest.mark.parametrize("seed", range(16))
def test_kernels_that_nobody_wrote(way: str, seed: int) -> None:
    cases: list[Case] = []
    for i in range(seed * 20, seed * 20 + (20 if way == "device" else 5)):
        r = Random(i)
        shapes = bodies.shapes(r, 17)
        dtype = np.dtype((np.float32, np.float16, BF16)[0 if i % 4 else i // 4 % 3])
        xs = [drawn(i + j, s, dtype, False) for j, s in enumerate(shapes)]
        cases.append((bodies.body(i, r.randint(1, 16)), xs))
    check(way, cases, LAYOUTS[seed % len(LAYOUTS)])


@every_way
@pytest.mark.parametrize("seed", range(10))
def test_optimised_programs(way: str, seed: int) -> None:
    """Whole programs through ``jit``, as the fuzz of all backends draws them."""
    dtypes = [d for d in fuzzing.DTYPES if d != "float64" or not ON_GPU]
    cases = []
    for i in range(20 if way == "device" else 6):
        drawn_ = random_program(f"mlx.{seed}.{i}", dtypes=dtypes, layers=i % 7 == 6)
        fast = eq.jit(drawn_.function, "mlx", options=eq.Options(deadline_s=60))
        low = fast.lower(*drawn_.inputs)
        if (way == "device" and not ON_GPU) or not has_float64(low.program):
            cases.append((drawn_, fast, low))
    if way == "device":
        for drawn_, fast, _ in cases:
            found = optimised_agreement(drawn_, fast)
            assert not found.reason, f"{found.reason}\n{drawn_}"
        return
    with np.errstate(all="ignore"):
        runs = [
            (
                low.program,
                Computed(
                    interpret(low.trace.outputs, d.variables),
                    low.trace.outputs,
                    d.variables,
                ),
            )
            for d, _, low in cases
        ]
    check_programs(way, runs)
