"""Each option has its effect by ``jit(options=)``, by ``with eq.options(...)`` and by
its variable; which of them is the strongest, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import importlib
import io
import json
import os
import pickle
import re
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner, Result

import eqsat as eq
from eqsat.backends.native.machine import host, processor
from eqsat.command.cli import main
from eqsat.kept_programs import most
from eqsat.kernels.calibrate import keep, measured
from eqsat.kernels.cost_model import CPU
from eqsat.search import optimise as searching
from eqsat.support import CONTEXTS, device_file, disk_cache, verifying
from eqsat.support.option_table import (
    OF_FUNCTION,
    OF_PROCESS,
    TABLE,
    Option,
    warn_of_unknown_variables,
)

jitting = importlib.import_module("eqsat.jit")
ROOT = Path(__file__).resolve().parents[2]
X = np.linspace(0.1, 0.9, 12, dtype=np.float32)
LARGE = np.ones((512, 512), np.float32)
Jit = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for option in TABLE.values():
        monkeypatch.delenv(option.variable, raising=False)
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("EQSAT_DEADLINE_S", "3600")
    verifying.cache_clear()
    yield
    verifying.cache_clear()  # later tests are verified


# -- effects of the options of a function ----------------------------------------------


def written_trace(jit: Jit) -> bool:
    with contextlib.chdir(tempfile.mkdtemp()):
        jit(lambda x: x * 2)(X)
        return os.path.exists("calls.json")


def halves(x: Any) -> Any:
    return (x * 0.1) * 0.3 + np.sqrt(x)


def kernels(jit: Jit, f: Any = halves, x: Any = X) -> int:
    return len(jit(f).lower(x).program.kernels)


def in_halves(jit: Jit) -> int:
    """Kernels of float16, which ``exact`` rounds after each operation."""
    return kernels(jit, x=X.astype(np.float16))


def said(jit: Jit) -> list[str]:
    """The warnings of a compile."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        jit(lambda x, w: np.maximum(x @ w + 1, 0)).lower(LARGE, LARGE)
    return [re.sub(r"[\d.e-]+", "0", str(w.message)) for w in found]


def empty_cache() -> Path:
    """The folder of the cache, with nothing in it."""
    folder = disk_cache.base_folder() / "compiled"
    for path in folder.glob("*"):
        path.unlink()
    return folder


def is_optimal(jit: Jit) -> bool:
    """Whether the search is asked for the best program of its e-graph."""
    asked = []
    module = sys.modules[searching.__module__]
    covers = module.cover

    def spy(*args: Any, **how: Any) -> Any:
        asked.append(how["optimal"])
        return covers(*args, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "cover", spy)
        empty_cache()
        jit(halves).lower(X)
    assert asked
    return any(asked)


def regions(jit: Jit) -> int:
    """Pieces of a long program."""

    def long(x: Any) -> Any:
        for i in range(60):
            x = np.tanh(x @ LARGE[:12, :12]) + x.sum() * i
        return x

    found = []
    module = sys.modules[searching.__module__]
    split = module.split

    def spy(*args: Any) -> Any:
        found.append(split(*args))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "split", spy)
        empty_cache()
        jit(long).lower(X)
    return len(found[0])


def threads(jit: Jit) -> int:
    low = jit(lambda x: x @ x).lower(LARGE)
    return int(low.executable.threads) if low.backend.name == "native" else 0


def backend(jit: Jit) -> str:
    return str(jit(halves).lower(X).backend.name)


def files(jit: Jit) -> set[str]:
    """Kinds of what is kept of a function on disk."""
    folder = empty_cache()
    jit(lambda x: x * 3 - 1)(X)
    return {p.name.partition("-")[0] for p in folder.glob("*")} & {"program", "code"}


def printed(jit: Jit) -> bool:
    with contextlib.redirect_stderr(io.StringIO()) as stream:
        jit(halves)(X)
    return "compiled 'halves'" in stream.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shows_a_line(jit: Jit) -> bool:
    shown = sys.modules["eqsat.support.progress"]
    made: list[str] = []

    class Told(shown.Progress):  # type: ignore[misc, name-defined]
        def __init__(self, name: str, *rest: Any) -> None:
            made.append(name)
            super().__init__(name, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TERM", raising=False)
        patch.setattr(shown, "Progress", Told)
        patch.setattr(sys, "stderr", Terminal())
        jit(halves)(X)
    return made == ["halves"]


def programs_of_lazy_arrays(jit: Jit) -> int:
    """How many programs six operations become."""
    made = []
    module = importlib.import_module("eqsat.lazy.programs")
    found = module.program_of
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_found", type(module._found)())
        patch.setattr(module, "program_of", lambda *o: made.append(1) or found(*o))
        x = eq.array(X, options=jit(halves).options)
        for _ in range(6):
            x = np.tanh(x) + 1
        x.eval()
    return len(made)


def memory_of_a_call(jit: Jit) -> int:
    low = jit(lambda x: (np.exp(x).sum(0), np.exp(x).sum(1))).lower(LARGE)
    return int(low.peak_bytes)


def looks(jit: Jit) -> int:
    """Programs that are measured while they run."""
    module = sys.modules["eqsat.measure.adaptive"]
    with pytest.MonkeyPatch.context() as patch:
        made: list[Any] = []
        patch.setattr(module, "_look", lambda *args: made.append(args))
        f = jit(halves)
        for _ in range(module.FIRST_LOOK):
            f(X)
        for thread in threading.enumerate():
            if thread.name == module.NAME:
                thread.join(60)
    return len(made)


def counted_calls(jit: Jit) -> int:
    f = jit(halves)
    f(X)
    return int(f.stats().calls)


class Effect(NamedTuple):
    value: Any
    text: str
    """The same in the environment."""
    seen: Callable[[Jit], Any]
    """What another value changes."""


EFFECTS = {
    "numerics": Effect("exact", "exact", in_halves),
    "deadline_s": Effect(0, "0", said),
    "max_nodes": Effect(4, "4", said),
    "extract": Effect("exact", "exact", is_optimal),
    "regions": Effect(False, "no", regions),
    "fusion": Effect(False, "0", kernels),
    "disable": Effect(
        {"scalars.py"},
        "scalars.py,",
        lambda jit: str(jit(lambda x: x * 2 * 3).lower(X).program),
    ),
    "kinds": Effect({"row"}, "row", kernels),
    "least_elements": Effect(10**6, "1000000", kernels),
    "threads": Effect(7, "7", threads),
    "backend": Effect("numpy", "numpy", backend),
    "backends": Effect(
        {"native": {"fusion": False}}, '{"native": {"fusion": false}}', kernels
    ),
    "cache": Effect(False, "off", files),
    "log": Effect({"compiles"}, "compiles", printed),
    "progress": Effect(False, "0", shows_a_line),
    "lazy_limit": Effect(4, "4", programs_of_lazy_arrays),
    "memory_limit": Effect(100_000, "100000", memory_of_a_call),
    "adaptive": Effect(True, "1", looks),
    "trace": Effect("calls.json", "calls.json", written_trace),
    "stats": Effect(True, "1", counted_calls),
}


def test_every_option_of_a_function_is_tested() -> None:
    assert {*EFFECTS} == {*OF_FUNCTION}
    assert {f.name for f in fields(eq.Options)} == {*OF_FUNCTION}


@pytest.mark.parametrize("way", ["options", "with", "environment"])
@pytest.mark.parametrize("name", EFFECTS)
def test_an_option_has_its_effect(
    name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value, text, seen = EFFECTS[name]
    usual = seen(eq.jit)
    if way == "options":
        options = eq.Options(**{name: value})
        assert seen(lambda f: eq.jit(f, options=options)) != usual
    elif way == "with":
        with eq.options(**{name: value}):
            assert seen(eq.jit) != usual
    else:
        monkeypatch.setenv(TABLE[name].variable, text)
        assert seen(eq.jit) != usual
        kept = eq.Options(**{name: value})
        assert getattr(eq.Options(), name) == getattr(kept, name)
        monkeypatch.delenv(TABLE[name].variable)
    if name != "deadline_s":
        assert seen(eq.jit) == usual


# -- effects of the options of the process ---------------------------------------------


def cache_dir(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setenv("EQSAT_CACHE_DIR", str(folder / "mine"))
    eq.jit(lambda x: x * 5 - 1)(X)
    assert [*(folder / "mine" / "compiled").glob("program-*")]


def cache_bytes(patch: pytest.MonkeyPatch, folder: Path) -> None:
    eq.jit(lambda x: x * 7 - 1)(X)
    assert disk_cache.info().bytes > 0
    patch.setenv("EQSAT_CACHE_BYTES", "0")
    disk_cache.trim()
    assert disk_cache.info().bytes == 0 == disk_cache.info().most_bytes


def config_dir(patch: pytest.MonkeyPatch, folder: Path) -> None:
    mine = replace(CPU, name="mine")
    patch.setenv("EQSAT_CONFIG_DIR", str(folder))
    keep("native", mine)
    assert device_file() == folder / "devices.json"
    assert measured("native", CPU) == mine
    patch.setenv("EQSAT_CONFIG_DIR", str(folder / "other"))
    assert measured("native", CPU) == CPU


def max_programs(patch: pytest.MonkeyPatch, folder: Path) -> None:
    assert most() == 4096
    patch.setenv("EQSAT_MAX_PROGRAMS", "1")
    f = eq.jit(halves)
    f(X)
    f(X[1:])
    assert len(f._lowered) == 1


def verify(patch: pytest.MonkeyPatch, folder: Path) -> None:
    seen: list[Any] = []
    patch.setattr(jitting, "verify_program", lambda *args: seen.append(args))
    for text, asked in ("true", True), ("0", False), ("1", True):
        patch.setenv("EQSAT_VERIFY", text)
        verifying.cache_clear()
        seen.clear()
        eq.jit(halves).lower(X)
        assert bool(seen) == verifying() == asked


def code(f: Any, *args: Any) -> str:
    return str(eq.jit(f, "native").lower(*args).source("llvm"))


def cpu(patch: pytest.MonkeyPatch, folder: Path) -> None:
    usual = code(halves, X)
    patch.setenv("EQSAT_CPU", "generic")
    assert host().cpu == "generic" != host("native").cpu
    assert code(halves, X) != usual
    levels = TABLE["cpu"].kind.name.split()
    assert levels == ["native", *processor._LEVELS]


def products(patch: pytest.MonkeyPatch, folder: Path) -> None:
    found = []
    for who in ("own", "blas"):
        patch.setenv("EQSAT_PRODUCTS", who)
        assert host().products == who
        found.append(code(lambda x: x @ x, LARGE))
    assert found[0] != found[1] and "gemm" not in found[0]


PROCESS = {f.__name__: f for f in (cache_dir, cache_bytes, config_dir)}
PROCESS |= {f.__name__: f for f in (max_programs, verify, cpu, products)}


def test_every_option_of_the_process_is_tested() -> None:
    assert {*PROCESS} == {*OF_PROCESS}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PROCESS)
def test_a_variable_of_the_process_has_its_effect(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    PROCESS[name](monkeypatch, tmp_path)
    monkeypatch.undo()
    verifying.cache_clear()


# -- which is the strongest ------------------------------------------------------------


def test_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_force(f: Any) -> tuple[str, int, int]:
        o = f.lower(X).options
        return o.numerics, o.threads, o.max_nodes

    monkeypatch.setenv("EQSAT_NUMERICS", "fast")
    monkeypatch.setenv("EQSAT_THREADS", "2")
    monkeypatch.setenv("EQSAT_MAX_NODES", "500")
    f = eq.jit(halves, options=eq.Options(numerics="exact"))
    assert in_force(f) == ("exact", 2, 500)
    with eq.options(numerics="approximate", threads=3):
        assert in_force(f) == ("exact", 3, 500)
        assert in_force(eq.jit(halves)) == ("approximate", 3, 500)
        with eq.options(threads=4):
            assert in_force(eq.jit(halves)) == ("approximate", 4, 500)
        assert in_force(f) == ("exact", 3, 500)
    assert in_force(f) == ("exact", 2, 500)
    assert backend(lambda g: eq.jit(g, backend="native")) == "native"
    with eq.options(backend="numpy"):
        assert backend(lambda g: eq.jit(g, backend="native")) == "native"
        given = eq.Options(backend="native")
        assert backend(lambda g: eq.jit(g, options=given)) == "native"


def test_what_differs_for_a_backend_is_as_strong_as_its_source() -> None:
    native = {"native": {"threads": 5, "numerics": "fast"}}
    f = eq.jit(halves, "native", options=eq.Options(numerics="exact"))
    with eq.options(threads=3, backends=native):
        assert f.lower(X).options.threads == 5
        assert f.lower(X).options.numerics == "exact"
    with eq.options(threads=3):
        own = eq.Options(backends=native)
        assert eq.jit(halves, "native", options=own).lower(X).options.threads == 5


# -- with eq.options(...) --------------------------------------------------------------


def rounded(x: Any) -> Any:
    """In float16, with two roundings in ``exact`` and one otherwise."""
    return (x + np.float16(1000)) - np.float16(1000)


HALF = np.linspace(0.1, 0.9, 9).astype(np.float16)


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_a_call_is_served_by_a_program_of_its_options(backend: str) -> None:
    f = eq.jit(rounded, backend)
    held = f.__call__  # what a caller may have kept
    usual, exact = f(HALF), rounded(HALF)
    assert not np.array_equal(usual, exact)
    f(HALF)
    for _ in range(3):
        with eq.options(numerics="exact"):
            for call in f, held, f, held:
                np.testing.assert_array_equal(call(HALF), exact)
        for call in f, held, f, held:
            np.testing.assert_array_equal(call(HALF), usual)
    g = eq.jit(rounded, backend)  # made when there was a context
    for _ in range(2):
        np.testing.assert_array_equal(g(HALF), usual)
        with eq.options(numerics="exact"):
            np.testing.assert_array_equal(g(HALF), exact)


def test_arrays_of_mlx_are_served_by_a_program_of_their_options() -> None:
    mx = pytest.importorskip("mlx.core")
    f, x = eq.jit(rounded), mx.array(HALF)
    usual, exact = np.array(f(x)), rounded(HALF)
    f(HALF)
    for _ in range(2):
        f(x)
        with eq.options(numerics="exact"):
            np.testing.assert_array_equal(np.array(f(x)), exact)
            np.testing.assert_array_equal(f(HALF), exact)
        np.testing.assert_array_equal(np.array(f(x)), usual)


def test_programs_stay_and_are_found_again() -> None:
    f = eq.jit(halves)
    usual = f.lower(X)
    with eq.options(fusion=False):
        apart = f.lower(X)
    with eq.options(fusion=False):
        assert f.lower(X) is apart is not usual
    with eq.options(fusion=True):  # as it is
        assert f.lower(X) is usual
    assert f.lower(X) is usual and len(apart.program.kernels) > 1


def python_of(call: Callable[[], Any]) -> set[str]:
    """The functions of Python that a call runs."""
    called: list[str] = []
    sys.setprofile(lambda frame, event, arg: called.append(frame.f_code.co_name))
    call()
    sys.setprofile(None)
    return {*called} - {"<lambda>", "python_of"}


def test_without_a_context_calls_do_not_ask() -> None:
    f = eq.jit(halves, "native")
    f(X)
    assert python_of(lambda: f(X)) == set()
    with contextlib.suppress(KeyError), eq.options(fusion=False):
        f(X)
        with eq.options(numerics="exact"):
            f(X)
            assert "_call_in_context" in python_of(lambda: f(X))
        assert "_call_in_context" in python_of(lambda: f(X))
        raise KeyError
    assert python_of(lambda: f(X)) == set()
    g = eq.jit(halves, "native")  # made after one
    g(X)
    assert python_of(lambda: g(X)) == set()


def test_a_context_that_waits_is_not_that_of_others() -> None:
    f = eq.jit(rounded, "native")
    usual, exact = f(HALF), rounded(HALF)

    def waiting() -> Iterator[Any]:
        with eq.options(numerics="exact"):
            yield f(HALF)
            yield f(HALF)

    async def others() -> None:
        first = asyncio.get_running_loop().run_in_executor(None, f, HALF)
        np.testing.assert_array_equal(await first, usual)

    context = contextvars.copy_context()
    values = waiting()
    np.testing.assert_array_equal(context.run(next, values), exact)
    np.testing.assert_array_equal(f(HALF), usual)
    asyncio.run(others())
    np.testing.assert_array_equal(context.run(next, values), exact)
    context.run(next, values, None)
    np.testing.assert_array_equal(f(HALF), usual)
    assert python_of(lambda: f(HALF)) == set()


def test_a_function_that_nobody_holds_goes_away() -> None:
    f = eq.jit(halves)
    f(X)
    with eq.options(fusion=False):
        f(X)
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None


def test_threads_and_tasks_have_their_own() -> None:
    f = eq.jit(halves)
    found: dict[str, str] = {}

    def look(name: str) -> None:
        found[name] = f.lower(X).options.numerics

    async def task(numerics: str) -> None:
        with eq.options(numerics=numerics):
            await asyncio.sleep(0)
            look(numerics)
            await asyncio.sleep(0)
            found[f"{numerics} later"] = f.lower(X).options.numerics

    async def both() -> None:
        await asyncio.gather(task("exact"), task("fast"))

    asyncio.run(both())
    with eq.options(numerics="exact"):
        thread = threading.Thread(target=look, args=("thread",))
        thread.start()
        thread.join()
    assert found == {
        **{"exact": "exact", "exact later": "exact", "fast": "fast"},
        **{"fast later": "fast", "thread": "reassociate"},
    }


def test_many_threads_under_other_options() -> None:
    f = eq.jit(rounded, "native")
    usual, exact = eq.jit(rounded, "native")(HALF), rounded(HALF)
    wrong: list[Any] = []

    def work(numerics: str | None, want: Any) -> None:
        for _ in range(200):
            how = eq.options(numerics=numerics) if numerics else eq.options()
            with how:
                got = f(HALF)
            if not np.array_equal(got, want):
                wrong.append(numerics)

    ways: list[tuple[str | None, Any]] = [("exact", exact), (None, usual)] * 3
    team = [threading.Thread(target=work, args=way) for way in ways]
    for t in team:
        t.start()
    for t in team:
        t.join()
    assert wrong == []


def test_a_context_inside_of_a_traced_function_is_refused() -> None:
    inner = eq.jit(halves)

    @eq.jit
    def outer(x: Any) -> Any:
        with eq.options(numerics="exact"):
            return inner(x)

    with pytest.raises(eq.OptionError, match="write the with statement around"):
        outer(X)
    both = eq.jit(lambda x: inner(x) * 2)
    with eq.options(fusion=False):
        assert len(both.lower(X).program.kernels) > 1
        np.testing.assert_allclose(both(X), halves(X) * 2, rtol=1e-6)


def test_an_error_ends_a_context() -> None:
    f = eq.jit(halves)
    with pytest.raises(KeyError), eq.options(numerics="exact"):
        raise KeyError
    assert f.lower(X).options.numerics == "reassociate"


def numerics_of(f: Any) -> str:
    """Those of a call here."""
    return str(f.lower(X).options.numerics)


def test_a_context_is_entered_again_and_in_itself() -> None:
    f = eq.jit(rounded, "native")
    usual, exact = f(HALF), rounded(HALF)
    how, fast = eq.options(numerics="exact"), eq.options(numerics="fast", threads=1)
    for _ in range(2):
        with how, how:
            with how:
                np.testing.assert_array_equal(f(HALF), exact)
            with fast, how:
                assert numerics_of(f) == "exact"
                with fast:
                    assert numerics_of(f) == "fast"
                assert numerics_of(f) == "exact"
            np.testing.assert_array_equal(f(HALF), exact)
        np.testing.assert_array_equal(f(HALF), usual)
        assert python_of(lambda: f(HALF)) == set()
    with pytest.raises(KeyError), how:
        with contextlib.suppress(ValueError), how, how:
            raise ValueError
        assert numerics_of(f) == "exact"
        raise KeyError
    assert numerics_of(f) == "reassociate"


def test_threads_and_tasks_enter_one_context_at_once() -> None:
    f = eq.jit(halves)
    how, other = eq.options(numerics="exact"), eq.options(numerics="fast")
    wrong: list[str] = []
    meet = threading.Barrier(3, timeout=60)

    def look(want: str) -> None:
        if numerics_of(f) != want:
            wrong.append(want)

    def work(around: Any, want: str) -> None:
        with around:
            for _ in range(20):
                meet.wait()
                with how:
                    meet.wait()
                    look("exact")
                look(want)

    ways = [(other, "fast"), (how, "exact"), (contextlib.nullcontext(), "reassociate")]
    team = [threading.Thread(target=work, args=way) for way in ways]
    for t in team:
        t.start()
    for t in team:
        t.join()

    async def task(around: Any, want: str) -> None:
        with around:
            with how:
                await asyncio.sleep(0)
                look("exact")
            await asyncio.sleep(0)
            look(want)

    async def all_of_them() -> None:
        await asyncio.gather(*[task(*way) for way in ways])

    asyncio.run(all_of_them())
    assert wrong == [] and numerics_of(f) == "reassociate"


def test_a_task_keeps_the_context_around_its_making() -> None:
    """Also when the ``with`` is left before it runs."""
    f = eq.jit(rounded, "native")
    usual, exact = f(HALF), rounded(HALF)

    async def work() -> Any:
        for _ in range(3):
            await asyncio.sleep(0)
            np.testing.assert_array_equal(f(HALF), exact)

    async def others() -> None:
        with eq.options(numerics="exact"):
            task = asyncio.create_task(work())
        for _ in range(3):
            np.testing.assert_array_equal(f(HALF), usual)
            await asyncio.sleep(0)
        await task

    asyncio.run(others())
    gc.collect()
    assert CONTEXTS.value == 0 and python_of(lambda: f(HALF)) == set()


def test_contexts_of_generators_end_in_any_order() -> None:
    f = eq.jit(halves)

    def inside(how: Any) -> Iterator[None]:
        with how:
            yield

    first, second = eq.options(numerics="exact"), eq.options(numerics="fast")
    a, b = inside(first), inside(second)
    next(a)
    next(b)
    assert numerics_of(f) == "fast"
    a.close()  # type: ignore[attr-defined]
    assert numerics_of(f) == "fast"
    b.close()  # type: ignore[attr-defined]
    assert numerics_of(f) == "reassociate"


def test_a_context_decorates_a_function_that_calls_itself() -> None:
    f = eq.jit(halves)
    exact: Any = eq.options(numerics="exact")

    @exact
    def depth(n: int) -> list[str]:
        return [*depth(n - 1), numerics_of(f)] if n else []

    assert depth(3) == ["exact"] * 3
    assert numerics_of(f) == "reassociate"


def test_a_context_is_left_where_it_was_entered() -> None:
    how = eq.options(numerics="exact")
    there = contextvars.copy_context()
    there.run(how.__enter__)
    with pytest.raises(eq.OptionError, match="that has not entered it"):
        how.__exit__(None, None, None)
    there.run(how.__exit__, None, None, None)
    f = eq.jit(halves, "native")
    f(X)
    assert python_of(lambda: f(X)) == set()


# -- what is refused -------------------------------------------------------------------

REFUSED = [
    ({"numeric": "exact"}, "no option 'numeric'; did you mean 'numerics'?"),
    ({"fuse": True}, "no option 'fuse'; did you mean 'fusion'?"),
    ({"zzz": 1}, "no option 'zzz'; there are adaptive, backend, "),
    ({"cache_dir": "x"}, "'cache_dir' is an option of the whole process; set EQSAT_"),
    ({"numerics": "exakt"}, "'fast'; did you mean 'exact'?"),
    ({"kinds": {"mapp"}}, "kinds='mapp': expected one of 'map', 'row'"),
    ({"log": {"compile"}}, "log='compile': expected one of 'compiles'; did you"),
    ({"disable": 3}, "disable=3: expected a set of rule names"),
    ({"disable": {3}}, "disable=3: expected a set of rule names"),
    ({"max_nodes": 1.5}, "max_nodes=1.5: expected a whole number from 0 on"),
    ({"threads": True}, "threads=True: expected a whole number from 0 on"),
    ({"lazy_limit": 0}, "lazy_limit=0: expected a whole number from 1 on"),
    ({"deadline_s": "2"}, "deadline_s='2': expected a number that is not negative"),
    ({"deadline_s": float("nan")}, "deadline_s=nan: expected a number that is"),
    ({"cache": 1}, "cache=1: expected True or False"),
    ({"backend": ""}, "backend='': expected a name, or None"),
    ({"backends": {"mlx"}}, "backends={'mlx'}: expected options by the name of a"),
    ({"backends": {"mlx": {"thread": 1}}}, "backends['mlx']: no option 'thread'; did"),
    ({"backends": {"mlx": {"threads": -1}}}, "backends['mlx']: threads=-1: expected"),
    ({"backends": {"mlx": {"backend": "x"}}}, "backends['mlx']: no option 'backend'"),
]


@pytest.mark.parametrize("make", [eq.Options, eq.options])
@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_wrong_names_and_values(
    make: Callable[..., Any], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(eq.OptionError) as caught:
        make(**given)
    assert message in str(caught.value)


WRONG = {
    "numerics": "exakt",
    "deadline_s": "soon",
    "max_nodes": "1.5",
    "extract": "ilp",
    "regions": "maybe",
    "fusion": "2",
    "kinds": "row,mapp",
    "least_elements": "-1",
    "threads": "two",
    "backend": "numpi",
    "backends": "{",
    "cache": "offf",
    "log": "compile",
    "progress": "never",
    "lazy_limit": "0",
    "stats": "maybe",
    "adaptive": "maybe",
    "memory_limit": "1GB",
    "cache_bytes": "1GB",
    "max_programs": "0",
    "verify": "maybe",
    "cpu": "x86-64-v9",
    "products": "mine",
}


def test_every_variable_that_can_be_wrong_is_tested() -> None:
    assert {*TABLE} - {*WRONG} == {"disable", "cache_dir", "config_dir", "trace"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_names_its_variable(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = TABLE[name].variable
    monkeypatch.setenv(variable, WRONG[name])
    verifying.cache_clear()
    with pytest.raises(eq.OptionError) as caught:
        if name in ("cache_bytes", "verify", "cpu", "products"):
            TABLE[name].from_environment()
        eq.jit(halves)(X)
    assert str(caught.value).startswith(f"{variable}={WRONG[name]!r}: ")
    monkeypatch.undo()
    verifying.cache_clear()


def test_disable_names_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_DISABLE", "scalrs.py")
    with pytest.raises(eq.RuleError, match=r"no rule 'scalrs.py'; did .*'scalars.py'"):
        eq.jit(halves)(X)
    monkeypatch.setenv("EQSAT_DISABLE", "scalars.py")
    f = eq.jit(halves, rules=())  # which has none of them
    np.testing.assert_allclose(f(X), halves(X), rtol=1e-6)


def test_an_unknown_variable_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_NUMERIC", "exact")
    with pytest.warns(
        eq.OptionWarning,
        match="no option EQSAT_NUMERIC; did you mean 'EQSAT_NUMERICS'",
    ):
        eq.jit(halves)
    eq.jit(halves)
    warn_of_unknown_variables()


@pytest.mark.parametrize("name", ["fusion", "cache", "verify", "products", "backend"])
def test_an_empty_variable_gives_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TABLE[name].variable, "")
    assert TABLE[name].from_environment() == TABLE[name].default


def test_options_are_values() -> None:
    options = eq.Options(numerics="exact", kinds={"row"})
    again = pickle.loads(pickle.dumps(options))
    assert again == options and again.given == options.given
    assert {*options.given} == {"numerics", "kinds"}


@pytest.mark.parametrize("name", EFFECTS)
def test_equal_options_have_one_hash(name: str) -> None:
    value = EFFECTS[name].value
    one, same = eq.Options(**{name: value}), eq.Options(**{name: value})
    assert one == same and hash(one) == hash(same)
    assert {one: 1}[same] == 1 and len({one, same, eq.Options()}) == 2
    assert hash(pickle.loads(pickle.dumps(one))) == hash(one)
    assert replace(one) == one and hash(replace(one)) == hash(one)


def test_equal_values_of_other_types_have_one_hash() -> None:
    pairs = [
        ({"deadline_s": 2}, {"deadline_s": 2.0}),
        ({"kinds": ["row", "map"]}, {"kinds": {"map", "row"}}),
        ({"trace": "a.json"}, {"trace": Path("a.json")}),
        (
            {"backends": {"mlx": {"deadline_s": 2, "kinds": ["row"]}, "numpy": {}}},
            {"backends": {"numpy": {}, "mlx": {"kinds": {"row"}, "deadline_s": 2.0}}},
        ),
        ({}, {"numerics": "reassociate"}),
    ]
    for one, other in pairs:
        a, b = eq.Options(**one), eq.Options(**other)  # type: ignore[arg-type]
        assert a == b and hash(a) == hash(b)


def test_options_do_not_change() -> None:
    """Also where what they were given does."""
    inner = {"threads": 1}
    given = {"mlx": inner}
    options = eq.Options(backends=given)
    before, kept = hash(options), eq.Options(backends={"mlx": {"threads": 1}})
    inner["threads"] = 2
    given["numpy"] = {}
    assert hash(options) == before and options == kept
    for held in (options.backends, options.backends["mlx"], options.given):
        with pytest.raises(TypeError):
            held["threads"] = 3  # type: ignore[index]
    with pytest.raises(AttributeError):
        options.threads = 2  # type: ignore[misc]


# -- eqsat env, and the guide ----------------------------------------------------------


def env(*words: str) -> Result:
    return CliRunner().invoke(main, ["env", *words])


@pytest.fixture
def threads_of_two(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("EQSAT_THREADS", "2")
    monkeypatch.setenv("EQSAT_KIND", "row")
    yield


def test_env_shows_what_is_in_force(threads_of_two: None, tmp_path: Path) -> None:
    result = env()
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["threads", "2", "environment", "EQSAT_THREADS"] in lines
    assert ["numerics", "reassociate", "default", "EQSAT_NUMERICS"] in lines
    assert "EQSAT_KIND is no option; did you mean 'EQSAT_KINDS'?" in result.stdout
    assert {*TABLE} <= {line[0] for line in lines if line}
    assert ["numpy", np.__version__] in lines
    assert ["cache", "in", str(tmp_path / "cache")] in lines


def test_env_as_json(threads_of_two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(env("--json").stdout)
    assert {*found["options"]} == {*TABLE}
    assert found["options"]["threads"] == {
        **{"value": 2, "default": 0},
        **{"from": "environment", "variable": "EQSAT_THREADS"},
    }
    assert found["options"]["numerics"]["from"] == "default"
    assert found["versions"]["eqsat"] == eq.__version__
    assert {*found["unknown_variables"]} == {"EQSAT_KIND"}
    assert found["backend"] in ("native", "numpy")
    assert found["cost_models"]["native"] == "as shipped"
    monkeypatch.setenv("EQSAT_THREADS", "two")
    wrong = env("--json")
    assert wrong.exit_code == 1
    error = json.loads(wrong.stdout)["options"]["threads"]["error"]
    assert error == "EQSAT_THREADS='two': expected a whole number from 0 on"
    assert error in env().stdout


def test_env_names_the_file_of_measured_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_CONFIG_DIR", str(tmp_path))
    keep("native", CPU)
    models = json.loads(env("--json").stdout)["cost_models"]
    assert models["native"] == str(tmp_path / "devices.json")
    assert models["numpy"] == "as shipped"


def row(option: Option) -> str:
    """The line of the page of options for one."""
    text = json.dumps(option.default) if option.kind.name == "text" else ""
    text = text or repr(option.default).replace("'", '"')
    if isinstance(option.default, frozenset):
        text = "{" + ", ".join(map(json.dumps, sorted(option.default))) + "}"
    text = text.replace("null", "None")
    cells = option.name, option.kind.name, text, option.variable
    return f"| {' | '.join((*(f'`{c}`' for c in cells), option.about))} |"


def test_the_page_of_options_has_the_table() -> None:
    page = ROOT / "eqsat" / "documentation" / "howto" / "options.md"
    guide = page.read_text(encoding="utf-8")
    told = [
        line for line in guide.splitlines() if re.search(r"\| `EQSAT_\w+` \|", line)
    ]
    assert told == [row(o) for o in TABLE.values()]


def test_no_other_file_reads_a_variable_of_eqsat() -> None:
    """Every name of a variable that the sources have is one of the table's."""
    known = {o.variable for o in TABLE.values()} | {"EQSAT_"}
    for top in "eqsat", "backends", "rules", "bench":
        for path in (ROOT / top).rglob("*.[pm][yd]"):
            text = path.read_text(encoding="utf-8")
            for name in re.findall(r"\bEQSAT_[A-Z_]*\b", text):
                assert name in known, f"{path}: {name}"
            if top in ("eqsat", "backends") and path.name != "option_table.py":
                assert not re.search(r"environ\S*\s*\(?\[?.?EQSAT_", text), path


if __name__ == "__main__":
    print("\n".join(map(row, TABLE.values())))
