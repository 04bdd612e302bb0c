"""Operators that compute element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.operator_table import HALVES, cast, is_array
from eqsat.pytorch.table import (
    TABLE,
    Handler,
    aten,
    default_dtype,
    kind_of,
    result_type,
)
from eqsat.terms import Traced


def sign(x: Any) -> Any:
    """-1, 0 or 1; 0 for NaN, other than NumPy's."""
    if kind_of(x) == "b":
        return x
    return np.sign(x) if kind_of(x) in "iu" else np.where(np.isnan(x), 0, np.sign(x))


def rsqrt(x: Any) -> Any:
    """1 / √x."""
    return 1 / np.sqrt(x)


def pointwise(
    function: Handler, floats: bool = False, wide_numbers: bool = False
) -> Handler:
    """``function`` of arguments in their common dtype. ``floats``: integers are
    computed in the default dtype. ``wide_numbers``: numbers are not rounded to it."""

    def call(*args: Any) -> Any:
        dtype = result_type(*args)
        if floats and kind_of(dtype) in "bi":
            dtype = default_dtype()
        if wide_numbers:
            return function(*(cast(a, dtype) for a in args))
        return function(*(_rounded(a, dtype) for a in args))

    return call


def _rounded(x: Any, dtype: Any) -> Any:
    """x in a dtype; Python numbers as float16 or bfloat16 holds them."""
    if is_array(x) or dtype not in HALVES:
        return cast(x, dtype)
    return float(np.asarray(x, np.float32).astype(dtype))


SAME: dict[str, Handler] = {
    "abs": np.abs,
    "bitwise_and": np.bitwise_and,
    "bitwise_not": np.invert,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "eq": np.equal,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "gcd": np.gcd,
    "ge": np.greater_equal,
    "gt": np.greater,
    "isnan": np.isnan,
    "lcm": np.lcm,
    "le": np.less_equal,
    "lt": np.less,
    "max.other": np.maximum,
    "maximum": np.maximum,
    "min.other": np.minimum,
    "minimum": np.minimum,
    "ne": np.not_equal,
    "neg": np.negative,
    "relu": ops.relu,
    "sign": sign,
    "square": np.square,
}
"""In the common dtype of the arguments."""

FLOATS: dict[str, Handler] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cos": np.cos,
    "cosh": np.cosh,
    "digamma": ops.digamma,
    "erf": ops.erf,
    "erfc": ops.erfc,
    "erfinv": ops.erfinv,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "hypot": np.hypot,
    "i0": ops.i0,
    "lgamma": lambda x: np.where(x == -np.inf, np.inf, ops.gammaln(x)),
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "logaddexp": np.logaddexp,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": rsqrt,
    "sigmoid": ops.sigmoid,
    "sin": np.sin,
    "sinh": np.sinh,
    "special_erfcx": ops.erfcx,
    "special_i0e": ops.i0e,
    "special_i1": ops.i1,
    "special_i1e": ops.i1e,
    "special_log_ndtr": ops.log_ndtr,
    "special_ndtri": ops.ndtri,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}
"""In floats, of integers too."""

TABLE.update({name: pointwise(f) for name, f in SAME.items()})
TABLE["mul"] = pointwise(np.multiply, wide_numbers=True)
TABLE.update({name: pointwise(f, floats=True) for name, f in FLOATS.items()})


@aten("add", in_float32=False)
def add(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    """x + alpha y; of bools, or."""
    dtype = result_type(x, y)
    alpha = bool(alpha) if kind_of(dtype) == "b" else alpha
    x, y = cast(x, dtype), cast(y, dtype)
    return x + y if alpha == 1 else x + y * alpha


@aten("sub", in_float32=False)
def sub(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    """x - alpha y."""
    dtype = result_type(x, y)
    if "b" in (kind_of(x), kind_of(y)):
        raise TypeError("a difference of bools")
    x, y = cast(x, dtype), cast(y, dtype)
    return x - y if alpha == 1 else x - y * alpha


@aten("rsub", in_float32=False)
def rsub(x: Any, y: Any, alpha: Any = 1) -> Any:
    """y - alpha x."""
    return sub(y, x, alpha=alpha)


@aten("div", in_float32=False)
def div(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    """x / y, rounded to integers down or towards 0 where ``rounding_mode`` says so."""
    dtype = result_type(x, y)
    if rounding_mode is None:
        dtype = default_dtype() if kind_of(dtype) in "bi" else dtype
        return cast(x, dtype) / cast(y, dtype)
    if kind_of(dtype) == "f" or dtype.kind == "b":
        # floor_divide of floats has cases of its own for infinities and signs of 0
        raise TypeError(f"rounding_mode={rounding_mode!r} of {dtype}")
    x, y = cast(x, dtype), _divisor(y, dtype)
    down = x // y
    if rounding_mode == "floor" or dtype.kind == "u":
        return down
    return down + cast((down < 0) & (down * y != x), dtype)


def _divisor(y: Any, dtype: np.dtype[Any]) -> Any:
    """y in a dtype. Raises :class:`TypeError` for integers that may be 0, by which
    PyTorch does not divide."""
    y = cast(y, dtype)
    if kind_of(dtype) == "i" and (isinstance(y, Traced) or not np.all(y)):
        raise TypeError("integers by what may be 0")
    return y


@aten("floor_divide", in_float32=False)
def floor_divide(x: Any, y: Any) -> Any:
    """⌊x / y⌋ of integers."""
    return div(x, y, rounding_mode="floor")


@aten("remainder", in_float32=False)
def remainder(x: Any, y: Any) -> Any:
    """The remainder, with the sign of y."""
    return pointwise(np.remainder)(x, _divisor(y, result_type(x, y)))


@aten("fmod", in_float32=False)
def fmod(x: Any, y: Any) -> Any:
    """The remainder, with the sign of x."""
    return pointwise(np.fmod)(x, _divisor(y, result_type(x, y)))


ROOTS: dict[float, Handler] = {0.5: np.sqrt, -0.5: rsqrt}
"""What PyTorch computes as powers by a number, of dtypes other than float16."""


@aten("pow", in_float32=False)
def power(x: Any, y: Any) -> Any:
    """xʸ."""
    dtype = result_type(x, y)
    if kind_of(dtype) in "bi" and (is_array(y) or y < 0):
        raise TypeError("powers of integers that may be below 0")
    x = cast(x, dtype) if is_array(x) else np.asarray(x, dtype)
    if is_array(y):
        return np.power(x, cast(y, dtype))
    y = _rounded(y, dtype)
    if y in ROOTS and dtype != np.float16:
        return ROOTS[y](x)
    if kind_of(dtype) == "f" and float(y).is_integer():
        return x ** int(y)
    return np.power(x, y)


ROUNDINGS: dict[str, Handler] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round": np.rint,
    "trunc": np.trunc,
}
"""To whole numbers, which integers are."""


def _rounding(function: Handler) -> Handler:
    return lambda x: x if kind_of(x) in "bi" else function(x)


TABLE.update({f"{name}.default": _rounding(f) for name, f in ROUNDINGS.items()})

TABLE.update(
    {
        "logical_and": pointwise(np.logical_and),
        "logical_not": np.logical_not,
        "logical_or": pointwise(np.logical_or),
        "logical_xor": pointwise(np.logical_xor),
    }
)

TABLE["isinf"] = lambda x: (
    np.zeros(x.shape, bool) if kind_of(x) in "bi" else np.isinf(x)
)
TABLE["isfinite"] = lambda x: (
    np.ones(x.shape, bool) if kind_of(x) in "bi" else np.isfinite(x)
)


@aten("where.self", in_float32=False)
def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition is true, else y."""
    dtype = result_type(x, y)
    return np.where(condition != 0, cast(x, dtype), cast(y, dtype))


@aten("masked_fill", in_float32=False)
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    """``value`` where the mask is true, else x."""
    if is_array(value) and value.dtype != x.dtype:
        raise TypeError(f"{value.dtype}, which {x.dtype} may not hold")
    return np.where(mask, cast(value, x.dtype), x)


@aten("clamp", in_float32=False)
def clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    """x between two bounds, each of which may be left out."""
    dtype = result_type(*(v for v in (x, low, high) if v is not None))
    y = cast(x, dtype)
    y = y if low is None else np.maximum(y, cast(low, dtype))
    return y if high is None else np.minimum(y, cast(high, dtype))


@aten("clamp_min", in_float32=False)
def clamp_min(x: Any, low: Any) -> Any:
    """x, or ``low`` where that is larger."""
    return clamp(x, low)


@aten("clamp_max", in_float32=False)
def clamp_max(x: Any, high: Any) -> Any:
    """x, or ``high`` where that is smaller."""
    return clamp(x, None, high)


# -- activations -----------------------------------------------------------------------


@aten("gelu")
def gelu(x: Any, *, approximate: str = "none") -> Any:
    """x Φ(x), or its approximation by tanh."""
    return ops.gelu(x) if approximate == "none" else ops.gelu_tanh(x)


@aten("silu")
def silu(x: Any) -> Any:
    """x σ(x)."""
    return ops.silu(x)


@aten("leaky_relu")
def leaky_relu(x: Any, slope: Any = 0.01) -> Any:
    """x above 0, else slope x."""
    return np.where(x > 0, x, x * slope)


@aten("elu")
def elu(x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    """scale x above 0, else scale alpha (eˣ - 1)."""
    below = np.expm1(np.minimum(x, 0) * input_scale) * (alpha * scale)
    return np.where(x > 0, x * scale, below)


@aten("hardtanh", in_float32=False)
def hardtanh(x: Any, low: Any = -1, high: Any = 1) -> Any:
    """x between two numbers."""
    return np.minimum(np.maximum(x, low), high)


@aten("softplus")
def softplus(x: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    """ln(1 + e^(beta x)) / beta, and x where beta x exceeds the threshold."""
    y = ops.softplus(x * beta) / beta
    return np.where(x * beta > threshold, x, y)


@aten("gelu_backward")
def gelu_backward(g: Any, x: Any, *, approximate: str = "none") -> Any:
    """g times the slope of gelu."""
    if approximate == "none":
        density = np.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
        return g * (0.5 * (1 + ops.erf(x * math.sqrt(0.5))) + x * density)
    c, k = math.sqrt(2 / math.pi), 0.044715
    t = np.tanh(c * (x + k * x * x * x))
    inner = c * (1 + 3 * k * x * x)
    return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner)


@aten("sigmoid_backward")
def sigmoid_backward(g: Any, y: Any) -> Any:
    """g y (1 - y)."""
    return g * (y * (1 - y))


@aten("tanh_backward")
def tanh_backward(g: Any, y: Any) -> Any:
    """g (1 - y²)."""
    return g * (1 - y * y)


@aten("silu_backward")
def silu_backward(g: Any, x: Any) -> Any:
    """g times the slope of silu."""
    s = ops.sigmoid(x)
    return g * (s * (1 + x * (1 - s)))


@aten("threshold_backward", in_float32=False)
def threshold_backward(g: Any, x: Any, threshold: Any) -> Any:
    """g where x exceeds the threshold, else 0; NaN lets it pass."""
    return np.where(x <= threshold, np.zeros((), g.dtype), g)
