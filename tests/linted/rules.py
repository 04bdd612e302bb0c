"""One rule for each lint."""

from eqsat import rule
from eqsat.ops import cos, exp, exp2, log, log1p, sin, square
from eqsat.rulelang.condition import at_least


@rule("... i j, j k, k l")
def order_of_products(a, b, c):
    """(a b) c = a (b c), which is a stock rule."""
    return (a @ b) @ c, a @ (b @ c)


@rule("... i j, j k, k l, l m")
def order_of_four(a, b, c, d):
    """((a b) c) d = a (b (c d)), which follows from it."""
    return ((a @ b) @ c) @ d, a @ (b @ (c @ d))


@rule("...")
def exp_by_exp2(x):
    """eˣ = 2^(x log₂ e)."""
    return exp(x), exp2(x * 1.4426950408889634)


@rule("...")
def exp2_by_exp(x):
    """2ˣ = (e^(x ln 2 / 2))²: makes another eˣ of every 2ˣ."""
    return exp2(x), square(exp(x * 0.34657359027997264))


@rule("...")
def sine_of_half(x):
    """sin x = 2 sin(x/2) cos(x/2) has no end."""
    return sin(x), sin(x * 0.5) * cos(x * 0.5) * 2.0


@rule("...", where=lambda x: at_least(sin(x) + 1.0, 0.0))
def log_of_sine(x):
    """ln(1 + sin x) is log1p(sin x); no bound of a sine is known to the engine."""
    return log(sin(x) + 1.0), log1p(sin(x))


@rule("...")
def difference_to_itself(x):
    """x - x is an array, 0 is a number."""
    return x - x, 0.0


@rule("...")
def times_one(x):
    """A name that a stock rule has."""
    return square(sin(x)), sin(x) * sin(x)
