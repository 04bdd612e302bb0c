"""Activations, norms and attention, traced and on arrays, against their formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agreement import FLOATS, Array, agree, names, normal, rounded, traced
from evaluate import evaluate
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples, seeds

from eqsat import ops
from eqsat.ops.position import diagonal_band
from eqsat.rulelang.recognition import is_recognised, recognition
from eqsat.terms.op import Op

quick = examples(30)
floats = st.sampled_from(FLOATS)
sizes = st.integers(0, 4)


# -- networks --------------------------------------------------------------------------


def softmax(x: Array, axis: Any = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


def standardized(x: Array, axis: Any = -1, eps: float = 1e-5) -> Array:
    spread = np.sqrt(x.var(axis, keepdims=True) + eps)
    return np.asarray((x - x.mean(axis, keepdims=True)) / spread)


def rotated(x: Array) -> Array:
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], -1)


def per_channel(v: Array) -> Array:
    return v[:, None, None]


def group_normed(x: Array, w: Array, b: Array) -> Array:
    groups = x.reshape(x.shape[0], 2, math.prod(x.shape[1:]) // 2)
    return standardized(groups).reshape(x.shape) * per_channel(w) + per_channel(b)


def batch_normed(x: Array, mean: Array, var: Array, w: Array, b: Array) -> Array:
    mean, var, w, b = map(per_channel, (mean, var, w, b))
    return (x - mean) / np.sqrt(var + 1e-5) * w + b


NETWORKS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[str, ...]]] = {
    # name: ours, the formula, shapes over the letters n (0 to 4), c = 4 and d = 6
    "softmax": (ops.softmax, softmax, ("nd",)),
    "softmax of axes": (
        lambda x: ops.softmax(x, axis=(0, 2)),
        lambda x: softmax(x, (0, 2)),
        ("cnd",),
    ),
    "log_softmax": (ops.log_softmax, lambda x: np.log(softmax(x)), ("nd",)),
    "logsumexp": (
        ops.logsumexp,
        lambda x: np.log(np.exp(x).sum(-1, keepdims=True)),
        ("nd",),
    ),
    "standardize": (ops.standardize, standardized, ("nnd",)),
    "layer_norm": (
        ops.layer_norm,
        lambda x, w, b: standardized(x) * w + b,
        ("nnd", "d", "d"),
    ),
    "rms_norm": (
        lambda x, w: ops.rms_norm(x, w, 1e-3),
        lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * w,
        ("nd", "d"),
    ),
    "group_norm": (
        lambda x, w, b: ops.group_norm(x, w, b, groups=2),
        group_normed,
        ("ncnd", "c", "c"),
    ),
    "batch_norm": (
        lambda x, m, v, w, b: ops.batch_norm(x, m, v * v, w, b),
        lambda x, m, v, w, b: batch_normed(x, m, v * v, w, b),
        ("ncnd", "c", "c", "c", "c"),
    ),
    "rope": (
        ops.rope,
        lambda x, c, s: x * c + rotated(x) * s,
        ("ncnd", "nd", "nd"),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
@quick
@given(seeds, floats, sizes)
def test_a_network_function_is_its_formula(
    name: str, seed: int, dtype: Any, n: int
) -> None:
    ours, formula, texts = NETWORKS[name]
    size = {"n": n, "c": 4, "d": 6}
    arrays = [
        normal(seed + i, *(size[c] for c in text), dtype=dtype)
        for i, text in enumerate(texts)
    ]
    agree(ours, rounded(formula), *arrays, tol=20)


def test_extremes() -> None:
    x = np.array([[-np.inf, -np.inf], [1e4, -1e4], [np.inf, 0.0]])
    agree(ops.logsumexp, lambda v: np.array([[-np.inf], [1e4], [np.inf]]), x)
    agree(ops.softplus, lambda v: np.logaddexp(v, 0), x, tol=1)
    agree(ops.sigmoid, lambda v: np.array([[0, 0], [1, 0], [1, 0.5]]), x, tol=1)
    far = np.array([1e4, 1e4 - 1, -1e4], np.float32)
    agree(ops.softmax, rounded(softmax), far, tol=1)


def test_dequantize_has_a_scale_for_each_group() -> None:
    q = np.array([[-128, 127, 3, 4], [1, 2, 3, 4]], np.int8)
    scale = np.array([[0.5, 2], [1, 4]], np.float32)
    zero = np.array([[0, -128], [1, 2]], np.int8)
    shifted = q.astype(float) - np.repeat(zero.astype(float), 2, -1)
    want = rounded(lambda q, s, z: shifted * np.repeat(s, 2, -1))
    agree(ops.dequantize, want, q, scale, zero)


def attended(
    q: Array, k: Array, v: Array, mask: Any = None, causal: bool = False
) -> Array:
    heads = q.shape[-3] // k.shape[-3]
    k, v = np.repeat(k, heads, -3), np.repeat(v, heads, -3)
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = (
            np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
        )
    m, n = scores.shape[-2:]
    if causal:
        scores = np.where(np.tri(m, n, n - m, dtype=bool), scores, -np.inf)
    return np.asarray(softmax(scores) @ v)


MASKS: dict[str, Callable[[int, int, int], Array]] = {
    "bool": lambda seed, m, n: (normal(seed, m, n) > 0) | (np.arange(n) == 0),
    "bias": lambda seed, m, n: normal(seed, 2, 1, m, n),
    "bias of heads": lambda seed, m, n: normal(seed, 4, 1, n),
}


@pytest.mark.parametrize("mask", ["none", *MASKS])
@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_its_formula(mask: str, heads: int, causal: bool) -> None:
    shapes = (2, 4, 3, 6), (2, heads, 5, 6), (2, heads, 5, 7)
    arrays = [normal(i, *shape) for i, shape in enumerate(shapes)]
    if mask != "none":
        arrays.append(MASKS[mask](4, 3, 5))
    agree(
        lambda q, k, v, mask=None: ops.attention(q, k, v, mask=mask, causal=causal),
        lambda q, k, v, mask=None: attended(q, k, v, mask, causal),
        *arrays,
        tol=8,
    )


def test_attention_is_one_node() -> None:
    q, k = traced(normal(1, 2, 4, 3, 6), normal(2, 2, 4, 5, 6))
    plain = ops.attention(q, k, k)
    assert names(plain.term) == ["scalar", "attention_scaled"]
    causal = ops.attention(q, k, k, 0.5, causal=True)
    assert names(causal.term) == ["scalar", "attention_causal"]


def test_positions() -> None:
    want = np.tri(3, 5, 2, dtype=bool)
    np.testing.assert_array_equal(diagonal_band(3, 5, 2), want)
    np.testing.assert_array_equal(ops.iota(4), np.arange(4))
    (x,) = traced(np.zeros((3, 5)))
    (found,) = evaluate([diagonal_band(3, 5, 2, like=x).term], [np.zeros((3, 5))])
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    "name", [n for n, o in Op.registry.items() if o.body and o.recognised]
)
def test_a_body_is_a_pattern_of_any_rank(name: str) -> None:
    op = Op.registry[name]
    for rule in recognition(op) if is_recognised(op) else ():
        assert rule.left != rule.right
