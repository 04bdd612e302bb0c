"""What few programs use: as in NumPy, or an error with line and remedy."""

from __future__ import annotations

import textwrap
import warnings
from typing import Any

import numpy as np
import pytest

import eqsat as eq

RNG = np.random.default_rng(0)
SMALL = [0.0, -0.0, 1.0, -1.5, 6e4, 6e-5, 6e-8, np.inf, -np.inf, np.nan, 0.1, 3e-6]
LARGE = [*SMALL[:4], 1e300, 1e-310, 5e-324, *SMALL[7:11], 2e-308]
ARRAYS = {
    "x": RNG.standard_normal((3, 4)),
    "i": RNG.integers(0, 3, (3, 4)),
    "v": np.arange(5.0),
    "n": np.array([1, 0, 3, 1]),
    "e": np.array(LARGE),
    "s": np.array(SMALL, np.float16),
}

WORKS = """
np.choose(i, [x, x + 1, x * 2])
np.choose(i, [x, 0, [1, 2, 3, 4]])
np.choose(i + 1, [x, x + 1, x * 2], mode="clip")
np.choose(i - 5, [x, x + 1, x * 2], mode="wrap")
i.choose([x, -x, 7])
y = x.copy(); np.putmask(y, y > 0, -y); return y
y = x.copy(); np.putmask(y, y > 0, [1, 2, 3.0]); return y
o = np.zeros((3, 4)); np.putmask(o, x > 0, x); return o
y = x.copy(); np.put(y, [0, 5, -1], [9, 8]); return y
y = x.copy(); y.put(n, [9, 8]); return y
y = x.copy(); np.put(y, [0, 99], 1, mode="clip"); return y
y = x.copy(); np.place(y, y > 0, 3); return y
y = x.copy(); np.copyto(y, -x, where=x > 0); return y
o = np.empty(4); np.copyto(o, n); return o
np.copyto(x, 1.0, where=i == 1); return x
y = v.copy(); np.maximum.at(y, [0, 0, 1], 2.0); return y
y = v.copy(); np.minimum.at(y, [4, 4, 1], [2.0, 1.0, 7.0]); return y
y = v.copy(); np.multiply.at(y, [0, 2, 2], [2.0, 3.0, 5.0]); return y
y = v.copy(); np.add.at(y, n, 2.0); return y
y = v.copy(); np.subtract.at(y, n, v[:4]); return y
y = v.copy(); np.divide.at(y, [1, 1, 3], 2.0); return y
y = x.copy(); np.maximum.at(y, ([0, 1, 1], [0, 1, 1]), 0.5); return y
np.ldexp(x, 3)
np.ldexp(e, 1000)
np.ldexp(e, -1074)
np.ldexp(e, [3, -3, 0, 1, 9, 60, 1023, 1, 1, 1, -1070, -30])
np.ldexp(s, 7)
np.ldexp(s, -24)
np.ldexp(n, 2)
np.ldexp(x.astype(np.float32), np.int8(-5))
np.vander(v)
np.vander(v, 3)
np.vander(v, 3, increasing=True)
np.vander(n, 4)
x.flat[3]
x.flat[2:9:3]
x.flat[[0, 5, -1]]
x.flat[n]
sum(x.flat)
len(x.flat)
[q * 2 for q in x.flat]
np.max(x.flat)
np.sort(x.flat)
np.exp(x.flat) + 1
np.add(x.flat, x.T.flat)
y = x.copy(); y.flat = 3; return y
y = x.copy(); y.flat[:3] = x[0, :3] * 2; return y
y = x.copy(); y.flat[n] = 7; return y
y = x.copy(); y.flat[y.flat.copy() > 0] = 1; return y
y = x.T.copy(); y.flat[[1, 2]] = [5, 6]; return y
x.flat[::5] = 1; return x
x.view()
x.view(np.float64)
y = x * 1; z = y.view(); z[0] = 9; return y
with np.errstate(divide="ignore", invalid="ignore"): return x / (i - 1), np.log(x)
with np.errstate(all="warn"): return x / 0
np.seterr(all="ignore"); return x / 0
"""
"""Bodies of functions of the arrays, or expressions."""


BLOCKS = [
    'with np.errstate(over="raise"):\n  o = np.ones(3) * 2\nreturn x + o[0]',
    '@np.errstate(all="ignore")\ndef inner(a): return a / 0\nreturn inner(x)',
    'with np.errstate(divide="ignore", invalid="ignore"):\n  return x / 0',
]
"""The same, of several lines."""


def function(body: str) -> Any:
    """The function of all arrays with this body."""
    if "return" not in body:
        body = f"return {body}"
    text = f"def f({', '.join(ARRAYS)}):\n{textwrap.indent(body, '  ')}"
    made: dict[str, Any] = {"np": np}
    exec(compile(text, "user.py", "exec"), made)
    return made["f"]


@pytest.fixture(autouse=True)
def as_before() -> Any:
    """What NumPy does on floating-point errors is that of before."""
    before = np.geterr()
    yield
    np.seterr(**before)


def check_same(got: Any, want: Any) -> None:
    if isinstance(want, (list, tuple)):
        assert type(got) is type(want) and len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            check_same(g, w)
    elif isinstance(want, (np.ndarray, np.generic)):
        assert type(got) is type(want)
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=0)
    else:
        assert got == want


@pytest.mark.parametrize("body", [*WORKS.strip().splitlines(), *BLOCKS])
@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_as_in_numpy(body: str, backend: str) -> None:
    f = function(body)
    theirs = {k: a.copy() for k, a in ARRAYS.items()}
    mine = {k: a.copy() for k, a in ARRAYS.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = f(**theirs)
        got = eq.jit(f, backend=backend)(**mine)
    check_same(got, want)
    check_same(list(mine.values()), list(theirs.values()))


def test_ldexp_is_exact() -> None:
    e, s = ARRAYS["e"], ARRAYS["s"]
    for x, powers in ((e, (-1074, -1030, 1, 1023)), (s, (-24, -16, 3, 15))):
        for n in powers:
            with np.errstate(all="ignore"):
                want = np.ldexp(x, n)
            f = eq.jit(lambda x: np.ldexp(x, n))  # noqa: B023
            np.testing.assert_array_equal(f(x), want)


REFUSED = {
    "np.place(x * 1, x > 0, [1, 2])": "np.putmask",
    "np.maximum.at(x[0] * 1, n, 1.0)": "np.add.at",
    "np.minimum.at(v * 1, n, v[:4])": "np.add.at",
    "np.multiply.at(v * 1, n, 2.0)": "np.add.at",
    "np.frexp(x)": "np.log2",
    "np.ldexp(x[0], n)": "x * 2.0**n",
    "np.ldexp(x, 1024)": "x * 2.0**n",
    "np.ldexp(s, -25)": "x * 2.0**n",
    "x.view(np.int64)": "x.astype(dtype)",
    "x.view(np.float32)": "x.astype(dtype)",
    "n.view(np.uint64)": "x.astype(dtype)",
    "np.linalg.eig(x[:3, :3])": "np.linalg.eigh",
    "np.linalg.eigvals(x[:3, :3])": "np.linalg.eigvalsh",
    "np.choose(x, [x, x])": "expected integers",
    "np.putmask(np.zeros(3), x > 0, 1)": "the mask has shape",
    "np.copyto(np.zeros(3, int), x[0, :3])": "y.astype('int64')",
    'with np.errstate(divide="raise"): return x / 0': "np.isfinite",
    'with np.errstate(all="call"): return x / 0': "np.isfinite",
    'with np.errstate(over="print"): return np.exp(x)': "np.isfinite",
    'np.seterr(invalid="raise"); return np.log(x)': "np.isfinite",
    '@np.errstate(divide="raise")\ndef g(a): return a / 0\nreturn g(x)': "np.isfinite",
}
"""What a program cannot do, and what the error names."""


@pytest.mark.parametrize(("body", "said"), REFUSED.items())
def test_or_an_error_with_line_and_remedy(body: str, said: str) -> None:
    with pytest.raises(eq.EqsatError) as caught:
        eq.jit(function(body))(**{k: a.copy() for k, a in ARRAYS.items()})
    assert said in str(caught.value) and "at user.py:" in str(caught.value)


LISTED = [
    "np.logical_or.reduce([x > 0, x < 1])", "np.logical_and.reduce((x > 0, v, i))",
    "np.logical_or.reduce([x, [True, False, True]])", "np.add.reduce([x, v])",
    "np.add.reduce([x > 0, x < 1])", "np.multiply.reduce((x, v, i), axis=0)",
    "np.maximum.reduce([x[0], 2.0, i[1]])", "np.minimum.reduce([[x, v], [v, x]], -1)",
    "np.add.reduce([x, v], axis=None)", "np.add.accumulate([x, i])",
    "np.multiply.accumulate([x > 0, x < 1])", "np.fmax.accumulate([x, v], axis=1)",
    "np.minimum.accumulate((x, [1, 2, 3]))", "np.bitwise_or.reduce([1, 2]) + x",
    "np.maximum.reduce(x)", "np.add.reduce([np.ones(3), [1, 2, 3]]) + x",
    "np.add.reduce([x, v], out=np.zeros(3))", "np.add.reduce(x, 0, None, None, True)",
    "np.add.reduce([x, v], 1, float, np.zeros((2, 1)), True)",
    "np.multiply.outer([1, 2], x)",
]  # fmt: skip


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("call", LISTED)
def test_a_ufunc_reduces_a_list_of_arrays(call: str, backend: str) -> None:
    names = {"np": np}
    exec(f"def f(x, v, i):\n    return {call}", names)
    f: Any = names["f"]
    for dtype in ("f4", "f8", "i4", "?"):
        x, v, i = np.array([0.5, 2, -1]), np.array([1.0, 0, -3]), np.array([1, 0, 2])
        args = x.astype(dtype), v.astype(dtype), i
        want, got = f(*args), eq.jit(f, backend=backend)(*args)
        assert (np.shape(got), got.dtype) == (np.shape(want), want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_ufunc_of_the_users_code_is_numpys_own() -> None:
    def f(x: Any) -> Any:
        assert isinstance(np.add, np.ufunc) and np.add.nin == 2
        assert np.add is ADD and np.maximum.identity is None
        return np.add.reduce([x, x]) + ADD(x, 1)

    x = np.arange(3.0)
    assert np.array_equal(eq.jit(f)(x), f(x))
    with pytest.raises(eq.EqsatError, match=r"np\.bitwise_or\.reduce is not"):
        eq.jit(lambda x: np.bitwise_or.reduce([x, x]))(np.arange(3))


ADD = np.add
