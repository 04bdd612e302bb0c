"""Lazy arrays: when and how often they are computed, and what they keep in memory."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections import OrderedDict, deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lazily import W, X, layer, near

import eqsat as eq
from eqsat.lazy import graph as lazy_graph
from eqsat.lazy import programs as lazy_programs
from eqsat.lazy.graph import Outline, Recorded
from eqsat.terms.term import postorder


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Outline]:
    """The outlines that are compiled, none of which is known before."""
    made: list[Outline] = []
    compile_ = lazy_programs._jitted

    def note(outline: Outline, *how: Any) -> eq.Jit:
        made.append(outline)
        return compile_(outline, *how)

    monkeypatch.setattr(lazy_programs, "_jitted", note)
    for kept in ("_programs", "_found"):
        monkeypatch.setattr(lazy_programs, kept, OrderedDict())
    return made


# -- programs --------------------------------------------------------------------------


def test_one_program_for_one_structure(compiled: list[Outline]) -> None:
    for i in range(5):
        x = eq.array(X * i)
        near(layer(x + i * X, eq.array(W) if i % 2 else W).eval(), layer(X * 2 * i, W))
    assert len(compiled) == 1
    layer(eq.array(X[:2]), W).eval()
    (eq.array(X) * 2).eval()
    assert len(compiled) == 3
    for number in (2.0, 2, np.float32(2), -0.0, 0.0, True):
        near((eq.array(X) * number).eval(), X * number)
    assert len(compiled) <= 8


def test_the_programs_used_last_are_kept(
    compiled: list[Outline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_programs, "_MOST", 2)
    x = eq.array(X)
    for f in (np.sin, np.cos, np.sin, np.tan, np.sin):
        near(f(x).eval(), f(X))
    assert [o._steps[0][0].name for o in compiled] == ["sin", "cos", "tan"]
    assert len(lazy_programs._programs) == 2


def test_a_value_is_computed_once(compiled: list[Outline]) -> None:
    x = eq.array(X) + 1
    assert np.shares_memory(x.eval(), x.eval())
    y = x * 2
    near(y.eval(), (X + 1) * 2)
    assert [len(o._terms) for o in compiled] == [2, 2]  # a number is one too


def test_parts_of_known_arrays_need_no_program(compiled: list[Outline]) -> None:
    x = eq.array(X) + 1
    x.eval()
    for i in range(4):
        near(x[i, 1:].eval(), X[i, 1:] + 1)
        near((x[i] * 2).eval(), (X[i] + 1) * 2)
    assert x[np.int64(2), ..., None, -1].shape == (1,) and x[0, 0].shape == ()
    assert len(compiled) == 2
    near((x[::-1, 1::2] * 2).eval(), (X[::-1, 1::2] + 1) * 2)
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0"):
        x[4]
    with pytest.raises(IndexError, match="3 indices for an array of 2 axes"):
        x[0, 0, 0]
    with pytest.raises(IndexError, match="cannot be indexed by a 'str'"):
        x["a"]


def test_evaluating_together_shares(compiled: list[Outline]) -> None:
    x = eq.array(X)
    h = np.exp(x) + 1
    low, high, same = h - 1, h * 2, {"x": [x, 3, "s", None], "h": h}
    values = eq.evaluate(low, high, same, 7, X)
    steps = [step[0].name for o in compiled for step in o._steps]
    assert (steps.count("exp"), len(compiled)) == (1, 1)
    near(values[0], np.exp(X))
    near(values[1], (np.exp(X) + 1) * 2)
    near(values[2]["h"], np.exp(X) + 1)
    assert values[2]["x"][1:] == [3, "s", None] and values[3] == 7
    assert values[4] is X
    near(eq.evaluate(low), np.exp(X))
    assert eq.evaluate() == () and len(compiled) == 1


def test_what_holds_no_lazy_array_stays_as_it_is() -> None:
    x = eq.array(X)
    others = [slice(1), bytearray(b"a"), {1}, deque([x]), Spare(x), np.arange(3), None]
    known, *same = eq.evaluate(x + 1, *others)
    near(known, X + 1)
    assert all(a is b for a, b in zip(same, others, strict=True) if a is not None)


class Spare:
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, x: Any) -> None:
        self.x = x


def test_explain_and_lower_say_what_eval_does(compiled: list[Outline]) -> None:
    y = layer(eq.array(X), eq.array(W))
    low = y.lower()
    assert isinstance(low, eq.Lowered) and "np." in low.source("numpy")
    found = y.explain()
    assert found.kernels and {k.ops[0] for k in found.kernels} == {"matmul"}
    lines = {line.text for k in found.kernels for line in k.lines}
    assert lines == {"return eq.softmax(np.tanh(x @ w) * 0.5)"}
    assert y.term.value is None
    y.eval()
    assert len(compiled) == 1
    assert not y.explain().kernels


def test_numbers_that_change_are_warned_of(compiled: list[Outline]) -> None:
    x = eq.array(X[0]) / 7
    for i in range(7):
        (x * (i + 0.25)).eval()
    with pytest.warns(eq.RecompileWarning, match=r"eq\.array\(number, x\.dtype\)") as w:
        (x * 9.25).eval()
    assert w[0].filename == __file__
    before = len(compiled)
    for i in range(20):
        near((x * eq.array(i, x.dtype)).eval(), X[0] / 7 * np.float32(i))
    assert len(compiled) == before + 1


# -- with jit --------------------------------------------------------------------------


def test_a_jit_called_with_lazy_arrays_becomes_part_of_the_graph() -> None:
    @eq.jit
    def f(p: Any, x: Any) -> Any:
        return {"y": np.tanh(x @ p["w"]), "n": p["n"] * 2}

    out = f({"w": eq.array(W), "n": 3}, X)
    assert isinstance(out["y"], eq.LazyArray) and out["n"] == 6
    names = {t.op.name for t in postorder([out["y"].term])}
    assert {"tanh", "matmul"} <= names
    near(out["y"].eval(), np.tanh(X @ W))
    assert len(f.lower({"w": eq.array(W), "n": 3}, eq.array(X)).program.inputs) == 2
    assert f.explain({"w": eq.array(W), "n": 3}, X).kernels


def test_gradients_of_lazy_arrays_are_lazy() -> None:
    def loss(w: Any, x: Any) -> Any:
        return (np.tanh(x @ w) ** 2).sum()

    both = eq.value_and_grad(loss)
    want = both(W, X)
    for args in ((eq.array(W), X), (W, eq.array(X)), (eq.array(W), eq.array(X))):
        found = both(*args)
        assert all(isinstance(r, eq.LazyArray) for r in found)
        for a, b in zip(eq.evaluate(found), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    inner = eq.jit(lambda w, x: both(w, eq.array(x.shape[0] * X) / 4)[1])
    for w in (W, eq.array(W)):
        np.testing.assert_allclose(inner(w, X), want[1], rtol=1e-5, atol=1e-6)


def test_lazy_arrays_in_traced_functions_are_constants() -> None:
    w, unused = eq.array(W) * 2, eq.array(W)
    f = eq.jit(lambda x: (x @ w, w @ x[0, :1, None].T.repeat(5, 0), w, eq.array(x)))
    x = X[:, :3]
    got = f(x)
    near(got[0], X @ (W * 2))
    near(got[1], (W * 2) @ X[0, :1, None].T.repeat(5, 0))
    near(got[2], W * 2)
    near(got[3], X)
    assert unused.term.value is not None and w.term.value is not None
    assert len(f.lower(x).program.inputs) == 1
    given_ = eq.jit(lambda x, w: np.tanh(x @ w), constants=["w"])
    assert len(given_.lower(X, w).program.inputs) == 1
    assert isinstance(given_(X, w), eq.LazyArray)
    near(given_(X, w).eval(), np.tanh(X @ (W * 2)))


def test_arrays_that_nobody_writes_to_are_constants() -> None:
    w = W.copy()
    w.flags.writeable = False
    y = eq.array(X) @ (eq.array(w) * 0 + w)
    low = y.lower()
    assert len(low.program.inputs) == 2 and low.trace.constants[0] is w
    near(y.eval(), X @ w)


# -- threads, memory, long chains ------------------------------------------------------


def test_threads_record_and_evaluate_at_once() -> None:
    whole = np.arange(12).reshape(4, 3)
    shared = [eq.array(whole) * eq.array(i) + 1 for i in range(40)]
    wrong: list[Any] = []
    ready = threading.Barrier(4)

    def work(k: int) -> None:
        ready.wait()
        for i, s in enumerate(shared):
            y = s * s - eq.array(k)
            z = y * 3 if (i + k) % 2 else y
            want = ((whole * i + 1) ** 2 - k) * (3 if (i + k) % 2 else 1)
            same = np.array_equal(z, want) and np.array_equal(s, whole * i + 1)
            wrong.extend([] if same else [(k, i)])

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def alive() -> int:
    gc.collect()
    return sum(type(o) is Recorded for o in gc.get_objects())


def test_what_was_recorded_is_freed() -> None:
    gc.collect()
    gc.disable()  # by reference counts alone
    try:
        x = eq.array(X)
        source = weakref.ref(x.term.value)
        y = np.tanh(x) + 1
        held = weakref.ref(y)
        del x
        assert source() is not None
        y.eval()
        assert source() is None
        del y
        assert held() is None
        z = np.exp(eq.array(X))
        source = weakref.ref(z.term.args[0].value)  # type: ignore[attr-defined]
        del z
        assert source() is None
    finally:
        gc.enable()


def test_a_value_that_others_wait_for_lets_go_of_its_past() -> None:
    x = eq.array(X)
    y = np.tanh(x) + 1
    later = y * 2
    source = weakref.ref(x.term.value)
    del x
    y.eval()
    assert source() is None
    near(later.eval(), (np.tanh(X) + 1) * 2)


def test_memory_does_not_grow_in_a_loop() -> None:
    before = alive()
    x = eq.array(X)
    most = 0
    for i in range(2000):
        x = np.tanh(x @ W @ W.T) + X
        x.eval()
        dropped = np.exp(x) * 2
        del dropped
        if i % 500 == 0:
            most = max(most, alive())
    assert most - before < 10 and alive() - before < 10
    del x
    assert alive() == before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::eqsat.BudgetWarning")
def test_ten_thousand_operations(compiled: list[Outline]) -> None:
    x, want = eq.array(X), X.astype(np.float32)
    for i in range(5000):
        x, want = (x + X, want + X) if i % 3 else (x * 0.5, want * np.float32(0.5))
    step = x
    for _ in range(5000):
        x, want = np.negative(x), -want
    near(x.eval(), want)
    near(step.eval(), want)
    assert len(compiled) < 10
    again = eq.array(X)
    for _ in range(100_000):
        again = -again
    del again


def test_numbers_that_several_parts_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_LAZY_LIMIT", "4")
    step = eq.jit(lambda x: np.tanh(x * 0.5 + 1) * 0.5)  # one number in two places
    x, want = eq.array(X), X
    for _ in range(9):
        x, want = step(x), np.tanh(want * np.float32(0.5) + 1) * np.float32(0.5)
    near(x.eval(), want)


@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_parts_compute_each_term_once(most: int, seed: int) -> None:
    pick = np.random.default_rng(seed)
    terms: list[Any] = [eq.array(X)]
    for _ in range(30):
        a, b = pick.choice(len(terms), 2)
        terms.append(np.maximum(terms[a], terms[b]))
    roots = [terms[-1].term, terms[10].term, terms[0].term, terms[-1].term]
    needed = [t for t in postorder(roots) if t.op.name == "maximum"]
    lists = lazy_graph.parts(roots, most)
    done = 0
    while lists:
        wanted = lists.pop()
        outline = Outline(wanted)
        assert 0 < len(outline._terms) <= most
        done += len(outline._terms)
        for t in wanted:
            t.settle(X)
    assert done == len(needed) and terms[-1].term.value is X


def test_a_decomposition_is_computed_once() -> None:
    """Its rank is asked for, then what is made of its vectors."""
    data = np.random.default_rng(0).normal(size=(6, 3))
    u, s, vh = np.linalg.svd(eq.array(data) * 2, full_matrices=False)
    assert int((s > 1e-9).sum()) == 3
    made = (u * s) @ vh
    assert "decompose" not in {op for k in made.explain().kernels for op in k.ops}
    np.testing.assert_allclose(made, data * 2)
