"""The namespace of plain NumPy: each part of a network as users spell it.

float16 and bfloat16 are computed in float32 and rounded once, as the peers do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from scipy.special import erf, expit

import eqsat as eq

Array = Any
HALF = ("float16", "bfloat16")


def widened(fn: Callable[..., Array]) -> Callable[..., Array]:
    """``fn`` in float32 where its first argument is of half the width."""

    @wraps(fn)
    def wide(x: Array, *args: Any, **kwargs: Any) -> Array:
        if str(x.dtype) not in HALF:
            return fn(x, *args, **kwargs)
        more = (a.astype(np.float32) if hasattr(a, "dtype") else a for a in args)
        return fn(x.astype(np.float32), *more, **kwargs).astype(x.dtype)

    return wide


# -- pointwise -------------------------------------------------------------------------


def relu(x: Array) -> Array:
    """max(x, 0)."""
    return np.maximum(x, 0)


@widened
def sigmoid(x: Array) -> Array:
    """1 / (1 + e⁻ˣ)."""
    return expit(x)


def exp(x: Array) -> Array:
    """eˣ."""
    return np.exp(x)


def sqrt(x: Array) -> Array:
    """√x."""
    return np.sqrt(x)


def maximum(x: Array, y: Any) -> Array:
    """The greater one."""
    return np.maximum(x, y)


def minimum(x: Array, y: Any) -> Array:
    """The lesser one."""
    return np.minimum(x, y)


def whole(x: Array) -> Array:
    """⌊x⌋ as int32."""
    return np.floor(x).astype(np.int32)


def cast(x: Array, like: Array) -> Array:
    """``x`` in the dtype of ``like``."""
    return x.astype(like.dtype)


def stack(xs: list[Array], axis: int) -> Array:
    """Arrays side by side along a new axis."""
    return np.stack(xs, axis)


def concat(xs: list[Array], axis: int) -> Array:
    """Arrays one after the other along an axis."""
    return np.concatenate(xs, axis)


def roll(x: Array, by: int, axis: int) -> Array:
    """``x`` moved along an axis; what leaves at one end comes in at the other."""
    return np.roll(x, by, axis)


def pad(x: Array, by: int) -> Array:
    """So many zeros around a matrix."""
    return np.pad(x, by)


def diagonal(x: Array) -> Array:
    """A matrix with ``x`` on its diagonal, else zeros."""
    return np.diag(x)


def swap(x: Array, i: int, j: int) -> Array:
    """``x`` with two axes exchanged."""
    return x.swapaxes(i, j)


def tanh(x: Array) -> Array:
    """The hyperbolic tangent."""
    return np.tanh(x)


def take(table: Array, ids: Array) -> Array:
    """The rows of ``table`` that ``ids`` name."""
    return table[ids]


@widened
def silu(x: Array) -> Array:
    """x σ(x)."""
    return x * expit(x)


@widened
def softplus(x: Array) -> Array:
    """ln(1 + eˣ)."""
    return np.logaddexp(0, x)


@widened
def gelu(x: Array) -> Array:
    """x Φ(x), by the error function."""
    return 0.5 * x * (1 + erf(x / 2**0.5))


# -- rows ------------------------------------------------------------------------------


def total(x: Array) -> Array:
    """Σ x over all axes."""
    return x.sum()


def column_sum(x: Array) -> Array:
    """Σ x over the first axis."""
    return x.sum(0)


def column_max(x: Array) -> Array:
    """The largest x over the first axis."""
    return x.max(0)


def argmax(x: Array) -> Array:
    """Where the largest x is along the last axis."""
    return x.argmax(-1)


def cumsum(x: Array) -> Array:
    """Running sums along the last axis."""
    return x.cumsum(-1)


@widened
def softmax(x: Array) -> Array:
    """eˣ / Σ eˣ over the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@widened
def log_softmax(x: Array) -> Array:
    """ln softmax(x) over the last axis."""
    d = x - x.max(-1, keepdims=True)
    return d - np.log(np.exp(d).sum(-1, keepdims=True))


def cross_entropy(x: Array, labels: Array) -> Array:
    """Mean of -ln softmax(x) at the labels, over the rows of ``x``."""
    return -log_softmax(x)[np.arange(len(labels)), labels].mean()


@widened
def logsumexp(x: Array) -> Array:
    """ln Σ eˣ over the last axis, which is kept."""
    top = x.max(-1, keepdims=True)
    return np.log(np.exp(x - top).sum(-1, keepdims=True)) + top


@widened
def layer_norm(x: Array, g: Array, b: Array, eps: float = 1e-5) -> Array:
    """(x - μ) / √(σ² + ε) g + b over the last axis."""
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + eps) * g + b


@widened
def rms_norm(x: Array, g: Array, eps: float = 1e-5) -> Array:
    """x / √(mean x² + ε) g over the last axis."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * g


def group_norm(x: Array, g: Array, b: Array, groups: int, eps: float = 1e-5) -> Array:
    """Images n c h w, normalised over runs of c / groups channels and all of h w."""
    n, c, h, w = x.shape
    y = x.reshape(n, groups, -1)
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + eps)
    return y.reshape(n, c, h, w) * g[:, None, None] + b[:, None, None]


# -- products --------------------------------------------------------------------------


@widened
def linear(x: Array, w: Array, b: Array) -> Array:
    """x w + b, with w (k n)."""
    return x @ w + b


def split_heads(x: Array, heads: int) -> Array:
    """(… t h·d) to (… h t d)."""
    *lead, tokens, features = x.shape
    return x.reshape(*lead, tokens, heads, features // heads).swapaxes(-2, -3)


def merge_heads(x: Array) -> Array:
    """(… h t d) to (… t h·d)."""
    *lead, heads, tokens, size = x.shape
    return x.swapaxes(-2, -3).reshape(*lead, tokens, heads * size)


def attention(
    q: Array, k: Array, v: Array, causal: bool = False, bias: Array = None
) -> Array:
    """softmax(q kᵀ / √d + bias) v over heads, where ``k`` and ``v`` may have fewer."""
    *lead, heads, m, d = q.shape
    if k.shape[-3] != heads:  # a head of k and v serves some of q
        q = q.reshape(*lead, k.shape[-3], heads // k.shape[-3], m, d)
        k, v = k[..., None, :, :], v[..., None, :, :]
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(d)
    if bias is not None:
        scores = scores + bias
    if causal:
        seen = np.tril(np.ones((m, k.shape[-2]), bool))
        scores = np.where(seen, scores, -np.inf)
    return (softmax(scores) @ v).reshape(*lead, heads, m, v.shape[-1])


def quantised_matmul(x: Array, w: Any) -> Array:
    """x times a :class:`~bench.workloads.Quantised` matrix."""
    q = w.q
    if q.dtype == np.uint8:  # two rows to a byte
        q = np.stack([q & 15, q >> 4], 1).reshape(-1, q.shape[-1])
    groups, n = w.scale.shape
    wide = q.astype(np.float32).reshape(groups, -1, n)
    wide = (wide - w.zero.astype(np.float32)[:, None]) * w.scale[:, None]
    return x @ wide.reshape(-1, n)


# -- convolution -----------------------------------------------------------------------


def conv2d(
    x: Array, w: Array, stride: int = 1, padding: int = 0, groups: int = 1
) -> Array:
    """Images n c h w with kernels o c/groups i j. NumPy has no convolution, so this is
    eqsat's reference: windows of the padded image, and a product."""
    return eq.conv2d(x, w, stride=stride, padding=padding, groups=groups)


def batch_norm(
    x: Array, mean: Array, var: Array, g: Array, b: Array, eps: float = 1e-5
) -> Array:
    """(x - mean) / √(var + ε) g + b for every channel of n c h w."""
    mean, var, g, b = (a[:, None, None] for a in (mean, var, g, b))
    return (x - mean) / np.sqrt(var + eps) * g + b
