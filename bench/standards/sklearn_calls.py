"""``python -m bench sklearn``: estimators and metrics of scikit-learn with
``array_api_dispatch=True`` on lazy arrays, beside the same on arrays of NumPy."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from bench.processes.pool import ROOT, environment
from bench.reports import machine, write


@click.command("sklearn")
@click.option("--samples", default=5000, help="Rows of the data, 1000 at least.")
@click.option("--features", default=40)
@click.option("--threads", default=1)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Results as JSON."
)
def sklearn(samples: int, features: int, threads: int, out: Path | None) -> None:
    """Run estimators of scikit-learn on lazy arrays and on arrays of NumPy."""
    command = [sys.executable, "-W", "ignore", "-m", "bench.standards.estimators"]
    given = environment(threads) | {"SCIPY_ARRAY_API": "1", "EQSAT_CACHE": "0"}
    done = subprocess.run(
        [*command, str(samples), str(features)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=given,
        check=True,
    )
    records = json.loads(done.stdout)
    if out is not None:
        head = {"samples": samples, "features": features, "threads": threads}
        made = {**machine(), "scikit-learn": version("scikit-learn")}
        write(out, {**made, **head, "calls": records})
    table = Table("call")
    for name in ("first", "later", "NumPy"):
        table.add_column(name, justify="right")
    table.add_column("")
    for r in records:
        times = (r.get(k) for k in ("first_s", "eqsat_s", "numpy_s"))
        shown = ["" if t is None else f"{t * 1e3:.3g} ms" for t in times]
        table.add_row(r["name"], *shown, r["why"])
    Console(width=120).print(table)
    right = sum(not r["why"] for r in records)
    click.echo(f"{right} of {len(records)} give NumPy's results")
