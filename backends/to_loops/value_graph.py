"""The values of a nest as a graph: which are in use, what each of them follows, and
divisions that become products."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..loop_ir import (
    ZERO,
    Affine,
    DType,
    LoopVar,
)


@dataclass(frozen=True)
class KernelValue:
    """A number in a kernel. What it is depends on which fields are set."""

    op: str
    """``const``, ``load``, ``position``, or the op that computes it."""
    dtype: DType
    args: tuple[int, ...] = ()
    at: Affine = ZERO
    source: Any = None
    """What a load reads, the number that a constant is, or the op that is a fold."""
    over: tuple[LoopVar, ...] = ()
    """The variables that a reduction runs over."""


@dataclass(frozen=True)
class ValueGraph:
    """Values by number; those that are in use are ``live``."""

    values: list[KernelValue]
    live: list[int]
    variables: dict[int, frozenset[LoopVar]]
    """What each follows."""
    stages: dict[int, int]
    """The reductions one after the other that each needs."""

    def is_row(self, i: int, grid: Collection[LoopVar]) -> bool:
        """Whether a value is one for all elements of a row."""
        return self.variables[i] <= set(grid)

    def add(self, value: KernelValue, like: int) -> int:
        """A new value that is computed where ``like`` is."""
        number = len(self.values)
        self.values.append(value)
        self.variables[number] = self.variables[like]
        self.stages[number] = self.stages[like]
        self.live.append(number)
        return number

    def order(self) -> dict[int, int]:
        """The place of each value in an order with arguments first."""
        order: dict[int, int] = {}
        for i in self.live:
            self._visit(i, order)
        return order

    def _visit(self, i: int, order: dict[int, int]) -> None:
        if i not in order:
            for a in self.values[i].args:
                self._visit(a, order)
            order[i] = len(order)


def below(values: Sequence[KernelValue], roots: Iterable[int]) -> list[int]:
    """The values that ``roots`` need, arguments first."""
    found = set(roots)
    stack = list(found)
    while stack:
        new = set(values[stack.pop()].args) - found
        found |= new
        stack.extend(new)
    return sorted(found)


def followed(
    values: Sequence[KernelValue], live: Iterable[int]
) -> dict[int, frozenset[LoopVar]]:
    """The variables that each of the ``live`` values follows."""
    near: dict[int, frozenset[LoopVar]] = {}
    for i in live:
        v = values[i]
        own = frozenset(v.at.variables)
        near[i] = own.union(*(near[a] for a in v.args)) - set(v.over)
    return near


def graph_of(values: Sequence[KernelValue], roots: Iterable[int]) -> ValueGraph:
    """The graph of what ``roots`` need, arguments first."""
    live = below(values, roots)
    graph = ValueGraph(list(values), live, followed(values, live), {})
    for i in live:
        v = values[i]
        stage = max((graph.stages[a] for a in v.args), default=0)
        graph.stages[i] = stage + bool(v.over)
    return graph


# -- divisions by a value of the row ---------------------------------------------------


def divide_once(graph: ValueGraph, grid: Collection[LoopVar]) -> None:
    """Divisions of elements by a value of their row become products with its
    reciprocal, since eight divisions take as long as twenty products.

    The divisor is scaled to [½, 1) first: its reciprocal is then as precise as
    others, and no product overflows whose quotient would not. That of a softmax
    needs no scale.
    """
    factors: dict[int, list[int]] = {}
    for i in list(graph.live):
        v = graph.values[i]
        if v.op != "divide" or v.dtype.kind != "f" or graph.is_row(i, grid):
            continue
        x, y = v.args
        if not graph.is_row(y, grid) or graph.is_row(x, grid):
            continue
        if y not in factors:
            factors[y] = _reciprocal(graph, y, v.dtype)
        *scales, last = factors[y]
        for scale in scales:
            x = graph.add(KernelValue("multiply", v.dtype, (x, scale)), i)
        graph.values[i] = KernelValue("multiply", v.dtype, (x, last))


def _reciprocal(graph: ValueGraph, y: int, dtype: DType) -> list[int]:
    """Factors that together are 1 / y."""
    scales = []
    scaled = y
    if not _is_sum_of_powers(graph, y):
        scales = [graph.add(KernelValue("divisor_scale", dtype, (y,)), y)]
        scaled = graph.add(KernelValue("multiply", dtype, (y, *scales)), y)
    return [*scales, graph.add(KernelValue("reciprocal", dtype, (scaled,)), y)]


def _is_sum_of_powers(graph: ValueGraph, i: int) -> bool:
    """Whether a value is Σ e^(v - max v): 1 to the length of the row, or NaN."""
    total = graph.values[i]
    if total.op != "sum" or not total.over:
        return False
    power = graph.values[total.args[0]]
    if power.op not in ("exp", "exp2") or power.over:
        return False
    difference = graph.values[power.args[0]]
    if difference.op != "subtract":
        return False
    x, y = difference.args
    top = graph.values[y]
    return top.op == "max" and top.args == (x,) and top.over == total.over
