"""Sums of exponentials in the pass that finds the greatest: one reading of a row less.

Milakov and Gimelshein 2018, arXiv:1805.02867.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...loop_ir import (
    Accumulate,
    Compute,
    Keep,
    Kept,
    Nest,
    Pass,
    Statement,
    Store,
)

POWERS = "powers"
"""Of an :class:`Accumulate`: Σ e^(v - max v), where v equal to the greatest counts 1,
also at ±∞. With a ``position``, the value w beside v: Σ w e^(v - max v)."""


def online(nest: Nest) -> Nest:
    """``nest`` with Σ e^(v - b) as Σ e^(v - max v) times e^(max v - b), where b is of
    the row and an earlier pass has max v; itself where it has nothing of the kind.

    It gives what the sum gives for infinities and NaN, whatever b is: a sum of one or
    more times e^(max v - b).
    """
    if nest.chunk is not None:
        return nest
    passes = [
        Pass(p.before, p.loops, tuple(recomputed(nest.passes, i)))
        for i, p in enumerate(nest.passes)
    ]
    free = first = 1 + max(getattr(s, "target", 0) for s in nest.statements())
    for i in range(len(passes) - 1, 0, -1):
        found = _sums(passes, i)
        if found is None:
            continue
        after = list(passes[i].before)
        for q, top, s, v, b in found:
            t, d, e = free, free + 1, free + 2
            free += 3
            power = Accumulate(t, s.dtype, POWERS, v)
            passes[q] = replace(passes[q], body=(*passes[q].body, power))
            after += [
                Compute(d, s.dtype, "subtract", (top, b)),
                Compute(e, s.dtype, "exp", (d,)),
                Compute(s.target, s.dtype, "multiply", (t, e)),
            ]
        follows = passes[i + 1]  # where the sum is used
        passes[i : i + 2] = [replace(follows, before=(*after, *follows.before))]
    return nest if free == first else replace(nest, passes=tuple(passes), keeps=())


Sum = tuple[int, int, Accumulate, int, int]
"""The pass that has max v and the number of that, the sum, and those of v and b."""


def _sums(passes: Sequence[Pass], i: int) -> list[Sum] | None:
    """What pass ``i`` sums; None where it does anything else."""
    made = {s.target: s for s in passes[i].body if isinstance(s, Compute)}
    inside = {getattr(s, "target", -1) for s in passes[i].body}
    found: list[Sum] = []
    for s in passes[i].body:
        if isinstance(s, Store):
            return None
        if not isinstance(s, Accumulate):
            continue
        power = made.get(s.value)
        less = made.get(power.args[0]) if power and power.op == "exp" else None
        if s.op != "sum" or less is None or less.op != "subtract":
            return None
        v, b = less.args
        top = _greatest(passes, i, v)
        if top is None or b in inside:
            return None
        found.append((*top, s, v, b))
    return found or None


def _greatest(passes: Sequence[Pass], i: int, v: int) -> tuple[int, int] | None:
    """An earlier pass over the same elements that has max v, and the number of it."""
    for q in range(i):
        for s in passes[q].body:
            if isinstance(s, Accumulate) and s.op == "max" and s.value == v:
                return (q, s.target) if passes[q].loops == passes[i].loops else None
    return None


def recomputed(passes: Sequence[Pass], p: int) -> list[Statement]:
    """The body of pass ``p`` with what earlier ones kept computed anew."""
    made: dict[int, Statement] = {}
    for q in passes[: p + 1]:
        for s in q.body:
            if not isinstance(s, (Keep, Store, Accumulate, Kept)):
                made.setdefault(s.target, s)
    out: list[Statement] = []
    done: set[int] = set()

    def need(i: int) -> None:
        s = made.get(i)
        if i in done or s is None:
            return
        done.add(i)
        for a in getattr(s, "args", ()):
            need(a)
        out.append(s)

    for s in passes[p].body:
        if isinstance(s, Keep):
            continue
        if isinstance(s, (Store, Accumulate)):
            need(s.value)
            if isinstance(s, Accumulate) and s.position >= 0:
                need(s.position)
            out.append(s)
        else:
            need(s.target)
    return out
