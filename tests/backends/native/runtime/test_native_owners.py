"""Programs that read the attributes of objects are entered without Python too, and made
anew when these change: of methods, and of jitted functions that objects hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from entering import entered

import eqsat as eq

X = np.arange(3.0)


class Model:
    """A jitted function of its own among the attributes, and a number that counts."""

    def __init__(self) -> None:
        self.factor = 2.0
        self.twice = eq.jit(lambda x: x * 2)
        self.scaled = eq.jit(self.scale)

    def scale(self, x: Any) -> Any:
        return self.twice(x) * self.factor

    def loss(self, x: Any) -> Any:
        return self.scaled(x).sum()

    def __call__(self, x: Any) -> Any:
        return self.loss(x)


MAKE = {
    "jit of a method": lambda m: eq.jit(m.loss),
    "jit of an object": lambda m: eq.jit(m),
    "jit of a jit": lambda m: eq.jit(eq.jit(m.loss)),
    "gradient": lambda m: eq.value_and_grad(m.loss),
    "jit of a gradient": lambda m: eq.jit(eq.value_and_grad(m.loss)),
    "gradient of an object": lambda m: eq.value_and_grad(m),
}


def loss(found: Any) -> float:
    """The result, or the one beside the gradient."""
    return float(found[0] if isinstance(found, tuple) else found)


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_an_attribute_that_changes_is_noticed_without_python(make: Any) -> None:
    with entered() as backend:
        m = Model()
        f = make(m)
        assert [loss(f(X)) for _ in range(5)] == [12] * 5
        assert backend.calls == (4, 1)
        m.factor = 3.0
        assert loss(f(X)) == 18
        assert backend.calls == (0, 1)
        assert loss(f(X)) == 18
        assert backend.calls == (1, 0)


def test_a_jitted_function_as_an_attribute_is_replaced() -> None:
    with entered() as backend:
        m = Model()
        f = eq.jit(m.loss)
        assert f(X) == 12
        assert f(X) == 12
        m.twice = eq.jit(lambda x: x * 20)
        assert f(X) == 120
        assert f(X) == 120
        assert backend.calls == (2, 2)


def test_jitted_functions_are_arguments() -> None:
    with entered() as backend:
        m, double = Model(), eq.jit(lambda x: x * 2)
        f = eq.jit(lambda g, x: g(x).sum())
        assert [f(double, X), f(double, X)] == [6, 6]
        assert [f(m.scaled, X), f(m.scaled, X)] == [12, 12]
        assert backend.calls == (2, 2)
        m.factor = 3.0
        assert [f(m.scaled, X), f(m.scaled, X), f(double, X)] == [18, 18, 6]
        assert backend.calls == (2, 1)
