"""How far the rows of a mask reach, and whether numbers are finite."""

from __future__ import annotations

from llvmlite import ir

from ..loops import loop
from ..machine import I1, I8, I64, constant, most, widened
from ..math import declared
from .gemm_code_base import FunctionCode


class Reaches(FunctionCode):
    """Writes ``reach`` and ``finite``."""

    def reach(self) -> None:
        """The number at ``limit`` raised to that of the bytes of ``mask``, which has
        ``size``, a vector or more, up to the last one that is not 0."""
        place, size, limit = self.function.args
        b, many = self.b, self.host.vector_bits // 8
        kind = ir.IntType(many)
        start = b.load(limit, typ=I64)
        look, more, found, end = (
            b.append_basic_block(n) for n in ("look", "more", "found", "end")
        )
        before = b.block
        b.cbranch(b.icmp_signed(">", size, start), look, end)
        b.position_at_end(look)
        # From the end on; what lies before the limit as well does not matter.
        high = b.phi(I64)
        high.add_incoming(size, before)
        low = most(b, b.sub(high, I64(many)), I64(0))
        some = b.load(self.at(place, low, kind=I8), typ=widened(I8, many), align=1)
        bits = b.bitcast(b.icmp_unsigned("!=", some, constant(I8, many, 0)), kind)
        b.cbranch(b.icmp_unsigned("==", bits, kind(0)), more, found)
        b.position_at_end(more)
        high.add_incoming(low, more)
        b.cbranch(b.icmp_signed(">", low, start), look, end)
        b.position_at_end(found)
        zeros = declared(b, f"llvm.ctlz.i{many}", [kind, I1], kind)
        after = b.call(zeros, [bits, I1(1)])
        after = after if many == 64 else b.zext(after, I64)
        last = b.sub(b.add(low, I64(many)), after)
        b.store(most(b, last, start), limit)
        b.branch(end)
        b.position_at_end(end)
        b.ret_void()

    def finite(self) -> None:
        """``rows`` into the memory at ``limit``, unless all ``columns`` of the rows of
        ``x``, ``xs`` apart, from the number there on are finite."""
        x, xs, rows, columns, limit = self.function.args
        b, lanes = self.b, self.lanes
        size = 8 * self.dtype.itemsize
        number = ir.IntType(size)
        sign = 1 << (size - 1)
        infinity = {32: 0x7F800000, 64: 0x7FF << 52}[size]
        with b.goto_entry_block():
            places = {n: b.alloca(widened(number, n)) for n in (lanes, 1)}
        for n, place in places.items():
            b.store(constant(number, n, 0), place)
        whole = self.whole(columns, lanes)
        with loop(b, b.load(limit, typ=I64), rows, 1) as r:
            line = self.at(x, self.times(r, xs))
            for low, high, n in ((I64(0), whole, lanes), (whole, columns, 1)):
                kind = widened(number, n)
                with loop(b, low, high, n) as c:
                    align = self.dtype.itemsize
                    bits = b.load(self.at(line, c), typ=kind, align=align)
                    bits = b.and_(bits, constant(number, n, sign - 1))
                    old = b.load(places[n], typ=kind)
                    b.store(self._larger(bits, old), places[n])
        for n, place in places.items():
            found = b.load(place, typ=widened(number, n))
            above = b.icmp_unsigned(">=", found, constant(number, n, infinity))
            if n > 1:
                above = b.icmp_unsigned(
                    "!=", b.bitcast(above, ir.IntType(n)), ir.IntType(n)(0)
                )
            with b.if_then(above):
                b.store(rows, limit)
        b.ret_void()

    def _larger(self, x: ir.Value, y: ir.Value) -> ir.Value:
        kind = x.type
        many = kind.count if isinstance(kind, ir.VectorType) else 0
        name = f"v{many}i{kind.element.width}" if many else f"i{kind.width}"
        larger = declared(self.b, f"llvm.umax.{name}", [kind, kind], kind)
        return self.b.call(larger, [x, y])
