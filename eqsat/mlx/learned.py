"""Products of matrices, convolutions, normalisations and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.mlx.table import primitive
from eqsat.operator_table import UnsupportedError
from eqsat.support import counted


@primitive("Matmul")
def matmul(x: Any, y: Any) -> Any:
    """x y."""
    return np.matmul(x, y)


@primitive("AddMM", in_float32=True)
def addmm(x: Any, y: Any, c: Any, alpha: float, beta: float) -> Any:
    """alpha x y + beta c."""
    z = np.matmul(x, y)
    z = z if alpha == 1 else z * alpha
    return z + (c if beta == 1 else c * beta)


@primitive("Inverse")
def inverse(x: Any, is_triangular: bool, upper: bool) -> Any:
    """x⁻¹."""
    if is_triangular:
        raise UnsupportedError("an inverse that reads one triangle")
    return np.linalg.inv(x)


@primitive("Cholesky")
def cholesky(x: Any, upper: bool) -> Any:
    """The Cholesky factor."""
    y = np.linalg.cholesky(x)
    return np.swapaxes(y, -1, -2) if upper else y


# -- convolutions ----------------------------------------------------------------------


@primitive("Convolution")
def convolution(
    x: Any,
    w: Any,
    stride: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    dilation: Sequence[int],
    spread: Sequence[int],
    groups: int,
    flip: bool,
) -> Any:
    """The convolution of images, whose channels are the last axis, with kernels; an
    image of one axis is one of height 1. ``spread`` is the distance of the image's
    elements, with zeros between them."""
    rank = x.ndim - 2
    if rank not in (1, 2):
        raise UnsupportedError(f"a convolution over {counted(rank, 'axis')}")
    if not x.size or not w.size:
        raise UnsupportedError("a convolution without elements")
    if rank == 1:
        x, w = np.expand_dims(x, 1), np.expand_dims(w, 1)
        stride, dilation, spread = (1, *stride), (1, *dilation), (1, *spread)
        low, high = (0, *low), (0, *high)
    if flip:
        w = np.flip(w, (1, 2))
    widths = list(zip(low, high, strict=True))
    if any(s > 1 for s in spread):
        if any(s > 1 for s in stride):
            raise UnsupportedError("steps over an image with zeros between elements")
        y = _of_spread_image(x, w, spread, dilation, groups)
        # whose padding is what kernels reach
        reach = [d * (k - 1) for d, k in zip(dilation, w.shape[1:3], strict=True)]
        pairs = zip(widths, reach, strict=True)
        y = _padded(y, [(a - r, b - r) for (a, b), r in pairs])
    else:
        y = ops.conv2d(
            np.transpose(_padded(x, widths), (0, 3, 1, 2)),
            np.transpose(w, (0, 3, 1, 2)),
            stride=tuple(stride),
            dilation=tuple(dilation),
            groups=groups,
        )
        y = np.transpose(y, (0, 2, 3, 1))
    return np.squeeze(y, 1) if rank == 1 else y


def _of_spread_image(
    x: Any, w: Any, spread: Sequence[int], dilation: Sequence[int], groups: int
) -> Any:
    """The convolution of an image with zeros between its elements, wherever a kernel
    reaches one: the gradient by images of the convolution that goes in such steps."""
    o, *sizes, each = w.shape
    w = np.reshape(np.flip(w, (1, 2)), (groups, o // groups, *sizes, each))
    w = np.reshape(np.transpose(w, (0, 4, 1, 2, 3)), (-1, o // groups, *sizes))
    rows = zip(x.shape[1:3], spread, dilation, sizes, strict=True)
    image = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in rows]
    like = np.zeros((x.shape[0], o, *image), x.dtype)
    by_image: Any = ops.conv2d_op.vjp
    how = tuple(spread), (0, 0), tuple(dilation), groups
    y = by_image[0](np.transpose(x, (0, 3, 1, 2)), like, w, None, *how)
    return np.transpose(y, (0, 2, 3, 1))


def _padded(x: Any, widths: Sequence[tuple[int, int]]) -> Any:
    """x with zeros around the axes of an image; below 0, cut."""
    grown = [(0, 0), *((max(a, 0), max(b, 0)) for a, b in widths), (0, 0)]
    y = np.pad(x, grown) if any(map(any, grown)) else x
    sizes = zip(widths, y.shape[1:], strict=False)
    return y[(slice(None), *(slice(max(-a, 0), n + min(b, 0)) for (a, b), n in sizes))]


# -- normalisations --------------------------------------------------------------------


@primitive("RMSNorm", in_float32=True)
def rms_norm(x: Any, weight: Any, eps: float) -> Any:
    """x / √(mean x² + eps) times a weight, over the last axis."""
    return x * _rms(x, eps) * weight


def _rms(x: Any, eps: float) -> Any:
    return 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


@primitive("RMSNormVJP", in_float32=True)
def rms_norm_vjp(x: Any, weight: Any, g: Any, eps: float) -> Any:
    """The gradients of ``RMSNorm`` by x and the weight."""
    r = _rms(x, eps)
    return _by_x(x * r, r, g * weight), _by_parameter(g * (x * r), weight)


@primitive("LayerNorm", in_float32=True)
def layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    """x, standardised over the last axis, times a weight and plus a bias."""
    d = x - np.mean(x, axis=-1, keepdims=True)
    return d * _rms(d, eps) * weight + bias


@primitive("LayerNormVJP", in_float32=True)
def layer_norm_vjp(x: Any, weight: Any, bias: Any, g: Any, eps: float) -> Any:
    """The gradients of ``LayerNorm`` by x, the weight and the bias."""
    d = x - np.mean(x, axis=-1, keepdims=True)
    r = _rms(d, eps)
    by_x = _by_x(d * r, r, g * weight)
    by_x = by_x - np.mean(by_x, axis=-1, keepdims=True)
    return by_x, _by_parameter(g * (d * r), weight), _by_parameter(g, bias)


def _by_x(y: Any, r: Any, g: Any) -> Any:
    """The gradient of y = x r by x, where r = 1 / √(mean x² + eps)."""
    return r * (g - y * np.mean(g * y, axis=-1, keepdims=True))


def _by_parameter(g: Any, parameter: Any) -> Any:
    """The gradient by what all rows share; 0 by what stands for no parameter."""
    if not parameter.ndim:
        return np.zeros((), g.dtype)
    return np.sum(g, axis=tuple(range(g.ndim - 1)))


# -- attention -------------------------------------------------------------------------


@primitive("ScaledDotProductAttention")
def attention(q: Any, k: Any, v: Any, *rest: Any) -> Any:
    """softmax(scale q kᵀ + mask) v."""
    *masks, scale, causal, has_sinks, gives_sums, _ = rest
    if has_sinks or gives_sums:
        raise UnsupportedError("attention with sinks, or that gives its sums")
    mask = masks[0] if masks else None
    return ops.attention(q, k, v, scale=scale, mask=mask, causal=causal)


@primitive("RoPE", in_float32=True)
def rope(x: Any, offset: Any, *rest: Any) -> Any:
    """Pairs of elements of x ``batch ... n d``, turned by their place along n. Su et
    al. 2021, arXiv:2104.09864."""
    *frequencies, d, is_interleaved, base, scale, forward = rest
    half = d // 2
    if frequencies:
        inverse = 1 / frequencies[0]
    else:
        inverse = np.exp(np.arange(half) * (-math.log(base) / half)).astype(np.float32)
    if offset.ndim:
        offset = np.reshape(offset, (-1, *(1,) * (x.ndim - 2)))
    places = (np.arange(x.shape[-2], dtype=np.float32) + offset) * np.float32(scale)
    angles = np.expand_dims(places.astype(np.float32), -1) * inverse
    cos, sin = np.cos(angles), np.sin(angles) * (1 if forward else -1)
    if is_interleaved:
        a, b = x[..., 0:d:2], x[..., 1:d:2]
        turned = np.stack([a * cos - b * sin, a * sin + b * cos], -1)
        parts = [np.reshape(turned, (*x.shape[:-1], d))]
    else:
        a, b = x[..., :half], x[..., half:d]
        parts = [a * cos - b * sin, a * sin + b * cos]
    return (
        np.concatenate([*parts, x[..., d:]], -1)
        if d < x.shape[-1]
        else (np.concatenate(parts, -1))
    )
