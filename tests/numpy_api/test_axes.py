"""Axes: what NumPy takes as one is taken, with its result, and what it refuses is
refused by name. NumPy is the judge of every function, method and ufunc."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from evaluate import assert_same, traced
from sizes import some

import eqsat as eq
from eqsat.numpy_api import supported_functions
from eqsat.support import EqsatError, ShapeError, TraceError

Function = Callable[..., Any]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


class Index:
    """What is an integer to Python, and nothing more."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __repr__(self) -> str:
        return f"Index({self.value})"


AXES: list[Any] = [
    *(None, 0, 1, 2, -1, -2, -3, 2**70, Index(0), Index(-1), np.int8(0), np.uint64(1)),
    *(np.array(0), np.array([0]), np.array([0, 1]), np.array(True), np.array(1.0)),
    *(True, False, np.True_, 1.0, 0.0, np.nan, np.float64(0), 1j, "0", "", b"0"),
    *((), (0,), (1,), (2,), (-1,), (0, 1), (1, 0), (0, 0), (0, -2), (0, 1, 2)),
    *([], [0], [1], [0, 1], [1.0], range(1), {0}, slice(None), ..., (None,)),
    *((0.0,), (1, 0.0), (True,), (True, 0), (np.int8(0),), ((0,), (1,)), ((0,), (0,))),
]
SHAPES = [(), (3,), (2, 3)]
NAMES = "axis axes axis1 axis2 axisa axisb axisc source destination".split()


def _of(name: str) -> Any:
    found: Any = np
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def _call(function: Function, key: str, *more: Any, **options: Any) -> Function:
    """``function`` of an array and an axis, the others being given."""
    return lambda x, axis: function(x, *more, **(options | {key: axis}))


ARGUMENTS: dict[str, dict[str, Any]] = {
    **{f"np.{n}": {"kth": 0} for n in ("partition", "argpartition")},
    **{f"np.{n}": {"indices_or_sections": 1} for n in ("split", "array_split")},
    **{f"np.{n}percentile": {"q": 30} for n in ("", "nan")},
    **{f"np.{n}quantile": {"q": [0.3, 0.5]} for n in ("", "nan")},
    **{f"np.{n}": {"stop": 5.0, "num": 3} for n in ("linspace", "logspace")},
    "np.delete": {"obj": 0},
    "np.lib.stride_tricks.sliding_window_view": {"window_shape": 1},
    "np.moveaxis": {"source": 0, "destination": 0},
    "np.repeat": {"repeats": 2},
    "np.roll": {"shift": 1},
    "np.swapaxes": {"axis1": 0, "axis2": 0},
    "np.take": {"indices": [0]},
}
"""What functions need beside an array and an axis."""
SPECIAL: dict[str, Callable[[Function, str], Function]] = {
    **{f"np.{n}": lambda f, k: lambda x, a: f([x, x], **{k: a})
       for n in ("concatenate", "stack")},
    **{f"np.{n}": lambda f, k: lambda x, a: f(x, x + 1, **{k: a})
       for n in ("append", "cross", "linalg.cross", "linalg.tensordot", "tensordot",
                 "linalg.vecdot", "vecdot", "matmul", "vecmat")},
    "np.compress": lambda f, k: lambda x, a: f([True], x, **{k: a}),
    "np.linalg.tensorsolve": lambda f, k: lambda x, a: f(
        x * np.eye(3) if x.ndim == 1 else x[:, :2], np.ones(2 + (x.ndim == 1)), **{k: a}
    ),
    "np.matvec": lambda f, k: lambda x, a: f(x, x[..., 0], **{k: a}),
    "np.take_along_axis": lambda f, k: lambda x, a: f(
        x, np.zeros(x.shape, int), **{k: a}
    ),
}  # fmt: skip


def _functions() -> Iterator[tuple[str, Function]]:
    for name in supported_functions():
        function = _of(name) if name != "np.fix" else np.fix
        try:
            parameters = inspect.signature(function).parameters
        except ValueError:
            continue
        for key in [k for k in NAMES if k in parameters]:
            if name in SPECIAL:
                yield f"{name} {key}", SPECIAL[name](function, key)
            else:
                given = ARGUMENTS.get(name, {})
                yield f"{name} {key}", _call(function, key, **given)


def _ufuncs() -> Iterator[tuple[str, Function]]:
    for name in "add multiply maximum minimum logical_and logical_or".split():
        yield f"np.{name}.reduce", _call(getattr(np, name).reduce, "axis")
    for name in "add multiply maximum minimum fmax fmin".split():
        yield f"np.{name}.accumulate", _call(getattr(np, name).accumulate, "axis")


def _changed(method: str, *args: Any) -> Function:
    def change(x: Any, axis: Any) -> Any:
        x = x.copy()
        getattr(x, method)(*args, axis=axis)
        return x

    return change


METHODS: dict[str, Function] = {
    **{n: lambda x, a, n=n: getattr(x, n)(a)
       for n in ("sum prod max min mean std var all any argmax argmin cumsum cumprod "
                 "argsort squeeze transpose").split()},
    "compress": lambda x, a: x.compress([True], axis=a),
    "diagonal": lambda x, a: x.diagonal(0, a, 1),
    "partition": _changed("partition", 0),
    "repeat": lambda x, a: x.repeat(2, a),
    "sort": _changed("sort"),
    "swapaxes": lambda x, a: x.swapaxes(0, a),
    "take": lambda x, a: x.take([0], a),
    "trace": lambda x, a: x.trace(0, 0, a),
    "transpose to the front": lambda x, a: x.transpose(a, 0),
}  # fmt: skip
MORE: dict[str, Function] = {
    "sum of a list": lambda x, a: np.sum([x, x], axis=a),
    "sum, kept": lambda x, a: np.sum(x, a, keepdims=True),
    "sum of integers": lambda x, a: np.sum(x > 2, a),
    "max of a part": lambda x, a: np.max(x, a, initial=0, where=x > 1),
    "average with weights": lambda x, a: np.average(x, a, np.ones(x.shape[:1])),
    "diff from 0": lambda x, a: np.diff(x, axis=a, prepend=0),
    "Frobenius norm": lambda x, a: np.linalg.norm(x, "fro", a),
    "largest sum": lambda x, a: np.linalg.norm(x, np.inf, a),
    "repeats": lambda x, a: np.repeat(x, [2], a),
    "concatenate an array": lambda x, a: np.concatenate(x, a),
    "linspace of a number": lambda x, a: np.linspace(0, x, 3, axis=a),
}
CALLS = {**dict(_functions()), **dict(_ufuncs()), **METHODS, **MORE}


REFUSED = {("largest sum", (True, 0)), ("np.linalg.tensorsolve axes", (0, 0))}
"""What NumPy takes by chance: a bool for norms of matrices that ``ord`` names alone, an
axis that is moved twice. Here these are errors that say so."""


def _whole(axis: Any) -> bool:
    """Whether an axis, or each of several, is an integer or None. ``linalg.norm`` and
    ``linspace`` take 1.0 and more."""
    several = axis if isinstance(axis, (tuple, list, set, range)) else (axis,)
    return all(a is None or _is_index(a) for a in several)


def _is_index(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return isinstance(value, np.ndarray) and value.dtype.kind in "iu"
    return True


def _compare(f: Function, axis: Any, x: Any) -> str:
    """How NumPy and a traced function differ; "" where they do not."""
    want: Any
    try:
        want = f(x.copy(), axis)
    except Exception as error:
        want = error
    try:
        found = traced(lambda x: f(x, axis), x)
    except EqsatError as error:
        named = "not supported in a traced function" in str(error)
        if isinstance(want, Exception) or not _whole(axis) or named:
            return ""
        return f"{error}; NumPy: {want}"
    except Exception as error:
        return f"no error of eqsat's: {error!r}"
    if isinstance(want, Exception):
        return f"{found}; NumPy: {want!r}"
    assert_same(found, want)
    return ""


def _is_known(name: str, axis: Any) -> bool:
    return isinstance(axis, tuple) and (name, axis) in REFUSED


@pytest.mark.parametrize("name", CALLS)
def test_axes_are_those_of_numpy(name: str) -> None:
    shapes = [(), (3,), (3, 3)] if "cross" in name else SHAPES
    for shape in shapes:
        x = np.arange(1.0, 1 + np.prod(shape, dtype=int)).reshape(shape)
        for axis in some(AXES, 20, shape):
            differs = _compare(CALLS[name], axis, x)
            assert not differs or _is_known(name, axis), (axis, shape, differs)


def test_places_of_rollaxis() -> None:
    for start in range(-4, 5):
        for shape in SHAPES:
            x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
            assert _compare(lambda x, a: np.rollaxis(x, 0, a), start, x) == ""


def test_every_function_with_an_axis_is_compared() -> None:
    """As many as this or more, so that none is lost without a word."""
    assert len(dict(_functions())) >= 85


@pytest.mark.parametrize(
    ("f", "kind", "message"),
    [
        (lambda x: np.sum(x, True), TraceError, "np.sum: axis True is not taken"),
        (lambda x: x.max(1.0), TraceError, "np.max: axis 1.0 is not taken: 'float'"),
        (lambda x: np.argmax(x, (0, 1)), TraceError, r"argmax: axis \(0, 1\) is not"),
        (lambda x: np.sum(x, [0]), TraceError, r"np.sum: axis \[0\] is not taken"),
        (lambda x: np.sum(x, (0, 0)), ShapeError, r"axis \(0, 0\) is not taken: dup"),
        (lambda x: np.mean(x[0, 0], 0), IndexError, "axis 0 is out of bounds for 0"),
        (lambda x: np.argsort(x[0, 0], 1), ShapeError, "axis 1 is out of bounds for 1"),
        (lambda x: eq.ops.argmax(x, (0, 1)), TraceError, r"argmax: axis \(0, 1\), exp"),
        (lambda x: eq.ops.sum(x, 1.0), TraceError, "sum: axis 1.0, expected an int"),
    ],
)
def test_messages_name_the_function_and_the_line(
    f: Function, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as found:
        eq.jit(f)(np.ones((2, 3)))
    assert isinstance(found.value, EqsatError)
    assert "test_axes.py" in str(found.value)


def test_a_traced_axis_is_refused_as_such() -> None:
    def f(x: Any) -> Any:
        return np.flip(x, x[0, 0].astype(int))

    with pytest.raises(TraceError, match="not known while tracing"):
        eq.jit(f)(np.ones((2, 3)))


def test_programs_take_axes_that_are_integers() -> None:
    def f(x: Any) -> Any:
        return np.sum(x, np.int8(1)), x.cumsum(np.array(0)), np.flip(x, [Index(0)])

    x = np.arange(6.0).reshape(2, 3)
    assert_same(eq.jit(f)(x), f(x))
