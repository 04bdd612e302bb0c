"""What a program does, in order: nests, products, and what runs in panels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from eqsat.kernel import Kernel, packed
from eqsat.op import HALF, SCALAR
from eqsat.program import Program
from eqsat.term import Term

from ..kernels.affine import Layout, Unsupported
from ..kernels.language import DType, Gather, Load, Nest, Operand, Scatter, Store
from ..kernels.lower import copy_of, pieces_of
from ..kernels.pieces import (
    Contraction,
    Convolution,
    Factoring,
    Loops,
    Network,
    Ordering,
    Piece,
    Pieces,
    Product,
)
from ..kernels.schedule import WEIGHTS, Target
from . import convolutions, factor_calls, gemm, masks, networks, order
from .alike import Numbers, key_of
from .gemm import Packing, Plan
from .joins import from_start, joined
from .machine import Host
from .masks import Reach, reach_of
from .places import Memory, Place, Places
from .shape import check, shape_of, turned
from .team import BYTES_PER_S, FLOPS_PER_S, LANES_PER_S
from .tiles import Panels, padded, tile

TEMPORARY, PANELS = -2, -3
"""Buffer numbers of memory between the pieces of a kernel, and of constants that are
right operands of products, in panels."""
PACKED_PER_S = 1e10
"""Bytes that one core brings into panels."""
STREAMED_BYTES = 1 << 24
"""Results from which on caches are left to what is read: half of a large L3."""
PANEL_ROWS = 192
"""Rows of a product that are multiplied at once, and stay in cache for what follows."""
MOST = 4, 3
"""Places at which a pointwise op is computed again, and one that takes as long as ten
of them: four steps of a stencil in one nest take five times as long as in two."""


@dataclass(frozen=True)
class Step:
    """A piece with the memory of its operands, and about how long it takes."""

    piece: Piece | Packing
    memory: tuple[Memory, ...]
    seconds: float
    plan: Plan | None = None
    """Of a product whose code is generated."""


@dataclass(frozen=True)
class Group:
    """Steps that run together, in parts of ``panel`` rows of the first one, a product
    or convolution; or a single nest, where there are no rows."""

    steps: tuple[Step, ...]
    rows: int = 0
    panel: int = 0
    private: tuple[tuple[Memory, int], ...] = ()
    """Memory that only this group uses, with the bytes of one row."""
    columns: int = 1
    """Parts of the columns of a product that nothing follows, or of a convolution."""
    reach: Reach | None = None
    """How far the rows of scores reach that a mask drops others of."""

    @property
    def seconds(self) -> float:
        return sum(s.seconds for s in self.steps)


def with_range(step: Step) -> Step:
    """The step with a nest that is told which elements of a row are wanted. They start
    anywhere, so that no vector is known to be aligned, as stores past caches are."""
    assert isinstance(step.piece, Loops)
    nest = replace(step.piece.nest, ranged=True, streamed=frozenset())
    return replace(step, piece=replace(step.piece, nest=nest))


def reached(steps: Sequence[Step]) -> bool:
    """Whether the products around a softmax can leave out columns."""
    plans = (s.plan for s in (steps[0], steps[2]))
    return all(p is not None and p.kind == "tiles" and p.order != "late" for p in plans)


def seconds_of(piece: Piece, host: Host) -> float:
    """About how long one thread takes (s)."""
    if isinstance(piece, Product):
        own = gemm.is_better(host)
        return piece.flops / (gemm.flops_per_s(host) if own else FLOPS_PER_S)
    if isinstance(piece, Convolution):
        return piece.flops / gemm.flops_per_s(host)
    if isinstance(piece, Factoring):
        return factor_calls.seconds(piece, host)
    if isinstance(piece, Ordering):
        return order.seconds_of(piece)
    if isinstance(piece, Network):
        return networks.seconds_of(piece, host)
    nest = piece.nest
    lanes = shape_of(nest, host).lanes
    rows = nest.rows // (nest.chunk.size if nest.chunk is not None else 1)
    total = 0.0
    for p in nest.passes:
        n = rows * prod(v.size for v in p.loops)
        work = sum(WEIGHTS.get(getattr(s, "op", ""), 1) for s in p.body)
        moved = sum(
            nest.buffers[s.buffer].dtype.itemsize * prod(v.size for v in s.at.variables)
            for s in p.body
            if isinstance(s, (Load, Gather, Store))
        )
        total += max(n * work / (lanes * LANES_PER_S), moved / BYTES_PER_S)
    return total


@dataclass(frozen=True)
class _Opened:
    """What equal kernels over other memory are made of."""

    made: Pieces
    pieces: list[tuple[Piece, float, tuple[int, ...]]]
    """As they run, with the seconds that they take, and where each operand starts in
    its memory (bytes; none where they all start there)."""
    inputs: dict[Term, int]
    """Places of the arguments of the kernel that was opened."""
    tables: list[Memory]


class Layered:
    """The steps of a program before they are code."""

    def __init__(
        self,
        program: Program,
        places: Places,
        host: Host,
        threads: int,
        exact: bool = False,
    ) -> None:
        self.places, self.host, self.threads = places, host, threads
        self.target = Target(
            threads,
            exact,
            orders=order.dtypes(),
            scatters=True,
            factors=True,
            most=MOST,
            normal=not exact,
        )
        self.parts: list[Group | Kernel] = []
        """Groups, and kernels that only Python runs."""
        self.reasons: dict[Kernel, str] = {}
        """Why Python runs these."""
        self.temporaries: list[int] = []
        """Bytes of memory between the pieces of kernels."""
        self.panels: list[tuple[int, Panels]] = []
        """Constants, by their pointers, and how they lie as right operands."""
        self.opened: dict[Any, _Opened] = {}
        self.numbers = Numbers.of(program.kernels)
        self._held: dict[tuple[Term, DType], Memory] = {}
        """Where numbers lie that are read from memory."""
        self._placed: dict[Any, tuple[Loops, Loops]] = {}
        for kernel in program.kernels:
            if not any(r.size for r in kernel.results):
                continue
            try:
                self.parts += self._kernel(kernel)
            except Unsupported as why:
                self.reasons[kernel] = str(why)
                places.settle([t for t in places.late if t in kernel.inputs])
                self.parts.append(kernel)
        for i in sorted(places.copied):
            self.parts += self._copy(program, i)
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
        known = self._opened(kernel)
        memory = self._memory(kernel, known)
        every = [tuple(memory(o) for o in p.operands) for p in known.made.pieces]
        every = convolutions.in_place(known.made.pieces, every, TEMPORARY)
        steps = []
        for (p, seconds, starts), where in zip(known.pieces, every, strict=True):
            if isinstance(p, Loops):
                p = self._with_memory(p, where)
            if starts:
                where = tuple(
                    Memory(m.buffer, m.byte + start)
                    for m, start in zip(where, starts, strict=True)
                )
            steps.append(Step(p, where, seconds))
        return list(self._groups(steps))

    def _opened(self, kernel: Kernel) -> _Opened:
        """What ``kernel`` is made of: the same as that of an earlier one that differs
        in where its operands lie."""
        late = {t: of for t, of in self.places.late.items() if t in kernel.inputs}
        layouts = {
            t: Layout(self.places.of[t].layout.strides)
            for t in kernel.inputs
            if t not in late
        }
        numbers = {} if late else self.numbers.read(kernel)
        key = None if late else key_of(kernel, layouts, numbers)
        if key is not None and key in self.opened:
            return self.opened[key]
        has_halves = any(t.dtype in HALF for t in kernel.inputs)
        halves = has_halves and gemm.is_better(self.host)
        pairs = halves and self.host.has_bfloat_pairs
        target = replace(self.target, halves=halves, pairs=pairs)
        made = pieces_of(kernel, target, layouts, late, numbers)
        pieces: list[tuple[Piece, float, tuple[int, ...]]] = []
        parts = [o for o in joined(made.pieces) if self._is_short(kernel, o)]
        for p in made.pieces:
            starts: tuple[int, ...] = ()
            if isinstance(p, Loops):
                check(p.nest)
                p = replace(p, nest=turned(p.nest, self.host))
                p, starts = from_start(p, parts)
            elif isinstance(p, Convolution):
                convolutions.check(p)
            elif isinstance(p, Factoring):
                factor_calls.check(p)
            elif isinstance(p, Product) and gemm.is_better(self.host):
                p = gemm.merged(p)
            pieces.append((p, seconds_of(p, self.host), starts))
        tables = [self.places.constant(t).memory for t in made.tables]
        inputs = {t: i for i, t in enumerate(kernel.term.args)}
        found = _Opened(made, pieces, inputs, tables)
        if key is not None:
            self.opened[key] = found
        return found

    def _is_short(self, kernel: Kernel, o: Operand) -> bool:
        """Whether a result is not written past caches, whole vectors at a time."""
        return bool(kernel.results[o.key].nbytes < STREAMED_BYTES)

    def _memory(self, kernel: Kernel, known: _Opened) -> Callable[[Operand], Memory]:
        first = len(self.temporaries)
        self.temporaries += [d.itemsize * n for d, n in known.made.temporaries]

        def where(o: Operand) -> Memory:
            if o.kind == "array":
                i = known.inputs.get(o.key)  # what a late one is made of has none
                term: Term = o.key if i is None else kernel.term.args[i]
                return self._start(term, o.dtype)
            if o.kind == "result":
                return self._start(kernel.results[o.key], o.dtype)
            if o.kind == "table":
                return known.tables[int(o.key)]
            if o.kind == "fault":
                return self.places.noted()
            return Memory(TEMPORARY, first + int(o.key))

        return where

    def _start(self, term: Term, dtype: DType) -> Memory:
        """Where the first element of a value lies, or a number in that dtype."""
        if term.op is SCALAR:
            key = term, dtype
            if key not in self._held:
                held = self.places.constant(np.array(term.attrs[0], dtype))
                self._held[key] = held.memory
            return self._held[key]
        place: Place = self.places.of[term]
        byte = place.memory.byte + place.layout.offset * dtype.itemsize
        return Memory(place.memory.buffer, byte)

    def _copy(self, program: Program, i: int) -> list[Group]:
        """A result that lies elsewhere, or in another order."""
        root = program.roots[i]
        if root.size == 0:
            return []
        out = Memory(self.places.first_output + i)
        source = self.places.of[root]
        loops = copy_of(root, source.layout, self.target)
        memory = tuple(
            source.memory if o.kind == "array" else out for o in loops.operands
        )
        return [Group((Step(loops, memory, seconds_of(loops, self.host)),))]

    def _with_memory(self, p: Loops, memory: Sequence[Memory]) -> Loops:
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
            and self._output_bytes(m) >= STREAMED_BYTES
        )
        if not shared and not streamed:
            return p
        key = id(p), shared, streamed
        if key not in self._placed:
            nest = replace(nest, aliased=shared, streamed=streamed)
            self._placed[key] = replace(p, nest=nest), p  # whose id stays its own
        return self._placed[key][0]

    def _output_bytes(self, m: Memory) -> int:
        roots = self.places.program.roots
        return roots[m.buffer - self.places.first_output].nbytes

    # -- panels ------------------------------------------------------------------------

    def _groups(self, steps: Sequence[Step]) -> Iterator[Group]:
        at = 0
        while at < len(steps):
            first = steps[at].piece
            end = at + 1
            if isinstance(first, Convolution):
                while end < len(steps) and self._follows(steps[at:end], steps[end]):
                    end += 1
                yield self._convolved(first, steps[at:end])
            elif not isinstance(first, Product):
                yield Group((steps[at],))
            else:
                alone = self._shares_columns(first)
                while (
                    not alone
                    and end < len(steps)
                    and self._follows(steps[at:end], steps[end])
                ):
                    end += 1
                inside = steps[at:end]
                outside = {m for s in (*steps[:at], *steps[end:]) for m in s.memory}
                own = {m for s in inside for m in s.memory if m.buffer == TEMPORARY}
                rows = first.rows
                private = tuple(
                    (m, self.temporaries[m.byte] // rows)
                    for m in sorted(own - outside, key=lambda m: m.byte)
                )
                reach = reach_of(
                    [(s.piece, s.memory) for s in inside],
                    {m for m, _ in private},
                    rows,
                )
                panel = self._panel(first, reach is not None)
                group = Group(tuple(inside), rows, panel, private, 1, reach)
                is_own = gemm.is_better(self.host)
                yield from self._planned(group) if is_own else [group]
            at = end

    def _convolved(self, p: Convolution, steps: Sequence[Step]) -> Group:
        """A convolution with what runs for the places of each part of it."""
        p, cut = convolutions.cut(p, self.host, self.threads)
        first, *rest = steps
        after = [with_range(s) for s in rest if isinstance(s.piece, Loops)]
        inside = (replace(first, piece=p, plan=cut.plan), *after)
        return Group(inside, p.rows, cut.rows, columns=cut.columns)

    def _panel(self, p: Product, is_masked: bool) -> int:
        m = p.sizes[0]
        sharing = 1 if self._shares_columns(p) else self.threads
        share = -(-m // max(sharing // max(prod(p.batch), 1), 1))
        parts = -(-share // (masks.PANEL_ROWS if is_masked else PANEL_ROWS))
        panel = -(-share // parts)
        if gemm.is_better(self.host):
            return padded(panel, gemm.height(panel, tile(self.host, p.dtype)))
        return panel

    def _shares_columns(self, p: Product) -> bool:
        """Whether threads share the columns of a product and not its rows, of which
        there are so few that the right operand would be read for little work."""
        m, n, _ = p.sizes
        if self.threads == 1 or not gemm.is_better(self.host):
            return False
        shape = tile(self.host, p.dtype)
        few = m <= gemm.EVEN * shape.rows * self.threads
        return few and not p.batch and gemm.parts_of(n, shape) >= self.threads

    def _planned(self, group: Group) -> Iterator[Group]:
        """The group with its products planned; what brings their right operands into
        panels comes before it."""
        steps = []
        for s in group.steps:
            if isinstance(s.piece, Product):
                s, before = self._product(s, group.panel)
                yield from before
            steps.append(s)
        columns = 1
        product = steps[0].piece
        if len(steps) == 1 and isinstance(product, Product):
            parts = group.rows // product.sizes[0] * -(-product.sizes[0] // group.panel)
            most = gemm.columns_of(product, steps[0].plan, self.host)
            columns = min(-(-self.threads // parts), most)
        reach = group.reach
        if reach is not None and reached(steps):
            steps[1] = with_range(steps[1])
        else:
            reach = None
        yield replace(group, steps=tuple(steps), columns=columns, reach=reach)

    def _product(self, step: Step, panel: int) -> tuple[Step, list[Group]]:
        p = step.piece
        assert isinstance(p, Product)
        if p.mapped is not None:
            return replace(step, plan=gemm.plan(p, self.host, panel, True)), []
        x, y, out = step.memory
        is_constant = y.buffer >= self.places.first_constant
        plan = gemm.plan(p, self.host, panel, is_constant)
        if plan.order != "done":
            return replace(step, plan=plan), []
        pairs = plan.kind == "pairs"
        panels = gemm.panels(p, self.host, pairs)
        of_panels = gemm.in_panels(p, self.host, pairs)
        if is_constant:
            pair = y.buffer, panels
            if pair not in self.panels:
                self.panels.append(pair)
            y = Memory(PANELS, self.panels.index(pair))
            return replace(step, piece=of_panels, memory=(x, y, out), plan=plan), []
        size = panels.elements * p.dtype.itemsize
        self.temporaries.append(size)
        packed_y = Memory(TEMPORARY, len(self.temporaries) - 1)
        packing = Step(Packing(p, panels), (y, packed_y), size / PACKED_PER_S)
        step = replace(step, piece=of_panels, memory=(x, packed_y, out), plan=plan)
        return step, [Group((packing,))]

    def _follows(self, before: Sequence[Step], step: Step) -> bool:
        """Whether ``step`` can run for the rows that those before it have computed."""
        product = before[0].piece
        assert isinstance(product, Contraction)
        made = {s.memory[-1]: s for s in before}
        made |= {
            m: s
            for s in before
            if isinstance(s.piece, Loops)
            for m, b in zip(s.memory, s.piece.nest.buffers, strict=True)
            if b.written
        }
        rows = product.rows
        piece = step.piece
        if isinstance(product, Convolution) and not (
            isinstance(piece, Loops) and convolutions.follows(product, piece.nest)
        ):
            return False
        if isinstance(piece, Product):
            x, *right, out = step.memory
            same = (piece.batch, piece.sizes[0]) == (product.batch, product.sizes[0])
            packed_x = piece.at[0].strides == _packed(piece, 0)
            return same and x in made and not made.keys() & {*right, out} and packed_x
        assert isinstance(piece, Loops)
        nest = piece.nest
        shared = nest.chunk is not None or nest.ordered
        if nest.vertical or shared or shape_of(nest, self.host).units % rows:
            return False
        return all(
            _is_row_by_row(piece.nest, i, rows)
            for i, m in enumerate(step.memory)
            if m in made or piece.nest.buffers[i].written
        )


def _packed(p: Product, which: int) -> tuple[int, ...]:
    m, n, k = p.sizes
    shape = (*p.batch, *((m, k), (k, n), (m, n))[which])
    return packed(shape)


def _is_row_by_row(nest: Nest, buffer: int, rows: int) -> bool:
    """Whether parts of the grid touch the parts of a buffer in the same order."""
    order = (*nest.grid, *max((p.loops for p in nest.passes), key=len))
    for s in nest.statements():
        if isinstance(s, Gather) and s.buffer == buffer:
            return False
        if not isinstance(s, (Load, Store)) or s.buffer != buffer:
            continue
        if not set(s.at.variables) <= set(order):
            return False
        if prod(v.size for v in nest.grid) % rows or s.at.offset:
            return False
        unit = 1
        for v in reversed([v for v in order if v in s.at.variables]):
            if s.at.coefficient(v) != unit:
                return False
            unit *= v.size
        lead = 1
        for v in nest.grid:
            if lead == rows:
                break
            if v not in s.at.variables:
                return False
            lead *= v.size
        if lead != rows:
            return False
    return True


def _shared(nest: Nest, memory: Sequence[Memory]) -> frozenset[int]:
    """Buffers of which some are written that are the same memory as others."""
    written = {m for m, b in zip(memory, nest.buffers, strict=True) if b.written}
    return frozenset(
        i
        for i, m in enumerate(memory)
        if m in written and sum(m == other for other in memory) > 1
    )
