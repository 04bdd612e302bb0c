"""Wrong rules over integers, which wrap round.

Each is followed by what was meant.
"""

from eqsat import rule
from eqsat.ops import (
    absolute,
    bitwise_and,
    invert,
    left_shift,
    maximum,
    negative,
    right_shift,
    sign,
    where,
)


@rule("...", dtypes="any", numerics="exact")
def shift_there_and_back(x):
    """The highest bit is lost: s is 1 but where x is 0."""
    s = absolute(sign(x))
    return right_shift(left_shift(x, s), s), x


@rule("...", dtypes="any", numerics="exact")
def shift_there_and_back_mended(x):
    """The other way round, the lowest bit is lost."""
    s = absolute(sign(x))
    return left_shift(right_shift(x, s), s), bitwise_and(x, invert(s))


@rule("...", dtypes="any", numerics="exact")
def double_then_halve(x):
    """2x overflows."""
    return (x + x) // (x * 0 + 2), x


@rule("...", dtypes="any", numerics="exact")
def double_then_halve_mended(x):
    """(x + x) - x = x, round the wrap, for integers."""
    return bitwise_and((x + x) - x, x), bitwise_and(x, x)


@rule("...", dtypes="any", numerics="exact")
def absolute_by_maximum(x):
    """The opposite of an unsigned integer is positive too."""
    return bitwise_and(absolute(x), x), bitwise_and(maximum(x, negative(x)), x)


@rule("...", dtypes="any", numerics="exact")
def absolute_by_maximum_mended(x):
    """|x| = -x where x < 0, else x; the least integer is its own opposite."""
    return bitwise_and(absolute(x), x), bitwise_and(where(x < 0, negative(x), x), x)


@rule("..., ...", dtypes="any", numerics="exact")
def compare_by_difference(x, y):
    """x - y overflows where x < y does not."""
    return bitwise_and(x, y) < y, bitwise_and(x, y) - y < y * 0


@rule("..., ...", dtypes="any", numerics="exact")
def compare_by_difference_mended(x, y):
    """x < y is y > x."""
    return bitwise_and(x, y) < y, y > bitwise_and(x, y)
