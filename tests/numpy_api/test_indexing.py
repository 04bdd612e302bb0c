"""Indices of every kind give what they give in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from evaluate import assert_same, traced
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices
from sizes import examples

from eqsat.trace.trace import trace

RANKS = st.integers(1, 4)


@st.composite
def index_arrays(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A key with one or more integer arrays or masks among ints, slices and None."""
    ndim = draw(st.integers(1, 2))
    dims = tuple(draw(st.sampled_from([1, 2])) for _ in range(ndim))
    key: list[Any] = []
    head = draw(st.integers(0, len(shape)))
    tail = (
        draw(st.integers(0 if head else 1, len(shape) - head))
        if head < len(shape)
        else 0
    )
    for axis in (*range(head), *range(len(shape) - tail, len(shape))):
        n = shape[axis]
        if axis == len(shape) - tail and (
            head + tail < len(shape) or draw(st.booleans())
        ):
            key.append(Ellipsis)
        ints = st.integers(-n, n - 1)
        kind = draw(st.sampled_from("array array list int slice mask".split()))
        if kind == "array":
            values = [draw(ints) for _ in range(int(np.prod(dims)))]
            key.append(np.array(values).reshape(dims))
        elif kind == "list":
            key.append([draw(ints)])
        elif kind == "int":
            key.append(draw(ints))
        elif kind == "mask":
            key.append(np.arange(n) == draw(st.integers(0, n - 1)))
        else:
            key.append(draw(st.slices(n)))
        if draw(st.integers(0, 5)) == 0:
            key.append(None)
    return tuple(key)


@given(st.data())
def test_basic_indices(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.permutations([1, 2, 3, 4])))[: data.draw(RANKS)]
    x = np.arange(np.prod(shape)).reshape(shape)
    key = data.draw(basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    assert_same(traced(lambda x: x[key], x), x[key])


@given(st.data())
@examples(200)
def test_index_arrays(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.permutations([2, 3, 4, 5])))[: data.draw(RANKS)]
    x = np.arange(np.prod(shape)).reshape(shape)
    key = data.draw(index_arrays(shape))
    assert_same(traced(lambda x: x[key], x), x[key])
    arrays = [i for i, k in enumerate(key) if isinstance(k, np.ndarray)]
    masks = [i for i in arrays if key[i].dtype == bool]
    for places in ([i for i in arrays if i not in masks], masks, arrays):

        def by_traced_arrays(x: Any, *arrays: Any) -> Any:
            new = list(key)
            for i, a in zip(places, arrays, strict=True):  # noqa: B023
                new[i] = a
            return x[tuple(new)]

        assert_same(traced(by_traced_arrays, x, *(key[i] for i in places)), x[key])


def test_traced_indices_out_of_bounds_are_errors_when_they_run() -> None:
    x = np.ones((3, 4))
    for rows, columns in (([0, 3], [0, 0]), ([0, -4], [0, 0]), ([0, 1], [0, 4])):
        with pytest.raises(IndexError):
            traced(lambda x, i, j: x[i, j], x, np.array(rows), np.array(columns))


def test_a_slice_of_everything_is_the_array_itself() -> None:
    done = trace(
        lambda x: (x[:], x[...], x[()], x[:, 0:4], +x, x.copy()), [np.ones((3, 4))]
    )
    assert set(done.outputs) == set(done.inputs)
