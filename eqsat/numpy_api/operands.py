"""What may stand beside a traced value, what is refused, and what to do instead."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from eqsat import ops
from eqsat.numpy_api.foreign import refuse_outside
from eqsat.support import (
    AxisBoundsError,
    DTypeError,
    EqsatError,
    RangeError,
    ShapeError,
    TraceError,
    TraceValueError,
    an,
    at,
    caller_line,
    counted,
    made_elsewhere,
    noted,
    untraceable,
)
from eqsat.terms import AttrVar, Traced

_BOOL = np.dtype(bool)
_PLAIN = (np.ndarray, np.memmap)
_HINTS = {
    "MaskedArray": "fill it first: x.filled(value)",
    "matrix": "np.asarray(x) makes it an array",
}
ELSEWHERE = (
    "compute it outside the traced function and pass the result in, or write it with "
    "supported functions"
)
INSTEAD = {
    "apply_along_axis": "what the function does with axis= or broadcasting",
    "insert": "np.concatenate of slices",
    "frexp": "np.floor(np.log2(abs(x))) + 1 for the exponent, up to rounding",
    "piecewise": "np.select",
}
"""What to write in the place of functions that cannot be traced."""


def operand(value: Any) -> Any:
    """``value`` as an argument of an op; ``NotImplemented`` when it cannot be one."""
    if isinstance(value, Traced):
        return value.settled()
    if isinstance(value, (AttrVar, int, float, complex)):
        return value
    if isinstance(value, (np.ndarray, list, tuple)):
        return array(value)
    if isinstance(value, np.generic):
        return value
    refuse_outside(value, "an operand")
    return NotImplemented


def array(value: Any) -> Any:
    """``value`` with lists and subclasses of arrays made plain.

    Raises :class:`TraceError` for masked arrays, matrices and other arrays that bring a
    meaning of their own.
    """
    if isinstance(value, (list, tuple)):
        return stacked(value) if holds_traced(value) else np.asarray(value)
    if isinstance(value, np.ndarray):
        refuse_subclass(type(value), "an operand")
        return value if type(value) is np.ndarray else value.view(np.ndarray)
    return value


def holds_traced(value: Any) -> bool:
    """Whether a traced value is in lists or tuples, or is ``value`` itself."""
    if isinstance(value, (list, tuple)):
        return any(map(holds_traced, value))
    return isinstance(value, Traced)


def stacked(value: Any) -> Any:
    """The array that NumPy makes of lists of numbers and arrays, some of them traced.

    Raises :class:`ShapeError` where they differ in shape.
    """
    if not isinstance(value, (list, tuple)):
        return strong(value.settled() if isinstance(value, Traced) else value)
    parts = [stacked(v) for v in value]
    if not any(isinstance(p, Traced) for p in parts):
        return np.array(parts)
    dtype = np.result_type(*(p.dtype for p in parts))
    return ops.stack([ops.cast(p, dtype) for p in parts])


def held(value: Any, dtype: np.dtype[Any], how: str) -> Any:
    """Numbers as NumPy puts them one by one into an array of integers.

    Raises :class:`RangeError` for numbers that ``dtype`` does not hold.
    """
    try:
        found = np.empty(np.shape(value), dtype)
        found[...] = value
    except OverflowError as error:
        raise RangeError(f"{how}: {error}{at(caller_line())}") from error
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{how}: {error}{at(caller_line())}") from error
    return found


def plain_number(value: Any, dtype: np.dtype[Any]) -> Any:
    """A number of NumPy that is written to signed integers as Python's number, which
    must fit (:func:`held`); NumPy casts it to unsigned ones. Any other ``value`` as it
    is."""
    numbers = isinstance(value, np.integer | np.floating)
    return value.item() if numbers and dtype.kind == "i" else value


def settled(value: Any) -> Any:
    """``value`` with arrays of NumPy for those that are known while tracing; nested as
    it may be in lists, tuples and dicts."""
    if isinstance(value, Traced):
        return value.settled()
    if type(value) in (list, tuple):
        return type(value)(map(settled, value))
    if type(value) is dict:
        return {k: settled(v) for k, v in value.items()}
    return value


def strong(value: Any) -> Any:
    """``value`` as functions take it that are no ufuncs: a bare number counts as an
    array of int64 or float64."""
    if isinstance(value, Traced):
        return value
    refuse_outside(value, "an operand")
    return array(np.asanyarray(value))


def _shape_if_known(value: Any) -> Any:
    return value.known_shape if isinstance(value, Traced) else np.shape(value)


def _fits(mask: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether a mask broadcasts to these sizes."""
    tail = sizes[len(sizes) - len(mask) :]
    return len(mask) <= len(sizes) and all(
        m in (1, n) for m, n in zip(mask, tail, strict=True)
    )


def chosen(name: str, where: Any, a: Any = None) -> Any:
    """The argument ``where`` of a function of ``a`` as bool: an array must be that,
    numbers and lists of them are true where they are not 0.

    Raises :class:`DTypeError` for other arrays, and :class:`ShapeError` for masks that
    are larger than ``a``, as NumPy does.
    """
    mask, sizes = _shape_if_known(where), None if a is None else _shape_if_known(a)
    if mask and sizes is not None and not _fits(mask, sizes):
        raise ShapeError(
            f"{name}: where= has shape {mask}, and x has {sizes}{at(caller_line())}"
        )
    if not isinstance(where, (np.ndarray, Traced)):
        return np.asarray(where, bool)
    dtype = getattr(where, "dtype", _BOOL)
    number = isinstance(where, Traced) and where.known_shape == ()
    if dtype != _BOOL and not number:
        raise DTypeError(
            f"{name}: where has dtype {dtype}, expected bool\n  write where != 0"
            f"{at(caller_line())}"
        )
    return array(where)


def refuse_subclass(kind: type, what: str) -> None:
    """Raise :class:`TraceError` unless ``kind`` is a plain array type."""
    if kind in _PLAIN:
        return
    hint = _HINTS.get(kind.__name__, "np.asarray(x) drops what it adds to an array")
    name = f"{kind.__module__}.{kind.__qualname__}"
    raise untraceable(
        f"{what} is {an(name)}, which cannot be traced; {hint}{at(caller_line())}"
    )


def refuse_function(name: str) -> NoReturn:
    """Raise :class:`TraceError` for a function, with what to write instead."""
    last = name.removeprefix("np.")
    advice = f"write {INSTEAD[last]}" if last in INSTEAD else ELSEWHERE
    said = f"{name} is not supported in a traced function\n  {advice}"
    raise untraceable(f"{said}{at(caller_line())}")


def refuse_argument(name: str, argument: str) -> NoReturn:
    """Raise :class:`TraceError` for an argument of a supported function."""
    if argument == "out":
        advice = f"write y = {name}(...){at(caller_line())}"
        raise noted(
            made_elsewhere(
                f"{name}: out must be traced, or be made in the traced function by "
                f"np.zeros(...), np.array(y) and their like\n  {advice}"
            )
        )
    hint = "use np.where(mask, x, neutral) first" if argument == "where" else ELSEWHERE
    said = f"{name}: argument {argument!r} is not supported in a traced function"
    raise untraceable(f"{said}\n  {hint}{at(caller_line())}")


def check_float_errors(before: Mapping[str, object]) -> None:
    """Raise :class:`TraceError` where ``np.errstate`` asks for what no program does,
    and did not ``before`` the function was called."""
    now = dict(np.geterr())
    if now == before:
        return
    asked = [
        f"{k}={how!r}"
        for k, how in now.items()
        if how != before[k] and how not in ("ignore", "warn")
    ]
    if asked:
        raise untraceable(
            f"np.errstate({', '.join(asked)}) cannot be traced: no program notices "
            "floating-point errors\n  test the result outside of the function: "
            f"np.isfinite(y).all(){at(caller_line())}"
        )


def values_in(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """All that a function is given, also in lists."""
    lists = (a for a in args if isinstance(a, (list, tuple)))
    return (*args, *kwargs.values(), *(a for some in lists for a in some))


def name_of(function: Callable[..., Any]) -> str:
    """How users write ``function``: ``np.linalg.norm``."""
    name = getattr(function, "__name__", repr(function))
    module = getattr(function, "__module__", None) or "numpy"
    if isinstance(function, np.ufunc) and getattr(np, name, None) is not function:
        return f"ufunc {name!r}"
    return f"{module}.{name}".replace("numpy", "np", 1)


def axes_of(name: str, judge: Callable[[Any, Any], Any], x: Any, axis: Any) -> Any:
    """The argument ``axis`` of a function as an int, a tuple of ints or None.

    ``judge`` calls NumPy with an array of as many axes as ``x`` has, and ``axis``: what
    it does not take raises :class:`TraceError`, or :class:`ShapeError` where the array
    lacks the axis or an axis is there twice.
    """
    ndim = _rank(x)
    if ndim is None or _is_symbol(axis):
        return axis
    try:
        traced = isinstance(axis, Traced)
        axis = operator.index(axis) if traced else axis
        judge(np.ones((1,) * ndim), axis)
        one = as_index(axis)
        several = axis is not None and one is None
        return tuple(map(operator.index, axis)) if several else one
    except EqsatError:
        raise
    except np.exceptions.AxisError as error:
        raise AxisBoundsError(
            f"{name}: axis {error.axis} is out of bounds for "
            f"{counted(error.ndim or 0, 'dimension')}{at(caller_line())}"
        ) from None
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        kind = TraceError if isinstance(error, TypeError) else ShapeError
        raise kind(
            f"{name}: axis {axis!r:.60} is not taken: {error}{at(caller_line())}"
        ) from None


def judged(name: str, argument: str, value: Any) -> None:
    """Raise :class:`TraceValueError` where NumPy takes no ``value`` of an ``argument``
    that says nothing about what eqsat computes."""
    judge = _OF_ARGUMENTS.get(argument)
    if judge is None or value is None or isinstance(value, Traced):
        return
    try:
        judge(value)
    except (TypeError, ValueError) as error:
        raise TraceValueError(
            f"{name}: {argument}={value!r:.60}: {error}{at(caller_line())}"
        ) from None


_OF_ARGUMENTS: dict[str, Callable[[Any], Any]] = {
    "casting": lambda v: np.can_cast(float, float, v),
    "keepdims": lambda v: np.sum(np.ones(1), keepdims=v),
    "kind of partition": lambda v: np.partition(np.ones(1), 0, kind=v),
    "mode": lambda v: np.take(np.ones(1), 0, mode=v),
    "order": lambda v: np.ones(1).copy(v),
    "subok": lambda v: np.add(1, 1, subok=v),
}


def one_axis(axis: Any) -> Any:
    """The axis that a tuple of one names; other axes as they are."""
    return axis[0] if isinstance(axis, tuple) and len(axis) == 1 else axis


def _is_symbol(axis: Any) -> bool:
    """Whether an axis, or one of several, is a symbol of a rule."""
    several = axis if isinstance(axis, (list, tuple)) else (axis,)
    return any(isinstance(a, AttrVar) for a in several)


def _rank(x: Any) -> int | None:
    """Number of axes, also of lists that hold traced values; None where unknown."""
    if isinstance(x, (list, tuple)) and x:
        inner = _rank(x[0])
        return None if inner is None else 1 + inner
    return ops.rank(x)


def as_index(value: Any) -> int | None:
    """``value`` as an int that is known while tracing; None for what is none."""
    try:
        return operator.index(value)
    except TypeError:
        return None
