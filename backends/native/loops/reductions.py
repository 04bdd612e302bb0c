"""The reductions of a pass: their accumulators, and what these look for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import prod
from typing import Any

from llvmlite import ir

from ...loop_ir import (
    Accumulate,
    Affine,
    Compute,
    Const,
    Load,
    LoopVar,
    Pass,
    Position,
)
from .accumulators import Reducer, reducer
from .arg_extremes import Extreme, Greatest, Positions, Steps, finds_steps
from .nest_code import NestCode
from .vector_shape import CAREFUL

Groups = Sequence[tuple[int, int]]
"""Lanes and vectors of each kind of step of the innermost loop."""


class Reductions:
    """Begins the reductions of ``code``."""

    def __init__(self, code: NestCode) -> None:
        self.code = code
        self.skips_nan = False
        """Whether positions are looked for among numbers only."""

    def reducer(self, s: Accumulate) -> Reducer:
        """What ``s`` does with values of their dtype."""
        return reducer(s, self.code.dtypes[s.value], self.code.host)

    def looks_twice(self, p: Pass) -> bool:
        """Whether positions are looked for among numbers first, and again in rows with
        NaN."""
        if self.code.nest.vertical:
            return False
        places = [s for s in p.body if isinstance(s, Accumulate) and s.position >= 0]
        plain = all(
            isinstance(s, (Accumulate, Compute, Const, Load, Position)) for s in p.body
        )
        return (
            bool(places)
            and plain
            and all(
                self.reducer(s).dtype.kind == "f"
                and is_rising(self.code.positions[s.position], p.loops)
                for s in places
            )
        )

    def begun(
        self, s: Accumulate, p: Pass, groups: Groups, is_block: bool
    ) -> list[Any]:
        """An accumulator for each vector of each kind of step; they may be the same.
        ``is_block``: whether a part of a long row is reduced."""
        code, of = self.code, self.reducer(s)
        nest, shape = code.nest, code.shape
        parted = nest.vertical or nest.ranged or is_block or nest.chunk
        numbers = self.skips_nan or of.dtype.kind in "iu"
        if s.position >= 0 and numbers and not parted:
            if finds_steps(p, s, shape.lanes, shape.unroll):
                return [
                    r
                    for lanes, unroll in groups
                    for r in [Steps(of, code, lanes)] * unroll
                ]
        return [
            self._accumulator(s, p, lanes, i * lanes)
            for lanes, unroll in groups
            for i in range(unroll)
        ]

    def _accumulator(self, s: Accumulate, p: Pass, lanes: int, offset: int) -> Any:
        """An accumulator for the strand whose lanes start at ``offset``."""
        code, found = self.code, self.reducer(s)
        if s.position < 0:
            return found.started(code, lanes, self._is_long(p))
        at = code.positions[s.position]
        last = at.offset + sum(c * (v.size - 1) for v, c in at.terms)
        bits = 32 if found.dtype.itemsize <= 4 and last < 1 << 31 else 64
        step = at.coefficient(p.loops[-1]) if not code.nest.vertical else 0
        steps = tuple((offset + i) * step for i in range(lanes))
        has_masks = code.host.vector_bits == 512
        where = Positions(bits, steps, is_rising(at, p.loops), has_masks)
        kind = Greatest if self.skips_nan else Extreme
        return kind(found, code, lanes, where)

    def _is_long(self, p: Pass) -> bool:
        """Whether sums need care: many additions one after the other."""
        turns = prod(v.size for v in p.loops)
        if not self.code.nest.vertical:
            turns //= self.code.shape.lanes * self.code.shape.unroll
        return turns > CAREFUL

    def note_nan(self, group: Sequence[Any], rows: list[list[ir.Value]]) -> None:
        """Note NaN in the values of a step, two values of one row at a time."""
        if self.code.nest.vertical:
            columns = [list(column) for column in zip(*rows, strict=True)]
        else:
            (line,) = rows
            columns = [line[i : i + 2] for i in range(0, len(line), 2)]
        for r, values in zip(group, columns, strict=False):
            for x, y in zip_longest(values[::2], values[1::2], fillvalue=values[-1]):
                r.note(self.code, x, y)


def is_rising(at: Affine, loops: Sequence[LoopVar]) -> bool:
    """Whether an index only grows while ``loops`` run."""
    least = 1
    for v in reversed(loops):
        if at.coefficient(v) < least:
            return False
        least = at.coefficient(v) * v.size
    return True
