"""A function as NumPy runs it and its program, timed in turn beside their estimates."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from eqsat.explain import Measured, Spread, Timing
from eqsat.kernels import ExpectedTime, clock_of, numpy_calls
from eqsat.lowered import Lowered
from eqsat.measure.kernel_times import KernelTimes
from eqsat.support import EqsatError, Options
from eqsat.trace import Arguments, Spec

ROUND_S = 5e-3
"""Seconds of one side in a round: as many calls as fit, one at least."""
LEAST_ROUNDS, MOST_ROUNDS = 5, 400
SECONDS = 1.0
"""How long both sides are timed, about, and how long the kernels are."""


def benchmark(
    written: Callable[..., Any],
    compiled: Callable[..., Any],
    low: Lowered,
    call: Arguments,
    args: tuple[Any, ...],
    named: dict[str, Any],
) -> Timing:
    """``written``, as NumPy runs it, and ``compiled``, whose program is ``low``, in
    turn for about :data:`SECONDS`; then each kernel by itself. Each side has copies of
    the arguments. Raises :class:`EqsatError` where an argument has no data."""
    for leaf in call.leaves:
        if isinstance(leaf.value, Spec):
            raise EqsatError(
                f"argument {leaf.path} is a Spec, which has no data to time with"
            )
    sides = []
    for f in (written, compiled):
        mine, mine_named = copy.deepcopy((args, named))
        sides.append(partial(f, *mine, **mine_named))
    with np.errstate(all="ignore"):  # values of what writes to arguments grow
        before, after = in_rounds(sides, SECONDS)
    clock = clock_of(low.backend, low.model)
    roots = low.trace.outputs
    team: Callable[[Options], int] = getattr(low.backend, "team", lambda options: 1)
    return Timing(
        Measured("NumPy, as written", numpy_calls().program(roots), before),
        Measured(f"program, {low.backend.name}", clock.call_s(low.program), after),
        _kernels(low, call.arrays, clock.kernels(low.program)),
        team(low.options),
    )


def in_rounds(sides: Sequence[Callable[[], Any]], seconds: float) -> list[Spread]:
    """Seconds of a call of each, timed in turn; each goes first in its rounds."""
    many = []
    for run in sides:
        run()
        once = min(_timed(run, 1) for _ in range(2))
        many.append(max(1, int(ROUND_S / max(once, 1e-8))))
    found: list[list[float]] = [[] for _ in sides]
    order, start = list(range(len(sides))), time.perf_counter()
    while len(found[0]) < MOST_ROUNDS:
        if len(found[0]) >= LEAST_ROUNDS and time.perf_counter() - start > seconds:
            break
        for i in order:
            found[i].append(_timed(sides[i], many[i]))
        order = order[1:] + order[:1]
    return [Spread.of(each) for each in found]


def _timed(run: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def _kernels(
    low: Lowered, arrays: Any, expected: Sequence[ExpectedTime]
) -> tuple[Measured, ...]:
    """Each kernel by itself, on one call's values."""
    times = KernelTimes(low)
    samples: list[list[float]] = []
    start = time.perf_counter()
    while len(samples) < MOST_ROUNDS:
        if len(samples) >= LEAST_ROUNDS and time.perf_counter() - start > SECONDS:
            break
        samples.append(times.sample(arrays))
    by_kernel = zip(*samples, strict=True)
    return tuple(
        Measured(k.name, e.seconds, Spread.of(seconds))
        for k, e, seconds in zip(low.program.kernels, expected, by_kernel, strict=True)
    )
