"""How the errors of operands show in a result, op by op: the table of
:mod:`eqsat.checking.bounds.error_bounds`.

Every entry takes the operands as balls, the exact value, the working range, the
attributes and the precision of sums, and gives a bound on the change of the value
when each operand moves within its ball.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from eqsat.checking.bounds import matrix_error
from eqsat.support import WIDE, Array, Ball, Precision, Range
from eqsat.terms import Op

Rule = Callable[[list[Ball], Array, Range, dict[str, Any], Precision], Any]


def monotone(f: Callable[[Array], Any], x: Ball, value: Array, span: Range) -> Array:
    """The larger change of a monotone function at the ends of the ball.

    An end outside the domain, or at a pole, gives no bound.
    """
    if not x.error.any():
        return np.zeros(value.shape, WIDE)
    low, high = _at(f, x.value - x.error), _at(f, x.value + x.error)
    error = np.maximum(np.abs(value - low), np.abs(high - value))
    lost = np.isfinite(x.value) & np.isfinite(x.error) & ~np.isfinite(error)
    lost &= ~(np.isnan(low) & np.isnan(high) & np.isnan(value))  # outside for certain
    if (lost & (np.isnan(low) | np.isnan(high) | (low == -np.inf))).any():
        span.pole = True
    return np.where(x.error == 0, 0, np.where(np.isnan(error), np.inf, error))


def _at(f: Callable[[Array], Any], x: Array) -> Array:
    try:
        return np.asarray(f(x)).astype(WIDE)
    except TypeError:
        return np.asarray(f(x.astype(float))).astype(WIDE)


def _times(number: Any, error: Array) -> Any:
    """|number| error, with 0 where the error is 0, whatever the number."""
    if not np.any(error):
        return np.zeros(np.broadcast_shapes(np.shape(number), np.shape(error)), WIDE)
    return np.where(error == 0, 0, np.abs(number) * error)


def _inexact(x: Ball) -> Any:
    """Where there is an error, other than the one of an overflow."""
    return (x.error > 0) & np.isfinite(x.error)


def _may_vanish(x: Ball) -> Any:
    """Where rounding decides on the sign, or whether it is 0. What is negative for
    certain is not decided by it: its root is NaN on every computer."""
    return (np.abs(x.value) <= x.error) & _inexact(x)


def _infinity_may_meet_0(a: Ball, b: Ball, product: Callable[..., Any]) -> bool:
    """Whether ``product`` multiplies an infinity by what may vanish: the result is
    another infinity then, or NaN."""
    marks = (
        (np.isinf(a.value), _may_vanish(b)),
        (_may_vanish(a), np.isinf(b.value)),
    )
    return any(
        x.any() and y.any() and bool(product(x.astype(WIDE), y.astype(WIDE)).any())
        for x, y in marks
    )


def _sum_of_errors(args: list[Ball], *_: Any) -> Any:
    return args[0].error + args[1].error


def _largest_error(args: list[Ball], *_: Any) -> Any:
    return np.maximum(args[0].error, args[1].error)


def _same(args: list[Ball], *_: Any) -> Any:
    return args[0].error


def _product(a: Ball, b: Ball, span: Range) -> Any:
    span.pole |= _infinity_may_meet_0(a, b, np.logical_and)
    return (
        _times(a.value, b.error) + _times(b.value, a.error) + _times(a.error, b.error)
    )


def _multiply(args: list[Ball], value: Array, span: Range, *_: Any) -> Any:
    return _product(args[0], args[1], span)


def _square(args: list[Ball], value: Array, span: Range, *_: Any) -> Any:
    return _product(args[0], args[0], span)


def _divide(args: list[Ball], value: Array, span: Range, *_: Any) -> Any:
    a, b = args
    span.divisor(b.value)
    room = np.abs(b.value) - b.error
    if ((room <= 0) & _inexact(b)).any():
        span.pole = True
    error = (a.error + _times(value, b.error)) / np.where(room > 0, room, np.nan)
    return np.where((a.error == 0) & (b.error == 0), 0, error)


def _quotient(args: list[Ball], span: Range) -> tuple[Array, Array]:
    """A quotient, and how far it may be off."""
    a, b = args
    exact = a.value / b.value
    return exact, _divide(args, exact, span)


def _bounded(error: Array) -> Array:
    """0, or infinity where an error has no bound."""
    return np.where(np.isfinite(error), WIDE(0), WIDE(np.inf))


def _on_a_step(args: list[Ball], *_: Any) -> Any:
    return _bounded(args[0].error)


def _whole_quotient(args: list[Ball], value: Array, span: Range, *_: Any) -> Any:
    return _bounded(_quotient(args, span)[1])


def _rest(whole: Any) -> Rule:
    def rule(args: list[Ball], value: Array, span: Range, *_: Any) -> Any:
        a, b = args
        exact, off = _quotient(args, span)
        lost = _times(_bounded(off), np.abs(b.value))
        return a.error + _times(whole(exact), b.error) + lost

    return rule


Step = Callable[[list[Ball], Array, Range], Any]


def _steps(f: Callable[[Array], Any]) -> Step:
    return lambda args, value, span: monotone(f, args[0], value, span)


def _step_of_quotient(whole: Any) -> Step:
    def step(args: list[Ball], value: Array, span: Range) -> Any:
        exact, off = _quotient(args, span)
        return np.abs(whole(exact + off) - whole(exact - off))

    return step


def _step_of_rest(whole: Any) -> Step:
    count = _step_of_quotient(whole)

    def step(args: list[Ball], value: Array, span: Range) -> Any:
        return _times(count(args, value, span), np.abs(args[1].value))

    return step


def _reciprocal(args: list[Ball], value: Array, span: Range, *rest: Any) -> Any:
    one = Ball(np.ones((), WIDE), np.zeros((), WIDE))
    return _divide([one, args[0]], value, span, *rest)


def _root_below(args: list[Ball], value: Array, span: Range, *_: Any) -> Any:
    x = args[0]
    span.divisor(x.value)
    if _may_vanish(x).any():
        span.pole = True
    return monotone(lambda v: 1 / np.sqrt(v), x, value, span)


def _sqrt(args: list[Ball], value: Array, span: Range, *_: Any) -> Any:
    """Within the domain: a number below 0 makes NaN, which is no error."""
    x = args[0]
    if not x.above_0 and (_may_vanish(x) & (x.value < x.error)).any():
        span.pole = True
    if not x.error.any():
        return np.zeros(value.shape, WIDE)
    low, high = np.sqrt(np.maximum(x.value - x.error, 0)), np.sqrt(x.value + x.error)
    error = np.maximum(value - low, high - value)
    return np.where(x.error == 0, 0, np.where(np.isnan(error), np.inf, error))


def _exponential(f: Callable[[Array], Any]) -> Rule:
    def rule(args: list[Ball], value: Array, span: Range, *_: Any) -> Any:
        span.exponent(args[0].value)
        return monotone(f, args[0], value, span)

    return rule


def _cosh(args: list[Ball], value: Array, span: Range, *_: Any) -> Any:
    x = args[0]
    span.exponent(np.abs(x.value))
    return _times(np.sinh(np.abs(x.value) + x.error), x.error)


def _sinh(args: list[Ball], value: Array, span: Range, *_: Any) -> Any:
    span.exponent(np.abs(args[0].value))
    return monotone(np.sinh, args[0], value, span)


def _circular(args: list[Ball], *_: Any) -> Any:
    return np.minimum(args[0].error, 2)


def _power(args: list[Ball], value: Array, span: Range, *_: Any) -> Any:
    x, y = args
    span.divisor(np.where(y.value < 0, x.value, 1))
    if not (x.error.any() or y.error.any()):
        return np.zeros(value.shape, WIDE)
    ends = [
        np.abs(np.power(x.value + i * x.error, y.value + j * y.error) - value)
        for i in (-1, 1)
        for j in (-1, 1)
    ]
    away = np.abs(x.value) > x.error
    # Powers above 0 have no pole at 0: they are NaN below it, or whole.
    grows = (y.value > y.error) & np.isfinite(x.error)
    whole = (y.error == 0) & (y.value % 1 == 0)
    if (~away & _inexact(x) & ~(grows & (whole | x.above_0))).any():
        span.pole = True
    near_0 = np.maximum(np.fmax.reduce(ends), np.abs(value))
    near_0 = np.where(grows & (whole | (x.value >= 0)), near_0, np.inf)
    return np.where(away, np.maximum.reduce(ends), near_0)


def _where(args: list[Ball], value: Array, *_: Any) -> Any:
    chosen, x, y = args
    either = np.maximum(x.error, y.error)
    taken = np.where(chosen.value, x.error, y.error)
    return np.where(chosen.error > 0, np.abs(x.value - y.value) + either, taken)


def _sum(args: list[Ball], value: Array, span: Range, attrs: Any, p: Precision) -> Any:
    x, axis = args[0], attrs["axis"]
    n = math.prod(x.value.shape[a] for a in axis)
    size = np.sum(np.abs(x.value) + x.error, axis=axis, keepdims=True)
    return np.sum(x.error, axis=axis, keepdims=True) + max(n - 1, 0) * p.unit * size


def _mean(args: list[Ball], value: Array, span: Range, attrs: Any, p: Precision) -> Any:
    n = math.prod(args[0].value.shape[a] for a in attrs["axis"])
    return _sum(args, value, span, attrs, p) / n if n else np.zeros(value.shape)


def _prod(args: list[Ball], value: Array, span: Range, attrs: Any, p: Precision) -> Any:
    x, axis = args[0], attrs["axis"]
    n = math.prod(x.value.shape[a] for a in axis)
    whole = np.prod(
        (np.abs(x.value) + x.error) * (1 + p.unit), axis=axis, keepdims=True
    )
    return whole - np.abs(value) + n * p.tiny if n else np.zeros(value.shape)


def _extreme(args: list[Ball], value: Array, span: Range, attrs: Any, *_: Any) -> Any:
    return np.max(args[0].error, axis=attrs["axis"], keepdims=True)


def _sorted(args: list[Ball], value: Array, span: Range, attrs: Any, *_: Any) -> Any:
    if not value.size:
        return np.zeros(value.shape)
    return np.broadcast_to(_extreme(args, value, span, attrs), value.shape)


def _accumulate(
    args: list[Ball], value: Array, span: Range, attrs: Any, p: Precision
) -> Any:
    x, (axis,) = args[0], attrs["axis"]
    n = value.shape[axis]
    if attrs["ufunc"] == "add":
        size = np.cumsum(np.abs(x.value) + x.error, axis)
        return np.cumsum(x.error, axis) + n * p.unit * size
    if attrs["ufunc"] == "multiply":
        whole = np.cumprod((np.abs(x.value) + x.error) * (1 + p.unit), axis)
        return whole - np.abs(value) + n * p.tiny
    return np.maximum.accumulate(x.error, axis)


def _contraction(op_name: str) -> Rule:
    def rule(
        args: list[Ball], value: Array, span: Range, attrs: Any, p: Precision
    ) -> Any:
        a, b = args
        f = Op.registry[op_name].reference
        size_a, size_b = np.abs(a.value), np.abs(b.value)
        n = a.value.shape[-1]
        if op_name == "conv2d":
            n = math.prod(b.value.shape[1:])
        span.pole |= _infinity_may_meet_0(a, b, partial(f, **attrs))
        whole = f(size_a + a.error, size_b + b.error, **attrs)
        carried = whole * 0
        if b.error.any():
            carried = carried + f(size_a + a.error, b.error, **attrs)
        if a.error.any():
            carried = carried + f(a.error, size_b, **attrs)
        return carried + n * (p.unit * whole + p.tiny)

    return rule


def _unknown(args: list[Ball], value: Array, *_: Any) -> Any:
    """No bound, unless the operands are exact: the function turns or has poles."""
    inexact = np.any([a.error.any() for a in args])
    return np.full(value.shape, np.inf if inexact else 0.0, WIDE)


def _above_0(name: str) -> Rule:
    """Of a function that is monotone above 0 and has poles below."""

    def rule(args: list[Ball], value: Array, span: Range, *_: Any) -> Any:
        (x,) = args
        found = monotone(Op.registry[name].reference, x, value, span)
        return np.where((x.value > x.error) | (x.error == 0), found, np.inf)

    return rule


def _angle(args: list[Ball], value: Array, *_: Any) -> Any:
    """Of arctan2(y, x): by its slopes at the nearest point to 0, and once around where
    rounding may cross the negative half of x."""
    y, x = args
    near = [np.maximum(np.abs(v.value) - v.error, 0) for v in args]
    square = near[0] ** 2 + near[1] ** 2
    moved = (np.abs(x.value) + x.error) * y.error + (
        np.abs(y.value) + y.error
    ) * x.error
    moved = np.divide(moved, square, where=square > 0, out=np.full_like(moved, np.inf))
    crosses = (x.value - x.error < 0) & (np.abs(y.value) <= y.error) & (y.error > 0)
    exact = (x.error == 0) & (y.error == 0)
    whole = 2 * math.pi
    return np.where(exact, 0, np.minimum(np.where(crosses, whole, moved), whole))


PROPAGATE: dict[str, Rule] = {
    "arctan2": _angle,
    "digamma": _above_0("digamma"),
    "trigamma": _above_0("trigamma"),
    **dict.fromkeys("gamma gammaln beta betaln i0 i0e i1e j0 j1".split(), _unknown),
    "add": _sum_of_errors,
    "subtract": _sum_of_errors,
    "hypot": _sum_of_errors,
    "negative": _same,
    "absolute": _same,
    "cast": _same,
    "copysign": _same,
    "multiply": _multiply,
    "square": _square,
    "divide": _divide,
    "floor_divide": _whole_quotient,
    "remainder": _rest(np.floor),
    "fmod": _rest(np.trunc),
    **dict.fromkeys("floor ceil rint trunc sign".split(), _on_a_step),
    "reciprocal": _reciprocal,
    "sqrt": _sqrt,
    "rsqrt": _root_below,
    "exp": _exponential(np.exp),
    "exp2": _exponential(np.exp2),
    "expm1": _exponential(np.expm1),
    "cosh": _cosh,
    "sinh": _sinh,
    "sin": _circular,
    "cos": _circular,
    "power": _power,
    "maximum": _largest_error,
    "minimum": _largest_error,
    "fmax": _largest_error,
    "fmin": _largest_error,
    "logaddexp": _largest_error,
    "logaddexp2": _largest_error,
    "where": _where,
    "sum": _sum,
    "mean": _mean,
    "prod": _prod,
    "max": _extreme,
    "min": _extreme,
    "sort": _sorted,
    "accumulate": _accumulate,
    "matmul": _contraction("matmul"),
    "conv2d": _contraction("conv2d"),
    **matrix_error.BOUNDS,
    "iota": lambda args, value, *_: np.zeros(value.shape, WIDE),
}
"""Of functions with steps: the errors on a step."""

STEPS: dict[str, Step] = {
    "floor": _steps(np.floor),
    "ceil": _steps(np.ceil),
    "rint": _steps(np.rint),
    "trunc": _steps(np.trunc),
    "sign": _steps(np.sign),
    "floor_divide": _step_of_quotient(np.floor),
    "remainder": _step_of_rest(np.floor),
    "fmod": _step_of_rest(np.trunc),
}
"""How far the next step is, where rounding takes an operand there."""
