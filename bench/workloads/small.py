"""Arrays so small that the call is what costs."""

from __future__ import annotations

from typing import Any

from bench.workloads import Array, Draw, Drawn, sizes

ELEMENTS = ((16,), (64,), (256,), (1024,), (4096,))
ROWS = ((1, 64), (16, 64))


def _add_relu(F: Any, x: Array, y: Array) -> Array:
    return F.relu(x + y)


def _softmax(F: Any, x: Array) -> Array:
    return F.softmax(x)


def _layer_norm(F: Any, x: Array, g: Array, b: Array) -> Array:
    return F.layer_norm(x, g, b)


def _two(draw: Draw, n: int) -> Drawn:
    return [draw.normal(n), draw.normal(n)], []


def _one(draw: Draw, m: int, n: int) -> Drawn:
    return [draw.normal(m, n)], []


def _affine(draw: Draw, m: int, n: int) -> Drawn:
    return [draw.normal(m, n)], [draw.gain(n), draw.bias(n)]


WORKLOADS = [
    *sizes("add_relu", _add_relu, "small", _two, ELEMENTS, quick=3),
    *sizes("softmax", _softmax, "small", _one, ROWS),
    *sizes("layer_norm", _layer_norm, "small", _affine, ROWS, quick=None),
]
