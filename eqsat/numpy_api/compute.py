"""Functions of NumPy that compute: products, norms, rounding, comparison of whole
arrays."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from eqsat import complex_numbers, ops
from eqsat.complex_numbers import ALWAYS, numpy_call
from eqsat.numpy_api.arrange import shape
from eqsat.numpy_api.operands import array, as_index, one_axis, strong
from eqsat.numpy_api.statistics import cast
from eqsat.numpy_api.table import covers
from eqsat.ops import decomposed, dtype_of, known_sizes
from eqsat.support import (
    RangeError,
    ShapeError,
    TraceError,
    TraceValueError,
    at,
    caller_line,
)
from eqsat.terms import Traced


@covers("dot")
def dot(a: Any, b: Any) -> Any:
    """Sum of products over the last axis of ``a`` and the last but one of ``b``."""
    return ops.dot(strong(a), strong(b))


@covers("vdot")
def vdot(a: Any, b: Any) -> Any:
    """Sum of products of all elements."""
    return ops.vdot(strong(a), strong(b))


@covers("inner")
def inner(a: Any, b: Any) -> Any:
    """Sum of products over the last axes."""
    return ops.inner(strong(a), strong(b))


@covers("outer")
def outer(a: Any, b: Any) -> Any:
    """Products of every element with every other."""
    return ops.outer(strong(a), strong(b))


@covers("linalg.outer")
def outer_of_vectors(x1: Any, x2: Any, /) -> Any:
    """Products of every element of a vector with every one of another."""
    x1, x2 = strong(array(x1)), strong(array(x2))
    if len(shape(x1)) != 1 or len(shape(x2)) != 1:
        raise ShapeError(
            f"np.linalg.outer: shapes {shape(x1)} and {shape(x2)}, expected one axis "
            f"each{at(caller_line())}"
        )
    return ops.outer(x1, x2)


@covers("linalg.matmul")
def matmul(x1: Any, x2: Any) -> Any:
    """Matrix product."""
    return ops.matmul(x1, x2)


@covers("linalg.vecdot")
def vecdot(x1: Any, x2: Any, axis: int = -1) -> Any:
    """Sum of products along ``axis``."""
    x1, x2 = ops.moveaxis(x1, axis, -1), ops.moveaxis(x2, axis, -1)
    y = ops.matmul(ops.expand_dims(x1, -2), ops.expand_dims(x2, -1))
    return ops.squeeze(y, (-2, -1))


@covers("linalg.norm")
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """√Σ|x|² of vectors and matrices, and the norms that ``ord`` names."""
    ndim = len(known_sizes("np.linalg.norm", x))
    axis = one_axis(axis)
    vector = isinstance(axis, int) or (axis is None and (ord is None or ndim == 1))
    if isinstance(ord, str) and vector:
        raise TraceValueError(
            f"np.linalg.norm: ord={ord!r} of a vector, expected a number"
            f"{at(caller_line())}"
        )
    if axis is None and ord is not None and ndim not in (1, 2):
        raise ShapeError(
            f"np.linalg.norm: ord={ord!r} of {ndim} axes, expected one or two, or axis="
            f"{at(caller_line())}"
        )
    if not vector and ord not in (None, "fro"):
        axes = (0, 1) if axis is None else axis
        return _matrix_norm(x, ord, axes, keepdims)
    return vector_norm(
        x, axis=axis, keepdims=keepdims, ord=2 if ord in (None, "fro") else ord
    )


def largest(sizes: Any, axis: Any, keepdims: bool = False) -> Any:
    """The largest of numbers from 0 on; 0 of none."""
    over = ops.max if math.prod(shape(sizes)) else ops.sum
    return over(sizes, axis=axis, keepdims=keepdims)


def _matrix_norm(x: Any, ord: Any, axes: tuple[int, int], keepdims: bool) -> Any:
    """The largest or smallest sum of |x| over columns (±1) or rows (±inf), the largest,
    smallest or the sum of the singular values (2, -2, nuc)."""
    if ord not in (1, -1, 2, -2, math.inf, -math.inf, "nuc"):
        raise TraceValueError(
            f"np.linalg.norm: ord={ord!r}, expected None, 'fro', 'nuc', ±1, ±2 or ±inf "
            f"of a matrix{at(caller_line())}"
        )
    x = ops.moveaxis(x, axes, (-2, -1))
    if ord in (2, -2, "nuc"):
        sizes = decomposed(x, "svdvals")[0]
    else:
        dtype = dtype_of(x)
        x = ops.cast(x, float) if dtype is not None and dtype.kind in "biu" else x
        sizes = ops.sum(ops.absolute(x), -2 if ord in (1, -1) else -1)
    over = {"nuc": ops.sum}.get(ord, largest if ord in (1, 2, math.inf) else ops.min)
    found = over(sizes, -1)
    for a in sorted(a % len(shape(x)) for a in axes) if keepdims else ():
        found = ops.expand_dims(found, a)
    return found


@covers("linalg.vector_norm")
def vector_norm(x: Any, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """(Σ|x|ᵖ)^(1/p), p = ``ord``; the largest |x| for inf, how many are not 0 for 0."""
    dtype = dtype_of(x)
    x = ops.cast(x, float) if dtype is not None and dtype.kind in "biu" else x
    size = ops.absolute(x)
    if ord == 2:
        return ops.sqrt(ops.sum(ops.square(x), axis=axis, keepdims=keepdims))
    if ord == 1:
        return ops.sum(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return ops.sum(ops.cast(x != 0, x.dtype), axis=axis, keepdims=keepdims)
    if ord in (math.inf, -math.inf):
        return (largest if ord > 0 else ops.min)(size, axis=axis, keepdims=keepdims)
    return ops.sum(size**ord, axis=axis, keepdims=keepdims) ** (1 / ord)


@covers("linalg.matrix_norm")
def matrix_norm(x: Any, keepdims: bool = False, ord: Any = "fro") -> Any:
    """√Σ|x|² over the last two axes, or the norm that ``ord`` names."""
    return norm(x, ord=ord, axis=(-2, -1), keepdims=keepdims)


@covers("nan_to_num")
def nan_to_num(x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """NaN and ±inf replaced; by 0 and the largest finite numbers unless given."""
    dtype = dtype_of(x)
    if dtype is None or dtype.kind in "biu":
        return x
    import ml_dtypes

    finite = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    high = float(finite.max) if posinf is None else posinf
    low = float(finite.min) if neginf is None else neginf
    y = x
    for found, value in (
        (ops.isnan(x), nan),
        (x == math.inf, high),
        (x == -math.inf, low),
    ):
        y = ops.where(
            found, value if dtype_of(value) is None else cast(value, dtype), y
        )
    return y


@covers("round", "around")
def round(a: Any, decimals: int = 0) -> Any:
    """The nearest multiple of 10⁻ᵈ, d = ``decimals``; of two, the even one."""
    own = dtype_of(a)
    places = as_index(decimals)
    if places is None:
        raise TraceError(
            f"np.round: decimals={decimals!r:.60}, expected an int, known while tracing"
            f"{at(caller_line())}"
        )
    if abs(places) > np.iinfo(np.intc).max:
        raise RangeError(
            f"np.round: decimals={places} is no int of C{at(caller_line())}"
        )
    if own is not None and own.kind in "iu" and places >= 0:
        return a
    if places == 0 or own is None:
        return ops.rint(a)
    if own.kind == "b":
        raise TraceError(
            f"np.round: decimals={places} of {own} is not supported in a traced "
            f"function; use x.astype(float){at(caller_line())}"
        )
    power = 10.0 ** abs(places) if abs(places) <= 308 else math.inf
    if own.kind in "iu":
        return ops.cast(ops.rint(a / power) * power, own)
    if places > 0:
        return ops.rint(a * power) / power
    return ops.rint(a / power) * power


@covers("isclose")
def isclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """|a - b| ≤ atol + rtol |b| where b is finite, a = b elsewhere."""
    a, b = array(a), array(b)
    if not isinstance(b, Traced) and type(b) is not float:
        b = b * 1.0
    elif (own := dtype_of(b)) is not None:
        b = cast(b, np.result_type(own, 1.0))
    near = ops.absolute(a - b) <= atol + rtol * ops.absolute(b)
    close = (near & ops.isfinite(b)) | (a == b)
    return close | (ops.isnan(a) & ops.isnan(b)) if equal_nan else close


@covers("allclose")
def allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Whether :func:`isclose` holds everywhere: a traced bool, not a Python one."""
    return ops.all(isclose(a, b, rtol, atol, equal_nan))


@covers("array_equal")
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Whether shapes and all elements are equal: a traced bool unless the shapes
    differ."""
    a1, a2 = array(a1), array(a2)
    if shape(a1) != shape(a2):
        return False
    equal = ops.equal(a1, a2)
    return ops.all(equal | (ops.isnan(a1) & ops.isnan(a2)) if equal_nan else equal)


@covers("iscomplex")
def iscomplex(x: Any) -> Any:
    """Whether the imaginary part is not 0."""
    return complex_numbers.imag(x) != 0


@covers("isreal")
def isreal(x: Any) -> Any:
    """Whether the imaginary part is 0."""
    return complex_numbers.imag(x) == 0


@covers("imag")
def imag(val: Any) -> Any:
    """The imaginary parts, 0 of real numbers."""
    return complex_numbers.imag(val)


@covers("isposinf")
def isposinf(x: Any) -> Any:
    """Whether x is +∞."""
    return x == math.inf


@covers("isneginf")
def isneginf(x: Any) -> Any:
    """Whether x is -∞."""
    return x == -math.inf


for _name in ALWAYS:
    covers(_name)(partial(numpy_call, _name))


@covers("fft.fftshift")
def fftshift(x: Any, axes: Any = None) -> Any:
    """The zero frequency moved to the middle."""
    axes = _shifted(x, axes)
    return ops.roll(x, tuple(shape(x)[a] // 2 for a in axes), axes)


@covers("fft.ifftshift")
def ifftshift(x: Any, axes: Any = None) -> Any:
    """The inverse of :func:`fftshift`."""
    axes = _shifted(x, axes)
    return ops.roll(x, tuple(-(shape(x)[a] // 2) for a in axes), axes)


def _shifted(x: Any, axes: Any) -> tuple[int, ...]:
    if axes is None and not shape(x):
        raise ShapeError(f"np.fft.fftshift: x has no axes{at(caller_line())}")
    if axes is None:
        return tuple(range(len(shape(x))))
    return (axes,) if isinstance(axes, int) else tuple(axes)


@covers("angle")
def angle(z: Any, deg: bool = False) -> Any:
    """0 of positive numbers, π of negative ones; 180 if ``deg``."""
    z = ops.cast(z, np.int64) if dtype_of(z) == np.dtype(bool) else z
    found = ops.arctan2(ops.zeros_like(z), z)
    return ops.multiply(found, 180 / math.pi) if deg else found
