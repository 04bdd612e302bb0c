"""Fusions that were taken, the best that were not, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.cover import Cover, inside
from eqsat.cuts import Cut, Cuts, bits
from eqsat.domain import LEAF, State, hindrance, refusal
from eqsat.joint import Joint, together, union

MOST = 8
"""Fusions not taken that are listed."""


@dataclass(frozen=True)
class Opportunity:
    """A fusion: kernels that became one, or might have."""

    parts: tuple[int, ...]
    """Classes of the cuts whose kernels it joins; of one that was taken, the e-nodes
    inside."""
    root: int
    """The class that it computes."""
    taken: bool
    apart_s: float
    """Seconds of the parts as kernels of their own."""
    fused_s: float | None
    """Seconds of the one kernel; None where there is none."""
    saved_bytes: float
    """Traffic that it saves (bytes)."""
    reason: str
    """Why it was taken or not."""


def opportunities(cover: Cover) -> list[Opportunity]:
    """The fusions of a cover, taken ones first, then the best not taken."""
    taken = list(_taken(cover))
    missed = sorted(_missed(cover), key=_rank)
    return taken + missed[:MOST]


def _rank(o: Opportunity) -> tuple[bool, float]:
    """Possible fusions by what they would cost more, then impossible ones by size."""
    if o.fused_s is None:
        return True, -o.saved_bytes
    return False, o.fused_s - o.apart_s


def _kernels(cover: Cover) -> dict[int, Cut | Joint]:
    """The chosen kernels by the class that they compute."""
    found: dict[int, Cut | Joint] = {}
    for place, way in cover.ways:
        kernel = way.cut or way.joint
        if kernel is not None and place < len(cover.cuts.of):
            found[place] = kernel
    return found


def _taken(cover: Cover) -> Iterator[Opportunity]:
    cuts = cover.cuts
    seen: set[int] = set()
    for place, kernel in _kernels(cover).items():
        nodes = inside(cuts, kernel)
        if id(kernel) in seen or len(nodes) < 2:
            continue
        seen.add(id(kernel))
        results = kernel.results if isinstance(kernel, Joint) else (place,)
        apart = sum(cuts.alone_s(n) for n in nodes.values())
        hidden = sum(2 * cuts.bytes_of(k) for k in nodes if k not in results)
        shared = sum(cuts.bytes_of(k) for k in _shared(cuts, kernel))
        yield Opportunity(
            tuple(nodes),
            place,
            True,
            apart,
            kernel.price,
            hidden + shared,
            f"saves {(apart - kernel.price) * 1e6:.1f} µs",
        )


def _shared(cuts: Cuts, kernel: Cut | Joint) -> Iterator[int]:
    """The leaves that several nodes of a kernel read, as often as they spare."""
    nodes = [cuts.nodes[n] for n in inside(cuts, kernel).values()]
    for k in bits(kernel.leaves):
        readers = sum(k in n.distinct for n in nodes)
        yield from [k] * (readers - 1)


def _missed(cover: Cover) -> Iterator[Opportunity]:
    """Pairs of a kernel and one that reads its result, straight or through views."""
    kernels = _kernels(cover)
    behind = _behind(cover)
    seen: set[tuple[int, int]] = set()
    for place, kernel in kernels.items():
        for leaf in bits(kernel.leaves):
            below, path = behind.get(leaf, (leaf, ()))
            producer = kernels.get(below)
            if producer is None or producer is kernel:
                continue
            pair = (id(producer), id(kernel))
            if pair in seen:
                continue
            seen.add(pair)
            yield _judged(cover, below, path, producer, place, kernel)


def _behind(cover: Cover) -> dict[int, tuple[int, tuple[int, ...]]]:
    """For each view the kernel's class below it, and the views between as e-nodes."""
    found: dict[int, tuple[int, tuple[int, ...]]] = {}
    for place, way in cover.ways:
        if way.node >= 0 and len(cover.kids[place]) == 1:
            kid = cover.kids[place][0]
            below, path = found.get(kid, (kid, ()))
            found[place] = below, (*path, place)
    return found


def _judged(
    cover: Cover,
    below: int,
    path: Sequence[int],
    producer: Cut | Joint,
    place: int,
    consumer: Cut | Joint,
) -> Opportunity:
    """What joining two chosen kernels would do."""
    cuts = cover.cuts
    users = _users(cover, below, path)
    chosen = {**inside(cuts, producer), **_views(cover, path), **inside(cuts, consumer)}
    results = list(consumer.results if isinstance(consumer, Joint) else (place,))
    made = producer.results if isinstance(producer, Joint) else (below,)
    results += [r for r in made if r != below or users > 1 or r in cover.roots]
    apart = producer.price + consumer.price
    hidden = 0.0 if below in results else 2 * cuts.bytes_of(below)
    saved = hidden or cuts.bytes_of(below)
    joint = union(cuts, results, chosen)
    if joint is None:
        reason = hindered(cuts, results, chosen)
        return Opportunity((below, place), place, False, apart, None, saved, reason)
    more = (joint.price - apart) * 1e6
    again = " and the value is needed elsewhere too" if users > 1 else ""
    reason = f"would cost {more:.1f} µs more{again}"
    if more < 0:
        reason = f"would save {-more:.1f} µs, but other kernels cost more then"
    return Opportunity((below, place), place, False, apart, joint.price, saved, reason)


def _users(cover: Cover, below: int, path: Sequence[int]) -> int:
    """How many read a value or the views between it and its user."""
    wanted = {below, *path}
    count = 0
    seen: set[int] = set()
    for place, way in cover.ways:
        kernel = way.cut or way.joint
        if place in path or (kernel is not None and id(kernel) in seen):
            continue
        if kernel is not None:
            seen.add(id(kernel))
        count += any(k in wanted for k in cover.kids[place])
    return count


def _views(cover: Cover, path: Sequence[int]) -> Mapping[int, int]:
    """The e-nodes of views in the numbers of the cuts."""
    by_place = dict(cover.ways)
    origin = {cover.cuts.nodes[n].origin: n for n in range(len(cover.cuts.nodes))}
    return {
        by_place[p].cls: origin[by_place[p].node]
        for p in path
        if by_place[p].node in origin
    }


def hindered(cuts: Cuts, results: Sequence[int], chosen: Mapping[int, int]) -> str:
    """Why no kernel computes ``results`` by the nodes ``chosen``."""
    target = cuts.model.target
    order = cuts.above(results, chosen)
    if order is None:
        return "each needs a value of the other"
    if len(order) > target.most_nodes:
        return f"it has {len(order)} e-nodes, at most {target.most_nodes} fit"
    states: dict[int, State] = {}
    leaves: set[int] = set()
    for k in order:
        node = cuts.nodes[chosen[k]]
        leaves.update(j for j in node.distinct if j not in chosen and not cuts.bare[j])
        kids = [states.get(j, LEAF) for j in node.kids]
        found = cuts.state(chosen[k], kids)
        if found is None:
            type_ = cuts.types[k]
            assert type_ is not None
            return hindrance(node.op, node.attrs, node.types, type_, kids, target)
        states[k] = found
    if len(leaves) + len(results) > target.most_arrays:
        return (
            f"it reads and writes {len(leaves) + len(results)} arrays, at most "
            f"{target.most_arrays} are allowed"
        )
    state = together(cuts, results, [states[k] for k in results])
    if state is None:
        return "its results have different domains"
    root = cuts.types[results[0]]
    return refusal(state, () if root is None else root[1], target)
