"""The first or last positions of rows in order are those of the whole order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples, seeds

import eqsat as eq
from eqsat.backends.loop_ir.index_maps import Layout
from eqsat.backends.loop_ir.pieces import Ordering
from eqsat.backends.native.machine.processor import host
from eqsat.backends.native.plan.buffers import Places
from eqsat.backends.native.plan.groups import Group
from eqsat.backends.native.plan.steps import Layered
from eqsat.kernels.kernel import packed

DTYPES = "float32 float16 int32 uint32 int16 uint8 int8 bool".split()


def order(x: Any) -> Any:
    return np.argsort(x, axis=-1, kind="stable")


def rows(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Rows with many equal elements, in order, in the wrong order, or in none."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, rng.choice([3, 200, 60_000]), shape).astype(dtype)
    if x.dtype.kind == "f":
        some = rng.random(shape)
        x[some < 0.02] = np.nan
        x[some > 0.98] = -np.inf
        x[abs(some - 0.5) < 0.02] = -0.0
    if (how := rng.integers(3)) < 2:
        x = np.sort(x, axis=-1)[..., :: (1, -1)[how]]
    return np.ascontiguousarray(x)


@examples(60)
@given(
    st.sampled_from(DTYPES),
    st.integers(1, 3),
    st.integers(1000, 9000),
    st.integers(1, 700),
    st.integers(0, 100),
    st.sampled_from([1, -1]),
    st.integers(1, 2),
    seeds,
)
def test_positions_are_those_of_the_whole_order(
    dtype: str,
    count: int,
    row: int,
    wanted: int,
    start: int,
    step: int,
    threads: int,
    seed: int,
) -> None:
    x = rows((count, row), dtype, seed)
    part = slice(start, start + wanted)
    f = eq.jit(
        lambda x: order(x)[:, ::step][:, part], options=eq.Options(threads=threads)
    )
    np.testing.assert_array_equal(f(x), order(x)[:, ::step][:, part])


def largest(x: Any) -> tuple[Any, Any]:
    """As ONNX's TopK: of equal elements the first."""
    n = x.shape[-1]
    places = (n - 1 - np.flip(order(np.flip(x, -1)), -1))[..., :20]
    return np.take_along_axis(x, places, -1), places


def kinds(f: Callable[..., Any], x: Any) -> list[int]:
    """How many positions the orderings of ``f`` find."""
    program = eq.jit(f).lower(x).program
    layouts = [Layout(packed(t.shape)) for t in program.inputs]
    layered = Layered(program, Places(program, layouts), host(), 1)
    groups = [g for g in layered.parts if isinstance(g, Group)]
    pieces = [s.piece for g in groups for s in g.steps]
    return [p.wanted for p in pieces if isinstance(p, Ordering)]


X = rows((2, 5000), "float32", 1)


def test_the_largest_are_found_alone() -> None:
    assert kinds(largest, X) == [-20]
    found, places = eq.jit(largest)(X)
    wanted, at = largest(X)
    np.testing.assert_array_equal(places, at)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("f", "wanted"),
    [
        (lambda x: order(x)[:, :7], [7]),
        (lambda x: order(x)[:, 3:7] + 1, [7]),
        (lambda x: order(x)[:, -3], [-3]),
        (lambda x: order(x)[1, 7:0:-1], [8]),
        (lambda x: (order(x)[:, :7], order(x)[:, 2:90:3]), [90]),
        (lambda x: x[np.arange(2), order(x)[:, -2]], [-2]),
        (lambda x: (order(x)[:, :7], order(x)[:, -7:]), [0]),
        (lambda x: order(x)[:, 2000:2100], [0]),
        (lambda x: order(x)[:, ::900], [0]),
        (lambda x: order(x).reshape(-1)[:5100], [0]),
        (lambda x: order(x).T[:7], [7]),
        (lambda x: np.argsort(x[:1].T, axis=0, kind="stable")[9:2:-1], [0]),
        (lambda x: np.argsort(x.T, axis=0, kind="stable")[:7], [0]),
        (lambda x: (order(x)[:, :7], order(x)), [0]),
        (lambda x: order(order(x))[:, :7], [0, 0]),  # of int64, by NumPy
        (lambda x: np.take(order(x), np.arange(7), axis=1).sum(), None),
    ],
)
def test_what_is_read_says_what_is_found(
    f: Callable[..., Any], wanted: list[int] | None
) -> None:
    if wanted is not None:
        assert sorted(kinds(f, X)) == sorted(wanted)
    found, want = eq.jit(f)(X), f(X)
    pairs = (
        zip(found, want, strict=True) if isinstance(want, tuple) else [(found, want)]
    )
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)
