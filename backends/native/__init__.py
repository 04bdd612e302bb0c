"""The native backend: machine code for maps, rows and reductions, BLAS for products."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eqsat.support import Options, cached_property, lazy_room

from .machine import host

if TYPE_CHECKING:
    from eqsat.kernels import ClockModel, CostModel, Device, Program
    from eqsat.saved import PortableProgram

    from .clock import ClockRates
    from .lower import NativeProgram
    from .runtime import NativeEntry
    from .whole_program import WholeProgram

__getattr__ = lazy_room(__name__, __file__)


@dataclass(frozen=True)
class NativeBackend:
    """The record that the entry-point group ``eqsat.backends`` names."""

    name: str = "native"

    @cached_property
    def model(self) -> CostModel:
        """What kernels cost here: as measured by ``eqsat calibrate``, or as shipped."""
        from .native_costs import cost_model

        return cost_model(self.name)

    @cached_property
    def clock(self) -> ClockModel:
        """What a clock shows of one thread: by the rates that ``eqsat calibrate``
        measured, or those of a server whose vectors are as wide as here."""
        from .native_costs import clock_model

        return clock_model(self.name, self.model)

    def measure(self, progress: Callable[[str], None]) -> Device:
        """A core of this machine as the backend sees it; ``progress`` is told what
        comes next."""
        from eqsat.kernels import CPU

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
        from .lower import NativeProgram

        options = options or Options()
        exact = options.numerics == "exact"
        seconds, cache = options.deadline_s, options.cache
        threads = options.threads
        return NativeProgram(program, host(), threads, exact, seconds, cache)

    def whole_name(self, said: Iterable[bytes], options: Options) -> str:
        """Where a program is kept whole that follows from ``said``, on this machine and
        under ``options``."""
        from .whole_program import whole_name

        return whole_name(said, options.threads)

    def keep_whole(
        self, name: str, program: NativeProgram, other: tuple[str, bytes]
    ) -> None:
        """Keep a program with its constants under a name of :meth:`whole_name`, if it
        is one native function; :meth:`recall_whole` gives it as long as an entry of the
        disk cache has a digest (``other``: its name, and the digest)."""
        from .whole_program import keep_whole

        code, record = program.first.code, program.first.kept_as
        if code is not None and record is not None:
            keep_whole(name, record, code, other)

    def recall_whole(self, name: str) -> WholeProgram | None:
        """The program of that name: a function of arrays in C order that gives None
        for arguments that have no result; None where there is none."""
        from .whole_program import recall_whole

        return recall_whole(name)

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

    def c_macros(self) -> frozenset[str]:
        """Names that stand for something else in C, such as ``EOF``."""
        from .shared_library import c_macros

        return c_macros()

    def entry(self, slow: Callable[..., Any]) -> NativeEntry | None:
        """What calls programs without Python; ``slow`` is called for what it has not
        learnt."""
        from .runtime import NativeEntry

        return NativeEntry.if_available(slow)

    def team(self, options: Options) -> int:
        """How many threads run a program at most."""
        from .runtime import thread_limit

        return thread_limit(options.threads)

    def run_alone(self, change: int) -> None:
        """Have each program run on the thread of its caller while the sum of all
        ``change`` is not 0."""
        from .runtime import run_alone

        run_alone(change)

    def pooled_bytes(self) -> int:
        """Memory of results that is kept for the next call (bytes)."""
        from .runtime import result_pool

        return result_pool.kept_bytes()

    def release_memory(self) -> None:
        """Give memory of results back that is kept for the next call."""
        from .runtime import result_pool

        result_pool.release()


backend = NativeBackend()
