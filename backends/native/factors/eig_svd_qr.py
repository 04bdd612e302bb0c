"""Eigenvalues, singular values, Q and R, and pseudo-inverses in a program: calls of
LAPACK, as NumPy makes them.

As in NumPy float32 is computed in float64, and matrices are brought into LAPACK's
order, by columns: what is symmetric to mathematics is not to roundings and the signs of
vectors. Single matrices from :data:`LEFT_FLOPS` on are left to NumPy, whose BLAS may
take all threads for them.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from ...loop_ir import (
    Factoring,
    Unsupported,
)
from ..loops import PTR, loop
from ..machine import COMMON, I64, Host, aligned, blas
from ..math import F64, declared
from . import lapack_calls
from .lapack_calls import FactorCalls

LETTERS = {"svd": "S", "svd_full": "A", "svdvals": "N", "pinv": "S"}
"""Which vectors ``gesdd`` computes."""
_DOUBLE = ("syevd", "gesdd", "geqrf", "orgqr", "gemm")
ROUTINES = ("eigh", "eigvalsh", *LETTERS, "qr", "qr_complete")


def check(p: Factoring) -> None:
    """Raise :class:`Unsupported` for what LAPACK is not called for."""
    lapack_calls.check(p)
    if p.routine not in ROUTINES:
        return
    if 0 in p.sizes:
        raise Unsupported(f"{p.routine} of nothing")
    if p.matrices == 1 and p.flops >= COMMON.left_matrix_flops:
        raise Unsupported(f"{p.routine} of one large matrix")


def seconds(p: Factoring, host: Host) -> float:
    """About how long one thread takes (s)."""
    if p.routine in ROUTINES:
        known = host.tuning
        calls = p.matrices * known.decomposition_call_s
        return p.flops / known.decomposition_flops_per_s + calls
    return lapack_calls.seconds(p, host)


def scratch_bytes(p: Factoring, host: Host) -> int:
    """Memory that a thread needs."""
    if p.routine in ROUTINES:
        return _memory(p).bytes
    return lapack_calls.scratch_bytes(p, host)


@dataclass(frozen=True)
class _Memory:
    """Where in memory of a thread arrays begin (bytes)."""

    places: dict[str, int]
    bytes: int
    work: int
    """Elements that LAPACK works in, and integers."""
    integers: int


def _memory(p: Factoring) -> _Memory:
    m, n = p.sizes
    k = min(m, n)
    # Elements of each.
    of = {"info": 1, "a": m * n}
    if p.routine in ("eigh", "eigvalsh"):
        of["values"] = n
        work, integers = _work_of_syevd(p.routine == "eigh", n)
    elif p.routine in LETTERS:
        of["values"] = k
        work, integers = _work_of_gesdd(LETTERS[p.routine], m, n)
        if p.routine != "svdvals":
            left, right = _vectors(p)
            of |= {"u": m * left, "vt": right * n}
    else:
        columns = m if p.routine == "qr_complete" else k
        work, integers = _work_of_qr(m, n, columns), 0
        of |= {"a": m * max(n, columns), "tau": k}
    of |= {"work": work, "integers": integers}
    places, end = dict[str, int](), 0
    for name, count in of.items():
        places[name] = end
        end += aligned(8 * count)
    return _Memory(places, end, work, integers)


def _vectors(p: Factoring) -> tuple[int, int]:
    """Vectors of ``gesdd``, to the left and to the right."""
    m, n = p.sizes
    return (m, n) if p.routine == "svd_full" else (min(m, n), min(m, n))


# -- what LAPACK asks for --------------------------------------------------------------


@functools.cache
def _work_of_syevd(vectors: bool, n: int) -> tuple[int, int]:
    job = "V" if vectors else "N"
    args = [job, "L", n, None, n, None, "work", -1, "integers", -1, 0]
    return _asked("dsyevd", args)


@functools.cache
def _work_of_gesdd(job: str, m: int, n: int) -> tuple[int, int]:
    sides = [None, m, None, n]  # u, vt
    args = [job, m, n, None, m, None, *sides, "work", -1, None, 0]
    work, _ = _asked("dgesdd", args)
    return work, 8 * min(m, n)


@functools.cache
def _work_of_qr(m: int, n: int, columns: int) -> int:
    work, _ = _asked("dgeqrf", [m, n, None, m, None, "work", -1, 0])
    args = [m, columns, min(m, n), None, m, None, "work", -1, 0]
    more, _ = _asked("dorgqr", args)
    return max(work, more)


def _asked(name: str, args: Sequence[Any]) -> tuple[int, int]:
    """What a routine says that it works in: elements, and integers."""
    library = blas.library()
    integer = ctypes.c_int64 if library.integer_bits == 64 else ctypes.c_int32
    work, integers = ctypes.c_double(0), integer(0)
    known = {"work": work, "integers": integers}
    given: list[Any] = []
    for a in args:
        if a is None:
            given.append(None)
        elif isinstance(a, str) and a not in known:
            given.append(ctypes.c_char_p(a.encode()))
        else:
            given.append(ctypes.byref(known[a] if a in known else integer(a)))
    ctypes.CFUNCTYPE(None)(library.addresses[name])(*given)
    return int(work.value), int(integers.value)


# -- calls -----------------------------------------------------------------------------


class Decompositions(FactorCalls):
    """Writes calls at the place where ``b`` stands, those of :class:`FactorCalls` and
    of decompositions."""

    def _place(self, of: _Memory, name: str) -> ir.Value:
        return self.moved(self.scratch, of.places[name])

    def _check(self, of: _Memory) -> None:
        """Fail where LAPACK says that it did not converge, or met NaN."""
        found = self.b.load(self._place(of, "info"), typ=self._integer_type)
        self._fail_if(self.b.icmp_signed("!=", found, self._integer_type(0)))

    def _moved(
        self,
        x: ir.Value,
        strides: Sequence[int],
        out: ir.Value,
        shape: tuple[int, int],
        kinds: tuple[Any, Any],
        upper: bool = False,
    ) -> None:
        """A matrix in packed rows, of the second of ``kinds`` and no more the first; 0
        below the diagonal of an ``upper`` one."""
        b, (rows, columns), (given, wanted) = self.b, shape, kinds
        with loop(b, I64(0), I64(rows), 1) as i:
            with loop(b, I64(0), I64(columns), 1) as j:
                by = b.add(b.mul(i, I64(strides[0])), b.mul(j, I64(strides[1])))
                value = b.load(b.gep(x, [by], source_etype=given), typ=given)
                if given != wanted:
                    turn = b.fpext if wanted == F64 else b.fptrunc
                    value = turn(value, wanted)
                if upper:
                    is_upper = b.icmp_signed(">=", j, i)
                    value = b.select(is_upper, value, ir.Constant(wanted, 0.0))
                at = b.add(b.mul(i, I64(columns)), j)
                b.store(value, b.gep(out, [at], source_etype=wanted))

    def _taken(self, p: Factoring, a: ir.Value, of: _Memory) -> ir.Value:
        """The matrix in LAPACK's order."""
        found, strides = self._place(of, "a"), p.at[0].strides[::-1][:2]
        self._moved(a, strides, found, p.sizes[::-1], (self.kind, F64))
        return found

    def _given(
        self,
        x: ir.Value,
        lead: int,
        out: ir.Value,
        shape: tuple[int, int],
        upper: bool = False,
    ) -> ir.Value:
        """A result of LAPACK's, whose columns are ``lead`` apart, in rows; where the
        next result begins."""
        self._moved(x, (1, lead), out, shape, (F64, self.kind), upper)
        return self._element(out, (I64(shape[0] * shape[1]), 1))

    def _eigh(self, p: Factoring, a: ir.Value, out: ir.Value) -> None:
        n, of = p.sizes[0], _memory(p)
        found = self._taken(p, a, of)
        size, job = self._constant(n), "V" if p.routine == "eigh" else "N"
        letters = self._constant(job), self._constant("L")
        values, info = self._place(of, "values"), self._place(of, "info")
        work = self._place(of, "work"), self._constant(of.work)
        integers = self._place(of, "integers"), self._constant(of.integers)
        args = [*letters, size, found, size, values, *work, *integers, info]
        self._call("syevd", args)
        self._check(of)
        to = self._given(values, 1, out, (n, 1))
        if job == "V":
            self._given(found, n, to, (n, n))

    _eigvalsh = _eigh

    def _svd(self, p: Factoring, a: ir.Value, out: ir.Value) -> None:
        (m, n), of = p.sizes, _memory(p)
        self._gesdd(p, a, of)
        k, values = min(m, n), self._place(of, "values")
        if p.routine == "svdvals":
            self._given(values, 1, out, (k, 1))
            return
        left, right = _vectors(p)
        out = self._given(self._place(of, "u"), m, out, (m, left))
        out = self._given(values, 1, out, (k, 1))
        self._given(self._place(of, "vt"), right, out, (right, n))

    _svd_full = _svdvals = _svd

    def _gesdd(self, p: Factoring, a: ir.Value, of: _Memory) -> None:
        (m, n), (_, right) = p.sizes, _vectors(p)
        found, info = self._taken(p, a, of), self._place(of, "info")
        rows, columns = self._constant(m), self._constant(n)
        u, vt = (self._place(of, x if x in of.places else "a") for x in ("u", "vt"))
        vectors = u, rows, vt, self._constant(right)
        work = self._place(of, "work"), self._constant(of.work)
        letter = self._constant(LETTERS[p.routine])
        values = self._place(of, "values")
        args = [letter, rows, columns, found, rows, values, *vectors, *work]
        self._call("gesdd", [*args, self._place(of, "integers"), info])
        self._check(of)

    def _pinv(self, p: Factoring, a: ir.Value, out: ir.Value, rcond: float) -> None:
        """u and 1 / s times vᵀ, for those s that are larger than ``rcond`` times the
        largest, which is the first."""
        (m, n), of, b = p.sizes, _memory(p), self.b
        self._gesdd(p, a, of)
        k, values, u = min(m, n), self._place(of, "values"), self._place(of, "u")
        zero, one = (ir.Constant(F64, x) for x in (0.0, 1.0))
        least = b.fmul(b.load(values, typ=F64), ir.Constant(F64, rcond))
        with loop(b, I64(0), I64(k), 1) as i:
            s = b.load(b.gep(values, [i], source_etype=F64), typ=F64)
            is_large = b.fcmp_ordered(">", s, least)
            by = b.select(is_large, b.fdiv(one, b.select(is_large, s, one)), zero)
            with loop(b, I64(0), I64(m), 1) as j:
                at = b.add(b.mul(i, I64(m)), j)
                place = b.gep(u, [at], source_etype=F64)
                b.store(b.fmul(b.load(place, typ=F64), by), place)
        found = self._place(of, "a")
        rows, columns, inner = map(self._constant, (m, n, k))
        letter, vt = self._constant("N"), self._place(of, "vt")
        scales = self._constant(1.0, "double"), self._constant(0.0, "double")
        args = [letter, letter, rows, columns, inner, scales[0], u, rows]
        self._call("gemm", [*args, vt, inner, scales[1], found, rows])
        self._moved(found, (m, 1), out, (n, m), (F64, self.kind))

    def _qr(self, p: Factoring, a: ir.Value, out: ir.Value) -> None:
        (m, n), of = p.sizes, _memory(p)
        columns = m if p.routine == "qr_complete" else min(m, n)
        found, info = self._taken(p, a, of), self._place(of, "info")
        work = self._place(of, "work"), self._constant(of.work)
        rows, tau = self._constant(m), self._place(of, "tau")
        self._call("geqrf", [rows, self._constant(n), found, rows, tau, *work, info])
        self._check(of)
        to = self._element(out, (I64(m * columns), 1))
        self._given(found, m, to, (columns, n), upper=True)
        sizes = rows, self._constant(columns), self._constant(min(m, n))
        self._call("orgqr", [*sizes, found, rows, tau, *work, info])
        self._check(of)
        self._given(found, m, out, (m, columns))

    _qr_complete = _qr

    def _call(self, name: str, args: Sequence[ir.Value]) -> None:
        """Decompositions are of float64."""
        letter = "d" if name in _DOUBLE else self.letter
        self.b.call(declared(self.b, letter + name, [PTR] * len(args)), args)
