"""The first or last positions of a row in order, without the others.

A sample of the row, in order, gives a bound that all wanted elements are within. Then
elements are only compared with the bound; the few within it are gathered at the
beginning of the result, which is sorted when it is full: the first ones stay, and the
last of them is the next bound. The first 300 of 672,000 elements take a fortieth of the
time of all. The sample is of the whole row, so that one in the wrong order, whose last
elements are the first, takes hardly longer.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt, log2

from llvmlite import ir

from ...loop_ir import Ordering
from ..loops import loop
from ..machine import I32, I64, splat
from .sort_keys import LANES, has_pairs, pairs, positions

_FULL = 4
"""Gathered elements before a sort, for each one that is wanted; twice as many or more
have a row."""
_LEAST = 64
"""Gathered elements before a sort, at least."""

Sort = Callable[[ir.Value], None]
"""Writes the sort of so many pairs at the beginning of the result."""


def _room(p: Ordering) -> int:
    """Elements that are gathered before a sort."""
    return max(_FULL * abs(p.wanted), _LEAST)


def _sample(p: Ordering) -> int:
    """Elements of the sample: as many are within the bound that it gives, or fewer."""
    return min(max(isqrt(p.size * abs(p.wanted)), _room(p)), p.size // 2)


def is_worth_it(p: Ordering) -> bool:
    """Whether few positions of a long row are wanted."""
    return p.wanted != 0 and 2 * _room(p) <= p.size and has_pairs(p)


def steps(p: Ordering) -> float:
    """Comparisons of a row, about."""
    return p.size + 2 * _sample(p) * log2(_sample(p))


def emit(
    b: ir.IRBuilder, p: Ordering, row: ir.Value, out: ir.Value, sort: Sort
) -> None:
    """The wanted positions of a row at their places in ``out``; the others are lost."""
    first, is_last = abs(p.wanted), p.wanted < 0
    with b.goto_entry_block():
        count, bound = b.alloca(I64), b.alloca(I64)

    def found(i: ir.Value, lanes: int) -> ir.Value:
        """Pairs, of which the first ones in order are wanted."""
        pair = pairs(b, p, row, i, lanes)
        return b.not_(pair) if is_last else pair

    def ordered(size: ir.Value) -> None:
        """Sorts pairs, which are so many, and takes a bound from them."""
        sort(size)
        last = b.load(b.gep(out, [I64(first - 1)], source_etype=I64), typ=I64)
        b.store(last, bound)

    def gathered(i: ir.Value, lanes: int) -> None:
        pair, most = found(i, lanes), b.load(bound, typ=I64)
        within = b.icmp_signed(
            "<=", pair, most if lanes == 1 else splat(b, most, lanes)
        )
        some = within
        if lanes > 1:
            mask = b.bitcast(within, ir.IntType(lanes))
            some = b.icmp_unsigned("!=", mask, ir.IntType(lanes)(0))
        with b.if_then(some, likely=False):
            for lane in range(lanes):
                at, one, is_one = b.load(count, typ=I64), pair, within
                if lanes > 1:
                    one = b.extract_element(pair, I32(lane))
                    is_one = b.extract_element(within, I32(lane))
                b.store(one, b.gep(out, [at], source_etype=I64))
                b.store(b.add(at, b.zext(is_one, I64)), count)
            full = b.icmp_signed(">", b.load(count, typ=I64), I64(_room(p) - LANES))
            with b.if_then(full, likely=False):
                ordered(b.load(count, typ=I64))
                b.store(I64(first), count)

    sample = _sample(p)
    with loop(b, I64(0), I64(sample), 1) as i:
        one = found(b.mul(i, I64(p.size // sample)), 1)
        b.store(one, b.gep(out, [i], source_etype=I64))
    ordered(I64(sample))
    b.store(I64(0), count)
    whole = p.size - p.size % LANES
    with loop(b, I64(0), I64(whole), LANES) as i:
        gathered(i, LANES)
    with loop(b, I64(whole), I64(p.size), 1) as i:
        gathered(i, 1)
    sort(b.load(count, typ=I64))
    with loop(b, I64(0), I64(first), 1) as i:
        pair = b.load(b.gep(out, [i], source_etype=I64), typ=I64)
        to = i
        if is_last:
            pair, to = b.not_(pair), b.sub(I64(p.size - 1), i)
        b.store(positions(b, pair), b.gep(out, [to], source_etype=I64))
