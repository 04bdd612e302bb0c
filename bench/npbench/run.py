"""``python -m bench npbench PATH``: the NumPy programs of a checkout of NPBench, as
they are, by eqsat beside NumPy and NPBench's own versions for Numba, one thread each.

Each runs in processes of its own at its preset S. Loops are traced step by step, so a
program that takes longer than ``--seconds`` to compile and to run is tried again with
its integers divided by 2, 4, …; the table says so.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from bench.processes.pool import ROOT, environment
from bench.reports import Record, machine, write
from eqsat.support import counted

SCALES = (1, 2, 4, 8, 16, 32)
TOO_LONG = "more than"


def record_of(path: Path, name: str, limit_s: float) -> Record:
    """The record of a program, at the largest size that ends within the limit, and that
    of Numba at that size."""
    found: Record = {}
    for scale in SCALES:
        found = _run(path, name, scale, "eqsat", limit_s)
        if not found["why"].startswith(TOO_LONG):
            break
    return _run(path, name, found["scale"], "numba", limit_s) | found


def _run(path: Path, name: str, scale: int, peer: str, limit_s: float) -> Record:
    """What a process of one program finds in so many seconds of a CPU."""
    arguments = [str(path.resolve()), name, str(scale), peer, str(math.ceil(limit_s))]
    done = subprocess.run(
        [sys.executable, "-m", "bench.npbench.one", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(1),
    )
    lines = done.stdout.splitlines()
    if lines and not done.returncode:
        found: Record = json.loads(lines[-1])
        here = f"{path.resolve()}/"
        return {k: v.replace(here, "") if k == "why" else v for k, v in found.items()}
    key = "numba" if peer == "numba" else "why"
    if done.returncode == -signal.SIGXCPU:
        return {"name": name, "scale": scale, key: f"{TOO_LONG} {limit_s:g} s"}
    last = (done.stderr.splitlines() or ["it printed nothing"])[-1]
    return {"name": name, "scale": scale, key: f"the process ended: {last}"}


@click.command("npbench")
@click.argument("path", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("names", nargs=-1)
@click.option("--seconds", default=60.0, help="Of a CPU, at each size.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Results as JSON."
)
def npbench(path: Path, names: Sequence[str], seconds: float, out: Path | None) -> None:
    """Run the programs of the checkout of NPBench at PATH, or those named."""
    every = sorted(p.stem for p in path.joinpath("bench_info").glob("*.json"))
    chosen = names or every
    records = []
    with click.progressbar(chosen, label="programs", file=sys.stderr) as bar:
        for name in bar:
            records.append(record_of(path, name, seconds))
            if out is not None:  # what was measured is kept, whatever comes
                write(out, {**machine(), "seconds": seconds, "programs": records})
    Console(width=120).print(_table(records))
    right = sum(not r["why"] for r in records)
    click.echo(f"{right} of {counted(len(records), 'program')}: NumPy's results")


def _table(records: Sequence[Record]) -> Table:
    table = Table()
    for name in ("program", "sizes", "NumPy", "Numba", "eqsat", "first call", ""):
        table.add_column(name, justify="left" if name in ("program", "") else "right")
    for r in records:
        times = (r.get(k) for k in ("numpy_s", "numba_s", "eqsat_s", "first_s"))
        shown = ["" if t is None else f"{t * 1e3:.3g} ms" for t in times]
        shown[1] = shown[1] or str(r.get("numba", "")).partition(":")[0]
        size = "S" if r["scale"] == 1 else f"S / {r['scale']}"
        why = r["why"].splitlines()
        table.add_row(r["name"], size, *shown, why[0] if why else "")
    return table
