"""Transformer blocks with random weights, and MiniLM.

A block shape is layers, tokens, features; heads have 64 features. MiniLM is the model
of :mod:`eqsat.demo.minilm` with random weights of its shapes, since the published ones
are a download; shapes are sentences, tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.workloads import Array, Draw, Drawn, sizes
from eqsat.demo.minilm import HEADS, embed

LAYERS = tuple((layers, 128, 512) for layers in (1, 2, 4, 12))
HEAD = 64

# -- pre-norm blocks -------------------------------------------------------------------


def _attend(F: Any, x: Array, p: dict[str, Array]) -> Array:
    heads = x.shape[-1] // HEAD
    q, k, v = (F.split_heads(x @ p[name], heads) for name in "qkv")
    return F.merge_heads(F.attention(q, k, v)) @ p["o"]


def _gelu_blocks(F: Any, x: Array, layers: list[dict[str, Array]]) -> Array:
    for p in layers:
        x = x + _attend(F, F.layer_norm(x, p["g1"], p["c1"]), p)
        h = F.linear(F.layer_norm(x, p["g2"], p["c2"]), p["up"], p["b1"])
        x = x + F.linear(F.gelu(h), p["down"], p["b2"])
    return x


def _swiglu_blocks(F: Any, x: Array, layers: list[dict[str, Array]]) -> Array:
    for p in layers:
        x = x + _attend(F, F.rms_norm(x, p["g1"]), p)
        h = F.rms_norm(x, p["g2"])
        x = x + (F.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]
    return x


def _draw_gelu(draw: Draw, layers: int, tokens: int, dim: int) -> Drawn:
    def layer() -> dict[str, Array]:
        return {
            **{name: draw.weight(dim, dim) for name in "qkvo"},
            **{"g1": draw.gain(dim), "c1": draw.bias(dim)},
            **{"g2": draw.gain(dim), "c2": draw.bias(dim)},
            **{"up": draw.weight(dim, 4 * dim), "b1": draw.bias(4 * dim)},
            **{"down": draw.weight(4 * dim, dim), "b2": draw.bias(dim)},
        }

    return [draw.normal(tokens, dim)], [[layer() for _ in range(layers)]]


def _draw_swiglu(draw: Draw, layers: int, tokens: int, dim: int) -> Drawn:
    hidden = 8 * dim // 3 // 16 * 16

    def layer() -> dict[str, Array]:
        return {
            **{name: draw.weight(dim, dim) for name in "qkvo"},
            **{name: draw.gain(dim) for name in ("g1", "g2")},
            **{name: draw.weight(dim, hidden) for name in ("gate", "up")},
            "down": draw.weight(hidden, dim),
        }

    return [draw.normal(tokens, dim)], [[layer() for _ in range(layers)]]


# -- MiniLM ----------------------------------------------------------------------------

WORDS, PLACES, FEATURES, HIDDEN, DEPTH = 30522, 512, 384, 1536, 6


def _minilm_numpy(ids: Array, mask: Array, w: dict[str, Array]) -> Array:
    return embed(w, ids, mask)


def _minilm(F: Any, ids: Array, mask: Array, w: dict[str, Array]) -> Array:
    """The same over a namespace."""

    def norm(x: Array, name: str) -> Array:
        name += ".LayerNorm"
        return F.layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"], 1e-12)

    def linear(x: Array, name: str) -> Array:
        return F.linear(x, w[f"{name}.weight"].T, w[f"{name}.bias"])

    x = F.take(w["embeddings.word_embeddings.weight"], ids)
    x = x + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings")
    bias = (1 - mask[:, None, None, :]) * -1e9
    for i in range(DEPTH):
        at = f"encoder.layer.{i}"
        q, k, v = (
            F.split_heads(linear(x, f"{at}.attention.self.{part}"), HEADS)
            for part in ("query", "key", "value")
        )
        y = F.merge_heads(F.attention(q, k, v, bias=bias))
        x = norm(
            x + linear(y, f"{at}.attention.output.dense"), f"{at}.attention.output"
        )
        y = linear(F.gelu(linear(x, f"{at}.intermediate.dense")), f"{at}.output.dense")
        x = norm(x + y, f"{at}.output")
    pooled = (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
    return pooled / F.sqrt((pooled * pooled).sum(-1, keepdims=True))


def _draw_minilm(draw: Draw, sentences: int, tokens: int) -> Drawn:
    w = {
        f"embeddings.{name}_embeddings.weight": draw.normal(n, FEATURES, scale=0.05)
        for name, n in (("word", WORDS), ("position", PLACES), ("token_type", 2))
    }

    def norm(name: str) -> None:
        w[f"{name}.LayerNorm.weight"] = draw.gain(FEATURES)
        w[f"{name}.LayerNorm.bias"] = draw.bias(FEATURES)

    def linear(name: str, out: int, into: int) -> None:
        w[f"{name}.weight"] = draw.normal(out, into, scale=into**-0.5)
        w[f"{name}.bias"] = draw.bias(out)

    norm("embeddings")
    for i in range(DEPTH):
        at = f"encoder.layer.{i}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            linear(f"{at}.attention.{part}", FEATURES, FEATURES)
        linear(f"{at}.intermediate.dense", HIDDEN, FEATURES)
        linear(f"{at}.output.dense", FEATURES, HIDDEN)
        norm(f"{at}.attention.output")
        norm(f"{at}.output")
    ids = draw.rng.integers(0, WORDS, (sentences, tokens))
    lengths = draw.rng.integers(tokens // 2, tokens + 1, sentences)
    lengths[0] = tokens
    mask = (np.arange(tokens) < lengths[:, None]).astype(draw.dtype)
    return [ids, mask], [w]


def _unread(drawn: Drawn) -> int:
    """The rows of the embeddings that no sentence names."""
    (ids, _), (w,) = drawn
    words = w["embeddings.word_embeddings.weight"]
    places = w["embeddings.position_embeddings.weight"]
    named = len(np.unique(ids)) + ids.shape[1]
    return int((len(words) + len(places) - named) * words[0].nbytes)


WORKLOADS = [
    *sizes("gelu_block", _gelu_blocks, "block", _draw_gelu, LAYERS),
    *sizes("swiglu_block", _swiglu_blocks, "block", _draw_swiglu, LAYERS, quick=None),
    *sizes(
        "minilm",
        _minilm,
        "model",
        _draw_minilm,
        ((1, 16), (32, 128)),
        unread=_unread,
        numpy=_minilm_numpy,
    ),
]
