"""Primitives that compute element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat import ops
from eqsat.mlx.table import Handler, enter_all, primitive

SAME: dict[str, Handler] = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Conjugate": np.conjugate,
    "Copy": lambda x: x,
    "Divide": np.divide,
    "Floor": np.floor,
    "Full": lambda x: x,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "Imag": np.imag,
    "Less": np.less,
    "LessEqual": np.less_equal,
    "LogicalAnd": np.logical_and,
    "LogicalNot": np.logical_not,
    "LogicalOr": np.logical_or,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Multiply": np.multiply,
    "Negative": np.negative,
    "NotEqual": np.not_equal,
    "Real": np.real,
    "Remainder": np.remainder,
    "Round": lambda x: x if np.dtype(x.dtype).kind in "biu" else np.rint(x),
    "Select": np.where,
    "Square": np.square,
    "StopGradient": lambda x: x,
}
"""As NumPy's; operands have one dtype already."""

FLOATS: dict[str, Handler] = {
    "ArcCos": np.arccos,
    "ArcCosh": np.arccosh,
    "ArcSin": np.arcsin,
    "ArcSinh": np.arcsinh,
    "ArcTan": np.arctan,
    "ArcTan2": np.arctan2,
    "ArcTanh": np.arctanh,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Erf": ops.erf,
    "ErfInv": ops.erfinv,
    "Exp": np.exp,
    "Expm1": np.expm1,
    "Log1p": np.log1p,
    "LogAddExp": np.logaddexp,
    "Sigmoid": ops.sigmoid,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Tan": np.tan,
    "Tanh": np.tanh,
}
"""Of floats; halves in float32."""

enter_all(SAME)
enter_all(FLOATS, in_float32=True)

_LOGARITHMS = (np.log2, np.log10, np.log)
_BITWISE = (
    np.bitwise_and,
    np.bitwise_or,
    np.bitwise_xor,
    np.left_shift,
    np.right_shift,
)


@primitive("Broadcast", elementwise=True)
def broadcast(x: Any, *arguments: Any) -> Any:
    """x: who reads it broadcasts it."""
    return x


@primitive("AsType", elementwise=True)
def as_type(x: Any, _dtype: Any, *, dtype: Any) -> Any:
    """x in another dtype; of complex numbers the real part."""
    if np.dtype(x.dtype).kind == "c" and dtype.kind not in "bc":
        x = np.real(x)
    return x.astype(dtype)


@primitive("Add", elementwise=True)
def add(x: Any, y: Any) -> Any:
    """x + y; of bools, or."""
    return x + y


@primitive("Subtract", elementwise=True)
def subtract(x: Any, y: Any) -> Any:
    """x - y; of bools, whether they differ."""
    return x != y if x.dtype == bool else x - y


@primitive("FloorDivide", elementwise=True)
def floor_divide(x: Any, y: Any) -> Any:
    """⌊x / y⌋. NumPy's has cases of its own for infinite floats."""
    if np.dtype(x.dtype).kind in "biu":
        return np.floor_divide(x, y)
    return np.floor(np.divide(x, y))


@primitive("DivMod", elementwise=True)
def divmod_(x: Any, y: Any) -> Any:
    """⌊x / y⌋ and the remainder, with the sign of y."""
    return floor_divide(x, y), np.remainder(x, y)


@primitive("Equal", elementwise=True)
def equal(x: Any, y: Any, equal_nan: bool) -> Any:
    """Whether x = y, or both are NaN where ``equal_nan``."""
    found = np.equal(x, y)
    return found | ((x != x) & (y != y)) if equal_nan else found


@primitive("Log", elementwise=True, in_float32=True)
def log(x: Any, base: int) -> Any:
    """The logarithm to base 2, 10 or e."""
    return _LOGARITHMS[base](x)


@primitive("Power", elementwise=True)
def power(x: Any, y: Any) -> Any:
    """xʸ."""
    if np.dtype(x.dtype).kind == "i":
        raise TypeError("powers of integers that may be below 0")
    return np.power(x, y)


@primitive("Sign", elementwise=True)
def sign(x: Any) -> Any:
    """-1, 0 or 1; 0 of NaN."""
    found = x if x.dtype == bool else np.sign(x)
    is_real = np.dtype(x.dtype).kind not in "biuc"
    return np.where(x == x, found, np.zeros((), x.dtype)) if is_real else found


@primitive("Sqrt", elementwise=True)
def sqrt(x: Any, is_reciprocal: bool) -> Any:
    """√x, or 1 / √x."""
    return 1 / np.sqrt(x) if is_reciprocal else np.sqrt(x)


@primitive("BitwiseBinary", elementwise=True)
def bitwise(x: Any, y: Any, kind: int) -> Any:
    """And, or, exclusive or, and shifts to the left and right."""
    return _BITWISE[kind](x, y)


@primitive("Depends")
def depends(x: Any, *others: Any) -> Any:
    """x, after the others."""
    return x
