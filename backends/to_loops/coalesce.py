"""Loops of nests that become one, maps that become grids, and tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from ..loop_ir import (
    LOOPS,
    Affine,
    Gather,
    Load,
    LoopVar,
    Nest,
    Pass,
    Position,
    Statement,
    Store,
    operands,
    over,
)


def spread_out(nest: Nest) -> Nest:
    """A map whose outer loops are the grid. Where a load runs across the innermost loop
    the two innermost ones are of tiles, so that each cache line is read once."""
    (only,) = nest.passes
    if not only.loops:
        steady = Pass((*only.before, *only.body), (), ())
        return replace(nest, passes=(steady,))
    tiled = _tiled(only)
    inner = 1 if tiled is None else 2
    only = tiled or only
    loops = only.loops[-inner:]
    moving: set[int] = set()
    before, body = list(only.before), []
    for s in only.body:
        at = getattr(s, "at", None)
        moves = at is not None and any(at.coefficient(v) for v in loops)
        moves = moves or any(a in moving for a in operands(s))
        if moves or isinstance(s, Store):
            body.append(s)
            moving.add(getattr(s, "target", -1))
        else:
            before.append(s)
    passes = (Pass(tuple(before), loops, tuple(body)),)
    return replace(nest, grid=only.loops[:-inner], passes=passes)


def _tiled(only: Pass) -> Pass | None:
    """The pass in tiles of two loops, if a load runs across the innermost one."""
    last = only.loops[-1]
    for s in only.body:
        if not isinstance(s, Load) or abs(s.at.coefficient(last)) <= 1:
            continue
        across = [v for v in only.loops[:-1] if abs(s.at.coefficient(v)) == 1]
        if across:
            apart = abs(s.at.coefficient(last)) * s.dtype.itemsize
            is_folded = apart % LOOPS.folded_bytes == 0
            most = LOOPS.folded_tile if is_folded else LOOPS.tile
            near, far = _divisor(across[0].size, most[0]), _divisor(last.size, most[1])
            if min(near, far) >= LOOPS.least_tile:
                return _in_tiles(only, ((across[0], near), (last, far)))
    return None


def _divisor(n: int, most: int) -> int:
    """The largest divisor of ``n`` up to ``most``."""
    return next(d for d in range(min(n, most), 0, -1) if n % d == 0)


def _in_tiles(only: Pass, sizes: Sequence[tuple[LoopVar, int]]) -> Pass:
    known: dict[LoopVar, Affine] = {}
    outer, inner = list(only.loops), []
    for v, n in sizes:
        high, low = LoopVar(f"{v}a", v.size // n), LoopVar(f"{v}b", n)
        known[v] = Affine.of(high).times(n) + Affine.of(low)
        outer[outer.index(v)] = high
        inner.append(low)

    loops = (*(v for v in outer if v.size > 1), *inner)
    return Pass(only.before, loops, tuple(over(s, known) for s in only.body))


def coalesced(nest: Nest, whole: frozenset[int] = frozenset()) -> Nest:
    """The nest with neighbouring loops as one wherever every address allows it, but for
    innermost ones of a size in ``whole``."""
    while True:
        pair = next(_mergeable(nest, whole), None)
        if pair is None:
            return nest
        nest = _merged(nest, *pair)


def _mergeable(nest: Nest, whole: frozenset[int]) -> Iterator[tuple[LoopVar, LoopVar]]:
    places = [s.at for s in nest.statements() if hasattr(s, "at")]
    groups = [nest.grid[:-1] if nest.vertical else nest.grid]
    if nest.vertical and nest.chunk is None and len(nest.grid) > 1:
        groups = [nest.grid]
    groups += [p.loops for p in nest.passes]
    for group in groups:
        for a, b in pairwise(group):
            fixed = (nest.chunk, *nest.ordered)
            if a in fixed or b in fixed or not _side_by_side(nest, a, b):
                continue
            if b.size in whole and b == group[-1] and group is not groups[0]:
                continue
            across = all(abs(e.coefficient(b)) != 1 for e in places)
            if across and b == group[-1] and group is not groups[0]:
                continue  # as the borders of an image, which has planes
            if all(e.coefficient(a) == e.coefficient(b) * b.size for e in places):
                yield a, b


def _side_by_side(nest: Nest, a: LoopVar, b: LoopVar) -> bool:
    """Whether ``b`` follows ``a`` wherever one of them is a loop."""
    for group in (nest.grid, *(p.loops for p in nest.passes)):
        if a in group or b in group:
            i = group.index(a) if a in group else -2
            if i < 0 or i + 1 >= len(group) or group[i + 1] != b:
                return False
    return True


def _merged(nest: Nest, a: LoopVar, b: LoopVar) -> Nest:
    both = LoopVar(f"{a}{b}", a.size * b.size)

    def along(variables: tuple[LoopVar, ...]) -> tuple[LoopVar, ...]:
        out = tuple(both if v == b else v for v in variables)
        return tuple(v for v in out if v != a)

    def moved(s: Statement) -> Statement:
        if not isinstance(s, (Gather, Load, Position, Store)):
            return s
        rest = tuple((v, c) for v, c in s.at.terms if v not in (a, b))
        inner = s.at.coefficient(b)
        at = Affine(s.at.offset, rest) + Affine(0, ((both, inner),) if inner else ())
        return replace(s, at=at)

    passes = tuple(
        Pass(tuple(map(moved, p.before)), along(p.loops), tuple(map(moved, p.body)))
        for p in nest.passes
    )
    return replace(nest, grid=along(nest.grid), passes=passes)
