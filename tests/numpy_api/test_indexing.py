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

import eqsat as eq
from eqsat.support import DTypeError
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


# -- writes ----------------------------------------------------------------------------

WRITTEN = [
    "x[i, None]", "x[i, None, :]", "x[:, None, i]", "x[None, i]", "x[i, ..., None]",
    "x[..., None, i]", "x[i, None, 0]", "x[i, None, i]", "x[:, i, None, 0]",
    "x[i, i, None]", "x[0, None, i]", "x[i, i, i, None]", "x[i, None, i, i]",
    "x[:, i, 0, None]", "x[i[0], None]", "x[:, None, i[0]]", "x[j, None]",
    "x[j, None, i]", "x[:, j, None, i]", "x[None, i, None, i]", "x[i, i, ...]",
    "x[range(2), None]", "x[:, (0, 1)]", "x[range(2), (1, 0)]", "x[[i[0], 1]]",
    "x[k, None, k]", "x[None, k, ..., k]", "x[:, k, None, 1]", "x[j[None], None]",
]  # fmt: skip
STATEMENTS = ["{} += 1", "{} = {} * 2", "{} *= 3", "{} = 7"]
SHAPES: list[tuple[int, ...]] = [(3, 2), (2, 3), (3, 3, 2), (2, 4, 3), (5,)]


def outcome(f: Any, *args: Any) -> Any:
    """What a function returns; the kind of error where NumPy takes an argument for
    one."""
    try:
        return f(*args)
    except (ValueError, IndexError) as error:
        return type(error)


def assert_alike(line: str, x: Any, backend: str, **more: Any) -> None:
    """A line does to ``x`` what it does in NumPy, when it is traced and when it is
    not, and so with all indices."""
    names = {"np": np, "k": np.array([1, 0])}
    exec(f"def f(x, i, j, v):\n    {line}\n    return x", names)
    f: Any = names["f"]
    args = np.array([1, 0]), np.array([[1, 0, 1]]).T, more.get("v", 0)
    want = outcome(f, x.copy(), *args)
    own = x.copy()
    got = outcome(eq.jit(f, backend=backend), own, *args)
    if isinstance(want, type):
        assert isinstance(got, type) and issubclass(got, want), (line, x.shape, got)
        return
    assert not isinstance(got, type), (line, x.shape, got)
    for array in (own, got):
        assert (array.dtype, array.shape) == (want.dtype, want.shape), line
        np.testing.assert_array_equal(array, want, line)


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("place", WRITTEN)
def test_a_write_goes_where_the_read_is(place: str, backend: str) -> None:
    for n, shape in enumerate(SHAPES):
        x = np.arange(np.prod(shape)).reshape(shape)
        line = STATEMENTS[n % len(STATEMENTS)].replace("{}", place)
        assert_alike(line, x.astype(["f8", "i4", "f4"][n % 3]), backend)


@pytest.mark.parametrize("place", WRITTEN)
def test_a_value_has_the_shape_that_the_read_has(place: str) -> None:
    for shape in ((3, 2), (2, 3, 2), (2, 2, 2)):
        x = np.arange(np.prod(shape)).reshape(shape).astype(float)
        values = [
            np.arange(2.0),
            np.arange(2.0)[:, None],
            np.arange(3.0)[:, None, None],
        ]
        for v in values:
            assert_alike(f"{place} = v", x, "numpy", v=v)


ADDED = [
    "(slice(None), i)", "(..., i)", "(i, ...)", "(i, slice(0, 1))", "(None, i)",
    "(slice(0, 2), i)", "(i, None)", "(i, None, j)", "(slice(None), None, i)",
    "(slice(None, None, -1), [0, 0])", "slice(0, 2)", "...", "None", "()", "0",
    "(0, 1)", "range(2)", "(range(2), 0)", "((0, 0),)", "[(0, 0)]", "[]", "[0, 0, 1]",
    "(slice(None), [1, 0, 1])", "(i[0], slice(None))", "[i[0], 0]",
    "(i, slice(None), slice(None))", "(i, i, i, i)", "(k, None, k)", "(k, k, None)",
    "(slice(None), range(2), None)",
]  # fmt: skip


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("key", ADDED)
def test_a_ufunc_changes_what_a_key_of_any_kind_names(key: str, backend: str) -> None:
    for n, shape in enumerate([(3, 2), (2, 3, 2)]):
        x = (np.arange(np.prod(shape)) % 5).reshape(shape)
        for ufunc in ("add", "subtract"):
            assert_alike(f"np.{ufunc}.at(x, {key}, 2)", x.astype("f4"), backend)
            assert_alike(f"np.{ufunc}.at(x, {key}, x[..., :1])", x, backend)
        assert_alike(f"np.add.at(x, {key}, True)", x > 2, backend)
        if "i" not in key.replace("slice", "") and "j" not in key:
            for call in ("maximum.at(x, {}, 3)", "negative.at(x, {})"):
                x = x.astype(["f8", "i4"][n])
                assert_alike(f"np.{call.format(key)}", x, backend)


def test_values_are_the_same_for_a_slice_and_its_places() -> None:
    x = np.arange(6.0).reshape(3, 2)
    for v in (np.arange(3.0)[:, None], np.arange(2.0), np.arange(3.0), np.ones((2, 2))):
        for ufunc in ("add", "multiply"):
            assert_alike(f"np.{ufunc}.at(x, (slice(None), [0, 0]), v)", x, "numpy", v=v)


# -- values and indices in lists -------------------------------------------------------

LISTS = [
    "[1, 2]", "[1.5, 2]", "(1, 2)", "[True]", "[[1, 2]]", "[300]", "[]", "range(3)",
    "[np.float64(1.5)]", "1.5", "True", "-1", "np.float64(1.5)", "np.int64(7)",
    "np.array([True])",
]  # fmt: skip


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("values", LISTS)
def test_numbers_in_lists_take_the_dtype_that_is_written_to(
    values: str, backend: str
) -> None:
    for dtype in ("f4", "f8", "?", "i4", "c8", "f2"):
        x = np.array([0, 1, 2, 3]).astype(dtype)
        for call in ("putmask(x, x > 0, {})", "put(x, [0, 2], {})"):
            if dtype != "c8" or "x > 0" not in call:
                assert_alike(f"np.{call.format(values)}", x, backend)
        assert_alike(f"x.flat[1:] = {values}", x, backend)


def test_arrays_of_another_dtype_are_no_values_of_a_mask() -> None:
    for v in (np.array([1, 2]), np.array([1.5, 2]), np.array(1.5)):
        for line in ("np.putmask(x, [0, 1, 1], v)", "np.putmask(x, x > 0, v * 1)"):
            names: dict[str, Any] = {"np": np}
            exec(f"def f(x, v):\n    {line}\n    return x", names)
            for dtype in ("f4", "?", "i4"):
                x = np.array([0, 1, 2]).astype(dtype)
                if np.ndim(v) or "v * 1" not in line:
                    with pytest.raises(TypeError):
                        names["f"](x.copy(), v)
                    with pytest.raises(DTypeError, match=r"np\.putmask.*cannot write"):
                        eq.jit(names["f"])(x, v)


TAKEN = [
    "np.take(x, [])", "np.take(x, [], axis=1)", "np.take(x, [[]], 0)", "x.take(())",
    "np.take(x, [], mode='clip')", "np.take(x, [], mode='wrap')", "np.take(x[:0], [])",
]  # fmt: skip


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("call", TAKEN)
def test_an_empty_list_takes_nothing(call: str, backend: str) -> None:
    for dtype in ("f4", "i8", "?"):
        x = np.ones((2, 3), dtype)
        want = eval(call)
        code = compile(f"lambda x: {call}", "<taken>", "eval")
        got = eq.jit(eval(code), backend=backend)(x)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)


def test_an_empty_array_of_floats_is_no_index() -> None:
    x = np.ones((2, 3))
    with pytest.raises(TypeError):
        np.take(x, np.zeros(0))
    with pytest.raises(DTypeError, match="expected integers"):
        eq.jit(lambda x: np.take(x, np.zeros(0)))(x)
