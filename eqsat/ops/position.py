"""Ops that know positions: take, pad, iota, triangles, and arrays of one value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat.ops.pointwise import (
    add,
    cast,
    cast_op,
    clip,
    copy,
    equal,
    greater_equal,
    less_equal,
    logical_and,
    remainder,
    where,
)
from eqsat.ops.reduce import sum_to
from eqsat.ops.support import (
    dtype_of,
    is_traced,
    known_sizes,
    negative_axis,
    per_input,
    rank,
    sizes,
)
from eqsat.ops.view import VIEWS, broadcast_to, concatenate_op, ravel, reshape, window
from eqsat.support import (
    DTypeError,
    ShapeError,
    TraceValueError,
    at,
    caller_line,
    counted,
    untraceable,
)
from eqsat.terms import (
    BOOL,
    EXACT,
    FLAT,
    HALF,
    AttrVar,
    Custom,
    DTypeName,
    Gathered,
    Ints,
    Padded,
    ToShape,
    Traced,
    Type,
    check_range,
    is_float,
    op,
)

# -- derivatives -----------------------------------------------------------------------


def _by_take(g: Any, x: Any, indices: Any, y: Any, axis: int) -> Any:
    return add_at(g, indices, axis=axis, size=x.shape[axis])


def _by_add_at(g: Any, x: Any, indices: Any, y: Any, axis: int, size: int) -> Any:
    return take_op(g, indices, axis=axis)


def _by_inside(
    g: Any, x: Any, value: Any, y: Any, low: Sequence[int], high: Sequence[int]
) -> Any:
    return window(g, low, x.shape[-len(low) :])


def _by_value(
    g: Any, x: Any, value: Any, y: Any, low: Sequence[int], high: Sequence[int]
) -> Any:
    return sum_to(g, ()) - sum_to(window(g, low, x.shape[-len(low) :]), ())


def _by_kept(g: Any, x: Any, indices: Any, values: Any, y: Any, axis: int) -> Any:
    return set_at(g, indices, zeros_like(values), axis=axis)


def _by_set(g: Any, x: Any, indices: Any, values: Any, y: Any, axis: int) -> Any:
    shape = known_sizes("set_at", indices)
    places = reshape(iota(math.prod(shape), like=g), shape)
    none = full_like(g, -1, np.int64, (x.shape[axis],))
    stays = take_op(set_at(none, indices, places, axis=-1), indices, axis=-1)
    stays = reshape(equal(stays, places), (*shape, *(1,) * (-1 - axis)))
    return where(stays, take_op(g, indices, axis=axis), 0)


# -- nodes -----------------------------------------------------------------------------


@op(
    Gathered(),
    name="take",
    promotion="first",
    flops=0,
    roundings=EXACT,
    vjp=(_by_take, None),
)
def take_op(x: Any, indices: int, *, axis: int) -> Any:
    """The slices of x at the indices, which may count from the end, along an axis."""
    return np.take(x, indices, axis=axis)


@op(Padded(), kind="view", name="pad", flops=0, vjp=(_by_inside, _by_value))
def pad_op(x: Any, value: Any, *, low: Ints, high: Ints) -> Any:
    """x with the value low times before and high times behind along trailing axes."""
    lead = np.ndim(x) - len(low)
    rows = list(zip(low, x.shape[lead:], high, strict=True))
    y = np.full((*x.shape[:lead], *(a + n + b for a, n, b in rows)), value, x.dtype)
    inside: list[Any] = [slice(a, a + n) for a, n, _ in rows]
    y[(..., *inside)] = x
    return y


@op(
    ToShape(dtype_attr="dtype"),
    name="iota",
    promotion="first",
    flops=1,
    roundings=EXACT,
    vjp=FLAT,
)
def iota_op(*, shape: Ints, dtype: DTypeName) -> Any:
    """y[i] = i, for a shape of one axis."""
    return np.arange(*shape, dtype=dtype)


ASSEMBLIES = frozenset([concatenate_op, pad_op])
"""Ops each of whose arguments is a part of the result: no view, and no arithmetic."""


MOVES = VIEWS | ASSEMBLIES | {take_op, copy}
"""Ops whose elements are those of their arguments, in other places."""


def _added_type(who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
    """The inverse of :class:`Gathered`: the axes of the indices become one."""
    (dtype, shape), (index_dtype, index_shape) = types
    lead = len(shape) - len(index_shape) + attrs["axis"] + 1
    n = len(index_shape)
    if lead < 0 or attrs["axis"] >= 0 or shape[lead : lead + n] != index_shape:
        raise ShapeError(
            f"{who}: argument 'x' has shape {shape}, expected the axes {index_shape} "
            f"of 'indices' in the place of axis {attrs['axis']} of the result"
            f"{at(caller_line())}"
        )
    if is_float(index_dtype):
        raise DTypeError(
            f"{who}: indices have dtype {index_dtype}, expected integers"
            f"{at(caller_line())}"
        )
    if attrs["size"] < 0:
        raise ShapeError(f"{who}: size is {attrs['size']}, below 0{at(caller_line())}")
    return dtype, (*shape[:lead], attrs["size"], *shape[lead + n :])


@op(
    Custom(_added_type),
    name="add_at",
    promotion="first",
    flops=per_input(1),
    vjp=(_by_add_at, None),
)
def add_at(x: Any, indices: int, *, axis: int, size: int) -> Any:
    """Zeros, ``size`` of them along an axis, to which the slices of x are added at the
    indices, which may count from the end: what :data:`take_op` does, transposed.

    float16 and bfloat16 are added up in float32.
    """
    wide = np.dtype("f4") if x.dtype in HALF else x.dtype
    lead = x.ndim - np.ndim(indices) + axis + 1
    shape = (*x.shape[:lead], size, *x.shape[lead + np.ndim(indices) :])
    y = np.zeros(shape, wide)
    place: Any = (*[slice(None)] * lead, indices)
    np.add.at(y, place, x)
    return y.astype(x.dtype, copy=False)


def _set_type(who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
    (dtype, shape), indices, (own, given) = types
    slices = Gathered().infer(who, [(dtype, shape), indices], attrs)
    if (own, given) != slices:
        raise ShapeError(
            f"{who}: argument 'values' is {own} of shape {given}, expected {dtype} of "
            f"shape {slices[1]}{at(caller_line())}"
        )
    return dtype, shape


@op(Custom(_set_type), name="set_at", promotion="first", flops=0,
    vjp=(_by_kept, None, _by_set))  # fmt: skip
def set_at(x: Any, indices: int, values: Any, *, axis: int) -> Any:
    """x with values in the place of its slices at the indices, which may count from
    the end, along an axis; of several for one place the last."""
    y = np.array(x)
    # NumPy writes in the order of memory, not of the indices, where all lie reversed.
    given = np.array(indices, order="C"), np.array(values, order="C")
    place: Any = (*[slice(None)] * (y.ndim + axis), given[0])
    y[place] = given[1]
    return y


# -- public functions ------------------------------------------------------------------


def _size(x: Any, axis: int) -> int | None:
    """Elements along an axis; None where they are not known."""
    shape = sizes(x)
    size = shape[axis] if shape and -len(shape) <= axis < len(shape) else None
    return size if isinstance(size, int) else None


def _compact(indices: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    """Known indices within ``size`` elements in few bits, counted from the front. Those
    that are out of bounds stay for the error."""
    if not indices.size or indices.min() < -size or indices.max() >= size:
        return indices
    counted = np.where(indices < 0, indices + size, indices)
    for dtype in (np.uint8, np.uint16, np.int32):
        if size - 1 <= np.iinfo(dtype).max:
            return counted.astype(dtype)
    return counted


def take(x: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Any:
    """The slices of ``x`` at ``indices`` along ``axis``; of ``x`` ravelled by default.

    Negative indices count from the end. Raises :class:`DTypeError` for indices that are
    not integers; an index out of bounds is an error when the program runs.
    """
    if not is_traced(x, indices):
        return np.take(x, indices, axis=axis, mode=mode)  # type: ignore[call-overload]
    if mode not in ("raise", "wrap", "clip"):
        raise TraceValueError(
            f"take: mode {mode!r}, expected 'raise', 'wrap' or 'clip'"
            f"{at(caller_line())}"
        )
    if not is_traced(indices):
        lists = isinstance(indices, (list, tuple))
        indices = np.asarray(indices)
        if lists and not indices.size:  # of no dtype
            indices = indices.astype(np.int64)
        if indices.dtype.kind not in "biu":
            raise DTypeError(
                f"take: indices have dtype {indices.dtype}, expected integers"
                f"{at(caller_line())}"
            )
        indices = indices.astype(np.int64)
    elif dtype_of(indices) == BOOL:
        indices = cast(indices, np.int64)
    if axis is None or (rank(x) == 0 and axis in (0, -1)):
        return take(ravel(x), indices, 0, mode)
    axis = negative_axis("take", axis, rank(x))
    if mode != "raise":
        indices = _inside(indices, known_sizes("take", x)[axis], mode)
    if isinstance(indices, np.ndarray) and (size := _size(x, axis)) is not None:
        indices = _compact(indices, size)
    return take_op(x, indices, axis=axis)


def _inside(indices: Any, n: int, mode: str) -> Any:
    """``indices`` wrapped or clipped into ``n`` elements; those of none stay for the
    error."""
    if not n:
        return indices
    if mode == "clip":
        return clip(indices, 0, n - 1)
    dtype = dtype_of(indices)
    if dtype is not None and n > np.iinfo(dtype).max:
        indices = cast(indices, np.int64)
    return remainder(indices, n)


def pad(
    x: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0
) -> Any:
    """``x`` with ``constant_values`` around it; ``pad_width`` and ``mode`` as of
    ``np.pad``.

    Traced, the modes are constant, edge, reflect, symmetric and wrap.
    """
    if not is_traced(x, constant_values):
        more = {"constant_values": constant_values} if mode == "constant" else {}
        return np.pad(x, pad_width, mode, **more)  # type: ignore[call-overload]
    shape = known_sizes("pad", x)
    rows = _widths(pad_width, len(shape))
    if mode in ("edge", "reflect", "symmetric", "wrap"):
        for k, (row, n) in enumerate(zip(rows, shape, strict=True), -len(shape)):
            if row != (0, 0):
                x = take(x, np.pad(np.arange(n), row, mode), axis=k)  # type: ignore[call-overload]
        return x
    if mode != "constant":
        raise untraceable(
            f"pad: mode {mode!r} cannot be traced; constant, edge, reflect, symmetric "
            f"and wrap can{at(caller_line())}"
        )
    if not is_traced(constant_values) and np.ndim(constant_values) > 0:
        return _pad_apart(x, rows, constant_values)
    while rows and rows[0] == (0, 0):
        del rows[0]
    if not rows:
        return x
    low, high = zip(*rows, strict=True)
    return pad_op(x, _of_dtype(constant_values, dtype_of(x)), low=low, high=high)


def _widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    """Widths before and behind each axis. Raises :class:`ShapeError` when they are no
    numbers for ``ndim`` axes."""
    if isinstance(pad_width, dict):
        given = {negative_axis("pad", a, ndim): w for a, w in pad_width.items()}
        pad_width = [given.get(a, (0, 0)) for a in range(-ndim, 0)]
        pad_width = [(w, w) if np.ndim(w) == 0 else w for w in pad_width]
    try:
        rows = np.broadcast_to(np.asarray(pad_width), (ndim, 2)).tolist()
    except ValueError:
        rows = [(-1, -1)]
    if any(type(n) is not int or n < 0 for row in rows for n in row):
        raise ShapeError(
            f"pad: pad_width={pad_width!r:.60}, expected ints from 0 on for "
            f"{counted(ndim, 'axis')}{at(caller_line())}"
        )
    return [tuple(row) for row in rows]


def _pad_apart(x: Any, rows: Sequence[tuple[int, int]], values: Any) -> Any:
    """``x`` with a value of its own on each side of each axis, the first axis first."""
    ndim = len(rows)
    each = np.broadcast_to(np.asarray(values), (ndim, 2))
    for axis, (row, pair) in enumerate(zip(rows, each, strict=True)):
        for side in (0, 1):
            width = [[0, 0] for _ in range(ndim)]
            width[axis][side] = row[side]
            x = pad(x, width, constant_values=pair[side])
    return x


def _of_dtype(value: Any, dtype: np.dtype[Any] | None) -> Any:
    """A number, or a traced value, as ``dtype`` would hold it."""
    if dtype is None:
        return value
    if is_traced(value):
        return cast(value, dtype)
    return np.asarray(value).astype(dtype, copy=False)


def iota(n: int, like: Any = None) -> Any:
    """0, 1, …, n - 1 as int64; recorded when ``like`` is traced."""
    attrs = {"shape": (n,), "dtype": "int64"}
    return like.lift(iota_op, [], attrs) if is_traced(like) else iota_op(**attrs)


def tril(x: Any, k: int = 0) -> Any:
    """``x`` with 0 above diagonal ``k`` of its last two axes."""
    return _triangle(x, k, True) if is_traced(x) else np.tril(x, k)


def triu(x: Any, k: int = 0) -> Any:
    """``x`` with 0 below diagonal ``k`` of its last two axes."""
    return _triangle(x, k, False) if is_traced(x) else np.triu(x, k)


def _triangle(x: Any, k: int, lower: bool) -> Any:
    ndim = rank(x)
    if ndim == 0:
        raise ShapeError(
            f"{'tril' if lower else 'triu'}: 0 dimensions{at(caller_line())}"
        )
    m, n = x.shape[-1 if ndim == 1 else -2], x.shape[-1]
    keep = diagonal_band(m, n, k, lower=lower, like=x)
    return logical_and(x, keep) if dtype_of(x) == BOOL else where(keep, x, 0)


def diagonal_band(
    m: int, n: int, k: Any, *, lower: bool = True, like: Any = None
) -> Any:
    """keep[i, j] = j ≤ i + k, or j ≥ i + k when not ``lower``; bools over m n."""
    rows = reshape(iota(m, like), (m, 1))
    compare = less_equal if lower else greater_equal
    return compare(iota(n, like), add(rows, k))


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """An array of ``shape`` that holds ``fill_value`` everywhere."""
    if not is_traced(fill_value):
        return np.full(shape, fill_value, dtype)
    return broadcast_to(fill_value if dtype is None else cast(fill_value, dtype), shape)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    """An array of the shape and dtype of ``x`` that holds ``fill_value`` everywhere."""
    if not is_traced(x, fill_value):
        return np.full_like(x, fill_value, dtype=dtype, shape=shape)
    like = x if isinstance(x, Traced) else fill_value
    if dtype is None:
        dtype = getattr(x, "dtype", None) or dtype_of(x)
    if not isinstance(dtype, AttrVar):
        dtype = np.dtype(dtype)
        if type(fill_value) is int and is_float(dtype):
            fill_value = float(fill_value)
        check_range("full_like", fill_value, np.dtype(int) if dtype == BOOL else dtype)
        dtype = dtype.name
    one = like.lift(cast_op, [fill_value], {"dtype": dtype})
    return broadcast_to(one, known_sizes("full_like", x) if shape is None else shape)


def zeros_like(x: Any, dtype: Any = None, shape: Any = None) -> Any:
    """An array of the shape and dtype of ``x`` that holds 0."""
    return full_like(x, 0, dtype, shape)


def ones_like(x: Any, dtype: Any = None, shape: Any = None) -> Any:
    """An array of the shape and dtype of ``x`` that holds 1."""
    return full_like(x, 1, dtype, shape)
