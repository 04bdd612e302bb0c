"""A property that several threads ask for at once is computed once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from eqsat.support import cached_once, once


class Slow:
    def __init__(self) -> None:
        self.made: list[object] = []

    @once
    def value(self) -> object:
        """Takes its time."""
        self.made.append(object())
        time.sleep(0.01)
        return self.made[-1]


def test_threads_get_one_value() -> None:
    slow, seen = Slow(), []
    threads = [
        threading.Thread(target=lambda: seen.append(slow.value)) for _ in range(16)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert seen == slow.made * 16
    assert Slow.value.__doc__ == "Takes its time."


def test_a_cache_makes_one_value_for_each_argument() -> None:
    made: list[int] = []

    @cached_once
    def value(n: int) -> object:
        made.append(n)
        time.sleep(0.01)
        return object()

    seen: list[tuple[int, object]] = []
    threads = [
        threading.Thread(target=lambda n=n: seen.append((n, value(n))))
        for n in [1, 2] * 8
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(made) == [1, 2] and len(set(seen)) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    slow = Slow()
    inside, leave = threading.Event(), threading.Event()

    def function(self: Slow) -> object:
        inside.set()
        leave.wait(10)
        return object()

    other = once(function)
    other.__set_name__(Slow, "other")
    thread = threading.Thread(target=lambda: other.__get__(slow))
    thread.start()
    inside.wait(10)
    child = os.fork()
    if not child:
        leave.set()
        os._exit(0 if other.__get__(slow) is not None else 1)
    deadline = time.monotonic() + 20
    status = (0, 0)
    while status[0] == 0 and time.monotonic() < deadline:
        status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    leave.set()
    thread.join()
    assert status == (child, 0)


_COPIES = """
import os, threading
import numpy as np, eqsat as eq
from eqsat.support import bindings
eq.jit(lambda x: x + 1)(np.ones(3))
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
else:
    found, start = [], threading.Barrier(8)
    def find():
        start.wait()
        found.append(bindings())
    threads = [threading.Thread(target=find) for _ in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
    os._exit(len(set(map(id, found))) - 1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_threads_of_a_child_share_one_copy_of_the_engine() -> None:
    subprocess.run([sys.executable, "-c", _COPIES], check=True)
