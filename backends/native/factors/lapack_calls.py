"""Factorisations in a program: calls of LAPACK, one for each matrix of a batch.

What is row-major here is the transposed matrix to LAPACK. A factorisation is kept as
LAPACK leaves it; solutions, row-major too, are found from the right: x = a⁻¹ b is
xᵀ = bᵀ a⁻ᵀ. So nothing is copied but what the result needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from ...loop_ir import (
    Factoring,
    Unsupported,
)
from ..loops import PTR, loop
from ..machine import I8, I64, Host, blas, register_type
from ..math import declared
from ..products import BlasCalls
from .small_matrices import lanes_of
from .small_matrices import scratch_bytes as lane_bytes


def check(p: Factoring) -> None:
    """Raise :class:`Unsupported` for what LAPACK is not called for."""
    if p.dtype.name not in blas.LETTERS:
        raise Unsupported(f"{p.routine} of {p.dtype}")


def units(p: Factoring, host: Host) -> int:
    """Parts that threads can share."""
    return -(-p.matrices // max(lanes_of(p, host), 1))


def seconds(p: Factoring, host: Host) -> float:
    """About how long one thread takes (s)."""
    lanes = lanes_of(p, host)
    if lanes:
        return (p.flops + 10.0 * p.matrices * p.sizes[0] ** 2) / (
            lanes * host.tuning.lane_flops_per_s
        )
    calls = p.matrices * host.tuning.lapack_call_s
    return p.flops / host.tuning.lapack_flops_per_s + calls


def scratch_bytes(p: Factoring, host: Host) -> int:
    """Memory that a thread needs: of LAPACK for the swaps of rows."""
    return lane_bytes(p, host) if lanes_of(p, host) else 8 * (p.sizes[0] + 1)


class FactorCalls(BlasCalls):
    """Writes calls at the place where ``b`` stands."""

    def matrix(
        self,
        p: Factoring,
        pointers: Sequence[ir.Value],
        which: ir.Value,
        scratch: ir.Value,
    ) -> None:
        """The routine of ``p`` for one matrix."""
        self.scratch = scratch
        *places, fault = pointers
        self.kind, self.letter = register_type(p.dtype), blas.LETTERS[p.dtype.name]
        at = [self._start(p, i, x, which) for i, x in enumerate(places)]
        self.fault = fault
        write = getattr(self, f"_{p.routine}")
        write(p, *at, **dict(p.flags))

    # -- memory ------------------------------------------------------------------------

    def _start(
        self, p: Factoring, i: int, pointer: ir.Value, which: ir.Value
    ) -> ir.Value:
        b, layout = self.b, p.at[i]
        at: ir.Value = I64(layout.offset)
        rest = which
        for n, stride in zip(p.batch[::-1], layout.strides[-3::-1], strict=True):
            at = b.add(at, b.mul(b.srem(rest, I64(n)), I64(stride)))
            rest = b.sdiv(rest, I64(n))
        return b.gep(pointer, [at], source_etype=self.kind)

    def _element(self, x: ir.Value, *terms: tuple[ir.Value, int]) -> ir.Value:
        b, at = self.b, I64(0)
        for i, stride in terms:
            at = b.add(at, b.mul(i, I64(stride)))
        return b.gep(x, [at], source_etype=self.kind)

    def _load(self, x: ir.Value, *terms: tuple[ir.Value, int]) -> ir.Value:
        return self.b.load(self._element(x, *terms), typ=self.kind)

    def _copy(
        self,
        x: ir.Value,
        strides: Sequence[int],
        out: ir.Value,
        shape: tuple[int, int],
        lower: bool = False,
    ) -> None:
        """A matrix in packed rows; 0 above the diagonal of a ``lower`` one."""
        b, (m, n) = self.b, shape
        zero = ir.Constant(self.kind, 0.0)
        with loop(b, I64(0), I64(m), 1) as i:
            end = b.add(i, I64(1)) if lower else I64(n)
            with loop(b, I64(0), end, 1) as j:
                value = self._load(x, (i, strides[-2]), (j, strides[-1]))
                b.store(value, self._element(out, (i, n), (j, 1)))
            if lower:
                with loop(b, end, I64(n), 1) as j:
                    b.store(zero, self._element(out, (i, n), (j, 1)))

    def _fail_if(self, failed: ir.Value) -> None:
        with self.b.if_then(failed, likely=False):
            self.b.store(I8(1), self.fault)

    def _check_pivots(self, n: int, x: ir.Value, apart: int) -> None:
        """There is no solution where an element of the diagonal is 0."""
        zero = ir.Constant(self.kind, 0.0)
        with loop(self.b, I64(0), I64(n), 1) as i:
            pivot = self._load(x, (i, apart))
            self._fail_if(self.b.fcmp_ordered("==", pivot, zero))

    @property
    def _integer_type(self) -> ir.IntType:
        return ir.IntType(blas.library().integer_bits)

    def _call(self, name: str, args: Sequence[ir.Value]) -> None:
        function = declared(self.b, self.letter + name, [PTR] * len(args))
        self.b.call(function, args)

    # -- factorisations ----------------------------------------------------------------

    def _lu(self, p: Factoring, a: ir.Value, out: ir.Value) -> None:
        b, (n, _) = self.b, p.sizes
        self._copy(a, p.at[0].strides[::-1][:2], out, (n, n))
        info, swaps = self.scratch, self.moved(self.scratch, 8)
        size = self._constant(n)
        self._call("getrf", [size, size, out, size, swaps, info])
        with loop(b, I64(0), I64(n), 1) as i:
            kind = self._integer_type
            place = b.load(b.gep(swaps, [i], source_etype=kind), typ=kind)
            row = b.sitofp(b.sub(place, kind(1)), self.kind)
            b.store(row, self._element(out, (I64(n), n), (i, 1)))

    def _cholesky(self, p: Factoring, a: ir.Value, out: ir.Value) -> None:
        n, info = p.sizes[0], self.scratch
        self._copy(a, p.at[0].strides, out, (n, n), lower=True)
        size = self._constant(n)
        self._call("potrf", [self._constant("U"), size, out, size, info])
        found = self.b.load(info, typ=self._integer_type)
        self._fail_if(self.b.icmp_signed("!=", found, self._integer_type(0)))

    # -- solutions ---------------------------------------------------------------------

    def _lu_solve(
        self,
        p: Factoring,
        f: ir.Value,
        b: ir.Value,
        out: ir.Value,
        transposed: int,
    ) -> None:
        self._copy(b, p.at[1].strides, out, p.sizes)
        self._solve(p, f, out, bool(transposed))

    def _lu_inv(self, p: Factoring, f: ir.Value, out: ir.Value) -> None:
        b, n = self.b, p.sizes[0]
        zero, one = (ir.Constant(self.kind, x) for x in (0.0, 1.0))
        with loop(b, I64(0), I64(n * n), 1) as i:
            b.store(zero, self._element(out, (i, 1)))
        with loop(b, I64(0), I64(n), 1) as i:
            b.store(one, self._element(out, (i, n + 1)))
        self._solve(p, f, out, False)

    def _solve(
        self, p: Factoring, f: ir.Value, out: ir.Value, transposed: bool
    ) -> None:
        n = p.sizes[0]
        self._check_pivots(n, f, n + 1)
        if transposed:
            self._triangle(p, f, n, out, "U", False, "N")
            self._triangle(p, f, n, out, "L", False, "U")
            self._swap(p, f, out, True)
        else:
            self._swap(p, f, out, False)
            self._triangle(p, f, n, out, "L", True, "U")
            self._triangle(p, f, n, out, "U", True, "N")

    def _triangle(
        self,
        p: Factoring,
        a: ir.Value,
        lead: int,
        out: ir.Value,
        which: str,
        is_transposed: bool,
        diagonal: str,
    ) -> None:
        """The rows of ``out`` times the inverse of a triangle of ``a``, as LAPACK sees
        both; a single row is a vector times that of the transposed one."""
        n, k = p.sizes
        if k == 1:
            flip = "N" if is_transposed else "T"
            letters = [self._constant(x) for x in (which, flip, diagonal)]
            rest = [self._constant(n), a, self._constant(lead), out, self._constant(1)]
            self._call("trsv", [*letters, *rest])
            return
        turn = "T" if is_transposed else "N"
        number = "double" if p.dtype.itemsize == 8 else "float"
        letters = [self._constant(x) for x in ("R", which, turn, diagonal)]
        sizes = [self._constant(k), self._constant(n), self._constant(1.0, number)]
        places = [a, self._constant(lead), out, self._constant(k)]
        self._call("trsm", [*letters, *sizes, *places])

    def _swap(self, p: Factoring, f: ir.Value, out: ir.Value, backwards: bool) -> None:
        """Rows of ``out`` swapped as those of the matrix were, or put back."""
        b, (n, k) = self.b, p.sizes
        with loop(b, I64(0), I64(n), 1) as step:
            i = b.sub(I64(n - 1), step) if backwards else step
            other = b.fptosi(self._load(f, (I64(n), n), (i, 1)), I64)
            with b.if_then(b.icmp_signed("!=", i, other)):
                with loop(b, I64(0), I64(k), 1) as j:
                    here = self._element(out, (i, k), (j, 1))
                    there = self._element(out, (other, k), (j, 1))
                    x, y = (b.load(q, typ=self.kind) for q in (here, there))
                    b.store(y, here)
                    b.store(x, there)

    def _solve_triangular(
        self,
        p: Factoring,
        a: ir.Value,
        b: ir.Value,
        out: ir.Value,
        lower: int,
        transposed: int,
        unit: int,
    ) -> None:
        n, _ = p.sizes
        strides = p.at[0].strides
        if not unit:
            self._check_pivots(n, a, strides[-1] + strides[-2])
        self._copy(b, p.at[1].strides, out, p.sizes)
        of = blas.matrix(p.at[0], n, n)
        is_upper = bool(lower) != of.is_transposed
        turns = bool(transposed) != of.is_transposed
        letters = "U" if is_upper else "L", turns, "U" if unit else "N"
        self._triangle(p, a, of.leading, out, *letters)
