"""The loops of a nest: its grid, its row, and which of them run side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ..loop_ir import (
    Affine,
    LoopVar,
)
from .value_graph import (
    ValueGraph,
)
from .values import (
    Values,
)

Placed = tuple[Any, Affine, int]
"""A store: memory, the address, the number of the value."""


@dataclass(frozen=True)
class Scattering:
    """How stores go to elements that are computed."""

    by: int
    """The number of the value that says how far behind its address an element lies."""
    ordered: tuple[LoopVar, ...]
    """What this value follows: one thread takes these points in order."""
    row: tuple[LoopVar, ...]
    """What is side by side at each of them."""
    adds: bool
    """Whether values are added to what is there; else the last one stays."""


@dataclass(frozen=True)
class NestLoops:
    """The loops of a nest, the outermost first."""

    grid: tuple[LoopVar, ...]
    row: tuple[LoopVar, ...]
    """What passes that reduce run along."""
    tail: tuple[LoopVar, ...]
    """What the results of a row run along."""
    vertical: bool = False
    """As of :class:`..loop_ir.nest.Nest`."""
    is_map: bool = False
    """Whether nothing is reduced."""


def loops_of(
    graph: ValueGraph,
    values: Values,
    stores: Sequence[Placed],
    chunk: LoopVar | None,
    scattering: Scattering | None,
) -> NestLoops:
    """The grid, the row, and what of the results runs along neither."""
    if values.running is not None:
        return _running_loops(graph, values.base, values.running, stores)
    if scattering is not None:
        row = scattering.row
        last = (*scattering.ordered, *row)
        first = [v for v in values.base if v not in last]
        return NestLoops((*first, *scattering.ordered), row, row)
    if values.reductions.row is None or not any(
        graph.values[i].over for i in graph.live
    ):
        used = frozenset().union(*(at.variables for _, at, _ in stores))
        base = tuple(v for v in values.base if v in used)
        return NestLoops((), base, base, is_map=True)
    strides, main = _strides(stores), _main_load(graph)
    row = tuple(sorted(values.reductions.row, key=lambda v: -main.coefficient(v)))
    outside = values.reductions.grid
    grid = [v for v in values.base if v in outside]
    tail = tuple(v for v in values.base if v not in outside)
    if set(tail) == set(row):
        tail = row
    grid.sort(key=lambda v: (-main.coefficient(v), -strides.get(v, 0)))
    contiguous = [v for v in (*grid, *row) if main.coefficient(v) == 1]
    vertical = bool(contiguous) and contiguous[-1] in grid
    if vertical:
        lane = contiguous[-1]
        grid = [*(v for v in grid if v is not lane), lane]
    if chunk is not None:
        grid.insert(len(grid) - vertical, chunk)
    return NestLoops(tuple(grid), row, tail, vertical)


def _running_loops(
    graph: ValueGraph,
    base: Sequence[LoopVar],
    along: LoopVar,
    stores: Sequence[Placed],
) -> NestLoops:
    """Rows along an axis with running results."""
    strides, main = _strides(stores), _main_load(graph)
    grid = [v for v in base if v != along]
    grid.sort(key=lambda v: (-main.coefficient(v), -strides.get(v, 0)))
    lanes = [v for v in grid if main.coefficient(v) == 1]
    vertical = bool(lanes) and main.coefficient(along) != 1
    if vertical:
        grid = [*(v for v in grid if v is not lanes[-1]), lanes[-1]]
    return NestLoops(tuple(grid), (along,), (along,), vertical)


def _strides(stores: Sequence[Placed]) -> dict[LoopVar, int]:
    found: dict[LoopVar, int] = {}
    for _, at, _ in stores:
        for v, c in at.terms:
            found.setdefault(v, abs(c))
    return found


def _main_load(graph: ValueGraph) -> Affine:
    """The address of the load that reads most."""
    every = (graph.values[i] for i in graph.live)
    loads = [v for v in every if v.op in ("load", "gather")]
    sizes = [prod(v.size for v in x.at.variables) for x in loads]
    return loads[sizes.index(max(sizes))].at if loads else Affine()
