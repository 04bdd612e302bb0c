"""Estimates of explanations, the clock beside them, and lines that become float64."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sizes import some

import eqsat as eq
from eqsat import define, ops
from eqsat.explain import Measured, Spread, Timing
from eqsat.kernels import backend_named, clock_of, numpy_calls
from eqsat.kernels.numpy_call_times import NumpyCalls
from eqsat.support import EqsatError

Array = np.ndarray[Any, Any]


def draw(*shape: int, dtype: str = "f4") -> Array:
    return np.random.default_rng(shape).uniform(0.5, 1.5, shape).astype(dtype)


X, Y = draw(64, 256), draw(256)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    found: Array = e / e.sum(-1, keepdims=True)
    return found


# -- estimates -------------------------------------------------------------------------


def test_as_written_is_what_numpy_does() -> None:
    e = eq.jit(softmax).explain(X)
    assert e.numpy_calls == 5  # max, subtract, exp, sum, divide
    assert e.numpy_s > e.unfused_s > e.estimate_s > 0
    text = str(e)
    assert "NumPy, as written: 5 operations" in text
    assert f"({e.numpy_s / e.estimate_s:.2f} times as long)" in text
    assert "without fusion: 5 kernels" in text


def test_estimates_of_kernels_add_up_to_that_of_a_call() -> None:
    e = eq.jit(lambda x: (softmax(x) @ x.T, x.sum(0))).explain(X)
    kernels = sum(k.estimate_s for k in e.kernels)
    assert kernels <= e.estimate_s <= kernels + 1e-6
    assert {k.bound for k in e.kernels} <= {"arithmetic", "memory", "start"}
    record = json.loads(e.to_json())
    assert record["numpy_s"] == e.numpy_s and record["timing"] is None
    assert [k["bound"] for k in record["kernels"]] == [k.bound for k in e.kernels]


@pytest.mark.parametrize(
    "make, size, bound",
    [
        (lambda x: x + 1, 1 << 24, "memory"),
        (lambda x: np.exp(np.exp(np.exp(x))), 1 << 12, "arithmetic"),
        (lambda x: x + 1, 4, "start"),
    ],
)
def test_a_kernel_says_what_it_waits_for(make: Any, size: int, bound: str) -> None:
    (kernel,) = eq.jit(make).explain(eq.Spec((size,), "float32")).kernels
    assert kernel.bound == bound


def test_prices_of_numpy_grow_with_what_it_does() -> None:
    calls = numpy_calls()

    def seconds(f: Any, *args: Any) -> float:
        return calls.program(eq.jit(f).lower(*args).trace.outputs)

    assert seconds(np.exp, X) > seconds(np.negative, X)
    assert seconds(np.exp, draw(64, 256, dtype="f8")) > seconds(np.exp, X)
    assert seconds(lambda x: x + 1, draw(4096)) > seconds(lambda x: x + 1, draw(16))
    assert seconds(lambda x: x[::2], X) < seconds(lambda x: x + 1, X)
    assert seconds(lambda x: x @ x.T, X) > seconds(lambda x: x @ x.T, X[:8])
    assert seconds(ops.gelu, X) > seconds(np.negative, X)  # its body's calls
    few, many = draw(4, 3, 3), draw(4000, 3, 3)
    product = lambda x: x @ x  # noqa: E731
    assert seconds(product, many) > 100 * seconds(product, few) / 10
    rows = eq.Spec((100000, 64), "float32"), np.arange(8)
    assert seconds(lambda t, i: t[i], *rows) < 1e-5  # not the whole table


@pytest.mark.parametrize("name", sorted(n for n in ops.__all__ if n.islower()))
def test_each_op_has_a_price(name: str) -> None:
    op = getattr(ops, name)
    if getattr(op, "kind", "") != "pointwise" or getattr(op, "attrs", ()):
        return
    args = [X] * len(op.params)
    for dtype in some(("f4", "f8", "i4", "?"), 1):
        try:
            low = eq.jit(op).lower(*[a.astype(dtype) for a in args])
        except EqsatError:
            continue
        assert 0 < numpy_calls().program(low.trace.outputs) < 1e-1


def test_what_a_user_defines_has_a_price() -> None:
    @define.composite("... n -> ... n", promotion="common")
    def figure_of_a_user(x: Any) -> Any:
        return np.tanh(x) + 1

    e = eq.jit(figure_of_a_user).explain(X)
    assert e.numpy_s > 0 and e.estimate_s > 0


def test_a_table_is_kept_as_it_is_and_a_broken_one_is_refused() -> None:
    calls = numpy_calls()
    record = calls.record()
    assert NumpyCalls.of_record(json.loads(json.dumps(record))).record() == record
    for broken in (
        {**record, "view_s": -1.0},
        {**record, "inner_s": float("nan")},
        {**record, "products": {**record["products"], "any": 0.0}},
        {**record, "calls": {}},
        {k: v for k, v in record.items() if k != "reads"},
    ):
        with pytest.raises((ValueError, LookupError)):
            NumpyCalls.of_record(broken)


def test_a_backend_without_a_clock_has_that_of_its_cost_model() -> None:
    numpy = backend_named("numpy")
    clock = clock_of(numpy, numpy.model)
    program = eq.jit(softmax, backend="numpy").lower(X).program
    assert clock.device == numpy.model.device
    assert [k.seconds for k in clock.kernels(program)] == [
        numpy.model.term(k.term) for k in program.kernels
    ]


# -- the clock -------------------------------------------------------------------------


def test_clock_and_estimate_stand_side_by_side() -> None:
    e = eq.jit(lambda x: softmax(x) @ x.T).explain(X, measure=True)
    timing = e.timing
    assert timing is not None
    assert [m.name for m in timing.kernels] == [k.name for k in e.kernels]
    assert [m.estimate_s for m in timing.kernels] == [k.estimate_s for k in e.kernels]
    assert timing.numpy.estimate_s == e.numpy_s
    assert timing.program.estimate_s == e.estimate_s
    for m in timing.rows:
        assert 0 < m.time.low_s <= m.time.median_s <= m.time.high_s
        assert m.time.rounds >= 5
        assert m.name in str(e)
    assert json.loads(e.to_json())["timing"]["speedup"] == timing.speedup


def test_estimates_that_are_off_are_marked() -> None:
    def measured(name: str, estimate_s: float) -> Measured:
        return Measured(name, estimate_s, Spread.of([1e-5, 1e-5, 1e-5]))

    right, far = measured("right", 1.9e-5), measured("far <b>", 4e-6)
    timing = Timing(right, far, (far,), threads=1)
    assert [m.is_off for m in timing.rows] == [False, True, True]
    lines = str(timing).splitlines()
    assert [("off" in line) for line in lines[1:4]] == [False, True, True]
    assert "2 estimates more than 2 times off" in lines[-1]
    assert "far &lt;b&gt;" in timing._repr_html_()


def test_a_wide_spread_is_explained_where_it_occurs() -> None:
    def measured(name: str, *seconds: float) -> Measured:
        return Measured(name, 1e-5, Spread.of(seconds))

    even = measured("even", 1e-5, 1.1e-5, 1.2e-5)
    uneven = measured("uneven <b>", 1e-5, 2e-5, 9e-5)
    assert "far apart" not in str(Timing(even, even, (even,), threads=1))
    timing = Timing(uneven, even, (even, uneven), threads=1)
    last = str(timing).splitlines()[-1]
    assert last.startswith("uneven <b>, uneven <b>: the quartiles are far apart")
    assert "other programs" in last and last.endswith("on a machine that is free")
    assert "<p>uneven &lt;b&gt;, " in timing._repr_html_()


def test_arguments_that_a_function_writes_to_stay_as_they_are() -> None:
    x = X.copy()

    def f(x: Array) -> Array:
        x *= 2
        return x + 1

    eq.jit(f).benchmark(x)
    assert np.array_equal(x, X)


def test_a_spec_cannot_be_timed() -> None:
    with pytest.raises(EqsatError, match="argument x is a Spec, which has no data"):
        eq.jit(softmax).benchmark(eq.Spec((4, 4), "float32"))


def test_an_argument_called_measure_is_the_functions_own() -> None:
    def scaled(x: Array, measure: bool = False) -> Array:
        return x * 2 if measure else x

    e = eq.jit(scaled).explain(X, measure=True)
    assert e.timing is None and len(e.kernels) == 1


# -- float64 unasked -------------------------------------------------------------------

TABLE = np.linspace(0, 1, 256)
WIDENED: list[tuple[str, Any, str]] = [
    ("a root", lambda x: x / np.sqrt(64), "a scalar of NumPy"),
    ("a logarithm", lambda x: x * np.log(2), "a scalar of NumPy"),
    ("a mean", lambda x: x - np.mean([1.0, 2.0]), "a scalar of NumPy"),
    ("an array without axes", lambda x: x + np.array(2.0), "a scalar of NumPy"),
    ("a number", lambda x: np.maximum(x, np.float64(0.5)), "a scalar of NumPy"),
    ("a norm", lambda x: x / np.linalg.norm(np.ones(3)), "a scalar of NumPy"),
    ("a choice", lambda x: np.where(x > 1, x, np.sqrt(2)), "a scalar of NumPy"),
    ("a table", lambda x: x * TABLE, "shape (256,); give it"),
    ("a made array", lambda x: x @ np.eye(256), "shape (256, 256); give it"),
    ("joined", lambda x: np.concatenate([x, np.zeros((1, 256))]), "an array of"),
    ("integers", lambda x: x + np.arange(256), "integers of int64"),
]
ASKED: list[tuple[str, Any]] = [
    ("Python's numbers", lambda x: x * 2.0 + np.pi),
    ("astype", lambda x: x.astype(np.float64) * 2),
    ("a dtype", lambda x: np.sum(x, dtype=np.float64)),
    ("float32", lambda x: x * np.float32(2)),
    ("float", lambda x: x / float(np.sqrt(64))),
]


@pytest.mark.parametrize("what, f, by", WIDENED, ids=[w for w, *_ in WIDENED])
def test_a_line_that_becomes_float64_unasked(what: str, f: Any, by: str) -> None:
    assert f(X).dtype == np.float64
    e = eq.jit(f).explain(X)
    (found,) = e.widenings
    assert by in str(found) and str(found).startswith(__file__)
    assert str(found) in str(e)
    assert f"float32 becomes float64 by {found.by}" in str(found)


@pytest.mark.parametrize("what, f", ASKED, ids=[w for w, *_ in ASKED])
def test_float64_that_was_asked_for_is_not(what: str, f: Any) -> None:
    assert eq.jit(f).explain(X).widenings == ()


def test_only_the_first_line_is_named_and_an_argument_counts() -> None:
    def f(x: Array, y: Array) -> Array:
        h = x / np.sqrt(2)
        k = h + x
        found: Array = k * h
        return found

    assert len(eq.jit(f).explain(X, Y).widenings) == 1
    wide = Y.astype("f8")
    (found,) = eq.jit(lambda x, y: x * y).explain(X, wide).widenings
    assert "argument 1, which is float64" in str(found)
    assert eq.jit(lambda y: y * np.sqrt(2)).explain(wide).widenings == ()
