"""Functions of one or two numbers that are not arithmetic: powers, exponentials, roots,
trigonometric and hyperbolic functions.

Pointwise, named as in NumPy, with its dtypes; costs as in :mod:`eqsat.ops.pointwise`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eqsat.ops.pointwise import equal, isinf, logical_and, where
from eqsat.ops.support import in_float32, is_traced
from eqsat.terms import LIBRARY, ONCE, Op, pointwise

# -- derivatives -----------------------------------------------------------------------


def _power_by_base(g: Any, x: Any, y: Any, z: Any) -> Any:
    """g y xʸ⁻¹, and 0 where x and y are 0."""
    if not is_traced(y):
        return None if y == 0 else g * (y * (x if y == 2 else power(x, y - 1)))
    base = where(logical_and(equal(x, 0.0), equal(y, 0.0)), 1.0, x)
    return g * (y * power(base, y - 1.0))


def _power_by_exponent(g: Any, x: Any, y: Any, z: Any) -> Any:
    """g xʸ ln x, and 0 where x is 0."""
    return g * (z * log(where(equal(x, 0.0), 1.0, x)))


def _by_first(g: Any, x: Any, y: Any, z: Any) -> Any:
    return g * sigmoid(_apart(x, y))


def _by_first_of_two(g: Any, x: Any, y: Any, z: Any) -> Any:
    return g * sigmoid(_apart(x, y) * math.log(2))


def _apart(x: Any, y: Any) -> Any:
    """x - y, and 0 where they are equal and infinite."""
    return where(logical_and(equal(x, y), isinf(x)), 0.0, x - y)


def _by_leg(g: Any, x: Any, y: Any, z: Any) -> Any:
    """g x / z, and 0 where both legs are."""
    return g * (x / where(equal(z, 0.0), 1.0, z))


def _by_ordinate(g: Any, x: Any, y: Any, z: Any) -> Any:
    """g y / (x² + y²), of squares that are in range."""
    r = hypot(x, y)
    return g * (y / r / r)


# -- powers, exponentials, roots -------------------------------------------------------

power = pointwise(
    "power", np.power, flops=20, doc="xʸ.", vjp=(_power_by_base, _power_by_exponent)
)
exp = pointwise("exp", np.exp, flops=8, doc="eˣ.", vjp=lambda g, x, z: g * z)
exp2 = pointwise(
    "exp2", np.exp2, flops=8, doc="2ˣ.", vjp=lambda g, x, z: g * (z * math.log(2))
)
expm1 = pointwise(
    "expm1",
    np.expm1,
    flops=10,
    doc="eˣ - 1, precise near 0.",
    vjp=lambda g, x, z: g * (z + 1.0),
)
log = pointwise("log", np.log, flops=10, doc="ln x.", vjp=lambda g, x, z: g / x)
log2 = pointwise(
    "log2", np.log2, flops=10, doc="log₂ x.", vjp=lambda g, x, z: g / (x * math.log(2))
)
log10 = pointwise(
    "log10",
    np.log10,
    flops=10,
    doc="log₁₀ x.",
    vjp=lambda g, x, z: g / (x * math.log(10)),
)
log1p = pointwise(
    "log1p",
    np.log1p,
    flops=12,
    doc="ln(1 + x), precise near 0.",
    vjp=lambda g, x, z: g / (x + 1.0),
)
logaddexp = pointwise(
    "logaddexp",
    np.logaddexp,
    commutative=True,
    flops=24,
    doc="ln(eˣ + eʸ).",
    vjp=(_by_first, lambda g, x, y, z: _by_first(g, y, x, z)),
)
pointwise(
    "logaddexp2",
    np.logaddexp2,
    flops=24,
    doc="log₂(2ˣ + 2ʸ).",
    vjp=(_by_first_of_two, lambda g, x, y, z: _by_first_of_two(g, y, x, z)),
)
pointwise(
    "float_power",
    np.float_power,
    flops=20,
    doc="xʸ in float64.",
    vjp=(_power_by_base, _power_by_exponent),
)
sqrt = pointwise(
    "sqrt", np.sqrt, roundings=ONCE, flops=4, doc="√x.", vjp=lambda g, x, z: g * 0.5 / z
)
cbrt = pointwise(
    "cbrt", np.cbrt, flops=15, doc="∛x.", vjp=lambda g, x, z: g / (z * z * 3.0)
)
hypot = pointwise(
    "hypot",
    np.hypot,
    commutative=True,
    flops=8,
    doc="√(x² + y²).",
    vjp=(_by_leg, lambda g, x, y, z: _by_leg(g, y, x, z)),
)

# -- trigonometric and hyperbolic ------------------------------------------------------

sin = pointwise(
    "sin", np.sin, flops=12, doc="sin x, x in radians.", vjp=lambda g, x, z: g * cos(x)
)
cos: Op = pointwise(
    "cos", np.cos, flops=12, doc="cos x, x in radians.", vjp=lambda g, x, z: -g * sin(x)
)
tan = pointwise(
    "tan",
    np.tan,
    flops=16,
    doc="tan x, x in radians.",
    vjp=lambda g, x, z: g * (z * z + 1.0),
)
arcsin = pointwise(
    "arcsin",
    np.arcsin,
    flops=16,
    doc="The angle in [-π/2, π/2] of sine x.",
    vjp=lambda g, x, z: g / sqrt((1.0 - x) * (1.0 + x)),
)
arccos = pointwise(
    "arccos",
    np.arccos,
    flops=16,
    doc="The angle in [0, π] of cosine x.",
    vjp=lambda g, x, z: -g / sqrt((1.0 - x) * (1.0 + x)),
)
arctan = pointwise(
    "arctan",
    np.arctan,
    flops=16,
    doc="The angle in (-π/2, π/2) of tangent x.",
    vjp=lambda g, x, z: g / (x * x + 1.0),
)
arctan2 = pointwise(
    "arctan2",
    np.arctan2,
    flops=20,
    doc="The angle of the point (y, x): x is its ordinate.",
    vjp=(_by_ordinate, lambda g, x, y, z: -_by_ordinate(g, y, x, z)),
)
sinh = pointwise(
    "sinh", np.sinh, flops=14, doc="(eˣ - e⁻ˣ) / 2.", vjp=lambda g, x, z: g * cosh(x)
)
cosh: Op = pointwise(
    "cosh", np.cosh, flops=14, doc="(eˣ + e⁻ˣ) / 2.", vjp=lambda g, x, z: g * sinh(x)
)
tanh = pointwise(
    "tanh",
    np.tanh,
    flops=12,
    doc="sinh x / cosh x.",
    vjp=lambda g, x, z: g * (1.0 - z * z),
)
arcsinh = pointwise(
    "arcsinh",
    np.arcsinh,
    flops=16,
    doc="ln(x + √(x² + 1)).",
    vjp=lambda g, x, z: g / hypot(x, 1.0),
)
arccosh = pointwise(
    "arccosh",
    np.arccosh,
    flops=16,
    doc="ln(x + √(x² - 1)), x ≥ 1.",
    vjp=lambda g, x, z: g / (sqrt(x - 1.0) * sqrt(x + 1.0)),
)
arctanh = pointwise(
    "arctanh",
    np.arctanh,
    flops=16,
    doc="ln((1 + x) / (1 - x)) / 2.",
    vjp=lambda g, x, z: g / ((1.0 - x) * (1.0 + x)),
)

for _name, _scale, _doc in (
    ("degrees", (180, math.pi), "180 x / π."),
    ("rad2deg", (180, math.pi), "180 x / π."),
    ("radians", (math.pi, 180), "π x / 180."),
    ("deg2rad", (math.pi, 180), "π x / 180."),
):
    pointwise(_name, getattr(np, _name), scale=_scale, doc=_doc)

# -- not ufuncs of NumPy ---------------------------------------------------------------

ERF_SLOPE = 2 / math.sqrt(math.pi)
"""That of erf at 0."""


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


erf = pointwise(
    "erf",
    _erf,
    flops=15,
    special="erf",
    doc="2/√π ∫₀ˣ exp(-t²) dt.",
    vjp=lambda g, x, z: g * (exp(-x * x) * ERF_SLOPE),
)
sigmoid: Op = pointwise(
    "sigmoid",
    _sigmoid,
    flops=13,
    roundings=LIBRARY + 3,
    doc="1 / (1 + e⁻ˣ), without overflow.",
    vjp=lambda g, x, z: g * (z * (1.0 - z)),
)
rsqrt = pointwise(
    "rsqrt",
    _rsqrt,
    flops=5,
    roundings=3.0,
    doc="1 / √x.",
    vjp=lambda g, x, z: g * (z * z * z * -0.5),
)
