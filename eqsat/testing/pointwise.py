"""Pointwise steps of drawn programs: arithmetic, comparison, choice and casts.

Every step takes a :class:`Builder` and adds at most one value for the program to use
further; where nothing fits, it adds none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat import ops
from eqsat.checking import broadcastable, one_of
from eqsat.terms import BF16, BOOL, Op, broadcast
from eqsat.testing.builder import Builder

NUMBERS = (1.0, 2.0, 0.5, -1.0, 3.0, -0.3, 0.1, 4.0, 0.0, 7.0)
"""Bare numbers, of which some are exact in every dtype."""
SAFE = {
    "arccos": "np.tanh({0}) * 0.5",
    "arccosh": "np.abs({0}) + 1.5",
    "arcsin": "np.tanh({0}) * 0.5",
    "arctanh": "np.tanh({0}) * 0.5",
    **dict.fromkeys(("log", "log2", "log10"), "np.abs({0}) + 0.5"),
    **dict.fromkeys(("log1p", "sqrt"), "np.abs({0})"),
    **dict.fromkeys(("reciprocal", "rsqrt"), "np.abs({0}) + 0.5"),
    **dict.fromkeys(("exp", "exp2", "expm1", "sinh", "cosh"), "np.tanh({0}) * 2.0"),
    "tan": "np.tanh({0})",
}
"""Arguments inside the domain of an op, and away from its poles."""
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
OF_INTEGERS = (
    "-{0}; ~{0}; np.abs({0}); np.sign({0}); np.square({0}); {0} * 3; {0} & 6; {0} % 5; "
    "{0} // 3; {0} + 1; {0} >> 1; {0} > 2; np.bitwise_count({0})"
).split("; ")
OF_TWO_INTEGERS = (
    "{0} + {1}; {0} * {1}; {0} - {1}; np.maximum({0}, {1}); np.minimum({0}, {1}); "
    "{0} & {1}; {0} | {1}; {0} ^ {1}; {0} << ({1} & 3); {0} >> ({1} & 3); {0} < {1}; "
    "{0} == {1}; {0} // (({1} & 3) + 1); {0} % (({1} & 3) + 1); {0} / (({1} & 3) + 1); "
    "np.gcd({0}, {1}); np.lcm({0} & 7, {1} & 7)"
).split("; ")
OF_BOOLS = (
    "{0} & {1}; {0} | {1}; {0} ^ {1}; np.logical_and({0}, {1}); np.sum({0}); "
    "np.logical_or({0}, {1}); np.logical_xor({0}, {1}); {0}.any(); np.all({0}); "
    "np.mean({0}); {0}.astype(np.int32); {0} * 2"
).split("; ")
COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
LOGIC = ("logical_and", "logical_or", "logical_xor")


def ufunc(name: str) -> str:
    """NumPy's name of a pointwise op, or ours where NumPy has none."""
    return f"np.{name}" if hasattr(np, name) else f"ops.{name}"


def pointwise(arity: int) -> list[str]:
    """Names of the pointwise ops of so many arguments."""
    return [
        o.name
        for o in Op.registry.values()
        if o.kind == "pointwise" and len(o.params) == arity and o.name != "cast"
        if hasattr(np, o.name) or hasattr(ops, o.name)
    ]


def permitted(b: Builder, names: Sequence[str]) -> list[str]:
    """Those of ``names`` that the program may use; all when it may use none."""
    return [n for n in names if b.allowed is None or n in b.allowed] or list(names)


# -- pointwise -------------------------------------------------------------------------


def unary(b: Builder) -> None:
    """A pointwise op of one value."""
    x = b.some(lambda n: True)
    assert x is not None
    if not b.floating(x):
        return _unary_of_integers(b, x)
    names = [n for n in pointwise(1) if n not in ("invert", "logical_not")]
    name = one_of(b.pick, permitted(b, names))
    if name in SAFE and b.pick(4):
        b.take(f"{ufunc(name)}({SAFE[name].format(x)})")
    elif b.take(f"{ufunc(name)}({x})") is None and name in SAFE:
        b.take(f"{ufunc(name)}({SAFE[name].format(x)})")


def _unary_of_integers(b: Builder, x: str) -> None:
    if b.dtype_of(x) == BOOL:
        b.take(one_of(b.pick, ("~{0}", "np.logical_not({0})")).format(x))
        return
    b.take(one_of(b.pick, OF_INTEGERS).format(x))


def binary(b: Builder) -> None:
    """A pointwise op of two values that broadcast, or of one and a number."""
    x = b.some(lambda n: b.dtype_of(n) != BOOL)
    if x is None:
        return
    y = _partner(b, x)
    if not b.floating(x):
        return _binary_of_integers(b, x, y)
    names = [n for n in pointwise(2) if n not in (*BITS, *LOGIC)]
    common = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
    name = one_of(b.pick, permitted(b, (*common, *common, *common, *names)))
    pair = [x, y] if b.pick(2) else [y, x]
    if name in ("divide", "floor_divide", "remainder", "fmod"):
        pair[1] = pair[1] if _is_number(pair[1]) else f"(np.abs({pair[1]}) + 0.5)"
        pair[1] = "0.3" if pair[1] in ("0.0", "-0.0") else pair[1]
    elif name == "power":
        pair = [f"(np.abs({x}) + 0.5)", y if _is_number(y) else f"np.tanh({y})"]
    sign = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}.get(name)
    b.take(
        f"{pair[0]} {sign} {pair[1]}" if sign else f"{ufunc(name)}({', '.join(pair)})"
    )


def _is_number(code: str) -> bool:
    return code.lstrip("-")[:1].isdigit()


def _partner(b: Builder, x: str) -> str:
    """Another operand for ``x``: a value of its dtype, a new leaf, or a number."""
    kind = b.pick(4)
    if kind == 0 and b.floating(x):
        return repr(one_of(b.pick, NUMBERS))
    if kind < 3:
        y = b.some(
            lambda n: (
                b.dtype_of(n) == b.dtype_of(x)
                and broadcast(b.shape(n), b.shape(x)) is not None
            )
        )
        if y is not None:
            return y
    return b.leaf(tuple(broadcastable(b.shape(x), b.pick)), b.dtype_of(x))


def _binary_of_integers(b: Builder, x: str, y: str) -> None:
    b.take(one_of(b.pick, OF_TWO_INTEGERS).format(x, y))


def comparison(b: Builder) -> None:
    """Bools of two values."""
    x = b.some(b.floating)
    if x is None:
        return
    if not b.pick(4):
        test = one_of(b.pick, permitted(b, ("isfinite", "isnan", "isinf")))
        b.take(f"np.{test}({x})")
        return
    b.take(f"np.{one_of(b.pick, permitted(b, COMPARISONS))}({x}, {_partner(b, x)})")


def logic(b: Builder) -> None:
    """Bools of bools, or numbers of bools."""
    x = b.some(lambda n: b.dtype_of(n) == BOOL)
    if x is None:
        return comparison(b)
    y = b.some(
        lambda n: (
            b.dtype_of(n) == BOOL and broadcast(b.shape(n), b.shape(x)) is not None
        )
    )
    b.take(one_of(b.pick, OF_BOOLS).format(x, y))


def choice(b: Builder) -> None:
    """``where`` and ``clip``."""
    x = b.some(b.floating)
    if x is None:
        return
    y = _partner(b, x)
    if not b.pick(4):
        low, high = sorted((one_of(b.pick, NUMBERS), one_of(b.pick, NUMBERS)))
        b.take(f"np.clip({x}, {low}, {high})")
        return
    test = b.some(
        lambda n: (
            b.dtype_of(n) == BOOL and broadcast(b.shape(n), b.shape(x)) is not None
        )
    )
    if test is None or not b.pick(3):
        test = b.leaf(tuple(broadcastable(b.shape(x), b.pick)), BOOL)
    pair = (x, y) if b.pick(2) else (y, x)
    b.take(f"np.where({test}, {', '.join(pair)})")


def cast(b: Builder) -> None:
    """Another dtype."""
    x = b.some(lambda n: True)
    assert x is not None
    names = ["np.float32", "np.float64", "np.int32", "np.int64", "np.float16", "bool"]
    names += ["np.uint8", "np.int8"]
    if b.dtype == BF16:
        names.insert(0, "bfloat16")
    to = one_of(b.pick, names)
    if b.floating(x) and to in ("np.uint8", "np.int8", "np.int32", "np.int64"):
        low = "np.abs" if to == "np.uint8" else ""
        b.take(f"{low}({x}).astype({to})")
    else:
        b.take(f"{x}.astype({to})")
