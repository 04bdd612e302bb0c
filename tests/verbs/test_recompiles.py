"""Why a function is compiled: told by ``EQSAT_LOG=compiles``, and warned of where it
is compiled again and again."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat as eq

X = np.ones(3)


@pytest.fixture(autouse=True)
def logging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_LOG", " ,compiles")


def scale(x: Any, by: Any = 1, *, w: Any = None) -> Any:
    return (x["x"] if isinstance(x, dict) else x) * (2 if by is None else 3)


@pytest.mark.parametrize(
    "first, second, cause",
    [
        (((X,), {}), ((np.ones(4),), {}), "argument 'x' changed shape (3,) -> (4,)"),
        (((X,), {}), ((X.astype("f4"),), {}),
         "argument 'x' changed dtype float64 -> float32"),
        (((X,), {}), ((np.ones((2, 2), "i4"),), {}),
         "argument 'x' changed shape (3,) -> (2, 2); "
         "argument 'x' changed dtype float64 -> int32"),
        (((X, 1), {}), ((X, 2), {}), "argument 'by' changed value 1 -> 2"),
        (((X, 1), {}), ((X, 1.0), {}), "argument 'by' changed value 1 -> 1.0"),
        (((X, 1), {}), ((X, "a"), {}), "argument 'by' changed value 1 -> 'a'"),
        (((X, 1), {}), ((X, None), {}), "argument 'by' changed value 1 -> None"),
        (((X, 1), {}), ((X, X), {}), "argument 'by' is not there; "
         "argument 'by' is there"),
        (((X,), {}), ((X,), {"by": 1}), "argument 'by' is there"),
        ((({"x": X},), {}), (({"x": np.ones(5)},), {}),
         "argument \"x['x']\" changed shape (3,) -> (5,)"),
    ],
)  # fmt: skip
def test_the_cause_of_each_compile_is_printed(
    first: Any, second: Any, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fn = eq.jit(scale)
    for args, kwargs in (first, second, first, second):
        fn(*args, **kwargs)
    one, two = capsys.readouterr().err.splitlines()
    line = scale.__code__.co_firstlineno
    head = rf"eqsat: compiled 'scale' \({re.escape(__file__)}:{line}\) in \d+\.\d+ s: "
    assert re.fullmatch(head + "first call", one), one
    assert re.fullmatch(head + re.escape(cause), two), two


def test_a_layout_is_a_cause(capsys: pytest.CaptureFixture[str]) -> None:
    """Machine code is made for four layouts; arrays of others are copied."""
    fn = eq.jit(lambda x, y: np.tanh(x) + y)
    x = np.ones((4, 4))
    steps = np.ones((8, 8))[::2, ::2]
    unaligned = np.ndarray((4, 4), "f8", np.zeros(136, "u1")[1:129].data)
    for given in (x, np.asfortranarray(x), steps, x.T.copy(), steps[:], unaligned):
        for _ in range(2):
            assert (fn(given, x) == np.tanh(given) + x).all()
    for k in range(4, 9):
        fn(np.ones((4, 4 * k))[:, ::k], x)
    said = [t.split(" s: ")[1] for t in capsys.readouterr().err.splitlines()]
    assert said == [
        "first call",
        "argument 'x' changed layout to Fortran order, strides of (8, 32) bytes",
        "argument 'x' changed layout to strides of (128, 16) bytes",
        "argument 'x' changed layout to strides of (128, 32) bytes",
    ]


def test_the_nearest_call_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    fn = eq.jit(scale)
    fn(X, 1)
    fn(np.ones((2, 2)), 5)
    fn(X, 3)
    assert capsys.readouterr().err.endswith("argument 'by' changed value 1 -> 3\n")


def test_what_changed_outside_is_a_cause(capsys: pytest.CaptureFixture[str]) -> None:
    rate = 2.0

    def fn(x: Any) -> Any:
        return x * rate

    jitted = eq.jit(fn)
    jitted(X)
    rate = 3.0
    assert (jitted(X) == 3).all()
    assert capsys.readouterr().err.endswith("rate changed outside of the function\n")


def test_a_constant_that_is_another_one_is_a_cause(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fn = eq.jit(lambda x, w: x * w, constants="w".split())
    held = [np.full(3, 1.0), np.full(3, 2.0)]
    for w in held:
        assert (fn(X, w) == w).all()
    assert "argument 'w' changed constant array" in capsys.readouterr().err


def test_lowering_and_methods_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    class Model:
        def __call__(self, x: Any) -> Any:
            return x + 1

        def method(self, x: Any) -> Any:
            return x + 2

    eq.jit(Model())(X)
    eq.jit(Model().method)(X)
    eq.jit(scale).lower(eq.Spec((3,), "f4"))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[2] for line in lines] == ["'Model'", "'method'", "'scale'"]
    assert all(f"({__file__}:" in line for line in lines)


def test_nothing_is_printed_unless_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EQSAT_LOG", "")
    eq.jit(scale)(X)
    assert capsys.readouterr().err == ""
    for asked in ("other", "compile"):
        monkeypatch.setenv("EQSAT_LOG", asked)
        with pytest.raises(eq.OptionError, match=f"EQSAT_LOG='{asked}': expected one"):
            eq.jit(scale)


DTYPES = "f2 f4 f8 i1 i2 i4 i8 u1".split()
HELD = [np.full(3, float(k)) for k in range(9)]


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda f, k: f(X, k), r"8 values of by, now for 7\. .*int64\(by\), unless"),
        (lambda f, k: f(X, k / 2), r"8 values of by, now for 3\.5\. .*float32\(by\)$"),
        (lambda f, k: f(X, f"m{k}"), r"8 values of by, now for 'm7'\. .* as an array"),
        (lambda f, k: f({"x": X, "n": k}), r"8 values of x\['n'\], now for 7"),
        (lambda f, k: f(np.ones(k + 1)), r"32 shapes of x, now for \(32,\)\. .*pad x"),
        (lambda f, k: f(np.ones(3, DTYPES[k % 8])), r"8 dtypes of x, now for uint8"),
        (lambda f, k: f(X, w=HELD[k]), r"8 constants of w, now for array 0x"),
    ],
)  # fmt: skip
def test_an_argument_that_changes_in_each_call_is_warned_of_once(
    call: Callable[[Any, int], Any], said: str
) -> None:
    fn = eq.jit(scale, constants=["w"])
    last = int(said.split()[0]) - 1
    for k in range(last):
        call(fn, k)
    with pytest.warns(eq.RecompileWarning, match=f"'scale' was compiled for {said}"):
        call(fn, last)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(fn, last + 1)
        call(fn, 0)


def test_a_value_in_a_closure_that_changes_in_each_call_is_warned_of() -> None:
    rate = 0.0
    fn = eq.jit(lambda x: x * rate)
    fn(X)
    with pytest.warns(eq.RecompileWarning, match="8 times, since rate changed"):
        for k in range(1, 9):
            rate = float(k)
            assert (fn(X) == k).all()
