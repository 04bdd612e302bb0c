"""Normalisations that the standard does not write out itself."""

from __future__ import annotations

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


def _batch_normalized(
    x: Any, scale: Any, b: Any, mean: Any, var: Any, eps: float
) -> Any:
    factor, shift = (_per_channel(v, x.ndim) for v in (scale / np.sqrt(var + eps), b))
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
