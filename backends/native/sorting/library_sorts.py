"""Rows put in order by the sorts that NumPy has for its dtypes, which its C API gives
out (``PyArray_ArrFuncs``). They run without the interpreter, in any thread."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
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
from ..machine import COMMON, I8, I32, I64, constant, splat, widened
from ..math import declared
from .sort_keys import bits_of, key, key_type, loaded

_LANES = 8
"""Of the vectors that elements are made integers in."""


@functools.cache
def dtypes() -> frozenset[str]:
    """Names of the dtypes whose rows can be put in order."""
    found = sorts()
    known = {d for d in SORTED_DTYPES if found and all(found[n] for n in _names(d))}
    return frozenset(known | ({"bfloat16"} if {"int16", "int64"} <= known else set()))


def _names(dtype: str) -> list[str]:
    return [f"numpy_{w}_{k}_{dtype}" for w in ("sort", "argsort") for k in SORT_KINDS]


def _has_pairs(p: Ordering) -> bool:
    """Whether an element and its position are one integer of 64 bits: equal elements
    then come in their order, whatever the sort."""
    return p.is_positions and p.dtype.itemsize <= 4 and p.size < 1 << 31


def _called(p: Ordering) -> tuple[str, DType]:
    """The function that puts a row in order: its name, and the dtype it sorts."""
    dtype = p.dtype
    if _has_pairs(p):
        dtype = np.dtype(np.int64)
    elif dtype == BF16:
        dtype = np.dtype(np.int16)
    what = "argsort" if p.is_positions and not _has_pairs(p) else "sort"
    kind = p.kind if what == "argsort" else "quicksort"
    return f"numpy_{what}_{kind}_{dtype.name}", dtype


def name_of(p: Ordering) -> str:
    """What the function is called that puts a row in order."""
    return _called(p)[0]


def seconds_of(p: Ordering) -> float:
    """About how long one thread takes (s)."""
    each = 1.5 if p.is_positions else 1
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
    with loop(b, start, stop, 1) as row:
        first = b.mul(row, I64(p.size))
        rows = [
            b.gep(a, [b.mul(first, I64(size))], source_etype=I8)
            for a, size in zip(arrays, sizes, strict=True)
        ]
        if _has_pairs(p):
            _paired(b, p, *rows)
        elif p.is_positions:
            with loop(b, I64(0), I64(p.size), 1) as i:
                b.store(i, b.gep(rows[1], [i], source_etype=I64))
        elif p.dtype == BF16:
            _changed(b, p, rows[0], lambda x: key(b, x, p.dtype))
        given = [
            *rows[-1 if _has_pairs(p) else 0 :],
            I64(p.size),
            ir.Constant(PTR, None),
        ]
        function = declared(b, name_of(p), [a.type for a in given], I32)
        failed = b.icmp_signed("<", b.call(function, given), I32(0))
        with b.if_then(failed, likely=False):
            b.store(I8(1), fault)
        if _has_pairs(p):
            _positions(b, p, rows[1])
        elif not p.is_positions and p.dtype == BF16:
            _changed(b, p, rows[0], lambda x: bits_of(b, x, p.dtype))


def _vectors(b: ir.IRBuilder, size: int) -> Iterator[tuple[ir.Value, int]]:
    """The positions of a row: the first of vectors, and of what is left."""
    whole = size - size % _LANES
    for start, stop, lanes in ((0, whole, _LANES), (whole, size, 1)):
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
        at = b.gep(row, [i], source_etype=key_type(p.dtype))
        found = key(b, loaded(b, at, p.dtype, lanes), p.dtype, one_zero=True)
        wide = b.sext(found, widened(I64, lanes))
        upper = b.shl(wide, constant(I64, lanes, 32))
        places: Any = i
        if lanes > 1:
            each = ir.Constant(ir.VectorType(I64, lanes), [*range(lanes)])
            places = b.add(splat(b, i, lanes), each)
        to = b.gep(out, [i], source_etype=I64)
        b.store(b.or_(upper, places), to, align=8)


def _positions(b: ir.IRBuilder, p: Ordering, row: ir.Value) -> None:
    for i, lanes in _vectors(b, p.size):
        at = b.gep(row, [i], source_etype=I64)
        pair = b.load(at, align=8, typ=widened(I64, lanes))
        b.store(b.and_(pair, constant(I64, lanes, (1 << 32) - 1)), at, align=8)
