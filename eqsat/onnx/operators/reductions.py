"""Reductions, running sums, and the operators that order elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat.onnx.operators.table import (
    axes_of,
    axis_of,
    ints,
    kind_of,
    known,
    number,
    operator,
)


def _sum(x: Any, axis: Any) -> Any:
    return np.sum(x, axis=axis, keepdims=True, dtype=x.dtype)


def _mean(x: Any, axis: Any) -> Any:
    return np.mean(x, axis=axis, keepdims=True).astype(x.dtype)


def _log_sum_exp(x: Any, axis: Any) -> Any:
    x = x if kind_of(x) == "f" else x.astype(np.float64)
    if 0 in x.shape:
        return np.log(_sum(np.exp(x), axis))
    top = np.max(x, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    return np.log(_sum(np.exp(x - top), axis)) + top


def _least(x: Any) -> Any:
    """What is below all numbers of the dtype."""
    if kind_of(x) == "b":
        return False
    return -np.inf if kind_of(x) == "f" else np.iinfo(x.dtype).min


def _largest(x: Any) -> Any:
    if kind_of(x) == "b":
        return True
    return np.inf if kind_of(x) == "f" else np.iinfo(x.dtype).max


def _extreme(function: Any, other: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """The largest or the least element; of none, the one that all others beat."""

    def reduced(x: Any, axis: Any) -> Any:
        if 0 in x.shape:
            sizes = [1 if i in axis else n for i, n in enumerate(x.shape)]
            return np.full(sizes, other(x), x.dtype)
        return function(x, axis=axis, keepdims=True)

    return reduced


REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "ReduceL1": lambda x, axis: _sum(np.abs(x), axis),
    "ReduceL2": lambda x, axis: np.sqrt(_sum(x * x, axis)),
    "ReduceLogSum": lambda x, axis: np.log(_sum(x, axis)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _extreme(np.max, _least),
    "ReduceMean": _mean,
    "ReduceMin": _extreme(np.min, _largest),
    "ReduceProd": lambda x, axis: np.prod(x, axis=axis, keepdims=True, dtype=x.dtype),
    "ReduceSum": _sum,
    "ReduceSumSquare": lambda x, axis: _sum(x * x, axis),
}


def _reduced(name: str, x: Any, axes: list[int] | None, keep: int, noop: int) -> Any:
    if not axes and noop:
        axis: tuple[int, ...] = ()
    elif not axes:
        axis = tuple(range(x.ndim))
    else:
        axis = tuple(sorted(axes_of(axes, x.ndim)))
    y = REDUCTIONS[name](x, axis).astype(x.dtype)
    if keep or not axis:
        return y
    return y.reshape([n for i, n in enumerate(x.shape) if i not in axis])


def _enter(name: str) -> None:
    """Axes are an attribute first, later an input."""
    later = 13 if name == "ReduceSum" else 18

    @operator(name, until=later - 1)
    def by_attribute(x: Any, *, axes: Any = None, keepdims: int) -> Any:
        return _reduced(name, x, axes, keepdims, 0)

    @operator(name, since=later)
    def by_input(
        x: Any, axes: Any = None, *, keepdims: int, noop_with_empty_axes: int
    ) -> Any:
        return _reduced(name, x, ints(axes), keepdims, noop_with_empty_axes)


for _name in REDUCTIONS:
    _enter(_name)


@operator("ArgMax", "ArgMin")
def arg_extreme(
    x: Any, *, axis: int, keepdims: int, select_last_index: int = 0, call: Any
) -> Any:
    """The place of the largest or least element, the first or the last of equals."""
    find = np.argmax if call.node.op == "ArgMax" else np.argmin
    a = axis_of(axis, x.ndim)
    if select_last_index:
        found = x.shape[a] - 1 - find(np.flip(x, a), a)
    else:
        found = find(x, a)
    found = found.astype(np.int64)
    return np.expand_dims(found, a) if keepdims else found


@operator("CumSum", "CumProd")
def cumulative(x: Any, axis: Any, *, exclusive: int, reverse: int, call: Any) -> Any:
    """Running sums or products along an axis, without the element itself if
    ``exclusive``."""
    a = axis_of(number(axis), x.ndim, "input 'axis'")
    one = call.node.op == "CumProd"
    x_ = np.flip(x, a) if reverse else x
    y = (np.cumprod if one else np.cumsum)(x_, axis=a, dtype=x.dtype)
    if exclusive:
        first = [1 if i == a else n for i, n in enumerate(x.shape)]
        before = y[(slice(None),) * a + (slice(0, max(x.shape[a] - 1, 0)),)]
        y = np.concatenate([np.full(first, one, x.dtype), before], axis=a)
        y = y[(slice(None),) * a + (slice(0, x.shape[a]),)]
    return np.flip(y, a) if reverse else y


# -- along an axis, with as many elements as before ------------------------------------


def _softmax(x: Any, axes: tuple[int, ...]) -> Any:
    e = np.exp(x - np.max(x, axis=axes, keepdims=True))
    return e / np.sum(e, axis=axes, keepdims=True)


def _log_softmax(x: Any, axes: tuple[int, ...]) -> Any:
    d = x - np.max(x, axis=axes, keepdims=True)
    return d - np.log(np.sum(np.exp(d), axis=axes, keepdims=True))


def _hardmax(x: Any, axes: tuple[int, ...]) -> Any:
    inner = x.shape[axes[0] : axes[-1] + 1]
    before, after = x.shape[: axes[0]], x.shape[axes[-1] + 1 :]
    flat = x.reshape(*before, int(np.prod(inner)), *after)
    a = len(before)
    best = np.expand_dims(np.argmax(flat, axis=a), a)
    places = np.arange(flat.shape[a]).reshape(-1, *(1,) * len(after))
    return (places == best).astype(x.dtype).reshape(x.shape)


_ALONG = {"Softmax": _softmax, "LogSoftmax": _log_softmax, "Hardmax": _hardmax}


@operator(*_ALONG, until=12)
def along_the_rest(x: Any, *, axis: int, call: Any) -> Any:
    """Over ``axis`` and all behind it together."""
    axes = tuple(range(axis_of(axis, x.ndim) if x.ndim else 0, x.ndim))
    return _ALONG[call.node.op](x, axes) if 0 not in x.shape else x


@operator(*_ALONG, since=13)
def along_one(x: Any, *, axis: int, call: Any) -> Any:
    """Over one axis."""
    a = axis_of(axis, x.ndim)
    return _ALONG[call.node.op](x, (a,)) if 0 not in x.shape else x


@operator("TopK", until=9)
def top_k_fixed(x: Any, *, axis: int, k: int) -> Any:
    """The k largest elements along an axis, and their places."""
    return _top(x, k, axis, 1)


@operator("TopK", since=10)
def top_k(x: Any, k: Any, *, axis: int, largest: int = 1, sorted: int = 1) -> Any:
    """The k largest or least elements along an axis, and their places."""
    return _top(x, number(k), axis, largest)


def _top(x: Any, k: int, axis: int, largest: int) -> Any:
    a = axis_of(axis, x.ndim)
    n = x.shape[a]
    if not 0 <= k <= n:
        raise ValueError(f"k is {k}, and axis {axis} has size {n}")
    if largest:  # of equal elements the first
        order = n - 1 - np.flip(np.argsort(np.flip(x, a), axis=a, kind="stable"), a)
    else:
        order = np.argsort(x, axis=a, kind="stable")
    order = order[(slice(None),) * a + (slice(0, k),)]
    return np.take_along_axis(x, order, a), order.astype(np.int64)


@operator("Unique", on_host=True)
def unique(x: Any, *, axis: int | None = None, sorted: int) -> Any:
    """Distinct elements, where they are first, which one each is, and how often."""
    x = known(x)
    axis = None if axis is None else axis_of(axis, x.ndim)
    flat = x.reshape(-1) if axis is None else x
    found, first, inverse, counts = np.unique(
        flat, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        found = np.take(found, order, axis=axis or 0)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return found, *(v.astype(np.int64) for v in (first, inverse, counts))


@operator("NonZero", on_host=True)
def non_zero(x: Any) -> Any:
    """Indices of what is not 0: of one number, none for it or for nothing."""
    found = np.nonzero(np.atleast_1d(known(x)))
    return np.array(found[: x.ndim], np.int64).reshape(x.ndim, found[0].size)
