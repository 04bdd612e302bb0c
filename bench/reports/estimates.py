"""How near estimates are to the clock: by class of program, and the worst.

A ratio is the estimate over the clock. It is right within 2 times from 0.5 to 2. There
is one of the program, and one of the function as written, which NumPy runs.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np

from bench.reports.record import Record
from bench.reports.table import Cells, duration, laid_out

FACTOR = 2.0
WORST = 12
"""Rows of the furthest ratios that are shown of each set."""
SETS = ("workloads", "drawn")
SIDES = {
    "program": ("predicted_s", "measured_s"),
    "NumPy": ("numpy_predicted_s", "numpy_s"),
}
"""Who runs a function: where a row has the estimate, and the clock (s)."""
MEMORIES = (
    (1 << 15, "≤ 32 KiB"),
    (1 << 20, "≤ 1 MiB"),
    (1 << 24, "≤ 16 MiB"),
    (math.inf, "> 16 MiB"),
)
"""Bytes that a program must move, and how a class of them is called."""


def read(path: Path) -> Record:
    """What ``bench predict`` wrote. Raises :class:`click.ClickException`."""
    try:
        found: Record = json.loads(path.read_text(encoding="utf-8"))
        found["rows"], found["peer"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise click.ClickException(
            f"{path}: not what `python -m bench predict --out` writes: {error!r}"
        ) from error
    return found


def set_of(row: Record) -> str:
    """Which of :data:`SETS` a row belongs to."""
    return "drawn" if "program" in row else "workloads"


def ratio_of(row: Record, side: str = "program") -> float:
    """The estimate over the clock."""
    estimate, clock = SIDES[side]
    return float(row[estimate] / row[clock])


def timed(rows: Sequence[Record], of: str, side: str = "program") -> list[Record]:
    """The rows of a set that have an estimate and a time."""
    both = SIDES[side]
    return [r for r in rows if set_of(r) == of and all(r.get(key) for key in both)]


def classes(rows: Sequence[Record]) -> list[Record]:
    """For each side of each set, all its rows and each class of them: the median ratio,
    its quartiles, the share within 2 times, and the rank correlation with the clock."""
    found = []
    for side in SIDES:
        for of in SETS:
            groups: dict[str, list[Record]] = {}
            for row in timed(rows, of, side):
                for name in ("all", *_classes_of(row)):
                    groups.setdefault(name, []).append(row)
            for name in sorted(groups, key=lambda name: (name != "all", name)):
                figures = summary(groups[name], side)
                found.append({"side": side, "set": of, "class": name, **figures})
    return found


def _classes_of(row: Record) -> Iterator[str]:
    """The classes of a row; a drawn program is of each family of its lines."""
    words = row["tags"][1:] if set_of(row) == "drawn" else row["tags"][:1]
    yield from (f"kind: {word}" for word in words)
    yield f"dtype: {row['dtype']}"
    yield f"memory: {next(name for most, name in MEMORIES if row['bytes'] <= most)}"
    kernels = len(row["kernels"])
    few = "0" if not kernels else "1" if kernels == 1 else "2–4"
    yield f"kernels: {few if kernels < 5 else '5 or more'}"
    yield f"run by NumPy: {'some' if row['by_numpy'] else 'none'}"


def summary(rows: Sequence[Record], side: str = "program") -> Record:
    """Of some rows: number, median ratio, quartiles, share within 2 times, rank."""
    ratios = [ratio_of(row, side) for row in rows]
    low, high = np.quantile(ratios, (0.25, 0.75))
    return {
        "number": len(ratios),
        "median_ratio": statistics.median(ratios),
        "quartiles": [float(low), float(high)],
        "within_2": sum(1 / FACTOR <= r <= FACTOR for r in ratios) / len(ratios),
        "spearman": _rank(rows, side),
    }


def _rank(rows: Sequence[Record], side: str) -> float | None:
    from scipy.stats import spearmanr

    both = [[row[key] for row in rows] for key in SIDES[side]]
    if any(len(set(each)) < 3 for each in both):
        return None
    return float(spearmanr(*both).statistic)


def text(found: Record) -> str:
    """Where the figures come from, the classes, the worst rows, what has no figure."""
    peer, rows = found["peer"], found["rows"]
    versions = found["versions"].get(peer, {})
    parts = [
        f"{found['cpu']}; {peer} {found['eqsat']} ({found['commit']}), "
        f"{found['threads']} threads, device {versions.get('device', 'unknown')}"
    ]
    for side in SIDES:
        for of in SETS:
            known = [c for c in found["classes"] if (c["side"], c["set"]) == (side, of)]
            if known:
                cells = list(_class_cells(f"{side}, {of}", known))
                parts += [laid_out(cells, False), _worst(rows, of, side)]
    parts += [
        f"{row['workload']}: {row['status']}: {row['reason']}"
        for row in rows
        if "status" in row
    ]
    return "\n\n".join(parts)


def _class_cells(title: str, known: Sequence[Record]) -> Iterator[Cells]:
    yield [title, "number", "estimate/clock", "quartiles", "within 2 times", "Spearman"]
    for c in known:
        low, high = c["quartiles"]
        rank = "–" if c["spearman"] is None else f"{c['spearman']:.3f}"
        yield [
            c["class"],
            str(c["number"]),
            f"{c['median_ratio']:.2f}",
            f"{low:.2f}–{high:.2f}",
            f"{c['within_2']:.0%}",
            rank,
        ]


def _worst(rows: Sequence[Record], of: str, side: str) -> str:
    """The rows whose ratio is furthest from 1, with the drawn ones' lines."""
    cells: list[Cells] = [["furthest", "estimate", "clock", "ratio", "kernels"]]
    estimate, clock = SIDES[side]
    every = timed(rows, of, side)
    those = sorted(every, key=lambda r: -abs(math.log(ratio_of(r, side))))[:WORST]
    for row in those:
        cells.append(
            [
                row["workload"],
                duration(row[estimate]),
                duration(row[clock]),
                f"{ratio_of(row, side):.2f}",
                str(len(row["kernels"])),
            ]
        )
    programs = [
        f"{row['workload']}  {', '.join(row['inputs'])}\n{row['program'].rstrip()}"
        for row in those
        if "program" in row
    ]
    return "\n\n".join([laid_out(cells, False), *programs])
