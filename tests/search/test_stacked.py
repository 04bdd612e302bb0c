"""Reductions over stacked arrays become arithmetic of the arrays."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples

import eqsat as eq
from eqsat.search.unstack import unstacked
from eqsat.terms.term import postorder
from eqsat.trace.trace import Spec, trace


def _weighted(s, axis):
    w = np.arange(1.0, s.shape[axis] + 1).astype(s.dtype)
    return (s * np.expand_dims(w, [a for a in range(s.ndim) if a != axis])).sum(axis)


REDUCTIONS = {
    "sum": lambda s, a: s.sum(a),
    "kept": lambda s, a: s.mean(a, keepdims=True) + 1,
    "mean": lambda s, a: np.mean(s, a),
    "product": lambda s, a: s.prod(a),
    "range": lambda s, a: s.max(a) - s.min(a),
    "deviation": lambda s, a: s.std(a),
    "weighted": _weighted,
    "powers": lambda s, a: np.exp(s - s.max(a, keepdims=True)).sum(a),
    "chosen": lambda s, a: np.where(s > 0, s, -s).sum(a),
}


def _ops(function, *arrays):
    found = trace(function, [Spec(x.shape, x.dtype) for x in arrays])
    return {t.op.name for t in postorder(unstacked(found.outputs))}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", REDUCTIONS)
@examples(30)
@given(data=st.data())
def test_agrees_with_float64(name, data):
    shape = data.draw(st.sampled_from([(), (1,), (7,), (3, 5), (4, 1), (2, 0), (70,)]))
    n = data.draw(st.integers(2, 6))
    axis = data.draw(st.integers(0, len(shape)))
    dtype = data.draw(st.sampled_from(["f4", "f8", "f2"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    arrays = [rng.standard_normal(shape).astype(dtype) for _ in range(n)]

    def function(*parts):
        return REDUCTIONS[name](np.stack(parts, axis), axis)

    exact = function(*(a.astype("f8") for a in arrays))
    found = eq.jit(function)(*arrays)
    assert found.dtype == function(*arrays).dtype
    assert found.shape == np.shape(exact)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(found, exact, rtol=8 * n * eps, atol=16 * n * eps)


@given(st.lists(st.sampled_from([1.5, -0.0, 0.0, np.nan, np.inf, -np.inf]), min_size=6))
def test_special_numbers(values):
    arrays = list(np.array(values[: len(values) // 3 * 3]).reshape(3, -1))

    def function(*parts):
        s = np.stack(parts)
        return s.max(0), s.min(0), s.sum(0), s.prod(0)

    with np.errstate(all="ignore"):
        expected = function(*arrays)
    for found, wanted in zip(eq.jit(function)(*arrays), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "bool"])
def test_integers(dtype):
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 2 if dtype == "bool" else 100, 9).astype(dtype)] * 3

    def function(*parts):
        s = np.stack(parts)
        return s.sum(0), s.max(0), s.mean(0), s.prod(0), s.any(0)

    for found, wanted in zip(eq.jit(function)(*arrays), function(*arrays), strict=True):
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype


def test_halves_are_rounded_once():
    one = np.array([1.0], ml_dtypes.bfloat16)
    small = np.array([2.0**-9], ml_dtypes.bfloat16)

    def function(*parts):
        return np.stack(parts).sum(0)

    (found,) = eq.jit(function)(one, *[small] * 4)
    assert found == ml_dtypes.bfloat16(1 + 2.0**-7)


def test_nothing_is_joined():
    x, y = np.zeros((2, 9))

    def running(x):
        return np.stack([x[i : i + 4] for i in range(5)]).std(0)

    assert "concatenate" not in _ops(running, x)
    assert "concatenate" not in _ops(lambda x, y: np.stack([x, y], -1).max(-1), x, y)


def test_a_stack_that_others_read_stays():
    x, y = np.ones((2, 9))

    def used_again(x, y):
        s = np.stack([x, y])
        return s, s.sum(0)

    def along_another_axis(x, y):
        return np.stack([x, y]).sum(1)

    def sorted_too(x, y):
        s = np.stack([x, y])
        return s.sum(0) + np.sort(s, 0)

    def of_longer_parts(x, y):
        return np.concatenate([x, y]).sum(0)

    for function in used_again, along_another_axis, sorted_too, of_longer_parts:
        assert "concatenate" in _ops(function, x, y)


def test_exact_numerics_keep_the_stack():
    def function(x, y):
        return np.stack([x, y]).sum(0)

    f = eq.jit(function, options=eq.Options(numerics="exact"))
    assert "concatenate" in f.lower(np.ones(9), np.ones(9)).source("numpy")
