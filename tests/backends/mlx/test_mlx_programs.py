"""Views, products, networks and random programs on MLX: on its default device, and with
generated kernels on the model of a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import bodies
import families
import layers
import numpy as np
import pytest
from agreement import BF16, FLOATS, drawn
from drawn_agreement import flushed
from hypothesis import given
from hypothesis import strategies as st
from natives import DTYPES, LAYOUTS, mixed
from networks import NETWORKS
from sizes import examples, some

import eqsat as eq
from eqsat import ops
from eqsat.backends.numpy import interpret
from eqsat.ops.transcendental import tanh
from eqsat.rulelang import evaluate
from eqsat.testing import Computed, DrawnProgram, agreement, fuzzing, random_program

pytest.importorskip("mlx.core")
checking = pytest.importorskip("mlx_checking")
mlx = pytest.importorskip("eqsat.backends.mlx")
check, every_way = checking.check, checking.every_way
shared, takes_all = checking.shared, checking.takes_all
Case = tuple[Callable[..., Any], list[Any]]


# -- views -----------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize("layout", LAYOUTS)
def test_chains_of_views(way: str, layout: str) -> None:
    cases: list[Case] = []
    for seed in range(40 if takes_all(way) else 8):
        rng = np.random.default_rng(seed)
        dtype = DTYPES[(seed + LAYOUTS.index(layout)) % len(DTYPES)]
        x = mixed(rng, rng.permutation([2, 3, 35])[: rng.integers(1, 4)], dtype)
        cases.append((families.views(seed, 1 + seed % 6), [x]))
    check(way, cases, layout, 0)


@every_way
@pytest.mark.parametrize("layout", LAYOUTS)
def test_views_of_inputs_in_any_layout(way: str, layout: str) -> None:
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    fs = [*families.OF_INPUTS, *families.RESHAPES]
    turn = LAYOUTS.index(layout)
    those = fs if takes_all(way) else shared(fs, turn, 4)
    check(way, [(f, [x]) for f in those], layout, 2)


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


LONG_ROWS: list[Callable[..., Any]] = [
    lambda x: ops.softmax(x * 0.5),
    lambda x: ops.logsumexp(x) * 2.0,
    lambda x: ops.log_softmax(x) - 1.0,
    lambda x: ops.softmax(x.mT, axis=0) * 2.0,
]
"""Which no GPU holds between passes."""


@every_way
@pytest.mark.parametrize("dtype", ["f4", BF16], ids=str)
def test_long_rows(way: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    shapes = [(9, 40000), (8, 66001)][: 2 if way == "device" else 1]
    cases: list[Case] = []
    for shape in shapes:
        x = (rng.standard_normal(shape) * 4).astype(dtype)
        x[1, 7], x[2, 9], x[3] = np.inf, np.nan, -np.inf
        x[4, ::2] = -np.inf
        cases += [(f, [x]) for f in LONG_ROWS]
    check(way, cases, tol=8)


# -- products and networks -------------------------------------------------------------


@every_way
@pytest.mark.parametrize("layout", LAYOUTS)
def test_networks(way: str, layout: str) -> None:
    i = LAYOUTS.index(layout)
    cases: list[Case] = []
    names = [*NETWORKS]
    for k, name in enumerate(names if takes_all(way) else shared(names, i, 4)):
        f, shapes = NETWORKS[name]
        dtype = FLOATS[(k + i) % (4 if takes_all(way) else 3)]
        cases.append((f, [drawn(i + j, s, dtype, False) for j, s in enumerate(shapes)]))
    check(way, cases, layout)


@pytest.mark.sampled(2)
@every_way
@pytest.mark.parametrize("batch", layers.BATCHES, ids=str)
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
    layouts = ["packed", "fortran", "strided"]
    turn = layers.BATCHES.index(batch)
    for layout in layouts if takes_all(way) else shared(layouts, turn, 3):
        check(way, cases, layout)


@every_way
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_what_follows_a_product(way: str, rows: int) -> None:
    rng = np.random.default_rng(0)
    shapes = [(rows, 48), *layers.FFN_WEIGHTS]
    xs = [rng.standard_normal(s).astype(np.float32) / 8 for s in shapes]
    check(way, [(f, xs) for f in layers.FFN])


@every_way
@pytest.mark.parametrize("batch", [(1,), (6,), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f2", BF16], ids=str)
def test_attention(way: str, batch: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    cases: list[Case] = []
    for tokens in (1, 20, 130):
        shape = (*batch, tokens, 32)
        xs = [rng.standard_normal(shape).astype(dtype) for _ in "qkv"]
        cases.append((layers.attention, xs))
    check(way, cases)


@every_way
def test_programs_of_many_rows(way: str) -> None:
    check(way, layers.shared_out(np.random.default_rng(0)))


def _norm(x: Any) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def _turned(x: Any, turns: Any) -> Any:
    n = x.shape[-1] // 2
    a, b, cos, sin = x[..., :n], x[..., n:], np.cos(turns), np.sin(turns)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def _heads(x: Any, n: int = 2) -> Any:
    return np.swapaxes(x.reshape(*x.shape[:-1], n, -1), -2, -3)


MAPS_OF_ROWS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], int]] = {
    "rotary": (lambda x, t: _turned(_heads(_norm(x)), t), [(3, 130, 48), (130, 12)], 1),
    "heads": (lambda x, t: _turned(_norm(_heads(x)), t), [(3, 130, 48), (130, 12)], 1),
    "halves": (lambda x: _norm(x)[:, :8] * _norm(x)[:, 8:], [(300, 16)], 1),
    "turned": (lambda x: _norm(x)[:, ::-1] * x, [(300, 9)], 1),
    "padded": (lambda x: np.pad(_norm(x), ((0, 0), (2, 3))), [(300, 20)], 2),
    "odd": (lambda x: _norm(x)[:, 1:] - _norm(x)[:, :-1], [(300, 21)], 1),
    "few": (lambda x: _norm(x)[:, :8] * _norm(x)[:, 8:], [(30, 16)], 2),
    "long": (lambda x: _norm(x)[:, :-1] * x[:, 1:], [(257, 16500)], 2),
    "across": (lambda x: _norm(x)[:150] * _norm(x)[150:], [(300, 16)], 2),
    "kept": (lambda x: (_turned(_norm(x), x[0, :8]), x.max(-1)), [(300, 16)], 2),
}
"""Functions, what they take, and the kernels that they become on a GPU."""


@every_way
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_maps_of_rows(way: str, dtype: Any) -> None:
    found, rng = [], np.random.default_rng(3)
    for name, (f, shapes, count) in MAPS_OF_ROWS.items():
        xs = [rng.standard_normal(s).astype(dtype) for s in shapes]
        low = eq.jit(f, "mlx").lower(*xs)
        text = mlx.lower(low.program, "cuda").source
        made = text[text.index("def program") :].count("_kernel([")
        assert made == count, (name, text)
        wanted = interpret(low.trace.outputs, xs)
        found.append((low.program, Computed(wanted, low.trace.outputs, xs)))
    checking.check_programs(way, found)


@every_way
@pytest.mark.parametrize("bits", [4, 8])
def test_integers_of_few_bits(way: str, bits: int) -> None:
    rng = np.random.default_rng(0)
    cases: list[Case] = []
    for groups, each in layers.GROUPS:
        for m, n in ((1, 7), (5, 64), (33, 130)):
            w = layers.quantised(rng, bits, groups, each, n)
            x = rng.standard_normal((m, groups * each)).astype(np.float32)
            cases.append((layers.nibbles if bits == 4 else layers.by_groups, [x, *w]))
            if bits == 8 and groups == 1:
                cases.append((layers.whole, [x, *w]))
    check(way, some(cases, len(cases) // 3) if takes_all(way) else cases[::3])


@pytest.mark.parametrize("dtype", ["f4", "f2", BF16], ids=str)
@examples(20)
@given(st.integers(0, 99), layers.drawn_convolutions())
def test_convolutions(dtype: Any, seed: int, case: Any) -> None:
    shape, kernel, attrs = case
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal(s).astype(dtype) for s in (shape, kernel))
    check("device", [(lambda x, w: ops.conv2d(x, w, **attrs), [x, w])], fuse=False)


# -- random programs -------------------------------------------------------------------


@pytest.mark.sampled(4)
@every_way
@pytest.mark.parametrize("seed", range(16))
def test_kernels_that_nobody_wrote(way: str, seed: int) -> None:
    cases: list[Case] = []
    for i in range(seed * 20, seed * 20 + (20 if takes_all(way) else 5)):
        r = Random(i)
        shapes = bodies.shapes(r, 17)
        rare = np.float32, np.float16, BF16, np.float64
        dtype = np.dtype(rare[0 if i % 4 else i // 4 % 4])
        xs = [drawn(i + j, s, dtype, False) for j, s in enumerate(shapes)]
        cases.append((bodies.body(i, r.randint(1, 16)), xs))
    check(way, cases, LAYOUTS[seed % len(LAYOUTS)])


def mlx_disagreement(program: DrawnProgram, fast: Any) -> str:
    """What MLX computes differently, but for results that are not normal numbers."""
    low = fast.lower(*program.inputs)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # means of nothing
        written = evaluate(low.trace.outputs, program.variables)
        made = fast(*program.inputs)
    left, right = (tuple(map(flushed, values)) for values in (written, made))
    return agreement(
        Computed(left, low.trace.outputs, program.variables),
        Computed(right, low.term, program.variables),
    ).reason


@pytest.mark.sampled(4)
@every_way
@pytest.mark.parametrize("seed", range(10))
def test_optimised_programs(way: str, seed: int) -> None:
    """Whole programs through ``jit``, as the fuzz of all backends draws them."""
    dtypes = [d for d in fuzzing.DTYPES if d != "float64" or not checking.ON_GPU]
    cases = []
    for i in range(20) if takes_all(way) else range(3, 7):
        drawn_ = random_program(f"mlx.{seed}.{i}", dtypes=dtypes, layers=i % 7 == 6)
        fast = eq.jit(drawn_.function, "mlx")
        low = fast.lower(*drawn_.inputs)
        if not (checking.ON_GPU and checking.is_refused(low.program, None)):
            cases.append((drawn_, fast, low))
    if way == "device":
        for drawn_, fast, _ in cases:
            reason = mlx_disagreement(drawn_, fast)
            assert not reason, f"{reason}\n{drawn_}"
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
    checking.check_programs(way, runs)
