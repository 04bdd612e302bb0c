"""The normal form of bare numbers: on the right, multiplied once, outside products.

``x / √2``, ``0.7071 * x`` and ``x * 0.7071`` meet here, and so do the patterns of every
other rule.
"""

from eqsat import rule
from eqsat.ops import (
    divide,
    negative,
    power,
    reciprocal,
    rsqrt,
    sqrt,
    square,
    transpose_op,
)
from eqsat.rulelang import (
    at_least,
    moderate,
    nonzero,
    normal,
    not_half,
    not_scalar,
)
from eqsat.terms import Axis

PHASE = "canonicalise"


@rule("..., ...", where=lambda x, y: (not_scalar(x), not_scalar(y)), numerics="exact")
def add_commutes(x, y):
    """x + y = y + x."""
    return x + y, y + x


@rule("..., ...", where=lambda x, y: (not_scalar(x), not_scalar(y)), numerics="exact")
def multiply_commutes(x, y):
    """x y = y x."""
    return x * y, y * x


@rule(", ...", numerics="exact")
def scalar_factor_right(s, x):
    """s x = x s."""
    return s * x, x * s


@rule(", ...", numerics="exact")
def scalar_term_right(s, x):
    """s + x = x + s."""
    return s + x, x + s


@rule("...", numerics="exact", where=lambda x, a: nonzero(a))
def subtract_number(x, a: float):
    """x - a = x + (-a); the engine has one zero, and -0 - 0 is -0."""
    return x - a, x + (-a)


@rule("...", numerics="exact")
def number_minus(x, a: float):
    """a - x = -x + a."""
    return a - x, x * -1.0 + a


@rule("..., ...", numerics="exact")
def add_negative(x, y):
    """x + (-y) = x - y."""
    return x + y * -1.0, x - y


@rule("...", where=lambda x, a: moderate(a))
def divide_by_number(x, a: float):
    """x / a = x (1/a)."""
    return x / a, x * (1.0 / a)


@rule("...", where=lambda x, a: (not_half(x), normal(a)))
def divide_by_any_number(x, a: float):
    """x / a = x (1/a), for a whose reciprocal float16 does not hold."""
    return x / a, x * (1.0 / a)


@rule("...", numerics="exact")
def negative_is_product(x):
    """-x = x (-1)."""
    return negative(x), x * -1.0


@rule("...", numerics="exact")
def reciprocal_is_quotient(x):
    """reciprocal(x) = 1 / x."""
    return reciprocal(x), 1.0 / x


@rule("...", numerics="exact")
def square_is_product(x):
    """x² = x x."""
    return square(x), x * x


@rule("...")
def power_two(x):
    """x² = x x."""
    return power(x, 2.0), x * x


@rule("...")
def power_three(x):
    """x³ = x x x."""
    return power(x, 3.0), x * x * x


@rule("...")
def power_minus_one(x):
    """x⁻¹ = 1 / x."""
    return power(x, -1.0), 1.0 / x


@rule("...", where=lambda x: at_least(x, 0.0))
def power_half(x):
    """x^½ = √x where x ≥ 0."""
    return power(x, 0.5), sqrt(x)


@rule("...", where=lambda x: at_least(x, 0.0))
def power_quarter(x):
    """x^¼ = √√x where x ≥ 0."""
    return power(x, 0.25), sqrt(sqrt(x))


@rule("...", where=lambda x: at_least(x, 0.0))
def power_three_quarters(x):
    """x^¾ = √x √√x where x ≥ 0."""
    return power(x, 0.75), sqrt(x) * sqrt(sqrt(x))


@rule("...", where=lambda x: at_least(x, 0.0))
def power_three_halves(x):
    """x^1½ = x √x where x ≥ 0."""
    return power(x, 1.5), x * sqrt(x)


@rule("...", where=lambda x: at_least(x, 1e-30))
def power_minus_half(x):
    """x^-½ = 1/√x where x > 0."""
    return power(x, -0.5), rsqrt(x)


@rule("...", where=lambda x: at_least(x, 1e-30))
def one_over_sqrt(x):
    """1 / √x = rsqrt(x) where x is not tiny."""
    return 1.0 / sqrt(x), rsqrt(x)


@rule("..., ...", where=lambda x, v: at_least(v, 1e-30))
def divide_by_sqrt(x, v):
    """x / √v = x rsqrt(v) where v is not tiny."""
    return x / sqrt(v), x * rsqrt(v)


@rule("...", where=lambda x, a, b: moderate(a * b))
def factors_merge(x, a: float, b: float):
    """(x a) b = x (a b)."""
    return x * a * b, x * (a * b)


@rule("...", where=lambda x, a, b: (not_half(x), normal(a * b)))
def any_factors_merge(x, a: float, b: float):
    """(x a) b = x (a b), for a product that float16 does not hold."""
    return x * a * b, x * (a * b)


@rule("...")
def terms_merge(x, a: float, b: float):
    """(x + a) + b = x + (a + b)."""
    return x + a + b, x + (a + b)


@rule("...", numerics="exact")
def times_one(x):
    """x 1 = x."""
    return x * 1.0, x


@rule("..., ...", where=lambda x, y, a: not_scalar(y))
def factor_out_of_product(x, y, a: float):
    """(x a) y = (x y) a."""
    return (x * a) * y, (x * y) * a


@rule("..., ...", where=lambda x, y, a: not_scalar(y))
def factor_out_of_quotient(x, y, a: float):
    """(x a) / y = (x / y) a."""
    return (x * a) / y, divide(x, y) * a


@rule("... m k, ... k n, ")
def scale_out_of_left_operand(x, y, s):
    """(x s) y = (x y) s for matrices x, y."""
    return (x * s) @ y, (x @ y) * s


@rule("... m k, ... k n, ")
def scale_out_of_right_operand(x, y, s):
    """x (y s) = (x y) s for matrices x, y."""
    return x @ (y * s), (x @ y) * s


@rule("...", numerics="exact")
def factor_out_of_transpose(x, a: float, p: Axis):
    """(x a)ᵀ = xᵀ a."""
    return transpose_op(x * a, perm=p), transpose_op(x, perm=p) * a
