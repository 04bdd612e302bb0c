"""The NumPy backend: programs as readable Python that runs anywhere.

It is what a user reads when debugging, and its :func:`interpret` is the oracle of the
other backends.
"""

from dataclasses import dataclass

from eqsat.cost import CostModel
from eqsat.op import Op
from eqsat.program import Program

from .interpret import evaluate, interpret
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

    @property
    def model(self) -> CostModel:
        """What kernels cost here."""
        return CostModel()

    def lower(self, program: Program) -> Lowered:
        """``program`` as something that can be called."""
        return lower(program)

    def realises(self, op: Op) -> bool:
        """Whether kernels of ``op`` can be run."""
        return realises(op)


backend = Backend()
