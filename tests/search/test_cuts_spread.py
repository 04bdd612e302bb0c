"""A cut that is found late reaches all that reads it: more rules never cost more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat as eq

Array = np.ndarray[Any, Any]
TURNS = np.ones((64, 16), np.float32)
TURNS.flags.writeable = False


def _scaled(x: Array) -> Array:
    return x * (1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5))


def _centred(x: Array) -> Array:
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)


def _exchanged(y: Array) -> Array:
    n = y.shape[-1] // 2
    return np.concatenate([y[..., n:], y[..., :n]], -1) + 1


def _rotary(y: Array) -> Array:
    h = y.reshape(4, 64, -1, 32).swapaxes(1, 2)
    a, b = h[..., :16], h[..., 16:]
    return np.concatenate([a * TURNS - b * TURNS, b * TURNS + a * TURNS], -1)


def _differences(y: Array) -> Array:
    return y[..., 1:] - y[..., :-1]


@pytest.mark.parametrize("follows", [_exchanged, _rotary, _differences])
@pytest.mark.parametrize("norm", [_scaled, _centred])
def test_rules_cost_nothing(
    norm: Callable[[Array], Array], follows: Callable[[Array], Array]
) -> None:
    x = np.ones((4, 64, 2048), np.float32)
    with_rules, without = (
        sum(k.cost_s for k in eq.jit(f, rules=rules).explain(x).kernels)
        for rules in (eq.default_rules(), eq.RuleSet(()))
        for f in [lambda x: follows(norm(x))]
    )
    assert with_rules <= without * 1.001
