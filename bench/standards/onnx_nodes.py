"""``python -m bench onnx_nodes``: the cases of the package onnx, and how many of the
operators that the standard writes out become one kernel."""

from __future__ import annotations

import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

import eqsat as eq
from bench.reports import Record, machine, write
from eqsat.support import counted

if TYPE_CHECKING:  # the package onnx is an extra
    from bench.standards.onnx_cases import OnnxCase

OUTCOMES = ("passed", "failed", "refused")
ATTENTION = frozenset({"Attention", "FlexAttention"})
FUSED = ATTENTION | frozenset(
    "Celu Clip Elu Gelu GreaterOrEqual GroupNormalization HardSigmoid HardSwish "
    "LayerNormalization LeakyRelu LessOrEqual LogSoftmax MeanVarianceNormalization "
    "Mish NegativeLogLikelihoodLoss PRelu RMSNormalization ReduceL1 ReduceL2 "
    "ReduceLogSum ReduceLogSumExp ReduceSumSquare Relu RotaryEmbedding Selu Shrink "
    "Softmax SoftmaxCrossEntropyLoss Softplus Softsign SwiGLU Swish "
    "ThresholdedRelu".split()
)
"""Operators that compute one thing, which one kernel can."""


def recognised(case: OnnxCase) -> Record | None:
    """Whether what the standard writes out is one kernel again, of attention a kernel
    of its kind; None for what is no such operator. ``first``: the same of a model that
    gives the first output alone, as most do."""
    if "_expanded" not in case.name or case.op not in FUSED:
        return None
    alone = type(case.model).FromString(case.model.SerializeToString())
    del alone.graph.output[1:]
    found: Record = {"op": case.op}
    for name, proto in (("all", case.model), ("first", alone)):
        if found.get("all") == "one kernel":
            found[name] = "one kernel"
            continue
        model = eq.from_onnx(proto)
        kernels = [k for e in model.explain(*case.sets[0][0]) for k in e.kernels]
        kinds = [k.kind for k in kernels]
        one = "attention" in kinds if case.op in ATTENTION else len(kernels) <= 1
        found[name] = "one kernel" if one and not model.on_host() else " ".join(kinds)
    return found


@click.command("onnx_nodes")
@click.option("--only", default="", help="Cases whose name holds this.")
@click.option("--numerics", default="reassociate", help="As of eq.Options.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Results as JSON."
)
def onnx_nodes(only: str, numerics: str, out: Path | None) -> None:
    """Run the cases of the package onnx, of kinds node and simple."""
    from bench.standards.onnx_cases import cases, holds_tiny, outcome

    options = eq.Options(numerics=numerics)
    by_op: dict[str, Counter[str]] = {}
    why: dict[str, str] = {}
    on_host: dict[str, str] = {}
    tiny: Counter[str] = Counter()
    fused: dict[str, Record] = {}
    start = time.perf_counter()
    for case in cases():
        if only not in case.name:
            continue
        found, reason, model = outcome(case, options=options)
        by_op.setdefault(case.op, Counter())[found] += 1
        if reason:
            why[case.name] = f"{found}: {reason}"
        if any(holds_tiny(v) for s in case.sets for part in s for v in part):
            tiny[found] += 1
        if model is None:
            continue
        if model.on_host():
            on_host[case.name] = next(iter(model.on_host().values())).partition("\n")[0]
        if found == "passed" and (seen := recognised(case)) is not None:
            fused[case.name] = seen
    total = sum(by_op.values(), Counter())
    by_fused: dict[str, Counter[str]] = {}
    for row in fused.values():
        count = by_fused.setdefault(row["op"], Counter())
        count["all"] += 1
        count["one kernel"] += row["all"] == "one kernel"
        count["one kernel, first output alone"] += row["first"] == "one kernel"
    if out is not None:
        head = {**machine(), "onnx": version("onnx"), "numerics": numerics}
        head["seconds_s"] = time.perf_counter() - start
        several = {k: r for k, r in fused.items() if r["first"] != "one kernel"}
        tables = {"all": total, "tiny types": tiny, "by op": by_op, "why": why}
        more = {"on host": on_host, "written out": by_fused, "several": several}
        write(out, {**head, **tables, **more})
    _show(by_op, total, why)
    ones = [sum(r[k] == "one kernel" for r in fused.values()) for k in ("all", "first")]
    click.echo(f"{tiny.total()} of them hold types below 8 bits or floats of 8: {tiny}")
    click.echo(f"{len(on_host)} have a node on the host")
    click.echo(
        f"written out by the standard: {ones[0]} of {len(fused)} are one kernel, "
        f"{ones[1]} of them with their first output alone"
    )


def _show(
    by_op: dict[str, Counter[str]], total: Counter[str], why: dict[str, str]
) -> None:
    table = Table("operator")
    for name in OUTCOMES:
        table.add_column(name, justify="right")
    rows = {k: v for k, v in sorted(by_op.items()) if v.total() > v["passed"]}
    whole = sum((v for k, v in by_op.items() if k not in rows), Counter())
    rows[counted(len(by_op) - len(rows), "other")] = whole
    for name, counts in {**rows, "all": total}.items():
        table.add_row(name, *(str(counts[o]) for o in OUTCOMES))
    Console(width=140).print(table)
    for name, reason in why.items():
        click.echo(f"{name}\n  {reason}"[:300])
