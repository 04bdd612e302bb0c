"""Asking for memory before it is read: processors foresee steps within a page alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from llvmlite import ir

from ...loop_ir import (
    Accumulate,
    Compute,
    Gather,
    Keep,
    Load,
    LoopVar,
    Nest,
    Pass,
    Store,
)
from ..machine import I8, I32, I64, memory_type
from ..math import declared
from .addresses import Addresses
from .nest_code import PTR, NestCode, Strand
from .vector_shape import (
    NEAR_BYTES,
    at_once,
    bytes_of,
    is_far,
    is_near,
    is_wide,
    panel_of,
    read_bytes,
)

AHEAD = 16
"""Rows that are asked for before they are read, where rows lie side by side."""
AHEAD_BYTES = 8192
"""How far ahead memory is asked for that is read from end to end, in all arrays
together: sums of one array end a fifth earlier in a third cache and from memory, there
a sixth earlier than with half of it, and maps from memory 2 to 15 % earlier; maps from
a third cache end no earlier. Sums of two arrays end 3 to 13 % earlier on an Intel Xeon.
On an AMD EPYC they do from memory, by one thread; by two, or from a third cache, later
than unasked. Rows too long for the next one to be asked for take an Intel Xeon 0.92 to
0.99 of the time for norms and variances, and 0.85 for a group_norm of 100 KB each.
"""
NEAR_AHEAD_BYTES = 2048
"""How far ahead in each array that a second cache holds. Arrays of NumPy mostly lie 16
bytes behind the start of a line (large ones always, with the C library of Linux), where
each vector of 64 bytes is in two lines, and waits for both: from the second cache sums
of one array take 1.8 times as long as of one at the start of a line. Asked for, 1.45
times; and 1.05 times at the start of a line. Light maps of two arrays take 0.87 to 0.94
of the time, at the start of a line 1.03.
"""
FIRST_BYTES = 48 << 10
"""What a first cache holds, where asking takes longer than it saves."""
BARE = 8
"""Statements of a body up to which it waits for memory in a second cache."""
NEXT_ROW_BYTES = 1 << 15
"""Rows up to which the next one is asked for while this one is computed."""
NEXT_LONG_ROW_BYTES = 1 << 17
"""The same where :data:`HEAVY` functions are computed of it: softmax of rows of 39 to
117 KiB takes 0.84 to 0.88 of the time from a third cache, and 0.92 from memory. Norms,
which wait for memory in each pass, take 1.04 to 1.08 times as long."""
HEAVY = frozenset(
    "exp exp2 expm1 sinh cosh tanh sigmoid erf normal_cdf log log2 log10 log1p power "
    "sin cos tan".split()
)
"""Functions that take longer than memory does from a second cache."""
GATHERED_BYTES = 1024
"""How much of the next row that an index picks is asked for while this one is read: no
processor foresees where it lies."""
LINE = 64
"""Bytes that are asked for at once."""


def fetch_ahead(
    addresses: Addresses, p: Pass, var: LoopVar, strands: Sequence[Strand]
) -> None:
    """Ask for what steps to come read, in a step of ``p`` along ``var``."""
    code, wide = addresses.code, strands[-1].offset + strands[-1].lanes
    for s, distance in _distances(code, p, var):
        size = code.nest.buffers[s.buffer].dtype.itemsize
        if addresses.along(s.at) != 1 or wide * size < LINE:
            continue
        first = addresses.pointer(s.buffer, s.at, Strand(1, 0))
        for byte in range(0, wide * size, LINE):
            ask(code.b, first, distance + byte)


def _distances(c: NestCode, p: Pass, var: LoopVar) -> Iterator[tuple[Load, int]]:
    """Loads of a body, and the bytes from what a step reads to what to ask for."""
    nest = c.nest
    bodies = [q for q in nest.passes if q.body]
    loads = [s for s in p.body if isinstance(s, Load)]
    sizes = [b.dtype.itemsize for b in nest.buffers]
    if nest.vertical:
        wide, panel = is_wide(nest), panel_of(nest)
        ahead = NEAR_AHEAD_BYTES if is_near(nest) else AHEAD_BYTES
        if wide and read_bytes(nest) <= FIRST_BYTES:
            return
        turns = at_once(nest, c.host) if wide else 1
        for s in loads:
            size = sizes[s.buffer]
            stride = s.at.coefficient(var) * size
            rows = max(ahead // (panel * size), turns) if wide else AHEAD
            if abs(stride) >= LINE * 4:
                yield s, stride * rows
    elif len(bodies) > 1:
        heavy = any(isinstance(s, Compute) and s.op in HEAVY for s in bodies[1].body)
        most = NEXT_LONG_ROW_BYTES if heavy else NEXT_ROW_BYTES
        earlier = {(s.buffer, s.at) for s in bodies[0].body if isinstance(s, Load)}
        for s in loads:
            size = sizes[s.buffer]
            stride = s.at.coefficient(nest.grid[-1]) * size if nest.grid else 0
            row = prod(v.size for v in s.at.variables if v in p.loops) * size
            is_next = p is bodies[1] and (s.buffer, s.at) in earlier
            if is_next and 0 < abs(stride) <= most:
                yield s, stride
            elif row > most and bytes_of(s, nest) > NEAR_BYTES:
                if not c.host.foresees_reads:
                    near = p is not bodies[0] and row <= NEAR_BYTES
                    yield s, NEAR_AHEAD_BYTES if near else AHEAD_BYTES
    elif len(bodies) == 1:
        large = [s for s in loads if bytes_of(s, nest) > NEAR_BYTES]
        if any(isinstance(s, Accumulate) for s in p.body):
            asks = len(large) == 1 or (is_far(nest) and nest.threads == 1)
            asks |= len(large) > 1 and not c.host.foresees_reads
        else:
            asks = is_far(nest)
        if asks:
            yield from ((s, AHEAD_BYTES // len(large)) for s in large)
        elif is_near(nest) and len(p.body) <= BARE:
            many = [s for s in loads if bytes_of(s, nest) > FIRST_BYTES]
            yield from ((s, NEAR_AHEAD_BYTES) for s in many)


def picked_rows(nest: Nest) -> list[Gather]:
    """Reads of rows that an index picks, of arrays that no second cache holds."""
    bodies = [p for p in nest.passes if p.body]
    if nest.vertical or len(bodies) != 1 or any(p.before for p in nest.passes[1:]):
        return []
    (p,) = bodies
    if len(p.loops) != 1 or any(isinstance(s, Store) for s in p.before):
        return []
    (var,) = p.loops
    of_row = {s.target for s in p.before if not isinstance(s, (Keep, Store))}
    return [
        s
        for s in p.body
        if isinstance(s, Gather)
        and s.by in of_row
        and s.at.coefficient(var) == 1
        and var.size * nest.buffers[s.buffer].dtype.itemsize >= LINE * 4
    ]


def ask_for_rows(
    addresses: Addresses,
    gathers: Sequence[Gather],
    row: Mapping[int, ir.Value],
    var: LoopVar,
) -> None:
    """Ask for the rows that ``gathers`` read by the numbers in ``row``."""
    code, b = addresses.code, addresses.code.b
    code.index[var] = I64(0)
    for s in gathers:
        dtype = code.nest.buffers[s.buffer].dtype
        kind, start = memory_type(dtype), code.function.args[s.buffer]
        first = b.gep(start, [addresses.at(s.at)], source_etype=kind)
        first = b.gep(first, [row[s.by]], source_etype=kind)
        for byte in range(0, min(var.size * dtype.itemsize, GATHERED_BYTES), LINE):
            ask(b, first, byte)


def ask(b: ir.IRBuilder, first: ir.Value, byte: int) -> None:
    """Ask for the line so many bytes behind an address."""
    fetch = declared(b, "llvm.prefetch.p0", [PTR, I32, I32, I32])
    place = b.gep(first, [I64(byte)], source_etype=I8)
    b.call(fetch, [place, *(I32(n) for n in (0, 3, 1))])
