"""Two programs measured in turn, so that what else the machine does slows both."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.kernels import Executable

LEAST_ROUNDS, MOST_ROUNDS = 15, 400
MARGIN = 0.03
"""How much faster a program must be to be kept: less is noise."""
MOST_LOST = 0.25
"""Rounds that a faster program may lose."""


@dataclass(frozen=True)
class Turns:
    """What two programs took for the same arguments."""

    before_s: float
    """The median of the first one (s)."""
    after_s: float
    """That of the second one (s)."""
    lost: float
    """Rounds in which the second one took longer, of all."""

    @property
    def is_faster(self) -> bool:
        """Whether the second one is faster beyond doubt."""
        enough = self.after_s < (1 - MARGIN) * self.before_s
        return enough and self.lost <= MOST_LOST


def in_turn(
    before: Executable,
    after: Executable,
    arrays: Sequence[Any],
    seconds: float,
) -> Turns:
    """Run both in turn for about so many seconds; each goes first every second time."""
    for run in (before, after):
        timed(run, arrays)  # machine code for these layouts
    both: list[tuple[float, float]] = []
    start = time.perf_counter()
    while len(both) < MOST_ROUNDS:
        if len(both) >= LEAST_ROUNDS and time.perf_counter() - start > seconds:
            break
        order = (before, after) if len(both) % 2 else (after, before)
        spent = {id(run): timed(run, arrays)[1] for run in order}
        both.append((spent[id(before)], spent[id(after)]))
    first, second = np.array(both).T
    return Turns(
        float(np.median(first)),
        float(np.median(second)),
        float(np.mean(second >= first)),
    )


def timed(run: Executable, arrays: Sequence[Any]) -> tuple[list[Any], float]:
    """The results, and the seconds that the program took (s)."""
    own: Callable[..., tuple[list[Any], float]] | None = getattr(run, "timed", None)
    if own is not None:
        return own(*arrays)
    start = time.perf_counter()
    results = run(*arrays)
    return results, time.perf_counter() - start
