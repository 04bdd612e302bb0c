"""Methods, called objects and dataclasses are entered by machine code, which looks at
what they hold."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from entering import Backend, entered

import eqsat as eq
from eqsat.terms.type_rules import BF16

X = np.arange(4.0, dtype="f4")


class Scale(NamedTuple):
    by: float


class Inner:
    def __init__(self) -> None:
        self.on = True


class Model:
    def __init__(self) -> None:
        self.weights = [X + 1, {"w": X + 2}]
        self.scale, self.power, self.name, self.nothing = 2.0, 2, "a", None
        self.pair = (X, Scale(3.0))
        self.inner, self.itself, self.again = Inner(), self, self.weights

    def forward(self, x: Any) -> Any:
        a, b = self.weights[0], self.weights[1]["w"]
        y = (x * a + b) * self.scale * self.power + self.pair[0] * self.pair[1].by
        return (y if self.inner.on else -y) + len(self.name) + len(vars(self))

    __call__ = forward


WAYS: dict[str, Callable[[Model], Callable[[Any], Any]]] = {
    "argument": lambda m: functools.partial(eq.jit(Model.forward), m),
    "bound": lambda m: eq.jit(m.forward),
    "called": lambda m: eq.jit(m),
    "decorated": lambda m: eq.jit(Model.forward).__get__(m),
}


def ran(backend: Backend, f: Callable[..., Any], *args: Any) -> tuple[int, int]:
    """Native calls and those through Python, of one call."""
    assert backend.calls is not None
    f(*args)
    return backend.calls


def changes(m: Model) -> list[Callable[[], object]]:
    """What can be assigned, one after the other."""
    return [
        lambda: vars(m).update(scale=3.0),
        lambda: vars(m).update(power=3),
        lambda: vars(m).update(power=3.0),
        lambda: vars(m).update(name="bc"),
        lambda: vars(m).update(nothing=0),
        lambda: vars(m).update(extra=1),
        lambda: (vars(m).pop("extra"), vars(m).update(name="d")),
        lambda: setattr(m.inner, "on", False),
        lambda: setattr(m, "inner", Inner()),
        lambda: m.weights.__setitem__(0, X + 5),
        lambda: m.weights[1].__setitem__("w", X + 6),  # type: ignore[index]
        lambda: m.weights.append({}),
        lambda: setattr(m, "pair", (X, Scale(4.0))),
        lambda: setattr(m, "weights", [X + 7, {"w": X + 8}]),
        lambda: m.weights[0].__iadd__(1),  # type: ignore[index]
        lambda: setattr(m, "__dict__", {**vars(m), "scale": 9.0}),
    ]


@pytest.mark.parametrize("way", WAYS)
def test_what_an_object_holds_is_looked_at(way: str) -> None:
    m = Model()
    with entered() as backend:
        f = WAYS[way](m)
    for change in [lambda: None, *changes(m)]:
        change()
        assert ran(backend, f, X) == (0, 1)
        assert ran(backend, f, X) == (1, 0)
        np.testing.assert_allclose(f(X), m.forward(X), rtol=1e-6)


def test_equal_numbers_and_containers_are_no_change() -> None:
    m = Model()
    with entered() as backend:
        f = eq.jit(m)
    f(X)
    m.scale, m.name = float("2"), "".join(["a"])
    m.pair = (m.pair[0], Scale(float("3")))
    assert ran(backend, f, X) == (1, 0)


def test_an_object_that_changes_when_it_is_called() -> None:
    class Counting:
        calls = 0

        def __call__(self, x: Any) -> Any:
            self.calls += 1
            return x * self.calls

    counting = Counting()
    with entered():
        f = eq.jit(counting)
    assert [f(X)[1] for _ in range(3)] == [1, 2, 3]


def test_two_objects_of_a_class_have_programs_of_their_own() -> None:
    a, b = Model(), Model()
    b.scale = 5.0
    with entered() as backend:
        f = eq.jit(Model.forward)
    for m in (a, b, a, b):
        np.testing.assert_allclose(f(m, X), m.forward(X), rtol=1e-6)
    assert backend.calls == (2, 2)


@dataclass
class Pair:
    a: Any
    b: float = 2.0
    more: dict[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize("kind", [Pair, SimpleNamespace])
def test_records_are_containers(kind: type) -> None:
    with entered() as backend:
        f = eq.jit(lambda p, x: p.a * p.b + x)
    p = kind(a=X, b=2.0, more={"c": X})
    assert ran(backend, f, p, X) == (0, 1)
    assert ran(backend, f, kind(a=X + 1, b=2.0, more={"c": X}), X) == (1, 0)
    np.testing.assert_array_equal(f(kind(a=X + 1, b=2.0, more={"c": X}), X), 3 * X + 2)
    backend.calls  # noqa: B018
    for other in (
        kind(a=X, b=3.0, more={"c": X}),
        kind(a=X, b=2.0, more={}),
        Model(),
    ):
        if isinstance(other, Model):
            other.a, other.b = X, 2.0  # type: ignore[attr-defined]
        assert ran(backend, f, other, X) == (0, 1)
    p.extra = X
    assert ran(backend, f, p, X) == (0, 1)
    np.testing.assert_array_equal(f(p, X), 3 * X)


def test_only_records_with_descriptors_of_their_own_go_through_python() -> None:
    class Watched:
        def __get__(self, instance: Any, owner: type) -> Any:
            return vars(instance)["a"] if instance else self

        def __set__(self, instance: Any, value: Any) -> None:
            vars(instance)["a"] = value

    @dataclass
    class Described:
        a: Any = Watched()  # noqa: RUF009

    @dataclass(slots=True)
    class Slots:
        a: Any

    class Sub(dict[str, Any]):
        a = property(lambda self: self["a"])

    class Equal:
        def __init__(self, a: Any) -> None:
            self.a = a

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

    for p in (Described(X), Slots(X), Sub(a=X), Equal(X)):
        with entered() as backend:
            f = eq.jit(lambda p: p.a + 1)
        assert ran(backend, f, p) == (0, 1)
        again = (0, 1) if isinstance(p, Described) else (1, 0)
        assert ran(backend, f, p) == again
        np.testing.assert_array_equal(f(p), p.a + 1)  # type: ignore[attr-defined]


def test_ops_and_ufuncs_are_entered_like_functions() -> None:
    for fn in (eq.gelu, np.tanh, functools.partial(np.add, 2.0)):
        with entered() as backend:
            f = eq.jit(fn)
        assert ran(backend, f, X) == (0, 1)
        assert ran(backend, f, X) == (1, 0)


def test_an_object_goes_with_its_jit() -> None:
    m = Model()
    with entered():
        f = eq.jit(m)
    f(X)
    gone = weakref.ref(m)
    del m, f
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("kind", ["?", "i1", "u2", "i8", "f2", "f4", "f8", BF16])
@pytest.mark.parametrize("release", [False, True])
def test_scalars_of_numpy_are_arrays_without_axes(kind: Any, release: bool) -> None:
    dtype = np.dtype(kind)
    with entered(release=release) as backend:
        f = eq.jit(lambda a, x, b: (a * x + b, a))
    a, b = dtype.type(1), dtype.type(0)
    x = np.array([0, 1, 1, 0, 1]).astype(dtype)
    assert ran(backend, f, a, x, b) == (0, 1)
    assert ran(backend, f, dtype.type(1), x, dtype.type(1)) == (1, 0)
    for n in (0, 1, 5):
        y, again = f(dtype.type(n), x, b)
        np.testing.assert_array_equal(y, dtype.type(n) * x + b)
        assert again == dtype.type(n) and again.dtype == dtype
    backend.calls  # noqa: B018
    assert ran(backend, f, np.array(a), x, b) == (0, 1)


def test_a_scalar_is_told_by_its_type() -> None:
    with entered() as backend:
        f = eq.jit(lambda a, x: a * x)
    for a in (np.float32(2), np.float64(2), np.int32(2), np.float16(2)):
        assert ran(backend, f, a, X) == (0, 1)
        assert ran(backend, f, a, X) == (1, 0)
        assert f(a, X).dtype == (a * X).dtype
