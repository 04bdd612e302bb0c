"""What a program takes by the clock, as far as that can be said beforehand.

The cost model ranks kernels: what is the same for all of them it leaves out, and its
shipped rates are those of a slower core than most. Here are the rates of this
processor, and what a clock sees besides: the call, elements that are gathered, halves
that are widened, numbers of 8 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log2
from typing import Any

import numpy as np

from eqsat.kernels.cost_model import CostModel
from eqsat.kernels.program import Program
from eqsat.ops import argsort_op, matmul_op, sort_op, take_op
from eqsat.terms import BF16, Op, Term, Type

USUAL = 4
"""Bytes of the numbers that a device is measured with."""
SORTS = (sort_op, argsort_op)
LEVELS = 13
"""Levels of the sort that a price of one element is for, of 8,192 of them."""
HALVES = (np.dtype("f2"), BF16)


@dataclass(frozen=True)
class ClockModel(CostModel):
    """Prices kernels in seconds of one thread."""

    entry_s: float = 0.0
    """Seconds of a call beside its kernels."""
    argument_s: float = 0.0
    """Seconds of a call for each argument and each result."""
    gathered_s: float = 0.0
    """Seconds for each index of a gather."""
    apart: float = 0.0
    """The share of its lesser part, arithmetic or traffic, that a kernel does not do
    at the same time as the other."""
    half_s: float = 0.0
    """Seconds to widen or narrow one number of half precision."""
    library: float = 1.0
    """How many times as long arithmetic of factorisations and their like takes."""
    library_s: Mapping[str, float] = field(default_factory=dict)
    """Functions that move more than they compute, sorts first of all, to the seconds of
    an element."""
    side: float = 0.0
    """The least size of a product at which it runs at half the rate of large ones."""

    def call_s(self, program: Program) -> float:
        """Seconds of a call: that of its kernels, its arguments and its results."""
        values = len(program.inputs) + len(program.roots)
        kernels = sum(self.term(k.term) for k in program.kernels)
        return kernels + self.entry_s + values * self.argument_s

    def bound(self, term: Term) -> str:
        """What most of the time of a kernel goes into."""
        parts = {
            "arithmetic": replace(self.device, bandwidths=((inf, inf),), launch_s=0.0),
            "memory": replace(
                self.device, flops_per_s=inf, map_flops_per_s=inf, launch_s=0.0
            ),
        }
        found = {n: replace(self, device=d).term(term) for n, d in parts.items()}
        found["start"] = self.device.launch_s
        return max(found, key=found.__getitem__)

    def arithmetic_s(
        self, op: Op, attrs: tuple[Any, ...], types: tuple[Type, ...], out: Type
    ) -> float:
        found = super().arithmetic_s(op, attrs, types, out) * _width((*types, out))
        if op is matmul_op:
            sides = [n for _, shape in types for n in shape[-2:]]
            if min(sides, default=1) > 1:  # others are bound by memory
                found *= 1 + self.side / min(sides)
        each = self.library_s.get(op.name)
        if each is not None:
            n, row = max(map(_elements, types)), (*types[0][1], 1, 1)[-1]
            deep = log2(row + 1) / LEVELS if op in SORTS else 1.0
            found = max(found, each * n * deep)
        elif op.kind == "library" and op is not take_op:
            found *= self.library
        if op is take_op:
            found += self.gathered_s * _elements(types[1])
        if op.kind != "view":
            halves = [t for t in types if t[0] in HALVES]
            found += self.half_s * sum(map(_elements, halves))
        return found

    def kernel_s(self, arithmetic_s: float, traffic_s: float, views: int = 0) -> float:
        least = min(arithmetic_s, traffic_s)
        return super().kernel_s(arithmetic_s, traffic_s, views) + least * self.apart

    def traffic_s(self, moved: Iterable[float]) -> float:
        """What a kernel moves lies in the smallest memory that holds half of it: a
        device is measured by arrays that are copied."""
        return 2 * self.device.traffic_s(sum(moved) / 2)


def _width(types: Sequence[Type]) -> float:
    """How many times as long vectors take that hold these numbers."""
    sizes = [t[0].itemsize for t in types if isinstance(t[0], np.dtype)]
    return max(1.0, max(sizes, default=USUAL) / USUAL)


def _elements(type_: Type) -> float:
    return float(np.prod(type_[1], dtype=float))


def clock_of(backend: Any, model: CostModel) -> ClockModel:
    """The clock of a backend that has one; else the device of its cost model."""
    known: ClockModel | None = getattr(backend, "clock", None)
    if known is not None:
        return replace(known, target=model.target)
    return ClockModel(model.device, model.target, model.backend, model.others)
