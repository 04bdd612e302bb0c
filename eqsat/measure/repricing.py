"""Prices of kernels by what was measured: the figures of the device that bound them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from eqsat.kernels import CostModel, Device, Kernel

DEPARTS = 2.0
"""Factor from which on the measured seconds of a kernel depart from the model's."""
_MOST = 64.0
"""Most that a figure is corrected by, either way."""
FIGURES = ("launch_s", "flops_per_s", "map_flops_per_s", "bandwidths")


@dataclass(frozen=True)
class KernelPrice:
    """A kernel by the model and by the clock."""

    name: str
    kind: str
    model_s: float
    measured_s: float
    bound: str
    """The figure of the device that the model takes most of its seconds from."""

    @property
    def ratio(self) -> float:
        """Measured over modelled."""
        return self.measured_s / self.model_s

    @property
    def departs(self) -> bool:
        """Whether it is priced again."""
        return not 1 / DEPARTS <= self.ratio <= DEPARTS


def prices(
    kernels: Sequence[Kernel], measured_s: Sequence[float], model: CostModel
) -> list[KernelPrice]:
    """Kernels beside what they were measured to take."""
    return [
        KernelPrice(k.name, k.kind, model.term(k.term), max(s, 1e-9), _bound(k, model))
        for k, s in zip(kernels, measured_s, strict=True)
    ]


def error(found: Sequence[KernelPrice]) -> float:
    """By what factor the model is off, the geometric mean over kernels; 1 is right."""
    logs = [abs(math.log(p.ratio)) for p in found]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def repriced(found: Sequence[KernelPrice], model: CostModel) -> CostModel:
    """The model with the figures corrected that kernels depart from: each by the median
    of what all its kernels were measured to take beside what it said."""
    wrong = {p.bound for p in found if p.departs}
    times = {
        figure: float(np.median([p.ratio for p in found if p.bound == figure]))
        for figure in wrong
    }
    return replace(model, device=slowed(model.device, times))


def slowed(device: Device, times: Mapping[str, float]) -> Device:
    """The device with figures of :data:`FIGURES` so many times as slow."""
    by = {n: min(max(times.get(n, 1.0), 1 / _MOST), _MOST) for n in FIGURES}
    return replace(
        device,
        launch_s=device.launch_s * by["launch_s"],
        flops_per_s=device.flops_per_s / by["flops_per_s"],
        map_flops_per_s=device.map_flops_per_s / by["map_flops_per_s"],
        bandwidths=tuple((r, rate / by["bandwidths"]) for r, rate in device.bandwidths),
    )


def _bound(kernel: Kernel, model: CostModel) -> str:
    """The figure without which the kernel would take the least."""
    d = model.device
    free = {
        "launch_s": replace(d, launch_s=0.0),
        "flops_per_s": replace(d, flops_per_s=inf),
        "map_flops_per_s": replace(d, map_flops_per_s=inf, step_s=0.0),
        "bandwidths": replace(d, bandwidths=((inf, inf),)),
    }
    return min(free, key=lambda n: replace(model, device=free[n]).term(kernel.term))
