"""Stencils, whose steps are slices or rolled arrays, and what joins them again: each
step reads its argument and writes its result, and nothing is copied between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from natives import fused, natively
from programs import program_of
from sizes import some

import eqsat as eq
from eqsat.backends.loop_ir import Compute, Loops, Pieces, Store
from eqsat.backends.to_loops import LoopTarget, pieces_of

RNG = np.random.default_rng(0)
STEPS = 4
TARGET = LoopTarget(reads_parts=True, remembers=True, exact=True)


def bordered(u: Any) -> Any:
    for _ in range(STEPS):
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        inner = u[1:-1, 1:-1] + (around - 4 * u[1:-1, 1:-1]) * 0.125
        rows = np.concatenate([u[1:-1, :1], inner, u[1:-1, -1:]], 1)
        u = np.concatenate([u[:1], rows, u[-1:]], 0)
    return u


def written(u: Any) -> Any:
    for _ in range(STEPS):
        new = u.copy()
        new[1:-1] = (u[2:] + u[:-2]) * 0.5
        u = new
    return u


def rolled(u: Any) -> Any:
    for _ in range(STEPS):
        around = sum(np.roll(u, by, axis) for axis in (0, 1) for by in (1, -1))
        u = u + (around - 4 * u) * 0.125
    return u


def padded(u: Any) -> Any:
    for _ in range(STEPS):
        p = np.pad(u, ((1, 1), (2, 0)), constant_values=3)
        u = u + (p[:-2, 2:] + p[2:, :-2] - 2 * u) * 0.25
    return u


def two_fields(u: Any) -> Any:
    v = u * u
    for _ in range(2):
        du = np.concatenate([v[1:] - v[:-1], v[:1] - v[-1:]])
        v = np.concatenate([v[:2] * u[:2], (v + du)[2:]])
        u = u + np.concatenate([du[-1:], du[:-1]]) * 0.25
    return u + v


def mixed(u: Any) -> Any:
    """Rolled both ways at once, by more than one."""
    a = np.exp(-u * u)
    return np.roll(a, (2, -3), (0, 1)) * np.roll(a, 1, 1) - np.roll(a, 5, 0)


STENCILS: dict[str, Callable[[Any], Any]] = {
    f.__name__: f for f in (bordered, written, rolled, padded, two_fields, mixed)
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("name", STENCILS)
def test_stencils_are_numpys(name: str, dtype: str, threads: int) -> None:
    f = STENCILS[name]
    for shape in some([(7, 9), (33, 70), (4, 130)], 1):
        u = (RNG.standard_normal(shape) * 2).astype(dtype)
        options = eq.Options(numerics="exact", threads=threads)
        got = eq.jit(f, "native", options=options)(u)
        if name == "mixed":
            np.testing.assert_allclose(got, f(u), rtol=2e-3, atol=1e-6)
        else:
            np.testing.assert_array_equal(got, f(u), strict=True)


def made_of(f: Callable[[Any], Any], shape: tuple[int, ...]) -> Pieces:
    x = np.ones(shape, np.float32)
    (kernel,) = program_of(fused(f, 1), x).kernels
    return pieces_of(kernel, TARGET)


def sizes(made: Pieces, computes: bool) -> list[int]:
    """Elements of the nests that compute something, or that only copy."""
    found = []
    for p in made.pieces:
        assert isinstance(p, Loops)
        statements = [*p.nest.statements()]
        assert any(isinstance(s, Store) for s in statements)
        if any(isinstance(s, Compute) for s in statements) == computes:
            found.append(p.nest.elements)
    return found


def test_a_bordered_step_copies_its_border_only() -> None:
    made = made_of(bordered, (40, 50))
    assert sizes(made, True) == [38 * 48] * STEPS
    assert max(sizes(made, False)) == 50
    assert len(made.temporaries) == STEPS - 1


@pytest.mark.parametrize("f", [rolled, padded])
def test_a_step_computes_each_element_once(f: Callable[[Any], Any]) -> None:
    made = made_of(f, (40, 50))
    assert sum(sizes(made, True)) == STEPS * 40 * 50
    copied = sizes(made, False)
    assert sum(copied) < 40 * 50 * (f is padded) + 40 * 50


def halves(b: Any) -> Any:
    """The same part twice."""
    v = np.concatenate([b, b])
    return np.count_nonzero(v) != v


def beside(b: Any) -> Any:
    """A part, and what is computed of it, in other columns of the same rows."""
    b = np.sqrt(b)
    v = np.concatenate([b, b * b.sum(), b[:, ::-1]], 1)
    return v[:, 1:] - v[:, :-1]


def turned(b: Any) -> Any:
    b = np.sqrt(b)
    v = np.concatenate([b, b.T], 1)
    return v[:, 1:] - v[:, :-1]


def behind(b: Any) -> Any:
    """What is computed of a part comes before it."""
    b = np.sqrt(b)
    v = np.concatenate([b * b[:1], b, b[::-1]], 0)
    return v[1:] - v[:-1]


def nested(b: Any) -> Any:
    b = np.sqrt(b)
    v = np.stack([b, b * b], -1)
    w = np.concatenate([v, v[..., ::-1], np.pad(b, 1)[1:-1, 1:-1, None].repeat(2, 2)])
    return w[1:] - w[:-1]


def filled(b: Any) -> Any:
    """The value around an array is one of its own."""
    b = np.sqrt(b)
    p = np.pad(b, ((1, 2), (0, 3)), constant_values=b[0, 0])
    return p[1:] - p[:-1]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("f", [halves, beside, turned, behind, nested, filled])
def test_parts_are_read_beside_what_is_written(
    f: Callable[[Any], Any], dtype: str
) -> None:
    for n in some((5, 33, 70), 1):
        b = np.abs(RNG.standard_normal((n, n)) * 4).round(1).astype(dtype)
        exact = eq.Options(numerics="exact", threads=2)
        got = eq.jit(f, "native", options=exact)(b)
        if f is beside:  # which sums
            np.testing.assert_allclose(got, f(b), rtol=3e-2, atol=30)
        else:
            np.testing.assert_array_equal(got, f(b), strict=True)
        got, want = natively(fused(f, 1), b)[0], f(b.astype(np.float64))
        if f is halves:
            np.testing.assert_array_equal(got, want)
        else:
            tol = 1e-2 if dtype == "float16" else 1e-5
            scale = np.abs(want).max()
            np.testing.assert_allclose(got, want, rtol=tol, atol=tol * scale)
