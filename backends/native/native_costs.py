"""What kernels cost here, by the cost model of the search and by the clock."""

from __future__ import annotations

import sys
from dataclasses import replace
from math import inf

from eqsat.kernels import (
    CPU,
    ClockModel,
    CostModel,
    Device,
    Target,
    calibrate,
    measured,
)

from .machine import COMMON, host

ONE_CORE = Device(
    "one core with AVX-512 (AMD EPYC, Zen 4)",
    launch_s=4e-8,
    flops_per_s=1.15e11,
    map_flops_per_s=4.5e10,
    bandwidths=((1 << 16, 1.3e11), (1 << 22, 7.5e10), (inf, 5e10)),
)
"""What ``eqsat calibrate`` measured: the limits that explanations compare with. A start
is that of a kernel within a program, far below what one alone takes."""


def cost_model(name: str) -> CostModel:
    """What kernels cost the backend of that name: as measured by ``eqsat calibrate``,
    or as shipped."""
    return CostModel(
        measured(name, replace(CPU, launch_s=3e-7)),
        Target(
            longest_row=sys.maxsize,  # rows are loops
            gram_share=COMMON.gram_share,
            joins_in_place=True,
        ),
        backend=name,
        others=("numpy",),
    )


def clock_model(name: str, model: CostModel) -> ClockModel:
    """What a clock shows of one thread: by the rates that ``eqsat calibrate`` measured,
    or those of a server whose vectors are as wide as here."""
    from .clock import ClockRates, NativeClock, shipped  # explanations alone need it

    narrow = 512 / host().vector_bits
    device = replace(
        ONE_CORE,
        flops_per_s=ONE_CORE.flops_per_s / narrow,
        map_flops_per_s=ONE_CORE.map_flops_per_s / narrow,
    )
    return NativeClock(
        measured(name, device),
        model.target,
        backend=name,
        others=("numpy",),
        rates=calibrate.as_kept(
            calibrate.rates_of(name), ClockRates.of_record, shipped
        ),
    )
