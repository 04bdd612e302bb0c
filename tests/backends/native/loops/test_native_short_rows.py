"""Rows shorter than vectors, ends of rows, and values that many places need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sizes import some

import eqsat as eq
from eqsat.backends.native.machine.processor import host

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(0)
SIZES = [1, 2, 3, 4, 5, 8, 12, 17, 31]
LANES = host().vector_bits // 32

MAPS: dict[str, Callable[..., Any]] = {
    "columns": lambda x, c, r: (x - c) * c,
    "rows": lambda x, c, r: np.exp(-x * x) * r + r,
    "position": lambda x, c, r: x + np.arange(x.shape[1]) * np.arange(len(x))[:, None],
    "picked": lambda x, c, r: x[::-1, np.arange(x.shape[1])[::-1]] * c,
    "taken": lambda x, c, r: np.take(x, np.arange(len(x))[::-1] // 2, axis=0) * c,
    "window": lambda x, c, r: x[1:-1] * c[0] + x[2:] * r[:-2],
    "narrow": lambda x, c, r: (x > c).astype(np.int8) + 1,
    "joined": lambda x, c, r: np.stack([x[:, 0] * 2, x[:, -1], r[:, 0] + 1], axis=-1),
}
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "norm": lambda x, c, r: x / np.sqrt((x * x).sum(-1, keepdims=True)),
    "extremes": lambda x, c, r: (x.min(-1), x.max(-1), x.argmax(-1)),
    "distances": lambda x, c, r: ((x[:, None] - x[None, :33]) ** 2).sum(-1),
    "far": lambda x, c, r: np.abs(x[None, :33] - x[:, None]).max(-1),
    "softmax": lambda x, c, r: np.exp(x) / np.exp(x).sum(-1, keepdims=True) * c,
    "spread": lambda x, c, r: x.std(-1) + r[:, 0],
}


def near(got: Any, want: Any) -> None:
    for a, b in zip(
        *(v if isinstance(v, tuple) else (v,) for v in (got, want)), strict=True
    ):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        tolerance = 1e-12 if a.dtype == np.float64 else 1e-4
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def listed(f: Any, *args: Any) -> list[str]:
    """The lines of the kernels of ``f``."""
    source = f.lower(*args).source("native")
    return [line for line in source.splitlines() if line.startswith(";")]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*MAPS, *REDUCTIONS])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_of_every_length(name: str, dtype: str, threads: int) -> None:
    f = eq.jit((MAPS | REDUCTIONS)[name], options=eq.Options(threads=threads))
    for size in some(SIZES, 2):
        rows = int(rng.integers(3, 90))
        x, c, r = (rng.standard_normal(s) for s in [(rows, size), size, (rows, 1)])
        given = [a.astype(dtype) for a in (x, c, r)]
        near(f(*given), f.fn(*given))


def test_rows_inside_of_larger_arrays() -> None:
    x = rng.standard_normal((20, 37, 9)).astype(np.float32)[1:-1, 2:-1, 3:6]
    mean, scale = np.float32([1, 2, 3]), rng.random((18, 34, 1), np.float32)
    f = eq.jit(lambda x, mean, scale: (x - mean) * scale)
    near(f(x, mean, scale), f.fn(x, mean, scale))


def test_colours_of_a_large_image_are_computed_in_vectors() -> None:
    x, mean = rng.random((70, 80, 3), np.float32), rng.random(3, np.float32)
    f = eq.jit(lambda x, mean: np.exp(x - mean))
    near(f(x, mean), f.fn(x, mean))
    assert f"shufflevector <{min(3, LANES)} x float>" in f.lower(x, mean).source("llvm")


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
@pytest.mark.parametrize("across", [3, 6, 7, 11, 13, 14, 15])
def test_rows_behind_the_last_whole_vectors(across: int, dtype: str) -> None:
    """Some rows fill vectors, those behind them have vectors of their own."""
    x = rng.standard_normal((5, 14, across + 2)).astype(dtype)
    c = (1 + rng.random((14, across))).astype(dtype)

    def pooled(x: Array, c: Array) -> Array:
        return (x[..., :-2] + x[..., 1:-1] + x[..., 2:]) / c

    got, want = eq.jit(pooled)(x, c), pooled(x.astype(float), c)
    tolerance = 8 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(got, want, tolerance, tolerance * 4)


def test_lanes_run_along_short_rows_that_are_reduced() -> None:
    x = rng.random((100, 3), np.float32)
    f = eq.jit(lambda x: np.sqrt((x * x).sum(-1)))
    assert any(line.endswith("# lanes") for line in listed(f, x))
    wide = rng.random((100, 64), np.float32)
    assert not any(line.endswith("# lanes") for line in listed(f, wide))


def test_ends_of_short_rows_call_functions_in_vectors() -> None:
    x = rng.standard_normal((100, LANES + LANES // 2)).astype(np.float32)
    f = eq.jit(lambda x: np.log(np.exp(x).sum(-1)))
    near(f(x), f.fn(x))
    assert any(line.endswith("# lanes") for line in listed(f, x))


# What is rolled is computed once, every time.
@pytest.mark.slow
def test_what_many_places_need_is_computed_once() -> None:
    @eq.jit
    def tree(v: Array) -> Array:
        for _ in range(40):
            v = v[1:] * 0.25 + v[:-1]
        return v

    v = rng.random(100)
    near(tree(v), tree.fn(v))
    assert sum("add(" in line for line in listed(tree, v)) < 200


def test_functions_are_computed_again_at_few_places_only() -> None:
    @eq.jit
    def filtered(x: Array) -> Array:
        e = np.exp(x)
        return sum(e[i : i + 60] * (i + 1) for i in range(7))

    x = rng.random(66)
    near(filtered(x), filtered.fn(x))
    assert sum("exp(" in line for line in listed(filtered, x)) == 1


def test_what_is_rolled_is_computed_once() -> None:
    @eq.jit
    def smoothed(u: Array) -> Array:
        e = np.exp(u) * 0.25
        return (
            np.roll(e, 1, 0) + np.roll(e, -1, 0) + np.roll(e, 1, 1) + np.roll(e, 2, 1)
        )

    u = rng.random((40, 30))
    near(smoothed(u), smoothed.fn(u))
    assert sum("exp(" in line for line in listed(smoothed, u)) == 1


@pytest.mark.sampled(14)
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "u2", "i8", "?"])
@pytest.mark.parametrize("count", [2, 3, 8, 9])
def test_coordinates_are_written_in_turn(dtype: str, count: int) -> None:
    def turned(x: Array) -> Array:
        parts = [np.maximum(x[..., i], x[..., i - 1]) for i in range(count)]
        return np.stack(parts, -1)

    def parted(x: Array) -> Array:
        halves = [x[..., :1] | x[..., i : i + 1] for i in range(1, count)]
        return np.concatenate([x[..., -1:], *halves], -1).reshape(-1, count)

    for rows in ((LANES * 4 + 5,), (3, 50)):
        x = (rng.standard_normal((*rows, count)) * 50).astype(dtype)
        for f in (turned, *([parted] if x.dtype.kind in "iub" else [])):
            np.testing.assert_array_equal(eq.jit(f)(x), f(x))


# Coordinates that are written in turn run every time.
@pytest.mark.slow
def test_coordinates_among_other_things() -> None:
    def f(x: Array, y: Array) -> tuple[Array, ...]:
        cross = np.cross(x, y)
        polar = np.stack([np.hypot(x[:, 0], y[:, 0]), x[:, 1] * 0, x[:, 1]], 1)
        both = np.stack([x[:, 0], x[:, 0], y[:, 1] + 1], 1)
        return (
            cross,
            cross.sum(1),
            polar * 2,
            both,
            np.stack([x[:, 2], y[:, 2]], 1)[::2],
        )

    x, y = rng.random((100, 3)), rng.random((100, 3))
    near(eq.jit(f)(x, y), f(x, y))
    near(eq.jit(f)(x[::2], y[::-2]), f(x[::2], y[::-2]))
    x, y = rng.random((60000, 3)), rng.random((60000, 3))
    near(eq.jit(f, options=eq.Options(threads=2))(x, y), f(x, y))


def test_coordinates_run_in_one_loop() -> None:
    x, y = rng.random((100, 3)), rng.random((100, 3))
    lines = listed(eq.jit(np.cross), x, y)
    assert sum("kernel(" in line for line in lines) == 1


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("f", [np.cbrt, np.exp, np.log1p, np.sin])
def test_functions_of_narrow_rows_that_lie_across(f, rows):
    x = np.random.default_rng(rows).uniform(0.1, 2.0, (rows, 6))
    run = eq.jit(lambda x: np.moveaxis(f(x + 0), 0, -1), "native")
    assert np.allclose(run(x), np.moveaxis(f(x), 0, -1), rtol=1e-13)
