"""Where memory of a program starts: buffers by number, bytes in them, cache lines."""

from __future__ import annotations

from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes of a cache line."""


@dataclass(frozen=True)
class MemoryRef:
    """A buffer of the program, or a part of its scratch memory."""

    buffer: int
    """Number of the pointer; of scratch, that of the block."""
    byte: int = 0
    """Where it starts in there."""


def aligned(size: int) -> int:
    """``size`` bytes and what fills them up to a cache line."""
    return -(-size // ALIGNMENT) * ALIGNMENT
