"""The deadline is for all of compiling: what tracing and the search leave is for
machine code, which is made the quick way or left to NumPy where that is too little."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat as eq
from eqsat.backends import native
from eqsat.backends.native import lower
from eqsat.support import Deadline, TimeIsUpError, deadline

X = np.linspace(0.1, 0.9, 7)
TWO = eq.Options(deadline_s=2)


class Clock:
    """A clock that goes by as much as it is told."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(deadline, "now", made)
    return made


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_CACHE", "0")


def steps(x: np.ndarray) -> np.ndarray:
    for i in range(1, 6):
        x[i:] -= x[i - 1] * np.sin(x[i - 1 : -1])
    return x[::-1] / x.sum()


def test_a_deadline_counts_down(clock: Clock) -> None:
    some = Deadline(3)
    clock.at += 2
    assert some.left == 1
    some.check()
    clock.at += 2
    assert some.left == 0
    with pytest.raises(TimeIsUpError):
        some.check()


def test_tracing_takes_from_the_time_of_machine_code(clock: Clock) -> None:
    def slow(x: np.ndarray) -> np.ndarray:
        clock.at += 1.5
        return x + 1

    low = eq.jit(slow, backend="native", options=TWO).lower(X)
    assert low.left_s == 0.5
    options = eq.Options(deadline_s=1)
    with pytest.warns(eq.BudgetWarning, match="deadline_s=1 ran out"):
        assert eq.jit(slow, backend="native", options=options).lower(X).left_s == 0


def test_the_search_leaves_time_for_machine_code(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    found = eq.jit.__globals__["optimise"]

    def spy(*args: object, seconds: float) -> object:
        given.append(seconds)
        return found(*args, seconds=seconds)

    monkeypatch.setitem(eq.jit.__globals__, "optimise", spy)
    eq.jit(lambda x: x + 1, options=TWO).lower(X)
    monkeypatch.setitem(eq.jit.__globals__, "CODE_S", 10.0)
    eq.jit(lambda x: x + 1, options=TWO).lower(X)
    assert 1.99 < given[0] < 2
    assert given[1] == 1


@pytest.mark.parametrize("exact", [False, True])
def test_long_code_is_made_the_quick_way(
    monkeypatch: pytest.MonkeyPatch, exact: bool
) -> None:
    asked: list[str] = []
    make = lower.compiled

    def spy(text: str, host: object, passes: str) -> bytes:
        asked.append(passes)
        return make(text, host, passes)

    monkeypatch.setattr(lower, "compiled", spy)
    options = eq.Options(numerics="exact" if exact else "reassociate")
    fast = eq.jit(steps, backend="native", options=options)
    want = steps(X.copy())
    assert np.allclose(fast(X.copy()), want, rtol=1e-14)
    monkeypatch.setattr(lower, "LINE_S", 1e9)
    slow = eq.jit(steps, backend="native", options=options)
    with pytest.warns(eq.BudgetWarning, match=r"runs slower.*compiled the quick way"):
        got = slow(X.copy())
    assert asked == ["short", "quick"]
    assert np.array_equal(got, want) if exact else np.allclose(got, want, rtol=1e-14)


def test_numpy_runs_what_is_not_written_in_time(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lower, "GRACE_S", -1.0)
    x, slow = (
        X.copy(),
        eq.jit(steps, backend="native", options=eq.Options(deadline_s=0)),
    )
    with pytest.warns(eq.BudgetWarning) as said:
        got = slow(x)
    assert any("before its machine code was written" in str(w.message) for w in said)
    want = X.copy()
    assert np.allclose(got, steps(want), rtol=1e-14)
    assert np.allclose(x, want, rtol=1e-14)  # what it writes to its argument
    assert np.allclose(slow(X.copy()[::-1]), steps(X.copy()[::-1]), rtol=1e-14)
    low = slow.lower(X)
    assert isinstance(low.executable, native.ByNumpy)
    assert "runs as NumPy: the deadline passed" in str(slow.explain(X))
    assert low.source().startswith("# the deadline passed")


def test_writing_ends_at_the_first_group_after_the_deadline(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    from eqsat.backends.native.writing import GroupCode

    write = GroupCode.write

    def slowly(self: GroupCode, g: object, *args: object) -> None:
        seen.append(g)
        clock.at += 2.5
        write(self, g, *args)

    monkeypatch.setattr(GroupCode, "write", slowly)
    many = lambda x: [np.sort(x + i).cumsum() for i in range(9)]  # noqa: E731
    low = eq.jit(many, options=TWO).lower(X)
    assert isinstance(low.executable, native.ByNumpy)
    assert len(seen) == 3  # 2 s of the deadline, and 4 s of grace
