"""What the benchmarks share: times, the machine they ran on, and result files."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

Result = TypeVar("Result")
Record = dict[str, Any]
"""What was measured, as JSON holds it; names ending in ``_s`` are seconds."""

REPEATS = 3
LONG_S = 0.2
"""What takes longer is not repeated."""
WIDTH = 600
"""Most characters of a container that stands on one line of a result file."""


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


def machine(made_of: str | None = None) -> Record:
    """Where the figures come from; ``made_of``: the commit, where git cannot tell."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cpu": processor(),
        "cpus": os.cpu_count(),
        "commit": made_of or commit(),
        "python": platform.python_version(),
        "eqsat": version("eqsat"),
        "numpy": version("numpy"),
        "scipy": version("scipy"),
    }


def processor() -> str:
    """The name of the CPU, and its caches where the system tells."""
    found = platform.processor()
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        for line in text.splitlines():
            if line.startswith("model name"):
                found = line.partition(":")[2].strip()
                break
    caches = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        with suppress(OSError):
            level, kind, size = (
                (folder / name).read_text(encoding="ascii").strip()
                for name in ("level", "type", "size")
            )
            if kind != "Instruction":
                caches.append(f"L{level} {size}")
    return ", ".join(filter(None, (found, *caches)))


def commit() -> str:
    """The commit that is checked out, marked where files differ from it."""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    with suppress(OSError, subprocess.CalledProcessError):
        done = subprocess.run(
            words,
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()
    return "unknown"


def spread(seconds: Sequence[float]) -> Record:
    """What is kept of rounds: median, quartiles, least, most, and how many they are."""
    low, high = np.quantile(seconds, (0.25, 0.75))
    return {
        "median_s": statistics.median(seconds),
        "quartiles_s": [float(low), float(high)],
        "min_s": min(seconds),
        "max_s": max(seconds),
        "rounds": len(seconds),
    }


def write(path: Path, record: Record) -> None:
    """Write a result file."""
    path.write_text(_json(record) + "\n", encoding="utf-8")


def _json(value: Any, pad: str = "\n ") -> str:
    """JSON with a line for each short container, and for scalars that are neighbours
    in a long one."""
    flat = json.dumps(value, ensure_ascii=False)
    if not _holds_containers(value) or len(flat) <= WIDTH:
        return flat
    is_dict = isinstance(value, dict)
    lines: list[str] = []
    follows_scalar = False
    for key, item in value.items() if is_dict else enumerate(value):
        part = (f"{json.dumps(key)}: " if is_dict else "") + _json(item, pad + " ")
        is_scalar = not isinstance(item, dict | list)
        if is_scalar and follows_scalar:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
        follows_scalar = is_scalar
    opened, closed = "{}" if is_dict else "[]"
    return opened + pad + f",{pad}".join(lines) + pad[:-1] + closed


def _holds_containers(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value
    return isinstance(value, dict | list) and any(
        isinstance(item, dict | list) for item in items
    )
