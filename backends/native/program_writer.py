"""Whole programs as one native function that threads run together.

``void program(ptr buffers, i64 thread, i64 threads, i64 turn)``: each thread takes
parts of every step (:mod:`.runtime.work_sharing_code`), and waits until all are done
before the next one; at turn 0 it runs alone. A product and what follows it row by row
run as panels of rows that stay in cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from llvmlite import ir

from eqsat.kernels import CPU
from eqsat.support import short_turns, verifying

from ..loop_ir import (
    Contraction,
    Factoring,
    Loops,
    Nest,
)
from .code_pieces import Code, CodePieces
from .loops import PTR, loop, sweep_direction
from .machine import COMMON, I8, I64, FoldingBuilder, Host, blas, forget
from .math import VOID, declared
from .plan import (
    PLACES,
    Group,
    Layered,
    Owner,
    PlanStep,
    TableCall,
    calls_of,
    is_nest,
    is_run,
    kind_of,
    table,
    told_units,
    units_at,
    verify_arena,
    verify_table,
)
from .runtime import MOST_PARTS
from .writing import (
    Arena,
    Frame,
    GroupCode,
    Kernels,
    ModuleCode,
    Pointers,
    SharedSteps,
    arena_of,
    begun,
    constant_words,
)

PIECE = 8
"""Functions of a piece, of a long program. LLVM takes some 10 ms for each; one a module
costs a fifth more than all in one, eight cost nothing."""
LINE = 64
"""Elements of a long loop that one thread has, or a multiple: lines of a cache."""
PART_S = 2e-5
"""Seconds that it takes to call a part of a program from Python, and to go on in Python
after it."""


@dataclass(frozen=True)
class CodeEntry:
    """A function of a module, which runs groups one behind the other."""

    name: str
    most_threads: int
    """Threads that are worth waking."""
    seconds: float
    """About how long one thread takes (s)."""


@dataclass(frozen=True)
class WrittenProgram:
    """A program, or the native part of one."""

    codes: tuple[bytes, ...]
    """Object code; the modules call each other."""
    parts: tuple[CodeEntry | Owner, ...]
    """In order: what is code, and what there was no time to write."""
    nests: tuple[Nest, ...]
    functions: tuple[str, ...]
    """Names of those that it calls of :mod:`.products.function_names`."""
    calls_blas: bool
    arena_bytes: int


def write_program(
    groups: Sequence[Group],
    owners: Sequence[Owner],
    layered: Layered,
    name: str,
    pieces: CodePieces,
) -> WrittenProgram:
    """Machine code that runs ``groups``, of which each is a part of its owner; what
    there is no time for is left out, whole kernels at a time.

    Up to ``written_groups`` of them are one module and one piece, of the function
    ``name``. More are a table of calls, whose functions are modules of a few each: no
    code is inlined from one group into another, so that this costs nothing when the
    program runs.
    """
    arena = arena_of(groups, layered)
    if verifying():
        own = arena.thread_start, arena.thread_bytes, arena.bytes
        verify_arena(layered, groups, dict(arena.homes), own)
    return ProgramWriter(groups, owners, layered, arena, name, pieces).written()


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


def shared(g: Group, host: Host, threads: int) -> tuple[int, int]:
    """Threads that share a group, and the parts that each has."""
    sharing = active(g, host, threads)
    most = min(g.units(host) // sharing, MOST_PARTS) if sharing > 1 else 1
    return sharing, max(1, min(most, int(g.seconds / sharing / COMMON.part_s)))


class ModuleWriter:
    """A module of a program, which may have some ``kernels`` already, and what writes
    into it."""

    def __init__(
        self, name: str, layered: Layered, arena: Arena, kernels: Kernels
    ) -> None:
        self.module, self.b = ir.Module(name), FoldingBuilder()
        self.module.triple = layered.host.triple
        self.code = ModuleCode(self.module, self.b, layered.host, layered.threads)
        self.pointers = Pointers(self.code, layered, arena)
        self.shared = SharedSteps(self.code)
        self.group_code = GroupCode(self.code, self.pointers, kernels)

    def text(self) -> str:
        """The module, which is not written any more."""
        found = str(self.module)
        forget(self.module)
        return found

    def begin(self, name: str, kind: ir.FunctionType) -> ir.Function:
        """Write a function from now on; what it is given besides is in its frame."""
        function = ir.Function(self.module, kind, name)
        entry = begun(self.b, function)
        self.code.frame = Frame(function, entry, *function.args[-_GIVEN:])
        return function

    def group(self, g: Group, units: int = 0) -> None:
        """A thread's share of a group; a sweep takes so many ``units`` at once."""
        b, frame = self.b, self.code.frame
        threads, each = shared(g, self.code.host, self.code.threads)
        count = self._units(g, bool(units))
        fewer = b.icmp_signed("<", frame.threads, I64(threads))
        sharing = b.select(fewer, frame.threads, I64(threads))
        back = frame.back if units else None
        with self.shared.parts(each, sharing) as (part, parts):
            if back is not None:
                part = sweep_direction.part_of(b, part, each, back, frame.turn)
            done = b.mul(part, count)
            start = b.sdiv(done, parts)
            stop = b.sdiv(b.add(done, count), parts)
            if self.code.threads > 1 and not units and is_run(g, self.code.host):
                start, stop = self._rounded(start, stop, count)
            self.group_code.write(g, (start, stop), units)
        if back is not None:
            frame.back = b.xor(back, I64(1))

    def _rounded(self, *span: ir.Value) -> tuple[ir.Value, ir.Value]:
        """From line to line of a cache, or to the end, which is the last of three."""
        b, (start, stop, end) = self.b, span
        is_last = b.icmp_signed("==", stop, end)
        low, high = (b.and_(i, I64(-LINE)) for i in (start, stop))
        return low, b.select(is_last, stop, high)

    def _units(self, g: Group, is_swept: bool) -> ir.Value:
        """What threads share of a group: of a nest by itself it is in the row."""
        row, b = self.code.frame.row, self.b
        if is_swept:
            return I64(g.units(self.code.host))
        if row is None or not is_nest(g):
            return I64(told_units(g, self.code.host))
        at = units_at([m for m in {*g.steps[0].memory} if m.buffer == PLACES])
        with b.goto_entry_block():
            return b.load(b.gep(row, [I64(at)], source_etype=I64), typ=I64)


_GIVEN = 4
"""What a program is given: buffers, thread, threads, turn."""
_ENTRY = ir.FunctionType(VOID, [PTR, I64, I64, I64])
_STEP = ir.FunctionType(I64, [PTR, I64, I64, PTR, I64, I64, I64])
"""Of a row of the table: the row, steps before, parts of the last of them, and what the
program is given; parts of the step."""
_ROWS = ir.FunctionType(I64, [PTR, I64, I64, I64, PTR, I64, I64, I64])
"""Of rows of the table: the first one, how many, and the same."""


_OF_CALLS = Contraction, Loops
"""Pieces whose work is done by functions that a step calls: its own code need not be
good. ``calls`` makes it in a quarter of the time; 60 layers of 8×8 numbers, 0.3 µs a
step, run in 1.01 of theirs."""
CALLERS = 64
"""Such steps of a module."""

Row = tuple[Owner, Group, TableCall]


def _stretches(rows: Sequence[Row], kinds: int) -> list[tuple[bool, list[Row]]]:
    """Rows of a table that run as machine code, and others, in turn: what is of the
    first ``kinds`` alone, unless NumPy takes less time for it than a call does."""
    late = {owner for owner, _, call in rows if call.kind >= kinds}
    found = _in_turns(rows, late)
    if len(found) == 1:
        return found
    for is_native, some in found:
        if is_native and sum(CPU.launch_s + g.seconds for _, g, _ in some) < PART_S:
            late.update(owner for owner, *_ in some)
    return _in_turns(rows, late)


def _in_turns(rows: Sequence[Row], late: Set[Owner]) -> list[tuple[bool, list[Row]]]:
    turns = groupby(rows, lambda row: row[0] not in late)
    return [(is_native, [*some]) for is_native, some in turns]


class ProgramWriter:
    """Writes the functions of a program, piece by piece."""

    def __init__(
        self,
        groups: Sequence[Group],
        owners: Sequence[Owner],
        layered: Layered,
        arena: Arena,
        name: str,
        pieces: CodePieces,
    ) -> None:
        self.groups, self.owners = groups, owners
        self.layered, self.arena, self.name = layered, arena, name
        self.pieces, self.codes = pieces, list[Code]()
        self.is_held = holds_blas(groups, layered.host, layered.threads)
        self.kernels: Kernels = {}
        self.main = ModuleWriter(name, layered, arena, self.kernels)
        self.functions: set[str] = set()

    def written(self) -> WrittenProgram:
        """The code, as far as there is time."""
        with self.pieces:
            parts = self._parts()
            codes = tuple(code() for code in self.codes)
        return WrittenProgram(
            codes,
            tuple(parts),
            tuple(nest for _, nest in self.kernels.values()),
            tuple(sorted(self.functions)),
            any(is_call(s, self.layered.host) for g in self.groups for s in g.steps),
            self.arena.bytes,
        )

    def _parts(self) -> Sequence[CodeEntry | Owner]:
        if len(self.groups) > COMMON.written_groups:
            return self._table()
        if not self.pieces.has_time():
            return [*dict.fromkeys(self.owners)]
        parts = [self._entry(self.name, self.groups, self._swept)]
        self._compile(self.main, "short")
        return parts

    def _compile(self, m: ModuleWriter, passes: str, left: int = 0) -> None:
        """Have a module compiled, where so many functions are left to write."""
        names = sorted(m.group_code.own.names)
        self.codes.append(self.pieces.begin(m.text(), names, passes, left))
        self.functions.update(names)

    def _entry(
        self, name: str, groups: Sequence[Group], body: Callable[[], None]
    ) -> CodeEntry:
        """The function that runs some groups, which ``body`` writes."""
        self.main.begin(name, _ENTRY)
        b, frame, shared = self.main.b, self.main.code.frame, self.main.shared
        fault = self.layered.places.fault
        if fault is not None or self.is_held:
            with shared.parts(1, I64(1)):
                if fault is not None:
                    b.store(I8(0), self.main.pointers.of(fault))
                if self.is_held:
                    self._hold(1)
        body()
        if self.is_held:
            with shared.parts(1, I64(1)):
                self._hold(-1)
        end, back = shared.turn(), frame.back
        if back is not None:
            shared.call("sweep_next", VOID, frame.turn, back)
            end = sweep_direction.next_turn(b, end, back)
        if frame.before is not None:
            shared.call("turns_end", VOID, frame.thread, end)
        b.ret_void()
        host, threads = self.layered.host, self.layered.threads
        most = max((active(g, host, threads) for g in groups), default=1)
        return CodeEntry(name, most, sum(g.seconds for g in groups))

    def _hold(self, by: int) -> None:
        b = self.main.b
        b.call(declared(b, blas.HELD, [I64]), [I64(by)])

    def _swept(self) -> None:
        """All groups, those that are swept in turns of direction."""
        slices = [self._slice(g) for g in self.groups]
        if any(slices):
            frame = self.main.code.frame
            frame.back = self.main.shared.call("sweep_now", I64, frame.turn)
        for g, units in zip(self.groups, slices, strict=True):
            self.main.group(g, units)

    def _slice(self, g: Group) -> int:
        """Units that are swept at once; 0 where the direction does not count."""
        piece = g.steps[0].piece
        if not isinstance(piece, Loops) or g.rows:
            return 0
        return sweep_direction.slice_of(piece.nest, self.layered.host)

    # -- long programs -----------------------------------------------------------------

    def _table(self) -> list[CodeEntry | Owner]:
        """The groups as functions, called for one row of a table after the other."""
        host, threads = self.layered.host, self.layered.threads
        by_threads = partial(shared, host=host, threads=threads)
        distinct, calls = calls_of(self.groups, host, by_threads)
        if verifying():
            verify_table(self.groups, distinct, calls, host)
        with short_turns():
            kinds = self._steps(distinct)
        if not kinds:
            return [*dict.fromkeys(self.owners)]
        rows = zip(self.owners, self.groups, calls, strict=True)
        stretches = _stretches([*rows], kinds)
        if any(is_native for is_native, _ in stretches):
            self._rows(kinds)
        parts: list[CodeEntry | Owner] = []
        for is_native, some in stretches:
            owners, groups, called = zip(*some, strict=True)
            if not is_native:
                parts += dict.fromkeys(owners)
                continue
            name = f"{self.name}{len(parts) or ''}"
            call = partial(self._call_rows, name, called)
            parts.append(self._entry(name, groups, call))
        if any(isinstance(p, CodeEntry) for p in parts):
            self._compile(self.main, "short" if kinds == len(distinct) else "quick")
        return parts

    def _steps(self, distinct: Sequence[Group]) -> int:
        """The kinds of groups that there is time for, as functions, in order."""
        done, quick = 0, dict[int, str]()
        callers, calls = self._module("calls0"), 0
        while done < len(distinct) and self.pieces.has_time():
            left = len(distinct) - done
            passes, m = self.pieces.passes(left), self._module(f"steps{done}")
            callers.group_code.nests = m.module
            some = range(done, min(done + PIECE, len(distinct)))
            for kind in some:
                of_calls = isinstance(distinct[kind].steps[0].piece, _OF_CALLS)
                self._step(callers if of_calls else m, kind, distinct[kind])
                calls += of_calls
            done = some.stop
            if m.module.functions:
                self._compile(m, passes, left)
                if passes == "quick":
                    quick[len(self.codes) - 1] = self.pieces.texts[-1]
            if calls >= CALLERS:
                self._compile(callers, "calls", left)
                callers, calls = self._module(f"calls{done}"), 0
            self.pieces.note(passes, len(some))
        if calls:
            self._compile(callers, "calls")
        for i, text in quick.items() if done == len(distinct) else ():
            self.codes[i] = self.pieces.in_full(text, self.codes[i])
        return done

    def _module(self, name: str) -> ModuleWriter:
        name = f"{self.name}_{name}"
        return ModuleWriter(name, self.layered, self.arena, self.kernels)

    def _step(self, m: ModuleWriter, number: int, g: Group) -> None:
        """The function of a group, a :data:`_STEP`."""
        function = m.begin(f"step{number}", _STEP)
        row, steps, parts, *_ = function.args
        frame = m.code.frame
        frame.number, frame.row = steps, row
        if m.code.threads > 1:
            is_first = m.b.icmp_signed("==", steps, I64(0))
            frame.before = parts, m.b.select(is_first, I64(0), m.shared.turn(-1))
        m.group(g)
        m.b.ret(I64(1) if frame.before is None else frame.before[0])

    def _rows(self, kinds: int) -> None:
        """The function that runs rows of a table, a :data:`_ROWS`."""
        m, b = self.main, self.main.b
        function = m.begin("rows", _ROWS)
        function.linkage = "internal"
        first, count, steps, before, *given = function.args
        with b.goto_block(m.code.frame.entry):
            row, number, parts = b.alloca(PTR), b.alloca(I64), b.alloca(I64)
        for place, value in ((row, first), (number, steps), (parts, before)):
            b.store(value, place)
        with loop(b, I64(0), count, 1):
            at = b.load(row, typ=PTR)
            kind, size = (
                b.load(b.gep(at, [I64(i)], source_etype=I64), typ=I64) for i in (0, 1)
            )
            b.store(b.gep(at, [size], source_etype=I64), row)
            turn = b.load(number, typ=I64)
            args = at, turn, b.load(parts, typ=I64), *given
            over = b.append_basic_block("over")
            which = b.switch(kind, over)
            for k in range(kinds):
                case = b.append_basic_block(f"case{k}")
                which.add_case(I64(k), case)
                b.position_at_end(case)
                step = ir.Function(m.module, _STEP, f"step{k}")
                b.store(b.call(step, args), parts)
                b.branch(over)
            b.position_at_end(over)
            b.store(b.add(turn, I64(1)), number)
        b.ret(b.load(parts, typ=I64))

    def _call_rows(self, name: str, calls: Sequence[TableCall]) -> None:
        """Run rows of the table."""
        m, frame = self.main, self.main.code.frame
        words = table(calls, m.pointers.placed)
        rows = constant_words(m.module, f"{name}_rows", words)
        first = I64(0) if frame.before is None else frame.before[0]
        given = frame.buffers, frame.thread, frame.threads, frame.turn
        args = rows, I64(len(calls)), frame.number, first, *given
        parts = m.b.call(m.module.get_global("rows"), args)
        if m.code.threads > 1:
            frame.number = I64(frame.number.constant + len(calls))
            frame.before = parts, m.shared.turn(-1)
