"""What the writer of a program keeps of a function, and constants of its module."""

from __future__ import annotations

from dataclasses import dataclass, field

from llvmlite import ir

from ..machine import I8, I64, MemoryRef


@dataclass
class Frame:
    """A function while it is written: the program, or a step of it that is called for
    the rows of a table."""

    function: ir.Function
    entry: ir.Block
    buffers: ir.Value
    thread: ir.Value
    threads: ir.Value
    turn: ir.Value
    """Of the first step of the program; 0 where one thread runs alone."""
    number: ir.Value = field(default_factory=lambda: I64(0))
    """Steps so far that threads share."""
    before: tuple[ir.Value, ir.Value] | None = None
    """Parts and turn of the last one."""
    row: ir.Value | None = None
    """Of the table."""
    back: ir.Value | None = None
    """1 where the next step that is swept goes back to front."""
    pointers: dict[MemoryRef | int, ir.Value] = field(default_factory=dict)


def constant_words(module: ir.Module, name: str, data: bytes) -> ir.GlobalVariable:
    """A constant of ``module``: words of 64 bits."""
    kind = ir.ArrayType(I8, len(data))
    held = ir.GlobalVariable(module, kind, name)
    held.initializer = ir.Constant(kind, bytearray(data))
    held.linkage, held.global_constant, held.align = "internal", True, 8
    return held
