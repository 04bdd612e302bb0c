"""Machine code kept on disk: a new process runs it, and compiles nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sizes import is_whole

import eqsat as eq
from eqsat.backends.native import lower, program_record
from eqsat.backends.native.machine import objects as object_code
from eqsat.backends.native.runtime.shared_runtime import is_available, objects, runtime
from eqsat.demo.minilm import softmax
from eqsat.support import disk_cache

pytestmark = pytest.mark.skipif(not is_available(), reason="objects lie otherwise")
ROOT = Path(__file__).resolve().parents[4]
F4 = np.float32
X = np.linspace(-2, 2, 24, dtype=F4).reshape(4, 6)
W = np.linspace(-1, 1, 30, dtype=F4).reshape(6, 5)

_USED = """
import sys
import numpy as np, eqsat as eq
def f(x, y): return np.maximum(x + y, 0)
def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
def product(x, w): return np.tanh(x @ w + 1), x * 2
def table(x): return np.where(np.tri(6, dtype=bool), x.T @ x, 0) + np.arange(6)
x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)
w = np.linspace(-1, 1, 30, dtype=np.float32).reshape(6, 5)
for fn, args in ((f, (x, x)), (softmax, (x,)), (softmax, (x.T,)), (product, (x, w)),
                 (table, (x,))):
    fast = eq.jit(fn)
    for _ in range(3):
        got, wanted = fast(*args), fn(*args)
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, wanted))):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
"""
_NOTHING_COMPILED = """
late = {"egglog.bindings", "eqsat.backends.native.program_writer"}
assert not late & set(sys.modules), late & set(sys.modules)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("EQSAT_CACHE", raising=False)
    return tmp_path / "compiled"


def started(code: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def ends_well(process: subprocess.Popen[str]) -> None:
    _, said = process.communicate()
    assert (process.returncode, said) == (0, "")


def test_a_new_process_compiles_nothing() -> None:
    ends_well(started(_USED))
    before = disk_cache.info()
    assert {"code", "object", "program"} <= before.kinds.keys()
    ends_well(started(_USED + _NOTHING_COMPILED))
    assert disk_cache.info() == before


# verbs/test_cache.py has processes that share a cache every time.
@pytest.mark.slow
def test_processes_that_start_at_once() -> None:
    for process in [started(_USED) for _ in range(4 if is_whole() else 2)]:
        ends_well(process)
    ends_well(started(_USED + _NOTHING_COMPILED))


# verbs/test_cache.py kills a writer every time.
@pytest.mark.slow
def test_processes_that_are_killed_leave_a_cache_that_serves(folder: Path) -> None:
    draw = random.Random(0)
    for _ in range(10 if is_whole() else 1):
        process = started(_USED)
        while process.poll() is None and not folder.exists():
            time.sleep(0.002)
        time.sleep(draw.random() * 0.4)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    ends_well(started(_USED))
    ends_well(started(_USED + _NOTHING_COMPILED))


# verbs/test_cache.py turns the cache off every time.
@pytest.mark.slow
def test_a_process_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", os.devnull)
    ends_well(started(_USED))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows by every text that LLVM compiles."""
    runtime(), objects()
    made: list[str] = []
    for module in (lower, object_code):
        compile_ir = module.compile_ir  # type: ignore[attr-defined]

        def counted(text: str, *rest: Any, run: Any = compile_ir) -> Any:
            made.append(text)
            return run(text, *rest)

        monkeypatch.setattr(module, "compile_ir", counted)
    return made


def test_the_source_of_code_from_disk(compiled: list[str]) -> None:
    first = eq.jit(softmax, backend="native").lower(X)
    source = first.source()
    second = eq.jit(softmax, backend="native").lower(X)
    assert second.source() == source and compiled[0] in source
    assert len(compiled) == 1
    np.testing.assert_array_equal(second.executable(X)[0], first.executable(X)[0])


def test_what_differs_is_compiled_anew(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(x: Any, **options: Any) -> None:
        f = eq.jit(softmax, backend="native", options=eq.Options(**options))
        np.testing.assert_allclose(f(x), softmax(x), rtol=1e-5)

    for _ in range(2):
        run(X, threads=1)
    assert len(compiled) == 1
    big = np.tile(X, (2000, 20))
    for x, options in (
        (X.T, {"threads": 1}),
        (X[1:], {"threads": 1}),
        (X.astype("f8"), {"threads": 1}),
        (big, {"threads": 1}),
        (big, {"threads": 2}),
    ):
        before = len(compiled)
        run(x, **options)
        assert len(compiled) > before
    before = len(compiled)
    run(X, threads=1)
    assert len(compiled) == before
    monkeypatch.setenv("EQSAT_CPU", "generic")
    run(X, threads=1)
    assert len(compiled) > before


def test_parts_between_those_of_python(compiled: list[str]) -> None:
    def f(x: Any) -> Any:
        y = eq.conv2d(np.tanh(x)[None, None], np.ones((1, 1, 1, 2), x.dtype), (1, 40))
        return np.exp(y) + 1

    for _ in range(2):
        low = eq.jit(f, backend="native").lower(X)
        assert low.executable.reasons  # type: ignore[attr-defined]
        expected = np.exp(np.tanh(X[:, :1]) + np.tanh(X[:, 1:2])) + 1
        np.testing.assert_allclose(low.executable(X)[0][0, 0], expected, rtol=1e-5)
    assert len(set(compiled)) == len(compiled) >= 1


def test_weights_do_not_count(compiled: list[str]) -> None:
    results = []
    for scale in (1, 2):
        w = W * scale
        w.flags.writeable = False
        f = eq.jit(lambda x, w: np.maximum(x * w[:4, :1], 0), backend="native")
        results.append(f(X, w))
    assert len(compiled) == 1
    np.testing.assert_allclose(results[1], 2 * results[0])


def entries(folder: Path, kind: str) -> list[str]:
    return [p.name for p in folder.iterdir() if p.name.startswith(kind)]


@pytest.mark.parametrize("data", [b"", b"garbage", b"\xe9\x00\x00\x00\x00"])
def test_a_record_that_is_none(data: bytes, folder: Path, compiled: list[str]) -> None:
    eq.jit(softmax, backend="native")(X)
    (name,) = entries(folder, "code")
    kept = disk_cache.get(name)
    disk_cache.put(name, data)
    eq.jit(softmax, backend="native")(X)
    assert len(compiled) == 2 and disk_cache.get(name) == kept


def test_object_code_that_does_not_load(folder: Path, compiled: list[str]) -> None:
    eq.jit(softmax, backend="native")(X)
    (name,) = entries(folder, "code")
    found = program_record.recall(name)
    assert found is not None
    program_record.keep(name, replace(found, codes=(found.codes[0][:100],)))
    np.testing.assert_allclose(eq.jit(softmax, backend="native")(X), softmax(X), 1e-5)
    assert len(compiled) == 2 and program_record.recall(name) == found


def test_another_blas_is_another_program(
    folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_PRODUCTS", "blas")
    x = np.tile(X, (10, 10))
    f = eq.jit(lambda x: x @ x.T, backend="native")
    np.testing.assert_allclose(f(x), x @ x.T, rtol=1e-4)
    (name,) = entries(folder, "code")
    assert program_record.recall(name) is not None
    monkeypatch.setattr(program_record, "blas_bits", lambda: 17)
    assert program_record.recall(name) is None


def test_large_tables_are_not_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_record, "MOST_TABLE_BYTES", -1)
    eq.jit(softmax, backend="native")(X)
    assert entries(folder, "code") == []
