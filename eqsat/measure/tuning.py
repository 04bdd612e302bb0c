"""Programs chosen by measurement: other ones are searched for, compiled beside the
running one, measured in turn with it, and kept only if they are faster.

What was decided is kept on disk beside the program, for this device. A later compile
finds it, and a later run goes on where this one ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from eqsat.kernels import CostModel, Program, show_type
from eqsat.lowered import Lowered
from eqsat.measure.kernel_times import KernelTimes
from eqsat.measure.repricing import KernelPrice, error, prices, repriced, slowed
from eqsat.measure.turns import Turns, in_turn
from eqsat.program_store import ProgramKey, place_of
from eqsat.support import BackendError, Options

AS_MEASURED = "kernels priced as measured"
SAMPLES = 5
"""Times that each kernel is measured."""
TURNS_S = 0.3
"""Seconds that two programs are measured in turn for a trial, at least; and again
before one is kept."""
_PATIENCE_S = 60.0
"""Seconds for machine code."""


@dataclass(frozen=True)
class Trial:
    """Another program, and how it fared."""

    name: str
    """What was changed for the search."""
    outcome: str
    """``kept``, ``not faster``, ``the same program``, or an error."""
    before_s: float | None = None
    """Seconds of the program until then; None where nothing was measured."""
    after_s: float | None = None
    """Seconds of the other one, measured in turn."""
    lost: float | None = None
    """Rounds in which the other one took longer, of all."""

    def __str__(self) -> str:
        if self.before_s is None or self.after_s is None:
            return f"{self.name}: {self.outcome}"
        before, after = self.before_s * 1e6, self.after_s * 1e6
        return f"{self.name}: {after:.2f} µs against {before:.2f} µs: {self.outcome}"


@dataclass
class ProgramDecision:
    """What was tried for one program, with all figures."""

    function: str
    signature: str
    """Types of its arrays."""
    kernels: list[KernelPrice]
    """Of the first program, by the model and by the clock."""
    error_before: float
    """By what factor the model is off for them, the geometric mean."""
    error_after: float
    """The same for the model with prices as measured."""
    trials: list[Trial] = field(default_factory=list)
    gain: float = 1.0
    """Seconds of the program before over those of the one that is kept now."""
    left: int = 0
    """Trials for which there was no time."""

    def record(self) -> dict[str, Any]:
        """Everything as plain dicts, lists, numbers and strings."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.function}({self.signature}): {self.gain:.3f} times as fast; the "
            f"model was off by {self.error_before:.2f}, with prices as measured by "
            f"{self.error_after:.2f}"
        ]
        for k in self.kernels:
            again = f"; {k.bound} is priced again" if k.departs else ""
            lines.append(
                f"  {k.name} {k.kind}: {k.measured_s * 1e6:.2f} µs, by the model "
                f"{k.model_s * 1e6:.2f}{again}"
            )
        lines += [f"  {t}" for t in self.trials]
        return "\n".join(lines)


Choice = tuple[str, Options, CostModel]
"""What a search is told: a name, options and a cost model."""


class Tuner:
    """Tries other programs in the place of ``low``, for calls with ``arrays``.
    ``resume``: without what earlier runs tried."""

    def __init__(
        self,
        low: Lowered,
        arrays: Sequence[Any],
        function: str,
        resume: bool = True,
    ) -> None:
        self.low, self.best = low, low
        """The first program, and the fastest so far."""
        self.arrays = arrays
        self.place: ProgramKey | None = place_of(
            low.trace.outputs, low.rule_set, low.options, low.model
        )
        found = self._measured(low)
        self.model = repriced(found, low.model)
        spent = [k.measured_s for k in found]
        after = prices(low.program.kernels, spent, self.model)
        if error(after) > error(found):  # figures that no correction helps
            self.model, after = low.model, found
        signature = ", ".join(map(show_type, low.program.inputs))
        self.decision = ProgramDecision(
            function, signature, found, error(found), error(after)
        )
        self._known = {low.term}
        self._tried = self._recalled() if resume else set()
        self._has_other = False
        """Whether another program was kept on disk, if only for a while."""

    def run(self, budget_s: float, tell: Callable[[str], None], all_: bool) -> None:
        """Try one choice after another for about so many seconds: all, or only kernels
        priced as measured where some depart. ``tell`` is told of each."""
        end = time.perf_counter() + budget_s
        choices = [c for c in self._choices(all_) if c[0] not in self._tried]
        for i, choice in enumerate(choices):
            if time.perf_counter() >= end:
                self.decision.left = len(choices) - i
                break
            trial = self._trial(choice)
            self.decision.trials.append(trial)
            self._tried.add(trial.name)
            tell(f"{i + 1} of {len(choices)}: {trial}")
            self._keep()
        self._confirm()
        self._keep()

    def _choices(self, all_: bool) -> Iterator[Choice]:
        options, model = self.low.options, self.low.model
        if self.model != model:
            yield AS_MEASURED, options, self.model
        if not all_:
            return
        for figure, what in (
            ("bandwidths", "memory"),
            ("launch_s", "the start of a kernel"),
            ("flops_per_s", "products"),
            ("map_flops_per_s", "other arithmetic"),
        ):
            for times, how in ((4.0, "slower"), (0.25, "faster")):
                device = slowed(model.device, {figure: times})
                yield f"{what} 4 times {how}", options, replace(model, device=device)
        for kind in sorted(options.kinds):
            fewer = replace(options, kinds=options.kinds - {kind})
            yield f"without fused kernels of kind {kind}", fewer, model
        yield "without regions", replace(options, regions=False), model

    def _trial(self, choice: Choice) -> Trial:
        from eqsat.search import optimise

        name, options, model = choice
        low = self.low
        done = optimise(low.trace.outputs, low.rules, options, model)
        roots = tuple(done.roots)
        if roots in self._known:
            return Trial(name, "the same program")
        self._known.add(roots)
        program = Program.of(roots, low.trace.inputs, low.trace.names)
        other = replace(
            low, term=roots, program=program, search=None, left_s=_PATIENCE_S
        )
        try:
            if 0 < options.memory_limit < other.peak_bytes:
                return Trial(name, "over memory_limit")
            turns = self._in_turn(self.best, other)
            if turns.is_faster:
                turns = self._in_turn(self.best, other)
        except (BackendError, MemoryError) as failed:
            return Trial(name, f"{type(failed).__name__}: {failed}")
        outcome = "kept" if turns.is_faster else "not faster"
        if turns.is_faster:
            self.best = other
        return Trial(name, outcome, turns.before_s, turns.after_s, turns.lost)

    def _confirm(self) -> None:
        """Measure the first program and the best in turn once more."""
        if self.best is self.low:
            return
        turns = self._in_turn(self.low, self.best)
        self.decision.gain = turns.before_s / turns.after_s
        if not turns.is_faster:
            self.best, self.decision.gain = self.low, 1.0

    def _in_turn(self, before: Lowered, after: Lowered) -> Turns:
        return in_turn(before.executable, after.executable, self.arrays, TURNS_S)

    def _measured(self, low: Lowered) -> list[KernelPrice]:
        times = KernelTimes(low)
        samples = [times.sample(self.arrays) for _ in range(SAMPLES)]
        kernels = low.program.kernels
        medians = np.median(samples, axis=0) if kernels else ()
        return prices(kernels, [float(s) for s in medians], low.model)

    def _recalled(self) -> set[str]:
        """The names of trials of earlier runs."""
        text = None if self.place is None else self.place.tuning()
        try:
            return set() if text is None else set(json.loads(text))
        except (ValueError, TypeError):
            return set()

    def _keep(self) -> None:
        if self.place is not None:
            tried = json.dumps(sorted(self._tried)).encode()
            self._has_other |= self.best is not self.low
            self.place.keep_tuned(self.best.term if self._has_other else None, tried)
