"""``python -m bench run``: the workloads by eqsat and its peers, side by side."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from bench.peers import check, usual
from bench.processes import SIZES, in_fresh_process
from bench.reports import Record, machine, text, write
from bench.runner.measure import (
    Method,
    References,
    measure,
    progress,
    run_again,
    summarise,
    team,
)
from bench.workloads import Workload, select
from eqsat.support.errors import EqsatError

FULL = Method(again=2, again_ties=6)
QUICK = Method(rounds=5, round_s=0.005, most_s=2.0, limit_sizes=SIZES[2::3])


@click.command()
@click.option("--workloads", "globs", multiple=True, help="Names or tags, with * .")
@click.option("--peers", multiple=True, help="Names, or module:class; all by default.")
@click.option("--threads", default=f"1,{os.cpu_count()}", help="Counts, with commas.")
@click.option("--quick", is_flag=True, help="Few workloads, short rounds.")
@click.option(
    "--again", type=click.IntRange(0), help="Most new processes for a tie; 6 if full."
)
@click.option("--seed", default=0, help="Seed of the arrays.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="File for the JSON."
)
def run(
    globs: Sequence[str],
    peers: Sequence[str],
    threads: str,
    quick: bool,
    again: int | None,
    seed: int,
    out: Path | None,
) -> None:
    """Time every workload with every peer, check the results, and print the table.

    Options that may be given several times also take several values with commas.
    """
    try:
        chosen = select(_listed(globs), quick)
        asked = _listed(peers) or usual(quick)
        counts = [int(t) for t in threads.split(",")]
        method = replace(QUICK if quick else FULL, seed=seed)
        if again is not None:
            few = min(again, method.again)
            method = replace(method, again=few, again_ties=again)
        found = collect(chosen, asked, counts, method, out)
    except (EqsatError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(text(found))


def _listed(values: Sequence[str]) -> list[str]:
    return [part for value in values for part in value.split(",") if part]


def collect(
    chosen: Sequence[Workload],
    peers: Sequence[str],
    counts: Sequence[int],
    method: Method,
    out: Path | None = None,
) -> Record:
    """Everything that was measured, as JSON holds it; ``out`` is a file that has it
    after each workload.

    Raises :class:`EqsatError` for a peer that is none.
    """
    peers = _numbered([check(p) for p in peers])
    found: Record = {
        **machine(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "seed": method.seed,
        "rounds": method.rounds,
        "round_s": method.round_s,
        "again": method.again,
        "again_ties": method.again_ties,
        "peers": peers,
        "versions": {},
        "missing": {},
        "limits": [],
        "rows": [],
    }
    stop, say = progress(len(counts) * (len(chosen) + 1))
    kept = tempfile.TemporaryDirectory()
    references = References(Path(kept.name), method.seed)
    try:
        for threads in dict.fromkeys(counts):
            say(f"limits of {threads} threads")
            limits = in_fresh_process(threads, method.limit_sizes)
            found["limits"].append(limits)
            with team(peers, threads) as workers:
                for w in chosen:
                    say(f"{w.name}, {threads} threads")
                    row = measure(w, workers, limits, method, references)
                    run_again(row, w, limits, method, references)
                    summarise(row)
                    found["rows"].append(row)
                    found["versions"] |= workers.versions
                    found["missing"] |= workers.missing
                    if out is not None:
                        write(out, found)
    finally:
        stop()
        kept.cleanup()
    return found


def _numbered(peers: Sequence[str]) -> list[str]:
    """Peers that are named twice told apart: ``numpy``, ``numpy#2``."""
    found: list[str] = []
    for peer in peers:
        again = sum(p.partition("#")[0] == peer for p in found)
        found.append(f"{peer}#{again + 1}" if again else peer)
    return found
