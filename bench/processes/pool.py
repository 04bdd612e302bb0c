"""The parent's end of the workers: one runs, all others are stopped meanwhile.

A process for each peer keeps apart their threads, their memory and their crashes. A
stopped process cannot take time from the one that is measured, whatever its threads
spin on.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from eqsat.support.errors import EqsatError

ROOT = Path(__file__).resolve().parents[2]
Message = dict[str, Any]
LIMIT_S = 60.0
"""Seconds that one request may take."""
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "EQSAT_THREADS",
)
"""Variables that libraries read their threads from when they are imported."""


class Missing(EqsatError):
    """A peer is not installed."""


class Gone(EqsatError):
    """A worker died or took too long."""


class Worker:
    """One peer's process. Use as a context."""

    def __init__(self, peer: str, threads: int, **environ: str) -> None:
        """Start the process, with more variables in its environment; :meth:`greet`
        waits until it is ready."""
        self.peer, self.threads = peer, threads
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.processes.worker", peer, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            cwd=ROOT,
            env=environment(threads) | environ,
            bufsize=0,
        )
        confine(self.process.pid, threads)
        self.versions: dict[str, str] = {}

    def greet(self) -> None:
        """Wait for the library to be imported. Raises :class:`Missing` or
        :class:`Gone`."""
        hello = self._receive(LIMIT_S)
        if "missing" in hello:
            self.close()
            raise Missing(hello["missing"])
        self.versions = hello["versions"]
        self._signal("SIGSTOP")

    def ask(self, do: str, **what: Any) -> Message:
        """The reply to one request, for which the worker wakes up.

        Raises :class:`Gone`.
        """
        self._signal("SIGCONT")
        assert self.process.stdin is not None
        line = json.dumps({"do": do, **what}) + "\n"
        try:
            self.process.stdin.write(line.encode())
        except OSError as error:
            raise Gone(self._last_words()) from error
        reply = self._receive(LIMIT_S)
        self._signal("SIGSTOP")
        return reply

    def _receive(self, limit_s: float) -> Message:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            if not ready.select(limit_s):
                self.close()
                raise Gone(f"took more than {limit_s:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise Gone(self._last_words())
        reply: Message = json.loads(line)
        return reply

    def _last_words(self) -> str:
        code = self.process.wait()
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return f"ended with {code}: {lines[-1][:200] if lines else 'no message'}"

    def _signal(self, name: str) -> None:
        if hasattr(signal, name) and self.process.poll() is None:
            self.process.send_signal(getattr(signal, name))

    def close(self) -> None:
        """End the process."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.log):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def environment(threads: int) -> dict[str, str]:
    """The environment of a process whose libraries use so many threads. Bytecode is
    kept, as it is where packages are installed: without it each process would compile
    all modules of eqsat again, 0.4 s, and none of its peers'."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept | dict.fromkeys(THREADS, str(threads))


def confine(pid: int, threads: int) -> None:
    """Keep a process to as many CPUs as it has threads, where the system can.

    Some libraries start a thread for each CPU whatever they are told.
    """
    if hasattr(os, "sched_setaffinity"):
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(pid, cpus[-threads:])
