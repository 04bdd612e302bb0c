"""Writes to elements that are told by their places: ``np.add.at(x, i, y)``,
``np.put(x, i, y)``, ``np.putmask(x, mask, y)``, ``x.flat[i] = y``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.numpy_api import (
    flat_places,
    held,
    holds_traced,
    in_bounds,
    is_mask,
    judged,
    key_items,
    key_parts,
    name_of,
    plain_number,
    replaced_in,
    settled,
    stacked,
)
from eqsat.ops import is_traced
from eqsat.support import (
    DTypeError,
    ShapeError,
    TraceError,
    at,
    caller_line,
    untraceable,
)
from eqsat.trace import in_place
from eqsat.trace.in_place import (
    check,
    check_number,
    fitted,
    like,
    replaced,
    write,
)

_ROUNDS = 64
"""Writes to one place, one after the other, from which programs would be long."""


def ufunc_at(ufunc: np.ufunc, x: Any, indices: Any, *values: Any) -> None:
    """``ufunc.at(x, indices, values)``: each value counts, also of several for one
    place."""
    how = f"{name_of(ufunc)}.at"
    check(x, how)
    joined, places = _joined(x, indices, how)
    shape = (*places.shape, *joined.shape[1:])
    given = [stacked(settled(v)) for v in values]
    if ufunc in (np.add, np.subtract) and given:
        new = _summed(ufunc, joined, places, given[0], shape, how)
    else:
        given = [_of_shape(v, shape, how) for v in given]
        new = _one_by_one(ufunc, joined, places, given, how)
    write(x, ops.reshape(ops.cast(new, x.dtype), x.shape), how)


def _summed(
    ufunc: np.ufunc, x: Any, places: Any, value: Any, shape: Any, how: str
) -> Any:
    """Rows of ``x`` with values added to them, or taken away."""
    less = ufunc is np.subtract or x.dtype.kind not in "biu"
    joined = ops.cast(x, _step_dtype(x, value))
    given = _addend(joined, value, shape, how)
    if less and ufunc is np.add:  # -0 + 0 is 0, and -0 - 0 is -0
        given = ops.negative(given)
    axis = -len(joined.shape)
    added = ops.add_at(given, places, axis=axis, size=joined.shape[0])
    return joined - added if less else joined + added


def _of_shape(value: Any, shape: Any, how: str) -> Any:
    """``value``, which must broadcast to ``shape``."""
    own = tuple(value.shape)
    try:
        fits = np.broadcast_shapes(own, shape) == tuple(shape)
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{how}: the value has shape {own}, which does not broadcast to "
            f"{tuple(shape)}{at(caller_line())}"
        )
    return np.broadcast_to(value, shape)


_KINDS = {"b": 0, "i": 1, "u": 1}
"""Kinds of dtypes by what they hold; floats come last."""


def _addend(x: Any, value: Any, shape: Any, how: str) -> Any:
    if _KINDS.get(value.dtype.kind, 2) > _KINDS.get(x.dtype.kind, 2) or (
        _is_beside_floats(x, value) and not _is_held(x, value)
    ):
        raise DTypeError(
            f"{how}: each step would cut a number of {_met(x, value)} to {x.dtype}\n"
            f"  write y.astype({x.dtype.name!r}){at(caller_line())}"
        )
    return fitted(x, value, shape, how)


def _is_beside_floats(x: Any, value: Any) -> bool:
    """Whether two dtypes of integers meet in float64."""
    kinds = x.dtype.kind + value.dtype.kind
    return kinds in ("iu", "ui") and _met(x, value).kind == "f"


def _met(x: Any, value: Any) -> Any:
    return np.result_type(x.dtype, value.dtype)


def _step_dtype(x: Any, value: Any) -> Any:
    """The dtype in which floats and a value are added; their own where NumPy has none
    for both, as of bfloat16 and integers."""
    if x.dtype.kind in "biu":
        return x.dtype
    try:
        return _met(x, value)
    except TypeError:
        return x.dtype


def _is_held(x: Any, value: Any) -> bool:
    """Whether the dtype of ``x`` holds what is known of ``value``."""
    if is_traced(value) or not value.size:
        return True
    limits = np.iinfo(x.dtype)
    return limits.min <= int(value.min()) and int(value.max()) <= limits.max


def _joined(x: Any, indices: Any, how: str) -> tuple[Any, Any]:
    """``x`` with its first axes taken as one, and places in that one."""
    keys = indices if isinstance(indices, tuple) else (indices,)
    for k in keys:
        kind = getattr(getattr(k, "dtype", None), "kind", "i")
        if kind not in "iu" and not is_mask(k):
            raise TraceError(
                f"{how}: expected integers as indices, found {k.dtype}"
                f"{at(caller_line())}"
            )
    items = key_items(keys, x.shape)
    key_parts(tuple(items), x.shape)  # which must be as many as x has axes
    while items and (items[-1] is Ellipsis or _is_whole(items[-1])):
        items.pop()
    n = len(items)
    if items and not any(
        k is None or k is Ellipsis or isinstance(k, slice) for k in items
    ):
        rest = x.shape[n:]
        joined = ops.reshape(x, (math.prod(x.shape[:n]), *rest))
        if n == 1:
            index = np.asarray(items[0]) if isinstance(items[0], int) else items[0]
            return joined, in_bounds(index, x.shape[0], 0)
        return joined, flat_places(items, x.shape)
    places = np.arange(x.size).reshape(x.shape)
    if any(is_traced(k) for k in items):
        places = like(x, places)
    return ops.reshape(x, (x.size,)), places[tuple(items)]


def _is_whole(k: Any) -> bool:
    return isinstance(k, slice) and k == slice(None)


def _one_by_one(ufunc: np.ufunc, x: Any, places: Any, values: Any, how: str) -> Any:
    """Rows of ``x`` at known places, changed as often as a place is there."""
    if is_traced(places):
        raise untraceable(
            f"{how} cannot be traced with indices that are computed\n"
            f"  pass them as constants, or use np.add.at{at(caller_line())}"
        )
    where = places.ravel() % max(x.shape[0], 1)
    before = {int(p): 0 for p in where}
    turns = np.zeros(where.size, int)
    for i, p in enumerate(where.tolist()):
        turns[i], before[p] = before[p], before[p] + 1
    if turns.size and turns.max() >= _ROUNDS:
        raise TraceError(
            f"{how} changes one place {turns.max() + 1} times, which would make a long "
            f"program\n  reduce the values of each place first{at(caller_line())}"
        )
    rest = x.shape[1:]
    rows = [ops.reshape(v, (where.size, *rest)) for v in values]
    for turn in range(turns.max(initial=-1) + 1):
        (now,) = np.nonzero(turns == turn)
        found = ufunc(x[where[now]], *(r[now] for r in rows))
        x = replaced(x, where[now], found)
    return x


# -- places in the order of elements ---------------------------------------------------


def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """``np.put(a, ind, v)``: values are used again where there are more places."""
    how = "np.put(x, i, y)"
    check(a, how)
    judged("np.put", "mode", mode)
    places = settled(ind)
    places = places if is_traced(places) else np.asarray(places)
    if places.dtype == np.dtype(bool):
        places = places.astype(np.intp)
    if mode == "clip":
        places = np.clip(places, 0, a.size - 1)
    elif mode == "wrap":
        places = places % a.size
    _write_flat(a, places, v, how)


def _write_flat(a: Any, places: Any, value: Any, how: str) -> None:
    flat = ops.reshape(a, (a.size,))
    value = _numbers(a, value, how)
    value = _as_many(stacked(settled(value)), math.prod(places.shape))
    if value is None:
        return
    shape = places.shape if value.shape else ()
    write(
        a,
        ops.reshape(replaced(flat, places, ops.reshape(value, shape)), a.shape),
        how,
    )


def _numbers(a: Any, value: Any, how: str) -> Any:
    """Python numbers as NumPy puts them one by one into an array of the dtype of ``a``,
    which must have them."""
    plain = type(value) in (list, tuple, range)
    given = plain or (type(value) in (int, float) and a.dtype.kind in "iu")
    if not given or holds_traced(value):
        return value
    with np.errstate(all="ignore"):
        return held(value, a.dtype, how)


def _as_many(value: Any, n: int) -> Any:
    """``n`` values in the order of elements, from the first again where there are less;
    a number as it is; None where nothing is to be written."""
    size = math.prod(value.shape)
    if not n or not size:
        return None
    flat = ops.reshape(value, (size,))
    if size == 1:
        return ops.reshape(flat, ())
    return flat if size == n else ops.take(flat, np.arange(n) % size, 0)


def putmask(a: Any, mask: Any, values: Any, casting: str = "safe") -> None:
    """``np.putmask(a, mask, values)``."""
    how = "np.putmask(x, mask, y)"
    check(a, how)
    mask = stacked(settled(mask))
    if math.prod(mask.shape) != a.size:
        raise ShapeError(
            f"{how}: the mask has shape {tuple(mask.shape)}, expected {tuple(a.shape)}"
            f"{at(caller_line())}"
        )
    plain = (int, float, complex, np.generic, list, tuple, range)
    if isinstance(values, plain) or _is_number(values):
        casting = "unsafe"  # NumPy puts them one by one into an array of this dtype
    values = _numbers(a, values, how)
    value = stacked(settled(values))
    fitted(a, ops.reshape(value, (-1,))[:0], (0,), how, casting)
    value = _as_many(value, a.size)
    if value is None:
        return
    value = ops.reshape(value, a.shape if value.shape else ())
    value = fitted(a, value, a.shape, how)
    mask = ops.reshape(mask, a.shape)
    write(a, ops.where(mask if is_traced(mask) else like(a, mask), value, a), how)


def _is_number(value: Any) -> bool:
    """Whether ``value`` stands for a number, as NumPy makes of one element."""
    return is_traced(value) and not value.is_array


def place(arr: Any, mask: Any, vals: Any) -> None:
    """``np.place(arr, mask, vals)`` of one value."""
    if math.prod(np.shape(vals)) != 1:
        raise untraceable(
            "np.place(x, mask, y) of several values cannot be traced: which of them is "
            "written where depends on data\n  with values for all places, use "
            f"np.putmask(x, mask, y){at(caller_line())}"
        )
    putmask(arr, mask, vals)


class FlatView:
    """The elements of an array one after the other: ``x.flat``."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return math.prod(self.array.shape)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.copy())

    def copy(self) -> Any:
        """The elements, in an array of one axis."""
        return self.array.flatten()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.copy(), dtype)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        return getattr(ufunc, method)(*_elements(inputs), **_elements(kwargs))

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        return function(*_elements(args), **_elements(kwargs))

    def __getitem__(self, key: Any) -> Any:
        return self.copy()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        how = "x.flat[i] = y"
        key = settled(key)
        if not np.shape(key) and not isinstance(key, slice):
            check_number(settled(value), how)
        places = key if is_traced(key) else np.arange(len(self))[key]
        if is_traced(key) and key.dtype == np.dtype(bool):
            putmask(self.array, key, value, "unsafe")
            return
        check(self.array, how)
        value = plain_number(value, self.array.dtype)
        _write_flat(self.array, places, value, how)


def _elements(value: Any) -> Any:
    """``value``, nested as it may be, with arrays for what is flat in it."""
    return replaced_in(value, lambda v: v.copy() if isinstance(v, FlatView) else v)


def flat_of(kind: type[FlatView]) -> Any:
    """The attribute ``flat``, with a setter as in ``x.flat = y``."""

    def put_all(array: Any, value: Any) -> None:
        kind(array)[:] = value

    return property(kind, put_all, doc="The elements one after the other.")


WRITES: dict[Callable[..., Any], Callable[..., None]] = {
    **in_place.WRITES,
    np.place: place,
    np.put: put,
    np.putmask: putmask,
}
"""Functions that write to their first argument."""
