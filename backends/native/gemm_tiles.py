"""Products of matrices, a tile at a time."""

from __future__ import annotations

from llvmlite import ir

from .access import PTR, loop
from .convert import I64, least, splat
from .gemm_base import Code
from .math.values import I32, declared

CHAIN = 256
"""Most products that are summed one after the other before the sum is added to the
result: errors grow with the length of such a chain."""


class Tiles(Code):
    """Writes ``tiles``."""

    def tiles(self, height: int, vectors: int) -> None:
        """``c[i, j] = Σ a[i, n] b[n, j]``, or added to ``c``, for ``rows`` by
        ``columns``: rows of ``a``, ``b`` and ``c`` are ``as``, ``bs`` and ``cs`` apart,
        and the tiles of ``b``, so many vectors wide, ``bt``. ``height`` rows are
        computed together."""
        a, a_s, b, bs, bt, c, cs, size, rows, columns, adds = self.function.args
        wide = vectors * self.lanes
        chunk = self._chunk(size)
        with loop(self.b, I64(0), columns, wide) as j:
            panel = self.at(b, self.times(self.b.sdiv(j, I64(wide)), bt))
            left = self.b.sub(columns, j)
            last = self.b.sub(left, I64(wide - self.lanes))
            with loop(self.b, I64(0), rows, height) as i:
                top = self.b.sub(self.b.sub(rows, i), I64(1))
                lines = self._rows(self.at(a, self.times(i, a_s)), a_s, height, top)
                place = self.at(c, self.times(i, cs), j)
                places = self._rows(place, cs, height, top)
                ahead = self._ahead(panel, bt, (top, height), size, vectors)
                with self.carried(I64(0), size, chunk, []) as n:
                    more = [self.at(line, n) for line in lines]
                    y = self.at(panel, self.times(n, bs))
                    count = least(self.b, chunk, self.b.sub(size, n))
                    ask = self.at(ahead, self.times(n, self.lanes))
                    sums = self._sums(more, y, bs, count, vectors, ask)
                    again = self.b.icmp_signed(">", n, I64(0))
                    again = self.b.or_(adds, again)
                    self._write(places, sums, vectors, last, again)
        self.b.ret_void()

    def _rows(
        self, first: ir.Value, apart: ir.Value, height: int, top: ir.Value
    ) -> list[ir.Value]:
        """Where rows start; past the last one, ``top``, it is that again: the same
        sums, stored twice."""
        rows = [first]
        for r in range(1, height):
            is_there = self.b.icmp_signed("<=", I64(r), top)
            step = self.b.select(is_there, apart, I64(0))
            rows.append(self.at(rows[-1], step))
        return rows

    def _chunk(self, size: ir.Value) -> ir.Value:
        """How many products are summed one after the other."""
        b = self.b
        parts = b.sdiv(b.add(size, I64(CHAIN - 1)), I64(CHAIN))
        return b.sdiv(b.add(size, b.sub(parts, I64(1))), parts)

    def _sums(
        self,
        lines: list[ir.Value],
        panel: ir.Value,
        step: ir.Value,
        size: ir.Value,
        vectors: int,
        ahead: ir.Value,
    ) -> list[ir.Value]:
        state = [self.zero] * (len(lines) * vectors) + [panel, ahead]
        fetch = declared(self.b, "llvm.prefetch.p0", [PTR, I32, I32, I32])
        with self.carried(I64(0), size, 1, state) as n:
            row, ask = state[-2:]
            self.b.call(fetch, [ask, *(I32(f) for f in (0, 2, 1))])
            y = [
                self.load(self.at(row, v * self.lanes), self.lanes)
                for v in range(vectors)
            ]
            for r, line in enumerate(lines):
                one = self.b.load(self.at(line, n), typ=self.kind)
                x = splat(self.b, one, self.lanes)
                for v in range(vectors):
                    at = r * vectors + v
                    state[at] = self.times_plus(x, y[v], state[at])
            state[-2:] = self.at(row, step), self.at(ask, self.lanes)
        return state[:-2]

    def _ahead(
        self,
        panel: ir.Value,
        apart: ir.Value,
        rows: tuple[ir.Value, int],
        size: ir.Value,
        vectors: int,
    ) -> ir.Value:
        """What the rows of a tile ask for while they run: the last ones for the next
        panel, which lies far away, a vector a turn."""
        b = self.b
        top, height = rows
        left = b.sdiv(top, I64(height))
        part = self.times(self.times(left, size), self.lanes)
        following = self.at(panel, apart, part)
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
        if self.host.vector_bits == 512:  # masks cost nothing
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
        b, mask = self.b, None
        if last is not None:
            ramp = ir.Constant(
                ir.VectorType(I64, self.lanes), [I64(n) for n in range(self.lanes)]
            )
            mask = b.icmp_signed("<", ramp, splat(b, last, self.lanes))
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
        more = [b.fadd(self._old(p, m), s) for (p, m), s in zip(at, sums, strict=True)]
        b.branch(put)
        b.position_at_end(put)
        values = [b.phi(self.vector) for _ in sums]
        for value, s, t in zip(values, sums, more, strict=True):
            value.add_incoming(s, before)
            value.add_incoming(t, old)
        for value, (p, m) in zip(values, at, strict=True):
            if m is None:
                self.store(value, p)
            else:
                name = f"llvm.masked.store.{self.mangled(self.vector)}.p0"
                kinds = [self.vector, PTR, I32, m.type]
                align = I32(self.dtype.itemsize)
                b.call(declared(b, name, kinds), [value, p, align, m])

    def _old(self, place: ir.Value, mask: ir.Value | None) -> ir.Value:
        if mask is None:
            return self.load(place, self.lanes)
        name = f"llvm.masked.load.{self.mangled(self.vector)}.p0"
        kinds = [PTR, I32, mask.type, self.vector]
        read = declared(self.b, name, kinds, self.vector)
        align = I32(self.dtype.itemsize)
        return self.b.call(read, [place, align, mask, self.zero])
