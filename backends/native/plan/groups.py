"""Steps that run together, in parts of some rows that stay in cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from eqsat.kernels import packed

from ...loop_ir import (
    Contraction,
    Convolution,
    Factoring,
    Gather,
    Layout,
    Load,
    Loops,
    Nest,
    Network,
    Operand,
    Ordering,
    Piece,
    Product,
    Store,
)
from ..convolutions import conv_plan, kernel_lanes
from ..loops import shape_of
from ..machine import COMMON, Host, MemoryRef
from ..products import (
    GemmPlan,
    Mirroring,
    Packing,
    Panels,
    Reach,
    gemm_plan,
    padded,
    reach_of,
    symmetric,
    tile,
)
from .buffers import PANELS, TEMPORARY, Places
from .piece_kinds import kind_of, of_kind
from .planes import shared_planes


@dataclass(frozen=True)
class PlanStep:
    """A piece with the memory of its operands, and about how long it takes."""

    piece: Piece | Packing | Mirroring
    memory: tuple[MemoryRef, ...]
    seconds: float
    plan: GemmPlan | None = None
    """Of a product whose code is generated."""


@dataclass(frozen=True)
class Group:
    """Steps that run together, in parts of ``panel`` rows of the first one, a product
    or convolution, or of planes of nests; or a single nest, where there are no rows."""

    steps: tuple[PlanStep, ...]
    rows: int = 0
    panel: int = 0
    private: tuple[tuple[MemoryRef, int], ...] = ()
    """Memory that only this group uses, with the bytes of one row."""
    columns: int = 1
    """Parts of the columns of a product that nothing follows, or of a convolution."""
    reach: Reach | None = None
    """How far the rows of scores reach that a mask drops others of."""

    @property
    def seconds(self) -> float:
        return sum(s.seconds for s in self.steps)

    def units(self, host: Host) -> int:
        """Parts that threads can share."""
        first = self.steps[0].piece
        units = kind_of(first).units(first, host)
        if isinstance(first, Contraction):
            units *= -(-first.sizes[0] // self.panel) * self.columns
        elif self.rows:
            units = -(-self.rows // self.panel)
        return units


def with_range(step: PlanStep) -> PlanStep:
    """The step with a nest that is told which elements of a row are wanted. They start
    anywhere, so that no vector is known to be aligned, as stores past caches are."""
    assert isinstance(step.piece, Loops)
    nest = replace(step.piece.nest, ranged=True, streamed=frozenset())
    return replace(step, piece=replace(step.piece, nest=nest))


def reached(steps: Sequence[PlanStep]) -> bool:
    """Whether the products around a softmax can leave out columns."""
    plans = (s.plan for s in (steps[0], steps[2]))
    return all(
        p is not None and p.kind == "tiles" and p.order != "deferred" for p in plans
    )


Begun = tuple[int, Iterable[Group]]


class Grouping:
    """Finds the groups of steps."""

    def __init__(self, places: Places, host: Host, threads: int) -> None:
        self.places, self.host, self.threads = places, host, threads
        self.temporaries: list[int] = []
        """Bytes of memory between the pieces of kernels."""
        self.panels: list[tuple[int, Panels]] = []
        """Constants, by their pointers, and how they lie as right operands."""

    def _groups(self, steps: Sequence[PlanStep]) -> Iterator[Group]:
        at = 0
        while at < len(steps):
            begin = of_kind(_BEGINS, steps[at].piece)
            at, groups = begin(self, steps, at)
            yield from groups

    def _alone(self, steps: Sequence[PlanStep], at: int) -> Begun:
        return at + 1, [Group((steps[at],))]

    def _by_planes(self, steps: Sequence[PlanStep], at: int) -> Begun:
        """A nest with those after it that hand values on plane by plane."""
        if all(m.buffer != TEMPORARY for m in steps[at].memory):
            return self._alone(steps, at)
        nests: list[tuple[Loops, tuple[MemoryRef, ...]]] = []
        for s in steps[at:]:
            if not isinstance(s.piece, Loops):
                break
            nests.append((s.piece, s.memory))
        count, planes, sizes = shared_planes(nests, self.host, self.threads)
        end = at + count
        private = tuple(
            (m, sizes[m])
            for m in self._own(steps, at, end)
            if sizes.get(m, 0) * planes == self.temporaries[m.byte]
        )
        if not private:
            return self._alone(steps, at)
        room = COMMON.planes_bytes // sum(size for _, size in private)
        most = planes // (COMMON.least_planes * self.threads)
        panel = max(1, min(room, most))
        return end, [Group((*steps[at:end],), planes, panel, private)]

    def _own(self, steps: Sequence[PlanStep], at: int, end: int) -> Sequence[MemoryRef]:
        """The memory that only the steps from ``at`` to ``end`` use."""
        outside = {m for s in (*steps[:at], *steps[end:]) for m in s.memory}
        own = {m for s in steps[at:end] for m in s.memory if m.buffer == TEMPORARY}
        return sorted(own - outside, key=lambda m: m.byte)

    def _by_places(self, steps: Sequence[PlanStep], at: int) -> Begun:
        """A convolution with what follows it place by place."""
        first, end = steps[at].piece, self._end(steps, at)
        assert isinstance(first, Convolution)
        return end, [self._convolved(first, steps[at:end])]

    def _by_rows(self, steps: Sequence[PlanStep], at: int) -> Begun:
        """A product with what follows it row by row."""
        first = steps[at].piece
        assert isinstance(first, Product)
        end = at + 1 if self._shares_columns(first) else self._end(steps, at)
        if self._is_halved(steps[at], end > at + 1):
            return at + 1, self._halved(steps[at])
        inside = steps[at:end]
        rows = first.rows
        private = tuple(
            (m, self.temporaries[m.byte] // rows) for m in self._own(steps, at, end)
        )
        reach = reach_of(
            [(s.piece, s.memory) for s in inside], {m for m, _ in private}, rows
        )
        panel = self._panel(first, reach is not None)
        group = Group(tuple(inside), rows, panel, private, 1, reach)
        is_own = gemm_plan.is_better(self.host)
        return end, self._planned(group) if is_own else [group]

    def _is_halved(self, step: PlanStep, is_read: bool) -> bool:
        """Whether half of a symmetric product is computed."""
        p, (x, *right, _) = step.piece, step.memory
        assert isinstance(p, Product)
        own = gemm_plan.is_better(self.host) and symmetric.is_symmetric(p, x, right[0])
        return own and symmetric.is_halved(p, self.host, is_read)

    def _halved(self, step: PlanStep) -> Iterator[Group]:
        """A product up to its diagonal, then what is below that."""
        p = step.piece
        assert isinstance(p, Product)
        rows = p.sizes[0] if p.batch else tile(self.host, p.dtype).columns
        whole = Group((step,), p.rows, min(rows, p.sizes[0]))
        *before, group = self._planned(whole, is_own=True)
        yield from before
        (product,) = group.steps
        assert product.plan is not None
        plan = replace(product.plan, is_half=True)
        yield replace(group, steps=(replace(product, plan=plan),))
        mirroring = symmetric.Mirroring(p)
        seconds = kind_of(mirroring).seconds(mirroring, self.host)
        yield Group((PlanStep(mirroring, step.memory[-1:], seconds),))

    def _end(self, steps: Sequence[PlanStep], at: int) -> int:
        """Behind the steps that run with the one at ``at``."""
        end = at + 1
        while end < len(steps) and self._follows(steps[at:end], steps[end]):
            end += 1
        return end

    def _convolved(self, p: Convolution, steps: Sequence[PlanStep]) -> Group:
        """A convolution with what runs for the places of each part of it."""
        first, *rest = steps
        x, *others = first.memory
        is_constant = x.buffer >= self.places.first_constant
        is_finite = is_constant and any(p.window.padding)
        if is_finite and self.places.is_finite(x.buffer):
            p = replace(p, is_finite=True)
        of, cut = conv_plan.cut(p, self.host, self.threads, is_constant)
        if cut.plan.kind not in ("lanes", "channels"):
            of = replace(of, is_finite=False)
        if of.is_finite:
            self.places.finite.add(x.buffer)
        if cut.plan.kind == "lanes":
            x = self._in_panels(x, kernel_lanes.panels(p, self.host))
            first = replace(first, memory=(x, *others))
        after = [with_range(s) for s in rest if isinstance(s.piece, Loops)]
        inside = (replace(first, piece=of, plan=cut.plan), *after)
        return Group(inside, of.rows, cut.rows, columns=cut.columns)

    def _panel(self, p: Product, is_masked: bool) -> int:
        m = p.sizes[0]
        sharing = 1 if self._shares_columns(p) else self.threads
        share = -(-m // max(sharing // max(prod(p.batch), 1), 1))
        parts = -(-share // (COMMON.masked_rows if is_masked else COMMON.product_rows))
        panel = -(-share // parts)
        if gemm_plan.is_better(self.host):
            return padded(panel, gemm_plan.height(panel, tile(self.host, p.dtype)))
        return panel

    def _shares_columns(self, p: Product) -> bool:
        """Whether threads share the columns of a product and not its rows, of which
        there are so few that the right operand would be read for little work."""
        m, n, _ = p.sizes
        if self.threads == 1 or not gemm_plan.is_better(self.host):
            return False
        shape = tile(self.host, p.dtype)
        few = m <= COMMON.even_tiles * shape.rows * self.threads
        return few and not p.batch and gemm_plan.parts_of(n, shape) >= self.threads

    def _planned(self, group: Group, is_own: bool = False) -> Iterator[Group]:
        """The group with its products planned, but for those that are BLAS's unless all
        are ``is_own``; what brings their right operands into panels comes before it."""
        steps = []
        for s in group.steps:
            of_blas = not is_own and group.reach is None and self._is_of_blas(s)
            if isinstance(s.piece, Product) and not of_blas:
                s, before = self._product(s, group.panel)
                yield from before
            steps.append(s)
        columns = 1
        product, first = steps[0].piece, steps[0]
        if len(steps) == 1 and isinstance(product, Product):
            sums = gemm_plan.sums_of(product, first.plan, first.seconds, self.threads)
            if sums:
                yield from self._summed(replace(group, columns=sums), first, product)
                return
            parts = group.rows // product.sizes[0] * -(-product.sizes[0] // group.panel)
            most = gemm_plan.columns_of(product, steps[0].plan, self.host)
            columns = min(-(-self.threads // parts), most)
        reach = group.reach
        if reach is not None and reached(steps):
            steps[1] = with_range(steps[1])
        else:
            reach = None
        yield replace(group, steps=tuple(steps), columns=columns, reach=reach)

    def _summed(self, group: Group, step: PlanStep, p: Product) -> Iterator[Group]:
        """A product with a sum in each of its parts, and their sum: ones by these."""
        assert step.plan is not None
        parts, (_, n, _) = group.columns, p.sizes
        self.temporaries.append(parts * n * p.dtype.itemsize)
        number = len(self.temporaries) - 1
        *given, out = step.memory
        sums, of_sums = MemoryRef(TEMPORARY, number), Layout((n, 1))
        plan = replace(step.plan, sums=parts)
        partial = replace(p, batch=(), at=(p.at[0], p.at[1], of_sums))
        memory = (*given, sums)
        step = replace(step, piece=partial, memory=memory, plan=plan)
        yield replace(group, steps=(step,))
        ones = self.places.constant(np.ones(parts, p.dtype)).memory
        between = Operand("temporary", number, p.dtype)
        table = Operand("table", 0, p.dtype)
        at = Layout((parts, 1)), of_sums, p.at[2]
        join = Product(table, between, p.out, p.dtype, (1, n, parts), (), at)
        seconds = kind_of(join).seconds(join, self.host)
        plan = GemmPlan("line")
        join_step = PlanStep(join, (ones, sums, out), seconds, plan)
        yield Group((join_step,), 1, 1)

    def _is_of_blas(self, step: PlanStep) -> bool:
        """Whether BLAS computes a product."""
        if not isinstance(step.piece, Product):
            return False
        is_constant = step.memory[1].buffer >= self.places.first_constant
        return gemm_plan.is_of_blas(step.piece, self.host, is_constant)

    def _product(self, step: PlanStep, panel: int) -> tuple[PlanStep, list[Group]]:
        p = step.piece
        assert isinstance(p, Product)
        if p.mapped is not None:
            return replace(step, plan=gemm_plan.plan(p, self.host, panel, True)), []
        x, y, out = step.memory
        is_constant = y.buffer >= self.places.first_constant
        plan = gemm_plan.plan(p, self.host, panel, is_constant)
        if plan.order != "done":
            return replace(step, plan=plan), []
        pairs = plan.kind == "pairs"
        panels = gemm_plan.panels(p, self.host, pairs)
        of_panels = gemm_plan.in_panels(p, self.host, pairs)
        if is_constant:
            y = self._in_panels(y, panels)
            return replace(step, piece=of_panels, memory=(x, y, out), plan=plan), []
        size = panels.elements * p.dtype.itemsize
        self.temporaries.append(size)
        packed_y = MemoryRef(TEMPORARY, len(self.temporaries) - 1)
        packing = Packing(p, panels)
        seconds = kind_of(packing).seconds(packing, self.host)
        before = Group((PlanStep(packing, (y, packed_y), seconds),))
        step = replace(step, piece=of_panels, memory=(x, packed_y, out), plan=plan)
        return step, [before]

    def _in_panels(self, constant: MemoryRef, panels: Panels) -> MemoryRef:
        """Where a constant lies in panels."""
        pair = constant.buffer, panels
        if pair not in self.panels:
            self.panels.append(pair)
        return MemoryRef(PANELS, self.panels.index(pair))

    def _follows(self, before: Sequence[PlanStep], step: PlanStep) -> bool:
        """Whether ``step`` can run for the rows that those before it have computed."""
        first = before[0].piece
        assert isinstance(first, Contraction)
        made = {s.memory[-1] for s in before}
        made |= {
            m
            for s in before
            if isinstance(s.piece, Loops)
            for m, b in zip(s.memory, s.piece.nest.buffers, strict=True)
            if b.written
        }
        return of_kind(_FOLLOWS, step.piece)(self.host, first, made, step)


def _product_follows(
    host: Host, first: Contraction, made: Set[MemoryRef], step: PlanStep
) -> bool:
    """Whether a product multiplies the rows that are ``made``."""
    p, (x, *right, out) = step.piece, step.memory
    assert isinstance(p, Product)
    same = (p.batch, p.sizes[0]) == (first.batch, first.sizes[0])
    is_packed = p.at[0].strides == _packed(p, 0)
    in_order = same and x in made and not made & {*right, out} and is_packed
    return in_order and not isinstance(first, Convolution)


def _nest_follows(
    host: Host, first: Contraction, made: Set[MemoryRef], step: PlanStep
) -> bool:
    """Whether a nest has the rows of ``first``, or the places of a convolution."""
    assert isinstance(step.piece, Loops)
    nest = step.piece.nest
    if isinstance(first, Convolution) and not conv_plan.follows(first, nest):
        return False
    shared = nest.chunk is not None or nest.ordered
    if nest.vertical or shared or shape_of(nest, host).units % first.rows:
        return False
    return all(
        _is_row_by_row(nest, i, first.rows)
        for i, m in enumerate(step.memory)
        if m in made or nest.buffers[i].written
    )


def _never_follows(
    host: Host, first: Contraction, made: Set[MemoryRef], step: PlanStep
) -> bool:
    return False


_BEGINS: dict[type, Callable[[Grouping, Sequence[PlanStep], int], Begun]] = {
    Loops: Grouping._by_planes,
    Product: Grouping._by_rows,
    Convolution: Grouping._by_places,
    Factoring: Grouping._alone,
    Ordering: Grouping._alone,
    Network: Grouping._alone,
}
"""What a piece begins: where the next group begins, and the groups until then."""
_FOLLOWS: dict[type, Callable[[Host, Contraction, Set[MemoryRef], PlanStep], bool]] = {
    Loops: _nest_follows,
    Product: _product_follows,
    Convolution: _never_follows,
    Factoring: _never_follows,
    Ordering: _never_follows,
    Network: _never_follows,
}
"""Whether a piece runs with a product or a convolution before it."""


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
