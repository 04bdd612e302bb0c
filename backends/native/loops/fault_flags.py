"""Values that must lie within bounds: noted in registers while a function runs, and in
memory when it ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from ...loop_ir import (
    DType,
    Within,
)
from ..machine import I1, I8, constant, lanes_of, register_type, widened
from .accumulators import Context, Reducer, across


class Checks:
    """The checks of one function."""

    def __init__(self, c: Context) -> None:
        self.c = c
        self.failed: dict[tuple[int, int], ir.Value] = {}
        """By buffer and lanes: whether a value was out of bounds, in memory that LLVM
        promotes."""

    def within(self, s: Within, value: ir.Value, dtype: DType) -> ir.Value:
        """``value``, or the lower bound where it is out of bounds."""
        b, lanes = self.c.b, lanes_of(value)
        kind = register_type(dtype)
        low = constant(kind, lanes, s.low)
        above = b.sub(value, low) if s.low else value
        bad = b.icmp_unsigned(">=", above, constant(kind, lanes, s.high - s.low))
        place = self.failed.get((s.buffer, lanes))
        if place is None:
            with b.goto_block(self.c.entry):
                place = b.alloca(widened(I1, lanes))
                b.store(constant(I1, lanes, 0), place)
            self.failed[s.buffer, lanes] = place
        b.store(b.or_(b.load(place, typ=bad.type), bad), place)
        return b.select(bad, low, value)

    def note(self, buffers: Sequence[ir.Value]) -> None:
        """Mark the buffers of checks that have failed."""
        b, either = self.c.b, Reducer("any", np.dtype(bool))
        for (buffer, lanes), place in self.failed.items():
            failed = b.load(place, typ=widened(I1, lanes))
            with b.if_then(across(either, b, failed), likely=False):
                b.store(I8(1), buffers[buffer])
