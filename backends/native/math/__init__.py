"""Vector mathematics: the float functions of NumPy as LLVM code, f32 and f64.

Each function of :data:`FUNCTIONS` is called as ``write(builder, x, host)`` or
``write(builder, x, y, host)`` with LLVM scalars or vectors of float or double of any
length, and returns the LLVM value. Results are the same in every lane, whatever its
neighbours and the length. NaN, infinities, denormals and the sign of zero are those of
the NumPy function. Errors, in units in the last place of the exact result:
2 for exp, log, tanh, erf, sigmoid, sin, cos, sqrt and rsqrt, 4 for power, erfc, erfcx,
erfinv and gammaln, 6 for log_ndtr and digamma, else 3, with and without fused
multiply-adds; of ``normal_cdf`` 1 in the last place of 1. Those of digamma below 0 are
of its parts, 1 + |ψ(1 - x)| + |π cot πx|.

>>> from llvmlite import ir
>>> vector = ir.VectorType(ir.FloatType(), 8)
>>> kind = ir.FunctionType(vector, [vector])
>>> function = ir.Function(ir.Module(), kind, "f")
>>> builder = ir.IRBuilder(function.append_basic_block())
>>> y = FUNCTIONS["exp"](builder, function.args[0], Host(has_fma=True))
>>> str(y.type)
'<8 x float>'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from llvmlite import ir

from . import (
    coefficients,
    error_function,
    exponential,
    gamma,
    logarithm,
    remainders,
    rounding,
    trigonometric,
)
from .coefficients import ERF32, ERFC32
from .cube_root import cbrt
from .power import power
from .vector_values import AVX512, F64, I32, VOID, MathTarget, declared, emitter

Emitter: TypeAlias = Callable[..., ir.Value]
"""``(builder, *values, host)`` to a value."""

_VECTOR = (
    *(exponential.exp, exponential.exp2, exponential.expm1, exponential.sinh),
    *(exponential.cosh, exponential.tanh, exponential.sigmoid, exponential.erf),
    *(
        exponential.normal_cdf,
        error_function.erfc,
        error_function.erfcx,
        error_function.erfinv,
        error_function.log_ndtr,
    ),
    *(gamma.gammaln, gamma.digamma),
    *(logarithm.log, logarithm.log2, logarithm.log10, logarithm.log1p),
    *(logarithm.arcsinh, logarithm.arccosh, logarithm.arctanh),
    *(logarithm.logaddexp, logarithm.logaddexp2, cbrt, power),
    *(trigonometric.sin, trigonometric.cos, trigonometric.tan),
    *(trigonometric.arcsin, trigonometric.arccos, trigonometric.arctan),
    *(trigonometric.arctan2, rounding.sqrt, rounding.rsqrt, rounding.hypot),
    *(rounding.floor, rounding.ceil, rounding.trunc, rounding.rint),
    *(rounding.copysign, rounding.maximum, rounding.minimum, rounding.fmax),
    *(rounding.fmin, rounding.nextafter, remainders.fmod, remainders.remainder),
    remainders.floor_divide,
)

FUNCTIONS: Mapping[str, Emitter] = MappingProxyType(
    {write.__name__: emitter(write) for write in _VECTOR}
)
"""Ops of the catalogue, by name, to what writes them; and ``normal_cdf``, which stands
for ½ (1 + erf(x √½)) in kernels."""

WRITERS: Mapping[str, Emitter] = MappingProxyType(
    {**FUNCTIONS, "exp_below": emitter(exponential.exp_below)}
)
"""These and functions of some arguments only, as their docstrings say."""
