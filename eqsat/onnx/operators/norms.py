"""Normalisations: those that the standard does not write out itself, or not so that
digits are left."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from eqsat.onnx.operators.table import axes_of, axis_of, operator


def _per_channel(x: Any, name: str, v: Any) -> Any:
    """``v``, a number for each channel of x, beside x."""
    if v.shape != x.shape[1:2]:
        raise ValueError(f"{name}: shape {v.shape}, expected {x.shape[1:2]}")
    return v.reshape((-1,) + (1,) * (x.ndim - 2))


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
    deviation = np.sqrt(_per_channel(x, "variance", var) + eps)
    factor = _per_channel(x, "scale", scale) / deviation
    d = x - _per_channel(x, "mean", mean)
    return (d * factor + _per_channel(x, "B", b)).astype(x.dtype)


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
    return y * _per_channel(x, "scale", scale) + _per_channel(x, "B", b)


@operator("LayerNormalization")
def layer_normalization(
    x: Any,
    scale: Any,
    b: Any = None,
    *,
    axis: int,
    epsilon: float,
    stash_type: int = 1,
) -> Any:
    """The axes from ``axis`` on less their mean, over their deviation; the mean and one
    over the deviation. The standard writes the variance as E(x²) - E(x)², which loses
    all digits where the mean is large; this is its meaning, E((x - E(x))²)."""
    axes = tuple(range(axis_of(axis, x.ndim), x.ndim))
    d, mean, inverse = _centred(x, axes, epsilon)
    y = _onto(x, "scale", scale, (d * inverse).astype(x.dtype), np.multiply)
    if b is not None:
        y = _onto(x, "B", b, y, np.add)
    kept = onnx.helper.tensor_dtype_to_np_dtype(stash_type)
    return y, mean.astype(kept), inverse.astype(kept)


@operator("GroupNormalization")
def group_normalization(
    x: Any,
    scale: Any,
    b: Any,
    *,
    epsilon: float,
    num_groups: int,
    stash_type: int = 1,
    call: Any,
) -> Any:
    """Each group of channels of each image less its mean, over its deviation; factors
    and shifts are of groups before opset 21, then of channels."""
    images, channels = x.shape[:2]
    if num_groups < 1 or channels % num_groups:
        raise ValueError(f"num_groups={num_groups} of {channels} channels")
    count = channels if call.opset >= 21 else num_groups
    for name, v in (("scale", scale), ("bias", b)):
        if v.shape != (count,):
            raise ValueError(f"{name}: shape {v.shape}, expected ({count},)")
    d, _, inverse = _centred(x.reshape(images, num_groups, -1), (2,), epsilon)
    y = (d * inverse).astype(x.dtype).reshape(images, count, -1)
    return (y * scale.reshape(-1, 1) + b.reshape(-1, 1)).reshape(x.shape)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(x: Any, *, axes: Any = (0, 2, 3)) -> Any:
    """x less its mean along some axes, over its deviation."""
    axes = tuple(axes_of(axes, x.ndim))
    d = x - np.mean(x, axis=axes, keepdims=True)
    return d / (np.sqrt(np.mean(d * d, axis=axes, keepdims=True)) + 1e-9)


def _centred(x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """x less its mean, the mean, and one over its deviation, in float32 or wider."""
    x = x.astype(np.promote_types(x.dtype, np.float32))
    mean = np.mean(x, axis=axes, keepdims=True)
    d = x - mean
    return d, mean, 1 / np.sqrt(np.mean(d * d, axis=axes, keepdims=True) + eps)


def _onto(x: Any, name: str, v: Any, y: Any, join: np.ufunc) -> Any:
    """``join(y, v)`` of a ``v`` that is broadcast to the shape of x, and no further."""
    sizes = zip(x.shape[::-1], v.shape[::-1], strict=False)
    if v.ndim > x.ndim or any(m not in (1, n) for n, m in sizes):
        raise ValueError(f"{name}: shape {v.shape} is not broadcast to {x.shape}")
    return join(y, v)


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
    axis = axis_of(axis, x.ndim)
    if p == 1:
        norm = np.sum(np.abs(x), axis=axis, keepdims=True)
    else:
        norm = np.sqrt(np.sum(x * x, axis=axis, keepdims=True))
    return np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)).astype(x.dtype)
