"""Regions: long programs in pieces, each distinct piece optimised once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from bodies import body
from hypothesis import given
from hypothesis import strategies as st
from programs import held_by
from sizes import examples, is_whole

import eqsat as eq
from eqsat.demo import block
from eqsat.demo.minilm import softmax
from eqsat.search import regions
from eqsat.search.regions import Region, split
from eqsat.terms.op import INPUT, SCALAR, is_constant
from eqsat.terms.term import Term, postorder
from eqsat.trace.trace import trace

rng = np.random.default_rng(11)


def draw(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


def pieces_of(f: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Region]:
    roots = trace(f, args, **kwargs).outputs
    return split(roots, is_constant(roots), asked=eq.default_rules().asked)


def own(region: Region) -> list[Term]:
    """The terms that a region computes."""
    leaves = set(region.leaves)
    return [t for t in region.terms if t not in leaves and t.op is not SCALAR]


def assert_covers(found: Sequence[Region], roots: Sequence[Term]) -> None:
    """Every live term is computed once, after what it needs, and kept if needed."""
    constant = is_constant(roots)
    live = [t for t in postorder(roots) if not constant[t] and t.op is not INPUT]
    assert [t for r in found for t in own(r)] == live
    kept: set[Term] = set()
    for r in found:
        computed = set(own(r))
        assert set(r.roots) <= computed
        for t in r.leaves:
            assert t in kept or constant[t] or t.op is INPUT
        for t in computed:
            assert all(a in r.terms for a in t.args)
        assert r.constants == {i for i, t in enumerate(r.leaves) if constant[t]}
        kept.update(r.roots)
    assert {r for r in roots if not constant[r] and r.op is not INPUT} <= kept


@examples(40)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 120), count=st.integers(1, 3))
def test_regions_cover_each_term_once(seed: int, steps: int, count: int) -> None:
    shapes = ((3, 4), (4,), (2, 3, 4))
    f, arrays = body(seed, steps), [draw(*s) for s in shapes[:count]]
    done = trace(lambda *xs: (f(*xs), xs[0], f(*xs)), arrays)
    found = split(done.outputs, is_constant(done.outputs))
    assert_covers(found, done.outputs)
    assert all(len(own(r)) <= regions.MOST for r in found)
    whole = split(done.outputs, is_constant(done.outputs), whole=True)
    assert_covers(whole, done.outputs)
    assert len(whole) <= 1


def test_nothing_to_compute() -> None:
    x = draw(3)
    assert pieces_of(lambda x: (x, np.ones(3)), x) == []
    np.testing.assert_array_equal(eq.jit(lambda x: (x, np.ones(3)))(x)[0], x)


# -- equal pieces ----------------------------------------------------------------------


def blocks(layers: int, **sizes: Any) -> tuple[Any, tuple[Any, ...]]:
    config = block.Config(layers=layers, seq=10, dim=24, heads=3, **sizes)
    model, x, adapters = block.draw(config)

    def forward(x: Any, params: Any, adapters: Any) -> Any:
        return block.Model(config, params).forward(x, adapters)

    return forward, (x, model.params, adapters)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("weights", ["constants", "arguments"])
@pytest.mark.parametrize("lora", [0, 2])
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_twelve_layers_are_few_distinct_regions(
    norm: str, lora: int, weights: str
) -> None:
    forward, args = blocks(12, norm=norm, lora=lora)
    known = ("params",) if weights == "constants" else ()
    found = pieces_of(forward, *args, constants=known)
    assert len(found) >= 6
    assert len({r.key for r in found}) <= 3
    done = eq.jit(forward, constants=known).lower(*args).optimised
    assert (done.regions, done.distinct_regions) == (
        len(found),
        len({r.key for r in found}),
    )


@pytest.mark.sampled(8)
@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("lora", [0, 2])
def test_pieces_give_the_numbers_of_the_whole(norm: str, lora: int) -> None:
    forward, args = blocks(5 if is_whole() else 3, norm=norm, lora=lora)
    pieces = eq.jit(forward)
    whole = eq.jit(forward, options=eq.Options(regions=False))
    assert pieces.lower(*args).optimised.regions > 1
    assert whole.lower(*args).optimised.regions == 1
    want = forward(*args)
    for fast in (pieces, whole):
        np.testing.assert_allclose(fast(*args), want, rtol=2e-4, atol=2e-5)
    costs = [fast.lower(*args).optimised.cost_s for fast in (pieces, whole)]
    assert max(costs) <= 1.1 * min(costs)


def chain(x: Any, weights: Sequence[np.ndarray], shift: float) -> Any:
    for w in weights:
        x = np.tanh(x @ w + shift)
    return x


def test_a_piece_made_later_but_needed_first() -> None:
    """Results are visited in the order in which they are returned, not made."""
    ws = [draw(6, 6) / 3 for _ in range(120)]

    def f(x: Any) -> Any:
        shared = chain(x, ws[:40], 0.5)
        first = chain(shared, ws[40:70], 0.25)
        second = chain(shared, ws[70:120], 0.75)
        return second, first

    x = draw(4, 6)
    found = pieces_of(f, x)
    ends = [r.terms[-1].id for r in found]
    assert len(found) > 2 and ends != sorted(ends)
    fast = eq.jit(f)
    for got, want in zip(fast(x), f(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    kernels = [k.op.name for k in fast.lower(x).program.kernels]
    assert kernels.count("linear") + kernels.count("matmul") <= 120


# -- what constants hold ---------------------------------------------------------------


def masked(x: Any, mask: Any) -> Any:
    return softmax(np.where(mask, x @ x.mT / math.sqrt(6), -np.inf)) @ x


def keys_of(*masks: np.ndarray) -> list[Any]:
    x = draw(2, 5, 6)
    found = [pieces_of(masked, x, mask, constants=("mask",)) for mask in masks]
    return [r.key for (r,) in found]


def test_constants_that_differ_in_value_share_a_region() -> None:
    x = draw(3, 4)
    a, b = ([r.key for r in pieces_of(lambda x, w=w: x @ w, x)] for w in draw(2, 4, 5))
    assert a == b
    live = [r.key for r in pieces_of(lambda x, w: x @ w, x, draw(4, 5))]
    assert live != a


def test_causal_masks_share_a_region_and_others_do_not() -> None:
    causal = np.tri(5, dtype=bool)
    band = causal & ~np.tri(5, k=-3, dtype=bool)
    other = np.ones((5, 5), bool)
    first, again, banded, full = keys_of(causal, causal.copy(), band, other)
    assert first == again
    assert banded == full
    assert first != banded


def test_layers_with_different_masks_keep_their_masks() -> None:
    """The first is causal, the others are not, and only the first may say so."""
    keeps = [np.tri(5, dtype=bool), np.ones((5, 5), bool), np.tri(5, k=2, dtype=bool)]

    def f(x: Any) -> Any:
        for i in range(18):
            x = np.tanh(masked(x, keeps[i % 3]))
        return x

    x = draw(2, 5, 6)
    fast = eq.jit(f)
    np.testing.assert_allclose(fast(x), f(x), rtol=1e-9, atol=1e-12)
    low = fast.lower(x)
    assert low.optimised.regions > 1
    assert held_by(low.program).count("attention_causal") == 6


def test_masks_are_recognised_behind_views_and_casts_only() -> None:
    x = draw(2, 5, 6)

    def views(x: Any, m: Any) -> Any:
        return masked(x, m[0].astype(bool))

    def long_way(x: Any, m: Any) -> Any:
        for _ in range(200):
            m = m * 1.0 + 0.0
        return masked(x, m[0] > 0.5)

    keep = np.tri(5)[None]
    for f, causal in ((views, True), (long_way, False)):
        fast = eq.jit(f, constants=("m",))
        np.testing.assert_allclose(fast(x, keep), f(x, keep), rtol=1e-9, atol=1e-12)
        kernels = held_by(fast.lower(x, keep).program)
        assert ("attention_causal" in kernels) is causal


def test_constants_that_share_their_parts_are_evaluated_once() -> None:
    """Forty squarings of one array take forty products, not 2⁴⁰."""

    def f(x: Any, c: Any) -> Any:
        for _ in range(40):
            c = c * c
        return x + c

    x, c = draw(3, 4), np.full((3, 4), 1.0)
    np.testing.assert_array_equal(eq.jit(f, constants=("c",))(x, c), x + 1)


def test_numbers_that_the_engine_cannot_hold() -> None:
    """-0.0, NaN and integers of 64 bits and more are leaves."""
    x = np.array([0.0, -0.0, 2.0])

    def f(x: Any) -> Any:
        return x + -0.0, x * math.nan, np.where(x > 1, -0.0, x) * 1.0, x * 2.0**70

    for got, want in zip(eq.jit(f)(x), f(x), strict=True):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_numbers_that_differ_in_type_alone() -> None:
    """The bare numbers 2 and 2.0 are two leaves of one graph."""
    i = np.arange(1, 5)

    def f(i: Any) -> Any:
        return i // 2 * (i / 2), i * 2 + i * 2.0

    for got, want in zip(eq.jit(f)(i), f(i), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


# Programs of several regions are compared with the whole every time.
@pytest.mark.slow
@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("layers", [3, 5, 8])
def test_results_stay_with_their_kernel_in_the_second_pass(
    norm: str, layers: int
) -> None:
    """A kernel of several results, first read in one group and again in another, was
    taken apart."""
    config = block.Config(layers, 16, 32, 4, norm=norm)
    model, x, _ = block.draw(config)
    fast = eq.jit(model.forward)
    assert fast.lower(x).optimised.regions > 1
    np.testing.assert_allclose(fast(x), model.forward(x), rtol=2e-4, atol=2e-5)
    assert len(fast.explain(x).kernels) == 5 * layers
