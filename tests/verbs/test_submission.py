"""``fn.submit``: futures of results and errors, no more threads at work than allowed,
forks and the end of the interpreter."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from concurrent.futures import Future, wait
from typing import Any

import numpy as np
import pytest
from counting import Counting
from entering import PROGRAM
from natives import run_in_child

import eqsat as eq
from eqsat import submission
from eqsat.backends.native.runtime.shared_runtime import run_alone
from eqsat.submission import WorkerTeam, submitted

X = np.linspace(0.1, 0.9, 1000, dtype=np.float32)
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


class AtWork:
    """A program of the team that counts the threads that are in it."""

    def __init__(self) -> None:
        self.counting = Counting()
        self._lock = threading.Lock()
        self.now = self.most = self.widest = 0
        self._code = PROGRAM(self._program)

    def _program(self, buffers: int, thread: int, threads: int, turn: int) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.widest = max(self.widest, threads)
        time.sleep(0.002)
        with self._lock:
            self.now -= 1

    def run(self, threads: int) -> None:
        self.counting.team_run(ctypes.cast(self._code, ctypes.c_void_p), None, threads)


@eq.jit
def scaled(x: Any, k: Any = 1.0) -> Any:
    return np.tanh(x) * k


def test_futures_hold_what_calls_return() -> None:
    futures = [scaled.submit(X, k=float(k % 3)) for k in range(12)]
    assert all(isinstance(f, Future) for f in futures)
    for k, future in enumerate(futures):
        assert np.array_equal(future.result(600), scaled(X, float(k % 3)))


def test_errors_come_through_the_future() -> None:
    future = scaled.submit("no array")
    with pytest.raises(TypeError, match="tanh"):
        future.result(600)
    with pytest.raises(TypeError, match="missing"):
        scaled.submit().result(600)  # type: ignore[call-arg]

    @eq.jit
    def picked(x: Any, i: Any) -> Any:
        return x[i]

    with pytest.raises(IndexError, match="out of bounds"):
        picked.submit(X, np.array([5000])).result(600)
    assert picked.submit(X, np.array([5])).result(600) == X[5]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_no_more_threads_are_at_work_than_the_team_has(threads: int) -> None:
    at_work = AtWork()
    team = WorkerTeam(threads, run_alone)
    for _ in range(3):
        futures = [submitted(team, at_work.run, (threads,), {}) for _ in range(10)]
        for f in futures:
            f.result(600)
    assert at_work.most == threads


def test_the_smallest_team_bounds_all() -> None:
    at_work = AtWork()
    teams = [WorkerTeam(n, run_alone) for n in (4, 1, 4, 4, 1, 4)]
    futures = [submitted(t, at_work.run, (t.threads,), {}) for t in teams]
    wait(futures, 600)
    assert at_work.most <= 4

    alone = AtWork()
    wait([submitted(t, alone.run, (1,), {}) for t in (teams[1], *teams[1:3])], 600)
    assert alone.most <= 2


def test_a_call_that_is_alone_has_the_team() -> None:
    at_work = AtWork()
    submitted(WorkerTeam(3, run_alone), at_work.run, (3,), {}).result(600)
    assert at_work.widest == 3


def test_several_calls_overlap() -> None:
    """Two that wait for each other come to an end; a first one holds the team."""
    gate = threading.Barrier(2)
    team = WorkerTeam(2, run_alone)
    first = submitted(team, time.sleep, (0.05,), {})
    futures = [submitted(team, gate.wait, (60,), {}) for _ in range(2)]
    assert sorted(f.result(600) for f in futures) == [0, 1] and first.done()


def test_programs_have_the_team_again_afterwards() -> None:
    at_work = AtWork()
    wait(
        [submitted(WorkerTeam(2, run_alone), time.sleep, (0.01,), {}) for _ in range(6)]
    )
    deadline = time.monotonic() + 60
    while submission._queue[0]._at_work and time.monotonic() < deadline:
        time.sleep(0.001)
    at_work.run(2)
    assert at_work.widest == 2


def test_calls_that_wait_can_be_cancelled() -> None:
    leave = threading.Event()
    team = WorkerTeam(1, None)
    first = submitted(team, leave.wait, (60,), {})
    second, third = (submitted(team, list, ((1,),), {}) for _ in range(2))
    assert second.cancel() and not first.done()
    leave.set()
    assert third.result(600) == [1] and second.cancelled()


def test_callbacks_may_submit_and_wait() -> None:
    team, found = WorkerTeam(1, None), []

    def more(done: Future[Any]) -> None:
        found.append(submitted(team, list, ((2,),), {}).result(60))

    leave = threading.Event()
    future = submitted(team, leave.wait, (60,), {})
    future.add_done_callback(more)
    leave.set()
    deadline = time.monotonic() + 60
    while not found and time.monotonic() < deadline:
        time.sleep(0.001)
    assert found == [[2]]


@pytest.mark.filterwarnings("ignore:.*np.geterr:eqsat.StaleWarning")
def test_options_and_errstate_are_those_around_submit() -> None:
    seen = []

    @eq.jit
    def f(x: Any) -> Any:
        seen.append(np.geterr()["over"])
        return x * 0.1 * 0.3

    with eq.options(backend="numpy"), np.errstate(over="ignore"):
        f.submit(X).result(600)
        assert f.lower(X).backend.name == "numpy"
    f.submit(X).result(600)
    assert len(seen) == 2 and seen[0] == "ignore"


def test_a_function_that_writes_its_argument() -> None:
    @eq.jit
    def add(x: Any) -> Any:
        x += 1
        return x.sum()

    x = np.zeros(100)
    assert add.submit(x).result(600) == 100 and (x == 1).all()


def test_inside_of_a_traced_function_it_is_refused() -> None:
    @eq.jit
    def outer(x: Any) -> Any:
        return scaled.submit(x).result()

    with pytest.raises(eq.TraceError, match=r"scaled\.submit\(\.\.\.\) inside of a"):
        outer(X)


def test_arrays_of_mlx_are_refused() -> None:
    mx = pytest.importorskip("mlx.core")
    with pytest.raises(eq.BackendError, match="arrays of MLX"):
        scaled.submit(mx.ones(3)).result(600)
    assert scaled.submit(X).result(600).shape == X.shape


_START = """
import os, signal, threading, time, warnings
warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
import numpy as np, eqsat as eq
x = np.linspace(0.1, 1, 300_000, dtype=np.float32)
f = eq.jit(lambda x: np.tanh(x) + x.sum())
f(x)
"""


def test_the_end_of_the_interpreter_waits_for_all_calls() -> None:
    run_in_child(
        _START
        + """
told = []
futures = [f.submit(x) for _ in range(30)]
import atexit
atexit.register(lambda: [f.result(0) for f in futures])
"""
    )


@needs_fork
def test_in_a_child_of_a_fork_the_calls_of_its_parent_are_lost() -> None:
    run_in_child(
        _START
        + """
from eqsat.submission import WorkerTeam, submitted
for _ in range(10):
    held = submitted(WorkerTeam(2, None), time.sleep, (0.05,), {})
    futures = [f.submit(x) for _ in range(5)]
    child = os.fork()
    if not child:
        signal.alarm(120)
        try:
            futures[-1].result(60)
        except eq.EqsatError as error:
            lost = "before the fork" in str(error)
        again = [f.submit(x) for _ in range(5)]
        good = lost and all(np.array_equal(a.result(60), f(x)) for a in again)
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(np.array_equal(a.result(60), f(x)) for a in futures)
"""
    )


def test_submitted_calls_run_their_programs_alone() -> None:
    """``run_alone`` counts, and is taken back."""
    counting = Counting()
    run_alone(2)
    try:
        assert counting.run(3) == 1
        run_alone(-1)
        assert counting.run(3) == 1
    finally:
        run_alone(-1)
    assert counting.run(3) == 3
