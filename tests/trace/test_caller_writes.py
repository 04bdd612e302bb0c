"""Writes to arguments reach the caller's arrays when a call ends, as NumPy's do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from evaluate import assert_same

import eqsat as eq
from eqsat.support.errors import DTypeError, ReadOnlyError, TraceError

rng = np.random.default_rng(0)
BACKENDS = ["native", "numpy"]


def agree(f: Callable[..., Any], *args: Any, backend: str, calls: int = 2) -> None:
    """Results and the arguments after each call are NumPy's."""
    g = eq.jit(f, backend=backend)
    mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
    for _ in range(calls):
        want, got = f(*theirs), g(*mine)
        if want is not None:
            assert_same(got, want)
        for a, b in zip(mine, theirs, strict=True):
            values = (a.values(), b.values()) if isinstance(a, dict) else ([a], [b])
            for m, t in zip(*values, strict=True):
                assert_same(m, t)


def set_one(x: Any) -> None:
    x[0] = 1


def add(x: Any, y: Any) -> None:
    x += y


def out(x: Any, y: Any) -> Any:
    np.add(x, y, out=x)
    return x.sum()


def swap(x: Any, y: Any) -> None:
    t = x.copy()
    x[:] = y
    y[:] = t


def view_of_a_view(x: Any) -> Any:
    x.T[1:][0] = 1
    x[::2, 1:] *= 2
    return x, x[1:]


def masked(x: Any) -> None:
    x[x < 0] = 0
    x[x > 1] **= 2


def stepped(x: Any, y: Any) -> Any:
    for _ in range(3):
        x[1:-1] = 0.5 * (y[:-2] + y[2:])
        y[1:-1] = 0.5 * (x[:-2] + x[2:])
    return x - y


def filled(x: Any, y: Any) -> None:
    x.fill(2.5)
    y.sort(axis=0)
    np.copyto(x, y, where=y > 0)


def counted(x: Any) -> None:
    np.add.at(x, [0, 0, 2], 1.5)


def only_read_then_written(x: Any) -> Any:
    before = x * 2
    x -= before
    return before


def of_another_dtype(x: Any, y: Any) -> None:
    x[...] = y


A = rng.standard_normal((5, 4)).astype(np.float32)
B = rng.standard_normal((5, 4)).astype(np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("f", "args"),
    [
        (set_one, (A,)), (add, (A, B)), (add, (A, B[0])), (out, (A, B)),
        (swap, (A, B)), (view_of_a_view, (A,)), (masked, (A,)), (stepped, (A, B)),
        (filled, (A, B)), (counted, (A,)), (only_read_then_written, (A,)),
        (of_another_dtype, (np.arange(20).reshape(5, 4), A)),
        (of_another_dtype, (np.array(2.0), np.array(3.0))),
        (set_one, (A.astype(np.float16),)), (set_one, (np.arange(5) > 2,)),
    ],
)  # fmt: skip
def test_the_callers_arrays_after_a_call(
    f: Callable[..., Any], args: Any, backend: str
) -> None:
    agree(f, *args, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_writes_to_arrays_in_any_layout(backend: str) -> None:
    for whole in (A.copy(), np.asfortranarray(A), np.repeat(A, 2, 0)):
        for part in (np.s_[:], np.s_[::2], np.s_[::-1, 1:], np.s_[:, ::3]):
            mine, theirs = whole.copy("K"), whole.copy("K")
            masked(theirs[part])
            eq.jit(masked, backend=backend)(mine[part])
            assert_same(mine, theirs)  # what lies beside the part is as it was


@pytest.mark.parametrize("backend", BACKENDS)
def test_nested_arguments(backend: str) -> None:
    def step(p: Any, g: Any) -> None:
        for k in p:
            p[k] -= 0.1 * g[k]

    agree(step, {"w": A, "b": A[0]}, {"w": B, "b": B[0]}, backend=backend)


def test_the_array_that_was_written_to_comes_back_as_itself() -> None:
    def f(x: Any) -> Any:
        x += 1
        return x, [x]

    x = A.copy()
    first, (second,) = eq.jit(f)(x)
    assert first is x and second is x


def test_a_jitted_function_in_another_one() -> None:
    inner = eq.jit(add)

    def f(x: Any, y: Any) -> Any:
        z = x.copy()
        inner(z, y)
        inner(x, z)
        return z

    agree(f, A, B, backend="native")


def test_all_is_written_or_nothing() -> None:
    def f(x: Any, y: Any, i: Any) -> Any:
        x += 1
        y[...] = 0
        return np.take(x, i, axis=0)

    x, y = A.copy(), B.copy()
    g = eq.jit(f)
    with pytest.raises(IndexError):
        g(x, y, np.array([7]))
    assert_same([x, y], [A, B])
    g(x, y, np.array([1]))
    assert_same([x, y], [A + 1, B * 0])


def test_an_error_of_the_function_writes_nothing() -> None:
    def f(x: Any) -> None:
        x += 1
        raise KeyError("mine")

    x = A.copy()
    with pytest.raises(KeyError, match="mine"):
        eq.jit(f)(x)
    assert_same(x, A)


# -- refused ---------------------------------------------------------------------------


def test_read_only_arguments_refuse_as_numpy() -> None:
    f = eq.jit(add)
    f(A.copy(), B)  # compiled for arrays of these types
    x, y = A.copy(), A.copy()
    x.flags.writeable = False
    shown = y.view()
    shown.flags.writeable = False
    for given in (x, shown):
        with pytest.raises(ValueError, match="read-only") as caught:
            f(given, B)
        assert isinstance(caught.value, ReadOnlyError) and "argument x" in str(
            caught.value
        )
    assert_same([x, y], [A, A])


def test_declared_constants_are_not_written_to() -> None:
    with pytest.raises(TraceError, match="argument x, which is constant"):
        eq.jit(add, constants=["x"])(A.copy(), B)


@pytest.mark.parametrize("of", [lambda x: x, lambda x: x[::-1], lambda x: x.T[1:].T])
def test_arguments_that_share_memory_are_refused_by_name(of: Any) -> None:
    def f(x: Any, y: Any) -> None:
        x[:, :3] = y[:, :3]

    x = A.copy()
    with pytest.raises(TraceError, match="arguments x and y share memory"):
        eq.jit(f)(x, of(x))
    assert_same(x, A)


def test_arguments_side_by_side_in_one_array_do_not_share_memory() -> None:
    x = A.copy()
    eq.jit(add)(x[:, ::2], x[:, 1::2])
    want = A.copy()
    want[:, ::2] += A[:, 1::2]
    assert_same(x, want)


def windows(x: Any) -> Any:
    return np.lib.stride_tricks.sliding_window_view(x, 3, writeable=True)


def one_place(x: Any) -> Any:
    return np.lib.stride_tricks.as_strided(x, (4, 3), (0, x.itemsize))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("of", [windows, one_place, lambda x: windows(x)[::-1].T])
def test_arguments_whose_elements_share_memory_are_refused(
    of: Any, backend: str
) -> None:
    def f(x: Any, y: Any) -> None:
        x += y

    g, x = eq.jit(f, backend=backend), np.arange(6.0)
    apart = of(x).copy()
    said = "elements of argument x share memory.*\n.*pass a copy"
    for _ in range(3):  # before there is a program, and when it is called at once
        with pytest.raises(TraceError, match=said):
            g(of(x), np.float64(1))
        g(apart, np.float64(1))
    assert_same(x, np.arange(6.0))
    assert_same(apart, of(x) + 3)
    assert_same(eq.jit(lambda x: x * 2)(of(x)), of(x) * 2)  # it may be read


def test_arrays_of_steps_and_empty_ones_do_not_share_memory() -> None:
    whole = np.zeros((8, 9, 6))
    parts = [whole[::2, ::-3, 1::2], whole.T[1:, 1], whole[:, :1, ::-1]]
    empty = np.lib.stride_tricks.as_strided(whole, (3, 0, 4), (0, 0, 0))
    for part in (*parts, empty, np.zeros(())):
        eq.jit(lambda x: x.fill(1))(part)
        assert (part == 1).all()


def test_an_array_outside_that_shares_memory_is_refused() -> None:
    weights = A.copy()

    def f(x: Any) -> None:
        x += weights[0]

    with pytest.raises(TraceError, match="reads outside of its arguments"):
        eq.jit(f)(weights[1:])
    assert_same(weights, A)


def test_a_number_is_told_from_an_array_without_axes() -> None:
    def f(t: Any) -> Any:
        t += 1
        return t

    g = eq.jit(f)
    assert_same(g(np.float32(2)), np.float32(3))
    t = np.array(2, np.float32)
    assert g(t) is t and t == 3

    def set_(t: Any) -> None:
        t[...] = 1

    with pytest.raises(TraceError, match=r"x is a number of float32"):
        eq.jit(set_)(np.float32(2))


def test_a_cast_that_numpy_refuses() -> None:
    n = np.arange(20).reshape(5, 4)
    with pytest.raises(DTypeError, match="cannot write dtype float64"):
        eq.jit(add)(n, A)


def test_functions_do_not_write_to_lazy_arrays() -> None:
    x = eq.array(A)
    with pytest.raises(TraceError, match="its arguments, which are lazy arrays"):
        eq.jit(set_one)(x)
    assert_same(np.asarray(x), A)


def test_arrays_of_mlx_change_too() -> None:
    mx = pytest.importorskip("mlx.core")
    x, y = mx.array(A), mx.array(B)
    eq.jit(add)(x, y)
    assert_same(np.asarray(x), A + B)
