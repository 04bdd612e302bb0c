"""Convolution, batch norm, relu. Shapes are images, channels in and out, side, kernel;
a kernel for each channel where channels out are 0."""

from __future__ import annotations

from typing import Any

from bench.workloads import Array, Draw, Drawn, sizes

DENSE = ((1, 64, 64, 56, 3), (8, 64, 64, 28, 3), (1, 256, 64, 56, 1))
DEPTHWISE = ((1, 96, 0, 56, 3),)


def _conv(F: Any, x: Array, w: Array, m: Array, v: Array, g: Array, b: Array) -> Array:
    y = F.conv2d(x, w, padding=w.shape[-1] // 2)
    return F.relu(F.batch_norm(y, m, v, g, b))


def _depthwise(
    F: Any, x: Array, w: Array, m: Array, v: Array, g: Array, b: Array
) -> Array:
    y = F.conv2d(x, w, padding=w.shape[-1] // 2, groups=w.shape[0])
    return F.relu(F.batch_norm(y, m, v, g, b))


def _images(draw: Draw, n: int, c: int, out: int, side: int, kernel: int) -> Drawn:
    o, each = (out, c) if out else (c, 1)
    w = draw.normal(o, each, kernel, kernel, scale=(each * kernel**2) ** -0.5)
    norm = [draw.bias(o), draw.gain(o), draw.gain(o), draw.bias(o)]
    return [draw.normal(n, c, side, side)], [w, *norm]


WORKLOADS = [
    *sizes("conv_bn_relu", _conv, "conv", _images, DENSE),
    *sizes("depthwise_bn_relu", _depthwise, "conv", _images, DEPTHWISE, quick=None),
]
