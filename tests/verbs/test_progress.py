"""A compile that takes long shows one line on a terminal, and takes it away."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

import eqsat as eq
from eqsat.support.progress import CompilePhase, Progress, progress, seconds_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_comes_after_a_second_and_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = [10.0]
    module = sys.modules["eqsat.support.progress"]
    monkeypatch.setattr(module, "now", lambda: at[0])
    terminal = Terminal()
    line = Progress("f", 2.0, terminal)
    at[0] += 0.9
    line.draw()
    line.clear()
    assert terminal.getvalue() == ""
    at[0] += 0.1
    line.draw()
    assert terminal.getvalue() == "\reqsat [##########..........] f: tracing, 1.0 s"
    at[0] += 8
    line.phase = "search"
    line.draw()
    last = terminal.getvalue().split("\r")[-1]
    assert last == "eqsat [####################] f: search, 9.0 s "  # over the old one
    line.clear()
    assert terminal.getvalue().split("\r")[-2:] == [" " * (len(last) - 1), ""]


def test_a_deadline_of_nothing_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    line = Progress("f", 0.0, terminal)
    module = sys.modules["eqsat.support.progress"]
    monkeypatch.setattr(module, "AFTER_S", 0.0)
    line.draw()
    assert "[####################]" in terminal.getvalue()


def _phases(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> list[str]:
    """What a compile tells of its phases while ``stream`` is standard error."""
    seen: list[str] = []
    module = sys.modules["eqsat.support.progress"]

    class Told(Progress):
        def __setattr__(self, name: str, value: object) -> None:
            if name == "phase":
                seen.append(str(value))
            super().__setattr__(name, value)

    monkeypatch.setattr(module, "Progress", Told)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("EQSAT_CACHE", "0")
    eq.jit(lambda x: x + 1)(np.ones(3))
    return seen


def test_a_compile_tells_its_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TERM", raising=False)
    told = _phases(monkeypatch, Terminal())
    assert told == ["tracing", "searching", "machine code"]


@pytest.mark.parametrize("why", ["no terminal", "EQSAT_PROGRESS", "TERM", "closed"])
def test_nothing_is_shown(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    stream = io.StringIO() if why == "no terminal" else Terminal()
    if why == "EQSAT_PROGRESS":
        monkeypatch.setenv(why, "0")
    if why == "TERM":
        monkeypatch.setenv(why, "dumb")
    if why == "closed":
        monkeypatch.setattr(stream, "isatty", io.StringIO().isatty)
        stream.isatty.__self__.close()  # type: ignore[attr-defined]
    assert _phases(monkeypatch, stream) == []


def test_the_line_goes_when_the_function_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys.modules["eqsat.support.progress"], "AFTER_S", 0.0)
    monkeypatch.delenv("TERM", raising=False)
    with pytest.raises(KeyError), progress("f", 2.0):
        while not terminal.getvalue():
            pass
        raise KeyError
    assert terminal.getvalue().endswith("\r")


def test_one_line_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys.modules["eqsat.support.progress"], "AFTER_S", 0.0)
    monkeypatch.delenv("TERM", raising=False)
    with progress("f", 2.0), progress("g", 2.0) as show:
        show("searching")
        while not terminal.getvalue():
            pass
    with progress("h", 2.0):
        while "h" not in terminal.getvalue():
            pass
    assert "g:" not in terminal.getvalue()


def test_phases_of_two_threads_at_once_count_once() -> None:
    of = [("code", 0.0, 2.0, 1), ("code", 1.0, 4.0, 2), ("code", 1.5, 0.5, 1)]
    others = [("plan", 5.0, 9.0, 1), ("code", 8.0, 1.0, 1)]
    phases = [CompilePhase(*p) for p in (*others, *of)]
    assert seconds_of("code", phases) == 6.0
    assert seconds_of("trace", phases) == 0.0
