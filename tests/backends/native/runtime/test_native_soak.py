"""Many calls of machine code: memory stays flat, threads and children of a fork agree.

Short versions run always, the long ones with ``-m slow``.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from memory_use import needs_proc, resident
from natives import run_in_child

import eqsat as eq
from eqsat.backends.native.runtime import result_pool
from eqsat.backends.native.runtime.entry import MOST_VARIANTS
from eqsat.backends.native.runtime.shared_runtime import is_available

pytestmark = [
    pytest.mark.skipif(not is_available(), reason="objects lie otherwise"),
    needs_proc,
]
Function = Callable[..., Any]


def relu(x: Any, y: Any) -> Any:
    return np.maximum(x + y, 0)


def normed(x: Any, y: Any) -> Any:
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5), y.sum(0)


def product(x: Any, y: Any) -> Any:
    return np.tanh(x @ y.T + 1)


def soft(x: Any, y: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return {"p": e / e.sum(-1, keepdims=True), "y": y * 2}


FUNCTIONS: list[Function] = [relu, normed, product, soft]


def exact(f: Function, x: Any) -> Any:
    """``f(x, x)`` in float64."""
    wide = x.astype(np.float64)
    return f(wide, wide)


def agrees(got: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return all(agrees(got[k], wanted[k]) for k in wanted)
    if isinstance(wanted, tuple):
        return all(map(agrees, got, wanted))
    return bool(np.allclose(got, wanted, rtol=1e-4, atol=1e-4))


def arrays(count: int) -> list[Any]:
    """Small ones, and a few whose results come from the pool."""
    draw = np.random.default_rng(0)
    shapes = [(1 + n % 7, 1 + 3 * n) for n in range(count)]
    shapes[::10] = [(40 + n, 900 + n) for n in range(len(shapes[::10]))]
    return [draw.standard_normal(s, dtype=np.float32) for s in shapes]


# What dropped libraries leave is counted in test_native_machine.py every time.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::eqsat.RecompileWarning")  # for that many shapes
@pytest.mark.parametrize(
    "calls, shapes",
    [
        (5_000, 6),
        pytest.param(20_000, 12, marks=pytest.mark.slow),
        pytest.param(2_000, MOST_VARIANTS + 6, marks=pytest.mark.slow),
        pytest.param(1_000_000, 40, marks=pytest.mark.slow),
        pytest.param(30_000, MOST_VARIANTS + 20, marks=pytest.mark.slow),
    ],
)
def test_memory_is_flat_over_changing_shapes(calls: int, shapes: int) -> None:
    given = arrays(shapes)
    functions = FUNCTIONS if shapes <= MOST_VARIANTS else FUNCTIONS[:1]
    fast = [eq.jit(f) for f in functions]

    def run(n: int) -> None:
        held: list[Any] = [None] * 8
        for i in range(n):
            x = given[i % shapes]
            held[i % 8] = fast[i // shapes % len(fast)](x, x)

    for f, g in zip(fast, functions, strict=True):
        assert all(agrees(f(x, x), exact(g, x)) for x in given)
    run(8 * shapes)
    gc.collect()
    result_pool.release()
    before = resident()
    run(calls)
    gc.collect()
    result_pool.release()
    assert resident() - before < 3 * 2**20


def at_once(work: Callable[[int], None], count: int) -> None:
    """``work(i)`` on ``count`` threads; raises what one of them raised."""
    errors: list[BaseException] = []

    def guarded(i: int) -> None:
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(600)
    assert not any(t.is_alive() for t in threads), "some thread never ended"
    if errors:
        raise errors[0]


# test_native_entry.py calls one function and many from threads every time.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*shapes of:eqsat.RecompileWarning")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("turns", [15, pytest.param(3000, marks=pytest.mark.slow)])
def test_threads_call_one_function_and_eight(turns: int, threads: int) -> None:
    options = eq.Options(threads=threads)
    one = eq.jit(relu, options=options)
    many = [eq.jit(lambda x, y, f=f: f(x, y), options=options) for f in FUNCTIONS * 2]
    small = [a for a in arrays(12)[1:] if a.size < 1000]
    shared = [*small, arrays(1)[0].repeat(5, 0)]
    wanted = [[exact(f, x) for x in shared] for f in FUNCTIONS]

    def work(k: int) -> None:
        for turn in range(turns):
            i = (turn + k) % len(shared)
            x = shared[i]
            assert agrees(one(x, x), wanted[0][i])
            assert agrees(many[k](x, x), wanted[k % 4][i])

    at_once(work, 8)


_FORKS = """
import os, sys, threading, warnings
import numpy as np, eqsat as eq
warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
def f(x): return np.tanh(x) * 2 + x.sum(-1, keepdims=True)
fast = eq.jit(f, options=eq.Options(threads=3))
x = np.linspace(-1, 1, 400_000, dtype=np.float32).reshape(400, 1000)
wanted = f(x)
good = lambda: np.allclose(fast(x), wanted, rtol=1e-4, atol=1e-3)
assert good() and good()
stop = threading.Event()
def work():
    while not stop.is_set():
        fast(x)
busy = [threading.Thread(target=work) for _ in range(2)]
for t in busy: t.start()
for turn in range(TURNS):
    held = fast(x)
    child = os.fork()
    if not child:
        fine = good() and np.array_equal(held, fast(x))
        other = eq.jit(lambda x: np.exp(x) + turn)
        fine &= np.allclose(other(x), np.exp(x) + turn, rtol=1e-5)
        os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, turn
    assert good()
stop.set()
for t in busy: t.join()
assert good()
"""


_SEARCHES = """
import os, warnings
import numpy as np, eqsat as eq
warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
os.environ["EQSAT_CACHE"] = "0"
x = np.linspace(-1, 1, 1000, dtype=np.float32)
def good(k):
    f = eq.jit(lambda x: np.exp(x) * 2 + k)
    return np.allclose(f(x), np.exp(x) * 2 + k, rtol=1e-5)
assert good(0)
def forked(depth):
    child = os.fork()
    if not child:
        fine = good(depth) and good(depth + 1)
        if depth < 3:
            forked(depth + 1)
        os._exit(0 if fine and good(depth + 2) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert good(depth + 7)
forked(1)
forked(2)
"""


# verbs/test_forks.py searches in children every time.
@pytest.mark.slow
def test_children_of_a_process_that_has_searched_search() -> None:
    """Their parent's engine waits for threads that a child does not have."""
    assert run_in_child(_SEARCHES) == ""


# verbs/test_forks.py compiles in children every time.
@pytest.mark.slow
@pytest.mark.parametrize("turns", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_children_of_a_fork_call_and_compile(turns: int) -> None:
    assert run_in_child(_FORKS.replace("TURNS", str(turns))) == ""
