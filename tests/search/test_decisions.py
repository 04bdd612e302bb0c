"""What flows into comparisons, roundings, positions and casts out of halves is what
NumPy computes, bit for bit; all else may be rewritten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples, some

import eqsat as eq
from eqsat.kernels import decided
from eqsat.support import Array

F = Callable[..., Any]
RECOMPUTED: dict[str, F] = {
    "bound": lambda x, y: x < x.max() * 3 / 3,
    "equal": lambda x, y: x / 3 * 3 == x,
    "count": lambda x, y: np.count_nonzero(x * 7 / 7 - x),
    "bins": lambda x, y: np.floor((x - x.min()) / (x.max() - x.min()) * 10),
    "cells": lambda x, y: ((x - 0.1) / 0.7 * 10).astype(np.int64),
    "rint": lambda x, y: np.rint(x * 0.1 * 10),
    "trunc": lambda x, y: np.trunc(x / 0.1 * 0.3),
    "ceil": lambda x, y: np.ceil((x + 0.1) + 0.2),
    "sign": lambda x, y: np.sign(x * 3 / 3 - x),
    "rest": lambda x, y: (x * 7 / 7) % 0.1,
    "quotient": lambda x, y: (x * 3 / 7) // 0.1,
    "fmod": lambda x, y: np.fmod(x / 3 * y, 0.1),
    "place": lambda x, y: np.argmax((x * 3) / 3 * y / y),
    "order": lambda x, y: np.argsort(x / 3 * 3 - x, kind="stable"),
    "truth": lambda x, y: np.logical_or(x * 3 / 3 - x, y / 3 * 3 - y),
    "any": lambda x, y: (x / 7 * 7 - x).any(),
    "found": lambda x, y: np.searchsorted(np.linspace(0, 5, 51), x / 3 * 3),
    "heaviside": lambda x, y: np.heaviside(x / 3 * 3 - x, 0.5),
    "copysign": lambda x, y: np.copysign(y, x / 3 * 3 - x),
    "mask": lambda x, y: np.where(x * 3 / 3 > x, y, x),
    "select": lambda x, y: np.select([x / 3 * 3 < x, x > 1], [1.0, 2.0]),
    "view": lambda x, y: (x / 3 * 3)[::-1] > x[::-1],
    "share": lambda x, y: x / x.sum() >= 1 / x.size,
    "shared": lambda x, y: (x / y.max(), x / y.max() > 0.5),
    "whole": lambda x, y: np.rint((np.abs(x) * 3 + 1) / 3 * y * 3),
}
"""Decisions upon values whose algebra is known."""
HALVES: dict[str, F] = {
    "exp": lambda x, y: np.exp(x).astype(np.float32),
    "chain": lambda x, y: (x * x + y).astype(np.float32),
    "bare": lambda x, y: (x * 0.1 + 0.3).astype(np.float64),
    "compared": lambda x, y: x * x + y > 1,
    "sum": lambda x, y: np.sum((x * y).astype(np.float32) * 0, dtype=np.float32),
    "floor": lambda x, y: np.floor(x * 3 + y),
    "place": lambda x, y: np.argmax(x * y + x),
}
BACKENDS = ("native", "numpy")


def arrays(dtype: Any, seed: int = 0) -> tuple[Array, Array]:
    """Numbers that have neighbours in each other's products."""
    rng = np.random.default_rng(seed)
    x, y = rng.integers(1, 50, (2, 500)) / rng.choice([1, 3, 7, 10], (2, 1))
    return x.astype(dtype), y.astype(dtype)


def same(f: F, *args: Array, **how: Any) -> None:
    with np.errstate(all="ignore"):
        want, got = f(*args), eq.jit(f, **how)(*args)
    listed = isinstance(want, tuple)
    for a, b in zip(want, got, strict=True) if listed else [(want, got)]:
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("name", RECOMPUTED)
def test_decisions_are_numpys(name: str, dtype: str, backend: str) -> None:
    if backend == "numpy" and name not in some([*RECOMPUTED], 6, dtype):
        return
    same(RECOMPUTED[name], *arrays(dtype), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", HALVES)
def test_halves_are_rounded_before_decisions(name: str, backend: str) -> None:
    same(HALVES[name], *arrays("f2"), backend=backend)


@pytest.mark.parametrize("name", ["equal", "bins", "rest"])
def test_decisions_are_numpys_on_mlx(name: str) -> None:
    pytest.importorskip("mlx.core")
    same(RECOMPUTED[name], *arrays("f4"), backend="mlx")


@pytest.mark.parametrize("name", ["chain", "compared", "floor"])
def test_halves_are_rounded_before_decisions_on_mlx(name: str) -> None:
    pytest.importorskip("mlx.core")
    same(HALVES[name], *arrays("f2"), backend="mlx")


def test_fast_numerics_decide_upon_what_rules_make() -> None:
    x, y = arrays("f8")
    low = eq.jit(RECOMPUTED["equal"], options=eq.Options(numerics="fast")).lower(x, y)
    assert "divide" not in str(low.program)


def test_what_decides_nothing_is_rewritten() -> None:
    x, y = arrays("f8")
    low = eq.jit(lambda x, y: x * y / 3 * 3 + y).lower(x, y)
    assert "divide" not in str(low.program)
    assert not decided(low.program)


def test_a_value_and_a_decision_upon_it_are_one() -> None:
    def f(x: Any, y: Any) -> Any:
        z = x * 3 / 3
        return z, z > x

    x, y = arrays("f8")
    z, above = eq.jit(f)(x, y)
    np.testing.assert_array_equal(above, z > x)


def test_written_values_are_fused_with_what_is_free() -> None:
    def f(x: Any, y: Any) -> Any:
        z = np.tanh(x * y) + 1
        z = np.where(z / 3 * 3 > y, z, -y)
        return np.exp(-z) * y

    x, y = arrays("f8")
    assert len(eq.jit(f).lower(x, y).program.kernels) == 1


def test_decisions_on_either_side_of_a_product() -> None:
    def f(a: Any, b: Any) -> Any:
        m = np.where(a / 3 * 3 == a, a, 0.0) @ b
        return np.where(m / 7 * 7 == m, m, 0.0) @ b

    rng = np.random.default_rng(0)
    a, b = rng.integers(1, 9, (2, 16, 16)).astype("f8")
    same(f, a, b)


def test_a_decision_upon_a_view_of_a_stored_quotient() -> None:
    def f(x: Any) -> Any:
        q = x / x.max()
        return q, q.T @ q, q.T > 1 / 3

    x = arrays("f8")[0].reshape(20, 25)
    low = eq.jit(f).lower(x)
    assert {low.program.kernels[0].term} <= decided(low.program)
    np.testing.assert_array_equal(eq.jit(f)(x)[2], f(x)[2])


STEPS = (
    *("{} * {c}", "{} / {c}", "{} + {c}", "{} - {c}", "{c} - {}", "abs({})", "-{}"),
    *("{} / {}.max()", "np.maximum({}, {c})", "({} * {c}) / {c}", "{} / {c} * {c}"),
    *("{} * {}", "{} + {}", "{} - {}", "{} / ({} + 2.5)", "np.where({} > {}, x, y)"),
)
DECISIONS = (
    *("{} < {}", "{} == {}", "np.floor({} * {c})", "np.rint({} * {c})", "{} // {c}"),
    *("{} % {c}", "np.argmax({})", "np.sign({} - {})", "({} * 100).astype(np.int32)"),
    *("np.searchsorted(np.sort(x), {})", "np.where({} < {}, x, y)", "({} < {}).sum()"),
)
NUMBERS = ("3", "0.1", "7", "0.7", "1.3", "10")


def drawn(draw: Any, template: str, depth: int) -> str:
    """An expression of x and y."""
    text = template.replace("{c}", draw(st.sampled_from(NUMBERS)))
    shared = expression(draw, depth)
    while "{}" in text:
        part = shared if draw(st.booleans()) else expression(draw, depth)
        text = text.replace("{}", f"({part})", 1)
    return text


def expression(draw: Any, depth: int) -> str:
    if depth == 0:
        return str(draw(st.sampled_from("xy")))
    return drawn(draw, draw(st.sampled_from(STEPS)), depth - 1)


@examples(150)
@given(st.data(), st.sampled_from(["f8", "f4", "f2"]), st.sampled_from(BACKENDS))
def test_drawn_decisions_are_numpys(data: Any, dtype: str, backend: str) -> None:
    depth = data.draw(st.integers(1, 3))
    text = drawn(data.draw, data.draw(st.sampled_from(DECISIONS)), depth)
    f = eval(f"lambda x, y: {text}", {"np": np})
    same(f, *(a[:64] for a in arrays(dtype)), backend=backend)
