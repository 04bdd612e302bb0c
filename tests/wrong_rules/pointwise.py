"""Wrong identities of pointwise functions, some beside the identity that was meant."""

import numpy as np

from eqsat import rule
from eqsat.condition import at_least, nonzero
from eqsat.ops import (
    absolute,
    copysign,
    cos,
    cosh,
    exp,
    expm1,
    fmax,
    log,
    log1p,
    maximum,
    minimum,
    negative,
    power,
    relu,
    rint,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    tanh,
    where,
)


@rule("..., ...")
def sinh_of_sum(x, y):
    """sinh x cosh y + cosh y sinh x is not sinh(x + y)."""
    return sinh(x) * cosh(y) + cosh(y) * sinh(x), sinh(x + y)


@rule("..., ...")
def sine_of_sum(x, y):
    """sin x cos y - cos x sin y is the sine of the difference."""
    return sin(x) * cos(y) - cos(x) * sin(y), sin(x + y)


@rule("..., ...")
def sine_of_sum_mended(x, y):
    """sin x cos y + cos x sin y = sin(x + y)."""
    return sin(x) * cos(y) + cos(x) * sin(y), sin(x + y)


@rule("...")
def squares_of_circle(x):
    """cos² - sin² is not 1."""
    return cos(x) * cos(x) - sin(x) * sin(x), x * 0.0 + 1.0


@rule("...")
def squares_of_circle_mended(x):
    """cos² + sin² = 1."""
    return cos(x) * cos(x) + sin(x) * sin(x), x * 0.0 + 1.0


@rule("...")
def double_angle(x):
    """sin 2x is not 2 sin x."""
    return sin(x * 2.0), sin(x) * 2.0


@rule("...")
def double_angle_mended(x):
    """sin 2x = 2 sin x cos x."""
    return sin(x * 2.0), sin(x) * cos(x) * 2.0


@rule("...")
def tanh_of_exponentials(x):
    """(e²ˣ - 1) / (e²ˣ + 1) overflows where tanh does not."""
    return tanh(x), (exp(x * 2.0) - 1.0) / (exp(x * 2.0) + 1.0)


@rule("..., ...")
def exp_of_sum(x, y):
    """eˣ eʸ is not eˣʸ."""
    return exp(x) * exp(y), exp(x * y)


@rule("..., ...")
def log_of_product(x, y):
    """ln xy is not ln x + ln y of two negative numbers."""
    return log(x * y), log(x) + log(y)


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
def root_of_square(x):
    """√x² is |x|, not x."""
    return sqrt(x * x), x + 0.0


@rule("...")
def root_of_square_mended(x):
    """√x² = |x|."""
    return sqrt(x * x), absolute(x)


@rule("...")
def power_half_of_any(x):
    """x^1.5 is not x x."""
    return power(x, 1.5), x * x


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
def product_with_one_mended(x):
    """x 1 = x."""
    return x * 1.0, x


@rule("...", numerics="exact")
def sum_with_zero(x):
    """-0 + 0 is +0."""
    return x + 0.0, x


@rule("...", numerics="exact")
def difference_with_zero_mended(x):
    """x - 0 = x, -0 included."""
    return x - 0.0, x


@rule("..., ...", numerics="exact")
def maximum_by_comparison(x, y):
    """The larger of NaN and y is NaN; a comparison gives y."""
    return maximum(x, y), where(x >= y, x, y)


@rule("..., ...", numerics="exact")
def maximum_without_nan(x, y):
    """maximum keeps NaN, fmax drops it."""
    return maximum(x, y), fmax(x, y)


@rule("...", numerics="exact")
def relu_by_comparison(x):
    """max(NaN, 0) is NaN; a comparison gives 0."""
    return relu(x), where(x > 0.0, x, 0.0)


@rule("...", numerics="exact")
def relu_by_comparison_mended(x):
    """x where x > 0 or x is NaN, else 0, up to the sign of 0."""
    return relu(x) + 0.0, where(x <= 0.0, 0.0, x) + 0.0


@rule("..., ..., ...")
def quotient_of_quotient(x, y, z):
    """x / (y / z) is x z / y, not x / y / z."""
    return x / (y / z), x / y / z


@rule("..., ...")
def square_of_difference(x, y):
    """(x - y)² is not x² - y²."""
    return (x - y) * (x - y), x * x - y * y


@rule("..., ...")
def square_of_difference_mended(x, y):
    """(x - y) (x + y) = x² - y²."""
    return (x - y) * (x + y), x * x - y * y


@rule("..., ...")
def sign_of_difference(x, y):
    """x - y is not y - x."""
    return x - y, y - x


@rule("..., ...")
def sign_of_difference_mended(x, y):
    """x - y = -(y - x)."""
    return x - y, negative(y - x)


@rule("...", numerics="exact")
def absolute_by_sign(x):
    """∞ aside, -0 has sign 0: copysign and a product by sign differ."""
    return copysign(x, x), absolute(x) * sign(x)


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


@rule("...", numerics="approximate(1e-4)")
def sigmoid_by_pieces(x):
    """A piecewise linear sigmoid is wrong by more than 1e-4."""
    return sigmoid(x), np.minimum(np.maximum(x * 0.25 + 0.5, 0.0), 1.0)


@rule("...", numerics="approximate(0.2)")
def sigmoid_by_pieces_mended(x):
    """A piecewise linear sigmoid is right to 0.2."""
    return sigmoid(x), np.minimum(np.maximum(x * 0.25 + 0.5, 0.0), 1.0)


@rule("...", numerics="approximate")
def tolerance_forgotten(x):
    """An approximation must say how good it is."""
    return sin(x), x + 0.0


@rule("...")
def rounding_before_scaling(x):
    """A rounded number scaled is not the scaled number rounded."""
    return rint(x * 2.0), rint(x) * 2.0
