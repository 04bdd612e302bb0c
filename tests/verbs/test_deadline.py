"""The deadline is for all of compiling: what tracing and the search leave is for
machine code, which is written piece by piece; NumPy runs what is not written."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sizes import is_whole

import eqsat as eq
from eqsat import search
from eqsat.backends.native import program_writer
from eqsat.backends.native.code_pieces import CodePieces
from eqsat.backends.native.lower import NativeProgram
from eqsat.backends.native.machine import Tuning, host
from eqsat.backends.native.numpy_fallback import NO_TIME
from eqsat.backends.native.plan import Group, Layered
from eqsat.egraph import Engine, Inserted, snapshot
from eqsat.kernels import Kernel
from eqsat.lowered import Lowered
from eqsat.search.regions import MOST
from eqsat.support import Deadline, deadline

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
    assert (some.left, some.spent) == (1, 2)
    clock.at += 2
    assert (some.left, some.spent) == (0, 4)


def test_tracing_takes_from_the_time_of_machine_code(clock: Clock) -> None:
    def slow(x: np.ndarray) -> np.ndarray:
        clock.at += 1.5
        return x + 1

    low = eq.jit(slow, backend="native", options=TWO).lower(X)
    assert low.left_s == 0.5
    options = eq.Options(deadline_s=1)
    with pytest.warns(eq.BudgetWarning, match="deadline_s=1 ran out"):
        assert eq.jit(slow, backend="native", options=options).lower(X).left_s == 0.25


def test_the_search_leaves_time_for_machine_code(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    found = search.optimise

    def spy(*args: object, seconds: float) -> object:
        given.append(seconds)
        return found(*args, seconds=seconds)

    def slow(x: np.ndarray) -> np.ndarray:
        clock.at += 1.5
        return x + 1

    monkeypatch.setattr(search, "optimise", spy)
    eq.jit(lambda x: x + 1, options=TWO).lower(X)
    eq.jit(slow, options=TWO).lower(X)
    assert given == [0.5, 0.25]


def gauss(a: np.ndarray) -> np.ndarray:
    a = a + 0
    for k in range(len(a) - 1):
        a[k + 1 :, k:] -= np.outer(a[k + 1 :, k] / a[k, k], a[k, k:])
    return a


def lu(a: np.ndarray) -> tuple[np.ndarray, ...]:
    """The result lies in another order, too."""
    a = a.copy()
    for k in range(len(a) - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= a[k + 1 :, k : k + 1] @ a[k : k + 1, k + 1 :]
    return a, a.T[1:]


def writes(x: np.ndarray) -> np.ndarray:
    """It writes to its argument."""
    for i in range(1, len(x)):
        x[i] = x[i - 1] * 0.5 + x[i]
    return x[::-1] / x.sum()


def layers(x: np.ndarray) -> np.ndarray:
    """Few kinds of kernels, each of them often, and some that NumPy runs anyway."""
    for _ in range(5):
        x = np.sort(np.tanh(x), 0).cumsum(1)
        x = x - np.median(x, 1, keepdims=True)
        x = x / (1 + (x @ x.T).sum(1, keepdims=True) ** 2)
    return x


def stacks(x: np.ndarray) -> np.ndarray:
    """Results of several kernels in one, wider than a region."""
    rows = [np.sort(x[i : i + 3]) * x[i % 4] for i in range(len(x) - 2)]
    return np.stack(rows[::-1])


def taken(x: np.ndarray, where: np.ndarray) -> list[np.ndarray]:
    """Arguments may have no result."""
    return [np.sort(x + i)[where[i:]].cumsum() for i in range(6)]


def square(n: int) -> np.ndarray:
    return np.random.default_rng(n).random((n, n)) + n * np.eye(n)


PROGRAMS: dict[Callable[..., Any], list[np.ndarray]] = {
    gauss: [square(9)],
    lu: [square(9)],
    writes: [np.linspace(0.1, 0.9, 30)],
    layers: [square(7)],
    stacks: [np.linspace(0.9, 0.1, 123) ** 2],
    taken: [X, np.array([3, 1, 0, 2, 5, 4, 6, 1])],
}


@pytest.fixture
def pieces(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules of machine code, of a function each and for 1 s: a kernel is one, or
    two with what calls it; also what takes next to no time is called from Python."""
    made: list[str] = []
    make = CodePieces.begin

    def slowly(self: CodePieces, text: str, *rest: Any) -> Callable[[], bytes]:
        clock.at += 1
        made.append(text)
        return make(self, text, *rest)

    monkeypatch.setattr(CodePieces, "begin", slowly)
    monkeypatch.setattr(program_writer, "PIECE", 1)
    monkeypatch.setattr(program_writer, "CALLERS", 1)
    monkeypatch.setattr(program_writer, "PART_S", 0.0)
    monkeypatch.setattr(Tuning, "written_groups", 3)
    return made


def compiled(low: Lowered, seconds: float | None = None) -> NativeProgram:
    """The machine code of a program, with so many seconds for it."""
    if seconds is not None:
        low = replace(low, left_s=seconds)
    made = low.executable
    assert isinstance(made, NativeProgram)
    return made


@pytest.mark.sampled(6)
@pytest.mark.parametrize("numerics", ["exact", "reassociate"])
@pytest.mark.parametrize("f", PROGRAMS)
def test_results_are_right_wherever_time_ends(
    f: Callable[..., Any], numerics: str, pieces: list[str]
) -> None:
    args, options = PROGRAMS[f], eq.Options(numerics=numerics)
    low = eq.jit(f, backend="native", options=options).lower(*(a.copy() for a in args))
    whole = compiled(low, math.inf)
    assert not whole.cut_short
    want, count = whole(*args), len(pieces)
    assert count > 4
    left = []
    times = {0, 1, 2, 3, count // 2, count - 2, count}
    for seconds in sorted(times if is_whole() else {0, 1, count // 2, count}):
        del pieces[:]
        made = compiled(low, seconds)
        late = [k for k, why in made.reasons.items() if why == NO_TIME]
        left.append(len(late))
        for got, wanted in zip(made(*args), want, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-13)
        assert bool(late) == made.cut_short.startswith(f"NumPy runs {len(late)} of")
        if 0 < seconds < count - 2:
            # Each module takes a second; the last one calls those before.
            assert seconds <= len(pieces) <= seconds + 2
        if late:
            assert all(text in made.source for text in pieces)
        turned = [np.asfortranarray(a) for a in args]
        for got, wanted in zip(made(*turned), want, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-13)
    # Without any time the first kernels are one piece, which has no table.
    assert left[1:] == sorted(left[1:], reverse=True) and left[1] > left[-1] == 0


def test_an_index_out_of_bounds_is_an_error_wherever_time_ends(
    pieces: list[str],
) -> None:
    f, args = taken, (X, np.array([3, 1, 0, 2, 5, 4, 6, 7]))
    low = eq.jit(f, backend="native").lower(*args)
    for seconds in range(8):
        made = compiled(low, seconds)
        with pytest.raises(IndexError):
            made(*args)


def test_a_user_is_told_what_numpy_runs(pieces: list[str]) -> None:
    """A program that writes to its argument, after the deadline."""
    slow = eq.jit(writes, backend="native", options=eq.Options(deadline_s=0))
    x, want = np.linspace(0.1, 0.9, 30), np.linspace(0.1, 0.9, 30)
    with pytest.warns(eq.BudgetWarning) as said:
        got = slow(x)
    assert np.allclose(got, writes(want), rtol=1e-14)
    assert np.allclose(x, want, rtol=1e-14)  # what it writes to its argument
    (one,) = [str(w.message) for w in said if "NumPy runs" in str(w.message)]
    count = len(slow.lower(x).program.kernels)
    late = sum(w == NO_TIME for w in compiled(slow.lower(x)).reasons.values())
    assert f"runs slower than it could: NumPy runs {late} of {count} kernels" in one
    assert f"NumPy runs {late} of {count} kernels: {NO_TIME}" in str(slow.explain(x))
    assert f"runs as NumPy: {NO_TIME}" in slow.lower(x).source()
    assert len(pieces) == 1


def test_a_program_of_one_piece_is_always_machine_code() -> None:
    f = lambda x: np.cumsum(np.sort(np.sin(x)))[::-1] / x.sum()  # noqa: E731
    fast = eq.jit(f, backend="native", options=eq.Options(deadline_s=0))
    with pytest.warns(eq.BudgetWarning, match="the search"):
        got = fast(X)
    assert np.allclose(got, f(X), rtol=1e-14)
    assert compiled(fast.lower(X)).cut_short == ""


def test_no_kernel_is_opened_after_the_deadline(
    pieces: list[str], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    openly = Layered._kernel

    def slowly(self: Layered, kernel: Kernel) -> list[Group]:
        clock.at += 1
        opened.append(kernel)
        return openly(self, kernel)

    monkeypatch.setattr(Layered, "_kernel", slowly)
    low = eq.jit(writes, backend="native").lower(np.linspace(0.1, 0.9, 30))
    compiled(low, 7)
    assert len(opened) == 7
    del opened[:]
    compiled(low, 0)
    assert len(opened) == 3  # those of one piece


def test_what_pieces_took_says_how_to_compile_the_others(clock: Clock) -> None:
    made = CodePieces(host(), Deadline(10), lambda *given: b"")
    assert made.passes(1000) == "short"  # nothing is known
    clock.at += 2
    made.note("short", 4)  # half a second each
    assert made.passes(16) == "short" and made.passes(17) == "quick"
    clock.at += 1
    made.note("quick", 10)
    assert made.passes(14) == "short" and made.passes(15) == "quick"
    clock.at += 100
    assert made.passes(1) == "quick"


def test_terms_of_many_arguments_stay_out_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most: list[int] = []
    insert = Engine.insert

    def seen(self: Engine, what: Inserted) -> None:
        inside = (t for t in what.terms if t not in what.leaves)
        most.append(max(len(t.args) for t in inside))
        insert(self, what)

    monkeypatch.setattr(Engine, "insert", seen)
    x = np.linspace(0.1, 0.9, 150 if is_whole() else MOST + 2)
    for f in (
        lambda x: np.stack([np.exp(x[i]) for i in range(len(x))][::-1]),
        lambda x: np.concatenate([x[i : i + 2] * i for i in range(len(x) - 1)]) ** 2,
        writes,
    ):
        fast = eq.jit(f)
        assert np.allclose(fast(x.copy()), f(x.copy()), rtol=1e-13)
    assert most and max(most) <= MOST


# Results are right wherever the time ends, every time.
@pytest.mark.slow
def test_pieces_for_which_there_is_no_time_stay_out_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inserted: list[object] = []
    insert = Engine.insert

    def late(self: Engine, what: Inserted) -> None:
        inserted.append(what)
        insert(self, what)
        at[0] += 10.0

    at = [0.0]
    monkeypatch.setattr(snapshot, "now", lambda: at[0])
    monkeypatch.setattr(Engine, "insert", late)
    f = eq.jit(gauss, options=eq.Options(deadline_s=160))
    a = square(30)
    with pytest.warns(eq.BudgetWarning, match="deadline_s=160 ran out"):
        assert np.allclose(f(a), gauss(a), rtol=1e-12)
    assert len(inserted) == 2  # 0.4 of what the search has are for rules


def test_what_was_compiled_the_quick_way_is_compiled_in_full_if_time_is_left() -> None:
    for seconds, want, lines in ((60.0, b"short", 0), (0.0, b"quick", 2)):
        pieces = CodePieces(
            host(), Deadline(seconds), lambda text, host, passes: passes.encode()
        )
        code = pieces.begin("a\nb\n", [], "quick")
        assert pieces.in_full("a\nb\n", code)() == want
        assert pieces.quick_lines == lines
