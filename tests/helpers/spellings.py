"""Spellings of composites, and near-misses, as NumPy's users write them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import erf, expit

N, M, D = 6, 10, 16
rng = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


X = draw(N, D)
W = draw(D, M)
B = draw(M)
G, C = draw(D), draw(D)
Q, K, V = draw(2, 3, N, D), draw(2, 3, M, D), draw(2, 3, M, D)
GELU = {
    "textbook": lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    "halved last": lambda x: x * (1.0 + erf(x * 0.7071067811865476)) * 0.5,
    "divided": lambda x: x * (erf(x / math.sqrt(2.0)) + 1) / 2,
    "distribution": lambda x: x * (0.5 * (1 + erf(x * 2**-0.5))),
    "half x": lambda x: (x / 2) * (1 + erf(np.sqrt(0.5) * x)),
    "summed": lambda x: 0.5 * x + 0.5 * x * erf(x / np.sqrt(2)),
}
GELU_TANH = {
    "textbook": lambda x: (
        0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    ),
    "products": lambda x: (
        x * 0.5 * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    ),
    "factored": lambda x: (
        0.5 * x * (1 + np.tanh(0.7978845608028654 * x * (1 + 0.044715 * x * x)))
    ),
    "power": lambda x: (
        0.5
        * x
        * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * np.power(x, 3))))
    ),
    "sigmoid": lambda x: x * expit(2 * 0.7978845608028654 * (x + 0.044715 * x**3)),
}
GELU_SIGMOID = {
    "quotient": lambda x: x / (1 + np.exp(-1.702 * x)),
    "product": lambda x: x * (1 / (1 + np.exp(-(1.702 * x)))),
    "expit": lambda x: x * expit(1.702 * x),
    "reversed": lambda x: expit(x * 1.702) * x,
    "tanh": lambda x: x * 0.5 * (1 + np.tanh(1.702 * x / 2)),
}
SILU = {
    "quotient": lambda x: x / (1 + np.exp(-x)),
    "product": lambda x: x * (1 / (1 + np.exp(-x))),
    "expit": lambda x: expit(x) * x,
    "reciprocal": lambda x: np.reciprocal(1 + np.exp(-x)) * x,
    "tanh": lambda x: x * (0.5 * (1 + np.tanh(x / 2))),
}


def _softmax_temp(x: Any) -> Any:
    x = x - np.max(x, axis=-1, keepdims=True)
    np_exp = np.exp(x)
    return np.divide(np_exp, np_exp.sum(axis=-1, keepdims=True))


def _softmax_newaxis(x: Any) -> Any:
    e = np.exp(x - x.max(-1)[..., None])
    return e / e.sum(-1)[..., np.newaxis]


def _softmax_reciprocal(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e * (1.0 / np.sum(e, axis=1, keepdims=True))


def _softmax_log(x: Any) -> Any:
    m = np.max(x, -1, keepdims=True)
    return np.exp(x - (m + np.log(np.sum(np.exp(x - m), -1, keepdims=True))))


def _softmax_log_twice(x: Any) -> Any:
    z = x - np.amax(x, -1, keepdims=True)
    return np.exp(z - np.log(np.exp(z).sum(-1, keepdims=True)))


def _softmax_expand(x: Any) -> Any:
    e = np.exp(np.subtract(x, np.expand_dims(np.max(x, axis=-1), -1)))
    return e / np.expand_dims(np.sum(e, axis=-1), axis=-1)


SOFTMAX = {
    "temporary": _softmax_temp,
    "newaxis": _softmax_newaxis,
    "reciprocal": _softmax_reciprocal,
    "logsumexp": _softmax_log,
    "log softmax": _softmax_log_twice,
    "expand_dims": _softmax_expand,
}


def _ln_var(x: Any, g: Any, c: Any) -> Any:
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-5) * g + c


def _ln_squares(x: Any, g: Any, c: Any) -> Any:
    d = x - np.mean(x, axis=-1, keepdims=True)
    return g * d / np.sqrt(np.mean(d**2, axis=-1, keepdims=True) + 1e-5) + c


def _ln_power(x: Any, g: Any, c: Any) -> Any:
    d = x - x.mean(axis=-1, keepdims=True)
    return c + d * (np.mean(d * d, -1, keepdims=True) + 1e-5) ** -0.5 * g


def _ln_sums(x: Any, g: Any, c: Any) -> Any:
    n = x.shape[-1]
    d = x - x.sum(-1, keepdims=True) / n
    return d * (1 / np.sqrt((d * d).sum(-1, keepdims=True) / n + 1e-5)) * g + c


def _ln_newaxis(x: Any, g: Any, c: Any) -> Any:
    mu, sigma2 = np.mean(x, -1), np.var(x, -1)
    return g * ((x - mu[:, None]) / np.sqrt(sigma2[:, None] + 1e-5)) + c


def _ln_weighted(x: Any, g: Any, c: Any) -> Any:
    d = x - x.mean(-1, keepdims=True)
    inv = 1.0 / np.sqrt(np.square(d).mean(-1, keepdims=True) + 1e-5)
    return d * (inv * g) + c


LAYER_NORM = {
    "variance": _ln_var,
    "mean of squares": _ln_squares,
    "power": _ln_power,
    "sums": _ln_sums,
    "newaxis": _ln_newaxis,
    "weighted": _ln_weighted,
}
RMS_NORM = {
    "quotient": lambda x, g: x / np.sqrt(np.mean(x**2, -1, keepdims=True) + 1e-6) * g,
    "weight first": lambda x, g: (
        g * x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    ),
    "power": lambda x, g: (
        x * (np.mean(x * x, axis=-1, keepdims=True) + 1e-6) ** -0.5 * g
    ),
    "sums": lambda x, g: (
        x
        * (1 / np.sqrt(np.sum(np.square(x), -1, keepdims=True) / x.shape[-1] + 1e-6))
        * g
    ),
    "newaxis": lambda x, g: (x / np.sqrt((x**2).mean(-1) + 1e-6)[:, None]) * g,
    "grouped": lambda x, g: (
        x * (g * (1 / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-6)))
    ),
}


def by_hand(s: Any) -> Any:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


ATTENTION = {
    "divided": lambda q, k, v: by_hand(q @ k.swapaxes(-1, -2) / np.sqrt(D)) @ v,
    "multiplied": lambda q, k, v: by_hand(D**-0.5 * (q @ k.mT)) @ v,
    "scaled query": lambda q, k, v: (
        by_hand((q * D**-0.5) @ k.transpose(0, 1, 3, 2)) @ v
    ),
    "einsum": lambda q, k, v: np.einsum(
        "bhqk,bhkd->bhqd",
        by_hand(np.einsum("bhqd,bhkd->bhqk", q, k) / D**0.5),
        v,
    ),
    "matmul": lambda q, k, v: np.matmul(
        by_hand(np.matmul(q, np.swapaxes(k, 2, 3)) * 0.25), v
    ),
    "scaled key": lambda q, k, v: by_hand(q @ (k / 4.0).mT) @ v,
}
V_WIDE = draw(2, 3, M, 9)
FAMILIES: list[tuple[str, dict[str, Callable[..., Any]], tuple[Any, ...]]] = [
    ("gelu", GELU, (X,)),
    ("gelu_tanh", GELU_TANH, (X,)),
    ("gelu_sigmoid", GELU_SIGMOID, (X,)),
    ("silu", SILU, (X,)),
    ("softmax", SOFTMAX, (X,)),
    ("layer_norm", LAYER_NORM, (X, G, C)),
    ("rms_norm", RMS_NORM, (X, G)),
    ("attention_scaled", ATTENTION, (Q, K, V_WIDE)),
]
SPELLINGS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    f"{op}, {name}": (f, args, op)
    for op, table, args in FAMILIES
    for name, f in table.items()
}
"""Functions, arguments, and the op that all of it is."""

NEAR_MISSES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "gelu, wrong constant": (lambda x: 0.5 * x * (1 + erf(x / 1.4)), (X,), "gelu"),
    "gelu, wrong shift": (lambda x: 0.5 * x * (1.1 + erf(x / 2**0.5)), (X,), "gelu"),
    "gelu_tanh, wrong cubic": (
        lambda x: 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.0447 * x**3))),
        (X,),
        "gelu_tanh",
    ),
    "gelu of another factor": (
        lambda x, y: 0.5 * y * (1 + erf(x / 2**0.5)),
        (X, draw(N, D)),
        "gelu",
    ),
    "silu, wrong sign": (lambda x: x / (1 + np.exp(x)), (X,), "silu"),
    "softmax, sum over another axis": (
        lambda x: (
            np.exp(x - x.max(-1, keepdims=True))
            / np.exp(x - x.max(-1, keepdims=True)).sum(0, keepdims=True)
        ),
        (X,),
        "softmax",
    ),
    "softmax, squared sum": (
        lambda x: (
            np.exp(x - x.max(-1, keepdims=True))
            / (np.exp(x - x.max(-1, keepdims=True)) ** 2).sum(-1, keepdims=True)
        ),
        (X,),
        "softmax",
    ),
    "layer_norm, eps outside the root": (
        lambda x, g, c: (
            (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-5) * g + c
        ),
        (X, G, C),
        "layer_norm",
    ),
    "layer_norm, mean over another axis": (
        lambda x, g, c: (
            (x - x.mean(0)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + c
        ),
        (X, G, C),
        "layer_norm",
    ),
    "layer_norm, unbiased variance": (
        lambda x, g, c: (
            (x - x.mean(-1, keepdims=True))
            / np.sqrt(x.var(-1, keepdims=True, ddof=1) + 1e-5)
            * g
            + c
        ),
        (X, G, C),
        "layer_norm",
    ),
    "rms_norm, mean of another array": (
        lambda x, g: x / np.sqrt(np.mean(g * g, -1, keepdims=True) + 1e-6) * g,
        (X, G),
        "rms_norm",
    ),
    "attention, softmax over queries": (
        lambda q, k, v: (
            (
                np.exp(q @ k.mT - (q @ k.mT).max(-2, keepdims=True))
                / np.exp(q @ k.mT - (q @ k.mT).max(-2, keepdims=True)).sum(
                    -2, keepdims=True
                )
            )
            @ v
        ),
        (Q, K, V),
        "attention_scaled",
    ),
    "attention, probabilities returned too": (
        lambda q, k, v: (
            by_hand(q @ k.mT / 4.0),
            by_hand(q @ k.mT / 4.0) @ v,
        ),
        (draw(4, 128, 64), draw(4, 128, 64), draw(4, 128, 64)),
        "attention_scaled",
    ),
    "linear, residual in place of a bias": (
        lambda x, w, r: x @ w + r,
        (X, W, draw(N, M)),
        "linear",
    ),
    "linear, bias along the rows": (
        lambda x, w, b: x @ w + b,
        (X, W, draw(N, 1)),
        "linear",
    ),
}
