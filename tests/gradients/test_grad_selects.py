"""Derivatives behind a select: what it did not choose has slope 0, be the slope behind
it infinite or NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from derivatives import gradient
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples, some

import eqsat as eq
from eqsat.terms.op import Op
from eqsat.terms.term import Term, postorder
from eqsat.trace.trace import trace

NAN, INF = np.nan, np.inf
X = np.array([-2.0, -0.0, 0.0, 0.25, 1.0, 3.0])
"""Numbers at which a root, a logarithm and a quotient are as they should, infinite and
NaN."""
ROWS = np.array([[0.0, 0.0], [3.0, 4.0], [1.0, -1.0]])

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
"""What is not chosen is computed, and warned of, as NumPy does."""

Function = Callable[..., Any]
Case = tuple[Function, Any, Function]


def only(condition: Any, slope: Function) -> Any:
    """The slope, in NumPy, where the condition holds, and 0 elsewhere."""
    with np.errstate(all="ignore"):
        return np.where(condition, slope(), 0.0)


def in_place(x: Any) -> Any:
    d = x.copy()
    d[d > 0] = 1 / d[d > 0]
    return d


def twice_in_place(x: Any) -> Any:
    d = np.log(x)
    d[x <= 0] = 0
    d[x > 2] *= 2
    return d


def added_in_place(x: Any) -> Any:
    d = np.sqrt(x)
    y = x * 2
    y[x > 0] += d[x > 0]
    return y


def running(x: Any) -> Any:
    h = x
    for _ in range(3):
        h = np.where(h > 0, np.sqrt(h), 0)
    return h


def unit(x: Any) -> Any:
    n = np.linalg.norm(x, axis=1, keepdims=True)
    return np.where(n > 0, x / n, 0)[:, 0]


def unit_slope(x: Any) -> Any:
    a, b = x[:, :1], x[:, 1:]
    r = np.hypot(a, b)
    return only(r > 0, lambda: np.hstack([b * b, -a * b]) / r**3)


def softmax_by_hand(x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return np.where(x.max(1, keepdims=True) > -INF, e / e.sum(1, keepdims=True), 0)


def softmax_slope(x: Any) -> Any:
    """Of the first column."""
    p = only(x.max(1, keepdims=True) > -INF, lambda: eq.softmax(x, axis=1))
    return p[:, :1] * (np.array([1.0, 0.0]) - p)


HIDDEN = np.array([[-INF, -INF], [1.0, 2.0], [0.5, -INF]])

ELEMENTS: dict[str, Case] = {
    "a root": (
        lambda x: np.where(x > 0, np.sqrt(x), 0),
        X,
        lambda x: only(x > 0, lambda: 0.5 / np.sqrt(x)),
    ),
    "the other branch": (
        lambda x: np.where(x <= 0, x, np.sqrt(x)),
        X,
        lambda x: np.where(x > 0, only(x > 0, lambda: 0.5 / np.sqrt(x)), 1),
    ),
    "a logarithm": (
        lambda x: np.where(x > 0, np.log(x), 0),
        X,
        lambda x: only(x > 0, lambda: 1 / x),
    ),
    "sin x / x": (
        lambda x: np.where(x != 0, np.sin(x) / x, 1),
        X,
        lambda x: only(x != 0, lambda: (x * np.cos(x) - np.sin(x)) / x**2),
    ),
    "a power by a number": (
        lambda x: np.where(x > 0, x**0.3, 0),
        X,
        lambda x: only(x > 0, lambda: 0.3 * x**-0.7),
    ),
    "a power of itself": (
        lambda x: np.where(x > 0, x**x, 0),
        X,
        lambda x: only(x > 0, lambda: x**x * (np.log(x) + 1)),
    ),
    "x ln x": (
        lambda x: np.where(x > 0, x * np.log(x), 0),
        X,
        lambda x: only(x > 0, lambda: np.log(x) + 1),
    ),
    "a cube root": (
        lambda x: np.where(x != 0, np.cbrt(x), 0),
        X,
        lambda x: only(x != 0, lambda: np.cbrt(x) / x / 3),
    ),
    "an arc sine": (
        lambda x: np.where(np.abs(x) < 1, np.arcsin(x), x),
        X,
        lambda x: np.where(
            np.abs(x) < 1, only(np.abs(x) < 1, lambda: (1 - x * x) ** -0.5), 1
        ),
    ),
    "overflow": (
        lambda x: np.where(x > 20, x, np.log1p(np.exp(x))),
        1000 * X,
        lambda x: np.where(x > 20, 1, eq.sigmoid(x)),
    ),
    "infinite values": (
        lambda x: np.where(np.isfinite(x), x * x * np.exp(-x), 0),
        np.array([-INF, -1.0, 2.0, INF, NAN]),
        lambda x: only(np.isfinite(x), lambda: (2 - x) * x * np.exp(-x)),
    ),
    "a quotient by a number": (
        lambda x: np.where(x > 0, 2 / x, 5.0),
        X,
        lambda x: only(x > 0, lambda: -2 / x**2),
    ),
    "where in where": (
        lambda x: np.where(x > 0, np.where(x > 1, np.log(x - 1), np.sqrt(x)), 0),
        X,
        lambda x: only(x > 0, lambda: np.where(x > 1, 1 / (x - 1), 0.5 / np.sqrt(x))),
    ),
    "one behind the other": (
        lambda x: np.where(x > 1, np.sqrt(np.where(x > 0, np.log(x), 0)), 0),
        X,
        lambda x: only(x > 1, lambda: 0.5 / np.sqrt(np.log(x)) / x),
    ),
    "no branch is chosen": (
        lambda x: np.select([x > 1, x < -1], [1 / x, np.log(-1 / x)], 0),
        X,
        lambda x: only(np.abs(x) > 1, lambda: np.where(x > 1, -1 / x**2, -1 / x)),
    ),
    "select": (
        lambda x: np.select([x < 0, x > 0], [np.sqrt(-x), np.log(x)], 0),
        X,
        lambda x: only(x != 0, lambda: np.where(x < 0, -0.5 / np.sqrt(-x), 1 / x)),
    ),
    "select of many": (
        lambda x: np.select(
            [x > 2, x > 0.5, x > 0.2, x < -1],
            [np.log(1 / x), np.sqrt(1 / x), 1 / x**2, -1 / x],
            0,
        ),
        X,
        lambda x: only(
            x != 0,
            lambda: np.select(
                [x > 2, x > 0.5, x > 0.2, x < -1],
                [-1 / x, -0.5 * x**-1.5, -2 / x**3, 1 / x**2],
                0,
            ),
        ),
    ),
    "maximum": (
        lambda x: np.maximum(np.log(np.abs(x)), -3),
        X,
        lambda x: only(x != 0, lambda: 1 / x),
    ),
    "minimum": (
        lambda x: np.minimum(1 / np.abs(x), 2),
        X,
        lambda x: only(np.abs(x) > 0.5, lambda: -np.sign(x) / x**2),
    ),
    "fmax": (
        lambda x: np.fmax(np.log(x), -1),
        X,
        lambda x: only(x > np.exp(-1), lambda: 1 / x),
    ),
    "clip": (
        lambda x: np.clip(np.log(np.abs(x)), -3, 1),
        X,
        lambda x: only((x != 0) & (x < np.e), lambda: 1 / x),
    ),
    "relu": (
        lambda x: eq.relu(np.log(np.abs(x))),
        X[X != 1],
        lambda x: only(np.abs(x) > 1, lambda: 1 / x),
    ),
    "a write": (
        in_place,
        X,
        lambda x: np.where(x > 0, only(x > 0, lambda: -1 / x**2), 1),
    ),
    "two writes": (
        twice_in_place,
        X,
        lambda x: only(x > 0, lambda: np.where(x > 2, 2, 1) / x),
    ),
    "an added write": (
        added_in_place,
        X,
        lambda x: 2 + only(x > 0, lambda: 0.5 / np.sqrt(x)),
    ),
    "a loop": (running, X, lambda x: only(x > 0, lambda: x ** (1 / 8 - 1) / 8)),
    "a sum": (
        lambda x: np.sum(np.log(x), where=x > 0),
        X,
        lambda x: only(x > 0, lambda: 1 / x),
    ),
    "a mean": (
        lambda x: np.mean(np.sqrt(x), where=x > 0),
        X,
        lambda x: only(x > 0, lambda: 0.5 / np.sqrt(x) / (x > 0).sum()),
    ),
    "a product": (
        lambda x: np.prod(np.sqrt(x), where=x > 0),
        X,
        lambda x: only(x > 0, lambda: 0.5 * np.sqrt(x[x > 0].prod()) / x),
    ),
    "a largest": (
        lambda x: np.max(np.log(np.abs(x))),
        X,
        lambda x: only(x == x.max(), lambda: 1 / x),
    ),
    "a smallest": (
        lambda x: np.min(np.abs(1 / x)),
        X,
        lambda x: only(x == x.max(), lambda: -1 / x**2),
    ),
    "nanmax": (
        lambda x: np.nanmax(np.log(x)),
        X,
        lambda x: only(x == x.max(), lambda: 1 / x),
    ),
    "a running sum": (
        lambda x: np.where(x > 0, np.cumsum(np.where(x > 0, 1 / x, 0)), 0),
        X,
        lambda x: only(x > 0, lambda: -(np.arange(6, 0, -1)) / x**2),
    ),
    "broadcast": (
        lambda x: np.where(x > 0, np.log(x) * np.ones((3, 1)), 0),
        X,
        lambda x: only(x > 0, lambda: 3 / x),
    ),
    "two masks, broadcast": (
        lambda x: np.where(
            np.eye(6, dtype=bool), np.where(x[:, None] > 0, np.log(x), 0), 0
        ),
        X,
        lambda x: only(x > 0, lambda: 1 / x),
    ),
    "of each row": (
        lambda x: np.where((x > 0).any(1), np.sqrt((x * x * x * x).sum(1)), 0),
        ROWS,
        lambda x: only(
            (x > 0).any(1, keepdims=True),
            lambda: 2 * x**3 / np.sqrt((x**4).sum(1, keepdims=True)),
        ),
    ),
    "reshaped": (
        lambda x: np.where((x > 0).reshape(2, 3).T, np.log(x).reshape(2, 3).T, 0),
        X,
        lambda x: only(x > 0, lambda: 1 / x),
    ),
    "indexed": (
        lambda x: np.where(x[1:] > 0, np.log(x * x)[1:], 0)[::2],
        X,
        lambda x: only((x > 0) & (np.arange(6) % 2 == 1), lambda: 2 / x),
    ),
    "taken": (
        lambda x: np.where(x[[5, 3, 2, 5]] > 0, np.log(x * x)[[5, 3, 2, 5]], 0),
        X,
        lambda x: np.array([0, 0, 0, 1, 0, 2]) * only(x > 0, lambda: 2 / x)[:],
    ),
    "joined": (
        lambda x: np.where(
            np.tile(x > 0, 2), np.concatenate([np.log(x), np.sqrt(x)]), 0
        ),
        X,
        lambda x: only(x > 0, lambda: 1 / x + 0.5 / np.sqrt(x)),
    ),
    "sorted": (
        lambda x: np.where((x > 0).all(), np.sort(np.log(x)), 0),
        X,
        np.zeros_like,
    ),
    "softmax of nothing": (
        lambda x: np.where(x.max(1, keepdims=True) > -INF, eq.softmax(x), 0)[:, 0],
        HIDDEN,
        softmax_slope,
    ),
    "softmax by hand": (lambda x: softmax_by_hand(x)[:, 0], HIDDEN, softmax_slope),
    "logsumexp": (
        lambda x: np.where((x > 0).all(1), eq.logsumexp(np.log(x))[:, 0], 0),
        ROWS,
        lambda x: only(
            (x > 0).all(1, keepdims=True), lambda: 0 * x + 1 / x.sum(1, keepdims=True)
        ),
    ),
    "unit vectors": (unit, ROWS, unit_slope),
    "a score": (
        lambda x: np.where(np.std(x) > 0, (x - x.mean()) / np.std(x), 0),
        np.ones(3),
        np.zeros_like,
    ),
    "a scalar's product": (
        lambda x: np.where(x @ x > 0, np.log(1 / x) @ x, 0),
        np.zeros(3),
        np.zeros_like,
    ),
    "integers choose": (
        lambda x: np.where(np.array([0, 0, 0, 2, 1, 3]), np.log(x), 0),
        X,
        lambda x: only(x > 0, lambda: 1 / x),
    ),
    "a float chooses": (
        lambda x: np.where(eq.relu(x), np.log(x), 0),
        X,
        lambda x: only(x > 0, lambda: 1 / x),
    ),
    "a number chooses": (
        lambda x: np.where(0.5, np.where(0, np.log(x), x * x), np.log(x)),
        X,
        lambda x: 2 * x,
    ),
}


def value(f: Function) -> Function:
    return lambda x: f(x).sum()


@pytest.mark.parametrize("name", ELEMENTS)
def test_first_derivatives(name: str) -> None:
    f, x, want = ELEMENTS[name]
    (got,) = gradient(value(f), [x], 0)
    np.testing.assert_allclose(got, want(x), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ELEMENTS)
def test_second_derivatives(name: str) -> None:
    """Against differences of what is wanted of the first, which has jumps where the
    select has, but not between these numbers."""
    f, x, want = ELEMENTS[name]
    way = np.where(
        np.isin(x, [0, 1]), 0, np.random.default_rng(0).uniform(0.5, 1, x.shape)
    )
    first = eq.grad(value(f)).fn
    (got,) = gradient(lambda x: (first(x) * way).sum(), [x], 0)
    step = 1e-6
    with np.errstate(invalid="ignore"):
        slope = (want(x + step * way) - want(x - step * way)) / (2 * step)
    np.testing.assert_allclose(got, slope, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("numerics", ["reassociate", "exact"])
@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", ELEMENTS)
def test_programs_of_backends(name: str, backend: str, numerics: str) -> None:
    f, x, want = ELEMENTS[name]
    how = {"backend": backend, "options": eq.Options(numerics=numerics)}
    both = eq.value_and_grad(value(f), **how)
    with np.errstate(all="ignore"):
        y, g = both(x)
        np.testing.assert_allclose(y, value(f)(x), rtol=1e-12)
    np.testing.assert_allclose(g, want(x), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", ["a root", "a logarithm", "relu", "a write", "a sum"])
def test_narrow_floats(name: str, dtype: str) -> None:
    f, x, want = ELEMENTS[name]
    narrow = x.astype(dtype)
    (got,) = gradient(value(f), [narrow], 0)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want(x), rtol=4 * np.finfo(dtype).eps)


# -- what masks pass through -----------------------------------------------------------

THROUGH: dict[str, Function] = {
    "layer_norm": lambda y: eq.layer_norm(y, y[2], y[2]),
    "rms_norm": lambda y: eq.rms_norm(y, y[2]),
    "softmax": eq.softmax,
    "log_softmax": eq.log_softmax,
    "gelu": eq.gelu,
    "cumsum": lambda y: np.cumsum(y, 1),
    "cumprod": lambda y: np.cumprod(y, 1),
    "sort": lambda y: np.sort(y, 1),
    "median": lambda y: np.median(y, 1, keepdims=True),
    "norm": lambda y: np.linalg.norm(y, axis=1, keepdims=True),
    "prod": lambda y: np.prod(y, 1, keepdims=True),
    "var": lambda y: np.var(y, 1, keepdims=True),
    "transpose": lambda y: y.T[::-1].T,
    "take": lambda y: y[:, [1, 1, 0]].max(1, keepdims=True),
}


@pytest.mark.parametrize("name", THROUGH)
def test_rows_that_are_hidden_stay_so(name: str) -> None:
    f = THROUGH[name]
    x = np.array([[0.0, 1.0], [2.0, 3.0], [1.5, 5.0]])
    shown = (x > 0).all(1, keepdims=True)
    weights = np.array([1.0, 2.0])

    def loss(x: Any, safe: Any) -> Any:
        return (np.where(shown, f(np.log(x + safe)), 0) * weights).sum()

    (got,) = gradient(loss, [x, np.zeros((3, 2))], 0)
    (want,) = gradient(loss, [x, np.where(shown, 0.0, 1.0)], 0)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    np.testing.assert_array_equal(got[0], 0)
    assert got[1:].any()


# -- norms -----------------------------------------------------------------------------

NORMS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "std": (np.std, (3,)),
    "std, ddof": (lambda x: np.std(x, ddof=1), (3,)),
    "std of columns": (lambda x: np.std(x, axis=0).sum(), (3, 2)),
    "std under a mask": (lambda x: np.std(x, where=x > -1), (3,)),
    "std of one": (np.std, (1,)),
    "var of one": (np.var, (1,)),
    "nanstd": (np.nanstd, (3,)),
    "norm": (np.linalg.norm, (3,)),
    "norm of rows": (lambda x: np.linalg.norm(x, axis=1).sum(), (2, 3)),
    "Frobenius": (np.linalg.norm, (3, 2)),
    "nuclear": (lambda x: np.linalg.norm(x, "nuc"), (3, 3)),
    "nuclear, of each": (
        lambda x: np.linalg.norm(x, "nuc", (1, 2)).sum(),
        (2, 4, 3),
    ),
    "largest stretch": (lambda x: np.linalg.norm(x, 2), (2, 3)),
    "least stretch": (lambda x: np.linalg.norm(x, -2), (3, 3)),
    "singular values": (lambda x: np.linalg.svdvals(x).sum(), (3, 2)),
    "1-norm": (lambda x: np.linalg.norm(x, 1), (3,)),
    "3-norm": (lambda x: np.linalg.norm(x, 3), (3,)),
    "∞-norm": (lambda x: np.linalg.norm(x, INF), (3,)),
    "a dot product": (lambda x: np.sqrt(x @ x), (3,)),
    "powers": (lambda x: (x**2).sum() ** 0.5, (3,)),
    "root mean square": (lambda x: np.sqrt((2 * x * (2 * x)).mean()), (3,)),
    "weights": (lambda x: np.sqrt((np.abs(x) ** 2 * 3).sum() / 5), (3,)),
    "cube root": (lambda x: np.cbrt((np.abs(x) ** 3).sum()), (3,)),
    "legs": (lambda x: np.sqrt(x[0] ** 2 + x[1] ** 2), (2,)),
    "not below 0": (lambda x: np.sqrt(np.maximum((x * x).sum(), 0)), (3,)),
    "einsum": (lambda x: np.sqrt(np.einsum("ij,ij->i", x, x)).sum(), (2, 3)),
    "hypot": (lambda x: np.hypot(x, 0 * x).sum(), (3,)),
    "abs": (lambda x: np.abs(x).sum(), (3,)),
}


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", NORMS)
def test_norms_of_nothing_have_slope_0(name: str, backend: str) -> None:
    f, shape = NORMS[name]
    x = np.ones(shape) if name.startswith(("std", "nanstd")) else np.zeros(shape)
    for numerics in some(("reassociate", "exact"), 1):
        g = eq.grad(f, backend=backend, options=eq.Options(numerics=numerics))(x)
        np.testing.assert_array_equal(g, 0)


@pytest.mark.parametrize("name", NORMS)
def test_norms_elsewhere_have_their_slope(name: str) -> None:
    f, shape = NORMS[name]
    if shape == (1,):
        return
    x = np.random.default_rng(1).uniform(0.5, 1, shape)
    (got,) = gradient(f, [x], 0)
    h = 1e-6
    for i in np.ndindex(*shape):
        e = np.zeros(shape)
        e[i] = h
        assert abs((f(x + e) - f(x - e)) / (2 * h) - got[i]) < 1e-8


def test_distances_of_points_to_themselves() -> None:
    x = np.array([[0.0, 0.0], [3.0, 4.0]])
    far = lambda x: np.sqrt(((x[:, None] - x) ** 2).sum(-1)).sum()  # noqa: E731
    (g,) = gradient(far, [x], 0)
    np.testing.assert_allclose(g, [[-1.2, -1.6], [1.2, 1.6]])


def test_what_is_infinite_stays_so() -> None:
    """No select, and no norm: 0 would be wrong."""
    zero = np.zeros(1)
    for f in (np.sqrt, np.cbrt, lambda x: x**0.5, lambda x: np.sqrt(2 * x)):
        (g,) = gradient(value(f), [zero], 0)
        np.testing.assert_array_equal(g, INF)
    (g,) = gradient(lambda x: np.sqrt(np.linalg.norm(x)), [zero], 0)
    assert not np.isfinite(g)
    (g,) = gradient(lambda x: (np.sqrt(x) ** 2).sum(), [zero], 0)
    assert np.isnan(g)  # 1, which 0 · ∞ does not tell
    (g,) = gradient(lambda x: np.where(x >= 0, np.sqrt(x), 0).sum(), [zero], 0)
    assert np.isinf(g)
    (g,) = gradient(lambda w: np.sqrt((w * 2.0**2).sum()), [zero], 0)
    assert np.isinf(g)  # by a weight, not by what is squared


def test_a_nan_that_counts_is_seen() -> None:
    x = np.array([1.0, NAN])
    for f in (np.max, np.min, lambda x: np.where(x != 1, x * x, 0)):
        (g,) = gradient(value(f), [x], 0)
        assert np.isnan(g).any()


def test_sums_of_exponentials_of_infinity() -> None:
    for f in (np.logaddexp, np.logaddexp2):
        x, y = np.array([-INF, INF, -INF, INF, 2.0]), np.array([-INF, INF, 0, 0, 2.0])
        dx, dy = gradient(lambda x, y: f(x, y).sum(), [x, y], 0, 1)  # noqa: B023
        np.testing.assert_array_equal(dx, [0.5, 0.5, 0, 1, 0.5])
        np.testing.assert_array_equal(dy, [0.5, 0.5, 1, 0, 0.5])
    first = eq.grad(lambda x: np.logaddexp(x, 2.0)).fn
    (second,) = gradient(first, [np.array(2.0)], 0)
    np.testing.assert_allclose(second, 0.25)


# -- programs --------------------------------------------------------------------------


def counted(f: Function, *xs: Any) -> dict[str, int]:
    """How often the ops are in the gradient of ``f``."""
    found: dict[str, int] = {}
    for t in postorder(trace(eq.grad(f).fn, xs).outputs):
        assert isinstance(t, Term)
        name = t.op.name if isinstance(t.op, Op) else "leaf"
        found[name] = found.get(name, 0) + 1
    return found


def test_programs_without_selects_have_none() -> None:
    x = np.ones((3, 3))
    for f in (
        lambda x: np.log(x @ x).sum(),
        lambda x: eq.layer_norm(np.tanh(x), x[0], x[1]).var(),
        lambda x: np.sqrt(x[1:] * x[:-1] + 1e-5).sum(),
    ):
        assert not counted(f, x).keys() & {"where", "any", "logical_and"}


def test_layers_choose_once() -> None:
    def layers(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = eq.relu(x @ w + x[0]) * 0.5
        return x.sum()

    found = counted(layers, np.ones((4, 4)), np.ones((4, 4)))
    assert found["where"] == 3
    assert "any" not in found


def test_terms_of_a_loop_grow_with_its_length() -> None:
    def loop(n: int) -> Function:
        def f(x: Any) -> Any:
            h = x
            for _ in range(n):
                h = np.where(h > 0, np.sqrt(h) + x, np.maximum(h * h, x))
            return h.sum()

        return f

    few, more, most = (sum(counted(loop(n), np.ones(3)).values()) for n in (20, 40, 60))
    assert abs((most - more) - (more - few)) <= 0.1 * few


# -- drawn -----------------------------------------------------------------------------

RISKY: list[tuple[Function, Function]] = [
    (np.sqrt, lambda x: x > 0),
    (np.log, lambda x: x > 0),
    (lambda x: 1 / x, lambda x: x != 0),
    (lambda x: np.sin(x) / x, lambda x: x != 0),
    (lambda x: x**1.5, lambda x: x > 0),
    (np.arcsin, lambda x: np.abs(x) < 1),
    (np.arctanh, lambda x: np.abs(x) < 1),
    (lambda x: np.exp(800 * x), lambda x: x < 0.5),
]
STEPS = st.lists(st.integers(0, len(RISKY) - 1), min_size=1, max_size=4)
MOVES: list[Function] = [
    lambda x: x,
    lambda x: x.T,
    lambda x: x.reshape(-1),
    lambda x: x[:, ::-1],
    lambda x: np.concatenate([x, x[:1]]),
    lambda x: x.sum(0, keepdims=True),
    lambda x: np.cumsum(x, 1),
    lambda x: x + x[0],
    lambda x: x[[-1, 0, -1]],
]


@examples(60)
@given(STEPS, st.lists(st.integers(0, len(MOVES) - 1), max_size=3), st.integers(0, 999))
def test_a_select_is_as_good_as_two(steps: Any, moves: Any, seed: int) -> None:
    """Where the argument is made harmless before each function, JAX's remedy, the
    derivatives are the same: chains of functions, moved in between."""
    x = np.random.default_rng(seed).choice(X, (2, 3))

    def chain(x: Any, twice: bool) -> Any:
        for i, k in enumerate(steps):
            f, defined = RISKY[k]
            c = defined(x)
            x = np.where(c, f(np.where(c, x, 0.25) if twice else x), 0.5)
            if i < len(moves) and x.ndim == 2:
                x = MOVES[moves[i]](x)
        return x.sum()

    (got,) = gradient(lambda x: chain(x, False), [x], 0)
    (want,) = gradient(lambda x: chain(x, True), [x], 0)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-300)


@examples(40)
@given(STEPS, st.integers(0, len(MOVES) - 1), st.integers(0, 999))
def test_one_select_of_a_whole_chain(steps: Any, move: int, seed: int) -> None:
    """One select at the end, which hides what any step made infinite or NaN."""
    x = np.random.default_rng(seed).choice(X, (2, 3))

    def chain(x: Any, safe: bool) -> Any:
        y, ok = x, x == x
        for k in steps:
            f, defined = RISKY[k]
            ok = ok & defined(y)
            y = f(np.where(ok, y, 0.25) if safe else y)
        y, hidden = MOVES[move](y), MOVES[move](1.0 - ok)
        return np.where(hidden == 0, y, 0).sum()

    (got,) = gradient(lambda x: chain(x, False), [x], 0)
    (want,) = gradient(lambda x: chain(x, True), [x], 0)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-300)
