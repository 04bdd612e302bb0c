"""The native backend: machine code for maps, rows and reductions, BLAS for products."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

from eqsat.kernels import (
    CPU,
    ClockModel,
    CostModel,
    Device,
    Program,
    Target,
    calibrate,
    measured,
)
from eqsat.saved import PortableProgram
from eqsat.support import Options, cached_property
from eqsat.terms import Op

from .lower import NativeProgram
from .machine import COMMON, host
from .runtime import NativeEntry, result_pool, run_alone, thread_limit

if TYPE_CHECKING:
    from .clock import ClockRates

ONE_CORE = Device(
    "one core with AVX-512 (AMD EPYC, Zen 4)",
    launch_s=4e-8,
    flops_per_s=1.15e11,
    map_flops_per_s=4.5e10,
    bandwidths=((1 << 16, 1.3e11), (1 << 22, 7.5e10), (inf, 5e10)),
)
"""What ``eqsat calibrate`` measured: the limits that explanations compare with. A start
is that of a kernel within a program, far below what one alone takes."""


@dataclass(frozen=True)
class NativeBackend:
    """The record that the entry-point group ``eqsat.backends`` names."""

    name: str = "native"

    @cached_property
    def model(self) -> CostModel:
        """What kernels cost here: as measured by ``eqsat calibrate``, or as shipped."""
        device = replace(CPU, launch_s=3e-7)
        return CostModel(
            measured(self.name, device),
            Target(
                longest_row=sys.maxsize,  # rows are loops
                gram_share=COMMON.gram_share,
                joins_in_place=True,
            ),
            backend=self.name,
            others=("numpy",),
        )

    @cached_property
    def clock(self) -> ClockModel:
        """What a clock shows of one thread: by the rates that ``eqsat calibrate``
        measured, or those of a server whose vectors are as wide as here."""
        from .clock import ClockRates, NativeClock, shipped

        usual, narrow = ONE_CORE, 512 / host().vector_bits
        device = replace(
            usual,
            flops_per_s=usual.flops_per_s / narrow,
            map_flops_per_s=usual.map_flops_per_s / narrow,
        )
        return NativeClock(
            measured(self.name, device),
            self.model.target,
            backend=self.name,
            others=("numpy",),
            rates=calibrate.as_kept(
                calibrate.rates_of(self.name), ClockRates.of_record, shipped
            ),
        )

    def measure(self, progress: Callable[[str], None]) -> Device:
        """A core of this machine as the backend sees it; ``progress`` is told what
        comes next."""
        from .core_rates import measure_core

        return measure_core(self.name, CPU, progress)

    def measure_rates(self, progress: Callable[[str], None]) -> ClockRates:
        """What the clock goes by, on a core of this machine; ``progress`` is told what
        comes next."""
        from .clock import measure_rates

        return measure_rates("as measured here", progress)

    def lower(self, program: Program, options: Options | None = None) -> NativeProgram:
        """``program`` as machine code, for as many threads as ``options`` say.

        ``options.deadline_s`` is the time for it. No piece of code is begun after that
        but the first one (:mod:`.code_pieces`); NumPy runs what is not written.
        Raises :class:`BackendError` where LLVM makes no code for this machine.
        """
        options = options or Options()
        exact = options.numerics == "exact"
        seconds, cache = options.deadline_s, options.cache
        threads = options.threads
        return NativeProgram(program, host(), threads, exact, seconds, cache)

    def portable(
        self, program: Program, options: Options, cpu: str, alone: bool = False
    ) -> PortableProgram:
        """``program`` as machine code that can be saved, for ``cpu``: ``native``,
        ``generic``, or ``x86-64-v2`` to ``v4``; ``alone``: without products by a BLAS.
        Raises :class:`BackendError` where NumPy has a part in it, and where there is no
        C compiler to link it."""
        from .portable import portable

        return portable(program, options, cpu, alone)

    def c_library(
        self, p: PortableProgram, function: str, source: str, constants: bytes
    ) -> bytes:
        """A shared library with the C ``function`` of ``source``, which calls ``p``.
        Raises :class:`BackendError` where ``p`` calls what only NumPy has."""
        from .shared_library import c_library

        return c_library(p, function, source, constants)

    def entry(self, slow: Callable[..., Any]) -> NativeEntry | None:
        """What calls programs without Python; ``slow`` is called for what it has not
        learnt."""
        return NativeEntry.if_available(slow)

    def team(self, options: Options) -> int:
        """How many threads run a program at most."""
        return thread_limit(options.threads)

    def run_alone(self, change: int) -> None:
        """Have each program run on the thread of its caller while the sum of all
        ``change`` is not 0."""
        run_alone(change)

    def pooled_bytes(self) -> int:
        """Memory of results that is kept for the next call (bytes)."""
        return result_pool.kept_bytes()

    def release_memory(self) -> None:
        """Give memory of results back that is kept for the next call."""
        result_pool.release()


backend = NativeBackend()
