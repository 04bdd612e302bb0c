"""Attention. Shapes are heads, tokens, features of a head (and heads of k and v)."""

from __future__ import annotations

from typing import Any

from bench.workloads import Array, Draw, Drawn, sizes

SHAPES = ((8, 128, 64), (12, 512, 64), (16, 1024, 64))


def attention(F: Any, q: Array, k: Array, v: Array) -> Array:
    return F.attention(q, k, v)


def causal_attention(F: Any, q: Array, k: Array, v: Array) -> Array:
    return F.attention(q, k, v, causal=True)


def _with_residual(F: Any, q: Array, k: Array, v: Array, r: Array) -> Array:
    return F.merge_heads(F.attention(q, k, v)) + r


def qkv(draw: Draw, heads: int, tokens: int, size: int, few: int = 0) -> Drawn:
    q = draw.normal(heads, tokens, size)
    k, v = (draw.normal(few or heads, tokens, size) for _ in "kv")
    return [q, k, v], []


def _residual(draw: Draw, heads: int, tokens: int, size: int) -> Drawn:
    inputs, _ = qkv(draw, heads, tokens, size)
    return [*inputs, draw.normal(tokens, heads * size)], []


GROUPED = tuple((*shape, shape[0] // 4) for shape in SHAPES)
WORKLOADS = [
    *sizes("attention", attention, "attention", qkv, SHAPES, quick=1),
    *sizes(
        "causal_attention", causal_attention, "attention", qkv, SHAPES, flops_share=0.5
    ),  # half of the scores are masked
    *sizes(
        "attention_residual", _with_residual, "attention", _residual, SHAPES, quick=None
    ),
    *sizes("grouped_attention", attention, "attention", qkv, GROUPED, quick=None),
]
