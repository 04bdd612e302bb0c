"""Programs lowered to machine code, and run.

What native code cannot do yet runs as NumPy between native parts; the whole of a
program without such kernels is one native function, which the entry calls without
Python.
"""

from __future__ import annotations

import ctypes
import functools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, groupby
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from eqsat.kernels import Kernel, Program, packed
from eqsat.support import (
    Deadline,
    ForkLock,
    cached_property,
    counted,
    log_fallback,
    phase,
    verifying,
)
from eqsat.terms import Term
from eqsat.trace import to_numpy

from ..interpret import Array
from ..loop_ir import (
    Layout,
    Unsupported,
)
from . import program_record
from .machine import COMMON, Host, LoadedObject, compile_ir, compiled
from .numpy_fallback import NO_TIME, Fallback, Python, ResultCopy
from .plan import Places, strided
from .program_record import Record
from .runtime import (
    READ,
    ProgramCode,
    arena_maker,
    asked,
    fresh,
    is_worth_sharing,
    thread_limit,
)
from .whole_program import PROGRAM, library_of, loaded, team_run

if TYPE_CHECKING:
    from .code_pieces import CodePieces
    from .plan import Layered, Owner
    from .program_writer import WrittenProgram

    Written: TypeAlias = WrittenProgram | Owner
    """What is machine code, and a kernel or a copy that NumPy runs."""

MANY_LAYOUTS = 4
"""Layouts of inputs for which a program is compiled; others are copied first."""


@dataclass(frozen=True, eq=False)
class Native:
    """A part of a program that is machine code."""

    library: LoadedObject
    threads: int
    seconds: float
    """About how long one thread takes (s)."""
    name: str = PROGRAM

    @property
    def address(self) -> int:
        return self.library.address(self.name)

    @property
    def asked(self) -> int:
        """The threads that the team is asked for."""
        return asked(self.threads, self.seconds)


class CompiledProgram:
    """A program for inputs of given layouts."""

    def __init__(
        self,
        program: Program,
        layouts: Sequence[Layout],
        host: Host,
        threads: int,
        exact: bool = False,
        seconds: float = math.inf,
        cache: bool | None = None,
    ) -> None:
        self.program, self.layouts = program, tuple(layouts)
        self.seconds, self.cut_short = seconds, ""
        self.host, self.threads, self.exact = host, threads, exact
        self.parts: list[Native | Python | ResultCopy] = []
        self.arena_bytes, self.fault = 0, -1
        self.deferred: tuple[int, ...] = ()
        self.kept_as: tuple[str, bytes] | None = None
        """Its name on disk and :attr:`.Record.digest`; None where it is not there."""
        name = program_record.name_of(program, layouts, host, threads, exact, cache)
        if name is None or not self._recall(name):
            self._write(name)

    def _recall(self, name: str) -> bool:
        """Whether the program was on disk."""
        found = program_record.recall(name)
        if found is None:
            return False
        library = library_of(found, self.host)
        if library is None:
            return False
        self.deferred = found.deferred
        self.places = Places(self.program, self.layouts, self.deferred)
        for table in found.arrays:
            self.places.constant(table)
        if not all(map(self.places.is_finite, found.finite)):
            return False
        for number, panels in program_record.panels_of(found.packed):
            self.places.panels(number, panels)
        self.places.filling.begin()
        self.places.forget(found.unread)
        self.arena_bytes, self.fault = found.arena_bytes, found.fault
        self.parts.append(Native(library, found.threads, found.seconds))
        self.kept_as = name, found.digest
        return True

    def _write(self, name: str | None) -> None:
        """Generate the code, and keep it when it is all of the program."""
        from .code_pieces import CodePieces  # 50 ms with the next one
        from .products import deferred

        self.deferred = deferred(self.program, self.host)
        self.places = Places(self.program, self.layouts, self.deferred)
        known = len(self.places.constants)
        deadline = Deadline(self.seconds)
        layered = self._layered(self.places, _late(deadline))
        self.places.filling.begin()
        whole = name is not None and not layered.reasons
        pieces = CodePieces(self.host, deadline, compile_ir if whole else compiled)
        written = self._generated(layered, pieces)
        if self.places.fault is not None:
            self.fault = self.places.fault.byte
        code = [w for w in written if not isinstance(w, (Kernel, int))]
        fallback = Fallback(self.program)
        flat = chain.from_iterable(map(self._loaded_parts, written))
        for kind, run in groupby(flat, type):
            if kind is Native:
                self.parts += cast("Iterable[Native]", run)
            elif kind is int:
                self.parts += map(ResultCopy, cast("Iterable[int]", run))
            else:
                kernels = cast("list[Kernel]", [*run])
                excused = [(k, layered.reasons.get(k, NO_TIME)) for k in kernels]
                self.parts.append(fallback.part(excused))
                for kernel, reason in excused:
                    log_fallback("native", kernel.name, "NumPy", reason)
        size = max((w.arena_bytes for w in code), default=0)
        self.arena_bytes = max(size, self.places.scratch_bytes)
        self._say(pieces)
        if self.cut_short:
            self._listing = functools.partial(_listing, written, pieces, layered)
        elif whole and name is not None:
            end = len(self.places.constants) - len(self.places.packed)
            self._keep(name, code[0], self.places.constants[known:end])
        is_native = all(isinstance(p, Native) for p in self.parts)
        self.places.forget(self._unread if is_native else ())

    def _loaded_parts(self, w: Written) -> Iterable[Native | Owner]:
        """What is machine code in memory, between what NumPy runs."""
        if isinstance(w, (Kernel, int)):
            return [w]
        entries = {p: p.name for p in w.parts if not isinstance(p, (Kernel, int))}
        if not entries:
            return cast("Sequence[Owner]", w.parts)
        names = [*entries.values()]
        library = loaded(w.codes, names, w.calls_blas, w.functions, self.host)
        return [
            (
                p
                if isinstance(p, (Kernel, int))
                else Native(library, p.most_threads, p.seconds, p.name)
            )
            for p in w.parts
        ]

    def _say(self, pieces: CodePieces) -> None:
        """Note what was done to save time."""
        excused = (
            one for p in self.parts if isinstance(p, Python) for one in p.kernels
        )
        late = sum(why == NO_TIME for _, why in excused)
        done = []
        if late:
            of = counted(len(self.program.kernels), "kernel")
            done.append(f"NumPy runs {late} of {of}, since {NO_TIME}")
        if pieces.quick_lines:
            lines = counted(pieces.quick_lines, "line")
            done.append(f"the quick way compiled {lines} of LLVM IR")
        self.cut_short = "; ".join(done)
        if done:
            log_fallback("native", "the program", "slower code", self.cut_short)

    def _layered(
        self, places: Places, late: Callable[[Kernel], str] = lambda kernel: ""
    ) -> Layered:
        """The plan of the code."""
        with phase("plan"):
            layered = planned(
                self.program, places, self.host, self.threads, self.exact, late
            )
        self._unread = layered.unread
        return layered

    def _generated(self, layered: Layered, pieces: CodePieces) -> list[Written]:
        """The code, and between it what NumPy runs, in order."""
        from .plan import Group
        from .program_writer import write_program

        written: list[Written] = []
        if not layered.parts:  # there is nothing to compute
            return [write_program([], [], layered, PROGRAM, pieces)]
        parts = zip(layered.parts, layered.owners, strict=True)
        for is_native, run in groupby(parts, lambda p: isinstance(p[0], Group)):
            groups, owners = zip(*run, strict=True)
            if is_native:
                written.append(write_program(groups, owners, layered, PROGRAM, pieces))
            else:
                written += owners
        return written

    def _keep(self, name: str, code: WrittenProgram, tables: Sequence[Array]) -> None:
        (part,) = self.parts
        assert isinstance(part, Native)
        made = Record(
            code.codes,
            part.threads,
            part.seconds,
            self.arena_bytes,
            self.fault,
            program_record.blas_bits() if code.calls_blas else 0,
            tuple(map(program_record.table_of, tables)),
            program_record.of_panels(self.places.packed),
            code.functions,
            self._unread,
            self.deferred,
            tuple(sorted(self.places.finite)),
        )
        if program_record.keep(name, made):
            self.kept_as = name, made.digest

    @property
    def source(self) -> str:
        """The kernels as people read them, and the LLVM IR of all that is native. Both
        are made again, unless there was no time for all: to keep them would take more
        memory than the program does."""
        if self.cut_short:
            return self._listing()
        from .code_pieces import CodePieces

        places = Places(self.program, self.layouts, self.deferred)
        layered = self._layered(places)
        pieces = CodePieces(self.host, Deadline(math.inf), lambda *given: b"")
        return _listing(self._generated(layered, pieces), pieces, layered)

    @cached_property
    def code(self) -> ProgramCode | None:
        """The whole as one native function; None where Python has a part in it."""
        part = self.parts[0] if len(self.parts) == 1 else None
        if not isinstance(part, Native):
            return None
        outputs = tuple(
            (cast("np.dtype[Any]", r.dtype), r.shape) for r in self.program.roots
        )
        packed_ones = (Layout(packed(t.shape)) for t in self.program.inputs)
        return ProgramCode(
            part.address,
            outputs,
            tuple(self.places.constants),
            self.arena_bytes,
            self.fault,
            part.asked,
            part.seconds > COMMON.release_s,
            tuple(a != b for a, b in zip(self.layouts, packed_ones, strict=True)),
            (self, part.library),
        )

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """The results, in fresh arrays. Raises what NumPy raises for arguments that
        have none, such as an index out of bounds."""
        outputs, blocks = self._memory(arrays)
        return (
            outputs if self._ran(blocks, _pointers(blocks)) else self._refused(arrays)
        )

    def timed(self, arrays: Sequence[Array]) -> tuple[list[Array], float]:
        """As :meth:`run`, and how long the code took (s)."""
        outputs, blocks = self._memory(arrays)
        pointers = _pointers(blocks)
        start = time.perf_counter()
        has_results = self._ran(blocks, pointers)
        spent = time.perf_counter() - start
        return outputs if has_results else self._refused(arrays), spent

    def repeated(self, arrays: Sequence[Array], calls: int) -> float:
        """Seconds of so many calls of the code alone, into the same results. The whole
        is machine code."""
        (part,) = self.parts
        assert isinstance(part, Native)
        _, blocks = self._memory(arrays)
        pointers = _pointers(blocks)
        run, given = team_run(), (part.address, ctypes.addressof(pointers), part.asked)
        start = time.perf_counter()
        for _ in range(calls):
            run(*given)
        return time.perf_counter() - start

    def _memory(self, arrays: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """Fresh results, and all memory that the code is given."""
        outputs = [
            fresh(r.shape, cast("np.dtype[Any]", r.dtype)) for r in self.program.roots
        ]
        arena = arena_maker(self.arena_bytes)()
        return outputs, [*arrays, *outputs, *self.places.constants, arena]

    def _ran(self, blocks: Sequence[Array], pointers: ctypes.Array[Any]) -> bool:
        """Run all parts; False where an argument has no result."""
        run = team_run()
        given = len(self.program.inputs)
        flat = [None] * given + [b.reshape(-1).view(np.uint8) for b in blocks[given:]]
        for p in self.parts:
            if isinstance(p, Native):
                run(p.address, ctypes.addressof(pointers), p.asked)
                if self.fault >= 0 and blocks[-1][self.fault]:
                    return False
            elif isinstance(p, ResultCopy):
                root = self.program.roots[p.number]
                out = blocks[self.places.first_output + p.number]
                out[...] = self._array(root, blocks, flat)
            else:
                self._by_numpy(p, blocks, flat)
        return True

    def _refused(self, arrays: Sequence[Array]) -> list[Array]:
        """The error that NumPy raises for arguments that have no result."""
        from ..numpy import lower as lower_to_numpy

        with np.errstate(all="ignore"):
            return list(lower_to_numpy(self.program)(*arrays))

    def _by_numpy(
        self, p: Python, blocks: Sequence[Array], flat: Sequence[Array | None]
    ) -> None:
        given = [self._array(t, blocks, flat) for t in p.arguments]
        with np.errstate(all="ignore"):
            found = p.run(*given)
        for r, value in zip(p.results, found, strict=True):
            self._array(r, blocks, flat)[...] = value

    def _array(
        self, term: Term, blocks: Sequence[Array], flat: Sequence[Array | None]
    ) -> Array:
        known = self.places.value(term)
        if known is not None:
            return known
        place = self.places.of[term]
        whole = flat[place.memory.buffer]
        if whole is not None:
            return strided(whole, place, term)
        block = blocks[place.memory.buffer]
        strides = tuple(s * block.itemsize for s in place.layout.strides)
        if (block.shape, block.strides) == (term.shape, strides):
            return block
        return _shown(block, term.shape, strides, place.layout.offset)


def planned(
    program: Program,
    places: Places,
    host: Host,
    threads: int,
    exact: bool,
    late: Callable[[Kernel], str] = lambda kernel: "",
) -> Layered:
    """The plan of the code of a program."""
    # 30 ms to import, for nothing where the program is on disk.
    from .plan import Layered, verify_plan

    layered = Layered(program, places, host, threads, exact, late)
    if verifying():
        verify_plan(layered)
    return layered


def _late(deadline: Deadline) -> Callable[[Kernel], str]:
    """Why a kernel, asked of each in turn, is left to NumPy before it is opened. Those
    that are one piece of code are opened in any case."""
    asked = count(1)

    def late(kernel: Kernel) -> str:
        is_first = next(asked) <= COMMON.written_groups
        return "" if is_first or deadline.left else NO_TIME

    return late


def _listing(written: Sequence[Written], pieces: CodePieces, layered: Layered) -> str:
    """The kernels as people read them, what NumPy runs, and the LLVM IR."""
    texts = []
    for w in written:
        parts: Sequence[object] = [w]
        if not isinstance(w, (Kernel, int)):
            parts = w.parts
            texts += ["\n".join(f"; {x}" for x in str(n).splitlines()) for n in w.nests]
        texts += [
            f"; {p.name} runs as NumPy: {layered.reasons.get(p, NO_TIME)}"
            for p in parts
            if isinstance(p, Kernel)
        ]
    return "\n\n".join([*texts, *pieces.texts]) + "\n"


def _pointers(blocks: Sequence[Array]) -> ctypes.Array[Any]:
    return (ctypes.c_void_p * len(blocks))(*(a.ctypes.data for a in blocks))


def _shown(
    base: Array, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> Array:
    """A view of the memory of ``base``, ``offset`` elements after its first one."""
    view = np.lib.stride_tricks.as_strided(base, shape, strides)
    if offset:
        interface = dict(view.__array_interface__)
        data, flag = interface["data"]
        interface["data"] = (data + offset * base.itemsize, flag)
        view = np.asarray(_Interface(interface, base))
    return view


@dataclass(frozen=True)
class _Interface:
    __array_interface__: dict[str, Any]
    keep: Array


def threads_of(program: Program, host: Host, threads: int) -> int:
    """How many threads code of a program is written for, where the options say
    ``threads``."""
    is_shared = is_worth_sharing(program, host.vector_bits // 32)
    return thread_limit(threads) if is_shared else 1


class NativeProgram:
    """A program that runs as machine code; it is compiled for each layout of inputs
    that comes, the packed one first."""

    def __init__(
        self,
        program: Program,
        host: Host,
        threads: int = 0,
        exact: bool = False,
        seconds: float = math.inf,
        cache: bool | None = None,
    ) -> None:
        host = replace(host, saves_memory=program.least_memory)
        self.program, self.host, self.exact = program, host, exact
        self.seconds, self.cache = seconds, cache
        self.threads = threads_of(program, host, threads)
        self._lock = ForkLock()
        self._packed = tuple(Layout(packed(t.shape)) for t in program.inputs)
        self.compiled: dict[tuple[Layout, ...], CompiledProgram | None] = {}
        """None for layouts whose arrays are copied first."""
        self.first = self._made(self._packed)
        self.compiled[self._packed] = self.first

    @property
    def source(self) -> str:
        """Listings of the kernels and LLVM IR, for packed inputs."""
        return self.first.source

    @property
    def cut_short(self) -> str:
        """What was done to save time, in words; empty when nothing was."""
        return self.first.cut_short

    @property
    def reasons(self) -> dict[str, str]:
        """Kernels that run as NumPy, and why."""
        parts = self.first.parts
        excused = (one for p in parts if isinstance(p, Python) for one in p.kernels)
        return {kernel.name: why for kernel, why in excused}

    def __call__(self, *arrays: Any) -> list[Array]:
        """The results, in fresh arrays."""
        compiled, given = self._ready(arrays)
        return compiled.run(given)

    def timed(self, *arrays: Any) -> tuple[list[Array], float]:
        """The results, and the seconds that the code took, without checks."""
        compiled, given = self._ready(arrays)
        return compiled.timed(given)

    @property
    def workspace_bytes(self) -> int:
        """Memory of intermediates, for packed inputs (bytes)."""
        return self.first.arena_bytes

    def _ready(self, arrays: Sequence[Any]) -> tuple[CompiledProgram, list[Array]]:
        """The code for these arrays, and the arrays as it takes them."""
        given = [*map(_readable, arrays)]
        compiled = self._compiled_for(given)
        if compiled is None:
            return self.first, [np.ascontiguousarray(a) for a in given]
        return compiled, given

    def prepare(self, arrays: Sequence[Any]) -> bool:
        """Make the code for arrays of these strides, if it has to be; whether it was
        made."""
        before = len(self.compiled)
        made = self._compiled_for([*map(_readable, arrays)])
        return made is not None and len(self.compiled) > before

    def code_for(self, arrays: Sequence[Any]) -> ProgramCode | None:
        """One native function over arrays of these strides, if there is one."""
        for a in arrays:
            is_array = type(a) in READ and a.flags.aligned
            if not (is_array or isinstance(a, np.generic)):
                return None
        compiled = self._compiled_for(arrays)
        return None if compiled is None else compiled.code

    def _compiled_for(self, arrays: Sequence[Array]) -> CompiledProgram | None:
        layouts = tuple(
            p if a.flags.c_contiguous else _layout(a)
            for a, p in zip(arrays, self._packed, strict=True)
        )
        if layouts not in self.compiled and len(self.compiled) < MANY_LAYOUTS:
            with self._lock():
                if layouts not in self.compiled:
                    self.compiled[layouts] = self._compile(layouts)
        return self.compiled.get(layouts)

    def _compile(self, layouts: tuple[Layout, ...]) -> CompiledProgram | None:
        try:
            with phase("lower"):
                made = self._made(layouts)
        except Unsupported:  # a view of an input that only packed memory has
            return None
        return None if made.cut_short else made

    def _made(self, layouts: tuple[Layout, ...]) -> CompiledProgram:
        host, threads, exact = self.host, self.threads, self.exact
        return CompiledProgram(
            self.program, layouts, host, threads, exact, self.seconds, self.cache
        )


def _readable(value: Any) -> Array:
    """An array that native code can read: elements aligned, whole ones apart."""
    array = to_numpy(value)
    size = array.itemsize
    if not array.flags.aligned or any(s % size for s in array.strides):
        return np.array(array, order="C")
    return array


def _layout(array: Array) -> Layout:
    """Strides in elements; axes of one element have none."""
    size = array.itemsize
    return Layout(
        tuple(
            s // size if n > 1 else 0
            for s, n in zip(array.strides, array.shape, strict=True)
        )
    )
