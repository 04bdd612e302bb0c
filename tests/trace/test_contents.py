"""What is kept of the contents of arrays, and when it is read again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat.trace import contents
from eqsat.trace.contents import WHOLE, Contents, Seen


def test_memory_that_several_arrays_show_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []
    read = contents._read
    monkeypatch.setattr(contents, "_read", lambda a: calls.append(a) or read(a))
    one = np.zeros(WHOLE)
    seen: Seen = {}
    held = [Contents(a, seen) for a in (one, one.view(), one[::2], one.reshape(2, -1))]
    assert len(calls) == 3
    assert held[0].held == held[1].held
    one[5] = 1
    assert not held[0].is_current() and not held[1].is_current()
    assert held[2].is_current() and not held[3].is_current()


def test_layers_that_share_weights_see_a_change_of_them() -> None:
    shared = np.ones((100, 100))
    layers = [shared.view() for _ in range(4)]

    @eq.jit
    def f(x: np.ndarray) -> np.ndarray:
        for w in layers:
            x = x @ w
        return x

    x = np.full((2, 100), 0.01)
    np.testing.assert_allclose(f(x), np.full((2, 100), 1e6))
    shared[...] = 0.01
    np.testing.assert_allclose(f(x), np.full((2, 100), 0.01))


class _OfClass:
    factor: Any = None


@pytest.mark.parametrize("where", ["closure", "dict", "object", "class", "default"])
def test_lazy_arrays_that_are_written_to_are_read_again(where: str) -> None:
    lazy = eq.array(np.ones(3))
    held = SimpleNamespace(factor=lazy)
    table = {"factor": lazy}
    _OfClass.factor = lazy
    functions: dict[str, Any] = {
        "closure": lambda x: x * lazy,
        "dict": lambda x: x * table["factor"],
        "object": lambda x: x * held.factor,
        "class": lambda x: x * _OfClass.factor,
        "default": lambda x, factor=lazy: x * factor,
    }
    f = eq.jit(functions[where])
    x = np.arange(3.0)
    np.testing.assert_array_equal(f(x), x)
    lazy[1] = 5
    np.testing.assert_array_equal(f(x), [0, 5, 2])
    lazy += 1
    np.testing.assert_array_equal(f(x), [0, 6, 4])
