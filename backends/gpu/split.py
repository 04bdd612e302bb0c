"""Reductions of few rows in two steps: parts of each row by many thread groups, then
the parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ..kernels.affine import Affine, Var
from ..kernels.language import (
    Accumulate,
    Buffer,
    Const,
    Load,
    Nest,
    Pass,
    Statement,
    Store,
)

LANES = 1 << 16
"""Threads that keep a GPU busy."""
LEAST = 1 << 15
"""Elements below which one step is as fast."""
SHARE = 64
"""Fewest elements of a row in a part."""


def in_two_steps(nest: Nest) -> tuple[Nest, Nest] | None:
    """``nest`` as one that reduces parts into memory, and one that reduces those; None
    where that does not pay.

    The buffers of the first are those of ``nest``, some of them not used, and behind
    them one of parts for each reduction; those of the second are the same.
    """
    reducing = [p for p in nest.passes if _sums(p.body)]
    if len(reducing) != 1 or nest.chunk is not None or nest.keeps:
        return None
    (only,) = reducing
    sums = _sums(only.body)
    rest = nest.passes[nest.passes.index(only) + 1 :]
    if any(p.body for p in rest) or any(s.position >= 0 for s in sums):
        return None
    if any(isinstance(s, Store) for s in (*only.before, *only.body)):
        return None
    parts = _parts(nest, only)
    if parts < 2:
        return None
    chunk = Var("chunk", parts)
    return _first(nest, only, sums, chunk), _second(nest, rest, sums, chunk)


def _sums(body: Sequence[Statement]) -> list[Accumulate]:
    return [s for s in body if isinstance(s, Accumulate)]


def _parts(nest: Nest, only: Pass) -> int:
    """Parts of each row."""
    length = prod(v.size for v in only.loops)
    if nest.rows * length < LEAST:
        return 1
    busy = nest.rows if nest.vertical else nest.rows * min(length, 1024)
    wanted = -(-LANES // busy) * (8 if nest.vertical else 4) if busy < LANES else 1
    most = min(length // SHARE, only.loops[0].size)
    parts = max(1, min(wanted, most, 1024))
    each = -(-only.loops[0].size // parts)
    return -(-only.loops[0].size // each)


def _buffers(
    nest: Nest, sums: Sequence[Accumulate], written: bool
) -> tuple[Buffer, ...]:
    more = (Buffer(f"parts{i}", s.dtype, written) for i, s in enumerate(sums))
    return (*nest.buffers, *more)


def _place(nest: Nest, chunk: Var) -> Affine:
    """Where the part of a row lies: rows side by side where those of the nest are."""
    order = (
        [*nest.grid[:-1], chunk, nest.grid[-1]]
        if nest.vertical
        else [*nest.grid, chunk]
    )
    at, unit = Affine(), 1
    for v in reversed(order):
        at += Affine.of(v).times(unit)
        unit *= v.size
    return at


def _first(nest: Nest, only: Pass, sums: Sequence[Accumulate], chunk: Var) -> Nest:
    n, at = len(nest.buffers), _place(nest, chunk)
    stores = tuple(Store(n + i, at, s.target) for i, s in enumerate(sums))
    cut = len(nest.grid) - nest.vertical
    buffers = tuple(replace(b, written=False) for b in _buffers(nest, sums, False)[:n])
    return replace(
        nest,
        buffers=(*buffers, *_buffers(nest, sums, True)[n:]),
        grid=(*nest.grid[:cut], chunk, *nest.grid[cut:]),
        passes=(only, Pass(stores, (), ())),
        chunk=chunk,
    )


def _second(
    nest: Nest, rest: Sequence[Pass], sums: Sequence[Accumulate], chunk: Var
) -> Nest:
    n, at = len(nest.buffers), _place(nest, chunk)
    numbers = [getattr(s, "target", 0) for s in nest.statements()]
    free = max(numbers, default=0) + 1
    body: list[Statement] = []
    for i, s in enumerate(sums):
        body.append(Load(free + i, s.dtype, n + i, at))
        body.append(replace(s, value=free + i))
    before: list[Statement] = []
    for p in nest.passes:
        before += [s for s in p.before if isinstance(s, Const) or p in rest]
    known = {s.target for s in sums} | {getattr(s, "target", -1) for s in before}
    needed = _needed(nest, before, known)
    passes = (Pass((), (chunk,), tuple(body)), Pass((*needed, *before), (), ()))
    return replace(nest, buffers=_buffers(nest, sums, False), passes=passes)


def _needed(
    nest: Nest, before: Sequence[Statement], known: set[int]
) -> list[Statement]:
    """Values of the row from before the reduction that ``before`` reads."""
    made = {
        getattr(s, "target", -1): s
        for p in nest.passes
        for s in p.before
        if not isinstance(s, Store)
    }
    wanted = {
        a for s in before for a in (*getattr(s, "args", ()), getattr(s, "value", -1))
    }
    found: set[int] = set()
    stack = [i for i in wanted - known if i in made]
    while stack:
        i = stack.pop()
        if i not in found and i not in known:
            found.add(i)
            stack += [a for a in getattr(made[i], "args", ()) if a in made]
    return [made[i] for i in sorted(found)]
