"""Kernels with several results.

Two chosen kernels become one where that is cheaper: siblings that read the same value
over one domain, or a kernel and the one that reads its result. What both compute is
computed once, what both read is read once, what nobody else reads is not written, and
one launch is saved. The best pair goes first, until none gains: the steps of a loop
that Python unrolled, each of which hands several values to the next, become one kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eqsat.egraph import Budget
from eqsat.kernels import LIGHT, SQUEEZED, State, merged, refusal
from eqsat.search.extraction.bitset_graph import Dense, bits

GAIN = 1e-9
"""Part of its price that a pair must save."""


@dataclass(frozen=True, eq=False)
class Joint:
    """One kernel that computes one or several classes."""

    results: tuple[int, ...]
    """Classes, those that depend on others first."""
    chosen: Mapping[int, int]
    """The e-node of each class inside."""
    leaves: int
    """Classes that it reads, as bits."""
    price: float


_Asked = tuple[Joint, Joint, tuple[int, ...]]
"""Two kernels and what is wanted of them as one."""


def union(
    dense: Dense, results: Iterable[int], chosen: Mapping[int, int]
) -> Joint | None:
    """The kernel that computes ``results`` by the nodes ``chosen``; None where no
    kernel is it."""
    part = dense.closure(results, chosen)
    if part is None:
        return None
    place = {k: i for i, k in enumerate(part.order)}
    ordered = tuple(sorted(results, key=lambda k: -place[k]))
    target = dense.model.target
    if part.leaves.bit_count() + len(ordered) > target.most_arrays:
        return None
    state = together(dense, ordered, [part.states[k] for k in ordered])
    if state is None:
        return None
    type_ = dense.types[ordered[0]]
    shape = () if type_ is None else type_[1]
    if refusal(state, shape, target):
        return None
    inside = {k: chosen[k] for k in part.order}
    traffic = part.traffic + sum(dense.write_s[k] for k in ordered)
    traffic += dense.prologue_s(
        sum(1 << n for n in inside.values()), sum(1 << k for k in inside)
    )
    price = dense.model.kernel_s(part.arithmetic, traffic, part.views)
    return Joint(ordered, inside, part.leaves, price)


def together(
    dense: Dense, results: Sequence[int], states: Sequence[State]
) -> State | None:
    """The state of a kernel whose results are in ``states``; None for no kernel."""
    shapes = [t[1] if (t := dense.types[k]) is not None else () for k in results]
    heavy = [s for s in states if s.kind not in LIGHT]
    if not heavy:
        return states[0] if len(set(shapes)) == 1 else None
    heavy = [s._replace(moved=-1) if s.moved == SQUEEZED else s for s in heavy]
    state: State | None = heavy[0]
    for s in heavy[1:]:
        state = merged(state, s) if state is not None else None
    if state is None or any(s.anchor != state.anchor for s in heavy):
        return None
    for s, shape in zip(states, shapes, strict=True):
        if s.kind in LIGHT and (shape != state.dom or state.anchor != -1):
            return None
    return state


def joints(
    dense: Dense,
    kernels: Iterable[Joint],
    others: Sequence[tuple[int, Sequence[int]]],
    roots: Iterable[int],
    budget: Budget,
) -> list[Joint]:
    """The kernels of a program after those were joined that are cheaper as one.

    ``kernels``: those of the program, of one result each; ``others``: what is no
    kernel, and the classes that it reads; ``roots``: the results of the program.
    """
    live = list(kernels)
    tried: dict[_Asked, Joint | None] = {}
    wanted = Counter(set(roots))
    wanted.update(k for _, kids in others for k in set(kids))
    wanted.update(k for kernel in live for k in bits(kernel.leaves))
    while budget.left():
        best: tuple[float, int, int, Joint] | None = None
        needs = _needs(live, others)
        for i in range(len(live)):
            for j in range(i):
                a, b = live[i], live[j]
                joint = _pair(dense, a, b, wanted, tried)
                if joint is None:
                    continue
                gain = a.price + b.price - joint.price
                if gain > GAIN * joint.price and (best is None or gain > best[0]):
                    if not _cyclic(a, b, needs):
                        best = gain, i, j, joint
        if best is None:
            break
        _, i, j, joint = best
        for old in live[i], live[j]:
            wanted.subtract(bits(old.leaves))
        wanted.update(bits(joint.leaves))
        live[j] = joint
        del live[i]
    return live


def _pair(
    dense: Dense,
    a: Joint,
    b: Joint,
    wanted: Mapping[int, int],
    tried: dict[_Asked, Joint | None],
) -> Joint | None:
    """The two as one kernel. ``wanted``: how many read each class."""
    feeds = any((a.leaves >> r) & 1 for r in b.results)
    feeds |= any((b.leaves >> r) & 1 for r in a.results)
    shared = a.leaves & b.leaves
    if not feeds and not any(dense.size[k] for k in bits(shared)):
        return None
    every = (*a.results, *b.results)
    results = every
    target = dense.model.target
    if len({*a.chosen, *b.chosen}) <= target.most_nodes:
        own = Counter([*bits(a.leaves), *bits(b.leaves)])
        results = tuple(r for r in every if wanted[r] > own[r])
    if len(results) > target.most_results:
        return None
    key = a, b, results
    if key not in tried:
        tried[key] = union(dense, results, {**b.chosen, **a.chosen})
    return tried[key]


def _needs(
    live: Sequence[Joint], others: Sequence[tuple[int, Sequence[int]]]
) -> dict[int, int]:
    """The classes that each class is computed from, as bits."""
    reads: dict[int, int] = {}
    for kernel in live:
        for r in kernel.results:
            reads[r] = kernel.leaves
    for c, kids in others:
        mask = reads.get(c, 0)
        for k in kids:
            mask |= 1 << k
        reads[c] = mask
    known: dict[int, int] = {}
    for root in reads:
        stack = [root]
        while stack:
            c = stack[-1]
            if c in known:
                stack.pop()
                continue
            below = bits(reads.get(c, 0))
            missing = [k for k in below if k not in known]
            if missing:
                stack.extend(missing)
                continue
            found = reads.get(c, 0)
            for k in below:
                found |= known[k]
            known[c] = found
            stack.pop()
    return known


def _cyclic(a: Joint, b: Joint, needs: Mapping[int, int]) -> bool:
    """Whether a third kernel stands between the two."""
    for x, y in ((a, b), (b, a)):
        made = sum(1 << r for r in y.results)
        for leaf in bits(x.leaves):
            if not (made >> leaf) & 1 and needs[leaf] & made:
                return True
    return False
