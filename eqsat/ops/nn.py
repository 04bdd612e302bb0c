"""Activations, softmax and other small parts of networks, written with other ops.

The bodies are their meaning: a float16 or bfloat16 array is computed in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.ops.pointwise import (
    absolute,
    cast,
    equal,
    greater,
    isfinite,
    maximum,
    negative,
    where,
)
from eqsat.ops.reduce import max, sum
from eqsat.ops.support import dtype_of, known_sizes
from eqsat.ops.transcendental import erf, exp, log, log1p, sigmoid
from eqsat.ops.view import concatenate, expand_dims, reshape, window
from eqsat.terms import BOOL, Axis, Bindings, OnlyWhere, ReducedAxes, composite

# -- activations -----------------------------------------------------------------------


@composite(
    "... -> ...",
    promotion="common",
    vjp=lambda g, x, y: OnlyWhere(greater(x, 0.0), g),
)
def relu(x: Any) -> Any:
    """max(x, 0), of the dtype of x: bools stay as they are."""
    return x if dtype_of(x) == BOOL else maximum(x, 0)


@composite("..., -> ...")
def leaky_relu(x: Any, slope: Any = 0.01) -> Any:
    """x where x ≥ 0, else slope x. Maas et al. 2013."""
    return where(x >= 0, x, x * slope)


@composite("... -> ...")
def silu(x: Any) -> Any:
    """x σ(x). Elfwing et al. 2017, arXiv:1702.03118."""
    return x * sigmoid(x)


@composite("... -> ...")
def gelu(x: Any) -> Any:
    """x Φ(x) = x (1 + erf(x / √2)) / 2. Hendrycks & Gimpel 2016, arXiv:1606.08415."""
    return 0.5 * x * (1 + erf(x * 0.7071067811865476))


@composite("... -> ...")
def gelu_tanh(x: Any) -> Any:
    """x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, as x σ(2 √(2/π) (x + 0.044715 x³)),
    which keeps its digits where it is small. Hendrycks & Gimpel 2016, §2."""
    return x * sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))


@composite("... -> ...")
def gelu_sigmoid(x: Any) -> Any:
    """x σ(1.702 x). Hendrycks & Gimpel 2016, §2."""
    return x * sigmoid(1.702 * x)


@composite("... -> ...", vjp=lambda g, x, y: g * sigmoid(x))
def softplus(x: Any) -> Any:
    """ln(1 + eˣ), as max(x, 0) + ln(1 + e^-|x|), which does not overflow."""
    return maximum(x, 0) + log1p(exp(negative(absolute(x))))


# -- softmax ---------------------------------------------------------------------------


def some_elements(bound: Bindings, attrs: dict[str, Any]) -> str | None:
    """What is wrong with a softmax over an empty axis: there is no largest element."""
    lead, last = bound["..."], bound.get("n")
    assert isinstance(lead, tuple)
    shape = lead if last is None else (*lead, last)
    empty = [a for a in attrs.get("axis", (-1,)) if shape[a] == 0]
    return f"axis {empty[0]} of shape {shape} is empty" if empty else None


def _by_softmax(g: Any, x: Any, y: Any, axis: Any) -> Any:
    return y * (g - sum(g * y, axis, keepdims=True))


def _by_log_softmax(g: Any, x: Any, y: Any, axis: Any) -> Any:
    return g - exp(y) * sum(g, axis, keepdims=True)


def _by_logsumexp(g: Any, x: Any, y: Any, axis: Any) -> Any:
    """g softmax(x), and 0 where all of x is -∞."""
    e, total, _ = _shifted(x, axis)
    return g * (e / where(equal(total, 0.0), 1.0, total))


@composite("... -> ...", check=some_elements, vjp=_by_softmax)
def softmax(x: Any, *, axis: Axis = (-1,)) -> Any:
    """eˣ / Σ eˣ over the axes, after subtracting the largest x."""
    e = exp(x - max(x, axis, keepdims=True))
    return e / sum(e, axis, keepdims=True)


@composite("... -> ...", check=some_elements, vjp=_by_log_softmax)
def log_softmax(x: Any, *, axis: Axis = (-1,)) -> Any:
    """ln softmax(x) = d - ln Σ eᵈ over the axes, where d is x less its largest."""
    d = x - max(x, axis, keepdims=True)
    return d - log(sum(exp(d), axis, keepdims=True))


@composite(ReducedAxes(nonempty=True), vjp=_by_logsumexp)
def logsumexp(x: Any, *, axis: Axis = (-1,)) -> Any:
    """ln Σ eˣ over the axes, kept with size 1; its limit where x is infinite."""
    _, total, top = _shifted(x, axis)
    return log(total) + top


def _shifted(x: Any, axis: Any) -> tuple[Any, Any, Any]:
    """eˣ⁻ᵗ, its sum, and t, the largest x or 0 where that is infinite."""
    top = max(x, axis, keepdims=True)
    finite = where(isfinite(top), top, 0.0)
    e = exp(x - finite)
    return e, sum(e, axis, keepdims=True), finite


# -- positions and quantities ----------------------------------------------------------


def _even(bound: Bindings, attrs: dict[str, Any]) -> str | None:
    d = bound["d"]
    return (
        f"axis d is {d}, expected an even size"
        if isinstance(d, int) and d % 2
        else None
    )


@composite("... s d, s d, s d -> ... s d", recognised=False, check=_even)
def rope(x: Any, cos: Any, sin: Any) -> Any:
    """x cos + (-x₂, x₁) sin, of halves x = (x₁, x₂).

    Su et al. 2021, arXiv:2104.09864.
    """
    d = x.shape[-1]
    half = d // 2
    first = window(x, (0,), (half,))
    second = window(x, (half,), (d - half,))
    return x * cos + concatenate([negative(second), first], -1) * sin


def _groups(bound: Bindings, attrs: dict[str, Any]) -> str | None:
    n, g = bound["n"], bound["g"]
    whole = isinstance(n, int) and isinstance(g, int) and (n % g == 0 if g else n == 0)
    return None if whole else f"axis n is {n}, expected a multiple of g={g}"


@composite("... n, ... g, ... g -> ... n", recognised=False, check=_groups)
def dequantize(q: int, scale: Any, zero_point: int) -> Any:
    """(q - zero_point) scale, with one scale and one zero point for n/g neighbours.

    q and zero_point are integers; the result has the dtype of the scale.
    """
    dtype = dtype_of(scale) or np.dtype(np.float64)
    *batch, n = known_sizes("dequantize", q)
    g = scale.shape[-1]
    grouped = reshape(cast(q, dtype), (*batch, g, n // g if g else 0))
    shift = expand_dims(cast(zero_point, dtype), -1)
    return reshape((grouped - shift) * expand_dims(scale, -1), (*batch, n))
