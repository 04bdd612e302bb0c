"""Steps that are too many for one program: a program of some of them, again and
again."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from eqsat.operator_table import frozen
from eqsat.support import EqsatError

MOST_STEPS = 64
"""Steps of a loop that become one program; the host runs loops of more."""
PART = 16
"""Steps of a program that the host runs again and again: a call takes as long as some
light steps, and code for each step takes time to compile."""
Arrays = tuple[Any, ...]
_FEW = 64
"""Integers up to which an array may be a shape, and is part of a program."""
_MOST_KEPT = 64
"""Programs that are kept."""


class Shared(NamedTuple):
    """An array that all steps read."""

    array: Any
    made_of: Any
    """The array that it is made of, always in the same way."""


Step = Callable[[Arrays, Arrays, Arrays], tuple[Arrays, Arrays]]
"""Of states, slices of a step and what all steps share: new states, and what the step
gives besides."""


class Repeated:
    """Programs of some steps, as the host runs them."""

    def __init__(
        self,
        compile: Callable[[Callable[..., Any]], Any],
        constants: Iterable[Any],
    ) -> None:
        """``constants``: arrays that nobody writes to."""
        self._compile = compile
        self._constants = {id(x): x for x in constants}
        self._programs: OrderedDict[Any, Any] = OrderedDict()
        """By what they are of; None where there is none."""

    def run(
        self,
        what: Any,
        step: Step,
        states: Sequence[Any],
        slices: Sequence[Any],
        shared: Sequence[Shared],
    ) -> tuple[Arrays, list[Any]] | None:
        """The last states, and what all steps give, stacked; None where no program
        holds the steps. ``slices`` are stacked along their first axes; ``step`` is
        that of ``what``, whatever the arrays are."""
        given = (*states, *slices, *(s.array for s in shared))
        if not all(isinstance(x, np.ndarray) and x.dtype != object for x in given):
            return None
        fixed = {i: s.array for i, s in enumerate(shared) if self._key(s) is not None}
        key = what, tuple(map(self._key, shared))
        if key not in self._programs:
            inside = {i: frozen(x) for i, x in fixed.items()}
            self._programs[key] = self._compile(_several(step, inside))
            if len(self._programs) > _MOST_KEPT:
                self._programs.popitem(last=False)
        program = self._programs[key]
        if program is None:
            return None
        rest = tuple(s.array for i, s in enumerate(shared) if i not in fixed)
        now, rows, length = tuple(states), [], len(slices[0])
        whole = length - length % PART
        ends = [*range(0, whole, PART), *range(whole, length + 1)]
        try:
            for low, high in itertools.pairwise(ends):
                part = tuple(s[low:high] for s in slices)
                now, found = program(now, part, rest)
                rows.append(found)
        except EqsatError:  # the steps ask for values, or hold what no program does
            self._programs[key] = None
            return None
        return now, [np.concatenate(column) for column in zip(*rows, strict=True)]

    def _key(self, shared: Shared) -> Any:
        """What tells an array from others that is part of a program; None for one that
        is an argument."""
        if id(shared.made_of) in self._constants:
            return id(shared.made_of)
        x = shared.array
        is_few = x.dtype.kind in "iub" and x.size <= _FEW
        return (x.dtype.str, x.shape, x.tobytes()) if is_few else None


def _several(step: Step, fixed: Mapping[int, Any]) -> Callable[..., Any]:
    """The steps for all of some slices, one after the other; ``fixed`` are those of
    the shared arrays that are part of the program, by their places."""

    def steps(states: Arrays, slices: Arrays, rest: Arrays) -> tuple[Arrays, Arrays]:
        others = iter(rest)
        count = len(rest) + len(fixed)
        shared = tuple(fixed[i] if i in fixed else next(others) for i in range(count))
        rows = []
        for i in range(slices[0].shape[0]):
            states, row = step(states, tuple(s[i] for s in slices), shared)
            rows.append(row)
        return states, tuple(np.stack(column) for column in zip(*rows, strict=True))

    return steps
