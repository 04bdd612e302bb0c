"""Products with weights of 8 and 4 bits. Shapes are tokens, features in and out; 128
rows share a scale."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from bench.workloads import Array, Draw, Drawn, Quantised, Workload, sizes

SHAPES = ((1, 2048, 2048), (32, 2048, 2048))
ROWS = 128
"""Rows that share a scale."""


def _matmul(F: Any, x: Array, w: Quantised) -> Array:
    return F.quantised_matmul(x, w)


def _quantised(bits: int, draw: Draw, m: int, k: int, n: int) -> Drawn:
    g = k // ROWS
    step = 3.5 * k**-0.5 / (1 << bits)
    scale = draw.gain(g, n) * np.float32(step)
    if bits == 8:
        q = draw.rng.integers(-128, 128, (k, n), np.int8)
        zero = draw.rng.integers(-4, 5, (g, n), np.int8)
    else:
        q = draw.rng.integers(0, 256, (k // 2, n), np.uint8)
        zero = draw.rng.integers(6, 10, (g, n), np.int8)
    return [draw.normal(m, k)], [Quantised(q, scale, zero)]


def of_bits(bits: int, shapes: Sequence[tuple[int, ...]]) -> list[Workload]:
    """Products with weights of so many bits."""
    make = partial(_quantised, bits)
    return list(sizes(f"int{bits}_matmul", _matmul, "quantised", make, shapes))


WORKLOADS = [*of_bits(8, SHAPES), *of_bits(4, SHAPES)]
