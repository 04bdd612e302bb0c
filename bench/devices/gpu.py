"""``python -m bench gpu``: programs on the GPU of MLX, by eqsat and by its rivals.

Candidates take turns in one process, in another order each round: eqsat over the plain
NumPy function; MLX's own fast ops, as ``mx.compile`` runs them; the same function
written out, which ``mx.compile`` fuses; and torch.compile where PyTorch sees a CUDA
device. Results are compared with float64 first. ``copy`` moves as many bytes as the
program must. Products of float32 are float32's for all: MLX rounds to TF32 on NVIDIA's
GPUs unless told.

A call is timed in two ways. *As called* (``median_s``), a round is many calls, handed
to the device in groups while more are recorded, and a wait for all: the device is
timed, or what drives it where that is slower. *By the device* (``device_s``), calls
queue up behind other work before it gets to them (:mod:`bench.devices.queued`): the
host costs nothing. Both are what a call adds to others, not what one takes alone. MLX
starts kernels of a group side by side where they do not need each other's results. In
PyTorch one begins when the one before ends. Neighbouring calls have inputs of their
own, and the results of all are kept, so that no cache serves them.
"""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import click
import numpy as np

from bench.devices.queued import Queue, QueueSize, sized, slope, told
from bench.devices.recording import lines, recorded
from bench.reports import Record, machine, spread, write
from bench.runner import FACTOR, FLOAT32_ROUNDING, Need, need, relative, wide
from bench.workloads import (
    Drawn,
    Workload,
    by_part,
    device,
    leaves,
    mapped,
    matching,
)
from eqsat.support.errors import EqsatError

ROUNDS = 7
ROUND_S = 0.02
"""Seconds that a round of one candidate aims at."""
MOST_CALLS = 320
GROUP = 8
"""Calls that MLX is given at once, and that have inputs of their own."""
LEAST_CALLS = 2
LONG_S = 2e-3
"""Calls that take longer are not timed in groups, and in fewer rounds."""
FEW_ROUNDS = 5
SLOPES = 21
"""Rounds in which the device alone is timed."""
MOST_BYTES = 8 << 30
"""Most bytes of results that a round holds."""
ABOUT = (
    "device_name",
    "architecture",
    "total_memory",
    "compute_capability_major",
    "compute_capability_minor",
)
"""What is kept of what MLX tells of a device."""
Call = Callable[..., Any]
Wait = Callable[[Any], None]


@dataclass(frozen=True)
class Plug:
    """What keeps a device busy for so many seconds, and the device's clock, as
    :class:`bench.devices.queued.Queue` has them."""

    start: Callable[[float], Any]
    between: Callable[[Any, Any], float] | None = None


@dataclass(frozen=True)
class DeviceCandidate:
    """A function, arguments for the calls of a group, what starts the work of some,
    what waits for all, how a result is read as NumPy's, and what keeps the device
    busy."""

    call: Call
    given: Sequence[Sequence[Any]]
    start: Wait
    wait: Wait
    array: Callable[[Any], Any]
    plug: Plug

    def seconds(self, calls: int) -> float:
        """Seconds of a call, of so many."""
        start = time.perf_counter()
        self.wait(self.handed(calls))
        return (time.perf_counter() - start) / calls

    def queue(self) -> Queue:
        """The same calls in the same groups, behind a plug."""
        # What started last ends last, or with the others of its group.
        return Queue(
            self.plug.start,
            self.handed,
            lambda found: self.wait(found[-1]),
            self.plug.between,
        )

    def handed(self, calls: int) -> list[Any]:
        """The results of so many calls, which are not there yet."""
        found: list[Any] = []
        while len(found) < calls:
            many = [self.call(*args) for args in self.given[: calls - len(found)]]
            self.start(many)
            found += many
        return found


# -- candidates ------------------------------------------------------------------------


def candidates(w: Workload, drawn: Drawn, torch: Any) -> dict[str, DeviceCandidate]:
    """What computes ``w`` over these arrays of NumPy, by name."""
    import mlx.core as mx

    import eqsat as eq
    from bench.peers.mlx_peer import Mlx, MlxNet, PlainNet

    peer = Mlx(1)
    inputs, weights = mapped(list(drawn), by_part(peer.put))
    _, packed = mapped(list(drawn), peer.put)
    rows = [[x * 1 for x in inputs] for _ in range(GROUP)]
    mx.eval(rows, list(leaves([weights, packed])))
    fns: dict[str, tuple[Call, Any]] = {
        "eqsat": (eq.jit(w.plain), weights),
        "mlx": (mx.compile(partial(w.fn, MlxNet())), packed),
        "mx.compile": (mx.compile(partial(w.fn, PlainNet())), weights),
    }
    plug = plug_of_mlx()
    found = {}
    for name, (f, held) in fns.items():
        given = [[*xs, *held] for xs in rows]
        found[name] = DeviceCandidate(
            f, given, mx.async_eval, mx.eval, peer.array, plug
        )
    return found | ({"torch.compile": _torch(w, drawn, torch)} if torch else {})


def copies(moved: int) -> DeviceCandidate:
    """A copy that reads and writes ``moved`` bytes in all."""
    import mlx.core as mx

    given = [[mx.ones(max(moved // 8, 1), dtype=mx.float32)] for _ in range(GROUP)]
    mx.eval(given)
    plug = plug_of_mlx()
    return DeviceCandidate(mx.negative, given, mx.async_eval, mx.eval, np.array, plug)


_SPIN = """
unsigned long long start, now;
asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
while (now - start < nanoseconds[0]);
out[0] = now;
"""
SIDE = 2048


@cache
def plug_of_mlx() -> Plug:
    """What keeps MLX's device busy: on CUDA a kernel that waits, else products."""
    import mlx.core as mx

    if mx.cuda.is_available():
        spin = mx.fast.cuda_kernel("spin", ["nanoseconds"], ["out"], _SPIN)
        one = {"grid": (1, 1, 1), "threadgroup": (1, 1, 1), "output_shapes": [(1,)]}

        def waiting(seconds: float) -> Any:
            for_ns = mx.array([round(seconds * 1e9)], mx.uint64)
            (y,) = spin(inputs=[for_ns], output_dtypes=[mx.uint64], **one)
            mx.async_eval(y)
            return y

        def between(first: Any, last: Any) -> float:
            return float(last.item() - first.item()) * 1e-9

        return Plug(waiting, between)
    first = mx.full((SIDE, SIDE), 1 / SIDE)
    mx.eval(mx.matmul(first, first))
    start = time.perf_counter()
    mx.eval(mx.matmul(first, first))
    link_s = time.perf_counter() - start

    def products(seconds: float) -> Any:
        y = first
        for _ in range(math.ceil(seconds / link_s)):
            y = mx.matmul(y, first)
        mx.async_eval(y)
        return y

    return Plug(products)


@cache
def plug_of_torch() -> Plug:
    """A kernel that waits, by PyTorch on CUDA."""
    import torch

    def cycles_s(cycles: int) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        torch.cuda._sleep(cycles)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    cycles_s(1000)
    rate = 1e7 / cycles_s(10**7)

    def waiting(seconds: float) -> Any:
        if seconds:
            torch.cuda._sleep(round(seconds * rate))
        ended = torch.cuda.Event(enable_timing=True)
        ended.record()
        return ended

    def between(first: Any, last: Any) -> float:
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e-3

    return Plug(waiting, between)


def _torch(w: Workload, drawn: Drawn, torch: Any) -> DeviceCandidate:
    from bench.peers.torch_peer import TorchNet, tensor

    torch._dynamo.reset()
    inputs, weights = mapped(list(drawn), by_part(lambda a: tensor(a).cuda()))
    given = [[*(x.clone() for x in inputs), *weights] for _ in range(GROUP)]
    return DeviceCandidate(
        torch.compile(partial(w.fn, TorchNet())),
        given,
        lambda results: None,
        lambda results: torch.cuda.synchronize(),
        lambda t: t.float().cpu().numpy(),
        plug_of_torch(),
    )


def with_cuda() -> Any:
    """PyTorch where it sees a CUDA device, else None."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.set_grad_enabled(False)
    return torch


# -- results ---------------------------------------------------------------------------


def exact(w: Workload, args: Sequence[Any], torch: Any) -> list[Any]:
    """The results in float64: by PyTorch on the GPU where there is one, by NumPy
    elsewhere."""
    exactly = mapped(list(args), by_part(wide))
    if not torch:
        return _several(w.plain(*exactly))
    from bench.peers.torch_peer import TorchNet

    held = mapped(exactly, by_part(lambda a: torch.from_numpy(a).cuda()))
    found = [y.cpu().numpy() for y in _several(w.fn(TorchNet(), *held))]
    del held
    torch.cuda.empty_cache()
    return found


def _several(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (list, tuple)) else [results]


def error(c: DeviceCandidate, known: Sequence[Any]) -> float:
    """The largest error of the results, relative to the exact ones."""
    worst = 0.0
    for y, z in zip(_several(c.call(*c.given[0])), known, strict=True):
        worst = max(worst, relative(np.asarray(c.array(y)).reshape(z.shape), z))
    return worst


def bound(w: Workload, needed: Need) -> float:
    """How near results must be to float64's.

    It is the bound of :mod:`bench.runner.exactness` without the part that plain NumPy's
    error has in it. Products of bfloat16 round twice.
    """
    half_unit = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-9}
    longest = FLOAT32_ROUNDING * math.sqrt(max(needed.longest_sums))
    return FACTOR * max(half_unit[w.dtype], longest)


# -- one workload ----------------------------------------------------------------------


def measured(w: Workload, torch: Any) -> Record:
    """One row of the result."""
    inputs, weights = w.draw(0)
    args = [*inputs, *weights]
    known = exact(w, args, torch)
    size = sum(z.size for z in known) * args[0].itemsize
    needed = need(w, (inputs, weights), np.broadcast_to(np.int8(0), size))
    limit = bound(w, needed)
    found: Record = {"workload": w.name, "bytes": needed.bytes, "bound": limit}
    found |= {"product_flops": needed.product_flops, "results": {}}
    ready: dict[str, DeviceCandidate] = {}
    for name, c in candidates(w, (inputs, weights), torch).items():
        start = time.perf_counter()
        try:
            off = error(c, known)
        except Exception as failure:  # whatever a library raises is its result
            reason = f"{type(failure).__name__}: {failure}"[:1000]
            found["results"][name] = {"status": "failed", "reason": reason}
            continue
        status = "ok" if off <= limit else "wrong"
        first_s = time.perf_counter() - start
        found["results"][name] = {"status": status, "error": off, "first_s": first_s}
        ready[name] = c
    ready["copy"] = copies(needed.bytes)
    found["results"]["copy"] = {"status": "ok"}
    most = max(GROUP, min(MOST_CALLS, MOST_BYTES // max(size, 1)))
    _timed(ready, most, found["results"])
    return found


def _timed(ready: dict[str, DeviceCandidate], most: int, results: Record) -> None:
    """Add to ``results`` what calls take, as called and by the device."""
    calls: dict[str, int] = {}
    queues: dict[str, tuple[Queue, QueueSize]] = {}
    for name, c in ready.items():
        try:
            calls[name], once = _warmed(c, most)
        except Exception as failure:
            results[name] |= {"status": "failed", "reason": str(failure)}
            continue
        queue = c.queue()
        try:
            queues[name] = queue, sized(queue, once, most)
        except Exception as failure:
            reason = f"{type(failure).__name__}: {failure}"[:1000]
            results[name] |= {"device_reason": reason}
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    slopes: dict[str, list[float | None]] = {name: [] for name in queues}
    gc.disable()
    for i in range(ROUNDS):
        for name in shuffled(list(calls), i):
            if i < FEW_ROUNDS or calls[name] >= GROUP:
                rounds[name].append(ready[name].seconds(calls[name]))
    for i in range(SLOPES):
        for name in shuffled(list(queues), i):
            queue, size = queues[name]
            if i < FEW_ROUNDS or calls[name] >= GROUP:
                slopes[name].append(slope(queue, size))
                if slopes[name][-1] is None:
                    queues[name] = queue, size.longer()
    gc.enable()
    for name, spent in rounds.items():
        results[name] |= spread(spent)
    for name, (_, size) in queues.items():
        results[name] |= told(size, slopes[name])


def shuffled(names: Sequence[str], i: int) -> list[str]:
    """The order of round ``i``: none always follows the same other."""
    order = list(names)
    Random(i).shuffle(order)
    return order


def _warmed(c: DeviceCandidate, most: int) -> tuple[int, float]:
    """How many calls make a round of ``c``, after one round, and seconds of a call."""
    c.seconds(LEAST_CALLS)
    least = LEAST_CALLS if c.seconds(LEAST_CALLS) > LONG_S else GROUP
    once = min(c.seconds(least), c.seconds(least))
    calls = max(least, min(int(ROUND_S / once), most))
    return calls, min(once, c.seconds(calls))


# -- the command -----------------------------------------------------------------------


HEAD = "share of the copy's bandwidth by the device, as called; µs of each"


def line(row: Record) -> str:
    """A row for people: eqsat's share of the copy's bandwidth, and µs of each, by the
    device and as called."""
    parts = []
    for name, r in row["results"].items():
        mark = {"ok": "", "wrong": " WRONG"}.get(r["status"], "")
        took = " ".join(_micro(s) for s in _both(r))
        parts.append(f"{name} {took if 'median_s' in r else r.get('reason', '')}{mark}")
    both = zip(
        _both(row["results"]["eqsat"]), _both(row["results"]["copy"]), strict=True
    )
    shares = (
        f"{copy / ours:6.1%}" if ours and copy else "     –" for ours, copy in both
    )
    return f"{row['workload']:36} {' '.join(shares)}  {'  '.join(parts)}"


def _both(result: Record) -> tuple[float | None, float | None]:
    """Seconds by the device, and as called."""
    return result.get("device_s", {}).get("median"), result.get("median_s")


def _micro(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e6:.1f}"


@click.command()
@click.option("--workloads", "globs", multiple=True, help="Names or tags, with * .")
@click.option("--dtypes", default=",".join(device.DTYPES), help="With commas.")
@click.option("--commit", "made_of", help="Where git cannot tell what is measured.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False))
def gpu(
    globs: Sequence[str], dtypes: str, made_of: str | None, out: Path | None
) -> None:
    """Time programs on MLX's GPU, beside MLX's ops, mx.compile and torch.compile."""
    os.environ["MLX_ENABLE_TF32"] = "0"
    try:
        import mlx.core as mx
    except ImportError as error:
        raise click.ClickException(f"MLX is not installed: {error}") from error
    if mx.default_device().type != mx.gpu:
        raise click.ClickException(f"MLX runs on {mx.default_device()}, expected a GPU")
    torch = with_cuda()
    found: Record = {
        **machine(made_of),
        "device": {k: str(v) for k, v in mx.device_info().items() if k in ABOUT},
        "mlx": mx.__version__,
        "torch": torch.__version__ if torch else None,
        "overhead": recorded(),
        "rows": [],
    }
    for text in lines(found["overhead"]):
        click.echo(text)
    click.echo(HEAD)
    known = [w for dtype in dtypes.split(",") for w in device.workloads(dtype)]
    chosen = matching(known, globs)
    # What takes longest comes first, lest it is what is left where time runs out.
    for w in sorted(chosen, key=lambda w: "block" not in w.tags):
        try:
            found["rows"].append(measured(w, torch))
        except EqsatError as error:
            raise click.ClickException(str(error)) from error
        click.echo(line(found["rows"][-1]))
        if out is not None:
            write(out, found)
        mx.clear_cache()
        if torch:
            torch.cuda.empty_cache()
