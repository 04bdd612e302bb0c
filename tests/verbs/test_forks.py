"""A child of a fork starts clean, whatever other threads of its parent do; and one
compile does not wait for another."""

from __future__ import annotations

import ast
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from natives import run_in_child

import eqsat as eq
from eqsat.support import ForkLock

ROOT = Path(__file__).resolve().parents[2]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

_START = """
import faulthandler, os, sys, threading, time, warnings
os.environ["EQSAT_CACHE"] = "0"
warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
import numpy as np, eqsat as eq
x = np.linspace(0.1, 1, 1000, dtype=np.float32)

def good(k):
    f = eq.jit(lambda x: np.tanh(x) * k + np.exp(x).sum())
    fine = np.allclose(f(x), np.tanh(x) * k + np.exp(x).sum(), rtol=1e-4)
    return fine and np.allclose((eq.array(x) * k + 1).eval(), x * k + 1, rtol=1e-5)

def forked(check):
    child = os.fork()
    if not child:
        faulthandler.dump_traceback_later(120, exit=True)  # it hangs
        os._exit(0 if check() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

inside, leave = threading.Event(), threading.Event()

def beside(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert inside.wait(240)
    return thread
"""

_MANY = """
shared = eq.jit(lambda x, n: np.exp(x) * n)
def both(k):
    return good(k) and np.allclose(shared(x, k), np.exp(x) * k, rtol=1e-5)
stop, failed = threading.Event(), []
def work(k):
    while not stop.is_set():
        if not both(k):
            failed.append(k)
        k += 10
busy = [threading.Thread(target=work, args=(float(i),)) for i in range(3)]
for t in busy: t.start()
try:
    for turn in range(TURNS):
        time.sleep(0.001 + 0.03 * (turn % 7))
        forked(lambda: both(1e6 + turn) and both(7.0))
finally:
    stop.set()
for t in busy: t.join()
assert failed == [] and both(5.5)
"""

_WAITED_FOR = {
    "LLVM": """
from llvmlite.binding import ffi
assert good(1.0)
def work():
    with ffi.lib._lock:
        inside.set(); time.sleep(0.3)
beside(work)
forked(lambda: good(2.0))
""",
    "an import": """
from importlib.machinery import PathFinder
class Slow:
    def find_spec(self, name, path, target=None):
        if name == "eqsat.backends.native.program_writer" and not inside.is_set():
            spec = PathFinder.find_spec(name, path)
            run = spec.loader.exec_module
            def slow(module):
                inside.set(); time.sleep(0.3); run(module)
            spec.loader.exec_module = slow
            return spec
sys.meta_path.insert(0, Slow())
beside(lambda: good(1.0))
forked(lambda: good(2.0))
""",
}
"""What the fork waits for: it comes to an end by itself."""

_LEFT_BEHIND = {
    "the same call": """
def wait(x):
    inside.set()
    if os.getpid() == parent: leave.wait(240)
    return x + 1
parent, fn = os.getpid(), eq.jit(wait)
thread = beside(lambda: fn(x))
forked(lambda: np.array_equal(fn(x), x + 1) and good(2.0))
""",
    "lazy arrays": """
from eqsat import lazy
def work():
    with lazy.programs.LOCK():
        inside.set(); leave.wait(240)
thread = beside(work)
forked(lambda: good(2.0))
""",
    "an import that does not end": """
import builtins, importlib, tempfile
from pathlib import Path
folder = tempfile.mkdtemp()
Path(folder, "endless.py").write_text("import builtins; builtins.wait()")
sys.path.insert(0, folder)
builtins.wait = lambda: inside.set() or leave.wait(240)
thread = beside(lambda: importlib.import_module("endless"))
forked(lambda: good(2.0))
""",
}
"""What another thread holds for as long as it likes."""


# Some lock is held across a fork every time, and the child compiles.
@pytest.mark.slow
@needs_fork
@pytest.mark.parametrize("turns", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_children_compile_while_threads_of_the_parent_do(turns: int) -> None:
    run_in_child(_START + _MANY.replace("TURNS", str(turns)))


@pytest.mark.sampled(2)
@needs_fork
@pytest.mark.parametrize("what", _WAITED_FOR)
def test_a_fork_waits_for(what: str) -> None:
    run_in_child(_START + _WAITED_FOR[what])


@pytest.mark.sampled(3)
@needs_fork
@pytest.mark.parametrize("what", _LEFT_BEHIND)
def test_a_child_does_not_wait_for(what: str) -> None:
    run_in_child(_START + _LEFT_BEHIND[what] + "\nleave.set(); thread.join()")


@needs_fork
def test_a_child_that_was_forked_inside_of_a_lock_leaves_it() -> None:
    lock = ForkLock()
    with lock():
        child = os.fork()
        if not child:
            with lock():
                pass
    if not child:
        with lock():
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def at_most(seconds: float, event: threading.Event) -> None:
    assert event.wait(seconds)


def test_a_compile_does_not_wait_for_another_of_the_same_function() -> None:
    inside, leave, results = threading.Event(), threading.Event(), []

    def slow(x: Any) -> Any:
        if x.shape == (2,):
            inside.set()
            at_most(240, leave)
        return x + 1

    fn = eq.jit(slow)
    thread = threading.Thread(target=lambda: results.append(fn(np.ones(2))))
    thread.start()
    try:
        at_most(240, inside)
        assert fn(np.ones(3)).tolist() == [2, 2, 2]
        assert thread.is_alive()
    finally:
        leave.set()
        thread.join()
    assert results[0].tolist() == [2, 2]


def test_threads_that_call_alike_compile_once() -> None:
    """Also with a read-only array, which is a constant until there are many."""
    runs = []
    weight = np.arange(4.0)
    weight.setflags(write=False)

    def fn(x: Any, w: Any) -> Any:
        runs.append(1)
        return x @ w

    jitted, start, got = eq.jit(fn), threading.Barrier(8), []

    def work() -> None:
        start.wait()
        got.append(float(jitted(np.ones(4), weight)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == [6.0] * 8 and len(runs) == 1


def _imported(folder: str) -> Iterator[str]:
    """Files that import ``functools.cached_property``, or ask it of the module."""
    for file in (ROOT / folder).rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "cached_property" in text else ():
            found = isinstance(node, ast.Attribute) and node.attr == "cached_property"
            if isinstance(node, ast.ImportFrom) and node.module == "functools":
                found = any(a.name == "cached_property" for a in node.names)
            if found:
                yield file.relative_to(ROOT).as_posix()


def test_no_property_has_one_lock_for_all_objects() -> None:
    """That of Python 3.11 has: ``eqsat.support.cached_property`` has none."""
    seen = [file for folder in ("eqsat", "backends") for file in _imported(folder)]
    assert seen == ["eqsat/support/pytree.py"]  # which knows those of the user
