"""Ufuncs of ``scipy.special``, which is recognised by name and never imported."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from eqsat import ops


def _huber(delta: Any, r: Any) -> Any:
    a = ops.absolute(r)
    found = ops.where(a <= delta, r * r * 0.5, delta * (a - delta * 0.5))
    return ops.where(delta < 0, math.inf, found)


def _pseudo_huber(delta: Any, r: Any) -> Any:
    """δ² (√(1 + v²) - 1) = r v δ / (1 + √(1 + v²)), v = r / δ."""
    none = (delta == 0) | ((r == 0) & ops.isnan(delta))
    d = ops.where(none, 1.0, delta)
    found = ops.where(none, 0.0, r * (r / (ops.hypot(r / d, 1.0) + 1.0)))
    return ops.where(delta < 0, math.inf, found)


def _logit(x: Any) -> Any:
    """ln(x / (1 - x)), near ½ as 2 atanh(2x - 1)."""
    near = (x > 0.25) & (x < 0.75)
    half = ops.where(near, x, 0.5)
    far = ops.where(near, 0.5, x)
    return ops.where(
        near, ops.arctanh(half * 2.0 - 1.0) * 2.0, ops.log(far / (1.0 - far))
    )


def _cosm1(x: Any) -> Any:
    s = ops.sin(x * 0.5)
    return s * s * -2.0


SCIPY: dict[str, Callable[..., Any]] = {
    name: getattr(ops, name)
    for name in (
        "beta betaln cbrt entr erf erfc erfcx erfinv exp2 expm1 gamma gammaln i0 i0e "
        "i1 i1e j0 j1 kl_div log1p log_ndtr ndtri rel_entr xlog1py xlogy"
    ).split()
} | {
    "cosm1": _cosm1,
    "erfcinv": lambda x: ops.ndtri(x * 0.5) * -math.sqrt(0.5),
    "exp10": lambda x: ops.power(10.0, x),
    "expit": ops.sigmoid,
    "huber": _huber,
    "log_expit": lambda x: -ops.logaddexp(-x, 0.0),
    "logit": _logit,
    "ndtr": lambda x: ops.erfc(x * -math.sqrt(0.5)) * 0.5,
    "pseudo_huber": _pseudo_huber,
    "psi": ops.digamma,
    "softplus": lambda x: ops.logaddexp(x, 0.0),
}
