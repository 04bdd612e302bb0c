"""Factorisations of many small matrices: one in each lane of vectors.

LAPACK takes 0.2 µs to begin with a matrix of a few rows. Here the matrices of a batch
are brought, as many as a vector has lanes, into memory in which one vector has an
element of each; all is computed there, without a call. The last vectors of a batch
repeat its last matrix. A batch of fewer than half a vector is taken one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from ...loop_ir import (
    Factoring,
    Layout,
)
from ...to_loops import (
    ELIMINATIONS,
)
from ..machine import I8, I64, Host, least, register_type, widened
from .lane_memory import At, Grid, LaneCode, LaneMemory


def lanes_of(p: Factoring, host: Host) -> int:
    """Matrices that are taken together; 0 where LAPACK takes them."""
    n, k = p.sizes
    rows, columns = host.tuning.lane_matrix
    if p.routine not in ELIMINATIONS or n > rows or k > columns:
        return 0
    lanes = host.vector_bits // (8 * p.dtype.itemsize)
    return lanes if 2 * p.matrices >= lanes else 1


def scratch_bytes(p: Factoring, host: Host) -> int:
    """Memory for the matrix, its swaps, and the columns of the result."""
    n, k = p.sizes
    return (n + 1 + k) * n * lanes_of(p, host) * p.dtype.itemsize


Place = Callable[[At, At], ir.Value]
"""Where the element of a row and a column of a triangle is."""


def write_matrices(
    b: ir.IRBuilder,
    host: Host,
    p: Factoring,
    pointers: Sequence[ir.Value],
    unit: ir.Value,
    scratch: ir.Value,
) -> None:
    """The routine of ``p`` for the matrices of one unit, where ``b`` stands."""
    *places, fault = pointers
    (n, k), lanes, number_type = p.sizes, lanes_of(p, host), register_type(p.dtype)
    vector = widened(number_type, lanes)
    batch = [_offsets(b, p, at, unit, lanes) for at in p.at]
    memory = LaneMemory(b, p, lanes, number_type, vector, places, fault, batch)
    bytes_of_a = (n + 1) * n * lanes * p.dtype.itemsize
    x = b.gep(scratch, [I64(bytes_of_a)], source_etype=I8)
    code = LaneCode(memory, Grid(scratch, n), Grid(x, k))
    _ROUTINES[p.routine](code, **dict(p.flags))


def _offsets(
    b: ir.IRBuilder, p: Factoring, at: Layout, unit: ir.Value, lanes: int
) -> list[ir.Value]:
    """Where the matrix of each lane starts, in elements."""
    found = []
    for lane in range(lanes):
        which = b.add(b.mul(unit, I64(lanes)), I64(lane))
        rest = least(b, which, p.matrices - 1)
        start: ir.Value = I64(at.offset)
        for n, stride in zip(p.batch[::-1], at.strides[-3::-1], strict=True):
            start = b.add(start, b.mul(b.srem(rest, I64(n)), I64(stride)))
            rest = b.sdiv(rest, I64(n))
        found.append(start)
    return found


def _lu(code: LaneCode) -> None:
    m = code.memory
    n = m.p.sizes[0]
    m.read(0, code.a, (n, n))
    with m.each(0, n) as k:
        _pivot(code, n, k)
        _eliminate(code, n, k)
    with m.each(0, n) as r, m.each(0, n) as c:
        m.scattered(m.get(code.a, r, c), (c, n), (r, 1))
    with m.each(0, n) as c:
        m.scattered(m.get(code.a, n, c), (n, n), (c, 1))


def _pivot(code: LaneCode, n: int, k: ir.Value) -> None:
    """The largest element of a column from row ``k`` on comes to row ``k``."""
    m = code.memory
    b, after = code.b, code.b.add(k, I64(1))
    with b.goto_entry_block():
        most, row = b.alloca(m.vector), b.alloca(m.vector)
    b.store(code.intrinsic("fabs", m.get(code.a, k, k)), most)
    b.store(code.row_number(k), row)
    with m.each(after, n) as i:
        size, best = (
            code.intrinsic("fabs", m.get(code.a, i, k)),
            m.load(most),
        )
        larger = b.fcmp_ordered(">", size, best)
        b.store(b.select(larger, size, best), most)
        b.store(b.select(larger, code.row_number(i), m.load(row)), row)
    chosen = m.load(row)
    m.put(chosen, code.a, n, k)
    with m.each(after, n) as i:
        mask = b.fcmp_ordered("==", chosen, code.row_number(i))
        code.exchange(code.a, k, i, mask)


def _eliminate(code: LaneCode, n: int, k: ir.Value) -> None:
    m = code.memory
    b, after, zero = code.b, code.b.add(k, I64(1)), code.number(0.0)
    pivot = m.get(code.a, k, k)
    is_zero = b.fcmp_ordered("==", pivot, zero)
    pivot = b.select(is_zero, code.number(1.0), pivot)
    with m.each(after, n) as i:
        factor = b.fdiv(m.get(code.a, i, k), pivot)
        m.put(factor, code.a, i, k)
        with m.each(after, n) as j:
            place = m.at(code.a, i, j)
            above = m.get(code.a, k, j)
            b.store(code.less_product(m.load(place), factor, above), place)


def _cholesky(code: LaneCode) -> None:
    m = code.memory
    b, n = code.b, m.p.sizes[0]
    m.read(0, code.a, (n, n))
    with m.each(0, n) as k:
        pivot = m.get(code.a, k, k)
        code.fail_if(b.fcmp_unordered("<=", pivot, code.number(0.0)))
        root = code.intrinsic("sqrt", pivot)
        m.put(root, code.a, k, k)
        with m.each(b.add(k, I64(1)), n) as i:
            low = b.fdiv(m.get(code.a, i, k), root)
            m.put(low, code.a, i, k)
            with m.each(b.add(k, I64(1)), b.add(i, I64(1))) as j:
                place, other = m.at(code.a, i, j), m.get(code.a, j, k)
                b.store(code.less_product(m.load(place), low, other), place)
    with m.each(0, n) as r:
        with m.each(0, b.add(r, I64(1))) as c:
            m.scattered(m.get(code.a, r, c), (r, n), (c, 1))
        with m.each(b.add(r, I64(1)), n) as c:
            m.scattered(code.number(0.0), (r, n), (c, 1))


# -- solutions -------------------------------------------------------------------------


def _lu_solve(code: LaneCode, transposed: int) -> None:
    m = code.memory
    m.read(1, code.x, m.p.sizes)
    _by_factors(code, bool(transposed))


def _lu_inv(code: LaneCode) -> None:
    m = code.memory
    n = m.p.sizes[0]
    with m.each(0, n) as r, m.each(0, n) as c:
        is_one = code.b.icmp_signed("==", r, c)
        value = code.b.select(is_one, code.number(1.0), code.number(0.0))
        m.put(value, code.x, r, c)
    _by_factors(code, False)


def _by_factors(code: LaneCode, transposed: bool) -> None:
    """The factors are read as they are kept, transposed."""
    m = code.memory
    n = m.p.sizes[0]
    m.read(0, code.a, (n + 1, n))
    if transposed:
        _substitute(code, lambda i, j: m.at(code.a, i, j), True, False)
        _substitute(code, lambda i, j: m.at(code.a, i, j), False, True)
        _swap(code, True)
    else:
        _swap(code, False)
        _substitute(code, lambda i, j: m.at(code.a, j, i), True, True)
        _substitute(code, lambda i, j: m.at(code.a, j, i), False, False)
    m.write(code.x)


def _swap(code: LaneCode, backwards: bool) -> None:
    m = code.memory
    b, n = code.b, m.p.sizes[0]
    with m.each(0, n) as step:
        k = b.sub(I64(n - 1), step) if backwards else step
        chosen = m.get(code.a, n, k)
        with m.each(b.add(k, I64(1)), n) as i:
            mask = b.fcmp_ordered("==", chosen, code.row_number(i))
            code.exchange(code.x, k, i, mask)


def _solve_triangular(code: LaneCode, lower: int, transposed: int, unit: int) -> None:
    m = code.memory
    n = m.p.sizes[0]
    m.read(0, code.a, (n, n))
    m.read(1, code.x, m.p.sizes)

    def place(i: At, j: At) -> ir.Value:
        return m.at(code.a, j, i) if transposed else m.at(code.a, i, j)

    _substitute(code, place, bool(lower) != bool(transposed), bool(unit))
    m.write(code.x)


def _substitute(code: LaneCode, place: Place, lower: bool, unit: bool) -> None:
    """The columns of ``x`` become the solution of a triangular system."""
    m = code.memory
    b, (n, k) = code.b, m.p.sizes
    with m.each(0, n) as step:
        i = step if lower else b.sub(I64(n - 1), step)
        if not unit:
            pivot = m.load(place(i, i))
            code.fail_if(b.fcmp_ordered("==", pivot, code.number(0.0)))
            with m.each(0, k) as c:
                here = m.at(code.x, i, c)
                b.store(b.fdiv(m.load(here), pivot), here)
        first, last = (b.add(i, I64(1)), n) if lower else (0, i)
        with m.each(first, last) as j:
            factor = m.load(place(j, i))
            with m.each(0, k) as c:
                there = m.at(code.x, j, c)
                value = m.get(code.x, i, c)
                b.store(code.less_product(m.load(there), factor, value), there)


_ROUTINES: dict[str, Callable[..., None]] = {
    "lu": _lu,
    "cholesky": _cholesky,
    "lu_solve": _lu_solve,
    "lu_inv": _lu_inv,
    "solve_triangular": _solve_triangular,
}
