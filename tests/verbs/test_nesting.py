"""Values that are nested deep: the right answer, or an error that names them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat.support.errors import TraceError
from eqsat.support.pytree import MOST_DEPTH

X = np.arange(4.0)
AROUND: dict[str, Callable[[Any], Any]] = {
    "list": lambda v: [v],
    "tuple": lambda v: (v,),
    "dict": lambda v: {0: v},
    "namespace": lambda v: SimpleNamespace(**{"0": v}),
}


class Link:
    """An object that holds another one."""

    def __init__(self, value: Any) -> None:
        self.value = value


def nested(value: Any, depth: int, around: Callable[[Any], Any]) -> Any:
    for _ in range(depth):
        value = around(value)
    return value


def innermost(value: Any, count: int) -> Any:
    for _ in range(count):
        if isinstance(value, SimpleNamespace):
            value = vars(value)["0"]
        else:
            value = value.value if isinstance(value, Link) else value[0]
    return value


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("kind", AROUND)
def test_arguments_and_results_up_to_the_limit(kind: str, backend: str) -> None:
    value = nested(X, MOST_DEPTH, AROUND[kind])
    f = eq.jit(
        lambda v: nested(innermost(v, MOST_DEPTH) * 2, MOST_DEPTH, AROUND[kind]),
        backend=backend,
    )
    for _ in range(3):
        np.testing.assert_array_equal(innermost(f(value), MOST_DEPTH), X * 2)


@pytest.mark.parametrize("depth", [MOST_DEPTH + 1, 900, 20_000])
@pytest.mark.parametrize("kind", AROUND)
def test_deeper_ones_are_refused_by_name(kind: str, depth: int) -> None:
    value = nested(X, depth, AROUND[kind])
    number = nested(1.0, depth, AROUND[kind])
    calls: dict[str, Callable[[], Any]] = {
        "v": lambda: eq.jit(lambda v: innermost(v, depth) * 2)(value),
        "number": lambda: eq.jit(lambda x, number: x)(X, number),
        "result": lambda: eq.jit(lambda x: nested(x, depth, AROUND[kind]))(X),
        "g": lambda: eq.grad(lambda g: innermost(g, depth).sum())(value),
    }
    for name, call in calls.items():
        with pytest.raises(TraceError, match="is nested too deep") as caught:
            call()
        assert str(caught.value).startswith(name)
        assert len(str(caught.value)) < 400 and "test_nesting.py" in str(caught.value)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("depth", [100, 900, 5000])
@pytest.mark.parametrize("kind", [*AROUND, "link"])
def test_what_a_function_reads_may_be_nested_deep(
    kind: str, depth: int, backend: str
) -> None:
    around = AROUND.get(kind, Link)
    last = [3.0]
    outside = nested(last, depth, around)
    f = eq.jit(lambda x: x * innermost(outside, depth)[0], backend=backend)
    for _ in range(3):
        np.testing.assert_array_equal(f(X), X * 3)
    last[0] = 4.0
    np.testing.assert_array_equal(f(X), X * 4)
    last.append(0)
    last[0] = 5.0
    np.testing.assert_array_equal(f(X), X * 5)


def test_chains_of_one_length_are_told_apart() -> None:
    """Of flat keys: what lies in what, and how often."""
    a, b = Link(1.0), Link([2.0, Link(3.0)])
    f = eq.jit(lambda x, v: x * seen(v), backend="numpy")

    def seen(v: Any) -> float:
        if isinstance(v, Link):
            return 2 * seen(v.value)
        return 3 * sum(map(seen, v)) if isinstance(v, list) else v

    for v in (a, b, Link([Link(2.0), 3.0]), Link([[2.0], 3.0]), Link([[2.0, 3.0]])):
        np.testing.assert_array_equal(f(X, v), X * seen(v))
    shared = Link(2.0)
    for v in (Link([shared, shared]), Link([shared, Link(2.0)])):
        np.testing.assert_array_equal(f(X, v), X * seen(v))
    shared.value = 7.0
    np.testing.assert_array_equal(f(X, v), X * seen(v))


def test_sets_queues_and_keys_that_hold_deep_tuples() -> None:
    deep = nested(1.0, 20_000, AROUND["tuple"])
    for held in ({deep}, frozenset([deep]), deque([deep])):
        why = "neither an array" if isinstance(held, deque) else "is nested too deep"
        with pytest.raises(TraceError, match=why):
            eq.jit(lambda x, held: x * len(held))(X, held)
    for outside in ({deep}, deque([nested(1.0, 20_000, AROUND["list"])])):
        with pytest.raises(TraceError, match="is nested too deep"):
            eq.jit(lambda x: x * len(outside))(X)  # noqa: B023
    with pytest.raises(TraceError, match="a key of a 'dict' is nested too deep"):
        eq.jit(lambda x, held: x * len(held))(X, {deep: 1})
    table = {deep: 1, nested(1.0, 900, AROUND["tuple"]): 2}
    f = eq.jit(lambda x: x * len(table), backend="native")
    for _ in range(3):
        np.testing.assert_array_equal(f(X), X * 2)
