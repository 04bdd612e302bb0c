"""Ops, reductions, running results and computed indices on MLX: on its default device,
and with generated kernels on the model of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import families
import numpy as np
import pytest
from agreement import BF16, FLOATS, drawn
from natives import DTYPES, INTEGERS, LAYOUTS, mixed

import eqsat as eq
from eqsat import ops
from eqsat.ops.pointwise import cast, where
from eqsat.ops.position import take
from eqsat.terms.op import Op

mx = pytest.importorskip("mlx.core")
checking = pytest.importorskip("mlx_checking")
check, every_way = checking.check, checking.every_way
shared, takes_all = checking.shared, checking.takes_all
F64 = np.dtype("f8")
Case = tuple[Callable[..., Any], list[Any]]
LAID = ((33,), "packed"), ((5, 17), "reversed"), ((2, 3, 8), "fortran")


# -- ops -------------------------------------------------------------------------------


def pointwise(name: str, seed: int, turn: int, of: int) -> Iterator[Case]:
    """An op of every ``of``-th dtype that it takes, of shapes that are one or meet."""
    op, rng = Op.registry[name], np.random.default_rng(seed)
    n = (37, 64, 130)[seed % 3]
    shapes = [(2, n), (n,), (2, 1)] if seed % 2 else [(2, n)] * 3
    for dtype in shared(families.admitted(name), turn, of):
        yield (
            lambda *xs: op(*xs),
            families.arguments(name, rng, shapes[: len(op.params)], dtype),
        )


TENS = [families.POINTWISE[i : i + 10] for i in range(0, len(families.POINTWISE), 10)]


@every_way
@pytest.mark.parametrize("names", TENS, ids=lambda names: f"{names[0]}-{names[-1]}")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pointwise_ops(way: str, names: list[str], layout: str) -> None:
    """Where they take turns some dtypes of each op in each layout, all in all."""
    i, of = LAYOUTS.index(layout), 1 if takes_all(way) else len(LAYOUTS)
    turns = enumerate(names)
    check(way, (c for k, n in turns for c in pointwise(n, i, i + k, of)), layout, 4)


@every_way
@pytest.mark.parametrize("shapes", families.BROADCAST, ids=str)
def test_shapes_that_broadcast(way: str, shapes: Any) -> None:
    rng, i = np.random.default_rng(1), families.BROADCAST.index(shapes)
    dtypes = [np.dtype(d) for d in ("f4", BF16, "i4", "u1", "?")]
    cases: list[Case] = []
    for k, name in enumerate(families.SAMPLE):
        op = Op.registry[name]
        for d in dtypes if takes_all(way) else shared(dtypes, i + k, 3):
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
    some = cases if takes_all(way) else [*cases[::4], *cases[3::4]]
    check(way, some, "strided", 0)


# -- reductions ------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize(
    "name", [*families.EXACT_REDUCTIONS, *families.ROUNDED_REDUCTIONS]
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_reductions(way: str, name: str, layout: str) -> None:
    rng, i = np.random.default_rng(0), LAYOUTS.index(layout)
    cases: list[Case] = []
    for j, case in enumerate([*families.REDUCED, *families.REDUCED_EMPTY]):
        shape, axes = families.reduction(name, case)
        if 0 in shape and name in ("max", "min", "argmax", "argmin"):
            continue
        if not takes_all(way) and (i + j) % 5:
            continue
        for d in DTYPES if takes_all(way) else shared(DTYPES, 3 * i + j, 8):
            if name == "mean" and d not in FLOATS:
                continue
            x = mixed(rng, shape, d)
            if name in families.ROUNDED_REDUCTIONS and d in FLOATS:
                x = drawn(i + j, shape, d, False)
            cases.append((families.reduction_over(name, axes), [x]))
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
    some = cases if takes_all(way) else shared(cases, DTYPES.index(dtype), 3)
    check(way, some, "packed", 0)
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
    check(way, cases if takes_all(way) else cases[::5], tol=4)


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
    check(way, cases if takes_all(way) else cases[::5])


# -- running results and computed indices ----------------------------------------------


@every_way
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_running_results(way: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for shape, layout in LAID:
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
    for shape, layout in LAID:
        cases: list[Case] = []
        x = mixed(rng, shape, dtype)
        for axis in range(-len(shape), 0):
            for many in ((), (1,), (5,), (2, 3)):
                at = families.taken(rng, x, axis, many)
                cases.append((lambda v, i, a=axis: take(v, i, a), [x, at]))
        some = cases if takes_all(way) else shared(cases, DTYPES.index(dtype), 3)
        check(way, some, layout, 0)


@every_way
def test_take_with_neighbours(way: str) -> None:
    given = families.take_arguments(np.random.default_rng(0))
    check(way, [(f, given) for f in families.TAKES], tol=4)


@every_way
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_powers_wrap(way: str, dtype: Any) -> None:
    xs = families.power_arguments(np.random.default_rng(0), dtype, 31)
    check(way, [(families.integer_powers, xs)], tol=0)


@every_way
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_add_at(way: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    cases: list[Case] = []
    for axis in (-1, -2, -3):
        for many in ((), (1,), (5,), (2, 3)):
            shape = [4, 7]
            shape[3 + axis : 3 + axis] = many
            x = rng.integers(-3, 4, shape).astype(dtype)
            at = rng.integers(-5, 5, many)
            cases.append(
                (lambda v, i, a=axis: ops.add_at(v, i, axis=a, size=5), [x, at])
            )
    check(way, cases if takes_all(way) else shared(cases, 0, 4), tol=0)


@every_way
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_set_at(way: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    cases: list[Case] = []
    for axis in (-1, -2, -3):
        for many in ((), (1,), (9,), (2, 3), (0,)):
            shape = [4, 7]
            shape[3 + axis : 3 + axis] = many
            x = rng.integers(-3, 4, (*[4, 7][: 3 + axis], 5, *[4, 7][3 + axis :]))
            new = rng.integers(-3, 4, shape).astype(dtype)
            at = rng.integers(-5, 5, many)
            cases.append(
                (
                    lambda v, i, w, a=axis: ops.set_at(v, i, w, axis=a),
                    [x.astype(dtype), at, new],
                )
            )
    check(way, cases if takes_all(way) else shared(cases, 0, 4), tol=0)


# -- gradients -------------------------------------------------------------------------


def losses() -> Iterator[Case]:
    """Of several arguments, all of them floats."""
    rng = np.random.default_rng(0)
    x, w, v = (rng.standard_normal(s, np.float32) for s in ((33, 48), (48, 64), (48,)))
    picked = rng.integers(0, 64, (33, 1))
    yield (
        lambda x, w: -np.take_along_axis(ops.log_softmax(x @ w), picked, 1).mean(),
        [x, w],
    )
    yield lambda x, w, v: (ops.gelu(ops.layer_norm(x, v, v) @ w) ** 2).mean(), [x, w, v]
    yield lambda x, v: np.maximum(np.maximum(x, 0), v * 2).sum(), [x, v]
    yield lambda x, v: (ops.max(x * v, 1) * np.sort(x, 1)[:, 3]).sum(), [x, v]
    yield lambda x, v: (np.cumsum(x, 1)[::2] * np.pad(v[1:], (1, 0))).sum(), [x, v]
    image, kernels = x.reshape(2, 3, 11, 24), w[:, :54].reshape(16, 3, 3, -1)[..., :3]
    yield lambda x, w: (eq.conv2d(x, w, 2, 1) ** 2).sum(), [image, kernels]


@every_way
def test_gradients(way: str) -> None:
    cases = []
    for f, xs in losses():
        by = tuple(range(len(xs)))
        cases.append((lambda *xs, f=f, by=by: eq.value_and_grad(f, by).fn(*xs)[1], xs))
    check(way, cases)


@pytest.mark.skipif(mx.default_device().type == mx.gpu, reason="no float64 on GPUs")
@pytest.mark.parametrize("factor", [0.1, 0.5, 1 / 3])
def test_factors_of_products_in_float64_are_not_rounded_to_float32(
    factor: float,
) -> None:
    def f(x: Any, w: Any, b: Any) -> Any:
        return (x @ w) * factor + b

    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(3, 4)), rng.normal(size=(4, 5)), rng.normal(size=5)
    got = eq.jit(f, backend="mlx")(*arrays)
    np.testing.assert_allclose(got, f(*arrays), rtol=1e-13, atol=1e-14)
