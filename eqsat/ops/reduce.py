"""Reductions: many elements to one, along any axes.

The nodes keep the reduced axes with size 1; the public functions have NumPy's
signatures and drop them with a reshape unless ``keepdims``. float16 and bfloat16 add up
in float32.
"""

from __future__ import annotations

import builtins
import functools
import math
from typing import Any

import numpy as np

from eqsat.complex_numbers import holds_complex, numpy_call
from eqsat.ops.pointwise import (
    add,
    cast,
    divide,
    equal,
    greater,
    less,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    multiply,
    subtract,
)
from eqsat.ops.support import (
    dtype_of,
    in_float32,
    is_traced,
    known_sizes,
    node,
    per_input,
    rank,
)
from eqsat.ops.transcendental import sqrt
from eqsat.ops.view import flip, permute, reshape, window
from eqsat.support import DTypeError, TraceError, at, caller_line
from eqsat.terms import (
    BOOL,
    EXACT,
    FLAT,
    ONCE,
    AttrVar,
    Axis,
    OnlyWhere,
    Op,
    ReducedAxes,
    axis_number,
    is_float,
    normal_axes,
    op,
)

_INDEX = np.dtype(np.int64)
_reduction = functools.partial(op, kind="reduce", flops=per_input(1))

# -- derivatives -----------------------------------------------------------------------


def _by_sum(g: Any, x: Any, y: Any, axis: tuple[int, ...]) -> Any:
    return g


def _by_mean(g: Any, x: Any, y: Any, axis: tuple[int, ...]) -> Any:
    return g / builtins.max(math.prod(x.shape[a] for a in axis), 1)


def _by_max(g: Any, x: Any, y: Any, axis: tuple[int, ...]) -> Any:
    part = _by_extreme(g, x, y, axis)
    return OnlyWhere(logical_not(less(x, y)), part, is_zero=True)


def _by_min(g: Any, x: Any, y: Any, axis: tuple[int, ...]) -> Any:
    part = _by_extreme(g, x, y, axis)
    return OnlyWhere(logical_not(greater(x, y)), part, is_zero=True)


def _by_extreme(g: Any, x: Any, y: Any, axis: tuple[int, ...]) -> Any:
    """g, shared equally by the elements that are the extreme."""
    hits = cast(equal(x, y), dtype_of(x))
    return hits * (g / sum_op(hits, axis=axis))


def _by_prod(g: Any, x: Any, y: Any, axis: tuple[int, ...]) -> Any:
    """g times the product of the others, which is not y / x where x is 0."""
    if x.size == 0:
        return None
    order = [*(a for a in range(-x.ndim, 0) if a not in axis), *axis]
    rows = permute(x, order)
    flat = reshape(rows, (*rows.shape[: -len(axis)], -1))
    others = products_before(flat) * flip(products_before(flip(flat, -1)), -1)
    back = [order.index(a) - x.ndim for a in range(-x.ndim, 0)]
    return g * permute(reshape(others, rows.shape), back)


def products_before(x: Any) -> Any:
    """y[i] = Π x[j] over j < i along the last axis, which is not empty."""
    running = node("accumulate", x, ufunc="multiply", axis=(-1,))
    return node(
        "pad", window(running, (0,), (x.shape[-1] - 1,)), 1, low=(1,), high=(0,)
    )


# -- nodes -----------------------------------------------------------------------------


@_reduction(
    ReducedAxes(),
    name="sum",
    join=add,
    identity=0,
    roundings=ONCE,
    vjp=_by_sum,
)
@in_float32
def sum_op(x: Any, *, axis: Axis) -> Any:
    """Σ x over the axes, kept with size 1; of the dtype of x."""
    return np.add.reduce(x, axis=axis, dtype=x.dtype, keepdims=True)


@_reduction(
    ReducedAxes(),
    name="prod",
    join=multiply,
    identity=1,
    roundings=ONCE,
    vjp=_by_prod,
)
@in_float32
def prod_op(x: Any, *, axis: Axis) -> Any:
    """Π x over the axes, kept with size 1; of the dtype of x."""
    return np.multiply.reduce(x, axis=axis, dtype=x.dtype, keepdims=True)


@_reduction(
    ReducedAxes(),
    name="mean",
    promotion="float",
    join=add,
    identity=0,
    roundings=2 * ONCE,
    vjp=_by_mean,
)
@in_float32
def mean_op(x: Any, *, axis: Axis) -> Any:
    """Σ x / n over the axes, kept with size 1; NaN when they are empty."""
    total = np.add.reduce(x, axis=axis, keepdims=True)
    return total / math.prod(x.shape[a] for a in axis)


@_reduction(
    ReducedAxes(nonempty=True),
    name="max",
    join=maximum,
    identity=-math.inf,
    roundings=EXACT,
    vjp=_by_max,
)
def max_op(x: Any, *, axis: Axis) -> Any:
    """The largest element over the axes, kept with size 1; NaN if there is one."""
    return np.maximum.reduce(x, axis=axis, keepdims=True)


@_reduction(
    ReducedAxes(nonempty=True),
    name="min",
    join=minimum,
    identity=math.inf,
    roundings=EXACT,
    vjp=_by_min,
)
def min_op(x: Any, *, axis: Axis) -> Any:
    """The smallest element over the axes, kept with size 1; NaN if there is one."""
    return np.minimum.reduce(x, axis=axis, keepdims=True)


@_reduction(
    ReducedAxes(BOOL),
    name="any",
    join=logical_or,
    identity=0,
    vjp=FLAT,
)
def any_op(x: bool, *, axis: Axis) -> Any:
    """Whether an element over the axes, kept with size 1, is not 0."""
    return np.any(x, axis=axis, keepdims=True)


@_reduction(
    ReducedAxes(BOOL),
    name="all",
    join=logical_and,
    identity=1,
    vjp=FLAT,
)
def all_op(x: bool, *, axis: Axis) -> Any:
    """Whether all elements over the axes, kept with size 1, are not 0."""
    return np.all(x, axis=axis, keepdims=True)


@_reduction(
    ReducedAxes(_INDEX, nonempty=True),
    name="argmax",
    flops=per_input(2),
    identity=-math.inf,
    vjp=FLAT,
)
def argmax_op(x: Any, *, axis: Axis) -> Any:
    """int64 index of the first largest element along one axis, kept with size 1."""
    return np.argmax(x, axis=axis[0], keepdims=True)


@_reduction(
    ReducedAxes(_INDEX, nonempty=True),
    name="argmin",
    flops=per_input(2),
    identity=math.inf,
    vjp=FLAT,
)
def argmin_op(x: Any, *, axis: Axis) -> Any:
    """int64 index of the first smallest element along one axis, kept with size 1."""
    return np.argmin(x, axis=axis[0], keepdims=True)


# -- public functions ------------------------------------------------------------------


def sum(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """Σ x over ``axis``, all by default. Small integers and bools give (u)int64."""
    if not is_traced(x):
        return _wide(np.sum, dtype)(x, axis=axis, dtype=dtype, keepdims=keepdims)
    return _reduced(sum_op, counting(x, dtype), axis, keepdims)


def _from_zero(x: Any) -> Any:
    """x as the sum of one element each: -0 is 0 then."""
    dtype = dtype_of(x)
    return x if dtype is None or dtype.kind in "biu" else x + 0.0


def prod(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """Π x over ``axis``, all by default. Small integers and bools give (u)int64."""
    if not is_traced(x):
        return _wide(np.prod, dtype)(x, axis=axis, dtype=dtype, keepdims=keepdims)
    return _reduced(prod_op, counting(x, dtype), axis, keepdims)


def mean(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """Σ x / n over ``axis``, all axes by default. Integers give float64; with an
    integer ``dtype`` the sum and its quotient are cut to it."""
    if not is_traced(x):
        return _wide(np.mean, dtype)(x, axis=axis, dtype=dtype, keepdims=keepdims)
    if dtype is None or np.dtype(dtype).kind not in "biu":
        return _reduced(mean_op, floating(x, dtype), axis, keepdims)
    total = sum(x, axis, dtype, keepdims)
    return cast(divide(total, _count("mean", x, axis)), dtype)


def var(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
) -> Any:
    """Σ (x - mean)² / (n - ddof) over ``axis``, all by default; float64 of integers.
    Sums and quotients are of ``dtype``, differences of that and the dtype of x."""
    if not is_traced(x):
        fn = _wide(np.var, dtype)
        return fn(x, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims)
    if holds_complex(x):
        how = {"axis": axis, "dtype": dtype, "ddof": ddof, "keepdims": keepdims}
        return numpy_call("var", (x,), how)
    x = floating(x, None) if dtype is None else x
    d = subtract(x, mean(x, axis, dtype, keepdims=True))
    d = multiply(d, d)
    if not ddof:
        return mean(d, axis, dtype, keepdims=keepdims)
    n = _count("var", x, axis)
    if not isinstance(n, AttrVar):
        n = builtins.max(n, ddof)
    y = divide(sum(d, axis, dtype, keepdims), n - ddof)
    return y if dtype is None else cast(y, dtype)


def std(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
) -> Any:
    """The square root of :func:`var`."""
    if not is_traced(x):
        fn = _wide(np.std, dtype)
        return fn(x, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims)
    return root(var(x, axis, dtype, ddof=ddof, keepdims=keepdims), dtype)


def root(x: Any, dtype: Any = None) -> Any:
    """√x of a variance, of ``dtype``. Raises :class:`DTypeError` for arrays of
    integers, whose roots NumPy writes to no integers; a number is cut to one."""
    y = sqrt(x)
    if dtype is None or is_float(np.dtype(dtype)):
        return y
    if x.shape:
        raise DTypeError(
            f"std: roots of {x.dtype} are no {x.dtype}\n  write "
            f"np.sqrt(np.var(x, axis, dtype=...)).astype(...){at(caller_line())}"
        )
    return cast(y, dtype)


def max(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The largest element over ``axis``, all axes by default; NaN if there is one.

    Raises :class:`ShapeError` when there is no element.
    """
    if not is_traced(x):
        return np.max(x, axis=axis, keepdims=keepdims)
    return _reduced(max_op, x, axis, keepdims)


def min(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The smallest element over ``axis``, all axes by default; NaN if there is one.

    Raises :class:`ShapeError` when there is no element.
    """
    if not is_traced(x):
        return np.min(x, axis=axis, keepdims=keepdims)
    return _reduced(min_op, x, axis, keepdims)


def any(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether an element over ``axis``, all axes by default, is not 0."""
    if not is_traced(x):
        return np.any(x, axis=axis, keepdims=keepdims)
    y = _reduced(any_op, x, axis, keepdims)
    return cast(x, bool) if y is x else y


def all(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether all elements over ``axis``, all axes by default, are not 0."""
    if not is_traced(x):
        return np.all(x, axis=axis, keepdims=keepdims)
    y = _reduced(all_op, x, axis, keepdims)
    return cast(x, bool) if y is x else y


def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """int64 index of the first largest element along ``axis``, or of all, ravelled."""
    if not is_traced(x):
        return np.argmax(x, axis=axis, keepdims=keepdims)
    return _position(argmax_op, x, axis, keepdims)


def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """int64 index of the first smallest element along ``axis``, or of all, ravelled."""
    if not is_traced(x):
        return np.argmin(x, axis=axis, keepdims=keepdims)
    return _position(argmin_op, x, axis, keepdims)


# -- helpers ---------------------------------------------------------------------------


def _wide(function: Any, dtype: Any) -> Any:
    return function if dtype is not None else in_float32(function)


def _count(name: str, x: Any, axis: Any) -> Any:
    """How many elements of ``x`` become one."""
    shape = known_sizes(name, x)
    return math.prod(shape[a] for a in normal_axes(name, axis, len(shape)))


def _reduced(node: Op, x: Any, axis: Any, keepdims: bool) -> Any:
    if isinstance(axis, AttrVar):
        axes: Any = axis
        if not keepdims:
            raise TraceError(f"{node.name}: an axis of a pattern needs keepdims=True")
    else:
        ndim = rank(x)
        axes = (
            () if ndim == 0 and axis in (0, -1) else normal_axes(node.name, axis, ndim)
        )
    if axes != ():
        y = node(x, axis=axes)
    else:
        y = _from_zero(x) if node in (sum_op, mean_op) else x
    if keepdims or axes == ():
        return y
    shape = known_sizes(f"{node.name} without keepdims", x)
    return reshape(
        y, tuple(s for a, s in enumerate(shape, -len(shape)) if a not in axes)
    )


def sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    """Σ x over the axes that ``shape``, which broadcasts with that of ``x``, lacks or
    has with size 1; the other way around from broadcasting."""
    more = builtins.max(x.ndim - len(shape), 0)
    tail = shape[builtins.max(len(shape) - x.ndim, 0) :]
    pairs = enumerate(zip(x.shape[more:], tail, strict=True), -len(tail))
    gone = [*range(-x.ndim, more - x.ndim), *(a for a, (m, n) in pairs if m != n == 1)]
    y = sum_op(x, axis=tuple(gone)) if gone else x
    return reshape(y, y.shape[more:])


def _position(node: Op, x: Any, axis: int | None, keepdims: bool) -> Any:
    if axis is not None and not isinstance(axis, AttrVar):
        axis = axis_number(node.name, axis)
    if axis is not None and rank(x) != 0:
        return _reduced(node, x, axis, keepdims)
    if axis not in (None, 0, -1):
        normal_axes(node.name, axis, 0)
    ndim = len(known_sizes(node.name, x))
    y = node(reshape(x, (-1,)), axis=(-1,))
    return reshape(y, (1,) * ndim if keepdims else ())


def counting(x: Any, dtype: Any) -> Any:
    """``x`` in the dtype in which NumPy adds up: of integers at least a machine's."""
    known = dtype_of(x)
    if (
        dtype is None
        and known is not None
        and known.kind in "biu"
        and known.itemsize < 8
    ):
        dtype = np.uint64 if known.kind == "u" else np.int64
    return x if dtype is None else cast(x, dtype)


def floating(x: Any, dtype: Any) -> Any:
    """``x`` in the dtype in which NumPy takes a mean."""
    known = dtype_of(x)
    if dtype is None and known is not None and known.kind in "biu":
        dtype = np.float64
    return x if dtype is None else cast(x, dtype)
