"""Fusions taken and not taken, the question whether two functions fuse, and prices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pricing
import pytest

import eqsat as eq
from eqsat.demo import block
from eqsat.demo.minilm import softmax

Array = np.ndarray[Any, Any]


def draw(*shape: int) -> Array:
    return np.random.default_rng(shape).uniform(0.5, 1.5, shape).astype("f4")


X, W, SQUARE = draw(64, 96), draw(96, 80), draw(64, 64)


def test_a_fusion_that_was_taken_says_what_it_saves() -> None:
    e = eq.jit(lambda x, w: np.tanh(x @ w) * 2).explain(X, W)
    (taken,) = e.fusions
    assert taken.taken and taken.kernels == (e.kernels[0].name,)
    apart = eq.jit(
        lambda x, w: np.tanh(x @ w) * 2, options=eq.Options(fusion=False)
    ).explain(X, W)
    assert taken.fused_s == pytest.approx(e.cost_s)
    assert taken.apart_s == pytest.approx(apart.cost_s)
    assert taken.speedup == pytest.approx(apart.cost_s / e.cost_s)
    hidden = 2 * 2 * 64 * 80 * 4  # two values, each no longer written and read
    assert taken.saved_bytes == hidden
    assert e.record()["fusions"][0]["speedup"] == taken.speedup


REASONS: list[tuple[str, Callable[..., Any], tuple[Array, ...], str]] = [
    (
        "two products",
        lambda x, w: (x @ w) @ w.T,
        (X, W),
        "two products without a reduction of whole rows between them",
    ),
    (
        "another axis",
        lambda x: softmax(softmax(x).T),
        (SQUARE,),
        "softmax: max runs over another shape than the domain (64, 64)",
    ),
    (
        "columns of a product",
        lambda x, w: (x @ w).sum(0),
        (X, W),
        "sum of a product over axes (-2,); only the last can follow it",
    ),
    (
        "two sets of axes",
        lambda x: x / x.sum(-1, keepdims=True) / (x + 1).sum(0, keepdims=True),
        (X,),
        "reduces axes",
    ),
]


@pytest.mark.parametrize(
    ("f", "args", "reason"), [c[1:] for c in REASONS], ids=[c[0] for c in REASONS]
)
def test_a_fusion_that_cannot_be_says_why(
    f: Callable[..., Any], args: tuple[Array, ...], reason: str
) -> None:
    e = eq.jit(f).explain(*args)
    missed = [o for o in e.fusions if not o.taken]
    assert missed and all(len(o.kernels) == 2 for o in missed)
    assert any(reason in o.reason for o in missed)
    assert str(missed[0]) in str(e)


def test_a_kind_or_a_size_that_is_off_is_the_reason() -> None:
    f = eq.jit(lambda x: softmax(np.tanh(x)), options=eq.Options(kinds={"map"}))
    assert any("kind 'row' are off" in o.reason for o in f.explain(X).fusions)
    small = eq.Options(least_elements=10**6)
    g = eq.jit(lambda x: np.exp(np.tanh(x)), options=small)
    (missed,) = g.explain(X).fusions
    assert "6144 elements, and fusion starts at 1000000" in missed.reason


def test_can_fuse() -> None:
    yes = eq.can_fuse(np.exp, np.tanh, (64, 64))
    assert yes and len(yes.kernels) == 1 and yes.speedup > 1
    assert str(yes).startswith("fused: saves ")
    no = eq.can_fuse(lambda x, w: x @ w, lambda y: y.sum(0), X, W)
    assert not no and "only the last can follow it" in no.reason
    two = eq.can_fuse(lambda x: (x + 1, x * 2), lambda a, b: a * b, X)
    assert two and len(two.kernels) == 1
    off = eq.Options(fusion=False)
    assert not eq.can_fuse(np.exp, np.tanh, (4, 4), options=off)
    with pytest.raises(eq.OptionError, match=r"\(3, -1\) is no shape"):
        eq.can_fuse(np.exp, np.tanh, (3, -1))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
    "attention": (lambda q, k, v: softmax(q @ k.T * 0.1) @ v, (X, X + 1, X)),
    "norm": (
        lambda x: (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True),
        (X,),
    ),
    "slices": (lambda x: x[:, ::2] * x[:, 1::2] + x[:32, :48].sum(), (X,)),
    "gather": (lambda x, i: np.tanh(x[i]) + 1, (X, np.arange(9) % 5)),
    "broadcast": (lambda x: x + np.broadcast_to(x[0], (64, 96)) * x[:, :1], (X,)),
    "several": (lambda x: (x + 1, np.exp(x + 1), (x + 1).sum(-1)), (X,)),
    "joined": (lambda x, y: np.concatenate([x, y * 2]) * 3, (X, X)),
    "half": (lambda x: softmax(x.astype("f2")) * 2, (X,)),
    "conv": (
        lambda x, w: np.maximum(eq.conv2d(x, w, padding=(1, 1)) * 0.5, 0),
        (draw(2, 3, 8, 9), draw(4, 3, 3, 3)),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_cost_what_their_bodies_say(name: str) -> None:
    f, args = PROGRAMS[name]
    low = eq.jit(f).lower(*args)
    assert not pricing.disagreements(
        low.program.kernels,
        low.optimised.prices_s,
        low.model.device,
        low.model.target,
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize(("layers", "lora"), [(1, 0), (4, 0), (2, 4)])
def test_kernels_of_blocks_cost_what_their_bodies_say(
    norm: str, layers: int, lora: int
) -> None:
    config = block.Config(layers, 32, 48, 4, lora=lora, norm=norm)
    model, x, adapters = block.draw(config)
    args = (x, adapters) if lora else (x,)
    low = eq.jit(model.forward).lower(*args)
    assert not pricing.disagreements(
        low.program.kernels,
        low.optimised.prices_s,
        low.model.device,
        low.model.target,
    )
