"""Pointwise ops: a result element from one element of each argument, broadcast.

Named as in NumPy, with its dtypes. Costs are rough, in flop an element: a division
counts as 4, an exponential as 8.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from eqsat.ops.support import dtype_of, is_traced
from eqsat.support import DTypeError, TraceValueError, at, caller_line
from eqsat.terms import (
    BF16,
    EXACT,
    FLAT,
    ONCE,
    AttrVar,
    DTypeName,
    OnlyWhere,
    Op,
    Pointwise,
    ToDType,
    Weak,
    common_dtype,
    op,
    pointwise,
    weak_floats,
)

_exact = partial(pointwise, roundings=EXACT)
_rounded = partial(pointwise, roundings=ONCE)

# -- derivatives -----------------------------------------------------------------------


def _same(g: Any, *_: Any) -> Any:
    return g


def _where_more(g: Any, x: Any, y: Any, z: Any) -> Any:
    """g where x > y, half of it where they are equal."""
    g = _typed(g, z)
    part = where(greater(x, y), g, where(equal(x, y), g * 0.5, 0.0))
    return OnlyWhere(logical_not(less(x, y)), part, is_zero=True)


def _where_less(g: Any, x: Any, y: Any, z: Any) -> Any:
    """g where x < y, half of it where they are equal."""
    g = _typed(g, z)
    part = where(less(x, y), g, where(equal(x, y), g * 0.5, 0.0))
    return OnlyWhere(logical_not(greater(x, y)), part, is_zero=True)


def _where_same(g: Any, x: Any, z: Any, y: Any) -> Any:
    """g where the result z is x, half of it where it is y too."""
    g = _typed(g, z)
    return OnlyWhere(equal(x, z), where(equal(y, z), g * 0.5, g))


def _where_zero(g: Any, x: Any, y: Any, z: Any) -> Any:
    return OnlyWhere(equal(x, 0.0), g)


def _where_true(g: Any, c: Any, x: Any, y: Any, z: Any) -> Any:
    return OnlyWhere(c, g)


def _where_false(g: Any, c: Any, x: Any, y: Any, z: Any) -> Any:
    return OnlyWhere(logical_not(c), g)


def _typed(g: Any, like: Any) -> Any:
    """A number as an array, so that a choice between it and 0 has a dtype."""
    return g if is_traced(g) else like.lift(cast_op, [g], {"dtype": like.dtype.name})


# -- arithmetic ------------------------------------------------------------------------

add = _rounded("add", np.add, commutative=True, doc="x + y.", vjp=(_same, _same))
subtract = _rounded(
    "subtract", np.subtract, doc="x - y.", vjp=(_same, lambda g, x, y, z: -g)
)
multiply = _rounded(
    "multiply",
    np.multiply,
    commutative=True,
    doc="x y.",
    vjp=(lambda g, x, y, z: g * y, lambda g, x, y, z: g * x),
)
divide = _rounded(
    "divide",
    np.divide,
    flops=4,
    doc="x / y; integers give float64.",
    vjp=(lambda g, x, y, z: g / y, lambda g, x, y, z: -g * z / y),
)
floor_divide = pointwise(
    "floor_divide", np.floor_divide, flops=6, doc="⌊x / y⌋.", vjp=FLAT
)
remainder = pointwise(
    "remainder",
    np.remainder,
    flops=7,
    decides=True,
    doc="x - y ⌊x / y⌋, of the sign of y.",
    vjp=(_same, lambda g, x, y, z: -g * floor_divide(x, y)),
)
fmod = _exact(
    "fmod",
    np.fmod,
    flops=7,
    decides=True,
    doc="x - y trunc(x / y), of the sign of x.",
    vjp=(_same, lambda g, x, y, z: -g * trunc(divide(x, y))),
)
negative = _exact("negative", np.negative, doc="-x.", vjp=lambda g, x, z: -g)
square = _rounded("square", np.square, doc="x².", vjp=lambda g, x, z: g * 2.0 * x)
reciprocal = _rounded(
    "reciprocal", np.reciprocal, flops=4, doc="1 / x.", vjp=lambda g, x, z: -g * (z * z)
)
absolute = _exact("absolute", np.absolute, doc="|x|.", vjp=lambda g, x, z: g * sign(x))
sign: Op = _exact(
    "sign", np.sign, flops=2, doc="-1, 0 or 1 as x is; NaN for NaN.", vjp=FLAT
)
copysign: Op = _exact(
    "copysign",
    np.copysign,
    flops=2,
    decides=True,
    doc="|x| with the sign of y.",
    vjp=(lambda g, x, y, z: g * copysign(sign(x), y) * sign(x), None),
)
maximum = _exact(
    "maximum",
    np.maximum,
    commutative=True,
    doc="The larger of x and y; NaN if either is.",
    vjp=(_where_more, lambda g, x, y, z: _where_more(g, y, x, z)),
)
minimum = _exact(
    "minimum",
    np.minimum,
    commutative=True,
    doc="The smaller of x and y; NaN if either is.",
    vjp=(_where_less, lambda g, x, y, z: _where_less(g, y, x, z)),
)
fmax = _exact(
    "fmax",
    np.fmax,
    commutative=True,
    flops=2,
    doc="The larger of x and y; not NaN if one is not.",
    vjp=(
        lambda g, x, y, z: _where_same(g, x, z, y),
        lambda g, x, y, z: _where_same(g, y, z, x),
    ),
)
fmin = _exact(
    "fmin",
    np.fmin,
    commutative=True,
    flops=2,
    doc="The smaller of x and y; not NaN if one is not.",
    vjp=(
        lambda g, x, y, z: _where_same(g, x, z, y),
        lambda g, x, y, z: _where_same(g, y, z, x),
    ),
)

# -- rounding --------------------------------------------------------------------------

floor = _exact("floor", np.floor, doc="The largest integer ≤ x.", vjp=FLAT)
ceil = _exact("ceil", np.ceil, doc="The smallest integer ≥ x.", vjp=FLAT)
trunc: Op = _exact("trunc", np.trunc, doc="x without its fraction.", vjp=FLAT)
rint = _exact(
    "rint", np.rint, doc="The nearest integer; of two, the even one.", vjp=FLAT
)

# -- comparison and logic --------------------------------------------------------------

less = pointwise("less", np.less, dtype=bool, doc="x < y.")
less_equal = pointwise("less_equal", np.less_equal, dtype=bool, doc="x ≤ y.")
greater = pointwise("greater", np.greater, dtype=bool, doc="x > y.")
greater_equal = pointwise("greater_equal", np.greater_equal, dtype=bool, doc="x ≥ y.")
equal = pointwise("equal", np.equal, dtype=bool, commutative=True, doc="x = y.")
not_equal = pointwise(
    "not_equal", np.not_equal, dtype=bool, commutative=True, doc="x ≠ y."
)
isnan = pointwise("isnan", np.isnan, dtype=bool, decides=False, doc="Whether x is NaN.")
isinf = pointwise(
    "isinf", np.isinf, dtype=bool, decides=False, doc="Whether x is +∞ or -∞."
)
isfinite = pointwise(
    "isfinite", np.isfinite, dtype=bool, decides=False, doc="Whether x is finite."
)
_logical = partial(pointwise, dtype=bool, of_truths=True)
logical_and = _logical(
    "logical_and", np.logical_and, commutative=True, doc="x ≠ 0 and y ≠ 0."
)
logical_or = _logical(
    "logical_or", np.logical_or, commutative=True, doc="x ≠ 0 or y ≠ 0."
)
logical_xor = _logical(
    "logical_xor",
    np.logical_xor,
    commutative=True,
    doc="Whether one of x, y is ≠ 0.",
)
logical_not = _logical("logical_not", np.logical_not, doc="x = 0.")
bitwise_and = pointwise(
    "bitwise_and", np.bitwise_and, commutative=True, doc="x & y, of integers.", vjp=FLAT
)
bitwise_or = pointwise(
    "bitwise_or", np.bitwise_or, commutative=True, doc="x | y, of integers.", vjp=FLAT
)
bitwise_xor = pointwise(
    "bitwise_xor", np.bitwise_xor, commutative=True, doc="x ^ y, of integers.", vjp=FLAT
)
invert = pointwise("invert", np.invert, doc="~x, of integers or bools.", vjp=FLAT)
left_shift = pointwise("left_shift", np.left_shift, doc="x 2ʸ, of integers.", vjp=FLAT)
right_shift = pointwise(
    "right_shift", np.right_shift, doc="⌊x 2⁻ʸ⌋, of integers.", vjp=FLAT
)

# -- seldom used, each one ufunc of NumPy ----------------------------------------------

for _name, _flops, _vjp, _doc in (
    (
        "heaviside",
        2,
        (None, _where_zero),
        "0 for x < 0, y for x = 0, 1 for x > 0.",
    ),
    ("gcd", 20, FLAT, "The greatest common divisor, of integers."),
    ("lcm", 24, FLAT, "The least common multiple, of integers."),
):
    decides = True if _name == "heaviside" else None
    _f = getattr(np, _name)
    pointwise(_name, _f, flops=_flops, decides=decides, doc=_doc, vjp=_vjp)
pointwise(
    "nextafter",
    np.nextafter,
    flops=2,
    in_own_dtype=True,
    doc="The number next to x in the direction of y.",
    vjp="write x, from which it differs by one rounding",
)
pointwise("signbit", np.signbit, dtype=bool, doc="Whether x is negative, or -0.0.")
pointwise(
    "bitwise_count", np.bitwise_count, dtype=np.uint8, doc="Ones of |x| in binary."
)

# -- not ufuncs of NumPy ---------------------------------------------------------------


copy = _exact(
    "copy",
    np.array,
    flops=0,
    promotion="common",
    doc="x, in memory of its own.",
    vjp=_same,
)


@op(
    Pointwise(mask=True),
    kind="pointwise",
    flops=1,
    roundings=EXACT,
    vjp=(None, _where_true, _where_false),
)
@weak_floats
def where(condition: bool, x: Any, y: Any) -> Any:
    """x where the condition is not 0, else y; of the dtype of x and y together."""
    return np.where(condition, x, y)


@op(
    ToDType(),
    kind="pointwise",
    name="cast",
    promotion="first",
    flops=1,
    roundings=ONCE,
    vjp=lambda g, x, z, dtype: g,
)
def cast_op(x: Any, *, dtype: DTypeName) -> Any:
    """x rounded to the dtype, as ``astype`` does."""
    return np.asarray(x).astype(dtype)


def cast(x: Any, dtype: Any) -> Any:
    """``x`` as an array of ``dtype``; no operation when it is of that dtype already."""
    if isinstance(dtype, AttrVar):
        return x if getattr(x, "dtype", None) == dtype else cast_op(x, dtype=dtype)
    if is_traced(x) and dtype_of(x) == np.dtype(dtype):
        return x
    try:
        return cast_op(x, dtype=np.dtype(dtype).name)
    except OverflowError as error:
        raise DTypeError(
            f"{x} as {np.dtype(dtype)}: {error}{at(caller_line())}"
        ) from error


def clip(
    x: Any,
    a_min: Any = None,
    a_max: Any = None,
    *,
    min: Any = None,
    max: Any = None,
) -> Any:
    """min(max(x, a_min), a_max); a bound of None is none. Signature as ``np.clip``."""
    if not (a_min is None and a_max is None) and not (min is None and max is None):
        raise TraceValueError(
            f"clip: bounds by place and by min= or max=, expected one of these"
            f"{at(caller_line())}"
        )
    low = min if a_min is None else a_min
    high = max if a_max is None else a_max
    if not is_traced(x, low, high) and dtype_of(x) != BF16:
        return np.clip(x, low, high)
    x = np.asarray(x) if type(x) in (int, float) else x
    known = dtype_of(x)
    if known == np.dtype(bool) and low is None and high is None:
        raise DTypeError(f"clip: bools have no clip without bounds{at(caller_line())}")
    if known is not None and known.kind in "iu":
        held = np.iinfo(known)
        low = None if type(low) is int and low <= held.min else low
        high = None if type(high) is int and high >= held.max else high
    met = [dtype_of(b) for b in (low, high) if b is not None]
    if known not in (None, BF16) and len(met) == 2 and met != [None, None]:
        bounds = zip(met, (low, high), strict=True)
        kinds = [Weak(type(b)) if d is None else d for d, b in bounds]
        x = cast(x, common_dtype("clip", "common", [known, *kinds]))  # all at once
    y = x if low is None else maximum(x, low)
    return y if high is None else minimum(y, high)
