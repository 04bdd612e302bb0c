"""``python -m bench random-programs``: kernel covers of random NumPy programs.

Every program is traced, saturated with the stock rules and cut into kernels as
:func:`eqsat.jit` does; then the default and the exact mode choose from the same cuts.
Kernels of several results, which both modes join afterwards, are in the program costs.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

import eqsat as eq
from bench.extraction.instances import gap, measure
from bench.extraction.programs import drawn
from bench.reports import Record, machine, write
from eqsat.egraph.snapshot import Budget
from eqsat.lowered import Lowered
from eqsat.search.extraction.cover import covering
from eqsat.search.extraction.problem import Problem
from eqsat.terms import is_constant
from eqsat.terms.op import INPUT
from eqsat.terms.term import postorder

LEAST_OPS, MOST_OPS = 20, 60
SEARCH_S = 60.0
"""Deadline of each search: none is to be cut short, so that both modes have the same
e-graph."""


@dataclass(frozen=True)
class Instance:
    """A program, lowered by the default mode."""

    seed: int
    ops: int
    low: Lowered
    exact: Lowered

    @classmethod
    def drawn(cls, seed: int, exact_s: float) -> Instance | None:
        """The program of a seed; None when it is too short or too long."""
        program = drawn(seed, random.Random(seed).randint(15, 45))
        options = eq.Options(deadline_s=SEARCH_S)
        low = eq.jit(program.function, options=options).lower(*program.arguments)
        roots = low.trace.outputs
        constant = is_constant(roots)
        ops = sum(not constant[t] and t.op is not INPUT for t in postorder(roots))
        if not LEAST_OPS <= ops <= MOST_OPS:
            return None
        options = eq.Options(deadline_s=SEARCH_S + exact_s, extract="exact")
        exact = eq.jit(program.function, options=options)
        return cls(seed, ops, low, exact.lower(*program.arguments))

    def problem(self) -> Problem:
        """The extraction problem of its cuts."""
        search = self.low.optimised.search
        assert search is not None
        (part,) = search.parts
        budget = Budget.of(SEARCH_S, 10**9)
        return covering(search.graph, self.low.model, part.roots, budget).problem

    def measured(self, exact_s: float) -> Record:
        """Costs and seconds of the two modes."""
        done = self.low.optimised
        return {
            "seed": self.seed,
            "ops": self.ops,
            "results": len(self.low.term),
            "e_nodes": done.nodes,
            **measure(self.problem(), exact_s, deadline_s=2.0),
            "kernels": len(self.low.program.kernels),
            "written_cost": done.baseline_cost_s,
            "program_cost": done.cost_s,
            "exact_program_cost": self.exact.optimised.cost_s,
            "compile_s": sum(self.low.seconds.values()),
        }


@click.command()
@click.option("--count", default=200, help="Programs.")
@click.option("--seed", default=0, help="Seed of the first; then one more for each.")
@click.option("--exact-s", default=60.0, help="Seconds for the exact mode, each.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Results as JSON."
)
def random_programs(count: int, seed: int, exact_s: float, out: Path | None) -> None:
    """Optimise random NumPy programs and compare with the optimum over their cuts.

    Where the exact mode runs out of time, the gap is to its bound.
    """
    records: list[Record] = []
    next_seed = seed
    with click.progressbar(length=count, label="programs") as bar:
        while len(records) < count:
            found = Instance.drawn(next_seed, exact_s)
            next_seed += 1
            if found is not None:
                records.append(found.measured(exact_s))
                bar.update(1)
    summary = summarised(records)
    click.echo(
        f"{count} programs of {LEAST_OPS} to {MOST_OPS} ops, the optimum proven for"
        f" {summary['proven']}\n"
        f"covers    mean gap {summary['mean_gap']:.3%}, worst"
        f" {summary['worst_gap']:.2%} (tree-greedy {summary['tree_mean_gap']:.2%},"
        f" {summary['tree_worst_gap']:.1%})\n"
        f"programs  mean gap {summary['program_mean_gap']:.3%}, worst"
        f" {summary['program_worst_gap']:.2%}; {summary['median_saving']:.0%} of the"
        " cost as written saved (median)\n"
        f"extraction {summary['median_s'] * 1e3:.1f} ms (exact"
        f" {summary['median_exact_s'] * 1e3:.0f} ms), trace to program"
        f" {summary['median_compile_s'] * 1e3:.0f} ms (medians)"
    )
    if out is not None:
        write(out, {**machine(), "seed": seed, **summary, "instances": records})


def summarised(records: Sequence[Record]) -> Record:
    """Gaps and times over all programs."""
    bounds = [r["exact"] if r["optimal"] else r["bound"] for r in records]
    gaps = [gap(r["eqsat"], b) for r, b in zip(records, bounds, strict=True)]
    trees = [gap(r["tree_greedy"], b) for r, b in zip(records, bounds, strict=True)]
    whole = [r["program_cost"] / r["exact_program_cost"] - 1 for r in records]
    saved = [1 - r["program_cost"] / r["written_cost"] for r in records]
    return {
        "programs": len(records),
        "proven": sum(r["optimal"] for r in records),
        "mean_gap": statistics.mean(gaps),
        "worst_gap": max(gaps),
        "tree_mean_gap": statistics.mean(trees),
        "tree_worst_gap": max(trees),
        "program_mean_gap": statistics.mean(whole),
        "program_worst_gap": max(whole),
        "median_saving": statistics.median(saved),
        "median_s": statistics.median(r["eqsat_s"] for r in records),
        "worst_s": max(r["eqsat_s"] for r in records),
        "median_exact_s": statistics.median(r["exact_s"] for r in records),
        "median_compile_s": statistics.median(r["compile_s"] for r in records),
    }
