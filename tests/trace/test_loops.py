"""Loops that Python unrolls: equal steps are optimised once and share machine code."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples

import eqsat as eq
from eqsat.search.loop_slices import LEAST, MANY, numbers, portions
from eqsat.support.options import Options
from eqsat.terms.op import SCALAR
from eqsat.terms.term import postorder
from eqsat.trace.trace import trace

Array = Any
Loop = Callable[[int], tuple[Callable[..., Any], list[Array]]]
RNG = np.random.default_rng(0)


def drawn(*shape: int, times: float = 1.0) -> Array:
    return times * RNG.standard_normal(shape)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def lstm(steps: int) -> tuple[Callable[..., Any], list[Array]]:
    """Hochreiter and Schmidhuber 1997, with the states of all steps."""

    def run(x: Array, h: Array, c: Array, w: Array, u: Array, b: Array) -> Any:
        out = []
        for t in range(steps):
            i, f, o, z = np.split(x[t] @ w + h @ u + b, 4, axis=-1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(z)
            h = sigmoid(o) * np.tanh(c)
            out.append(h)
        return np.stack(out), c

    x, h, c, b = drawn(steps, 5, 7), drawn(5, 6), drawn(5, 6), drawn(24)
    return run, [x, h, c, drawn(7, 24, times=0.3), drawn(6, 24, times=0.3), b]


def runge_kutta(steps: int) -> tuple[Callable[..., Any], list[Array]]:
    def run(x: Array, w: Array) -> Any:
        step = 0.01
        for _ in range(steps):
            a = np.tanh(x @ w)
            b = np.tanh((x + step / 2 * a) @ w)
            c = np.tanh((x + step / 2 * b) @ w)
            d = np.tanh((x + step * c) @ w)
            x = x + step / 6 * (a + 2 * b + 2 * c + d)
        return x

    return run, [drawn(9, 8), drawn(8, 8)]


def heat(steps: int) -> tuple[Callable[..., Any], list[Array]]:
    def run(u: Array) -> Any:
        u = u.copy()
        for _ in range(steps):
            m = u[1:-1, 1:-1]
            around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
            u[1:-1, 1:-1] = m + 0.1 * (around - 4 * m)
        return u

    return run, [drawn(19, 23)]


def adam(steps: int) -> tuple[Callable[..., Any], list[Array]]:
    """Kingma and Ba 2015, on least squares: numbers that differ from step to step."""

    def run(w: Array, x: Array, y: Array) -> Any:
        m = v = 0 * w
        for t in range(1, steps + 1):
            g = (x @ w - y) @ x / len(y)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            w = w - 0.05 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        return w

    return run, [drawn(6), drawn(11, 6), drawn(11)]


def viterbi(steps: int) -> tuple[Callable[..., Any], list[Array]]:
    def run(emitted: Array, moved: Array, score: Array) -> Any:
        back = []
        for t in range(steps):
            m = score[:, None] + moved
            back.append(m.argmax(0))
            score = m.max(0) + emitted[t]
        return score, np.stack(back)

    return run, [drawn(steps, 7), drawn(7, 7), drawn(7)]


def columns(steps: int) -> tuple[Callable[..., Any], list[Array]]:
    """What a step reads are columns, the last one first."""

    def run(x: Array, h: Array) -> Any:
        for t in reversed(range(steps)):
            h = np.sin(h + x[:, t]) * 0.5
        return h

    return run, [drawn(9, steps), drawn(9)]


LOOPS: dict[str, Loop] = {
    f.__name__: f for f in (lstm, runge_kutta, heat, adam, viterbi, columns)
}


def arrays(value: Any) -> list[Array]:
    return [np.asarray(v) for v in (value if isinstance(value, tuple) else (value,))]


def compared(loop: Loop, steps: int, dtype: str, threads: int) -> None:
    run, given_ = loop(steps)
    args = [a.astype(dtype) for a in given_]
    fast = eq.jit(run, options=Options(threads=threads))
    found, wanted = fast(*args), run(*(a.astype(np.float64) for a in args))
    tolerance = {"float32": 2e-3, "float64": 1e-9}[dtype]
    for a, b in zip(arrays(found), arrays(wanted), strict=True):
        if b.dtype.kind == "f":
            np.testing.assert_allclose(a, b, tolerance, tolerance)
        elif dtype == "float64":
            np.testing.assert_array_equal(a, b)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name,threads", [*itertools.product(LOOPS, (1, 3))])
def test_long_loops_compute_what_numpy_does(name: str, threads: int) -> None:
    compared(LOOPS[name], 70, "float64", threads)


# A long loop runs every time.
@pytest.mark.slow
@examples(20)
@given(
    st.sampled_from(list(LOOPS)),
    st.integers(1, 40),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([1, 2]),
)
def test_loops_of_any_length(name: str, steps: int, dtype: str, threads: int) -> None:
    compared(LOOPS[name], steps, dtype, threads)


# Layers of blocks in few distinct regions are counted every time.
@pytest.mark.slow
@pytest.mark.parametrize("name", [*LOOPS])
def test_more_steps_are_no_more_work(name: str) -> None:
    """Neither for the search nor for the compiler."""
    distinct, functions = [], []
    for steps in (40, 80):
        run, args = LOOPS[name](steps)
        low = eq.jit(run).lower(*args)
        distinct.append(low.optimised.distinct_regions)
        functions.append(low.source("llvm").count("\ndefine "))
    assert distinct[1] <= distinct[0] + 2
    assert functions[1] <= 1.5 * functions[0]


def test_portions_are_views_that_a_loop_goes_through() -> None:
    def taken(run: Callable[..., Any], *args: Array) -> list[tuple[int, ...]]:
        done = trace(run, [eq.Spec(a.shape, a.dtype) for a in args])
        return sorted({t.shape for t in portions(list(postorder(done.outputs)))})

    x = drawn(LEAST, 3, 4)
    each = taken(lambda x: sum(np.sin(x[t]) for t in range(LEAST)), x)
    assert each == [(1, 3, 4), (3, 4)]
    assert not taken(lambda x: sum(np.sin(x[t]) for t in range(LEAST - 1)), x)
    y = drawn(LEAST + 2, 4)  # these share elements
    assert not taken(lambda y: sum(np.sin(y[t : t + 3]) for t in range(LEAST)), y)
    # What is computed is no input.
    assert not taken(lambda x: sum(np.exp(x)[t] for t in range(LEAST)), x)


def test_numbers_of_steps_are_those_of_many_alike_terms() -> None:
    def found(run: Callable[..., Any]) -> set[Any]:
        terms = list(postorder(trace(run, [eq.Spec((3,), np.float64)]).outputs))
        assert all(t.op is SCALAR for t in numbers(terms))
        return {t.attrs[0] for t in numbers(terms)}

    def series(x: Array, terms: int) -> Array:
        y = x
        for i in range(terms):
            y = y * 0.75 + (2.0 + i)
        return y

    assert found(lambda x: series(x, MANY)) == {2.0 + i for i in range(MANY)}
    assert not found(lambda x: series(x, MANY - 1))


def test_equal_portions_of_one_array_that_is_written_to() -> None:
    """Results and arguments may be views of one memory."""

    def run(x: Array) -> Array:
        x = x.copy()
        for t in range(1, 30):
            x[t] = 0.5 * x[t - 1] + x[t]
        return x

    x = drawn(30, 4)
    np.testing.assert_allclose(eq.jit(run)(x), run(x), 1e-12)
