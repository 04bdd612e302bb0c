"""Long programs in pieces: split where few values are live, optimise each distinct
piece once.

A region is a run of terms in evaluation order. Its canonical key abstracts from which
weights it uses, so the layers of a deep network collapse to a handful of regions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from eqsat.egraph import Inserted
from eqsat.rulelang import LEAF_FACTS, OF_MASKS, facts_of
from eqsat.terms import INPUT, SCALAR, Op, Term, postorder

LEAST, MOST = 24, 110
"""Terms in a region. 110 hold a transformer block as NumPy users write it (70 to 100
terms)."""


@dataclass
class Region:
    """Terms to optimise together."""

    terms: list[Term]
    """Every term in evaluation order, leaves and bare numbers among them."""
    leaves: list[Term]
    """Terms that come from outside."""
    constants: frozenset[int]
    """Which leaves are known when the program is compiled."""
    facts: dict[int, tuple[str, ...]]
    """Relations that hold for constant leaves."""
    roots: list[Term]
    """Terms that are used outside."""
    key: tuple[Any, ...]
    """Equal for regions that differ only in which leaves they use."""
    is_written: bool = False
    """Whether it is computed as it was written."""


def split(
    roots: Sequence[Term],
    constant: dict[Term, bool],
    whole: bool = False,
    outside: Collection[Term] = (),
    asked: Collection[str] = tuple(LEAF_FACTS),
    written: Collection[Term] = (),
) -> list[Region]:
    """The regions of a program, in evaluation order. ``constant``: what
    :func:`is_constant` says; ``outside``: terms that are leaves wherever they are read;
    ``asked``: which of :data:`LEAF_FACTS` are read off constants; ``written``: terms
    that are computed as they were written, in regions of their own.
    """
    levels = _levels(
        [
            t
            for t in postorder(roots)
            if not (constant[t] or t.op is INPUT or t in outside)
        ],
        written,
    )
    order = [t for level in levels for t in level]
    if not order:
        return []
    last: dict[Term, int] = {}
    place = {t: i for i, t in enumerate(order)}
    for i, t in enumerate(order):
        for a in t.args:
            last[a] = i
    wanted = {r for r in roots if r in place}
    live = _live(order, last, wanted)
    borders: list[int] = []
    for level in levels:
        start = place[level[0]]
        span = range(start, start + len(level))
        borders += span[-1:] if whole else _borders(span, live)
    where: dict[Term, int] = {}
    start = 0
    pieces: list[list[Term]] = []
    for k in borders:
        piece = order[start : k + 1]
        where.update((t, len(pieces)) for t in piece)
        pieces.append(piece)
        start = k + 1
    later = set(wanted)
    for t in order:
        later.update(a for a in t.args if a in where and where[a] != where[t])
    return [
        region_of(p, later, constant, outside, asked, p[0] in written) for p in pieces
    ]


def stretches(regions: Sequence[Region]) -> tuple[dict[int, int], frozenset[int]]:
    """The stretch of each region, by its ``id``, and the stretches of several regions:
    neighbours of which one is computed as it was written, and that are no more together
    than a region may be."""
    number: dict[int, int] = {}
    sizes: list[int] = []
    joined: set[int] = set()
    last = False
    for r in regions:
        n = len(r.terms)
        fits = bool(sizes) and sizes[-1] + n <= MOST and (last or r.is_written)
        if fits:
            sizes[-1] += n
            joined.add(len(sizes) - 1)
        else:
            sizes.append(n)
        number[id(r)] = len(sizes) - 1
        last = r.is_written
    return number, frozenset(joined)


def _levels(order: Sequence[Term], written: Collection[Term]) -> list[list[Term]]:
    """Terms in runs, in turn such as are ``written`` and others, each after the runs
    that it reads."""
    level: dict[Term, int] = {}
    runs: dict[int, list[Term]] = {}
    for t in order:
        mine = int(t in written)
        below = [level[a] + (level[a] + mine) % 2 for a in t.args if a in level]
        level[t] = max(below, default=mine)
        runs.setdefault(level[t], []).append(t)
    return [runs[k] for k in sorted(runs)]


def _live(
    order: Sequence[Term], last: Mapping[Term, int], wanted: Collection[Term]
) -> list[int]:
    """How many values are in use after each term."""
    n = len(order)
    change = [0] * (n + 1)
    for i, t in enumerate(order):
        change[i] += 1
        change[n if t in wanted else last.get(t, i)] -= 1
    return [*accumulate(change)]


def _borders(span: range, live: Sequence[int]) -> list[int]:
    """Places of ``span`` after which to cut, chosen where the fewest values are
    live."""
    borders = []
    start, end = span.start, span.stop
    while end - start > MOST:
        window = range(start + LEAST - 1, start + MOST)
        k = min(window, key=lambda i: (live[i], -i))
        borders.append(k)
        start = k + 1
    return [*borders, end - 1]


def region_of(
    piece: Sequence[Term],
    later: set[Term],
    constant: Mapping[Term, bool],
    outside: Collection[Term] = (),
    asked: Collection[str] = OF_MASKS,
    is_written: bool = False,
) -> Region:
    """The region of the terms ``piece``; ``later`` holds those that are used outside,
    and ``outside`` numbers that may be others in equal regions."""
    inside = set(piece)
    local: dict[Term, int] = {}
    leaves: list[Term] = []
    signature: list[Any] = []
    facts: dict[int, tuple[str, ...]] = {}

    def refer(t: Term) -> int:
        if t not in local:
            local[t] = len(local)
            if t.op is SCALAR and _is_plain(t) and t not in outside:
                signature.append(("scalar", repr(t.attrs[0])))
            else:
                known = facts_of(t, asked) if constant[t] else ()
                if known:
                    facts[len(leaves)] = known
                signature.append(("leaf", t.type, constant[t], known))
                leaves.append(t)
        return local[t]

    for t in piece:
        args = tuple(refer(a) if a not in inside else local[a] for a in t.args)
        local[t] = len(local)
        signature.append((t.op.name, t.attrs, args, t in later))
    numbers = frozenset(i for i, t in enumerate(leaves) if constant[t])
    return Region(
        list(local),
        leaves,
        numbers,
        facts,
        [t for t in piece if t in later],
        (is_written, *signature),
        is_written,
    )


def inserted(region: Region, first_leaf: int = 0, base: int = 0) -> Inserted:
    """A region as terms to insert, whose leaves are numbered from ``first_leaf`` on."""
    return Inserted(
        region.terms,
        {t: first_leaf + i for i, t in enumerate(region.leaves)},
        frozenset(first_leaf + i for i in region.constants),
        {first_leaf + i: names for i, names in region.facts.items()},
        base,
    )


def ops_in(regions: Iterable[Region]) -> dict[tuple[str, int], Op]:
    """The ops of some regions, by name and number of arguments."""
    found: dict[tuple[str, int], Op] = {}
    for region in regions:
        leaves = set(region.leaves)
        for t in region.terms:
            if t not in leaves and t.op is not SCALAR:
                assert isinstance(t.op, Op)
                found[t.op.name, len(t.args)] = t.op
    return dict(sorted(found.items()))


def _is_plain(t: Term) -> bool:
    """Whether a bare number can be a number of the engine: finite or infinite, not
    -0.0, 64 bits."""
    value = t.attrs[0]
    if isinstance(value, float):
        return not math.isnan(value) and not (
            value == 0 and math.copysign(1, value) < 0
        )
    return isinstance(value, int) and -(2**63) <= value < 2**63
