"""Results whose shape depends on data: NumPy's, where a function returns them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat.define import composite

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4))
Y = RNG.standard_normal((3, 4))
T = RNG.standard_normal((2, 3, 4))
V = np.array([0, 0, 3, 1, 3, 0, 7, 1, 0])
W = np.array([3, 8, 1])
BACKENDS = ("native", "numpy")

EXPRESSIONS = """
x[x > 0]; x[x > 9]; x[x == x]; x[x[:, 0] > 0]; x[x[:, 0] > 0, 2]; x[x[:, 0] > 0, 1:3];
x[1, x[0] > 0]; x[:, x[0] > 0]; x[..., x[0] > 0]; x[None, x[:, 0] > 0];
x[[0, 0, 1, 2], x[0] > -9]; x[np.abs(x).argmax(0), x[0] > -9];
x[x[:, 0] > -9, [0, 1, 2]]; t[t[:, :, 0] > 0]; t[t > 0]; t[:, t[0] > 0]; t[0, t[0] > 0];
t[..., t[0, 0] > 0]; t[t[:, 0, 0] > -9, :, v[:4] == 0]; x[x > 0] * 2 + 1;
np.exp(x[x > 0]); -x[x < 0]; x[x > 0] > 1; 1 / x[x > 0] + y[x > 0]; x[x > 0][0];
x[x > 0][:2]; x[x > 0][::-1]; x[x > 0][..., None]; x[x[:, 0] > 0][:, 1];
(x * 2 + y)[np.tanh(y) > 0]; x.T[y.T > 0]; x[~(x > 0) & (y < 1)]; (x > 0)[x > 0];
x.astype(np.float32)[y > 0]; v[v > 1]; np.array(W)[w > 2]; t[[0, 1], v[1:4] > 0][:1];
np.nonzero(x > 0); np.nonzero(x); np.nonzero(v); v.nonzero(); (x > 0).nonzero()[0];
np.nonzero(t > 0)[2]; np.nonzero(x > 0)[1][:3]; np.argwhere(x > 0); np.argwhere(v);
np.flatnonzero(x > 0); np.flatnonzero(v); np.where(x > 0); np.where(v);
np.where(x > 0)[0]; np.unique(v); np.unique(x); np.unique(v, return_index=True);
np.unique(v, return_inverse=True); np.unique(v, return_counts=True);
np.unique(v, True, True, True); np.unique(v.reshape(3, 3), axis=0);
np.unique(v.reshape(3, 3), axis=1, return_counts=True); np.unique(v)[-1];
np.unique(v % 2 + 1); np.unique(x, equal_nan=False); np.unique_all(v);
np.unique_counts(v); np.unique_inverse(v); np.unique_values(w);
np.compress(x[:, 0] > 0, x, axis=0); np.compress(x[0] > 0, x, 1); np.compress(v, v);
x.compress(x[0] > 0, axis=1); x.compress(x[0] > 0);
np.compress([x[0, 0] > 0, True], x, 0); np.compress([0, 1, 1], x, 0); v.compress(v[:4]);
np.extract(x > 0, y); np.extract(v, v * 2); np.trim_zeros(v); np.trim_zeros(v, "f");
np.trim_zeros(trim="b", filt=v); np.setdiff1d(v, w); np.setdiff1d(v, [1, 2]);
np.setdiff1d(W, v); np.setxor1d(v, w); np.intersect1d(v, w);
np.intersect1d(v, w, return_indices=True); np.union1d(v, w); np.union1d(v, W);
np.delete(x, x[:, 0] > 0, 0); np.delete(v, v > 2); np.delete(v, w[:2]); np.repeat(v, v);
np.repeat(x, w, axis=0); [x[x > 0], x.sum(), {"a": x[x > 1], "b": np.nonzero(v)}];
(x[x > 0], x[x > 0]); (lambda a: (a, a, x, a[0]))(x[x > 0]);
(x, np.unique(v), 3, None, "text", v + 1);
(lambda i, j: (j, i, x[0, 0]))(*np.nonzero(x > 0)); dict(where=np.where(x > 0));
x[np.nonzero(x > 0)]; x[np.where(x > 0)] * 2; v[np.flatnonzero(v)]; v[np.where(v)[0]];
np.modf(x[x > 0]); np.delete(v, v[:3], 0)
"""
"""Of x, y (3, 4) and t (2, 3, 4) of float64, v (9) and w (3) of int64, and the constant
W."""


def expressions() -> list[str]:
    return [e.strip() for e in EXPRESSIONS.replace("\n", " ").split(";")]


def called(code: str) -> Callable[..., Any]:
    found: Callable[..., Any] = eval(f"lambda x, y, t, v, w: {code}", globals())
    return found


def check_same(got: Any, want: Any) -> None:
    """Equal in nesting, types, dtypes, shapes and values."""
    assert type(got) is type(want)
    if isinstance(want, dict):
        assert list(got) == list(want)
        got, want = list(got.values()), list(want.values())
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            check_same(g, w)
    elif isinstance(want, (np.ndarray, np.generic)):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-13)
    else:
        assert got == want


@pytest.mark.parametrize("code", expressions())
def test_the_end_of_a_program_is_numpys(code: str) -> None:
    f = called(code)
    want = f(X, Y, T, V, W.copy())
    for backend in BACKENDS:
        jitted = eq.jit(f, backend=backend)
        for _ in range(3):  # the later ones by machine code
            check_same(jitted(X, Y, T, V, W.copy()), want)


def agree(f: Callable[..., Any], *args: Any, **how: Any) -> None:
    """What ``f`` returns, and what it makes of its arguments, as in NumPy."""
    theirs = [np.copy(a) for a in args]
    want = f(*theirs)
    jitted = eq.jit(f, **how)
    for _ in range(3):
        mine = [np.copy(a) for a in args]
        check_same(jitted(*mine), want)
        check_same(mine, theirs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_arguments_may_be_written_to_as_well(backend: str) -> None:
    def before(x: Any) -> Any:
        y = x[x > 0]
        x[:] = 0
        return y, x

    def by_places(x: Any) -> Any:
        x[np.nonzero(x > 0)] *= 2
        x[np.where(x < -1)] = x[np.where(x < -1)] + 1
        return np.argwhere(x > 1)

    def counts(v: Any) -> Any:
        v[v > 2] -= 1
        return np.unique(v, return_counts=True)

    agree(before, X, backend=backend)
    agree(by_places, X, backend=backend)
    agree(counts, V, backend=backend)


def test_nothing_is_written_when_numpy_refuses_the_result() -> None:
    def f(x: Any, i: Any) -> Any:
        x += 1
        return x[i, x[0] > -99]

    x = X.copy()
    with pytest.raises(IndexError, match="could not be broadcast"):
        eq.jit(f)(x, np.array([0, 1]))
    np.testing.assert_array_equal(x, X)


def test_a_view_that_numpy_makes_of_what_is_written_later_is_refused() -> None:
    def f(v: Any) -> Any:
        y = np.trim_zeros(v)
        v[:] = 5
        return y

    with pytest.raises(eq.TraceError, match=r"np\.trim_zeros\(x\) makes a view"):
        eq.jit(f)(V.copy())


def test_what_the_steps_read_is_watched() -> None:
    outside, names, least = np.array([3, 8]), [1, 2], [2]
    f = eq.jit(lambda v: (np.union1d(v, outside), np.setdiff1d(v, names)))
    g = eq.jit(lambda v: np.compress(v > least[0], v))
    for _ in range(2):
        check_same(f(V), (np.union1d(V, outside), np.setdiff1d(V, names)))
        check_same(g(V), np.compress(V > least[0], V))
        outside[0], names[0], least[0] = 100, 7, 0
    with_list = eq.jit(np.setdiff1d)
    for other in ([1], [7], [1]):
        check_same(with_list(V, other), np.setdiff1d(V, other))


@pytest.mark.parametrize("numerics", ["exact", "reassociate", "approximate"])
def test_which_elements_are_equal_is_decided_upon_the_written_values(
    numerics: str,
) -> None:
    r = RNG.standard_normal(2000).round(2)
    for dtype in (np.float64, np.float32, np.float16):
        x, seven = r.astype(dtype), dtype(7)
        for f in (
            lambda x: np.unique(x / seven * seven, return_counts=True),  # noqa: B023
            lambda x: np.nonzero(x / seven * seven - x),  # noqa: B023
            lambda x: np.intersect1d(x / seven, x / x[3:4]),  # noqa: B023
            lambda x: np.trim_zeros(x / seven * seven - x),  # noqa: B023
        ):
            got = eq.jit(f, options=eq.Options(numerics=numerics))(x)
            want = f(x)
            for g, w in zip(got, want, strict=True):
                np.testing.assert_array_equal(g, w)


def test_the_program_is_found_again_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("EQSAT_CACHE", raising=False)

    def f(x: Any, v: Any) -> Any:
        return (x * 2)[np.tanh(x) > 0.1], np.unique(v * 3), x.sum()

    first, second = eq.jit(f), eq.jit(f)
    check_same(first(X, V), f(X, V))
    check_same(second(X, V), f(X, V))
    assert first.lower(X, V).search is not None
    assert second.lower(X, V).search is None


def test_a_mask_and_what_it_selects_are_one_kernel() -> None:
    f = eq.jit(lambda x: (x * 2 + 1)[np.tanh(x) > 0])
    assert len(f.explain(X).kernels) == 1
    made = f.lower(eq.Spec((3, 4), "float64"))
    assert [t.shape for t in made.term] == [(3, 4), (3, 4)]
    assert made.source("numpy").count("np.tanh") == 1


def test_functions_that_return_them_may_be_jitted_and_called_by_others() -> None:
    inner = eq.jit(lambda x: (x[x > 0], x + 1))
    check_same(
        eq.jit(lambda x: (inner(x)[0], inner(x)[1] * 2))(X), (X[X > 0], (X + 1) * 2)
    )


def test_lazy_arrays_are_evaluated() -> None:
    x, v = eq.array(X), eq.array(V)
    for f in (
        lambda x, v: np.nonzero(x > 0),
        lambda x, v: np.unique(v * 2, return_counts=True),
        lambda x, v: (np.where(x > 0)[0] + 1, np.argwhere(v)),
        lambda x, v: (x.compress(x[0] > 0, axis=1), np.extract(x > 0, X)),
        lambda x, v: (np.delete(x, v[:2], 0), np.repeat(v, v), np.setdiff1d(V, v[:3])),
        eq.jit(lambda x, v: (x[x > 0], np.unique(v), x + 1)),
    ):
        got, want = f(x, v), f(X, V)
        assert all(isinstance(g, eq.LazyArray) for g in got)
        check_same(tuple(g.eval() for g in got), tuple(want))
    assert type(np.unique_all(v)) is type(np.unique_all(V))
    got = eq.jit(lambda y: (np.union1d(y, x), x[y > 0], np.compress(x[0] > 0, y, 1)))(Y)
    check_same(got, (np.union1d(Y, X), X[Y > 0], np.compress(X[0] > 0, Y, 1)))


def test_arrays_of_mlx_give_arrays_of_mlx() -> None:
    mx = pytest.importorskip("mlx.core")

    def f(x: Any) -> Any:
        return np.nonzero(x > 0), x * 2, np.unique(x), x[x > 0][0], (x > 0)[x > 0]

    def one(x: Any) -> Any:
        return x[x > 0]

    x = X.astype(np.float32)
    for g in (f, one):
        jitted = eq.jit(g)
        for _ in range(3):
            got, want = jitted(mx.array(x)), g(x)
            flat = zip(_leaves(got), _leaves(want), strict=True)
            for mine, theirs in flat:
                assert isinstance(mine, mx.array)
                check_same(np.array(mine), np.asarray(theirs))
    half = eq.jit(one)(mx.array(x).astype(mx.bfloat16))
    assert half.dtype == mx.bfloat16 and half.shape == x[x > 0].shape
    with pytest.raises(eq.TraceError, match=r"mx\.compile"):
        mx.compile(eq.jit(one))(mx.array(x))


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for v in value for leaf in _leaves(v)]
    return [value]


# -- inside a program ------------------------------------------------------------------

doubled = eq.jit(lambda x: x * 2)

REFUSED = {
    "x[1, x[0] > 0] + 1": "+ of x[mask]",
    "x + np.unique(x)": "+ of np.unique",
    "np.unique(x) == 1": "== of np.unique",
    "np.sin(np.unique(x))": "np.sin of np.unique",
    "x[x > 0].max()": "np.max(x, where=mask, initial=...)",
    "len(np.nonzero(x)[0])": "count by mask.sum()",
    "np.flatnonzero(x).shape": "count by mask.sum()",
    "np.size(x[x > 0])": "count by mask.sum()",
    "[i for i in np.nonzero(x)[0]]": "iteration of np.nonzero",
    "1 if x[x > 0] else 2": "the truth value of x[mask]",
    "float(x[x > 0][0])": "float() of x[mask]",
    "range(np.argwhere(x)[0])": "the index value of np.argwhere",
    "3 in np.unique(x)": "`in` of np.unique",
    "np.concatenate([x[x > 0], np.zeros(3)])": "np.concatenate of x[mask]",
    "np.concatenate([np.zeros(3), x[x > 0]])": "np.concatenate of x[mask]",
    "np.stack(np.nonzero(x > 0))": "np.stack of np.nonzero",
    "np.array([x[x > 0], x[x > 1]])": "the data of x[mask]",
    "np.unique(x[x > 0])": "np.unique of x[mask]",
    "x[np.where(x[:, 0] > 0)[0], 1]": "an index by np.where",
    "x[np.unique(x)[0]]": "an index by np.unique",
    "np.unique(x)[x.astype(int)]": "a traced index of np.unique",
    "x.__setitem__(0, np.unique(x)[:4])": "with np.unique",
    "x[x > 0].__setitem__(0, 1)": "a write to a part of x[mask]",
    "x[x > 0] + x[x > 1]": "+ beside another mask of x[mask]",
    "x[x > 0] + np.arange(7)": "+ beside an array of x[mask]",
    "x[x[:, 0] > 0] @ x[0]": "@ of x[mask]",
    "x[x > 0].T": ".T of x[mask]",
    "doubled(x[x > 0])": "x[mask] as an argument",
    "np.compress(x[0] > 0, x, 1, out=x * 1)": "of np.compress",
    "eq.grad(lambda x: x[x > 0])(x)": "the gradient of x[mask]",
    "np.sort(x[x > 0])": "np.sort of x[mask]",
    "x[x[:, 0] > 0].sum(1)": ".sum along other axes",
    "np.sum(x[x > 0], keepdims=True)": ".sum along other axes",
    "np.place(x * 1, x > 0, [1, 2])": "np.putmask",
    "np.where(x, 1)": "both x and y",
    "W[x[:, 0] > 0]": "not known while tracing",
}
"""What cannot be done with such a result, and what the error says of it."""


REDUCED = """
x[x > 0].sum(); x[x > 0].mean(); np.mean(x[x > 0]); x[x > 9].sum(); x[x > 0].var(ddof=1)
x[x[:, 0] > 0].sum(0); x[x[:, 0] > 0].std(axis=0); np.sum(x[x[:, 0] > 9] * 2, axis=0)
np.prod(x[x < 0] + 1); (x[x > 0] > 1).any(); np.all(x[x > 0] > 1); x[x > 9].prod()
(x[x > 0] > 1).sum(); (np.exp(x[x > 0]) * x[x > 0]).sum(); x[x[:, 0] > 0].mean()
x[x[:, 0] > 0].sum(-2); x[x > 0].sum(dtype=np.float32); np.mean(x[x > 0] > 1)
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("code", re.split(r"[;\n]\s*", REDUCED.strip()))
def test_reductions_of_what_a_mask_selects(code: str, backend: str) -> None:
    f = eval(f"lambda x: {code}", {"np": np})
    for x in (X, -X, np.where(X > 0, np.nan, X)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = f(x.copy())
        found = eq.jit(f, backend=backend)(x.copy())
        assert (found.dtype, found.shape) == (want.dtype, want.shape)
        near = {"b": 0.0, "i": 0.0}.get(want.dtype.kind, 1e-12)
        near = 1e-6 if want.dtype == np.float32 else near
        np.testing.assert_allclose(found, want, rtol=near)


def test_the_gradient_of_a_sum_of_what_a_mask_selects() -> None:
    found = eq.grad(lambda x: (x[x > 0] ** 2).sum())(X)
    np.testing.assert_allclose(found, np.where(X > 0, 2 * X, 0))


@pytest.mark.parametrize(("code", "said"), REFUSED.items())
def test_another_use_is_an_error_with_line_and_remedy(code: str, said: str) -> None:
    f = eval(compile(f"lambda x: {code}", "user.py", "eval"), globals())
    with pytest.raises(eq.EqsatError) as caught:
        eq.jit(f)(X.copy())
    text = str(caught.value)
    assert said in text and "at user.py:1" in text
    assert "return it" in text or "\n  " in text


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("x[x[0] > 0]", IndexError),
        ("x[x > 0, 1]", IndexError),
        ("x[5, x[0] > 0]", IndexError),
        ("np.compress(x > 0, x, 0)", eq.ShapeError),
        ("np.unique(x, axis=5)", IndexError),
        ("np.nonzero(x[0, 0])", eq.ShapeError),
        ("np.union1d(x, M)", TypeError),
    ],
)
def test_what_numpy_always_refuses_is_refused_at_once(code: str, kind: Any) -> None:
    known = {"np": np, "M": np.ma.masked_array([1.0])}
    f = eval(compile(f"lambda x: {code}", "user.py", "eval"), known)
    with pytest.raises(kind, match=r"user\.py:1"):
        eq.jit(f).lower(eq.Spec((3, 4), "float64"))


def test_the_result_of_an_op_has_a_shape() -> None:
    @composite("... -> ...")
    def positive_ones(x: Any) -> Any:
        return x[x > 0]

    with pytest.raises(eq.TraceError, match=r"positive_ones: x\[mask\] as the result"):
        eq.jit(positive_ones)(X)
