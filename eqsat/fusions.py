"""The fusions of a program by the names of its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from eqsat.cost import CostModel
from eqsat.opportunity import opportunities
from eqsat.program import Program, show_bytes
from eqsat.term import Term


@dataclass(frozen=True)
class Fusion:
    """Ops that are one kernel, or two kernels that might have been one."""

    kernels: tuple[str, ...]
    """The kernel; or the two, the one that the other reads first."""
    taken: bool
    apart_s: float
    """Seconds of the parts as kernels of their own."""
    fused_s: float | None
    """Seconds of the one kernel; None where no kernel can do it."""
    saved_bytes: float
    """Traffic that one kernel saves (bytes)."""
    reason: str
    """What it saves, or why it was not taken."""

    @property
    def speedup(self) -> float | None:
        """How many times as long the parts take; None where no kernel can do it."""
        return self.apart_s / self.fused_s if self.fused_s else None

    def record(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            **asdict(self),
            "kernels": list(self.kernels),
            "speedup": self.speedup,
        }

    def __str__(self) -> str:
        names = " + ".join(self.kernels)
        if self.taken:
            return f"{names}: {self.reason}, {show_bytes(self.saved_bytes)}"
        return f"{names} apart: {self.reason}"


def fusions(
    program: Program, roots: Sequence[Term], model: CostModel
) -> tuple[Fusion, ...]:
    """The fusions of ``program``, which computes ``roots``: those taken, then the best
    of those not taken."""
    names = {k.term: k.name for k in program.kernels}
    return tuple(
        Fusion(
            tuple(names[t] for t in o.kernels),
            o.taken,
            o.apart_s,
            o.fused_s,
            o.saved_bytes,
            o.reason,
        )
        for o in opportunities(roots, model)
        if all(t in names for t in o.kernels)
    )
