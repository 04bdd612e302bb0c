"""Steps that run together, in parts of some rows that stay in cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from eqsat.kernels import packed

from ...loop_ir import (
    Contraction,
    Convolution,
    Gather,
    Load,
    Loops,
    Nest,
    Piece,
    Product,
    Store,
)
from ..convolutions import conv_plan
from ..loops import shape_of
from ..machine import Host, MemoryRef
from ..products import (
    GemmPlan,
    Packing,
    Panels,
    Reach,
    causal_columns,
    gemm_plan,
    padded,
    reach_of,
    tile,
)
from .buffers import Places

TEMPORARY, PANELS = -2, -3
"""Buffer numbers of memory between the pieces of a kernel, and of constants that are
right operands of products, in panels."""
PACKED_PER_S = 1e10
"""Bytes that one core brings into panels."""
PANEL_ROWS = 192
"""Rows of a product that are multiplied at once, and stay in cache for what follows."""


@dataclass(frozen=True)
class PlanStep:
    """A piece with the memory of its operands, and about how long it takes."""

    piece: Piece | Packing
    memory: tuple[MemoryRef, ...]
    seconds: float
    plan: GemmPlan | None = None
    """Of a product whose code is generated."""


@dataclass(frozen=True)
class Group:
    """Steps that run together, in parts of ``panel`` rows of the first one, a product
    or convolution; or a single nest, where there are no rows."""

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


def with_range(step: PlanStep) -> PlanStep:
    """The step with a nest that is told which elements of a row are wanted. They start
    anywhere, so that no vector is known to be aligned, as stores past caches are."""
    assert isinstance(step.piece, Loops)
    nest = replace(step.piece.nest, ranged=True, streamed=frozenset())
    return replace(step, piece=replace(step.piece, nest=nest))


def reached(steps: Sequence[PlanStep]) -> bool:
    """Whether the products around a softmax can leave out columns."""
    plans = (s.plan for s in (steps[0], steps[2]))
    return all(p is not None and p.kind == "tiles" and p.order != "late" for p in plans)


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
                is_own = gemm_plan.is_better(self.host)
                yield from self._planned(group) if is_own else [group]
            at = end

    def _convolved(self, p: Convolution, steps: Sequence[PlanStep]) -> Group:
        """A convolution with what runs for the places of each part of it."""
        p, cut = conv_plan.cut(p, self.host, self.threads)
        first, *rest = steps
        after = [with_range(s) for s in rest if isinstance(s.piece, Loops)]
        inside = (replace(first, piece=p, plan=cut.plan), *after)
        return Group(inside, p.rows, cut.rows, columns=cut.columns)

    def _panel(self, p: Product, is_masked: bool) -> int:
        m = p.sizes[0]
        sharing = 1 if self._shares_columns(p) else self.threads
        share = -(-m // max(sharing // max(prod(p.batch), 1), 1))
        parts = -(-share // (causal_columns.PANEL_ROWS if is_masked else PANEL_ROWS))
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
        few = m <= gemm_plan.EVEN * shape.rows * self.threads
        return few and not p.batch and gemm_plan.parts_of(n, shape) >= self.threads

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
            most = gemm_plan.columns_of(product, steps[0].plan, self.host)
            columns = min(-(-self.threads // parts), most)
        reach = group.reach
        if reach is not None and reached(steps):
            steps[1] = with_range(steps[1])
        else:
            reach = None
        yield replace(group, steps=tuple(steps), columns=columns, reach=reach)

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
            pair = y.buffer, panels
            if pair not in self.panels:
                self.panels.append(pair)
            y = MemoryRef(PANELS, self.panels.index(pair))
            return replace(step, piece=of_panels, memory=(x, y, out), plan=plan), []
        size = panels.elements * p.dtype.itemsize
        self.temporaries.append(size)
        packed_y = MemoryRef(TEMPORARY, len(self.temporaries) - 1)
        packing = PlanStep(Packing(p, panels), (y, packed_y), size / PACKED_PER_S)
        step = replace(step, piece=of_panels, memory=(x, packed_y, out), plan=plan)
        return step, [Group((packing,))]

    def _follows(self, before: Sequence[PlanStep], step: PlanStep) -> bool:
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
            isinstance(piece, Loops) and conv_plan.follows(product, piece.nest)
        ):
            return False
        if isinstance(piece, Product):
            x, *right, out = step.memory
            same = (piece.batch, piece.sizes[0]) == (product.batch, product.sizes[0])
            packed_x = piece.at[0].strides == _packed(piece, 0)
            return same and x in made and not made.keys() & {*right, out} and packed_x
        if not isinstance(piece, Loops):
            return False
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
