"""What one core of this machine does in a second, measured with programs of machine
code."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.kernels import Device, Program, calibrate
from eqsat.ops import exp
from eqsat.trace import flatten_arguments, trace

from .clock import MANY, scaled
from .lower import NativeProgram
from .machine import host
from .runtime import thread_limit

ROUNDS_S = 0.02
"""Seconds for each figure, at least."""
SHARED = 1 << 17
"""Elements of an array whose kernels threads share."""
SIDE = 768
"""Rows and columns of the matrices that are multiplied."""


def measure_core(name: str, default: Device, progress: Callable[[str], None]) -> Device:
    """One core, as programs on one thread see it: products, other arithmetic, memories;
    and the start of a kernel on as many threads as the process may use. ``progress`` is
    told what comes next."""
    progress("kernels")
    call_s = _seconds(scaled(1), np.ones(16, np.float32))
    progress("products")
    square = np.ones((SIDE, SIDE), np.float32)
    product_s = _seconds(lambda x: x @ x, square) - call_s
    progress("arithmetic")
    row = np.linspace(-4, 4, 1 << 14, dtype=np.float32)
    exp_s = _seconds(np.exp, row) - call_s
    assert exp.flops is not None
    work = exp.flops([(row.dtype, row.shape)], {}, (row.dtype, row.shape))
    rates = []
    for size in calibrate.SIZES:
        progress(f"memory, {size >> 10} KiB")
        moved_s = _seconds(lambda x: x + 1, np.ones(size // 4, np.float32)) - call_s
        rates.append((float(size), 2.0 * size / max(moved_s, 1e-9)))
    return replace(
        default,
        name=name,
        launch_s=_launch_s(),
        flops_per_s=2.0 * SIDE**3 / product_s,
        map_flops_per_s=work / exp_s,
        bandwidths=tuple(calibrate.levels(rates)),
    )


def _launch_s() -> float:
    """Seconds that a kernel takes to start. A team takes a hundred times as long as one
    thread; the cost model has one figure for both, which is as far from either."""
    array = np.ones(SHARED, np.float32)
    threads = thread_limit()
    small_s = _seconds(scaled(MANY), np.ones(16, np.float32)) / MANY
    if threads == 1:
        return small_s
    alone_s, shared_s = (_seconds(scaled(MANY), array, n) / MANY for n in (1, threads))
    return math.sqrt(small_s * max(small_s, shared_s - alone_s / threads))


def _seconds(
    function: Callable[[Any], Any], array: np.ndarray[Any, Any], threads: int = 1
) -> float:
    """Seconds of a function as machine code, an operation a kernel: the least of many
    calls."""
    traced = trace(function, flatten_arguments(function, (array,), {}))
    program = Program.of(traced.outputs, traced.inputs)
    run = NativeProgram(program, host(), threads=threads, cache=False)
    run.timed(array)
    best, start = float("inf"), time.perf_counter()
    while time.perf_counter() - start < ROUNDS_S or best == float("inf"):
        best = min(best, run.timed(array)[1])
    return best
