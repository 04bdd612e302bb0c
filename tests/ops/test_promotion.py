"""Dtypes of results are those of NumPy and SciPy, for every pair of dtypes, kinds of
number and functions of several arguments."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.special
from agreement import traced
from hypothesis import example, given
from hypothesis import strategies as st
from sizes import some

import eqsat as eq
from eqsat.numpy_api.special import SCIPY
from eqsat.numpy_api.ufuncs import supported_ufuncs
from eqsat.support.errors import EqsatError

DTYPES = "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8".split()
ARRAYS = [np.ones(shape, d) for d in DTYPES for shape in [(2,), ()]]
NUMBERS: list[Any] = [*(np.ones((), d)[()] for d in DTYPES), True, 1, 0.5]
UFUNCS = {f"sp.{n}": getattr(scipy.special, n) for n in SCIPY} | {
    n: getattr(np, n.removeprefix("np.")) for n in supported_ufuncs()
}
REFUSED = "refused"


def described(x: Any) -> str:
    return f"{x.dtype}{x.shape}" if isinstance(x, np.ndarray) else f"{x!r}"


def dtypes_of(f: Callable[..., Any], values: Sequence[Any]) -> Any:
    """The dtype of a result, or of several; that NumPy or we refuse the arguments."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = f(*values)
    except (EqsatError, TypeError, ValueError, np.linalg.LinAlgError):
        return REFUSED
    many = found if isinstance(found, tuple) else (found,)
    return tuple(np.dtype(getattr(x, "dtype", type(x))).name for x in many)


def compare(f: Callable[..., Any], choices: Iterator[Sequence[Any]]) -> None:
    """``f`` traced over the arrays of each choice has the dtypes that it has of it."""
    wrong = []
    for values in choices:
        stand_ins = iter(traced(*(v for v in values if isinstance(v, np.ndarray))))
        given = [next(stand_ins) if isinstance(v, np.ndarray) else v for v in values]
        got, want = dtypes_of(f, given), dtypes_of(f, values)
        if got != want:
            wrong.append(f"{', '.join(map(described, values))}: {got}, NumPy {want}")
    assert not wrong, "\n".join(wrong[:20])


def pairs() -> Iterator[tuple[Any, Any]]:
    """Two arguments, one of them at least an array."""
    vectors, points = ARRAYS[::2], ARRAYS[1::2]
    for x in vectors:
        yield from ((x, y) for y in [*ARRAYS, *NUMBERS])
        yield from ((y, x) for y in [*points, *NUMBERS])
    for x in points:
        yield from ((x, y) for y in (True, 1, 0.5))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "name",
    [
        n
        for n, f in UFUNCS.items()
        if isinstance(f, np.ufunc) and f.signature is None and f.nin < 3
    ],
)
def test_a_ufunc_has_the_dtype_of_its_loop(name: str) -> None:
    f = UFUNCS[name]
    if name == "np.ldexp":  # takes only exponents that are known while tracing
        compare(lambda x: np.ldexp(x, 1), ((x,) for x in ARRAYS))
        return
    compare(f, ((x,) for x in ARRAYS) if f.nin == 1 else pairs())


MASK = np.array([True, False])
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "x + y": lambda x, y: x + y,
    "x / y": lambda x, y: x / y,
    "x // y": lambda x, y: x // y,
    "x % y": lambda x, y: x % y,
    "x ** y": lambda x, y: x**y,
    "x < y": lambda x, y: x < y,
    "x == y": lambda x, y: x == y,
    "where": lambda x, y: np.where(MASK, x, y),
    "clip": lambda x, y: np.clip(x, y, None),
    "clip both": lambda x, y: np.clip(x, y, y),
    "dot": np.dot,
    "inner": np.inner,
    "outer": np.outer,
    "kron": np.kron,
    "tensordot": lambda x, y: np.tensordot(x, y, 0),
    "einsum": lambda x, y: np.einsum("...,...->...", x, y),
    "isclose": np.isclose,
    "isin": np.isin,
    "stack": lambda x, y: np.stack(np.broadcast_arrays(x, y)),
    "concatenate": lambda x, y: np.concatenate([np.atleast_1d(x), np.atleast_1d(y)]),
    "append": np.append,
    "average": lambda x, y: np.average(x, weights=y),
    "interp": lambda x, y: np.interp(x, np.arange(2), np.broadcast_to(y, 2)),
    "polyval": lambda x, y: np.polyval(np.broadcast_to(x, 2), y),
    "convolve": np.convolve,
    "searchsorted": np.searchsorted,
    "trapezoid": lambda x, y: np.trapezoid(np.broadcast_to(x, 2), dx=y),
    "trapezoid over": lambda x, y: np.trapezoid(np.broadcast_to(x, 2), y),
    "diff": lambda x, y: np.diff(x, prepend=y),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_two_arrays_has_numpys_dtype(name: str) -> None:
    every = [*pairs()]
    compare(FUNCTIONS[name], iter(some(every, len(every) // 6)))


INITIAL: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda x, y: np.sum(x, initial=y),
    "max": lambda x, y: np.max(x, initial=y),
    "nan_to_num": lambda x, y: np.nan_to_num(x, nan=y),
}


@pytest.mark.parametrize("name", INITIAL)
def test_a_number_put_in_takes_the_dtype_of_the_array(name: str) -> None:
    vectors, numbers = ARRAYS[::2], [x for x in ARRAYS if not x.ndim]
    compare(INITIAL[name], ((x, y) for x in vectors for y in [*numbers, *NUMBERS]))


SQUARES = [np.eye(2).astype(d) for d in DTYPES]
LINALG: dict[str, Callable[..., Any]] = {
    name: getattr(np.linalg, name)
    for name in (
        "det slogdet inv cholesky eigh eigvalsh svd svdvals qr cond pinv matrix_rank "
        "norm trace"
    ).split()
}
PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "solve": np.linalg.solve,
    "lstsq": lambda a, b: tuple(np.linalg.lstsq(a, b)),
    "tensorsolve": lambda a, b: np.linalg.tensorsolve(a, b[0]),
    "matmul": np.matmul,
    "vecdot": np.linalg.vecdot,
    "multi_dot": lambda a, b: np.linalg.multi_dot([a, b, a]),
}


@pytest.mark.parametrize("name", [*LINALG, *PRODUCTS])
def test_linear_algebra_has_numpys_dtypes(name: str) -> None:
    if name in LINALG:
        f = LINALG[name]
        compare(lambda a: tuple(r) if isinstance(r := f(a), tuple) else r, (
            (a,) for a in SQUARES
        ))  # fmt: skip
    else:
        compare(PRODUCTS[name], ((a, b) for a in SQUARES for b in SQUARES))


edges = st.sampled_from([0, 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1])


@pytest.mark.parametrize("backend", ["numpy", "native"])
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | edges, min_size=1, max_size=4),
    st.lists(st.integers(0, 2**64 - 1) | edges, min_size=1, max_size=4),
    st.sampled_from(["i1", "i4", "i8"]),
)
@example([2**63 - 1, -1, -(2**63)], [2**63 - 1, 2**63, 2**64 - 1], "i8")
def test_integers_of_both_signs_compare_exactly(
    backend: str, signed: list[int], unsigned: list[int], dtype: str
) -> None:
    """As float64 they meet 2⁵³ and 2⁵³ + 1 as equal."""

    def f(x: Any, y: Any) -> Any:
        return x < y, x <= y, x > y, x >= y, x == y, x != y, y < x, y >= x, y == x

    x = np.array(signed).astype(dtype)[:, None]
    y = np.array(unsigned, "u8")
    for got, want in zip(eq.jit(f, backend=backend)(x, y), f(x, y), strict=True):
        assert got.dtype == bool
        np.testing.assert_array_equal(got, want)


def test_arrays_broadcast_together_show_their_own_memory() -> None:
    def f(x: Any) -> Any:
        a, b = x + 0.0, x * 2.0
        shown = np.broadcast_arrays(a, b, np.float32(1))
        b[0] = 7.0
        return shown

    x = np.array([1.0, 2.0])
    got = eq.jit(f)(x)
    for g, want in zip(got, f(x), strict=True):
        np.testing.assert_array_equal(g, want)
