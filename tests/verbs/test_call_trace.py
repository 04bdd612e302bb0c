"""Traces of calls for Perfetto: ``Options(trace=path)``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat.support import EqsatError

X = np.ones((16, 16), np.float32)


def f(x: Any) -> Any:
    return np.tanh(x @ x.T).sum(0)


def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def test_a_trace_is_whole_after_each_call(tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    g = eq.jit(f, options=eq.Options(trace=path))
    want = f(X)
    for calls in range(1, 6):
        assert np.allclose(g(X), want, rtol=1e-5)
        found = events(path)
        assert sum(e["cat"] == "call" for e in found) == calls
    for e in found:
        assert e["ph"] == "X" and e["ts"] > 0 and e["dur"] >= 0
    kernels = [k.name for k in g.explain(X).kernels]
    of_kernels = [e["name"] for e in found if e["cat"] == "kernel"]
    assert of_kernels == kernels * 3  # of calls 1, 2 and 4
    assert {e["name"] for e in found if e["cat"] == "compile"} >= {"trace", "program"}
    by_track: dict[int, list[dict[str, Any]]] = {}
    for e in found:
        if e["cat"] != "compile":
            by_track.setdefault(e["tid"], []).append(e)
    assert len(by_track) == 2
    for track in by_track.values():
        starts = [e["ts"] for e in track]
        assert starts == sorted(starts)


def compiled(path: Path) -> list[list[dict[str, Any]]]:
    """What was compiled in each call; all of it lies within the call."""
    found = []
    for call in (e for e in events(path) if e["cat"] == "call"):
        start, end = call["ts"], call["ts"] + call["dur"]
        own = [e for e in events(path) if e["cat"] == "compile"]
        found.append([e for e in own if start <= e["ts"] <= e["ts"] + e["dur"] <= end])
    return found


def test_what_is_compiled_stands_where_it_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_CACHE", "0")
    path = tmp_path / "calls.json"
    g = eq.jit(f, backend="native", options=eq.Options(trace=path))
    strided = np.ones((32, 16), np.float32)[::2]
    for x in (X, X, strided, strided, X[:8], X):
        g(x)
    first, again, other, *rest = compiled(path)
    total = sum(e["cat"] == "compile" for e in events(path))
    assert total == sum(map(len, (first, again, other, *rest)))
    assert first[0]["name"] == "trace"
    assert {"extract", "program", "plan", "machine code"} < {e["name"] for e in first}
    assert not again and not rest[0] and not rest[2]
    for call in (first, other, rest[1]):
        (lower,) = (e for e in call if e["name"] == "lower")
        inside = [e for e in call if e["name"] in ("plan", "machine code")]
        assert {e["name"] for e in inside} == {"plan", "machine code"}
        end = lower["ts"] + lower["dur"]
        assert all(lower["ts"] <= e["ts"] <= e["ts"] + e["dur"] <= end for e in inside)
    assert "trace" not in {e["name"] for e in other}


def test_what_was_compiled_before_is_in_no_call(tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    g = eq.jit(f, options=eq.Options(trace=path))
    low = g.lower(X)
    assert "lower" not in low.seconds
    low.compile()
    assert low.seconds["lower"] > 0
    g(X)
    assert "trace" not in {e["name"] for e in events(path)}


def test_functions_share_a_trace_and_others_know_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    plain = eq.jit(f)
    plain(X)
    with eq.options(trace=path):
        plain(X)
        eq.jit(lambda x: x + 1)(X)
    plain(X)
    names = [e["name"] for e in events(path) if e["cat"] == "call"]
    assert len(names) == 2


def test_a_file_that_is_no_trace_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(EqsatError, match="is not a trace of eqsat's"):
        eq.jit(f, options=eq.Options(trace=path))(X)
    assert path.read_text() == "mine"
    with pytest.raises(EqsatError, match="cannot be written"):
        eq.jit(f, options=eq.Options(trace=tmp_path / "no" / "folder"))(X)


_WRITER = """
import sys
from eqsat.measure.call_trace import append
print(flush=True)
sys.stdin.readline()  # until the others are ready
for i in range(400):
    append(sys.argv[1], [{"name": sys.argv[2], "ts": i}])
"""


def test_processes_share_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    for w in writers:
        assert w.stdout is not None
        w.stdout.readline()
    for w in writers:
        assert w.stdin is not None
        w.stdin.write("\n")
        w.stdin.flush()
    for w in writers:
        w.communicate(timeout=60)
        assert w.returncode == 0
    for name in "ab":
        of_one = [e["ts"] for e in events(path) if e["name"] == name]
        assert of_one == list(range(400))
