"""``python -m bench onnx_models``: networks of the package onnx and models with the
weights that their packages ship, beside ONNX Runtime and OpenVINO.

Each side has a process of its own, kept to as many CPUs as it has threads; one runs
while the others are stopped, and rounds alternate. eqsat starts with an empty cache;
another process of it then loads the model from that cache.
"""

from __future__ import annotations

import math
import statistics
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np

from bench.processes import Gone, Missing, Worker
from bench.reports import (
    Record,
    duration,
    geometric_mean,
    laid_out,
    machine,
    ratio,
    spread,
    write,
)
from bench.runner import relative, wide
from bench.standards.shipped_models import MODELS, NEAR, ShippedModel

OURS = "eqsat-native"
PEERS = ("onnxruntime", "openvino")
ROUND_S = 0.05
"""Seconds of one side in one round: as many calls as fit, one at least."""


class Side:
    """One side's process for one model."""

    def __init__(self, peer: str, threads: int, cache: Path | None = None) -> None:
        environ = {"EQSAT_CACHE_DIR": str(cache), "EQSAT_CACHE": "1"} if cache else {}
        self.worker = Worker(peer, threads, **environ)
        self.outputs: dict[str, Any] = {}
        self.seconds: list[float] = []
        self.calls = 1
        self.record: Record = {}

    def load(self, path: Path, inputs: Path) -> None:
        """Load the model, and time its first call. Raises :class:`Missing` and
        :class:`Gone`."""
        self.worker.greet()
        out = inputs.with_name("outputs.npz")
        reply = self._asked("model", path=str(path), inputs=str(inputs), out=str(out))
        with np.load(out) as arrays:
            self.outputs = {name: arrays[name] for name in arrays.files}
        self.record = reply

    def probe(self) -> None:
        """Find out how many calls make a round."""
        once = min(self._asked("time", calls=1)["total_s"] for _ in range(3))
        self.calls = max(1, int(ROUND_S / max(once, 1e-7)))

    def round(self) -> None:
        """Time one round."""
        total = self._asked("time", calls=self.calls)["total_s"]
        self.seconds.append(total / self.calls)

    def _asked(self, do: str, **what: Any) -> Record:
        reply = self.worker.ask(do, **what)
        if "failed" in reply:
            raise Gone(reply["failed"])
        return reply


def measured(model: ShippedModel, path: Path, threads: int, rounds: int) -> Record:
    """What each side takes for a model: seconds to load it, of the first call, and of
    later ones."""
    found: Record = {}
    sides: dict[str, Side] = {}
    with TemporaryDirectory() as text, ExitStack() as stack:
        folder = Path(text)
        inputs = folder / "inputs.npz"
        given: Any = model.inputs()
        np.savez(inputs, **given)

        def started(peer: str, cache: Path | None = None) -> Side:
            side = Side(peer, threads, cache)
            stack.callback(side.worker.close)
            side.load(path, inputs)
            return side

        cache = folder / "cache"
        cache.mkdir(mode=0o700)
        for peer in (OURS, *PEERS):
            try:
                sides[peer] = started(peer, cache if peer == OURS else None)
                sides[peer].probe()
            except (Missing, Gone) as error:
                sides.pop(peer, None)
                found[peer] = {"failed": str(error)}
        if OURS in sides:
            again = started(OURS, cache)
            sides[OURS].record["from_cache"] = again.record
            again.worker.close()
        order = list(sides)
        for _ in range(rounds):
            for peer in order:
                sides[peer].round()
            order = order[1:] + order[:1]
    for peer, side in sides.items():
        found[peer] = {**side.record, **spread(side.seconds), "calls": side.calls}
    for peer in (p for p in PEERS if p in sides and OURS in sides):
        found[peer]["difference"] = _apart(sides[OURS].outputs, sides[peer].outputs)
        times, noise = ratio(sides[peer].seconds, sides[OURS].seconds)
        found[peer] |= {"times": times, "noise": noise}
    return found


def _apart(ours: dict[str, Any], theirs: dict[str, Any]) -> float | None:
    """The largest difference of two results; None for others."""
    if ours.keys() != theirs.keys():
        return None
    worst = max((relative(ours[n], wide(theirs[n])) for n in ours), default=0.0)
    return worst if math.isfinite(worst) else None


def best(row: Record) -> float | None:
    """How many times as long the fastest peer takes as eqsat; None where a side is
    missing or gives another result."""
    peers = [row[p] for p in PEERS if "times" in row.get(p, {})]
    right = [p["times"] for p in peers if p["difference"] is not None]
    return min(right, default=None)


@click.command("onnx_models")
@click.argument("names", nargs=-1, type=click.Choice(list(MODELS)))
@click.option("--threads", multiple=True, type=int, help="1 and 2 if not given.")
@click.option("--rounds", default=9, show_default=True, help="Rounds of each side.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Results as JSON."
)
def onnx_models(
    names: tuple[str, ...], threads: tuple[int, ...], rounds: int, out: Path | None
) -> None:
    """Time models of ONNX that packages ship beside ONNX Runtime and OpenVINO."""
    rows: list[Record] = []
    missing: dict[str, str] = {}
    for count in threads or (1, 2):
        for name in names or tuple(MODELS):
            model = MODELS[name]
            path = model.path
            if path is None:
                missing[name] = model.package
                continue
            sides = measured(model, path, count, rounds)
            row = {"model": name, "kind": model.kind, "threads": count, "sides": sides}
            rows.append({**row, "best": best(sides)})
            click.echo(_line(rows[-1]))
    for name, package in missing.items():
        click.echo(f"{name}: the package {package} is not installed")
    found = {"rows": rows, "missing": missing, "rounds": rounds}
    click.echo(shown(found))
    if out is not None:
        versions = _versions()
        write(out, {**machine(), **versions, **found})


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("onnx", *PEERS, *{m.package for m in MODELS.values()}):
        try:
            found[name] = version(name.replace("_", "-"))
        except PackageNotFoundError:
            continue
    return found


def _line(row: Record) -> str:
    parts = [f"{row['model']}, {row['threads']}:"]
    for peer, side in row["sides"].items():
        shown = side.get("failed") or duration(side["median_s"])
        parts.append(f"{peer} {shown}")
    return " ".join(parts)


def shown(found: Record) -> str:
    """The results as Markdown: a table for each number of threads."""
    parts = []
    for count in dict.fromkeys(row["threads"] for row in found["rows"]):
        rows = [r for r in found["rows"] if r["threads"] == count]
        cells = [_HEAD, *map(_cells, rows)]
        ratios = [r["best"] for r in rows if r["best"]]
        if ratios:
            means = [f"{geometric_mean(ratios):.2f}", f"least {min(ratios):.2f}"]
            cells.append(["geometric mean", "", *means, *[""] * (len(_HEAD) - 4)])
        title = f"{count} thread{'s' if count > 1 else ''}"
        cells[0] = [title, *_HEAD[1:]]
        parts.append(laid_out(cells, markdown=True))
    return "\n\n".join(parts)


_HEAD = [
    "",
    "eqsat",
    "best peer",
    "ONNX Runtime",
    "OpenVINO",
    "noise",
    "load and first call",
    "from the cache",
    "ONNX Runtime loads",
    "difference",
]


def _cells(row: Record) -> list[str]:
    sides = row["sides"]
    ours = sides[OURS]
    if "failed" in ours:
        return [row["model"], ours["failed"][:40], *[""] * (len(_HEAD) - 2)]
    peers = [sides[p] for p in PEERS]
    timed = [p for p in peers if "times" in p]
    times = [f"{p['times']:.2f}" if "times" in p else "–" for p in peers]
    noise = statistics.median(p["noise"] for p in timed) if timed else math.nan
    apart = [p["difference"] for p in timed]
    wrong = any(a is None or a > NEAR for a in apart)
    again = ours["from_cache"]
    return [
        row["model"],
        duration(ours["median_s"]),
        f"{row['best']:.2f}" if row["best"] else "–",
        *times,
        f"±{100 * (noise - 1):.0f} %",
        duration(ours["load_s"] + ours["first_s"]),
        duration(again["load_s"] + again["first_s"]),
        duration(peers[0]["load_s"] + peers[0]["first_s"]) if timed else "–",
        "another type" if None in apart else f"{max(apart):.0e}{' !' * wrong}",
    ]
