"""What a function catches while it is traced: errors that NumPy raises too, and those
of what NumPy does and no trace can."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat.support import EqsatError

X = np.arange(3.0)


def falls_back(question: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that goes on otherwise where a question is an error."""

    def f(x: Any) -> Any:
        try:
            question(x)
        except Exception:
            return x * 0
        return x * 2

    return f


NUMPY_DOES = [
    *(lambda x: float(x.sum()), lambda x: int(x[1]), lambda x: complex(x[0])),
    *(lambda x: bool(x[0] > 0), lambda x: [4, 5, 6][x.astype(int)[1]]),
    *(lambda x: {x[0]: 1}, lambda x: 1.0 in x, lambda x: f"{x[0]:.2f}"),
    *(lambda x: np.apply_along_axis(np.sum, 0, x), lambda x: np.lexsort((x, x))),
    *(lambda x: len(x[x > 0]), lambda x: np.unique(x) + 1, lambda x: x.tolist()),
    *(lambda x: np.asarray(x, object), lambda x: x.astype(str), lambda x: x.flags),
    *(lambda x: x.view(np.int64), lambda x: x.view(np.recarray), lambda x: x[True]),
    *(lambda x: x == "a", lambda x: np.r_["0,2", x], lambda x: np.place(x, x > 0, x)),
    lambda x: np.sum(x, where=x > 0, out=np.empty(())),
]
NUMPY_REFUSES = [
    *(lambda x: float(x), lambda x: bool(x), lambda x: [4, 5, 6][x[0]]),
    *(lambda x: {x: 1}, lambda x: x @ np.ones(4), lambda x: x[7], lambda x: x.foo),
    *(lambda x: x.sum(axis=3), lambda x: x.reshape(5), lambda x: x + None),
]


@pytest.mark.parametrize("question", NUMPY_DOES)
def test_a_refusal_that_is_caught_ends_the_trace(question: Any) -> None:
    f = falls_back(question)
    np.testing.assert_array_equal(f(X), X * 2)
    try:
        found = eq.jit(f)(X)
    except EqsatError:
        return
    np.testing.assert_array_equal(found, X * 2)


@pytest.mark.parametrize("question", NUMPY_REFUSES)
def test_an_error_of_numpys_may_be_caught(question: Any) -> None:
    f = falls_back(question)
    np.testing.assert_array_equal(f(X), X * 0)
    np.testing.assert_array_equal(eq.jit(f)(X), X * 0)


def test_the_error_is_that_of_the_line_that_was_refused() -> None:
    def f(x: Any) -> Any:
        with contextlib.suppress(TypeError):
            return x * float(x[0])  # here
        return x

    with pytest.raises(EqsatError, match=r"the float value of .*\n.*\n.*\n.*# here"):
        eq.jit(f)(X)


@pytest.mark.parametrize("name", ["tolist", "flags", "sum", "foo", "shape", "item"])
def test_attributes_are_there_as_in_numpy(name: str) -> None:
    def f(x: Any) -> Any:
        return x * (2 if hasattr(x, name) else 3)

    try:
        found = eq.jit(f)(X)
    except EqsatError:
        assert name == "flags"
    else:
        np.testing.assert_array_equal(found, f(X))
