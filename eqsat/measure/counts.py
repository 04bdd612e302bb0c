"""Counts of calls, kept while ``Options(stats=True)`` is in force.

A function whose calls are counted is called through Python; others know nothing of it.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from eqsat.kernels import show_type
from eqsat.lowered import Lowered
from eqsat.measure.kernel_times import KernelTimes
from eqsat.measure.tuning import ProgramDecision
from eqsat.measure.turns import timed
from eqsat.support import (
    BackendError,
    ForkLock,
    LastUse,
    SourceLine,
    Watch,
)
from eqsat.trace import to_numpy

FAILURES = (BackendError, ArithmeticError, LookupError, MemoryError, ValueError)
"""What keeps a program from being measured: ``ValueError`` is MLX's, of arrays that it
traces."""
_MOST = 64
"""Samples of a kernel that are kept."""


@dataclass
class KernelCounts:
    """What one kernel of a program takes for a call."""

    name: str
    kind: str
    flops: float
    """Floating operations (flop)."""
    bytes: int
    """Bytes read and written."""
    limit_s: float
    """Seconds at the limit of the machine."""
    model_s: float
    """Seconds by the cost model."""
    samples: list[float] = field(default_factory=list)
    """Seconds, as measured by itself."""

    @property
    def seconds(self) -> float | None:
        """The median of what was measured (s); None where nothing was."""
        return float(np.median(self.samples)) if self.samples else None


@dataclass(eq=False)
class ProgramCounts:
    """Calls that one program has served."""

    signature: str
    """Types of its arrays."""
    bytes: int
    """Bytes that its kernels move in a call."""
    limit_s: float
    """Seconds of a call at the limit of the machine."""
    peak_bytes: int
    """Workspace and results of a call (bytes)."""
    kernels: tuple[KernelCounts, ...]
    is_lazy: bool = False
    """Whether the results are computed after the call, so that ``seconds`` are of
    recording alone."""
    waited: list[float] = field(default_factory=list)
    """Seconds of runs whose results were waited for, where they are computed later."""
    calls: int = 0
    seconds: float = 0.0
    times: KernelTimes | None = None
    untimed: str = ""
    """Why kernels were not measured."""

    @property
    def run_s(self) -> float | None:
        """Seconds that the program took in all its calls; None where nobody knows."""
        if not self.is_lazy:
            return self.seconds
        return float(np.median(self.waited)) * self.calls if self.waited else None


class Served(NamedTuple):
    """A call, and the program that served it."""

    low: Lowered
    arrays: Sequence[Any]
    is_lazy: bool
    """Whether the results are computed later."""


class FunctionCounts:
    """Calls and compiles of one function, for all options and backends."""

    def __init__(self, name: str, line: SourceLine | None) -> None:
        self.name, self.line = name, line
        self._lock = ForkLock()
        self._compiling = threading.local()
        self._of: weakref.WeakKeyDictionary[LastUse, ProgramCounts]
        self.reset()

    def reset(self) -> None:
        """Count from 0."""
        with self._lock():
            self.programs: list[ProgramCounts] = []
            self._of = weakref.WeakKeyDictionary()
            self.compiles = self.from_disk = 0
            self.compile_s = 0.0
            self.decisions: list[ProgramDecision] = []
            """Programs that were measured in turn with others, the latest last."""
            self.failures: list[str] = []
            """Why some could not be."""

    def decided(self, decision: ProgramDecision) -> None:
        """A program was measured in turn with others."""
        with self._lock():
            self.decisions.append(decision)
        _known_functions.add(self)

    def failed(self, reason: str) -> None:
        """A program could not be measured."""
        with self._lock():
            self.failures.append(reason)
        _known_functions.add(self)

    def compiled(self, low: Lowered, seconds: float) -> None:
        """A program was made, or found on disk, in so many seconds."""
        self._compiling.spent = self.spent_compiling() + seconds
        with self._lock():
            self.compiles += low.search is not None
            self.from_disk += low.search is None
            self.compile_s += seconds
        _known_functions.add(self)

    def spent_compiling(self) -> float:
        """Seconds that this thread has spent on compiles."""
        spent: float = getattr(self._compiling, "spent", 0.0)
        return spent

    def count(self, served: Served, spent: float) -> None:
        """A call took so many seconds."""
        low = served.low
        with self._lock():
            counts = self._of.get(low.used)
            if counts is None:
                counts = self._of[low.used] = _counts_of(low, served.is_lazy)
                self.programs.append(counts)
            counts.calls += 1
            counts.seconds += spent
            is_due = counts.calls & (counts.calls - 1) == 0
        if is_due:
            _sample(counts, low, served.arrays)
        _known_functions.add(self)


class Counting(Protocol):
    """A function with counts."""

    counts: FunctionCounts


def counted(
    of: Counting,
    function: Callable[..., Any],
    served: Callable[[tuple[Any, ...], dict[str, Any]], Served | None],
) -> Callable[..., Any]:
    """``function``, whose calls are counted as calls ``of`` another. ``served`` tells
    which program served a call."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if isinstance(sys.getprofile(), Watch):  # it becomes a part of another
            return function(*args, **kwargs)
        counts = of.counts
        before = counts.spent_compiling()
        start = time.perf_counter()
        result = function(*args, **kwargs)
        spent = time.perf_counter() - start
        spent -= counts.spent_compiling() - before
        found = served(args, kwargs)
        if found is not None:
            counts.count(found, max(spent, 0.0))
        return result

    return call


_known_functions: set[FunctionCounts] = set()
"""Functions that have counted something."""


def counting() -> list[FunctionCounts]:
    """The functions that have counted something, by name."""
    return sorted(_known_functions, key=lambda f: (f.name, str(f.line)))


def forget(functions: Iterable[FunctionCounts]) -> None:
    """List them no more, until they count something."""
    _known_functions.difference_update(functions)


def _counts_of(low: Lowered, is_lazy: bool) -> ProgramCounts:
    cores = getattr(low.executable, "threads", 1)
    model = low.model
    kernels = tuple(
        KernelCounts(
            k.name,
            k.kind,
            k.flops,
            k.bytes,
            model.limit_s(k.term, cores),
            model.term(k.term),
        )
        for k in low.program.kernels
    )
    return ProgramCounts(
        ", ".join(map(show_type, low.program.inputs)),
        low.program.bytes,
        sum(k.limit_s for k in kernels),
        low.peak_bytes,
        kernels,
        is_lazy,
    )


def _sample(counts: ProgramCounts, low: Lowered, arrays: Sequence[Any]) -> None:
    """Measure the kernels one by one, and a program that is waited for."""
    try:
        if counts.is_lazy:
            arrays = [to_numpy(a) for a in arrays]
            waited = timed(low.executable, arrays)[1]
            counts.waited = [*counts.waited[-_MOST + 1 :], waited]
        if counts.times is None:
            counts.times = KernelTimes(low)
        found = counts.times.sample(arrays)
    except FAILURES as error:
        counts.untimed = f"{type(error).__name__}: {error}"
        return
    counts.untimed = ""
    for kernel, seconds in zip(counts.kernels, found, strict=True):
        kernel.samples = [*kernel.samples[-_MOST + 1 :], seconds]
