"""Whole programs as one native function that threads run together.

``void program(ptr buffers, i64 thread, i64 threads, i64 turn)``: each thread takes
parts of every step (:mod:`.runtime.work_sharing_code`), and waits until all are done
before the next one; at turn 0 it runs alone. A product and what follows it row by row
run as panels of rows that stay in cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from eqsat.support import verifying

from ..loop_ir import (
    Factoring,
    Loops,
    Nest,
)
from .loops import PTR, loop, sweep_direction
from .machine import COMMON, I8, I64, Host, blas
from .math import VOID, declared
from .plan import (
    Group,
    Layered,
    PlanStep,
    calls_of,
    kind_of,
    table,
    verify_arena,
    verify_table,
)
from .runtime import MOST_PARTS
from .writing import (
    Frame,
    GroupCode,
    ModuleCode,
    Pointers,
    SharedSteps,
    arena_of,
    begun,
    constant_words,
)


@dataclass(frozen=True)
class WrittenProgram:
    """A program, or the native part of one, as LLVM IR."""

    text: str
    nests: tuple[Nest, ...]
    functions: tuple[str, ...]
    """Names of those that it calls of :mod:`.products.function_names`."""
    calls_blas: bool
    most_threads: int
    """Threads that are worth waking."""
    seconds: float
    """About how long one thread takes (s)."""
    arena_bytes: int


def write_program(
    groups: Sequence[Group],
    layered: Layered,
    name: str,
    check: Callable[[], None] = lambda: None,
) -> WrittenProgram:
    """The module whose function ``name`` runs ``groups``. ``check`` is called before
    each group, and raises what ends the writing."""
    host, threads = layered.host, layered.threads
    module, b = ir.Module(name), ir.IRBuilder()
    module.triple = host.triple
    arena = arena_of(groups, layered)
    if verifying():
        own = arena.thread_start, arena.thread_bytes, arena.bytes
        verify_arena(layered, groups, dict(arena.homes), own)
    kind = ir.FunctionType(VOID, [PTR, I64, I64, I64])
    function = ir.Function(module, kind, name)
    frame = Frame(function, begun(b, function), *function.args)
    code = ModuleCode(module, b, host, threads, frame)
    pointers = Pointers(code, layered, arena)
    writer = ProgramWriter(groups, code, pointers, check)
    writer.write()
    return WrittenProgram(
        _text(module, writer.is_held),
        tuple(writer.group_code.functions),
        tuple(sorted(writer.group_code.own.names)),
        any(is_call(s, host) for g in groups for s in g.steps),
        max((active(g, host, threads) for g in groups), default=1),
        sum(g.seconds for g in groups),
        arena.bytes,
    )


def _text(module: ir.Module, is_held: bool) -> str:
    """The module as LLVM IR; ``is_held``: with what holds BLAS to one thread."""
    text = str(module)
    if not is_held:
        return text
    lines = text.splitlines()  # the definition replaces the declaration
    kept = [x for x in lines if not x.startswith('declare void @"blas_count"')]
    return "\n".join(kept) + blas.HOLD_IR


def is_call(s: PlanStep, host: Host) -> bool:
    """Whether a step is computed by BLAS or LAPACK."""
    return s.plan is None and kind_of(s.piece).is_call(s.piece, host)


def holds_blas(groups: Sequence[Group], host: Host, threads: int) -> bool:
    """Whether BLAS is held to one thread: not where all that it does is to factor large
    matrices one at a time, for which it has threads."""
    calls = [s.piece for g in groups for s in g.steps if is_call(s, host)]
    if not calls or not blas.library().is_held:
        return False
    ones = [p for p in calls if isinstance(p, Factoring) and p.matrices == 1]
    large = any(p.flops >= COMMON.large_matrix_flops for p in ones)
    return threads == 1 or not large or len(ones) < len(calls)


def active(g: Group, host: Host, threads: int) -> int:
    """Threads that share a group."""
    if is_call(g.steps[0], host) and not blas.library().is_held:
        return 1
    worth = int(g.seconds / COMMON.thread_s)
    return max(1, min(threads, g.units(host), worth))


class ProgramWriter:
    """Writes the function of a program, group by group."""

    def __init__(
        self,
        groups: Sequence[Group],
        code: ModuleCode,
        pointers: Pointers,
        check: Callable[[], None],
    ) -> None:
        self.groups, self.code, self.pointers = groups, code, pointers
        self.check = check
        self.shared = SharedSteps(code)
        self.group_code = GroupCode(code, pointers)
        self.is_held = holds_blas(groups, code.host, code.threads)

    def write(self) -> None:
        """The whole program."""
        b, frame = self.code.b, self.code.frame
        fault = self.pointers.layered.places.fault
        if fault is not None or self.is_held:
            with self.shared.parts(1, I64(1)):
                if fault is not None:
                    b.store(I8(0), self.pointers.of(fault))
                if self.is_held:
                    self._hold(1)
        if len(self.groups) <= COMMON.written_groups:
            self._swept()
        else:
            self._table()
        if self.is_held:
            with self.shared.parts(1, I64(1)):
                self._hold(-1)
        end, back = self.shared.turn(), frame.back
        if back is not None:
            self.shared.call("sweep_next", VOID, frame.turn, back)
            end = sweep_direction.next_turn(b, end, back)
        if frame.before is not None:
            self.shared.call("turns_end", VOID, frame.thread, end)
        b.ret_void()

    def _hold(self, by: int) -> None:
        b = self.code.b
        b.call(declared(b, "blas_count", [I64]), [I64(by)])

    def _swept(self) -> None:
        """All groups, those that are swept in turns of direction."""
        slices = [self._slice(g) for g in self.groups]
        if any(slices):
            frame = self.code.frame
            frame.back = self.shared.call("sweep_now", I64, frame.turn)
        for g, units in zip(self.groups, slices, strict=True):
            self._group(g, units)

    def _slice(self, g: Group) -> int:
        """Units that are swept at once; 0 where the direction does not count."""
        piece = g.steps[0].piece
        if not isinstance(piece, Loops):
            return 0
        return sweep_direction.slice_of(piece.nest, self.code.host)

    def _group(self, g: Group, units: int = 0) -> None:
        self.check()
        b, frame, host = self.code.b, self.code.frame, self.code.host
        count, threads = g.units(host), active(g, host, self.code.threads)
        fewer = b.icmp_signed("<", frame.threads, I64(threads))
        sharing = b.select(fewer, frame.threads, I64(threads))
        most = min(count // threads, MOST_PARTS) if threads > 1 else 1
        each = max(1, min(most, int(g.seconds / threads / COMMON.part_s)))
        back = frame.back if units else None
        with self.shared.parts(each, sharing) as (part, parts):
            if back is not None:
                part = sweep_direction.part_of(b, part, each, back, frame.turn)
            done = b.mul(part, I64(count))
            start = b.sdiv(done, parts)
            stop = b.sdiv(b.add(done, I64(count)), parts)
            self.group_code.write(g, (start, stop), units)
        if back is not None:
            frame.back = b.xor(back, I64(1))

    # -- long programs -----------------------------------------------------------------

    def _table(self) -> None:
        """The groups as functions, called for one row of a table after the other."""
        b, frame = self.code.b, self.code.frame
        distinct, calls = calls_of(self.groups)
        if verifying():
            verify_table(self.groups, distinct, calls)
        after = b.block
        functions = [self._step(i, g) for i, g in enumerate(distinct)]
        self.code.frame = frame
        b.position_at_end(after)
        with b.goto_block(frame.entry):
            row, number, parts = b.alloca(PTR), b.alloca(I64), b.alloca(I64)
        words = table(calls, self.pointers.placed)
        rows = constant_words(self.code.module, "rows", words)
        first = I64(0) if frame.before is None else frame.before[0]
        for place, value in ((row, rows), (number, frame.number), (parts, first)):
            b.store(value, place)
        with loop(b, I64(0), I64(len(calls)), 1):
            at = b.load(row, typ=PTR)
            kind, size = (
                b.load(b.gep(at, [I64(i)], source_etype=I64), typ=I64) for i in (0, 1)
            )
            b.store(b.gep(at, [size], source_etype=I64), row)
            given = b.load(number, typ=I64), b.load(parts, typ=I64)
            args = at, frame.buffers, frame.thread, frame.threads, frame.turn, *given
            over = b.append_basic_block("over")
            which = b.switch(kind, over)
            for i, function in enumerate(functions):
                case = b.append_basic_block(f"case{i}")
                which.add_case(I64(i), case)
                b.position_at_end(case)
                b.store(b.call(function, args), parts)
                b.branch(over)
            b.position_at_end(over)
            b.store(b.add(given[0], I64(1)), number)
        if self.code.threads > 1:
            frame.number = b.load(number, typ=I64)
            frame.before = b.load(parts, typ=I64), self.shared.turn(-1)

    def _step(self, number: int, g: Group) -> ir.Function:
        """The function of a group: given a row of the table, what the program was
        given, how many steps there were before and parts of the last one, it gives the
        parts of its own."""
        b = self.code.b
        kind = ir.FunctionType(I64, [PTR, PTR, *[I64] * 5])
        function = ir.Function(self.code.module, kind, f"step{number}")
        function.linkage = "internal"
        row, buffers, thread, threads, turn, steps, parts = function.args
        entry = begun(b, function)
        frame = Frame(function, entry, buffers, thread, threads, turn, steps, row=row)
        self.code.frame = frame
        if self.code.threads > 1:
            is_first = b.icmp_signed("==", steps, I64(0))
            frame.before = parts, b.select(is_first, I64(0), self.shared.turn(-1))
        self._group(g)
        b.ret(I64(1) if frame.before is None else frame.before[0])
        return function
