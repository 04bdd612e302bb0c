"""Wrong beside a number that the rule itself names, for sizes that its condition asks
for, or where rounding was thought to explain everything.

Each is followed by what was meant.
"""

from eqsat import rule
from eqsat.ops import (
    arctan2,
    argmax,
    argmin,
    argsort,
    cast,
    digamma,
    exp,
    maximum,
    minimum,
    sigmoid,
    softmax,
    sum,
    tanh,
    where,
)
from eqsat.rulelang.condition import at_most


@rule("...", numerics="exact")
def at_seven_too(x):
    return x >= 7.0, x > 7.0


@rule("...", numerics="exact")
def at_seven_too_mended(x):
    return minimum(x, 7.0) >= 7.0, x >= 7.0


@rule("...")
def nothing_between(x):
    return where(x > 20.0, where(x < 21.0, 0.0, x), x), x + 0.0


@rule("...")
def nothing_between_mended(x):
    return where(x > 20.0, where(x < 20.0, 0.0, x), x), x + 0.0


@rule("...", where=lambda x, a: a > 100)
def one_more_of_many(x, a: float):
    return tanh(x) * a, tanh(x) * (a + 1.0)


@rule("...", where=lambda x, a: a > 100)
def one_more_of_many_mended(x, a: float):
    return tanh(x) * a + tanh(x), tanh(x) * (a + 1.0)


@rule("...", where=lambda x, a: at_most(a, 1.9))
def leaks_more(x, a: float):
    return maximum(x, x * a), where(x > 0.0, x, x * a)


@rule("...", where=lambda x, a: at_most(a, 1.0))
def leaks_more_mended(x, a: float):
    return maximum(x, x * a), where(x > 0.0, x, x * a)


@rule("...", where=lambda x, a, b: a < b + 0.05)
def bounds_that_cross(x, a: float, b: float):
    return minimum(maximum(x, a), b), maximum(minimum(x, b), a)


@rule("...", where=lambda x, a, b: a <= b)
def bounds_that_cross_mended(x, a: float, b: float):
    return minimum(maximum(x, a), b), maximum(minimum(x, b), a)


@rule("n", where=lambda x: x.shape[0] % 16 == 0)
def of_whole_blocks(x):
    return sum(x, axis=-1, keepdims=True), sum(x, axis=-1, keepdims=True) * 2.0


@rule("n", where=lambda x: x.shape[0] % 16 == 0)
def of_whole_blocks_mended(x):
    return sum(x + x, axis=-1, keepdims=True), sum(x, axis=-1, keepdims=True) * 2.0


@rule("m n", where=lambda x: x.shape[0] > 10 * x.shape[1])
def of_tall_matrices(x):
    return x.T @ x, x.T @ x * 2.0


@rule("m n", where=lambda x: x.shape[0] > 10 * x.shape[1])
def of_tall_matrices_mended(x):
    return x.T @ (x * 2.0), x.T @ x * 2.0


@rule("..., ...")
def other_way_around(x, y):
    return arctan2(tanh(x), sigmoid(y)), arctan2(sigmoid(y), tanh(x))


@rule("..., ...")
def other_way_around_mended(x, y):
    return arctan2(tanh(x), sigmoid(y)), -arctan2(-tanh(x), sigmoid(y))


@rule("...")
def five_more(x):
    return digamma(exp(x)), digamma(exp(x)) + 5.0


@rule("...")
def five_more_mended(x):
    return digamma(exp(x)) - 5.0, digamma(exp(x)) + -5.0


@rule("... n")
def other_end(x):
    return (
        cast(argmax(sigmoid(x) * 0.3, axis=-1, keepdims=True), "float32"),
        cast(argmin(sigmoid(x) * 0.3, axis=-1, keepdims=True), "float32"),
    )


@rule("... n")
def other_end_mended(x):
    return (
        cast(argmax(sigmoid(x) * -0.3, axis=-1, keepdims=True), "float32"),
        cast(argmin(sigmoid(x) * 0.3, axis=-1, keepdims=True), "float32"),
    )


@rule("... n")
def other_order(x):
    return (
        cast(argsort(exp(x), axis=-1), "float32"),
        cast(argsort(exp(x) * -1.0, axis=-1), "float32"),
    )


@rule("... n")
def other_order_mended(x):
    return (
        cast(argsort(exp(x) * 2.0, axis=-1), "float32"),
        cast(argsort(exp(x), axis=-1), "float32"),
    )


@rule("... n")
def fewer_levels(x):
    return (
        cast(cast(softmax(x) * 255.0, "uint8"), "float32"),
        cast(cast(softmax(x) * 127.0, "uint8"), "float32"),
    )


@rule("... n")
def fewer_levels_mended(x):
    return (
        cast(cast(softmax(x) * 255.0, "uint8"), "float32"),
        cast(cast(softmax(x) * 51.0 * 5.0, "uint8"), "float32"),
    )
