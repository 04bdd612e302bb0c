"""NumPy's functions of diagonals, blocks and grids, and a few formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.numpy_api.arrange import diff, shape
from eqsat.numpy_api.at_end import at_end
from eqsat.numpy_api.indexing import getitem
from eqsat.numpy_api.operands import array, as_index
from eqsat.numpy_api.table import covers
from eqsat.ops import dtype_of, is_traced, negative_axis, window
from eqsat.support import ShapeError, TraceError, TraceValueError, at, caller_line
from eqsat.terms import HALF, AttrVar, normal_axes

# -- diagonals -------------------------------------------------------------------------


def _check_offset(name: str, offset: Any) -> None:
    """Raise :class:`TraceError` for what is no number of a diagonal."""
    if as_index(offset) is None and not isinstance(offset, AttrVar):
        raise TraceError(
            f"{name}: diagonal {offset!r:.60}, expected an int{at(caller_line())}"
        )


@covers("diagonal")
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """a[..., i, i + offset], with the axis of i last."""
    _check_offset("np.diagonal", offset)
    x = ops.moveaxis(a, (axis1, axis2), (-2, -1))
    *lead, m, n = shape(x)
    size = min(m, n - offset) if offset >= 0 else min(m + offset, n)
    size = size if isinstance(size, AttrVar) else max(0, size)
    flat = ops.reshape(x, (*lead, m * n))
    start = offset if offset >= 0 else -offset * n
    return window(flat, (start,), (size,), (n + 1,))


@covers("linalg.diagonal")
def last_diagonal(x: Any, offset: int = 0) -> Any:
    """x[..., i, i + offset]."""
    return diagonal(x, offset, -2, -1)


@covers("trace")
def trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None
) -> Any:
    """Σ of the diagonal."""
    return ops.sum(diagonal(a, offset, axis1, axis2), -1, dtype)


@covers("linalg.trace")
def last_trace(x: Any, offset: int = 0, dtype: Any = None) -> Any:
    """Σ of the diagonal of the last two axes."""
    return trace(x, offset, -2, -1, dtype)


@covers("diag")
def diag(v: Any, k: int = 0) -> Any:
    """The diagonal of a matrix, or a matrix with ``v`` on diagonal ``k``."""
    if len(shape(v)) == 2:
        return diagonal(v, k)
    if len(shape(v)) != 1:
        raise ShapeError(
            f"np.diag: expected 1 or 2 axes, got shape {shape(v)}{at(caller_line())}"
        )
    _check_offset("np.diag", k)
    n = shape(v)[0]
    rows = ops.pad(ops.expand_dims(v, 1), ((0, 0), (0, n)))
    whole = ops.reshape(getitem(ops.ravel(rows), slice(n * n)), (n, n))
    return ops.pad(whole, ((max(0, -k), max(0, k)), (max(0, k), max(0, -k))))


@covers("diagflat")
def diagflat(v: Any, k: int = 0) -> Any:
    """A matrix with all elements of ``v`` on diagonal ``k``."""
    return diag(ops.ravel(array(v)), k)


# -- turns, joins and grids ------------------------------------------------------------


@covers("rot90")
def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """``m`` turned by 90° k times, from the first axis towards the second."""
    ndim = len(shape(m))
    a, b = (negative_axis("np.rot90", i, ndim) for i in axes)
    if k % 4 == 0:
        return m
    if k % 4 == 2:
        return ops.flip(m, (a, b))
    return (
        ops.swapaxes(ops.flip(m, b), a, b)
        if k % 4 == 1
        else ops.flip(ops.swapaxes(m, a, b), b)
    )


@covers("append")
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """``values`` behind ``arr``; both ravelled by default."""
    arr, values = array(arr), array(values)
    if axis is None:
        arr, values, axis = ops.ravel(arr), ops.ravel(values), 0
    return ops.concatenate([arr, values], axis)


@covers("block")
def block(arrays: Any) -> Any:
    """An array of nested lists of arrays: the innermost are joined along the last
    axis, those around them along the last but one, and so on."""
    depth = _depth(arrays)
    ndim = max(depth, *(len(shape(a)) for a in _leaves(arrays)))

    def joined(part: Any, level: int) -> Any:
        if not isinstance(part, list):
            part = array(part)
            return ops.reshape(part, (1,) * (ndim - len(shape(part))) + shape(part))
        return ops.concatenate([joined(p, level - 1) for p in part], -level)

    return joined(arrays, depth)


def _depth(part: Any) -> int:
    if not isinstance(part, list):
        return 0
    depths = {_depth(p) for p in part}
    if len(depths) != 1:
        raise ShapeError(
            f"np.block: expected lists of equal depth, none empty{at(caller_line())}"
        )
    return 1 + depths.pop()


def _leaves(part: Any) -> list[Any]:
    if not isinstance(part, list):
        return [part]
    return [leaf for p in part for leaf in _leaves(p)]


@covers("meshgrid")
def meshgrid(*xi: Any, sparse: bool = False, indexing: str = "xy") -> tuple[Any, ...]:
    """Coordinates of a grid over arrays of one axis."""
    n = len(xi)
    if indexing not in ("xy", "ij"):
        raise TraceValueError(
            f"np.meshgrid: indexing={indexing!r}, expected 'xy' or 'ij'"
            f"{at(caller_line())}"
        )
    places = list(range(n))
    if indexing == "xy" and n > 1:
        places[:2] = [1, 0]
    lines = [
        ops.reshape(array(x), [-1 if a == at_ else 1 for a in range(n)])
        for x, at_ in zip(xi, places, strict=True)
    ]
    if sparse:
        return tuple(lines)
    full = np.broadcast_shapes(*map(shape, lines))
    return tuple(ops.broadcast_to(line, full) for line in lines)


@covers("unstack")
def unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """The slices along ``axis``, without it."""
    x = ops.moveaxis(x, axis, 0)
    return tuple(getitem(x, i) for i in range(shape(x)[0]))


@covers("delete")
def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """``arr`` without the slices at ``obj``; made at the end where that is traced."""
    arr = array(arr)
    if is_traced(obj):
        return at_end("np.delete", np.delete, (arr, obj, axis), {})
    arr, axis = (ops.ravel(arr), 0) if axis is None else (arr, axis)
    k = negative_axis("np.delete", axis, len(shape(arr)))
    rest = np.delete(np.arange(shape(arr)[k]), obj)
    return getitem(arr, (..., rest, *(slice(None),) * (-k - 1)))


# -- formulas --------------------------------------------------------------------------


@covers("kron")
def kron(a: Any, b: Any) -> Any:
    """Every element of ``a`` times all of ``b``, in its place."""
    a, b = array(a), array(b)
    n = max(len(shape(a)), len(shape(b)))
    sa, sb = ((1,) * (n - len(shape(x))) + shape(x) for x in (a, b))
    a = ops.reshape(a, [size for s in sa for size in (s, 1)])
    b = ops.reshape(b, [size for s in sb for size in (1, s)])
    return ops.reshape(a * b, [p * q for p, q in zip(sa, sb, strict=True)])


@covers("cross", "linalg.cross")
def cross(a: Any, b: Any, axis: int = -1) -> Any:
    """The vector product of vectors of 3 along ``axis``."""
    a, b = (ops.moveaxis(array(x), axis, -1) for x in (a, b))
    if shape(a)[-1] != 3 or shape(b)[-1] != 3:
        raise ShapeError(
            f"np.cross: axis {axis} of shapes {shape(a)} and {shape(b)} needs size 3"
            f"{at(caller_line())}"
        )
    (a0, a1, a2), (b0, b1, b2) = (
        [getitem(x, (..., i)) for i in range(3)] for x in (a, b)
    )
    parts = [a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0]
    return ops.stack(parts, axis)


@covers("isin")
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False
) -> Any:
    """Whether each element is one of ``test_elements``."""
    found = ops.any(
        ops.equal(ops.expand_dims(array(element), -1), ops.ravel(array(test_elements))),
        -1,
    )
    return ops.logical_not(found) if invert else found


@covers("polyval")
def polyval(p: Any, x: Any) -> Any:
    """p[0] xⁿ⁻¹ + … + p[n - 1], by Horner's rule."""
    p = array(p)
    y: Any = ops.zeros_like(array(x))
    for i in range(shape(p)[0]):
        y = y * x + p[i]
    return y


@covers("sinc")
def sinc(x: Any) -> Any:
    """sin(πx) / πx; 1 at 0."""
    own = dtype_of(x)
    if own is not None and own.kind in "biu":
        x = ops.cast(x, float)
    if own not in HALF:
        return ops.sinc(x)
    # A composite is computed in float32, where NumPy rounds each step.
    y = ops.multiply(np.pi, ops.where(ops.equal(x, 0), _TINY, x))
    return ops.divide(ops.sin(y), y)


_TINY = float(np.finfo(np.float16).tiny)
"""A number whose sine it is itself."""


@covers("trapezoid")
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """∫ y along ``axis`` by the trapezoidal rule, over ``x`` or steps of ``dx``."""
    (k,) = normal_axes("np.trapezoid", axis, len(shape(y)))
    rest = (slice(None),) * (-k - 1)
    cut = (..., slice(1, None), *rest), (..., slice(-1), *rest)
    if x is not None:
        x = array(x)
        dx = diff(x, axis=k if len(shape(x)) > 1 else -1)
        if len(shape(x)) == 1:
            dx = ops.reshape(dx, (-1, *(1 for _ in rest)))
    later, earlier = (getitem(array(y), c) for c in cut)
    return ops.sum(dx * (later + earlier) / 2.0, axis)
