"""Seconds of each kernel of a program, run one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from eqsat.kernels import Executable, Kernel, Program, kernel_alone
from eqsat.lowered import Lowered
from eqsat.measure.turns import timed
from eqsat.terms import Op, Term

_PATIENCE_S = 60.0
"""Seconds for the machine code of one kernel."""


class KernelTimes:
    """The kernels of a program, each compiled by itself."""

    def __init__(self, low: Lowered) -> None:
        self.program = low.program
        known = {*low.program.constants, *low.program.folded}
        self._parts = [
            (k, *_compiled(low, *kernel_alone(k, known))) for k in low.program.kernels
        ]

    def sample(self, arrays: Sequence[Any]) -> list[float]:
        """Seconds of each kernel for these arguments, in order; the second of two runs,
        since the first one may find cold caches."""
        return [seconds for _, seconds in self._run(arrays)]

    def values(self, arrays: Sequence[Any]) -> dict[Term, Any]:
        """The values of all steps, and of the arguments."""
        found = [values for values, _ in self._run(arrays)]
        return found[-1]

    def _run(self, arrays: Sequence[Any]) -> Iterator[tuple[dict[Term, Any], float]]:
        """The values so far after each kernel, and its seconds."""
        values: dict[Term, Any] = dict(zip(self.program.inputs, arrays, strict=True))
        parts = iter(self._parts)
        for step in self.program.steps:
            if isinstance(step, Kernel):
                kernel, run, arguments = next(parts)
                given = [values[a] for a in arguments]
                timed(run, given)
                results, spent = timed(run, given)
                values.update(zip(kernel.results, results, strict=True))
                yield values, spent
            else:
                op = cast(Op, step.term.op)
                given = [values[a] for a in step.term.args]
                values[step.term] = op.reference(*given, **op.attr_dict(step.term))


def _compiled(
    low: Lowered, program: Program, arguments: tuple[Term, ...]
) -> tuple[Executable, tuple[Term, ...]]:
    options = replace(low.options, deadline_s=_PATIENCE_S)
    return low.backend.lower(program, options), arguments
