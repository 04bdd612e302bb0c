"""Lazy arrays: what they compute, by value, and which errors they raise."""

from __future__ import annotations

import copy
import doctest
import gc
import math
import operator
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from evaluate import evaluate
from hypothesis import given
from hypothesis import strategies as st
from lazily import W, X, layer, near
from sizes import examples

import eqsat as eq
from eqsat.lazy import graph as lazy_graph
from eqsat.lazy import lazy_array
from eqsat.lazy.graph import Outline
from eqsat.testing import Computed, DrawnProgram, agreement, programs
from eqsat.testing.drawn import quiet
from eqsat.trace.trace import trace


def test_the_examples_of_the_docstrings_run() -> None:
    assert doctest.testmod(lazy_array).failed == 0
    assert doctest.testmod(lazy_array).attempted > 5


# -- values ----------------------------------------------------------------------------


@examples(60)
@given(programs(max_ops=8), st.booleans())
def test_random_programs_compute_what_numpy_does(
    program: DrawnProgram, all_lazy: bool
) -> None:
    lazy_ones = program.inputs if all_lazy else program.variables

    def mixed(*arrays: Any) -> Any:
        rest = iter(arrays)
        isin = {id(a) for a in lazy_ones}
        with quiet():  # what is made of constants alone is computed at once
            return program.function(
                *(next(rest) if id(a) in isin else a for a in program.inputs)
            )

    try:
        wanted = trace(mixed, [a.copy() for a in lazy_ones])
    except eq.TraceError:  # NumPy does not ask arguments such as the indices of take
        assert not all_lazy
        return
    results = mixed(*map(eq.array, lazy_ones))
    chosen = [i for i, r in enumerate(results) if isinstance(r, eq.LazyArray)]
    terms = [wanted.outputs[i] for i in chosen]
    assert [(results[i].dtype, results[i].shape) for i in chosen] == [
        t.type for t in terms
    ]
    if not chosen:
        return
    outline = Outline([results[i].term for i in chosen])
    low = eq.jit(outline.function()).lower(*outline.leaves)
    fixed = {id(a) for a in low.trace.constants}
    given_ = [a for a in outline.leaves if id(a) not in fixed]
    values = eq.evaluate(results)
    with quiet():
        references = evaluate(terms, lazy_ones)
    want = Computed(references, terms, lazy_ones)
    got = Computed([values[i] for i in chosen], low.term, given_)
    assert not (found := agreement(want, got)).reason, found


@pytest.mark.parametrize(
    "data",
    [
        [1, 2],
        [[1.5, 2.5], [3, 4]],
        3,
        2.5,
        True,
        np.float32(3),
        (1, 2.0),
        range(3),
        X.T,
        X[::2, ::-1],
        np.zeros((0, 3)),
        np.array([1, 2], ml_dtypes.bfloat16),
    ],
    ids=str,
)
def test_array_takes_what_numpy_takes(data: Any) -> None:
    x, want = eq.array(data), np.array(data)
    assert isinstance(x, eq.LazyArray)
    assert (x.shape, x.dtype, x.ndim, x.size) == (
        want.shape,
        want.dtype,
        want.ndim,
        want.size,
    )
    got = x.eval()
    assert type(got) is np.ndarray and got.tobytes() == want.tobytes()
    assert eq.array(data, "float32").dtype == np.float32
    assert eq.array(x) is not x and eq.array(x, np.float16).dtype == np.float16


def test_what_no_lazy_array_can_be_of() -> None:
    with pytest.raises(eq.DTypeError, match=r"eq\.array: the data: dtype <U1 .*"):
        eq.array("a")
    with pytest.raises(eq.DTypeError, match="complex256 is not supported"):
        eq.array([1, 2], "G")
    with pytest.raises(eq.TraceError, match=r"MaskedArray.*filled"):
        eq.array(np.ma.masked_array([1, 2]))


def test_operators_functions_methods_and_ops() -> None:
    x, w = eq.array(X), eq.array(W)
    for f in (
        layer,
        lambda x, w: (x @ w).T + 1,
        lambda x, w: 1 - x.mT[..., :2] / 3,
        lambda x, w: np.concatenate([x[:3].T, w], axis=1).sum(axis=0, keepdims=True),
        lambda x, w: np.where(x > 0, x, -x).max(),
        lambda x, w: x.mean(-1) ** 2 + np.float64(2) * x[:, np.array([0])].ravel(),
        lambda x, w: np.stack([r.sum() for r in x]),
        lambda x, w: divmod(x, 2)[1] // 0.25,
    ):
        y, want = f(x, w), f(X, W)
        assert isinstance(y, eq.LazyArray) and len(y.shape) == y.ndim
        assert (y.shape, y.dtype, y.size) == (want.shape, want.dtype, want.size)
        near(y.eval(), np.asarray(want))
    assert len(x) == 4 and len(list(x)) == 4


def test_what_needs_no_array() -> None:
    x = eq.array([1.0, 2.0])
    assert repr(np.zeros_like(x)) == "eq.array([0., 0.])"
    zeros, ones = eq.evaluate(np.zeros_like(x), np.ones_like(x, shape=(2, 1)))
    assert zeros.tolist() == [0, 0] and ones.tolist() == [[1], [1]]
    assert eq.jit(np.ones_like)(x).lower().program.inputs
    assert (np.ones_like(x) * 2).explain().kernels is not None


def test_arrays_of_numpy_on_either_side() -> None:
    x = eq.array(X)
    for y in (X + x, x + X, np.add(X, x), X[0] + x, np.float32(1) * x + X.tolist()):
        assert isinstance(y, eq.LazyArray)
    near((X @ x.T).eval(), X @ X.T)
    z = X.copy()
    z[1] = x[0]
    assert (z[1] == X[0]).all()


def test_indices_masks_and_bounds_may_be_lazy() -> None:
    x, i = eq.array(X), eq.array([2, 0])
    near(x[i].eval(), X[[2, 0]])
    near(x[: i[0]].eval(), X[:2])
    near(np.repeat(x, i[0], 0).eval(), np.repeat(X, 2, 0))
    near(np.split(x, i[0])[1].eval(), X[2:])
    assert X[i[0]].shape == (3,) and [*range(i[0])] == [0, 1]
    near(x[X[:, 0] > 0].eval(), X[X[:, 0] > 0])
    near(eq.jit(lambda y: y[x > 0])(X), X[X > 0])
    near(eq.jit(lambda y: x[y > 0])(X), X[X > 0])
    near(eq.jit(lambda y: x[0, y[0] > 0])(X), X[0, X[0] > 0])


# -- by value --------------------------------------------------------------------------


def test_later_writes_to_arrays_change_nothing() -> None:
    source, other, number = X.copy(), X.copy(), np.array(2.0, np.float32)
    x = eq.array(source)
    y = x * other + number
    source[:] = other[:] = number[...] = 0
    near(y.eval(), X * X + 2)
    near(x.eval(), X)


def test_arrays_used_many_times_are_copied_once_for_each_content() -> None:
    w = np.eye(40)
    x = eq.array(np.arange(40.0))
    y = x @ w + x @ w[:] * w[0] @ w
    leaves = Outline([y.term]).leaves
    assert sum(a.shape == (40, 40) for a in leaves) == 2  # w[:] is another object
    assert not any(np.shares_memory(a, w) for a in leaves)
    w[3, 3] = -0.0
    z = y + x @ w
    w[3, 3] = 0.0
    z = z + x @ w
    assert sum(a.shape == (40, 40) for a in Outline([z.term]).leaves) == 4
    near(y.eval(), np.arange(40.0) + np.arange(40) * np.eye(40)[0])
    del y, z, leaves
    gc.collect()
    assert not lazy_graph.RECORDING._copies


def test_values_are_read_only_and_copies_are_not() -> None:
    x = eq.array(X) + 1
    with pytest.raises(ValueError, match="read-only"):
        x.eval()[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(x)[0] = 0
    for mine in (x.eval().copy(), np.array(x), np.array(x, copy=True)):
        mine[:] = 0
    near(x.eval(), X + 1)
    assert np.asarray(x, np.float64).dtype == np.float64
    assert np.shares_memory(np.asarray(x), x.eval())
    near(eq.jit(lambda a: a + 1)(x.eval()), X + 2)


def test_in_place_operators_change_the_array() -> None:
    x = y = eq.array([1.0, 2.0])
    x += 1
    x *= 2
    x -= 1
    x /= 2
    x **= 2
    x //= 1
    x %= 4
    assert y is x and x.tolist() == [2.0, 2.0]
    i, want = eq.array([5, 6]), np.array([5, 6])
    for op in (operator.ior, operator.ixor, operator.ilshift, operator.iand):
        assert op(i, 2).tolist() == op(want, 2).tolist()
    assert operator.irshift(i, 1).tolist() == i.tolist() == (want >> 1).tolist()
    near(operator.imatmul(eq.array(X), X.T @ X).eval(), X @ (X.T @ X))


def test_what_asks_for_values() -> None:
    x, zero = eq.array([1.5, 2.5]) * 2, eq.array(2) * 2
    assert float(x[0]) == 3.0 and int(x[1]) == 5 and complex(x[0]) == 3
    assert (x.tolist(), x[0].item(), x.item(1)) == ([3.0, 5.0], 3.0, 5.0)
    assert x.tobytes() == np.array([3.0, 5.0]).tobytes()
    assert (str(x), repr(x)) == ("[3. 5.]", "eq.array([3., 5.])")
    assert repr(eq.array([[1], [2]])) == "eq.array([[1],\n          [2]])"
    assert f"{x[0]:.2f}" == "3.00" and 5 in x and 4 not in x
    assert operator.index(zero) == 4 and [0, 1, 2, 3, 9][zero] == 9
    if x.sum() < 5 or not (x > 0).all():
        pytest.fail("8 < 5")
    with pytest.raises(ValueError, match="truth value of an array"):
        bool(x > 0)
    with pytest.raises(TypeError):
        operator.index(x[0])
    assert np.allclose(x, [3, 5]) and max(x[0], x[1]) is not x
    np.testing.assert_array_equal(x, [3, 5])


def test_masks_ask_for_values() -> None:
    x = eq.array(X) * 2
    some, rows, columns = X > 0, X[:, 0] > 0, X[0] > 0
    for key in (some, some.tolist(), rows, (slice(2), columns), X[0, 0] > 9, True):
        near(x[key].eval(), (X * 2)[key])
        lazy_key = tuple(map(_lazy, key)) if isinstance(key, tuple) else _lazy(key)
        got = x[lazy_key]
        assert isinstance(got, eq.LazyArray)
        near((got + 1).eval(), (X * 2)[key] + 1)
    near(x[x > 0].eval(), (X * 2)[X > 0])
    with pytest.raises(IndexError, match=r"boolean index of shape \(3,\)"):
        x[x[0] > 0]
    with pytest.raises(IndexError, match="out of bounds"):
        x[9]


def _lazy(key: Any) -> Any:
    return key if isinstance(key, slice) else eq.array(key)


def test_arrays_of_numpy_are_written_to(tmp_path: Path) -> None:
    x, y, out = eq.array(X) * 2, X.copy(), np.empty_like(X)
    y += x
    y[0] *= x[1]
    y[1:] = x[1:]
    want = np.concatenate([X[:1] * 3 * (X[1:2] * 2), X[1:] * 2])
    near(y, want)
    assert np.add(x, x, out=out) is out and np.exp(X, out=out, where=x > 0) is out
    near(out, np.where(X > 0, np.exp(X), X * 4))
    np.sum(x, axis=0, out=out[0])
    near(out[0], (X * 2).sum(0))
    np.copyto(out, x)
    np.add.at(out, [0, 0], x[0])
    near(out[0], X[0] * 6)
    mapped = np.memmap(tmp_path / "map", np.float32, "w+", shape=X.shape)
    mapped += x
    near(np.asarray(mapped), X * 2)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x, named=x + 1)
    near(np.load(tmp_path / "x.npy"), X * 2)
    near(np.load(tmp_path / "x.npz")["named"], X * 2 + 1)
    assert np.array2string(x[0]) == np.array2string(X[0] * 2)
    near(np.concatenate([x, X], out=np.empty((8, 3), X.dtype))[:4], X * 2)
    for wrong in (
        lambda: np.copyto(x, X),
        lambda: np.add.at(x, [0], X[0]),
        lambda: np.put(x, [0], 1),
        lambda: np.exp(X, out=x),
    ):
        with pytest.raises(eq.TraceError):
            wrong()
    near(x.eval(), X * 2)


def test_copies_pickles_and_hashes() -> None:
    x = eq.array(X) * 2
    copies = copy.copy(x), copy.deepcopy([x])[0], x.copy(), eq.array(x)
    assert all(c is not x and c.made is x.made for c in copies)
    again = pickle.loads(pickle.dumps(x))
    assert isinstance(again, eq.LazyArray) and again is not x
    near((again + 1).eval(), X * 2 + 1)
    assert {x: 1}[x] == 1 and hash(x) != hash(again)


# -- errors ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x @ x,
        lambda x: x + np.ones(7),
        lambda x: x[9],
        lambda x: x.reshape(5),
        lambda x: np.linalg.inv(x),
        lambda x: x[x[0] > 0],
        lambda x: x.flags,
        lambda x: x == None,  # noqa: E711
        lambda x: eq.softmax(x, axis=3),
        lambda x: x.astype("U3"),
        lambda x: 1j * x // 2,
    ],
)
def test_errors_are_those_of_tracing_and_come_at_once(
    wrong: Callable[[Any], Any],
) -> None:
    with pytest.raises(eq.EqsatError) as want:
        trace(wrong, [X])
    with pytest.raises(eq.EqsatError) as got:
        wrong(eq.array(X))
    assert type(got.value) is type(want.value)
    assert str(got.value) == str(want.value)
    line = wrong.__code__.co_firstlineno
    assert f"{__file__}:{line}" in str(got.value)


def test_errors_tell_how_to_get_values() -> None:
    with pytest.raises(eq.TraceError) as error:
        np.linalg.eig(eq.array(np.eye(2)))
    assert error.value.__notes__ == [
        "x.eval() gives the values of a lazy array to NumPy"
    ]
    for wrong in (lambda x: x.flags, lambda x: np.copyto(x, X)):
        with pytest.raises(eq.TraceError) as error:
            wrong(eq.array(X))
        assert "x.eval()" in error.value.__notes__[0]
    with pytest.raises(AttributeError, match="'LazyArray' object has no attribute 'f'"):
        eq.array(X).f  # noqa: B018


def test_errors_of_values_come_with_evaluating_and_leave_the_array_as_it_is() -> None:
    y = eq.ops.take(eq.array(X), eq.array([1, 99]), axis=0)
    for _ in range(2):
        with pytest.raises(IndexError, match="99"):
            y.eval()


# -- arrays of MLX ---------------------------------------------------------------------


def test_arrays_of_mlx_give_arrays_of_mlx() -> None:
    mx = pytest.importorskip("mlx.core")
    data = mx.array(X)
    x = eq.array(data)
    y = np.tanh(x @ W) + 1
    data[0] = 0
    got = y.eval()
    assert isinstance(got, mx.array) and isinstance(x[1].eval(), mx.array)
    np.testing.assert_allclose(np.asarray(got), np.tanh(X @ W) + 1, rtol=1e-5)
    got[0] = 0
    np.testing.assert_allclose(np.asarray(y), np.tanh(X @ W) + 1, rtol=1e-5)
    assert isinstance(pickle.loads(pickle.dumps(y)).eval(), mx.array)
    assert eq.array(data, np.float16).eval().dtype == mx.float16
    assert x[np.int64(1), 1:].tolist() == X[1, 1:].tolist()
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0"):
        x[4]
    half = eq.array(mx.array([1, 2], dtype=mx.bfloat16))
    assert half.dtype == ml_dtypes.bfloat16 and half.tolist() == [1, 2]
    assert np.asarray(half * 2).dtype == ml_dtypes.bfloat16
    with pytest.raises(eq.TraceError, match=r"an operand is a mlx\.core\.array"):
        np.add(eq.array(X), data)
    with pytest.raises(eq.TraceError, match=r"an operand is a mlx\.core\.array"):
        eq.array(X) + data


@pytest.mark.parametrize("value", [2.6, 2.5, 3.5, -2.5, 5, -7, np.float32(2.7)])
def test_numbers_are_rounded_to_ints_of_python(value: Any) -> None:
    x = eq.array(value)
    for of in (round, math.trunc, math.floor, math.ceil):
        found, want = of(x), of(float(value))
        assert (found, type(found)) == (want, int)


@pytest.mark.parametrize("of", [round, math.trunc])
def test_numbers_that_are_no_ints_are_refused(of: Any) -> None:
    with pytest.raises(ValueError, match="NaN"):
        of(eq.array(math.nan))
    with pytest.raises(OverflowError, match="infinity"):
        of(eq.array(math.inf))
