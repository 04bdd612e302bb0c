"""One peer in a process of its own: it builds, calls and times when it is asked to.

``python -m bench.processes.worker PEER THREADS`` reads requests and writes replies, a
line of JSON each. What libraries print goes to standard error.
:mod:`bench.processes.pool` is the other end.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers import Candidate, Peer, UnsupportedWorkload, load
from bench.workloads import leaves, named

Message = dict[str, Any]
LONG_S = 1.0
"""A rest (s) after which one call is not measured, unless calls are longer than two."""
_PR_SET_PDEATHSIG = 1


class WorkerProcess:
    """What one peer does with the requests ``load`` or ``model``,
    ``estimate``, ``time`` and ``free``."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.held: Candidate | None = None
        self.resident = 0
        self.rested = 0.0
        """When the last call ended, by the monotonic clock (s)."""
        self.each = 0.0
        """Seconds of it."""

    def load(self, workload: str, seed: int, out: str) -> Message:
        """Build a workload, call it once, and write its result to the file ``out``,
        an ``.npz``.

        ``first_s`` are the seconds from arrays in memory to the first result.
        """
        w = named(workload)
        inputs, weights = w.draw(seed)
        gc.collect()
        self.resident = _start_of_peak()
        start = time.perf_counter()
        try:
            held = self.peer.build(w, inputs, weights)
            result = held.call()
        except UnsupportedWorkload as error:
            return {"unsupported": str(error)}
        first_s = time.perf_counter() - start
        _save(Path(out), [np.asarray(held.array(a)) for a in leaves(result)])
        self.held, self.rested, self.each = held, time.monotonic(), first_s
        return {"first_s": first_s, "facts": dict(held.facts)}

    def model(self, path: str, inputs: str, out: str) -> Message:
        """Load a model of ONNX, call it once on the arrays of the file ``inputs``, and
        write its outputs to the file ``out``; both are an ``.npz``.

        ``load_s`` are the seconds from the file to a function, ``first_s`` those of its
        first call; ``cpu_s`` the processor seconds of both, of all threads.
        """
        with np.load(inputs) as arrays:
            given = {name: arrays[name] for name in arrays.files}
        peer: Any = self.peer
        start, cpu = time.perf_counter(), time.process_time()
        run = peer.model(Path(path))
        loaded = time.perf_counter()
        result = run(given)
        end, cpu = time.perf_counter(), time.process_time() - cpu
        for thread in threading.enumerate():  # they write what another process reads
            if thread.name.startswith("eqsat"):
                thread.join()
        np.savez(out, **result)
        self.held = Candidate(lambda: run(given), np.asarray)
        self.rested, self.each = time.monotonic(), end - loaded
        return {
            "load_s": loaded - start,
            "first_s": end - loaded,
            "cpu_s": cpu,
        }

    def time(self, calls: int) -> Message:
        """Seconds of ``calls`` calls, results dropped.

        Before several there are more, unmeasured, one and a quarter of them: others ran
        in between, and the caches are theirs (a third cache that virtual machines share
        has 64 MiB back only within six to eight calls). A single call has one before it
        after a long rest, during which a system may take back memory.
        """
        assert self.held is not None
        call = self.held.call
        gc.disable()
        is_cold = time.monotonic() - self.rested > LONG_S and self.each < 2 * LONG_S
        for _ in range(1 + calls // 4 if calls > 1 else is_cold):
            call()
        many = range(calls)
        start = time.perf_counter()
        for _ in many:
            call()
        total = time.perf_counter() - start
        self.rested, self.each = time.monotonic(), total / calls
        gc.enable()
        return {"total_s": total}

    def estimate(self) -> Message:
        """What the peer expects a call to take."""
        assert self.held is not None
        return dict(self.held.estimate())

    def free(self) -> Message:
        """Drop the workload; the most memory (bytes) that it took at once."""
        peak = max(_peak() - self.resident, 0)
        self.held = None
        gc.collect()
        return {"peak_bytes": peak}


def _save(path: Path, result: list[np.ndarray]) -> None:
    """Write a result, array by array; dtypes that NumPy alone does not know as
    float32."""
    known = (a if a.dtype.kind in "fiub" else a.astype(np.float32) for a in result)
    np.savez(path, *known)


def _start_of_peak() -> int:
    """Forget the peak of memory where the system can; bytes resident now."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        return _status("VmRSS") or _peak()
    except OSError:
        return _peak()


def _peak() -> int:
    """The most bytes that were resident since :func:`_start_of_peak`."""
    found = _status("VmHWM")
    if found:
        return found
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(name: str) -> int:
    """A line of Linux's account of this process (bytes); 0 elsewhere."""
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0


def _end_with_parent() -> None:
    """Ask Linux to kill this process when the parent ends: one that is stopped does
    not see that its standard input has ended."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def serve(name: str, threads: int) -> None:
    """Answer requests until standard input ends."""
    if sys.platform == "linux":
        _end_with_parent()
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def reply(message: Message) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    try:
        peer = load(name, threads)
    except ImportError as error:
        return reply({"missing": str(error)})
    worker = WorkerProcess(peer)
    gc.freeze()  # the libraries' own objects: 0.1 s for each collection
    reply({"versions": dict(peer.versions), "pid": os.getpid()})
    for line in sys.stdin:
        request = json.loads(line)
        do = getattr(worker, request.pop("do"))
        try:
            reply(do(**request))
        except Exception as error:  # whatever a library raises is its result
            first = (str(error).splitlines() or [""])[0][:200]
            reply({"failed": f"{type(error).__name__}: {first}"})


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
