"""Which values no rounding makes negative: squares, magnitudes, exponentials, and sums,
products and roots of such. Their square roots are never NaN."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.ops import MOVES
from eqsat.support import Ball
from eqsat.terms import SCALAR, Op, Term, is_float

_ALWAYS = frozenset("absolute square exp exp2 sqrt rsqrt cosh hypot".split())
_AS_OPERANDS = frozenset(
    "add multiply divide reciprocal minimum fmin sum mean prod max min sort accumulate"
    " matmul conv2d floor ceil rint trunc sign expm1 log1p sinh tanh arcsinh arctan"
    " floor_divide cast".split()
)
"""Functions that are at least 0 where all operands are."""
_ONE_IS_ENOUGH = frozenset(["maximum", "fmax"])


def never_negative(term: Term, args: Sequence[Ball]) -> bool:
    """Whether ``term``, computed of ``args``, is at least 0 or NaN, however it is
    rounded."""
    op = term.op
    assert isinstance(op, Op)
    held = [
        a.above_0 or (not is_float(t.dtype) and bool((a.value >= 0).all()))
        for a, t in zip(args, term.args, strict=True)
    ]
    if op.name in _ALWAYS:
        return True
    if op.name == "multiply" and term.args[0] == term.args[1]:
        return True
    if op.name == "power":
        return held[0] or _is_even(term.args[1])
    if op.name == "where":
        return all(held[1:])
    if op.name == "take":
        return held[0]
    if op.name in _ONE_IS_ENOUGH:
        return any(held)
    return (op.name in _AS_OPERANDS or op in MOVES) and bool(held) and all(held)


def _is_even(exponent: Term) -> bool:
    number = exponent.attrs[0] if exponent.op is SCALAR else None
    return isinstance(number, (int, float)) and number % 2 == 0
