"""Arguments of every kind that users pass: entered by machine code where they are like
those of a call before, and never taken for others."""

from __future__ import annotations

import enum
import functools
import operator
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from entering import entered
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples

import eqsat as eq
from eqsat.trace.call_arguments import is_array

X = np.arange(24, dtype=np.float32).reshape(4, 6)


@dataclass
class Pair:
    a: Any
    b: Any


@dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any


@dataclass(slots=True)
class Slotted:
    a: Any
    b: Any


@dataclass(slots=True)
class More(Pair):
    c: Any = None


class Named(NamedTuple):
    a: Any
    b: Any


class Own(dict[Any, Any]):
    pass


class Assigned(dict[Any, Any]):
    def __init__(self, *args: Any, scale: int = 2) -> None:
        super().__init__(*args)
        self.scale = scale


class Mode(enum.Enum):
    A = 1
    B = 2


class Count(enum.IntEnum):
    ONE = 1
    TWO = 2


class Plain:
    def __init__(self, k: Any) -> None:
        self.k = k

    def method(self, x: Any) -> Any:
        return x * self.k

    def __call__(self, x: Any) -> Any:
        return x * self.k


class InSlots:
    __slots__ = ("_unset", "k")

    def __init__(self, k: Any) -> None:
        self.k = k

    method = Plain.method
    __call__ = Plain.__call__


class AllSlots(InSlots):
    def __init__(self, k: Any) -> None:
        self.k = self._unset = k


class Both(InSlots):
    def __init__(self, k: Any) -> None:
        self.k = k
        self.more = 1


class Valued(Plain):
    """Objects that are equal when they hold the same."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Valued) and self.k == other.k

    def __hash__(self) -> int:
        return hash(self.k)


def described(value: Any, arrays: list[Any]) -> Any:
    """All that a function can see of an argument; its arrays go to ``arrays``."""
    if is_array(value):
        arrays.append(value * 2 + len(arrays))
        return str(value.dtype), tuple(value.shape)
    name = type(value).__name__

    def each(items: Any) -> Any:
        return tuple(described(v, arrays) for v in items)

    if isinstance(value, dict):
        items = [(type(k).__name__, repr(k)) for k, _ in value.items()]
        own = each(vars(value).values()) if hasattr(value, "__dict__") else ()
        factory = getattr(value, "default_factory", None)
        return name, tuple(items), each(v for _, v in value.items()), own, factory
    if isinstance(value, (list, tuple)):
        return name, each(value)
    if isinstance(value, (set, frozenset)):
        return name, tuple(sorted((type(v).__name__, repr(v)) for v in value))
    if isinstance(value, functools.partial):
        return name, each(value.args), each(value.keywords.items())
    if hasattr(value, "__self__"):
        return name, described(value.__self__, arrays)
    if isinstance(value, enum.Enum):
        return repr(value)
    names = [n for n in ("_unset", "a", "b", "c", "k", "more") if hasattr(value, n)]
    if names:
        return name, tuple(names), each(getattr(value, n) for n in names)
    return name, repr(value)


def seen(*args: Any, **kwargs: Any) -> Any:
    arrays: list[Any] = []
    return described((args, kwargs), arrays), arrays


def assert_alike(found: Any, expected: Any) -> None:
    assert found[0] == expected[0]
    assert len(found[1]) == len(expected[1])
    for a, b in zip(found[1], expected[1], strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


def read_only(x: Any) -> Any:
    x.flags.writeable = False
    return x


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = np.memmap(tmp_path_factory.mktemp("m") / "x", "f4", "w+", shape=(4, 6))
    made[...] = X
    return made


@pytest.mark.parametrize(
    "make",
    [
        lambda x: OrderedDict(b=x, a=x),
        lambda x: {"p": [OrderedDict(b=x), OrderedDict()]},
        lambda x: Own(a=x),
        lambda x: Assigned({"a": x}, scale=3),
        lambda x: defaultdict(list, a=x),
        lambda x: {(0, "a"): x, None: x, 1.5: x, Mode.A: x, Count.ONE: x, b"b": x},
        lambda x: Slotted(x, 2),
        lambda x: Pair(Slotted(x, x), Frozen(x, None)),
        lambda x: [x, Mode.B, Count.TWO, range(3), {"a", "b"}, frozenset([None])],
        lambda x: [x, Plain(2).method, functools.partial(operator.add, 1, [2, "a"])],
        lambda x: [x, Valued(3), Path("a"), np.add, np.random],
        lambda x: x[:0],
        lambda x: [x[:, :0], x],
    ],
)
def test_arguments_that_machine_code_tells(make: Callable[[Any], Any]) -> None:
    kept = {type(v): v for v in make(X)} if isinstance(make(X), list) else {}

    def again(x: Any) -> Any:
        made = make(x)
        if not isinstance(made, list):
            return made
        other = (Path, functools.partial)  # are told by their identity
        return [kept[type(v)] if isinstance(v, other) else v for v in made]

    with entered() as backend:
        f = eq.jit(seen)
    for i in range(3):
        x = X + np.float32(i)
        argument = again(x)
        if any(isinstance(v, type(Plain(2).method)) for v in kept.values()):
            argument[1] = kept[type(Plain(2).method)].__self__.method
        assert_alike(f(argument), seen(argument))
    assert backend.calls == (2, 1)


def test_maps_of_files_are_read_as_arrays(mapped: Any) -> None:
    with entered() as backend:
        f = eq.jit(lambda x: x * 2)
    for x in (mapped, X, mapped, np.asarray(mapped)):
        found = f(x)
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, X * 2)
    assert backend.calls == (3, 1)
    shown = mapped[1:]
    shown.flags.writeable = False  # the file can be written to still
    for _ in range(3):
        np.testing.assert_array_equal(f(shown), np.asarray(shown) * 2)
    assert backend.calls == (2, 1)
    mapped += 1
    np.testing.assert_array_equal(f(shown), np.asarray(shown) * 2)
    mapped -= 1


def test_results_without_elements_are_machine_code() -> None:
    f = eq.jit(lambda x: (x[:0] + 1, x.sum(0)[:0]))
    g = eq.jit(lambda x: 3)
    for _ in range(3):
        a, b = f(X)
        assert a.shape == (0, 6) and b.shape == (0,) and g(X) == 3
    assert len(f._entry) == len(g._entry) == 1


OBJECTS = (Plain, InSlots, AllSlots, Both, Valued)


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize("how", ["held", "called", "method", "partial", "argument"])
def test_what_an_object_holds_counts(kind: Any, how: str) -> None:
    made = kind(2)
    functions: dict[str, tuple[Any, Callable[[], tuple[Any, ...]]]] = {
        "held": (lambda x, o: x * o.k, lambda: (X, made)),
        "called": (made, lambda: (X,)),
        "method": (made.method, lambda: (X,)),
        "partial": (functools.partial(made.method), lambda: (X,)),
        "argument": (lambda x, g: g(x), lambda: (X, made.method)),
    }
    function, args = functions[how]
    f = eq.jit(function)
    for k in (2, 3, 3.0, 2, True):
        made.k = k
        for _ in range(2):
            np.testing.assert_array_equal(f(*args()), X * k, strict=True)


def test_objects_that_are_equal_are_one_argument() -> None:
    f = eq.jit(lambda x, o: x * o.k)
    for k in (2, 3, 2, 3):
        np.testing.assert_array_equal(f(X, Valued(k)), X * k)
    assert len(f._lowered) == 2


def test_an_ordered_dict_counts_in_its_order() -> None:
    with entered() as backend:
        f = eq.jit(lambda p: next(iter(p.values())) - next(iter(p)).count("a"))
    p = OrderedDict(a=X, b=X + 1)
    for _ in range(2):
        p.move_to_end("a")
        np.testing.assert_array_equal(f(p), X + 1)
        p.move_to_end("b")
        np.testing.assert_array_equal(f(p), X - 1)
    assert backend.calls == (2, 2)


def test_numbers_that_python_calls_equal_are_different_arguments() -> None:
    x = np.arange(3)
    f = eq.jit(lambda x, s: x * next(iter(s)))
    g = eq.jit(lambda x, r: x + r.step + r.start)
    for a, b in (({2}, {2.0}), (frozenset({1}), frozenset({True}))):
        for s in (a, b, a, b):
            np.testing.assert_array_equal(f(x, s), x * next(iter(s)), strict=True)
    for d in ({1: x}, {1.0: x}, {True: x}):
        np.testing.assert_array_equal(f(x, d), x * next(iter(d)), strict=True)
    for r in (range(0), range(5, 1, 3), range(0), range(1, 1)):
        np.testing.assert_array_equal(g(x, r), x + r.step + r.start)


NUMBERS = st.sampled_from(
    [0, 1, True, 1.0, 0.0, -0.0, 2, None, "a", b"a", 10**20, 1j, Mode.A, Count.ONE,
     range(0), range(5, 1, 3), (1, True), (1.0,), Path("a"), slice]
)  # fmt: skip
ARRAYS = st.sampled_from(
    [
        *(lambda d=d: X.astype(d) for d in ("f4", "f8", "i4", "?")),
        *(lambda k=k: X[k].copy() for k in (0, slice(1), slice(0))),
        *(lambda: X.T, lambda: X[::-1, ::2], lambda: X[:, None], lambda: X.copy("F")),
        *(lambda: np.float32(3), lambda: np.float64(3), lambda: np.array(3.0)),
        *(lambda: read_only(X.copy()), lambda: np.broadcast_to(X[0], (4, 6))),
    ]
).map(lambda make: make())
KEYS = st.sampled_from(["a", "b", 1, True, 1.0, (1, "a"), Mode.A, Mode.B, None])


def containers(inner: Any) -> Any:
    items = st.lists(st.tuples(KEYS, inner), max_size=3)
    two = st.tuples(inner, inner)
    kinds = [dict, OrderedDict, Own, Assigned]
    return st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        *(items.map(kind) for kind in kinds),
        st.builds(lambda f, i: defaultdict(f, i), st.sampled_from([int, list]), items),
        *(
            two.map(lambda ab, k=k: k(*ab))
            for k in (Pair, Frozen, Slotted, More, Named)
        ),
        two.map(lambda ab: SimpleNamespace(a=ab[0], b=ab[1])),
    )


HELD = st.one_of(
    NUMBERS,
    st.builds(lambda kind, k: kind(k), st.sampled_from(OBJECTS), NUMBERS),
    st.builds(lambda kind, k: kind(k).method, st.sampled_from(OBJECTS), NUMBERS),
    st.builds(lambda k: functools.partial(operator.add, k, b=k), NUMBERS),
    st.builds(lambda kind, v: kind(v), st.sampled_from([set, frozenset]),
              st.lists(st.sampled_from([1, True, 1.0, "a", None]), max_size=2)),
)  # fmt: skip
ARGUMENTS = st.recursive(st.one_of(ARRAYS, HELD), containers, max_leaves=5)


def changed(value: Any, new: Any, where: int) -> None:
    """Put ``new`` somewhere into an argument, in place."""
    if isinstance(value, OrderedDict) and value and where % 2:
        value.move_to_end(next(iter(value)))
    elif isinstance(value, dict) and value:
        key = [*value][where % len(value)]
        if where % 3 == 0:
            value[key] = new
        elif where % 3 == 1:
            value[key] = value.pop(key)
        else:
            changed(value[key], new, where // 3)
    elif isinstance(value, list) and value:
        if where % 2:
            value[where % len(value)] = new
        else:
            changed(value[where % len(value)], new, where // 2)
    elif isinstance(value, tuple) and value:
        changed(value[where % len(value)], new, where // 2)
    elif isinstance(value, np.ndarray) and value.flags.writeable and value.dtype != "?":
        value += 1
    elif isinstance(value, (Pair, Slotted, SimpleNamespace)):
        value.b = new
    elif isinstance(value, OBJECTS) and not isinstance(new, np.ndarray):
        value.k = 7
    elif hasattr(value, "__self__") and isinstance(value.__self__, OBJECTS):
        value.__self__.k = 8
    elif isinstance(value, set):
        value.add(where)


@given(st.data())
@examples(40)
def test_calls_of_any_arguments_in_turn(data: Any) -> None:
    with entered():
        f = eq.jit(seen)
    calls = data.draw(
        st.lists(
            st.tuples(
                st.lists(ARGUMENTS, min_size=1, max_size=2),
                st.dictionaries(st.sampled_from("xyz"), ARGUMENTS, max_size=2),
            ),
            min_size=1,
            max_size=3,
        )
    )
    for _ in range(3):
        for args, kwargs in calls:
            for _ in range(2):
                assert_alike(f(*args, **kwargs), seen(*args, **kwargs))
        args, kwargs = data.draw(st.sampled_from(calls))
        new = data.draw(st.one_of(ARRAYS, HELD))
        changed([*args, *kwargs.values()], new, data.draw(st.integers(0, 500)))
