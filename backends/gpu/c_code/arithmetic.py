"""Pointwise ops as expressions of C++, with the results of NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat.terms import Op

from ...loop_ir import (
    DType,
    Unsupported,
)
from .dialect import Dialect, value_type
from .special import literal

_INFIX = {"add": "+", "subtract": "-", "multiply": "*"}
_COMPARE = {
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
}
_LOGIC = {"logical_and": "&&", "logical_or": "||", "logical_xor": "!="}
_FLOAT = {
    **{n: f"({{0}} {s} {{1}})" for n, s in _INFIX.items()},
    "divide": "({0} / {1})",
    "negative": "(-{0})",
    "square": "({0} * {0})",
    "reciprocal": "(1.0f / {0})",
    "absolute": "eq_fabs({0})",
    "sign": "eq_sign({0})",
    "copysign": "eq_copysign({0}, {1})",
    "maximum": "eq_max({0}, {1})",
    "minimum": "eq_min({0}, {1})",
    "fmax": "eq_fmax({0}, {1})",
    "fmin": "eq_fmin({0}, {1})",
    "floor_divide": "eq_floor_divide_f({0}, {1})",
    "remainder": "eq_remainder_f({0}, {1})",
    "fmod": "eq_fmod({0}, {1})",
    "power": "eq_pow({0}, {1})",
    "rsqrt": "(1.0f / eq_sqrt({0}))",
    "arcsin": "eq_asin({0})",
    "arccos": "eq_acos({0})",
    "arctan": "eq_atan({0})",
    "arctan2": "eq_atan2({0}, {1})",
    "arcsinh": "eq_asinh({0})",
    "arccosh": "eq_acosh({0})",
    "arctanh": "eq_atanh({0})",
    "logaddexp": "eq_logaddexp({0}, {1})",
    "isnan": "({0} != {0})",
    "isinf": "(eq_fabs({0}) == EQ_INF)",
    "isfinite": "(eq_fabs({0}) < EQ_INF)",
    "signbit": "(EQ_BITS(int, {0}) < 0)",
    "copy": "{0}",
    **{
        n: f"eq_{n}({{0}})"
        for n in (
            "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh erf "
            "sigmoid floor ceil trunc rint divisor_scale erf_plus_one half_erf_plus_one"
            " cbrt erfc erfcx erfinv log_ndtr ndtri gammaln digamma trigamma gamma "
            "i0 i0e i1 i1e j0 j1"
        ).split()
    },
    **{
        n: f"eq_{n}({{0}}, {{1}})"
        for n in "hypot logaddexp2 heaviside nextafter beta betaln".split()
    },
}
_INTEGER = {
    **{n: f"{{T}}({{0}} {s} {{1}})" for n, s in _INFIX.items()},
    "negative": "{T}({T}(0) - {0})",
    "square": "{T}({0} * {0})",
    "absolute": "{T}({0} < {T}(0) ? {T}(0) - {0} : {0})",
    "sign": "{T}({T}({0} > {T}(0)) - {T}({0} < {T}(0)))",
    **{n: "eq_max({0}, {1})" for n in ("maximum", "fmax")},
    **{n: "eq_min({0}, {1})" for n in ("minimum", "fmin")},
    "floor_divide": "eq_floor_divide({0}, {1})",
    "remainder": "eq_remainder({0}, {1})",
    "fmod": "eq_rest({0}, {1})",
    "left_shift": "eq_left({0}, {1})",
    "right_shift": "eq_right({0}, {1})",
    "bitwise_and": "{T}({0} & {1})",
    "bitwise_or": "{T}({0} | {1})",
    "bitwise_xor": "{T}({0} ^ {1})",
    "invert": "{T}(~{0})",
    **dict.fromkeys(("floor", "ceil", "trunc", "rint", "copy"), "{0}"),
    **dict.fromkeys(("isnan", "isinf"), "false"),
    "isfinite": "true",
}
_BOOL = {
    **dict.fromkeys(("add", "maximum", "fmax", "bitwise_or"), "({0} || {1})"),
    **dict.fromkeys(("multiply", "minimum", "fmin", "bitwise_and"), "({0} && {1})"),
    "bitwise_xor": "({0} != {1})",
    "invert": "(!{0})",
    **dict.fromkeys(("absolute", "copy", "floor", "ceil", "trunc"), "{0}"),
    **dict.fromkeys(("isnan", "isinf"), "false"),
    "isfinite": "true",
}


def expression(
    op: str, args: Sequence[str], of: DType, dtype: DType, dialect: Dialect
) -> str:
    """``op`` over ``args`` of dtype ``of``; the result is of ``dtype``.

    Raises :class:`Unsupported`.
    """
    if op.startswith("round_"):
        narrow = dialect.memory[op.removeprefix("round_")]
        return f"float({narrow}({args[0]}))"
    if op == "cast":
        return _cast(args[0], of, dtype)
    if op == "where":
        return f"({args[0]} ? {args[1]} : {args[2]})"
    if op in _COMPARE:
        return f"({args[0]} {_COMPARE[op]} {args[1]})"
    if op in _LOGIC:
        return f"({args[0]} {_LOGIC[op]} {args[1]})"
    if op == "logical_not":
        return f"(!{args[0]})"
    row = Op.registry.get(op)
    if row is not None and row.scale is not None and of.kind == "f":
        return f"({args[0]} * {literal(row.factor(of))})"
    kinds = {"f": _FLOAT, "b": _BOOL}
    form = kinds.get(of.kind, _INTEGER).get(op)
    if form is None:
        raise Unsupported(f"{op} of {of} on a GPU")
    return form.replace("{T}", value_type(of)).format(*args)


def _cast(text: str, of: DType, dtype: DType) -> str:
    if dtype == np.dtype(bool):
        return f"({text} != 0)"
    if of.kind == "f" and dtype.kind in "iu":
        if dtype.itemsize == 8:
            raise Unsupported("float to 64-bit integers on a GPU")
        # Out of range is undefined there: as on x86-64, the least int32, cut to size.
        inside = f"({text} >= -2147483648.0f && {text} < 2147483648.0f)"
        wide = f"({inside} ? int32_t({text}) : int32_t(-2147483647 - 1))"
        if dtype.name == "uint32":
            wide = f"({text} >= 2147483648.0f ? uint32_t({text}) : uint32_t({wide}))"
        return f"{value_type(dtype)}({wide})"
    return f"{value_type(dtype)}({text})"
