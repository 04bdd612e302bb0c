"""What the benchmarks share: times, the machine they ran on, and result files."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")
Record = dict[str, Any]
"""What was measured, as JSON holds it; names ending in ``_s`` are seconds."""

REPEATS = 3
LONG_S = 0.2
"""What takes longer is not repeated."""


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """What ``work`` returns, and its CPU seconds, which other programs on the machine
    change little: the median of :data:`REPEATS` calls, fewer when they are long."""
    seconds: list[float] = []
    while True:
        start = time.process_time()
        result = work()
        seconds.append(time.process_time() - start)
        if len(seconds) == REPEATS or sum(seconds) > LONG_S:
            return result, statistics.median(seconds)


def machine() -> Record:
    """Where the figures come from."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "eqsat": version("eqsat"),
        "scipy": version("scipy"),
    }


def write(path: Path, record: Record) -> None:
    """Write a result file."""
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
