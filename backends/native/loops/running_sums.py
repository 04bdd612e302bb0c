"""Running results in registers: of a vector by doubling distances, then with what was
carried from the vectors before it."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from ...loop_ir import (
    DType,
    Running,
    Unsupported,
)
from ..machine import I32, Host, constant, lanes_of, register_type, splat, widened
from . import elementwise
from .accumulators import Cell, Context


def neutral(op: str, dtype: DType) -> float:
    """What ``op`` leaves other numbers as they are with, signs of zeros too."""
    if op == "add":
        return -0.0 if dtype.kind == "f" else 0
    if op in ("fmax", "fmin") and dtype.kind == "f":
        return float("nan")
    if op in ("maximum", "minimum", "fmax", "fmin"):
        is_max = op in ("maximum", "fmax")
        if dtype.kind == "f":
            return -np.inf if is_max else np.inf
        if dtype == np.dtype(bool):
            return 0 if is_max else 1
        held = np.iinfo(dtype)
        return int(held.min if is_max else held.max)
    others = {"multiply": 1, "bitwise_and": -1, "bitwise_or": 0, "bitwise_xor": 0}
    if op not in others:
        raise Unsupported(f"running {op!r} in machine code")
    return others[op]


def started(c: Context, s: Running, lanes: int) -> Cell:
    """Running results before the first element."""
    kind = register_type(s.dtype)
    return Cell(c, widened(kind, lanes), constant(kind, lanes, neutral(s.op, s.dtype)))


def run(c: Context, s: Running, value: ir.Value, carry: Cell, host: Host) -> ir.Value:
    """The running results of a vector's lanes, or where ``carry`` has as many lanes of
    as many rows."""
    b, lanes = c.b, lanes_of(value)

    def join(x: ir.Value, y: ir.Value) -> ir.Value:
        return elementwise.emit(b, s.op, [x, y], s.dtype, s.dtype, host)

    before = carry.get(b)
    if lanes == lanes_of(before):
        value = join(before, value)
        carry.set(b, value)
        return value
    nothing = constant(register_type(s.dtype), lanes, neutral(s.op, s.dtype))
    distance = 1
    while distance < lanes:
        # The last lane of each lower half of 2, 4, 8 … lanes goes to its upper half.
        picks = [
            i // distance * distance - 1 if i & distance else lanes + i
            for i in range(lanes)
        ]
        mask = ir.Constant(ir.VectorType(I32, lanes), [I32(i) for i in picks])
        value = join(b.shuffle_vector(value, nothing, mask), value)
        distance *= 2
    carry.set(b, join(before, b.extract_element(value, I32(lanes - 1))))
    return join(splat(b, before, lanes), value)
