"""``python -m bench user-rules``: how much longer compiles take with many rules
of a user's beside the stock ones.

Pairs of new processes take turns, one with the stock rules alone and one with the
others too, all loaded before. Processor time counts, of the first compile in a process
and of the third, each up to the program; and of the first up to machine code.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from bench.compiling.compile import in_a_process
from bench.compiling.models import MODELS
from bench.reports import Record, machine, write

TIMES: dict[str, Callable[[Record], float]] = {
    "first": lambda r: r["first_cpu_s"],
    "third": lambda r: r["again_cpu_s"],
    "first, with machine code": lambda r: r["first_cpu_s"] + r["code_cpu_s"],
}


def compared(model: str, pairs: Sequence[tuple[Record, Record]]) -> Record:
    """Ratios of processor time: the median over pairs, the least and the most."""
    found: Record = {"model": model}
    for name, time in TIMES.items():
        ratios = [time(own) / time(stock) for stock, own in pairs]
        found[name] = [statistics.median(ratios), min(ratios), max(ratios)]
    stock, own = pairs[-1]
    found["cost"] = own["cost_s"] / stock["cost_s"]
    found["cut_short"] = own["cut_short"]
    return found


@click.command("user-rules")
@click.argument("names", nargs=-1, type=click.Choice(list(MODELS)))
@click.option("--rules", default=500, help="Rules beside the stock ones.")
@click.option("--repeats", default=5, help="Pairs of processes for each model.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Results as JSON."
)
def user_rules(
    names: Sequence[str], rules: int, repeats: int, out: Path | None
) -> None:
    """Compile with many rules of a user's: blocks_1 and blocks_12, or those named."""
    models = names or ("blocks_1", "blocks_12")
    pairs: dict[str, list[tuple[Record, Record]]] = {name: [] for name in models}
    jobs = [name for _ in range(repeats) for name in models]
    with click.progressbar(jobs, label="pairs", file=sys.stderr) as bar:
        for name in bar:
            pairs[name].append((in_a_process(name, 0), in_a_process(name, rules)))
    records = [compared(name, found) for name, found in pairs.items()]
    Console(width=120).print(_table(records))
    if out is not None:
        write(out, {**machine(), "rules": rules, "repeats": repeats, "models": records})


def _table(records: Sequence[Record]) -> Table:
    table = Table()
    for name in ("model", *TIMES, "cost of the program", ""):
        table.add_column(name, justify="left" if name == "model" else "right")
    for r in records:
        times = [
            f"{m:.2f} ({low:.2f} to {high:.2f})"
            for m, low, high in (r[name] for name in TIMES)
        ]
        table.add_row(r["model"], *times, f"{r['cost']:.6f}", r["cut_short"])
    return table
