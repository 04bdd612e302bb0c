"""``Options(memory_limit)``: what a call takes stays under it, or an error says by how
many bytes it cannot."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat.kernels import Kernel, Program, verify_program
from eqsat.kernels.memory_order import least_memory_order
from eqsat.terms import postorder

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1024, 1024), np.float32)
W = X[:, :64].copy()


def twice(x: Any) -> Any:
    """``exp`` is kept for the second sum, or computed again."""
    h = np.exp(x)
    return h.sum(0), h.sum(1)


def shrinking(x: Any) -> Any:
    """Values of ever new shapes, which only two at a time are alive of."""
    for _ in range(4):
        x = np.cumsum(np.sort(x[:, : x.shape[1] // 2], axis=1), axis=0)
    return x.sum(0)


def unbalanced(x: Any, w: Any) -> Any:
    """The large value is needed for one row alone, beside results that are kept."""
    kept = np.sort(w.T @ w, axis=0)
    return kept + np.cumsum(np.sort(x, axis=0)[:, :64], axis=1)[5]


def tower(x: Any, w: Any) -> Any:
    """``x`` is a right operand, which is brought into panels or read where it lies."""
    a = np.tanh(x @ w)
    return (np.tanh(x @ (w @ (np.tanh(a.T @ x) @ w)))).sum(0)


CASES: list[tuple[Callable[..., Any], tuple[Any, ...], float]] = [
    (twice, (X,), 0.1),
    (unbalanced, (X, W), 0.98),
    (tower, (X, W), 0.5),
]


@pytest.mark.parametrize(("f", "arrays", "share"), CASES, ids=lambda v: str(v)[:20])
def test_another_program_is_chosen(
    f: Callable[..., Any], arrays: tuple[Any, ...], share: float
) -> None:
    usual = eq.jit(f, backend="native").lower(*arrays)
    limit = int(share * usual.peak_bytes)
    g = eq.jit(f, backend="native", options=eq.Options(memory_limit=limit))
    low = g.lower(*arrays)
    assert usual.peak_bytes > limit >= low.peak_bytes > 0
    assert low.executable.code_for(arrays).arena_bytes == low.workspace_bytes
    want = np.array(f(*(a.astype(np.float64) for a in arrays)))
    np.testing.assert_allclose(np.array(g(*arrays)), want, rtol=2e-3, atol=1e-2)


def test_values_that_are_needed_at_other_times_share_memory() -> None:
    low = eq.jit(shrinking, backend="native").lower(X)
    assert low.peak_bytes < 1.01 * low.program.peak_bytes


def test_what_fits_stays_as_it_is() -> None:
    usual = eq.jit(twice).lower(X)
    options = eq.Options(memory_limit=usual.peak_bytes)
    low = eq.jit(twice, options=options).lower(X)
    assert str(low.program) == str(usual.program) and not low.program.least_memory


def test_an_error_says_by_how_many_bytes() -> None:
    f = eq.jit(
        lambda x: np.sort(x, axis=0).sum(1), options=eq.Options(memory_limit=9999)
    )
    with pytest.raises(eq.MemoryLimitError) as caught:
        f(X)
    message = str(caught.value)
    found = re.fullmatch(
        r"'<lambda>' takes (\d+) bytes more than memory_limit=9999: the smallest of "
        r"\d+ programs? takes [\d.]+ MiB, 4\.0 KiB of them for results",
        message,
    )
    assert found and int(found[1]) > X.nbytes - 9999, message


def test_results_alone_can_be_too_large() -> None:
    f = eq.jit(lambda x: x + 1, options=eq.Options(memory_limit=X.nbytes - 1))
    with pytest.raises(
        eq.MemoryLimitError, match=r"takes 1 bytes more .*: its results"
    ):
        f(X)
    enough = eq.jit(lambda x: x + 1, options=eq.Options(memory_limit=X.nbytes))
    assert enough(X)[0, 0] == X[0, 0] + 1


def test_it_is_found_again_and_holds_for_each_call() -> None:
    limit = 200_000  # by one thread a sum has parts, which take 128 KiB
    assert eq.jit(twice).lower(X).peak_bytes > limit
    for _ in range(2):  # the second one finds it on disk
        with eq.options(memory_limit=limit):
            f = eq.jit(twice)
            assert f.lower(X).peak_bytes <= limit
            np.testing.assert_allclose(f(X)[0], np.exp(X).sum(0), rtol=1e-4)


def test_other_backends_are_planned() -> None:
    usual = eq.jit(twice, backend="numpy").lower(X)
    assert usual.workspace_bytes == usual.program.workspace_bytes
    tight = eq.Options(memory_limit=usual.peak_bytes // 10)
    with pytest.raises(eq.MemoryLimitError, match="memory_limit="):
        eq.jit(lambda x: np.sort(x, 0).sum(1), backend="numpy", options=tight).lower(X)


def test_explain_tells_workspace_and_results() -> None:
    low = eq.jit(twice).lower(X)
    explanation = low.explain()
    assert explanation.workspace_bytes == low.workspace_bytes
    assert explanation.result_bytes == 2 * 1024 * 4
    record = explanation.record()
    assert record["workspace_bytes"] + record["result_bytes"] == low.peak_bytes
    line = r"^memory of a call [\d.]+ MiB: workspace [\d.]+ MiB, results 8\.0 KiB$"
    assert re.search(line, str(explanation), re.M)


@pytest.mark.parametrize(
    ("f", "arrays"),
    [(unbalanced, (X, W)), (shrinking, (X,)), (twice, (X,)), (tower, (X, W))],
)
def test_an_order_that_keeps_little(
    f: Callable[..., Any], arrays: tuple[Any, ...]
) -> None:
    """It is an order of the same steps; here none keeps more than the written one."""
    program = eq.jit(f).lower(*arrays).program
    terms = [t for t in postorder(program.roots) if t not in program.folded]
    order = least_memory_order(terms, program.roots)
    assert sorted(t.id for t in order) == sorted(t.id for t in terms)
    place = {t: i for i, t in enumerate(order)}
    assert all(place[a] < place[t] for t in order for a in t.args)
    other = Program.of(program.roots, program.inputs, least_memory=True)
    verify_program(other, "memory limit")
    assert other.peak_bytes <= program.peak_bytes
    count = sum(isinstance(s, Kernel) for s in other.steps)
    assert count == len(program.kernels) and other.least_memory


def test_the_order_puts_large_passing_values_first() -> None:
    program = eq.jit(unbalanced).lower(X, W).program
    other = Program.of(program.roots, program.inputs, least_memory=True)
    assert other.peak_bytes < program.peak_bytes
