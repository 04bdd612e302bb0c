"""Products of matrices, and attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.pytorch.table import TABLE, aten, kind_of

PRODUCTS = ("bmm", "dot", "matmul", "mm", "mv")
TABLE.update({f"{name}.default": np.matmul for name in PRODUCTS})


def _scaled(x: Any, factor: Any) -> Any:
    return x if factor == 1 else x * factor


@aten("addmm.default", "baddbmm.default", "addmv.default")
def addmm(c: Any, x: Any, y: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta c + alpha x y; c does not count where beta is 0."""
    if kind_of(x) in "bi" and "f" in (kind_of(alpha), kind_of(beta)):
        raise TypeError("integers, times numbers that are none")
    z = _scaled(np.matmul(x, y), alpha)
    return z if beta == 0 else z + _scaled(c, beta)


# -- attention -------------------------------------------------------------------------


def _scale(q: Any, scale: float | None) -> float:
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def _heads(q: Any, k: Any) -> Any:
    """k or v with as many heads as q."""
    return k if k.shape[1] == q.shape[1] else np.repeat(k, q.shape[1] // k.shape[1], 1)


def _scores(q: Any, k: Any, mask: Any, causal: bool, scale: float) -> Any:
    scores = scale * np.matmul(q, np.swapaxes(k, -1, -2))
    if causal:
        m, n = scores.shape[-2:]
        keep = np.tril(np.ones((m, n), bool))
        scores = np.where(keep, scores, -math.inf)
    if mask is None:
        return scores
    return np.where(mask, scores, -math.inf) if kind_of(mask) == "b" else scores + mask


def _is_hidden(mask: Any, causal: bool, q: Any, k: Any) -> Any:
    """Whether a mask leaves nothing of a row, whose attention is 0 then."""
    seen = mask if kind_of(mask) == "b" else mask != -math.inf
    if causal:
        seen = seen & np.tril(np.ones((q.shape[-2], k.shape[-2]), bool))
    return ~np.any(seen, axis=-1, keepdims=True)


@aten("_scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    q: Any,
    k: Any,
    v: Any,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    """softmax(scale q kᵀ + mask) v, and the logarithms of the sums."""
    if dropout:
        raise TypeError("dropout in attention")
    k, v = _heads(q, k), _heads(q, v)
    scale = _scale(q, scale)
    if causal and q.shape[-2] == k.shape[-2] and attn_mask is None:
        y = ops.attention(q, k, v, scale=scale, causal=True)
    elif causal:
        y = np.matmul(ops.softmax(_scores(q, k, attn_mask, causal, scale)), v)
    else:
        y = ops.attention(q, k, v, scale=scale, mask=attn_mask)
    if attn_mask is not None:
        y = np.where(_is_hidden(attn_mask, causal, q, k), 0, y)
    lse = ops.logsumexp(_scores(q, k, attn_mask, causal, scale))
    return y, np.squeeze(lse, -1)


@aten("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_attention_backward(
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    y: Any,
    lse: Any,
    dropout: float,
    causal: bool,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    """The gradients by q, k and v. Dao et al. 2022, arXiv:2205.14135, appendix B.2."""
    if dropout or k.shape[1] != q.shape[1]:
        raise TypeError("dropout or shared heads in attention")
    scale = _scale(q, scale)
    scores = _scores(q, k, attn_mask, causal, scale)
    p = np.exp(scores - np.expand_dims(lse, -1))
    if attn_mask is not None:  # also in rows of which nothing is left
        p = np.where(scores == -math.inf, 0, p)
    slope = np.matmul(g, np.swapaxes(v, -1, -2))
    slope = p * (slope - np.sum(g * y, axis=-1, keepdims=True)) * scale
    return (
        np.matmul(slope, k),
        np.matmul(np.swapaxes(slope, -1, -2), q),
        np.matmul(np.swapaxes(p, -1, -2), g),
    )
