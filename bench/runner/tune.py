"""``python -m bench tune``: programs before and after ``eqsat tune``, or before and
after what ``Options(adaptive=True)`` does while they run, in turn."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from bench.reports import Record, duration, geometric_mean, laid_out, machine, write
from bench.workloads import Workload, select

PROGRAMS = (
    *("grad_mlp/128x256x512x64", "grad_logistic/10000x64", "grad_attention/8x256x64"),
    *("grad_layer_norm/1024x1024", "grad_rosenbrock/100000", "grad_embedding/*"),
    *(
        "grad_cross_entropy/512x784x10",
        "gelu_block/1x128x512",
        "swiglu_block/1x128x512",
    ),
    *("minilm/1x16", "ffn/128x768x3072", "linear_layer_norm/128x768x3072"),
    *("attention_residual/8x128x64", "lora/128x1024x8", "group_norm/4x64x56x56"),
    *("bilinear/512x512x65536", "box_overlap/600x800", "gravity/1000"),
    *("mesh_area/3000x6000", "laplacian/1024x1024"),
)
"""Workloads of several kernels, or whose kernels could be several."""
AFTERWARDS_S = 1.0
"""Seconds that both programs are measured in turn when all is decided."""


@click.command()
@click.option("--workloads", "globs", multiple=True, help="Names or tags, with * .")
@click.option("--budget", default=10.0, help="Seconds for each program.")
@click.option("--adaptive", is_flag=True, help="Calls with adaptive=True instead.")
@click.option("--threads", default=0, help="Threads; 0 for all.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="File for the JSON."
)
def tune(
    globs: Sequence[str], budget: float, adaptive: bool, threads: int, out: Path | None
) -> None:
    """Tune workloads, and measure each beside the program that it had before.

    Decisions of earlier runs are not used. The last figures are of a measurement that
    decided nothing.
    """
    chosen = select([part for glob in globs for part in glob.split(",")] or PROGRAMS)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EQSAT_CACHE_DIR"] = folder
        for w in chosen:
            rows.append(row(w, None if adaptive else budget, threads))
            click.echo(f"{w.name}: {rows[-1]['gain']:.3f}", err=True)
    found = {**machine(), "adaptive": adaptive, "threads": threads, "rows": rows}
    if not adaptive:
        found["budget_s"] = budget
    found["summary"] = summary(rows)
    click.echo(text(found))
    if out is not None:
        write(out, found)


def row(w: Workload, budget_s: float | None, threads: int) -> Record:
    """One workload before and after; by calls that adapt where there is no budget."""
    import eqsat as eq
    from eqsat.jit import tune as tuned
    from eqsat.measure.turns import in_turn
    from eqsat.trace import flatten_arguments

    f = w.jitted(
        options=eq.Options(threads=threads, deadline_s=60, adaptive=budget_s is None)
    )
    inputs, weights = w.draw(0)
    args = (*inputs, *weights)
    before = f.lower(*args)
    if budget_s is None:
        decision = adapted(f, args)
    else:
        decision = tuned(f, args, {}, budget_s)
    after = f.lower(*args)
    found: Record = {
        "workload": w.name,
        "kernels": len(before.program.kernels),
        "kernels_after": len(after.program.kernels),
        "error_before": decision.error_before,
        "error_after": decision.error_after,
        "trials": [str(t) for t in decision.trials],
        "left": decision.left,
        "gain": 1.0,
        "lost": None,
    }
    if after.term != before.term:
        arrays: Any = flatten_arguments(f.fn, args, {}, f.constants).arrays
        turns = in_turn(before.executable, after.executable, arrays, AFTERWARDS_S)
        found |= {"before_s": turns.before_s, "after_s": turns.after_s}
        found |= {"gain": turns.before_s / turns.after_s, "lost": turns.lost}
    return found


def adapted(f: Any, args: Sequence[Any]) -> Any:
    """The decision that calls of ``f`` come to. Raises what kept them from one."""
    from eqsat.measure.adaptive import FIRST_LOOK, NAME

    for _ in range(FIRST_LOOK):
        f(*args)
    for thread in threading.enumerate():
        if thread.name == NAME:
            thread.join()
    if f.counts.failures:
        raise click.ClickException(f"{f.name}: {f.counts.failures[-1]}")
    return f.counts.decisions[-1]


def summary(rows: Sequence[Record]) -> Record:
    """Of all rows: how many are slower, the mean gain, the mean error of the model."""
    return {
        "programs": len(rows),
        "changed": sum(r["lost"] is not None for r in rows),
        "slower": sum(r["gain"] < 1 for r in rows),
        "gain": geometric_mean([r["gain"] for r in rows]),
        "error_before": geometric_mean([r["error_before"] for r in rows]),
        "error_after": geometric_mean([r["error_after"] for r in rows]),
    }


def text(found: Record) -> str:
    """A table, and the summary."""
    head = ["workload", "kernels", "before", "after", "gain", "error", "as measured"]
    s = found["summary"]
    lines = [laid_out([head, *map(list, _cells(found["rows"]))], markdown=False)]
    lines.append(
        f"{s['programs']} programs, {s['changed']} changed, {s['slower']} slower; gain "
        f"{s['gain']:.3f} (geometric mean); error of the model "
        f"{s['error_before']:.2f}, with prices as measured {s['error_after']:.2f}"
    )
    return "\n".join(lines)


def _cells(rows: Sequence[Record]) -> Iterator[tuple[str, ...]]:
    for r in rows:
        both = [duration(r[k]) if k in r else "" for k in ("before_s", "after_s")]
        errors = [f"{r[k]:.2f}" for k in ("error_before", "error_after")]
        kernels = f"{r['kernels']} to {r['kernels_after']}"
        yield (r["workload"], kernels, *both, f"{r['gain']:.3f}", *errors)
