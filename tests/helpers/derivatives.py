"""Gradients against differences of values, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from evaluate import evaluate

import eqsat as eq
from eqsat.terms.term import postorder
from eqsat.terms.type_rules import is_float
from eqsat.trace.trace import trace

Array = np.ndarray[Any, Any]
STEP = 1e-5
UNIT = 2.0**-53


def apart(
    rng: np.random.Generator,
    shapes: Sequence[tuple[int, ...]],
    low: float = -2.0,
    high: float = 2.0,
) -> list[Array]:
    """Arrays of numbers no two of which are near, so that few steps cross a kink."""
    sizes = [int(np.prod(s)) for s in shapes]
    n = sum(sizes)
    grid = low + (high - low) * (rng.permutation(n) + rng.uniform(0.3, 0.7, n)) / max(
        n, 1
    )
    cuts = np.split(grid, np.cumsum(sizes)[:-1])
    return [np.asarray(c.reshape(s)) for c, s in zip(cuts, shapes, strict=True)]


def gradient(f: Callable[..., Any], args: Sequence[Any], *argnums: int) -> list[Array]:
    """The gradient of ``f``, its terms computed by the references of the ops."""
    done = trace(eq.grad(f, argnums).fn, args)
    return evaluate(done.outputs, args)


def weighted(f: Callable[..., Any], weights: Array) -> Callable[..., Any]:
    """A scalar in which every element of ``f`` counts differently."""
    return lambda *args: (f(*args) * weights).sum()


def widths(terms: Any) -> set[str]:
    """Floating dtypes of terms."""
    return {str(t.dtype) for t in postorder(terms) if is_float(t.dtype) and t.args}


def check(f: Callable[..., Any], args: Sequence[Any], seed: int, *argnums: int) -> None:
    """The gradient of ``f``, floats to floats, by ``argnums``, all by default, is what
    differences say along a random direction.

    That of float32 is computed in float32 where ``f`` is: a GPU may have no other.

    Twice the step shows the error that the step has, h² f‴ / 6, four times; rounding of
    the values, a few units each, is divided by the step.
    """
    argnums = argnums or tuple(range(len(args)))
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        out = np.asarray(f(*args))
        weights = rng.uniform(0.5, 1.5, out.shape)
        ways = [rng.uniform(-1, 1, args[i].shape) for i in argnums]

        def slope(h: float) -> float:
            return float(np.sum((moved(h) - moved(-h)) / (2 * h) * weights))

        def moved(h: float) -> Array:
            there = list(args)
            for i, way in zip(argnums, ways, strict=True):
                there[i] = args[i] + h * way
            return np.asarray(f(*there))

        loss = weighted(f, weights)
        found = gradient(loss, args, *argnums)
        for g, i in zip(found, argnums, strict=True):
            assert (g.dtype, g.shape) == (args[i].dtype, args[i].shape)
        got = sum(float(np.sum(g * way)) for g, way in zip(found, ways, strict=True))
        near, far = slope(STEP), slope(2 * STEP)
        size = float(np.sum(np.abs(out) * weights)) + float(np.abs(out).max(initial=0))
        bound = abs(far - near) + 32 * UNIT * (size + 1) / STEP
        assert abs(got - near) <= bound, f"{got} is not {near} up to {bound}"
    narrow = [x.astype("f4") for x in args]
    loss = weighted(f, weights.astype("f4"))
    if "float64" not in widths(trace(loss, narrow).outputs):
        derived = trace(eq.grad(loss, argnums).fn, narrow).outputs
        assert "float64" not in widths(derived)
