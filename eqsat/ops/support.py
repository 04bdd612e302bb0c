"""What the catalogue asks of a value: whether it is traced, its rank, shape and dtype.

Public functions work on arrays, on traced arrays, and on the values of a rule's
pattern, whose rank and shape may be unknown. What is unknown is None here.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat.support import (
    AxisBoundsError,
    EqsatError,
    ShapeError,
    TraceError,
    at,
    caller_line,
    counted,
)
from eqsat.terms import HALF, Op, Traced, Type, axis_number


def is_traced(*values: Any) -> bool:
    """Whether any of ``values`` records what is done to it."""
    return any(isinstance(v, Traced) for v in values)


def rank(x: Any) -> int | None:
    """Number of axes of ``x``; None for a pattern of any rank."""
    if not isinstance(x, Traced):
        return np.ndim(x)
    try:
        ndim: int = x.ndim  # type: ignore[attr-defined]
    except (AttributeError, EqsatError):
        return None
    return ndim


def sizes(x: Any) -> tuple[Any, ...] | None:
    """Shape of ``x``: numbers, or a pattern's symbols; None when it is not known."""
    if not isinstance(x, Traced):
        return tuple(np.shape(x))
    try:
        return tuple(x.known_shape)
    except (AttributeError, EqsatError):
        return None


def known_sizes(who: str, x: Any) -> tuple[Any, ...]:
    """Shape of ``x``. Raises :class:`TraceError` for a pattern of unknown shape."""
    try:
        return tuple(x.known_shape) if isinstance(x, Traced) else np.shape(x)
    except EqsatError as error:
        raise TraceError(f"{who}: {error}{at(caller_line())}") from None


def known_rank(who: str, x: Any) -> int:
    """Number of axes of ``x``. Raises :class:`TraceError` where a pattern's is not
    known."""
    try:
        return int(x.ndim) if isinstance(x, Traced) else np.ndim(x)  # type: ignore[attr-defined]
    except EqsatError as error:
        raise TraceError(f"{who}: {error}{at(caller_line())}") from None


def dtype_of(x: Any) -> np.dtype[Any] | None:
    """The dtype of ``x``; None for bare numbers and patterns."""
    if type(x) in (int, float, complex):
        return None
    found = getattr(x, "dtype", None) if isinstance(x, Traced) else np.asarray(x).dtype
    return found if isinstance(found, np.dtype) else None


def negative_axis(who: str, axis: int, ndim: int | None) -> int:
    """``axis`` counted from the end. Raises :class:`AxisBoundsError` where ``ndim``
    axes have none of this number."""
    if ndim is None:
        if axis < 0:
            return axis
        raise ShapeError(
            f"{who}: axis {axis} is counted from the front of a pattern whose number "
            f"of axes is not fixed; write it negative, or name all axes in the "
            f"signature in place of '...'"
        )
    axis = axis_number(who, axis)
    if not -ndim <= axis < ndim:
        raise AxisBoundsError(
            f"{who}: axis {axis} is out of bounds for {counted(ndim, 'dimension')}"
            f"{at(caller_line())}"
        )
    return axis - ndim if axis >= 0 else axis


def as_int(value: Any) -> int | None:
    """``value`` as an int if it is one number, of NumPy's types too; None for several.

    Raises what ``operator.index`` does for a number that is no integer.
    """
    if isinstance(value, (list, tuple)) or rank(value) != 0:
        return None
    return operator.index(value)


def in_float32(reference: Callable[..., Any]) -> Callable[..., Any]:
    """``reference`` that computes float16 and bfloat16 in float32 and rounds once."""

    @functools.wraps(reference)
    def computed(*arrays: Any, **attrs: Any) -> Any:
        dtypes = {a.dtype for a in arrays if isinstance(a, (np.ndarray, np.generic))}
        half = dtypes.pop() if len(dtypes) == 1 and dtypes <= HALF else None
        if half is None:
            return reference(*arrays, **attrs)
        wide = (np.asarray(a, np.float32) for a in arrays)
        return np.asarray(reference(*wide, **attrs)).astype(half)[()]

    return computed


def per_input(flops: float) -> Callable[[Sequence[Type], dict[str, Any], Type], float]:
    """A cost in flop for every element of the first argument."""

    def cost(types: Sequence[Type], attrs: dict[str, Any], out: Type) -> float:
        return flops * float(np.prod(types[0][1], dtype=float))

    return cost


def node(name: str, *args: Any, **attrs: Any) -> Any:
    """The op of that name applied to ``args``."""
    return Op.registry[name](*args, **attrs)
