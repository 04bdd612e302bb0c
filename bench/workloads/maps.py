"""Pointwise functions: in L2, in L3 and in DRAM."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.workloads import Array, Draw, Drawn, sizes

ELEMENTS = ((1 << 16,), (1 << 20,), (1 << 23,))
FEW = ((1 << 20,), (1 << 23,))


def _add_relu(F: Any, x: Array, y: Array) -> Array:
    return F.relu(x + y)


def _mul_relu(F: Any, x: Array, y: Array) -> Array:
    return F.relu(x * y)


def _affine_relu(F: Any, x: Array, a: Array, b: Array) -> Array:
    return F.relu(x * a + b)


def _sub_div_gelu(F: Any, x: Array, a: Array, b: Array) -> Array:
    return F.gelu((x - a) / b)


def _gate(F: Any, a: Array, b: Array, c: Array, d: Array) -> Array:
    return F.relu(a * b + c) * F.sigmoid(d)


def _chain(steps: int, F: Any, x: Array, a: Array, b: Array) -> Array:
    for i in range(steps):
        x = (x * a, x + b, F.relu(x), x * 0.5 - 0.25)[i % 4]
    return x


def _two(draw: Draw, n: int) -> Drawn:
    return [draw.normal(n), draw.normal(n)], []


def _scaled(draw: Draw, n: int) -> Drawn:
    return [draw.normal(n), draw.normal(n), draw.gain(n)], []


def _four(draw: Draw, n: int) -> Drawn:
    return [draw.normal(n) for _ in range(4)], []


def _features(draw: Draw, rows: int, n: int) -> Drawn:
    return [draw.normal(rows, n)], [draw.gain(n), draw.bias(n)]


HALVES = ("float16", "bfloat16")
ROWS = ((64, 1024), (1024, 1024), (8192, 1024))
WORKLOADS = [
    *sizes("add_relu", _add_relu, "map", _two, ELEMENTS, quick=1),
    *sizes("mul_relu", _mul_relu, "map", _two, ELEMENTS, quick=None),
    *sizes("affine_relu", _affine_relu, "map", _features, ROWS, quick=None),
    *sizes("sub_div_gelu", _sub_div_gelu, "map", _scaled, ELEMENTS),
    *sizes("gate4", _gate, "map", _four, ELEMENTS, quick=2),
    *(
        w
        for steps in (4, 8, 16)
        for w in sizes(
            f"chain{steps}", partial(_chain, steps), "map", _scaled, FEW, quick=None
        )
    ),
    *sizes("gate4", _gate, "map", _four, FEW[:1], dtypes=HALVES, quick=None),
]
