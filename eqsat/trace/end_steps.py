"""What NumPy makes of a program's results when it has ended (:class:`.AtEnd`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.numpy_api import AtEnd, EndStep
from eqsat.support import TraceError
from eqsat.terms import Term
from eqsat.trace.call_arguments import is_mlx, to_mlx, to_numpy
from eqsat.trace.tracer import Tracer


@dataclass(frozen=True)
class OutputAt:
    """An output of the program, in the place of an operand."""

    place: int


@dataclass(frozen=True, eq=False)
class EndSteps:
    """The values that a function returns, of the outputs of its program. It is false
    where each value is an output."""

    values: Sequence[OutputAt | EndStep] = ()

    @classmethod
    def found(cls, results: Sequence[Any]) -> tuple[EndSteps, list[Any]]:
        """What makes ``results``, and what the program computes for that."""
        outputs = [r for r in results if not isinstance(r, AtEnd)]
        if len(outputs) == len(results):
            return cls(), outputs
        places = iter(range(len(outputs)))
        of_terms: dict[Term, int] = {}
        steps: dict[int, EndStep] = {}

        def numbered(value: Any) -> Any:
            if isinstance(value, EndStep):
                if id(value) not in steps:
                    steps[id(value)] = value.of(numbered)
                return steps[id(value)]
            if not isinstance(value, Tracer):
                return value
            if value.term not in of_terms:
                of_terms[value.term] = len(outputs)
                outputs.append(value)
            return OutputAt(of_terms[value.term])

        values = [
            numbered(r.step) if isinstance(r, AtEnd) else OutputAt(next(places))
            for r in results
        ]
        return cls(values), outputs

    def __bool__(self) -> bool:
        return bool(self.values)

    def made(self, outputs: Sequence[Any]) -> list[Any]:
        """The values; arrays are of the library of those that they are made of.

        Raises what NumPy raises, such as ``IndexError``.
        """
        made: dict[int, Any] = {}

        def value_of(value: Any) -> Any:
            if isinstance(value, OutputAt):
                return to_numpy(outputs[value.place])
            if not isinstance(value, EndStep):
                return value
            if id(value) not in made:
                step = value.of(value_of)
                made[id(value)] = step.function(*step.args, **step.kwargs)
            return made[id(value)]

        back = _with_mlx(outputs) if any(map(is_mlx, outputs)) else lambda found: found
        return [
            outputs[v.place] if isinstance(v, OutputAt) else back(value_of(v))
            for v in self.values
        ]


def _with_mlx(outputs: Sequence[Any]) -> Callable[[Any], Any]:
    """What gives arrays of MLX. Raises :class:`TraceError` where MLX has no values."""
    try:
        sys.modules["mlx.core"].eval(outputs)
    except ValueError as error:
        raise TraceError(
            "a result whose shape depends on data needs values, and there are none "
            "within mx.compile and mx.vmap\n  call the function outside of them"
        ) from error
    return to_mlx
