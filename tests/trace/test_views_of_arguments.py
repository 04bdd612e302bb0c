"""Writes through what shows an argument reach the caller's array where NumPy's do."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from evaluate import assert_same
from sizes import some

import eqsat as eq
from eqsat.support.errors import EqsatError, TraceError

A = np.arange(1.0, 21).reshape(5, 4)
LAYOUTS: dict[str, Callable[[], Any]] = {
    "rows": lambda: A.copy(),
    "columns": lambda: np.asfortranarray(A),
    "steps": lambda: np.repeat(A, 2, 1)[:, ::2],
    "reversed": lambda: A[::-1].copy()[::-1],
}
SHOWN = """
x.reshape(-1); x.reshape(2, 10); x.reshape(-1, order="F"); x.ravel(); x.ravel("F");
np.ravel(x); np.reshape(x, (10, 2)); x.T; x.T.reshape(-1); x[1:].reshape(-1);
x[:, 1:].reshape(-1); x[::2].ravel(); x.T.ravel(); x.T.ravel("F"); x.view();
x.flatten(); np.einsum("ij->ji", x); np.einsum("ij->ij", x); np.einsum("ij->j", x);
np.einsum("ii->i", x[:4]); np.squeeze(x[None]); x[None, ...]; x[...]; np.asarray(x);
np.asanyarray(x); np.array(x, copy=None); np.array(x); np.ascontiguousarray(x);
np.asfortranarray(x); np.ascontiguousarray(x.T); x.astype(float, copy=False);
x.astype(float); x.real; np.real(x); x.conj(); np.conj(x);
np.nan_to_num(x, copy=False); np.nan_to_num(x); np.atleast_1d(x); np.atleast_3d(x);
np.rot90(x); np.rot90(x, 2); np.flip(x); np.fliplr(x); np.swapaxes(x, 0, 1);
x.transpose(1, 0); np.moveaxis(x, 0, 1); np.rollaxis(x, 1); x.mT;
np.matrix_transpose(x); np.linalg.matrix_transpose(x); np.split(x, [2])[0];
np.array_split(x, 2)[1]; np.hsplit(x, 2)[0]; np.unstack(x)[1];
np.unstack(x, axis=1)[0]; list(x)[0]; np.expand_dims(x, 0); np.permute_dims(x, (1, 0));
np.take(x, [0, 1], 0); np.tile(x, 1); np.roll(x, 0); np.copy(x); x.copy(); +x;
np.concatenate([x]); np.round(x); np.triu(x); x.reshape(5, 4); x.reshape(x.shape);
x.reshape((5, 2, 2)).reshape(-1); x.reshape(-1)[1:]; x.reshape(-1)[1:].reshape(19);
x[:3].reshape(-1)[::2]; x[2].reshape(2, 2); x[:, 1].reshape(5, 1); x[:, 1:2].ravel();
x[:1].ravel("F"); x.T.T.ravel(); np.stack([x])[0]; x[[0]]; x[np.arange(2)];
np.astype(x, float, copy=False); np.astype(x, float); np.flipud(x)[::-1];
x.swapaxes(0, 1).swapaxes(0, 1).reshape(-1); np.where(True, x, x); x.squeeze();
np.broadcast_arrays(x)[0]; x.reshape(-1).T; x.T[1:].T.reshape(-1); np.diff(x, 0);
np.diff(x, n=0, axis=0); np.diff(x, 0, prepend=1.0); np.linalg.matrix_power(x[:4], 1);
np.asarray(x, order="F"); np.asarray(x, order="C"); np.array(x, copy=None, order="F");
np.nan_to_num(x, False); x[0, ...]; x[1:2, :1].squeeze(); x[1:2, :1].reshape(());
np.meshgrid(x[0])[0]; np.clip(x, None, None); np.repeat(x, 1, 0); np.pad(x, 0)
"""
READ_ONLY = """
np.diagonal(x); x.diagonal(); np.diag(x); np.linalg.diagonal(x);
np.broadcast_to(x, (2, 5, 4)); np.broadcast_to(x, x.shape); np.imag(x); x.imag;
x.imag.T; np.real(np.imag(x))[0]; np.broadcast_to(x.sum(), (3,));
np.broadcast_to(x[0, ...], (4,))
"""
WITHOUT_AXES = """
x.T; x[None]; x[...]; x[..., None]; x.T[None].T[0, ...]; x.reshape(()); x.reshape(1, 1);
x.reshape(-1); x.ravel(); x.view(); np.squeeze(x); np.squeeze(x, ()); x.squeeze()[None];
np.atleast_1d(x); np.atleast_2d(x)[0]; np.transpose(x); np.permute_dims(x);
np.expand_dims(x, ()); np.expand_dims(x, 0)[0, ...]; np.flip(x[None]); np.real(x);
np.real(x)[None]; x.conj(); x.real; np.diff(x, 0); np.asarray(x);
np.ascontiguousarray(x); np.array(x); x.copy(); x.flatten(); x.astype(x.dtype);
x.astype(x.dtype, copy=False); np.where(True, x, x); np.unstack(x[None, None])[0];
np.swapaxes(x[None, None], 0, 1); x[None].T[0, ...][None]; np.broadcast_arrays(x)[0]
"""
NUMBERS = """
x[0, 0]; x[-1][2]; x[0].sum(); x.max(); x.mean(); x[0] @ x[1]; np.dot(x[0], x[1]);
x.flat[0]; x[2, 3] + 1; np.sqrt(x[0, 0]); x.reshape(-1)[3]; x[..., 0][2];
x[0, 0, ...][()]; x[0, 0, ...] * 2; next(iter(x[0])); np.nan_to_num(x[0, 0]);
np.round(x[0, 0]); x[0, 0].T; x[0, 0].real; np.einsum("...", x[0, 0, ...]);
np.squeeze(x[0, 0]); x[0, 0].reshape(())
"""
TO_NUMBERS = """
v[...] = 7; v[()] = 7; v.fill(7); np.copyto(v, 7.0); np.add(v, 1, out=v);
np.sum(x, out=v); np.add.at(v, (), 1.0); np.put(v, 0, 7); np.putmask(v, True, 7.0)
"""
REFUSED = """
x.ravel("K"); np.meshgrid(x[0], x[1], copy=False)[0]; np.require(x);
np.lib.stride_tricks.as_strided(x, (3,), (8,))
"""


def listed(text: str) -> list[str]:
    return [line.strip() for line in text.replace("\n", " ").split("; ")]


def function(body: str) -> Callable[..., Any]:
    known: dict[str, Any] = {"np": np, "__name__": "user"}
    exec(f"def f(x):\n    {body}", known)
    found: Callable[..., Any] = known["f"]
    return found


@pytest.mark.parametrize("shown", listed(SHOWN))
def test_writes_through_all_that_may_show_an_argument(shown: str) -> None:
    write = function(f"v = {shown}\n    v[...] = 7\n    return np.array(v), x + 0")
    after = function(f"v = {shown}\n    x[1] = 7\n    return np.array(v), x + 0")
    for f in (write, after):
        g = eq.jit(f, backend="numpy")  # one function, called with every layout
        for made in some([*LAYOUTS.values()], 2, f is write):
            mine, theirs = made(), made()
            want, got = f(theirs), g(mine)
            assert_same(mine, theirs)
            assert_same(got, want)


@pytest.mark.parametrize("kind", [float, int])
@pytest.mark.parametrize("shown", listed(WITHOUT_AXES))
def test_writes_through_what_shows_an_array_without_axes(shown: str, kind: Any) -> None:
    behind = "return np.array(v), np.array(x)"
    writes = "v[...] = 7", "v += 7", "x[...] = 7", "v[...] = 7; x += v.sum()"
    made = "x", "np.array(x)", "np.array(x[None][0])"
    for write, x in some([*itertools.product(writes, made)], 4):
        f = function(f"y = x; x = {x}\n    v = {shown}\n    {write}\n    {behind}")
        mine, theirs = np.array(5, kind), np.array(5, kind)
        want = f(theirs)
        assert_same(eq.jit(f)(mine), want)
        assert_same(mine, theirs)


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_writes_through_an_element_of_an_array_made_inside(backend: str) -> None:
    f = function(
        "o = np.zeros((2, 3)); v = o[..., 1, 2]; w = v[None]\n"
        "    v[...] = x.sum(); w[0] *= 2; o[0] = x[0, :3]\n    return o, v, w"
    )
    agree(f, backend)


@pytest.mark.parametrize("made", ["x[0, 0]", "x.sum()", "x[0] @ x[1]"])
@pytest.mark.parametrize(
    "shown", ["s[None]", "s[...]", "s.reshape(1)", "np.atleast_1d(s)", "s.ravel()"]
)
def test_what_is_made_of_a_number_is_a_copy(made: str, shown: str) -> None:
    agree(function(f"s = {made}; v = {shown}; v[...] = 9; return s, v"), "native")


@pytest.mark.parametrize("number", listed(NUMBERS))
def test_nothing_is_written_to_a_number(number: str) -> None:
    f = function(f"v = {number}\n    v[...] = 7")
    with pytest.raises(TypeError, match="does not support item assignment"):
        f(A.copy())
    with pytest.raises(TraceError, match=r"x\[...\] = y: x is a number of float64"):
        eq.jit(f)(A.copy())
    agree(function(f"v = {number}; w = v; v += 1; v *= 2; return v, w"), "native")


@pytest.mark.parametrize("write", listed(TO_NUMBERS))
def test_no_function_writes_to_a_number(write: str) -> None:
    f = function(f"v = x[0, 0]\n    {write}\n    return x + 0, v")
    x = A.copy()
    with pytest.raises(TraceError, match="x is a number of float64"):
        eq.jit(f)(x)
    assert_same(x, A)


@pytest.mark.parametrize("copy", ["True", "False"])
def test_integers_without_nan_are_copied_where_numpy_copies(copy: str) -> None:
    for shape in ((3,), ()):
        for how in (f"copy={copy}", copy):
            f = function(f"v = np.nan_to_num(x, {how})\n    x += 2\n    return v + 0")
            mine, theirs = np.full(shape, 4), np.full(shape, 4)
            assert_same(eq.jit(f)(mine), f(theirs))
            assert_same(mine, theirs)


@pytest.mark.parametrize("shown", listed(READ_ONLY))
def test_what_is_read_only_refuses_a_write(shown: str) -> None:
    f = function(f"v = {shown}\n    v[...] = 7")
    with pytest.raises(ValueError, match="read-only"):
        f(A.copy())
    with pytest.raises(ValueError, match="read-only") as ours:
        eq.jit(f)(A.copy())
    assert isinstance(ours.value, EqsatError)


@pytest.mark.parametrize("shown", listed(REFUSED))
def test_what_nobody_knows_is_refused(shown: str) -> None:
    with pytest.raises(EqsatError):
        eq.jit(function(f"v = {shown}\n    v[...] = 7"))(A.copy())


def agree(f: Callable[..., Any], backend: str) -> None:
    g = eq.jit(f, backend=backend)
    for made in LAYOUTS.values():
        mine, theirs = made(), made()
        want = f(theirs)
        assert_same(g(mine), want)
        assert_same(mine, theirs)


def several_at_once(x: Any) -> Any:
    a, b = x[1:3].reshape(-1), x.reshape(10, 2)
    a[3] = x[0, 0] * 2
    b[1] = 1
    x[0, 0] = 4
    return a, b, x.T.reshape(-1)


def nothing_of_the_caller(x: Any) -> Any:
    v = x.T.ravel()
    v[0] = x[1, 1] * 9
    return v * 1


def elements_one_after_the_other(x: Any) -> Any:
    x[1:].flat[2] = 9
    x.T.flat[3] = x[0, 0] + 8
    x.real = x * 2
    return x.sum()


def of_a_copy(x: Any) -> Any:
    t, o, c = x.copy(), np.zeros((5, 4)), np.zeros((5, 4), order="F")
    t.reshape(-1)[2] = 5
    o[0] = c[0] = x[0]
    o[1:].reshape(-1)[3] = 6
    c.reshape(-1)[1] = 7
    return t, o, c


def with_another_shape(x: Any) -> Any:
    y, o = x.copy(), np.zeros((5, 4))
    y.shape = 2, -1
    o[0] = x[0]
    v = o[1:]
    o.shape = -1
    o[5], v[2] = x[0, 0], 7
    return y, o, v


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # NumPy 2.5
@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize(
    "f",
    [several_at_once, nothing_of_the_caller, elements_one_after_the_other, of_a_copy,
     with_another_shape],
)  # fmt: skip
def test_functions_as_people_write_them(f: Callable[..., Any], backend: str) -> None:
    agree(f, backend)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x.shape = 20", r"x = x.reshape\(y\)"),
        ("v = x.T; v.shape = 20", "do not lie in this order"),
        ("x.dtype = np.int64", r"x = x.astype\(dtype\)"),
        ("x.resize(3, 4)", "changes an array in place"),
        ("y = x * 2; y.reshape(-1)[0] = 1; return y", r"on a copy, x.copy\(\)"),
    ],
)
def test_what_cannot_be_done_says_what_to_write(body: str, message: str) -> None:
    x = A.copy()
    with pytest.raises(TraceError, match=message):
        eq.jit(function(body))(x)
    assert_same(x, A)


def test_arrays_of_mlx_have_rows_one_after_the_other() -> None:
    mx = pytest.importorskip("mlx.core")
    x = mx.array(A.astype(np.float32))
    eq.jit(function("x.reshape(-1)[1] = 9"))(x)
    assert np.asarray(x)[0, 1] == 9
