"""Attention of float32 on tensor cores that multiply bfloat16."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from natives import Array
from programs import program_of
from sizes import examples

from eqsat import ops
from eqsat.backends.gpu.hopper.attention import Attention, attending
from eqsat.backends.gpu.hopper.products import splitting

pytest.importorskip("mlx.core")
import mlx.core as mx
from mlx_checking import ON_GPU
from wide import HERE, drawn, modelled, on_device, ran

from eqsat.backends import mlx

LEADS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()),
    ((3,), (3,)),
    ((2, 2), (2, 1)),
    ((2,), ()),
]
"""Axes before those of q, and of k and v."""
FORMS = ["plain", "causal", "biased", "padded"]


def exactly(
    q: Array, k: Array, v: Array, scale: float, form: str, bias: Array | None
) -> Array:
    """Attention in float64; what is not seen is multiplied by 0."""
    q, k, v = (x.astype(float) for x in (q, k, v))
    scores = scale * (q @ k.swapaxes(-1, -2))
    m, n = scores.shape[-2:]
    if form == "causal":
        scores = np.where(np.tri(m, n, n - m, bool), scores, -np.inf)
    if bias is not None:
        scores = scores + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)


def assert_attends(
    y: Array, wanted: Array, qkv: list[Array], scale: float, bias: Array | None
) -> None:
    """Within some roundings of the largest value, as many more as scores have that are
    larger than 1; NaN and ∞ as in float64."""
    q, k, v = (np.where(np.isfinite(x) & (abs(x) < 1e30), x, 0) for x in qkv)
    high = scale * np.abs(q @ k.swapaxes(-1, -2)).max(initial=0)
    if bias is not None:
        high += np.abs(bias[np.isfinite(bias)]).max(initial=0)
    size = np.abs(v).max(initial=1e-30)
    known = np.isfinite(wanted)
    np.testing.assert_array_equal(np.isfinite(y), known)
    np.testing.assert_array_equal(y[~known], wanted[~known])
    assert np.abs(y - wanted)[known].max(initial=0) <= (8 + high) * 2.0**-22 * size


def case(
    rng: Any, leads: Any, sizes: tuple[int, int, int, int], form: str, odd: str = ""
) -> tuple[list[Array], Array | None]:
    m, n, d, e = sizes
    lead, few = leads
    shapes = (*lead, m, d), (*few, n, d), (*few, n, e)
    qkv = [rng.standard_normal(s, dtype=np.float32) for s in shapes]
    bias = None
    if form in ("biased", "padded"):
        more = lead[-1:] if rng.random() < 0.5 else (2, *lead)
        bias = drawn(rng, (*more, m if form == "biased" else 1, n))
        bias[..., : n // 3] = -np.inf
        bias[..., 0, :] = -np.inf if form == "biased" else bias[..., 0, :]
    if odd:
        value = {"nan": np.nan, "inf": np.inf}[odd]
        for x in qkv:
            x[..., rng.integers(x.shape[-2]), rng.integers(x.shape[-1])] = value
    return qkv, bias


def made(
    qkv: list[Array], scale: float, form: str, bias: Array | None, seed: int
) -> Array:
    """Attention on the model of a GPU."""
    shapes = [x.shape for x in qkv]
    attention = Attention(
        *shapes, form == "causal", None if bias is None else bias.shape
    )
    parts = [
        ran(splitting(x.shape, False), [x], "bfloat16", seed)
        for x in (*qkv[:2], qkv[2].swapaxes(-1, -2))
    ]
    lead = attention.lead
    whole = [np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in qkv]
    if bias is not None:
        whole.append(np.broadcast_to(bias, (*attention.shape[:-1], bias.shape[-1])))
    if form == "causal":
        total = qkv[2].sum(-2, keepdims=True, dtype=np.float32)
        whole.append(np.broadcast_to(total, (*lead, 1, total.shape[-1])))
    return ran(attending(attention, scale), [*parts, *whole], "float32", seed)


FEW = [
    pytest.param(LEADS[0], (128, 128, 32, 64), "plain", "", marks=pytest.mark.slow),
    (LEADS[1], (70, 130, 65, 33), "causal", ""),
    (LEADS[2], (130, 260, 32, 100), "biased", ""),
    (LEADS[3], (20, 300, 128, 128), "padded", ""),
    pytest.param(
        *(LEADS[0], (200, 150, 8, 128), "causal", "inf"), marks=pytest.mark.slow
    ),
    (LEADS[0], (40, 140, 40, 20), "plain", "nan"),
]


@modelled
@pytest.mark.parametrize(("leads", "sizes", "form", "odd"), FEW)
def test_attention_on_the_model(leads: Any, sizes: Any, form: str, odd: str) -> None:
    rng = np.random.default_rng(1)
    qkv, bias = case(rng, leads, sizes, form, odd)
    scale = 1 / math.sqrt(sizes[2])
    with np.errstate(all="ignore"):
        wanted = exactly(*qkv, scale, form, bias)
        y = made(qkv, scale, form, bias, 1)
        assert_attends(y, wanted, qkv, scale, bias)


# -- on the device ---------------------------------------------------------------------


def called(form: str, scale: float) -> Any:
    if form in ("biased", "padded"):
        name = "attention_masked" if form == "biased" else "attention_padded"
        return lambda q, k, v, bias: getattr(ops, name)(q, k, v, scale, bias)
    name = "attention_causal" if form == "causal" else "attention_scaled"
    return lambda q, k, v: getattr(ops, name)(q, k, v, scale)


@on_device
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wide", [False, True])
@examples(8)
@given(
    st.sampled_from(LEADS),
    st.tuples(*[st.sampled_from([4, 100, 128, 129, 400])] * 2),
    st.sampled_from([8, 32, 65, 96, 128]),
    st.sampled_from(["", "", "nan", "inf"]),
    st.integers(0, 2**32 - 1),
)
def test_attention_on_the_device(
    form: str, wide: bool, leads: Any, sizes: Any, d: int, odd: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    qkv, bias = case(rng, leads, (*sizes, d, 100 if wide else 64), form, odd)
    given = [*qkv, *([] if bias is None else [bias])]
    with pytest.MonkeyPatch.context() as patch:
        always = property(lambda self: self.is_possible)
        patch.setattr(Attention, "is_faster", always)
        lowered = mlx.lower(program_of(called(form, 0.125), *given), "cuda")
    assert "attention_kernel(" in lowered.source
    with np.errstate(all="ignore"):
        wanted = exactly(*qkv, 0.125, form, bias)
        (y,) = lowered(*given)
        assert_attends(y, wanted, qkv, 0.125, bias)


@on_device
def test_causal_attention_is_nearer_than_in_steps() -> None:
    rng = np.random.default_rng(3)
    qkv = [rng.standard_normal((8, 1024, 128), dtype=np.float32) for _ in "qkv"]
    lowered = mlx.lower(program_of(called("causal", 0.125), *qkv))
    assert "attention_kernel(" in lowered.source
    wanted = exactly(*qkv, 0.125, "causal", None)
    q, k, v = map(mx.array, qkv)
    scores = mx.where(mx.tri(1024) > 0, 0.125 * (q @ mx.swapaxes(k, -1, -2)), -mx.inf)
    steps = mlx.to_numpy(mx.softmax(scores, axis=-1) @ v)
    (y,) = lowered(*qkv)
    assert np.abs(y - wanted).max() <= np.abs(steps - wanted).max()


# -- when ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("q", "k", "v", "causal", "ours"),
    [
        ((8, 32, 1024, 128), (8, 32, 1024, 128), (8, 32, 1024, 128), True, True),
        ((4, 16, 512, 64), (4, 16, 512, 64), (4, 16, 512, 64), False, True),
        ((8, 8, 4, 1024, 96), (8, 8, 1, 1024, 96), (8, 8, 1, 1024, 96), False, True),
        ((8, 32, 1024, 129), (8, 32, 1024, 129), (8, 32, 1024, 64), True, False),
        ((8, 32, 1024, 64), (8, 32, 1024, 64), (8, 32, 1024, 200), True, False),
        ((0, 1024, 64), (0, 1024, 64), (0, 1024, 64), False, False),
        ((64, 64), (64, 64), (64, 64), False, False),
    ],
)
def test_which_attention_is_ours(
    q: Any, k: Any, v: Any, causal: bool, ours: bool
) -> None:
    assert Attention(q, k, v, causal).is_faster is ours
    x, y, z = (np.broadcast_to(np.float32(0), s) for s in (q, k, v))
    if not ON_GPU or HERE:
        f = called("causal" if causal else "plain", 0.5)
        source = mlx.lower(program_of(f, x, y, z), "cuda").source
        assert ("attention_kernel(" in source) is ours


def test_scales_that_are_no_numbers_of_float32() -> None:
    """Attention is then done in steps."""
    x = np.broadcast_to(np.float32(0), (64, 512, 64))
    programs = [program_of(called("plain", s), x, x, x) for s in (math.inf, -math.inf)]
    programs.append(program_of(ops.attention_scaled, x, x, x, np.float32(1)))
    for program in programs if not ON_GPU or HERE else []:
        assert "attention_kernel(" not in mlx.lower(program, "cuda").source
