"""Workloads for GPUs, larger than those for CPUs and in half precision too; ``python -m
bench gpu`` runs them.

Shapes are rows, features; heads of the block have 128 features.
"""

from __future__ import annotations

from typing import Any

from bench.workloads import Array, Draw, Drawn, Workload, device_models, sizes
from bench.workloads.heads import attention, causal_attention, qkv
from bench.workloads.products import adapter, linear, lora
from bench.workloads.quantised import of_bits
from bench.workloads.rows import (
    affine,
    channels,
    column_sum,
    gained,
    layer_norm,
    one,
    positive,
    residual,
    rms_norm,
    softmax,
    total,
)

LARGE = ((16384, 4096), (4096, 1024))
SMALL = ((1, 1024), (1, 4096), (8, 1024), (8, 4096))
IMAGES = ((64, 256, 64, 64),)
FEW = (1, 4)
"""Rows that are multiplied by weights in few bits."""
HEADS = ((256, 1024, 128),)
"""Of attention: heads of all of a batch, tokens, features of a head."""
FEATURES = 4096
HEAD = 128
DTYPES = ("bfloat16", "float32")


def _map(F: Any, x: Array, g: Array, b: Array) -> Array:
    return F.gelu(x * g + b)


def _residual_rms_norm(F: Any, x: Array, r: Array, g: Array) -> tuple[Array, Array]:
    h = x + r
    return h, F.rms_norm(h, g)


def _logsumexp(F: Any, x: Array) -> Array:
    return F.logsumexp(x)


def _group_norm(F: Any, x: Array, g: Array, b: Array) -> Array:
    return F.group_norm(x, g, b, 32)


def _linear_gelu(F: Any, x: Array, w: Array, b: Array) -> Array:
    """The product is rounded before it is added to, as layers of half precision do."""
    return F.gelu(x @ w + b)


def _matmul(F: Any, x: Array, w: Array) -> Array:
    return x @ w


def _block(F: Any, x: Array, p: dict[str, Array]) -> Array:
    """A pre-norm transformer block, causal."""
    heads = x.shape[-1] // HEAD
    h = F.layer_norm(x, p["g1"], p["c1"])
    q, k, v = (F.split_heads(h @ p[name], heads) for name in "qkv")
    x = x + F.merge_heads(causal_attention(F, q, k, v)) @ p["o"]
    h = F.layer_norm(x, p["g2"], p["c2"]) @ p["up"] + p["b1"]
    return x + F.gelu(h) @ p["down"] + p["b2"]


def _matrices(draw: Draw, m: int, k: int, n: int) -> Drawn:
    return [draw.normal(m, k)], [draw.weight(k, n)]


def _draw_block(draw: Draw, batch: int, tokens: int, dim: int) -> Drawn:
    weights = {
        **{name: draw.weight(dim, dim) for name in "qkvo"},
        **{"g1": draw.gain(dim), "c1": draw.bias(dim)},
        **{"g2": draw.gain(dim), "c2": draw.bias(dim)},
        **{"up": draw.weight(dim, 4 * dim), "b1": draw.bias(4 * dim)},
        **{"down": draw.weight(4 * dim, dim), "b2": draw.bias(dim)},
    }
    return [draw.normal(batch, tokens, dim)], [weights]


def workloads(dtype: str) -> list[Workload]:
    """All of one dtype."""
    only = (dtype,)
    d = FEATURES
    rows = (
        ("map", _map, "map", affine),
        ("softmax", softmax, "row", one),
        ("layer_norm", layer_norm, "row", affine),
        ("rms_norm", rms_norm, "row", gained),
        ("residual_rms_norm", _residual_rms_norm, "row", residual),
        ("logsumexp", _logsumexp, "row", one),
        ("column_sum", column_sum, "reduce", positive),
        ("total", total, "reduce", positive),
    )
    products = (
        ("matmul", _matmul, _matrices, (8192, d, d)),
        ("linear_gelu", _linear_gelu, linear, (8192, d, d)),
        ("lora", lora, adapter, (8192, d, 16)),
        ("lora", lora, adapter, (1, d, 16)),
        ("lora", lora, adapter, (8, d, 16)),
    )
    return [
        *(
            w
            for name, fn, tag, make in rows
            for w in sizes(name, fn, tag, make, LARGE, dtypes=only)
        ),
        *sizes("softmax", softmax, "row", one, SMALL, dtypes=only),
        *sizes("rms_norm", rms_norm, "row", gained, SMALL, dtypes=only),
        *sizes("group_norm", _group_norm, "row", channels, IMAGES, dtypes=only),
        *(
            w
            for name, fn, make, shape in products
            for w in sizes(name, fn, "contract", make, (shape,), dtypes=only)
        ),
        *(
            w
            for bits in (8, 4)
            if dtype == "float32"
            for w in of_bits(bits, tuple((m, d, d) for m in FEW))
        ),
        *(
            w
            for name, fn in (("", attention), ("causal_", causal_attention))
            for w in sizes(f"{name}attention", fn, "attention", qkv, HEADS, dtypes=only)
        ),
        *sizes("block", _block, "block", _draw_block, ((8, 1024, d),), dtypes=only),
        *device_models.workloads(dtype),
    ]
