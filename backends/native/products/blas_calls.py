"""Calls of products in a program: of BLAS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from ...loop_ir import (
    Contraction,
    Product,
)
from ..loops import PTR
from ..machine import I64, blas
from ..math import declared


class Calls:
    """Writes calls at the place where ``b`` stands."""

    def __init__(self, b: ir.IRBuilder, module: ir.Module) -> None:
        self.b, self.module = b, module

    def moved(self, pointer: ir.Value, by: ir.Value | int) -> ir.Value:
        """``pointer`` moved by so many bytes."""
        if by == 0:
            return pointer
        count = I64(by) if isinstance(by, int) else by
        return self.b.gep(pointer, [count], source_etype=ir.IntType(8))

    def element(
        self,
        p: Contraction,
        which: int,
        pointer: ir.Value,
        batch: ir.Value,
        first: ir.Value | None = None,
    ) -> ir.Value:
        """The first element of a matrix, or of a row of it."""
        b = self.b
        size = (p.x, p.y, p.out)[which].dtype.itemsize
        layout = p.at[which]
        at: ir.Value = I64(layout.offset)
        rest = batch
        for n, stride in zip(p.batch[::-1], layout.strides[-3::-1], strict=True):
            at = b.add(at, b.mul(b.srem(rest, I64(n)), I64(stride)))
            rest = b.sdiv(rest, I64(n))
        if first is not None:
            at = b.add(at, b.mul(first, I64(layout.strides[-2])))
        return self.moved(pointer, b.mul(at, I64(size)))


class BlasCalls(Calls):
    """Products by BLAS."""

    def product(
        self,
        p: Product,
        pointers: Sequence[ir.Value],
        batch: ir.Value,
        first: ir.Value,
        count: ir.Value,
    ) -> None:
        """Rows ``first`` on of one product. BLAS counts by columns, so that the
        operands change places."""
        m, n, k = p.sizes
        x, y, out = pointers
        of_x, of_y = blas.matrix(p.at[0], m, k), blas.matrix(p.at[1], k, n)
        size = p.dtype.itemsize
        x = self.element(p, 0, x, batch, first)
        y = self.element(p, 1, y, batch)
        out = self.element(p, 2, out, batch, first)
        if 1 in (m, n):
            self._matrix_vector(p, x, y, out, count)
            return
        number = "double" if size == 8 else "float"
        lead = p.at[2].strides[-2] if m > 1 else n
        args = [
            self._constant("T" if of_y.is_transposed else "N"),
            self._constant("T" if of_x.is_transposed else "N"),
            self._constant(n),
            self._variable(count),
            self._constant(k),
            self._constant(1.0, number),
            y,
            self._constant(of_y.leading),
            x,
            self._constant(of_x.leading),
            self._constant(0.0, number),
            out,
            self._constant(max(lead, n)),
        ]
        self._blas(p, "gemm", args)

    def _matrix_vector(
        self, p: Product, x: ir.Value, y: ir.Value, out: ir.Value, count: ir.Value
    ) -> None:
        """A product with one row, or some rows of one with one column: BLAS reads the
        matrix once, where its matrix product would copy it first."""
        m, n, k = p.sizes
        x_strides, y_strides, out_strides = (layout.strides for layout in p.at)
        if m == 1:
            matrix, vector = y, x
            of = blas.matrix(p.at[1], k, n)
            step, write = x_strides[-1], out_strides[-1]
            along, across = self._constant(k), self._constant(n)
        else:
            matrix, vector = x, y
            of = blas.matrix(p.at[0], m, k)
            of = blas.Matrix(not of.is_transposed, of.leading)
            step, write = y_strides[-2], out_strides[-2]
            along, across = self._constant(k), self._variable(count)
        shape = [along, across] if of.is_transposed else [across, along]
        number = "double" if p.dtype.itemsize == 8 else "float"
        args = [
            self._constant("T" if of.is_transposed else "N"),
            *shape,
            self._constant(1.0, number),
            matrix,
            self._constant(of.leading),
            vector,
            self._constant(step or 1),
            self._constant(0.0, number),
            out,
            self._constant(write or 1),
        ]
        self._blas(p, "gemv", args)

    def _blas(self, p: Product, kind: str, args: Sequence[ir.Value]) -> None:
        name = blas.LETTERS[p.dtype.name] + kind
        self.b.call(declared(self.b, name, [PTR] * len(args)), args)

    def _constant(self, value: float | str, kind: str = "") -> ir.Value:
        """A pointer to a number or letter."""
        element: Any
        if isinstance(value, str):
            element, value = ir.IntType(8), ord(value)
        elif kind:
            element = ir.DoubleType() if kind == "double" else ir.FloatType()
        else:
            element = ir.IntType(blas.library().integer_bits)
        name = f"number.{element}.{value}"
        found = self.module.globals.get(name)
        if found is None:
            found = ir.GlobalVariable(self.module, element, name)
            found.linkage, found.global_constant = "internal", True
            found.initializer = ir.Constant(element, value)
        return found

    def _variable(self, value: ir.Value) -> ir.Value:
        """A pointer to a value."""
        kind = ir.IntType(blas.library().integer_bits)
        with self.b.goto_entry_block():
            place = self.b.alloca(kind)
        if kind.width < 64:
            value = self.b.trunc(value, kind)
        self.b.store(value, place)
        return place
