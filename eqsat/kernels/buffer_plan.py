"""The memory of a program: lifetimes, writing in place, and slots that values share."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.kernels.kernel import Kernel, Step, View
from eqsat.ops import broadcast_to_op, reshape_op
from eqsat.terms import Term, Type


@dataclass(frozen=True)
class Slot:
    """Memory that values take turns in, from step ``first`` to step ``last``."""

    values: tuple[Term, ...]
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class BufferPlan:
    """Where values live, and for how long. Steps are numbered; the last returns."""

    slots: tuple[Slot, ...]
    slot_of: Mapping[Term, int]
    in_place: Mapping[Term, Term]
    """A kernel's term to the argument that it overwrites while reading it."""
    last_use: Mapping[Term, int]
    """A value in memory to the last step that reads it or a view of it."""
    peak_bytes: int
    """Most memory of intermediates and results alive at once (bytes)."""
    naive_peak_bytes: int
    """The same when every intermediate is kept (bytes)."""


def plan(
    roots: Sequence[Term], steps: Sequence[Step], copies: Collection[int]
) -> BufferPlan:
    """The plan of ``steps``; the roots at positions ``copies`` are copied at the end.

    A pointwise kernel overwrites an argument of its own shape and dtype that nothing
    reads later. A value takes over the slot of an earlier one of its shape and dtype
    wherever holding that memory in between does not raise the peak.
    """
    base = bases_of(steps)
    last: dict[Term, int] = {}
    for i, step in enumerate(steps):
        for a in step.term.args:
            last[base.get(a, a)] = i
    for r in roots:
        last[base.get(r, r)] = len(steps)
    in_place: dict[Term, Term] = {}
    slots: list[Slot] = []
    where: dict[Term, int] = {}
    for i, step in enumerate(steps):
        if isinstance(step, View):
            continue
        operand = _overwritable(step, i, last, base, where)
        if operand is None:
            for t in step.results:
                where[t] = len(slots)
                slots.append(Slot((t,), t.nbytes, i, last[t]))
        else:
            t = step.term
            in_place[t] = operand
            n = where[t] = where[base.get(operand, operand)]
            old = slots[n]
            slots[n] = Slot((*old.values, t), t.nbytes, old.first, last[t])
    extra = sum(roots[i].nbytes for i in copies)
    slots, peak = _share(slots, len(steps), extra)
    where = {t: i for i, s in enumerate(slots) for t in s.values}
    made = (r for s in steps if isinstance(s, Kernel) for r in s.results)
    naive = extra + sum(r.nbytes for r in made)
    return BufferPlan(tuple(slots), where, in_place, last, peak, naive)


def bases_of(steps: Sequence[Step]) -> dict[Term, Term]:
    """Each view to the value in memory that it shows."""
    return {s.term: s.base for s in steps if isinstance(s, View)}


def roots_to_copy(roots: Sequence[Term], steps: Sequence[Step]) -> Iterator[int]:
    """Positions of the roots that are not a fresh whole array of their own."""
    base = bases_of(steps)
    made = {r for s in steps if isinstance(s, Kernel) for r in s.results}
    taken: set[Term] = set()
    for i, r in enumerate(roots):
        b = base.get(r, r)
        if b not in made or b in taken or not _is_whole(r, b):
            yield i
        else:
            taken.add(b)


def _is_whole(view: Term, base: Term) -> bool:
    """Whether ``view`` shows each element of ``base`` once and may be written to: what
    NumPy broadcasts is read-only, even where it only gains axes of size 1."""
    while view is not base:
        if view.size != base.size or view.op is broadcast_to_op:
            return False
        view = view.args[0]
    return True


def _overwritable(
    kernel: Kernel,
    step: int,
    last: Mapping[Term, int],
    bases: Mapping[Term, Term],
    where: Mapping[Term, int],
) -> Term | None:
    """An argument that dies here and whose elements a pointwise kernel may replace.

    A lowering of an op's own may read an argument after it has written.
    """
    t = kernel.term
    if kernel.op.lowerings or kernel.results != (t,) or not kernel.pointwise:
        return None
    for a in kernel.inputs:
        b = bases.get(a, a)
        readers = [x for x in kernel.inputs if bases.get(x, x) is b]
        if b not in where or last[b] != step or a.type != t.type or len(readers) > 1:
            continue
        if is_reshaped(a, b):
            return a
    return None


def is_reshaped(view: Term, base: Term) -> bool:
    """Whether ``view`` is ``base`` or only reshapes of it."""
    while view is not base:
        if view.op is not reshape_op:
            return False
        view = view.args[0]
    return True


def _share(slots: Sequence[Slot], end: int, extra: int) -> tuple[list[Slot], int]:
    """Slots joined in sequence, and the peak; ``extra`` bytes are alive at the end."""
    change = np.zeros(end + 2, np.int64)
    change[end] = extra
    for s in slots:
        change[s.first] += s.nbytes
        change[s.last + 1] -= s.nbytes
    alive = np.cumsum(change)[: end + 1]
    peak = int(alive.max())
    out: list[Slot] = []
    of_type: dict[Type, list[tuple[int, int]]] = {}
    for s in slots:
        # What was freed last is held the shortest time for nothing: where it cannot
        # wait, nothing that was freed before can.
        free = of_type.setdefault(s.values[0].type, [])
        i = bisect_left(free, (s.first, -len(out))) - 1
        j = -free[i][1] if i >= 0 else -1
        if j < 0 or not _can_wait(out[j], s, alive, peak):
            insort(free, (s.last, -len(out)))
            out.append(s)
            continue
        del free[i]
        insort(free, (s.last, -j))
        alive[out[j].last + 1 : s.first] += s.nbytes
        out[j] = Slot((*out[j].values, *s.values), s.nbytes, out[j].first, s.last)
    return out, peak


def _can_wait(
    earlier: Slot, later: Slot, alive: np.ndarray[Any, Any], peak: int
) -> bool:
    """Whether the memory of ``earlier`` can be held until ``later`` takes it over."""
    between = alive[earlier.last + 1 : later.first]
    return int(between.max(initial=0)) + later.nbytes <= peak
