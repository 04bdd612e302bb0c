"""What vectors would read from far apart again and again is copied first, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agreement import BF16
from hypothesis import given
from hypothesis import strategies as st
from natives import Array, fused, laid, lowered, natively
from programs import program_of
from sizes import examples

import eqsat as eq
from eqsat.backends.native.machine import COMMON

SIZES = st.sampled_from([1, 15, 17, 64, 70, 130, 300])
ROWS = st.sampled_from([1, 2, 3, 4, 7, 8, 16, 19, 33, 128, 130])
LAYOUTS = ["packed", "fortran", "reversed", "strided"]


def box(a: Any, b: Any) -> Any:
    low = np.maximum(a[:, None, :1], b[None, :, :1])
    return (np.minimum(a[:, None, -1:], b[None, :, -1:]) - low)[..., 0]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "squares": lambda a, b: ((a[:, None] - b) ** 2).sum(-1),
    "distances": lambda a, b: np.sqrt(((a[:, None] - b) ** 2).sum(-1)),
    "city blocks": lambda a, b: np.abs(a[:, None] - b).sum(-1),
    "largest": lambda a, b: np.abs(a[:, None] - b).max(-1),
    "smallest": lambda a, b: (a[:, None] * b).min(-1),
    "turned": lambda a, b: (a - b[:, None]).sum(-1),
    "forces": lambda a, b: ((a - b[:, None]) * b[:, None, :1]).sum(0),
    "boxes": box,
    "every other": lambda a, b: a[:, :1] * b[::2, 0] + b[: len(b[::2]), -1],
    "two sums": lambda a, b: (
        np.exp(-np.abs(a[:, None] - b).sum(-1)) + (a[:, None] + b).max(-1)
    ),
    "log of sums": lambda a, b: np.log(
        np.exp(-((a[:, None] - b) ** 2).mean(-1)).sum(1)
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FUNCTIONS)
@examples(30)
@given(
    st.integers(0, 2**32 - 1),
    SIZES,
    SIZES,
    ROWS,
    st.sampled_from(["f4", "f4", "f8", "f2", BF16]),
    st.tuples(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS)),
    st.sampled_from([1, 3]),
    st.sampled_from([None, "x86-64-v3", "generic"]),
)
def test_points_beside_points(
    name: str,
    seed: int,
    n: int,
    m: int,
    d: int,
    dtype: Any,
    layouts: tuple[str, str],
    threads: int,
    cpu: str | None,
) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.uniform(-1, 1, (k, d)).astype(dtype) for k in (n, m))
    f, given = FUNCTIONS[name], [laid(a, layouts[0]), laid(b, layouts[1])]
    (got,) = natively(fused(f, 2), *given, threads=threads, cpu=cpu)
    want = f(a.astype(float), b.astype(float))
    eps = {"f8": 1e-14, "f4": 1e-5}.get(str(dtype), 4e-2)
    size = eps * max(np.abs(want).max(initial=0), d, n * (name == "forces"))
    assert got.shape == want.shape
    np.testing.assert_allclose(got.astype(float), want, atol=size, rtol=eps)


def test_integers_and_bools() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (70, 6)), rng.integers(-9, 9, (90, 6))
    for dtype in ("i1", "i4", "i8", "u2"):
        x, y = a.astype(dtype), b.astype(dtype)
        got = eq.jit(lambda x, y: ((x[:, None] == y).sum(-1), (x[:, None] - y).max(-1)))
        for g, w in zip(
            got(x, y),
            ((x[:, None] == y).sum(-1), (x[:, None] - y).max(-1)),
            strict=True,
        ):
            np.testing.assert_array_equal(g, w)


def copies(f: Callable[..., Any], *arrays: Array) -> int:
    """Nests before the last one of a program of one kernel."""
    source = lowered(program_of(fused(f, len(arrays)), *arrays)).source
    return source.count("; kernel(") - 1


def test_where_there_are_copies() -> None:
    def draw(*shape: int) -> Array:
        return np.ones(shape, np.float32)

    squares = FUNCTIONS["squares"]
    assert copies(squares, draw(100, 3), draw(100, 3)) == 1
    assert copies(squares, draw(100, 100), draw(100, 100)) == 1
    # of few points, of few elements in all, of many bytes
    assert copies(squares, draw(COMMON.reread - 1, 3), draw(1000, 3)) == 0
    assert copies(squares, draw(30, 3), draw(30, 3)) == 0
    many = COMMON.copy_bytes // 12 + 1
    assert copies(squares, draw(100, 3), draw(many, 3)) == 0
    # of what lies side by side
    assert copies(lambda a, b: a[:, None] * b, draw(300), draw(300)) == 0
    assert copies(lambda a: a.sum(1), draw(300, 300)) == 0


def test_what_is_written_to_is_read_before() -> None:
    """The copy is of what was there when the nest began."""

    def step(x: Any) -> Any:
        y = x + 0
        y[:, ::2] = y[:, ::2] + y[:1, ::2] * 2
        return y - y[:1]

    x = np.random.default_rng(0).standard_normal((200, 60))
    np.testing.assert_array_equal(eq.jit(step)(x), step(x))
