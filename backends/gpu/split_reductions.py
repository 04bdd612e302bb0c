"""Reductions of few rows in steps: parts of each row by many thread groups, then the
parts, then what is made of rows and their reductions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from eqsat.kernels import packed

from ..loop_ir import (
    Accumulate,
    Affine,
    Buffer,
    Compute,
    Const,
    Keep,
    Load,
    LoopVar,
    Nest,
    Pass,
    Position,
    Statement,
    Store,
    address,
    operands,
)
from .printing import POWERS, online, recomputed

LANES = 1 << 16
"""Threads that keep a GPU busy."""
LEAST = 1 << 15
"""Elements below which one step is as fast."""
SHARE = 64
"""Fewest elements of a row in a part."""
LONG = 1 << 16
"""Elements of a row from which three kernels take less time than one, in which a thread
group reads a row once for each pass, and one reading takes it some 4 µs (an H200)."""
Valued = Accumulate | Compute | Load | Position
"""What makes a value of a row that is not a number."""


def in_steps(nest: Nest) -> tuple[Nest, ...] | None:
    """``nest`` as one that reduces parts into memory, one that reduces those, and where
    elements of rows are written, a map of them; None where that does not pay. Few rows
    that lie side by side are reduced so once for each reduction that needs another.

    All have the buffers of ``nest``, some of them not used, and behind them those of
    parts of reductions and of values of the rows that later steps read.
    """
    once = online(nest)
    if once.chunk is not None:
        return None
    if _is_narrow(once):
        once = _without_keeps(once)
        first = next((i for i, p in enumerate(once.passes) if _sums(p.body)), 0)
        if any(_sums(p.body) for p in once.passes[first + 1 :]):
            return _in_turn(once, first + 1)
    return _of_one(once, once is not nest and not _is_narrow(once))


def _is_narrow(nest: Nest) -> bool:
    """Whether rows that lie side by side keep few threads busy: with one group for each
    128 of 4,096, a standardisation of 16,384 elements each took an H200 593 µs, and
    PyTorch's kernels 235."""
    length = max(prod(v.size for v in p.loops) for p in nest.passes)
    return nest.vertical and 2 * nest.rows < LANES and nest.rows * length >= LEAST


def _without_keeps(nest: Nest) -> Nest:
    """``nest`` in which each pass computes what it reads of elements."""
    passes = tuple(
        replace(p, body=tuple(recomputed(nest.passes, i)))
        for i, p in enumerate(nest.passes)
    )
    return replace(nest, passes=passes, keeps=())


def _in_turn(nest: Nest, cut: int) -> tuple[Nest, ...] | None:
    """The steps of the first passes, and those of the others, which read values of rows
    from memory; None where the first do not pay."""
    made = [s for p in nest.passes[:cut] for s in (*p.before, *_sums(p.body))]
    read = {
        a for p in nest.passes[cut:] for s in (*p.before, *p.body) for a in operands(s)
    }
    kept = [s for s in made if isinstance(s, Valued) and s.target in read]
    n, place = len(nest.buffers), _row_major(nest.grid)
    rows = tuple(Buffer(f"row{n + i}", s.dtype, True) for i, s in enumerate(kept))
    stores = tuple(Store(n + i, place, s.target) for i, s in enumerate(kept))
    head = replace(
        nest,
        buffers=(*nest.buffers, *rows),
        passes=(*nest.passes[:cut], Pass(stores, (), ())),
    )
    begin = in_steps(head)
    if begin is None:
        return None
    consts = [s for s in made if isinstance(s, Const)]
    loads = [Load(s.target, s.dtype, n + i, place) for i, s in enumerate(kept)]
    follows, *rest = nest.passes[cut:]
    follows = replace(follows, before=(*consts, *loads, *follows.before))
    tail = replace(nest, passes=(follows, *rest))
    tail = _with_buffers(tail, begin[-1].buffers)
    return (*begin, *(in_steps(tail) or (tail,)))


def _of_one(once: Nest, is_online: bool) -> tuple[Nest, ...] | None:
    """The steps of a nest with one reducing pass."""
    reducing = [p for p in once.passes if _sums(p.body)]
    if len(reducing) != 1 or once.keeps:
        return None
    (only,) = reducing
    sums = _sums(only.body)
    rest = once.passes[once.passes.index(only) + 1 :]
    written = [p for p in rest if p.body]
    if written != list(rest[-1:])[: len(written)] or any(s.position >= 0 for s in sums):
        return None
    if any(isinstance(s, Store) for s in (*only.before, *only.body)):
        return None
    length = prod(v.size for v in only.loops)
    pays = length >= LONG and not once.vertical
    if (written or is_online) and not (pays or _is_narrow(once)):
        return None
    parts = _parts(once, only)
    if parts < 2:
        return None
    chunk = LoopVar("chunk", parts)
    kept = _of_rows(once, written)
    n = len(once.buffers)
    memory = (
        *(replace(b, written=False) for b in once.buffers),
        *(Buffer(f"parts{n + i}", s.dtype) for i, s in enumerate(sums)),
        *(Buffer(f"row{n + i}", s.dtype) for i, s in enumerate(kept, len(sums))),
    )
    first = _first(once, only, sums, chunk)
    combined = _combination_of_parts(once, rest, sums, chunk, kept)
    steps = [first, combined, *(_last(once, p, sums, kept) for p in written)]
    return tuple(_with_buffers(n, memory) for n in steps)


def _with_buffers(nest: Nest, buffers: Sequence[Buffer]) -> Nest:
    written = {s.buffer for s in nest.statements() if isinstance(s, Store)}
    known = (replace(b, written=i in written) for i, b in enumerate(buffers))
    return replace(nest, buffers=tuple(known))


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


def _place(nest: Nest, chunk: LoopVar) -> Affine:
    """Where the part of a row lies: rows side by side where those of the nest are."""
    order = (
        [*nest.grid[:-1], chunk, nest.grid[-1]]
        if nest.vertical
        else [*nest.grid, chunk]
    )
    return _row_major(order)


def _first(nest: Nest, only: Pass, sums: Sequence[Accumulate], chunk: LoopVar) -> Nest:
    n, at = len(nest.buffers), _place(nest, chunk)
    stores = tuple(Store(n + i, at, s.target) for i, s in enumerate(sums))
    cut = len(nest.grid) - nest.vertical
    return replace(
        nest,
        grid=(*nest.grid[:cut], chunk, *nest.grid[cut:]),
        passes=(only, Pass(stores, (), ())),
        chunk=chunk,
    )


def _combination_of_parts(
    nest: Nest,
    rest: Sequence[Pass],
    sums: Sequence[Accumulate],
    chunk: LoopVar,
    kept: Sequence[Valued],
) -> Nest:
    n, at = len(nest.buffers), _place(nest, chunk)
    numbers = [getattr(s, "target", 0) for s in nest.statements()]
    free = max(numbers, default=0) + 1
    part = {s.target: free + i for i, s in enumerate(sums)}
    top = {s.value: part[s.target] for s in sums if s.op == "max"}
    body: list[Statement] = [
        Load(part[s.target], s.dtype, n + i, at) for i, s in enumerate(sums)
    ]
    for s in sums:
        if s.op == POWERS:
            joined = replace(s, value=top[s.value], position=part[s.target])
        else:
            joined = replace(s, value=part[s.target])
        body.append(joined)
    consts = [s for p in nest.passes for s in p.before if isinstance(s, Const)]
    before: list[Statement] = [
        s for p in rest for s in p.before if not isinstance(s, Const)
    ]
    place = _row_major(nest.grid)
    before += [Store(n + len(sums) + i, place, s.target) for i, s in enumerate(kept)]
    made = {getattr(s, "target", -1) for s in (*sums, *consts, *before)}
    after = *consts, *_needed(nest, before, made), *before
    passes = (Pass((), (chunk,), tuple(body)), Pass(after, (), ()))
    return replace(nest, passes=passes)


def _last(
    nest: Nest, p: Pass, sums: Sequence[Accumulate], kept: Sequence[Valued]
) -> Nest:
    """A map that writes what pass ``p`` does."""
    n, place = len(nest.buffers) + len(sums), _row_major(nest.grid)
    consts = [s for q in nest.passes for s in q.before if isinstance(s, Const)]
    loads = [Load(s.target, s.dtype, n + i, place) for i, s in enumerate(kept)]
    return replace(nest, passes=(Pass((*consts, *loads), p.loops, p.body),))


def _of_rows(nest: Nest, written: Sequence[Pass]) -> list[Valued]:
    """What makes the values of a row that the elements of passes are made of."""
    body = [s for p in written for s in p.body]
    made = {s.target for s in body if not isinstance(s, (Keep, Store))}
    read = {a for s in body for a in operands(s)} - made
    of_rows = [s for p in nest.passes for s in (*p.before, *_sums(p.body))]
    return [s for s in of_rows if isinstance(s, Valued) and s.target in read]


def _row_major(variables: Sequence[LoopVar]) -> Affine:
    """Where something lies of which there is one for all values of ``variables``."""
    sizes = tuple(v.size for v in variables)
    return address(tuple(map(Affine.of, variables)), packed(sizes))


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
