"""Normalisations and attention, written out; rules find the fused ops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eqsat.onnx.table import operator


def _per_channel(v: Any, rank: int) -> Any:
    return v.reshape((-1,) + (1,) * (rank - 2))


@operator("BatchNormalization", until=13)
def batch_normalization_at_inference(
    x: Any,
    scale: Any,
    b: Any,
    mean: Any,
    var: Any,
    *,
    epsilon: float,
    momentum: float = 0.9,
    spatial: int = 1,
    call: Any,
) -> Any:
    """(x - mean) scale / √(var + ε) + b for every channel."""
    if call.outputs > 1:
        raise ValueError("training is not supported in this opset")
    if not spatial:
        return (x - mean) * (scale / np.sqrt(var + epsilon)) + b
    return _batch_normalized(x, scale, b, mean, var, epsilon)


def _batch_normalized(x: Any, scale: Any, b: Any, mean: Any, var: Any, eps: float) -> Any:
    factor, shift = (
        _per_channel(v, x.ndim) for v in (scale / np.sqrt(var + eps), b)
    )
    return ((x - _per_channel(mean, x.ndim)) * factor + shift).astype(x.dtype)


@operator("BatchNormalization", since=14)
def batch_normalization(
    x: Any,
    scale: Any,
    b: Any,
    mean: Any,
    var: Any,
    *,
    epsilon: float,
    momentum: float,
    training_mode: int,
) -> Any:
    """(x - mean) scale / √(var + ε) + b for every channel; in training with the mean
    and the variance of x, and running ones beside it."""
    if not training_mode:
        return _batch_normalized(x, scale, b, mean, var, epsilon)
    axes = (0, *range(2, x.ndim))
    m, v = np.mean(x, axis=axes), np.var(x, axis=axes)
    y = _batch_normalized(x, scale, b, m, v, epsilon)
    running = (
        old * momentum + new * (1 - momentum) for old, new in ((mean, m), (var, v))
    )
    return y, *(r.astype(mean.dtype) for r in running)


@operator("InstanceNormalization")
def instance_normalization(x: Any, scale: Any, b: Any, *, epsilon: float) -> Any:
    """Each channel of each image less its mean, over its deviation."""
    axes = tuple(range(2, x.ndim))
    d = x - np.mean(x, axis=axes, keepdims=True)
    y = d / np.sqrt(np.mean(d * d, axis=axes, keepdims=True) + epsilon)
    return y * _per_channel(scale, x.ndim) + _per_channel(b, x.ndim)


@operator("LayerNormalization")
def layer_normalization(
    x: Any,
    scale: Any,
    b: Any = None,
    *,
    axis: int,
    epsilon: float,
    stash_type: int,
    call: Any,
) -> Any:
    """x less its mean, over its deviation, along ``axis`` and all behind it."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(np.float32) if stash_type == 1 and x.dtype.itemsize == 2 else x
    mean = np.mean(wide, axis=axes, keepdims=True)
    d = wide - mean
    inverse = 1 / np.sqrt(np.mean(d * d, axis=axes, keepdims=True) + epsilon)
    y = (d * inverse).astype(x.dtype) * scale
    y = y if b is None else y + b
    return (y, mean, inverse)[: call.outputs] if call.outputs > 1 else y


@operator("RMSNormalization")
def rms_normalization(
    x: Any, scale: Any, *, axis: int, epsilon: float, stash_type: int
) -> Any:
    """x / √(mean x² + ε) along ``axis`` and all behind it."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(np.float32) if stash_type == 1 and x.dtype.itemsize == 2 else x
    mean = np.mean(wide * wide, axis=axes, keepdims=True)
    return (wide / np.sqrt(mean + epsilon)).astype(x.dtype) * scale


@operator("LRN")
def lrn(x: Any, *, alpha: float, beta: float, bias: float, size: int) -> Any:
    """x over a power of the sum of squares in neighbouring channels."""
    c, before = x.shape[1], (size - 1) // 2
    squares = np.pad(
        x * x, [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)]
    )
    total = squares[:, 0:c]
    for i in range(1, size):
        total = total + squares[:, i : i + c]
    return x / (bias + alpha / size * total) ** beta


@operator("LpNormalization")
def lp_normalization(x: Any, *, axis: int, p: int) -> Any:
    """x over its norm along an axis; 0 where that is 0."""
    if p == 1:
        norm = np.sum(np.abs(x), axis=axis, keepdims=True)
    else:
        norm = np.sqrt(np.sum(x * x, axis=axis, keepdims=True))
    return np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)).astype(x.dtype)


@operator("RotaryEmbedding")
def rotary_embedding(
    x: Any,
    cos: Any,
    sin: Any,
    positions: Any = None,
    *,
    interleaved: int,
    num_heads: int = 0,
    rotary_embedding_dim: int,
) -> Any:
    """Pairs of elements, rotated by angles of their positions."""
    shape = x.shape
    if x.ndim == 3:
        x = np.swapaxes(x.reshape(*shape[:2], num_heads, shape[2] // num_heads), 1, 2)
    d = rotary_embedding_dim or x.shape[-1]
    turned, rest = x[..., :d], x[..., d:]
    if positions is not None:
        cos, sin = (np.take(t, positions, axis=0) for t in (cos, sin))
    cos, sin = (np.expand_dims(t[..., : d // 2], 1) for t in (cos, sin))
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
    else:
        a, b = turned[..., : d // 2], turned[..., d // 2 :]
    re, im = a * cos - b * sin, a * sin + b * cos
    if interleaved:
        y = np.stack([re, im], axis=-1).reshape(turned.shape)
    else:
        y = np.concatenate([re, im], axis=-1)
    y = np.concatenate([y, rest], axis=-1) if rest.shape[-1] else y
    return np.swapaxes(y, 1, 2).reshape(shape) if len(shape) == 3 else y


@operator("Attention")
def attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    lengths: Any = None,
    *,
    is_causal: int,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int,
    scale: float | None = None,
    softcap: float,
    softmax_precision: int | None = None,
    call: Any,
) -> Any:
    """softmax(scale q kᵀ + mask) v by heads."""
    flat = q.ndim == 3
    if flat:
        q = _by_heads(q, q_num_heads)
        k, v = _by_heads(k, kv_num_heads), _by_heads(v, kv_num_heads)
    past = 0
    if past_key is not None:
        past = past_key.shape[2]
        k, v = (np.concatenate([p, t], axis=2) for p, t in ((past_key, k), (past_value, v)))
    present = k, v
    times = q.shape[1] // k.shape[1]
    if times > 1:
        k, v = (np.repeat(t, times, axis=1) for t in (k, v))
    factor = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    scores = np.matmul(q * factor, np.swapaxes(k, -1, -2) * factor)
    raw = scores
    rows, columns = scores.shape[-2:]
    bias = _bias(mask, q.dtype, columns)
    offset = past
    if is_causal:
        ahead = np.arange(rows)[:, None] + offset
        if lengths is not None and past_key is None:
            shift = (lengths - rows).reshape(-1, 1, 1, 1)
            keep = np.arange(columns) <= np.arange(rows)[:, None] + np.maximum(shift, 0)
        else:
            keep = np.arange(columns) <= ahead
        causal = np.where(keep, 0, -np.inf).astype(q.dtype)
        bias = causal if bias is None else bias + causal
    if lengths is not None:
        there = np.arange(columns) < lengths.reshape(-1, 1, 1, 1)
        padding = np.where(there, 0, -np.inf).astype(q.dtype)
        bias = padding if bias is None else bias + padding
    capped = scores
    if softcap:
        capped = softcap * np.tanh(scores / softcap)
    masked = capped if bias is None else capped + bias
    wide = masked
    if softmax_precision:
        from eqsat.onnx.tensors import dtype_of

        wide = masked.astype(dtype_of(softmax_precision, "softmax_precision"))
    e = np.exp(wide - np.max(wide, axis=-1, keepdims=True))
    weights = (e / np.sum(e, axis=-1, keepdims=True)).astype(q.dtype)
    y = np.matmul(weights, v)
    if flat:
        y = np.swapaxes(y, 1, 2).reshape(y.shape[0], y.shape[2], -1)
    if call.outputs == 1:
        return y
    seen = (raw, masked, capped, weights)
    if call.opset < 24:
        seen = (raw, masked, capped, weights)
    return y, *present, seen[qk_matmul_output_mode]


def _by_heads(x: Any, heads: int) -> Any:
    n, m, d = x.shape
    return np.swapaxes(x.reshape(n, m, heads, d // heads), 1, 2)


def _bias(mask: Any, dtype: Any, columns: int) -> Any:
    """A mask as what is added to scores; columns that it lacks are hidden."""
    if mask is None:
        return None
    if mask.dtype == bool:
        mask = np.where(mask, 0, -np.inf).astype(dtype)
    missing = columns - mask.shape[-1]
    if missing > 0:
        widths = [(0, 0)] * (mask.ndim - 1) + [(0, missing)]
        mask = np.pad(mask, widths, constant_values=-np.inf)
    return mask
