"""What was counted: data first, a table second."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eqsat.kernels import pooled_bytes, show_bytes
from eqsat.measure.counts import (
    FunctionCounts,
    KernelCounts,
    ProgramCounts,
    counting,
    forget,
)


@dataclass(frozen=True)
class Statistics:
    """Counts of functions while ``stats`` was on; ``print`` shows a table."""

    functions: tuple[FunctionCounts, ...]

    @property
    def pooled_bytes(self) -> int:
        """Memory that backends keep for the next call now (bytes)."""
        return pooled_bytes()

    @property
    def calls(self) -> int:
        """Calls of all functions."""
        return sum(p.calls for f in self.functions for p in f.programs)

    def reset(self) -> None:
        """Count from 0."""
        for f in self.functions:
            f.reset()
        forget(self.functions)

    def record(self) -> dict[str, Any]:
        """Everything as plain dicts, lists, numbers and strings; seconds end in ``_s``.
        What is not known is None."""
        return {
            "functions": [_function(f) for f in self.functions],
            "pooled_bytes": self.pooled_bytes,
        }

    def json(self) -> str:
        """The record as JSON text."""
        return json.dumps(self.record(), indent=1)

    def __str__(self) -> str:
        found = self.record()
        rows: list[tuple[str, ...]] = [_HEAD]
        for f in found["functions"]:
            rows += _rows(f)
        pooled = f"{show_bytes(found['pooled_bytes'])} pooled for later calls"
        if len(rows) == 1:
            return (
                f"nothing was counted; Options(stats=True), EQSAT_STATS=1 or with "
                f"eq.options(stats=True) turn it on\n{pooled}"
            )
        made = [str(d) for f in self.functions for d in f.decisions]
        return "\n".join([*_columns(rows), *_remarks(found), *made, pooled])


def stats() -> Statistics:
    """What was counted of all functions while ``stats`` was on:
    ``Options(stats=True)``, ``EQSAT_STATS=1`` or ``with eq.options(stats=True)``."""
    return Statistics(tuple(counting()))


# -- records ---------------------------------------------------------------------------


def _function(f: FunctionCounts) -> dict[str, Any]:
    programs = [_program(p) for p in f.programs]
    calls, seconds = _sum(programs, "calls"), _sum(programs, "seconds_s")
    limit = _sum(programs, "limit_s")
    runs = [p["run_s"] for p in programs]
    run = None if None in runs else sum(runs)
    made = f.compiles + f.from_disk
    return {
        "name": f.name,
        "line": None if f.line is None else str(f.line),
        "calls": calls,
        "seconds_s": seconds,
        "bytes": _sum(programs, "bytes"),
        "run_s": run,
        "limit_s": limit,
        "of_limit": _share(limit, run),
        "compiles": f.compiles,
        "compile_s": f.compile_s,
        "disk_hits": f.from_disk,
        "memory_hits": max(0, calls - made),
        "peak_bytes": max((p["peak_bytes"] for p in programs), default=0),
        "programs": programs,
        "decisions": [d.record() for d in f.decisions],
        "failures": list(f.failures),
    }


def _program(p: ProgramCounts) -> dict[str, Any]:
    limit = p.limit_s * p.calls
    return {
        "signature": p.signature,
        "calls": p.calls,
        "seconds_s": p.seconds,
        "bytes": p.bytes * p.calls,
        "run_s": p.run_s,
        "limit_s": limit,
        "of_limit": _share(limit, p.run_s),
        "computed_later": p.is_lazy,
        "peak_bytes": p.peak_bytes,
        "kernels": [_kernel(k) for k in p.kernels],
        "untimed": p.untimed,
    }


def _kernel(k: KernelCounts) -> dict[str, Any]:
    return {
        "name": k.name,
        "kind": k.kind,
        "flops": k.flops,
        "bytes": k.bytes,
        "samples": len(k.samples),
        "seconds_s": k.seconds,
        "limit_s": k.limit_s,
        "of_limit": _share(k.limit_s, k.seconds),
        "model_s": k.model_s,
    }


def _sum(records: Sequence[dict[str, Any]], key: str) -> Any:
    return sum(r[key] for r in records)


def _share(limit_s: float, seconds: float | None) -> float | None:
    return limit_s / seconds if seconds else None


# -- the table -------------------------------------------------------------------------

_HEAD = (
    *("function, program, kernel", "calls", "seconds", "µs each", "moved", "of limit"),
    *("compiles", "on disk", "in memory", "peak"),
)


def _rows(f: dict[str, Any]) -> list[tuple[str, ...]]:
    line = f["line"] and f" ({Path(f['line']).name})"
    made = (f["compiles"], f["disk_hits"], f["memory_hits"])
    rows = [(*_costs(f["name"] + (line or ""), f), *map(str, made), _peak(f))]
    for p in f["programs"]:
        rows.append((*_costs(f"  {p['signature']}", p), "", "", "", _peak(p)))
        for k in p["kernels"]:
            spent = k["seconds_s"]
            each = "" if spent is None else f"{spent * 1e6:.2f}"
            share = _percent(k["of_limit"])
            name = f"    {k['name']} {k['kind']}"
            samples = str(k["samples"] or "")
            moved = show_bytes(k["bytes"])
            rows.append((name, samples, "", each, moved, share, "", "", "", ""))
    return rows


def _costs(name: str, found: dict[str, Any]) -> tuple[str, ...]:
    calls, seconds = found["calls"], found["seconds_s"]
    each = f"{seconds / calls * 1e6:.2f}" if calls else ""
    moved = show_bytes(found["bytes"])
    return name, str(calls), f"{seconds:.4f}", each, moved, _percent(found["of_limit"])


def _peak(found: dict[str, Any]) -> str:
    return show_bytes(found["peak_bytes"])


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            c.rjust(w) if i else c.ljust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _remarks(found: dict[str, Any]) -> list[str]:
    """Why kernels have no figures, and what seconds of MLX are."""
    lines = []
    for f in found["functions"]:
        for p in f["programs"]:
            if p["untimed"]:
                why = p["untimed"]
                lines.append(f"{f['name']}: kernels were not measured: {why}")
        if any(p["computed_later"] for p in f["programs"]):
            lines.append(
                f"{f['name']}: MLX computes after the call, so that seconds are of "
                "recording; shares are of runs that were waited for"
            )
    return lines
