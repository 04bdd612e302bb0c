"""The MLX backend: programs as calls of MLX and kernels of its GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eqsat.kernels import CostModel, Device, Program, measured
from eqsat.support import Options, cached_property
from eqsat.terms import Op

from .array_struct import watched
from .arrays import to_mlx, to_numpy
from .device_costs import device_here, measure
from .entry import MLXEntry, PlainEntry, entry
from .lower import MLXProgram, lower


@dataclass(frozen=True)
class MLXBackend:
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

    def lower(self, program: Program, options: Options | None = None) -> MLXProgram:
        """``program`` for MLX's default device. Raises :class:`BackendError` for
        float64 on a GPU."""
        return lower(program)

    def entry(self, slow: Callable[..., Any]) -> MLXEntry | PlainEntry:
        """What serves calls of arrays of MLX that it has learnt; ``slow`` is called for
        the others."""
        return entry(slow)

    def is_transforming(self) -> bool | None:
        """Whether this thread is inside ``mx.grad``, ``mx.compile`` or their like; None
        where that cannot be told."""
        seen = watched()
        return None if seen is None else seen.is_tracer()


backend = MLXBackend()
