"""What a function was compiled to goes with the function."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from memory_use import needs_proc
from natives import run_in_child

import eqsat as eq
from eqsat.egraph import engine_pool

FORMS: list[Callable[[Any], Any]] = [
    lambda x: np.tanh(x) * 2 + np.exp(x).sum(),
    lambda x: x @ x.T,
    lambda x: np.sort(x) + np.cumsum(x, -1),
    lambda x: np.linalg.solve(x.T @ x + np.eye(4), x),
]


@pytest.mark.parametrize("fn", FORMS)
@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_programs_are_collected_with_their_function(
    fn: Callable[[Any], Any], backend: str
) -> None:
    x = np.arange(16.0).reshape(4, 4) + np.eye(4)
    jitted: Any = eq.jit(lambda x: fn(x), backend=backend)
    for shown in (x, x.astype(np.float32), np.asfortranarray(x)):
        jitted(shown)
    low = jitted.lower(x)
    held = [weakref.ref(o) for o in (jitted, low, low.executable, low.trace)]
    del jitted, low
    gc.collect()
    assert [ref() for ref in held] == [None] * len(held)


def test_programs_of_gradients_and_lowerings_are_collected() -> None:
    x = np.arange(16.0).reshape(4, 4)
    fn = eq.value_and_grad(lambda x: np.tanh(x).sum())
    fn(x)
    low = eq.jit(lambda x: x.T + 1).lower(x)
    program = low.compile()
    held = [weakref.ref(fn), weakref.ref(low), weakref.ref(program)]
    del fn, low, program
    gc.collect()
    assert [ref() for ref in held] == [None] * 3


def test_an_engine_that_was_used_often_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its memory grows with each copy that was made of it."""
    monkeypatch.setenv("EQSAT_CACHE", "0")
    monkeypatch.setattr(engine_pool, "OFTEN", 3)
    engine_pool._KEPT.engines.clear()
    x, seen = np.arange(6.0), set()
    for k in range(8):
        assert np.allclose(eq.jit(lambda x, k=k: np.tanh(x) * k)(x), np.tanh(x) * k)
        seen.update(map(weakref.ref, engine_pool._KEPT.engines.values()))
        assert all(w.copies < 3 for w in engine_pool._KEPT.engines.values())
    assert len(seen) >= 2


_MANY = """
import gc, os, warnings
os.environ["EQSAT_CACHE"] = "0"
import numpy as np, eqsat as eq
from memory_use import resident
rng = np.random.default_rng(0)
x = np.linspace(0.1, 1, 64, dtype=np.float32).reshape(8, 8)
steps = [
    lambda v, k: np.tanh(v) * k,
    lambda v, k: np.exp(v - v.max(-1, keepdims=True)),
    lambda v, k: v @ x,
    lambda v, k: v / (1 + v.sum(0)),
    lambda v, k: v - v.mean(-1, keepdims=True),
    lambda v, k: np.sqrt(v * v + k),
    lambda v, k: v.T + k,
]
def make(k):
    chosen = [steps[i] for i in rng.integers(0, len(steps), 12)]
    def f(v):
        for step in chosen:
            v = step(v, np.float32(1 + k / 1000))
        return v
    eq.jit(f)(x)
for k in range(100): make(k)
gc.collect(); before = resident()
for k in range(1000): make(100 + k)
gc.collect(); grown = resident() - before
assert grown < 40 << 20, f"{grown / 2**20:.0f} MiB"
"""


@needs_proc
@pytest.mark.slow
def test_a_thousand_functions_that_are_dropped_hold_nothing() -> None:
    run_in_child(_MANY)
