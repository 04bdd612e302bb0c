"""The NumPy backend: programs as readable Python that runs anywhere.

It is what a user reads when debugging, and its :func:`interpret` is the oracle of the
other backends.
"""

from collections.abc import Callable
from dataclasses import dataclass

from eqsat.kernels import CPU, CostModel, Device, Program, measure_cpu, measured
from eqsat.support import Options, cached_property
from eqsat.terms import Op

from ..interpret import evaluate, interpret
from .emit import Names
from .lower import NumpyProgram, lower


@dataclass(frozen=True)
class NumpyBackend:
    """The record that the entry-point group ``eqsat.backends`` names."""

    name: str = "numpy"

    @cached_property
    def model(self) -> CostModel:
        """What kernels cost here: as measured by ``eqsat calibrate``, or as shipped."""
        return CostModel(measured(self.name, CPU), backend=self.name)

    def measure(self, progress: Callable[[str], None]) -> Device:
        """This machine as the backend sees it; ``progress`` is told what comes next."""
        return measure_cpu(self.name, CPU, progress)

    def lower(self, program: Program, options: Options | None = None) -> NumpyProgram:
        """``program`` as something that can be called; no option changes it."""
        return lower(program)


backend = NumpyBackend()
