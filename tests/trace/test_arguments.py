"""Arguments and results, nested or not: what is traced, constant, static, and kept."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections import OrderedDict, defaultdict, namedtuple
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from evaluate import assert_same, evaluate, traced

import eqsat as eq
from eqsat.support.errors import DTypeError
from eqsat.terms.op import CONSTANT, INPUT
from eqsat.trace.call_arguments import argument_names, flatten_arguments
from eqsat.trace.trace import Spec, trace

rng = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass(frozen=True)
class Layer:
    weight: Any
    bias: Any = None
    name: str = "layer"


def test_nested_arguments_and_results() -> None:
    args = (
        {"w": [draw(3), draw(3)], "n": 2},
        Pair(draw(3), (None, "text")),
        Layer(draw(3), draw(3)),
    )

    def f(params: Any, pair: Any, layer: Any, *, scale: float) -> Any:
        assert pair.second == (None, "text") and layer.name == "layer"
        total = params["w"][0] * params["n"] + params["w"][1] * scale
        return {"sum": total, "pair": Pair(pair.first + 1, None), "layer": layer}

    got, want = traced(f, *args, scale=0.5), f(*args, scale=0.5)
    assert list(got) == ["sum", "pair", "layer"] and type(got["pair"]) is Pair
    assert got["pair"].second is None and got["layer"].name == "layer"
    assert_same(got["sum"], want["sum"])
    assert_same(got["layer"].bias, want["layer"].bias)
    names = trace(f, args, {"scale": 0.5}).names
    assert names == [
        "params['w'][0]", "params['w'][1]", "pair.first", "layer.weight", "layer.bias",
    ]  # fmt: skip


class Swapped(Pair):
    def __iter__(self) -> Any:
        return iter((self.second, self.first))


def test_a_named_tuple_with_an_iter_of_its_own() -> None:
    given = Swapped(draw(3), draw(4))
    got = traced(lambda p: Swapped(p.first + 1, p.second), given)
    assert type(got) is Swapped
    assert_same(got.first, given.first + 1)
    assert_same(got.second, given.second)


def test_containers_keep_their_types() -> None:
    ordered = OrderedDict(b=draw(2), a=draw(2))
    default = defaultdict(list, a=[draw(2)])
    got = traced(lambda o, d: (o, d, d["a"][0] + 1), ordered, default)
    assert type(got[0]) is OrderedDict and list(got[0]) == ["b", "a"]
    assert type(got[1]) is defaultdict and got[1].default_factory is list


def test_names_of_arguments() -> None:
    def f(a: Any, *rest: Any, k: Any, **more: Any) -> Any:
        return a

    x = draw(2)
    call = flatten_arguments(f, (x, [x], x), {"k": x, "extra": {"z": x}})
    names = [leaf.path for leaf in call.leaves]
    assert names == ["a", "rest[0][0]", "rest[1]", "k", "extra['z']"]
    assert [leaf.path for leaf in flatten_arguments(np.add, (x, x), {}).leaves]


def test_scalars_and_zero_dimensional_arrays() -> None:
    done = trace(lambda a, b, c: a + b + c, [np.float32(1), 2, np.array(3)])
    assert [t.shape for t in done.inputs] == [(), ()]
    assert done.names == ["a", "c"]
    assert_same(traced(lambda a, b: a * b, np.float32(2), 3.0), np.float32(6))


def test_the_key_tells_calls_apart() -> None:
    def f(*args: Any, **kwargs: Any) -> None: ...

    def key(*args: Any, **kwargs: Any) -> Any:
        return flatten_arguments(f, args, kwargs).key

    x, y = draw(2, 3), draw(2, 3)
    assert key(x, 1) == key(y, 1) and hash(key(x, 1)) == hash(key(y, 1))
    calls = [(x, 1), (x, 1.0), (x, True), (x, None), (x, "1"), (x, 0.0), (x, -0.0)]
    calls += [(x.T, 1), (x.astype(float), 1), ([x], 1), ((x,), 1), (np.array(1), x)]
    keys = [key(*c) for c in calls] + [key(x, k=1), key(x, j=1)]
    assert len(set(keys)) == len(keys)
    assert key(float("nan")) == key(float("nan"))
    x.flags.writeable = False
    assert key(x) != key(y) and key(x) == key(x)


class Named:
    """Equal by name, and no more than that."""

    def __init__(self, name: str, scale: Any) -> None:
        self.name, self.scale = name, scale

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Named({self.name!r}, {self.scale!r})"


@pytest.mark.parametrize(
    "keys",
    [
        (1, True, 1.0),
        (0.0, -0.0),
        ((0.0,), (-0.0,), (0,), (False,)),
        (Named("a", 1), Named("a", 2), Named("a", 2.0)),
        (frozenset([1]), frozenset([True])),
    ],
    ids=str,
)
def test_keys_that_python_calls_equal_are_told_apart(keys: tuple[Any, ...]) -> None:
    def f(*args: Any) -> None: ...

    x = draw(3)
    for wrap in (lambda k: {k: x}, lambda k: [OrderedDict([(k, x)])]):
        found = [flatten_arguments(f, (wrap(k),), {}).key for k in keys]
        assert len(set(found)) == len(found)
        again = [flatten_arguments(f, (wrap(k),), {}).key for k in keys]
        assert found == again


def test_a_program_is_for_what_keys_hold() -> None:
    f = eq.jit(lambda d: [key.scale * v for key, v in d.items()])
    x, key = draw(3), Named("a", 2)
    for _ in range(2):
        for scale in (1, 2, 3):
            (y,) = f({Named("a", scale): x})
            np.testing.assert_array_equal(y, scale * x)
    f({key: x})
    key.scale = 5
    np.testing.assert_array_equal(f({key: x})[0], 5 * x)


def test_a_spec_stands_for_an_array() -> None:
    done = trace(lambda x, w: x @ w, [Spec((2, 3), "float32"), Spec((3, 4), "float32")])
    assert done.outputs[0].type == (np.dtype(np.float32), (2, 4))
    assert Spec(3, "bfloat16") == Spec([3], ml_dtypes.bfloat16)
    with pytest.raises(DTypeError):
        Spec((2,), "G")


def test_constants() -> None:
    w, frozen, closed, x = draw(3), draw(3), draw(3), draw(3)
    frozen.flags.writeable = False

    def f(x: Any, w: Any, frozen: Any) -> Any:
        return x * w + frozen - closed

    for constants in (["w"], [1], ("w", 1)):
        done = trace(f, (x, w, frozen), constants=constants)
        assert done.names == ["x"] and len(done.constants) == 2
        held = {t.attrs[0] for t in done.graph.terms if t.op is CONSTANT}
        assert held == {id(w), id(frozen), id(closed)}
        assert_same(evaluate(done.outputs, [x])[0], f(x, w, frozen))
    assert trace(f, (x,), {"frozen": w, "w": frozen}, constants=[2]).names == ["x"]


def test_a_read_only_view_of_a_writable_array_is_an_input() -> None:
    x = draw(3)
    view = np.broadcast_to(x, (2, 3))
    assert not view.flags.writeable
    assert trace(lambda x: x, [view]).names == ["x"]


def test_results_that_are_not_traced() -> None:
    c = draw(2)
    got = traced(lambda x: (c, 3, None, "s", np.float64(2), x.shape, x.dtype), draw(3))
    assert got[1:4] == (3, None, "s") and got[5:] == ((3,), np.dtype(np.float32))
    assert_same(got[0], c)
    assert traced(lambda: {"a": 1}) == {"a": 1}


def test_inputs_stay_in_order_also_when_unused() -> None:
    done = trace(lambda a, b, c: c, [draw(1), draw(2), draw(3)])
    assert [t.shape for t in done.inputs] == [(1,), (2,), (3,)]
    assert all(t.op is INPUT and t.attrs == (i,) for i, t in enumerate(done.inputs))
    assert done.outputs == done.inputs[2:]


def test_an_exception_passes_through_unchanged() -> None:
    error = KeyError("mine")

    def f(x: Any) -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        trace(f, [draw(2)])
    assert caught.value is error


def test_terms_know_their_source_line() -> None:
    done = trace(lambda x: np.tanh(x), [draw(2)])
    source = done.outputs[0].source
    assert source is not None and source.file == __file__
    assert "np.tanh(x)" in source.text


def test_arrays_of_other_libraries() -> None:
    class Foreign:
        __module__ = "mlx.core"
        shape, dtype = (2, 3), "mlx.core.bfloat16"

        def __dlpack__(self) -> Any: ...

    done = trace(lambda x: x + 1, [Foreign()])
    assert done.outputs[0].type == (np.dtype(ml_dtypes.bfloat16), (2, 3))


def test_memory_mapped_arrays(tmp_path: Any) -> None:
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(2, 3))
    assert_same(traced(lambda a: a + x, draw(2, 3)).shape, (2, 3))
    assert trace(lambda a: a + 1, [x]).names == ["a"]


def test_a_call_leaves_no_cycle_that_holds_its_arrays() -> None:
    x = np.ones(3)
    alive = weakref.ref(x)
    gc.disable()
    try:
        flatten_arguments(lambda p: p, ({"x": [x]},), {})
        del x
        assert alive() is None
    finally:
        gc.enable()


def named(a: Any, b: Any, c: Any = 1, *rest: Any) -> None: ...


class Caller:
    def __call__(self, a: Any, b: Any) -> None: ...

    def method(self, a: Any, b: Any) -> None: ...


@pytest.mark.parametrize(
    ("fn", "names"),
    [
        (named, ("a", "b", "c", "rest[0]")),
        (partial(named, 1), ("b", "c", "rest[0]")),
        (partial(named, 1, 2, 3, 4), ("rest[0]", "rest[1]")),
        (partial(named, 1, c=2), ("b",)),
        (partial(partial(named, 1), 2), ("c",)),
        (partial(Caller(), 1), ("b",)),
        (partial(Caller().method, 1), ("b",)),
        (Caller(), ("a", "b")),
    ],
)
def test_names_of_arguments_given_by_place(fn: Any, names: tuple[str, ...]) -> None:
    assert argument_names(fn, len(names)) == names


def test_calls_past_python_tell_zeros_apart() -> None:
    f = eq.jit(lambda d: [np.copysign(v, key[0]) for key, v in d.items()])
    x = np.abs(draw(3))
    for _ in range(3):
        for zero in (0.0, -0.0):
            np.testing.assert_array_equal(f({(zero,): x})[0], np.copysign(x, zero))
