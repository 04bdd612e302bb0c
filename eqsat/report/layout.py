"""Places of the nodes of a graph in layers: Sugiyama's method in its plainest form.

A node is a layer below the lowest of those that it reads; in a layer, nodes come in the
order of the middle of their neighbours, which a few sweeps down and up settle.
"""

from __future__ import annotations

from collections.abc import Sequence

SWEEPS = 6
"""Times that all layers are put in order, down and up in turn."""
Edges = Sequence[tuple[int, int]]
"""Pairs of nodes: what is read, and what reads it, which has the larger number."""


def placed(number: int, edges: Edges) -> list[tuple[float, int]]:
    """For each of ``number`` nodes its place in a layer, where 0 is the middle and
    neighbours are 1 apart, and its layer."""
    above: list[list[int]] = [[] for _ in range(number)]
    below: list[list[int]] = [[] for _ in range(number)]
    for a, b in edges:
        above[b].append(a)
        below[a].append(b)
    layer = [0] * number
    for n in range(number):
        layer[n] = 1 + max((layer[a] for a in above[n]), default=-1)
    for n in reversed(range(number)):  # what is read late stands near its reader
        if below[n] and not above[n]:
            layer[n] = min(layer[b] for b in below[n]) - 1
    layers: list[list[int]] = [[] for _ in range(1 + max(layer, default=-1))]
    for n in range(number):
        layers[layer[n]].append(n)
    x = [0.0] * number
    for nodes in layers:
        _spread(nodes, x)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for nodes in layers if down else reversed(layers):
            middle = {
                n: sum(x[a] for a in near[n]) / len(near[n]) if near[n] else x[n]
                for n in nodes
            }
            nodes.sort(key=middle.__getitem__)
            _spread(nodes, x, [middle[n] for n in nodes])
    return [(x[n], layer[n]) for n in range(number)]


def _spread(
    nodes: list[int], x: list[float], wanted: list[float] | None = None
) -> None:
    """Put nodes in this order 1 apart, as near to where they are ``wanted`` as that
    goes on the whole."""
    if not nodes:
        return
    shift = -(len(nodes) - 1) / 2
    if wanted is not None:
        shift = sum(w - i for i, w in enumerate(wanted)) / len(nodes)
    for i, n in enumerate(nodes):
        x[n] = i + shift
