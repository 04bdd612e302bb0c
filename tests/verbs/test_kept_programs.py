"""How many programs all functions keep: EQSAT_MAX_PROGRAMS."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from memory_use import needs_proc
from natives import run_in_child
from sizes import some

import eqsat as eq
from eqsat import kept_programs


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(  # without those of other tests
        kept_programs, "_kept", weakref.WeakKeyDictionary()
    )
    monkeypatch.setenv("EQSAT_MAX_PROGRAMS", "3")


def compiles(said: str) -> int:
    return said.count("eqsat: compiled")


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_programs_of_all_functions_make_room(backend: str) -> None:
    def doubled(k: int) -> Any:
        return eq.jit(lambda x: x * k + x.sum(), backend=backend)

    functions = [doubled(k) for k in range(5)]
    for _ in range(2):
        for n in some((1, 2, 5), 2):
            for k, f in enumerate(functions):
                x = np.arange(n, dtype=float)
                for _ in range(3):
                    np.testing.assert_array_equal(f(x), x * k + x.sum())
                    assert kept_programs.count() <= 3
                    assert sum(len(f._lowered) for f in functions) <= 3


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_what_was_called_longest_ago_goes_first(
    backend: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A call that machine code serves counts as a call."""
    monkeypatch.setenv("EQSAT_LOG", "compiles")
    one, two = (eq.jit(lambda x, k=k: x * k, backend=backend) for k in (2, 3))
    often, seldom = np.ones(1), np.ones(2)
    for x in (often, seldom, often, seldom):
        one(x)
    for n in range(3, 9):
        two(np.ones(n))
        one(often)
        one(often)
    assert compiles(capsys.readouterr().err) == 8
    one(often)
    assert compiles(capsys.readouterr().err) == 0
    one(seldom)
    said = capsys.readouterr().err
    assert compiles(said) == 1 and said.endswith("the program was not kept\n")


def test_machine_code_goes_with_the_program() -> None:
    f = eq.jit(lambda x: np.tanh(x) * 2)
    gone = []
    for n in range(1, 8):
        x = np.ones(n)
        f(x), f(x)
        low = f.lower(x)
        gone.append(weakref.ref(low.executable.first.parts[0].library))
        del low
    gc.collect()
    assert [ref() is None for ref in gone] == [True] * 4 + [False] * 3
    assert len(f._entry) == 3


def test_a_program_that_runs_is_not_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads drop it meanwhile; machine code leaves Python to them."""
    monkeypatch.setenv("EQSAT_MAX_PROGRAMS", "1")
    long = eq.jit(lambda x: np.sort(np.exp(np.sin(x))))
    x = np.random.default_rng(0).random(1 << 20)
    want, wrong, over = long(x), [], threading.Event()

    def call() -> None:
        while not over.is_set():
            if not np.array_equal(long(x), want):
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for t in threads:
        t.start()
    other = eq.jit(lambda x: x + 1)
    try:
        for n in range(1, 12):
            assert (other(np.zeros(n)) == 1).all()
    finally:
        over.set()
        for t in threads:
            t.join()
    assert not wrong and kept_programs.count() <= 1


def test_threads_of_many_functions_keep_the_bound() -> None:
    wrong = []

    def work(k: int) -> None:
        f = eq.jit(lambda x: x * k + 1)
        for turn in range(12):
            x = np.arange(1.0 + turn % 4)
            if not np.array_equal(f(x), x * k + 1):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and kept_programs.count() <= 3


def test_functions_that_are_dropped_make_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = eq.jit(lambda x: x * 7)
    kept(np.ones(2))
    for k in range(6):
        eq.jit(lambda x, k=k: x + k)(np.ones(2))
        gc.collect()
    assert kept_programs.count() == 1
    monkeypatch.setenv("EQSAT_LOG", "compiles")
    kept(np.ones(2))
    assert compiles(capsys.readouterr().err) == 0


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", ""])
def test_a_bound_that_is_none_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_MAX_PROGRAMS", text)
    with pytest.raises(eq.OptionError, match="EQSAT_MAX_PROGRAMS="):
        eq.jit(lambda x: x + 1)(np.ones(3))


_FLAT = """
import gc, os, warnings
os.environ.update(EQSAT_MAX_PROGRAMS="8", EQSAT_CACHE="0")
warnings.simplefilter("ignore")
import numpy as np, eqsat as eq
from eqsat import kept_programs
from memory_use import resident
f = eq.jit(lambda x: np.tanh(x) * 2 + x.sum())
def turn(first, last):
    for n in range(first, last):
        x = np.ones(n % 400 + 1)
        assert np.allclose(f(x), np.tanh(x) * 2 + x.sum())
    gc.collect()
    assert kept_programs.count() <= 8
    return resident()
before = turn(0, 150)
grown = turn(150, 550) - before
assert grown < 8 << 20, f"{grown / 2**20:.1f} MiB"
"""


@needs_proc
@pytest.mark.slow
def test_many_shapes_under_a_bound_hold_nothing() -> None:
    run_in_child(_FLAT)
