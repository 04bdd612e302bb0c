"""Steps that threads share: which parts a thread takes, and when it begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from ..machine import I64
from ..math import VOID, declared
from .frame import ModuleCode


class SharedSteps:
    """Writes calls of :mod:`..runtime.work_sharing_code`."""

    def __init__(self, code: ModuleCode) -> None:
        self.code = code

    def call(self, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
        """Call a function of the team."""
        b = self.code.b
        return b.call(declared(b, name, [a.type for a in args], result), args)

    def turn(self, more: int = 0) -> ir.Value:
        """That of the next step, and so many later; 0 where one thread runs alone."""
        b, frame = self.code.b, self.code.frame
        alone = b.icmp_signed("==", frame.turn, I64(0))
        after = b.add(frame.number, I64(more)) if more else frame.number
        return b.select(alone, frame.turn, b.add(frame.turn, after))

    @contextmanager
    def parts(
        self, each: int, sharing: ir.Value
    ) -> Iterator[tuple[ir.Value, ir.Value]]:
        """A step that so many threads share, of which each has some parts; a thread
        begins when the step before is over. Yields a part and how many there are."""
        b, frame = self.code.b, self.code.frame
        if self.code.threads == 1:
            yield I64(0), I64(1)
            return
        if frame.before is not None:
            self.call("parts_wait", VOID, *frame.before)
        turn = self.turn()
        alone = b.icmp_signed("==", frame.turn, I64(0))
        parts = b.select(alone, I64(1), b.mul(sharing, I64(each)))
        with b.goto_block(frame.entry):
            whose = b.alloca(I64)
        b.store(frame.thread, whose)
        look, body, end = (b.append_basic_block(x) for x in ("look", "part", "over"))
        start = b.block
        b.branch(look)
        b.position_at_end(look)
        made = b.phi(I64, "made")
        made.add_incoming(I64(0), start)
        args = frame.thread, whose, sharing, I64(each), turn
        part = self.call("part_claim", I64, *args)
        b.cbranch(b.icmp_signed("<", part, I64(0)), end, body)
        b.position_at_end(body)
        yield part, parts
        made.add_incoming(b.add(made, I64(1)), b.block)
        b.branch(look)
        b.position_at_end(end)
        self.call("parts_done", VOID, made, turn)
        frame.before = parts, turn
        number = frame.number
        is_constant = isinstance(number, ir.Constant)
        after = I64(number.constant + 1) if is_constant else b.add(number, I64(1))
        frame.number = after
