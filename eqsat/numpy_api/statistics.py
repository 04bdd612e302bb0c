"""NumPy's functions of many elements: reductions, also of a part of them, running sums,
order, and those that pass over NaN."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.numpy_api.arrange import shape
from eqsat.numpy_api.indexing import getitem
from eqsat.numpy_api.operands import array, chosen, held, one_axis, plain_number, strong
from eqsat.numpy_api.table import covers
from eqsat.ops import dtype_of, floating, rank
from eqsat.support import (
    DTypeError,
    NoElementsError,
    TraceError,
    at,
    caller_line,
)
from eqsat.terms import HALF, Traced, normal_axes

_BOOL = np.dtype(bool)
_INDEX = np.dtype(np.int64)
Reduction = Callable[..., Any]

covers("argmax")(ops.argmax)
covers("argmin")(ops.argmin)
covers("cumsum")(ops.cumsum)
covers("cumprod")(ops.cumprod)


def _masked(name: str, op: Reduction, combine: Reduction, neutral: Any) -> Reduction:
    """``op`` of the elements where ``where`` holds, and of ``initial``.

    The elements that do not count become ``neutral``, or ``initial`` where there is no
    neutral element.
    """

    def reduce(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Any:
        a = array(a)
        own = dtype_of(a) if dtype is None else np.dtype(dtype)
        if where is not True:
            other = initial if neutral is None else neutral
            if other is None:
                raise TraceError(
                    f"np.{name}: where= needs initial=, the result if no element is "
                    f"chosen{at(caller_line())}"
                )
            a = ops.where(chosen(f"np.{name}", where, a), a, _as(other, dtype_of(a)))
        if initial is not None and neutral is None and 0 in shape(a):
            left = shape(ops.sum(a, axis=axis, keepdims=keepdims))
            return ops.full_like(a, _as(initial, own), own, left)
        given = {} if dtype is None else {"dtype": dtype}
        y = op(a, axis=axis, keepdims=keepdims, **given)
        if initial is None:
            return y
        return combine(_as(initial, dtype_of(y) or own), y)

    return reduce


def _as(value: Any, dtype: np.dtype[Any] | None) -> Any:
    """A value as an array of ``dtype`` would hold it. Raises :class:`DTypeError` for
    numbers of NumPy that a signed integer dtype does not hold."""
    if dtype is None:
        return value
    plain = plain_number(value, dtype)
    return cast(value if plain is value else held(plain, dtype, "initial="), dtype)


total = _masked("sum", ops.sum, ops.add, 0)
product = _masked("prod", ops.prod, ops.multiply, 1)
largest = _masked("max", ops.max, ops.maximum, None)
smallest = _masked("min", ops.min, ops.minimum, None)
every = _masked("all", ops.all, ops.logical_and, 1)
some = _masked("any", ops.any, ops.logical_or, 0)
REDUCTIONS: dict[str, Reduction] = {
    "add": total,
    "multiply": product,
    "maximum": largest,
    "minimum": smallest,
    "logical_and": every,
    "logical_or": some,
}
"""``reduce`` of ufuncs."""
for _names, _reduction in (
    (("sum",), total),
    (("prod",), product),
    (("max", "amax"), largest),
    (("min", "amin"), smallest),
    (("all",), every),
    (("any",), some),
):
    covers(*_names)(_reduction)


def _takes(other: Reduction) -> Callable[[Reduction], Reduction]:
    """A handler with the parameters of another."""

    def enter(handler: Reduction) -> Reduction:
        handler.__signature__ = inspect.signature(other)  # type: ignore[attr-defined]
        return handler

    return enter


def _sum_dtype(a: Any, dtype: Any) -> Any:
    """The dtype in which NumPy adds up to take a mean."""
    own = dtype_of(a)
    if dtype is not None or own is None:
        return dtype
    return np.dtype("f4") if own in HALF else dtype_of(floating(a, None))


def _over(x: Any, n: Any, dtype: Any) -> Any:
    """x / n, rounded to ``dtype``."""
    own = dtype_of(x)
    n = n if own is None or own.kind in "biu" else ops.cast(n, own)
    y = x / n
    return y if dtype is None else ops.cast(y, dtype)


def _count(a: Any, where: Any, axis: Any, keepdims: bool) -> Any:
    """How many elements count, int64: as NumPy the sum of ``where`` as integers, so
    that 2 counts twice and 0.5 not at all."""
    with np.errstate(invalid="ignore"):
        mask = ops.broadcast_to(cast(strong(where), _INDEX), shape(a))
    return ops.sum(mask, axis=axis, keepdims=keepdims)


@covers("mean")
def mean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    keepdims: bool = False,
    where: Any = True,
) -> Any:
    """Σ a / n over the elements where ``where`` holds."""
    if where is True:
        return ops.mean(a, axis=axis, dtype=dtype, keepdims=keepdims)
    a = array(a)
    found = dtype_of(floating(a, dtype))
    y = total(a, axis, _sum_dtype(a, dtype), keepdims, where=where)
    return _over(y, _count(a, where, axis, keepdims), found)


@covers("var")
def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = True,
    mean: Any = None,
    correction: float = 0,
) -> Any:
    """Σ (a - mean)² / (n - ddof) over the elements where ``where`` holds."""
    ddof = ddof or correction
    if where is True and mean is None:
        return ops.var(a, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims)
    a = array(a)
    found, wide = dtype_of(floating(a, dtype)), _sum_dtype(a, dtype)
    a = a if dtype is not None or wide is None else ops.cast(a, wide)
    middle = _mean(a, axis, wide, keepdims=True, where=where) if mean is None else mean
    # Before squaring: the derivative of the square of a NaN that does not count is NaN.
    d = ops.where(chosen("np.var", where, a), a - middle, 0)
    squares = ops.sum(ops.square(d), axis, wide, keepdims)
    n = ops.maximum(_count(a, where, axis, keepdims) - ddof, 0)
    return _over(squares, n, found)


_mean = mean


@covers("std")
@_takes(var)
def std(a: Any, **options: Any) -> Any:
    """The square root of :func:`var`."""
    return ops.root(var(a, **options), options.get("dtype"))


@covers("average")
def average(
    a: Any,
    axis: Any = None,
    weights: Any = None,
    returned: bool = False,
    keepdims: bool = False,
) -> Any:
    """Mean with weights; those of one axis lie along ``axis``."""
    a = array(a)
    if weights is None:
        y = ops.mean(a, axis=axis, keepdims=keepdims)
        if not math.prod(shape(y)):
            raise NoElementsError(
                f"np.average: of shape {shape(a)} the result has no elements, by whose "
                f"number NumPy divides\n  use np.mean{at(caller_line())}"
            )
        count = math.prod(shape(a)) // max(1, math.prod(shape(y)))
        return (y, ops.full_like(y, count)) if returned else y
    weights = strong(weights)
    if shape(weights) != shape(a):
        axis = one_axis(axis)
        if not isinstance(axis, int) or shape(weights) != shape(a)[axis:][:1]:
            raise TraceError(
                f"np.average: weights of shape {shape(weights)} need an int axis of an "
                f"array of shape {shape(a)}{at(caller_line())}"
            )
        beside = [1] * len(shape(a))
        beside[axis] = -1
        weights = ops.reshape(weights, tuple(beside))
    own = dtype_of(a) or np.dtype(float)
    least = own if own.kind not in "biu" else np.dtype(float)
    dtype = np.result_type(own, dtype_of(weights) or own, least)
    weights = ops.broadcast_to(cast(weights, dtype), shape(a))
    whole = ops.sum(weights, axis=axis, keepdims=keepdims)
    if not isinstance(whole, Traced) and np.any(whole == 0):
        raise NoElementsError(
            f"np.average: weights sum to 0, by which NumPy divides{at(caller_line())}"
        )
    y = ops.sum(cast(a, dtype) * weights, axis=axis, keepdims=keepdims) / whole
    return (y, ops.broadcast_to(whole, shape(y))) if returned else y


def cast(x: Any, dtype: Any) -> Any:
    """``x``, traced or not, as an array of ``dtype``."""
    return ops.cast(x, dtype) if isinstance(x, Traced) else np.asarray(x, dtype)


@covers("ptp")
def ptp(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Largest minus smallest."""
    high = ops.max(a, axis=axis, keepdims=keepdims)
    return high - ops.min(a, axis=axis, keepdims=keepdims)


@covers("count_nonzero")
def count_nonzero(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """How many elements are not 0."""
    return ops.sum(a if dtype_of(a) == _BOOL else a != 0, axis=axis, keepdims=keepdims)


# -- running sums and order ------------------------------------------------------------


@covers("cumulative_sum")
def cumulative_sum(
    x: Any, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Running sums along ``axis``, from 0 on with ``include_initial``."""
    return _running("np.cumulative_sum", ops.cumsum, 0, x, axis, dtype, include_initial)


@covers("cumulative_prod")
def cumulative_prod(
    x: Any, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Running products along ``axis``, from 1 on with ``include_initial``."""
    return _running(
        "np.cumulative_prod", ops.cumprod, 1, x, axis, dtype, include_initial
    )


def _running(
    name: str, op: Reduction, first: int, x: Any, axis: Any, dtype: Any, include: bool
) -> Any:
    if axis is None and len(shape(x)) > 1:
        raise TraceError(
            f"{name}: an array of many axes needs axis={at(caller_line())}"
        )
    axis = one_axis(axis) or 0
    y = op(x, axis, dtype)
    if not include:
        return y
    one = list(shape(y))
    one[axis] = 1
    return ops.concatenate([np.full(one, first, dtype_of(y)), y], axis)


@covers("nancumsum")
def nancumsum(a: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Running sums in which NaN counts as 0."""
    return ops.cumsum(_without_nan(a, 0), axis, dtype)


@covers("sort")
def sort(a: Any, axis: int | None = -1, kind: Any = None, stable: Any = None) -> Any:
    """``a`` in order along ``axis``: equal elements are the same, however sorted."""
    _check_kind("np.sort", kind, stable)
    return ops.sort(a, axis)


def _check_kind(name: str, kind: Any, stable: Any) -> None:
    """Raise what NumPy says of a way to sort that it does not know."""
    try:
        np.sort(np.empty(0), kind=kind, stable=stable)
    except (TypeError, ValueError) as error:
        raise TraceError(f"{name}: {error}{at(caller_line())}") from None


@covers("argsort")
def argsort(a: Any, axis: int | None = -1, kind: Any = None, stable: Any = None) -> Any:
    """Positions that put ``a`` in order along ``axis``."""
    _check_kind("np.argsort", kind, stable)
    return ops.argsort(a, axis, "stable" if stable else kind or "quicksort")


@covers("median")
def median(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The middle element in order, the mean of two where their number is even; NaN
    where there is one."""
    a = array(a)
    axes = normal_axes("np.median", axis, rank(a))
    kept = [s if i not in axes else 1 for i, s in enumerate(shape(a), -len(shape(a)))]
    last = ops.moveaxis(a, axes, range(-len(axes), 0))
    n = math.prod(shape(a)[i] for i in axes)
    last = ops.reshape(last, (*shape(last)[: len(shape(a)) - len(axes)], n))
    if not n:
        return ops.mean(a, axis=axis, keepdims=keepdims)
    last = ops.sort(last)
    middle = ops.mean(getitem(last, (..., slice((n - 1) // 2, n // 2 + 1))), -1)
    end = getitem(last, (..., -1))
    y = ops.where(ops.isnan(end), end, middle) if is_floating(a) else middle
    return ops.reshape(y, tuple(kept)) if keepdims else y


def is_floating(a: Any) -> bool:
    """Whether an array has a dtype with NaN."""
    own = dtype_of(a)
    return own is not None and own.kind not in "biu"


# -- NaN does not count ----------------------------------------------------------------


def _without_nan(a: Any, other: Any) -> Any:
    a = array(a)
    return ops.where(ops.isnan(a), other, a) if is_floating(a) else a


def _where_numbers(a: Any, where: Any) -> Any:
    """The mask of the elements that count."""
    a = array(a)
    if not is_floating(a):
        return where
    numbers = ops.logical_not(ops.isnan(a))
    if where is True:
        return numbers
    return ops.logical_and(numbers, chosen("where", where))


def _check_inexact(name: str, a: Any, options: dict[str, Any]) -> None:
    """Raise :class:`DTypeError` for means of floats in a dtype of integers."""
    dtype = options.get("dtype")
    if dtype is not None and is_floating(array(a)) and np.dtype(dtype).kind in "biu":
        raise DTypeError(
            f"{name}: dtype={np.dtype(dtype)} of {dtype_of(a)}, expected a floating "
            f"one{at(caller_line())}"
        )


@covers("nansum")
@_takes(total)
def nansum(a: Any, **options: Any) -> Any:
    """Σ a in which NaN counts as 0."""
    return total(_without_nan(a, 0), **options)


@covers("nanprod")
@_takes(product)
def nanprod(a: Any, **options: Any) -> Any:
    """Π a in which NaN counts as 1."""
    return product(_without_nan(a, 1), **options)


@covers("nanmax")
@_takes(ptp)
def nanmax(a: Any, **options: Any) -> Any:
    """The largest element that is not NaN; NaN where there is none."""
    return _nan_extreme(largest, -math.inf, a, **options)


@covers("nanmin")
@_takes(ptp)
def nanmin(a: Any, **options: Any) -> Any:
    """The smallest element that is not NaN; NaN where there is none."""
    return _nan_extreme(smallest, math.inf, a, **options)


def _nan_extreme(
    op: Reduction, least: float, a: Any, axis: Any = None, keepdims: bool = False
) -> Any:
    y = op(_without_nan(a, least), axis=axis, keepdims=keepdims)
    if not is_floating(a):
        return y
    nothing = ops.all(ops.isnan(array(a)), axis=axis, keepdims=keepdims)
    return ops.where(nothing, math.nan, y)


@covers("nanmean")
@_takes(mean)
def nanmean(a: Any, where: Any = True, **options: Any) -> Any:
    """The mean of the elements that are not NaN."""
    _check_inexact("np.nanmean", a, options)
    return mean(a, where=_where_numbers(a, where), **options)


@covers("nanvar")
@_takes(var)
def nanvar(a: Any, where: Any = True, **options: Any) -> Any:
    """The variance of the elements that are not NaN; NaN where there are no more than
    ``ddof``."""
    if not is_floating(array(a)):
        return var(a, where=where, **options)
    _check_inexact("np.nanvar", a, options)
    where = _where_numbers(a, where)
    y = var(a, where=where, **options)
    freedom = options.get("ddof", 0) or options.get("correction", 0)
    n = _count(a, where, options.get("axis"), options.get("keepdims", False))
    return ops.where(n <= freedom, math.nan, y)


@covers("nanstd")
@_takes(var)
def nanstd(a: Any, **options: Any) -> Any:
    """The square root of :func:`nanvar`."""
    return ops.root(nanvar(a, **options), options.get("dtype"))
