"""Calls of generated products in a program: of the functions of
:mod:`.function_names`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod

from llvmlite import ir

from ...loop_ir import (
    Contraction,
    DType,
    Mapped,
    Product,
)
from ..loops import loop
from ..machine import (
    ALIGNMENT,
    COMMON,
    I1,
    I64,
    Host,
    blas,
    least,
    memory_type,
    widened,
)
from ..math import declared
from . import gemm_plan
from .blas_calls import Calls
from .causal_columns import Reach
from .computed_operand import function_of
from .function_names import name_of, signature
from .gemm_plan import GemmPlan
from .tiles import Panels, padded, spans, tile

Values = Sequence[ir.Value]


Finish = Callable[[ir.Value, ir.Value, ir.Value, ir.Value], None]
"""Writes what follows for so many rows from the first on, from a column to the one
behind the last."""


@dataclass(frozen=True)
class ThreadPart:
    """What one thread computes at a time: rows of one matrix, and columns."""

    batch: ir.Value
    first: ir.Value
    """Row."""
    count: ir.Value
    """Rows."""
    column: ir.Value
    """Which part of the columns."""
    columns: int
    """How many such parts there are."""
    scratch: ir.Value
    """Memory of this thread alone."""
    width: ir.Value | None = None
    """Columns that are wanted, where that is known."""
    inner: ir.Value | None = None
    """How much of the inner axis counts, where that is known."""
    finish: Finish | None = None
    """What follows, where results are finished as soon as they are computed."""


class OwnCalls(Calls):
    """Products by generated code."""

    def __init__(self, b: ir.IRBuilder, module: ir.Module, host: Host) -> None:
        super().__init__(b, module)
        self.host = host
        self.names: set[str] = set()
        """Functions that are called."""
        self.mapped: dict[tuple[Mapped, str, int], ir.Function] = {}
        """Those of right operands that are computed."""

    def product(
        self, p: Product, how: GemmPlan, pointers: Values, part: ThreadPart
    ) -> None:
        """A part of a product."""
        x, *right, out = pointers
        x = self.element(p, 0, x, part.batch, part.first)
        out = self.element(p, 2, out, part.batch, part.first)
        if how.kind == "rows":
            self._few_rows(p, (x, *right, out), part)
            return
        if how.order == "deferred":
            self._deferred(p, how, (x, *right, out), part)
            return
        y = self.element(p, 1, right[0], part.batch)
        if how.kind in ("tiles", "pairs"):
            self._tiles(p, how, (x, y, out), part)
        elif how.is_column:
            self._by_column(p, how, (x, y, out), part)
        else:
            self._by_row(p, how, (x, y, out), part)

    def call(self, name: str, args: Sequence[ir.Value | int | bool]) -> None:
        self.names.add(name)
        given = [a if isinstance(a, ir.Value) else I64(a) for a in args]
        self.b.call(declared(self.b, name, signature(name)), given)

    def at(
        self, dtype: DType, pointer: ir.Value, *terms: tuple[ir.Value, int]
    ) -> ir.Value:
        """``pointer`` moved by a sum of elements."""
        for value, times in terms:
            by = self.b.mul(value, I64(times * dtype.itemsize))
            pointer = self.moved(pointer, by)
        return pointer

    # -- a matrix by a vector ----------------------------------------------------------

    def _by_column(
        self, p: Product, how: GemmPlan, pointers: Values, part: ThreadPart
    ) -> None:
        m, _, k = p.sizes
        x, y, out = pointers
        lead = blas.matrix(p.at[0], m, k).leading
        apart = p.at[2].strides[-2]
        asks = _asks(p, k, lead, COMMON.dot_rows, self.host)
        name = name_of(how.kind, p.dtype, asks)
        self.call(name, [x, lead, y, out, apart, k, part.count])

    def _by_row(
        self, p: Product, how: GemmPlan, pointers: Values, part: ThreadPart
    ) -> None:
        """Some columns; or a part of the rows of the matrix, with a sum of its own."""
        b, (_, n, k) = self.b, p.sizes
        x, y, out = pointers
        lead, step = blas.matrix(p.at[1], k, n).leading, p.at[0].strides[-1]
        is_line = how.kind == "line"
        rows = COMMON.line_rows if is_line else COMMON.dot_rows
        size: ir.Value = I64(k)
        if how.sums:
            each = padded(-(-k // how.sums), rows)
            low = b.mul(part.column, I64(each))
            size, count = least(b, b.sub(I64(k), low), each), I64(n)
            x, y = self.at(p.dtype, x, (low, step)), self.at(p.dtype, y, (low, lead))
            out, width = self.at(p.dtype, out, (part.column, n)), n
        else:
            each = padded(-(-n // part.columns), ALIGNMENT // p.dtype.itemsize)
            low = b.mul(part.column, I64(each))
            count = least(b, b.sub(I64(n), low), each)
            y = self.at(p.dtype, y, (low, 1 if is_line else lead))
            out, width = self.at(p.dtype, out, (low, 1)), min(each, n)
        asks = _asks(p, width if is_line else k, lead, rows, self.host)
        name = name_of(how.kind, p.dtype, asks)
        if is_line:
            self.call(name, [x, step, y, lead, out, size, count])
        else:
            self.call(name, [y, lead, x, out, 1, size, count])

    # -- right operands that are computed ----------------------------------------------

    def _mapped(self, p: Product, kind: str, height: int = 0) -> ir.Function:
        """The function of that kind for what ``p`` reads."""
        assert p.mapped is not None
        key = p.mapped, kind, height
        found = self.mapped.get(key)
        if found is None:
            name = f"{kind}{len(self.mapped)}"
            found = function_of(self.module, p.mapped, kind, name, self.host, height)
            self.mapped[key] = found
        return found

    def _few_rows(self, p: Product, pointers: Values, part: ThreadPart) -> None:
        """Few rows: each element of the right operand is computed once."""
        m, n, _ = p.sizes
        x, *leaves, out = pointers
        each = padded(-(-n // part.columns), gemm_plan.LINE)
        low = self.b.mul(part.column, I64(each))
        high = least(self.b, self.b.add(low, I64(each)), n)
        leads = (self._row_stride(p, which) for which in (0, 2))
        x_lead, out_lead = (I64(lead) for lead in leads)
        line = self._mapped(p, "line", m)
        self.b.call(line, [*leaves, x, x_lead, out, out_lead, low, high])

    def _row_stride(self, p: Product, which: int) -> int:
        """Elements from row to row of an operand."""
        return p.at[which].strides[-2] if p.sizes[0] > 1 else 0

    def _deferred(
        self, p: Product, how: GemmPlan, pointers: Values, part: ThreadPart
    ) -> None:
        """A panel at a time, part by part: computed, and multiplied."""
        b, n = self.b, p.sizes[1]
        x, *leaves, out = pointers
        lanes, lead = tile(self.host, p.dtype).lanes, self._row_stride(p, 2)
        panel = self.moved(part.scratch, how.bytes - gemm_plan.part_bytes(p, self.host))
        assert p.mapped is not None
        rows = len(p.mapped.rows)
        fill = self._mapped(p, "fill")
        ranges = list(self.ranges(p, part.column, part.columns))
        with self._blocks(p) as (start, size, adds):
            moves = gemm_plan.is_moved(p, self.host)
            a, apart = self._left_block(p, x, start, size, part, moves)
            blocks = [b.sdiv(i, I64(rows)) for i in (start, b.add(start, size))]
            for low, high, vectors in ranges:
                wide = vectors * lanes
                name = self._name(p, how, vectors)
                with loop(b, low, high, wide) as j:
                    end = least(b, b.add(j, I64(wide)), high)
                    self._clear_end(p, panel, wide, size, b.sub(end, j))
                    b.call(fill, [*leaves, panel, I64(wide), *blocks, j, end])
                    c = self.at(p.dtype, out, (j, 1))
                    args = [a, apart, panel, wide, 0, c, lead or n]
                    args += [size, part.count, b.sub(end, j), adds]
                    self.call(name, args)

    def _left_block(
        self,
        p: Product,
        x: ir.Value,
        start: ir.Value,
        size: ir.Value,
        part: ThreadPart,
        moves: bool,
    ) -> tuple[ir.Value, int]:
        """A block of the left operand as tiles read it, and what its rows are
        apart."""
        m, _, k = p.sizes
        of_x = blas.matrix(p.at[0], m, k)
        step = of_x.leading if of_x.is_transposed else 1
        a = self.at(p.x.dtype, x, (start, step))
        if not moves:
            return a, of_x.leading
        apart = gemm_plan.block_row(p, self.host)
        name = name_of(
            "turn" if of_x.is_transposed else "copy", p.dtype, p.x.dtype.name
        )
        args = [a, of_x.leading, part.scratch, apart, part.count, size]
        self.call(name, args)
        return part.scratch, apart

    # -- masks -------------------------------------------------------------------------

    def reach(
        self,
        of: Reach,
        pointers: tuple[ir.Value, ir.Value],
        batch: ir.Value,
        row: ir.Value,
        count: ir.Value,
    ) -> ir.Value:
        """Columns that rows from ``row`` on reach, of the memory of a mask and of
        values: whole vectors, or all where values of others are not finite."""
        b, p = self.b, of.product
        mask, values = pointers
        _, columns, size = p.sizes
        with b.goto_entry_block():
            limit = b.alloca(I64)
        b.store(I64(1), limit)
        with loop(b, I64(0), count, 1) as i:
            # The last rows first: mostly they reach farthest.
            r = b.sub(b.add(row, count), b.add(i, I64(1)))
            at = mask
            for v in reversed(of.grid):
                i, r = b.srem(r, I64(v.size)), b.sdiv(r, I64(v.size))
                at = self.moved(at, b.mul(i, I64(of.mask.at.coefficient(v))))
            at = self.moved(at, of.mask.at.offset)
            self.call(name_of("reach", p.dtype), [at, size, limit])
        values = self.element(p, 1, values, batch)
        apart = p.at[1].strides[-2]
        args = [values, apart, size, columns, limit]
        self.call(name_of("finite", p.dtype), args)
        lanes = tile(self.host, p.dtype).lanes
        whole = b.mul(
            b.sdiv(b.add(b.load(limit), I64(lanes - 1)), I64(lanes)), I64(lanes)
        )
        return least(b, whole, size)

    # -- tiles -------------------------------------------------------------------------

    def _tiles(
        self, p: Product, how: GemmPlan, pointers: Values, part: ThreadPart
    ) -> None:
        m, n, k = p.sizes
        x, y, out = pointers
        lead = p.at[2].strides[-2] if m > 1 else n
        ranges = list(self.ranges(p, part.column, part.columns))
        if how.order == "own":
            room = how.bytes - gemm_plan.panel_bytes(p, self.host)
            panels = self.moved(part.scratch, room)
            self._fill(p, y, panels, I64(0), 1)
            y = panels
        moves = gemm_plan.is_moved(p, self.host) and how.kind == "tiles"
        kind = p.y.dtype if how.kind == "pairs" else p.dtype
        with self._blocks(p, part.inner) as (start, size, adds):
            a, apart = self._left_block(p, x, start, size, part, moves)
            down = 1 if gemm_plan.is_turned(p, self.host) else apart
            for low, high, vectors in ranges:
                wide = vectors * tile(self.host, p.dtype).lanes
                if part.width is not None:
                    high = least(self.b, high, part.width)
                name = self._name(p, how, vectors)
                with self._row_blocks(p, how, part) as (row, rows):
                    if how.is_half:
                        place = self.b.add(part.first, row)
                        low = _from_diagonal(self.b, low, place, wide)
                    if how.order:
                        panel = self.at(kind, y, (low, k), (start, wide))
                        step, each = wide, wide * k
                    else:
                        step, each = blas.matrix(p.at[1], k, n).leading, wide
                        panel = self.at(p.dtype, y, (low, 1), (start, step))
                    c = self.at(p.dtype, out, (row, lead), (low, 1))
                    line = self.at(p.dtype if moves else p.x.dtype, a, (row, down))
                    args = [line, apart, panel, step, each, c, lead]
                    columns = self.b.sub(high, low)
                    self.call(name, [*args, size, rows, columns, adds])

    @contextmanager
    def _row_blocks(
        self, p: Product, how: GemmPlan, part: ThreadPart
    ) -> Iterator[tuple[ir.Value, ir.Value]]:
        """Rows of a part that have their first column in common, and how many."""
        if not how.is_half:
            yield I64(0), part.count
            return
        step = tile(self.host, p.dtype).columns
        with loop(self.b, I64(0), part.count, step) as row:
            yield row, least(self.b, self.b.sub(part.count, row), step)

    def _name(self, p: Product, how: GemmPlan, vectors: int) -> str:
        """The function of tiles so many vectors wide."""
        turned = "_turned" if gemm_plan.is_turned(p, self.host) else ""
        return name_of(how.kind, p.dtype, f"{how.height}x{vectors}{turned}")

    @contextmanager
    def _blocks(
        self, p: Product, most: ir.Value | None = None
    ) -> Iterator[tuple[ir.Value, ir.Value, ir.Value]]:
        """Blocks of the inner axis, or of the part of it that counts: where each
        starts, how long it is, and whether it is not the first."""
        k, step = p.sizes[2], gemm_plan.inner(p, self.host)
        end = I64(k) if most is None else most
        if step == k:
            yield I64(0), end, I1(0)
            return
        with loop(self.b, I64(0), end, step) as start:
            size = least(self.b, self.b.sub(end, start), step)
            yield start, size, self.b.icmp_signed(">", start, I64(0))

    def ranges(
        self, p: Contraction, part: ir.Value, parts: int
    ) -> Iterator[tuple[ir.Value, ir.Value, int]]:
        """The columns of a part, by widths of tiles: from, to, vectors."""
        b, n = self.b, p.sizes[1]
        shape = tile(self.host, p.dtype)
        whole = gemm_plan.parts_of(n, shape)
        every = spans(n, shape)
        if parts == 1:
            for s in every:
                yield I64(s.first), I64(s.first + s.columns), s.vectors
            return
        low = b.sdiv(b.mul(part, I64(whole)), I64(parts))
        high = b.sdiv(b.mul(b.add(part, I64(1)), I64(whole)), I64(parts))
        is_last = b.icmp_signed("==", part, I64(parts - 1))
        first, *rest = every
        low, high = (b.mul(i, I64(shape.columns)) for i in (low, high))
        yield low, least(b, high, first.columns), first.vectors
        for s in rest:
            end = b.select(is_last, I64(s.first + s.columns), I64(s.first))
            yield I64(s.first), end, s.vectors

    # -- panels ------------------------------------------------------------------------

    def pack(
        self, p: Product, of: Panels, unit: ir.Value, y: ir.Value, out: ir.Value
    ) -> None:
        """One of the units of :meth:`.gemm_plan.Packing.units`."""
        b = self.b
        batch, units = prod(of.kept), gemm_plan.units(p, self.host)
        which, unit = b.sdiv(unit, I64(units)), b.srem(unit, I64(units))
        out = self.at(p.dtype, out, (which, of.elements // batch))
        y = self.element(replace(p, batch=of.kept), 1, y, which)
        self._fill(p, y, out, unit, units)

    def _fill(
        self, p: Product, y: ir.Value, out: ir.Value, unit: ir.Value, units: int
    ) -> None:
        """A part of one right operand, or all of it, brought into panels."""
        b, k = self.b, p.sizes[2]
        lanes = tile(self.host, p.dtype).lanes
        of_y = blas.matrix(p.at[1], k, p.sizes[1])
        if of_y.is_transposed:
            name = name_of("turn", p.dtype, p.y.dtype.name)
            for low, high, vectors in self.ranges(p, unit, units):
                wide = vectors * lanes
                with loop(b, low, high, wide) as j:
                    x = self.at(p.y.dtype, y, (j, of_y.leading))
                    to = self.at(p.dtype, out, (j, k))
                    count = least(b, b.sub(high, j), wide)
                    self._clear_end(p, to, wide, I64(k), count)
                    self.call(name, [x, of_y.leading, to, wide, k, count])
            return
        name = name_of("copy", p.dtype, p.y.dtype.name)
        start, rows = I64(0), I64(k)
        if units > 1:
            start = b.mul(unit, I64(COMMON.copied_rows))
            rows = least(b, b.sub(rows, start), COMMON.copied_rows)
        for low, high, vectors in self.ranges(p, I64(0), 1):
            wide = vectors * lanes
            with loop(b, low, high, wide) as j:
                x = self.at(p.y.dtype, y, (start, of_y.leading), (j, 1))
                to = self.at(p.dtype, out, (j, k), (start, wide))
                count = least(b, b.sub(high, j), wide)
                self._clear_end(p, to, wide, rows, count)
                self.call(name, [x, of_y.leading, to, wide, rows, count])

    def _clear_end(
        self,
        p: Contraction,
        panel: ir.Value,
        wide: int,
        rows: ir.Value,
        count: ir.Value,
    ) -> None:
        """Write zeros into the last vector of each row of a panel, before its ``count``
        columns are written, if these do not fill it. Tiles multiply whole vectors: of
        what memory held, denormal numbers take an Intel processor 150 cycles each
        (1000×64 by 64×10: 0.1 to 2.8 ms, and 17 µs)."""
        b, lanes = self.b, tile(self.host, p.dtype).lanes
        if p.sizes[1] % lanes == 0:
            return
        zeros = ir.Constant(widened(memory_type(p.dtype), lanes), None)
        ends = b.icmp_signed("<", count, I64(wide))
        with b.if_then(ends), loop(b, I64(0), rows, 1) as r:
            start = b.add(b.mul(r, I64(wide)), I64(wide - lanes))
            to = self.at(p.dtype, panel, (start, 1))
            b.store(zeros, to, align=p.dtype.itemsize)


def _asks(p: Product, columns: int, lead: int, rows: int, host: Host) -> str:
    """How a matrix is asked for that a vector is multiplied by, ``rows`` of so many
    ``columns`` at a time, ``lead`` elements apart: ``dense`` where rows end soon and
    the next ones begin there, ``far`` where the processor does not foresee long ones,
    not at all where a second cache holds the matrix."""
    m, n, k = p.sizes
    size = p.dtype.itemsize
    if prod(p.batch) * max(m, n) * k * size <= COMMON.second_cache_bytes:
        return ""
    if lead == columns and rows * lead * size <= COMMON.ahead_bytes:
        return "dense"
    return "" if host.tuning.foresees_reads else "far"


def _from_diagonal(
    b: ir.IRBuilder, low: ir.Value, row: ir.Value, wide: int
) -> ir.Value:
    """The tile that has the diagonal in ``row``, or the one that starts at ``low``
    where that comes later."""
    more = b.mul(b.sdiv(b.sub(row, low), I64(wide)), I64(wide))
    return b.add(low, b.select(b.icmp_signed(">", more, I64(0)), more, I64(0)))
