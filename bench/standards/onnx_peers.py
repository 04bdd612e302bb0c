"""``python -m bench onnx_peers``: the cases of the package onnx by other libraries.

Each peer runs in a process of its own. One that crashes, or takes longer than
:data:`PATIENCE_S` for a case, has failed it, and a new process goes on behind it.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click
import numpy as np

from bench.reports import Record, machine, write

PATIENCE_S = 30.0
"""Seconds for a case, and for a process to start."""
Runner = Callable[[Any], Callable[..., list[Any]]]
"""What makes a function of arrays of a model."""


def _by_onnxruntime(model: Any) -> Callable[..., list[Any]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [i.name for i in session.get_inputs()]
    return lambda *xs: session.run(
        None, {n: x for n, x in zip(names, xs, strict=True) if x is not None}
    )


def _by_torch(model: Any) -> Callable[..., list[Any]]:
    """By the package onnx2torch; PyTorch itself reads no models."""
    import torch
    from onnx2torch import convert

    module = convert(model).eval()

    def run(*xs: Any) -> list[Any]:
        with torch.no_grad():
            found = module(*(torch.from_numpy(np.array(x)) for x in xs))
        several = found if isinstance(found, (list, tuple)) else [found]
        return [t.numpy() for t in several]

    return run


def _by_tinygrad(model: Any) -> Callable[..., list[Any]]:
    import tempfile

    from tinygrad.nn.onnx import OnnxRunner

    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        file.write(model.SerializeToString())
        file.flush()
        runner = OnnxRunner(file.name)
    names = [i.name for i in model.graph.input]

    def run(*xs: Any) -> list[Any]:
        found = runner(dict(zip(names, xs, strict=True)))
        return [found[o.name].numpy() for o in model.graph.output]

    return run


PEERS: dict[str, tuple[Runner, str]] = {
    "onnxruntime": (_by_onnxruntime, "onnxruntime"),
    "torch": (_by_torch, "onnx2torch"),
    "tinygrad": (_by_tinygrad, "tinygrad"),
}
"""What runs a model, and the package whose version counts."""


def outcomes(peer: str, first: int) -> Iterator[tuple[int, str]]:
    """``passed``, ``failed`` or ``refused`` for each case from a number on."""
    from bench.standards.onnx_cases import apart, cases

    run, _ = PEERS[peer]
    for i, case in enumerate(cases()[first:], first):
        try:
            model = run(case.model)
        except Exception:
            yield i, "refused"
            continue
        found = "passed"
        try:
            for inputs, outputs in case.sets:
                got = model(*inputs)
                pairs = zip(got, outputs, strict=True)
                if any(apart(a, b, case.rtol, case.atol) for a, b in pairs):
                    found = "failed"
        except Exception:
            found = "failed"
        yield i, found


def _in_processes(peer: str, count: int) -> list[str]:
    """The outcome of each case."""
    found: list[str] = []
    while len(found) < count:
        words = [sys.executable, "-m", __spec__.name, peer, str(len(found))]
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_read, args=(process, lines), daemon=True).start()
        try:
            while line := lines.get(timeout=PATIENCE_S):
                found.append(json.loads(line)[1])
        except queue.Empty:
            process.kill()
        process.wait()
        if len(found) < count:
            found.append("failed")
    return found


def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("["):
            lines.put(line)
    lines.put("")


@click.command("onnx_peers")
@click.option("--only", "peers", multiple=True, help="A peer; all by default.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Results as JSON."
)
def onnx_peers(peers: tuple[str, ...], out: Path | None) -> None:
    """Run the cases of the package onnx by ONNX Runtime, PyTorch and tinygrad."""
    from bench.standards.onnx_cases import cases

    rows: Record = {}
    for peer in peers or PEERS:
        try:
            name = version(PEERS[peer][1])
        except PackageNotFoundError:
            click.echo(f"{peer}: the package {PEERS[peer][1]} is not there")
            continue
        ends = _in_processes(peer, len(cases()))
        by_op: dict[str, Counter[str]] = {}
        for case, end in zip(cases(), ends, strict=True):
            by_op.setdefault(case.op, Counter())[end] += 1
        total = Counter(ends)
        rows[peer] = {"version": name, "all": total, "by op": by_op}
        click.echo(f"{peer} {name}: {dict(total)}")
    if out is not None:
        write(out, {**machine(), "onnx": version("onnx"), "peers": rows})


if __name__ == "__main__":
    for row in outcomes(sys.argv[1], int(sys.argv[2])):
        print(json.dumps(row), flush=True)
