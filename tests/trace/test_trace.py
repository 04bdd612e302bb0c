"""Tracing a function and evaluating its terms gives what NumPy gives."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import numbers
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import expressions
import ml_dtypes
import numpy as np
import pytest
import scipy.special as sp
from evaluate import assert_same, evaluate, traced
from sizes import some

import eqsat as eq
from eqsat.backends.interpret import interpret
from eqsat.define import pointwise
from eqsat.numpy_api import Operators, supported_functions
from eqsat.support.errors import EqsatError, TraceError
from eqsat.terms.op import Op
from eqsat.trace import Spec, aliasing
from eqsat.trace.trace import trace

rng = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


ARRAYS = expressions.arrays()
EXPRESSIONS = {
    name: [text.strip() for text in texts.split(";")]
    for name, texts in vars(expressions).items()
    if name.isupper()
}
DTYPES = [np.dtype(c) for c in "?bBhHiIlLefd"]


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


@pytest.mark.parametrize("group", EXPRESSIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*fix:DeprecationWarning")
def test_expressions(group: str) -> None:
    known, arrays = {"np": np, "sp": sp, "C": draw(3, 4)}, ARRAYS.values()
    for text in EXPRESSIONS[group]:
        f = eval(f"lambda {', '.join(ARRAYS)}: {text}", known)
        try:
            assert_same(traced(f, *arrays), f(*arrays))
        except Exception as error:
            error.add_note(text)
            raise


def test_every_supported_function_is_in_an_expression() -> None:
    text = "\n".join(text for group in EXPRESSIONS.values() for text in group)
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
UNARY = "negative absolute sign square sqrt exp floor isnan logical_not invert".split()


@pytest.mark.parametrize("name", BINARY)
def test_dtypes_of_two_arrays(name: str) -> None:
    f = getattr(np, name)
    for a, b in some([*itertools.product(DTYPES, DTYPES)], 30):
        x, y = small(a, 2, 3), small(b, 3)
        assert Outcome(traced, f, x, y) == Outcome(f, x, y), (a, b)


@pytest.mark.sampled(6)
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("np.take_along_axis(x, i, 5)", "axis 5 is out of bounds for 2"),
        ("np.linalg.matrix_power(x, 1.5)", "n=1.5, expected a whole number"),
        ("np.linalg.norm(x, 'fro', axis=0)", "ord='fro' of a vector"),
        ("np.linalg.norm(x[0], 'nuc')", "ord='nuc' of a vector"),
        ("np.linalg.norm(x[None], 2)", "of 3 axes, expected one or two"),
        ("np.partition(x, 0, axis=4)", "axis 4 is out of bounds for 2"),
        ("np.take(x, i, axis=7, mode='clip')", "axis 7 is out of bounds for 2"),
        ("np.linalg.cond(x[0])", "expected"),
        ("np.linalg.qr(x[0])", "a has shape \\(3,\\), expected two axes"),
        ("np.linalg.svd(x[0])", "a has shape \\(3,\\), expected two axes"),
        ("np.linalg.multi_dot([x])", "1 array, expected two or more"),
        ("np.select([x > 0], [x, x])", "2 choices for 1 condition"),
        ("np.diff(x, n=-1)", "n=-1, expected an int from 0 on"),
        ("np.round(x, 1.5)", "decimals=1.5, expected an int"),
        ("x.round(1.5)", "decimals=1.5, expected an int"),
        ("np.rot90(x, axes=(0, -2))", "Axes must be different"),
        ("np.vsplit(x[0], 3)", "ary has shape \\(3,\\), expected two axes"),
        ("np.digitize(x, np.array([1.0, 3, 2]))", "monotonically"),
    ],
)
def test_what_numpy_refuses_is_refused(text: str, message: str) -> None:
    f = eval(f"lambda x, i: {text}", {"np": np})
    x, i = draw(3, 3), np.zeros((1, 3), int)
    with pytest.raises((ValueError, TypeError, IndexError, np.linalg.LinAlgError)):
        f(x, i)
    with pytest.raises(EqsatError, match=message):
        traced(f, x, i)


COMPARISONS = "less less_equal greater greater_equal equal not_equal".split()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_uint64_and_signed_integers_are_compared_by_value(
    name: str, backend: str
) -> None:
    f = getattr(np, name)
    x = np.array([0, 1, 5, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    y = np.array([0, -1, 5, 2**63 - 1, -(2**63), -1])
    known = [np.int8(-1), np.int64(5), np.array(-(2**63)), np.array([-1])]
    pairs = [(x, y), (x, y.astype(np.int8)), (x[:, None], y)]
    pairs += [(a, b) for b in known for a in (x, x[-1:])]
    for a, b in some([*pairs, (y, np.uint64(2**64 - 1))], 5):
        both = eq.jit(lambda a, b: (f(a, b), f(b, a)), backend=backend)(a, b)
        one = eq.jit(lambda a, b=b: (f(a, b), f(b, a)), backend=backend)(a)
        for got in (both, one):
            for g, w in zip(got, (f(a, b), f(b, a)), strict=True):
                np.testing.assert_array_equal(g, w, strict=True)


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


# -- the traced value itself -----------------------------------------------------------


def test_what_is_known_while_tracing() -> None:
    def f(x: Any) -> Any:
        assert x.shape == np.shape(x) == (3, 4) and len(x) == 3
        assert x.ndim == np.ndim(x) == 2 and x.size == np.size(x) == 12
        assert x.dtype == np.float32 and x.nbytes == 48 and x.itemsize == 4
        assert repr(x) == f"{x}" == "Tracer(shape=(3, 4), dtype=float32)"
        assert copy.copy(x).term is copy.deepcopy(x).term is x.term
        assert isinstance(x, np.ndarray) and hasattr(x, "tofile")
        assert np.result_type(x, np.float64) == np.float64
        a, *rest = x
        assert a.shape == (4,) and len(rest) == 2
        assert x in [x]
        return x

    trace(f, [draw(3, 4)])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: f"{x[0]:.3f}",
        lambda x: f"{x[0]}",
        lambda x: {"loss": str(x.sum()), "x": x},
        lambda x: [", ".join(map(str, x))],
        lambda x: f"{x.mean():>8}",
        lambda x: pickle.dumps(x),
    ],
)
def test_texts_of_values_that_are_not_known(f: Callable[[Any], Any]) -> None:
    with pytest.raises(TraceError, match="not known while tracing"):
        eq.jit(f)(draw(3))


def test_what_a_traced_value_is_an_instance_of() -> None:
    """What NumPy's array or number is, in the user's code."""

    def f(x: Any) -> Any:
        made = np.zeros(3)
        written = np.zeros(3)
        written[0] = x.sum()
        kinds = (np.ndarray, np.generic, np.float64, np.floating, float, int, bool)
        kinds += (np.bool_, numbers.Number, Sequence, list)
        values = (x, x[0, 0], x[0, 0] > 1, x.sum(), x[..., 0, 0], made, written)
        values += (x.astype("f4")[0, 0], np.int64(x[0, 0]), np.argmax(x), x + 1)
        told = [[isinstance(v, kind) for kind in kinds] for v in values]
        told.append([np.isscalar(v) for v in values])
        match x[0, 0]:
            case np.ndarray():
                told.append(["array"])
            case float():
                told.append(["float"])
        return str(told)

    x = draw(3, 4).astype(np.float64)
    assert eq.jit(f)(x) == f(x)


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


def _looks(monkeypatch: pytest.MonkeyPatch, n: int) -> float:
    """How often an array is looked into for its pieces, for each of ``n`` writes."""
    looked = [0]
    pieces = aliasing._pieces

    def counted(*args: Any) -> Any:
        looked[0] += 1
        return pieces(*args)

    monkeypatch.setattr(aliasing, "_pieces", counted)

    def recurrence(x: Any) -> Any:
        y = np.empty_like(x)
        y[:, 0] = x[:, 0]
        for j in range(1, n):
            y[:, j] = x[:, j] + y[:, j - 1]
        return y

    made = trace(recurrence, [Spec((3, n), "float64")])
    monkeypatch.undo()
    (y,) = interpret(made.outputs, [np.ones((3, n))])
    assert np.array_equal(y, np.ones((3, n)).cumsum(1))
    return looked[0] / n


def test_a_write_looks_at_few_pieces_of_what_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = _looks(monkeypatch, 10)
    assert few <= _looks(monkeypatch, 160) <= 1.5 * few + 1


def test_arrays_that_are_gone_are_not_asked_again() -> None:
    asked = []

    def many(x: Any) -> Any:
        for i in range(50):
            x[i] = x[i] + 1
            asked.append(len(x.memory._shown))
        return x.copy()

    trace(many, [Spec((50, 3), "float64")])
    assert max(asked) < 8


def test_two_ops_of_one_name_in_one_program_are_refused() -> None:
    """By name they are one: each computes alone, as when a cell is run again."""
    two, three = (pointwise("scaled_here", lambda x, c=c: x * c) for c in (2.0, 3.0))
    x = np.ones(3)
    with pytest.raises(eq.EqsatError, match="op 'scaled_here' was defined twice"):
        eq.jit(lambda x: two(x) + three(x))(x)
    assert eq.jit(lambda x: two(x) + 1)(x).tolist() == [3.0] * 3
    assert eq.jit(lambda x: three(x) + 1)(x).tolist() == [4.0] * 3
