"""Every e-node of whole graphs computes what its class computes, in float64.

Axes that meet have sizes of their own, so that a broken rule cannot hide in a square.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from bodies import body
from enodes import check, saturated
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erf
from sizes import examples
from small_models import small_batch, small_minilm
from spellings import NEAR_MISSES, SPELLINGS

import eqsat as eq
from eqsat.demo import block, minilm

rng = np.random.default_rng(2)
BATCH, SEQ, HEADS, WIDTH, RANK = 2, 5, 3, 7, 4
DIM = HEADS * WIDTH


def draw(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


# -- transformer blocks ----------------------------------------------------------------


def parameters(norm: str) -> dict[str, np.ndarray]:
    config = block.Config(1, SEQ, DIM, HEADS, norm=norm)
    (params,) = block.draw(config)[0].params
    return {name: w.astype(float) for name, w in params.items()}


def keep_past(scores: Any) -> Any:
    return np.where(np.tri(SEQ, dtype=bool), scores, -np.inf)


def hide_future(scores: Any) -> Any:
    return scores + np.triu(np.full((SEQ, SEQ), -np.inf), 1)


def hide_padding(scores: Any) -> Any:
    return scores + np.where(np.arange(SEQ) < 3, 0.0, -1e9)


MASKS = {
    "all": lambda scores: scores,
    "causal": keep_past,
    "causal bias": hide_future,
    "padding": hide_padding,
}


def transformer(mask: str) -> Any:
    """Blocks whose attention is written out, so that scores can be masked."""

    def split(y: Any) -> Any:
        return y.reshape(BATCH, SEQ, HEADS, WIDTH).transpose(0, 2, 1, 3)

    def attend(x: Any, p: Any, pair: Any) -> Any:
        q, k, v = (split(block.linear(x, p, name)) for name in "qkv")
        scores = MASKS[mask](q @ k.swapaxes(-1, -2) / math.sqrt(WIDTH))
        mixed = minilm.softmax(scores) @ v
        flat = mixed.transpose(0, 2, 1, 3).reshape(BATCH, SEQ, DIM)
        out = block.linear(flat, p, "out")
        return out if pair is None else out + flat @ (pair[0] @ pair[1])

    def forward(x: Any, layers: Any, pairs: Any) -> Any:
        for p, pair in zip(layers, pairs, strict=True):
            x = x + attend(block.normalise(x, p, "norm1"), p, pair)
            x = x + block.feed_forward(block.normalise(x, p, "norm2"), p)
        return x

    return forward


def transformer_arguments(norm: str, lora: bool, layers: int = 2) -> tuple[Any, ...]:
    pairs = [(draw(DIM, RANK), draw(RANK, DIM)) for _ in range(layers)]
    params = [parameters(norm) for _ in range(layers)]
    return draw(BATCH, SEQ, DIM), params, pairs if lora else [None] * layers


@pytest.mark.sampled(8)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("lora", [False, True], ids=["plain", "lora"])
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_blocks(norm: str, lora: bool, mask: str) -> None:
    args = transformer_arguments(norm, lora)
    s = saturated(transformer(mask), *args, constants=("layers",))
    check(s)
    assert len(s.graph.nodes) > 200
    ops = {n.op.name for n in s.graph.nodes}
    assert ops >= {f"{norm}_norm", "concatenate", "softmax"}
    assert ("attention_causal" in ops) is mask.startswith("causal")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_blocks_whose_weights_are_arguments_and_in_one_piece(norm: str) -> None:
    args = transformer_arguments(norm, lora=True)
    options = eq.Options(regions=False)
    check(saturated(transformer("all"), *args, options=options))


# Blocks and drawn graphs are checked every time.
@pytest.mark.slow
def test_minilm() -> None:
    w = small_minilm("float64", dim=20, hidden=33)
    ids, mask = small_batch("float64")
    args = (w, ids, mask, 4)
    check(saturated(minilm.embed, *args, constants=("w",)))
    check(saturated(minilm.embed, *args))


# -- spellings and other graphs --------------------------------------------------------

ALL_SPELLINGS = SPELLINGS | NEAR_MISSES


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ALL_SPELLINGS)
def test_spellings(name: str) -> None:
    f, args, _ = ALL_SPELLINGS[name]
    check(saturated(f, *args))


def convolved(x: Any, w: Any, b: Any, mean: Any, var: Any, g: Any, c: Any) -> Any:
    y = eq.conv2d(x, w, stride=(1, 2), padding=(1, 0)) + b[:, None, None]
    return np.maximum(eq.batch_norm(y, mean, var, g, c), 0)


def convolved_by_hand(x: Any, w: Any, *channels: Any) -> Any:
    u, m, v, s, t = (p[None, :, None, None] for p in channels)
    y = eq.conv2d(x, w, padding=(0, 1)) + u
    return np.maximum((y - m) / np.sqrt(v + 1e-5) * s + t, 0)


def grouped(x: Any, w: Any, b: Any) -> Any:
    y = x.reshape(x.shape[0], 2, -1)
    d = y - y.mean(-1, keepdims=True)
    y = d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)
    return y.reshape(x.shape) * w[:, None, None] + b[:, None, None]


def grouped_over_axes(x: Any, w: Any, b: Any) -> Any:
    n, k, h, v = x.shape
    y = x.reshape(n, 2, k // 2, h, v)
    d = y - y.mean((2, 3, 4), keepdims=True)
    y = d / np.sqrt((d * d).mean((2, 3, 4), keepdims=True) + 1e-5)
    return y.reshape(x.shape) * w[None, :, None, None] + b[None, :, None, None]


def activations(x: Any) -> Any:
    gelu = 0.5 * x * (1 + erf(x / 2**0.5))
    silu = x / (1 + np.exp(-x))
    tanh = 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))
    z = x - x.max(-1, keepdims=True)
    return gelu + silu * tanh + (z - np.log(np.exp(z).sum(-1, keepdims=True)))


def transposed(x: Any, w: Any, v: Any) -> Any:
    return ((x @ w).mT * 3.0).mT @ v + x.reshape(2, 3, 5) @ (w @ v)


CHANNELS = tuple(np.abs(draw(5)) for _ in range(5))
GRAPHS = {
    "convolved": (convolved, (draw(2, 3, 7, 8), draw(5, 3, 2, 4), *CHANNELS)),
    "convolved by hand": (
        convolved_by_hand,
        (draw(2, 3, 7, 8), draw(5, 3, 2, 4), *CHANNELS),
    ),
    "grouped": (grouped, (draw(2, 6, 4, 5), draw(6), draw(6))),
    "grouped over axes": (grouped_over_axes, (draw(2, 6, 4, 5), draw(6), draw(6))),
    "activations": (activations, (draw(4, 7),)),
    "transposed": (transposed, (draw(2, 3, 5), draw(5, 4), draw(4, 6))),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name: str) -> None:
    f, args = GRAPHS[name]
    check(saturated(f, *args))
    check(saturated(lambda x: f(x, *args[1:]), args[0]))


@examples(20)
@given(seed=st.integers(0, 10**6), steps=st.integers(2, 24))
def test_random_programs(seed: int, steps: int) -> None:
    f, arrays = body(seed, steps), [draw(3, 4), draw(4), draw(2, 3, 4)]
    s = saturated(lambda *xs: f(*xs) * 1.5 + xs[0][0, 0], *arrays)
    assert not s.done.cut_short
    check(s)


# -- what the check finds --------------------------------------------------------------


def wrong(name: str, f: Any, signature: str = "...") -> eq.RuleSet:
    rule = eq.rule(signature, phase="algebra", name=name)(f)
    return eq.default_rules() + eq.RuleSet((rule,))


def test_wrong_rules_of_the_right_shape_are_caught() -> None:
    rules = wrong("exp_is_linear", lambda x: (np.exp(x), x + 1.0))
    with pytest.raises(AssertionError, match="exp_is_linear"):
        check(saturated(activations, draw(4, 7), rules=rules))
    rules = wrong(
        "scale_does_not_matter",
        lambda x, s: (eq.softmax(x * s), eq.softmax(x)),
        "... n, ",
    )
    args = transformer_arguments("layer", lora=True)
    with pytest.raises(AssertionError, match="scale_does_not_matter"):
        check(saturated(transformer("all"), *args, rules=rules))


def test_a_rule_that_is_wrong_by_a_little_is_caught() -> None:
    rules = wrong("nearly", lambda x: (np.tanh(x), np.tanh(x * (1 + 1e-8))))
    with pytest.raises(AssertionError, match="nearly"):
        check(saturated(activations, draw(4, 7), rules=rules))
