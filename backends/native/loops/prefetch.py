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
    is_function,
)
from ..machine import COMMON, I8, I32, I64, memory_type
from ..math import declared
from .addresses import Addresses
from .nest_code import PTR, NestCode, Strand
from .vector_shape import (
    at_once,
    bytes_of,
    exceeds_caches,
    fits_second_cache,
    is_wide,
    panel_of,
    read_bytes,
)

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
        ahead = (
            COMMON.near_ahead_bytes if fits_second_cache(nest) else COMMON.ahead_bytes
        )
        if wide and read_bytes(nest) <= COMMON.first_cache_bytes:
            return
        turns = at_once(nest, c.host) if wide else 1
        for s in loads:
            size = sizes[s.buffer]
            stride = s.at.coefficient(var) * size
            rows = max(ahead // (panel * size), turns) if wide else COMMON.rows_ahead
            if abs(stride) >= LINE * 4:
                yield s, stride * rows
    elif len(bodies) > 1:
        heavy = any(
            isinstance(s, Compute) and is_function(s.op) for s in bodies[1].body
        )
        most = COMMON.next_heavy_row_bytes if heavy else COMMON.next_row_bytes
        earlier = {(s.buffer, s.at) for s in bodies[0].body if isinstance(s, Load)}
        for s in loads:
            size = sizes[s.buffer]
            stride = s.at.coefficient(nest.grid[-1]) * size if nest.grid else 0
            row = prod(v.size for v in s.at.variables if v in p.loops) * size
            is_next = p is bodies[1] and (s.buffer, s.at) in earlier
            if is_next and 0 < abs(stride) <= most:
                yield s, stride
            elif row > most and bytes_of(s, nest) > COMMON.second_cache_bytes:
                if not c.host.tuning.foresees_reads:
                    near = p is not bodies[0] and row <= COMMON.second_cache_bytes
                    yield s, COMMON.near_ahead_bytes if near else COMMON.ahead_bytes
    elif len(bodies) == 1:
        large = [s for s in loads if bytes_of(s, nest) > COMMON.second_cache_bytes]
        if any(isinstance(s, Accumulate) for s in p.body):
            asks = len(large) == 1 or (exceeds_caches(nest) and nest.threads == 1)
            asks |= len(large) > 1 and not c.host.tuning.foresees_reads
        else:
            asks = exceeds_caches(nest)
        if asks:
            yield from ((s, COMMON.ahead_bytes // len(large)) for s in large)
        elif fits_second_cache(nest) and len(p.body) <= COMMON.bare_statements:
            many = [s for s in loads if bytes_of(s, nest) > COMMON.first_cache_bytes]
            yield from ((s, COMMON.near_ahead_bytes) for s in many)


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
        size = min(var.size * dtype.itemsize, COMMON.picked_row_bytes)
        for byte in range(0, size, LINE):
            ask(b, first, byte)


def ask(b: ir.IRBuilder, first: ir.Value, byte: ir.Value | int) -> None:
    """Ask for the line so many bytes behind an address."""
    fetch = declared(b, "llvm.prefetch.p0", [PTR, I32, I32, I32])
    by = I64(byte) if isinstance(byte, int) else byte
    place = b.gep(first, [by], source_etype=I8)
    b.call(fetch, [place, *(I32(n) for n in (0, 3, 1))])
