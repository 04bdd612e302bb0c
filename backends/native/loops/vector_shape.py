"""How nests are cut for a processor: vectors, steps of several, and units of work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd, prod

import numpy as np

from ...loop_ir import (
    FUNCTIONS,
    Accumulate,
    Compute,
    DType,
    Gather,
    Keep,
    Load,
    LoopVar,
    Nest,
    Position,
    Running,
    Scatter,
    Statement,
    Store,
    Unsupported,
)
from ..machine import Host, aligned, memory_type
from . import elementwise
from .accumulators import reducer

PANEL = 1024
"""Most rows that are reduced together where rows lie side by side in memory."""
MIN_PANEL = 64
BLOCK = 8192
"""Elements in a unit of a long loop."""
UNROLL = 4
"""Vectors in a step of the innermost loop, where its work is light. Two rows abreast,
or the passes of different rows in one loop, are no faster, though each pass waits for
what the one before reduces: with AVX-512 the units do two operations a cycle and are
busy (softmax of rows in cache: 18 operations in 9 cycles)."""
LIGHT = 24
"""Statements of a body up to which its work is light."""
PART = 128
"""Elements of each row of a panel, after which sums are carried over: after 64, 8192
rows of 1024 take 1.01 times as long."""
AT_ONCE = 2
"""Elements of each row of a panel that are read before the next rows: four streams of
memory side by side are foreseen worse, and one by one NaN is looked for twice as often
(maxima of 1024 rows of 1024 elements: 42 µs, by four 46, by one 56 to 60)."""
FEW_AT_ONCE, MANY_AT_ONCE = 4, 8
"""The same for extremes of what no second cache holds, by one thread and by several,
which wait less for memory and more for what they note of NaN: maxima of 8192 rows of
1024 elements take two threads 0.50 ms, by four at once 0.57, by two 0.74, one by one
0.90. One thread takes as long for all, from a third cache 1.05 times for eight."""
ONE_BY_ONE = 512
"""Rows of a panel, or multiples, of which sums read one element each at a time, from
end to end of memory: in a second cache in 0.75 of the time that four streams take. From
a third cache, where memory is asked for ahead, two at a time take 0.93 of the time of
two threads, and as long with one. In shorter panels a step would wait for what the last
one stored."""
FAR_AT_ONCE = 4
"""Elements of each row that several threads read at once for sums of what no cache may
hold, unless the processor foresees one by one better: 8192 rows of 1024 take two
threads 0.53 ms, by two 0.59, one by one 0.63, and from memory 0.95 of one by one. One
thread takes as long by two as by four, and 0.96 to 0.99 of one by one."""
NEAR_BYTES = 1 << 20
"""What a second cache holds, from which asking for memory takes longer than waiting."""
FAR_BYTES = 1 << 24
"""What no cache holds."""
MOST_VECTORS = 32
"""Vectors that are written out where they run on from row to row."""
SHORT = 2, 4
"""Vectors that a short row has: one whose elements are written, and others."""
LONG = 128
"""Elements of a row from which on the processor does not look far enough ahead to
begin the next row by itself while each element waits for the one before it."""
CAREFUL = 8
"""Additions in a row, after which a partial sum is carried over."""


@dataclass(frozen=True)
class Shape:
    """How a nest is cut for one host."""

    lanes: int
    unroll: int
    units: int
    """What a call's ``start`` and ``stop`` count."""
    keep_bytes: int
    """Memory of one thread for what passes keep."""


def shape_of(nest: Nest, host: Host) -> Shape:
    """How ``nest`` is cut."""
    width = lanes(nest, host)
    heavy = max((len(p.body) for p in nest.passes), default=0) > LIGHT
    unroll = 1 if heavy else UNROLL
    if is_wide(nest):
        last = nest.grid[-1].size
        panel = panel_of(nest)
        units = nest.rows // last * -(-last // panel)
        states = sum(
            reducer(s.op, s.dtype).parts * aligned(s.dtype.itemsize * panel)
            for s in sums(nest)
        )
        return Shape(width, UNROLL, units, states)
    if nest.vertical:  # whole cache lines of each row, whatever the work
        unroll = UNROLL if heavy else 2 * UNROLL
        unroll = UNROLL if waits(nest) else unroll
        last = nest.grid[-1].size
        units = nest.rows // last * sum(split(last, width, unroll))
    else:
        units = nest.rows * blocks(nest) // prod(v.size for v in nest.ordered)
        if (ahead := stretch(nest, host)) is not None:
            units //= prod(v.size for v in ahead.inner[:-1])
    apart = width * unroll if nest.vertical else 1
    keeps = sum(aligned(d.itemsize * n * apart) for d, n in nest.keeps)
    return Shape(width, unroll, units, keeps)


def is_wide(nest: Nest) -> bool:
    """Whether the rows of a nest that lie side by side are reduced in panels: blocks of
    elements of all rows of the panel in turn, so that memory is read in order."""
    bodies = [p for p in nest.passes if p.body]
    if not nest.vertical or len(bodies) != 1 or nest.keeps:
        return False
    (p,) = bodies
    plain = all(s.op not in ("argmax", "argmin") for s in sums(nest))
    stores = any(isinstance(s, (Store, Position)) for s in p.body)
    enough = nest.grid[-1].size >= MIN_PANEL and p.loops[-1].size >= CAREFUL
    beside = all(
        s.at.coefficient(nest.grid[-1]) in (0, 1) for s in p.body if isinstance(s, Load)
    )
    return bool(sums(nest)) and plain and not stores and enough and beside


def turned(nest: Nest, host: Host) -> Nest:
    """The nest with lanes along its rows, where these are reduced, many, and shorter
    than a vector: distances of points in a plane, norms of quaternions. Also where
    functions of much work would run for single elements at the end of a short row, and
    where each element of a row waits for the one before it: then several rows are
    computed at once, an element of each in turn (running products of 1000 rows of 252
    float32 in 0.46 of the time)."""
    if waits(nest) and nest.grid and nest.passes[0].loops[-1].size >= LONG:
        return replace(nest, vertical=True)
    several = nest.vertical or nest.chunk is not None or bool(nest.ordered)
    looks = any(isinstance(s, (Running, Gather, Scatter)) for s in nest.statements())
    if several or looks or is_map(nest):
        return nest
    side = replace(nest, vertical=True)
    row = max((prod(v.size for v in p.loops) for p in nest.passes), default=1)
    width = lanes(side, host)
    stores = [s.at for s in nest.statements() if isinstance(s, Store)]
    steps = {v: abs(stores[0].coefficient(v)) for v in nest.grid if v.size >= width}
    along = [v for v, step in steps.items() if step and step == min(steps.values())]
    writes = any(isinstance(s, Store) for p in nest.passes for s in p.body)
    most = SHORT[not writes] * width
    ends = row < most and row % width > 1 and calls_functions(nest)
    if (row >= width and not ends) or not along:
        return nest
    rest = (v for v in nest.grid if v != along[-1])
    return replace(side, grid=(*rest, along[-1]))


def waits(nest: Nest) -> bool:
    """Whether elements of rows that do not lie side by side are made one from the
    other."""
    if not any(isinstance(s, Running) and s.is_ordered for s in nest.statements()):
        return False
    return not nest.vertical or not any(
        s.at.coefficient(nest.grid[-1]) == 1
        for s in nest.statements()
        if isinstance(s, (Load, Store))
    )


def calls_functions(nest: Nest) -> bool:
    """Whether a nest computes exponentials and their like."""
    return any(isinstance(s, Compute) and s.op in FUNCTIONS for s in nest.statements())


@dataclass(frozen=True)
class VectorRun:
    """What vectors of a map run on through, whose rows are shorter than they."""

    across: LoopVar
    """What follows each other from end to end."""
    inner: tuple[LoopVar, ...]
    """The variables of the grid inside of it, and that of the loop."""

    @property
    def variables(self) -> tuple[LoopVar, ...]:
        return self.across, *self.inner

    @property
    def size(self) -> int:
        """Elements of one value of ``across``."""
        return prod(v.size for v in self.inner)

    def cell(self, i: int) -> tuple[int, ...]:
        """What the variables are at element ``i`` from the first."""
        found = []
        for v in reversed(self.inner):
            i, at = divmod(i, v.size)
            found.append(at)
        return (i, *reversed(found))


def stretch(nest: Nest, host: Host) -> VectorRun | None:
    """What vectors of a map run on through: from row to row where rows are shorter than
    they, and from one small matrix to the next where it has too few rows for that."""
    if nest.vertical or nest.chunk is not None or nest.ranged or not is_map(nest):
        return None
    (p,) = nest.passes
    width = lanes(nest, host)
    if len(p.loops) != 1 or not 1 < p.loops[0].size < width:
        return None
    grid = list(nest.grid)
    inner: tuple[LoopVar, ...] = p.loops
    while grid:
        across = grid.pop()
        size = prod(v.size for v in inner)
        if size // gcd(size, width) > MOST_VECTORS:
            return None
        if across.size >= rows_of(size, width):
            return VectorRun(across, inner)
        inner = (across, *inner)
    return None


def rows_of(size: int, width: int) -> int:
    """The rows of ``size`` elements that fill whole vectors."""
    return width // gcd(size, width)


def overlaps(nest: Nest, size: int, width: int) -> bool:
    """Whether the last vector of a row may compute some elements of the one before it
    again, in the place of single elements."""
    if nest.aliased or nest.streamed or nest.ranged or nest.chunk is not None:
        return False
    once = is_map(nest) and blocks(nest) == 1
    return once and size > width and size % width > 1


def panel_of(nest: Nest) -> int:
    """Rows of a panel: as many as let each thread have one."""
    share = -(-nest.grid[-1].size // nest.threads)
    return min(aligned(share), PANEL)


def at_once(nest: Nest, host: Host) -> int:
    """Elements of each row of a panel that are read before the next rows."""
    (first, *others) = sums(nest)
    if others:
        return AT_ONCE
    if first.op in ("max", "min") and not is_near(nest):
        return FEW_AT_ONCE if nest.threads == 1 else MANY_AT_ONCE
    if is_far(nest):
        several = FAR_AT_ONCE if nest.threads > 1 else AT_ONCE
        return 1 if host.foresees_reads else several
    in_order = nest.grid[-1].size % ONE_BY_ONE == 0 and is_near(nest)
    return 1 if first.op == "sum" and in_order else AT_ONCE


def is_near(nest: Nest) -> bool:
    """Whether what is read fits the second cache."""
    return read_bytes(nest) <= NEAR_BYTES


def is_far(nest: Nest) -> bool:
    """Whether no cache holds what is read."""
    return read_bytes(nest) > FAR_BYTES


def read_bytes(nest: Nest) -> int:
    """Bytes of memory that are read."""
    loads = (s for s in nest.statements() if isinstance(s, Load))
    return sum(bytes_of(s, nest) for s in loads)


def bytes_of(s: Load | Store, nest: Nest) -> int:
    """Bytes of memory that ``s`` reads or writes."""
    return prod(v.size for v in s.at.variables) * nest.buffers[s.buffer].dtype.itemsize


def sums(nest: Nest) -> list[Accumulate]:
    return [s for s in nest.statements() if isinstance(s, Accumulate)]


def lanes(nest: Nest, host: Host) -> int:
    """Elements in a vector: as many of the widest number as a register holds."""
    sizes = [1]
    for s in nest.statements() if nest.vertical else _of_elements(nest):
        if isinstance(s, (Gather, Load, Store)):
            sizes.append(nest.buffers[s.buffer].dtype.itemsize)
        if isinstance(s, (Gather, Load, Compute)) and s.dtype != np.dtype(bool):
            sizes.append(s.dtype.itemsize)
    widest = max(sizes)
    positions = any(isinstance(s, Position) for s in nest.statements())
    if (
        positions
        and widest == 8
        and all(b.dtype.itemsize <= 4 or b.written for b in nest.buffers)
    ):
        widest = 4
    found = max(host.vector_bits // (8 * widest), 1)
    for s in nest.statements():
        if isinstance(s, Running) and not nest.vertical:
            row = nest.passes[0].loops[0].size  # no longer than a row, of a power of 2
            found = min(found, 1 << row.bit_length() - 1)
    return 1 if waits(nest) else found


def _of_elements(nest: Nest) -> Iterator[Statement]:
    for p in nest.passes:
        yield from p.body


def split(size: int, lanes: int, unroll: int) -> tuple[int, int, int]:
    """Steps of several vectors, of one, and of one element."""
    many, rest = divmod(size, lanes * unroll)
    return many, *divmod(rest, lanes)


def is_map(nest: Nest) -> bool:
    """Whether the elements of all rows are independent, and may be computed twice."""
    others = (Accumulate, Running, Scatter)
    return len(nest.passes) == 1 and not any(
        isinstance(s, others) for s in nest.statements()
    )


def blocks(nest: Nest) -> int:
    """Units of one row."""
    loops = nest.passes[0].loops
    if nest.ranged or not is_map(nest) or len(loops) != 1 or loops[0].size < 2 * BLOCK:
        return 1
    return -(-loops[0].size // BLOCK)


def check(nest: Nest) -> None:
    """Raise :class:`Unsupported` for a statement that has no code here."""
    dtypes: dict[int, DType] = {}
    for b in nest.buffers:
        memory_type(b.dtype)
    for s in nest.statements():
        if isinstance(s, Compute):
            of = dtypes[s.args[-1]]
            if not elementwise.is_supported(s.op, of, s.dtype):
                raise Unsupported(f"{s.op} of {of}")
        if isinstance(s, Running) and not elementwise.is_supported(
            s.op, s.dtype, s.dtype
        ):
            raise Unsupported(f"running {s.op} of {s.dtype}")
        if isinstance(s, Accumulate):
            reducer(s.op, dtypes[s.value])
        if not isinstance(s, (Keep, Store)):
            dtypes[s.target] = s.dtype
