"""Scores that a mask drops: columns that a softmax and the products around it leave
out.

Where a row of scores is -∞ from some column on, its softmax is 0 there, and so is what
these columns add to a product with finite numbers. How far rows reach is read from the
mask in each call, for a panel of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...loop_ir import (
    Accumulate,
    Affine,
    Compute,
    Const,
    Keep,
    Kept,
    Load,
    Loops,
    LoopVar,
    Nest,
    Position,
    Product,
    Statement,
    Store,
)
from ..machine import COMMON, MemoryRef


@dataclass(frozen=True)
class Mask:
    """Bytes that are 0 where a score is dropped."""

    buffer: int
    """Of the nest."""
    at: Affine
    row: LoopVar
    """The variable of a row's elements."""


@dataclass(frozen=True)
class Reach:
    """What tells how many columns of the scores count."""

    mask: Mask
    memory: MemoryRef
    """Of the mask."""
    grid: tuple[LoopVar, ...]
    """A row of the scores for each point of it."""
    product: Product
    """Of the softmax, with a right operand that lies in..."""
    values: MemoryRef


def reach_of(
    pieces: list[tuple[object, tuple[MemoryRef, ...]]],
    private: set[MemoryRef],
    rows: int,
) -> Reach | None:
    """How far rows reach, where ``pieces`` with the memory of their operands start with
    scores, a softmax under a mask and a product, and nothing else has the memory in
    between, which is ``private``."""
    if len(pieces) < 3:
        return None
    (first, of_scores), (loops, of_loops), (last, of_last) = pieces[:3]
    if not (isinstance(first, Product) and isinstance(last, Product)):
        return None
    if not isinstance(loops, Loops) or first.sizes[1] != last.sizes[2]:
        return None
    scores, weights = of_scores[-1], of_last[0]
    later = {m for _, memory in pieces[3:] for m in memory}
    if not {scores, weights} <= private - later or len(of_last) != 3:
        return None
    if scores in of_last or last.y.dtype != last.dtype or last.at[1].strides[-1] != 1:
        return None
    nest = loops.nest
    if nest.rows != rows or first.sizes[1] < COMMON.masked_columns:
        return None
    written = [m for m, b in zip(of_loops, nest.buffers, strict=True) if b.written]
    if written != [weights]:
        return None
    masks = [m for m in masks_of(nest) if m.row.size == first.sizes[1]]
    if not masks:
        return None
    memory = of_loops[masks[0].buffer]
    return Reach(masks[0], memory, nest.grid, last, of_last[1])


def masks_of(nest: Nest) -> list[Mask]:
    """Masks under which ``nest`` writes 0, and reduces what changes nothing."""
    loops = {p.loops for p in nest.passes if p.body}
    if len(loops) != 1 or nest.vertical or nest.chunk is not None or nest.ordered:
        return []
    ((row, *more),) = loops
    if more:
        return []
    found = []
    for s in nest.statements():
        if not isinstance(s, Load) or s.at.coefficient(row) != 1:
            continue
        mask = Mask(s.buffer, s.at, row)
        is_bool = nest.buffers[s.buffer].dtype == np.dtype(bool)
        if is_bool and mask not in found and _Dropped(nest, mask).are_without_effect():
            found.append(mask)
    return found


class _Dropped:
    """What values are for elements that a mask drops, in rows that have others:
    ``false``, ``-inf``, ``-inf - most`` (the greatest of that row: -∞, or NaN as for
    all elements of the row), ``zero``, or anything (``""``); and of rows the ``most``
    of a value, the ``sum`` of what is 0 there, at least 1 or NaN, and 1 over it."""

    def __init__(self, nest: Nest, mask: Mask) -> None:
        self.nest, self.mask = nest, mask
        self.known: dict[int, str] = {}
        self.kept: dict[int, str] = {}
        self.most: dict[int, int] = {}
        """Of which value a value is the greatest."""

    def are_without_effect(self) -> bool:
        """Whether such elements change no reduction, and are 0 where they are
        written."""
        return all(self._is_without(s) for s in self.nest.statements())

    def _is_without(self, s: Statement) -> bool:
        known = self.known
        match s:
            case Const():
                known[s.target] = "-inf" if s.value == -np.inf else ""
            case Load():
                is_mask = s.buffer == self.mask.buffer and s.at == self.mask.at
                known[s.target] = "false" if is_mask else ""
            case Position():
                known[s.target] = ""
            case Compute():
                known[s.target] = self._computed(s)
            case Keep():
                self.kept[s.place] = known[s.value]
            case Kept():
                known[s.target] = self.kept[s.place]
            case Accumulate():
                result = {("max", "-inf"): "most", ("sum", "zero"): "sum"}
                known[s.target] = result.get((s.op, known[s.value]), "")
                self.most[s.target] = s.value
                return bool(known[s.target])
            case Store():
                return known[s.value] == "zero"
            case _:
                return False
        return True

    def _computed(self, s: Compute) -> str:
        match s.op, [self.known[a] for a in s.args]:
            case "where", ["false", _, y]:
                return y
            case "logical_and", ["false", _] | [_, "false"]:
                return "false"
            case "subtract", ["-inf", "most"] if self.most[s.args[1]] == s.args[0]:
                return "-inf - most"
            case "exp", ["-inf - most"]:
                return "zero"
            case "reciprocal", ["sum"]:
                return "1 / sum"
            case "multiply", ["zero", "1 / sum"] | ["1 / sum", "zero"]:
                return "zero"
            case "divide", ["zero", "sum"]:
                return "zero"
        return ""
