"""Tiles and panels of products, and the functions that multiply them.

A *tile* is the rows by vectors of a result that registers hold. *Panels* are the order
that right operands are brought into: columns of one tile, all rows, one panel after the
other.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ...loop_ir import (
    Layout,
)
from ..machine import Host

CHAIN = 256
"""Most products that are summed one after the other before the sum is added to the
result: errors grow with the length of such a chain."""


@dataclass(frozen=True)
class Tile:
    """The part of a result that registers hold."""

    rows: int
    vectors: int
    lanes: int
    turns: int = 1
    """Rows of the right operand that one turn of its loop multiplies."""

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def tile(host: Host, dtype: np.dtype[Any]) -> Tile:
    """The tile of this machine: sums, a row of vectors and one more number a lane fill
    the registers, 32 or 16. Rows have a pointer each, which fill others. A turn has 24
    multiply-adds: what counts and asks for memory takes as long as 12 (Zen 3, Gflop/s
    in cache: 6×2 makes 78, two rows a turn 96, 4×3 one row a turn 96, two 98)."""
    lanes = host.vector_bits // (8 * dtype.itemsize)
    has_many = host.is_arm or host.vector_bits == 512
    return Tile(8, 3, lanes) if has_many else Tile(4, 3, lanes, 2)


@dataclass(frozen=True)
class TileSpan:
    """Neighbouring tiles of one width."""

    first: int
    """Their first column."""
    columns: int
    vectors: int
    """Of a tile."""


def spans(n: int, shape: Tile) -> list[TileSpan]:
    """``n`` columns as tiles: the widest ones, then one or two of the same width."""
    vectors = -(-n // shape.lanes)
    many, rest = divmod(vectors, shape.vectors)
    if many and rest and (shape.vectors + rest) % 2 == 0:
        many, rest = many - 1, (shape.vectors + rest) // 2
    first = many * shape.columns
    found = [TileSpan(0, min(first, n), shape.vectors)] if many else []
    return [*found, TileSpan(first, n - first, rest)] if rest else found


def padded(n: int, lanes: int) -> int:
    """``n`` filled up to whole vectors."""
    return -(-n // lanes) * lanes


@dataclass(frozen=True)
class Panels:
    """A right operand in panels: how it lies, and how it will."""

    kept: tuple[int, ...]
    """Batch axes along which it differs; 1 for others."""
    sizes: tuple[int, int]
    """k, n."""
    layout: Layout
    vectors: int
    lanes: int
    """Of a whole tile."""
    dtype: str = "float32"
    """Of the product; of pairs, uint16."""
    pairs: bool = False
    """Whether two rows of bfloat16 lie element beside element."""

    @property
    def elements(self) -> int:
        k, n = self.sizes
        return prod(self.kept) * k * padded(n, self.lanes)

    def fill(
        self,
        out: np.ndarray[Any, Any],
        given: np.ndarray[Any, Any],
        part: int = 0,
        parts: int = 1,
    ) -> None:
        """Bring what :meth:`given` shows into panels: ``out``, flat and of as many
        :attr:`elements`; or one of so many parts of it."""
        k, n = self.sizes
        out = out.reshape(len(given), -1)
        each = 2 if self.pairs else 1
        for s in spans(n, Tile(1, self.vectors, self.lanes)):
            wide = s.vectors * self.lanes
            tiles = -(-s.columns // wide)
            start = k * s.first
            to = out[:, start : start + tiles * k * wide]
            to = to.reshape(len(given), tiles, k // each, wide, each)
            for j in range(part, tiles, parts):
                low = s.first + j * wide
                x = given[:, :, low : min(low + wide, n)]
                x = x.reshape(len(given), k // each, each, -1).swapaxes(2, 3)
                to[:, j, :, x.shape[2] :] = 0
                to[:, j, :, : x.shape[2]] = x

    def given(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The elements of ``array``, whose memory the layout is of, as matrices."""
        if self.pairs:
            array = array.view(np.uint16)
        return self._shown(array).reshape(-1, *self.sizes)

    def _shown(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The elements as batch axes, rows and columns. The layout is that of ``array``
        in order; where it is not, an axis is found by the stride that it has there."""
        shape, size = (*self.kept, *self.sizes), array.itemsize
        axes = list(zip(shape, self.layout.strides, strict=True))
        strides, start = [s * size if n > 1 else 0 for n, s in axes], self.layout.offset
        if not array.flags.c_contiguous:
            along, apart = {0: (max(shape), 0)}, 1
            lie = zip(array.shape, array.strides, strict=True)
            for n, s in reversed(list(lie)):
                if n > 1:
                    along[apart] = n, s
                apart *= n
            found = [along.get(s if n > 1 else 0, (0, 0)) for n, s in axes]
            lengths, strides_there = zip(*found, strict=True)
            fits = all(n <= m for n, m in zip(shape, lengths, strict=True))
            if fits and not start:
                return np.lib.stride_tricks.as_strided(array, shape, strides_there)
        flat = np.ascontiguousarray(array).reshape(-1)[start:]
        return np.lib.stride_tricks.as_strided(flat, shape, strides)
