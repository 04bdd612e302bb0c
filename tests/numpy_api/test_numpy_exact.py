"""With ``numerics="exact"`` a jitted function gives bit for bit what NumPy gives.

Not so where this library promises more than NumPy does: float16 and bfloat16 are summed
in float32. Nor where NumPy leaves the order of a sum open: einsum, and arrays that do
not lie in C order. Nor the sign of a zero that is one of two equal bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import eqsat as eq
from eqsat.support.errors import DTypeError

EXACT = eq.Options(numerics="exact")
DTYPES = [np.dtype(c) for c in "efBl?"]

EXPRESSIONS = """
x<300; x>-1; 300>x; x==300; x!=-300; np.less_equal(x, 70000); x>=2**80; x+1; x*2; x//2;
x**2; x**3; x/3; -x*3; 1-x; divmod(x, 3); divmod(7, x); np.modf(x); np.clip(x, 1, 1000);
np.clip(x, -4, 3); x.clip(-4, 1000); np.isclose(x, x+1, atol=2); np.isclose(x, 5);
np.isclose(4, x, rtol=.3); np.isclose(x, x); np.degrees(x); np.deg2rad(x);
np.float_power(x, 1.5); np.logaddexp2(x, 1); np.heaviside(x, 1); np.gcd(x, 4);
np.lcm(x, x); np.bitwise_count(x); np.signbit(x); np.nextafter(x, 0);
np.equal(x, x, dtype=bool); np.logical_and(x, x, dtype=bool); np.exp(x, dtype="f8");
np.add(x, x, dtype="f4"); np.add(x, x, dtype="f4", casting="no"); +x; x.max(-1);
np.add(x, 1, dtype="i4"); np.add(x, 1, casting="safe"); np.sqrt(x, dtype="f4");
np.einsum(x, [0, 1], [1, 0]); np.einsum(x, [0, ...])
"""
FLOATS = """
x.var(ddof=1); np.var(x, 0, ddof=.5); x.std(ddof=15); x.var(ddof=20); x.sum(0);
np.exp(x)/np.exp(x).sum(-1, keepdims=True); (x-x.mean())/x.std(); np.tanh(x)*x+1
"""


def written(text: str) -> list[str]:
    return [e.strip() for e in text.split(";")]


def drawn(dtype: np.dtype[Any]) -> Any:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(3, 5)) * 4
    if dtype.kind == "f":
        odd = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-310], size=x.shape)
        return np.where(rng.random(x.shape) < 0.3, odd, x).astype(dtype)
    return (np.abs(x) if dtype.kind in "u?" else x).astype(dtype)


def result(f: Callable[[Any], Any], x: Any) -> list[tuple[Any, ...]] | str:
    """Types and bytes of what ``f`` gives, or that it refuses."""
    with np.errstate(all="ignore"):
        try:
            found = f(x)
        except (TypeError, ValueError, OverflowError):
            return "refused"
    arrays = map(np.asarray, found if isinstance(found, tuple) else (found,))
    # NumPy says nothing of the sign of NaN.
    return [
        (a.dtype, a.shape, np.where(np.isnan(a), np.nan, a).astype(a.dtype).tobytes())
        for a in arrays
    ]


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("text", [*written(EXPRESSIONS), *written(FLOATS)])
def test_bit_for_bit(text: str) -> None:
    f = eval(f"lambda x: {text}", {"np": np})
    dtypes = [np.dtype("f4"), np.dtype("f8")] if text in FLOATS else DTYPES
    for dtype in dtypes:
        x = drawn(dtype)
        assert result(eq.jit(f, "numpy", options=EXACT), x) == result(f, x), dtype


SHARES: list[Any] = [
    *(0.3, 0.123, 0.77, [0.3, 0.5], [[0.1], [0.94]], np.float64(0.37)),
    *(np.float32(0.37), np.float16(0.4), np.array(0.61)),
    np.array([0.1, 0.7], np.float32),
]


@pytest.mark.parametrize("code", "efdlB")
@pytest.mark.parametrize("name", ["quantile", "percentile", "nanquantile"])
def test_quantiles_are_taken_in_the_dtypes_of_numpy(name: str, code: str) -> None:
    x = (np.random.default_rng(1).standard_normal((20, 7)) * 40 + 90).astype(code)
    if name.startswith("nan") and code in "efd":
        x[::4, ::2] = np.nan
    methods = ["linear"] if name.startswith("nan") else ["linear", "midpoint"]
    for share in SHARES:
        if name.startswith("nan") and np.ndim(share) > 1:
            continue
        q = share * 100 if isinstance(share, float) and name == "percentile" else share
        for method in methods:

            def f(x: Any, q: Any = q, method: str = method) -> Any:
                return getattr(np, name)(x, q, axis=0, method=method)

            assert result(eq.jit(f, options=EXACT), x) == result(f, x), (q, method)


def test_a_narrowing_astype_is_refused_where_casting_forbids_it() -> None:
    f = eq.jit(lambda x: x.astype("i1", casting="safe"))
    with pytest.raises(DTypeError, match="int64 to int8 is not casting='safe'"):
        f(np.arange(3))
    assert f(np.zeros(3, bool)).dtype == np.int8


@pytest.mark.parametrize("number", [2j, np.complex64(1)])
def test_complex_numbers_meet_real_ones(number: Any) -> None:
    for x in (np.ones(3), np.ones(3, np.float32), np.ones(3, np.int8)):
        f = eq.jit(lambda x: x * number)
        assert result(f, x) == result(lambda x: x * number, x)


def test_nan_to_num_of_bfloat16_is_finite() -> None:
    """NumPy itself leaves ∞, whose finfo does not know the dtype."""
    x = np.array([np.inf, -np.inf, np.nan], ml_dtypes.bfloat16)
    assert np.isfinite(eq.jit(np.nan_to_num)(x).astype(float)).all()


HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("shape", [(130,), (1, 7), (7, 300), (130, 9), (3, 4, 50)])
@pytest.mark.parametrize("dtype", [*HALVES, np.dtype("f4"), np.dtype("f8")], ids=str)
def test_running_results_are_made_one_from_the_other(
    dtype: Any, shape: tuple[int, ...], backend: str
) -> None:
    """In NumPy's order; of halves in float32, each rounded once."""
    rng = np.random.default_rng(len(shape))
    x = rng.standard_normal(shape).astype(dtype)
    wide = np.dtype("f4") if dtype in HALVES else dtype
    for of in (x, x.T, x[..., ::-1]):
        for ufunc in (np.add, np.multiply):
            for axis in range(x.ndim):

                def running(x: Any, ufunc: Any = ufunc, axis: int = axis) -> Any:
                    return ufunc.accumulate(x, axis)

                got = eq.jit(running, backend=backend, options=EXACT)(of)
                want = ufunc.accumulate(of.astype(wide), axis).astype(dtype)
                assert got.dtype == dtype
                assert got.tobytes() == np.ascontiguousarray(want).tobytes()


@pytest.mark.parametrize("numerics", ["exact", "reassociate"])
def test_numbers_of_a_half_are_those_of_a_half(numerics: str) -> None:
    """Also beside other operations, which are computed in float32."""
    x = np.array([1, 0, -1, 65504], np.float16)
    options = eq.Options(numerics=numerics)
    for f in (
        lambda x: np.nextafter(x, x[::-1]),
        lambda x: np.nextafter(x, np.float16(9)) > x,
        lambda x: np.nextafter(x, np.float16(np.inf)) - x,
        lambda x: np.sinc(x * 0),
    ):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(eq.jit(f, options=options)(x), f(x))
