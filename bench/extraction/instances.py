"""``python -m bench extraction``: extraction on e-graphs from files.

Tree-greedy, the default and the exact mode, side by side.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from bench.extraction.gym import load
from bench.reports import Record, machine, timed, write
from eqsat.egraph.snapshot import Budget
from eqsat.search.extraction.extract import solve
from eqsat.search.extraction.ilp import solve_exact
from eqsat.search.extraction.problem import Problem, dag_cost, tree_greedy
from eqsat.support.errors import EqsatError

COLUMNS = (
    "instance",
    "classes",
    "nodes",
    "tree-greedy",
    "eqsat",
    "optimum",
    "tree gap",
    "eqsat gap",
    "eqsat s",
    "exact s",
)
WIDTH = 140
"""Least columns of text: a narrower table loses digits."""


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False)
)
@click.option("--exact-s", default=60.0, help="Seconds for the exact mode.")
@click.option("--deadline-s", default=2.0, help="Seconds for the default mode.")
@click.option(
    "--json", "out", type=click.Path(path_type=Path), help="File for the results."
)
def extraction(
    files: Sequence[Path], exact_s: float, deadline_s: float, out: Path | None
) -> None:
    """Extract from e-graphs in the JSON format of extraction-gym.

    An optimum marked >= is a bound: the exact mode ran out of time, and gaps are to the
    bound.
    """
    try:
        problems = [load(path) for path in files]
    except EqsatError as error:
        raise click.ClickException(str(error)) from error
    table = Table()
    for name in COLUMNS:
        table.add_column(name, justify="right" if name != COLUMNS[0] else "left")
    console = Console()
    console.width = max(console.width, WIDTH)
    records = []
    with Live(table, console=console, refresh_per_second=1):
        for path, problem in zip(files, problems, strict=True):
            try:
                record = measure(problem, exact_s, deadline_s)
            except EqsatError as error:
                raise click.ClickException(f"{path}: {error}") from error
            records.append({"instance": instance(path), **record})
            table.add_row(*_row(records[-1]))
            if out is not None:
                write(
                    out,
                    {
                        **machine(),
                        "exact_limit_s": exact_s,
                        "deadline_s": deadline_s,
                        "instances": records,
                    },
                )


def instance(path: Path) -> str:
    """The name of an instance: its folder and file."""
    return "/".join(path.absolute().parts[-2:]).removesuffix(".json")


def measure(problem: Problem, exact_s: float, deadline_s: float) -> Record:
    """Costs and seconds of the three ways on one problem."""
    tree, _ = dag_cost(problem, tree_greedy(problem))
    found, found_s = timed(lambda: solve(problem, _budget(deadline_s)))
    start = time.perf_counter()
    proof = solve_exact(problem, _budget(exact_s))
    took_s = time.perf_counter() - start
    return {
        "classes": len(problem.members),
        "nodes": len(problem.cls),
        "tree_greedy": tree,
        "eqsat": found.cost,
        "eqsat_s": found_s,
        "exact": proof.solution.cost,
        "bound": proof.bound,
        "optimal": proof.gap == 0,
        "exact_s": took_s,
    }


def _budget(seconds: float) -> Budget:
    return Budget.of(seconds, 10**9)


def gap(cost: float, bound: float) -> float:
    """How much dearer a choice is than the bound, relative to the bound."""
    if bound <= 0:
        return 0.0 if cost <= 0 else float("inf")
    return max(0.0, cost / bound - 1)


def _row(record: Record) -> list[str]:
    bound = record["exact"] if record["optimal"] else record["bound"]
    return [
        record["instance"],
        str(record["classes"]),
        str(record["nodes"]),
        f"{record['tree_greedy']:.7g}",
        f"{record['eqsat']:.7g}",
        f"{'' if record['optimal'] else '>= '}{bound:.7g}",
        f"{gap(record['tree_greedy'], bound):.2%}",
        f"{gap(record['eqsat'], bound):.2%}",
        f"{record['eqsat_s']:.3f}",
        f"{record['exact_s']:.2f}",
    ]
