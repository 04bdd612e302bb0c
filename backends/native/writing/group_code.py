"""What one thread does of a group of steps: each kind of piece in its way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from llvmlite import ir

from ...loop_ir import (
    Contraction,
    Convolution,
    Factoring,
    Loops,
    Nest,
    Network,
    Ordering,
    Product,
)
from ..convolutions import (
    ChannelCalls,
    ImageBlocks,
    ImageCalls,
    LaneCalls,
    LargeKernelCalls,
)
from ..factors import Decompositions, lanes_of, write_matrices
from ..loops import alike, emit_nest, loop, runs, shape_of, sweep_direction
from ..machine import I64, MemoryRef
from ..math import declared
from ..plan import Group, PlanStep, of_kind
from ..products import (
    BlasCalls,
    Mirroring,
    OwnCalls,
    Packing,
    ThreadPart,
    Values,
    mirror,
)
from ..sorting import library_sorts, sort_networks
from .frame import ModuleCode
from .pointers import Pointers

Kernels = dict[Nest, tuple[str, Nest]]
"""Names of the functions of nests, and the first nest of each, by what nests with the
same code have in common."""
Span = tuple[ir.Value, ir.Value]
"""Units from the first to the one behind the last."""


@dataclass(frozen=True)
class RowPanel:
    """A panel of rows, which all steps of a group compute in turn."""

    rows: int
    """Of all panels."""
    first: ir.Value
    """Row of all matrices."""
    where: ThreadPart
    private: Mapping[MemoryRef, ir.Value]
    wanted: tuple[ir.Value, ...]
    """Which elements of a row nests compute, where they are told."""
    parts: Mapping[int, ThreadPart]
    """Of steps that compute a part of the panel, by their positions."""
    followers: Sequence[PlanStep]
    """What runs for what a convolution has computed, as soon as it has."""


class GroupCode:
    """Writes groups where ``code`` stands. ``kernels``: what functions of nests the
    program has already."""

    def __init__(self, code: ModuleCode, pointers: Pointers, kernels: Kernels) -> None:
        self.code, self.b, self.pointers = code, code.b, pointers
        self.kernels = kernels
        self.nests = code.module
        """The module that functions of nests are written into."""
        self.blas = BlasCalls(code.b, code.module)
        self.factors = Decompositions(code.b, code.module)
        self.own = OwnCalls(code.b, code.module, code.host)
        self.images = ImageCalls(self.own)
        self.lanes = LaneCalls(self.images)
        self.channels = ChannelCalls(self.lanes)
        self.large_kernels = LargeKernelCalls(self.own)

    def write(self, g: Group, span: Span, units: int) -> None:
        """Some units of a group; a sweep takes so many ``units`` at once."""
        of_kind(_SHARES, g.steps[0].piece)(self, g, span, units)

    # -- pieces that run alone ---------------------------------------------------------

    def _nest(self, g: Group, span: Span, units: int) -> None:
        if g.rows:
            self._panels(g, span, units)
            return
        (step,) = g.steps
        assert isinstance(step.piece, Loops)
        nest, memory = step.piece.nest, self._memory(step)
        if not units and runs(nest, self.code.host):
            self._call(replace(nest, ranged=True), memory, I64(0), I64(1), *span)
            return
        call = partial(self._call, nest, memory)
        back = self.code.frame.back
        if not units or back is None:
            call(*span)
        else:
            sweep_direction.in_slices(self.b, units, span, back, call)

    def _network(self, g: Group, span: Span, units: int) -> None:
        (step,) = g.steps
        assert isinstance(step.piece, Network)
        x, out = self._memory(step)
        sort_networks.emit(self.b, step.piece, self.code.host, x, out, *span)

    def _ordering(self, g: Group, span: Span, units: int) -> None:
        (step,) = g.steps
        assert isinstance(step.piece, Ordering)
        memory = self._memory(step)
        self.own.names.add(library_sorts.name_of(step.piece))
        library_sorts.emit(self.b, step.piece, memory, *span)

    def _packing(self, g: Group, span: Span, units: int) -> None:
        (step,) = g.steps
        of = step.piece
        assert isinstance(of, Packing)
        with loop(self.b, *span, 1) as part:
            self.own.pack(of.product, of.panels, part, *self._memory(step))

    def _mirroring(self, g: Group, span: Span, units: int) -> None:
        (step,) = g.steps
        assert isinstance(step.piece, Mirroring)
        (out,) = self._memory(step)
        with loop(self.b, *span, 1) as part:
            mirror(self.own, step.piece, part, out)

    def _factoring(self, g: Group, span: Span, units: int) -> None:
        (step,) = g.steps
        p = step.piece
        assert isinstance(p, Factoring)
        write = self.factors.matrix
        if lanes_of(p, self.code.host):
            write = partial(write_matrices, self.b, self.code.host)
        with loop(self.b, *span, 1) as part:
            write(p, self._memory(step), part, self.pointers.of_thread())

    # -- panels of rows, or of planes --------------------------------------------------

    def _panels(self, g: Group, span: Span, units: int) -> None:
        with loop(self.b, *span, 1) as number:
            panel = self._panel(g, number)
            for i, s in enumerate(g.steps[: len(g.steps) - len(panel.followers)]):
                part = panel.parts.get(i, panel.where)
                self._step(s, part, panel)

    def _panel(self, g: Group, part: ir.Value) -> RowPanel:
        """Which rows, or planes, a part has."""
        b, (step, *others) = self.b, g.steps
        piece = step.piece
        m = piece.sizes[0] if isinstance(piece, Contraction) else g.rows
        panels = -(-m // g.panel)
        part, column = b.sdiv(part, I64(g.columns)), b.srem(part, I64(g.columns))
        batch, first = b.sdiv(part, I64(panels)), b.srem(part, I64(panels))
        first = b.mul(first, I64(g.panel))
        count: ir.Value = I64(g.panel)
        if m % g.panel:
            rest = b.sub(I64(m), first)
            count = b.select(b.icmp_signed("<", rest, count), rest, count)
        row = b.add(b.mul(batch, I64(m)), first)
        private = self.pointers.private(g, row)
        scratch = self.pointers.of_thread()
        where = ThreadPart(batch, first, count, column, g.columns, scratch)
        wanted: tuple[ir.Value, ...] = ()
        parts = dict[int, ThreadPart]()
        if g.reach is not None:
            of = self.pointers.of(g.reach.memory), self.pointers.of(g.reach.values)
            reach = self.own.reach(g.reach, of, batch, row, count)
            wanted = I64(0), reach
            parts = {0: replace(where, width=reach), 2: replace(where, inner=reach)}
        followers = others if isinstance(piece, Convolution) else ()
        return RowPanel(g.rows, row, where, private, wanted, parts, followers)

    def _step(self, s: PlanStep, part: ThreadPart, panel: RowPanel) -> None:
        private = panel.private
        memory = [private.get(m) or self.pointers.of(m) for m in s.memory]
        of_kind(_IN_PANELS, s.piece)(self, s, memory, part, panel)

    def _nest_rows(
        self, s: PlanStep, memory: Values, part: ThreadPart, panel: RowPanel
    ) -> None:
        assert isinstance(s.piece, Loops)
        b, nest = self.b, s.piece.nest
        units = shape_of(nest, self.code.host).units // panel.rows
        start = b.mul(panel.first, I64(units))
        stop = b.mul(b.add(panel.first, panel.where.count), I64(units))
        self._call(nest, memory, start, stop, *(panel.wanted if nest.ranged else ()))

    def _product_rows(
        self, s: PlanStep, memory: Values, part: ThreadPart, panel: RowPanel
    ) -> None:
        assert isinstance(s.piece, Product)
        if s.plan is None:
            self.blas.product(s.piece, memory, part.batch, part.first, part.count)
            return
        self.own.product(s.piece, s.plan, memory, part)

    def _convolution_rows(
        self, s: PlanStep, memory: Values, part: ThreadPart, panel: RowPanel
    ) -> None:
        assert isinstance(s.piece, Convolution) and s.plan is not None
        if panel.followers:
            part = replace(part, finish=partial(self._finish, panel))
        if isinstance(s.piece, ImageBlocks):
            self.large_kernels.write(s.piece, s.plan, memory, part)
        elif s.plan.kind == "lanes":
            self.lanes.write(s.piece, s.plan, memory, part)
        elif s.plan.kind == "channels":
            self.channels.write(s.piece, s.plan, memory, part)
        else:
            self.images.write(s.piece, s.plan, memory, part)

    def _finish(
        self,
        panel: RowPanel,
        row: ir.Value,
        count: ir.Value,
        low: ir.Value,
        high: ir.Value,
    ) -> None:
        """What follows a convolution, for some of the rows of a matrix."""
        first = self.b.add(self.b.sub(panel.first, panel.where.first), row)
        where = replace(panel.where, first=row, count=count)
        some = replace(panel, first=first, where=where, wanted=(low, high))
        for s in panel.followers:
            self._step(s, where, some)

    # -- operands, calls ---------------------------------------------------------------

    def _memory(self, step: PlanStep) -> list[ir.Value]:
        return [self.pointers.of(m) for m in step.memory]

    def _call(self, nest: Nest, memory: Sequence[ir.Value], *ranges: ir.Value) -> None:
        key = alike(nest, self.code.host)
        if key not in self.kernels:
            self.kernels[key] = f"kernel{len(self.kernels)}", nest
            emit_nest(self.nests, nest, self.kernels[key][0], self.code.host)
        name, _ = self.kernels[key]
        args = [*memory, self.pointers.of_thread(), *ranges]
        self.b.call(declared(self.b, name, [a.type for a in args]), args)


_SHARES: dict[type, Callable[[GroupCode, Group, Span, int], None]] = {
    Loops: GroupCode._nest,
    Network: GroupCode._network,
    Ordering: GroupCode._ordering,
    Packing: GroupCode._packing,
    Mirroring: GroupCode._mirroring,
    Factoring: GroupCode._factoring,
    Contraction: GroupCode._panels,
}
"""How some units of a group are written, by its first piece."""
_IN_PANELS: dict[
    type,
    Callable[[GroupCode, PlanStep, Sequence[ir.Value], ThreadPart, RowPanel], None],
] = {
    Loops: GroupCode._nest_rows,
    Product: GroupCode._product_rows,
    Convolution: GroupCode._convolution_rows,
}
"""How a step of a group is written for the rows of a panel."""
