"""Results without axes are numbers of NumPy where NumPy gives these, else arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import eqsat as eq

X = np.arange(1.0, 7).reshape(2, 3)
S, Z = np.float64(2.5), np.array(2.5)
BACKENDS = ["numpy", "native"]

EXPRESSIONS = """
z; s; z+1; -z; z*2.0; z+z; abs(z); +z; +s; z**2; z**.5; z//1; z<1; ~(z>1); (z>1)&(z>2);
divmod(z, 2); np.exp(z); np.positive(z); np.logical_not(z); np.modf(z); np.fmax(z, 1);
z.T; s.T; z.transpose(); s.transpose(); z.reshape(()); s.reshape(()); z.copy();
s.copy(); z.astype('f4'); s.astype('f4'); z.astype('f8'); s.astype('f8'); z.squeeze();
s.squeeze(); z[()]; s[()]; z[...]; s[...]; z.real; s.real; z.imag; s.imag; z.clip(0, 1);
s.round(); np.copy(s); np.reshape(s, ()); np.squeeze(s); np.transpose(s); np.real(z);
np.imag(s); np.squeeze(x[:1, :1]); x[:1, :1].squeeze(); x[:1, :1].reshape(());
np.full_like(z, s); np.where(s>1, s, 3); np.where(z>1, z, 3); np.select([z>1], [z], 0);
np.zeros_like(z); np.broadcast_to(s, ()); np.ones_like(s); np.add(z, 1, out=z.copy());
np.astype(z, 'f4'); x[0, 1]; x[0][1]; x[0, 1, ...]; x[..., 0, 1];
x[np.array(0), np.array(1)]; x[np.argmax(x[:, 0]), 0]; x[..., np.argmax(x[:, 0]), 0];
np.take(x, 0); x.take(1); x.sum(); x.max(); x.mean(); x.std(); np.var(x); np.prod(x);
np.any(x); x.all(); np.ptp(x); np.argmax(x); x.argmin(); np.count_nonzero(x);
np.median(x); np.quantile(x, .3); np.nansum(x); np.nanmean(x); np.nanmax(x);
np.average(x, weights=x, returned=True); np.sum(x, axis=(0, 1)); np.add.reduce(x[0]);
np.maximum.reduce(x, None); np.sum(z); np.max(s); z.mean(); np.sum(z, keepdims=True);
x.sum(keepdims=True).squeeze(); np.dot(x[0], x[0]); x[0] @ x[0]; np.vdot(x, x);
np.inner(x[0], x[0]); np.trace(x); np.einsum('ij->', x); np.einsum('i,i->', x[0], x[0]);
np.tensordot(x, x); np.cov(x[0]); np.corrcoef(x[0]); np.linalg.norm(x);
np.linalg.det(x[:, :2]); np.interp(z, x[0], x[0]); np.linalg.slogdet(x[:, :2]);
np.searchsorted(x[0], z); np.isin(z, x); np.isclose(z, 1); np.nan_to_num(z);
np.round(z); np.sinc(z); np.polyval(x[0], z); np.trapezoid(x[0]);
np.moveaxis(z, (), ()); np.roll(z, 1); np.flip(z); np.permute_dims(z); np.dot(s, 2);
np.asarray(s); np.asarray(x[0, 0]); np.asanyarray(x.sum()); np.asarray(s, 'f4');
np.asfortranarray(s); np.array(s); np.array(s, copy=None); np.full_like(z, 3);
np.sum(x)*z; np.float32(3); np.array(3.); (x.sum(), x, z);
{'a': x.sum(), 'b': [x[0, 0]]}; x.astype('f4').sum(); x.astype('i1').max();
x.astype('f2').max(); x.astype('u8').sum()
"""


def types(value: Any) -> Any:
    """The types of a result and of what it holds."""
    if isinstance(value, dict):
        return {k: types(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [types(v) for v in value]
    return type(value), value.dtype, value.shape


def leaves(value: Any) -> list[Any]:
    held = value.values() if isinstance(value, dict) else value
    if not isinstance(value, (dict, list, tuple)):
        return [value]
    return [leaf for v in held for leaf in leaves(v)]


def function(text: str) -> Callable[..., Any]:
    f: Callable[..., Any] = eval(f"lambda x, s, z: {text}", {"np": np})
    return f


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("text", [t.strip() for t in EXPRESSIONS.split(";")])
def test_a_number_where_numpy_gives_one(text: str, backend: str) -> None:
    f = function(text)
    g, expected = eq.jit(f, backend), f(X, S, Z)
    for _ in range(3):  # the first call compiles; the others are machine code
        found = g(X, S, Z)
        assert types(found) == types(expected)
        for a, b in zip(leaves(found), leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_argument_is_what_it_is_in_each_call(backend: str) -> None:
    f = eq.jit(lambda a: a.T, backend)
    for given in (S, Z, S, Z, S):
        assert type(f(given)) is type(given)


def test_bools_are_those_of_numpy() -> None:
    f = eq.jit(lambda x: ((x > 0).all(), (x > 9).any()), "native")
    for _ in range(3):
        yes, no = f(X)
        assert yes is np.True_ and no is np.False_


def test_numbers_are_let_go() -> None:
    f = eq.jit(lambda x: (x.sum(), x.max(), x * 2, (x > 0).all()), "native")
    f(X)
    first = f(X)
    assert [sys.getrefcount(first[i]) for i in range(3)] == [2, 2, 2]
    before = sys.getrefcount(np.float64), sys.getrefcount(np.True_)
    kept = [f(X) for _ in range(1000)]
    assert {(float(a), float(b)) for a, b, _, _ in kept} == {(21.0, 6.0)}
    del kept
    after = sys.getrefcount(np.float64), sys.getrefcount(np.True_)
    assert all(abs(a - b) < 100 for a, b in zip(before, after, strict=True))


def test_a_call_that_fails_leaves_nothing() -> None:
    f = eq.jit(lambda x, i: (x[i], x.sum()), "native")
    at = np.array(2)
    assert f(X[0], at) == (3.0, 6.0) and f(X[0], at) == (3.0, 6.0)
    before = sys.getrefcount(np.float64)
    for _ in range(300):
        with pytest.raises(IndexError):
            f(X[0], np.array(7))
    assert abs(sys.getrefcount(np.float64) - before) < 50


def test_values_of_lazy_arrays_stay_arrays() -> None:
    total = eq.array(X).sum()
    assert type(total.eval()) is np.ndarray
    assert type(eq.evaluate(total * 2)) is np.ndarray


@pytest.mark.parametrize(
    "name", "sum prod max min all any mean std var nansum nanmean".split()
)
@pytest.mark.parametrize(
    "shape, mask, axis",
    [
        ((3, 6), (2, 3, 1), 0),
        ((1,), (3, 6), None),
        ((3, 1), (3,), ()),
        ((3, 1), (3,), -1),
        ((3, 1), (1, 3), 0),
        ((), (2,), None),
    ],
)
def test_a_mask_is_no_larger_than_what_it_chooses_from(
    name: str, shape: tuple[int, ...], mask: tuple[int, ...], axis: Any
) -> None:
    function = getattr(np, name)
    given = {"initial": 0} if name in ("max", "min") else {}

    def reduce(x: Any, w: Any) -> Any:
        return function(x, axis, where=w, **given)

    x, w = np.ones(shape), np.ones(mask, bool)
    with pytest.raises(ValueError, match=r"broadcast|dimensions"):
        reduce(x, w)
    with pytest.raises(eq.ShapeError, match="where="):
        eq.jit(reduce)(x, w)


@pytest.mark.parametrize("name", ["max", "min"])
def test_what_is_left_of_no_elements_is_a_number(name: str) -> None:
    function = getattr(np, name)
    found = eq.jit(lambda x: function(x, None, initial=-2))(np.ones((0, 6)))
    assert type(found) is np.float64 and found == -2
    rows = eq.jit(lambda x: function(x, 0, initial=-2))(np.ones((0, 6)))
    np.testing.assert_array_equal(rows, np.full(6, -2.0))


HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)]


@pytest.mark.parametrize("backend", ["native", "numpy", "mlx"])
@pytest.mark.parametrize("dtype", HALVES)
def test_integers_are_compared_in_the_dtype_of_floats(dtype: Any, backend: str) -> None:
    if backend == "mlx":
        pytest.importorskip("mlx.core")
    x = np.array([np.inf, -np.inf, np.nan, 1, 2048, 65504], dtype)
    numbers = (2**63 - 1, -(2**63), 70000, -70000, 65519, 65520, 2049, 3)

    def compared(x: Any) -> Any:
        both = [(x == n, n != x, x < n, n <= x, x > n, n >= x) for n in numbers]
        return [one for six in both for one in six]

    with np.errstate(all="ignore"):
        want = compared(x)
    for numerics in ("exact", "reassociate"):
        options = eq.Options(numerics=numerics)
        got = eq.jit(compared, backend=backend, options=options)(x)
        assert [np.asarray(g).tolist() for g in got] == [w.tolist() for w in want]


@pytest.mark.parametrize("numerics", ["exact", "reassociate"])
def test_both_zeros_in_one_function_are_two_numbers(numerics: str) -> None:
    x = np.array([-0.0, 0.0, 1.0])
    for f in (
        lambda x: (np.copysign(x + 2, -0.0), np.copysign(x + 2, 0.0)),
        lambda x: (x + 0.0, x + -0.0),
        lambda x: (x * np.float32(-0.0), x * 0.0),
        lambda x: (np.full_like(x, -0.0), np.zeros_like(x), x * -0.0),
    ):
        got = eq.jit(f, options=eq.Options(numerics=numerics))(x)
        for one, want in zip(got, f(x), strict=True):
            assert np.signbit(one).tolist() == np.signbit(want).tolist()


@pytest.mark.parametrize("numerics", ["exact", "reassociate", "approximate", "fast"])
@pytest.mark.parametrize("backend", ["native", "numpy", "mlx"])
def test_what_nothing_is_added_to_keeps_its_bits(backend: str, numerics: str) -> None:
    if backend == "mlx":
        pytest.importorskip("mlx.core")

    def known(x: Any, i: Any) -> Any:
        np.add.at(x, [0, 0], 1.0)
        np.subtract.at(x, [1], 1.0)
        return x

    def computed(x: Any, i: Any) -> Any:
        np.add.at(x[::-1], i, x[-1])
        return x

    for f in (known, computed):
        for dtype in HALVES:
            for shape in ((4,), (40,), (5, 3)):
                x = np.full(shape, -0.0, dtype)
                x[-1] = 3
                i, want = np.array([1, 1]), x.copy()
                f(want, i)
                eq.jit(f, backend=backend, options=eq.Options(numerics=numerics))(x, i)
                assert x.tobytes() == want.tobytes()


ZEROS: dict[str, Any] = {
    "x - 0.0": lambda x: x - 0.0,
    "x + 0.0": lambda x: x + 0.0,
    "x + -0.0": lambda x: x + (-0.0),
    "x - -0.0": lambda x: x - (-0.0),
    "0.0 - x": lambda x: 0.0 - x,
    "-0.0 - x": lambda x: -0.0 - x,
    "x * -1.0 + 0.0": lambda x: x * -1.0 + 0.0,
    "x * 0.0": lambda x: x * 0.0,
    "x * -0.0": lambda x: x * -0.0,
    "(x - 0.0) * 2": lambda x: (x - 0.0) * 2,
    "copysign": lambda x: np.copysign(1.0, x - 0.0),
    "both": lambda x: (x + 0.0) * (x - 0.0),
}


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("name", ZEROS)
def test_the_sign_of_zero_is_kept(name: str, backend: str) -> None:
    x = np.array([-0.0, 0.0, 1.0, -1.0])
    exact = eq.Options(numerics="exact")
    found = eq.jit(ZEROS[name], backend=backend, options=exact)(x)
    assert found.tobytes() == ZEROS[name](x).tobytes()
