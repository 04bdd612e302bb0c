"""Factorisations of many small matrices: one in each lane of vectors.

LAPACK takes 0.2 µs to begin with a matrix of a few rows. Here the matrices of a batch
are brought, as many as a vector has lanes, into memory in which one vector has an
element of each; all is computed there, without a call. The last vectors of a batch
repeat its last matrix. A batch of fewer than half a vector is taken one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from llvmlite import ir

from ...loop_ir import ELIMINATIONS, Factoring, Layout
from ..loops import loop
from ..machine import I8, I32, I64, Host, least, register_type, widened
from ..math import declared
from ..products import Calls

MOST_ROWS, MOST_COLUMNS = 16, 32
"""Of matrices that lanes take; of larger ones LAPACK computes more at a time."""


def lanes_of(p: Factoring, host: Host) -> int:
    """Matrices that are taken together; 0 where LAPACK takes them."""
    n, k = p.sizes
    if p.routine not in ELIMINATIONS or n > MOST_ROWS or k > MOST_COLUMNS:
        return 0
    lanes = host.vector_bits // (8 * p.dtype.itemsize)
    return lanes if 2 * p.matrices >= lanes else 1


def scratch_bytes(p: Factoring, host: Host) -> int:
    """Memory for the matrix, its swaps, and the columns of the result."""
    n, k = p.sizes
    return (n + 1 + k) * n * lanes_of(p, host) * p.dtype.itemsize


@dataclass(frozen=True)
class Grid:
    """Vectors in memory: row, column."""

    start: ir.Value
    columns: int


At: TypeAlias = "ir.Value | int"
Place = Callable[[At, At], ir.Value]
"""Where the element of a row and a column of a triangle is."""


class LaneFactors(Calls):
    """Writes the code of a routine at the place where ``b`` stands."""

    def __init__(self, b: ir.IRBuilder, module: ir.Module, host: Host) -> None:
        super().__init__(b, module)
        self.host = host

    def matrices(
        self,
        p: Factoring,
        pointers: Sequence[ir.Value],
        unit: ir.Value,
        scratch: ir.Value,
    ) -> None:
        """The routine of ``p`` for the matrices of one unit."""
        *places, self.fault = pointers
        n, k = p.sizes
        self.number_type, self.lanes = register_type(p.dtype), lanes_of(p, self.host)
        self.vector = widened(self.number_type, self.lanes)
        self.batch = [self._offsets(p, at, unit) for at in p.at]
        self.places, self.p = places, p
        self.a = Grid(scratch, n)
        bytes_of_a = (n + 1) * n * self.lanes * p.dtype.itemsize
        self.x = Grid(self.moved(scratch, bytes_of_a), k)
        getattr(self, f"_{p.routine}")(**dict(p.flags))

    # -- memory ------------------------------------------------------------------------

    def _offsets(self, p: Factoring, at: Layout, unit: ir.Value) -> list[ir.Value]:
        """Where the matrix of each lane starts, in elements."""
        b, found = self.b, []
        for lane in range(self.lanes):
            which = b.add(b.mul(unit, I64(self.lanes)), I64(lane))
            rest = least(b, which, p.matrices - 1)
            start: ir.Value = I64(at.offset)
            for n, stride in zip(p.batch[::-1], at.strides[-3::-1], strict=True):
                start = b.add(start, b.mul(b.srem(rest, I64(n)), I64(stride)))
                rest = b.sdiv(rest, I64(n))
            found.append(start)
        return found

    def _where(self, i: int, lane: int, terms: Sequence[tuple[At, int]]) -> ir.Value:
        b, at = self.b, self.batch[i][lane]
        for index, stride in terms:
            at = b.add(at, b.mul(_value(index), I64(stride)))
        return b.gep(self.places[i], [at], source_etype=self.number_type)

    def _gathered(self, i: int, *terms: tuple[At, int]) -> ir.Value:
        """An element of each matrix of operand ``i``."""
        b = self.b
        if self.lanes == 1:
            return b.load(self._where(i, 0, terms), typ=self.number_type)
        vector = ir.Constant(self.vector, ir.Undefined)
        for lane in range(self.lanes):
            one = b.load(self._where(i, lane, terms), typ=self.number_type)
            vector = b.insert_element(vector, one, I32(lane))
        return vector

    def _scattered(self, value: ir.Value, *terms: tuple[At, int]) -> None:
        """An element of each matrix of the result."""
        b, last = self.b, len(self.places) - 1
        for lane in range(self.lanes):
            one = value
            if self.lanes > 1:
                one = b.extract_element(value, I32(lane))
            b.store(one, self._where(last, lane, terms))

    def _at(self, g: Grid, row: At, column: At) -> ir.Value:
        b = self.b
        at = b.add(b.mul(_value(row), I64(g.columns)), _value(column))
        return b.gep(g.start, [at], source_etype=self.vector)

    def _load(self, place: ir.Value) -> ir.Value:
        return self.b.load(place, typ=self.vector)

    def _get(self, g: Grid, row: At, column: At) -> ir.Value:
        return self._load(self._at(g, row, column))

    def _put(self, value: ir.Value, g: Grid, row: At, column: At) -> None:
        self.b.store(value, self._at(g, row, column))

    @contextmanager
    def _each(self, start: At, stop: At) -> Iterator[ir.Value]:
        with loop(self.b, _value(start), _value(stop), 1) as i:
            yield i

    def _read(self, i: int, g: Grid, shape: tuple[int, int]) -> None:
        """The matrices of operand ``i``."""
        down, across = self.p.at[i].strides[-2:]
        with self._each(0, shape[0]) as r, self._each(0, shape[1]) as c:
            self._put(self._gathered(i, (r, down), (c, across)), g, r, c)

    def _write(self, g: Grid) -> None:
        """The matrices of the result."""
        n, k = self.p.sizes
        with self._each(0, n) as r, self._each(0, k) as c:
            self._scattered(self._get(g, r, c), (r, k), (c, 1))

    # -- arithmetic --------------------------------------------------------------------

    def _number(self, value: float) -> ir.Constant:
        one = ir.Constant(self.number_type, value)
        return one if self.lanes == 1 else ir.Constant(self.vector, [one] * self.lanes)

    def _less_product(self, z: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        """z - x y."""
        return self._intrinsic("fmuladd", self.b.fneg(x), y, z)

    def _intrinsic(self, name: str, *args: ir.Value) -> ir.Value:
        kind = "f64" if isinstance(self.number_type, ir.DoubleType) else "f32"
        mangled = kind if self.lanes == 1 else f"v{self.lanes}{kind}"
        types = [a.type for a in args]
        function = declared(self.b, f"llvm.{name}.{mangled}", types, self.vector)
        return self.b.call(function, args)

    def _any(self, mask: ir.Value) -> ir.Value:
        if self.lanes == 1:
            return mask
        bits = self.b.bitcast(mask, ir.IntType(self.lanes))
        return self.b.icmp_unsigned("!=", bits, ir.IntType(self.lanes)(0))

    def _fail_if(self, mask: ir.Value) -> None:
        with self.b.if_then(self._any(mask), likely=False):
            self.b.store(I8(1), self.fault)

    def _row_number(self, i: ir.Value) -> ir.Value:
        """An index as a number in each lane."""
        one = self.b.sitofp(i, self.number_type)
        if self.lanes == 1:
            return one
        first = self.b.insert_element(
            ir.Constant(self.vector, ir.Undefined), one, I32(0)
        )
        zeros = ir.Constant(ir.VectorType(I32, self.lanes), [I32(0)] * self.lanes)
        return self.b.shuffle_vector(first, first, zeros)

    def _exchange(self, g: Grid, k: At, i: At, mask: ir.Value) -> None:
        """Rows ``k`` and ``i`` change places in the lanes of ``mask``."""
        b = self.b
        with b.if_then(self._any(mask)), self._each(0, g.columns) as c:
            here, there = self._at(g, k, c), self._at(g, i, c)
            x, y = self._load(here), self._load(there)
            b.store(b.select(mask, y, x), here)
            b.store(b.select(mask, x, y), there)

    # -- factorisations ----------------------------------------------------------------

    def _lu(self) -> None:
        n = self.p.sizes[0]
        self._read(0, self.a, (n, n))
        with self._each(0, n) as k:
            self._pivot(n, k)
            self._eliminate(n, k)
        with self._each(0, n) as r, self._each(0, n) as c:
            self._scattered(self._get(self.a, r, c), (c, n), (r, 1))
        with self._each(0, n) as c:
            self._scattered(self._get(self.a, n, c), (n, n), (c, 1))

    def _pivot(self, n: int, k: ir.Value) -> None:
        """The largest element of a column from row ``k`` on comes to row ``k``."""
        b, after = self.b, self.b.add(k, I64(1))
        with b.goto_entry_block():
            most, row = b.alloca(self.vector), b.alloca(self.vector)
        b.store(self._intrinsic("fabs", self._get(self.a, k, k)), most)
        b.store(self._row_number(k), row)
        with self._each(after, n) as i:
            size, best = (
                self._intrinsic("fabs", self._get(self.a, i, k)),
                self._load(most),
            )
            larger = b.fcmp_ordered(">", size, best)
            b.store(b.select(larger, size, best), most)
            b.store(b.select(larger, self._row_number(i), self._load(row)), row)
        chosen = self._load(row)
        self._put(chosen, self.a, n, k)
        with self._each(after, n) as i:
            mask = b.fcmp_ordered("==", chosen, self._row_number(i))
            self._exchange(self.a, k, i, mask)

    def _eliminate(self, n: int, k: ir.Value) -> None:
        b, after, zero = self.b, self.b.add(k, I64(1)), self._number(0.0)
        pivot = self._get(self.a, k, k)
        is_zero = b.fcmp_ordered("==", pivot, zero)
        pivot = b.select(is_zero, self._number(1.0), pivot)
        with self._each(after, n) as i:
            factor = b.fdiv(self._get(self.a, i, k), pivot)
            self._put(factor, self.a, i, k)
            with self._each(after, n) as j:
                place = self._at(self.a, i, j)
                above = self._get(self.a, k, j)
                b.store(self._less_product(self._load(place), factor, above), place)

    def _cholesky(self) -> None:
        b, n = self.b, self.p.sizes[0]
        self._read(0, self.a, (n, n))
        with self._each(0, n) as k:
            pivot = self._get(self.a, k, k)
            self._fail_if(b.fcmp_unordered("<=", pivot, self._number(0.0)))
            root = self._intrinsic("sqrt", pivot)
            self._put(root, self.a, k, k)
            with self._each(b.add(k, I64(1)), n) as i:
                low = b.fdiv(self._get(self.a, i, k), root)
                self._put(low, self.a, i, k)
                with self._each(b.add(k, I64(1)), b.add(i, I64(1))) as j:
                    place, other = self._at(self.a, i, j), self._get(self.a, j, k)
                    b.store(self._less_product(self._load(place), low, other), place)
        with self._each(0, n) as r:
            with self._each(0, b.add(r, I64(1))) as c:
                self._scattered(self._get(self.a, r, c), (r, n), (c, 1))
            with self._each(b.add(r, I64(1)), n) as c:
                self._scattered(self._number(0.0), (r, n), (c, 1))

    # -- solutions ---------------------------------------------------------------------

    def _lu_solve(self, transposed: int) -> None:
        self._read(1, self.x, self.p.sizes)
        self._by_factors(bool(transposed))

    def _lu_inv(self) -> None:
        n = self.p.sizes[0]
        with self._each(0, n) as r, self._each(0, n) as c:
            is_one = self.b.icmp_signed("==", r, c)
            value = self.b.select(is_one, self._number(1.0), self._number(0.0))
            self._put(value, self.x, r, c)
        self._by_factors(False)

    def _by_factors(self, transposed: bool) -> None:
        """The factors are read as they are kept, transposed."""
        n = self.p.sizes[0]
        self._read(0, self.a, (n + 1, n))
        if transposed:
            self._substitute(lambda i, j: self._at(self.a, i, j), True, False)
            self._substitute(lambda i, j: self._at(self.a, i, j), False, True)
            self._swap(True)
        else:
            self._swap(False)
            self._substitute(lambda i, j: self._at(self.a, j, i), True, True)
            self._substitute(lambda i, j: self._at(self.a, j, i), False, False)
        self._write(self.x)

    def _swap(self, backwards: bool) -> None:
        b, n = self.b, self.p.sizes[0]
        with self._each(0, n) as step:
            k = b.sub(I64(n - 1), step) if backwards else step
            chosen = self._get(self.a, n, k)
            with self._each(b.add(k, I64(1)), n) as i:
                mask = b.fcmp_ordered("==", chosen, self._row_number(i))
                self._exchange(self.x, k, i, mask)

    def _solve_triangular(self, lower: int, transposed: int, unit: int) -> None:
        n = self.p.sizes[0]
        self._read(0, self.a, (n, n))
        self._read(1, self.x, self.p.sizes)

        def place(i: At, j: At) -> ir.Value:
            return self._at(self.a, j, i) if transposed else self._at(self.a, i, j)

        self._substitute(place, bool(lower) != bool(transposed), bool(unit))
        self._write(self.x)

    def _substitute(self, place: Place, lower: bool, unit: bool) -> None:
        """The columns of ``x`` become the solution of a triangular system."""
        b, (n, k) = self.b, self.p.sizes
        with self._each(0, n) as step:
            i = step if lower else b.sub(I64(n - 1), step)
            if not unit:
                pivot = self._load(place(i, i))
                self._fail_if(b.fcmp_ordered("==", pivot, self._number(0.0)))
                with self._each(0, k) as c:
                    here = self._at(self.x, i, c)
                    b.store(b.fdiv(self._load(here), pivot), here)
            first, last = (b.add(i, I64(1)), n) if lower else (0, i)
            with self._each(first, last) as j:
                factor = self._load(place(j, i))
                with self._each(0, k) as c:
                    there = self._at(self.x, j, c)
                    value = self._get(self.x, i, c)
                    b.store(self._less_product(self._load(there), factor, value), there)


def _value(i: At) -> ir.Value:
    return I64(i) if isinstance(i, int) else i
