"""The team of threads: it runs a program once per thread, waits at barriers, survives
forks, and is never waited for."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from entering import PROGRAM, loaded
from natives import run_in_child
from programs import program_of

from eqsat import ops
from eqsat.backends.native import runtime, team
from eqsat.backends.native.team_code import IF_AWAKE
from eqsat.errors import OptionError
from eqsat.options import Options

COUNTING = """
declare void @barrier_wait(ptr, i64, i64)
; buffers[0]: i64 [rounds], i64 [sum], i64 [threads], then one i64 for each thread. In
; every round each thread adds 1 to its own number, and checks that all others have.
define void @program(ptr %buffers, i64 %thread, i64 %threads, ptr %barrier) {
  %state = load ptr, ptr %buffers
  %rounds = load i64, ptr %state
  %bad = getelementptr i64, ptr %state, i64 1
  %seen = getelementptr i64, ptr %state, i64 2
  %numbers = getelementptr i64, ptr %state, i64 3
  %mine = getelementptr i64, ptr %numbers, i64 %thread
  store i64 %threads, ptr %seen
  %many = icmp ugt i64 %threads, 1
  br label %round
round:
  %i = phi i64 [0, %0], [%i1, %after]
  %i1 = add i64 %i, 1
  store i64 %i1, ptr %mine
  br i1 %many, label %sync, label %look
sync:
  call void @barrier_wait(ptr %barrier, i64 %thread, i64 %threads)
  br label %look
look:
  %t = phi i64 [0, %round], [0, %sync], [%t1, %look]
  %p = getelementptr i64, ptr %numbers, i64 %t
  %v = load i64, ptr %p
  %wrong = icmp ne i64 %v, %i1
  %one = zext i1 %wrong to i64
  %was = atomicrmw add ptr %bad, i64 %one seq_cst
  %t1 = add i64 %t, 1
  %all = icmp eq i64 %t1, %threads
  br i1 %all, label %again, label %look
again:
  br i1 %many, label %sync2, label %after
sync2:
  call void @barrier_wait(ptr %barrier, i64 %thread, i64 %threads)
  br label %after
after:
  %done = icmp eq i64 %i1, %rounds
  br i1 %done, label %end, label %round
end:
  ret void
}
"""


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Counting:
    """The program above, and what it found."""

    def __init__(self) -> None:
        self.library = loaded(COUNTING)
        kind = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
        )  # gives the lock of Python away, as the entry does
        self.team_run = kind(runtime.runtime().address("team_run"))

    def run(self, threads: int, rounds: int = 20) -> int:
        """How many threads ran it; fails when one saw another behind."""
        state = np.zeros(3 + 300, np.int64)
        state[0] = rounds
        buffers = (ctypes.c_void_p * 1)(state.ctypes.data)
        self.team_run(self.library.address("program"), buffers, threads)
        assert state[1] == 0 and (state[3 : 3 + state[2]] == rounds).all()
        assert (state[3 + state[2] :] == 0).all()
        return int(state[2])


@pytest.fixture(scope="module")
def counting() -> Counting:
    return Counting()


def test_every_thread_takes_part_and_waits_at_barriers(counting: Counting) -> None:
    for threads in (1, 2, 3, 2, 1, 4, 7, 2, 16):
        assert counting.run(threads) == threads
    assert runtime.workers() == 15
    for _ in range(300):
        assert counting.run(2, 3) == 2


@needs_proc
def test_one_thread_starts_no_other() -> None:
    code = (
        "from entering import *\nfrom test_native_team import Counting\n"
        "from eqsat.backends.native import runtime\nimport numpy as np, os\n"
        "f = add_relu(); x = np.ones(1000, np.float32)\n"
        "f(x, x)  # the search for a program may start threads of its own\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "c = Counting(); c.run(1); [f(x, x) for _ in range(3)]\n"
        "assert runtime.workers() == 0\n"
        "assert len(os.listdir('/proc/self/task')) == before\n"
        "c.run(3); assert runtime.workers() == 2\n"
    )
    run_in_child(code)


def test_many_threads_on_few_processors_come_to_an_end(counting: Counting) -> None:
    assert counting.run(64, 30) == 64
    assert counting.run(1000, 2) == 256  # no more than there are slots


def test_short_programs_share_threads_that_are_awake(counting: Counting) -> None:
    """One on its own wakes nobody; of those that follow one another, some do."""
    asked = 2 | IF_AWAKE

    def until(wanted: int, pause_s: float) -> bool:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if counting.run(asked, 3) == wanted:
                return True
            time.sleep(pause_s)
        return False

    assert counting.run(1 | IF_AWAKE) == 1
    assert until(1, 0.05)  # the workers of other tests go to sleep
    assert until(2, 0.0)
    assert until(1, 0.05)


def test_how_many_threads_work_is_worth() -> None:
    assert team.asked(1, 1.0) == 1 and team.asked(4, 1e-6) == 1
    assert team.asked(4, 5e-5) == 4 | IF_AWAKE and team.asked(4, 1e-3) == 4

    def is_worth_it(*shape: int) -> bool:
        x = np.zeros(shape, np.float32)
        return team.is_worth_sharing(program_of(lambda v: ops.sum(v + v), x), 16)

    assert not is_worth_it(1000) and is_worth_it(1000, 1000)


def in_threads(count: int, work: Callable[[], Any]) -> list[Any]:
    """Results of ``work`` in so many threads of Python at once."""
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda: results.append(work())) for _ in range(count)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive()
    return results


@pytest.mark.parametrize("calls", [150, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_busy_team_is_not_waited_for(counting: Counting, calls: int) -> None:
    found = in_threads(8, lambda: [counting.run(2, 4) for _ in range(calls)])
    counts = [n for one in found for n in one]
    assert len(counts) == 8 * calls and set(counts) <= {1, 2} and 2 in counts


def test_a_program_inside_a_program_runs_alone(counting: Counting) -> None:
    inner = []

    def program(buffers: int, thread: int, threads: int, barrier: int) -> None:
        if thread == 0:
            inner.append(counting.run(2))

    function = PROGRAM(program)
    counting.team_run(ctypes.cast(function, ctypes.c_void_p), None, 2)
    assert inner == [1] and counting.run(2) == 2


def test_a_fork_starts_with_no_workers(counting: Counting) -> None:
    """Whether the team slept, or ran a program at that moment."""
    code = """
import os, sys, threading, time, warnings
warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
from test_native_team import Counting
from eqsat.backends.native import runtime
c = Counting()
c.run(3)
stop = threading.Event()
def work():
    while not stop.is_set():
        c.run(2, 2000)
busy = threading.Thread(target=work); busy.start()
for _ in range(10):
    time.sleep(0.003)
    child = os.fork()
    if not child:
        good = runtime.workers() == 0 and c.run(3) == 3 and runtime.workers() == 2
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
stop.set(); busy.join()
assert c.run(3) == 3
"""
    run_in_child(code)


def test_the_process_ends_with_workers_about() -> None:
    for _ in range(3):
        run_in_child("from test_native_team import *\nCounting().run(4, 100)")


@needs_proc
def test_signals_are_for_the_threads_of_python() -> None:
    run_in_child("""
import os, signal, time
from test_native_team import Counting
before = set(os.listdir("/proc/self/task"))
c = Counting(); c.run(4)
after = set(os.listdir("/proc/self/task"))
assert len(after - before) == 3
for task in after:
    status = open(f"/proc/self/task/{task}/status").read()
    blocked = int(status.split("SigBlk:")[1].split()[0], 16)
    assert bool(blocked & 1 << signal.SIGINT - 1) == (task not in before), task
""")


def test_how_many_threads_an_option_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert team.thread_limit(3) == 3 and team.thread_limit(10**6) == 256
    assert 1 <= team.thread_limit() <= (os.cpu_count() or 1)
    for text, count in (
        ("150000 100000", 1),
        ("800000 100000", 8),
        ("50000 100000", 1),
    ):
        (tmp_path / "cpu.max").write_text(text)
        assert team._quota(tmp_path / "cpu.max") == count
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert team._quota(tmp_path / "cpu.max") is None
    assert team._quota(tmp_path / "none") is None
    monkeypatch.setenv("EQSAT_THREADS", "5")
    assert Options().threads == 5 and Options(threads=1).threads == 1
    with pytest.raises(OptionError, match=r"threads=1\.5: expected a whole number"):
        Options(threads=1.5)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="threads=-1"):
        Options(threads=-1)
