"""Covers for which there is no time: one kernel for each class, in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat.search.extraction.bitset_graph import bits
from eqsat.search.extraction.cuts import Cut, Cuts


def written(cuts: Cuts) -> list[int] | None:
    """The nodes of the input, one for each class; None where one that the roots need
    is no kernel."""
    first = [-1] * len(cuts.members)
    for c, cls in enumerate(cuts.classes[: len(first)]):
        first[c] = cuts.place.get(cuts.graph.written.get(cls, -1), -1)
    found = cuts.needed(first)
    kids = (k for c in found for k in cuts.nodes[first[c]].distinct)
    below = {*kids, *(cuts.number[r] for r in cuts.roots)}
    return None if any(cuts.members[c] and first[c] < 0 for c in below) else first


def hurry(cuts: Cuts, first: Sequence[int]) -> None:
    """Replace the cuts by one for each class that the roots need when each class is
    computed by its node in ``first``."""
    cuts.forget()
    needed = cuts.needed(first)
    cuts.refs = [0] * len(cuts.members)
    readers: dict[int, int] = {}
    for c in needed:
        for k in cuts.nodes[first[c]].distinct:
            cuts.refs[k] += 1
            readers[k] = readers.get(k, 0) | 1 << c
    for r in cuts.roots:
        cuts.refs[cuts.number[r]] += 1
        readers[cuts.number[r]] = -1
    for c in needed:
        cuts.through_view(first[c])
        cut = _fused(cuts, first[c], readers)
        if cut is not None:
            cuts.keep(c, cut)


def _fused(cuts: Cuts, n: int, readers: Mapping[int, int]) -> Cut | None:
    """A cut of node ``n``. ``readers``: the classes that read each class, as bits.

    All that fits inside is taken there, where nothing else reads any of it. Else it is
    the better, by area flow, of one with all but results and products that others read
    and one with only what is read once.
    """
    kids = cuts.nodes[n].distinct
    best = [cuts.of[k][0] if cuts.of[k] else None for k in kids]
    fitting = [
        cut if cut is not None and cuts.fits(n, i, cut.state) else None
        for i, cut in enumerate(best)
    ]
    whole = cuts.cut_of(n, tuple(fitting))
    if whole is not None and _is_closed(cuts, whole, readers):
        return whole
    own: list[Cut | None] = []
    light: list[Cut | None] = []
    for k, cut in zip(kids, fitting, strict=True):
        own.append(None if cuts.refs[k] > 1 else cut)
        stays = cut is None or readers[k] == -1 or cut.state.anchor != -1
        light.append(own[-1] if stays else cut)
    one = [
        [cut if j == i else None for j, cut in enumerate(own)] for i in range(len(own))
    ]
    for choices in ([own, light], one, [[None] * len(own)]):
        made = (cuts.cut_of(n, subs) for subs in dict.fromkeys(map(tuple, choices)))
        found = [cuts.sum_below(cut) for cut in made if cut is not None]
        if found:
            return min(found, key=lambda cut: cut.flow)
    return None


def _is_closed(cuts: Cuts, cut: Cut, readers: Mapping[int, int]) -> bool:
    """Whether nothing else reads what ``cut`` computes on its way."""
    inner = cut.body & ~(1 << cuts.nodes[cut.node].cls)
    return not any(readers[c] & ~cut.body for c in bits(inner))
