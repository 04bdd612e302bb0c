"""Softmax, norms and reductions: in L2, in L3 and in DRAM."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.workloads import Array, Draw, Drawn, sizes

SHAPES = ((128, 512), (1024, 1024), (8192, 1024))
WORDS = 8192
TOKENS = ((128, 768), (2048, 768))
IMAGES = ((1, 32, 32, 32), (4, 64, 56, 56), (16, 128, 64, 64))


def softmax(F: Any, x: Array) -> Array:
    return F.softmax(x)


def _scaled_softmax(F: Any, x: Array) -> Array:
    return F.softmax(x * 0.125)


def _log_softmax(F: Any, x: Array) -> Array:
    return F.log_softmax(x)


def layer_norm(F: Any, x: Array, g: Array, b: Array) -> Array:
    return F.layer_norm(x, g, b)


def rms_norm(F: Any, x: Array, g: Array) -> Array:
    return F.rms_norm(x, g)


def _residual_rms_norm(F: Any, x: Array, r: Array, g: Array) -> Array:
    return F.rms_norm(x + r, g)


def _group_norm(F: Any, x: Array, g: Array, b: Array) -> Array:
    return F.group_norm(x, g, b, 8)


def total(F: Any, x: Array) -> Array:
    return F.total(x)


def _total_squares(F: Any, x: Array, y: Array) -> Array:
    return F.total((x - y) * (x - y))


def column_sum(F: Any, x: Array) -> Array:
    return F.column_sum(x)


def _column_max(F: Any, x: Array) -> Array:
    return F.column_max(x)


def _argmax(F: Any, x: Array) -> Array:
    return F.argmax(x)


def _cumsum(F: Any, x: Array) -> Array:
    return F.cumsum(x)


def _embedding(F: Any, ids: Array, p: Array, table: Array) -> Array:
    return F.take(table, ids) + p


def one(draw: Draw, *shape: int) -> Drawn:
    return [draw.normal(*shape)], []


def _two(draw: Draw, *shape: int) -> Drawn:
    return [draw.normal(*shape), draw.normal(*shape)], []


def positive(draw: Draw, *shape: int) -> Drawn:
    return [draw.gain(*shape)], []


def gained(draw: Draw, m: int, n: int) -> Drawn:
    return [draw.normal(m, n)], [draw.gain(n)]


def residual(draw: Draw, m: int, n: int) -> Drawn:
    return [draw.normal(m, n), draw.normal(m, n)], [draw.gain(n)]


def affine(draw: Draw, m: int, n: int) -> Drawn:
    return [draw.normal(m, n)], [draw.gain(n), draw.bias(n)]


def channels(draw: Draw, n: int, c: int, h: int, w: int) -> Drawn:
    return [draw.normal(n, c, h, w)], [draw.gain(c), draw.bias(c)]


def _tokens(draw: Draw, n: int, d: int) -> Drawn:
    ids = draw.rng.integers(0, WORDS, n)
    return [ids, draw.normal(n, d)], [draw.normal(WORDS, d)]


def _unread(drawn: Drawn) -> int:
    """Rows of the table that no token names (bytes)."""
    (ids, _), (table,) = drawn
    return int((len(table) - len(np.unique(ids))) * table[0].nbytes)


HALVES = ("float16", "bfloat16")
WORKLOADS = [
    *sizes("softmax", softmax, "row", one, SHAPES, quick=1),
    *sizes("scaled_softmax", _scaled_softmax, "row", one, SHAPES, quick=None),
    *sizes("log_softmax", _log_softmax, "row", one, SHAPES, quick=None),
    *sizes("layer_norm", layer_norm, "row", affine, SHAPES, quick=1),
    *sizes("rms_norm", rms_norm, "row", gained, SHAPES, quick=None),
    *sizes("residual_rms_norm", _residual_rms_norm, "row", residual, SHAPES, quick=2),
    *sizes("group_norm", _group_norm, "row", channels, IMAGES, quick=None),
    *sizes("softmax", softmax, "row", one, SHAPES[1:2], dtypes=HALVES, quick=None),
    *sizes(
        "residual_rms_norm",
        _residual_rms_norm,
        "row",
        residual,
        SHAPES[1:2],
        dtypes=HALVES,
        quick=None,
    ),
    *sizes("total", total, "reduce", positive, SHAPES, quick=None),
    *sizes("total_squares", _total_squares, "reduce", _two, SHAPES, quick=1),
    *sizes("column_sum", column_sum, "reduce", positive, SHAPES, quick=1),
    *sizes("column_max", _column_max, "reduce", one, SHAPES[1:], quick=None),
    *sizes("argmax", _argmax, "reduce", one, SHAPES, quick=None),
    *sizes("cumsum", _cumsum, "row", one, SHAPES, quick=1),
    *sizes("embedding", _embedding, "row", _tokens, TOKENS, quick=0, unread=_unread),
]
