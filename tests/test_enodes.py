"""Every e-node of whole graphs computes what its class computes, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from enodes import check, saturated
from scipy.special import erf

import eqsat as eq
from eqsat.demo import block

rng = np.random.default_rng(2)


def draw(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def model(norm: str, lora: int) -> tuple[Any, np.ndarray, list[Any]]:
    made, x, adapters = block.draw(
        block.Config(layers=2, seq=5, dim=12, heads=3, norm=norm, lora=lora)
    )
    params = [{k: v.astype(float) for k, v in p.items()} for p in made.params]
    wide = block.Model(made.config, params)
    pairs = [(a.astype(float), b.astype(float)) for a, b in adapters]
    return wide, x.astype(float), pairs


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("lora", [0, 2])
def test_blocks(norm: str, lora: int) -> None:
    wide, x, adapters = model(norm, lora)
    s = saturated(wide.forward, x, adapters)
    check(s)
    assert len(s.graph.nodes) > 150


def causal(q: Any, k: Any, v: Any) -> Any:
    keep = np.tri(6, dtype=bool)
    return softmax(np.where(keep, q @ k.mT / 4.0, -np.inf)) @ v


def padded(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return softmax(q @ k.mT / 4.0 + bias[:, None, :]) @ v


def convolved(x: Any, w: Any, mean: Any, var: Any, g: Any, b: Any) -> Any:
    m, v, s, t = (p[:, None, None] for p in (mean, var, g, b))
    y = eq.conv2d(x, w, padding=1)
    return np.maximum((y - m) / np.sqrt(v + 1e-5) * s + t, 0)


def grouped(x: Any, w: Any, b: Any) -> Any:
    y = x.reshape(x.shape[0], 2, -1)
    d = y - y.mean(-1, keepdims=True)
    y = d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)
    return y.reshape(x.shape) * w[:, None, None] + b[:, None, None]


def activations(x: Any) -> Any:
    gelu = 0.5 * x * (1 + erf(x / 2**0.5))
    silu = x / (1 + np.exp(-x))
    tanh = 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))
    z = x - x.max(-1, keepdims=True)
    return gelu + silu * tanh + (z - np.log(np.exp(z).sum(-1, keepdims=True)))


def transposed(x: Any, w: Any, v: Any) -> Any:
    return ((x @ w).mT * 3.0).mT @ v + x.reshape(2, 3, 5) @ (w @ v)


GRAPHS = {
    "causal": (causal, (draw(2, 6, 4), draw(2, 6, 4), draw(2, 6, 3))),
    "padded": (padded, (draw(2, 5, 4), draw(2, 6, 4), draw(2, 6, 3), draw(2, 6))),
    "convolved": (
        convolved,
        (
            draw(2, 3, 5, 7),
            draw(4, 3, 3, 3),
            draw(4),
            np.abs(draw(4)),
            draw(4),
            draw(4),
        ),
    ),
    "grouped": (grouped, (draw(2, 4, 3, 5), draw(4), draw(4))),
    "activations": (activations, (draw(4, 7),)),
    "transposed": (transposed, (draw(2, 3, 5), draw(5, 4), draw(4, 6))),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name: str) -> None:
    f, args = GRAPHS[name]
    check(saturated(f, *args))


def test_a_wrong_rule_is_caught() -> None:
    @eq.rule("...", phase="algebra")
    def square_of_square_root(x: Any) -> Any:
        """exp x is not x + 1."""
        return np.exp(x), x + 1.0

    rules = eq.default_rules() + eq.RuleSet((square_of_square_root,))
    with pytest.raises(AssertionError, match="square_of_square_root"):
        check(saturated(activations, draw(4, 7), rules=rules))
