"""Short rows put in order by sorting networks: each lane of a vector is another row.

Batcher's odd-even merge sort, of 19 exchanges for 8 elements, 63 for 16, 191 for 32.
Batcher 1968, Sorting networks and their applications. Elements are integers meanwhile
(:mod:`.sort_keys`), whose least and greatest are one instruction each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from llvmlite import ir

from ...loop_ir import (
    Network,
)
from ..loops import loop
from ..machine import I32, I64, Host, widened
from .sort_keys import bits_of, key, key_type, loaded


def exchanges(size: int) -> Iterator[tuple[int, int]]:
    """Pairs of places of a row whose lesser element goes to the first, in order."""
    p = 1
    while p < size:
        k = p
        while k:
            for j in range(k % p, size - k, 2 * k):
                for i in range(min(k, size - j - k)):
                    if (i + j) // (2 * p) == (i + j + k) // (2 * p):
                        yield i + j, i + j + k
            k //= 2
        p *= 2


def _lanes(p: Network, host: Host) -> int:
    """Rows of a vector: a power of 2, at most those of the last axis."""
    count, by = p.rows[-1]
    most = host.vector_bits // (8 * p.dtype.itemsize)
    if by != (1, 1):
        most = min(most, host.tuning.most_single_lanes)
    return min(most, 1 << count.bit_length() - 1)


def units(p: Network, host: Host) -> int:
    """Vectors of rows."""
    return prod(n for n, _ in p.rows[:-1]) * -(-p.rows[-1][0] // _lanes(p, host))


def seconds_of(p: Network, host: Host) -> float:
    """About how long one thread takes (s)."""
    apart = sum(by != 1 for by in p.rows[-1][1])
    steps = 2 * len([*exchanges(p.size)]) + p.size * (8 + 16 * apart)
    return units(p, host) * steps / host.tuning.core_vectors_per_s


def emit(
    b: ir.IRBuilder,
    p: Network,
    host: Host,
    x: ir.Value,
    out: ir.Value,
    start: ir.Value,
    stop: ir.Value,
) -> None:
    """Vectors of rows from ``start`` to ``stop`` in order. The last one of an axis ends
    with it, and may repeat rows of the one before."""
    lanes = _lanes(p, host)
    count, by = p.rows[-1]
    kind = key_type(p.dtype)
    with loop(b, start, stop, 1) as unit:
        blocks = -(-count // lanes)
        rest, block = b.udiv(unit, I64(blocks)), b.urem(unit, I64(blocks))
        first = b.mul(block, I64(lanes))
        is_last = b.icmp_signed(">", first, I64(count - lanes))
        first = b.select(is_last, I64(count - lanes), first)
        at = [
            b.add(b.mul(first, I64(s)), I64(o))
            for s, o in zip(by, p.offset, strict=True)
        ]
        for n, strides in reversed(p.rows[:-1]):
            rest, i = b.udiv(rest, I64(n)), b.urem(rest, I64(n))
            at = [b.add(a, b.mul(i, I64(s))) for a, s in zip(at, strides, strict=True)]
        x_at, out_at = (
            b.gep(block, [a], source_etype=kind)
            for block, a in zip((x, out), at, strict=True)
        )
        row = [key(b, v, p.dtype) for v in _read(b, p, x_at, lanes)]
        for low, high in exchanges(p.size):
            is_less = b.icmp_signed("<", row[high], row[low])
            row[low], row[high] = (
                b.select(is_less, row[high], row[low]),
                b.select(is_less, row[low], row[high]),
            )
        _write(b, p, out_at, [bits_of(b, v, p.dtype) for v in row], lanes)


def _moved(b: ir.IRBuilder, p: Network, at: ir.Value, by: int) -> ir.Value:
    return b.gep(at, [I64(by)], source_etype=key_type(p.dtype)) if by else at


def _read(b: ir.IRBuilder, p: Network, at: ir.Value, lanes: int) -> list[Any]:
    """Each element of rows, as a vector of rows."""
    along, across = p.along[0], p.rows[-1][1][0]
    if across == 1 or lanes == 1:
        return [
            loaded(b, _moved(b, p, at, j * along), p.dtype, lanes)
            for j in range(p.size)
        ]
    if (along, across) == (1, p.size):  # side by side: vectors of all of them
        whole = [
            loaded(b, _moved(b, p, at, i * lanes), p.dtype, lanes)
            for i in range(p.size)
        ]
        if _is_power(p.size):
            return _unzipped(b, whole)
        places = [[r * p.size + j for r in range(lanes)] for j in range(p.size)]
        return [_picked(b, whole, wanted) for wanted in places]
    kind = key_type(p.dtype)
    found = []
    for j in range(p.size):
        vector = ir.Constant(widened(kind, lanes), ir.Undefined)
        for r in range(lanes):
            one = loaded(b, _moved(b, p, at, j * along + r * across), p.dtype, 1)
            vector = b.insert_element(vector, one, I32(r))
        found.append(vector)
    return found


def _write(
    b: ir.IRBuilder, p: Network, at: ir.Value, row: Sequence[Any], lanes: int
) -> None:
    """The inverse of :func:`_read`."""
    along, across = p.along[1], p.rows[-1][1][1]
    size = p.dtype.itemsize
    if across == 1 or lanes == 1:
        for j, vector in enumerate(row):
            b.store(vector, _moved(b, p, at, j * along), align=size)
    elif (along, across) == (1, p.size) and _is_power(p.size):
        for i, vector in enumerate(_zipped(b, row)):
            b.store(vector, _moved(b, p, at, i * lanes), align=size)
    elif (along, across) == (1, p.size):
        for i in range(p.size):
            places = [divmod(i * lanes + e, p.size) for e in range(lanes)]
            wanted = [j * lanes + r for r, j in places]
            vector = _picked(b, row, wanted)
            b.store(vector, _moved(b, p, at, i * lanes), align=size)
    else:
        for j, vector in enumerate(row):
            for r in range(lanes):
                one = b.extract_element(vector, I32(r))
                b.store(one, _moved(b, p, at, j * along + r * across), align=size)


def _is_power(n: int) -> bool:
    return n & n - 1 == 0


def _unzipped(b: ir.IRBuilder, vectors: Sequence[Any]) -> list[Any]:
    """Vectors side by side as one of every n-th element for each first one, where there
    are n of them, a power of 2: n log n shuffles."""
    if len(vectors) == 1:
        return [*vectors]
    lanes = vectors[0].type.count
    pairs = [*zip(vectors[::2], vectors[1::2], strict=True)]
    even, odd = (
        _unzipped(b, [_shuffled(b, x, y, range(i, 2 * lanes, 2)) for x, y in pairs])
        for i in (0, 1)
    )
    return [v for both in zip(even, odd, strict=True) for v in both]


def _zipped(b: ir.IRBuilder, vectors: Sequence[Any]) -> list[Any]:
    """The inverse of :func:`_unzipped`."""
    if len(vectors) == 1:
        return [*vectors]
    lanes = vectors[0].type.count
    even, odd = _zipped(b, vectors[::2]), _zipped(b, vectors[1::2])
    places = [i + lanes * j for i in range(lanes) for j in (0, 1)]
    return [
        _shuffled(b, x, y, half)
        for x, y in zip(even, odd, strict=True)
        for half in (places[:lanes], places[lanes:])
    ]


def _picked(b: ir.IRBuilder, vectors: Sequence[Any], wanted: Sequence[int]) -> Any:
    """The elements ``wanted`` of vectors side by side."""
    lanes = len(wanted)
    found: Any = None
    for v, vector in enumerate(vectors):
        own = {i: w % lanes for i, w in enumerate(wanted) if w // lanes == v}
        if not own:
            continue
        if found is None:
            places = [own.get(i, 0) for i in range(lanes)]
            found = _shuffled(b, vector, vector, places)
        else:
            places = [lanes + own[i] if i in own else i for i in range(lanes)]
            found = _shuffled(b, found, vector, places)
    return found


def _shuffled(b: ir.IRBuilder, x: Any, y: Any, places: Sequence[int]) -> Any:
    mask = ir.Constant(ir.VectorType(I32, len(places)), [I32(i) for i in places])
    return b.shuffle_vector(x, y, mask)
