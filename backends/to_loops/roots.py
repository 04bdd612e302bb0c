"""What nests write: a term, and where; and what writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from eqsat.terms import Shape, Term

from ..loop_ir import (
    DType,
    Layout,
    Operand,
    Pieces,
)
from .schedule import (
    LoopTarget,
)


@dataclass(frozen=True)
class Root:
    """A term to be written: at ``strides`` of ``out`` from ``offset``."""

    term: Term
    out: Operand
    strides: Shape
    offset: int = 0


class RootWriter(Protocol):
    """Writes terms of one kernel. What a nest cannot hold is in memory first."""

    target: LoopTarget
    rounds: bool
    """As of :class:`.values.Values`."""
    out: Pieces
    memory: dict[Term, tuple[Operand, Layout]]
    """What is in memory before a nest runs."""

    def write(self, root: Root) -> None:
        """One term, in as many pieces as it takes."""

    def nest(self, roots: Sequence[Root]) -> None:
        """A nest that writes ``roots``; what it needs in memory comes before it."""

    def materialise(self, term: Term) -> None:
        """Compute ``term`` into memory of its own."""

    def temporary(self, dtype: DType, size: int) -> Operand:
        """New memory of so many elements."""

    def filled(self, value: Term, shape: Shape, like: Term) -> Term:
        """``value``, one number, in ``shape``, of the dtype of ``like``."""
