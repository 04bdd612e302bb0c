"""LLVM IR of the functions that products are made of, one module a function.

A *tile* is the rows by vectors of a result that registers hold. ``tiles`` multiplies
rows by columns that lie tile after tile, ``line`` and ``dots`` multiply a matrix by a
vector, ``copy`` and ``turn`` bring matrices into the order that these read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir

from ..kernels.language import DType
from .access import PTR, loop
from .convert import (
    I1,
    I64,
    constant,
    from_memory,
    memory_type,
    register_type,
    splat,
    widened,
)
from .machine import Host
from .math.values import I32, VOID, declared
from .tiles import tile

CHAIN = 256
"""Most products that are summed one after the other before the sum is added to the
result: errors grow with the length of such a chain."""
AT_ONCE = 8
"""Rows of a matrix that ``line`` adds in one go."""
STRETCH_BYTES = 1 << 14
"""What ``line`` keeps of its result in the first cache, and reads of each row: 82 GB/s
where 4096 bytes give 47."""
DOTS = 4
"""Rows that ``dots`` multiplies side by side."""


TILES = (PTR, I64, PTR, I64, I64, PTR, I64, I64, I64, I64, I1)
LINE = (PTR, I64, PTR, I64, PTR, I64, I64)
DOTTED = (PTR, I64, PTR, PTR, I64, I64, I64)
MOVED = (PTR, I64, PTR, I64, I64, I64)
SIGNATURES = {"tiles": TILES, "line": LINE, "dots": DOTTED, "copy": MOVED}
SIGNATURES["turn"] = MOVED


def name_of(kind: str, dtype: DType, detail: object = "") -> str:
    """What a function is called: its kind, dtype and the rows and vectors of a tile
    (``8x3``), or the dtype that is read."""
    return f"{kind}_{dtype.name}" + (f"_{detail}" if detail != "" else "")


def signature(name: str) -> Sequence[Any]:
    """Types of the arguments of the function ``name``."""
    return SIGNATURES[name.partition("_")[0]]


def text_of(name: str, host: Host) -> str:
    """The module with the function ``name`` of :func:`name_of`."""
    kind, number, *rest = name.split("_")
    module = ir.Module(name)
    module.triple = host.triple
    function = ir.Function(module, ir.FunctionType(VOID, signature(name)), name)
    code = _Code(function, host, np.dtype(number))
    write: dict[str, Callable[[], None]] = {
        "tiles": lambda: code.tiles(*map(int, rest[0].split("x"))),
        "line": code.line,
        "dots": code.dots,
        "copy": lambda: code.copy(_dtype(rest[0])),
        "turn": lambda: code.turn(_dtype(rest[0])),
    }
    write[kind]()
    code.b.ret_void()
    return str(module)


def _dtype(name: str) -> DType:
    if name == "bfloat16":
        import ml_dtypes

        kind: type = ml_dtypes.bfloat16
        return np.dtype(kind)
    return np.dtype(name)


class _Code:
    """Writes one function."""

    def __init__(self, function: ir.Function, host: Host, dtype: DType) -> None:
        self.function, self.host, self.dtype = function, host, dtype
        self.tile = tile(host, dtype)
        self.lanes = self.tile.lanes
        self.kind = register_type(dtype)
        self.vector = widened(self.kind, self.lanes)
        self.zero = constant(self.kind, self.lanes, 0)
        self.b = ir.IRBuilder(function.append_basic_block("entry"))

    # -- parts -------------------------------------------------------------------------

    def at(self, pointer: ir.Value, *by: ir.Value | int, kind: Any = None) -> ir.Value:
        """``pointer`` moved by so many elements."""
        for n in by:
            count = I64(n) if isinstance(n, int) else n
            if not isinstance(count, ir.Constant) or count.constant:
                kind = kind or self.kind
                pointer = self.b.gep(pointer, [count], source_etype=kind)
        return pointer

    def times(self, x: ir.Value, y: ir.Value | int) -> ir.Value:
        return self.b.mul(x, I64(y) if isinstance(y, int) else y)

    def least(self, x: ir.Value, y: ir.Value | int) -> ir.Value:
        y = I64(y) if isinstance(y, int) else y
        return self.b.select(self.b.icmp_signed("<", x, y), x, y)

    def load(self, pointer: ir.Value, lanes: int) -> ir.Value:
        kind = widened(self.kind, lanes)
        return self.b.load(pointer, typ=kind, align=self.dtype.itemsize)

    def store(self, value: ir.Value, pointer: ir.Value) -> None:
        self.b.store(value, pointer, align=self.dtype.itemsize)

    def times_plus(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """``x y + z``."""
        if self.host.has_fma:
            fused = declared(
                self.b, f"llvm.fma.{self._mangled(x.type)}", [x.type] * 3, x.type
            )
            return self.b.call(fused, [x, y, z])
        return self.b.fadd(self.b.fmul(x, y), z)

    def whole(self, count: ir.Value, step: int) -> ir.Value:
        """The largest multiple of ``step`` up to ``count``."""
        return self.times(self.b.sdiv(count, I64(step)), step)

    @contextmanager
    def carried(
        self,
        start: ir.Value,
        stop: ir.Value,
        step: ir.Value | int,
        values: list[ir.Value],
    ) -> Iterator[ir.Value]:
        """A loop that is taken at least once and changes ``values``."""
        b, before = self.b, self.b.block
        body, done = (b.append_basic_block(n) for n in ("body", "done"))
        b.branch(body)
        b.position_at_end(body)
        i = b.phi(I64)
        i.add_incoming(start, before)
        phis = [b.phi(v.type) for v in values]
        for phi, v in zip(phis, values, strict=True):
            phi.add_incoming(v, before)
        values[:] = phis
        yield i
        after = b.add(i, I64(step) if isinstance(step, int) else step)
        i.add_incoming(after, b.block)
        for phi, v in zip(phis, values, strict=True):
            phi.add_incoming(v, b.block)
        b.cbranch(b.icmp_signed("<", after, stop), body, done)
        b.position_at_end(done)

    # -- tiles -------------------------------------------------------------------------

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
                    count = self.least(chunk, self.b.sub(size, n))
                    ask = self.at(ahead, self.times(n, self.lanes))
                    sums = self._sums(more, y, bs, count, vectors, ask)
                    again = self.b.icmp_signed(">", n, I64(0))
                    again = self.b.or_(adds, again)
                    self._write(places, sums, vectors, last, again)

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
                name = f"llvm.masked.store.{self._mangled(self.vector)}.p0"
                kinds = [self.vector, PTR, I32, m.type]
                align = I32(self.dtype.itemsize)
                b.call(declared(b, name, kinds), [value, p, align, m])

    def _old(self, place: ir.Value, mask: ir.Value | None) -> ir.Value:
        if mask is None:
            return self.load(place, self.lanes)
        name = f"llvm.masked.load.{self._mangled(self.vector)}.p0"
        kinds = [PTR, I32, mask.type, self.vector]
        read = declared(self.b, name, kinds, self.vector)
        align = I32(self.dtype.itemsize)
        return self.b.call(read, [place, align, mask, self.zero])

    def _mangled(self, kind: Any) -> str:
        number = f"f{8 * self.dtype.itemsize}"
        return f"v{kind.count}{number}" if isinstance(kind, ir.VectorType) else number

    # -- a matrix by a vector ----------------------------------------------------------

    def line(self) -> None:
        """``out[j] = Σ x[n] y[n, j]`` for ``columns``: elements of ``x`` are ``xs``
        apart, rows of ``y`` ``ys``. A stretch of ``out`` stays in cache."""
        *_, out, size, columns = self.function.args
        b = self.b
        stretch = STRETCH_BYTES // self.dtype.itemsize
        with loop(b, I64(0), columns, stretch) as j:
            end = self.least(b.add(j, I64(stretch)), columns)
            inner = b.add(j, self.whole(b.sub(end, j), self.lanes))
            spans = ((j, inner, self.lanes), (inner, end, 1))
            for low, high, lanes in spans:
                with loop(b, low, high, lanes) as i:
                    zero = constant(self.kind, lanes, 0)
                    self.store(zero, self.at(out, i))
            many = self.whole(size, AT_ONCE)
            for start, stop, rows in ((I64(0), many, AT_ONCE), (many, size, 1)):
                with loop(b, start, stop, rows) as n:
                    for low, high, lanes in spans:
                        self._lines(n, rows, low, high, lanes)

    def _lines(
        self, n: ir.Value, rows: int, low: ir.Value, high: ir.Value, lanes: int
    ) -> None:
        x, xs, y, ys, out, _, _ = self.function.args
        b = self.b
        at = [b.add(n, I64(r)) for r in range(rows)]
        ones = [b.load(self.at(x, self.times(r, xs)), typ=self.kind) for r in at]
        factors = [splat(b, one, lanes) for one in ones]
        lines = [self.at(y, self.times(r, ys)) for r in at]
        with loop(b, low, high, lanes) as i:
            total = None
            for factor, line in zip(factors, lines, strict=True):
                value = self.load(self.at(line, i), lanes)
                if total is None:
                    total = b.fmul(factor, value)
                else:
                    total = self.times_plus(factor, value, total)
            place = self.at(out, i)
            self.store(b.fadd(self.load(place, lanes), total), place)

    def dots(self) -> None:
        """``out[i] = Σ a[i, n] x[n]`` for ``rows``: rows of ``a`` are ``as`` apart,
        elements of ``out`` ``os``."""
        a, a_s, x, out, os, size, rows = self.function.args
        b, step = self.b, 2 * self.lanes
        many = self.whole(size, step)
        with loop(b, I64(0), rows, DOTS) as i:
            top = b.sub(b.sub(rows, i), I64(1))
            at = [b.add(i, self.least(I64(r), top)) for r in range(DOTS)]
            lines = [self.at(a, self.times(r, a_s)) for r in at]
            sums = [self.zero] * (2 * DOTS)
            state = self._looped(I64(0), many, step, sums, lines, x)
            totals = [
                self._total(b.fadd(p, q))
                for p, q in zip(state[::2], state[1::2], strict=True)
            ]
            totals = self._looped(many, size, 1, totals, lines, x)
            for r, total in zip(at, totals, strict=True):
                self.store(total, self.at(out, self.times(r, os)))

    def _looped(
        self,
        start: ir.Value,
        stop: ir.Value,
        step: int,
        sums: list[ir.Value],
        lines: list[ir.Value],
        x: ir.Value,
    ) -> list[ir.Value]:
        """``sums`` with the products of some columns, if there are any."""
        b, before = self.b, self.b.block
        lanes = self.lanes if step > 1 else 1
        each = len(sums) // len(lines)
        body, done = b.append_basic_block("some"), b.append_basic_block("none")
        b.cbranch(b.icmp_signed("<", start, stop), body, done)
        b.position_at_end(body)
        state = list(sums)
        with self.carried(start, stop, step, state) as n:
            for e in range(each):
                factor = self.load(self.at(x, n, e * lanes), lanes)
                for r, line in enumerate(lines):
                    value = self.load(self.at(line, n, e * lanes), lanes)
                    at = r * each + e
                    state[at] = self.times_plus(factor, value, state[at])
            after = list(state)
        last = b.block
        b.branch(done)
        b.position_at_end(done)
        found = [b.phi(s.type) for s in sums]
        for phi, old, new in zip(found, sums, after, strict=True):
            phi.add_incoming(old, before)
            phi.add_incoming(new, last)
        return found

    def _total(self, vector: ir.Value) -> ir.Value:
        """The sum of lanes."""
        b, lanes = self.b, self.lanes
        while lanes > 1:
            lanes //= 2
            rest = ir.Constant(vector.type, ir.Undefined)
            low, high = (
                b.shuffle_vector(vector, rest, _mask(range(first, first + lanes)))
                for first in (0, lanes)
            )
            vector = b.fadd(low, high)
        return b.extract_element(vector, I32(0))

    # -- order -------------------------------------------------------------------------

    def read(self, place: ir.Value, lanes: int, source: DType) -> ir.Value:
        """Elements of ``source`` as numbers of this dtype."""
        kind = widened(memory_type(source), lanes)
        bits = self.b.load(place, typ=kind, align=source.itemsize)
        value = from_memory(self.b, bits, source, self.host)
        wide = widened(self.kind, lanes)
        return value if value.type == wide else self.b.fpext(value, wide)

    def copy(self, source: DType) -> None:
        """``out[r, c] = x[r, c]``: rows of ``x`` are ``xs`` apart, of ``out``
        ``os``."""
        x, xs, out, os, rows, columns = self.function.args
        b, kind = self.b, memory_type(source)
        whole = self.whole(columns, self.lanes)
        with loop(b, I64(0), rows, 1) as r:
            line = self.at(x, self.times(r, xs), kind=kind)
            to = self.at(out, self.times(r, os))
            spans = ((I64(0), whole, self.lanes), (whole, columns, 1))
            for low, high, lanes in spans:
                with loop(b, low, high, lanes) as c:
                    value = self.read(self.at(line, c, kind=kind), lanes, source)
                    self.store(value, self.at(to, c))

    def turn(self, source: DType) -> None:
        """``out[r, c] = x[c, r]``: rows of ``x`` are ``xs`` apart, of ``out`` ``os``.
        ``out`` has room for whole vectors in its rows."""
        x, xs, out, os, rows, columns = self.function.args
        b, kind, lanes = self.b, memory_type(source), self.lanes
        enough = b.icmp_signed(">=", rows, I64(lanes))
        with b.if_else(enough) as (then, otherwise):
            with then:
                most = b.sub(rows, I64(lanes))
                with loop(b, I64(0), columns, lanes) as c:
                    top = b.sub(b.sub(columns, c), I64(1))
                    with loop(b, I64(0), rows, lanes) as i:
                        # Past the end the last rows again.
                        r = self.least(i, most)
                        self._square(x, xs, out, os, (r, c, top), source)
            with otherwise, loop(b, I64(0), columns, 1) as c:
                line = self.at(x, self.times(c, xs), kind=kind)
                with loop(b, I64(0), rows, 1) as r:
                    value = self.read(self.at(line, r, kind=kind), 1, source)
                    self.store(value, self.at(out, self.times(r, os), c))

    def _square(
        self,
        x: ir.Value,
        xs: ir.Value,
        out: ir.Value,
        os: ir.Value,
        where: tuple[ir.Value, ir.Value, ir.Value],
        source: DType,
    ) -> None:
        """As many rows as columns as a vector has lanes; past the last column it is
        the last one again."""
        r, c, top = where
        b, lanes, kind = self.b, self.lanes, memory_type(source)
        square = []
        for n in range(lanes):
            column = b.add(c, self.least(I64(n), top))
            place = self.at(x, self.times(column, xs), r, kind=kind)
            square.append(self.read(place, lanes, source))
        for n, value in enumerate(turned(b, square)):
            row = b.add(r, I64(n))
            self.store(value, self.at(out, self.times(row, os), c))


def turned(b: ir.IRBuilder, square: Sequence[ir.Value]) -> list[ir.Value]:
    """The transpose of as many vectors as they have lanes, a power of two: squares of
    two, four, … change their corners."""
    rows, lanes = list(square), len(square)
    half = 1
    while half < lanes:
        for i in range(lanes):
            if i & half:
                continue
            low, high = rows[i], rows[i + half]
            first = [n if not n & half else n - half + lanes for n in range(lanes)]
            second = [n + half if not n & half else n + lanes for n in range(lanes)]
            rows[i] = b.shuffle_vector(low, high, _mask(first))
            rows[i + half] = b.shuffle_vector(low, high, _mask(second))
        half *= 2
    return rows


def _mask(places: Sequence[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(I32, len(places)), [I32(n) for n in places])
