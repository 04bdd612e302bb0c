"""Parts of models and of their training for GPUs, which ``python -m bench gpu`` runs
too. Shapes are those that each function which draws them names."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.workloads import Array, Draw, Drawn, Workload, sizes
from bench.workloads.heads import attention, causal_attention
from bench.workloads.rows import one

LARGE = ((16384, 4096),)
NUMBERS = ((1 << 26,),)
HIDDEN = ((16384, 11008),)
HEADS = ((8, 1024, 4096),)
"""Of norm and rotary embedding: sequences, tokens, features."""
HEAD = 128
CACHED = ((32, 32, 4096, 8),)
"""Of decoding: sequences, heads, tokens that are cached, heads of keys and values."""
BLOCK = ((4, 1024, 4096, 11008),)
"""Sequences, tokens, features, hidden features."""


def _standardise(F: Any, x: Array) -> Array:
    """Each column with mean 0 and variance 1."""
    centred = x - x.mean(0)
    return centred / F.sqrt((centred * centred).mean(0) + 1e-5)


def _standardise_rows(F: Any, x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred / F.sqrt(variance + 1e-5)


def _to_range(F: Any, x: Array) -> Array:
    """Each column from 0 to 1."""
    low = -F.column_max(-x)
    return (x - low) / (F.column_max(x) - low)


def _column_softmax(F: Any, x: Array) -> Array:
    e = F.exp(x - F.column_max(x))
    return e / F.column_sum(e)


def _adam(F: Any, p: Array, g: Array, m: Array, v: Array) -> tuple[Array, ...]:
    """A step of Adam, late enough to need no correction of its averages."""
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (F.sqrt(v) + 1e-8), m, v


def _momentum(F: Any, p: Array, g: Array, m: Array) -> tuple[Array, ...]:
    """A step of gradient descent with Nesterov's momentum and decay."""
    g = g + 0.01 * p
    m = 0.9 * m + g
    return p - 1e-2 * (g + 0.9 * m), m


def _gated_silu(F: Any, x: Array, y: Array) -> Array:
    return F.silu(x) * y


def _gated_gelu(F: Any, xy: Array) -> Array:
    """The halves of one array."""
    half = xy.shape[-1] // 2
    return F.gelu(xy[..., :half]) * xy[..., half:]


def _rotary(F: Any, x: Array, cos: Array, sin: Array) -> Array:
    """Features of one half turn with those of the other. The angles are float32."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return F.cast(F.concat([a * cos - b * sin, b * cos + a * sin], -1), x)


def _norm_rotary(F: Any, x: Array, g: Array, cos: Array, sin: Array) -> Array:
    heads = F.split_heads(F.rms_norm(x, g), x.shape[-1] // HEAD)
    return _rotary(F, heads, cos, sin)


def _norm_of_heads_rotary(F: Any, x: Array, g: Array, cos: Array, sin: Array) -> Array:
    """The norm is that of each head."""
    return _rotary(F, F.rms_norm(F.split_heads(x, x.shape[-1] // HEAD), g), cos, sin)


def _block(F: Any, x: Array, cos: Array, sin: Array, p: dict[str, Array]) -> Array:
    """A block of Llama, causal."""
    h = F.rms_norm(x, p["g1"])
    q, k, v = (F.split_heads(h @ p[name], p[name].shape[-1] // HEAD) for name in "qkv")
    q, k = _rotary(F, q, cos, sin), _rotary(F, k, cos, sin)
    x = x + F.merge_heads(causal_attention(F, q, k, v)) @ p["o"]
    h = F.rms_norm(x, p["g2"])
    return x + (F.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]


def _angles(tokens: int) -> list[Array]:
    """Cosines and sines of the rotary embedding."""
    turns = np.outer(np.arange(tokens), 1e4 ** (-np.arange(HEAD // 2) / (HEAD // 2)))
    return [f(turns).astype(np.float32) for f in (np.cos, np.sin)]


def _draw_adam(draw: Draw, n: int) -> Drawn:
    p, g, m = (draw.normal(n) for _ in range(3))
    return [p, g, m, np.abs(draw.normal(n))], []


def _draw_momentum(draw: Draw, n: int) -> Drawn:
    return [draw.normal(n) for _ in range(3)], []


def _two(draw: Draw, *shape: int) -> Drawn:
    return [draw.normal(*shape), draw.normal(*shape)], []


def _draw_norm(draw: Draw, batch: int, tokens: int, dim: int) -> Drawn:
    return [draw.normal(batch, tokens, dim)], [draw.gain(dim), *_angles(tokens)]


def _draw_head_norm(draw: Draw, batch: int, tokens: int, dim: int) -> Drawn:
    return [draw.normal(batch, tokens, dim)], [draw.gain(HEAD), *_angles(tokens)]


def _draw_cached(draw: Draw, batch: int, heads: int, tokens: int, few: int) -> Drawn:
    k, v = (draw.normal(batch, few, tokens, HEAD) for _ in "kv")
    return [draw.normal(batch, heads, 1, HEAD), k, v], []


def _draw_block(draw: Draw, batch: int, tokens: int, dim: int, hidden: int) -> Drawn:
    weights = {
        **{name: draw.weight(dim, dim) for name in "qo"},
        **{name: draw.weight(dim, dim // 4) for name in "kv"},
        **{name: draw.gain(dim) for name in ("g1", "g2")},
        **{name: draw.weight(dim, hidden) for name in ("gate", "up")},
        "down": draw.weight(hidden, dim),
    }
    return [draw.normal(batch, tokens, dim)], [*_angles(tokens), weights]


def workloads(dtype: str) -> list[Workload]:
    """All of one dtype."""
    of_models = (
        ("decode_attention", attention, "attention", _draw_cached, CACHED),
        ("llama_block", _block, "block", _draw_block, BLOCK),
    )
    of_numbers = (
        ("standardise", _standardise, "row", one, LARGE),
        ("standardise_rows", _standardise_rows, "row", one, LARGE),
        ("to_range", _to_range, "row", one, LARGE),
        ("column_softmax", _column_softmax, "row", one, LARGE),
        ("adam", _adam, "map", _draw_adam, NUMBERS),
        ("momentum", _momentum, "map", _draw_momentum, NUMBERS),
        ("gated_silu", _gated_silu, "map", _two, HIDDEN),
        ("gated_gelu", _gated_gelu, "map", one, HIDDEN),
        ("norm_rotary", _norm_rotary, "row", _draw_norm, HEADS),
        ("head_norm_rotary", _norm_of_heads_rotary, "row", _draw_head_norm, HEADS),
    )
    return [
        w
        for name, fn, tag, make, shapes in (
            *of_models,
            *(of_numbers if dtype == "float32" else ()),
        )
        for w in sizes(name, fn, tag, make, shapes, dtypes=(dtype,))
    ]
