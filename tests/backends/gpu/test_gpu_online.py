"""Rows that are too long to be held: the greatest and the sum of powers in one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bodies import fused_op
from gpu_runs import Run, kernel_of, optimised
from metal import model
from programs import assert_near, program_of

from eqsat import ops
from eqsat.backends.gpu import split_reductions
from eqsat.backends.gpu.c_code.dialect import DIALECTS
from eqsat.backends.gpu.gpu_program import Generated, parts_of
from eqsat.backends.gpu.printing.online_softmax import POWERS, online
from eqsat.backends.loop_ir.nest import (
    Accumulate,
    Kept,
    Load,
    Nest,
)
from eqsat.backends.numpy import interpret
from eqsat.terms.type_rules import BF16
from eqsat.trace.trace import trace

on_model = pytest.mark.skipif(model.COMPILER is None, reason="no C++ compiler")
Array = np.ndarray[Any, Any]


def cross_entropy(x: Any) -> Any:
    return ops.logsumexp(x * 0.5) - x[..., :1]


def scaled(x: Any) -> Any:
    """A sum of powers over another number than the greatest."""
    return np.log(np.exp(x - (x.max(-1, keepdims=True) - 3)).sum(-1, keepdims=True))


def columns(x: Any) -> Any:
    return ops.softmax(x, axis=0)


def both(x: Any) -> Any:
    """Also what else the passes compute."""
    return x.sum(-1, keepdims=True) + ops.log_softmax(x * 2) + x.max(-1, keepdims=True)


FUNCTIONS = {
    "softmax": ops.softmax,
    "log_softmax": ops.log_softmax,
    "logsumexp": ops.logsumexp,
    "cross_entropy": cross_entropy,
    "scaled": scaled,
    "columns": columns,
    "both": both,
}


def nest_of(f: Callable[..., Any], x: Array) -> Nest:
    """That of the one kernel of ``f``."""
    (kernel,) = optimised(f, [x]).kernels
    (part,) = parts_of(kernel, DIALECTS["cuda"], {})
    assert isinstance(part, Generated)
    (nest,) = part.nests
    return nest


def readings(nest: Nest) -> int:
    """How often elements of rows are read, or kept since."""
    return sum(any(isinstance(s, (Kept, Load)) for s in p.body) for p in nest.passes)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_reading_less(name: str) -> None:
    x = np.zeros((300, 40), np.float32)
    nest = nest_of(FUNCTIONS[name], x.T if name == "columns" else x)
    assert readings(online(nest)) == readings(nest) - 1


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.exp(x - x.mean(-1, keepdims=True)).sum(-1, keepdims=True),
        lambda x: np.exp(x - np.abs(x).max(-1, keepdims=True)).sum(-1, keepdims=True),
        lambda x: x - x.max(-1, keepdims=True) / x.sum(-1, keepdims=True),
    ],
)
def test_other_sums_stay(f: Callable[..., Any]) -> None:
    nest = nest_of(f, np.zeros((300, 40), np.float32))
    assert online(nest) is nest


def test_rows_that_are_held_are_read_once_anyway() -> None:
    def body(columns: int) -> str:
        program = program_of(ops.softmax, np.zeros((300, columns), "f4"))
        return kernel_of(program).source.body

    assert "eq_powers(" not in body(4096) and "eq_powers(" in body(1 << 17)


def test_rows_are_held_that_hold_no_powers() -> None:
    part = kernel_of(program_of(ops.softmax, np.zeros((300, 28672), "f4")))
    assert part.source.body.count("eq_load_kept<") == 1
    assert "eq_powers(" in part.source.body and part.source.group == 512


def special(dtype: Any) -> Array:
    """Rows of 41 numbers: rising, falling, far apart, equal, with ±∞ and NaN."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 41)) * np.geomspace(1e-3, 1e4, 64)[:, None]
    x[:8].sort(-1)
    x[8:16] = -np.sort(-x[8:16], -1)
    x[16:20] = 3.0
    for i, odd in enumerate((np.inf, -np.inf, np.nan)):
        rows = x[20 + 10 * i : 30 + 10 * i]
        rows[0] = odd
        for k, row in enumerate(rows[1:], 1):
            row[rng.permutation(41)[: k * k // 2 + 1]] = odd
    x[50, :5], x[51, :5], x[52] = np.inf, np.nan, -np.inf
    x[50, 7], x[51, 7:], x[52, 40] = -np.inf, -np.inf, 0
    return x.astype(dtype)


FEW = {
    "softmax": (ops.softmax, 3),
    "log_softmax": (ops.log_softmax, 3),
    "logsumexp": (ops.logsumexp, 2),
    "rms_norm": (lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1), 3),
    "scaled": (lambda x: ops.softmax(x * x[..., :1]) + x[..., 1:2], 3),
}
"""And kernels of few long rows."""


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("rows", [1, 7, 8, 40, 64])
def test_kernels_of_few_long_rows(name: str, rows: int) -> None:
    f, count = FEW[name]
    x = np.broadcast_to(np.float32(0), (rows, 1 << 17))
    (kernel,) = program_of(fused_op(f"{name}_few", f, 1), x).kernels
    parts = parts_of(kernel, DIALECTS["cuda"], {})
    assert len(parts) == (count if rows < 64 else 1)


# test_gpu_joined.py shares out few columns every time.
@pytest.mark.slow
@on_model
@pytest.mark.parametrize("language", DIALECTS)
def test_few_long_rows_are_shared_out(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_reductions, "LONG", 1 << 10)
    monkeypatch.setattr(split_reductions, "LEAST", 1 << 10)
    monkeypatch.setattr(split_reductions, "LANES", 1 << 13)
    x = np.random.default_rng(0).standard_normal((6, 2052)).astype(np.float32) * 4
    x[1, ::3], x[2, 9], x[3], x[4, 7], x[5, 5] = -np.inf, np.inf, -np.inf, np.nan, 60
    runs = {
        name: Run(program_of(fused_op(f"{name}_few", f, 1), x), language)
        for name, (f, _) in FEW.items()
    }
    for name, run in runs.items():
        assert len(run.units) == FEW[name][1]
    units = dict.fromkeys(u for r in runs.values() for u in r.units)
    functions = model.compiled(list(units))
    for run in runs.values():
        with np.errstate(all="ignore"):
            (want,) = interpret(run.program.roots, [x])
        (got,) = run([x], functions, 2)
        assert_near(got, want, 16)


@pytest.mark.sampled(8)
@on_model
@pytest.mark.parametrize("language", DIALECTS)
@pytest.mark.parametrize("dtype", [np.dtype("f4"), np.dtype("f2"), BF16], ids=str)
def test_on_the_model(
    language: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_nowhere = replace(DIALECTS[language], most_held=0)
    monkeypatch.setitem(DIALECTS, language, held_nowhere)
    with np.errstate(all="ignore"):
        x = special(dtype)
        cases = {
            (name, n): np.tile(x, (1, n)) if name != "columns" else np.tile(x, (1, n)).T
            for name in FUNCTIONS
            for n in ((1, 40) if name in ("softmax", "logsumexp") else (1,))
        }
        runs = {
            key: Run(optimised(FUNCTIONS[key[0]], [a]), language)
            for key, a in cases.items()
        }
        units = list(dict.fromkeys(u for r in runs.values() for u in r.units))
        assert all("eq_powers" in u.body for u in units)
        functions = model.compiled(units)
        for (name, n), a in cases.items():
            run = runs[name, n]
            wide = [a.astype(np.float32)]  # as kernels compute with halves
            (want,) = interpret(trace(FUNCTIONS[name], wide).outputs, wide)
            for seed in (0, 3):
                (got,) = run([a], functions, seed)
                assert got.dtype == dtype
                assert_near(got, want.astype(dtype), 4)


def test_the_statement_says_what_it_sums() -> None:
    nest = online(nest_of(ops.logsumexp, np.zeros((300, 40), np.float32)))
    sums = [s for s in nest.statements() if isinstance(s, Accumulate)]
    assert [s.op for s in sums] == ["max", POWERS]
    assert sums[0].value == sums[1].value
