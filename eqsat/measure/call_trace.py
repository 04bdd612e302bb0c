"""Calls as a trace that Perfetto and chrome://tracing show: ``Options(trace=path)``.

The file is a list of events in JSON, whole after each call. A call stands on the track
of its thread; what was compiled in it stands within, each phase when it happened:
tracing, the search, lowering, and within that machine code. Beneath, on tracks of their
own, stand the kernels of some calls, each run by itself once more: the first call of a
program, the second, the fourth, and so on.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from eqsat.lowered import Lowered
from eqsat.measure.counts import FAILURES, Served
from eqsat.measure.kernel_times import KernelTimes
from eqsat.support import EqsatError, LastUse, phases_inside

_KERNELS = 1 << 20
"""What is added to the number of a thread for the track of its kernels."""
_writing = threading.Lock()


def traced(
    path: str,
    name: str,
    function: Callable[..., Any],
    served: Callable[[tuple[Any, ...], dict[str, Any]], Served | None],
) -> Callable[..., Any]:
    """``function``, called ``name``, whose calls are written to the trace ``path``.
    ``served`` tells which program served a call."""
    known: dict[LastUse, _Calls] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        with phases_inside() as phases:
            result = function(*args, **kwargs)
        end = time.perf_counter()
        found = served(args, kwargs)
        if found is None:  # it became a part of another
            return result
        calls = known.get(found.low.used)
        if calls is None:
            calls = known[found.low.used] = _Calls(found.low)
        events = [_event(name, start, end - start, _thread(), "call")]
        events += [_event(*p, "compile") for p in phases]
        events += calls.kernels(found, start)
        append(path, events)
        return result

    return call


class _Calls:
    """The calls of one program."""

    def __init__(self, low: Lowered) -> None:
        self.low = low
        self.number = 0
        self.times: KernelTimes | None = None

    def kernels(self, served: Served, start: float) -> list[dict[str, Any]]:
        """The kernels, each by itself, where it is their turn."""
        self.number += 1
        if self.number & (self.number - 1):
            return []
        try:
            self.times = self.times or KernelTimes(self.low)
            sample = self.times.sample(served.arrays)
        except FAILURES:
            return []
        events, at = [], start
        for kernel, seconds in zip(self.low.program.kernels, sample, strict=True):
            about = {"bytes": kernel.bytes, "flop": kernel.flops, "kind": kernel.kind}
            track = _KERNELS + _thread()
            events.append(_event(kernel.name, at, seconds, track, "kernel", about))
            at += seconds
        return events


def _thread() -> int:
    return threading.get_native_id()


def _event(
    name: str,
    start: float,
    seconds: float,
    thread: int,
    kind: str,
    about: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A complete event; times in µs."""
    return {
        "name": name,
        "cat": kind,
        "ph": "X",
        "ts": start * 1e6,
        "dur": seconds * 1e6,
        "pid": os.getpid(),
        "tid": thread,
        "args": about or {},
    }


if sys.platform == "win32":
    import msvcrt

    _LOCKED_AT = 1 << 40
    """A byte beyond the end of any trace: locking it keeps nobody from reading."""

    @contextmanager
    def _alone(file: IO[bytes]) -> Iterator[None]:
        """While no other process writes to the file."""
        file.seek(_LOCKED_AT)
        msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        try:
            yield
        finally:
            file.flush()
            file.seek(_LOCKED_AT)
            msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    @contextmanager
    def _alone(file: IO[bytes]) -> Iterator[None]:
        """While no other process writes to the file."""
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            file.flush()
            fcntl.flock(file, fcntl.LOCK_UN)


def append(path: str, events: list[dict[str, Any]]) -> None:
    """Add events to the list in a file, which is made where it is missing. Threads and
    processes may share it. Raises :class:`EqsatError` that names a file that cannot be
    written or is no trace."""
    text = ",\n".join(json.dumps(e, allow_nan=False) for e in events)
    try:
        with _writing, open(path, "a+b") as file, _alone(file):
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 3))
            end = file.read()
            if size and end != b"}\n]":
                raise EqsatError(f"trace={path!r}: the file is not a trace of eqsat's")
            file.truncate(max(0, size - 2))
            file.seek(0, os.SEEK_END)
            file.write((",\n" if size else "[\n").encode() + text.encode() + b"\n]")
    except OSError as error:
        raise EqsatError(f"trace={path!r} cannot be written: {error}") from error
