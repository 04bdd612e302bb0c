"""The MLX backend: programs as calls of MLX and kernels of its GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eqsat.calibrate import measured
from eqsat.cost import CostModel, Device
from eqsat.op import Op
from eqsat.options import Options
from eqsat.program import Program

from .arrays import to_mlx, to_numpy
from .devices import device_here, measure
from .entry import Entry, PlainEntry, entry
from .lower import Lowered, lower, realises

__all__ = ["Backend", "Lowered", "backend", "lower", "to_mlx", "to_numpy"]


@dataclass(frozen=True)
class Backend:
    """The record that the entry-point group ``eqsat.backends`` names."""

    name: str = "mlx"

    @cached_property
    def model(self) -> CostModel:
        """What kernels cost on MLX's default device: as measured by ``eqsat
        calibrate``, or as shipped."""
        device, target = device_here()
        return CostModel(measured(self.name, device), target, backend=self.name)

    def measure(self, progress: Callable[[str], None]) -> Device:
        """MLX's default device; ``progress`` is told what comes next."""
        return measure(device_here()[0], progress)

    def lower(self, program: Program, options: Options | None = None) -> Lowered:
        """``program`` for MLX's default device. Raises :class:`BackendError` for
        float64 on a GPU."""
        return lower(program)

    def entry(self, slow: Callable[..., Any]) -> Entry | PlainEntry:
        """What serves calls of arrays of MLX that it has learnt; ``slow`` is called for
        the others."""
        return entry(slow)

    def realises(self, op: Op) -> bool:
        """Whether kernels of ``op`` can be run."""
        return realises(op)


backend = Backend()
