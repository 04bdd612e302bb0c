"""Measured devices: kept for each user, used in place of the shipped defaults.

A backend that has ``measure`` can be calibrated: ``eqsat calibrate`` runs it and keeps
what it found in the user's configuration folder (``EQSAT_CONFIG_DIR`` names another).
"""

from __future__ import annotations

import functools
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from eqsat.kernels.cost_model import Device
from eqsat.kernels.numpy_call_times import NumpyCalls, shipped
from eqsat.support import (
    OptionError,
    UntrustedError,
    counted,
    device_file,
    trusted_folder,
    warn_untrusted,
)

T = TypeVar("T")
Array = np.ndarray[Any, Any]
SIZES = tuple(1 << k for k in range(14, 27, 2))
"""Bytes of the arrays that are copied."""
ROUNDS = 7


@functools.cache
def machine() -> str:
    """What tells this machine from another: measured figures are kept for each."""
    return f"{platform.machine()} {counted(os.cpu_count() or 1, 'core')} {_processor()}"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "processor"


def measured(backend: str, default: Device) -> Device:
    """The device of a backend as measured on this machine, or ``default``.

    Raises :class:`OptionError` that names the file when it cannot be understood.
    """
    return as_kept(backend, _device, lambda: default)


def numpy_calls() -> NumpyCalls:
    """What NumPy's functions take, as measured on this machine or as shipped.

    Raises :class:`OptionError` that names the file when it cannot be understood.
    """
    return as_kept(_CALLS, NumpyCalls.of_record, shipped)


def as_kept(
    key: str, read: Callable[[dict[str, Any]], T], default: Callable[[], T]
) -> T:
    """What was measured on this machine under a key, as ``read`` understands it, or
    ``default()``.

    Raises :class:`OptionError` that names the file when it cannot be understood.
    """
    text = _kept()
    try:
        kept = {} if text is None else json.loads(text).get(machine(), {})
        return read(kept[key]) if key in kept else default()
    except _WRONG as error:
        raise OptionError(
            f"{device_file()}: not what `eqsat calibrate` writes ({error}); remove it "
            f"with `eqsat calibrate --reset`"
        ) from error


_CALLS = "calls of NumPy"
"""The key of NumPy's table, which stands beside those of devices."""


def rates_of(backend: str) -> str:
    """The key of what the clock of a backend goes by."""
    return f"rates of {backend}"


_WRONG = ValueError, TypeError, LookupError, AttributeError, RecursionError
"""What a file raises that somebody else wrote; the last one nested too deep."""


def _kept() -> bytes | None:
    """What the file of measured devices holds; None where there is none to be read, or
    others can change it."""
    try:
        file = device_file()
    except RuntimeError:  # a user without a home folder
        return None
    if not os.path.exists(file):
        return None
    try:
        with trusted_folder(file.parent) as folder:
            return folder.read(file.name)[0]
    except UntrustedError as error:
        warn_untrusted(str(file), error, "EQSAT_CONFIG_DIR")
    except OSError:
        pass
    return None


def _device(kept: dict[str, Any]) -> Device:
    rooms = tuple(
        (float("inf") if a is None else float(a), float(b))
        for a, b in kept["bandwidths"]
    )
    known = {f.name for f in fields(Device)} - {"name", "bandwidths"}
    numbers = {k: float(v) for k, v in kept.items() if k in known}
    found = Device(str(kept["name"]), bandwidths=rooms, **numbers)
    rates = found.flops_per_s, found.map_flops_per_s, *(rate for _, rate in rooms)
    times = found.launch_s, found.step_s, found.view_s
    if not rooms or not all(0 < a < float("inf") for a in rates):
        raise ValueError("a rate is no positive number")
    if not all(0 <= a < float("inf") for a in times):
        raise ValueError("a time is no positive number")
    return found


class Rates(Protocol):
    """What the clock of a backend goes by. ``str`` gives the most telling ones."""

    def record(self) -> dict[str, Any]: ...


def keep(
    backend: str,
    device: Device,
    calls: NumpyCalls | None = None,
    rates: Rates | None = None,
) -> Path:
    """Write a measured device, NumPy's table and what the backend's clock goes by; the
    file. Raises :class:`OptionError` where it cannot be written."""
    file = device_file()
    added = {backend: record(device)}
    if calls is not None:
        added[_CALLS] = calls.record()
    if rates is not None:
        added[rates_of(backend)] = rates.record()
    try:
        known = json.loads(_kept() or b"{}")
        known.setdefault(machine(), {}).update(added)
    except _WRONG:
        known = {machine(): added}
    try:
        with trusted_folder(file.parent, make=True) as folder:
            folder.write(file.name, [json.dumps(known, indent=1).encode()])
    except OSError as error:
        raise OptionError(f"cannot write {file}: {error}") from error
    return file


def forget() -> bool:
    """Remove all measured devices; whether there were any."""
    try:
        device_file().unlink()
    except FileNotFoundError:
        return False
    return True


# -- measuring the CPU through NumPy ---------------------------------------------------


def seconds(run: Callable[[], object], least: float = 2e-3) -> float:
    """Seconds of one call: the best of some rounds of many calls each."""
    run()
    start = time.perf_counter()
    run()
    count = max(1, int(least / max(time.perf_counter() - start, 1e-9)))
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(count):
            run()
        best = min(best, (time.perf_counter() - start) / count)
    return best


def measure_cpu(
    name: str, default: Device, progress: Callable[[str], None] = lambda what: None
) -> Device:
    """The CPU as NumPy sees it: calls, products, other arithmetic, memories."""
    progress("calls")
    small, out = np.ones(8, np.float32), np.ones(8, np.float32)
    call_s = seconds(lambda: np.add(small, small, out=out))
    progress("products")
    square = np.ones((768, 768), np.float32)
    result = np.empty_like(square)
    flops = 2.0 * 768**3 / seconds(lambda: np.matmul(square, square, out=result))
    progress("arithmetic")
    others = _arithmetic(call_s)
    rates = []
    for size in SIZES:
        progress(f"memory, {size >> 10} KiB")
        rates.append((float(size), _copying(size, call_s)))
    return replace(
        default,
        name=name,
        launch_s=call_s,
        step_s=call_s,
        flops_per_s=flops,
        map_flops_per_s=others,
        bandwidths=tuple(levels(rates)),
    )


def _arithmetic(call_s: float) -> float:
    """Flops a second outside products: of exp, counted as the ops count it."""
    from eqsat.ops import exp

    x = np.linspace(-4, 4, 1 << 14).astype(np.float32)
    out = np.empty_like(x)
    spent = seconds(lambda: np.exp(x, out=out)) - call_s
    assert exp.flops is not None
    work = exp.flops([(x.dtype, x.shape)], {}, (x.dtype, x.shape))
    return work / max(spent, 1e-9)


def _copying(size: int, call_s: float) -> float:
    """Bytes a second, read and written, of copying ``size`` bytes."""
    x = np.ones(size, np.int8)  # pages never written would all be one page
    out = np.ones_like(x)
    return 2.0 * size / max(seconds(lambda: np.copyto(out, x)) - call_s, 1e-9)


def levels(rates: list[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Memories: sizes up to which the bandwidth falls by less than a quarter.

    Bandwidth must not rise with size: what a larger array reaches, a smaller one can.
    """
    falling: list[tuple[float, float]] = []
    most = 0.0
    for size, rate in reversed(rates):
        most = max(most, rate)
        falling.append((size, most))
    falling.reverse()
    kept: list[tuple[float, float]] = []
    for size, rate in falling:
        if kept and rate > 0.75 * kept[-1][1]:
            kept[-1] = (size, kept[-1][1])
        else:
            kept.append((size, rate))
    *inner, (_, last) = kept
    yield from inner
    yield float("inf"), last


# -- showing ---------------------------------------------------------------------------


def with_bar(
    measure: Callable[[Callable[[str], None]], Device],
    measure_rates: Callable[[Callable[[str], None]], Rates] | None,
) -> tuple[Device, NumpyCalls, Rates | None]:
    """What the two find, and NumPy's table between them, with a progress bar on
    standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    from eqsat.kernels.measure_numpy import measure_numpy

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("measuring", total=None)

        def progress(what: str) -> None:
            bar.update(task, description=what)

        device = measure(progress)
        calls = measure_numpy("as measured here", progress)
        return device, calls, measure_rates(progress) if measure_rates else None


def record(device: Device) -> dict[str, Any]:
    """A device as plain values; the last memory has no bound (None)."""
    found = asdict(device)
    found["bandwidths"] = [
        [None if room == float("inf") else room, rate]
        for room, rate in device.bandwidths
    ]
    return found


def text(device: Device) -> str:
    """A device as people read it."""
    rows = [
        ("start of a kernel", f"{device.launch_s * 1e6:.2f} µs"),
        ("each op in it", f"{device.step_s * 1e6:.2f} µs"),
        ("products", f"{device.flops_per_s / 1e9:.1f} Gflop/s"),
        ("other arithmetic", f"{device.map_flops_per_s / 1e9:.1f} Gflop/s"),
    ]
    for room, rate in device.bandwidths:
        size = "memory" if room == float("inf") else f"up to {room / 1024:.0f} KiB"
        rows.append((size, f"{rate / 1e9:.1f} GB/s"))
    wide = max(len(name) for name, _ in rows)
    return "\n".join([device.name, *(f"  {n:{wide}}  {v}" for n, v in rows)])
