"""Roots of sums of powers, such as norms and standard deviations, in a program.

√Σx² has no derivative where all x are 0, as |x| has none at 0; as there, it is taken to
be 0, where the chain rule would say 0 · ∞. Its square has derivatives of all orders,
and so has |x|².
"""

from __future__ import annotations

import math
from typing import Any

from eqsat.terms import CONSTANT, OF_COMPLEX, SCALAR, Op, Term

_OF_ALL = frozenset(
    {"add", "maximum", "minimum", "multiply", "concatenate", "pad"}
    | {"sum", "mean", "max", "min"}
    | {"reshape", "broadcast_to", "transpose", "slice", "cast", "copy"}
)
"""Ops that are 0 only where one of their arguments is, if none is negative."""
_OF_FIRST = frozenset({"divide", "take"})
"""The same of their first argument."""
_ROOTS = {"sqrt": 1 / 2, "cbrt": 1 / 3}
_LENGTHS = frozenset({"absolute", "hypot"})
"""Functions that are the root of the sum of squares of their arguments."""
_DEEPEST = 8
"""Powers of sums of powers, one in the other, that are followed."""


def is_norm(term: Term) -> bool:
    """Whether ``term`` is (Σ|x|ᵖ) to the power of 1/p, for some x and p > 1.

    The sum may be a mean, weighted by numbers, under a mask or by axes.
    """
    y = _exponent(term)
    return 0 < y < 1 and math.isclose(_order(term.args[0], _DEEPEST) * y, 1)


def even_power_of_length(term: Term) -> int:
    """The y of a term that is |x|ʸ or √(x² + z²)ʸ, for an even y; 0 for others."""
    y = _known_power(term)
    return int(y) if y >= 2 and y % 2 == 0 and _is_length(term.args[0]) else 0


def _is_length(term: Term) -> bool:
    if not isinstance(term.op, Op):
        return False
    of_complex = term.op.name == OF_COMPLEX and term.attrs[0] == "absolute"
    return of_complex or term.op.name in _LENGTHS


def whole_power_of_sum(term: Term) -> int:
    """The k of a term that is uᵏ since it is a power of a norm, the root of u; 0 for
    others."""
    y = _known_power(term)
    base = term.args[0] if y > 0 else term
    if not isinstance(base.op, Op) or not is_norm(base):
        return 0
    k = y * _exponent(base)
    return round(k) if k > 0.5 and math.isclose(k, round(k)) else 0


def _known_power(term: Term) -> float:
    """y of a term that is xʸ for a known y, or x x, or x²; 0 for others."""
    assert isinstance(term.op, Op)
    is_square = term.op.name == "multiply" and term.args[0] is term.args[1]
    if is_square or term.op.name == "square":
        return 2.0
    return _exponent(term) if term.op.name == "power" else 0.0


def _exponent(term: Term) -> float:
    """y of a term that is xʸ for a known y; 0 for others."""
    assert isinstance(term.op, Op)
    if term.op.name in ("power", "float_power") and term.args[1].op is SCALAR:
        y: Any = term.args[1].attrs[0]
        return float(y)
    return _ROOTS.get(term.op.name, 0.0)


def _order(term: Term, deepest: int) -> float:
    """The least p of the powers |x|ᵖ that ``term`` is a sum of; ∞ for numbers from 0
    on, and 0 for what may be no such sum."""
    lowest, stack, done = math.inf, [term], set[Term]()
    while stack and lowest > 0:
        t = stack.pop()
        if t in done:
            continue
        done.add(t)
        parts = _parts(t)
        if parts:
            stack.extend(parts)
        else:
            lowest = min(lowest, _order_of_power(t, deepest))
    return lowest


def _parts(term: Term) -> tuple[Term, ...]:
    """The terms of a sum, or of what is like one."""
    name = term.op.name if isinstance(term.op, Op) else ""
    if name == "where":
        return term.args[1:]
    if name == "add" and any(a.op is SCALAR for a in term.args):
        return ()  # a number above 0 keeps it from 0
    if name in _OF_FIRST:
        return term.args[:1]
    is_square = name == "multiply" and term.args[0] is term.args[1]
    return term.args if name in _OF_ALL and not is_square else ()


def _order_of_power(term: Term, deepest: int) -> float:
    if term.op is SCALAR:
        value: Any = term.attrs[0]
        return 0.0 if value < 0 else math.inf
    if term.op is CONSTANT or not isinstance(term.op, Op) or not deepest:
        return 0.0
    if term.op.name in ("absolute", "hypot"):
        return 1.0
    if term.op.name in ("square", "multiply"):
        return 2 * max(_order(term.args[0], deepest - 1), 1.0)
    y = _exponent(term)
    if y <= 0:
        return 0.0
    inside = _order(term.args[0], deepest - 1)
    return y * inside if inside > 0 or y % 2 else y
