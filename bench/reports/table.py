"""``python -m bench table``: results as text or Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import click

from bench.reports.compare import (
    best_peer,
    candidates,
    geometric_mean,
    median_s,
    speedups,
    tags,
)
from bench.reports.record import Record
from eqsat.support import counted

Cells = list[str]
VERDICTS = {
    "wrong": "WRONG",
    "failed": "FAILED",
    "unsupported": "–",
    "missing": "not run",
    "ok": "not timed",
}


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True)
)
@click.option("--markdown", is_flag=True, help="As Markdown.")
@click.option("--means", is_flag=True, help="The geometric means alone.")
@click.option("--short", is_flag=True, help="A row a workload, all threads beside.")
def table(files: Sequence[Path], markdown: bool, means: bool, short: bool) -> None:
    """Print what `run` found: each workload, then the geometric means."""
    for path in files:
        found = read(path)
        if short:
            click.echo(laid_out(short_cells(found), markdown))
        else:
            click.echo(text(found, markdown, means))


def read(path: Path) -> Record:
    """The results in a file. Raises :class:`click.ClickException`."""
    try:
        found: Record = json.loads(path.read_text(encoding="utf-8"))
        found["rows"], found["limits"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise click.ClickException(
            f"{path}: not what `python -m bench run --out` writes: {error!r}"
        ) from error
    return found


def text(found: Record, markdown: bool = False, means_only: bool = False) -> str:
    """All tables of one result."""
    ours = candidates(found) or found["peers"][:1]
    parts = [] if means_only else [heading(found)]
    counts = list(dict.fromkeys(row["threads"] for row in found["rows"]))
    for threads in counts:
        rows = [row for row in found["rows"] if row["threads"] == threads]
        title = _threads(threads)
        for mine in ours:
            head = f"{mine}, {title}"
            if not means_only:
                parts.append(
                    _titled(
                        head, laid_out(workload_cells(rows, mine), markdown), markdown
                    )
                )
            parts.append(
                _titled(
                    f"Geometric means: times as fast as …, {head}",
                    laid_out(mean_cells(rows, mine, found["peers"]), markdown),
                    markdown,
                )
            )
        if not means_only:
            cells = time_cells(rows, found["peers"])
            parts.append(
                _titled(
                    f"Median of one call, {title}", laid_out(cells, markdown), markdown
                )
            )
    if not means_only:
        parts += noise(found)
        parts.append(troubles(found))
    return "\n\n".join(filter(None, parts))


def _threads(count: int) -> str:
    return f"{count} thread" + "s" * (count != 1)


def _titled(title: str, body: str, markdown: bool) -> str:
    return f"### {title}\n\n{body}" if markdown else f"{title}\n{body}"


def heading(found: Record) -> str:
    """Where the figures come from."""
    lines = [
        f"{found['cpu']}, {found['cpus']} CPUs, {found['system']}; eqsat "
        f"{found['eqsat']} ({found['commit']}), seed {found['seed']}, "
        f"{found['rounds']} rounds"
    ]
    for limit in found["limits"]:
        last = limit["bandwidths"][-1]
        rate = max(v for k, v in last.items() if k != "bytes")
        lines.append(
            f"limits of {limit['threads']} threads: "
            f"{limit['fma_flops_per_s'] / 1e9:.0f} Gflop/s, {rate / 1e9:.0f} GB/s from "
            "memory"
        )
    for peer, versions in found["versions"].items():
        lines.append(f"{peer}: " + ", ".join(f"{k} {v}" for k, v in versions.items()))
    lines += [f"{p}: not run: {why}" for p, why in found["missing"].items()]
    return "\n".join(lines)


def workload_cells(rows: Sequence[Record], mine: str) -> list[Cells]:
    """A row a workload: our time beside the best peer, plain NumPy and the limit."""
    cells = [
        ["workload", "median", "least–most", "best peer", "its time", "peer/ours",
         "NumPy/ours", "of limit", "first call", "memory"]
    ]  # fmt: skip
    for row in rows:
        result = row["results"].get(mine, {"status": "missing"})
        seconds = result.get("median_s")
        if seconds is None:
            cells.append([row["workload"], verdict(row, mine), *[""] * 8])
            continue
        best, plain = best_peer(row), median_s(row, "numpy")
        span = f"{duration(result['min_s'])}–{duration(result['max_s'])}"
        memory = result.get("peak_bytes")
        cells.append(
            [
                row["workload"],
                duration(seconds),
                span,
                best[0] if best else "",
                duration(best[1]) if best else "",
                f"{best[1] / seconds:.2f}" if best else "",
                f"{plain / seconds:.2f}" if plain else "",
                f"{row['limit_s'] / seconds:.0%} {row['limited_by']}",
                duration(result["first_s"]),
                "" if memory is None else f"{memory / 2**20:.1f} MiB",
            ]
        )
    return cells


def short_cells(found: Record) -> list[Cells]:
    """A row a workload, and for each count of threads our time, the best peer, how many
    times as long that takes, and our share of the limit."""
    (mine, *_) = candidates(found) or found["peers"]
    counts = list(dict.fromkeys(row["threads"] for row in found["rows"]))
    cells = [["workload"]]
    for threads in counts:
        cells[0] += [_threads(threads), "best peer", "peer/ours", "of limit"]
    rows = {(row["workload"], row["threads"]): row for row in found["rows"]}
    for name in dict.fromkeys(row["workload"] for row in found["rows"]):
        line = [name]
        for threads in counts:
            row = rows.get((name, threads))
            seconds = median_s(row, mine) if row else None
            best = best_peer(row) if row else None
            if row is None or seconds is None:
                line += ["–"] * 4
                continue
            peer, ratio = (best[0], f"{best[1] / seconds:.2f}") if best else ("", "")
            limit = f"{row['limit_s'] / seconds:.0%} {row['limited_by']}"
            line += [duration(seconds), peer, ratio, limit]
        cells.append(line)
    return cells


def time_cells(rows: Sequence[Record], peers: Sequence[str]) -> list[Cells]:
    """A row a workload, a column a candidate."""
    cells = [["workload", *peers]]
    for row in rows:
        times = [
            duration(s) if (s := median_s(row, p)) else verdict(row, p) for p in peers
        ]
        cells.append([row["workload"], *times])
    return cells


def mean_cells(rows: Sequence[Record], mine: str, peers: Sequence[str]) -> list[Cells]:
    """A row a tag: how many times as fast we are as the best peer, and as each, over
    the workloads that both ran."""
    others = [p for p in peers if p != mine]
    cells = [["workloads", "number", "best peer", *others]]
    for tag in [*tags(rows), "all"]:
        those = [row for row in rows if tag in (row["tags"][0], "all")]
        values = [speedups(those, mine, other) for other in (None, *others)]
        cells.append([tag, str(len(those)), *(_mean(v, len(those)) for v in values)])
    return cells


def _mean(values: Sequence[float], of: int) -> str:
    if not values:
        return "–"
    few = "" if len(values) == of else f" ({len(values)})"
    return f"{geometric_mean(values):.2f}{few}"


def verdict(row: Record, peer: str) -> str:
    """Why there is no time."""
    return VERDICTS[row["results"].get(peer, {"status": "missing"})["status"]]


def noise(found: Record) -> list[str]:
    """Candidates that ran twice, beside themselves: ratios and what noise allows."""
    parts = []
    for peer in found["peers"]:
        first, _, copy = peer.partition("#")
        if not copy:
            continue
        results = [row["results"].get(peer, {}) for row in found["rows"]]
        pairs = [r["to_first"] for r in results if "to_first" in r]
        inside = sum(max(r, 1 / r) <= allowed for r, allowed in pairs)
        if not pairs:
            continue
        mean = geometric_mean(r for r, _ in pairs)
        typical = geometric_mean(allowed for _, allowed in pairs)
        parts.append(
            f"{first} beside itself: geometric mean {mean:.3f}; {inside} of "
            f"{counted(len(pairs), 'ratio')} within their noise, which is a factor of "
            f"{typical:.3f} on average"
        )
    return parts


def troubles(found: Record) -> str:
    """Results that were wrong, and candidates that failed, with the reasons."""
    lines = []
    for row in found["rows"]:
        for peer, result in row["results"].items():
            where = f"{row['workload']}, {_threads(row['threads'])}, {peer}"
            if result["status"] == "wrong":
                error = result["error"]
                shown = "not finite" if error is None else f"{error:.1e}"
                most = result["bound"]
                lines.append(f"WRONG: {where}: error {shown}, at most {most:.1e}")
            elif result["status"] == "failed":
                lines.append(f"FAILED: {where}: {result['reason']}")
    return "\n".join(lines)


def laid_out(cells: Sequence[Cells], markdown: bool) -> str:
    """Cells as aligned columns; the first is text, the others end at the right."""
    wide = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]

    def line(row: Cells) -> str:
        parts = [row[0].ljust(wide[0])]
        parts += [c.rjust(w) for c, w in zip(row[1:], wide[1:], strict=True)]
        return "| " + " | ".join(parts) + " |" if markdown else "  ".join(parts)

    lines = [line(row) for row in cells]
    if markdown:
        rule = [":" + "-" * (wide[0] + 1), *("-" * (w + 1) + ":" for w in wide[1:])]
        lines.insert(1, "|" + "|".join(rule) + "|")
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Seconds with three digits: ``12.3 ms``."""
    if seconds <= 0 or not math.isfinite(seconds):
        return str(seconds)
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * size:
            return (
                f"{seconds / size:.3g} {unit}"
                if seconds < 1000 * size
                else f"{seconds / size:.0f} {unit}"
            )
    return f"{seconds * 1e9:.3g} ns"
