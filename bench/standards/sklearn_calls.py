"""``python -m bench sklearn``: estimators and metrics of scikit-learn with
``array_api_dispatch=True`` on lazy arrays, beside the same on arrays of NumPy, and a
linear discriminant analysis beside the one that the egglog package optimises."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from bench.processes.pool import ROOT, environment
from bench.reports import Record, duration, laid_out, machine, write
from eqsat.support import counted

DISCRIMINANTS = "its fit, and the points by it"
"""The call that egglog optimises, too."""


@click.command("sklearn")
@click.option("--samples", default=5000, help="Rows of the data, 1000 at least.")
@click.option("--features", default=40)
@click.option("--threads", default=1)
@click.option("--markdown", is_flag=True, help="A table for Markdown.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Results as JSON."
)
def sklearn(
    samples: int, features: int, threads: int, markdown: bool, out: Path | None
) -> None:
    """Run estimators of scikit-learn on lazy arrays and on arrays of NumPy."""
    packages = ("scikit-learn", "egglog", "numba")
    found = {
        **machine(),
        **{p: version(p) for p in packages},
        **{"samples": samples, "features": features, "threads": threads},
        "calls": _measured("estimators", samples, features, threads),
        "egglog_calls": _measured("egglog_lda", samples, features, threads),
    }
    if out is not None:
        write(out, found)
    click.echo(text(found, markdown))


def _measured(module: str, samples: int, features: int, threads: int) -> Any:
    """The records of a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", f"bench.standards.{module}"]
    given = environment(threads) | {"SCIPY_ARRAY_API": "1", "EQSAT_CACHE": "0"}
    done = subprocess.run(
        [*command, str(samples), str(features)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=given,
        check=True,
    )
    return json.loads(done.stdout)


def text(found: Record, markdown: bool = False) -> str:
    """A table of all calls, one of the discriminant analysis by eqsat and by egglog,
    and why some have no figures."""
    head = ["call", "first", "later", "NumPy", "NumPy / later"]
    rows = [head, *(_row(r["name"], r, "eqsat") for r in found["calls"])]
    ours = next(r for r in found["calls"] if r["name"] == DISCRIMINANTS)
    others = [("eqsat", ours, "eqsat")]
    others += [(r["name"], r, "egglog") for r in found["egglog_calls"]]
    compared = [[DISCRIMINANTS, *head[1:]], *(_row(*other) for other in others)]
    tables = [laid_out(cells, markdown) for cells in (rows, compared)]
    wrong = [*_reasons(found["calls"]), *_reasons(found["egglog_calls"])]
    right = sum(not r["why"] for r in found["calls"])
    total = f"{right} of {counted(len(found['calls']), 'call')}: NumPy's results."
    return "\n\n".join([*tables, "\n".join([*wrong, total])])


def _row(name: str, r: Record, who: str) -> list[str]:
    if who not in r:
        return [name, "–", "–", "–", "–"]
    later, numpy = r[who], r["NumPy"]
    gain = numpy["median_s"] / later["median_s"]
    spent = duration(r["first_s"]), _spread(later), _spread(numpy)
    return [name, *spent, f"{gain:.2f}"]


def _spread(spent: Record) -> str:
    """The median and the quartiles."""
    low, high = (duration(s) for s in spent["quartiles_s"])
    return f"{duration(spent['median_s'])} ({low} to {high})"


def _reasons(records: list[Record]) -> Iterator[str]:
    for r in records:
        if r["why"]:
            yield f"{r['name']}: {r['why']}"
