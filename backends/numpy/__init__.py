"""The NumPy backend: programs as readable Python that runs anywhere.

It is what a user reads when debugging, and its :func:`interpret` is the oracle of the
other backends.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from eqsat.calibrate import measure_cpu, measured
from eqsat.cost import CPU, CostModel, Device
from eqsat.op import Op
from eqsat.options import Options
from eqsat.program import Program

from ..interpret import evaluate, interpret
from .lower import Lowered, lower, realises

__all__ = [
    "Backend",
    "Lowered",
    "backend",
    "evaluate",
    "interpret",
    "lower",
    "realises",
]


@dataclass(frozen=True)
class Backend:
    """The record that the entry-point group ``eqsat.backends`` names."""

    name: str = "numpy"

    @cached_property
    def model(self) -> CostModel:
        """What kernels cost here: as measured by ``eqsat calibrate``, or as shipped."""
        return CostModel(measured(self.name, CPU), backend=self.name)

    def measure(self, progress: Callable[[str], None]) -> Device:
        """This machine as the backend sees it; ``progress`` is told what comes next."""
        return measure_cpu(self.name, CPU, progress)

    def lower(self, program: Program, options: Options | None = None) -> Lowered:
        """``program`` as something that can be called; no option changes it."""
        return lower(program)

    def realises(self, op: Op) -> bool:
        """Whether kernels of ``op`` can be run."""
        return realises(op)


backend = Backend()
