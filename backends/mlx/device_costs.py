"""What kernels cost on the devices that MLX runs on, shipped and measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import mlx.core as mx

from eqsat.kernels import CPU, Device, Kernel, Target, seconds

INF = float("inf")
APPLE: dict[str, tuple[float, int]] = {
    "Apple M1": (68.25, 8),
    "Apple M1 Pro": (200, 16),
    "Apple M1 Max": (400, 32),
    "Apple M1 Ultra": (800, 64),
    "Apple M2": (100, 10),
    "Apple M2 Pro": (200, 19),
    "Apple M2 Max": (400, 38),
    "Apple M2 Ultra": (800, 76),
    "Apple M3": (100, 10),
    "Apple M3 Pro": (150, 18),
    "Apple M3 Max": (400, 40),
    "Apple M3 Ultra": (819, 80),
    "Apple M4": (120, 10),
    "Apple M4 Pro": (273, 20),
    "Apple M4 Max": (546, 40),
}
"""Memory bandwidth (GB/s) and GPU cores of the largest configuration, as Apple
announced each chip: apple.com/newsroom of November 2020 (M1), October 2021 (M1 Pro, M1
Max), March 2022 (M1 Ultra), June 2022 (M2), January 2023 (M2 Pro, M2 Max), June 2023
(M2 Ultra), October 2023 (M3, M3 Pro, M3 Max), May 2024 (M4), October 2024 (M4 Pro, M4
Max), March 2025 (M3 Ultra)."""
CORE_FLOPS = 3.25e11
"""Flops a second of one core: 2.6 Tflop/s of the eight of an M1, as Apple announced in
November 2020; later cores are as wide and up to 1.2 times as fast."""
REACHED = 0.85
"""The share of a bandwidth on paper that copies are taken to reach."""
METAL_LAUNCH_S = 4e-6
"""An estimate: no Apple GPU was at hand to measure it on."""

H200 = Device(
    "NVIDIA H200",
    launch_s=2.5e-6,
    flops_per_s=4e14,
    map_flops_per_s=2e13,
    bandwidths=((3e7, 8e12), (INF, 4.2e12)),
)
"""Copies of 402 MB in 94 µs, measured; products in bfloat16 at 40 % of NVIDIA's data
sheet (989 Tflop/s), other arithmetic at 30 % (67 Tflop/s), until it is calibrated."""
HOST_S = 7e-6
"""That the host takes for a kernel, from its call of MLX to its start: 6 to 8 µs beside
an H200."""
BRIEF_S, BRIEF_IN_TURN_S = 1.5e-6, 0.5e-6
"""Work below which MLX's own kernel is as good as ours, where the device waits for the
host and where it does not; 6 and 2 MB on an H200."""

_AROUND = "linear", "matmul"
GPU_TARGET = Target(
    kinds=frozenset({"map", "row"}),
    prologues=frozenset(),
    split_before=frozenset(f"{n}_norm_{p}" for n in ("layer", "rms") for p in _AROUND),
    split_after=frozenset(
        "matmul_act matmul_rms_norm linear_layer_norm linear_residual_layer_norm "
        "conv2d_act attention_residual attention_causal_residual "
        "attention_masked_residual".split()
    ),
)
"""What precedes or follows a product is a kernel of its own, but for what ``mx.addmm``
adds."""


def apple(name: str) -> Device:
    """The GPU of an Apple chip; of one that is not known, an M1's."""
    rate, cores = APPLE.get(name, APPLE["Apple M1"])
    flops = cores * CORE_FLOPS
    return Device(
        name,
        launch_s=METAL_LAUNCH_S,
        flops_per_s=0.7 * flops,
        map_flops_per_s=0.3 * flops,
        bandwidths=((INF, rate * 1e9 * REACHED),),
    )


def typical(language: str) -> Device:
    """A device that kernels in ``language`` run on: the default one if it is of that
    kind."""
    here = mx.default_device().type == mx.gpu
    if language == "metal":
        return device_here()[0] if here and mx.metal.is_available() else apple("")
    return H200


def brief_s(kernels: Sequence[Kernel], device: Device) -> float:
    """Seconds of work below which MLX's own call is to be used, in a program of
    ``kernels``, where it has one that does the same.

    The host takes 1 to 2 µs longer to start a generated kernel. Where all kernels take
    the device longer than the host, which runs ahead of it, nothing is lost by that:
    of bfloat16 in 4096×1024 an H200 takes 8.4 µs for a softmax by MLX's kernel and 5 by
    ours, 10.7 and 6 for a ``layer_norm``. Where the device waits, at this size 1.5 of
    10 µs are lost as called, so that the less is to be won the smaller it is.
    """
    rate = device.bandwidths[-1][1]
    work = sum(max(k.flops / device.flops_per_s, k.bytes / rate) for k in kernels)
    return BRIEF_S if work < len(kernels) * HOST_S else BRIEF_IN_TURN_S


def device_here() -> tuple[Device, Target]:
    """MLX's default device, as shipped, and what one kernel may be there."""
    if mx.default_device().type != mx.gpu:
        return replace(CPU, name="cpu, by MLX"), Target()
    if mx.metal.is_available():
        name = str(mx.device_info().get("device_name", ""))
        return apple(name), GPU_TARGET
    return H200, GPU_TARGET


# -- measuring -------------------------------------------------------------------------

CHAIN = 64
"""Kernels in a row, of which one's start is the mean."""


def measure(
    default: Device, progress: Callable[[str], None] = lambda what: None
) -> Device:
    """MLX's default device: starts of kernels, products, other arithmetic, copies."""
    progress("starts of kernels")
    launch_s = _launch()
    progress("products")
    n = 4096 if mx.default_device().type == mx.gpu else 768
    square = mx.ones((n, n), dtype=mx.float32)
    mx.eval(square)
    product_s = _of(lambda: mx.matmul(square, square))
    progress("arithmetic")
    size = 1 << (24 if n == 4096 else 18)
    x = mx.linspace(-4, 4, size)
    mx.eval(x)
    exp_s = max(_of(lambda: mx.exp(x)) - launch_s, 1e-9)
    rates = []
    for k in (18, 22, 26, 28) if n == 4096 else (16, 20, 24, 26):
        progress(f"memory, {(1 << k) >> 10} KiB")
        y = mx.ones((1 << k) // 4, dtype=mx.float32)
        mx.eval(y)
        spent = max(_of(partial(mx.negative, y)) - launch_s, 1e-9)
        rates.append((float(1 << k), 2.0 * (1 << k) / spent))
    fastest = [
        (room, max(r for _, r in rates[i:])) for i, (room, _) in enumerate(rates)
    ]
    levels = [*fastest[:-1], (INF, fastest[-1][1])]
    return replace(
        default,
        launch_s=launch_s,
        flops_per_s=2.0 * n**3 / product_s,
        map_flops_per_s=8.0 * size / exp_s,
        bandwidths=tuple(levels),
    )


def _of(make: Callable[[], Any]) -> float:
    """Seconds to evaluate what ``make`` records."""
    return seconds(lambda: mx.eval(make()))


def _launch() -> float:
    """Seconds that one more kernel takes in a program."""
    x = mx.ones(8)

    def chain(n: int) -> Any:
        y = x
        for _ in range(n):
            y = mx.negative(y)
        return y

    mx.eval(x)
    return max(
        (_of(lambda: chain(2 * CHAIN)) - _of(lambda: chain(CHAIN))) / CHAIN, 1e-8
    )
