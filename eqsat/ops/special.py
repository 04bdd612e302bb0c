"""Special functions: of the normal distribution, entropies, of Euler's gamma, of
Bessel.

Pointwise, named as in ``scipy.special`` (``digamma`` is its ``psi``), whose functions
are the references; costs as in :mod:`eqsat.ops.pointwise`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat.ops.pointwise import absolute, equal, isnan, less, multiply, sign, where
from eqsat.ops.support import dtype_of, in_float32
from eqsat.ops.transcendental import ERF_SLOPE, cos, exp, log, log1p, sin
from eqsat.terms import Op, composite, pointwise


def _of_scipy(name: str, special: str = "", **row: Any) -> Op:
    """The op that is SciPy's function of that name, or of the name ``special``.

    SciPy is imported when it is first computed. A bare number takes the dtype of the
    array beside it: SciPy has pairs of float64 first."""
    special = special or name

    @in_float32
    def reference(*values: Any) -> Any:
        import scipy.special

        if len(values) > 1:
            met = np.result_type(*values)
            values = tuple(np.asarray(v, met) for v in values)
        return getattr(scipy.special, special)(*values)

    return pointwise(name, reference, special=special, **row)


# -- quotients that have a limit at 0 --------------------------------------------------


def _split(x: Any) -> tuple[Any, Any, Any]:
    """Where |x| < 1; x there and 0 elsewhere; x elsewhere and 1 there."""
    near = less(absolute(x), 1.0)
    return near, where(near, x, 0.0), where(near, 1.0, x)


def _series(x: Any, coefficients: Sequence[float]) -> Any:
    """Σ cₖ x²ᵏ."""
    t = x * x
    return functools.reduce(lambda y, c: y * t + c, reversed(coefficients))


def _by_sinc(g: Any, x: Any, z: Any) -> Any:
    """π (cos y - sin y / y) / y, y = πx, near 0 by its series."""
    near, inside, outside = _split(x * math.pi)
    terms = range(1, 11)
    slope = [2 * k * (-1) ** k / math.factorial(2 * k + 1) for k in terms]
    far = (cos(outside) - sin(outside) / outside) / outside
    return g * (where(near, inside * _series(inside, slope), far) * math.pi)


@composite("... -> ...", recognised=False, vjp=_by_sinc)
def sinc(x: Any) -> Any:
    """sin(πx) / πx; 1 at 0."""
    tiny = float(np.finfo(np.result_type(dtype_of(x) or float, np.float32)).eps) / 1024
    y = multiply(math.pi, where(equal(x, 0.0), tiny, x))
    return sin(y) / y


# -- the error function and the normal distribution ------------------------------------

erfc = _of_scipy(
    "erfc",
    flops=15,
    doc="1 - erf x, precise where that is nearly 0.",
    vjp=lambda g, x, z: g * (exp(-x * x) * -ERF_SLOPE),
)
erfcx: Op = _of_scipy(
    "erfcx",
    flops=16,
    doc="exp(x²) erfc x.",
    vjp=lambda g, x, z: g * (x * z * 2.0 - ERF_SLOPE),
)
erfinv = _of_scipy(
    "erfinv",
    flops=45,
    doc="The number whose erf is x; ±∞ of ±1, NaN beyond.",
    vjp=lambda g, x, z: g * (exp(z * z) / ERF_SLOPE),
)
log_ndtr = _of_scipy(
    "log_ndtr",
    flops=35,
    doc="ln Φ(x), Φ the distribution function of the normal distribution.",
    vjp=lambda g, x, z: g * (math.sqrt(2 / math.pi) / erfcx(x * -math.sqrt(0.5))),
)
ndtri = _of_scipy(
    "ndtri",
    flops=60,
    doc="The number whose Φ is x, quantile of the normal distribution.",
    vjp=lambda g, x, z: g * (exp(z * z * 0.5) * math.sqrt(2 * math.pi)),
)

# -- entropies -------------------------------------------------------------------------


def _log_of_ratio(x: Any, y: Any) -> Any:
    """ln(x / y) of positive numbers, precise where they are close, and where their
    quotient is out of range."""
    ratio = x / y
    close = (ratio > 0.5) & (ratio < 2.0)
    held = (ratio > 1e-30) & (ratio < 1e30)
    one = where(close, (x - y) / y, 0.0)
    apart = where(held, 1.0, x), where(held, 1.0, y)
    far = where(held, log(where(held, ratio, 1.0)), log(apart[0]) - log(apart[1]))
    return where(close, log1p(one), far)


def _relative_entropy(x: Any, y: Any, more: Callable[[Any, Any, Any], Any]) -> Any:
    """``more`` of x ln(x/y), x and y for x ≥ 0 and y > 0, with 0 ln 0 = 0; else ∞."""
    inside = (x > 0) & (y > 0)
    a, b = where(inside, x, 1.0), where(inside, y, 1.0)
    product = where(inside, x, 0.0) * _log_of_ratio(a, b)
    outside = where((x == 0) & (y >= 0), more(product, 0.0 * x, y), math.inf)
    found = where(inside, more(product, x, y), outside)
    return where(isnan(x) | isnan(y), x + y, found)


def _where_defined(x: Any, y: Any, slope: Any, of_zeros: float) -> Any:
    """A slope of a relative entropy: NaN where that is ∞ for all x or y nearby."""
    of_zero = where((x == 0) & (y == 0), of_zeros, math.nan)
    return where((x >= 0) & (y > 0), slope, of_zero)


def _without_quotient_of_zeros(x: Any, y: Any) -> Any:
    """x / y, and 0 where both are."""
    return x / where((x == 0) & (y == 0), 1.0, y)


@composite("... -> ...", recognised=False, vjp=lambda g, x, z: g * -(log(x) + 1.0))
def entr(x: Any) -> Any:
    """-x ln x; 0 at 0 and -∞ below, as in ``scipy.special``."""
    positive = -x * log(where(x > 0, x, 1.0))
    return where(x > 0, positive, where(x < 0, -math.inf, x))


@composite(
    "..., ... -> ...",
    recognised=False,
    vjp=(
        lambda g, x, y, z: (
            g * _where_defined(x, y, _log_of_ratio(x, y) + 1.0, math.inf)
        ),
        lambda g, x, y, z: g * _where_defined(x, y, -x / y, 0.0),
    ),
)
def rel_entr(x: Any, y: Any) -> Any:
    """x ln(x/y) for x ≥ 0 and y > 0; 0 where x is 0 and y ≥ 0, else ∞."""
    return _relative_entropy(x, y, lambda p, x, y: p)


@composite(
    "..., ... -> ...",
    recognised=False,
    vjp=(
        lambda g, x, y, z: g * _where_defined(x, y, _log_of_ratio(x, y), math.inf),
        lambda g, x, y, z: g * _where_defined(x, y, 1.0 - x / y, 1.0),
    ),
)
def kl_div(x: Any, y: Any) -> Any:
    """x ln(x/y) - x + y for x ≥ 0 and y > 0; y where x is 0 and y ≥ 0, else ∞."""
    return _relative_entropy(x, y, lambda p, x, y: p - x + y)


def _where_counted(x: Any, y: Any, log: Callable[[Any], Any]) -> Any:
    """x log(y), and 0 where x is 0 and y not NaN."""
    return x * log(where((x == 0) & ~isnan(y), 0.5, y))


@composite(
    "..., ... -> ...",
    recognised=False,
    vjp=(
        lambda g, x, y, z: g * log(y),
        lambda g, x, y, z: g * _without_quotient_of_zeros(x, y),
    ),
)
def xlogy(x: Any, y: Any) -> Any:
    """x ln y, and 0 where x is 0 and y not NaN."""
    return _where_counted(x, y, log)


@composite(
    "..., ... -> ...",
    recognised=False,
    vjp=(
        lambda g, x, y, z: g * log1p(y),
        lambda g, x, y, z: g * _without_quotient_of_zeros(x, y + 1.0),
    ),
)
def xlog1py(x: Any, y: Any) -> Any:
    """x ln(1 + y), and 0 where x is 0 and y not NaN."""
    return _where_counted(x, y, log1p)


# -- gamma -----------------------------------------------------------------------------


@in_float32
def _trigamma(x: Any) -> Any:
    import scipy.special

    x = np.asarray(x)
    wide = x.astype(float)
    below = np.less(wide, 0)
    with np.errstate(all="ignore"):
        found = scipy.special.zeta(2.0, np.where(below, 1 - wide, wide))
        turned = (np.pi / np.sin(np.pi * (wide - np.rint(wide)))) ** 2 - found
    found = np.where(below, turned, found)
    return found.astype(x.dtype if x.dtype.kind == "f" else float)[()]


trigamma = pointwise(
    "trigamma",
    _trigamma,
    flops=60,
    doc="ψ′(x), the second derivative of ln Γ(x).",
    vjp="compute it without trigamma, which is the derivative of digamma",
)
digamma: Op = _of_scipy(
    "digamma",
    "psi",
    flops=70,
    doc="ψ(x) = Γ′(x) / Γ(x).",
    vjp=lambda g, x, z: g * trigamma(x),
)
gammaln = _of_scipy(
    "gammaln",
    flops=60,
    doc="ln |Γ(x)|.",
    vjp=lambda g, x, z: g * digamma(x),
)
gamma = _of_scipy(
    "gamma",
    flops=80,
    doc="Γ(x) = ∫₀^∞ tˣ⁻¹ e⁻ᵗ dt; (x - 1)! of positive integers.",
    vjp=lambda g, x, z: g * (z * digamma(x)),
)
betaln = _of_scipy(
    "betaln",
    nin=2,
    commutative=True,
    flops=150,
    doc="ln |Γ(x) Γ(y) / Γ(x + y)|.",
    vjp=(
        lambda g, x, y, z: g * (digamma(x) - digamma(x + y)),
        lambda g, x, y, z: g * (digamma(y) - digamma(x + y)),
    ),
)
beta = _of_scipy(
    "beta",
    nin=2,
    commutative=True,
    flops=150,
    doc="Γ(x) Γ(y) / Γ(x + y).",
    vjp=(
        lambda g, x, y, z: g * (z * (digamma(x) - digamma(x + y))),
        lambda g, x, y, z: g * (z * (digamma(y) - digamma(x + y))),
    ),
)

# -- Bessel ----------------------------------------------------------------------------


def _over(z: Any, x: Any, sign: int = 1, scale: Any = 1.0) -> Any:
    """z / x of the Bessel function z of order 1, near 0 by its series Σ (± x²/4)ᵏ / (2
    k! (k+1)!) times ``scale``, whose derivatives of all orders are right at 0 too."""
    terms = range(9)
    sizes = [
        2 * math.factorial(k) * math.factorial(k + 1) * (4 * sign) ** k for k in terms
    ]
    near, inside, outside = _split(x)
    return where(near, _series(inside, [1 / n for n in sizes]) * scale, z / outside)


i1: Op = _of_scipy(
    "i1",
    flops=60,
    doc="The modified Bessel function I₁.",
    vjp=lambda g, x, z: g * (i0(x) - _over(z, x)),
)
i0: Op = _of_scipy(
    "i0",
    flops=60,
    doc="The modified Bessel function I₀.",
    vjp=lambda g, x, z: g * i1(x),
)
i1e: Op = _of_scipy(
    "i1e",
    flops=60,
    doc="exp(-|x|) I₁(x).",
    vjp=lambda g, x, z: (
        g * (i0e(x) - absolute(z) - _over(z, x, scale=exp(-absolute(x))))
    ),
)
i0e: Op = _of_scipy(
    "i0e",
    flops=60,
    doc="exp(-|x|) I₀(x).",
    vjp=lambda g, x, z: g * (i1e(x) - sign(x) * z),
)
j1: Op = _of_scipy(
    "j1",
    flops=60,
    doc="The Bessel function J₁.",
    vjp=lambda g, x, z: g * (j0(x) - _over(z, x, -1)),
)
j0: Op = _of_scipy(
    "j0",
    flops=60,
    doc="The Bessel function J₀.",
    vjp=lambda g, x, z: -g * j1(x),
)
