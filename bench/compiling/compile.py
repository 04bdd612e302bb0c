"""``python -m bench compile``: seconds from a function to its program, cold, and from
that to machine code.

Every measurement is a process of its own, that has imported eqsat and its backend and
drawn the weights and done nothing else; the rules load within what is measured, nothing
comes from disk, and nothing is run. Processor time stands beside the time that passed:
on a busy machine it is the one to compare.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.table import Table

import eqsat as eq
from bench.compiling import many_rules
from bench.compiling.models import MODELS
from bench.reports import Record, machine, write
from eqsat.support.errors import BudgetWarning
from eqsat.terms import is_constant
from eqsat.terms.op import INPUT
from eqsat.terms.term import postorder

TARGETS_S = {
    "add_relu": 0.02,
    "blocks_1": 0.15,
    "blocks_12": 0.5,
    "blocks_48": 0.6,
    "blocks_96": 0.8,
    "resnet50": 3.0,
    "towers": 3.0,
    "lstm_250": 2.0,
    "runge_kutta_250": 2.0,
    "heat_250": 2.0,
    "adam_250": 2.0,
}
MEDIANS = (
    "first_s",
    "first_cpu_s",
    "code_s",
    "code_cpu_s",
    "again_s",
    "again_cpu_s",
)
KIB = 1024


def measured(name: str, own: int | None = None) -> Record:
    """One model compiled in this process, the first thing it does; with ``own`` rules
    of a user's beside the stock ones, that are loaded before."""
    model = MODELS[name]()
    rules = None if own is None else _loaded(own)
    before = _resident_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)
        compiled, again, third = (eq.jit(model.function, rules=rules) for _ in range(3))
        start, cpu = time.perf_counter(), time.process_time()
        low = compiled.lower(*model.arguments)
        first_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
        after, phases = _peak_bytes(), dict(low.seconds)
        start, cpu = time.perf_counter(), time.process_time()
        _ = low.executable
        code_s, code_cpu_s = time.perf_counter() - start, time.process_time() - cpu
        again.lower(*model.arguments)  # loads what the first came to need
        start, cpu = time.perf_counter(), time.process_time()
        third.lower(*model.arguments)
        again_s, again_cpu_s = time.perf_counter() - start, time.process_time() - cpu
    roots, done = low.trace.outputs, low.optimised
    constant = is_constant(roots)
    return {
        "first_s": first_s,
        "first_cpu_s": cpu_s,
        "code_s": code_s,
        "code_cpu_s": code_cpu_s,
        "again_s": again_s,
        "again_cpu_s": again_cpu_s,
        "phases_s": phases,
        "search_bytes": after - before,  # at most: drawing may have peaked higher
        "ops": sum(not constant[t] and t.op is not INPUT for t in postorder(roots)),
        "kernels": len(low.program.kernels),
        "e_classes": done.classes,
        "e_nodes": done.nodes,
        "regions": done.regions,
        "distinct_regions": done.distinct_regions,
        "cost_s": done.cost_s,
        "cost_to_written": done.cost_s / done.baseline_cost_s,
        "cut_short": done.cut_short,
    }


def _loaded(own: int) -> eq.RuleSet:
    """The stock rules and so many others."""
    stock = eq.default_rules()
    if not own:
        return stock
    with TemporaryDirectory() as folder:
        path = Path(folder) / "own.py"
        path.write_text(many_rules.text(own), encoding="utf-8")
        return stock + eq.load_rules(path)


def _peak_bytes() -> int:
    """The most memory that the process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * KIB


def _resident_bytes() -> int:
    """The memory that the process holds now, where the system says so; else the
    most."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return _peak_bytes()
    return int(pages) * resource.getpagesize()


def in_a_process(name: str, own: int | None = None) -> Record:
    """One model compiled in a new process."""
    command = [sys.executable, "-m", "bench", "compile", "--one", name]
    command += [] if own is None else ["--own", str(own)]
    environ = {**os.environ, "EQSAT_CACHE": "0"}  # cold: nothing comes from disk
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environ
    )
    if done.returncode:
        raise click.ClickException(f"{name}: {done.stderr.strip()}")
    record: Record = json.loads(done.stdout)
    return record


def median_of(name: str, records: Sequence[Record]) -> Record:
    """The medians of the times of several processes; the rest is that of the last."""
    phases = records[-1]["phases_s"]
    return {
        "model": name,
        **records[-1],
        **{k: statistics.median(r[k] for r in records) for k in MEDIANS},
        "first_span_s": [f(r["first_s"] for r in records) for f in (min, max)],
        "phases_s": {
            p: statistics.median(r["phases_s"].get(p, 0.0) for r in records)
            for p in phases
        },
        "target_s": TARGETS_S.get(name),
        "cut_short": next((r["cut_short"] for r in records if r["cut_short"]), ""),
    }


@click.command("compile")
@click.argument("names", nargs=-1, type=click.Choice(list(MODELS)))
@click.option("--repeats", default=5, help="Processes for each model.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Results as JSON."
)
@click.option("--one", type=click.Choice(list(MODELS)), hidden=True)
@click.option("--own", type=int, hidden=True)
def compile_models(
    names: Sequence[str],
    repeats: int,
    out: Path | None,
    one: str | None,
    own: int | None,
) -> None:
    """Compile models from nothing; all of them, or those named."""
    if one is not None:
        click.echo(json.dumps(measured(one, own)))
        return
    found: dict[str, list[Record]] = {name: [] for name in names or MODELS}
    jobs = [name for _ in range(repeats) for name in found]  # interleaved
    with click.progressbar(jobs, label="compiles", file=sys.stderr) as bar:
        for name in bar:
            found[name].append(in_a_process(name))
    records = [median_of(name, runs) for name, runs in found.items()]
    Console(width=120).print(_table(records))
    if out is not None:
        write(out, {**machine(), "repeats": repeats, "models": records})


def _table(records: Sequence[Record]) -> Table:
    table = Table()
    columns = (
        "model,ops,kernels,e-nodes,first s,CPU s,code CPU s,target s,again s,MB,"
        "longest phases"
    )
    for name in columns.split(","):
        ends = name in ("model", "longest phases")
        table.add_column(name, justify="left" if ends else "right")
    for r in records:
        longest = sorted(r["phases_s"].items(), key=lambda p: -p[1])[:4]
        target = r["target_s"]
        table.add_row(
            r["model"],
            str(r["ops"]),
            str(r["kernels"]),
            str(r["e_nodes"]),
            f"{r['first_s']:.3f}",
            f"{r['first_cpu_s']:.3f}",
            f"{r['code_cpu_s']:.3f}",
            "" if target is None else f"{target:g}",
            f"{r['again_s']:.3f}",
            f"{r['search_bytes'] / 1e6:.0f}",
            ", ".join(f"{p} {s:.3f}" for p, s in longest),
        )
        if r["cut_short"]:
            table.add_row("", *[""] * 9, r["cut_short"])
    return table
