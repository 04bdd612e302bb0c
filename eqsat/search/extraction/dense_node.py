"""An e-node in small numbers, as extraction works with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eqsat.terms import Op, Type


@dataclass(frozen=True)
class DenseNode:
    """An e-node in the numbers of :class:`Dense`."""

    cls: int
    op: Op
    attrs: tuple[Any, ...]
    kids: tuple[int, ...]
    """Operands in order."""
    distinct: tuple[int, ...]
    types: tuple[Type, ...]
    arithmetic: float
    reads: tuple[float, ...]
    """Bytes that it reads of each distinct operand."""
    parts: tuple[tuple[int, float], ...]
    """The distinct operands, and how much of each that is, 1 being all."""
    origin: int
    """Its place in the e-graph."""
    apart: bool = False
    """Whether the backend has a lowering for it alone, of its author's."""
    own_s: float | None = None
    """Seconds of that lowering, where its author says."""
    joined_s: float | None = None
    """Seconds of a join alone, whose parts are computed where they go."""
