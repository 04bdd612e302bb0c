"""Losses with their gradients: the result is the value, and the gradient by the
arguments ``argnums``, which the peer derives from the loss.

Sizes are those that each ``_draw…`` names. Parameters change from call to call here, so
nothing is a weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.workloads import Array, Draw, Drawn, Workload, sizes
from bench.workloads import by_hand as by
from bench.workloads.by_hand import Params

CLASSES = 10
STRIDE = 2
"""Of the second convolution."""


def _mlp(F: Any, p: dict[str, Params], x: Array, y: Array) -> Array:
    h = F.gelu(F.linear(x, p["hidden"]["w"], p["hidden"]["b"]))
    return ((F.linear(h, p["out"]["w"], p["out"]["b"]) - y) ** 2).mean()


def _logistic(F: Any, w: Array, b: Array, x: Array, y: Array) -> Array:
    return F.softplus(-y * (x @ w + b)).mean()


def _layer_norm(F: Any, x: Array, g: Array, b: Array, y: Array) -> Array:
    return ((F.layer_norm(x, g, b) - y) ** 2).mean()


def _attention(F: Any, q: Array, k: Array, v: Array, y: Array) -> Array:
    return ((F.attention(q, k, v) - y) ** 2).mean()


def _rosenbrock(F: Any, x: Array) -> Array:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def _cross_entropy(F: Any, w: Array, b: Array, x: Array, labels: Array) -> Array:
    return F.cross_entropy(F.linear(x, w, b), labels)


def _embedding(F: Any, table: Array, w: Array, ids: Array, y: Array) -> Array:
    return ((F.take(table, ids) @ w - y) ** 2).mean()


def _conv(F: Any, p: Params, x: Array, labels: Array) -> Array:
    h = F.relu(F.conv2d(x, p["first"], padding=1))
    h = F.relu(F.conv2d(h, p["second"], stride=STRIDE, padding=1))
    return F.cross_entropy(h.mean((2, 3)) @ p["out"], labels)


# -- what they are called with ---------------------------------------------------------


def _draw_mlp(draw: Draw, m: int, k: int, hidden: int, n: int) -> Drawn:
    p = {
        "hidden": {"w": draw.weight(k, hidden), "b": draw.bias(hidden)},
        "out": {"w": draw.weight(hidden, n), "b": draw.bias(n)},
    }
    return [p, draw.normal(m, k), draw.normal(m, n)], []


def _draw_logistic(draw: Draw, m: int, k: int) -> Drawn:
    y = np.where(draw.rng.integers(0, 2, m), 1, -1).astype(draw.dtype)
    return [draw.normal(k, scale=k**-0.5), draw.bias(), draw.normal(m, k), y], []


def _draw_layer_norm(draw: Draw, m: int, n: int) -> Drawn:
    return [draw.normal(m, n), draw.gain(n), draw.bias(n), draw.normal(m, n)], []


def _draw_attention(draw: Draw, heads: int, tokens: int, size: int) -> Drawn:
    return [draw.normal(heads, tokens, size) for _ in "qkvy"], []


def _draw_rosenbrock(draw: Draw, n: int) -> Drawn:
    return [draw.normal(n)], []


def _draw_cross_entropy(draw: Draw, m: int, k: int, n: int) -> Drawn:
    labels = draw.rng.integers(0, n, m)
    return [draw.weight(k, n), draw.bias(n), draw.normal(m, k), labels], []


def _draw_embedding(draw: Draw, words: int, k: int, m: int, n: int) -> Drawn:
    ids = draw.rng.integers(0, words, m)
    return [draw.normal(words, k), draw.weight(k, n), ids, draw.normal(m, n)], []


def _draw_conv(
    draw: Draw, images: int, side: int, c: int, first: int, second: int
) -> Drawn:
    def kernels(out: int, into: int) -> Array:
        return draw.normal(out, into, 3, 3, scale=(2 / (9 * into)) ** 0.5)

    p = {
        "first": kernels(first, c),
        "second": kernels(second, first),
        "out": draw.weight(second, CLASSES),
    }
    labels = draw.rng.integers(0, CLASSES, images)
    return [p, draw.normal(images, c, side, side), labels], []


def _unread(drawn: Drawn) -> int:
    """The rows of the table that no number names."""
    (table, _, ids, _), _ = drawn
    return int((len(table) - len(np.unique(ids))) * table[0].nbytes)


def _grad(
    name: str,
    loss: Callable[..., Array],
    draw: Callable[..., Drawn],
    shapes: Sequence[Sequence[int]],
    argnums: tuple[int, ...],
    by_hand: Callable[..., Array],
    quick: int | None = None,
    **more: Any,
) -> list[Workload]:
    """The value of ``loss`` and its gradient by these arguments."""
    how = {"argnums": argnums, "numpy": by_hand, **more}
    name = f"grad_{name}"
    return list(sizes(name, loss, "gradient", draw, shapes, quick=quick, **how))


WORKLOADS = [
    *_grad("mlp", _mlp, _draw_mlp, ((128, 256, 512, 64),), (0,), by.mlp, quick=0),
    *_grad("logistic", _logistic, _draw_logistic, ((10000, 64),), (0, 1), by.logistic),
    *_grad(
        "layer_norm",
        _layer_norm,
        _draw_layer_norm,
        ((1024, 1024),),
        (0, 1, 2),
        by.layer_norm,
    ),
    *_grad(
        "attention",
        _attention,
        _draw_attention,
        ((8, 256, 64),),
        (0, 1, 2),
        by.attention,
    ),
    *_grad(
        "rosenbrock",
        _rosenbrock,
        _draw_rosenbrock,
        ((100,), (100_000,)),
        (0,),
        by.rosenbrock,
    ),
    *_grad(
        "cross_entropy",
        _cross_entropy,
        _draw_cross_entropy,
        ((512, 784, CLASSES),),
        (0, 1),
        by.cross_entropy,
    ),
    *_grad(
        "embedding",
        _embedding,
        _draw_embedding,
        ((5000, 64, 1024, 16),),
        (0, 1),
        by.embedding,
        unread=_unread,
    ),
    *_grad("conv", _conv, _draw_conv, ((16, 32, 3, 16, 32),), (0,), by.conv),
]
