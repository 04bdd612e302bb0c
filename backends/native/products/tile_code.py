"""Products of matrices, a tile at a time."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ..loops import PTR, loop
from ..machine import I64, least, splat, widened
from ..math import I32, declared
from .gemm_code_base import FunctionCode
from .tiles import CHAIN


class Tiles(FunctionCode):
    """Writes ``tiles``."""

    pace = 1
    """Rows of ``b`` that are multiplied at once."""

    @property
    def element(self) -> Any:
        """The type of an element of ``a`` and ``b`` in memory."""
        return self.kind

    def tiles(self, height: int, vectors: int, turned: bool = False) -> None:
        """``c[i, j] = Σ a[i, n] b[n, j]``, or added to ``c``, for ``rows`` by
        ``columns``: rows of ``a``, ``b`` and ``c`` are ``as``, ``bs`` and ``cs`` apart,
        and the tiles of ``b``, so many vectors wide, ``bt``. ``height`` rows are
        computed together. Of an ``a`` that is ``turned``, columns are ``as`` apart, and
        their elements side by side."""
        a, a_s, b, bs, bt, c, cs, size, rows, columns, adds = self.function.args
        wide = vectors * self.lanes
        chunk = self._chunk(size)
        with loop(self.b, I64(0), columns, wide) as j:
            apart = self.times(self.b.sdiv(j, I64(wide)), bt)
            panel = self.at(b, apart, kind=self.element)
            left = self.b.sub(columns, j)
            last = self.b.sub(left, I64(wide - self.lanes))
            is_last = self.b.icmp_signed("<=", left, I64(wide))
            next_panel = self.b.select(is_last, I64(0), bt)
            with loop(self.b, I64(0), rows, height) as i:
                top = self.b.sub(self.b.sub(rows, i), I64(1))
                apart, along = (I64(1), a_s) if turned else (a_s, I64(1))
                line = self.at(a, self.times(i, apart), kind=self.element)
                lines = self._rows(line, apart, height, top, self.element)
                place = self.at(c, self.times(i, cs), j)
                places = self._rows(place, cs, height, top, self.kind)
                prefetched = self._prefetch_address(
                    panel, next_panel, (top, height), size, vectors
                )
                below = self.at(line, self.times(apart, height), kind=self.element)
                with self.carried(I64(0), size, chunk, []) as n:
                    start = self.times(n, along)
                    more = [self.at(line, start, kind=self.element) for line in lines]
                    rows_below = self.at(below, n, kind=self.element), apart
                    y = self.at(panel, self.times(n, bs), kind=self.element)
                    count = least(self.b, chunk, self.b.sub(size, n))
                    ask = self.at(
                        prefetched, self.times(n, self.lanes), kind=self.element
                    )
                    steps = bs, along
                    sums = self._sums(more, y, steps, count, vectors, ask, rows_below)
                    again = self.b.icmp_signed(">", n, I64(0))
                    again = self.b.or_(adds, again)
                    self._write(places, sums, vectors, last, again)
        self.b.ret_void()

    def _rows(
        self,
        first: ir.Value,
        apart: ir.Value,
        height: int,
        top: ir.Value,
        kind: Any,
    ) -> list[ir.Value]:
        """Where rows start; past the last one, ``top``, it is that again: the same
        sums, stored twice."""
        rows = [first]
        for r in range(1, height):
            is_there = self.b.icmp_signed("<=", I64(r), top)
            step = self.b.select(is_there, apart, I64(0))
            rows.append(self.at(rows[-1], step, kind=kind))
        return rows

    def _chunk(self, size: ir.Value) -> ir.Value:
        """How many products are summed one after the other."""
        b = self.b
        parts = b.sdiv(b.add(size, I64(CHAIN - 1)), I64(CHAIN))
        each = b.sdiv(b.add(size, b.sub(parts, I64(1))), parts)
        if self.pace == 1:
            return each
        return self.times(b.sdiv(b.add(each, I64(1)), I64(2)), 2)

    def _sums(
        self,
        lines: list[ir.Value],
        panel: ir.Value,
        steps: tuple[ir.Value, ir.Value],
        size: ir.Value,
        vectors: int,
        prefetched: ir.Value,
        below: tuple[ir.Value, ir.Value],
    ) -> list[ir.Value]:
        """The sums of a tile. While they run, it asks for memory: a vector a turn from
        ``prefetched`` on, and the rows ``below``, which the next tile reads. These may
        be far away, and processors foresee few rows at once. ``steps``: from row to row
        of the panel, and along each of the lines."""
        step, along = steps
        state = [self.zero] * (len(lines) * vectors) + [panel, prefetched]
        turns = self.tile.turns
        whole = self.whole(size, turns * self.pace)
        with self.looped(I64(0), whole, turns * self.pace, state) as n:
            self._ask(state[-1], self._below(below, n, len(lines)))
            for t in range(turns):
                at = self.b.add(n, I64(t * self.pace))
                self._turn(lines, state, step, self.times(at, along), vectors)
        if turns > 1:
            with self.looped(whole, size, self.pace, state) as n:
                self._turn(lines, state, step, self.times(n, along), vectors)
        return state[:-2]

    def _ask(self, *places: ir.Value) -> None:
        fetch = declared(self.b, "llvm.prefetch.p0", [PTR, I32, I32, I32])
        for place in places:
            self.b.call(fetch, [place, *(I32(f) for f in (0, 2, 1))])

    def _turn(
        self,
        lines: list[ir.Value],
        state: list[ir.Value],
        step: ir.Value,
        by: ir.Value,
        vectors: int,
    ) -> None:
        """One row of the panel, multiplied by an element of each line."""
        row = state[-2]
        y = [self._several(row, v) for v in range(vectors)]
        for r, line in enumerate(lines):
            x = self._one(self.at(line, by, kind=self.element))
            for v in range(vectors):
                at = r * vectors + v
                state[at] = self._added(x, y[v], state[at])
        moves = self.times(step, self.pace), I64(self.lanes * self.pace)
        state[-2:] = (
            self.at(p, s, kind=self.element)
            for p, s in zip(state[-2:], moves, strict=True)
        )

    def _below(
        self, rows: tuple[ir.Value, ir.Value], n: ir.Value, height: int
    ) -> ir.Value:
        """What turn ``n`` asks for of so many rows, or a power of 2 that is not less:
        each in turn, so that in all turns each is asked for whole."""
        b, (first, apart) = self.b, rows
        most = (1 << (height - 1).bit_length()) - 1
        row = b.and_(b.sdiv(n, I64(self.tile.turns)), I64(most))
        along = b.sub(n, self.times(row, self.tile.turns))
        return self.at(first, b.mul(row, apart), along, kind=self.element)

    def _several(self, row: ir.Value, v: int) -> ir.Value:
        """A vector of a row of ``b``."""
        return self.load(self.at(row, v * self.lanes), self.lanes)

    def _one(self, place: ir.Value) -> ir.Value:
        """An element of ``a`` in each lane."""
        return splat(self.b, self.b.load(place, typ=self.kind), self.lanes)

    def _added(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        return self.times_plus(x, y, z)

    def _prefetch_address(
        self,
        panel: ir.Value,
        apart: ir.Value,
        rows: tuple[ir.Value, int],
        size: ir.Value,
        vectors: int,
    ) -> ir.Value:
        """What the rows of a tile ask for while they run: the last ones for the next
        panel, which lies far away, a vector a turn; those of the last one for itself,
        since other threads may write what comes after it."""
        b = self.b
        top, height = rows
        left = b.sdiv(top, I64(height))
        part = self.times(self.times(left, size), self.lanes)
        following = self.at(panel, apart, part, kind=self.element)
        return b.select(b.icmp_signed("<", left, I64(vectors)), following, panel)

    def _write(
        self,
        places: list[ir.Value],
        sums: list[ir.Value],
        vectors: int,
        last: ir.Value,
        adds: ir.Value,
    ) -> None:
        """Store a tile, of whose last vectors only so many lanes are."""
        if self.masks:
            self._put(places, sums, vectors, last, adds)
            return
        whole = self.b.icmp_signed(">=", last, I64(self.lanes))
        with self.b.if_else(whole) as (then, otherwise):
            with then:
                self._put(places, sums, vectors, None, adds)
            with otherwise:
                self._put(places, sums, vectors, last, adds)

    def _put(
        self,
        places: list[ir.Value],
        sums: list[ir.Value],
        vectors: int,
        last: ir.Value | None,
        adds: ir.Value,
    ) -> None:
        b = self.b
        mask = None if last is None else self.first(last)
        masks = [None] * (vectors - 1) + [mask]
        at = [
            (self.at(p, v * self.lanes), masks[v])
            for p in places
            for v in range(vectors)
        ]
        before = b.block
        old, put = b.append_basic_block("old"), b.append_basic_block("put")
        b.cbranch(adds, old, put)
        b.position_at_end(old)
        more = [
            b.fadd(self.load(p, self.lanes, m), s)
            for (p, m), s in zip(at, sums, strict=True)
        ]
        b.branch(put)
        b.position_at_end(put)
        values = [b.phi(self.vector) for _ in sums]
        for value, s, t in zip(values, sums, more, strict=True):
            value.add_incoming(s, before)
            value.add_incoming(t, old)
        for value, (p, m) in zip(values, at, strict=True):
            self.store(value, p, m)


class _BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which only one instruction takes."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


class Pairs(Tiles):
    """Writes ``tiles`` of bfloat16, two neighbours of an inner axis at once: their
    products are exact, and summed in float32. Denormals count as 0."""

    pace = 2

    @property
    def element(self) -> Any:
        return ir.IntType(16)

    def _several(self, row: ir.Value, v: int) -> ir.Value:
        place = self.at(row, 2 * v * self.lanes, kind=self.element)
        return self.b.load(place, typ=widened(I32, self.lanes), align=2)

    def _one(self, place: ir.Value) -> ir.Value:
        return splat(self.b, self.b.load(place, typ=I32, align=2), self.lanes)

    def _added(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        pairs = ir.VectorType(_BFloat(), 2 * self.lanes)
        bits = 32 * self.lanes
        name = f"llvm.x86.avx512bf16.dpbf16ps.{bits}"
        added = declared(self.b, name, [self.vector, pairs, pairs], self.vector)
        x, y = (self.b.bitcast(v, pairs) for v in (x, y))
        return self.b.call(added, [z, x, y])
