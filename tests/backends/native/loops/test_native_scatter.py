"""Slices added at computed indices, in machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from families import taken
from hypothesis import given
from hypothesis import strategies as st
from natives import (
    DTYPES,
    called,
    fused,
    laid,
    layouts,
    lowered,
    mixed,
    natively,
    same_bits,
    threads,
)
from programs import program_of
from sizes import examples, seeds

import eqsat as eq
from eqsat import ops
from eqsat.backends.loop_ir.pieces import (
    Loops,
)
from eqsat.backends.native.loops.vector_shape import shape_of
from eqsat.backends.native.machine.processor import host
from eqsat.backends.to_loops.lower import (
    pieces_of,
)
from eqsat.backends.to_loops.schedule import (
    LoopTarget,
)
from eqsat.ops import add_at, set_at
from eqsat.ops.position import take

leads = st.sampled_from([(), (1,), (3,), (2, 5)])
many = st.sampled_from([(), (1,), (5,), (33,), (2, 3), (0,)])
slices = st.sampled_from([(), (1,), (7,), (64,), (130,), (300,), (3, 16), (2, 192)])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@examples(20)
@given(seeds, leads, many, slices, st.integers(1, 9), layouts, threads)
def test_slices_are_added_in_the_order_of_the_indices(
    dtype: Any,
    seed: int,
    lead: Any,
    many: Any,
    rest: Any,
    size: int,
    layout: str,
    threads: int,
) -> None:
    rng = np.random.default_rng(seed)
    axis = -1 - len(rest)
    at = np.asarray(taken(rng, np.empty((*lead, size, *rest)), axis, many))
    x = mixed(rng, (*lead, *many, *rest), dtype)
    at, x = (laid(a, layout) if a.ndim else a for a in (at, x))
    with np.errstate(all="ignore"):
        want = add_at(x, at, axis=axis, size=size)
        (got,) = natively(
            lambda v, i: add_at(v, i, axis=axis, size=size), x, at, threads=threads
        )
    same_bits(got, want)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@examples(12)
@given(seeds, leads, many, slices, st.integers(1, 9), layouts, threads)
def test_the_last_slice_for_a_place_stays(
    dtype: Any,
    seed: int,
    lead: Any,
    many: Any,
    rest: Any,
    size: int,
    layout: str,
    threads: int,
) -> None:
    rng = np.random.default_rng(seed)
    axis = -1 - len(rest)
    x = mixed(rng, (*lead, size, *rest), dtype)
    at = np.asarray(taken(rng, x, len(lead), many))
    new = mixed(rng, (*lead, *many, *rest), dtype)
    x, at, new = (laid(a, layout) if a.ndim else a for a in (x, at, new))
    (got,) = natively(
        lambda v, i, w: set_at(v, i, w, axis=axis), x, at, new, threads=threads
    )
    same_bits(got, set_at(x, at, new, axis=axis))


FUSED: list[Callable[..., Any]] = [
    lambda g, w, i: add_at(g * take(w, i, 0), i, axis=-2, size=40),
    lambda g, w, i: add_at(ops.sum(g, -1), i, axis=-1, size=40),
    lambda g, w, i: (
        add_at(g / np.abs(g).max(-1, keepdims=True), i, axis=-2, size=40) + w
    ),
    lambda g, w, i: ops.sum(add_at(g, i, axis=-2, size=40) * w, -1),
    lambda g, w, i: add_at(g, i, axis=-2, size=40) @ w.T,
    lambda g, w, i: add_at(g @ w.T @ w, i * 1, axis=-2, size=40),
    lambda g, w, i: add_at(g.T, i, axis=-1, size=40).T - w,
    lambda g, w, i: add_at(np.exp(g[:, ::-1]), i, axis=-2, size=40)[3:, ::2],
    lambda g, w, i: add_at(g.reshape(9, 3, 8), i, axis=-3, size=40) + w[:, None, :8],
    lambda g, w, i: take(add_at(g, i, axis=-2, size=40), i, 0) - g,
    lambda g, w, i: set_at(w * 2, i, np.exp(g), axis=-2) + w,
    lambda g, w, i: set_at(w @ w.T, i, g @ w.T, axis=-2),
    lambda g, w, i: add_at(add_at(g, i, axis=-2, size=40)[:9], i, axis=-2, size=50),
]


@pytest.mark.parametrize("number", range(len(FUSED)))
@examples(6)
@given(seeds, threads, st.booleans())
def test_added_slices_have_neighbours(
    number: int, seed: int, threads: int, as_one: bool
) -> None:
    """As kernels of their own, and as one."""
    rng = np.random.default_rng(seed)
    g = rng.standard_normal((9, 24)).astype(np.float32)
    w = rng.standard_normal((40, 24)).astype(np.float32)
    at = rng.integers(-40, 40, 9)
    f = FUSED[number]
    want = f(g.astype(np.float64), w.astype(np.float64), at)
    if as_one:
        one = fused(lambda g, w: f(g, w, at), 2)
        (got,) = natively(one, g, w, threads=threads)
    else:
        (got,) = natively(f, g, w, at, threads=threads)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-4)


def test_halves_are_added_in_float32() -> None:
    """A thousand times 1 + 2⁻⁸, which float16 would lose."""
    x = np.full((1000, 3), 1 + 2**-8, np.float16)
    at = np.zeros(1000, np.int64)
    (got,) = natively(lambda v, i: add_at(v, i, axis=-2, size=2), x, at)
    same_bits(got, np.array([[1003.90625] * 3, [0] * 3], np.float16))


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("bad", [7, -8, 2**62, -(2**62)])
def test_an_index_out_of_bounds_is_an_error_and_writes_nowhere(
    bad: int, threads: int
) -> None:
    x = np.ones((4000, 130), np.float32)
    at = np.arange(4000) % 7 - 3
    program = lowered(
        program_of(lambda v, i: add_at(v, i, axis=-2, size=7), x, at), threads
    )
    assert not program.reasons
    (fine,) = called(program, x, at)
    at[-1] = bad
    for _ in range(2):
        with pytest.raises(IndexError, match=f"index {bad} is out of bounds"):
            program(x, at)
    at[-1] = 3999 % 7 - 3
    (again,) = called(program, x, at)
    same_bits(again, fine)


def test_threads_take_parts_of_slices() -> None:
    """Few slices before the axis: each thread adds its part of all of them."""
    x = np.ones((50, 600), np.float32)
    at = np.arange(50) % 7
    program = program_of(lambda v, i: add_at(v, i, axis=-2, size=7), x, at)
    for count, parts in ((1, 1), (2, 2), (6, 6), (64, 8)):
        (kernel,) = program.kernels
        *_, added = pieces_of(kernel, LoopTarget(count, scatters=True)).pieces
        assert isinstance(added, Loops)
        assert shape_of(added.nest, host()).units == parts


def test_gradients_of_lookups_are_machine_code() -> None:
    rng = np.random.default_rng(0)
    table, w = rng.standard_normal((30, 8)), rng.standard_normal((8, 4))
    words, labels = rng.integers(0, 30, (5, 7)), rng.integers(0, 4, (5, 7))

    def loss(table: Any, w: Any, words: Any, labels: Any) -> Any:
        logits = eq.log_softmax(table[words] @ w)
        return -np.take_along_axis(logits, labels[..., None], -1).mean()

    both = eq.value_and_grad(loss, (0, 1))
    _, *got = natively(
        lambda *a: (both(*a)[0], *both(*a)[1]), table, w, words, labels, threads=2
    )
    for g, x in zip(got, (table, w), strict=True):
        for _ in range(3):
            d = rng.standard_normal(x.shape)
            ends = []
            for h in (1e-5, -1e-5):
                moved = (x + h * d, w) if x is table else (table, x + h * d)
                ends.append(loss(*moved, words, labels))
            assert np.vdot(g, d) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)
