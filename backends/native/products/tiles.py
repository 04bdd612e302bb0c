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


@dataclass(frozen=True)
class Tile:
    """The part of a result that registers hold."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def tile(host: Host, dtype: np.dtype[Any]) -> Tile:
    """The tile of this machine: sums, a row of vectors and one more number a lane fill
    the registers, and rows have a pointer each."""
    lanes = host.vector_bits // (8 * dtype.itemsize)
    has_many = host.is_arm or host.vector_bits == 512
    return Tile(8, 3, lanes) if has_many else Tile(6, 2, lanes)


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

    def fill(self, out: np.ndarray[Any, Any], array: np.ndarray[Any, Any]) -> None:
        """Bring the elements of ``array``, whose memory the layout is of, into panels:
        ``out``, flat and of as many :attr:`elements`."""
        k, n = self.sizes
        if self.pairs:
            array = array.view(np.uint16)
        flat = array.reshape(-1)[self.layout.offset :]
        strides = tuple(s * array.itemsize for s in self.layout.strides)
        given = np.lib.stride_tricks.as_strided(flat, (*self.kept, k, n), strides)
        given = given.reshape(-1, k, n)
        out[:] = 0
        out = out.reshape(len(given), -1)
        for s in spans(n, Tile(1, self.vectors, self.lanes)):
            wide = s.vectors * self.lanes
            tiles = -(-s.columns // wide)
            start = k * s.first
            to = out[:, start : start + tiles * k * wide]
            each = 2 if self.pairs else 1
            to = to.reshape(len(given), tiles, k // each, wide, each)
            for j in range(tiles):
                low = s.first + j * wide
                part = given[:, :, low : min(low + wide, n)]
                part = part.reshape(len(given), k // each, each, -1).swapaxes(2, 3)
                to[:, j, :, : part.shape[2]] = part
