"""``python -m bench predict``: what the cost model says, and what the clock says."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from bench.reports import Record, duration, geometric_mean, laid_out, read, tags, write
from bench.runner.run import FULL, QUICK, collect
from bench.workloads import select
from eqsat.kernels.backend import default_backend
from eqsat.support.errors import EqsatError


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, exists=True))
@click.option("--backend", help="eqsat's backend; that of eq.jit by default.")
@click.option("--workloads", "globs", multiple=True, help="Names or tags, with * .")
@click.option("--threads", default=1, help="Threads.")
@click.option("--quick", is_flag=True, help="Few workloads, short rounds.")
@click.option("--calibrate", is_flag=True, help="Measure the device first.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="File for the JSON."
)
def predict(
    file: Path | None,
    backend: str | None,
    globs: Sequence[str],
    threads: int,
    quick: bool,
    calibrate: bool,
    out: Path | None,
) -> None:
    """Compare predicted with measured seconds of the programs that eqsat chose.

    Out of the results in FILE if it is given, else the workloads are run. The device
    is the shipped one, or that of `eqsat calibrate`; `--calibrate` measures one for
    this run alone.
    """
    peer = f"eqsat-{backend or default_backend().name}"
    try:
        if file is not None:
            found = read(file)
        else:
            wanted = [part for glob in globs for part in glob.split(",")]
            chosen = select(wanted, quick)
            method = QUICK if quick else FULL
            with tempfile.TemporaryDirectory() as folder:
                if calibrate:
                    _calibrated(peer.removeprefix("eqsat-"), folder)
                found = collect(chosen, [peer], [threads], method)
    except EqsatError as error:
        raise click.ClickException(str(error)) from error
    pairs = predictions(found, peer, threads)
    if not pairs:
        raise click.ClickException(f"no predictions of {peer} at {threads} threads")
    summary = summaries(pairs)
    click.echo(text(pairs, summary, found["versions"].get(peer, {})))
    if out is not None:
        kept = {k: v for k, v in found.items() if k not in ("rows", "limits")}
        write(out, {**kept, "threads": threads, "rows": pairs, "summary": summary})


def _calibrated(backend: str, folder: str) -> None:
    """Measure the device into ``folder``, which this process's workers will read."""
    os.environ["EQSAT_CONFIG_DIR"] = folder
    words = [sys.executable, "-m", "eqsat", "calibrate", "--backend", backend]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(f"eqsat calibrate: {done.stderr.strip()}")


def predictions(found: Record, peer: str, threads: int) -> list[Record]:
    """For each workload: predicted and measured seconds of one call."""
    pairs = []
    for row in found["rows"]:
        result = row["results"].get(peer, {})
        if row["threads"] != threads or "median_s" not in result:
            continue
        pairs.append(
            {
                "workload": row["workload"],
                "tags": row["tags"],
                "predicted_s": result["facts"]["predicted_s"],
                "measured_s": result["median_s"],
                "kernels": len(result["facts"]["kernels"]),
            }
        )
    return pairs


def summaries(pairs: Sequence[Record]) -> list[Record]:
    """For each tag and for all: rank correlation, and how far the ratio of measured to
    predicted lies from 1 and spreads (geometric mean and standard deviation)."""
    from scipy.stats import spearmanr

    found = []
    for tag in [*tags(pairs), "all"]:
        those = [p for p in pairs if tag in (p["tags"][0], "all")]
        ratios = [p["measured_s"] / p["predicted_s"] for p in those]
        mean = geometric_mean(ratios)
        spread = math.sqrt(
            sum(math.log(r / mean) ** 2 for r in ratios) / max(len(ratios) - 1, 1)
        )
        rank = None
        if len(those) > 2:
            rank = float(
                spearmanr(
                    [p["predicted_s"] for p in those], [p["measured_s"] for p in those]
                ).statistic
            )
        found.append(
            {
                "tag": tag,
                "number": len(those),
                "spearman": rank,
                "mean_ratio": mean,
                "spread": math.exp(spread),
            }
        )
    return found


def text(pairs: Sequence[Record], summary: Sequence[Record], versions: Record) -> str:
    """Both tables, as people read them."""
    rows = [["workload", "kernels", "predicted", "measured", "measured/predicted"]]
    for p in pairs:
        rows.append(
            [
                p["workload"],
                str(p["kernels"]),
                duration(p["predicted_s"]),
                duration(p["measured_s"]),
                f"{p['measured_s'] / p['predicted_s']:.2f}",
            ]
        )
    means = [["workloads", "number", "Spearman", "mean ratio", "spread"]]
    for s in summary:
        rank = "–" if s["spearman"] is None else f"{s['spearman']:.3f}"
        means.append(
            [
                s["tag"],
                str(s["number"]),
                rank,
                f"{s['mean_ratio']:.2f}",
                f"×÷{s['spread']:.2f}",
            ]
        )
    device = f"device: {versions.get('device', 'unknown')}"
    return "\n\n".join([device, laid_out(rows, False), laid_out(means, False)])
