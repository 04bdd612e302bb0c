"""Wrong rules over integers, which wrap round."""

from eqsat import rule
from eqsat.ops import absolute, bitwise_and, left_shift, maximum, negative, right_shift


@rule("...", dtypes="any", numerics="exact")
def shift_there_and_back(x):
    """The highest bits are lost."""
    return right_shift(left_shift(x, x * 0 + 1), x * 0 + 1), x


@rule("...", dtypes="any", numerics="exact")
def double_then_halve(x):
    """2x overflows."""
    return (x + x) // (x * 0 + 2), x


@rule("...", dtypes="any", numerics="exact")
def double_then_subtract_mended(x):
    """(x + x) - x = x, round the wrap, for integers."""
    return bitwise_and((x + x) - x, x), bitwise_and(x, x)


@rule("...", dtypes="any", numerics="exact")
def absolute_is_positive(x):
    """The least integer has no opposite."""
    return bitwise_and(absolute(x), x), bitwise_and(maximum(x, negative(x) - 1), x)


@rule("..., ...", dtypes="any", numerics="exact")
def compare_by_difference(x, y):
    """x - y overflows where x < y does not."""
    return bitwise_and(x, y) < y, bitwise_and(x, y) - y < y * 0
