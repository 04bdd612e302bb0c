"""Softmax and normalisations, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.pytorch.table import aten, axis_of


@aten("_softmax.default")
def softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    """eˣ / Σ eˣ along an axis."""
    return ops.softmax(x, axis=(axis_of(dim, x.ndim),)) if x.ndim else x * 0 + 1


@aten("_safe_softmax.default")
def safe_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    """As ``_softmax``, and 0 where all of an axis is -∞."""
    axis = axis_of(dim, x.ndim)
    hidden = np.all(x == -math.inf, axis=axis, keepdims=True)
    return np.where(hidden, 0, ops.softmax(x, axis=(axis,)))


@aten("_log_softmax.default")
def log_softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    """x - ln Σ eˣ along an axis."""
    return ops.log_softmax(x, axis=(axis_of(dim, x.ndim),)) if x.ndim else x * 0


@aten("_softmax_backward_data.default")
def softmax_backward(g: Any, y: Any, dim: int, dtype: Any) -> Any:
    """y (g - Σ g y)."""
    axis = (axis_of(dim, y.ndim),) if y.ndim else None
    return y * (g - np.sum(g * y, axis=axis, keepdims=True))


@aten("_log_softmax_backward_data.default")
def log_softmax_backward(g: Any, y: Any, dim: int, dtype: Any) -> Any:
    """g - eʸ Σ g."""
    axis = (axis_of(dim, y.ndim),) if y.ndim else None
    return g - np.exp(y) * np.sum(g, axis=axis, keepdims=True)


# -- normalisations --------------------------------------------------------------------


def _standardized(x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """(x - μ) r, μ and r = 1 / √(σ² + eps) over some axes."""
    mean = np.mean(x, axis=axes, keepdims=True)
    d = x - mean
    r = 1 / np.sqrt(np.mean(d * d, axis=axes, keepdims=True) + eps)
    return d * r, mean, r


@aten("native_layer_norm.default")
def layer_norm(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    """x, standardised over its last axes, times a weight and plus a bias; the mean
    and 1 / √(σ² + eps)."""
    y, mean, r = _standardized(x, tuple(range(-len(shape), 0)), eps)
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, r


@aten("native_layer_norm_backward.default")
def layer_norm_backward(
    g: Any,
    x: Any,
    shape: Sequence[int],
    mean: Any,
    r: Any,
    weight: Any,
    bias: Any,
    wanted: Sequence[bool],
) -> Any:
    """The gradients by x, weight and bias."""
    last = tuple(range(x.ndim - len(shape), x.ndim))
    first = tuple(range(x.ndim - len(shape)))
    y = (x - mean) * r
    by_y = g if weight is None else g * weight
    by_x = r * (
        by_y
        - np.mean(by_y, axis=last, keepdims=True)
        - y * np.mean(by_y * y, axis=last, keepdims=True)
    )
    by_weight = np.sum(g * y, axis=first) if wanted[1] and weight is not None else None
    by_bias = np.sum(g, axis=first) if wanted[2] and bias is not None else None
    return by_x if wanted[0] else None, by_weight, by_bias


def _per_channel(v: Any, ndim: int) -> Any:
    return np.reshape(v, (1, -1, *(1,) * (ndim - 2)))


def _affine(y: Any, weight: Any, bias: Any) -> Any:
    y = y if weight is None else y * _per_channel(weight, y.ndim)
    return y if bias is None else y + _per_channel(bias, y.ndim)


@aten("_native_batch_norm_legit_no_training.default")
def batch_norm_with_running(
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    momentum: float,
    eps: float,
) -> Any:
    """(x - mean) weight / √(var + eps) + bias for every channel."""
    scale = 1 / np.sqrt(var + eps)
    if weight is not None:
        scale = scale * weight
    y = (x - _per_channel(mean, x.ndim)) * _per_channel(scale, x.ndim)
    return _affine(y, None, bias), np.zeros(0, x.dtype), np.zeros(0, x.dtype)


@aten("_native_batch_norm_legit_functional.default")
def batch_norm(
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Every channel, standardised over the batch; the mean, 1 / √(σ² + eps), and the
    running mean and variance."""
    if not training:
        found = batch_norm_with_running(
            x, weight, bias, running_mean, running_var, momentum, eps
        )
        return (*found, running_mean, running_var)
    axes = (0, *range(2, x.ndim))
    y, mean, r = _standardized(x, axes, eps)
    count = x.size // x.shape[1]
    mean, r = np.reshape(mean, -1), np.reshape(r, -1)
    var = np.var(x, axis=axes, ddof=1) if count > 1 else np.full(mean.shape, np.nan)
    return (
        _affine(y, weight, bias),
        mean,
        r,
        mean * momentum + running_mean * (1 - momentum),
        var * momentum + running_var * (1 - momentum),
    )
