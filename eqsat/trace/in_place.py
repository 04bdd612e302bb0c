"""What is written to traced arrays: ``x += y``, ``x[key] = y``, ``out=`` and their
like, as another value of the array."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat import complex_numbers, ops
from eqsat.numpy_api import (
    AtEnd,
    Selected,
    are_together,
    as_mask,
    call_ufunc,
    chosen,
    flat_places,
    getitem,
    held,
    holds_traced,
    is_mask,
    key_along,
    key_items,
    key_parts,
    name_of,
    operand,
    plain_number,
    refuse_function,
    settled,
    stacked,
    where_under,
)
from eqsat.ops import dtype_of, is_traced
from eqsat.support import (
    BoundsError,
    DTypeError,
    ShapeError,
    TraceError,
    at,
    caller_line,
    made_elsewhere,
    untraceable,
)
from eqsat.terms import Traced, axis_number, constant
from eqsat.trace.aliasing import check_mask, is_basic, with_part


def fitted(
    x: Any, value: Any, shape: Sequence[int], how: str, casting: str = "unsafe"
) -> Any:
    """``value`` in the dtype of ``x`` and in ``shape``, of a part of it."""
    if isinstance(value, AtEnd):
        value.refuse(f"{how} with {{}}")
    value = operand(list(value) if isinstance(value, range) else value)
    if value is NotImplemented:
        raise TraceError(
            f"{how}: y is neither an array nor a number{at(caller_line())}"
        )
    if type(value) is int and x.dtype.kind in "iu":
        value = held(value, x.dtype, how)
    value = value if is_traced(value) else np.asarray(value)
    if not np.can_cast(value.dtype, x.dtype, casting):  # type: ignore[arg-type]
        raise DTypeError(
            f"{how}: cannot write dtype {value.dtype} to an array of "
            f"{x.dtype}\n  write y.astype({x.dtype.name!r}){at(caller_line())}"
        )
    if not is_traced(value):
        with np.errstate(all="ignore"):
            value = like(x, value.astype(x.dtype))
    own = tuple(value.shape)
    while len(own) > len(shape) and own[0] == 1:
        own = own[1:]
    behind = shape[len(shape) - len(own) :] if len(own) <= len(shape) else ()
    if len(own) > len(shape) or any(
        n not in (1, m) for n, m in zip(own, behind, strict=True)
    ):
        raise ShapeError(
            f"{how}: the value has shape {tuple(value.shape)}, which does not "
            f"broadcast to {tuple(shape)}{at(caller_line())}"
        )
    value = ops.cast(ops.reshape(value, own), x.dtype)
    return value if own == tuple(shape) else ops.broadcast_to(value, tuple(shape))


def like(x: Any, array: np.ndarray[Any, Any]) -> Any:
    """An array that is known, traced as ``x`` is."""
    return type(x)(constant(x.term.graph, array))


def check(x: Any, how: str) -> None:
    """Raise :class:`TraceError` unless ``x`` can be written to."""
    if not is_traced(x):
        raise made_elsewhere(
            f"{how}: y is traced, but x is an array of NumPy that was made elsewhere\n"
            f"  make it in the traced function: np.array(x){at(caller_line())}"
        )
    if x.has_value:
        raise TraceError(
            f"{how} would change a lazy array in place\n"
            f"  write x[...] = what it is to hold{at(caller_line())}"
        )
    if not x.is_array:
        raise TraceError(
            f"{how}: x is a number of {x.dtype}, as NumPy makes of one element, and "
            "nothing can be written to it\n  write x = y; array[i, ...] is an array "
            f"that shows an element{at(caller_line())}"
        )
    if x.memory is not None:
        x.memory.check(how)


def write(x: Any, value: Any, how: str) -> None:
    """Make ``value``, of the same shape and dtype, the value of ``x``."""
    if x.memory is None:
        x.term = value.term
    else:
        x.memory.write(x, value.term, how)


def changed(x: Any, symbol: str, value: Any) -> Any:
    """``x += y`` and its like, where ``value`` is x + y: the array gets another term; a
    number and a lazy array are other ones."""
    if x.has_value or not x.is_array:
        return value
    how = f"x {symbol}= y"
    write(x, _whole(x, value, how), how)
    return x


def _whole(out: Any, value: Any, how: str, casting: str = "same_kind") -> Any:
    """``value`` for all of ``out``, with whose shape NumPy broadcasts the operands."""
    shape = tuple(np.shape(operand(value)))
    if len(shape) > len(out.shape):
        raise ShapeError(
            f"{how}: the value has shape {shape}, which does not broadcast to "
            f"{tuple(out.shape)}{at(caller_line())}"
        )
    return fitted(out, value, out.shape, how, casting)


def set_item(x: Any, key: Any, value: Any) -> None:
    """Write to a part."""
    how = "x[...] = y"
    check(x, how)
    value = stacked(settled(value)) if holds_traced(value) else value
    key = as_mask(settled(key), x.shape)
    for k in key if isinstance(key, tuple) else (key,):
        if _is_traced_mask(k):
            check_mask(x, k, "x[mask] = y")
    if _is_of_one_element(x, key):
        check_number(value, how)
    write(x, replaced(x, key, value), how)


def _is_of_one_element(x: Any, key: Any) -> bool:
    """Whether an integer for each axis, without ``...``, makes the key."""
    keys = key if isinstance(key, tuple) else (key,)
    if any(isinstance(k, (list, tuple, range)) for k in keys):
        return False
    return len(keys) == len(x.shape) and all(
        not np.shape(k) and getattr(dtype_of(k), "kind", "i") in "iu"
        for k in keys
        if type(k) is not int
    )


def check_number(value: Any, how: str) -> None:
    """Raise :class:`ShapeError`, as NumPy does, unless one element can be ``value``."""
    if np.ndim(value):
        shape = tuple(np.shape(value))
        raise ShapeError(
            f"{how}: one element of x is written, and the value is an array of shape "
            f"{shape}\n  write y{list((0,) * len(shape))}{at(caller_line())}"
        )


def fill(x: Any, value: Any) -> None:
    """Write one number everywhere."""
    check_number(settled(value), "x.fill(y)")
    x[...] = value


def write_real(x: Any, value: Any) -> None:
    """``x.real = value``."""
    if complex_numbers.holds_complex(x):
        check(x, "x.real = y")  # of a lazy array they are an array of their own
    x.real[...] = value


def write_imag(x: Any, value: Any) -> None:
    """``x.imag = value``, of complex numbers."""
    if not complex_numbers.holds_complex(x):
        raise TypeError("array does not have imaginary part to set")
    check(x, "x.imag = y")
    x.imag[...] = value


def sort(x: Any, axis: int = -1, **kwargs: Any) -> None:
    """Write the elements in order along an axis."""
    check(x, "x.sort()")
    write(x, np.sort(x, axis_number("x.sort()", axis), **kwargs), "x.sort()")


def _is_of_numbers(value: Any) -> bool:
    """Whether NumPy takes ``value`` number by number, each of which must fit."""
    return type(value) in (int, float, list, tuple, range) or (
        isinstance(value, np.floating) and not np.isfinite(value)
    )


def replaced(x: Any, key: Any, value: Any) -> Any:
    """``x`` once ``x[key] = value`` is done."""
    how = "x[...] = y"
    if isinstance(value, Selected):
        return value.written(x, key)
    if is_basic(key):
        value = plain_number(value, x.dtype)
    whole = x.dtype.kind in "iu" and _is_of_numbers(value)
    if whole or (type(value) is complex and x.dtype.kind != "c"):
        value = held(value, x.dtype, how)
    keys = key if isinstance(key, tuple) else (key,)
    masks = [k for k in keys if _is_traced_mask(k)]
    if masks or (len(keys) == 1 and is_mask(keys[0]) and keys[0].ndim):
        if len(keys) > 1:
            raise untraceable(
                "x[mask, ...] = y with a traced mask among others cannot be traced\n"
                f"  use x = np.where(mask, y, x){at(caller_line())}"
            )
        return _under(x, keys[0], value, how)
    items = key_items(key, x.shape)
    if any(isinstance(k, Traced) for k in items):
        return _at_traced(x, items, value, how)
    if any(isinstance(k, np.ndarray) for k in items):
        return _scattered(x, tuple(items), value, how)
    shown = getitem(x, key)
    return with_part(x, key, fitted(x, value, shown.shape, how))


def _is_traced_mask(k: Any) -> bool:
    return isinstance(k, Traced) and dtype_of(k) == np.dtype(bool)


def _under(x: Any, mask: Any, value: Any, how: str) -> Any:
    """``x`` with the value where the mask of its first axes is true."""
    n = len(mask.shape)
    if tuple(mask.shape) != tuple(x.shape[:n]):
        raise BoundsError(
            f"{how}: the mask has shape {tuple(mask.shape)}, which does not fit the "
            f"first axes of {tuple(x.shape)}{at(caller_line())}"
        )
    rest = x.shape[n:]
    if np.ndim(value) > len(rest) and np.shape(value)[: np.ndim(value) - len(rest)] != (
        1,
    ):
        if not is_traced(mask):
            return _scattered(x, tuple(mask.nonzero()), value, how)
        raise untraceable(
            f"x[mask] = y with a value of shape {tuple(np.shape(value))} cannot be "
            "traced: which of them is written where depends on data\n"
            "  with values for all places, use x = np.where(mask, y, x)"
            f"{at(caller_line())}"
        )
    mask = mask if is_traced(mask) else like(x, mask)
    new = fitted(x, value, rest, how)
    return where_under(mask, ops.reshape(new, (*(1,) * n, *rest)), x)


def _at_traced(x: Any, items: Sequence[Any], value: Any, how: str) -> Any:
    """``x`` with values at places that are computed; the last one of those for a
    place. The places are of some axes side by side, all of the others."""
    parts = [k for k in key_parts(tuple(items), x.shape) if k is not None]
    whole = [isinstance(k, slice) and k == slice(None) for k in parts]
    first = whole.index(False)
    count = len(whole) - sum(whole)
    if any(whole[first : first + count]) or any(
        isinstance(k, slice) for k, w in zip(parts, whole, strict=True) if not w
    ):
        raise untraceable(
            "x[key] = y with traced integers and slices side by side in the key cannot "
            "be traced\n  write x[i] = y, x[:, i] = y or x[i, j] = y, with ... behind"
            f"{at(caller_line())}"
        )
    behind = x.shape[first + count :]
    index = parts[first]
    if count > 1:
        index = flat_places(parts[first : first + count], x.shape[first:])
    lead, n = x.shape[:first], math.prod(x.shape[first : first + count])
    new = _in_places(x, items, index.shape, value, how)
    new = ops.reshape(new, (*lead, *index.shape, *behind))
    joined = ops.reshape(x, (*lead, n, *behind))
    found = ops.set_at(joined, index, new, axis=-1 - len(behind))
    return ops.reshape(found, x.shape)


def _in_places(
    x: Any, items: Sequence[Any], places: Sequence[int], value: Any, how: str
) -> Any:
    """``value`` in the shape of ``x[key]``, with the axes of the places, which NumPy
    may put in front, moved to where the first one is in the key."""
    parts = key_parts(tuple(items), x.shape)
    sizes = iter(x.shape)
    axes = [1 if k is None else next(sizes) for k in parts]
    shown = [isinstance(k, slice) or k is None for k in parts]
    own = shown.index(False)
    there = own if are_together(items) else 0
    others = [n for n, s in zip(axes, shown, strict=True) if s]
    new = fitted(x, value, (*others[:there], *places, *others[there:]), how)
    rank = len(places)
    return ops.moveaxis(new, range(there, there + rank), range(own, own + rank))


def _scattered(x: Any, key: tuple[Any, ...], value: Any, how: str) -> Any:
    """``x`` with values at places that are known; the last one of those for a place."""
    places = np.arange(x.size).reshape(x.shape)[key]
    new = fitted(x, value, places.shape, how)
    source = np.arange(x.size)
    source[places.ravel()] = x.size + np.arange(places.size)
    both = ops.concatenate([ops.ravel(x), ops.ravel(new)])
    return ops.reshape(ops.take(both, source, 0), x.shape)


def assigned(out: Any, value: Any, how: str) -> Any:
    """``out`` with what a function of NumPy has made: ``np.sum(y, out=x)``."""
    check(out, how)
    if tuple(value.shape) != tuple(out.shape):
        raise ShapeError(
            f"{how}: the result has shape {tuple(value.shape)}, and x has "
            f"{tuple(out.shape)}{at(caller_line())}"
        )
    write(out, fitted(out, value, out.shape, how, "same_kind"), how)
    return out


def partition(x: Any, kth: Any, axis: int = -1, **kwargs: Any) -> None:
    """Write the elements along an axis, with those below an element before it."""
    check(x, "x.partition(k)")
    axis = axis_number("x.partition(k)", axis)
    write(x, np.partition(x, kth, axis, **kwargs), "x.partition(k)")


def into(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: Any) -> Any:
    """A call of a ufunc, or of a method of one, that writes to arrays: ``ufunc(...,
    out=(x, None))``, with ``where``."""
    name = name_of(ufunc) if method == "__call__" else f"{name_of(ufunc)}.{method}"
    outs, how = kwargs["out"], f"{name}(..., out=x)"
    written = [out for out in outs if out is not None]
    for out in written:
        check(out, how)
    _check_apart(written, how)
    given = {k: v for k, v in kwargs.items() if k != "out"}
    if method != "__call__":
        if ufunc in (np.add, np.multiply) and given.get("dtype") is None:
            given["dtype"] = _met_dtype(inputs[0], written[0])
        return assigned(written[0], call_ufunc(ufunc, method, inputs, given), how)
    where, casting = given.pop("where", True), kwargs.get("casting", "same_kind")
    found = call_ufunc(ufunc, method, inputs, given)
    values = found if isinstance(found, tuple) else (found,)
    made = [
        v if out is None else _where(how, where, _whole(out, v, how, casting), out)
        for out, v in zip(outs, values, strict=True)
    ]
    for out, v in zip(outs, made, strict=True):
        if out is not None:
            write(out, v, how)
    results = [v if out is None else out for out, v in zip(outs, made, strict=True)]
    return tuple(results) if isinstance(found, tuple) else results[0]


def _check_apart(outs: Sequence[Any], how: str) -> None:
    """Raise :class:`TraceError` for arrays that show the same memory: which of the
    results stays there, NumPy does not say."""
    for i, out in enumerate(outs):
        for other in outs[:i]:
            if out is other or (out.memory is not None and out.memory is other.memory):
                raise TraceError(
                    f"{how}: two of the arrays in out= share memory\n  write to arrays "
                    f"of their own{at(caller_line())}"
                )


def _met_dtype(x: Any, out: Any) -> Any:
    """The dtype in which NumPy adds up elements of ``x`` for ``out``."""
    try:
        return np.result_type(stacked(settled(x)).dtype, out.dtype)
    except TypeError:  # bfloat16 and integers have none
        return out.dtype


def _where(how: str, where: Any, value: Any, out: Any) -> Any:
    """``value`` where a mask, which ``out`` has room for, says so; else ``out``."""
    if where is True:
        return value
    return ops.where(chosen(how, where, out), value, out)


def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    how = "np.copyto(x, y)"
    check(dst, how)
    check_mask(dst, where, "np.copyto(x, y, where=mask)")
    value = fitted(dst, src, dst.shape, how, casting)
    write(dst, _where(how, where, value, dst), how)


def _put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    if axis is None:
        refuse_function("np.put_along_axis")
    indices = indices if is_traced(indices) else np.asarray(indices)
    arr[key_along("np.put_along_axis", arr, indices, axis)] = values


def _fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    if wrap or len(a.shape) != 2:
        refuse_function("np.fill_diagonal")
    places = np.arange(min(a.shape))
    a[places, places] = val


WRITES: dict[Callable[..., Any], Callable[..., None]] = {
    np.copyto: _copyto,
    np.fill_diagonal: _fill_diagonal,
    np.put_along_axis: _put_along_axis,
}
"""Functions that write to their first argument."""
