"""The team of threads: every part of a step is done once and before the next step,
forks are survived, and nobody waits for the team or a worker that does not come."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting import Counting
from entering import PROGRAM
from memory_use import needs_proc
from natives import natively, run_in_child
from programs import program_of
from sizes import is_whole
from waiting import until

from eqsat import ops
from eqsat.backends.native.runtime import shared_runtime as runtime
from eqsat.backends.native.runtime import team
from eqsat.backends.native.runtime.team_code import IF_AWAKE
from eqsat.saved import processor
from eqsat.support.errors import OptionError
from eqsat.support.options import Options


@pytest.fixture(scope="module")
def counting() -> Counting:
    return Counting()


def test_every_part_is_done_once_before_the_next_step(counting: Counting) -> None:
    for threads in (1, 2, 3, 2, 1, 4, 7, 2, 16):
        for each in (1, 3, 8):
            assert counting.run(threads, 20, each) == threads
    assert runtime.workers() == 15
    for _ in range(300):
        assert counting.run(2, 3) == 2


def test_all_threads_come_where_there_is_work_for_them(counting: Counting) -> None:
    until(lambda: bool(counting.run(4, 20_000)) and counting.came == 4)


def test_nobody_waits_for_a_thread_that_does_not_come(counting: Counting) -> None:
    """One of four does all parts; another that comes late finds none left."""
    program = PROGRAM(counting.library.address("program"))
    state = np.zeros(5 + 12, np.int64)
    state[:2] = 20, 3
    buffers = (ctypes.c_void_p * 1)(state.ctypes.data)
    program(ctypes.addressof(buffers), 0, 4, 1 << 40)
    program(ctypes.addressof(buffers), 2, 4, 1 << 40)
    assert state[2] == 0 and (state[5:] == 20).all()
    assert counting.run(4) == 4


@needs_proc
def test_one_thread_starts_no_other() -> None:
    code = (
        "from entering import *\nfrom counting import Counting\n"
        "from eqsat.backends.native.runtime import shared_runtime as runtime\n"
        "import numpy as np, os\n"
        "f = add_relu(); x = np.ones(1000, np.float32)\n"
        "f(x, x)  # the search for a program may start threads of its own\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "c = Counting(); c.run(1); [f(x, x) for _ in range(3)]\n"
        "assert runtime.workers() == 0\n"
        "assert len(os.listdir('/proc/self/task')) == before\n"
        "c.run(3); assert runtime.workers() == 2\n"
    )
    run_in_child(code)


# How many threads come, and that one starts no other, is tested every time.
@pytest.mark.slow
def test_threads_that_make_the_first_functions_share_one_team() -> None:
    """And one pool, which counts what all of them keep."""
    run_in_child("""
import threading, numpy as np, eqsat as eq
from eqsat.backends.native.runtime import shared_runtime as runtime
load, linked = runtime.load, []
def counted(parts, names, *rest):
    linked.append(names)
    return load(parts, names, *rest)
runtime.load = counted
gate, x, good = threading.Barrier(6), np.arange(100, dtype=np.float32), []
def work(k):
    gate.wait()
    f = eq.jit(lambda x: x * k + 1)
    good.append(np.array_equal(f(x), x * np.float32(k) + 1))
threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
assert good == [True] * 6, good
assert sum("team_run" in names for names in linked) == 1, linked
""")


def test_a_fork_while_another_thread_links_does_not_wait() -> None:
    run_in_child("""
import os, signal, threading, warnings
warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
from eqsat.backends.native.runtime import shared_runtime as runtime
load, begun, end = runtime.load, threading.Event(), threading.Event()
def slow(*args):
    begun.set(); end.wait()
    return load(*args)
runtime.load = slow
linking = threading.Thread(target=runtime.runtime); linking.start()
begun.wait()
child = os.fork()
if not child:
    signal.alarm(600)
    runtime.load = load
    os._exit(0 if runtime.workers() == 0 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
end.set(); linking.join()
assert runtime.workers() == 0
""")


def test_many_threads_on_few_processors_come_to_an_end(counting: Counting) -> None:
    assert counting.run(64, 30) == 64
    assert counting.run(1000, 2) == 256  # no more than there are slots


# How many threads come to one program is tested every time.
@pytest.mark.slow
def test_short_programs_share_threads_that_are_awake(counting: Counting) -> None:
    """One on its own wakes nobody; of those that follow one another, some do."""
    asked = 2 | IF_AWAKE

    assert counting.run(1 | IF_AWAKE) == 1
    # The workers of other tests go to sleep, then those of this one.
    for wanted, pause_s in ((1, 0.05), (2, 0.0), (1, 0.05)):
        until(lambda n=wanted: counting.run(asked, 3) == n, pause_s)


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
        t.join(600)
        assert not t.is_alive()
    return results


@pytest.mark.parametrize("calls", [150, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_busy_team_is_not_waited_for(counting: Counting, calls: int) -> None:
    found = in_threads(8, lambda: [counting.run(2, 4) for _ in range(calls)])
    counts = [n for one in found for n in one]
    assert len(counts) == 8 * calls and set(counts) <= {1, 2} and 2 in counts


def test_a_program_inside_a_program_runs_alone(counting: Counting) -> None:
    inner = []

    def program(buffers: int, thread: int, threads: int, turn: int) -> None:
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
from counting import Counting
from eqsat.backends.native.runtime import shared_runtime as runtime
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
    for _ in range(3 if is_whole() else 1):
        run_in_child("from counting import *\nCounting().run(4, 100)")


@needs_proc
def test_signals_are_for_the_threads_of_python() -> None:
    run_in_child("""
import os, signal, time
from counting import Counting
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
        assert processor.quota(tmp_path / "cpu.max") == count
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert processor.quota(tmp_path / "cpu.max") is None
    assert processor.quota(tmp_path / "none") is None
    monkeypatch.setenv("EQSAT_THREADS", "5")
    assert Options().threads == 5 and Options(threads=1).threads == 1
    with pytest.raises(OptionError, match=r"threads=1\.5: expected a whole number"):
        Options(threads=1.5)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="threads=-1"):
        Options(threads=-1)


@pytest.mark.parametrize("products", ["blas", "own"])
def test_programs_follow_long_ones(products: str) -> None:
    """A long program, a table of calls, leaves the steps after it to the next one."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((200, 40)), rng.standard_normal((40, 40)) / 8
    many = rng.standard_normal((4, 50_000))

    def long(x: Any, w: Any) -> Any:
        for _ in range(20):
            x = np.tanh(x @ w)
        return x

    for _ in range(3):
        (got,) = natively(long, x, w, threads=2, products=products)
        np.testing.assert_allclose(got, long(x, w), rtol=1e-9, atol=1e-12)
        (got,) = natively(lambda x: x + 1, many, threads=2)
        np.testing.assert_array_equal(got, many + 1)
