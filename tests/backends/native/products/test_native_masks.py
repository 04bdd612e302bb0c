"""Scores that masks drop, which products and softmax leave out in machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from natives import Array, fused, natively
from programs import program_of
from sizes import examples

from eqsat import attention, ops
from eqsat.backends.native.lower import _layout
from eqsat.backends.native.machine.processor import host
from eqsat.backends.native.plan.buffers import Places
from eqsat.backends.native.plan.groups import Group
from eqsat.backends.native.plan.steps import Layered
from eqsat.backends.native.products.causal_columns import Reach
from eqsat.ops import exp, softmax, where
from eqsat.ops.position import diagonal_band

WIDE = {"float32": np.float64, "float64": np.longdouble}
ERROR = {"float32": 4e-6, "float64": 1e-14}


def draw(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> Array:
    return rng.standard_normal(shape).astype(dtype)


def under(q: Any, k: Any, v: Any, keep: Any) -> Any:
    """Attention where ``keep``, one kernel."""
    return attention(q, k, v, 0.25, keep)


def plain(q: Array, k: Array, v: Array, keep: Array) -> Array:
    """The same with all products written out, in wider numbers."""
    q, k, v = (a.astype(WIDE[q.dtype.name]) for a in (q, k, v))
    with np.errstate(all="ignore"):
        scores = np.where(keep, q @ k.swapaxes(-1, -2) / 4, -np.inf)
        parts = np.exp(scores - scores.max(-1, keepdims=True))
        parts /= parts.sum(-1, keepdims=True)
        return np.asarray(parts @ v)


def agree(got: Array, want: Array) -> None:
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    error = ERROR[got.dtype.name]
    np.testing.assert_allclose(got, want, error, error, equal_nan=True)


def reaches(f: Callable[..., Any], *arrays: Array) -> list[Reach]:
    """What the groups of a program know of masks."""
    program = program_of(f, *arrays)
    places = Places(program, [*map(_layout, arrays)])
    parts = Layered(program, places, host(None, "own"), 1).parts
    groups = [g for g in parts if isinstance(g, Group)]
    return [g.reach for g in groups if g.reach is not None]


def masks(rng: np.random.Generator, kind: str, *shape: int) -> Array:
    if kind == "band":
        return np.tril(np.ones(shape, bool), shape[-1] - shape[-2])
    if kind == "ragged":
        ends = rng.integers(0, shape[-1] + 1, (*shape[:-1], 1))
        return np.asarray(np.arange(shape[-1]) < ends)
    if kind == "padding":
        ends = rng.integers(1, shape[-1] + 1, (*shape[:-2], 1, 1))
        return np.broadcast_to(np.arange(shape[-1]) < ends, shape).copy()
    share = {"dense": 0.9, "sparse": 0.01, "none": 0.0}[kind]
    return np.asarray(rng.random(shape) < share)


@given(
    st.sampled_from("band ragged padding dense sparse none".split()),
    st.sampled_from([1, 2, 63, 65, 130, 200]),
    st.sampled_from([64, 65, 100, 129, 300]),
    st.sampled_from([1, 16, 40]),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([1, 3]),
    st.booleans(),
    st.sampled_from([None, np.nan, np.inf, -np.inf]),
    st.integers(0, 2**32 - 1),
)
@examples(80)
def test_masked_scores(
    kind: str,
    m: int,
    n: int,
    size: int,
    dtype: str,
    threads: int,
    each: bool,
    odd: float | None,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    q, k = draw(rng, 2, m, 8, dtype=dtype), draw(rng, 2, n, 8, dtype=dtype)
    v = draw(rng, 2, n, size, dtype=dtype)
    keep = masks(rng, kind, *((2, m, n) if each else (m, n)))
    if odd is not None:
        # Dropped scores do not matter, but numbers times 0 that are not finite do.
        k[0, rng.integers(n), 3] = v[1, rng.integers(n), rng.integers(size)] = odd
    (got,) = natively(under, q, k, v, keep, threads=threads, products="own")
    agree(got, plain(q, k, v, keep))


@pytest.mark.parametrize("cpu", ["generic", "x86-64-v2", "x86-64-v3"])
def test_on_other_processors(cpu: str) -> None:
    if cpu != "generic" and not host().triple.startswith("x86_64"):
        pytest.skip("levels of x86-64")
    rng = np.random.default_rng(3)
    q, k, v = draw(rng, 150, 8), draw(rng, 170, 8), draw(rng, 170, 24)
    keep = masks(rng, "ragged", 150, 170)
    (got,) = natively(under, q, k, v, keep, cpu=cpu, products="own")
    agree(got, plain(q, k, v, keep))


@pytest.mark.parametrize("heads", [2, 6])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("also", [False, True])
def test_attention_over_earlier_keys(heads: int, threads: int, also: bool) -> None:
    rng = np.random.default_rng(heads)
    q, (k, v) = draw(rng, 6, 150, 16), (draw(rng, heads, 170, 16) for _ in "kv")
    keep = masks(rng, "dense", 150, 170)

    def f(q: Any, k: Any, v: Any, keep: Any) -> Any:
        return attention(q, k, v, mask=keep if also else None, causal=True)

    (got,) = natively(f, q, k, v, keep, threads=threads, products="own")
    band = masks(rng, "band", 150, 170)
    k, v = (np.repeat(a, 6 // heads, 0) for a in (k, v))
    want = plain(q, k, v, band & keep if also else band)
    agree(got, want)


def banded(q: Any, k: Any, v: Any, fill: float = -np.inf) -> Any:
    keep = diagonal_band(130, 140, 10, like=q)
    return softmax(where(keep, q @ ops.transpose(k, (-1, -2)) * 0.25, fill)) @ v


def unlike(q: Any, k: Any, v: Any) -> Any:
    """The greatest score is one of all."""
    scores = q @ ops.transpose(k, (-1, -2)) * 0.25
    keep = diagonal_band(130, 140, 10, like=q)
    parts = exp(where(keep, scores, -np.inf) - ops.max(scores, -1, keepdims=True))
    return (parts / ops.sum(parts, -1, keepdims=True)) @ v


def softer(q: Any, k: Any, v: Any) -> Any:
    return banded(q, k, v, -1e9)


@pytest.mark.parametrize(("f", "count"), [(banded, 1), (unlike, 0), (softer, 0)])
def test_what_leaves_columns_out(f: Callable[..., Any], count: int) -> None:
    rng = np.random.default_rng(1)
    arrays = draw(rng, 130, 8), draw(rng, 140, 8), draw(rng, 140, 16)
    f = fused(f, 3)
    assert len(reaches(f, *arrays)) == count
    (got,) = natively(f, *arrays, products="own")
    agree(got, plain(*arrays, masks(rng, "band", 130, 140)))
