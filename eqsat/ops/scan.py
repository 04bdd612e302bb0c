"""Along one axis, as many elements as before: running sums and their kin, and order.

Running results of float16 and bfloat16 are computed in float32 and rounded once each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eqsat.ops.pointwise import cast
from eqsat.ops.position import iota, pad, take
from eqsat.ops.reduce import counting, products_before
from eqsat.ops.support import in_float32, is_traced, negative_axis, per_input, rank
from eqsat.ops.view import flip, ravel, reshape, swapaxes, window
from eqsat.terms import BF16, EXACT, FLAT, Axis, Pointwise, op

# -- derivatives -----------------------------------------------------------------------


def _by_accumulate(g: Any, x: Any, y: Any, ufunc: str, axis: tuple[int, ...]) -> Any:
    if ufunc == "add":
        return flip(accumulate_op(flip(g, axis), ufunc=ufunc, axis=axis), axis)
    if ufunc != "multiply":
        return f"np.add.accumulate and np.multiply.accumulate have one, not np.{ufunc}"
    if x.size == 0:
        return None
    g, x = swapaxes(g, axis[0], -1), swapaxes(x, axis[0], -1)
    return swapaxes(products_before(x) * _behind(g, x), axis[0], -1)


def _behind(g: Any, x: Any) -> Any:
    """s[i] = g[i] + x[i + 1] s[i + 1] along the last axis, in steps that double."""
    n = x.shape[-1]
    factor, s = _later(x, 1), g
    step = 1
    while step < n:
        s = s + factor * _later(s, step)
        factor = factor * _later(factor, step)
        step *= 2
    return s


def _later(x: Any, by: int) -> Any:
    """y[i] = x[i + by] along the last axis, 0 behind its end."""
    rest = window(x, (by,), (x.shape[-1] - by,))
    return pad(rest, [(0, 0)] * (x.ndim - 1) + [(0, by)])


def _by_sort(g: Any, x: Any, y: Any, axis: tuple[int, ...]) -> Any:
    """Each element of g where the one of x came from."""
    order = argsort_op(x, axis=axis, kind="stable")
    back = swapaxes(argsort_op(order, axis=axis, kind="stable"), axis[0], -1)
    g = swapaxes(g, axis[0], -1)
    rows = iota(math.prod(g.shape[:-1]), g) * g.shape[-1]
    flat = back + reshape(rows, (*g.shape[:-1], 1))
    return swapaxes(take(ravel(g), flat, 0), axis[0], -1)


# -- nodes -----------------------------------------------------------------------------


@op(Pointwise(), name="accumulate", flops=per_input(1), vjp=_by_accumulate)
@in_float32
def accumulate_op(x: Any, *, ufunc: str, axis: Axis) -> Any:
    """y[i] = y[i - 1] ∘ x[i] along one axis, for a ufunc ∘ of NumPy."""
    found: np.ufunc = getattr(np, ufunc)
    return found.accumulate(x, axis=axis[0], dtype=x.dtype)


@op(Pointwise(), name="sort", flops=per_input(20), roundings=EXACT, vjp=_by_sort)
def sort_op(x: Any, *, axis: Axis) -> Any:
    """The elements along one axis from the smallest to the largest; NaN is last."""
    return np.sort(_sortable(x), axis=axis[0]).astype(x.dtype)


def _sortable(x: Any) -> Any:
    """``x`` in a dtype of which NumPy puts NaN last; of bfloat16 it does not."""
    return x.astype(np.float32) if x.dtype == BF16 else x


@op(Pointwise(np.dtype(np.int64)), name="argsort", flops=per_input(20), vjp=FLAT)
def argsort_op(x: Any, *, axis: Axis, kind: str) -> Any:
    """int64 positions along one axis of the elements in order."""
    return np.argsort(_sortable(x), axis=axis[0], kind=kind)  # type: ignore[arg-type]


# -- public functions ------------------------------------------------------------------


def accumulate(ufunc: str, x: Any, axis: int = 0, dtype: Any = None) -> Any:
    """Running results of the ufunc of that name along ``axis``.

    Small integers and bools are added and multiplied as (u)int64.
    """
    if ufunc in ("add", "multiply"):
        x = counting(x, dtype)
    elif dtype is not None:
        x = cast(x, dtype)
    k = negative_axis(f"np.{ufunc}.accumulate", axis, rank(x))
    return accumulate_op(x, ufunc=ufunc, axis=k)


def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Running sums along ``axis``; of ``x`` ravelled by default."""
    return _running("add", x, axis, dtype)


def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Running products along ``axis``; of ``x`` ravelled by default."""
    return _running("multiply", x, axis, dtype)


def _running(ufunc: str, x: Any, axis: int | None, dtype: Any) -> Any:
    if axis is None or rank(x) == 0:
        x, axis = ravel(x), axis or 0
    return accumulate(ufunc, x, axis, dtype)


def sort(x: Any, axis: int | None = -1) -> Any:
    """``x`` in order along ``axis``, ravelled when it is None; NaN is last."""
    if not is_traced(x):
        return np.sort(_sortable(np.asarray(x)), axis).astype(np.asarray(x).dtype)
    x, axis = (ravel(x), -1) if axis is None else (x, axis)
    return sort_op(x, axis=negative_axis("sort", axis, rank(x)))


def argsort(x: Any, axis: int | None = -1, kind: str = "quicksort") -> Any:
    """int64 positions that put ``x`` in order along ``axis``, ravelled when None.

    ``kind`` is that of NumPy; only ``"stable"`` says which of two equals is first.
    """
    if not is_traced(x):
        values = _sortable(np.asarray(x))
        return np.argsort(values, axis, kind=kind)  # type: ignore[arg-type]
    x, axis = (ravel(x), -1) if axis is None or rank(x) == 0 else (x, axis)
    return argsort_op(x, axis=negative_axis("argsort", axis, rank(x)), kind=kind)
