"""``python -m bench plot``: how eqsat stands beside each peer, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bench.reports.compare import candidates, geometric_mean, speedups, tags
from bench.reports.record import Record
from bench.reports.table import read

COLOURS = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#ccbb44",
    "#66ccee",
    "#aa3377",
    "#bbbbbb",
    "#000000",
    "#ee7733",
    "#009988",
)
"""Told apart with colour blindness too (Paul Tol's bright scheme and two more)."""
MARKS = "osD^vPX*<>"


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True)
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The PNG; beside the results by default. Only with one file.",
)
@click.option("--ours", help="Which of eqsat's backends; the first by default.")
def plot(files: Sequence[Path], out: Path | None, ours: str | None) -> None:
    """Draw, for each kind of workload, how many times as fast eqsat is as each peer.

    Marks are geometric means over the workloads that both ran.
    """
    if out is not None and len(files) > 1:
        raise click.UsageError("--out names one picture, but there are several files")
    for path in files:
        target = out or path.with_suffix(".png")
        draw(read(path), target, ours)
        click.echo(target)


def draw(found: Record, path: Path, ours: str | None = None) -> None:
    """Write the picture of one result, a panel for each number of threads.

    Raises :class:`click.ClickException` without matplotlib or without eqsat.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise click.ClickException(f"plot needs matplotlib: {error}") from error
    mine = ours or next(iter(candidates(found)), "eqsat")
    if mine not in found["peers"]:
        raise click.ClickException(f"no {mine} among {', '.join(found['peers'])}")
    counts = list(dict.fromkeys(row["threads"] for row in found["rows"]))
    labels = [*tags(found["rows"]), "all"]
    figure, panels = pyplot.subplots(
        1,
        len(counts),
        figsize=(2 + 4.5 * len(counts), 2 + 0.42 * len(labels)),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for axes, threads in zip(panels[0], counts, strict=True):
        rows = [row for row in found["rows"] if row["threads"] == threads]
        _panel(axes, rows, labels, mine, found["peers"])
        axes.set_title(f"{threads} thread{'s' * (threads > 1)}")
    handles, names = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncol=5, frameon=False)
    title = f"Seconds of each peer over seconds of {mine}\n{found['cpu']}"
    figure.suptitle(title, fontsize=9)
    figure.set_layout_engine("constrained")
    figure.savefig(path, dpi=140)
    pyplot.close(figure)


def _panel(
    axes: Any,
    rows: Sequence[Record],
    labels: Sequence[str],
    mine: str,
    peers: Sequence[str],
) -> None:
    """A line for each tag, a mark for each peer; eqsat is faster right of 1."""
    axes.axvline(1, color="#444444", linewidth=1)
    others = [p for p in peers if p != mine]
    for i, peer in enumerate(others):
        xs, ys = [], []
        for y, label in enumerate(labels):
            those = [r for r in rows if label in (r["tags"][0], "all")]
            values = speedups(those, mine, peer)
            if values:
                xs.append(geometric_mean(values))
                ys.append(y)
        colour, mark = COLOURS[i % len(COLOURS)], MARKS[i % len(MARKS)]
        axes.plot(xs, ys, mark, color=colour, label=peer, markersize=6, alpha=0.9)
    axes.set_xscale("log")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(axis="both", which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("← peer faster · eqsat faster →")
