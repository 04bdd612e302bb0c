"""Tracing a function and evaluating its terms gives what NumPy gives."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import warnings
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import expressions
import ml_dtypes
import numpy as np
import pytest
import scipy.special as sp
from evaluate import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

from eqsat.errors import DTypeError, EqsatError, TraceError
from eqsat.numpy_api import Operators, supported_functions
from eqsat.op import CONSTANT, INPUT, Op
from eqsat.trace import Spec, flatten_arguments, trace

rng = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


ARRAYS = {
    "x": draw(3, 4),
    "y": draw(2, 3, 4),
    "v": draw(4),
    "m": draw(4, 5),
    "i": np.array([2, 0, 1]),
    "b": rng.random((3, 4)) > 0.5,
    "h": draw(3, 4).astype(np.float16),
}
EXPRESSIONS = [
    text
    for name, texts in vars(expressions).items()
    if name.isupper()
    for text in texts
]
DTYPES = [np.dtype(c) for c in "?bBhHiIlLefd"]


def traced(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What ``f`` computes when it is traced and its terms are evaluated."""
    done = trace(f, args, kwargs)
    arrays = flatten_arguments(f, args, kwargs).arrays
    return done.unflatten(evaluate(done.outputs, arrays))


def assert_same(got: Any, want: Any, rtol: float = 2e-6) -> None:
    """Equal structure, shapes, dtypes, and values up to rounding."""
    if isinstance(want, (tuple, list)):
        assert type(got) is type(want) and len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert_same(g, w, rtol)
        return
    g, w = np.asarray(got), np.asarray(want)
    assert (g.dtype, g.shape) == (w.dtype, w.shape)
    if w.dtype.kind in "biuUO":
        np.testing.assert_array_equal(g, w)
    else:
        near = 2e-3 if w.dtype.itemsize == 2 else rtol
        g, w = g.astype(np.float64), w.astype(np.float64)
        np.testing.assert_allclose(g, w, rtol=near, atol=near)


@dataclasses.dataclass
class Outcome:
    """What a call gives, or the fact that it is refused; to be compared by ``==``."""

    value: Any

    def __init__(self, f: Callable[..., Any], *args: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self.value = f(*args)
            except (TypeError, ValueError, OverflowError):
                self.value = "refused"

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Outcome)
        if isinstance(self.value, str) or isinstance(other.value, str):
            return type(self.value) is type(other.value)
        assert_same(self.value, other.value, 1e-5)
        return True


def small(dtype: np.dtype[Any], *shape: int) -> np.ndarray:
    return rng.integers(1, 5, shape).astype(dtype)


@pytest.mark.parametrize("text", EXPRESSIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_expression(text: str) -> None:
    known = {"np": np, "sp": sp, "C": draw(3, 4)}
    f = eval(f"lambda {', '.join(ARRAYS)}: {text}", known)
    assert_same(traced(f, *ARRAYS.values()), f(*ARRAYS.values()))


def test_every_supported_function_is_in_an_expression() -> None:
    text = "\n".join(EXPRESSIONS)
    pointwise = {f"np.{op.name}" for op in Op.registry.values() if op.ufunc}
    functions = set(supported_functions()) - pointwise
    assert [f for f in sorted(functions) if f"{f}(" not in text] == []


UFUNCS = sorted({op.name for op in Op.registry.values() if op.ufunc})


@pytest.mark.parametrize("name", UFUNCS)
def test_every_ufunc(name: str) -> None:
    f = getattr(np, name)
    values = [small(np.dtype(d), 2, 3) for d in ("f4", "i4")]
    for v in values:
        args = (v, v[:1])[: f.nin]
        assert Outcome(traced, f, *args) == Outcome(f, *args)


# -- dtypes ----------------------------------------------------------------------------

BINARY = (
    "add subtract multiply divide floor_divide remainder power maximum fmin arctan2 "
    "hypot copysign less equal logical_xor bitwise_and".split()
)
MIXED = [("i", "u"), ("u", "i")]
UINT64 = np.dtype(np.uint64)
UNARY = "negative absolute sign square sqrt exp floor isnan logical_not invert".split()


@pytest.mark.parametrize("name", BINARY)
def test_dtypes_of_two_arrays(name: str) -> None:
    f = getattr(np, name)
    for a, b in itertools.product(DTYPES, DTYPES):
        if name in ("less", "equal") and (a.kind, b.kind) in MIXED and UINT64 in (a, b):
            continue  # Refused: NumPy compares these with a loop of their own.
        x, y = small(a, 2, 3), small(b, 3)
        assert Outcome(traced, f, x, y) == Outcome(f, x, y), (a, b)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(
    "scalar", [2, 3.5, True, np.float32(2), np.int8(3), np.float64(1.5), np.array(2.0)]
)
def test_dtypes_of_an_array_and_a_scalar(name: str, scalar: Any) -> None:
    f = getattr(np, name)
    for a in DTYPES:
        x = small(a, 2, 3)
        for g in (lambda x: f(x, scalar), lambda x: f(scalar, x)):
            assert Outcome(traced, g, x) == Outcome(g, x), (a, scalar)


@pytest.mark.parametrize("name", UNARY)
def test_dtypes_of_one_array(name: str) -> None:
    f = getattr(np, name)
    for a in DTYPES:
        x = small(a, 2, 3)
        assert Outcome(traced, f, x) == Outcome(f, x), a


@pytest.mark.parametrize("name", "sum prod mean var max argmin any".split())
def test_dtypes_of_reductions(name: str) -> None:
    f = getattr(np, name)
    for a in DTYPES:
        x = small(a, 2, 3)
        assert_same(traced(lambda x: f(x, axis=1), x), f(x, axis=1), 1e-5)


def test_bfloat16_takes_bare_numbers_as_they_are() -> None:
    x = np.ones((2, 3), ml_dtypes.bfloat16)
    for f in (lambda x: x * 2.5, lambda x: 1 + x, lambda x: np.maximum(x, 0.0)):
        assert traced(f, x).dtype == x.dtype
    assert traced(lambda x: x + np.float32(1), x).dtype == np.float32


# -- indexing --------------------------------------------------------------------------


RANKS = st.integers(1, 4)


@st.composite
def index_arrays(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A key with one or more integer arrays or masks among ints, slices and None."""
    ndim = draw(st.integers(1, 2))
    dims = tuple(draw(st.sampled_from([1, 2])) for _ in range(ndim))
    key: list[Any] = []
    head = draw(st.integers(0, len(shape)))
    tail = (
        draw(st.integers(0 if head else 1, len(shape) - head))
        if head < len(shape)
        else 0
    )
    for axis in (*range(head), *range(len(shape) - tail, len(shape))):
        n = shape[axis]
        if axis == len(shape) - tail and (
            head + tail < len(shape) or draw(st.booleans())
        ):
            key.append(Ellipsis)
        ints = st.integers(-n, n - 1)
        kind = draw(st.sampled_from("array array list int slice mask".split()))
        if kind == "array":
            values = [draw(ints) for _ in range(int(np.prod(dims)))]
            key.append(np.array(values).reshape(dims))
        elif kind == "list":
            key.append([draw(ints)])
        elif kind == "int":
            key.append(draw(ints))
        elif kind == "mask":
            key.append(np.arange(n) == draw(st.integers(0, n - 1)))
        else:
            key.append(draw(st.slices(n)))
        if draw(st.integers(0, 5)) == 0:
            key.append(None)
    return tuple(key)


@given(st.data())
def test_basic_indices(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.permutations([1, 2, 3, 4])))[: data.draw(RANKS)]
    x = np.arange(np.prod(shape)).reshape(shape)
    key = data.draw(basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    assert_same(traced(lambda x: x[key], x), x[key])


@given(st.data())
@settings(max_examples=200)
def test_index_arrays(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.permutations([2, 3, 4, 5])))[: data.draw(RANKS)]
    x = np.arange(np.prod(shape)).reshape(shape)
    key = data.draw(index_arrays(shape))
    assert_same(traced(lambda x: x[key], x), x[key])
    places = [
        i for i, k in enumerate(key) if isinstance(k, np.ndarray) and k.dtype != bool
    ]

    def by_traced_arrays(x: Any, *arrays: Any) -> Any:
        new = list(key)
        for i, a in zip(places, arrays, strict=True):
            new[i] = a
        return x[tuple(new)]

    assert_same(traced(by_traced_arrays, x, *(key[i] for i in places)), x[key])


def test_traced_indices_out_of_bounds_are_errors_when_they_run() -> None:
    x = np.ones((3, 4))
    for rows, columns in (([0, 3], [0, 0]), ([0, -4], [0, 0]), ([0, 1], [0, 4])):
        with pytest.raises(IndexError):
            traced(lambda x, i, j: x[i, j], x, np.array(rows), np.array(columns))


def test_a_slice_of_everything_is_the_array_itself() -> None:
    done = trace(lambda x: (x[:], x[...], x[()], x[:, 0:4], +x, x.copy()), [draw(3, 4)])
    assert set(done.outputs) == set(done.inputs)


# -- arguments and results -------------------------------------------------------------

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


def test_a_spec_stands_for_an_array() -> None:
    done = trace(lambda x, w: x @ w, [Spec((2, 3), "float32"), Spec((3, 4), "float32")])
    assert done.outputs[0].type == (np.dtype(np.float32), (2, 4))
    assert Spec(3, "bfloat16") == Spec([3], ml_dtypes.bfloat16)
    with pytest.raises(DTypeError):
        Spec((2,), complex)


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
        shape, dtype = (2, 3), "mlx.core.bfloat16"

        def __dlpack__(self) -> Any: ...

    done = trace(lambda x: x + 1, [Foreign()])
    assert done.outputs[0].type == (np.dtype(ml_dtypes.bfloat16), (2, 3))


def test_memory_mapped_arrays(tmp_path: Any) -> None:
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(2, 3))
    assert_same(traced(lambda a: a + x, draw(2, 3)).shape, (2, 3))
    assert trace(lambda a: a + 1, [x]).names == ["a"]


# -- the traced value itself -----------------------------------------------------------


def test_what_is_known_while_tracing() -> None:
    def f(x: Any) -> Any:
        assert x.shape == np.shape(x) == (3, 4) and len(x) == 3
        assert x.ndim == np.ndim(x) == 2 and x.size == np.size(x) == 12
        assert x.dtype == np.float32 and x.nbytes == 48 and x.itemsize == 4
        assert repr(x) == f"{x}" == f"{x:.3f}" == "Tracer(shape=(3, 4), dtype=float32)"
        assert copy.copy(x) is copy.deepcopy(x) is x
        assert not isinstance(x, np.ndarray) and not hasattr(x, "sort")
        assert np.result_type(x, np.float64) == np.float64
        a, *rest = x
        assert a.shape == (4,) and len(rest) == 2
        assert x in [x]
        return x

    trace(f, [draw(3, 4)])


def test_equal_expressions_are_one_term() -> None:
    done = trace(lambda x: (np.exp(x) + 1, np.exp(x) + 1, np.exp(x) + 1.0), [draw(3)])
    assert done.outputs[0] is done.outputs[1]


def test_random_numbers_are_drawn_once() -> None:
    done = trace(lambda x: x + np.random.default_rng(1).random(3), [draw(3)])
    x = draw(3)
    assert_same(evaluate(done.outputs, [x]), evaluate(done.outputs, [x]))


class Record(Operators):
    """A traced value without shape, dtype or rank, as the patterns of rules are."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def lift(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Record:
        settled = op.settle(attrs, None)
        shown = [a.text if isinstance(a, Record) else repr(a) for a in args]
        shown += [f"{k}={v}" for k, v in settled.items()]
        return Record(f"{op.name}({', '.join(shown)})")


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (lambda x, y: x + y, "add(x, y)"),
        (lambda x, y: 2 - x, "subtract(2, x)"),
        (lambda x, y: x @ y, "matmul(x, y)"),
        (lambda x, y: x**2, "square(x)"),
        (lambda x, y: x**-0.5, "power(x, -0.5)"),
        (lambda x, y: x < y, "less(x, y)"),
        (lambda x, y: np.exp(x), "exp(x)"),
        (lambda x, y: np.matmul(x, y), "matmul(x, y)"),
        (lambda x, y: np.float32(2) * x, "multiply(np.float32(2.0), x)"),
        (lambda x, y: x.mT, "transpose(x, perm=(-1, -2))"),
        (lambda x, y: x.mean(-1, keepdims=True), "mean(x, axis=(-1,))"),
        (lambda x, y: np.sum(x, axis=-2, keepdims=True), "sum(x, axis=(-2,))"),
        (lambda x, y: x.max(axis=(-1, -2), keepdims=True), "max(x, axis=(-2, -1))"),
        (lambda x, y: np.where(x > 0, x, y), "where(greater(x, 0), x, y)"),
        (lambda x, y: x.clip(0, 1), "minimum(maximum(x, 0), 1)"),
        (lambda x, y: np.swapaxes(x, -1, -2), "transpose(x, perm=(-1, -2))"),
        (lambda x, y: sp.erf(x), "erf(x)"),
        (lambda x, y: sp.expit(x), "sigmoid(x)"),
    ],
)
def test_operators_need_no_shape(f: Callable[..., Record], text: str) -> None:
    assert f(Record("x"), Record("y")).text == text


def test_a_value_of_another_trace_is_refused() -> None:
    kept: list[Any] = []
    trace(kept.append, [draw(3)])
    with pytest.raises(EqsatError, match="belongs to another trace"):
        trace(lambda x: x + kept[0], [draw(3)])
    with pytest.raises(TraceError, match="result was made while tracing another"):
        trace(lambda x: kept[0], [draw(3)])
