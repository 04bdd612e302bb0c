"""Operators that reduce axes, run along them, and order them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.operator_table import cast
from eqsat.pytorch.table import aten, axes_of, axis_of, default_dtype, kind_of


def _summed_in(x: Any, dtype: Any) -> Any:
    """x in the dtype in which it is summed: integers and bools in int64."""
    if dtype is not None:
        return cast(x, dtype)
    return cast(x, np.int64) if kind_of(x) in "bi" else x


@aten("sum")
def sum_(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The sum over some axes, or all."""
    axes = axes_of(dim, x.ndim)
    return np.sum(_summed_in(x, dtype), axis=axes, keepdims=keepdim)


@aten("mean")
def mean(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The mean over some axes, or all."""
    return np.mean(
        cast(x, dtype or x.dtype), axis=axes_of(dim, x.ndim), keepdims=keepdim
    )


@aten("prod")
def prod(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The product over an axis, or all."""
    axes = axes_of(dim, x.ndim)
    return np.prod(_summed_in(x, dtype), axis=axes, keepdims=keepdim)


@aten("var.correction", "var.dim", "var.default")
def var(
    x: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, **how: Any
) -> Any:
    """The variance over some axes, with n - correction in place of n."""
    axes = axes_of(dim, x.ndim)
    correction = _correction(unbiased, how)
    count = math.prod(x.shape[a] for a in axes)
    if count - correction <= 0:
        raise ValueError("a variance of no degrees of freedom")
    return np.var(x, axis=axes, ddof=correction, keepdims=how.get("keepdim", keepdim))


def _correction(unbiased: bool, how: dict[str, Any]) -> Any:
    found = how.get("correction", 1 if unbiased else 0)
    return 1 if found is None else found


@aten("var_mean.correction")
def var_mean(
    x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    """The variance and the mean over some axes."""
    how = {"correction": correction, "keepdim": keepdim}
    return var(x, dim, **how), mean(x, dim, keepdim)


@aten("any")
def any_(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Whether any element is not 0."""
    return np.any(x != 0, axis=axes_of(dim, x.ndim), keepdims=keepdim)


@aten("all")
def all_(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Whether all elements are not 0."""
    return np.all(x != 0, axis=axes_of(dim, x.ndim), keepdims=keepdim)


@aten("amax", "max.default", in_float32=False)
def amax(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The largest element over some axes."""
    return np.max(x, axis=axes_of(dim, x.ndim), keepdims=keepdim)


@aten("amin", "min.default", in_float32=False)
def amin(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest element over some axes."""
    return np.min(x, axis=axes_of(dim, x.ndim), keepdims=keepdim)


def _place(x: Any, dim: int | None, keepdim: bool, largest: bool) -> Any:
    find = np.argmax if largest else np.argmin
    if x.dtype == bool:
        x = cast(x, np.int8)
    if x.ndim == 0:
        return np.zeros((), np.int64)
    if dim is None:
        found = find(x)
        return found.reshape((1,) * x.ndim) if keepdim else found
    return find(x, axis=dim, keepdims=keepdim)


@aten("argmax", in_float32=False)
def argmax(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The place of the largest element."""
    return _place(x, dim, keepdim, True)


@aten("argmin", in_float32=False)
def argmin(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The place of the smallest element."""
    return _place(x, dim, keepdim, False)


@aten("max.dim", in_float32=False)
def max_dim(x: Any, dim: int, keepdim: bool = False) -> Any:
    """The largest element along an axis, and its place."""
    return amax(x, dim, keepdim), _place(x, dim, keepdim, True)


@aten("min.dim", in_float32=False)
def min_dim(x: Any, dim: int, keepdim: bool = False) -> Any:
    """The smallest element along an axis, and its place."""
    return amin(x, dim, keepdim), _place(x, dim, keepdim, False)


@aten("logsumexp")
def logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Any:
    """ln Σ eˣ over some axes."""
    axes = axes_of(dim, x.ndim)
    y = ops.logsumexp(cast(x, default_dtype()) if kind_of(x) in "bi" else x, axis=axes)
    return y if keepdim else np.squeeze(y, axes)


# -- along an axis ---------------------------------------------------------------------


@aten("cumsum")
def cumsum(x: Any, dim: int, *, dtype: Any = None) -> Any:
    """Sums up to each element of an axis."""
    x = _summed_in(x, dtype)
    return np.cumsum(x, axis=axis_of(dim, x.ndim)) if x.ndim else x.copy()


@aten("cumprod")
def cumprod(x: Any, dim: int, *, dtype: Any = None) -> Any:
    """Products up to each element of an axis."""
    x = _summed_in(x, dtype)
    return np.cumprod(x, axis=axis_of(dim, x.ndim)) if x.ndim else x.copy()


@aten("sort", in_float32=False)
def sort(x: Any, *args: Any, **named: Any) -> Any:
    """Elements of an axis in order, and where they were. Equal elements keep their
    order."""
    return ordered(x, *args, **named)


@aten("sort.stable", in_float32=False)
def sort_stable(
    x: Any, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Any:
    """As ``sort``."""
    return ordered(x, dim, descending)


def ordered(x: Any, dim: int = -1, descending: bool = False) -> Any:
    """Elements of an axis in order, and where they were; NaN are the largest."""
    if x.ndim == 0:
        return x.copy(), np.zeros((), np.int64)
    if descending:  # equal elements keep their order: that of the turned axis, turned
        places = np.flip(np.argsort(np.flip(x, dim), axis=dim, stable=True), dim)
        places = x.shape[dim] - 1 - places
    else:
        places = np.argsort(x, axis=dim, stable=True)
    return np.take_along_axis(x, places, axis=dim), places
