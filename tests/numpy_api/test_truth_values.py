"""Truth values: what is not 0 is true, whatever its type, wherever a function asks."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from sizes import some

import eqsat as eq
from eqsat.support.errors import DTypeError

Function = Callable[..., Any]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
NUMBERS = [
    *(True, False, 2, -4, 0, 0.5, -0.0, np.nan, np.inf, 1e-320, 256, 1 << 40),
    *(np.float16(6e-8), np.float32(0.5), np.int8(-2), np.uint8(0), np.bool_(True)),
]
"""Half of them have a low bit, or a truncated value, that says otherwise."""
ARRAYS = [
    np.array([[0.5, -0.0, np.nan], [2, 0, 1e-320]]),
    np.array([[0.25, 0, 6e-8], [-0.0, np.inf, 4]], "f2"),
    np.array([[2, 0, -4], [256, 1, 0]], "i4"),
    np.array([[2, 0, 128], [1, 254, 0]], "u1"),
    np.array([[1 << 40, 0, -(1 << 63)], [1, 2, 0]]),
    np.array([[True, False, True], [False, False, True]]),
    np.array([0.0, 0.5, np.nan], "f4"),
]
X = np.array([[1.5, -2, 3], [0.25, 5, -6]])
FLAGS = np.array([[True, False, True], [True, True, False]])
MANY: list[Any] = [[True, False, True], [0.5, 0, 2], FLAGS, FLAGS[:1]]
ASKED: dict[str, Function] = {
    "where": lambda t: np.where(t, X, 7),
    "where of numbers": lambda t: np.where(t, 1.5, 7.0),
    "where of bools": lambda t: np.where(t, FLAGS, False),
    "and": lambda t: np.logical_and(FLAGS, t),
    "or": lambda t: np.logical_or(t, FLAGS),
    "xor": lambda t: np.logical_xor(FLAGS, t),
    "and of floats": lambda t: np.logical_and(X, t),
    "not": np.logical_not,
    "any": np.any,
    "all": lambda t: np.all(t),
    "method": lambda t: (t if isinstance(t, Traced) else np.asarray(t)).any(),
    "count": np.count_nonzero,
    "astype": lambda t: (t if isinstance(t, Traced) else np.asarray(t)).astype(bool),
    "nested": lambda t: np.where(np.logical_or(t, 0.0), np.logical_not(t), 3),
}
"""What takes truth values of any type."""
CHOOSING: dict[str, Function] = {
    "sum": lambda x, t: np.sum(x, where=t),
    "sum of rows": lambda x, t: x.sum(-1, where=t, initial=2),
    "prod": lambda x, t: np.prod(x, where=t),
    "mean": lambda x, t: np.mean(x, where=t),
    "var": lambda x, t: np.var(x, where=t),
    "var ddof": lambda x, t: np.var(x, 0, where=t, ddof=1),
    "std": lambda x, t: x.std(where=t),
    "max": lambda x, t: np.max(x, where=t, initial=-1.0),
    "min": lambda x, t: np.min(x, where=t, initial=4.0),
    "any": lambda x, t: np.any(x > 4, where=t),
    "all": lambda x, t: np.all(x > 4, where=t),
    "all of floats": lambda x, t: np.all(x - x, 0, where=t),
    "reduce": lambda x, t: np.add.reduce(x, where=t),
    "logical reduce": lambda x, t: np.logical_and.reduce(x, where=t),
    "nansum": lambda x, t: np.nansum(x, where=t),
    "nanmean": lambda x, t: np.nanmean(x, where=t),
    "nanvar": lambda x, t: np.nanvar(x, where=t),
    "mean of integers": lambda x, t: np.mean(x.astype(int), where=t),
    "nanmean of integers": lambda x, t: np.nanmean(x.astype(int), where=t),
    "ufunc": lambda x, t: np.add(x, 1, out=np.zeros_like(x), where=t),
    "copyto": lambda x, t: copied(x, t),
}
"""What takes ``where=``."""
BACKENDS = [("numpy", "reassociate"), ("native", "exact"), ("native", "reassociate")]
Traced = eq.trace.Tracer


def copied(x: Any, where: Any) -> Any:
    y = np.zeros_like(x)
    np.copyto(y, x, where=where)
    return y


def agrees(found: Any, expected: Any, *said: Any) -> None:
    assert found.dtype == np.asarray(expected).dtype, said
    np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=str(said))


def jitted(f: Function, backend: str, numerics: Any = "reassociate") -> Function:
    found: Function = eq.jit(f, backend, options=eq.Options(numerics=numerics))
    return found


@pytest.mark.parametrize(("backend", "numerics"), BACKENDS)
@pytest.mark.parametrize("name", ASKED)
def test_arrays_are_truth_values(name: str, backend: str, numerics: str) -> None:
    f = ASKED[name]
    for t in [*some(ARRAYS, 2), *(np.asarray(n) for n in some(NUMBERS, 2))]:
        agrees(jitted(f, backend, numerics)(t), f(t), t)


@pytest.mark.parametrize(("backend", "numerics"), BACKENDS)
@pytest.mark.parametrize("name", ["where", "and", "or", "xor", "and of floats"])
def test_numbers_beside_arrays_are_truth_values(
    name: str, backend: str, numerics: str
) -> None:
    ufunc = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
    for t in NUMBERS:

        def f(x: Any, t: Any = t) -> Any:
            if name == "where":
                return np.where(t, x, 7)
            return ufunc[name[:3].strip()](t, x if "floats" in name else x > 1)

        agrees(jitted(f, backend, numerics)(X), f(X), t)


@pytest.mark.parametrize(("backend", "numerics"), BACKENDS)
@pytest.mark.parametrize("name", CHOOSING)
def test_where_takes_numbers(name: str, backend: str, numerics: str) -> None:
    f = CHOOSING[name]
    for t in [*some(NUMBERS, 3), *some(MANY, 1)]:
        agrees(jitted(lambda x, t=t: f(x, t), backend, numerics)(X), f(X, t), t)


@pytest.mark.parametrize("name", CHOOSING)
def test_where_takes_no_arrays_but_bools(name: str) -> None:
    f = CHOOSING[name]
    for t in (*ARRAYS[:5], np.array(0.5)):
        with pytest.raises(TypeError, match="safe"):
            f(X, t)
        with pytest.raises(DTypeError, match="expected bool"):
            eq.jit(lambda x, t=t: f(x, t), "numpy")(X)
        if t.ndim:
            with pytest.raises(DTypeError, match="expected bool"):
                eq.jit(f, "numpy")(X, t)


@pytest.mark.parametrize("name", CHOOSING)
@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_where_takes_traced_bools(name: str, backend: str) -> None:
    agrees(jitted(CHOOSING[name], backend)(X, FLAGS), CHOOSING[name](X, FLAGS), name)


def test_a_half_is_true_on_mlx() -> None:
    if find_spec("mlx") is None:
        pytest.skip("MLX is not installed")
    x = X.astype("f4")

    def f(x: Any) -> Any:
        return np.logical_and(x > 1, 2), np.where(0.5, x, 7), np.sum(x, where=-4)

    for found, expected in zip(eq.jit(f, "mlx")(x), f(x), strict=True):
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)
