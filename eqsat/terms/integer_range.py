"""Limits of integers: the least and the greatest value that a term may have.

They tell which indices cannot be out of bounds, so that nothing needs to look. An
operation whose result may not fit its dtype may have any value of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from eqsat.terms.op import SCALAR, Op
from eqsat.terms.term import Term, Weak

Limits = tuple[int, int]
"""The least and the greatest value."""
Known = Mapping[Term, Limits]
CONTRARY = {
    "greater_equal": "less",
    "less": "greater_equal",
    "greater": "less_equal",
    "less_equal": "greater",
}
DEPTH = 24
"""Operations that are looked at, one below the other."""

SAME = frozenset(
    "reshape broadcast_to transpose slice copy take max min sort flip".split()
)
"""Ops whose results are elements of their first argument."""
ENDS: dict[str, Callable[[int, int], int]] = {
    "maximum": max,
    "minimum": min,
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
}
"""Ops that are monotone in each argument: their limits are among those of the ends."""


def limits(term: Term, known: Known | None = None, depth: int = DEPTH) -> Limits | None:
    """The limits of a term of integers or booleans; None for others."""
    if isinstance(term.dtype, Weak):
        number = term.attrs[0] if term.op is SCALAR else None
        return (number, number) if isinstance(number, int) else None
    dtype = term.dtype
    if dtype.kind not in "biu":
        return None
    low, high = whole = _of_dtype(dtype)
    found = (known or {}).get(term)
    if found is None and depth:
        found = _found(term, known or {}, depth - 1)
    if found is None or not low <= found[0] <= found[1] <= high:
        return whole
    return found


def _of_dtype(dtype: np.dtype[Any]) -> Limits:
    if dtype.kind == "b":
        return 0, 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _found(term: Term, known: Known, depth: int) -> Limits | None:
    """The limits that an operation gives, whether or not its dtype holds them."""
    op, args = term.op, term.args
    name = op.name
    if name in ("argmax", "argmin", "iota"):
        along = args[0] if args else term
        if name == "iota":
            return 0, max(term.size - 1, 0)
        (axis,) = cast(Op, op).attr_dict(term)["axis"]
        return 0, max(along.shape[axis] - 1, 0)
    if name == "where":
        cases = (
            limits(a, {**known, **_granted(args[0], is_true, known, depth)}, depth)
            for a, is_true in zip(args[1:], (True, False), strict=True)
        )
        return _joined([*cases])
    if name in ("concatenate", "pad"):
        return _joined([limits(a, known, depth) for a in args])
    if name in SAME or name == "cast":
        return limits(args[0], known, depth)
    if len(args) != 2:
        return None
    x, y = (limits(a, known, depth) for a in args)
    if y is None:
        return None
    if name == "bitwise_and" and (y[0] >= 0 or (x is not None and x[0] >= 0)):
        return 0, min(b for _, b in (e for e in (x, y) if e and e[0] >= 0))
    if name == "remainder" and y[0] > 0:
        return 0, y[1] - 1
    if x is None:
        return None
    if name == "floor_divide" and y[0] == y[1] > 0:
        return x[0] // y[0], x[1] // y[0]
    if name in ENDS:
        ends = [ENDS[name](a, b) for a in x for b in y]
        return min(ends), max(ends)
    return None


def _joined(found: Sequence[Limits | None]) -> Limits | None:
    both = [f for f in found if f is not None]
    if len(both) < len(found):
        return None
    return min(a for a, _ in both), max(b for _, b in both)


def _granted(condition: Term, is_true: bool, known: Known, depth: int) -> Known:
    """What ``condition`` says of terms that it compares with a number."""
    found: dict[Term, Limits] = {}
    stack = [condition]
    while stack:
        c = stack.pop()
        name = c.op.name
        if name in ("bitwise_and", "logical_and") and is_true:
            stack += c.args
        elif name in CONTRARY:
            x, y = c.args
            number = limits(y)
            of = found.get(x) or limits(x, known, depth)
            if isinstance(y.dtype, Weak) and number is not None and of is not None:
                how = name if is_true else CONTRARY[name]
                low, high = _compared(how, *of, number[0])
                if low <= high:
                    found[x] = low, high
    return found


def _compared(name: str, low: int, high: int, n: int) -> Limits:
    """Limits of what is also less than, … ``n``."""
    match name:
        case "greater_equal":
            return max(low, n), high
        case "greater":
            return max(low, n + 1), high
        case "less":
            return low, min(high, n - 1)
        case _:
            return low, min(high, n)
