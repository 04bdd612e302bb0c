"""Nests of a kernel that run together, plane by plane.

The nests of a window or of a border hand a value on through memory: one adds the rows
of each plane of an image, the next one the columns. Where each computes a plane from
the same plane of what the ones before it wrote, a thread runs all of them for some
planes and then for the next ones: what is between them stays in its first cache, no
thread reads what another one wrote, and threads meet once. The pools of a network take
two thirds of the time (0.9 to 0.6 ms of 19 in inception_v2, two threads).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf, prod

from ...loop_ir import (
    Affine,
    Load,
    Loops,
    LoopVar,
    Nest,
    Scatter,
    Statement,
    Store,
    bounds,
)
from ..loops import shape_of
from ..machine import COMMON, Host, MemoryRef
from .buffers import TEMPORARY

_MOST = 12
"""Nests of a group at most: each is compared with those before it."""
Met = tuple[Loops, Sequence[MemoryRef]]
"""A nest and the memory of its buffers."""


def shared_planes(
    steps: Sequence[Met], host: Host, threads: int
) -> tuple[int, int, Mapping[MemoryRef, int]]:
    """How many steps from the first one on can run plane by plane, the planes, and the
    bytes of one of each memory that is written; the most steps, in the most planes. One
    step where it is alone."""
    count, planes = 1, 0
    steps = steps[:_MOST]
    sizes: Mapping[MemoryRef, int] = {}
    for n in sorted(_counts(p.nest for p, _ in steps[:2]), reverse=True):
        if n < COMMON.least_planes * threads:
            break
        end = count
        while end < len(steps) and (more := plane_bytes(steps[: end + 1], n, host)):
            end += 1
            count, planes, sizes = end, n, more
    return count, planes, sizes


def _counts(nests: Iterable[Nest]) -> set[int]:
    """The numbers of planes that nests have by their outer loops."""
    return {prod(v.size for v in n.grid[:i]) for n in nests for i in range(1, 4)}


def plane_bytes(
    steps: Sequence[Met], planes: int, host: Host
) -> Mapping[MemoryRef, int]:
    """The bytes of a plane of each memory that is written, where each of the nests
    computes so many planes in order, one by one; else none."""
    written = {
        m
        for p, memory in steps
        for m, b in zip(memory, p.nest.buffers, strict=True)
        if b.written
    }
    if _meet(steps, written):
        return {}
    sizes: dict[MemoryRef, int] = {}
    for p, memory in steps:
        nest = p.nest
        together = nest.vertical or nest.chunk is not None or nest.ordered
        if together or nest.ranged or shape_of(nest, host).units % planes:
            return {}
        made = {i for i, m in enumerate(memory) if m in written}
        for i, elements in _planes_of(nest, made, planes):
            size = elements * nest.buffers[i].dtype.itemsize
            if not size or sizes.setdefault(memory[i], size) != size:
                return {}
    return sizes


def _meet(steps: Sequence[Met], written: Collection[MemoryRef]) -> bool:
    """Whether two nests may touch the same bytes, which one of them writes, as memory
    that starts at different bytes: as a part of a join and all of it."""
    buffers = {m.buffer for m in written if m.buffer != TEMPORARY}
    spans: dict[int, dict[MemoryRef, tuple[float, float]]] = {}
    for p, memory in steps:
        for s in p.nest.statements():
            i = getattr(s, "buffer", -1)
            if i < 0 or memory[i].buffer not in buffers:
                continue
            m, size = memory[i], p.nest.buffers[i].dtype.itemsize
            at = _place(s)
            low, high = bounds(at) if at is not None else (-inf, inf)
            known = spans.setdefault(m.buffer, {})
            first, end = known.get(m, (inf, -inf))
            start = m.byte + low * size
            known[m] = min(first, start), max(end, m.byte + (high + 1) * size)
    return any(
        m != w and a < d and c < b
        for known in spans.values()
        for w, (a, b) in known.items()
        if w in written
        for m, (c, d) in known.items()
    )


def _planes_of(
    nest: Nest, made: Collection[int], planes: int
) -> Iterator[tuple[int, int]]:
    """Each buffer of ``made``, once for every time that the nest reads or writes it,
    and the elements of a plane there; 0 where that is not a plane of its own."""
    outer = _outer(nest, planes)
    for s in nest.statements():
        buffer = getattr(s, "buffer", -1)
        if buffer not in made:
            continue
        at = _place(s)
        yield buffer, _plane(at, outer) if at is not None and outer is not None else 0


def _place(s: Statement) -> Affine | None:
    """Where a statement reads or writes, if that does not depend on values."""
    if isinstance(s, (Load, Store)) and not isinstance(s, Scatter):
        return s.at
    return None


def _outer(nest: Nest, planes: int) -> list[tuple[LoopVar, int]] | None:
    """The outer loops that count planes, each with the steps of it that are inside of
    one plane; None where no loops count them."""
    found = []
    for v in nest.grid:
        if planes == 1:
            break
        if v.size == 1:
            continue
        if planes % v.size == 0:
            found.append((v, 1))
            planes //= v.size
        elif v.size % planes == 0:
            found.append((v, v.size // planes))
            planes = 1
        else:
            return None
    return found if planes == 1 else None


def _plane(at: Affine, outer: Sequence[tuple[LoopVar, int]]) -> int:
    """The elements of a plane where each plane has its own, in order; else 0."""
    size, unit = 0, 1
    counted = [v for v, _ in outer]
    within = Affine(at.offset, tuple(t for t in at.terms if t[0] not in counted))
    low, high = bounds(within)
    for v, inside in reversed(outer):
        apart = at.coefficient(v) * inside
        if not size:
            size = apart
        if apart != size * unit:
            return 0
        unit *= v.size // inside
        high += at.coefficient(v) * (inside - 1)
    return size if size > 0 and 0 <= low and high < size else 0
