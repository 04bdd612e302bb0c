"""Causal attention in blocks of queries, as the MLX backend runs it on CUDA."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import program_of
from sizes import examples

from eqsat import ops
from eqsat.backends.numpy import interpret
from eqsat.kernels.program import Program
from eqsat.terms.term import Term

pytest.importorskip("mlx.core")
blocks: Any = import_module("eqsat.backends.mlx.causal_blocks")
lowering: Any = import_module("eqsat.backends.mlx.lower")
devices: Any = import_module("eqsat.backends.mlx.device_costs")
checking = pytest.importorskip("mlx_checking")

HEADS = {"one": ((), ()), "many": ((2, 3), (2, 3)), "shared": ((2, 4), (2, 2))}
"""Axes before those of q, and of k and v."""


def causal(q: Any, k: Any, v: Any) -> Any:
    return ops.attention(q, k, v, causal=True)


def drawn(seed: int, heads: str, m: int, n: int, d: int = 8) -> list[Any]:
    rng = np.random.default_rng(seed)
    lead, few = HEADS[heads]
    shapes = ((*lead, m, d), (*few, n, d), (*few, n, d + 4))
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def attention_of(m: int, n: int, heads: int = 256, d: int = 128) -> Term:
    """Causal attention as a term, of arrays that nobody has."""
    x = np.broadcast_to(np.float32(0), (heads, max(m, n), d))
    (root,) = program_of(causal, x[:, :m], x[:, :n], x[:, :n]).roots
    return root


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of few queries."""
    monkeypatch.setattr(blocks, "ROWS", 4)
    causal = "attention_causal"
    monkeypatch.setattr(
        lowering, "count_of", lambda t, device: 3 if t.op.name == causal else 1
    )


@examples(60)
@given(
    st.sampled_from([*HEADS]),
    st.sampled_from([1, 63, 64, 65, 130, 200]),
    st.sampled_from([1, 64, 100, 129, 200, 300]),
    st.integers(2, 4),
    st.sampled_from([None, np.nan, np.inf, -np.inf]),
    st.integers(0, 2**32 - 1),
)
def test_blocks_are_the_whole(
    heads: str, m: int, n: int, count: int, odd: float | None, seed: int
) -> None:
    arrays = drawn(seed, heads, m, n)
    if odd is not None:
        rng = np.random.default_rng(seed)
        for x in arrays:
            x[..., rng.integers(x.shape[-2]), rng.integers(x.shape[-1])] = odd
    lead, few = HEADS[heads]
    q, k, v = arrays
    if lead != few:
        q = q.reshape(2, 2, 2, m, 8)
        k, v = k[:, :, None], v[:, :, None]
    arrays = [q, k, v]
    program = program_of(lambda q, k, v: ops.attention_causal(q, k, v, 0.25), *arrays)
    (whole,) = program.roots
    with np.errstate(all="ignore"):
        (want,) = interpret([whole], arrays)
        (got,) = interpret([blocks.in_blocks(whole, count)], arrays)
    np.testing.assert_allclose(got, want, 1e-5, 1e-6)


CASES = [("one", 12, 12), ("many", 9, 20), ("shared", 21, 14), ("one", 20, 3)]


@pytest.mark.parametrize("way", [w for w in checking.WAYS if "metal" not in str(w)])
@pytest.mark.parametrize("odd", [None, np.inf])
def test_kernels_of_blocks(way: str, odd: float | None, small: None) -> None:
    found = []
    for heads, m, n in CASES:
        arrays = drawn(0, heads, m, n)
        if odd is not None:
            arrays[2][..., n // 2, 3] = odd
        found.append((causal, arrays))
    check = checking.check
    assert check(way, found, fuse=False) >= (0 if way == "device" else 4 * 3)


@pytest.mark.skipif(not checking.ON_GPU, reason="blocks are CUDA's")
@pytest.mark.parametrize("odd", [None, np.inf])
def test_blocks_at_the_size_that_they_are_for(odd: float | None) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal((16, 1024, 64)).astype("f4") for _ in "qkv"]
    if odd is not None:
        arrays[2][3, 700, 5] = odd
    program = program_of(causal, *arrays)
    assert blocks.count_of(*program.roots, devices.H200) > 1
    with np.errstate(invalid="ignore"):
        (want,) = interpret(program.roots, arrays)
    (got,) = lowering.lower(program)(*arrays)
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)


def source(term: Term, language: str) -> str:
    args = [a for a in term.args if a.ndim]
    return str(lowering.lower(Program.of([term], args), language).source)


def test_blocks_multiply_with_the_keys_that_they_see(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLX_ENABLE_TF32", "1")  # else it is one kernel on some devices
    text = source(attention_of(1024, 1024), "cuda")
    ends = [int(e) for e in re.findall(r"= x1\[:, 0:(\d+)", text)]
    assert ends == [256, 512, 768] and text.count("mx.matmul(") == 8
    assert "mx.concatenate(" in text


def test_blocks_on_cuda_only() -> None:
    assert "mx.concatenate(" not in source(attention_of(1024, 1024), "metal")
    half = np.broadcast_to(np.float16(0), (256, 1024, 128))
    (root,) = program_of(causal, half, half, half).roots
    assert "ops.attention(" in source(root, "cuda")


@pytest.mark.parametrize(
    ("m", "n", "heads", "count"),
    [
        (1024, 1024, 256, 4),
        (4096, 4096, 64, 8),
        (512, 512, 256, 2),
        (255, 4096, 256, 1),
        (1024, 1024, 1, 1),
    ],
)
def test_blocks_where_they_save_more_than_they_cost(
    m: int, n: int, heads: int, count: int
) -> None:
    assert blocks.count_of(attention_of(m, n, heads), devices.H200) == count
