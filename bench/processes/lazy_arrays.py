"""``python -m bench lazy``: what lazy arrays take, beside those of MLX and NumPy.

The candidates take turns in one process, over small arrays whose values are known.
``record`` is one call whose values nobody asks for; NumPy computes at once. A chain
of five operations is recorded, then recorded and evaluated: its program was found
before, so that is a walk of the graph, a look into a table, and a call.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

import eqsat as eq
from bench.reports import Record, machine, spread, write

ROUNDS = 60
CALLS = 40
"""Calls of a round."""
SHAPE = (8, 16)

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "x + y": lambda np, x: x + x,
    "x * 2.0": lambda np, x: x * 2.0,
    "x > 0": lambda np, x: x > 0.0,
    "-x": lambda np, x: -x,
    "x @ x.T": lambda np, x: x @ x.T,
    "tanh": lambda np, x: np.tanh(x),
    "maximum": lambda np, x: np.maximum(x, 0.0),
    "where": lambda np, x: np.where(x > 0.0, x, 0.0),
    "slice": lambda np, x: x[1:],
    "rows": lambda np, x: x[1:, None, ::2],
    "reshape": lambda np, x: x.reshape(-1),
    "transpose": lambda np, x: x.T,
    "x.sum(-1)": lambda np, x: x.sum(-1),
    "sum": lambda np, x: np.sum(x, axis=-1),
    "mean": lambda np, x: x.mean(0),
    "concatenate": lambda np, x: np.concatenate([x, x], axis=0),
    "astype": lambda np, x: x.astype(np.float16),
}
"""One call of a namespace on an array that is being recorded."""


def chain(np: Any, x: Any, y: Any) -> Any:
    """Five operations."""
    a = np.tanh((x + y) * 2.0) - y
    return a * a


def measured() -> dict[str, Record]:
    """Seconds of a call, by row and candidate."""
    data = np.linspace(-1, 1, SHAPE[0] * SHAPE[1], dtype=np.float32).reshape(SHAPE)
    row = np.ones(SHAPE[1], np.float32)
    spaces: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
        "eqsat": (np, eq.array, lambda a: a.eval()),
        "numpy": (np, lambda a: a, lambda a: a),
    }
    try:
        import mlx.core as mx
    except ImportError:
        pass
    else:
        mx.set_default_device(mx.Device(mx.cpu))
        spaces["mlx"] = mx, mx.array, mx.eval
    runs: dict[str, dict[str, Callable[[], Any]]] = {}
    for candidate, (space, made, wait) in spaces.items():
        x, y = made(data), made(row)
        wait(y)
        recorded = x + 0 if candidate == "eqsat" else x
        for name, call in OPERATIONS.items():
            run = _call(call, space, recorded)
            runs.setdefault(name, {})[candidate] = run
        five = _call(chain, space, x, y)
        runs.setdefault("five: record", {})[candidate] = five
        runs.setdefault("five: record, evaluate", {})[candidate] = _then(five, wait)
    return {name: _in_turns(fns) for name, fns in runs.items()}


def _call(function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    return lambda: function(*args)


def _then(run: Callable[[], Any], wait: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: wait(run())


def _in_turns(fns: dict[str, Callable[[], Any]]) -> Record:
    spent: dict[str, list[float]] = {name: [] for name in fns}
    for f in fns.values():
        for _ in range(3):
            f()
    gc.disable()
    for _ in range(ROUNDS):
        for name, f in fns.items():
            start = time.perf_counter()
            kept = [f() for _ in range(CALLS)]
            spent[name].append((time.perf_counter() - start) / CALLS)
            del kept
    gc.enable()
    return {name: spread(s) for name, s in spent.items()}


@click.command("lazy")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False))
def lazy_arrays(out: Path | None) -> None:
    """Time what lazy arrays record, find and evaluate, beside NumPy and MLX."""
    found: Record = {**machine(), "shape": SHAPE, "seconds": measured()}
    names = [*next(iter(found["seconds"].values()))]
    click.echo(f"{'µs a call, median':24}" + "".join(f"{n:>20}" for n in names))
    for name, row in found["seconds"].items():
        cells = [
            f"{row[n]['median_s'] * 1e6:8.2f} "
            f"({row[n]['min_s'] * 1e6:.2f}–{row[n]['quartiles_s'][1] * 1e6:.2f})"
            for n in names
        ]
        click.echo(f"{name:24}" + "".join(f"{c:>20}" for c in cells))
    if out is not None:
        write(out, found)
