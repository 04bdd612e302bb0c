"""``python -m bench limits``: what the machine can do at most.

Machine code made for the purpose: fused multiply-adds on registers only, and reads,
copies and triads (a = b + 3 c) over arrays of several sizes.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from bench.processes.pool import ROOT, confine, environment
from bench.reports import Record

SIZES = tuple(sorted([1 << k for k in range(14, 29)] + [3 << k for k in range(24, 27)]))
"""Bytes of all arrays together, of all threads (16 KiB to 256 MiB): closer to each
other where third caches end, and the bandwidth halves within a step."""
ROUNDS = 5
LEAST_S = 4e-3
"""Seconds of one round."""
ARRAYS = {"read": 1, "copy": 2, "triad": 3}
CHAINS = 12
"""Independent multiply-adds: at least latency times units of the CPUs of today."""

Kernel = Callable[..., None]

# -- machine code ----------------------------------------------------------------------


def lanes() -> int:
    """Numbers of float32 in a vector of this CPU."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 16
    if features.get("avx"):
        return 8
    return 4


def fma_text(width: int) -> str:
    """LLVM: ``reps`` rounds of :data:`CHAINS` multiply-adds of vectors."""
    v = f"<{width} x float>"
    n = range(CHAINS)
    phis = "\n".join(
        f"  %a{i} = phi {v} [ %s{i}, %entry ], [ %b{i}, %loop ]" for i in n
    )
    starts = "\n".join(
        f"  %p{i} = getelementptr float, ptr %out, i64 {i * width}\n"
        f"  %s{i} = load {v}, ptr %p{i}, align 4"
        for i in n
    )
    steps = "\n".join(
        f"  %b{i} = call {v} @llvm.fma.v{width}f32({v} %a{i}, {v} %m, {v} %s0)"
        for i in n
    )
    sums = "\n".join(
        f"  %t{i + 1} = fadd {v} %t{i}, %b{i}" for i in n
    )  # the results are used, so that none is removed
    return f"""
declare {v} @llvm.fma.v{width}f32({v}, {v}, {v})
define void @fma(ptr %out, i64 %reps) {{
entry:
{starts}
  %m = fmul {v} %s0, %s0
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
{phis}
{steps}
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %reps
  br i1 %more, label %loop, label %done
done:
  %t0 = fadd {v} %b0, %b1
{sums}
  store {v} %t{CHAINS}, ptr %out, align 4
  ret void
}}
"""


def stream_text(name: str, width: int, unroll: int = 4) -> str:
    """LLVM: ``reps`` passes over ``n`` numbers, a multiple of ``width * unroll``."""
    v = f"<{width} x float>"
    body, sums, carried = [], [], []
    for u in range(unroll):
        body.append(f"  %o{u} = add i64 %i, {u * width}")
        for p in "bc"[: max(ARRAYS[name] - 1, 1)]:
            body.append(f"  %p{p}{u} = getelementptr float, ptr %{p}, i64 %o{u}")
            body.append(f"  %{p}{u} = load {v}, ptr %p{p}{u}, align 4")
        result = f"%b{u}"
        if name == "triad":
            body.append(f"  %m{u} = fmul {v} %c{u}, %three")
            body.append(f"  %r{u} = fadd {v} %b{u}, %m{u}")
            result = f"%r{u}"
        if name == "read":
            carried.append(f"  %s{u} = phi {v} [ %z{u}, %pass ], [ %n{u}, %loop ]")
            body.append(f"  %n{u} = fadd {v} %s{u}, {result}")
            sums.append(f"  %z{u} = phi {v} [ %zero, %entry ], [ %n{u}, %next ]")
        else:
            body.append(f"  %pa{u} = getelementptr float, ptr %a, i64 %o{u}")
            body.append(f"  store {v} {result}, ptr %pa{u}, align 4")
    keep = ""
    if name == "read":
        adds = ["  %k0 = fadd <W> %n0, %n0"]
        adds += [f"  %k{u} = fadd <W> %k{u - 1}, %n{u}" for u in range(1, unroll)]
        adds.append(f"  store <W> %k{unroll - 1}, ptr %a, align 4")
        keep = "\n".join(adds).replace("<W>", v)
    newline = "\n"
    return f"""
define void @{name}(ptr %a, ptr %b, ptr %c, i64 %n, i64 %reps) {{
entry:
  %z = insertelement {v} poison, float 0.0, i32 0
  %zero = shufflevector {v} %z, {v} poison, <{width} x i32> zeroinitializer
  %t = insertelement {v} poison, float 3.0, i32 0
  %three = shufflevector {v} %t, {v} poison, <{width} x i32> zeroinitializer
  br label %pass
pass:
  %r = phi i64 [ 0, %entry ], [ %q, %next ]
{newline.join(sums)}
  br label %loop
loop:
  %i = phi i64 [ 0, %pass ], [ %j, %loop ]
{newline.join(carried)}
{newline.join(body)}
  %j = add i64 %i, {width * unroll}
  %more = icmp ult i64 %j, %n
  br i1 %more, label %loop, label %next
next:
  call void asm sideeffect "", "~{{memory}}"()
  %q = add i64 %r, 1
  %again = icmp ult i64 %q, %reps
  br i1 %again, label %pass, label %done
done:
{keep}
  ret void
}}
"""


class LimitKernels:
    """Compiled kernels, called through ctypes, which releases the interpreter."""

    def __init__(self) -> None:
        from llvmlite import binding

        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        self.width = lanes()
        text = fma_text(self.width)
        text += "".join(stream_text(name, self.width) for name in ARRAYS)
        target = binding.Target.from_default_triple()
        machine = target.create_target_machine(
            cpu=binding.get_host_cpu_name(),
            features=binding.get_host_cpu_features().flatten(),
            opt=3,
        )
        module = binding.parse_assembly(text)
        module.verify()
        self.engine = binding.create_mcjit_compiler(module, machine)
        self.engine.finalize_object()

    def kernel(self, name: str, args: int) -> Kernel:
        """The kernel of that name; pointers and counts are its arguments."""
        address = self.engine.get_function_address(name)
        prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * args)
        kernel: Kernel = prototype(address)
        return kernel


# -- measuring -------------------------------------------------------------------------


def together(works: list[Callable[[], None]]) -> float:
    """Seconds until all works, each in a thread, are done; they start together."""
    if len(works) == 1:
        start = time.perf_counter()
        works[0]()
        return time.perf_counter() - start
    barrier = threading.Barrier(len(works) + 1)

    def run(work: Callable[[], None]) -> None:
        barrier.wait()
        work()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    barrier.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def best(run: Callable[[int], float]) -> float:
    """Seconds of one repetition, the least of some rounds; ``run(reps)`` are the
    seconds of ``reps``."""
    reps = 1
    while (took := run(reps)) < LEAST_S:
        reps = max(2 * reps, int(1.2 * reps * LEAST_S / max(took, 1e-7)))
    return min(run(reps) for _ in range(ROUNDS)) / reps


def fma_peak(code: LimitKernels, threads: int) -> float:
    """float32 operations a second of multiply-adds, each counted as two (flop/s)."""
    kernel = code.kernel("fma", 2)
    starts = np.linspace(0.5, 0.6, CHAINS * code.width, dtype=np.float32)
    outs = [starts.copy() for _ in range(threads)]

    def run(reps: int) -> float:
        def work(out: Any) -> Callable[[], None]:
            return lambda: kernel(out.ctypes.data, reps)

        return together([work(out) for out in outs])

    return 2.0 * CHAINS * code.width * threads / best(run)


def bandwidth(code: LimitKernels, name: str, size: int, threads: int) -> float:
    """Bytes a second, read and written as the program says, where all arrays of all
    threads take ``size`` bytes."""
    kernel = code.kernel(name, 5)
    step = code.width * 4
    n = max(size // 4 // ARRAYS[name] // threads // step, 1) * step
    held = [[np.ones(n, np.float32) for _ in range(3)] for _ in range(threads)]
    if name == "read":
        held = [[np.ones(step, np.float32), b, b] for _, b, _ in held]

    def run(reps: int) -> float:
        def work(arrays: list[Any]) -> Callable[[], None]:
            a, b, c = (x.ctypes.data for x in arrays)
            return lambda: kernel(a, b, c, n, reps)

        return together([work(arrays) for arrays in held])

    return 4.0 * n * ARRAYS[name] * threads / best(run)


def measure(threads: int, sizes: Sequence[int] = SIZES) -> Record:
    """The peak, and the bandwidths by size, of this process with so many threads."""
    code = LimitKernels()
    return {
        "threads": threads,
        "fma_flops_per_s": fma_peak(code, threads),
        "bandwidths": [
            {
                "bytes": size,
                **{
                    f"{name}_bytes_per_s": bandwidth(code, name, size, threads)
                    for name in ARRAYS
                },
            }
            for size in sizes
        ],
    }


CHILD = """
import json, sys
from bench.processes.limits import measure
count, *sizes = map(int, sys.argv[1:])
print(json.dumps(measure(count, sizes)))
"""


def in_fresh_process(threads: int, sizes: Sequence[int] = SIZES) -> Record:
    """:func:`measure` in a process that is confined to as many CPUs.

    Raises :class:`subprocess.CalledProcessError` when it fails.
    """
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(threads), *map(str, sizes)],
        cwd=ROOT,
        env=environment(threads),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        confine(process.pid, threads)
        text, _ = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, "bench limits")
    found: Record = json.loads(text)
    return found


def bytes_per_s(limits: Record, size: float) -> float:
    """The best bandwidth of any kernel over at least ``size`` bytes in all: what a
    program that touches so many can reach at most."""
    large = [b for b in limits["bandwidths"] if b["bytes"] >= size]
    rates = [
        rate
        for b in large or limits["bandwidths"][-1:]
        for name, rate in b.items()
        if name != "bytes"
    ]
    return float(max(rates))


# -- showing ---------------------------------------------------------------------------


@click.command()
@click.option("--threads", default=f"1,{os.cpu_count()}", help="Counts, with commas.")
@click.option(
    "--json", "out", type=click.Path(path_type=Path), help="File for the results."
)
def limits(threads: str, out: Path | None) -> None:
    """Measure the peak of multiply-adds and the bandwidths of the memories."""
    from bench.reports import machine, write

    counts = list(dict.fromkeys(int(t) for t in threads.split(",")))
    found = [in_fresh_process(t) for t in counts]
    click.echo("\n\n".join(text(f) for f in found))
    if out is not None:
        write(out, {**machine(), "limits": found})


def text(found: Record) -> str:
    """Limits as people read them."""
    lines = [
        f"{found['threads']} threads: {found['fma_flops_per_s'] / 1e9:.1f} Gflop/s of "
        "float32 multiply-adds",
        f"{'all arrays':>10}  " + "  ".join(f"{name:>10}" for name in ARRAYS),
    ]
    for b in found["bandwidths"]:
        rates = (f"{b[f'{name}_bytes_per_s'] / 1e9:5.1f} GB/s" for name in ARRAYS)
        lines.append(f"{b['bytes'] >> 10:6} KiB  {'  '.join(rates)}")
    return "\n".join(lines)
