"""``dtype=`` of reductions and joins, and what is written to integers: NumPy's numbers,
NumPy's dtypes, and an error wherever NumPy has one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sizes import some

import eqsat as eq
from eqsat.support.errors import DTypeError

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
EXACT = eq.Options(numerics="exact")
GIVEN = ["?", "i1", "u1", "i4", "u8", "f4", "f8"]
ASKED = [None, "?", "i1", "u1", "i4", "i8", "f4", "f8"]
MASK = np.array([True, False, True, True])
REDUCED = {
    name: eval(f"lambda x, d: {text}", {"np": np, "MASK": MASK})
    for name, text in {
        **{n: f"np.{n}(x, dtype=d)" for n in "sum prod mean var std trace".split()},
        **{f"{n} of rows": f"np.{n}(x, -1, dtype=d)" for n in ("mean", "var", "std")},
        **{f"x.{n}": f"x.{n}(dtype=d)" for n in ("sum", "mean", "std", "cumsum")},
        **{n: f"np.{n}(x, dtype=d)" for n in "nansum nanmean nanvar nanstd".split()},
        "cumprod": "np.cumprod(x, 0, dtype=d)",
        "nancumsum": "np.nancumsum(x, 0, dtype=d)",
        "cumulative_sum": "np.cumulative_sum(x, axis=0, dtype=d)",
        "kept": "np.mean(x, dtype=d, keepdims=True)",
        "std kept": "np.std(x, dtype=d, keepdims=True)",
        "ddof": "np.var(x, 0, dtype=d, ddof=1)",
        "chosen": "np.mean(x, 0, dtype=d, where=MASK)",
        "var chosen": "np.var(x, 1, dtype=d, where=MASK)",
        "var of a mean": "np.var(x, 0, dtype=d, mean=np.mean(x, 0, keepdims=True))",
        "begun": "np.sum(x, dtype=d, initial=2)",
        "add": "np.add.reduce(x, dtype=d)",
        "multiply": "np.multiply.reduce(x, dtype=d, where=MASK)",
        "maximum": "np.maximum.reduce(x, dtype=d)",
        "logical_or": "np.logical_or.reduce(x, dtype=d)",
        "running": "np.add.accumulate(x, dtype=d)",
        "running max": "np.maximum.accumulate(x, dtype=d)",
        "joined": "np.concatenate([x, x[:1]], dtype=d)",
        "joined anyhow": "np.concatenate([x, x], dtype=d, casting='unsafe')",
        "stacked": "np.stack([x, x], dtype=d)",
        "covariance": "np.cov(x, dtype=d)",
        "full": "np.full_like(x, 1, dtype=d)",
        "ufunc": "np.add(x, x, dtype=d)",
        "chosen of": "np.select([x > 1, x > 2], [x, x.astype(d or 'f8')], 0)",
        "chosen number": "np.select([x > 1, x > 2], [x, 2.5], 0)",
    }.items()
}


def drawn(dtype: str) -> Any:
    x = np.random.default_rng(3).uniform(0, 6, (3, 4))
    return x.astype(dtype)


def outcome(f: Callable[..., Any], *args: Any) -> Any:
    """What ``f`` gives; None where it refuses."""
    try:
        return f(*args)
    except (TypeError, ValueError, OverflowError):
        return None


def agrees(found: Any, expected: Any, *said: Any) -> None:
    assert (found is None) == (expected is None), said
    if expected is not None:
        assert found.dtype == expected.dtype, said
        np.testing.assert_allclose(found, expected, rtol=2e-6, err_msg=str(said))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", REDUCED)
def test_a_dtype_that_is_asked_for(name: str) -> None:
    f = REDUCED[name]
    pairs = list(itertools.product(GIVEN, ASKED))
    for own, d in some(pairs, len(pairs) // 6):
        x = drawn(own)
        g = eq.jit(lambda x, d=d: f(x, d), "numpy", options=EXACT)
        agrees(outcome(g, x), outcome(f, x, d), own, d)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("own", GIVEN)
def test_a_dtype_that_is_asked_for_of_machine_code(own: str) -> None:
    x = drawn(own)
    for d in some(ASKED, len(ASKED) // 3):
        expected = {n: outcome(f, x, d) for n, f in REDUCED.items()}
        names = [n for n, y in expected.items() if y is not None]
        g = eq.jit(lambda x, d=d, names=names: [REDUCED[n](x, d) for n in names])
        for n, y in zip(names, g(x), strict=True):
            agrees(y, expected[n], n, d)


# -- writes ----------------------------------------------------------------------------

NUMBERS = [
    *(2, -1, 300, 1 << 40, 1.5, -1.5, 300.5, np.nan, np.inf, True),
    *([2, 3, 1], [300, 1, 1], [0.5, 1.5, 2.5]),
    *(np.float32(1.5), np.int64(-2), np.array(1.5), np.array([1, 2, 3])),
    *(np.array([1.5, 2.5, -0.5]), np.array([True, False, True])),
]
HELD = ["?", "i1", "u1", "i4", "u8", "f4", "f8"]


def written(text: str) -> Callable[..., Any]:
    """The array ``y`` once the statement is done with ``v`` and the places ``i``."""
    names: dict[str, Any] = {"np": np, "i": np.array([0, 2])}
    exec(f"def f(x, v):\n    y = x.copy()\n    {text}\n    return y", names)
    f: Callable[..., Any] = names["f"]
    return f


WRITES = """
y[...] = v; y[1] = v; y[i] = v; y[x > 1] = v; y.fill(v); np.copyto(y, v)
np.copyto(y, v, casting='unsafe'); y += v; y -= v; y *= v; y /= v; y **= v; y //= v
y &= v; y <<= v; np.add(x, v, out=y); np.multiply(x, v, out=y, casting='unsafe')
np.divide(x, v, out=y); np.less(x, v, out=y); np.fill_diagonal(y, v)
""".replace("\n", ";").split(";")  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", [t.strip() for t in WRITES if t.strip()])
def test_what_is_written_to_arrays(text: str) -> None:
    f = written(text)
    pairs = list(itertools.product(HELD, NUMBERS))
    for own, v in some(pairs, len(pairs) // 3):
        x = np.arange(9).reshape(3, 3).astype(own)
        if np.ndim(v) and ("fill" in text or "> 1" in text):
            continue
        if text.endswith("casting='unsafe')") and not np.all(np.isfinite(v)):
            continue  # what casts make of these is not said
        found = outcome(eq.jit(lambda x, v=v: f(x, v), "numpy", options=EXACT), x)
        agrees(found, outcome(f, x, v), own, v)


@pytest.mark.parametrize("ufunc", [np.add, np.subtract])
@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_floats_are_not_added_at_places_of_integers(
    ufunc: np.ufunc, backend: str
) -> None:
    """NumPy cuts each sum to an integer, so that their order counts."""
    at = np.array([0, 2, 0])

    def f(x: Any, v: Any) -> Any:
        y = x.copy()
        ufunc.at(y, at, v)
        return y

    for own, v in (("i8", -1.5), ("i4", np.array([0.5, 1, 2])), ("?", 2)):
        x = np.full(4, 3, own)
        with pytest.raises(DTypeError, match="each step would cut"):
            eq.jit(lambda x, v=v: f(x, v), backend)(x)
        with pytest.raises(DTypeError, match="each step would cut"):
            eq.jit(f, backend)(x, np.asarray(v))
    for own, v in (("i1", 300), ("u1", np.array([2, 1, 0])), ("u8", 1), ("i4", True)):
        x = np.full(4, 3, own)
        agrees(eq.jit(lambda x, v=v: f(x, v), backend)(x), f(x, v), own, v)
        agrees(eq.jit(f, backend)(x, np.asarray(v)), f(x, v), own, v)
    x = np.full(4, 3, "f4")
    agrees(eq.jit(lambda x: f(x, -1.5), backend)(x), f(x, -1.5))


@pytest.mark.parametrize("numerics", ["exact", "reassociate"])
@pytest.mark.parametrize("backend", ["numpy", "native", "mlx"])
def test_a_half_that_is_widened_again_is_rounded(backend: str, numerics: Any) -> None:
    if backend == "mlx":
        pytest.importorskip("mlx.core")
    x = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)

    def f(x: Any) -> Any:
        half = x.astype(np.float16)
        wide = half.astype(np.float32)
        return wide, half.sum(-1, dtype=np.float32), wide * 2 - x, half * half + wide

    found = eq.jit(f, backend, options=eq.Options(numerics=numerics))(x)
    for y, want in zip(found, f(x), strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "value"), [("u1", -1), ("i1", 300), ("i8", 2**64 - 1), ("?", -1)]
)
def test_where_cuts_what_numpy_cuts(dtype: str, value: int) -> None:
    x = np.array([1, 0, 1]).astype(dtype)
    for f in (lambda b, x: np.where(b, x, value), lambda b, x: np.where(b, value, x)):
        try:
            expected = f(x > 0, x)
        except OverflowError:  # from NumPy 2.5 on
            with pytest.raises(OverflowError, match=r"np\.where"):
                eq.jit(f)(x > 0, x)
            continue
        found = eq.jit(f)(x > 0, x)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
