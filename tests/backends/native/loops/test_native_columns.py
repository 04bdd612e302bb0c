"""Columns: reduced from end to end of memory, before what follows is computed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agreement import FLOATS
from hypothesis import given
from hypothesis import strategies as st
from natives import LAYOUTS, laid, run
from programs import program_of
from sizes import examples

import eqsat as eq
from eqsat.backends.loop_ir import (
    LoopTuning,
)
from eqsat.backends.numpy import interpret
from eqsat.support.options import Options
from eqsat.testing import Computed, agreement

Array = np.ndarray[Any, Any]
Function = Callable[[Array, Array], Any]

FUNCTIONS: dict[str, Function] = {
    "sum": lambda x, v: x.sum(0),
    "maximum": lambda x, v: x.max(0),
    "squares": lambda x, v: (x * x).sum((0, 1)),
    "any": lambda x, v: (x > 1).any(0),
    "mean": lambda x, v: x.mean((0, 1)),
    "variance": lambda x, v: x.var(0),
    "centred": lambda x, v: x - x.mean(0),
    "standard": lambda x, v: (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5),
    "unit": lambda x, v: (x - x.min(0)) / (x.max(0) - x.min(0)),
    "softmax": lambda x, v: eq.softmax(x, axis=0),
    "two": lambda x, v: (x.mean(0), x.var(0)),
    "twice": lambda x, v: np.exp(x) - np.exp(x).mean(0),
    "scaled": lambda x, v: (x - v) / np.sqrt(v * v + 1) * np.exp(v),
    "rows": lambda x, v: eq.layer_norm(x, np.exp(v), v),
    "functions": lambda x, v: (np.tanh(x) - np.tanh(x).mean(0)) / np.tanh(x).std(0),
    "places": lambda x, v: x.argmax(0),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FUNCTIONS)
@examples(12)
@given(
    st.sampled_from(FLOATS),
    st.sampled_from([(130, 1, 70), (33, 2, 64), (70, 3, 5), (16, 1, 130), (3, 2, 1)]),
    st.sampled_from(LAYOUTS),
    st.sampled_from([1, 2, 3]),
    st.integers(2, 40),
    st.integers(0, 2**32 - 1),
)
def test_columns(
    name: str, dtype: Any, shape: Any, layout: str, threads: int, ends: int, seed: int
) -> None:
    """However large arrays have to be for it; ends of all sizes."""
    rng = np.random.default_rng(seed)
    x = laid(rng.standard_normal(shape).astype(dtype), layout)
    v = rng.standard_normal(shape[-1]).astype(dtype)
    size = max(x.nbytes // ends, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoopTuning, "most_beside_bytes", 0)
        patch.setattr(LoopTuning, "sum_ends_bytes", size)
        patch.setattr(LoopTuning, "swept_elements", 0)
        patch.setattr(LoopTuning, "tall_elements", 1)
        patch.setattr(LoopTuning, "tall_bytes", 0)
        patch.setattr(LoopTuning, "again_rows", 2)
        program = program_of(FUNCTIONS[name], x, v)
        got, _ = run(program, [x, v], threads)
    with np.errstate(all="ignore"):
        want = interpret(program.roots, [x, v])
    sides = (Computed(ys, program.roots, [x, v]) for ys in (got, want))
    found = agreement(*sides)
    assert not found.reason, found


def nests(f: Callable[..., Any], *arrays: Array, threads: int = 1) -> list[str]:
    """The nests of the program, as they are listed."""
    text = eq.jit(f, options=Options(threads=threads)).lower(*arrays).source("llvm")
    return text.partition("; ModuleID")[0].split("; kernel")[1:]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("threads", [1, 2])
def test_tall_columns_are_reduced_first(threads: int) -> None:
    def count(f: Callable[[Array], Any], *shape: int) -> int:
        return len(nests(f, np.zeros(shape, np.float32), threads=threads))

    def centred(x: Array) -> Array:
        return x - x.mean(0)

    assert count(centred, 5000, 100) == 2
    assert count(centred, 500, 1000) == 1  # a second cache holds some columns
    assert count(centred, 2000, 100) == 1  # and all of these
    assert count(lambda x: x - x.mean(1, keepdims=True), 5000, 100) == 1
    assert count(lambda x: np.exp(x) - np.exp(x).sum(0), 5000, 128) == 1
    assert count(lambda x: np.exp(x) - np.exp(x).sum(0), 5000, 100) == 3
    tanhs = nests(
        lambda x: np.tanh(x) - np.tanh(x).std(0),
        np.zeros((5000, 128), np.float32),
        threads=threads,
    )
    assert sum("tanh" in n for n in tanhs) == 1
    assert count(lambda x: np.log(np.exp(x).sum(0)), 5000, 100) == 2


def test_what_takes_long_is_computed_of_columns_once() -> None:
    x, v = np.zeros((512, 300), np.float32), np.ones(300, np.float32)

    def loops_of(name: str, f: Function) -> list[list[str]]:
        return [re.findall(r"for \w+ < (\d+)", n) for n in nests(f, x, v) if name in n]

    assert loops_of("sqrt", lambda x, v: x / np.sqrt(v + 1)) == [["300"]]
    assert loops_of("exp", lambda x, v: x * np.exp(v * 2) + v) == [["300"]]
    assert loops_of("multiply", lambda x, v: x + v * 2) == [["512", "300"]]
    assert loops_of("exp", lambda x, v: eq.layer_norm(x, np.exp(v), v)) == [["300"]]
    few = x[:8]
    both = nests(lambda x, v: x / np.sqrt(v + 1), few, v)
    assert len(both) == 1
    rows = nests(lambda x: x / np.sqrt(x[:, :1] + 1), x)
    assert len(rows) == 1


def test_ends_are_parts_of_their_own() -> None:
    def chunks(f: Callable[[Array], Any], *shape: int, threads: int = 1) -> list[str]:
        found = nests(f, np.zeros(shape, np.float32), threads=threads)
        return re.findall(r"for chunk < (\d+)", found[0])

    assert chunks(lambda x: x.sum(0), 8192, 1024) == ["3"]
    assert chunks(lambda x: x.sum((0, 1)), 64, 128, 1024) == ["3"]
    assert chunks(lambda x: x.sum(0), 1024, 1024) == ["32"]
    for f, shape, threads in [
        (lambda x: x.sum(0), (8192, 1024), 2),
        (lambda x: x.sum(0), (4096, 2048), 1),
        (lambda x: x.sum(1), (8192, 1024), 1),
        (lambda x: x.sum(1), (64, 1024, 64), 1),
        (lambda x: x.sum(0), (32768, 1024), 1),
    ]:
        assert chunks(f, *shape, threads=threads) == []
