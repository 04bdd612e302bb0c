"""What both demonstrations measure, and how they print it."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eqsat.explain import Explanation

if TYPE_CHECKING:
    from rich.table import Table

Array = NDArray[Any]
Record = dict[str, Any]
"""What a demonstration found, as JSON holds it; names ending in ``_s`` are seconds."""


_NUMBER = re.compile(r"_\d+$")
"""What tells the kernels of one op apart."""


def relative_error(got: Array, want: Array) -> float:
    """max |got - want| / max |want|, in float64; NaN when either holds one.

    0 for arrays without elements; the bare difference where ``want`` is 0 everywhere.
    """
    if not want.size:
        return 0.0
    got, want = got.astype(np.float64), want.astype(np.float64)
    scale = float(np.abs(want).max()) or 1.0
    return float(np.abs(got - want).max()) / scale


def interleaved(
    functions: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, dict[str, float]]:
    """Seconds of each function: the median, least and most of ``rounds`` calls.

    The calls alternate, so that a slow spell of the machine meets all functions alike.
    Each function is called once before, unmeasured.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    return {
        name: {"median_s": statistics.median(s), "min_s": min(s), "max_s": max(s)}
        for name, s in seconds.items()
    }


def program_record(explanation: Explanation) -> Record:
    """Kernels, cost and peak memory before and after, phases, size of the e-graph."""
    return {
        "kernels_before": explanation.baseline_kernels,
        "kernels_after": len(explanation.kernels),
        "kernels": kernel_groups(explanation),
        "cost_before_s": explanation.baseline_cost_s,
        "cost_after_s": explanation.cost_s,
        "peak_bytes_before": explanation.baseline_peak_bytes,
        "peak_bytes_after": explanation.peak_bytes,
        "egraph": {
            "classes": explanation.classes,
            "nodes": explanation.nodes,
            "regions": explanation.regions,
            "distinct_regions": explanation.distinct_regions,
        },
        "cut_short": explanation.cut_short,
        "phases_s": dict(explanation.phases_s),
        "total_s": sum(explanation.phases_s.values()),
    }


def kernel_groups(explanation: Explanation) -> list[Record]:
    """The kernels by name and kind, dearest group first: how many, and cost (s)."""
    groups: dict[tuple[str, str], Record] = {}
    for kernel in explanation.kernels:
        name = _NUMBER.sub("", kernel.name)
        new = {"name": name, "kind": kernel.kind, "count": 0, "cost_s": 0.0}
        group = groups.setdefault((name, kernel.kind), new)
        group["count"] += 1
        group["cost_s"] += kernel.cost_s
    return sorted(groups.values(), key=lambda g: -g["cost_s"])


def program_table(record: Record) -> Table:
    """Kernels, cost and memory of :func:`program_record`, before beside after."""
    from rich.table import Table

    table = Table("", "as written", "optimised", title="Program")
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row(
        "kernels", str(record["kernels_before"]), str(record["kernels_after"])
    )
    table.add_row(
        "cost by the model",
        duration(record["cost_before_s"]),
        duration(record["cost_after_s"]),
    )
    table.add_row(
        "peak memory",
        f"{record['peak_bytes_before'] / 1e6:.2f} MB",
        f"{record['peak_bytes_after'] / 1e6:.2f} MB",
    )
    return table


def kernel_table(record: Record) -> Table:
    """The groups of :func:`kernel_groups`."""
    from rich.table import Table

    table = Table("kernel", "kind", "count", "cost by the model", title="Kernels")
    for column in table.columns[2:]:
        column.justify = "right"
    for group in record["kernels"]:
        count, cost = str(group["count"]), duration(group["cost_s"])
        table.add_row(group["name"], group["kind"], count, cost)
    return table


def phases_line(record: Record) -> str:
    """The seconds of each phase and of all as one line."""
    parts = ", ".join(f"{k} {duration(s)}" for k, s in record["phases_s"].items())
    cut = f"; cut short: {record['cut_short']}" if record["cut_short"] else ""
    return f"optimised in {duration(record['total_s'])} ({parts}){cut}"


def duration(seconds: float) -> str:
    """Seconds for people: ``1.25 s``, ``31.0 ms``, ``4.2 µs``."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} µs"
