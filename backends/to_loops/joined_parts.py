"""Pointwise ops over arrays that are joined or padded, part by part. What is joined
needs no memory of its own then, and no second pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, cast

from eqsat.ops import ASSEMBLIES, concatenate_op, slice_op
from eqsat.terms import HALF, Op, Shape, Term, Weak

from .roots import Root

Fill = Callable[[Term, Shape, Term], Term]
"""``fill(value, shape, like)``: one number in a shape, of the dtype of ``like``."""
Part = tuple[Term, Shape]
"""A part of a term, and where along each axis it starts."""
MOST_WORK = 256
"""Operations of all parts together, each of which becomes code of its own."""


def parts_of(term: Term, fill: Fill) -> Iterator[Part]:
    """What joined arrays are joined of, and what padded ones are: slabs of the value,
    two along each axis, as long as the axes before it have inside and as the others
    have in all; and the inside."""
    start = [0] * term.ndim
    if term.op is concatenate_op:
        axis = cast(int, term.attrs[0]) + term.ndim
        for a in term.args:
            yield a, tuple(start)
            start[axis] += a.shape[axis]
        return
    x, value = term.args
    lows, shape = cast(Shape, term.attrs[0]), list(term.shape)
    for axis, low in enumerate(lows, term.ndim - len(lows)):
        high = shape[axis] - x.shape[axis] - low
        for at, width in ((0, low), (low + x.shape[axis], high)):
            shape[axis] = width
            if prod(shape):
                own = (*start[:axis], at, *start[axis + 1 :])
                yield fill(value, tuple(shape), term), own
        start[axis], shape[axis] = low, x.shape[axis]
    yield x, tuple(start)


def roots_of_parts(term: Term, root: Root, fill: Fill) -> list[Root]:
    """The parts of ``term``, written where ``root`` is."""
    found = [p for p in parts_of(term, fill) if p[0].size]
    return [_placed(root, part, start) for part, start in found]


def _placed(root: Root, part: Term, start: Shape) -> Root:
    offset = sum(i * s for i, s in zip(start, root.strides, strict=True))
    return replace(root, term=part, offset=root.offset + offset)


def by_parts(
    root: Root, known: Mapping[Term, Any], users: Counter[Term], fill: Fill
) -> list[Root]:
    """A pointwise term over joined arrays as one for each of their parts; empty where
    it is none, where something else reads what is joined, where each part would compute
    a reduction anew, or where there would be much code. ``known``: what is in
    memory."""
    chain = _chain(root.term, known)
    within = Counter(a for t in chain for a in set(t.args))
    for joined in within:
        if joined.op not in ASSEMBLIES or joined in known:
            continue
        shape = joined.shape == root.term.shape
        between = [t for t in within if t is joined or t in chain]
        if not shape or joined.dtype in HALF:  # which are rounded where they are joined
            continue
        others = [t for t in within if t not in chain and t is not joined]
        if any(users[t] > within[t] for t in between) or _reduce(others, known):
            return []
        parts = [p for p in parts_of(joined, fill) if p[0].size]
        if len(parts) * len(chain) > MOST_WORK:
            continue
        cuts = [_Cut(chain, known, part, at, joined, fill) for part, at in parts]
        return [_placed(root, cut.of(root.term), cut.start) for cut in cuts]
    return []


def _chain(term: Term, known: Mapping[Term, Any]) -> dict[Term, None]:
    """The pointwise terms that ``term`` is made of."""
    found: dict[Term, None] = {}
    stack = [term]
    while stack:
        t = stack.pop()
        if t in found or t in known or cast(Op, t.op).kind != "pointwise":
            continue
        found[t] = None
        stack += t.args
    return found


def _reduce(terms: Sequence[Term], known: Mapping[Term, Any]) -> bool:
    """Whether a reduction is below ``terms``, above what is in memory."""
    stack, seen = [*terms], {*terms}
    while stack:
        t = stack.pop()
        if t in known:
            continue
        if cast(Op, t.op).kind == "reduce":
            return True
        stack += [a for a in t.args if a not in seen]
        seen.update(t.args)
    return False


class _Cut:
    """Terms of one box of the elements of another."""

    def __init__(
        self,
        chain: Mapping[Term, None],
        known: Mapping[Term, Any],
        part: Term,
        start: Shape,
        joined: Term,
        fill: Fill,
    ) -> None:
        self.chain, self.known, self.fill = chain, known, fill
        self.start, self.shape = start, part.shape
        self.found = {joined: part}

    def of(self, term: Term) -> Term:
        """What ``term``, which is broadcast, is in the box."""
        if isinstance(term.dtype, Weak) or not term.ndim:
            return term
        found = self.found.get(term)
        if found is None:
            found = self.found[term] = self._made(term)
        return found

    def _made(self, term: Term) -> Term:
        lead = len(self.shape) - term.ndim
        ends = zip(term.shape, self.start[lead:], self.shape[lead:], strict=True)
        box = [(0, 1) if n == 1 else (start, size) for n, start, size in ends]
        starts, sizes = tuple(s for s, _ in box), tuple(n for _, n in box)
        if term in self.chain:
            args = [self.of(a) for a in term.args]
            return term.graph.node(term.op, args, term.attrs, (term.dtype, sizes))
        if term.op in ASSEMBLIES and term not in self.known:
            for part, at in parts_of(term, self.fill):
                inside = tuple(s - a for s, a in zip(starts, at, strict=True))
                if _holds(part.shape, inside, sizes):
                    return _slice(part, inside, sizes)
        return _slice(term, starts, sizes)


def _holds(shape: Shape, starts: Sequence[int], sizes: Shape) -> bool:
    ends = zip(shape, starts, sizes, strict=True)
    return all(0 <= start and start + size <= n for n, start, size in ends)


def _slice(term: Term, starts: Shape, sizes: Shape) -> Term:
    if sizes == term.shape:
        return term
    attrs = starts, sizes, (1,) * term.ndim
    return term.graph.node(slice_op, [term], attrs, (term.dtype, sizes))
