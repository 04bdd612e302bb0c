"""Parts of models that were once slower than a peer, and siblings of each: the same
work in other shapes, spellings and dtypes. Code was written for the first (tag
``part``) and only measured with the second (tag ``sibling``).

Shapes are those that each ``_draw…`` names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.workloads import Array, Draw, Drawn, Workload, sizes

STEPS = 8
"""Of a stencil."""
RATE = 0.1
"""How much of the difference to its neighbours a place takes over in a step."""

# -- rotary embedding after a norm -----------------------------------------------------


def _norm_rotary(F: Any, x: Array, cos: Array, sin: Array, g: Array) -> Array:
    """Halves of features turn together. Su et al. 2021, arXiv:2104.09864."""
    y = F.rms_norm(x, g)
    half = y.shape[-1] // 2
    turned = F.concat([-y[..., half:], y[..., :half]], -1)
    return y * cos + turned * sin


def _norm_rotary_pairs(
    F: Any, x: Array, cos: Array, sin: Array, g: Array, b: Array
) -> Array:
    """Neighbours turn together."""
    y = F.layer_norm(x, g, b)
    even, odd = y[..., ::2], y[..., 1::2]
    both = F.stack([even * cos - odd * sin, odd * cos + even * sin], -1)
    return both.reshape(*y.shape)


def _turned(draw: Draw, tokens: int, heads: int, size: int) -> Drawn:
    angles = draw.normal(tokens, 1, size // 2)
    cos, sin = (np.concatenate([f(angles)] * 2, -1) for f in (np.cos, np.sin))
    return [draw.normal(tokens, heads, size), cos, sin], [draw.gain(size)]


def _turned_pairs(draw: Draw, heads: int, tokens: int, size: int) -> Drawn:
    angles = draw.normal(tokens, size // 2)
    inputs = [draw.normal(heads, tokens, size), np.cos(angles), np.sin(angles)]
    return inputs, [draw.gain(size), draw.bias(size)]


# -- attention of one token ------------------------------------------------------------


def _decode(F: Any, q: Array, k: Array, v: Array) -> Array:
    return F.attention(q, k, v)


def _one_token(draw: Draw, heads: int, tokens: int, size: int, few: int = 0) -> Drawn:
    k, v = (draw.normal(few or heads, tokens, size) for _ in "kv")
    return [draw.normal(heads, 1, size), k, v], []


# -- products --------------------------------------------------------------------------


def _product(F: Any, x: Array, y: Array) -> Array:
    return x @ y


def _gram(F: Any, x: Array) -> Array:
    return x.T @ x


def _outer_gram(F: Any, x: Array) -> Array:
    return x @ x.T


def _kernel_matrix(F: Any, x: Array, d: Array) -> Array:
    """x xᵀ scaled, and something on its diagonal."""
    return x @ x.T * (1 / x.shape[1]) + F.diagonal(d)


def _covariance(F: Any, x: Array) -> Array:
    """Of columns."""
    d = x - x.mean(0)
    return d.T @ d / (x.shape[0] - 1)


def _gram_of_each(F: Any, x: Array) -> Array:
    return F.swap(x, -1, -2) @ x


def _covariance_by_columns(F: Any, x: Array) -> Array:
    """One row of the covariance matrix at a time, as NPBench has it."""
    return F.by_columns(x)


def _by_columns_numpy(x: Array) -> Array:
    n, m = x.shape
    d = x - x.mean(0)
    found = np.zeros((m, m), x.dtype)
    for i in range(m):
        found[i:m, i] = found[i, i:m] = d[:, i] @ d[:, i:m] / (n - 1.0)
    return found


def _from_the_left(F: Any, v: Array, a: Array) -> Array:
    return v @ a


def _transposed(F: Any, a: Array, v: Array) -> Array:
    return a.T @ v


def _matrices(draw: Draw, count: int, m: int, k: int, n: int) -> Drawn:
    return [draw.normal(count, m, k), draw.normal(count, k, n)], []


def _one(draw: Draw, *shape: int) -> Drawn:
    return [draw.normal(*shape)], []


def _and_diagonal(draw: Draw, m: int, k: int) -> Drawn:
    return [draw.normal(m, k), draw.gain(m)], []


def _row(draw: Draw, k: int, n: int) -> Drawn:
    return [draw.normal(k), draw.normal(k, n)], []


def _column(draw: Draw, k: int, n: int) -> Drawn:
    return [draw.normal(k, n), draw.normal(k)], []


# -- stencils --------------------------------------------------------------------------


def _heat(F: Any, u: Array) -> Array:
    """Steps of the heat equation; the border stays."""
    for _ in range(STEPS):
        here = u[1:-1, 1:-1]
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        inner = here + RATE * (around - 4 * here)
        rows = F.concat([u[1:-1, :1], inner, u[1:-1, -1:]], 1)
        u = F.concat([u[:1], rows, u[-1:]], 0)
    return u


def _heat_by_roll(F: Any, u: Array) -> Array:
    """Steps on a torus."""
    for _ in range(STEPS):
        around = F.roll(u, 1, 0) + F.roll(u, -1, 0) + F.roll(u, 1, 1) + F.roll(u, -1, 1)
        u = u + RATE * (around - 4 * u)
    return u


def _heat_by_pad(F: Any, u: Array) -> Array:
    """Steps with zeros around."""
    for _ in range(STEPS // 2):
        p = F.pad(u, 1)
        around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
        u = u + RATE * (around - 4 * u)
    return u


# -- recurrent cells -------------------------------------------------------------------


def _lstm(F: Any, x: Array, h: Array, c: Array, w: Array, u: Array, b: Array) -> Array:
    """Hochreiter & Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735."""
    gates = x @ w + h @ u + b
    n = h.shape[-1]
    i, f, g, o = (gates[:, k * n : (k + 1) * n] for k in range(4))
    c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
    return F.sigmoid(o) * F.tanh(c)


def _gru(F: Any, x: Array, h: Array, w: Array, u: Array, b: Array) -> Array:
    """Cho et al. 2014, arXiv:1406.1078, as PyTorch has it."""
    n = h.shape[-1]
    left, right = x @ w + b, h @ u
    r = F.sigmoid(left[:, :n] + right[:, :n])
    z = F.sigmoid(left[:, n : 2 * n] + right[:, n : 2 * n])
    new = F.tanh(left[:, 2 * n :] + r * right[:, 2 * n :])
    return (1 - z) * new + z * h


def _lstm_state(draw: Draw, batch: int, size: int) -> Drawn:
    inputs = [draw.normal(batch, size) for _ in "xhc"]
    return inputs, _gates(draw, size, 4)


def _gru_state(draw: Draw, batch: int, size: int) -> Drawn:
    return [draw.normal(batch, size) for _ in "xh"], _gates(draw, size, 3)


def _gates(draw: Draw, size: int, count: int) -> list[Array]:
    weights = [draw.weight(size, count * size) for _ in "wu"]
    return [*weights, draw.bias(count * size)]


# Name, function, what draws it, shapes, dtype, and the share of the flops needed.
PARTS: list[tuple[Any, ...]] = [
    ("norm_rotary", _norm_rotary, _turned, ((512, 8, 64), (64, 16, 128))),
    ("decode", _decode, _one_token, ((8, 1024, 64), (32, 2048, 128))),
    ("products", _product, _matrices, ((64, 100, 100, 100),)),
    ("products", _product, _matrices, ((16, 100, 100, 100),), "float64"),
    ("gram", _gram, _one, ((1000, 200), (2000, 512)), "float32", 0.5),
    ("outer_gram", _outer_gram, _one, ((500, 500),), "float32", 0.5),
    ("outer_gram", _outer_gram, _one, ((256, 1024),), "float64", 0.5),
    ("heat", _heat, _one, ((512, 512), (1024, 1024))),
    ("from_the_left", _from_the_left, _row, ((1000, 1000), (2048, 2048))),
    ("from_the_left", _from_the_left, _row, ((500, 500),), "float64"),
    ("lstm", _lstm, _lstm_state, ((32, 256), (1, 512))),
]
SIBLINGS: list[tuple[Any, ...]] = [
    ("norm_rotary_pairs", _norm_rotary_pairs, _turned_pairs, ((8, 256, 64),)),
    ("grouped_decode", _decode, _one_token, ((8, 1500, 96, 2),)),
    ("products", _product, _matrices, ((200, 64, 48, 80),)),
    ("gram", _gram, _one, ((700, 300),), "float64", 0.5),
    ("kernel_matrix", _kernel_matrix, _and_diagonal, ((350, 120),), "float32", 0.5),
    ("covariance", _covariance, _one, ((3000, 90),), "float32", 0.5),
    ("gram_of_each", _gram_of_each, _one, ((50, 90, 70),), "float32", 0.5),
    ("heat_by_roll", _heat_by_roll, _one, ((600, 400),)),
    ("heat_by_pad", _heat_by_pad, _one, ((300, 700),), "float64"),
    ("from_the_left", _from_the_left, _row, ((3000, 200),)),
    ("transposed", _transposed, _column, ((300, 4000),), "float64"),
    ("gru", _gru, _gru_state, ((20, 300),)),
]


def _workloads(tag: str, table: list[tuple[Any, ...]]) -> Iterator[Workload]:
    for i, (name, fn, make, shapes, *more) in enumerate(table):
        dtype, share = more + ["float32", 1.0][len(more) :]
        yield from sizes(
            name,
            fn,
            tag,
            make,
            shapes,
            quick=None if i else 0,
            dtypes=(dtype,),
            flops_share=share,
        )


WORKLOADS = [
    *_workloads("part", PARTS),
    *sizes(
        "covariance_by_columns",
        _covariance_by_columns,
        "part",
        _one,
        ((400, 60),),
        quick=None,
        numpy=_by_columns_numpy,
        dtypes=("float64",),
    ),
    *_workloads("sibling", SIBLINGS),
]
