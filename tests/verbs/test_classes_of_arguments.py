"""What stands in the classes of arguments is part of a program, as what stands in
modules is: a call after it has changed is of a new program."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import eqsat as eq

X = np.arange(1.0, 4)


def shifted(x: Any) -> Any:
    return x + 1000


class Holder:
    """Holds another object."""

    def __init__(self, model: Any) -> None:
        self.model = model


def new_model() -> Any:
    class Model:
        gain = 2.0
        array = np.full(3, 3.0)
        helper = staticmethod(shifted)

        def __init__(self) -> None:
            self.table = type(self).lists["k"]
            self.w = np.ones(3)

        lists: ClassVar[dict[str, list[float]]] = {"k": [5.0]}

        @property
        def double(self) -> float:
            return self.gain * 2

        @classmethod
        def scaled(cls, x: Any) -> Any:
            return x * cls.gain

        def act(self, x: Any) -> Any:
            return x + self.w

        def __add__(self, x: Any) -> Any:
            return x + 10

        def __call__(self, x: Any) -> Any:
            return x * 7

        def __len__(self) -> int:
            return 3

    class Derived(Model):
        pass

    return Derived()


def base(m: Any) -> Any:
    return type(m).__mro__[1]


def change_of(where: Callable[[Any], Any], name: str, value: Any) -> Any:
    return lambda m: setattr(where(m), name, value)


CASES: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "a number of the class": (
        lambda m, x: x * m.gain,
        change_of(type, "gain", 3.0),
    ),
    "a number of a base": (lambda m, x: x * m.gain, change_of(base, "gain", 3.0)),
    "of the class itself": (
        lambda m, x: x * type(m).gain,
        change_of(type, "gain", 3.0),
    ),
    "by its name": (
        lambda m, x: x * getattr(m, "gain"),  # noqa: B009
        change_of(base, "gain", 3.0),
    ),
    "a class method": (lambda m, x: m.scaled(x), change_of(base, "gain", 3.0)),
    "what a property reads": (lambda m, x: x * m.double, change_of(base, "gain", 3.0)),
    "a property": (
        lambda m, x: x * m.double,
        change_of(base, "double", property(lambda self: 9.0)),
    ),
    "a method": (
        lambda m, x: m.act(x),
        change_of(base, "act", lambda self, x: -x * self.w),
    ),
    "a static method": (
        lambda m, x: m.helper(x),
        change_of(base, "helper", staticmethod(lambda x: -x)),
    ),
    "an operator": (
        lambda m, x: m + x,
        change_of(base, "__add__", lambda self, x: x - 10),
    ),
    "a call": (lambda m, x: m(x), change_of(base, "__call__", lambda self, x: x * 8)),
    "a length": (lambda m, x: x * len(m), change_of(type, "__len__", lambda self: 4)),
    "a list in the class": (
        lambda m, x: x * m.lists["k"][0],
        lambda m: base(m).lists["k"].append(base(m).lists["k"].pop() + 1),
    ),
    "an array of the class": (
        lambda m, x: x * m.array,
        change_of(base, "array", np.full(3, 4.0)),
    ),
    "an array that is written to": (
        lambda m, x: x * m.array,
        lambda m: base(m).array.__setitem__(0, 9.0),
    ),
}


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("name", CASES)
def test_a_change_in_the_class_of_an_argument_is_seen(name: str, backend: str) -> None:
    f, change = CASES[name]
    model = new_model()
    ways: list[tuple[Callable[..., Any], Any]] = [
        (f, model),
        (lambda d, x: f(d["m"][0], x), {"m": [model]}),
        (lambda h, x: f(h.model, x), Holder(model)),
    ]
    compiled = [(eq.jit(g, backend), g, a) for g, a in ways]
    for made, g, a in compiled:
        np.testing.assert_array_equal(made(a, X), g(a, X))
    before = f(model, X)
    change(model)
    assert not np.array_equal(f(model, X), before)
    for made, g, a in compiled:
        np.testing.assert_array_equal(made(a, X), g(a, X))


def test_methods_that_are_compiled() -> None:
    class Layer:
        scale = 2.0

        @eq.jit
        def run(self, x: Any) -> Any:
            return self.act(x) * self.scale

        def act(self, x: Any) -> Any:
            return x + 1

    layer = Layer()
    np.testing.assert_array_equal(layer.run(X), (X + 1) * 2)
    Layer.scale = 3.0
    np.testing.assert_array_equal(layer.run(X), (X + 1) * 3)
    Layer.act = lambda self, x: x - 1  # type: ignore[method-assign]
    np.testing.assert_array_equal(layer.run(X), (X - 1) * 3)


@dataclass
class Data:
    w: Any
    k: ClassVar[float] = 2.0

    def act(self, x: Any) -> Any:
        return x * self.w * self.k


class Pair(NamedTuple):
    w: Any

    def act(self, x: Any) -> Any:
        return x * self.w


@pytest.mark.parametrize("kind", [Data, Pair])
def test_classes_of_what_holds_arrays(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = eq.jit(lambda d, x: d.act(x))
    d = kind(np.full(3, 2.0))
    np.testing.assert_array_equal(f(d, X), d.act(X))
    monkeypatch.setattr(kind, "act", lambda self, x: x - self.w)
    np.testing.assert_array_equal(f(d, X), X - 2)


def test_an_attribute_that_is_given_and_taken_away() -> None:
    model = new_model()
    model.gain = 9.0
    f = eq.jit(lambda m, x: x * m.gain)
    np.testing.assert_array_equal(f(model, X), X * 9)
    del model.gain
    np.testing.assert_array_equal(f(model, X), X * 2)


def test_attributes_of_functions() -> None:
    def helper(x: Any) -> Any:
        return x * helper.k  # type: ignore[attr-defined]

    @eq.jit
    def compiled(x: Any) -> Any:
        return x * compiled.k  # type: ignore[attr-defined]

    for made, read in ((eq.jit(lambda x: helper(x)), helper), (compiled, compiled)):
        for k in (1.0, 3.0, 2.0):
            read.k = k  # type: ignore[attr-defined]
            np.testing.assert_array_equal(made(X), X * k)


def test_what_nobody_calls_costs_nothing() -> None:
    """Counters and tables that only methods read which no code asks for."""
    ids = itertools.count()
    table = [object() for _ in range(1000)]

    class Numbered:
        made = 0

        def __init__(self) -> None:
            self.k, self.number = 2.0, next(ids)
            type(self).made += 1

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Numbered)

        def __hash__(self) -> int:
            return 1

        def __len__(self) -> int:
            return len(table)

    traced = []

    @eq.jit
    def f(o: Any, x: Any) -> Any:
        traced.append(1)
        return x * o.k

    for _ in range(3):
        table.append(object())
        o = Numbered()
        o.number = 0
        np.testing.assert_array_equal(f(o, X), X * 2)
    assert len(traced) == 1
