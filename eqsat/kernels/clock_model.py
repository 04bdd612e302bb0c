"""What a program takes by the clock, as far as that can be said beforehand.

The cost model ranks kernels: what is the same for all of them it leaves out, and what
it prices is an operation, not the loops that a backend makes of it. A backend that
knows its loops has a clock of its own; for others the cost model is the clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any

from eqsat.kernels.cost_model import CostModel
from eqsat.kernels.program import Program
from eqsat.terms import Term


@dataclass(frozen=True)
class ExpectedTime:
    """What a kernel is expected to take."""

    seconds: float
    bound: str
    """What most of it goes into: ``arithmetic``, ``memory`` or ``start``."""

    def __add__(self, other: ExpectedTime) -> ExpectedTime:
        more = max(self, other, key=lambda e: e.seconds)
        return ExpectedTime(self.seconds + other.seconds, more.bound)


@dataclass(frozen=True)
class ClockModel(CostModel):
    """Prices the kernels of a program in seconds of one thread, by the cost model."""

    def call_s(self, program: Program) -> float:
        """Seconds of a call."""
        return sum(k.seconds for k in self.kernels(program))

    def kernels(self, program: Program) -> tuple[ExpectedTime, ...]:
        """What each kernel of the program takes, in order."""
        return tuple(
            ExpectedTime(self.term(k.term), self._bound(k.term))
            for k in program.kernels
        )

    def _bound(self, term: Term) -> str:
        parts = {
            "arithmetic": replace(self.device, bandwidths=((inf, inf),), launch_s=0.0),
            "memory": replace(
                self.device, flops_per_s=inf, map_flops_per_s=inf, launch_s=0.0
            ),
        }
        found = {n: replace(self, device=d).term(term) for n, d in parts.items()}
        found["start"] = self.device.launch_s
        return max(found, key=found.__getitem__)


def clock_of(backend: Any, model: CostModel) -> ClockModel:
    """The clock of a backend that has one; else its cost model."""
    known: ClockModel | None = getattr(backend, "clock", None)
    if known is not None:
        return replace(known, target=model.target)
    return ClockModel(model.device, model.target, model.backend, model.others)
