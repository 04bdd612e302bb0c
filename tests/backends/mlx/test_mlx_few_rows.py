"""Products of few rows by matrices in few bits on a GPU: sums of what is in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import layers
import numpy as np
import pytest
from programs import program_of

from eqsat import ops
from eqsat.backends.gpu.few_row_products import FEW_ROWS, with_sums
from eqsat.backends.numpy import interpret
from eqsat.kernels.program import Program
from eqsat.terms.type_rules import BF16
from eqsat.testing import Computed

pytest.importorskip("mlx.core")
import mlx_checking as checking
from mlx_checking import Array, check_programs, every_way

from eqsat.backends import mlx

Function = Callable[..., Any]


def turned(x: Any, q: Any, zero: Any, scale: Any) -> Any:
    """Rows of a matrix lie as columns do in the product, in the dtype of x."""
    return x @ ops.dequantize(q, scale, zero).mT


def activated(x: Any, q: Any, zero: Any, scale: Any) -> tuple[Any, Any]:
    y = layers.by_groups(x, q, zero, scale)
    return ops.gelu(y + scale[0]), y


def drawn(f: Function, rows: int, n: int, dtype: Any, seed: int = 0) -> list[Array]:
    """x, and the integers, zeros and scales of 3 groups of 32."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 96)).astype(dtype)
    q, zero, scale = layers.quantised(rng, 4 if f is layers.nibbles else 8, 3, 32, n)
    if f is turned:
        q, zero, scale = (np.ascontiguousarray(a.T) for a in (q, zero, scale))
        scale = scale.astype(dtype)
    return [x, q, zero, scale]


CASES: list[tuple[Function, Any]] = [
    (layers.by_groups, np.dtype("f4")),
    (layers.nibbles, np.dtype("f4")),
    (layers.whole, np.dtype("f4")),
    (activated, np.dtype("f4")),
    (turned, np.dtype("f4")),
    (turned, np.dtype("f2")),
    (turned, BF16),
]
of_cases = pytest.mark.parametrize(
    ("f", "dtype"), CASES, ids=[f"{f.__name__}-{d}" for f, d in CASES]
)


def both(f: Function, arrays: list[Array]) -> list[Program]:
    """Programs of ``f`` whose matrices are given in calls, and known beforehand."""
    x, *made_of = arrays
    return [program_of(f, *arrays), program_of(f, x, constants=made_of)]


@every_way
@of_cases
def test_products_of_few_rows(way: str, f: Function, dtype: Any) -> None:
    found = []
    for rows in (1, FEW_ROWS) if way != "device" else (1, 2, 3, FEW_ROWS, FEW_ROWS + 1):
        for n in (64, 130):
            arrays = drawn(f, rows, n, dtype)
            for p, given in zip(both(f, arrays), (arrays, arrays[:1]), strict=True):
                want = interpret(p.roots, given)
                found.append((p, Computed(want, p.roots, given)))
    check_programs(way, found)


@pytest.mark.parametrize("language", ["metal", "cuda"])
@of_cases
def test_a_matrix_of_few_rows_is_not_computed_before(
    f: Function, dtype: Any, language: str
) -> None:
    for rows in (1, FEW_ROWS, FEW_ROWS + 1):
        for p in both(f, drawn(f, rows, 64, dtype)):
            source = mlx.lower(p, language).source
            assert ("mx.matmul(" in source) == (rows > FEW_ROWS)
            assert rows > FEW_ROWS or "mx.concatenate(" not in source


def test_what_is_no_smaller_stays_a_product() -> None:
    x, w = np.ones((1, 64), np.float32), np.ones((64, 48), np.float32)
    halves = np.ones((64, 48), np.float16)
    for f, arrays in (
        (lambda x, w: x @ w, [x, w]),
        (lambda x, w: x @ (w * 2), [x, w]),
        (lambda x, w: (x @ w) @ w.mT, [x, w]),
        (lambda x, w: x @ np.sort(w), [x, halves.astype(np.float32)]),
        (lambda x, w: x @ (ops.softmax(w) * 2), [x, w]),
        (lambda x, w: x @ np.concatenate([w, w], 1), [x, w]),
    ):
        for p in both(f, arrays):
            assert with_sums(p) is p
    p, known = both(lambda x, w: x @ w.astype(np.float32), [x, halves])
    assert with_sums(p) is not p and with_sums(known) is not known


def test_a_matrix_that_others_read_is_still_computed() -> None:
    def f(x: Any, many: Any, q: Any, zero: Any, scale: Any) -> Any:
        a = layers.by_groups(x, q, zero, scale)
        return a, layers.by_groups(many, q, zero, scale)

    x, *made_of = drawn(layers.by_groups, 2, 64, np.float32)
    many = drawn(layers.by_groups, 40, 64, np.float32, seed=1)[0]
    p = program_of(f, x, many, *made_of)
    new = with_sums(p)
    assert [k.kind for k in new.kernels].count("contract") == 1
    got, want = (interpret(q.roots, [x, many, *made_of]) for q in (new, p))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-4)


@pytest.mark.skipif(not checking.ON_GPU, reason="no GPU")
def test_rows_and_matrices_of_models() -> None:
    rng = np.random.default_rng(0)
    for rows in (1, FEW_ROWS):
        w = layers.quantised(rng, 8, 32, 128, 4096)
        x = rng.standard_normal((rows, 4096)).astype(np.float32)
        p = program_of(layers.by_groups, x, *w)
        arrays = [x, *w]
        want = Computed(interpret(p.roots, arrays), p.roots, arrays)
        check_programs("device", [(p, want)])
