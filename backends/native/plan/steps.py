"""What a program does, in order: the pieces of its kernels over their memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np

from eqsat.kernels import Kernel, Program, decided, packed, starts_in
from eqsat.terms import HALF, SCALAR, Term

from ...loop_ir import (
    DType,
    Layout,
    Load,
    Loops,
    Nest,
    Operand,
    Piece,
    Pieces,
    Product,
    Scatter,
    Unsupported,
)
from ...to_loops import (
    LoopTarget,
    copy_of,
    pieces_of,
)
from ..convolutions import conv_plan
from ..loops import check, with_lane_axis
from ..machine import COMMON, Host, MemoryRef
from ..products import gemm_plan
from ..sorting import library_sorts
from .buffers import TEMPORARY, Place, Places
from .groups import Group, Grouping, PlanStep
from .joined_writes import from_start, joined, read_only
from .kernel_keys import Numbers, key_of
from .piece_kinds import kind_of
from .relayout_copies import with_copies
from .selected_rows import selected

Owner: TypeAlias = Kernel | int
"""What a group is a part of: a kernel, or the copy of the result of that number."""


@dataclass(frozen=True)
class _Opened:
    """What equal kernels over other memory are made of."""

    made: Pieces
    pieces: list[tuple[Piece, float, tuple[int, ...]]]
    """As they run, with the seconds that they take, and where each operand starts in
    its memory (bytes; none where they all start there)."""
    inputs: dict[Term, int]
    """Places of the arguments of the kernel that was opened."""
    tables: list[MemoryRef]


class Layered(Grouping):
    """The steps of a program before they are code."""

    def __init__(
        self,
        program: Program,
        places: Places,
        host: Host,
        threads: int,
        exact: bool = False,
        late: Callable[[Kernel], str] = lambda kernel: "",
    ) -> None:
        """``late``: asked of each kernel in order, why it is left to Python; empty
        where it is not."""
        super().__init__(places, host, threads)
        self.target = LoopTarget(
            threads,
            exact,
            orders=library_sorts.dtypes(),
            scatters=True,
            factors=True,
            reads_parts=True,
            sweeps=True,
            remembers=True,
            tuning=host.tuning,
            normal=not exact,
        )
        self.decided = decided(program)
        """Kernels that round as they are written."""
        self.parts: list[Group | Kernel] = []
        """Groups, and kernels that only Python runs."""
        self.ends: list[tuple[Kernel, int]] = []
        """Kernels, and how many parts there are up to the last one of each."""
        self.reasons: dict[Kernel, str] = {}
        """Why Python runs these."""
        self.opened: dict[Any, _Opened] = {}
        self.numbers = Numbers.of(program.kernels)
        self._held: dict[tuple[Term, DType], MemoryRef] = {}
        """Where numbers lie that are read from memory."""
        self._placed: dict[Any, tuple[Loops, Loops]] = {}
        for kernel in program.kernels:
            if not any(r.size for r in kernel.results):
                continue
            try:
                if reason := late(kernel):
                    raise Unsupported(reason)
                self.parts += self._kernel(kernel)
            except Unsupported as why:
                self.reasons[kernel] = str(why)
                places.settle([t for t in places.deferred if t in kernel.inputs])
                self.parts.append(kernel)
            self.ends.append((kernel, len(self.parts)))
        self.owners: list[Owner] = []
        """What each part is of."""
        for kernel, end in self.ends:
            self.owners += [kernel] * (end - len(self.owners))
        for i in sorted(places.copied):
            self.parts += self._copy(program, i)
            self.owners += [i] * (len(self.parts) - len(self.owners))
        self.parts = selected(self.parts, self.ends, places, host)
        self.panel_places = [
            places.panels(number, panels).memory for number, panels in self.panels
        ]
        """Where the constants in panels lie."""
        self.unread = self._unread()
        """Pointers of constants that are read in panels only."""

    def _unread(self) -> tuple[int, ...]:
        read: set[int] = set()
        for part in self.parts:
            if not isinstance(part, Group):
                return ()
            read.update(m.buffer for s in part.steps for m in s.memory)
        return tuple(sorted({number for number, _ in self.panels} - read))

    def _kernel(self, kernel: Kernel) -> list[Group]:
        if "numpy" in kernel.op.lowerings:
            raise Unsupported(f"{kernel.op.name} has a lowering of its own for numpy")
        copied = self._copied_parts(kernel.term)
        if copied is not None:
            return [g for a, out in copied for g in self._copied(a, out)]
        known = self._opened(kernel)
        memory = self._memory(kernel, known)
        every = [tuple(memory(o) for o in p.operands) for p in known.made.pieces]
        every = conv_plan.in_place(known.made.pieces, every, TEMPORARY)
        steps = []
        for (p, seconds, starts), where in zip(known.pieces, every, strict=True):
            if isinstance(p, Loops):
                p = self._with_memory(p, where)
            if starts:
                where = tuple(
                    MemoryRef(m.buffer, m.byte + start)
                    for m, start in zip(where, starts, strict=True)
                )
            steps.append(PlanStep(p, where, seconds))
        return list(self._groups(steps))

    def _opened(self, kernel: Kernel) -> _Opened:
        """What ``kernel`` is made of: the same as that of an earlier one that differs
        in where its operands lie."""
        deferred = {
            t: of for t, of in self.places.deferred.items() if t in kernel.inputs
        }
        layouts = {
            t: Layout(self.places.of[t].layout.strides)
            for t in kernel.inputs
            if t not in deferred
        }
        exact = self.target.exact or kernel.term in self.decided
        # Bare numbers that are read from memory are not rounded to halves there.
        numbers = {} if deferred or exact else self.numbers.read(kernel)
        key = None if deferred else (exact, key_of(kernel, layouts, numbers))
        if key is not None and key in self.opened:
            return self.opened[key]
        has_halves = any(t.dtype in HALF for t in kernel.inputs)
        halves = has_halves and gemm_plan.is_better(self.host)
        pairs = halves and self.host.has_bfloat_pairs
        target = replace(self.target, halves=halves, pairs=pairs, exact=exact)
        made = pieces_of(kernel, target, layouts, deferred, numbers)
        turns = [self._turned(p) for p in made.pieces]
        made = with_copies(replace(made, pieces=turns), self.host)
        pieces: list[tuple[Piece, float, tuple[int, ...]]] = []
        parts = [o for o in joined(made.pieces) if self._is_short(kernel, o)]
        for p in made.pieces:
            starts: tuple[int, ...] = ()
            if isinstance(p, Loops):
                # What a pointwise kernel reads it may write: as one memory.
                reads = [] if kernel.pointwise else read_only(p)
                p, starts = from_start(p, [*parts, *reads])
            kind = kind_of(p)
            p = kind.ready(p, self.host)
            pieces.append((p, kind.seconds(p, self.host), starts))
        tables = [self.places.constant(t).memory for t in made.tables]
        inputs = {t: i for i, t in enumerate(kernel.term.args)}
        found = _Opened(made, pieces, inputs, tables)
        if key is not None:
            self.opened[key] = found
        return found

    def _turned(self, p: Piece) -> Piece:
        """``p`` with lanes along what suits this machine. Raises
        :class:`Unsupported`."""
        if isinstance(p, Product) and gemm_plan.is_better(self.host):
            return gemm_plan.as_row(p)
        if not isinstance(p, Loops):
            return p
        check(p.nest, self.host)
        return replace(p, nest=with_lane_axis(p.nest, self.host))

    def _is_short(self, kernel: Kernel, o: Operand) -> bool:
        """Whether a result is not written past caches, whole vectors at a time."""
        return bool(kernel.results[o.key].nbytes < COMMON.streamed_bytes)

    def _memory(self, kernel: Kernel, known: _Opened) -> Callable[[Operand], MemoryRef]:
        first = len(self.temporaries)
        self.temporaries += [d.itemsize * n for d, n in known.made.temporaries]

        def where(o: Operand) -> MemoryRef:
            if o.kind == "array":
                i = known.inputs.get(o.key)  # what a deferred one is made of has none
                term: Term = o.key if i is None else kernel.term.args[i]
                return self._start(term, o.dtype)
            if o.kind == "result":
                return self._start(kernel.results[o.key], o.dtype)
            if o.kind == "table":
                return known.tables[int(o.key)]
            if o.kind == "fault":
                return self.places.noted()
            return MemoryRef(TEMPORARY, first + int(o.key))

        return where

    def _start(self, term: Term, dtype: DType) -> MemoryRef:
        """Where the first element of a value lies, or a number in that dtype."""
        if term.op is SCALAR:
            key = term, dtype
            if key not in self._held:
                held = self.places.constant(np.array(term.attrs[0], dtype))
                self._held[key] = held.memory
            return self._held[key]
        place: Place = self.places.of[term]
        byte = place.memory.byte + place.layout.offset * dtype.itemsize
        return MemoryRef(place.memory.buffer, byte)

    def _copied_parts(self, join: Term) -> list[tuple[Term, MemoryRef]] | None:
        """The parts of a join that no kernel has written in its result, and where they
        go; None where kernels have written none."""
        places = self.places
        if join not in places.joins:
            return None
        places.settle([a for a in join.args if a in places.deferred])
        home = places.of[join].memory
        outs = (MemoryRef(home.buffer, home.byte + at) for at in starts_in(join))
        return [
            (a, out)
            for a, out in zip(join.args, outs, strict=True)
            if places.of[a] != Place(out, Layout(packed(a.shape)))
        ]

    def _copy(self, program: Program, i: int) -> list[Group]:
        """A result that lies elsewhere, or in another order."""
        return self._copied(program.roots[i], MemoryRef(self.places.first_output + i))

    def _copied(self, term: Term, out: MemoryRef) -> list[Group]:
        """What copies a value to ``out``."""
        if term.size == 0:
            return []
        source = self.places.of[term]
        loops = copy_of(term, Layout(source.layout.strides), self.target)
        start = self._start(term, cast("DType", term.dtype))
        memory = tuple(start if o.kind == "array" else out for o in loops.operands)
        seconds = kind_of(loops).seconds(loops, self.host)
        return [Group((PlanStep(loops, memory, seconds),))]

    def _with_memory(self, p: Loops, memory: Sequence[MemoryRef]) -> Loops:
        """A nest, told what lies where: buffers that are the same memory, and results
        that no cache holds until somebody reads them."""
        nest = p.nest
        shared = _shared(nest, memory)
        outputs = range(self.places.first_output, self.places.first_constant)
        reads = (Load, Scatter)
        read = {s.buffer for s in nest.statements() if isinstance(s, reads)}
        streamed = frozenset(
            i
            for i, m in enumerate(memory)
            if m.buffer in outputs
            and i not in read | shared
            and self._output_bytes(m) >= COMMON.streamed_bytes
        )
        if not shared and not streamed:
            return p
        key = id(p), shared, streamed
        if key not in self._placed:
            nest = replace(nest, aliased=shared, streamed=streamed)
            self._placed[key] = replace(p, nest=nest), p  # whose id stays its own
        return self._placed[key][0]

    def _output_bytes(self, m: MemoryRef) -> int:
        roots = self.places.program.roots
        return roots[m.buffer - self.places.first_output].nbytes


def _shared(nest: Nest, memory: Sequence[MemoryRef]) -> frozenset[int]:
    """Buffers of which some are written that are the same memory as others."""
    written = {m for m, b in zip(memory, nest.buffers, strict=True) if b.written}
    return frozenset(
        i
        for i, m in enumerate(memory)
        if m in written and sum(m == other for other in memory) > 1
    )
