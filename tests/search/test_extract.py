"""Extraction of programs: equal to the integer program on transformer blocks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from programs import held_by

import eqsat as eq
from eqsat.demo import block
from eqsat.lowered import Lowered
from eqsat.terms.term import postorder

rng = np.random.default_rng(5)


def draw(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


# -- transformer blocks and products ---------------------------------------------------


def lowered(f: Any, *args: Any) -> Lowered:
    """The program of ``f``, which must compute what ``f`` does."""
    fast = eq.jit(f)
    np.testing.assert_allclose(fast(*args), f(*args), rtol=1e-9, atol=1e-9)
    low: Lowered = fast.lower(*args)
    return low


# Drawn graphs are compared with the integer program every time.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm", "lora", "weights"),
    [
        ("rms", 3, "arguments"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                *[("rms", 0, "arguments"), ("rms", 0, "constants")],
                ("rms", 3, "constants"),
                *itertools.product(["layer"], [0, 3], ["constants", "arguments"]),
            ]
        ),
    ],
)
def test_blocks_cost_what_the_integer_program_says(
    norm: str, lora: int, weights: str
) -> None:
    config = block.Config(layers=1, seq=20, dim=48, heads=4, norm=norm, lora=lora)
    model, x, adapters = block.draw(config)

    def forward(x: Any, params: Any, adapters: Any) -> Any:
        return block.Model(config, params).forward(x, adapters)

    args: tuple[Any, ...] = (x, model.params, adapters)
    known = ("params",) if weights == "constants" else ()
    found = eq.jit(forward, constants=known).lower(*args)
    exact = eq.Options(extract="exact", deadline_s=300)
    best = eq.jit(forward, options=exact, constants=known).lower(*args)
    assert best.optimised.optimal_gap == 0
    assert found.optimised.optimal_gap is None
    assert found.optimised.cost_s == pytest.approx(best.optimised.cost_s, rel=1e-6)
    assert best.explain().optimal_gap == 0


def concatenates(low: Lowered) -> bool:
    return any(t.op.name == "concatenate" for t in postorder(low.term))


def test_parallel_products_merge_when_their_weights_are_known() -> None:
    x, *weights = draw(64, 96), draw(96, 96), draw(96, 96), draw(96, 96)

    def products(x: Any, q: Any, k: Any, v: Any) -> Any:
        return x @ q, x @ k, x @ v

    live = eq.jit(products).lower(x, *weights)
    assert not concatenates(live)
    known = eq.jit(products, constants=("q", "k", "v")).lower(x, *weights)
    assert concatenates(known)
    (merged,) = (k for k in known.program.kernels if "matmul" in k.op.name)
    assert merged.term.shape == (64, 3 * 96)
    assert len(known.program.folded) == 1


SIZES = {"small rank": (80, 64, 48, 3), "rank above the width": (512, 24, 20, 300)}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("form", ["product", "sum"])
def test_the_order_of_a_low_rank_product(name: str, form: str) -> None:
    m, k, n, r = SIZES[name]
    x, w, a, b = draw(m, k), draw(k, n), draw(k, r), draw(r, n)

    def product(x: Any, a: Any, b: Any) -> Any:
        return x @ (a @ b)

    def summed(x: Any, a: Any, b: Any) -> Any:
        return x @ (w + a @ b)

    low = lowered(product if form == "product" else summed, x, a, b)
    cheap = "(x A) B" if name == "small rank" else "x (A B)"
    assert block.lora_order(low.program) == cheap


def test_the_dear_order_is_turned_round_too() -> None:
    m, k, n, r = SIZES["rank above the width"]
    x, a, b = draw(m, k), draw(k, r), draw(r, n)
    low = lowered(lambda x, a, b: (x @ a) @ b, x, a, b)
    assert block.lora_order(low.program) == "x (A B)"


def test_a_shared_product_is_computed_once() -> None:
    x, w, v = draw(64, 48), draw(48, 40), draw(40, 32)

    def f(x: Any, w: Any, v: Any) -> Any:
        h = x @ w
        return h.sum(-1), h @ v, x @ w

    low = eq.jit(f).lower(x, w, v)
    assert held_by(low.program).count("matmul") == 2


def test_what_many_products_read_is_computed_once() -> None:
    """The left operand of one product is computed as it is read; in each of many that
    would take as long as the product."""
    a, x = np.ones((512, 512), np.float32), np.ones(512, np.float32)

    def power(a: Any, x: Any, n: int) -> Any:
        for _ in range(n):
            x = (a - 1) @ x
        return x

    f = eq.jit(power)
    assert [k.kind for k in f.explain(a, x, 1).kernels] == ["contract"]
    assert [k.kind for k in f.explain(a, x, 8).kernels] == ["map", *["contract"] * 8]
