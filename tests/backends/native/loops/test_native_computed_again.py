"""What is used at several places, or by several nests: it is in memory where it takes
long to compute, and computed again where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from natives import fused, natively
from programs import program_of
from sizes import some

from eqsat.backends.loop_ir import Compute, Loops
from eqsat.backends.to_loops import LoopTarget, pieces_of

RNG = np.random.default_rng(0)
TARGET = LoopTarget(reads_parts=True, remembers=True)


def largest(v: Any, step: int = 2) -> Any:
    """The largest of each 3×3 elements."""
    rows = v.shape[-2] - 2, v.shape[-1] - 2
    shown = [
        v[..., i : rows[0] + i : step, j : rows[1] + j : step]
        for i in range(3)
        for j in range(3)
    ]
    found = shown[0]
    for s in shown[1:]:
        found = np.maximum(found, s)
    return found


def normalised(v: Any) -> Any:
    """Channels over the root of what five of them add up to."""
    p = np.pad(v * v, ((2, 2), (0, 0), (0, 0)))
    n = v.shape[0]
    total = p[:n] + p[1 : n + 1] + p[2 : n + 2] + p[3 : n + 3] + p[4:]
    return v / np.sqrt(1 + 0.1 * total)


def pooled(x: Any) -> Any:
    return largest(normalised(np.maximum(x, 0)))


def pooled_before(x: Any) -> Any:
    return normalised(largest(np.sqrt(np.abs(x))))


def slopes(x: Any) -> Any:
    """Differences of differences over a root."""
    gx, gy = x[:, 1:, :-1] - x[:, :-1, :-1], x[:, :-1, 1:] - x[:, :-1, :-1]
    g = 1 / np.sqrt(1 + gx * gx + gy * gy)
    around = [(g * gx)[:, i : i + 5, j : j + 5] for i in range(3) for j in range(3)]
    return sum(around[1:], around[0])


def sums_beside(x: Any) -> Any:
    """A running sum of what is used beside it."""
    e = np.sqrt(np.abs(np.sqrt(np.abs(np.sqrt(np.abs(x) + 1) - 1)) / (x * x + 1)))
    e = e / (1 + np.sqrt(1 + e)) + 1 / (2 + np.sqrt(e))
    return e / (1 + np.cumsum(e, 1))


def roots(f: Callable[[Any], Any], x: Any) -> int:
    """Square roots that the nests of ``f`` compute."""
    (kernel,) = program_of(fused(f, 1), x).kernels
    return sum(
        p.nest.elements
        for p in pieces_of(kernel, TARGET).pieces
        if isinstance(p, Loops)
        for s in p.nest.statements()
        if isinstance(s, Compute) and s.op == "sqrt"
    )


X = RNG.standard_normal((8, 19, 19)).astype(np.float32)
POOLED = 8 * 9 * 9


@pytest.mark.parametrize(
    "f, most",
    [
        (pooled, X.size),
        (pooled_before, 9 * POOLED + POOLED),  # a root is light: 2.25 for each element
        (slopes, 8 * 18 * 18),
        (sums_beside, 5 * X.size),
    ],
)
def test_what_takes_long_is_computed_once(f: Callable[[Any], Any], most: int) -> None:
    assert 0 < roots(f, X) <= most


def test_what_is_light_is_computed_again() -> None:
    def light(x: Any) -> Any:
        return largest(np.maximum(x, 0))

    (kernel,) = program_of(fused(light, 1), X).kernels
    assert len(pieces_of(kernel, TARGET).pieces) == 1


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("f", [pooled, pooled_before, slopes, sums_beside])
def test_numbers_are_numpys(f: Callable[[Any], Any], dtype: str) -> None:
    for shape in some([(3, 7, 7), (8, 19, 19), (5, 40, 9)], 1):
        x = RNG.standard_normal(shape).astype(dtype)
        if f is slopes:
            x = x[:, :9, :9] if shape[2] >= 9 else np.ones((2, 9, 9), dtype)
            x = np.resize(x, (2, 8, 8)).astype(dtype)
        got, want = natively(fused(f, 1), x)[0], f(x.astype(np.float64))
        tol = 1e-5 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(got, want, rtol=tol, atol=tol)
