"""A function of a nest while it is written: what its parts share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llvmlite import ir

from ...loop_ir import (
    Affine,
    DType,
    Keep,
    LoopVar,
    Nest,
    Position,
    Store,
)
from ..machine import FoldingBuilder, Host
from .accumulators import Cell
from .counted_loops import divided
from .vector_shape import Shape, shape_of

PTR = ir.PointerType()


@dataclass
class Strand:
    """One vector of the several that a step computes."""

    lanes: int
    offset: int
    """Of its first lane, in turns of the variable that lanes run along."""
    cells: tuple[tuple[int, ...], ...] = ()
    """What the variables of a stretch are in each lane, where lanes run on from row to
    row."""
    values: dict[int, ir.Value] = field(default_factory=dict)
    """Of the elements of this step."""
    row: dict[int, ir.Value] = field(default_factory=dict)
    """Of its rows, where rows are what lies side by side."""
    carries: dict[int, Cell] = field(default_factory=dict)
    """Running results so far."""
    waiting: dict[Store, ir.Value] = field(default_factory=dict)
    """What is stored together with others that lie between."""


@dataclass(eq=False)
class NestCode:
    """The function of a nest, whose buffers are its first arguments, and where in its
    loops the code stands."""

    function: ir.Function
    nest: Nest
    host: Host
    shape: Shape
    entry: ir.Block
    b: ir.IRBuilder
    dtypes: dict[int, DType]
    """Of the values."""
    positions: dict[int, Affine]
    """The values that are indices."""
    index: dict[LoopVar, ir.Value] = field(default_factory=dict)
    """The variables of the loops around."""
    lane: LoopVar | None = None
    """The variable that lanes run along."""
    stretch: tuple[LoopVar, ...] = ()
    """The variables of a stretch, where lanes run on from row to row."""
    inner: LoopVar | None = None
    """That of the innermost loop, inside of it."""
    bases: dict[tuple[int, Affine], ir.Value] = field(default_factory=dict)
    """Addresses that the innermost loop does not change."""

    @property
    def buffers(self) -> tuple[ir.Value, ...]:
        """Memory that the nest reads and writes."""
        return tuple(self.function.args[: len(self.nest.buffers)])

    @property
    def given(self) -> tuple[ir.Value, ...]:
        """The arguments behind the buffers; the first of a nest is memory of a row, for
        what its passes keep."""
        return tuple(self.function.args[len(self.nest.buffers) :])

    def place(self, unit: ir.Value, grid: Sequence[LoopVar]) -> None:
        """The grid variables of row number ``unit``."""
        for v in reversed(grid[1:]):
            unit, self.index[v] = divided(self.b, unit, v.size)
        if grid:
            self.index[grid[0]] = unit


def begun(function: ir.Function, nest: Nest, host: Host) -> NestCode:
    """The code of ``nest`` in ``function``, which has none yet."""
    entry = function.append_basic_block("entry")
    statements = [*nest.statements()]
    dtypes = {s.target: s.dtype for s in statements if not isinstance(s, (Keep, Store))}
    positions = {s.target: s.at for s in statements if isinstance(s, Position)}
    shape, b = shape_of(nest, host), FoldingBuilder(entry)
    return NestCode(function, nest, host, shape, entry, b, dtypes, positions)
