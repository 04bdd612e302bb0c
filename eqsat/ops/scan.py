"""Along one axis, as many elements as before: running sums and their kin, and order.

Running results of float16 and bfloat16 are computed in float32 and rounded once each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.define import op
from eqsat.op import Axis
from eqsat.ops.reduce import counting
from eqsat.ops.support import in_float32, is_traced, negative_axis, per_input, rank
from eqsat.ops.view import ravel
from eqsat.typerule import Pointwise

# -- nodes -----------------------------------------------------------------------------


@op(Pointwise(), name="accumulate", flops=per_input(1))
@in_float32
def accumulate_op(x: Any, *, ufunc: str, axis: Axis) -> Any:
    """y[i] = y[i - 1] ∘ x[i] along one axis, for a ufunc ∘ of NumPy."""
    found: np.ufunc = getattr(np, ufunc)
    return found.accumulate(x, axis=axis[0], dtype=x.dtype)


@op(Pointwise(), name="sort", flops=per_input(20))
def sort_op(x: Any, *, axis: Axis) -> Any:
    """The elements along one axis from the smallest to the largest; NaN is last."""
    return np.sort(x, axis=axis[0])


@op(Pointwise(np.dtype(np.int64)), name="argsort", flops=per_input(20))
def argsort_op(x: Any, *, axis: Axis, kind: str) -> Any:
    """int64 positions along one axis of the elements in order."""
    return np.argsort(x, axis=axis[0], kind=kind)  # type: ignore[arg-type]


# -- public functions ------------------------------------------------------------------


def accumulate(ufunc: str, x: Any, axis: int = 0, dtype: Any = None) -> Any:
    """Running results of the ufunc of that name along ``axis``.

    Small integers and bools are added and multiplied as (u)int64.
    """
    if ufunc in ("add", "multiply"):
        x = counting(x, dtype)
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
        return np.sort(x, axis)
    x, axis = (ravel(x), -1) if axis is None else (x, axis)
    return sort_op(x, axis=negative_axis("sort", axis, rank(x)))


def argsort(x: Any, axis: int | None = -1, kind: str = "quicksort") -> Any:
    """int64 positions that put ``x`` in order along ``axis``, ravelled when None.

    ``kind`` is that of NumPy; only ``"stable"`` says which of two equals is first.
    """
    if not is_traced(x):
        return np.argsort(x, axis, kind=kind)  # type: ignore[arg-type]
    x, axis = (ravel(x), -1) if axis is None or rank(x) == 0 else (x, axis)
    return argsort_op(x, axis=negative_axis("argsort", axis, rank(x)), kind=kind)
