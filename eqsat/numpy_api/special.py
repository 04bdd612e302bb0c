"""Ufuncs of ``scipy.special``, which is recognised by name and never imported."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from eqsat import ops


def _where_counted(x: Any, y: Any, log: Callable[[Any], Any], low: float) -> Any:
    """x log(y), and 0 where x is 0 and y not NaN; its derivative by x is log(y) there
    too, for y that it is finite of: above ``low``."""
    endless = (x == 0) & ~ops.isnan(y) & ~((y > low) & ops.isfinite(y))
    return x * log(ops.where(endless, low + 1.0, y))


def _log_of_ratio(x: Any, y: Any) -> Any:
    """ln(x / y) of positive numbers, precise where they are close, and where their
    quotient is out of range."""
    ratio = x / y
    close = (ratio > 0.5) & (ratio < 2.0)
    held = (ratio > 1e-30) & (ratio < 1e30)
    one = ops.where(close, (x - y) / y, 0.0)
    apart = ops.where(held, 1.0, x), ops.where(held, 1.0, y)
    far = ops.where(
        held,
        ops.log(ops.where(held, ratio, 1.0)),
        ops.log(apart[0]) - ops.log(apart[1]),
    )
    return ops.where(close, ops.log1p(one), far)


def _relative_entropy(x: Any, y: Any, more: Callable[[Any, Any, Any], Any]) -> Any:
    """``more`` of x ln(x/y), x and y for x ≥ 0 and y > 0, with 0 ln 0 = 0; else ∞."""
    inside = (x > 0) & (y > 0)
    a, b = ops.where(inside, x, 1.0), ops.where(inside, y, 1.0)
    product = ops.where(inside, x, 0.0) * _log_of_ratio(a, b)
    outside = ops.where((x == 0) & (y >= 0), more(product, 0.0 * x, y), math.inf)
    found = ops.where(inside, more(product, x, y), outside)
    return ops.where(ops.isnan(x) | ops.isnan(y), x + y, found)


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


def _entr(x: Any) -> Any:
    positive = -x * ops.log(ops.where(x > 0, x, 1.0))
    return ops.where(x > 0, positive, ops.where(x < 0, -math.inf, x))


def _cosm1(x: Any) -> Any:
    s = ops.sin(x * 0.5)
    return s * s * -2.0


SCIPY: dict[str, Callable[..., Any]] = {
    name: getattr(ops, name)
    for name in (
        "beta betaln cbrt erf erfc erfcx erfinv exp2 expm1 gamma gammaln i0 i0e i1 i1e "
        "j0 j1 log1p log_ndtr ndtri"
    ).split()
} | {
    "cosm1": _cosm1,
    "entr": _entr,
    "erfcinv": lambda x: ops.ndtri(x * 0.5) * -math.sqrt(0.5),
    "exp10": lambda x: ops.power(10.0, x),
    "expit": ops.sigmoid,
    "huber": _huber,
    "kl_div": lambda x, y: _relative_entropy(x, y, lambda p, x, y: p - x + y),
    "log_expit": lambda x: -ops.logaddexp(-x, 0.0),
    "logit": _logit,
    "ndtr": lambda x: ops.erfc(x * -math.sqrt(0.5)) * 0.5,
    "pseudo_huber": _pseudo_huber,
    "psi": ops.digamma,
    "rel_entr": lambda x, y: _relative_entropy(x, y, lambda p, x, y: p),
    "softplus": lambda x: ops.logaddexp(x, 0.0),
    "xlog1py": lambda x, y: _where_counted(x, y, ops.log1p, -1.0),
    "xlogy": lambda x, y: _where_counted(x, y, ops.log, 0.0),
}
