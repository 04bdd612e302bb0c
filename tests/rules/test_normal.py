"""½ (1 + erf(x √½)) as one operation, wherever it is a whole factor."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import pytest
from natives import fused
from programs import program_of

import eqsat as eq
from bench.mathematics.ulp import normal_cdf
from eqsat.backends.loop_ir.pieces import (
    Loops,
)
from eqsat.backends.to_loops.lower import (
    pieces_of,
)
from eqsat.backends.to_loops.schedule import (
    LoopTarget,
)
from eqsat.ops.transcendental import erf

Run = Callable[[Any], Any]
IS_ONE: dict[str, Run] = {
    "half of the argument": lambda x: 0.5 * x * (1 + erf(x * sqrt(0.5))),
    "half of the sum": lambda x: (erf(sqrt(0.5) * x) + 1) * 0.5 * x,
    "half of the product": lambda x: 0.5 * (x * (1 + erf(x / sqrt(2)))),
    "alone": lambda x: 0.5 * (1 + erf(x * sqrt(0.5))),
    "of another value": lambda x: (x - 1) * (0.5 * (1 + erf(x * sqrt(0.5)))),
}
IS_NOT: dict[str, Run] = {
    "no half": lambda x: x * (1 + erf(x * sqrt(0.5))),
    "another factor": lambda x: 0.5 * x * (1 + erf(x * 0.7)),
    "another number": lambda x: 0.5 * x * (2 + erf(x * sqrt(0.5))),
    "another divisor": lambda x: 0.5 * x * (1 + erf(sqrt(2) / x)),
    "four factors": lambda x: 0.5 * x * x * (1 + erf(x * sqrt(0.5))),
}


def listing(f: Run, dtype: str = "f4", *, normal: bool = True) -> str:
    program = program_of(fused(f, 1), np.zeros((8, 64), dtype))
    (kernel,) = program.kernels
    (piece,) = pieces_of(kernel, LoopTarget(normal=normal)).pieces
    assert isinstance(piece, Loops)
    return str(piece.nest)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("name", IS_ONE)
def test_is_found(name: str, dtype: str) -> None:
    text = listing(IS_ONE[name], dtype)
    assert "normal_cdf" in text
    assert "erf" not in text and "0.5" not in text
    assert "erf" in listing(IS_ONE[name], dtype, normal=False)


@pytest.mark.parametrize("name", IS_NOT)
def test_is_left_alone(name: str) -> None:
    assert "normal_cdf" not in listing(IS_NOT[name])


def test_a_sum_that_is_used_again_is_left_alone() -> None:
    def f(x: Any) -> Any:
        y = 1 + erf(x * sqrt(0.5))
        return 0.5 * x * y + y

    assert "normal_cdf" not in listing(f)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", IS_ONE)
def test_results(name: str, dtype: str) -> None:
    """Within two roundings of a product with Φ, and exact where that saturates."""
    x = np.linspace(-12, 12, 4001).astype(dtype)
    wide = x.astype(np.longdouble if dtype == "f8" else np.float64)
    by = {"alone": np.ones_like(wide), "of another value": wide - 1}.get(name, wide)
    got = eq.jit(IS_ONE[name])(x)
    error = np.abs(got - by * normal_cdf(wide))
    assert (error <= 2 * np.finfo(dtype).eps * np.abs(by)).all()


def test_infinities_and_nan() -> None:
    x = np.array([np.inf, -np.inf, np.nan, -1e30, 1e30, 0.0, -0.0], "f4")
    for numerics in ("reassociate", "exact"):
        f = eq.jit(eq.gelu, options=eq.Options(numerics=numerics))
        want = np.array([np.inf, np.nan, np.nan, -0.0, 1e30, 0.0, -0.0], "f4")
        got = f(x)
        np.testing.assert_array_equal(got, want)
        assert np.signbit(got[[3, 6]]).all()


def test_exact_numerics_keep_the_operations() -> None:
    options = {n: eq.Options(numerics=n) for n in ("reassociate", "exact")}
    x = np.zeros(4096, "f4")
    text = {n: eq.jit(eq.gelu, options=o).lower(x).source() for n, o in options.items()}
    assert "normal_cdf" in text["reassociate"] and "erf" not in text["reassociate"]
    assert "erf" in text["exact"]
