"""Memory of a program: where scratch memory lies, and pointers to operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llvmlite import ir

from ..loops import PTR
from ..machine import I8, I64, MemoryRef, aligned
from ..math import declared
from ..plan import PANELS, PLACES, TEMPORARY, Group, Layered, kind_of
from ..products import Calls
from .frame import ModuleCode


@dataclass(frozen=True)
class Arena:
    """The scratch memory of a program: what its groups share, then that of threads."""

    homes: Mapping[MemoryRef, MemoryRef]
    """Where temporaries lie that several groups use."""
    thread_start: int
    thread_bytes: int
    """Of one thread: what passes keep, and panels."""
    bytes: int


def arena_of(parts: Sequence[Group], layered: Layered) -> Arena:
    """The arena of ``parts``, whose shared temporaries get their places."""
    thread_bytes = max((_thread_bytes(g, layered) for g in parts), default=0)
    private = {m for g in parts for m, _ in g.private}
    homes: dict[MemoryRef, MemoryRef] = {}
    for m in (m for g in parts for s in g.steps for m in s.memory):
        if m.buffer == TEMPORARY and m not in private and m not in homes:
            homes[m] = layered.places.scratch(layered.temporaries[m.byte])
    start = aligned(layered.places.scratch_bytes)
    end = start + thread_bytes * layered.threads
    return Arena(homes, start, thread_bytes, end)


def _thread_bytes(g: Group, layered: Layered) -> int:
    host = layered.host
    keeps = max(kind_of(s.piece).scratch_bytes(s.piece, host) for s in g.steps)
    products = max((s.plan.bytes for s in g.steps if s.plan), default=0)
    panels = sum(aligned(g.panel * size) for _, size in g.private)
    return aligned(max(keeps, products)) + panels


class Pointers:
    """Writes pointers to the memory of a program."""

    def __init__(self, code: ModuleCode, layered: Layered, arena: Arena) -> None:
        self.code, self.layered, self.arena = code, layered, arena
        self.moved = Calls(code.b, code.module).moved

    def of(self, m: MemoryRef) -> ir.Value:
        """The pointer to an operand."""
        if m.buffer != PLACES:
            m = self.placed(m)
            return self.moved(self._block(m.buffer), m.byte)
        frame, b = self.code.frame, self.code.b
        found = frame.pointers.get(m)
        if found is None:
            with b.goto_entry_block():
                words = b.gep(frame.row, [I64(2 + 2 * m.byte)], source_etype=I64)
                found = b.call(self._placed_at(), [words, frame.buffers])
            frame.pointers[m] = found
        return found

    def _placed_at(self) -> ir.Function:
        """The pointer that two words of a table tell: a number of a pointer, and a
        byte. A function, which LLVM inlines: steps have ten of these."""
        function = declared(self.code.b, "placed_at", [PTR, PTR], PTR)
        if function.is_declaration:
            function.linkage = "internal"
            function.attributes.add("alwaysinline")
            words, buffers = function.args
            b = ir.IRBuilder(function.append_basic_block())
            block = b.load(words, typ=I64)
            byte = b.load(b.gep(words, [I64(1)], source_etype=I64), typ=I64)
            base = b.load(b.gep(buffers, [block], source_etype=PTR), typ=PTR)
            b.ret(b.gep(base, [byte], source_etype=I8))
        return function

    def placed(self, m: MemoryRef) -> MemoryRef:
        """The pointer of the program and the byte where ``m`` starts."""
        if m.buffer == PANELS:
            m = self.layered.panel_places[m.byte]
        m = self.arena.homes.get(m, m)
        return m if m.buffer >= 0 else MemoryRef(self._scratch, m.byte)

    def of_thread(self) -> ir.Value:
        """Scratch memory of this thread."""
        b, size = self.code.b, self.arena.thread_bytes
        if not size:
            return ir.Constant(PTR, None)
        mine = b.mul(self.code.frame.thread, I64(size))
        start = b.add(mine, I64(self.arena.thread_start))
        return self.moved(self._block(self._scratch), start)

    def private(self, g: Group, row: ir.Value) -> dict[MemoryRef, ir.Value]:
        """A panel in this thread's memory, as the place where row 0 would lie."""
        b, found = self.code.b, {}
        byte = self.arena.thread_bytes
        own = self.of_thread()
        for m, size in g.private:
            byte -= aligned(g.panel * size)
            start = self.moved(own, byte)
            found[m] = self.moved(start, b.neg(b.mul(row, I64(size))))
        return found

    @property
    def _scratch(self) -> int:
        """The pointer of scratch memory."""
        places = self.layered.places
        return places.first_constant + len(places.constants)

    def _block(self, number: int) -> ir.Value:
        """Pointer ``number`` of the program."""
        pointers = self.code.frame.pointers
        found = pointers.get(number)
        if found is None:
            with self.code.b.goto_entry_block():
                found = self._loaded(I64(number))
            pointers[number] = found
        return found

    def _loaded(self, number: ir.Value) -> ir.Value:
        b = self.code.b
        at = b.gep(self.code.frame.buffers, [number], source_etype=PTR)
        return b.load(at, typ=PTR)
