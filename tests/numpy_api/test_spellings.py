"""Different spellings of one composite extract to the same op, and near-misses do
not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import erf, expit

import eqsat as eq

N, M, D = 6, 10, 16
rng = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


def ops_of(f: Callable[..., Any], *args: Any) -> list[str]:
    """Ops of the chosen kernels, after checking the program against NumPy.

    Each op is a kernel by itself, so that one kernel means that it was recognised.
    """
    fast = eq.jit(f, options=eq.Options(fusion=False))
    low = fast.lower(*args)
    want, got = f(*args), fast(*args)
    pairs = zip(want, got, strict=True) if isinstance(want, tuple) else [(want, got)]
    for a, b in pairs:
        assert a.shape == b.shape and a.dtype == b.dtype
        close = 2e-6 if a.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(b, a, rtol=close, atol=close)
    return [k.op.name for k in low.program.kernels]


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


def _softmax(s: Any) -> Any:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


ATTENTION = {
    "divided": lambda q, k, v: _softmax(q @ k.swapaxes(-1, -2) / np.sqrt(D)) @ v,
    "multiplied": lambda q, k, v: _softmax(D**-0.5 * (q @ k.mT)) @ v,
    "scaled query": lambda q, k, v: (
        _softmax((q * D**-0.5) @ k.transpose(0, 1, 3, 2)) @ v
    ),
    "einsum": lambda q, k, v: np.einsum(
        "bhqk,bhkd->bhqd", _softmax(np.einsum("bhqd,bhkd->bhqk", q, k) / D**0.5), v
    ),
    "matmul": lambda q, k, v: np.matmul(
        _softmax(np.matmul(q, np.swapaxes(k, 2, 3)) * 0.25), v
    ),
    "scaled key": lambda q, k, v: _softmax(q @ (k / 4.0).mT) @ v,
}


def _masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return _softmax(q @ k.mT / np.sqrt(D) + mask) @ v


@pytest.mark.parametrize("name", GELU)
def test_gelu(name: str) -> None:
    assert ops_of(GELU[name], X) == ["gelu"]


def test_gelu_of_float32_with_float32_constants() -> None:
    def f(x: Any) -> Any:
        return x * np.float32(0.5) * (1 + erf(x / np.float32(2**0.5)))

    assert ops_of(f, X.astype(np.float32)) == ["gelu"]
    assert "gelu" not in ops_of(f, X), "1.4142135 is not the root of 2 in float64"


@pytest.mark.parametrize("name", GELU_TANH)
def test_gelu_tanh(name: str) -> None:
    assert ops_of(GELU_TANH[name], X) == ["gelu_tanh"]


@pytest.mark.parametrize("name", GELU_SIGMOID)
def test_gelu_sigmoid(name: str) -> None:
    assert ops_of(GELU_SIGMOID[name], X) == ["gelu_sigmoid"]


@pytest.mark.parametrize("name", SILU)
def test_silu(name: str) -> None:
    assert ops_of(SILU[name], X) == ["silu"]


@pytest.mark.parametrize("name", SOFTMAX)
def test_softmax(name: str) -> None:
    assert ops_of(SOFTMAX[name], X) == ["softmax"]


def test_softmax_of_another_axis() -> None:
    def columns(x: Any) -> Any:
        e = np.exp(x - x.max(0, keepdims=True))
        return e / e.sum(0)

    assert ops_of(columns, X) == ["softmax"]


@pytest.mark.parametrize("name", LAYER_NORM)
def test_layer_norm(name: str) -> None:
    assert ops_of(LAYER_NORM[name], X, G, C) == ["layer_norm"]


@pytest.mark.parametrize("name", RMS_NORM)
def test_rms_norm(name: str) -> None:
    assert ops_of(RMS_NORM[name], X, G) == ["rms_norm"]


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str) -> None:
    assert ops_of(ATTENTION[name], Q, K, V) == ["attention_scaled"]


def test_attention_with_mask() -> None:
    assert ops_of(_masked, Q, K, V, draw(N, M)) == ["attention_masked"]


@pytest.mark.parametrize(
    "f",
    [
        lambda q, k, v: (
            _softmax(np.where(np.tri(N, dtype=bool), q @ k.mT / 4.0, -np.inf)) @ v
        ),
        lambda q, k, v: (
            _softmax(
                np.where(np.triu(np.ones((N, N), bool), 1), -np.inf, q @ k.mT / 4.0)
            )
            @ v
        ),
        lambda q, k, v: (
            _softmax(q @ k.mT / 4.0 + np.triu(np.full((N, N), -np.inf, np.float32), 1))
            @ v
        ),
    ],
    ids=["where kept", "where hidden", "added"],
)
def test_causal_attention(f: Any) -> None:
    assert ops_of(f, draw(3, N, D), draw(3, N, D), draw(3, N, D)) == [
        "attention_causal"
    ]


def test_log_softmax() -> None:
    def f(x: Any) -> Any:
        z = x - x.max(-1, keepdims=True)
        return z - np.log(np.exp(z).sum(-1, keepdims=True))

    assert ops_of(f, X) == ["log_softmax"]
    assert ops_of(lambda x: np.log(_softmax(x)), X) == ["log_softmax"]


# -- near-misses: one thing is off, so the fused op would be wrong or would not pay ----

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
        lambda q, k, v: (_softmax(q @ k.mT / 4.0), _softmax(q @ k.mT / 4.0) @ v),
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


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_miss(name: str) -> None:
    f, args, op = NEAR_MISSES[name]
    assert op not in ops_of(f, *args)


def test_a_second_consumer_keeps_the_product_apart() -> None:
    x, w, b = draw(64, 256), draw(256, 256), draw(256)

    def both(x: Any, w: Any, b: Any) -> Any:
        h = x @ w + b
        return h, 0.5 * h * (1 + erf(h / np.sqrt(2)))

    assert sorted(ops_of(both, x, w, b)) == ["add", "gelu", "matmul"]
    (kernel,) = eq.jit(both).lower(x, w, b).program.kernels
    assert len(kernel.results) == 2
    (kernel,) = eq.jit(lambda x, w, b: both(x, w, b)[1]).lower(x, w, b).program.kernels
    assert len(kernel.results) == 1
