"""Arrays that a traced function makes by NumPy's functions take traced values."""

from __future__ import annotations

import copy
import functools
import math
import os
import pickle
import sys
import sysconfig
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from evaluate import assert_same
from hypothesis import given
from hypothesis import strategies as st
from numpy import empty_like, zeros
from scipy import linalg
from sizes import examples, some

import eqsat as eq
from eqsat.support.errors import DTypeError, ReadOnlyError, ShapeError, TraceError

rng = np.random.default_rng(0)
BACKENDS = ["native", "numpy"]
X = rng.standard_normal(6)
M = rng.standard_normal((4, 3)).astype(np.float32)
I = np.array([0, 2, 2, 1])  # noqa: E741
OUTSIDE = np.arange(6.0)


def agree(f: Callable[..., Any], *args: Any, backend: str = "native") -> None:
    """Results and the arguments after the call are NumPy's."""
    mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
    want = f(*theirs)
    got = eq.jit(f, backend=backend)(*mine)
    assert_same(got, want, 1e-5)
    assert_same(mine, theirs)


# -- one line each ---------------------------------------------------------------------

MADE = """
np.zeros(6); np.empty(6)*0; np.ones(6); np.full(6, 2.5); np.full(6, 2);
np.full(6, x[0]); np.eye(6)[2]; np.identity(6)[:, 1]; np.arange(6); np.arange(6.0);
np.linspace(0, 1, 6); np.array([1, 2, 3, 4, 5, 6]); np.array(OUTSIDE);
np.asarray([x[0], 1, 2, 3, 4, 5]); np.r_[0:6]; np.r_[1.5, 2:7]; np.repeat(1.5, 6);
np.tile([1.0, 2.0], 3); np.copy(OUTSIDE); np.zeros_like(OUTSIDE);
np.ones_like(np.zeros(6), dtype=np.float32); np.array(x); np.full_like(OUTSIDE, 7);
np.full_like(OUTSIDE, x[1]); np.zeros((2, 3)).reshape(-1); np.zeros((2, 3)).ravel();
np.arange(12.0)[::2]; np.arange(12.0)[::-2]; np.ones((6, 2)).T[0];
np.concatenate([np.zeros(2), [1.0, x[0]], x[:2]]); np.diag(np.ones(6)).copy()[1];
np.cumsum(np.ones(6)); np.sort([3, 1, 2, 6, 5, 4]); np.fromiter(range(6), float);
np.logspace(0, 1, 6); np.tri(6)[3]; np.vander([2.0], 6)[0];
np.array([[1.0], [2.0]]).repeat(3); np.meshgrid(np.arange(6.0), [1, 2])[0][0];
np.array([1, 2], np.float16).repeat(3); np.ones(6) * np.arange(6) + OUTSIDE; +np.ones(6)
"""
WRITTEN = """
o[0] = x.sum(); o[1:] += x[:5]; o[:] = x; o[...] = x[0]; o[::2] = x[::2]; o[x > 0] = 0;
o[x > 0] = x[x > 0] ** 2; o[x > 0] += 1; o[i] = x[:4]; o[[0, 3]] = [x[0], 2];
np.add.at(o, i, x[:4]); np.add.at(o, i, 1); np.subtract.at(o, [1, 1], x[:2]);
np.maximum.at(o, [1, 1, 0], x[:3]); np.negative.at(o, [2, 2, 1]); o *= x; o -= x.mean();
np.put(o, [0, 7 - 5], [x[0], x[1]]); np.put(o, i, x[0]); o.put([1, 2, 3], x[:2]);
np.putmask(o, o > x, x * 2); np.putmask(o, x > 0, 7); np.place(o, x > 0, x[0]);
np.copyto(o, x); np.copyto(o, x, where=x > 0); np.exp(x, out=o); o.fill(x[0]);
np.add(o, x, out=o, where=x > 0); o.flat[1] = x[0]; o.flat[1:3] = x[:2]; o.flat = x[0];
np.clip(x, 0, 1, out=o);
np.put_along_axis(o, i, x[:4], 0); o[i[0]] = x[0]; o[-1], o[0] = x[0], o[-1] + x[1];
o.sort(); o[:] = [x[0], 1, 2, 3, 4, x[5]]; o[np.arange(3)] = x[:3];
o[np.array([True] * 3 + [False] * 3)] = x[3:]; o[2:4] = x[2:4] > 0; o[o < 2] = x[0]
"""


CUT = ["np.add.at(o, i, x[:4])", "np.subtract.at(o, [1, 1], x[:2])"]
"""Writes that round at each step in an array of integers."""


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.replace("\n", " ").split("; ")]


def program(made: str, written: str) -> Callable[..., Any]:
    known: dict[str, Any] = {"np": np, "OUTSIDE": OUTSIDE, "__name__": "user"}
    body = f"o = {made}\n    r = np.array(o)\n    {written}\n    return o, o + 1, r"
    exec(f"def f(x, i):\n    {body}", known)
    made_function: Callable[..., Any] = known["f"]
    return made_function


def refused_alike(f: Callable[..., Any]) -> bool:
    """Whether NumPy refuses the cast, and eqsat too."""
    try:
        f(X.copy(), I)
    except TypeError:
        with pytest.raises(DTypeError):
            eq.jit(f)(X.copy(), I)
        return True
    return False


@pytest.mark.parametrize("made", lines(MADE))
def test_all_that_makes_arrays(made: str) -> None:
    for written in some(["o[0] = x.sum()", "o[1:] = x[1:] * 9"], 1):
        agree(program(made, written), X, I)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("written", lines(WRITTEN))
def test_all_that_writes(written: str, backend: str) -> None:
    for made in some(["np.zeros(6)", "np.arange(6)", "np.ones((6, 2)).T[1]"], 2):
        f = program(made, written)
        if made == "np.arange(6)" and written in CUT:
            with pytest.raises(DTypeError, match="each step would cut"):
                eq.jit(f, backend=backend)(X, I)
        elif not refused_alike(f):
            agree(f, X, I, backend=backend)


# -- as people write -------------------------------------------------------------------


def cholesky(a: Any) -> Any:
    n = len(a)
    low = np.zeros((n, n), a.dtype)
    for j in range(n):
        low[j, j] = np.sqrt(a[j, j] - np.sum(low[j, :j] ** 2))
        for i in range(j + 1, n):
            low[i, j] = (a[i, j] - low[i, :j] @ low[j, :j]) / low[j, j]
    return low


def rows(m: Any) -> Any:
    out = np.empty((len(m), 2))
    for k, row in enumerate(m):
        out[k] = row.min(), row.max()
    return out


def views_of_rows(m: Any) -> Any:
    out = np.zeros((4, 3))
    for row, other in zip(out, m, strict=True):
        row += other
        row[0] = 7
    return out


def a_view_made_before(m: Any) -> Any:
    out = np.zeros((4, 3))
    right, first, flat = out[:, 1:], out[0], out.reshape(12)
    right[...] = m[:, 1:]
    return out, right, first, flat, out.T


def a_diagonal_made_before(m: Any) -> Any:
    out = np.ones((3, 3))
    shown = np.einsum("ii->i", out)
    shown *= m[0]
    return out, shown


def collected(m: Any) -> Any:
    found = []
    for row in m:
        found.append(row.sum())
    return np.array(found), np.array([[r[0], 1] for r in m]), np.array([m[0], m[1]])


def without_axes(m: Any) -> Any:
    total, shown = np.zeros((), np.float32), np.array(0)
    same = total
    for row in m:
        total += row.sum()
    total += np.float64(0.1)
    return same, total, shown


def copies(m: Any) -> Any:
    out = np.zeros(3)
    before = [out.copy(), np.array(out), out * 1, out[[0, 1]], copy.deepcopy(out), +out]
    same = np.asarray(out)
    out[:] = m[0]
    return out, same, *before


def known_until_then(m: Any) -> Any:
    out = np.zeros(3)
    a = m[0] + out
    out[1] = 5
    b = m[0] + out
    out += 1
    c = m[0] + out
    out += m[1]
    return a, b, c, out


def joined(m: Any) -> Any:
    return (
        np.r_[m[0, 0], 1.0, m[0], 0:3], np.r_[m, m], np.c_[m[0], m[1]],
        np.c_[np.ones(4), m], np.r_[np.float32(1), 2, m[0]], np.r_[m[0, 0], 3],
    )  # fmt: skip


def of_lists(m: Any) -> Any:
    a, b = m[0, 0], m[0, 1]
    return (
        np.sum([a, b]), np.max([a, b, 0]), np.diag([a, b]), np.stack([[a, b], [b, a]]),
        np.dot([a, b], [1, 2]), np.concatenate([[a], m[0]]), m[0] * [a, b, 1],
        np.array([a, b], np.float16), np.array(m, ndmin=3), np.array([a, 1.0]),
        np.array((a, np.int8(1))), np.mean([[a, b], [b, b]], axis=0),
    )  # fmt: skip


def into(m: Any) -> Any:
    product, total, least = np.empty((4, 4), np.float32), np.empty(4), np.empty(3)
    np.dot(m, m.T, out=product)
    np.sum(m, axis=1, dtype=float, out=total)
    found = m.min(0, out=least)
    m.clip(0, 1, out=m)
    return product, total, found, least, found is least


def at_several_indices(m: Any) -> Any:
    out = np.zeros((4, 3))
    np.add.at(out, (I, [0, 1, 1, 2]), m[:, 0])
    np.add.at(out, (np.argmax(m, 0), np.arange(3)), 1)
    np.multiply.at(out, [0, 0], m[:2] + 2)
    np.minimum.at(out, (np.array([1, 1]), np.array([2, 2])), m[0, :2])
    np.add.at(out, np.array([False, True, False, True]), m[2:])
    return out


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "f",
    [rows, views_of_rows, a_view_made_before, a_diagonal_made_before, collected,
     without_axes, copies, known_until_then, joined, of_lists, into,
     at_several_indices],
)  # fmt: skip
def test_functions_as_people_write_them(f: Callable[..., Any], backend: str) -> None:
    agree(f, M, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("made", [np.float32, np.float64])
def test_out_of_functions(made: Any, backend: str) -> None:
    def f(x: Any) -> Any:
        o, p, q, r = (np.ones(6, made) for _ in range(4))
        np.cumsum(x, out=o)
        np.take(x.astype(made), [0] * 6, out=p)
        np.mean(np.array([x, x * 2]), axis=0, out=q)
        np.stack([x, x]).max(0, out=r)
        return o, p, q, r, np.sum(x, out=np.zeros((), made))

    agree(f, X, backend=backend)
    agree(f, X.astype(np.float32), backend=backend)


def test_out_of_integers_is_refused() -> None:
    for call in (np.cumsum, np.exp, np.round):
        with pytest.raises(DTypeError, match="cannot write dtype float64"):
            eq.jit(lambda x, call=call: call(x, out=np.zeros(6, int)))(X)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_factorisation_by_hand(backend: str) -> None:
    a = M.T.astype(float) @ M + np.eye(3)
    agree(cholesky, a, backend=backend)


def test_a_loop_that_sweeps_its_own_arrays_and_the_callers() -> None:
    def sweep(x: Any, r: Any) -> Any:
        p, q = np.zeros_like(x), np.zeros(x.shape)
        for _ in range(3):
            q[1:-1] = 0.5 * (x[:-2] + x[2:])
            p[...] = q
            x += p - r
        return p

    agree(sweep, X, X[::-1].copy())


# -- random programs -------------------------------------------------------------------


def views(r: np.random.Generator, x: Any) -> Any:
    axis = int(r.integers(0, len(x.shape)))
    a, b = sorted(r.integers(0, x.shape[axis] + 1, 2).tolist())
    key = (*[slice(None)] * axis, slice(a, b))
    return [
        lambda: x[key], lambda: x[(*key[:-1], slice(None, None, -1))], lambda: x.T,
        lambda: np.flip(x, axis), lambda: x[None], lambda: np.swapaxes(x, 0, -1),
        lambda: x[(*key[:-1], 0)], lambda: np.expand_dims(x, axis),
    ][int(r.integers(0, 8))]()  # fmt: skip


def drawn(x: Any, seed: int) -> list[Any]:
    """Made arrays, views of them, and writes of known and traced values."""
    r = np.random.default_rng(seed)
    arrays = [np.zeros((4, 3)), np.arange(12.0).reshape(4, 3), np.ones(5)]
    for _ in range(int(r.integers(1, 10))):
        o = arrays[int(r.integers(0, len(arrays)))]
        kind = int(r.integers(0, 9))
        value = x[0] if r.random() < 0.5 else float(r.integers(0, 5))
        if kind < 4:
            new = views(r, o)
            if new.shape and 0 not in new.shape and len(new.shape) < 5:
                arrays.append(new)
        elif kind == 4:
            o += value
        elif kind == 5:
            o[int(r.integers(0, o.shape[0]))] = value
        elif kind == 6:
            o[o > 1] = value
        elif kind == 7:
            o[r.integers(0, o.shape[0], 2)] = value
        else:
            np.add.at(o, r.integers(0, o.shape[0], 3), value)
    return [*arrays, sum(o.sum() for o in arrays) + x]


@examples(120)
@given(st.integers(0, 2**32 - 1))
def test_random_writes_to_random_views(seed: int) -> None:
    from evaluate import traced

    assert_same(traced(lambda x: drawn(x, seed), X), drawn(X, seed), 1e-5)


# -- whoever made them -----------------------------------------------------------------


def named_functions(x: Any) -> Any:
    o = zeros(6)
    p = q = empty_like(OUTSIDE)
    o[0], q[...] = x.sum(), x
    o[1:] += x[1:]
    return o, p, q


def arithmetic(x: Any) -> Any:
    o, p, q, r, s = OUTSIDE * 2, OUTSIDE.copy(), np.pad(OUTSIDE, 1), -OUTSIDE, +OUTSIDE
    o += x
    p[x > 0] = 0
    q[0] = x[0]
    np.add.at(r, [0, 0], x[:2])
    np.exp(x, out=s)
    return o, p, q, r, s


def of_a_library(x: Any) -> Any:
    o = linalg.toeplitz(OUTSIDE)
    before = o + x
    shown = o.T
    shown[0] = x
    return o, shown, before


def by_a_parameter(x: Any) -> Any:
    def write(o: Any, k: int = 0) -> Any:
        o[k] = x[k]
        return o

    return write(zeros(3)), write(OUTSIDE * 1, k=2)


def through_a_cell(x: Any) -> Any:
    o = OUTSIDE.copy()

    def write() -> None:
        o[0] = x[0]

    write()
    return o


def in_a_generator(x: Any) -> Any:
    def rows() -> Any:
        o = zeros(2)
        for i in range(2):
            o[i] = x[i]
            yield o * 1

    return list(rows())


def at_places_that_are_computed(x: Any) -> Any:
    o, i = OUTSIDE.copy(), np.argmax(x)
    o[i] = 5
    return o, o[i]


def the_constructor(x: Any) -> Any:
    o = np.ndarray((2, 3), dtype=float)
    p = np.ndarray(shape=3, buffer=np.arange(6.0), offset=8, strides=(16,))
    o[...], p[0] = x[:3], x[1]
    assert isinstance(OUTSIDE, np.ndarray) and type(OUTSIDE) is np.ndarray
    kinds = list(map(isinstance, [OUTSIDE, 1], [np.ndarray, np.ndarray]))
    assert kinds == [True, False] and issubclass(np.ndarray, np.ndarray)
    return o, p, np.ndarray.sum(OUTSIDE), (lambda make: make(2) * 0)(np.ndarray)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "f",
    [named_functions, arithmetic, of_a_library, by_a_parameter, through_a_cell,
     in_a_generator, at_places_that_are_computed, the_constructor],
)  # fmt: skip
def test_arrays_that_others_made(f: Callable[..., Any], backend: str) -> None:
    agree(f, X, backend=backend)
    assert_same(OUTSIDE, np.arange(6.0))


def test_arguments_of_functions_where_something_else_evaluates_frames() -> None:
    """As PyTorch's compiler may from its first use on: a call keeps its arguments."""
    torch = pytest.importorskip("torch")
    kept = [np.arange(3.0)]

    def written(x: Any) -> Any:
        def write(o: Any) -> Any:
            o[0] = x[0]
            return o

        return write(zeros(3)), write(OUTSIDE * 1)[:2]

    def shown_elsewhere(x: Any) -> Any:
        def write(o: Any) -> Any:
            o[0] = x[0]
            return o

        return write(kept[0]), kept[0] * 1

    def after_the_call(x: Any) -> Any:
        several = [zeros(3)]
        o = (lambda o: o)(several[0])
        o[0] = x[0]
        return several[0] * 1

    def by_default(x: Any) -> Any:
        def write(o: Any = zeros(3)) -> Any:  # noqa: B008
            o[0] += x[0]
            return o * 1

        return write() + write()

    def of_another_function(x: Any) -> Any:
        o = kept[0]

        def write() -> Any:
            o[0] = x[0]
            return o

        return write()

    def of_a_generator(x: Any) -> Any:
        def rows(o: Any) -> Any:
            o[0] = x[0]
            yield o

        return next(rows(kept[0]))

    before = torch._C._dynamo.eval_frame.set_eval_frame(False)
    try:
        agree(written, X)
        for f in (
            shown_elsewhere, after_the_call, by_default, of_another_function,
            of_a_generator,
        ):  # fmt: skip
            with pytest.raises(TraceError, match="made elsewhere"):
                eq.jit(f)(X)
    finally:
        torch._C._dynamo.eval_frame.set_eval_frame(before)
    np.testing.assert_array_equal(kept[0], np.arange(3.0))


def test_a_function_that_changed_what_is_outside_is_not_run_twice() -> None:
    count = np.zeros(2)

    def f(x: Any) -> Any:
        count[0] += 1
        o = zeros(6)
        o[0] = x[0]
        return o

    with pytest.raises(TraceError, match="made elsewhere"):
        eq.jit(f)(X)
    assert count[0] == 1


def test_a_debugger_is_as_it_was() -> None:
    seen: list[Any] = []

    def watch(frame: Any, event: str, arg: Any) -> None:
        seen.append(frame.f_code.co_name)

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        eq.jit(named_functions)(X)
        assert sys.gettrace() is watch
    finally:
        sys.settrace(before)
    assert "named_functions" in seen


# -- as constants ----------------------------------------------------------------------


def constants(x: Any) -> Any:
    z, n = np.arange(1, 4), np.array(2)
    a, b = np.array([2, 3])
    total = 0.0
    for k in z:
        total += math.sqrt(k) * float(z[0])
    picked = {3: 1, 2: 5}[int(z[-1])]
    assert z.tolist() == [1, 2, 3] and z.sum() == 6 and (z > 0).all() and 2 in z
    assert f"{z}" == "[1 2 3]" and repr(z) == "array([1, 2, 3])" and bool(n == 2)
    assert len(z) == 3 and z.flags.c_contiguous and bytes(z) == z.tobytes()
    assert pickle.loads(pickle.dumps(z)).tolist() == [1, 2, 3] and z.strides == (8,)
    assert isinstance(np.linalg.norm(z), float) and list(z) == list(np.asarray(z))
    assert divmod(7, n)[0] == 3 and range(4)[n] == 2 and z.argmax() == 2 and max(z) == 3
    return (
        x.reshape(a, b), x.reshape(np.array([3, 2])), x[z], x[: z[1]], x[z[0] : n],
        x * total * picked, x + np.zeros(6, dtype=z.dtype), np.take(x, z),
        linalg.toeplitz(np.arange(6.0)) @ x, x + linalg.solve(np.eye(6), np.ones(6)),
        np.repeat(x, np.array([1, 2, 1, 1, 1, 1])), np.split(x, np.array([2, 4]))[1],
        np.where(np.tri(6)[2], x, 0), np.linalg.inv(np.eye(3)), np.bincount([1, 2]),
        np.pad(x, np.array([1, 2])), x.sum(axis=int(np.array(0))), np.unique([2, 1, 2]),
        np.fft.fftfreq(6) + x, np.interp(x, np.arange(3), np.ones(3)), z, n,
    )  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
def test_made_arrays_as_constants(backend: str) -> None:
    agree(constants, X, backend=backend)


def test_functions_of_numpy_are_themselves_in_a_trace() -> None:
    known: dict[Any, str] = {np.sum: "sum", np.zeros: "zeros"}

    def f(x: Any, how: Any = np.max) -> Any:
        assert known[np.sum] == "sum" and known[np.zeros] == "zeros"
        assert np.zeros == np.zeros and np.sum.__name__ == "sum" and how == np.max
        return functools.reduce(np.add, map(np.sum, [x, x])) + how(x)

    agree(f, X)


def test_jitted_functions_gradients_and_ops_of_made_arrays() -> None:
    inner = eq.jit(lambda a, b: a * 2 + b)
    slope = eq.grad(lambda a, b: (a * a * b).sum())

    def f(x: Any) -> Any:
        o = np.ones(6)
        return inner(o, x), inner(o, o), slope(o, x), slope(o, o), eq.softmax(o) + x

    o = np.ones(6)
    got = eq.jit(f)(X)
    want = (2 * o + X, 3 * o, 2 * X, 2 * o, o / 6 + X)
    assert_same(got, want)


def test_a_jitted_function_writes_to_a_made_array() -> None:
    @eq.jit
    def add(a: Any, b: Any) -> None:
        a += b

    def f(x: Any) -> Any:
        o, p = np.zeros(6), np.zeros(6)
        add(o, x)
        add(p, np.ones(6))
        return o, p

    agree(f, X)


def test_lazy_arrays_in_a_made_array() -> None:
    lazy = eq.array(X)

    def f(x: Any) -> Any:
        o = np.zeros(6)
        o[:3] = lazy[:3]
        return o + x + lazy

    assert_same(eq.jit(f)(X), np.r_[X[:3], 0, 0, 0] + X + X)


# -- nothing is left behind ------------------------------------------------------------


def assert_plain() -> None:
    assert type(np) is ModuleType and type(np.zeros(2)) is np.ndarray
    assert np.zeros is vars(np)["zeros"] and np.r_ is vars(np)["r_"]


def test_numpy_is_itself_after_a_trace_and_after_an_error() -> None:
    def f(x: Any) -> Any:
        np.zeros(3)[0] = x[0]
        raise KeyError("mine")

    eq.jit(lambda x: x + np.zeros(6))(X)
    assert_plain()
    with pytest.raises(KeyError):
        eq.jit(f)(X)
    assert_plain()
    with pytest.raises(TraceError):
        eq.jit(lambda x: float(x[0]))(X)
    assert_plain()


def test_other_threads_have_numpys_own() -> None:
    inside, go = threading.Event(), threading.Event()
    seen: list[Any] = []

    def f(x: Any) -> Any:
        o = np.zeros(6)
        inside.set()
        assert go.wait(20)
        o[0] = x[0]
        return o

    def other() -> None:
        assert inside.wait(20)
        seen.extend([type(np.zeros(2)), np.zeros is vars(np)["zeros"]])
        got = eq.jit(lambda x: np.array([x[0], 1]) + np.ones(2))(X)
        assert_same(got, np.array([X[0], 1]) + 1)
        seen.append(type(np.ones(2)))
        go.set()

    thread = threading.Thread(target=other)
    thread.start()
    got = eq.jit(f)(X)
    thread.join()
    assert seen == [np.ndarray, True, np.ndarray]
    assert_same(got, np.r_[X[0], np.zeros(5)])
    assert_plain()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_process_forked_in_a_trace_has_numpys_own() -> None:
    read, write = os.pipe()

    def f(x: Any) -> Any:
        thread = threading.Thread(target=child)
        thread.start()
        thread.join()
        return x + np.ones(6)

    def child() -> None:
        if os.fork() == 0:
            plain = type(np.zeros(2)) is np.ndarray
            traced = eq.jit(lambda x: np.array([x[0]]), backend="numpy").lower(X)
            os.write(write, b"y" if plain and traced else b"n")
            os._exit(0)

    eq.jit(f)(X)
    assert os.read(read, 1) == b"y"


def test_a_function_of_an_installed_package_makes_arrays_too() -> None:
    folder = sysconfig.get_path("purelib")
    text = "def f(x, g):\n    o = np.zeros(3)\n    o[0] = x[0]\n    return o, g(o)"
    mine: dict[str, Any] = {"np": np, "__name__": "somepackage.one"}
    other: dict[str, Any] = {"np": np, "__name__": "anotherpackage"}
    exec(compile(text, f"{folder}/somepackage/one.py", "exec"), mine)
    library = "def g(o): return type(np.ones(2)).__name__"
    exec(compile(library, f"{folder}/anotherpackage.py", "exec"), other)
    got, kind = eq.jit(mine["f"])(X, other["g"])
    assert_same(got, np.array([X[0], 0, 0]))
    assert kind == "ndarray"


def test_gradients_flow_through_made_arrays() -> None:
    def loss(x: Any) -> Any:
        o = np.zeros(3)
        o[0] = x.sum()
        o[1:] += x[:2] ** 2
        np.add.at(o, [0, 0], x[:2])
        return (o * np.arange(1.0, 4.0)).sum()

    want = np.ones(6) + np.r_[1 + 4 * X[0], 1 + 6 * X[1], np.zeros(4)]
    assert_same(eq.grad(loss)(X), want, 1e-12)


def test_a_number_that_shows_a_made_array_is_no_copy() -> None:
    def f(x: Any) -> Any:
        o = np.zeros(3)
        shown = o[..., 0]
        o[0] = x[0]
        return shown

    agree(f, X)


def test_what_a_function_keeps_is_an_array_to_others() -> None:
    kept: list[Any] = []

    @functools.cache
    def table(n: int) -> Any:
        return np.arange(n) * 2.0

    def f(x: Any) -> Any:
        if not kept:
            kept.append(np.ones(6))
        return x + kept[0] + table(6)

    g = eq.jit(f)
    assert_same(g(X), X + 1 + table(6))
    assert type(table(6)) is np.ndarray
    assert type(kept[0] + 1) is np.ndarray and np.asarray(kept[0]).sum() == 6
    kept[0][0] = 5  # a plain write is seen, by this program and by the next trace
    assert_same(g(X), X + np.r_[5.0, np.ones(5)] + table(6))
    table(6)[1] = 7
    assert_same(g(X), X + np.r_[5.0, np.ones(5)] + table(6))
    assert_same(eq.jit(lambda a: a * 2)(kept[0]), np.asarray(kept[0]) * 2)


# -- refused ---------------------------------------------------------------------------


def shown_elsewhere(x: Any) -> Any:
    o = np.zeros(3)
    seen = memoryview(o.data)
    o[0] = x[0]
    return seen


def read_only(x: Any) -> None:
    np.broadcast_to(np.zeros(1), 3)[0] = x[0]


def from_outside(x: Any) -> None:
    o = OUTSIDE[1:]
    o[0] = x.sum()


def in_a_list(x: Any) -> None:
    o = [OUTSIDE.copy()]
    o[0][0] = x.sum()


@pytest.mark.parametrize(
    ("f", "kind", "message"),
    [
        (shown_elsewhere, TraceError, "another array of NumPy shows"),
        (read_only, ReadOnlyError, "assignment destination is read-only"),
        (from_outside, TraceError, "a traced value is written to an array of NumPy"),
        (in_a_list, TraceError, r"give a copy of it a name .*: o = y.copy\(\)"),
        (lambda x: OUTSIDE.copy().fill(x[0]), TraceError, "made elsewhere"),
        (lambda x: (OUTSIDE * 2).__iadd__(x), TraceError, "np.add: out must be traced"),
        (lambda x: np.put(OUTSIDE, 0, x[0]), TraceError, "made elsewhere"),
        (lambda x: np.zeros(x[0].astype(int)), TraceError, "takes no traced value"),
        (lambda x: np.zeros((2, x[0].astype(int))), TraceError, "the index value"),
        (lambda x: np.array([[x[0]], x]), ShapeError, r"shapes \[\(1,\), \(6,\)\]"),
        (lambda x: np.zeros(3).__setitem__(0, x), ShapeError, r"write y\[0\]"),
        (lambda x: np.zeros((2, 3)).__setitem__(0, x), ShapeError, "not broadcast"),
        (lambda x: np.zeros(3).__setitem__(0, x[:1]), ShapeError, "one element of x"),
        (lambda x: x.copy().__setitem__(np.int8(0), x[:1]), ShapeError, "one element"),
        (lambda x: np.zeros(3).flat.__setitem__(0, x[:1]), ShapeError, "one element"),
        (lambda x: np.zeros(3).fill(x[:1]), ShapeError, "one element of x is written"),
        (lambda x: np.select([x[:0] > 0], [x[:0].astype(int)], 2**64), DTypeError,
         "18446744073709551616 as int64"),
        (lambda x: np.zeros(3).__setitem__(5, x[0]), IndexError, "out of bounds"),
        (lambda x: np.zeros(6, int).__iadd__(x), DTypeError, "cannot write dtype"),
        (lambda x: np.zeros(2, "G").__setitem__(0, x[0]), DTypeError, "complex256"),
        (lambda x: np.zeros(5).__setitem__(x > 0, 1), IndexError, "does not fit"),
        (lambda x: np.sum(x, out=np.zeros(3)), ShapeError, r"has shape \(\)"),
        (lambda x: np.maximum.at(np.zeros(9), x.astype(int), 1), TraceError,
         "indices that are computed"),
        (lambda x: np.maximum.at(x * 1, [0] * 99, 1), TraceError, "99 times"),
        (lambda x: np.place(x * 1, x > 0, [1, 2]), TraceError, "np.putmask"),
        (lambda x: x.view(np.int64), TraceError, "as another dtype"),
        (lambda x: np.choose(x, [1, 2]), DTypeError, "expected integers"),
        (lambda x: np.frexp(x), TraceError, "np.frexp is not supported"),
        (lambda x: np.ldexp(x, x.astype(int)), TraceError, r"x \* 2.0\*\*n"),
        (lambda x: np.ldexp(1.0, x.astype(int)), TraceError, r"and not 0\n"),
        (lambda x: np.ldexp(x, 1024), TraceError, r"finite and not 0 in float64"),
        (lambda x: np.linalg.eig(np.outer(x, x)), TraceError, "eigh"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_says_why(
    f: Callable[[Any], Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        eq.jit(f)(X)
    assert f"{__file__}:" in str(caught.value)


def under_itself(x: Any) -> None:
    x[x] = False


def under_the_same(x: Any) -> None:
    x[x[:]] = False
    np.copyto(x.T, False, where=x.T)


def of_the_other_half(x: Any) -> None:
    x[:3][x[3:]] = False


def under_a_copy(x: Any) -> None:
    x[x[::-1].copy()] = False


@pytest.mark.parametrize(
    "write", [under_itself, under_the_same, of_the_other_half, under_a_copy]
)
def test_a_mask_of_the_array_that_is_written(write: Callable[[Any], None]) -> None:
    def f(x: Any) -> Any:
        m = x > 0.5
        write(m)
        return m

    np.testing.assert_array_equal(eq.jit(f)(X), f(X))


@pytest.mark.parametrize(
    "write",
    [
        lambda m: m.__setitem__(m[::-1], False),
        lambda m: m.__setitem__(m[::-1], m[m[::-1]]),
        lambda m: m[1:].__setitem__(m[:-1], True),
        lambda m: np.copyto(m, True, where=m[::-1]),
    ],
)
def test_a_mask_that_changes_while_it_is_read(write: Callable[[Any], None]) -> None:
    """What NumPy writes then depends on how many elements it takes at a time."""

    def f(x: Any) -> Any:
        m = x > 0
        write(m)
        return m

    with pytest.raises(TraceError, match=r"the mask shows .*\n.*mask\.copy\(\)"):
        eq.jit(f)(X)


def test_errors_of_numpy_that_are_not_about_tracing_stay() -> None:
    def f(x: Any) -> None:
        np.zeros(3)[0] = [1, 2]

    with pytest.raises(ValueError, match="setting an array element") as caught:
        eq.jit(f)(X)
    assert not isinstance(caught.value, TraceError)


def test_choose_of_a_number_that_is_no_choice() -> None:
    f = eq.jit(lambda i, x: np.choose(i, [x, -x]))
    for wrong in (-1, 2):
        with pytest.raises((ValueError, IndexError)):
            f(np.array([0, wrong]), X[:2])
