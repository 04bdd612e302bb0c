"""The operators of ONNX that compute each primitive op.

What an operator of the standard rounds otherwise is composed of others, as ``expm1``
is; what cannot be is an error that names the op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from eqsat.terms import SCALAR, Term

Numbers = np.ndarray[Any, Any]


class Nodes(Protocol):
    """Where operators are written. Values are known by name."""

    def __call__(self, operator: str, *given: str, **attributes: Any) -> str:
        """Write an operator; the name of its result."""

    def number(self, value: Any, dtype: Any) -> str:
        """The name of a constant."""


Given = Sequence[str]
Writer = Callable[[Nodes, Term, Given, Any], str]
"""Writes a term of given arguments, all of the dtype, which is the last parameter."""

_SAME = {
    **{"absolute": "Abs", "negative": "Neg", "sqrt": "Sqrt", "exp": "Exp"},
    **{"log": "Log", "reciprocal": "Reciprocal", "rint": "Round", "ceil": "Ceil"},
    **{"floor": "Floor", "erf": "Erf", "sigmoid": "Sigmoid", "copy": "Identity"},
    **{"sin": "Sin", "cos": "Cos", "tan": "Tan", "arcsin": "Asin", "arccos": "Acos"},
    **{"arctan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh"},
    **{"arcsinh": "Asinh", "arccosh": "Acosh", "arctanh": "Atanh"},
    **{"add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div"},
    **{"power": "Pow", "maximum": "Max", "minimum": "Min", "matmul": "MatMul"},
    **{"invert": "BitwiseNot", "bitwise_and": "BitwiseAnd", "isnan": "IsNaN"},
    **{"bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor", "isinf": "IsInf"},
    **{"equal": "Equal", "less": "Less", "less_equal": "LessOrEqual"},
    **{"greater": "Greater", "greater_equal": "GreaterOrEqual"},
    **{"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"},
    "logical_not": "Not",
}
"""Ops that an operator of ONNX computes as it is."""
_OF_BOOLS = {
    **{"add": "Or", "multiply": "And", "maximum": "Or", "minimum": "And"},
    **{"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor"},
    **{"invert": "Not", "copy": "Identity", "logical_not": "Not", "equal": "Equal"},
    **{"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"},
}
COMPARISONS = frozenset(
    "equal not_equal less less_equal greater greater_equal isnan isinf isfinite".split()
)
"""Ops of numbers that give bools."""
LOGIC = frozenset("logical_and logical_or logical_xor logical_not any all".split())
"""Ops of bools."""


def operator_of(name: str, dtype: Any) -> str | None:
    """The operator that computes an op on arrays of a dtype; None where it takes more
    than one."""
    if np.dtype(dtype).kind == "b":
        return _OF_BOOLS.get(name)
    if name in ("reciprocal", "divide") and np.dtype(dtype).kind != "f":
        return None
    return _SAME.get(name)


def _square(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    return n("Mul", given[0], given[0])


def _rsqrt(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    return n("Reciprocal", n("Sqrt", given[0]))


def _times(factor: float) -> Writer:
    return lambda n, t, given, dtype: n("Mul", given[0], n.number(factor, dtype))


def _exp2(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    return n("Pow", n.number(2, dtype), given[0])


def _expm1(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    """tanh(x / 2) (eˣ + 1), which loses nothing near 0."""
    (x,), one = given, n.number(1, dtype)
    half = n("Tanh", n("Mul", x, n.number(0.5, dtype)))
    return n("Mul", half, n("Add", n("Exp", x), one))


def _log1p(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    """ln(u) x / (u − 1) for u = 1 + x, and x where u is 1."""
    (x,), one = given, n.number(1, dtype)
    u = n("Add", x, one)
    log = n("Log", u)
    better = n("Div", n("Mul", log, x), n("Sub", u, one))
    found = n("Where", n("IsInf", u), log, better)
    return n("Where", n("Equal", u, one), x, found)


def _cbrt(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    (x,) = given
    root = n("Pow", n("Abs", x), n.number(1 / 3, dtype))
    return n("Where", n("Less", x, n.number(0, dtype)), n("Neg", root), root)


def _sign(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    (x,) = given
    if np.dtype(dtype).kind != "f":
        return n("Sign", x)
    return n("Where", n("IsNaN", x), x, n("Sign", x))


def _trunc(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    (x,) = given
    below = n("Less", x, n.number(0, dtype))
    return n("Where", below, n("Ceil", x), n("Floor", x))


def _not_equal(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    if np.dtype(dtype).kind == "b":
        return n("Xor", *given)
    return n("Not", n("Equal", *given))


def _isfinite(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    return n("Not", n("Or", n("IsNaN", given[0]), n("IsInf", given[0])))


def _unless_nan(operator: str) -> Writer:
    def write(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
        x, y = given
        if np.dtype(dtype).kind != "f":
            return n(operator, x, y)
        found = n("Where", n("IsNaN", y), x, n(operator, x, y))
        return n("Where", n("IsNaN", x), y, found)

    return write


def _remainder(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    """Of the sign of the divisor."""
    x, y = given
    if np.dtype(dtype).kind != "f":
        return n("Mod", x, _divisor(n, t, y, dtype), fmod=0)
    zero = n.number(0, dtype)
    r = n("Mod", x, y, fmod=1)
    differ = n("Xor", n("Less", r, zero), n("Less", y, zero))
    is_other = n("And", differ, n("Not", n("Equal", r, zero)))
    return n("Where", is_other, n("Add", r, y), r)


def _floor_divide(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    x, y = given
    if np.dtype(dtype).kind == "f":
        rest = n("Sub", x, _remainder(n, t, given, dtype))
        return n("Round", n("Div", rest, y))
    zero, by = n.number(0, dtype), _divisor(n, t, y, dtype)
    rest = n("Mod", x, by, fmod=1)
    found = n("Div", n("Sub", x, rest), by)
    if np.dtype(dtype).kind == "i":
        differ = n("Xor", n("Less", rest, zero), n("Less", by, zero))
        is_below = n("And", differ, n("Not", n("Equal", rest, zero)))
        found = n("Sub", found, n("Cast", is_below, to=dtype))
    if by == y:
        return found
    # times 0 where the divisor is 0, -1 where it is -1, and 1 elsewhere
    return n("Mul", found, n("Sub", n.number(1, dtype), n("Sub", by, y)))


def _fmod(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    x, y = given
    if np.dtype(dtype).kind != "f":
        y = _divisor(n, t, y, dtype)
    return n("Mod", x, y, fmod=1)


def _divisor(n: Nodes, t: Term, y: str, dtype: Any) -> str:
    """``y`` with 1 where it is 0 or -1: to divide integers by 0, and the least one by
    -1, ends the process that runs the model. (ONNX Runtime has ``Where`` of few
    dtypes.)"""
    known = t.args[1]
    if known.op is SCALAR and known.attrs[0] not in (0, -1):
        return y
    by = n("Add", y, n("Cast", n("Equal", y, n.number(0, dtype)), to=dtype))
    if np.dtype(dtype).kind == "u":
        return by
    two = n("Cast", n("Equal", y, n.number(-1, dtype)), to=dtype)
    return n("Add", by, n("Add", two, two))


def _where(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    if np.dtype(dtype).kind != "b":
        return n("Where", *given)
    condition, x, y = given  # runtimes have no Where of bools
    return n("Or", n("And", condition, x), n("And", n("Not", condition), y))


# -- reductions ------------------------------------------------------------------------


def _ints(n: Nodes, values: Sequence[int]) -> str:
    return n.number([*values], np.int64)


def _reduced(operator: str) -> Writer:
    def write(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
        axes = _ints(n, _attr(t, "axis"))
        return n(operator, given[0], axes, keepdims=1)

    return write


def _mean(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    """NaN of no elements, for which runtimes have 0."""
    axes = _attr(t, "axis")
    if all(t.args[0].shape[a] for a in axes):
        return _reduced("ReduceMean")(n, t, given, dtype)
    total = n("ReduceSum", given[0], _ints(n, axes), keepdims=1)
    return n("Div", total, n.number(0, dtype))


def _truth(operator: str) -> Writer:
    """Of bools, which ONNX reduces as numbers."""

    def write(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
        whole = n("Cast", given[0], to=np.dtype(np.int32))
        found = n(operator, whole, _ints(n, _attr(t, "axis")), keepdims=1)
        return n("Cast", found, to=np.dtype(bool))

    return write


def _position(operator: str) -> Writer:
    def write(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
        (axis,) = _attr(t, "axis")
        return n(operator, given[0], axis=axis, keepdims=1)

    return write


def _attr(t: Term, name: str) -> Any:
    op: Any = t.op
    return op.attr_dict(t)[name]


# -- views and places ------------------------------------------------------------------


def _reshape(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    return n("Reshape", given[0], _ints(n, t.shape), allowzero=1)


def _broadcast(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    return n("Expand", given[0], _ints(n, t.shape))


def _transpose(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    perm = _attr(t, "perm")
    lead = t.ndim - len(perm)
    return n("Transpose", given[0], perm=[*range(lead), *(p + t.ndim for p in perm)])


def _slice(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    starts, sizes, steps = (_attr(t, k) for k in ("starts", "sizes", "steps"))
    lead = t.ndim - len(starts)
    ends = [
        a + size * step if a + size * step >= 0 else -(1 << 62)
        for a, size, step in zip(starts, sizes, steps, strict=True)
    ]
    axes = range(lead, t.ndim)
    parts = (_ints(n, v) for v in (starts, ends, axes, steps))
    return n("Slice", given[0], *parts)


def _concatenate(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    return n("Concat", *given, axis=_attr(t, "axis"))


def _pad(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    low, high = _attr(t, "low"), _attr(t, "high")
    lead = [0] * (t.ndim - len(low))
    return n("Pad", given[0], _ints(n, [*lead, *low, *lead, *high]), given[1])


def _take(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    return n("Gather", given[0], given[1], axis=_attr(t, "axis"))


def _accumulate(n: Nodes, t: Term, given: Given, dtype: Any) -> str | None:
    if _attr(t, "ufunc") != "add":
        return None
    return n("CumSum", given[0], n.number(_attr(t, "axis")[0], np.int64))


def _conv2d(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    padding = _attr(t, "padding")
    return n(
        "Conv",
        *given,
        strides=[*_attr(t, "stride")],
        pads=[*padding, *padding],
        dilations=[*_attr(t, "dilation")],
        group=_attr(t, "groups"),
    )


def _log_to(base: float) -> Writer:
    return lambda n, t, given, dtype: n(
        "Div", n("Log", given[0]), n.number(math.log(base), dtype)
    )


def _hypot(n: Nodes, t: Term, given: Given, dtype: Any) -> str:
    """The larger one times √(1 + q²), which does not overflow."""
    x, y = (n("Abs", x) for x in given)
    most, least = n("Max", x, y), n("Min", x, y)
    q = n("Div", least, most)
    root = n("Sqrt", n("Add", n("Mul", q, q), n.number(1, dtype)))
    plain = n("Or", n("IsInf", most), n("Equal", most, n.number(0, dtype)))
    return n("Where", plain, most, n("Mul", most, root))


WRITERS: dict[str, Callable[[Nodes, Term, Given, Any], str | None]] = {
    **{"square": _square, "rsqrt": _rsqrt, "exp2": _exp2, "expm1": _expm1},
    **{"log1p": _log1p, "cbrt": _cbrt, "sign": _sign, "trunc": _trunc},
    **{"not_equal": _not_equal, "isfinite": _isfinite, "where": _where},
    **{"fmax": _unless_nan("Max"), "fmin": _unless_nan("Min"), "fmod": _fmod},
    **{"remainder": _remainder, "floor_divide": _floor_divide},
    **dict.fromkeys(("deg2rad", "radians"), _times(math.pi / 180)),
    **dict.fromkeys(("rad2deg", "degrees"), _times(180 / math.pi)),
    **{"sum": _reduced("ReduceSum"), "prod": _reduced("ReduceProd")},
    **{"max": _reduced("ReduceMax"), "min": _reduced("ReduceMin")},
    **{"mean": _mean, "any": _truth("ReduceMax")},
    **{"all": _truth("ReduceMin"), "argmax": _position("ArgMax")},
    **{"argmin": _position("ArgMin"), "reshape": _reshape, "slice": _slice},
    **{"broadcast_to": _broadcast, "transpose": _transpose, "pad": _pad},
    **{"concatenate": _concatenate, "take": _take, "accumulate": _accumulate},
    **{"conv2d": _conv2d, "hypot": _hypot},
    **{"log2": _log_to(2), "log10": _log_to(10)},
}
"""Ops that take several operators, or attributes."""
