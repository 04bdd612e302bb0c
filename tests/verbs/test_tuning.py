"""``eqsat tune`` and ``Options(adaptive=True)``: other programs are kept only where
they are faster, all figures are told, and what was found is found again."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import eqsat as eq
from eqsat import search
from eqsat.command.cli import main
from eqsat.jit import Jit, tune
from eqsat.kernels import CPU
from eqsat.measure import adaptive, repricing, tuning, turns
from eqsat.measure.repricing import error, prices, repriced, slowed
from eqsat.measure.turns import Turns, in_turn

X = np.linspace(-1, 1, 128 * 64, dtype=np.float32).reshape(128, 64)


def layer(x: Any) -> Any:
    h = np.tanh(x @ x.T)
    return h.sum(0), (h * 2).max(1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    yield
    eq.stats().reset()


class Clocked:
    """A program that says that it takes so many seconds."""

    source = ""

    def __init__(self, *seconds: float) -> None:
        self.seconds, self.calls = seconds, 0

    def __call__(self, *arrays: Any) -> list[Any]:
        return []

    def timed(self, *arrays: Any) -> tuple[list[Any], float]:
        self.calls += 1
        return [], self.seconds[self.calls % len(self.seconds)]


def test_programs_run_in_turn() -> None:
    before, after = Clocked(2e-3), Clocked(1e-3)
    found = in_turn(before, after, (), 0.0)
    assert found == Turns(2e-3, 1e-3, 0.0) and found.is_faster
    assert before.calls == after.calls == turns.LEAST_ROUNDS + 1


@pytest.mark.parametrize(
    "seconds",
    [(2e-3,), (1.99e-3,), (3e-3,), (1e-3, 1e-3, 9e-3, 9e-3, 1e-3)],
    ids=["equal", "within noise", "slower", "often slower"],
)
def test_what_is_not_faster_beyond_doubt_is_not_kept(seconds: Sequence[float]) -> None:
    assert not in_turn(Clocked(2e-3), Clocked(*seconds), (), 0.0).is_faster


# -- prices ----------------------------------------------------------------------------


def test_figures_that_kernels_depart_from_are_corrected() -> None:
    low = eq.jit(layer).lower(X)
    kernels, model = low.program.kernels, low.model
    modelled = [model.term(k.term) for k in kernels]
    right = prices(kernels, modelled, model)
    assert error(right) == 1 and not any(p.departs for p in right)
    assert repriced(right, model).device == model.device

    off = prices(kernels, [5 * s for s in modelled], model)
    assert all(p.departs and math.isclose(p.ratio, 5) for p in off)
    assert math.isclose(error(off), 5)
    again = repriced(off, model)
    after = prices(kernels, [5 * s for s in modelled], again)
    assert error(after) < error(off)
    for p in off:
        old, new = (getattr(m.device, p.bound) for m in (model, again))
        assert old != new


def test_a_figure_is_that_which_bounds_a_kernel() -> None:
    def bound(f: Any, *arrays: Any) -> str:
        low = eq.jit(f).lower(*arrays)
        (kernel,) = low.program.kernels
        return prices([kernel], [1.0], low.model)[0].bound

    large = np.ones((512, 512), np.float32)
    assert bound(lambda x: x @ x, large) == "flops_per_s"
    assert bound(lambda x: x + 1, np.ones(1 << 22, np.float32)) == "bandwidths"
    assert bound(lambda x: np.sin(np.exp(np.tanh(x))), large) == "map_flops_per_s"
    assert bound(lambda x: x + 1, X[0, :4]) == "launch_s"


def test_a_slower_device() -> None:
    slow = slowed(CPU, dict.fromkeys(repricing.FIGURES, 4.0))
    assert slow.launch_s == 4 * CPU.launch_s and slow.flops_per_s * 4 == CPU.flops_per_s
    rates = [(room, 4 * rate) for room, rate in slow.bandwidths]
    assert rates == list(CPU.bandwidths) and slow.map_flops_per_s < CPU.map_flops_per_s
    least = slowed(CPU, {"launch_s": 1e-9})
    assert least.launch_s == CPU.launch_s / 64  # no figure leaves all reason


# -- decisions -------------------------------------------------------------------------


def compared(
    monkeypatch: pytest.MonkeyPatch, verdict: Callable[[str, str], bool]
) -> list[tuple[str, str]]:
    """What is measured in turn, whose listings ``verdict`` tells the winner of."""
    made: list[tuple[str, str]] = []

    def measured(self: Any, before: Any, after: Any) -> Turns:
        made.append((str(before.program), str(after.program)))
        wins = verdict(*made[-1])
        return Turns(2e-6, 1e-6 if wins else 3e-6, 0.0 if wins else 1.0)

    monkeypatch.setattr(tuning.Tuner, "_in_turn", measured)
    return made


def program_of(f: Jit[..., Any]) -> str:
    return str(f.lower(X).program)


def test_the_faster_program_serves_and_is_found_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = eq.jit(layer)
    first = program_of(f)
    want = f(X)
    compared(monkeypatch, lambda before, after: before == first)
    told: list[str] = []
    decision = tune(f, (X,), {}, 600, told.append)
    second = program_of(f)
    assert second != first and decision.gain == 2 and len(told) == len(decision.trials)
    kept = [t for t in decision.trials if t.outcome == "kept"]
    assert len(kept) == 1 and (kept[0].before_s, kept[0].after_s) == (2e-6, 1e-6)
    for a, b in zip(f(X), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert program_of(eq.jit(layer)) == second  # as another process would


def test_slower_programs_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    f = eq.jit(layer)
    first = program_of(f)
    made = compared(monkeypatch, lambda before, after: False)
    decision = tune(f, (X,), {}, 600)
    assert decision.gain == 1 and program_of(f) == first == program_of(eq.jit(layer))
    assert made and all(before == first for before, _ in made)
    outcomes = {t.outcome for t in decision.trials}
    assert outcomes <= {"not faster", "the same program"} and "not faster" in outcomes


def test_what_is_not_confirmed_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It wins its trial, and loses against the first program in the end."""
    f = eq.jit(layer)
    first = program_of(f)
    wins = iter([True, True])
    compared(monkeypatch, lambda before, after: next(wins, False))
    decision = tune(f, (X,), {}, 600)
    assert [t.outcome for t in decision.trials].count("kept") == 1
    assert decision.gain == 1 and program_of(f) == first == program_of(eq.jit(layer))


def test_a_later_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    compared(monkeypatch, lambda before, after: False)
    f = eq.jit(layer)
    nothing = tune(f, (X,), {}, 0)
    assert nothing.trials == [] and nothing.left > 5
    clock = iter(range(10**6))
    with monkeypatch.context() as patch:
        patch.setattr(tuning.time, "perf_counter", lambda: next(clock))
        some = tune(f, (X,), {}, 3.5)
    rest = tune(eq.jit(layer), (X,), {}, 600)
    names = [t.name for t in (*some.trials, *rest.trials)]
    assert some.trials and some.left == len(rest.trials) and rest.left == 0
    assert len(names) == len(set(names))
    assert tune(f, (X,), {}, 600).trials == []
    assert len(tune(f, (X,), {}, 600, resume=False).trials) >= len(names) - 1


def test_another_device_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    f = eq.jit(layer)
    first = program_of(f)
    compared(monkeypatch, lambda before, after: before == first)
    tune(f, (X,), {}, 600)
    assert program_of(eq.jit(layer)) != first
    calibrate = sys.modules["eqsat.kernels.calibrate"]
    monkeypatch.setattr(calibrate, "machine", lambda: "another")
    assert program_of(eq.jit(layer)) == first


def test_without_a_cache_nothing_is_kept() -> None:
    f = eq.jit(layer, options=eq.Options(cache=False))
    assert tune(f, (X,), {}, 0).left > 5


def test_memory_limit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    f = eq.jit(layer)
    limit = f.lower(X).peak_bytes
    compared(monkeypatch, lambda before, after: True)
    g = eq.jit(layer, options=eq.Options(memory_limit=limit))
    decision = tune(g, (X,), {}, 600)
    assert g.lower(X).peak_bytes <= limit
    assert {"kept", "over memory_limit"} & {t.outcome for t in decision.trials}


def test_a_decision_is_told_with_its_figures() -> None:
    f = eq.jit(layer)
    decision = tune(f, (X,), {}, 0)
    (kept,) = f.stats().record()["functions"][0]["decisions"]
    assert json.loads(json.dumps(decision.record())) == json.loads(json.dumps(kept))
    text = str(decision)
    assert text in str(f.stats())
    assert text.startswith("layer(128×64 float32): 1.000 times as fast; the model was")
    for k in f.lower(X).program.kernels:
        assert f"  {k.name} {k.kind}: " in text
    assert decision.error_after <= decision.error_before


# -- adaptive --------------------------------------------------------------------------


def finished() -> None:
    for thread in threading.enumerate():
        if thread.name == adaptive.NAME:
            thread.join(600)


def test_adaptive_functions_change_their_program_while_they_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = eq.jit(layer, options=eq.Options(adaptive=True))
    first = program_of(f)
    want = f(X)
    # All is ten times as slow as the model says, but products.
    monkeypatch.setattr(
        tuning.Tuner,
        "_measured",
        lambda self, low: prices(
            low.program.kernels, [1.0] * len(low.program.kernels), low.model
        ),
    )
    other = eq.jit(layer, options=eq.Options(fusion=False)).lower(X)
    other = replace(other, options=f.lower(X).options)
    monkeypatch.setattr(search, "optimise", lambda *args: _Found(other.term))
    monkeypatch.setattr(tuning.Program, "of", lambda *args: other.program)
    made = compared(monkeypatch, lambda before, after: before == first)
    for _ in range(2 * adaptive.FIRST_LOOK):
        f(X)
    finished()
    monkeypatch.undo()
    assert len(made) == 3 and program_of(f) == str(other.program) != first
    for a, b in zip(f(X), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    (decision,) = f.counts.decisions
    assert [t.name for t in decision.trials] == [tuning.AS_MEASURED]


class _Found:
    def __init__(self, roots: Any) -> None:
        self.roots = roots


def test_each_program_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    monkeypatch.setattr(adaptive, "_look", lambda *args: looked.append(args[1]))
    f = eq.jit(layer, options=eq.Options(adaptive=True))
    for _ in range(200):
        f(X)
    finished()
    assert looked == [f.lower(X)]


def test_what_cannot_be_measured_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any, low: Any) -> Any:
        raise eq.BackendError("no code for this")

    monkeypatch.setattr(tuning.Tuner, "_measured", fails)
    f = eq.jit(layer, options=eq.Options(adaptive=True))
    for _ in range(20):
        f(X)
    finished()
    (found,) = f.stats().record()["functions"]
    assert found["failures"] == ["BackendError: no code for this"]


def test_arguments_that_change_meanwhile_do_not_matter() -> None:
    @eq.jit(options=eq.Options(adaptive=True))
    def add(x: Any) -> Any:
        x += 1
        return np.tanh(x).sum()

    x = np.zeros((64, 64), np.float32)
    for k in range(1, 40):
        add(x)
        assert (x == k).all()
    finished()
    assert (x == 39).all()


# -- the command -----------------------------------------------------------------------


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        "import numpy as np\ndef f(x, i):\n    return np.tanh(x[i]).sum(0)\n"
    )
    words = ["tune", f"{file}:f", "--arg", "32x8:f32", "--arg", "i=5:i64"]
    run = CliRunner().invoke(main, [*words, "--budget", "0"])
    assert run.exit_code == 0 and "trials left for the next run" in run.output
    record = json.loads(
        CliRunner().invoke(main, [*words, "--budget", "0s", "--json"]).stdout
    )
    assert record["function"] == "f" and record["left"] > 5
    whole = CliRunner().invoke(main, [*words, "--budget", "5m"])
    assert "1 of " in whole.output and "µs, by the model" in whole.output
    wrong = CliRunner().invoke(main, [*words, "--budget", "soon"])
    assert wrong.exit_code == 2 and "expected a time, such as 60s" in wrong.output
