"""A model under eqsat and under others, timed in turn."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from eqsat.command.peers import PEERS
from eqsat.command.targets import (
    FunctionTarget,
    GivenArguments,
    Outputs,
    Runnable,
    find_target,
    flat,
)
from eqsat.support import Array

ROUND_S = 0.02
"""Seconds of one side in one round: as many calls as fit, one at least."""
PAUSE_S = 0.02
"""A pause before each side: threads of the one before may still wait busily."""
LEAST_ROUNDS, MOST_ROUNDS = 5, 200


def time_sides(
    text: str,
    arrays: Callable[[Runnable], GivenArguments],
    backend: str | None,
    threads: int | None,
    seconds: float,
    shows: bool,
) -> dict[str, Any]:
    """A record: for each side the seconds to load the model, of the first call and of
    later ones; of a function the :class:`Timing` of its kernels, too. ``arrays`` gives
    the arguments of a target."""
    import eqsat as eq

    threads = threads or eq.Options().threads or _cpus()
    start = time.perf_counter()
    target = find_target(text, shows, threads, backend=backend)
    loaded = {"eqsat": time.perf_counter() - start}
    arguments = arrays(target)
    calls: dict[str, Callable[[], Outputs]] = {}
    calls["eqsat"] = partial(target.call, arguments)
    failed: dict[str, str] = {}
    for name, load in _others(target, threads).items():
        start = time.perf_counter()
        try:
            run = load()
        except ImportError:
            failed[name] = "not installed"
        except Exception as error:  # a class of its own for each kind of error
            failed[name] = str(error).splitlines()[0][:200]
        else:
            loaded[name] = time.perf_counter() - start
            calls[name] = partial(run, arguments)
    first, results = {}, {}
    for name in list(calls):
        start = time.perf_counter()
        try:
            with eq.options(progress=shows):
                results[name] = flat(calls[name]())
        except Exception as error:
            if name == "eqsat":
                raise
            failed[name] = str(error).splitlines()[0][:200]
            del calls[name]
        else:
            first[name] = time.perf_counter() - start
    rounds = _rounds(calls, seconds)
    middle = statistics.median(rounds["eqsat"])
    sides: dict[str, Any] = {}
    for name, each in rounds.items():
        low, high = np.quantile(each, (0.25, 0.75))
        sides[name] = {
            "load_s": loaded[name],
            "first_s": first[name],
            "median_s": statistics.median(each),
            "quartiles_s": [float(low), float(high)],
            "min_s": min(each),
            "of_eqsat": statistics.median(each) / middle,
            "difference": _difference(results[name], results["eqsat"]),
        }
    sides |= {name: {"failed": why} for name, why in failed.items()}
    found = {"threads": threads, "rounds": len(rounds["eqsat"]), "sides": sides}
    if isinstance(target, FunctionTarget):
        timing = target.jitted.benchmark(*arguments.args, **arguments.named)
        found["timing"] = timing
    return found


def _cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _others(
    target: Runnable, threads: int
) -> dict[str, Callable[[], Callable[[GivenArguments], Outputs]]]:
    """Who else runs a target, each as what loads it."""
    if isinstance(target, FunctionTarget):
        return {"NumPy": lambda: target.replaced(lambda fn: fn)}
    path = target.path
    assert path is not None

    def loaded(peer: str) -> Callable[[GivenArguments], Outputs]:
        run = PEERS[peer](path, threads)
        return lambda given: run(given.named)

    return {peer: partial(loaded, peer) for peer in PEERS}


def _rounds(
    calls: dict[str, Callable[[], Outputs]], seconds: float
) -> dict[str, list[float]]:
    """Seconds of a call of each side in each round."""
    once = {name: min(_timed(call, 1), _timed(call, 1)) for name, call in calls.items()}
    many = {n: max(1, int(ROUND_S / max(s, 1e-7))) for n, s in once.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    start, order = time.perf_counter(), list(calls)
    for i in range(MOST_ROUNDS):
        if i >= LEAST_ROUNDS and time.perf_counter() - start > seconds:
            break
        for name in order:
            time.sleep(PAUSE_S)
            _timed(calls[name], 1)
            found[name].append(_timed(calls[name], many[name]))
        order = order[1:] + order[:1]
    return found


def _timed(call: Callable[[], Outputs], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def _difference(got: dict[str, Array], ours: dict[str, Array]) -> float | None:
    """The largest difference from eqsat's outputs; None for others."""
    from eqsat.checking import relative, wide

    if got.keys() != ours.keys():
        return None
    worst = max((relative(got[n], wide(ours[n])) for n in ours), default=0.0)
    return worst if math.isfinite(worst) else None
