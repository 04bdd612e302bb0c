"""Nests that run plane by plane compute what they compute one behind the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples, seeds

import eqsat as eq
from eqsat.backends.loop_ir.index_maps import Affine, Layout, LoopVar
from eqsat.backends.loop_ir.nest import Buffer, Load, Nest, Pass, Store
from eqsat.backends.loop_ir.pieces import Loops
from eqsat.backends.native.machine.memory import MemoryRef
from eqsat.backends.native.machine.processor import host
from eqsat.backends.native.plan.buffers import TEMPORARY, Places
from eqsat.backends.native.plan.groups import Group
from eqsat.backends.native.plan.planes import plane_bytes
from eqsat.backends.native.plan.steps import Layered
from eqsat.kernels.kernel import packed


def window(x: Any) -> Any:
    """Sums of three rows, then of three columns, with zeros around each plane."""
    p = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    rows = p[:, :-2] + p[:, 1:-1] + p[:, 2:]
    return rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]


def largest(x: Any) -> Any:
    """Every second one of the largest of three by three, as a network has it."""
    p = np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    rows = np.maximum(np.maximum(p[:, :-2:2], p[:, 1:-1:2]), p[:, 2::2])
    return np.maximum(np.maximum(rows[..., :-2:2], rows[..., 1:-1:2]), rows[..., 2::2])


def two(x: Any) -> Any:
    s = window(np.sqrt(np.abs(x)))
    return s, window(s)


def across(x: Any) -> Any:
    """What reads the next plane, too."""
    s = window(x)
    return s[1:] - s[:-1]


def all_planes(x: Any) -> Any:
    return window(window(x) - window(x).sum(0))


def turned(x: Any) -> Any:
    return window(window(x).transpose(2, 1, 0)).transpose(1, 0, 2)


def in_rows(x: Any) -> Any:
    """A row op between windows."""
    return window(eq.softmax(window(x), axis=-1))


FUNCTIONS = [window, largest, two, across, all_planes, turned, in_rows]


@examples(40)
@given(
    st.sampled_from(FUNCTIONS),
    st.tuples(*(st.integers(1, n) for n in (40, 9, 35))),
    st.sampled_from([np.float32, np.float64]),
    st.integers(1, 3),
    seeds,
)
def test_results_are_those_of_numpy(
    f: Callable[..., Any],
    shape: tuple[int, int, int],
    dtype: Any,
    threads: int,
    seed: int,
) -> None:
    x = np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)
    g = eq.jit(f, backend="native", options=eq.Options(threads=threads))
    for _ in range(2):  # memory of the first call is used again
        found, want = g(x), f(x.astype(np.float64))
        found, want = (v if isinstance(v, tuple) else (v,) for v in (found, want))
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def groups(f: Callable[..., Any], shape: tuple[int, ...], threads: int) -> list[Group]:
    program = eq.jit(f).lower(np.ones(shape, np.float32)).program
    layouts = [Layout(packed(t.shape)) for t in program.inputs]
    layered = Layered(program, Places(program, layouts), host(), threads)
    return [g for g in layered.parts if isinstance(g, Group)]


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("f", [window, largest])
def test_what_is_between_them_is_the_threads_own(
    f: Callable[..., Any], threads: int
) -> None:
    """All nests of a window, borders too, are one step, over whole images of which
    nothing between them is in memory that threads share."""
    (g,) = groups(f, (64, 14, 15), threads)
    shared = {m for s in g.steps for m in s.memory if m.buffer == TEMPORARY}
    assert len(g.steps) > 2 and g.rows == 64
    assert shared and shared == {m for m, _ in g.private}
    assert threads * 4 <= g.units(host())


def test_few_planes_are_shared_in_parts() -> None:
    assert all(len(g.steps) == 1 for g in groups(window, (3, 600, 600), 2))


A, B = MemoryRef(TEMPORARY, 0), MemoryRef(TEMPORARY, 1)
PLANE, ROW = LoopVar("p", 6), LoopVar("r", 10)
AT = Affine.of(PLANE).times(10) + Affine.of(ROW)
F32 = np.dtype(np.float32)


def copy(read: Affine, write: Affine, grid: Sequence[LoopVar] = (PLANE,)) -> Loops:
    body = Load(0, F32, 0, read), Store(1, write, 0)
    buffers = Buffer("a", F32), Buffer("b", F32, True)
    return Loops(Nest(buffers, tuple(grid), (Pass((), (ROW,), body),)), ())


def both(second: Loops, planes: int = 6) -> Any:
    steps = [(copy(AT, AT), [A, B]), (second, [B, MemoryRef(TEMPORARY, 2)])]
    return plane_bytes(steps, planes, host())


def test_planes_of_nests() -> None:
    out = MemoryRef(TEMPORARY, 2)
    assert both(copy(AT, AT)) == {B: 40, out: 40}
    wider = Affine(4, ((PLANE, 20), (ROW, 1)))
    assert both(copy(AT, wider)) == {B: 40, out: 80}
    assert both(copy(AT, AT), 3) == {B: 80, out: 80}
    backwards = Affine(9, ((PLANE, 10), (ROW, -1)))
    assert both(copy(backwards, AT)) == {B: 40, out: 40}


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(AT + Affine(1), id="a part of the next one"),
        pytest.param(AT + Affine(-1), id="a part of the one before"),
        pytest.param(Affine.of(ROW), id="the first one only"),
        pytest.param(Affine(0, ((PLANE, 1), (ROW, 6))), id="across all"),
        pytest.param(Affine(50, ((PLANE, -10), (ROW, 1))), id="in the other order"),
        pytest.param(Affine(0, ((PLANE, 20), (ROW, 1))), id="every second one"),
    ],
)
def test_nests_that_read_other_planes_wait(read: Affine) -> None:
    assert both(copy(read, AT)) == {}


def test_nests_without_such_planes_wait() -> None:
    assert both(copy(AT, AT), 4) == {}
    assert both(copy(Affine.of(ROW), Affine.of(ROW), grid=())) == {}


@pytest.mark.parametrize(
    "f",
    [
        lambda a: np.concatenate([a, window(a[32:])]),
        lambda a: np.concatenate([a, window(a[::-1])]),
        lambda a: np.concatenate([window(a[32:]), a]),
        lambda a: np.concatenate([a[:32], window(a), a[8:]]),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_windows_of_other_parts_of_a_join(f: Callable[..., Any], threads: int) -> None:
    """What a nest reads at another byte than a nest before it has written."""
    rng = np.random.default_rng(threads)
    g = eq.jit(lambda x: f(largest(x)), options=eq.Options(threads=threads))
    for _ in range(3):
        x = rng.integers(-9, 9, (64, 14, 15)).astype(np.float32)
        np.testing.assert_array_equal(g(x), f(largest(x)))
