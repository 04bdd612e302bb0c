"""Wrong identities of functions.

Each is followed by what was meant.
"""

import numpy as np

from eqsat import rule
from eqsat.ops import (
    absolute,
    cos,
    cosh,
    exp,
    log,
    negative,
    power,
    rint,
    sigmoid,
    sin,
    sinh,
    sqrt,
)
from eqsat.rulelang.condition import at_least


@rule("..., ...")
def sinh_of_sum(x, y):
    """sinh u cosh v + cosh v sinh u is not sinh(u + v)."""
    u, v = sin(x), sin(y)  # the products overflow for large numbers
    return sinh(u) * cosh(v) + cosh(v) * sinh(u), sinh(u + v)


@rule("..., ...")
def sinh_of_sum_mended(x, y):
    """sinh u cosh v + cosh u sinh v = sinh(u + v)."""
    u, v = sin(x), sin(y)
    return sinh(u) * cosh(v) + cosh(u) * sinh(v), sinh(u + v)


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


@rule("..., ...")
def exp_of_sum(x, y):
    """eˣ eʸ is not eˣʸ."""
    return exp(x) * exp(y), exp(x * y)


@rule("..., ...")
def exp_of_sum_mended(x, y):
    """e^-|x| e^-|y| = e^-(|x| + |y|): exponents add, and none overflows."""
    left = exp(negative(absolute(x))) * exp(negative(absolute(y)))
    return left, exp(negative(absolute(x) + absolute(y)))


@rule("..., ...")
def log_of_product(x, y):
    """ln xy is not ln x + ln y of two negative numbers."""
    return log(x * y), log(x) + log(y)


@rule("..., ...", where=lambda x, y: (at_least(x, 1e-2), at_least(y, 1e-2)))
def log_of_product_mended(x, y):
    """ln xy = ln x + ln y of positive numbers."""
    return log(x * y), log(x) + log(y)


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
def power_half_of_any_mended(x):
    """x² = x x."""
    return power(x, 2.0), x * x


@rule("..., ..., ...")
def quotient_of_quotient(x, y, z):
    """x / (y / z) is x z / y, not x / y / z."""
    return x / (y / z), x / y / z


@rule("..., ..., ...")
def quotient_of_quotient_mended(x, y, z):
    """x / (y / z) = x z / y."""
    return x / (y / z), x * z / y


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


@rule("...")
def rounding_before_scaling(x):
    """A rounded number scaled is not the scaled number rounded."""
    return rint(x * 2.0), rint(x) * 2.0


@rule("...", numerics="exact")
def rounding_before_scaling_mended(x):
    """2 x = x + x before both are rounded."""
    return rint(x * 2.0), rint(x + x)


@rule("...", numerics="approximate(1e-4)")
def sigmoid_by_pieces(x):
    """A piecewise linear sigmoid is wrong by more than 1e-4."""
    return sigmoid(x), np.minimum(np.maximum(x * 0.25 + 0.5, 0.0), 1.0)


@rule("...", numerics="approximate(0.2)")
def sigmoid_by_pieces_mended(x):
    """A piecewise linear sigmoid is right to 0.2."""
    return sigmoid(x), np.minimum(np.maximum(x * 0.25 + 0.5, 0.0), 1.0)


@rule("...", numerics="approximate(0.1)")
def rounding_is_close(x):
    """A rounded number may be off by one half."""
    return rint(x), x + 0.0


@rule("...", numerics="approximate(0.5)")
def rounding_is_close_mended(x):
    """A rounded number is within one half."""
    return rint(x), x + 0.0
