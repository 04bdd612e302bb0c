"""Loops that count, and what they count to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from ..machine import I64


@contextmanager
def loop(
    b: ir.IRBuilder, start: ir.Value, stop: ir.Value, step: int
) -> Iterator[ir.Value]:
    """``for i = start; i < stop; i += step``."""
    head, body, done = (b.append_basic_block(n) for n in ("head", "body", "done"))
    before = b.block
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(I64)
    i.add_incoming(start, before)
    b.cbranch(b.icmp_signed("<", i, stop), body, done)
    b.position_at_end(body)
    yield i
    i.add_incoming(b.add(i, I64(step)), b.block)
    b.branch(head)
    b.position_at_end(done)


def divided(b: ir.IRBuilder, i: ir.Value, by: int) -> tuple[ir.Value, ir.Value]:
    """The quotient, and the rest."""
    return b.udiv(i, I64(by)), b.urem(i, I64(by))


def end_of_steps(b: ir.IRBuilder, low: ir.Value, high: ir.Value, step: int) -> ir.Value:
    """The end of the steps that fit between ``low`` and ``high``."""
    if isinstance(low, ir.Constant) and isinstance(high, ir.Constant):
        return I64(low.constant + (high.constant - low.constant) // step * step)
    turns = b.sdiv(b.sub(high, low), I64(step))
    return b.add(low, b.mul(turns, I64(step)))
