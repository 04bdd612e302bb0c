"""Rows put in order by the sorts that NumPy has for its dtypes, which its C API gives
out (``PyArray_ArrFuncs``). They run without the interpreter, in any thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from math import log2
from typing import Any

import numpy as np
from llvmlite import ir

from eqsat.saved import SORT_KINDS, SORTED_DTYPES, sorts
from eqsat.terms import BF16

from ...loop_ir import (
    DType,
    Ordering,
)
from ..loops import PTR, loop
from ..machine import COMMON, I8, I32, I64, widened
from ..math import declared
from . import selection
from .sort_keys import (
    LANES,
    bits_of,
    has_pairs,
    key,
    key_type,
    loaded,
    pairs,
    positions,
)


@cache
def dtypes() -> frozenset[str]:
    """Names of the dtypes whose rows can be put in order."""
    found = sorts()
    known = {d for d in SORTED_DTYPES if found and all(found[n] for n in _names(d))}
    return frozenset(known | ({"bfloat16"} if {"int16", "int64"} <= known else set()))


def _names(dtype: str) -> list[str]:
    return [f"numpy_{w}_{k}_{dtype}" for w in ("sort", "argsort") for k in SORT_KINDS]


def _called(p: Ordering) -> tuple[str, DType]:
    """The function that puts a row in order: its name, and the dtype it sorts."""
    dtype = p.dtype
    if has_pairs(p):
        dtype = np.dtype(np.int64)
    elif dtype == BF16:
        dtype = np.dtype(np.int16)
    what = "argsort" if p.is_positions and not has_pairs(p) else "sort"
    kind = p.kind if what == "argsort" else "quicksort"
    return f"numpy_{what}_{kind}_{dtype.name}", dtype


def name_of(p: Ordering) -> str:
    """What the function is called that puts a row in order."""
    return _called(p)[0]


def seconds_of(p: Ordering) -> float:
    """About how long one thread takes (s)."""
    each = 1.5 if p.is_positions else 1
    if p.wanted:
        return p.rows * selection.steps(p) * each * COMMON.sort_step_s
    return p.rows * p.size * each * (1 + log2(max(p.size, 2))) * COMMON.sort_step_s


def emit(
    b: ir.IRBuilder,
    p: Ordering,
    pointers: Sequence[ir.Value],
    start: ir.Value,
    stop: ir.Value,
) -> None:
    """Rows from ``start`` to ``stop`` in order; notes where a sort has no memory."""
    *arrays, fault = pointers
    sizes = [p.dtype.itemsize, 8] if p.is_positions else [p.dtype.itemsize]
    with loop(b, start, stop, 1) as number:
        first = b.mul(number, I64(p.size))
        rows = [
            b.gep(a, [b.mul(first, I64(size))], source_etype=I8)
            for a, size in zip(arrays, sizes, strict=True)
        ]
        if p.wanted:
            row, out = rows
            selection.emit(b, p, row, out, partial(_call, b, p, fault, [out]))
        else:
            _whole(b, p, fault, rows)


def _whole(
    b: ir.IRBuilder, p: Ordering, fault: ir.Value, rows: Sequence[ir.Value]
) -> None:
    """A row, all of it."""
    if has_pairs(p):
        _paired(b, p, *rows)
    elif p.is_positions:
        with loop(b, I64(0), I64(p.size), 1) as i:
            b.store(i, b.gep(rows[1], [i], source_etype=I64))
    elif p.dtype == BF16:
        _changed(b, p, rows[0], lambda x: key(b, x, p.dtype))
    _call(b, p, fault, rows[1:] if has_pairs(p) else rows, I64(p.size))
    if has_pairs(p):
        _positions(b, p, rows[1])
    elif not p.is_positions and p.dtype == BF16:
        _changed(b, p, rows[0], lambda x: bits_of(b, x, p.dtype))


def _call(
    b: ir.IRBuilder,
    p: Ordering,
    fault: ir.Value,
    rows: Sequence[ir.Value],
    size: ir.Value,
) -> None:
    """The sort of a row of so many elements."""
    given = [*rows, size, ir.Constant(PTR, None)]
    function = declared(b, name_of(p), [a.type for a in given], I32)
    failed = b.icmp_signed("<", b.call(function, given), I32(0))
    with b.if_then(failed, likely=False):
        b.store(I8(1), fault)


def _vectors(b: ir.IRBuilder, size: int) -> Iterator[tuple[ir.Value, int]]:
    """The positions of a row: the first of vectors, and of what is left."""
    whole = size - size % LANES
    for start, stop, lanes in ((0, whole, LANES), (whole, size, 1)):
        if start < stop:
            with loop(b, I64(start), I64(stop), lanes) as i:
                yield i, lanes


def _changed(
    b: ir.IRBuilder, p: Ordering, row: ir.Value, change: Callable[[Any], Any]
) -> None:
    for i, lanes in _vectors(b, p.size):
        at = b.gep(row, [i], source_etype=key_type(p.dtype))
        b.store(change(loaded(b, at, p.dtype, lanes)), at, align=p.dtype.itemsize)


def _paired(b: ir.IRBuilder, p: Ordering, row: ir.Value, out: ir.Value) -> None:
    """Elements, and in the lower half their positions."""
    for i, lanes in _vectors(b, p.size):
        to = b.gep(out, [i], source_etype=I64)
        b.store(pairs(b, p, row, i, lanes), to, align=8)


def _positions(b: ir.IRBuilder, p: Ordering, row: ir.Value) -> None:
    for i, lanes in _vectors(b, p.size):
        at = b.gep(row, [i], source_etype=I64)
        pair = b.load(at, align=8, typ=widened(I64, lanes))
        b.store(positions(b, pair), at, align=8)
