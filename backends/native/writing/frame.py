"""What the parts of a program's writer share: the module, and the function in hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from llvmlite import ir

from ..machine import I8, I64, Host, MemoryRef


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


@dataclass
class ModuleCode:
    """The module of a program while it is written."""

    module: ir.Module
    b: ir.IRBuilder
    host: Host
    threads: int
    frame: Frame = field(init=False)
    """The function that is written now."""


def begun(b: ir.IRBuilder, function: ir.Function) -> ir.Block:
    """Write into ``function`` from now on; its first block."""
    entry, body = (function.append_basic_block(n) for n in ("entry", "body"))
    b.position_at_end(entry)
    b.branch(body)
    b.position_at_end(body)
    return entry


def constant_words(module: ir.Module, name: str, data: bytes) -> ir.GlobalVariable:
    """A constant of ``module``: words of 64 bits."""
    kind = ir.ArrayType(I8, len(data))
    held = ir.GlobalVariable(module, kind, name)
    held.initializer = ir.Constant(kind, bytearray(data))
    held.linkage, held.global_constant, held.align = "internal", True, 8
    return held
