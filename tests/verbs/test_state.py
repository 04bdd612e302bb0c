"""A program does not outlive what it was traced from: attributes, constants, memory."""

from __future__ import annotations

import copy
import functools
import math
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from evaluate import assert_same

import eqsat as eq

rng = np.random.default_rng(0)


class Model:
    """A model as people write it: weights and settings are attributes."""

    def __init__(self) -> None:
        self.w = np.ones(4)
        self.settings = {"scale": 1.0}
        self.inner = SimpleNamespace(on=True)
        self.itself = self

    def forward(self, x: Any) -> Any:
        y = x * self.w * self.settings["scale"]
        return y if self.inner.on else -y

    __call__ = forward
    compiled = eq.jit(forward)


@pytest.mark.parametrize("way", ["argument", "method", "bound", "called"])
def test_what_is_assigned_to_an_object_counts(way: str) -> None:
    model = Model()
    x = np.arange(4.0)
    f = {
        "argument": functools.partial(eq.jit(Model.forward), model),
        "method": model.compiled,
        "bound": eq.jit(model.forward),
        "called": eq.jit(model),
    }[way]

    def change(**attributes: Any) -> None:
        vars(model).update(attributes)
        assert (f(x) == model.forward(x)).all()

    change()
    change(w=np.full(4, 2.0))
    model.settings["scale"] = 3.0
    change()
    model.inner.on = False
    change()
    change(unused=np.ones(1))


def test_an_object_with_the_same_attributes_is_compiled_once() -> None:
    model, x = Model(), np.arange(4.0)
    traces = []
    f = eq.jit(lambda self, x: traces.append(1) or self.forward(x))
    f(model, x)
    f(model, x + 1)
    assert traces == [1]


def test_a_closed_over_array_that_is_written_to_counts() -> None:
    a, b = rng.standard_normal((8, 64)), rng.standard_normal((64, 8))
    others = [rng.standard_normal(s) for s in [(8, 3000), (8, 200), (0, 8)]]
    f = eq.jit(lambda x: [x @ a @ b, *(x[0, : len(w)] @ w for w in others)])
    x = rng.standard_normal((64, 8))
    assert f.lower(x).program.folded
    for w in (a, b, *others):
        w *= -2
        assert_same(f(x), f.fn(x), 1e-9)


def test_read_only_arrays_that_keep_coming_are_arguments() -> None:
    traces = []
    f = eq.jit(lambda x, c: traces.append(1) or x * c)
    for i in range(20):
        c = np.full(3, float(i))
        c.flags.writeable = False
        assert (f(np.ones(3), c) == i).all()
    assert len(traces) <= 5


def test_memory_that_can_change_is_no_constant() -> None:
    memory = bytearray(np.ones(3).tobytes())
    f = eq.jit(lambda x, c: x * (c + 1))
    for array in (
        np.frombuffer(memoryview(memory).toreadonly()),
        np.frombuffer(memoryview(memory).toreadonly())[:2],
    ):
        ones = np.ones(len(array))
        memory[:] = np.ones(3).tobytes()
        assert (f(ones, array) == 2).all()
        memory[:] = np.full(3, 4.0).tobytes()
        assert (f(ones, array) == 5).all()


@eq.jit
def doubled(x: Any) -> Any:
    return x * 2


def test_jitted_functions_are_copied_and_pickled() -> None:
    assert repr(doubled) == "<eqsat.jit of doubled>"
    assert copy.deepcopy({"f": doubled})["f"](1.0) == 2
    assert copy.copy(doubled)(1.0) == 2
    again = pickle.loads(
        pickle.dumps(eq.jit(math.hypot, options=eq.Options(fusion=False)))
    )
    assert again.fn is math.hypot and again.options == eq.Options(fusion=False)


def test_a_simple_namespace_is_a_container() -> None:
    f = eq.jit(lambda p: SimpleNamespace(y=p.x + 1, name=p.name))
    found = f(SimpleNamespace(x=np.ones(2), name="a"))
    assert (found.y == 2).all() and found.name == "a"


def test_a_float_that_is_new_in_each_call_is_warned_of_once() -> None:
    f = eq.jit(lambda x, options, lr=1.0: x * lr + options["by"])
    x = np.ones(3, "f4")
    for i in range(7):
        f(x, {"by": 2.0}, 0.5 * i)
        f(x, {"by": 3.0}, lr=0.5 * i)
    with pytest.warns(eq.RecompileWarning, match=r"for 8 values of lr, now for 9"):
        f(x, {"by": 2.0}, 9.0)
    f(x, {"by": 2.0}, 10.0)
    for i in range(20):
        f(x, {"by": 2.0}, np.float32(i))
        f(x * i, {"by": 2}, 1)
    for i in range(5):
        f(x, {"by": 4.0 + i})
    with pytest.warns(eq.RecompileWarning, match=r"options\['by'\]") as seen:
        f(x, {"by": 9.0})
    assert seen[0].filename == __file__
