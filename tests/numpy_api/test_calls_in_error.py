"""What a function may catch while it is traced: the errors of calls that NumPy refuses
are caught by the same ``except`` clauses, and no call that NumPy takes is refused
without a word."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat.support import is_noted
from eqsat.trace import error_kinds

FILE = Path(__file__).with_name("calls_in_error.txt")
KINDS = (
    *(ValueError, TypeError, IndexError, KeyError, OverflowError, ZeroDivisionError),
    *(MemoryError, NotImplementedError, RuntimeError, AttributeError, NameError),
    *(StopIteration, np.exceptions.AxisError, np.linalg.LinAlgError),
    np.exceptions.DTypePromotionError,
)
VALUES: dict[str, Any] = {
    **{"v": np.arange(1.0, 7), "x": np.arange(12.0).reshape(3, 4), "s": np.eye(3) + 1},
    **{"i": np.array([0, 1, 2]), "b": np.array([True, False, True])},
    **{"u": np.array([1, 2, 3], np.uint8), "e": np.zeros((0, 3)), "z": np.array(2.0)},
    **{"t": np.arange(8.0).reshape(2, 2, 2), "f": np.ones(3, np.float32)},
    **{"c": np.ones(3, complex), "w": np.zeros((3, 4))},
}


def put(a: Any, key: Any, value: Any) -> Any:
    a = a.copy()
    a[key] = value
    return a


def set_(a: Any, name: str, value: Any) -> None:
    setattr(a.copy(), name, value)


def del_(a: Any, name: str) -> None:
    delattr(a.copy(), name)


def unpack2(a: Any) -> Any:
    first, second = a
    return first, second


def in_place(name: str) -> Callable[[Any, Any], Any]:
    return lambda a, y: getattr(operator, name)(a.copy(), y)


NAMES = {
    **{"np": np, "math": math, "put": put, "set_": set_, "del_": del_},
    **{"unpack2": unpack2, "iadd": in_place("iadd"), "isub": in_place("isub")},
    **{
        "idiv": in_place("itruediv"),
        "ipow": in_place("ipow"),
        "iand": in_place("iand"),
    },
    **{"imat": in_place("imatmul"), "ior": in_place("ior"), "imod": in_place("imod")},
    **{"ifloor": in_place("ifloordiv"), "ishift": in_place("ilshift")},
}


def sections() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    lines = FILE.read_text().splitlines()
    for _, part in groupby(lines, lambda line: line.startswith("#")):
        listed = list(part)
        if listed[0].startswith("#"):
            name = listed[-1].removeprefix("# ")
        else:
            found[name] = listed
    return found


SECTIONS = sections()


class DoneError(Exception):
    """The calls were made: nothing is to be compiled."""


def kinds_caught(error: Exception | None) -> str:
    if error is None:
        return "none"
    kinds = [k.__name__ for k in KINDS if isinstance(error, k)]
    return " and ".join(kinds) or type(error).__name__


def numpys(call: str) -> str:
    values = {k: a.copy() for k, a in VALUES.items()}
    try:
        eval(call, NAMES | values)
    except Exception as error:
        return kinds_caught(error)
    return kinds_caught(None)


def ours(calls: list[str], backend: str) -> list[str]:
    found = []

    def f(**values: Any) -> None:
        for call in calls:
            try:
                eval(call, NAMES | values)
            except Exception as error:
                found.append("refused" if is_noted(error) else kinds_caught(error))
            else:
                found.append(kinds_caught(None))
        raise DoneError

    with pytest.raises(DoneError):
        eq.jit(f, backend=backend)(**{k: a.copy() for k, a in VALUES.items()})
    return found


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("section", SECTIONS)
def test_the_same_clauses_catch_the_errors(section: str, backend: str) -> None:
    calls = SECTIONS[section]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        theirs = list(map(numpys, calls))
        both = zip(calls, theirs, ours(calls, backend), strict=True)
    wrong = [
        f"{call}: NumPy's error: {wanted}, eqsat's: {own}"
        for call, wanted, own in both
        if own not in (wanted, "refused")
    ]
    assert not wrong, "\n".join(wrong)


def test_a_caught_index_error_takes_the_branch_of_numpy() -> None:
    def f(x: Any, n: Any) -> Any:
        try:
            return x[7]
        except ValueError:
            return x
        except IndexError:
            pass
        try:
            return n + 256
        except TypeError:
            return x
        except OverflowError:
            return x * 2

    x, n = np.arange(3.0), np.arange(3).astype(np.uint8)
    np.testing.assert_array_equal(eq.jit(f)(x, n), f(x, n))


def test_no_large_arrays_are_made_to_ask_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    made = error_kinds._ones

    def seen(shape: tuple[int, ...], x: Any) -> Any:
        sizes.append(math.prod(shape))
        return made(shape, x)

    def f(x: Any) -> Any:
        try:
            return np.sort(x, kind="zz")
        except (TypeError, ValueError):
            return x[0]

    monkeypatch.setattr(error_kinds, "_ones", seen)
    assert eq.jit(f)(np.broadcast_to(1.0, (1 << 21,))) == 1.0
    assert sizes and max(sizes) < 100


_OF_LARGE: list[tuple[Callable[[Any], Any], type[Exception]]] = [
    (lambda x: int(x), TypeError),
    (lambda x: bool(x), ValueError),
    (lambda x: np.concatenate([x, "abc"]), ValueError),
    (lambda x: np.sum(x, axis="a"), TypeError),
    (lambda x: np.sort(x, kind="zz"), ValueError),
    (lambda x: x[5_000_000], IndexError),
    (lambda x: x.reshape(7, 9), ValueError),
    (lambda x: x @ np.ones(3), ValueError),
    (lambda x: np.sum(x, axis=7), np.exceptions.AxisError),
]
"""Calls that fail, and the errors."""


@pytest.mark.parametrize("shape", [(3, 4), (1024, 1025)])
def test_calls_with_large_arrays_fail_as_those_with_small_ones(
    shape: tuple[int, int],
) -> None:
    def caught(x: Any) -> Any:
        count = 0
        for call, kind in _OF_LARGE:
            try:
                call(x)
            except kind:
                count += 1
        return x[0, 0] * count

    assert eq.jit(caught, backend="numpy")(np.ones(shape)) == len(_OF_LARGE)


def test_what_a_users_object_does_is_done_once() -> None:
    class Index:
        calls = 0

        def __index__(self) -> int:
            Index.calls += 1
            return 9

    def f(x: Any) -> Any:
        try:
            return np.sum(x, axis=Index())  # type: ignore[call-overload]
        except ValueError:
            return x[0]

    eq.jit(f, backend="numpy")(np.ones((3, 4)))
    assert Index.calls == 1
