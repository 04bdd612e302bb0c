"""``python -m bench recording``: what calls of small programs take beside MLX's own.

MLX records a call and runs it later: a call of a jit should take little longer than
the calls of MLX that the program makes. Candidates take turns in one process, over
arrays that hold data: eqsat; the program alone, as it is and as a custom function with
derivatives, where that is another; MLX's own ops, called directly; and by
``mx.compile``. ``record`` is a call whose result is not asked for, ``evaluate`` one
that is waited for. Without a GPU the program of the first row is MLX's ops, too.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from bench.reports import Record, machine, spread, write

ROUNDS = 21
RECORDED = 320
"""Calls of a round, whose results nobody asks for."""
EVALUATED = 32
"""Calls of a round that are waited for one by one."""


class RecordingCase(NamedTuple):
    """A function of NumPy's, the same in MLX's ops, and the arrays to call both
    with."""

    name: str
    plain: Callable[..., Any]
    own: Callable[..., Any]
    args: tuple[Any, ...]


def rows(rank: int = 16) -> Iterator[RecordingCase]:
    """A generated kernel beside the least op of MLX, and what MLX has ops for."""
    import mlx.core as mx

    from eqsat import ops

    def ones(*shape: int) -> Any:
        made = mx.ones(shape)
        mx.eval(made)
        return made

    def kernel(x: Any) -> Any:
        return np.maximum(x * 2 + 1, 0)

    def lora(x: Any, w: Any, a: Any, b: Any) -> Any:
        return mx.addmm(mx.matmul(x, w), mx.matmul(x, a), b, alpha=0.5)

    yield RecordingCase("kernel 8", kernel, mx.negative, (ones(8),))
    for n in (1, 8):
        x, gain = ones(n, 1024), ones(1024)
        yield RecordingCase(
            f"rms_norm {n}×1024",
            lambda x, g: ops.rms_norm(x, g),
            lambda x, g: mx.fast.rms_norm(x, g, 1e-5),
            (x, gain),
        )
        yield RecordingCase(
            f"softmax {n}×1024",
            lambda x: ops.softmax(x),
            lambda x: mx.softmax(x, axis=-1, precise=True),
            (x,),
        )
        yield RecordingCase(
            f"lora {n}×1024, rank {rank}",
            lambda x, w, a, b: ops.lora(x, w, a, b, 0.5),
            lora,
            (x, ones(1024, 1024), ones(1024, rank), ones(rank, 1024)),
        )


def candidates(row: RecordingCase) -> dict[str, Callable[..., Any]]:
    """What computes ``row``, by name."""
    import mlx.core as mx

    import eqsat as eq
    from eqsat.backends.mlx import lower

    made = lower(eq.jit(row.plain, backend="mlx").lower(*row.args).program)
    found = {"eqsat": eq.jit(row.plain), "program": made.bare}
    if made.run is not made.bare:
        found["with derivatives"] = made.run
    return found | {"mlx": row.own, "mx.compile": mx.compile(row.own)}


def recorded() -> dict[str, Record]:
    """Seconds of a call (median, least and most of a round), by row, candidate, and
    ``record`` or ``evaluate``."""
    return {row.name: _measured(candidates(row), row.args) for row in rows()}


def _measured(fns: dict[str, Callable[..., Any]], args: tuple[Any, ...]) -> Record:
    import mlx.core as mx

    spent: dict[str, dict[str, list[float]]] = {
        name: {"record": [], "evaluate": []} for name in fns
    }
    for f in fns.values():
        for _ in range(EVALUATED):
            mx.eval(f(*args))
    gc.disable()
    for _ in range(ROUNDS):
        for name, f in fns.items():
            start = time.perf_counter()
            many = [f(*args) for _ in range(RECORDED)]
            took = (time.perf_counter() - start) / RECORDED
            spent[name]["record"].append(took)
            del many
            start = time.perf_counter()
            for _ in range(EVALUATED):
                mx.eval(f(*args))
            took = (time.perf_counter() - start) / EVALUATED
            spent[name]["evaluate"].append(took)
    gc.enable()
    return {
        name: {kind: spread(s) for kind, s in kinds.items()}
        for name, kinds in spent.items()
    }


def lines(found: dict[str, Record]) -> Iterator[str]:
    """The rows for people: µs of a call, recorded and evaluated."""
    for name, row in found.items():
        parts = []
        for candidate, kinds in row.items():
            record, evaluate = (kinds[k]["median_s"] for k in ("record", "evaluate"))
            parts.append(f"{candidate} {record * 1e6:.2f} {evaluate * 1e6:.1f}")
        yield f"{name:24} {'   '.join(parts)}"


@click.command()
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False))
def recording(out: Path | None) -> None:
    """Time calls of small programs on MLX's default device, beside MLX's own."""
    try:
        import mlx.core as mx
    except ImportError as error:
        raise click.ClickException(f"MLX is not installed: {error}") from error
    found: Record = {
        **machine(),
        "device": str(mx.default_device()),
        "mlx": mx.__version__,
        "overhead": recorded(),
    }
    for text in lines(found["overhead"]):
        click.echo(text)
    if out is not None:
        write(out, found)
