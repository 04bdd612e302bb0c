"""Different spellings of one composite extract to the same op, and near-misses do
not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import erf
from spellings import (
    NEAR_MISSES,
    SPELLINGS,
    D,
    K,
    M,
    N,
    Q,
    V,
    X,
    by_hand,
    draw,
)

import eqsat as eq


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


def _masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return by_hand(q @ k.mT / np.sqrt(D) + mask) @ v


@pytest.mark.parametrize("name", SPELLINGS)
def test_what_is_written_is_one_op(name: str) -> None:
    f, args, op = SPELLINGS[name]
    assert ops_of(f, *args) == [op]


def test_gelu_of_float32_with_float32_constants() -> None:
    def f(x: Any) -> Any:
        return x * np.float32(0.5) * (1 + erf(x / np.float32(2**0.5)))

    assert ops_of(f, X.astype(np.float32)) == ["gelu"]
    assert "gelu" not in ops_of(f, X), "1.4142135 is not the root of 2 in float64"


def test_softmax_of_another_axis() -> None:
    def columns(x: Any) -> Any:
        e = np.exp(x - x.max(0, keepdims=True))
        return e / e.sum(0)

    assert ops_of(columns, X) == ["softmax"]


def test_attention_with_mask() -> None:
    assert ops_of(_masked, Q, K, V, draw(N, M)) == ["attention_masked"]


@pytest.mark.parametrize(
    "f",
    [
        lambda q, k, v: (
            by_hand(np.where(np.tri(N, dtype=bool), q @ k.mT / 4.0, -np.inf)) @ v
        ),
        lambda q, k, v: (
            by_hand(
                np.where(np.triu(np.ones((N, N), bool), 1), -np.inf, q @ k.mT / 4.0)
            )
            @ v
        ),
        lambda q, k, v: (
            by_hand(q @ k.mT / 4.0 + np.triu(np.full((N, N), -np.inf, np.float32), 1))
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
    assert ops_of(lambda x: np.log(by_hand(x)), X) == ["log_softmax"]


# -- near-misses: one thing is off, so the fused op would be wrong or would not pay ----


@pytest.mark.sampled(2)
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
