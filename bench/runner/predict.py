"""``python -m bench predict``: what the explanation estimates, and what the clock says.

The programs are the workloads, or programs that are drawn from a seed and that nobody
tuned anything on. Each estimate is that of ``explain``, which users see.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from bench.peers import check
from bench.reports import Record, machine, spread, write
from bench.reports.estimate_plot import draw
from bench.reports.estimates import classes, read, text
from bench.runner.measure import Method, References, Team, progress, raced, team
from bench.runner.run import QUICK
from bench.workloads import Workload, select
from bench.workloads.unseen import PREFIX, drawn, unseen
from eqsat.kernels.backend import default_backend
from eqsat.support.errors import EqsatError

FULL = Method(estimates=True)
SAME = ("commit", "cpu", "peer", "threads", "seed", "rounds")
"""What the parts of one result have in common."""


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, exists=True))
@click.option("--backend", help="eqsat's backend; that of eq.jit by default.")
@click.option("--workloads", "globs", multiple=True, help="Names or tags, with * .")
@click.option("--unseen", "count", default=0, help="Drawn programs, so many.")
@click.option("--seed", default=0, help="Seed of the drawn programs.")
@click.option("--threads", default=1, help="Threads.")
@click.option("--quick", is_flag=True, help="Few workloads, short rounds.")
@click.option("--calibrate", is_flag=True, help="Measure the device first.")
@click.option("--seconds", default=0.0, help="Begin no program after so many.")
@click.option("--resume", is_flag=True, help="Go on with what --out has.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for the JSON; a picture is made beside it.",
)
def predict(
    file: Path | None,
    backend: str | None,
    globs: Sequence[str],
    count: int,
    seed: int,
    threads: int,
    quick: bool,
    calibrate: bool,
    seconds: float,
    resume: bool,
    out: Path | None,
) -> None:
    """Compare the estimate of `explain` with the clock.

    Over the workloads; over programs drawn from a seed with `--unseen`, and then over
    those workloads that `--workloads` names too. Or show FILE, which an earlier call
    wrote. A long run can be made in parts, with `--seconds` and `--resume`.

    The device is the shipped one, or that of `eqsat calibrate`; `--calibrate` measures
    one for this run alone.
    """
    if resume and (out is None or calibrate):
        raise click.UsageError("--resume needs --out, and the device it began with")
    if file is not None:
        _shown(read(file), out)
        return
    try:
        wanted = [part for glob in globs for part in glob.split(",")]
        chosen = [] if count and not wanted else select(wanted, quick)
        chosen += unseen(seed, count)
        peer = check(f"eqsat-{backend or default_backend().name}")
        method = replace(QUICK, estimates=True) if quick else FULL
        found: Record = {
            **machine(),
            "peer": peer,
            "threads": threads,
            "seed": seed,
            "rounds": method.rounds,
            "versions": {},
            "rows": [],
        }
        if resume and out is not None and out.exists():
            found = _resumed(found, read(out), out)
        with tempfile.TemporaryDirectory() as folder:
            if calibrate:
                _calibrated(peer.removeprefix("eqsat-"), folder)
            left = _measured(found, chosen, method, seconds, out)
    except EqsatError as error:
        raise click.ClickException(str(error)) from error
    _shown(found, out)
    if left:
        click.echo(f"{left} programs are left: --resume goes on", err=True)


def _calibrated(backend: str, folder: str) -> None:
    """Measure the device into ``folder``, which this process's workers will read."""
    os.environ["EQSAT_CONFIG_DIR"] = folder
    words = [sys.executable, "-m", "eqsat", "calibrate", "--backend", backend]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(f"eqsat calibrate: {done.stderr.strip()}")


def _resumed(new: Record, kept: Record, path: Path) -> Record:
    """What ``kept`` has, if it is of the same code and machine as ``new``.

    A result file that is written is a change of the tree: so ``-dirty`` does not count.
    """
    for key in SAME:
        before, now = (str(r.get(key)).removesuffix("-dirty") for r in (kept, new))
        if before != now:
            raise click.ClickException(
                f"{path}: its {key} is {before}, here it is {now}; without --resume "
                "it is written anew"
            )
    return kept


def _measured(
    found: Record,
    chosen: Sequence[Workload],
    method: Method,
    seconds: float,
    out: Path | None,
) -> int:
    """Put a row for each workload into ``found`` until the time is over; how many are
    left."""
    known = {row["workload"] for row in found["rows"]}
    todo = [w for w in chosen if w.name not in known]
    begun = time.monotonic()
    stop, say = progress(len(todo))
    try:
        with (
            tempfile.TemporaryDirectory() as kept,
            team([found["peer"], "numpy"], found["threads"]) as workers,
        ):
            references = References(Path(kept), method.seed)
            for i, w in enumerate(todo):
                if seconds and time.monotonic() - begun > seconds:
                    return len(todo) - i
                say(w.name)
                found["rows"].append(_row(w, workers, method, references))
                found["versions"] |= workers.versions
                if out is not None:
                    write(out, found)
    finally:
        stop()
    return 0


def _row(w: Workload, workers: Team, method: Method, references: References) -> Record:
    """The estimate and the clock of one program; or why there is none of them."""
    ours, _ = workers.peers
    results = raced(w, workers, method, references)
    known, shapes = references.of(w)
    row: Record = {
        "workload": w.name,
        "tags": list(w.tags),
        "dtype": w.dtype,
        "inputs": shapes,
        "bytes": known.need.bytes,
    }
    if w.name.startswith(PREFIX):
        row["program"] = drawn(w.name).text
    result = results[ours]
    estimate = result.get("estimate", {})
    if "predicted_s" not in estimate:
        status = result["status"] if result["status"] != "ok" else "failed"
        why = result.get("reason") or estimate.get("failed") or estimate.get("reason")
        if status == "wrong":
            why = f"error {result['error']}, at most {result['bound']}"
        return {**row, "status": status, "reason": why}
    within = spread(result["rounds_s"])
    row |= estimate
    row |= {"measured_s": within["median_s"], "quartiles_s": within["quartiles_s"]}
    plain = results["numpy"].get("median_s")
    if plain is not None and not w.argnums:  # by hand it is another function
        row["numpy_s"] = plain
    return row


def _shown(found: Record, out: Path | None) -> None:
    """Print the tables; write the file, and the picture where matplotlib is there."""
    if not any("measured_s" in row for row in found["rows"]):
        raise click.ClickException(f"no estimates of {found['peer']}")
    found["classes"] = classes(found["rows"])
    click.echo(text(found))
    if out is not None:
        write(out, found)
        draw(found, out.with_suffix(".png"))
