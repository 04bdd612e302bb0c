"""Matrix products with what follows them; the weights never change.

Shapes are tokens, features in, features out.
"""

from __future__ import annotations

from typing import Any

from bench.workloads import Array, Draw, Drawn, sizes

SHAPES = ((32, 256, 256), (128, 768, 3072), (512, 1024, 4096))
LORA = ((128, 1024, 8), (512, 1024, 16))


def _linear_relu(F: Any, x: Array, w: Array, b: Array) -> Array:
    return F.relu(F.linear(x, w, b))


def linear_gelu(F: Any, x: Array, w: Array, b: Array) -> Array:
    return F.gelu(F.linear(x, w, b))


def _linear_residual(F: Any, x: Array, r: Array, w: Array, b: Array) -> Array:
    return F.linear(x, w, b) + r


def _linear_layer_norm(
    F: Any, x: Array, w: Array, b: Array, g: Array, c: Array
) -> Array:
    return F.layer_norm(F.linear(x, w, b), g, c)


def _ffn(F: Any, x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
    return x + F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2)


def lora(F: Any, x: Array, w: Array, a: Array, b: Array) -> Array:
    return x @ w + 2.0 * ((x @ a) @ b)


def linear(draw: Draw, m: int, k: int, n: int) -> Drawn:
    return [draw.normal(m, k)], [draw.weight(k, n), draw.bias(n)]


def _residual(draw: Draw, m: int, k: int, n: int) -> Drawn:
    inputs = [draw.normal(m, k), draw.normal(m, n)]
    return inputs, [draw.weight(k, n), draw.bias(n)]


def _normed(draw: Draw, m: int, k: int, n: int) -> Drawn:
    inputs, weights = linear(draw, m, k, n)
    return inputs, [*weights, draw.gain(n), draw.bias(n)]


def _two_linears(draw: Draw, m: int, k: int, n: int) -> Drawn:
    inputs, weights = linear(draw, m, k, n)
    return inputs, [*weights, draw.weight(n, k), draw.bias(k)]


def adapter(draw: Draw, m: int, k: int, rank: int) -> Drawn:
    weights = [draw.weight(k, k), draw.weight(k, rank), draw.weight(rank, k)]
    return [draw.normal(m, k)], weights


HALVES = ("float16", "bfloat16")
WORKLOADS = [
    *sizes("linear_relu", _linear_relu, "contract", linear, SHAPES, quick=1),
    *sizes("linear_gelu", linear_gelu, "contract", linear, SHAPES, quick=1),
    *sizes("linear_residual", _linear_residual, "contract", _residual, SHAPES),
    *sizes(
        "linear_layer_norm", _linear_layer_norm, "contract", _normed, SHAPES, quick=None
    ),
    *sizes("ffn", _ffn, "contract", _two_linears, SHAPES, quick=1),
    *sizes("lora", lora, "contract", adapter, LORA),
    *sizes(
        "linear_relu",
        _linear_relu,
        "contract",
        linear,
        SHAPES[1:2],
        dtypes=HALVES,
        quick=None,
    ),
]
