"""NumPy's functions that arrange: shapes, joins, cuts and choices."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat import complex_numbers, ops
from eqsat.numpy_api.at_end import at_end, truth
from eqsat.numpy_api.indexing import getitem, in_bounds, take_along_axis
from eqsat.numpy_api.operands import (
    array,
    holds_traced,
    judged,
    refuse_argument,
    strong,
)
from eqsat.numpy_api.table import Handler, covers
from eqsat.ops import dtype_of, is_traced, known_sizes, negative_axis
from eqsat.support import (
    DTypeError,
    RangeError,
    ShapeError,
    TraceError,
    TraceValueError,
    at,
    caller_line,
    counted,
)
from eqsat.terms import AttrVar, Traced, Weak, common_dtype, normal_axes

_SAME_SIGNATURE = (
    "array_split broadcast_to expand_dims flip moveaxis roll split squeeze "
    "swapaxes take tensordot tile transpose tril triu"
)
for _name in _SAME_SIGNATURE.split():
    covers(_name)(getattr(ops, _name))
covers("linalg.matrix_transpose")(ops.matrix_transpose)
covers("matrix_transpose")(ops.matrix_transpose)
covers("linalg.tensordot")(ops.tensordot)
covers("take_along_axis")(take_along_axis)


@covers("take", replace=True)
def take(a: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Any:
    """The slices of ``a`` at ``indices``. Raises :class:`BoundsError` for known ones
    that are out of bounds, also where nothing needs the result."""
    found = ops.take(a, indices, axis, mode)
    known = not is_traced(indices) and np.size(indices)
    if known and isinstance(a, Traced) and a.known_shape:
        sizes = shape(a)
        n = math.prod(sizes) if axis is None or not sizes else sizes[axis]
        if mode == "raise" or not n:
            in_bounds(np.asarray(indices).astype(int), n, axis or 0)
    return found


@covers("clip")
def clip(
    a: Any,
    a_min: Any = np._NoValue,
    a_max: Any = np._NoValue,
    *,
    min: Any = np._NoValue,
    max: Any = np._NoValue,
) -> Any:
    """``a`` within bounds. Raises :class:`TraceError` for one of ``a_min`` and
    ``a_max`` alone."""
    places, named = {"a_min": a_min, "a_max": a_max}, {"min": min, "max": max}
    by_place, by_name = (
        {k: v for k, v in bounds.items() if v is not np._NoValue}
        for bounds in (places, named)
    )
    if by_place and by_name:
        raise TraceValueError(
            "np.clip: bounds by place and by min= or max=, expected one of these"
            f"{at(caller_line())}"
        )
    for lacking in places.keys() - by_place.keys() if by_place else ():
        raise TraceError(
            f"np.clip: {lacking} is missing, and the other bound is given; None is no "
            f"bound{at(caller_line())}"
        )
    return ops.clip(a, **by_place, **by_name)


covers("einsum", direct=True)(ops.einsum)
covers("fix")(ops.trunc)


@covers("astype")
def astype(x: Any, dtype: Any) -> Any:
    """``x`` rounded to ``dtype``."""
    return x.astype(dtype)


# -- what is known while tracing -------------------------------------------------------


@covers("shape")
def shape(a: Any) -> tuple[int, ...]:
    """Sizes of the axes."""
    return known_sizes("np.shape", a)


@covers("ndim")
def ndim(a: Any) -> int:
    """Number of axes."""
    return len(shape(a))


@covers("size")
def size(a: Any, axis: Any = None) -> int:
    """Number of elements, in all or along ``axis``."""
    sizes = shape(a)
    return math.prod(sizes[k] for k in normal_axes("np.size", axis, len(sizes)))


@covers("result_type", direct=True)
def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The dtype in which the arguments meet."""
    return np.result_type(
        *(dtype_of(v) if isinstance(v, Traced) else v for v in arrays_and_dtypes)
    )


@covers("iscomplexobj")
def iscomplexobj(x: Any) -> bool:
    """Whether the dtype is complex."""
    return complex_numbers.holds_complex(x)


@covers("isrealobj")
def isrealobj(x: Any) -> bool:
    """Whether the dtype is not complex."""
    return not complex_numbers.holds_complex(x)


# -- making and arranging --------------------------------------------------------------


@covers("real")
def real(val: Any) -> Any:
    """The real parts; the array itself where it is real."""
    return complex_numbers.real(val)


@covers("copy")
def same(a: Any) -> Any:
    """The array: a traced value never changes, so that it is its own copy."""
    return a


@covers("full_like")
def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    """``fill_value`` in the shape of ``a``."""
    return ops.full_like(a, fill_value, dtype=dtype, **_shape(shape))


@covers("zeros_like", "empty_like")
def zeros_like(a: Any, dtype: Any = None, shape: Any = None) -> Any:
    """0 in the shape of ``a``."""
    return ops.zeros_like(a, dtype=dtype, **_shape(shape))


@covers("ones_like")
def ones_like(a: Any, dtype: Any = None, shape: Any = None) -> Any:
    """1 in the shape of ``a``."""
    return ops.ones_like(a, dtype=dtype, **_shape(shape))


def _shape(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    check_sizes("an array of a shape", given)
    return {"shape": sizes_of(given)}


def sizes_of(given: Any) -> tuple[Any, ...]:
    """A shape as a tuple of sizes; one size is a shape of one axis."""
    if isinstance(given, AttrVar):
        return (given,)
    try:
        return (operator.index(given),)
    except TypeError:
        return tuple(s if isinstance(s, AttrVar) else operator.index(s) for s in given)


def check_sizes(name: str, given: Any) -> None:
    """Raise :class:`ShapeError` for a shape with a size below 0."""
    sizes = sizes_of(given)
    if any(type(s) is int and s < 0 for s in sizes):
        raise ShapeError(
            f"{name}: shape {sizes}, expected sizes from 0 on{at(caller_line())}"
        )


@covers("reshape")
def reshape(a: Any, shape: Any, order: str = "C") -> Any:
    """``a`` in another shape."""
    sizes = sizes_of(shape)
    axes = _axes("np.reshape", a, order, "CFA")
    if axes is None:
        return ops.reshape(a, sizes)
    return ops.transpose(ops.reshape(ops.transpose(a), sizes[::-1]))


@covers("ravel")
def ravel(a: Any, order: str = "C") -> Any:
    """``a`` with one axis."""
    axes = _axes("np.ravel", a, order, "CFAK")
    return ops.ravel(a if axes is None else ops.transpose(a, axes or None))


def _axes(name: str, a: Any, order: str, known: str) -> tuple[int, ...] | None:
    """The axes in the order in which elements are read, the slowest first; none where
    that is the last one first, None where it is as they are. "A" and "K" ask for the
    order in memory."""
    if order not in (*known,):
        words = f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}"
        raise TraceValueError(
            f"{name}: order={order!r}, expected {words}{at(caller_line())}"
        )
    if order in "CF":
        return () if order == "F" else None
    if sum(n > 1 for n in shape(a)) < 2:
        return None
    lies = a.lies_as() if isinstance(a, Traced) else np.asarray(a)
    if lies is None:
        raise TraceError(
            f"{name}: order={order!r} asks for the order in memory, which is not known "
            f"of this array; write order='C' or 'F'{at(caller_line())}"
        )
    if order == "A":
        return () if lies.flags.fnc else None
    return _axes_in_memory(lies)


def _axes_in_memory(lies: np.ndarray[Any, Any]) -> tuple[int, ...]:
    """The axes as NumPy's iterator goes through them, the slowest first: by their
    strides, but for those of 0, along which an array is repeated."""
    few = tuple(min(n, 2) for n in lies.shape)
    strides = tuple(map(abs, lies.strides))
    corner = np.lib.stride_tricks.as_strided(np.empty(1, lies.dtype), few, strides)
    flags = ["multi_index", "refs_ok", "zerosize_ok"]
    places = np.nditer(corner, flags, order="K")  # type: ignore[call-overload]
    first = [0] * lies.ndim
    for n in range(places.itersize):
        for axis, i in enumerate(places.multi_index):
            if i and not first[axis]:
                first[axis] = n
        places.iternext()
    return tuple(sorted(range(lies.ndim), key=lambda axis: -first[axis]))


@covers("rollaxis")
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """``a`` with ``axis`` moved before ``start``."""
    n = len(shape(a))
    axis = negative_axis("np.rollaxis", axis, n) + n
    start = n if start == n else negative_axis("np.rollaxis", start, n) + n
    return ops.moveaxis(a, axis, start - 1 if axis < start else start)


@covers("fliplr")
def fliplr(m: Any) -> Any:
    """``m`` with its second axis reversed."""
    return ops.flip(m, 1)


@covers("flipud")
def flipud(m: Any) -> Any:
    """``m`` with its first axis reversed."""
    return ops.flip(m, 0)


@covers("repeat")
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Every element as often as ``repeats`` says; made at the end where that is
    traced."""
    known = not is_traced(repeats) or getattr(repeats, "has_value", False)
    if not known or (is_traced(repeats) and np.size(repeats) != 1):
        return at_end("np.repeat", np.repeat, (array(a), repeats, axis), {})
    if isinstance(repeats, Traced) or np.size(repeats) == 1:
        return ops.repeat(a, repeats, axis)
    a, axis = (ops.ravel(a), 0) if axis is None or not shape(a) else (a, axis)
    k = negative_axis("np.repeat", axis, len(shape(a)))
    n = shape(a)[k]
    if np.shape(repeats) != (n,):
        raise ShapeError(
            f"np.repeat: {counted(np.size(repeats), 'repeat')} for axis {axis} of "
            f"shape {shape(a)}{at(caller_line())}"
        )
    return ops.take(a, np.repeat(np.arange(n), repeats), k)


_OF_MODES = {"constant_values": ("constant",), "reflect_type": ("reflect", "symmetric")}
"""The modes of ``np.pad`` that take an argument."""


@covers("pad")
def pad(array: Any, pad_width: Any, mode: Any = "constant", **values: Any) -> Any:
    """``array`` with more elements around it."""
    if not isinstance(mode, str):
        raise TraceError(
            f"np.pad: mode must be a name, got {mode!r}{at(caller_line())}"
        )
    for name in values:
        if name != "constant_values" and (name, values[name]) != (
            "reflect_type",
            "even",
        ):
            refuse_argument("np.pad", name)
    for name, modes in _OF_MODES.items():
        if name in values and mode not in modes:
            raise TraceValueError(
                f"np.pad: {name} means nothing where mode={mode!r}{at(caller_line())}"
            )
    given = values.get("constant_values", 0)
    own = dtype_of(array)
    if own is not None and own.kind in "iu" and not holds_traced(given):
        try:  # as NumPy writes them, each to a part of the array
            np.pad(np.zeros((1,) * len(shape(array)), own), 1, constant_values=given)
        except (OverflowError, ValueError) as error:
            raise DTypeError(f"np.pad: {error}{at(caller_line())}") from error
    return ops.pad(array, pad_width, mode, constant_values=given)


@covers("where")
def where(condition: Any, *choices: Any) -> Any:
    """x where the condition holds, else y; where that is, without x and y."""
    if not choices:
        return at_end("np.where", np.where, (truth(condition),), {})
    if len(choices) == 1:
        raise TraceValueError(
            f"np.where: expected both x and y, or neither{at(caller_line())}"
        )
    x, y = map(array, choices)
    return ops.where(array(condition), _cut(x, y), _cut(y, x))


def _cut(value: Any, beside: Any) -> Any:
    """A bare integer ``beside`` an array of integers as ``np.where`` cuts it to size,
    without an error."""
    dtype = dtype_of(beside)
    if type(value) is not int or dtype is None or dtype.kind not in "biu":
        return value
    try:
        return int(np.where(True, value, np.zeros((), dtype)))
    except OverflowError as error:
        raise RangeError(
            f"np.where: {value} beside {dtype}: {error}{at(caller_line())}"
        ) from error


@covers("select")
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """The choice of the first condition that holds, else ``default``."""
    if len(condlist) != len(choicelist):
        raise ShapeError(
            f"np.select: {counted(len(choicelist), 'choice')} for "
            f"{counted(len(condlist), 'condition')}"
            f"{at(caller_line())}"
        )
    if any(dtype_of(c) != np.dtype(bool) for c in condlist if type(c) is not bool):
        raise DTypeError(f"np.select: a condition is not bool{at(caller_line())}")
    choices = [array(c) for c in (*choicelist, default)]
    known = [dtype_of(c) or Weak(type(c)) for c in choices]
    dtype = common_dtype("np.select", "common", known)
    numbers = [np.asarray(c).dtype for c in choicelist if type(c) is int]
    if dtype.kind == "u" and not all(
        np.can_cast(n, dtype, "same_kind") for n in numbers
    ):
        raise DTypeError(
            "np.select: a choice is an int of Python, and NumPy casts no int64 to "
            f"{dtype}\n  write {dtype}(number){at(caller_line())}"
        )
    chosen, *rest = (ops.cast(c, dtype) for c in reversed(choices))
    for condition, choice in zip(reversed(condlist), rest, strict=True):
        chosen = ops.where(condition, choice, chosen)
    return chosen


@covers("choose")
def choose(a: Any, choices: Any, mode: str = "raise") -> Any:
    """Of each place the choice of the number that ``a`` has there."""
    dtype = np.result_type(
        *(c if type(c) in (int, float) else strong(c).dtype for c in choices)
    )
    parts = [ops.cast(strong(c), dtype) for c in choices]
    judged("np.choose", "mode", mode)
    a = array(a)
    if strong(a).dtype.kind not in "biu":
        raise DTypeError(
            f"np.choose: a has dtype {strong(a).dtype}, expected integers"
            f"{at(caller_line())}"
        )
    a, *parts = broadcast_arrays(a, *parts)
    number = ops.cast(a, np.dtype(int))
    if mode == "clip":
        number = ops.clip(number, 0, len(parts) - 1)
    elif mode == "wrap":
        number = number % len(parts)
    else:  # no number counts from the end
        number = ops.where(number < 0, len(parts), number)
        if isinstance(a, Traced):
            a.leaves_to_numpy(
                f"np.choose: a has an element below 0 or above {len(parts) - 1}, "
                f"expected one of {counted(len(parts), 'choice')}{at(caller_line())}"
            )
    joined = stack(parts)
    return take_along_axis(joined, ops.expand_dims(number, 0), 0)[0]


@covers("vander")
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """Powers of x as columns, the highest first unless ``increasing``."""
    if len(x.shape) != 1:
        raise ShapeError(
            f"np.vander: x has shape {tuple(x.shape)}, expected one axis"
            f"{at(caller_line())}"
        )
    if N is not None:
        check_sizes("np.vander", N)
    x = ops.cast(x, np.promote_types(x.dtype, int))
    columns = [ops.ones_like(x)]
    for _ in range(1, len(x) if N is None else N):
        columns.append(columns[-1] * x if columns[1:] else x)
    columns = columns[: len(x) if N is None else N]
    if not columns:
        return np.zeros((x.shape[0], 0), x.dtype)
    return ops.stack(columns if increasing else columns[::-1], -1)


# -- joining and cutting ---------------------------------------------------------------


@covers("concatenate")
def concatenate(
    arrays: Sequence[Any],
    axis: int | None = 0,
    dtype: Any = None,
    casting: str = "same_kind",
) -> Any:
    """The arrays one after the other."""
    return ops.concatenate(_parts("np.concatenate", arrays, dtype, casting), axis)


@covers("stack")
def stack(
    arrays: Sequence[Any],
    axis: int = 0,
    dtype: Any = None,
    casting: str = "same_kind",
) -> Any:
    """The arrays along a new axis."""
    return ops.stack(_parts("np.stack", arrays, dtype, casting), axis)


def _parts(name: str, arrays: Sequence[Any], dtype: Any, casting: str) -> list[Any]:
    """What is to be joined, in ``dtype``, which ``casting`` must allow."""
    parts = [array(a) for a in arrays]
    if dtype is None:
        return parts
    for own in map(dtype_of, parts):
        if own is not None and not np.can_cast(own, dtype, casting):  # type: ignore[arg-type]
            raise DTypeError(
                f"{name}: {own} to {np.dtype(dtype)} is not casting={casting!r}"
                f"{at(caller_line())}"
            )
    return [ops.cast(a, dtype) for a in parts]


@covers("vstack")
def vstack(tup: Sequence[Any]) -> Any:
    """The arrays below each other."""
    return ops.concatenate([atleast_2d(a) for a in tup], 0)


@covers("hstack")
def hstack(tup: Sequence[Any]) -> Any:
    """The arrays beside each other."""
    parts = [atleast_1d(a) for a in tup]
    if not parts:
        raise ShapeError(f"np.hstack of no arrays{at(caller_line())}")
    return ops.concatenate(parts, 0 if len(shape(parts[0])) == 1 else 1)


@covers("dstack")
def dstack(tup: Sequence[Any]) -> Any:
    """The arrays behind each other."""
    return ops.concatenate([atleast_3d(a) for a in tup], 2)


@covers("column_stack")
def column_stack(tup: Sequence[Any]) -> Any:
    """Arrays of one axis as columns."""
    columns = [
        ops.reshape(a, (-1, 1)) if len(shape(a)) < 2 else a for a in map(array, tup)
    ]
    return ops.concatenate(columns, 1)


@covers("vsplit")
def vsplit(ary: Any, indices_or_sections: Any) -> Any:
    """Parts along the first axis."""
    if len(shape(ary)) < 2:
        raise ShapeError(
            f"np.vsplit: ary has shape {shape(ary)}, expected two axes or more"
            f"{at(caller_line())}"
        )
    return ops.split(ary, indices_or_sections, 0)


@covers("hsplit")
def hsplit(ary: Any, indices_or_sections: Any) -> Any:
    """Parts along the second axis; the first of an array of one axis."""
    return ops.split(ary, indices_or_sections, 0 if len(shape(ary)) == 1 else 1)


@covers("dsplit")
def dsplit(ary: Any, indices_or_sections: Any) -> Any:
    """Parts along the third axis."""
    return ops.split(ary, indices_or_sections, 2)


def _each(fit: Handler, arys: Sequence[Any]) -> Any:
    fitted = tuple(fit(array(a)) for a in arys)
    return fitted[0] if len(fitted) == 1 else fitted


@covers("atleast_1d", direct=True)
def atleast_1d(*arys: Any) -> Any:
    """The arrays with at least one axis."""
    return _each(lambda a: ops.reshape(a, shape(a) or (1,)), arys)


@covers("atleast_2d", direct=True)
def atleast_2d(*arys: Any) -> Any:
    """The arrays with at least two axes; new ones in front."""
    return _each(lambda a: ops.reshape(a, (1,) * (2 - len(shape(a))) + shape(a)), arys)


@covers("atleast_3d", direct=True)
def atleast_3d(*arys: Any) -> Any:
    """The arrays with at least three axes: (1, n, 1) and (m, n, 1)."""
    return _each(lambda a: ops.reshape(a, _three(shape(a))), arys)


def _three(s: tuple[int, ...]) -> tuple[int, ...]:
    return (
        s if len(s) > 2 else (*s, 1) if len(s) == 2 else (1, *s, 1) if s else (1, 1, 1)
    )


@covers("broadcast_arrays", direct=True)
def broadcast_arrays(*args: Any) -> tuple[Any, ...]:
    """The arrays in their common shape."""
    arrays = [array(a) for a in args]
    shapes = [shape(a) for a in arrays]
    try:
        common = np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(
            f"np.broadcast_arrays: shapes {', '.join(map(str, shapes))} do not "
            f"broadcast{at(caller_line())}"
        ) from None
    return tuple(  # by NumPy's function, so that each result shows its own array
        a if shape(a) == common else np.broadcast_to(a, common) for a in arrays
    )


@covers("diff")
def diff(
    a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None
) -> Any:
    """a[i + 1] - a[i] along ``axis``, n times."""
    if n < 0:
        raise ShapeError(
            f"np.diff: n={n}, expected an int from 0 on{at(caller_line())}"
        )
    if n == 0:
        return a
    k = negative_axis("np.diff", axis, len(shape(a)))
    if prepend is not None or append is not None:
        one = [1 if i == k else s for i, s in enumerate(shape(a), -len(shape(a)))]
        ends = [
            [] if e is None else [e if shape(e) else ops.broadcast_to(e, one)]
            for e in (prepend, append)
        ]
        a = concatenate([*ends[0], a, *ends[1]], k)
    for _ in range(n):
        rest = (slice(None),) * (-k - 1)
        later, earlier = (
            getitem(a, (..., slice(1, None), *rest)),
            getitem(a, (..., slice(-1), *rest)),
        )
        a = later != earlier if dtype_of(a) == np.dtype(bool) else later - earlier
    return a
