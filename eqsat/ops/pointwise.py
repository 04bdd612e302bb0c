"""Pointwise ops: a result element from one element of each argument, broadcast.

Named as in NumPy, with its dtypes. Costs are rough, in flop an element: a division
counts as 4, an exponential as 8.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.define import op, pointwise, weak_floats
from eqsat.op import DTypeName
from eqsat.ops.support import dtype_of, in_float32, is_traced
from eqsat.typerule import BF16, Pointwise, ToDType

# -- arithmetic ------------------------------------------------------------------------

add = pointwise("add", np.add, commutative=True, doc="x + y.")
subtract = pointwise("subtract", np.subtract, doc="x - y.")
multiply = pointwise("multiply", np.multiply, commutative=True, doc="x y.")
divide = pointwise("divide", np.divide, flops=4, doc="x / y; integers give float64.")
floor_divide = pointwise("floor_divide", np.floor_divide, flops=6, doc="⌊x / y⌋.")
remainder = pointwise(
    "remainder", np.remainder, flops=8, doc="x - y ⌊x / y⌋, of the sign of y."
)
fmod = pointwise("fmod", np.fmod, flops=8, doc="x - y trunc(x / y), of the sign of x.")
negative = pointwise("negative", np.negative, doc="-x.")
power = pointwise("power", np.power, flops=20, doc="xʸ.")
square = pointwise("square", np.square, doc="x².")
reciprocal = pointwise("reciprocal", np.reciprocal, flops=4, doc="1 / x.")
absolute = pointwise("absolute", np.absolute, doc="|x|.")
sign = pointwise("sign", np.sign, flops=2, doc="-1, 0 or 1 as x is; NaN for NaN.")
copysign = pointwise("copysign", np.copysign, flops=2, doc="|x| with the sign of y.")
maximum = pointwise(
    "maximum",
    np.maximum,
    commutative=True,
    doc="The larger of x and y; NaN if either is.",
)
minimum = pointwise(
    "minimum",
    np.minimum,
    commutative=True,
    doc="The smaller of x and y; NaN if either is.",
)
fmax = pointwise(
    "fmax",
    np.fmax,
    commutative=True,
    flops=2,
    doc="The larger of x and y; not NaN if one is not.",
)
fmin = pointwise(
    "fmin",
    np.fmin,
    commutative=True,
    flops=2,
    doc="The smaller of x and y; not NaN if one is not.",
)

# -- exponentials, roots ---------------------------------------------------------------

exp = pointwise("exp", np.exp, flops=8, doc="eˣ.")
exp2 = pointwise("exp2", np.exp2, flops=8, doc="2ˣ.")
expm1 = pointwise("expm1", np.expm1, flops=10, doc="eˣ - 1, precise near 0.")
log = pointwise("log", np.log, flops=10, doc="ln x.")
log2 = pointwise("log2", np.log2, flops=10, doc="log₂ x.")
log10 = pointwise("log10", np.log10, flops=10, doc="log₁₀ x.")
log1p = pointwise("log1p", np.log1p, flops=12, doc="ln(1 + x), precise near 0.")
logaddexp = pointwise(
    "logaddexp", np.logaddexp, commutative=True, flops=24, doc="ln(eˣ + eʸ)."
)
sqrt = pointwise("sqrt", np.sqrt, flops=4, doc="√x.")
cbrt = pointwise("cbrt", np.cbrt, flops=15, doc="∛x.")
hypot = pointwise("hypot", np.hypot, commutative=True, flops=8, doc="√(x² + y²).")

# -- trigonometric and hyperbolic ------------------------------------------------------

sin = pointwise("sin", np.sin, flops=12, doc="sin x, x in radians.")
cos = pointwise("cos", np.cos, flops=12, doc="cos x, x in radians.")
tan = pointwise("tan", np.tan, flops=16, doc="tan x, x in radians.")
arcsin = pointwise(
    "arcsin", np.arcsin, flops=16, doc="The angle in [-π/2, π/2] of sine x."
)
arccos = pointwise(
    "arccos", np.arccos, flops=16, doc="The angle in [0, π] of cosine x."
)
arctan = pointwise(
    "arctan", np.arctan, flops=16, doc="The angle in (-π/2, π/2) of tangent x."
)
arctan2 = pointwise(
    "arctan2",
    np.arctan2,
    flops=20,
    doc="The angle of the point (y, x): x is its ordinate.",
)
sinh = pointwise("sinh", np.sinh, flops=14, doc="(eˣ - e⁻ˣ) / 2.")
cosh = pointwise("cosh", np.cosh, flops=14, doc="(eˣ + e⁻ˣ) / 2.")
tanh = pointwise("tanh", np.tanh, flops=12, doc="sinh x / cosh x.")
arcsinh = pointwise("arcsinh", np.arcsinh, flops=16, doc="ln(x + √(x² + 1)).")
arccosh = pointwise("arccosh", np.arccosh, flops=16, doc="ln(x + √(x² - 1)), x ≥ 1.")
arctanh = pointwise("arctanh", np.arctanh, flops=16, doc="ln((1 + x) / (1 - x)) / 2.")

# -- rounding --------------------------------------------------------------------------

floor = pointwise("floor", np.floor, doc="The largest integer ≤ x.")
ceil = pointwise("ceil", np.ceil, doc="The smallest integer ≥ x.")
trunc = pointwise("trunc", np.trunc, doc="x without its fraction.")
rint = pointwise("rint", np.rint, doc="The nearest integer; of two, the even one.")

# -- comparison and logic --------------------------------------------------------------

less = pointwise("less", np.less, dtype=bool, doc="x < y.")
less_equal = pointwise("less_equal", np.less_equal, dtype=bool, doc="x ≤ y.")
greater = pointwise("greater", np.greater, dtype=bool, doc="x > y.")
greater_equal = pointwise("greater_equal", np.greater_equal, dtype=bool, doc="x ≥ y.")
equal = pointwise("equal", np.equal, dtype=bool, commutative=True, doc="x = y.")
not_equal = pointwise(
    "not_equal", np.not_equal, dtype=bool, commutative=True, doc="x ≠ y."
)
isnan = pointwise("isnan", np.isnan, dtype=bool, doc="Whether x is NaN.")
isinf = pointwise("isinf", np.isinf, dtype=bool, doc="Whether x is +∞ or -∞.")
isfinite = pointwise("isfinite", np.isfinite, dtype=bool, doc="Whether x is finite.")
logical_and = pointwise(
    "logical_and", np.logical_and, dtype=bool, commutative=True, doc="x ≠ 0 and y ≠ 0."
)
logical_or = pointwise(
    "logical_or", np.logical_or, dtype=bool, commutative=True, doc="x ≠ 0 or y ≠ 0."
)
logical_xor = pointwise(
    "logical_xor",
    np.logical_xor,
    dtype=bool,
    commutative=True,
    doc="Whether one of x, y is ≠ 0.",
)
logical_not = pointwise("logical_not", np.logical_not, dtype=bool, doc="x = 0.")
bitwise_and = pointwise(
    "bitwise_and", np.bitwise_and, commutative=True, doc="x & y, of integers."
)
bitwise_or = pointwise(
    "bitwise_or", np.bitwise_or, commutative=True, doc="x | y, of integers."
)
bitwise_xor = pointwise(
    "bitwise_xor", np.bitwise_xor, commutative=True, doc="x ^ y, of integers."
)
invert = pointwise("invert", np.invert, doc="~x, of integers or bools.")
left_shift = pointwise("left_shift", np.left_shift, doc="x 2ʸ, of integers.")
right_shift = pointwise("right_shift", np.right_shift, doc="⌊x 2⁻ʸ⌋, of integers.")

# -- seldom used, each one ufunc of NumPy ----------------------------------------------

for _name, _flops, _doc in (
    ("degrees", 1, "180 x / π."),
    ("rad2deg", 1, "180 x / π."),
    ("radians", 1, "π x / 180."),
    ("deg2rad", 1, "π x / 180."),
    ("float_power", 20, "xʸ in float64."),
    ("logaddexp2", 24, "log₂(2ˣ + 2ʸ)."),
    ("heaviside", 2, "0 for x < 0, y for x = 0, 1 for x > 0."),
    ("nextafter", 2, "The number next to x in the direction of y."),
    ("gcd", 20, "The greatest common divisor, of integers."),
    ("lcm", 24, "The least common multiple, of integers."),
):
    pointwise(_name, getattr(np, _name), flops=_flops, doc=_doc)
pointwise("signbit", np.signbit, dtype=bool, doc="Whether x is negative, or -0.0.")
pointwise(
    "bitwise_count", np.bitwise_count, dtype=np.uint8, doc="Ones of |x| in binary."
)

# -- not ufuncs of NumPy ---------------------------------------------------------------


@in_float32
def _erf(x: Any) -> Any:
    from scipy.special import erf

    return erf(x)


def _as_floats(x: Any) -> Any:
    """Integers and bools as float64, in which terms of them are."""
    return x.astype(float) if getattr(x, "dtype", np.dtype("f8")).kind in "biu" else x


@in_float32
def _sigmoid(x: Any) -> Any:
    x = _as_floats(x)
    e = np.exp(-np.abs(x))
    return np.where(np.less(x, 0), e, 1) / (1 + e)


@in_float32
def _rsqrt(x: Any) -> Any:
    return 1 / np.sqrt(_as_floats(x))


erf = pointwise("erf", _erf, flops=15, doc="2/√π ∫₀ˣ exp(-t²) dt.")
sigmoid = pointwise(
    "sigmoid", _sigmoid, flops=13, doc="1 / (1 + e⁻ˣ), without overflow."
)
rsqrt = pointwise("rsqrt", _rsqrt, flops=5, doc="1 / √x.")
copy = pointwise(
    "copy", np.array, flops=0, promotion="common", doc="x, in memory of its own."
)


@op(Pointwise(mask=True), kind="pointwise", flops=1)
@weak_floats
def where(condition: bool, x: Any, y: Any) -> Any:
    """x where the condition is not 0, else y; of the dtype of x and y together."""
    return np.where(condition, x, y)


@op(ToDType(), kind="pointwise", name="cast", promotion="first", flops=1)
def cast_op(x: Any, *, dtype: DTypeName) -> Any:
    """x rounded to the dtype, as ``astype`` does."""
    return np.asarray(x).astype(dtype)


def cast(x: Any, dtype: Any) -> Any:
    """``x`` as an array of ``dtype``; no operation when it is of that dtype already."""
    if is_traced(x) and dtype_of(x) == np.dtype(dtype):
        return x
    return cast_op(x, dtype=np.dtype(dtype).name)


def clip(
    x: Any,
    a_min: Any = None,
    a_max: Any = None,
    *,
    min: Any = None,
    max: Any = None,
) -> Any:
    """min(max(x, a_min), a_max); a bound of None is none. Signature as ``np.clip``."""
    low = min if a_min is None else a_min
    high = max if a_max is None else a_max
    if not is_traced(x, low, high) and dtype_of(x) != BF16:
        return np.clip(x, low, high)
    known = dtype_of(x)
    if known is not None and known.kind in "iu":
        held = np.iinfo(known)
        low = None if type(low) is int and low <= held.min else low
        high = None if type(high) is int and high >= held.max else high
    y = x if low is None else maximum(x, low)
    return y if high is None else minimum(y, high)
