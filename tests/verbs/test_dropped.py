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
import gc, os, sys
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
    chosen = [steps[i] for i in rng.integers(0, len(steps), 3)]
    def f(v):
        for step in chosen:
            v = step(v, np.float32(1 + k / 1000))
        return v
    jitted = eq.jit(f, backend=BACKEND)
    jitted(x), jitted(x)
for k in range(200): make(k)
gc.collect(); before = resident()
for k in range(5000): make(200 + k)
gc.collect(); grown = resident() - before
print(f"{grown / 2**20:.1f} MiB")
assert grown < MOST << 20, f"{grown / 2**20:.1f} MiB"
"""


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("backend, most", [("native", 12), ("numpy", 4)])
def test_functions_that_are_dropped_hold_nothing(backend: str, most: int) -> None:
    """llvmlite keeps 1.5 KB of each builder of passes."""
    run_in_child(f"BACKEND, MOST = {backend!r}, {most}\n{_MANY}")


_CALLS = """
import gc
import numpy as np, eqsat as eq
from memory_use import resident
def write(x, y):
    x += y * 0
    return x
functions = [
    lambda x, y: np.tanh(x) * 2 + y.sum(),
    lambda x, y: (x.sum(), {"a": y + 1}),
    write,
]
x, y = np.ones(8), np.ones(8)
for f in functions:
    jitted = eq.jit(f, backend=BACKEND)
    for _ in range(2000): jitted(x, y)
    gc.collect(); before = resident()
    for _ in range(CALLS): jitted(x, y)
    gc.collect(); grown = resident() - before
    assert grown < 1 << 20, f"{grown / 2**20:.1f} MiB"
"""


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("backend, calls", [("native", 1_000_000), ("numpy", 300_000)])
def test_many_calls_hold_nothing(backend: str, calls: int) -> None:
    run_in_child(f"BACKEND, CALLS = {backend!r}, {calls}\n{_CALLS}")
