"""The programs of the native backend's tests on MLX: on its default device, and with
generated kernels on the model of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any

import bodies
import families
import numpy as np
import pytest
from agreement import BF16, FLOATS, drawn
from natives import DTYPES, INTEGERS, LAYOUTS, Array, fused, laid, mixed
from programs import assert_near, program_of

import eqsat as eq
from eqsat.backends.numpy import interpret
from eqsat.op import Op
from eqsat.ops.pointwise import cast, where
from eqsat.program import Program
from eqsat.term import postorder
from eqsat.testing import Computed, agreement

mx = pytest.importorskip("mlx.core")
mlx = pytest.importorskip("eqsat.backends.mlx")
modelled = pytest.importorskip("modelled")

ON_GPU = mx.default_device().type == mx.gpu
F64 = np.dtype("f8")
WAYS = ["device"] if ON_GPU else ["device", "metal", "cuda"]
"""MLX's default device; kernels in a language on the model, which takes no GPU."""
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
    up to ``tol`` roundings, or what rounding explains. The number of kernels that were
    generated."""
    found = [x for f, xs in cases for x in forms(f, xs, layout, fuse)]
    if way != "device" or ON_GPU:
        found = [x for x in found if not has_float64(x[0])]
    given = [[placed(x, layout) for x in w.inputs] for _, w in found]
    if way == "device":
        runs: list[Any] = [mlx.lower(p) for p, _ in found]
        count = sum(r.source.count("ops.kernel(") for r in runs)
    else:
        runs = [modelled.Modelled(p, way) for p, _ in found]
        count = len(modelled.compiled([*zip(runs, given, strict=True)]))
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
    if fuse and len(want) == 1:
        yield program_of(fused(f, len(arrays)), *seen), wanted


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
    part = slice(None) if way == "device" else slice(i, None, len(LAYOUTS))
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
    fs = [lambda c, x, z: where(c, x, z), lambda c, x, z: where(c, z, 1), lambda c, x, z: where(x, x, z)]
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
@pytest.mark.parametrize("name", [*families.EXACT_REDUCTIONS, *families.ROUNDED_REDUCTIONS])
def test_reductions(way: str, name: str) -> None:
    rng = np.random.default_rng(0)
    for i, layout in enumerate(LAYOUTS):
        cases: list[Case] = []
        for j, case in enumerate([*families.REDUCED, *families.REDUCED_EMPTY]):
            shape, axes = families.reduction(name, case)
            f = families.reduction_over(name, axes)
            if 0 in shape and name in ("max", "min", "argmax", "argmin"): continue
            for d in DTYPES if way == "device" and not ON_GPU else shared(DTYPES, i + j, len(LAYOUTS)):
                if name == "mean" and d not in FLOATS: continue
                x = mixed(rng, shape, d)
                if name in families.ROUNDED_REDUCTIONS and d in FLOATS:
                    x = drawn(i + j, shape, d, False)
                cases.append((f, [x]))
        check(way, cases, layout, 4)
