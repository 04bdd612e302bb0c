"""The picture of ``bench predict``: each estimate beside the clock, and the ratios."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from bench.reports.estimates import FACTOR, SETS, SIDES, ratio_of, summary, timed
from bench.reports.plot import COLOURS
from bench.reports.record import Record

LEAST, MOST, STEPS = 0.1, 10.0, 41
"""The ratios that the histogram shows; those beyond are in its end bins."""


def draw(found: Record, path: Path) -> None:
    """Write the picture of a result of ``bench predict``.

    Without matplotlib it says so on standard error, and writes nothing.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        click.echo(f"no picture: {error}", err=True)
        return
    known = {
        side: [(of, rows) for of in SETS if (rows := timed(found["rows"], of, side))]
        for side in SIDES
    }
    sides = [side for side in SIDES if known[side]]
    figure, panels = pyplot.subplots(
        len(sides), 2, figsize=(11, 5 * len(sides)), squeeze=False
    )
    for (left, right), side in zip(panels, sides, strict=True):
        _beside(left, known[side], side)
        _ratios(right, known[side], side)
        left.set_title(_TITLES[side])
    names = f"{found['peer']}, {found['threads']} thread(s)\n{found['cpu']}"
    figure.suptitle(f"Estimate of explain and clock: {names}", fontsize=9)
    figure.set_layout_engine("constrained")
    figure.savefig(path, dpi=140)
    pyplot.close(figure)


def _beside(axes: Any, sets: list[tuple[str, list[Record]]], side: str) -> None:
    """Estimate over clock, both on logarithmic axes; the band is within 2 times."""
    estimate, clock = SIDES[side]
    every = [row[k] for _, rows in sets for row in rows for k in SIDES[side]]
    ends = np.array([min(every) / FACTOR, max(every) * FACTOR])
    axes.fill_between(ends, ends / FACTOR, ends * FACTOR, color="#eeeeee")
    axes.plot(ends, ends, color="#444444", linewidth=1)
    for (of, rows), colour in zip(sets, COLOURS, strict=False):
        xs, ys = ([row[k] for row in rows] for k in (clock, estimate))
        label = f"{_NAMES[of]}: {len(rows)}"
        axes.plot(xs, ys, "o", color=colour, markersize=4, alpha=0.7, label=label)
    axes.set(xscale="log", yscale="log", xlabel="clock (s)", ylabel="estimate (s)")
    axes.set(xlim=ends, ylim=ends)
    axes.legend(frameon=False)


def _ratios(axes: Any, sets: list[tuple[str, list[Record]]], side: str) -> None:
    """How many programs have each ratio of estimate to clock."""
    axes.axvspan(1 / FACTOR, FACTOR, color="#eeeeee")
    axes.axvline(1, color="#444444", linewidth=1)
    bins = np.geomspace(LEAST, MOST, STEPS)
    for (of, rows), colour in zip(sets, COLOURS, strict=False):
        ratios = np.clip([ratio_of(row, side) for row in rows], LEAST, MOST)
        s = summary(rows, side)
        label = (
            f"{_NAMES[of]}: median {s['median_ratio']:.2f}, "
            f"{s['within_2']:.0%} within 2 times"
        )
        axes.hist(ratios, bins, color=colour, alpha=0.6, label=label)
    axes.set(xscale="log", xlabel="estimate / clock", ylabel="programs")
    axes.legend(frameon=False, loc="upper left")


_NAMES = {"workloads": "workloads", "drawn": "drawn programs"}
_TITLES = {"program": "the program", "NumPy": "NumPy, as written"}
