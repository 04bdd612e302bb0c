"""What the writers of the functions of products share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from ...loop_ir import (
    DType,
)
from ..loops import PTR
from ..machine import (
    I32,
    I64,
    FoldingBuilder,
    Host,
    constant,
    from_memory,
    memory_type,
    register_type,
    splat,
    widened,
)
from ..math import declared
from .tiles import tile


class FunctionCode:
    """Writes one function; subclasses know which."""

    def __init__(self, function: ir.Function, host: Host, dtype: DType) -> None:
        self.function, self.host, self.dtype = function, host, dtype
        self.tile = tile(host, dtype)
        self.lanes = self.tile.lanes
        self.kind = register_type(dtype)
        self.vector = widened(self.kind, self.lanes)
        self.zero = constant(self.kind, self.lanes, 0)
        self.b = FoldingBuilder(function.append_basic_block("entry"))

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

    def load(
        self, pointer: ir.Value, lanes: int, mask: ir.Value | None = None
    ) -> ir.Value:
        """So many elements; of a vector, zeros for lanes that ``mask`` leaves out."""
        return self.read(pointer, lanes, self.dtype, mask)

    def read(
        self, place: ir.Value, lanes: int, source: DType, mask: ir.Value | None = None
    ) -> ir.Value:
        """Elements of ``source`` as numbers of this dtype."""
        kind, align = widened(memory_type(source), lanes), source.itemsize
        if mask is None:
            bits = self.b.load(place, typ=kind, align=align)
        else:
            number = "i" if isinstance(kind.element, ir.IntType) else "f"
            name = f"llvm.masked.load.v{lanes}{number}{8 * align}.p0"
            read = declared(self.b, name, [PTR, I32, mask.type, kind], kind)
            none = constant(kind.element, lanes, 0)
            bits = self.b.call(read, [place, I32(align), mask, none])
        value = from_memory(self.b, bits, source, self.host)
        wide = widened(self.kind, lanes)
        return value if value.type == wide else self.b.fpext(value, wide)

    def store(
        self, value: ir.Value, pointer: ir.Value, mask: ir.Value | None = None
    ) -> None:
        """Write elements, but for lanes that ``mask`` leaves out."""
        align = self.dtype.itemsize
        if mask is None:
            self.b.store(value, pointer, align=align)
            return
        name = f"llvm.masked.store.{self.mangled(self.vector)}.p0"
        kinds = [self.vector, PTR, I32, mask.type]
        written = declared(self.b, name, kinds)
        self.b.call(written, [value, pointer, I32(align), mask])

    @property
    def masks(self) -> bool:
        """Whether masks cost nothing."""
        return self.host.vector_bits == 512

    def first(self, count: ir.Value) -> ir.Value:
        """The mask of the first ``count`` lanes."""
        ramp = ir.Constant(
            ir.VectorType(I64, self.lanes), [I64(n) for n in range(self.lanes)]
        )
        return self.b.icmp_signed("<", ramp, splat(self.b, count, self.lanes))

    def times_plus(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """``x y + z``."""
        if self.host.has_fma:
            fused = declared(
                self.b, f"llvm.fma.{self.mangled(x.type)}", [x.type] * 3, x.type
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

    @contextmanager
    def looped(
        self, start: ir.Value, stop: ir.Value, step: int, values: list[ir.Value]
    ) -> Iterator[ir.Value]:
        """A loop that may be left out and changes ``values``."""
        b, before, old = self.b, self.b.block, list(values)
        body, done = b.append_basic_block("some"), b.append_basic_block("none")
        b.cbranch(b.icmp_signed("<", start, stop), body, done)
        b.position_at_end(body)
        with self.carried(start, stop, step, values) as i:
            yield i
        last, new = b.block, list(values)
        b.branch(done)
        b.position_at_end(done)
        values[:] = [b.phi(v.type) for v in old]
        for phi, *ways in zip(values, old, new, strict=True):
            phi.add_incoming(ways[0], before)
            phi.add_incoming(ways[1], last)

    def mangled(self, kind: Any) -> str:
        number = f"f{8 * self.dtype.itemsize}"
        return f"v{kind.count}{number}" if isinstance(kind, ir.VectorType) else number
