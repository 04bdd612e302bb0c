"""Identities of real numbers that rounding, NaN, infinities or the sign of 0 break.

Each is followed by what was meant.
"""

from eqsat import rule
from eqsat.ops import (
    absolute,
    copysign,
    exp,
    expm1,
    fmax,
    log,
    log1p,
    logical_or,
    logsumexp,
    max,
    maximum,
    minimum,
    relu,
    sign,
    softmax,
    sum,
    tanh,
    where,
)
from eqsat.rulelang.condition import at_least, nonzero


@rule("...")
def tanh_of_exponentials(x):
    """(e²ˣ - 1) / (e²ˣ + 1) overflows where tanh does not."""
    return tanh(x), (exp(x * 2.0) - 1.0) / (exp(x * 2.0) + 1.0)


@rule("...")
def tanh_of_exponentials_mended(x):
    """tanh x = -sign(x) e / (e + 2) with e = e^(-2 |x|) - 1."""
    e = expm1(absolute(x) * -2.0)
    return tanh(x), sign(x) * (e / (e + 2.0)) * -1.0


@rule("...", numerics="exact")
def log1p_spelled_out(x):
    """ln(1 + x) rounds where log1p does not."""
    return log(x + 1.0), log1p(x)


@rule("...")
def log1p_spelled_out_mended(x):
    """ln(1 + x) = log1p(x), up to rounding."""
    return log(x + 1.0), log1p(x)


@rule("...", numerics="exact")
def expm1_spelled_out(x):
    """eˣ - 1 rounds where expm1 does not."""
    return exp(x) - 1.0, expm1(x)


@rule("...")
def expm1_spelled_out_mended(x):
    """eˣ - 1 = expm1(x), up to rounding."""
    return exp(x) - 1.0, expm1(x)


@rule("...")
def ratio_to_itself(x):
    """x / x is NaN at 0, not 1."""
    return x / x, where(x == x, 1.0 + x * 0.0, x)


@rule("...", where=lambda x: at_least(x, 1e-2))
def ratio_to_itself_mended(x):
    """x / x = 1 where x > 0."""
    return x / x, where(x == x, 1.0 + x * 0.0, x)


@rule("...", numerics="exact")
def product_with_zero(x):
    """0 ∞ is NaN, not 0."""
    return x * 0.0, minimum(absolute(x), 0.0)


@rule("...", numerics="exact")
def product_with_zero_mended(x):
    """x 0 = 0 x, NaN and the sign of 0 included."""
    return x * 0.0, 0.0 * x


@rule("...", numerics="exact")
def sum_with_zero(x):
    """-0 + 0 is +0."""
    return x + 0.0, x


@rule("...", numerics="exact")
def sum_with_zero_mended(x):
    """x - 0 = x, -0 included."""
    return x - 0.0, x


@rule("..., ...", numerics="exact")
def maximum_by_comparison(x, y):
    """The larger of NaN and y is NaN; a comparison gives y."""
    return maximum(x, y), where(x >= y, x, y)


@rule("..., ...", numerics="exact")
def maximum_by_comparison_mended(x, y):
    """The larger of x and y is x where it is NaN or x ≥ y, up to the sign of 0."""
    chosen = where(logical_or(x >= y, x != x), x, y)
    return maximum(x, y) + 0.0, chosen + 0.0


@rule("..., ...", numerics="exact")
def maximum_without_nan(x, y):
    """maximum keeps NaN, fmax drops it."""
    return maximum(x, y), fmax(x, y)


@rule("..., ...", numerics="exact")
def maximum_without_nan_mended(x, y):
    """maximum is fmax but for NaN, up to the sign of 0."""
    chosen = where(x == x, where(y == y, fmax(x, y), y), x)
    return maximum(x, y) + 0.0, chosen + 0.0


@rule("...", numerics="exact")
def relu_by_comparison(x):
    """max(NaN, 0) is NaN; a comparison gives 0."""
    return relu(x), where(x > 0.0, x, 0.0)


@rule("...", numerics="exact")
def relu_by_comparison_mended(x):
    """x where x > 0 or x is NaN, else 0, up to the sign of 0."""
    return relu(x) + 0.0, where(x <= 0.0, 0.0, x) + 0.0


@rule("...", numerics="exact")
def absolute_by_sign(x):
    """∞ aside, -0 has sign 0: copysign and a product by sign differ."""
    return copysign(x, x), absolute(x) * sign(x)


@rule("...", numerics="exact")
def absolute_by_sign_mended(x):
    """|x| with the sign of x is x."""
    return copysign(absolute(x), x), x


@rule("...", where=lambda x, a: nonzero(a), numerics="exact")
def product_by_reciprocal(x, a: float):
    """x / a is not x (1/a) bit for bit."""
    return x / a, x * (1.0 / a)


@rule("...", where=lambda x, a: nonzero(a))
def product_by_reciprocal_mended(x, a: float):
    """x / a = x (1/a), up to rounding."""
    return x / a, x * (1.0 / a)


@rule("..., ..., ...", numerics="exact")
def sum_associates(x, y, z):
    """(x + y) + z is not x + (y + z) bit for bit."""
    return (x + y) + z, x + (y + z)


@rule("..., ..., ...")
def sum_associates_mended(x, y, z):
    """(x + y) + z = x + (y + z), up to rounding."""
    return (x + y) + z, x + (y + z)


@rule("... n")
def softmax_without_max(x):
    """eˣ / Σ eˣ overflows."""
    return softmax(x), exp(x) / sum(exp(x), axis=-1, keepdims=True)


@rule("... n")
def softmax_without_max_mended(x):
    """e / Σ e with e = exp(x - max x)."""
    e = exp(x - max(x, axis=-1, keepdims=True))
    return softmax(x), e / sum(e, axis=-1, keepdims=True)


@rule("... n")
def logsumexp_without_max(x):
    """ln Σ eˣ overflows."""
    m = max(x, axis=-1, keepdims=True)
    right = log(sum(exp(x), axis=-1, keepdims=True))
    return m + log(sum(exp(x - m), axis=-1, keepdims=True)), right


@rule("... n")
def logsumexp_without_max_mended(x):
    """m + ln Σ exp(x - m) = logsumexp(x) with m = max x."""
    m = max(x, axis=-1, keepdims=True)
    left = m + log(sum(exp(x - m), axis=-1, keepdims=True))
    return left, logsumexp(x, axis=(-1,))
