"""Derivatives on their way back, and the elements that count.

A select (``where``, ``maximum``, a write under a mask) passes 0 back to what it did not
choose. Times an infinite slope that 0 is NaN. So the conditions of the selects travel
along with a derivative, and choose again after the products.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from eqsat import ops
from eqsat.kernels import inner
from eqsat.ops import logical_and, logical_not, logical_or, not_equal, reshape, where
from eqsat.terms import BOOL, SCALAR, OnlyWhere, Op, Shape, Term
from eqsat.trace import Tracer, body_of

Masks = tuple[Term, ...]
"""Conditions, arrays of bools that broadcast with a term: its elements count for the
loss where all of them hold, at most."""
MANY = 4
"""Conditions that are kept one by one."""
BRANCHES = 8
"""Parts of a sum that are compared in pairs."""

SCALED = frozenset({"negative", "multiply", "divide", "cast", "copy"})
"""Ops that make 0 of 0 where their other argument is a number."""
PLACED = frozenset({"slice", "take", "add_at", "set_at"})
"""Ops whose rules move derivatives and add them up, and need zeros of their dtype."""
ARRANGED = frozenset({"transpose", "concatenate", "pad"})
"""Ops whose rules move derivatives of any dtype."""
ALONG = frozenset({"accumulate", "sort"})
"""Ops whose elements meet along their axis."""


class Cotangent(NamedTuple):
    """The derivative of a loss by a term, or a part of it."""

    value: Any
    """A traced array that broadcasts to the term, or a number."""
    masks: Masks = ()
    """Where the term counts."""
    pending: Masks = ()
    """Those of the conditions that the value may not be 0 without."""

    def settled(self, like: Term) -> Any:
        """The value, 0 where the term does not count; ``like`` has its dtype."""
        g = self.value
        if not self.pending:
            return g
        if not isinstance(g, Tracer):
            g = Tracer(like).lift(ops.cast_op, [g], {"dtype": _dtype_name(like)})
        condition = _all_of(self.pending)
        if condition.op is logical_not:
            return where(Tracer(condition.args[0]), 0.0, g)
        return where(Tracer(condition), g, 0.0)

    def passed(self, found: Any, term: Term) -> Cotangent | None:
        """What a rule of ``term`` has ``found`` of this value: an array, a number, or a
        choice."""
        if isinstance(found, OnlyWhere):
            made = self.passed(found.part, term)
            assert made is not None
            return made._only(found.condition, found.is_zero)
        kept = _moves(term) or _keeps_zeros(found, self.value)
        pending = self.pending if kept else _both(self.pending, self.masks)
        return Cotangent(found, self.masks, pending)

    def _only(self, condition: Any, is_zero: bool) -> Cotangent | None:
        if not isinstance(condition, Tracer):
            return self if condition else None
        c = condition if condition.dtype == BOOL else not_equal(condition, 0)
        pending = self.pending if is_zero else _both(self.pending, (c.term,))
        return Cotangent(self.value, _both(self.masks, (c.term,)), pending)


def _dtype_name(like: Term) -> str:
    return np.dtype(like.dtype).name  # type: ignore[arg-type]


def _moves(term: Term) -> bool:
    """Whether a derivative by ``term`` is in other places by an argument, or a sum."""
    op = term.op
    assert isinstance(op, Op)
    return op in ops.VIEWS or op.name in PLACED | ARRANGED


def _keeps_zeros(part: Any, g: Any) -> bool:
    """Whether ``part`` is 0 where ``g`` is, whatever the values are."""
    if not isinstance(part, Tracer) or not isinstance(g, Tracer):
        return not isinstance(part, Tracer)
    term = part.term
    if term is g.term:
        return True
    op = term.op
    return (
        isinstance(op, Op)
        and op.name in SCALED
        and term.args[:1] == (g.term,)
        and all(_is_plain(a) for a in term.args[1:])
    )


def _is_plain(term: Term) -> bool:
    """Whether a term is a finite number other than 0."""
    if term.op is not SCALAR:
        return False
    value: Any = term.attrs[0]
    return math.isfinite(value) and value != 0


def _both(a: Masks, b: Masks) -> Masks:
    found = tuple(dict.fromkeys((*a, *b)))
    return found if len(found) <= MANY else (_all_of(found),)


def _all_of(masks: Masks) -> Term:
    """One condition of several."""
    found: Term = functools.reduce(logical_and, map(Tracer, masks)).term
    return found


# -- sums ------------------------------------------------------------------------------


def summed(parts: Sequence[Cotangent], like: Term) -> Cotangent:
    """The derivative of which these are the parts: a term counts where one counts."""
    alike = all(p.pending == parts[0].pending for p in parts)
    values = [p.value if alike else p.settled(like) for p in parts]
    total = functools.reduce(lambda a, b: a + b, values)
    masks = _any_of(dict.fromkeys(p.masks for p in parts))
    return Cotangent(total, masks, parts[0].pending if alike else ())


def _any_of(several: Iterable[Masks]) -> Masks:
    """Conditions that hold where all of one of ``several`` do."""
    left = _without_opposites(list(several))
    common = tuple(m for m in left[0] if all(m in masks for masks in left))
    rests = [tuple(m for m in masks if m not in common) for masks in left]
    if len(left) == 1 or not all(rests):
        return common
    either = functools.reduce(logical_or, (Tracer(_all_of(r)) for r in rests))
    return (*common, either.term)


def _without_opposites(left: list[Masks]) -> list[Masks]:
    """``left`` with what holds if c does, and if c does not, as one without c."""
    while () not in left and 1 < len(left) <= BRANCHES:
        pairs = itertools.combinations(left, 2)
        found = next((p for p in pairs if _differ_by_a_sign(*p)), None)
        if found is None:
            return left
        a, b = found
        left = [m for m in left if m not in found]
        left.append(tuple(m for m in a if m in b))
    return [()] if () in left else left


def _differ_by_a_sign(a: Masks, b: Masks) -> bool:
    one = [m for m in a if m not in b]
    other = [m for m in b if m not in a]
    if len(one) != 1 or len(other) != 1:
        return False
    (c,), (d,) = one, other
    return _is_not(c, d) or _is_not(d, c)


def _is_not(c: Term, d: Term) -> bool:
    return c.op is logical_not and c.args[0] is d


# -- on to an argument -----------------------------------------------------------------


def carried(masks: Masks, term: Term, i: int) -> Masks:
    """Where argument ``i`` of ``term`` counts, if ``term`` counts where ``masks`` hold.

    They are lost, and the argument counts everywhere, where elements meet across axes
    as in a product of matrices, but for masks of a single element.
    """
    shape = term.args[i].shape
    if len(masks) > 1 and any(_shrinks(m.shape, shape) for m in masks):
        stay = tuple(m for m in masks if not _shrinks(m.shape, shape))
        masks = (*stay, _all_of(tuple(m for m in masks if m not in stay)))
    found = (_carried(Tracer(m), term, i) for m in masks)
    return tuple(dict.fromkeys(m.term for m in found if m is not None))


def _carried(mask: Any, term: Term, i: int) -> Any:
    op, arg = term.op, term.args[i]
    assert isinstance(op, Op)
    if op.name in PLACED:
        return _moved(mask, term, i)
    if math.prod(mask.shape) == 1:
        return reshape(mask, ())
    if op.kind == "pointwise" or op is ops.broadcast_to_op:
        return _any_to(mask, arg.shape)
    if op is ops.reshape_op:
        return reshape(ops.broadcast_to(mask, term.shape), arg.shape)
    if op.name in ARRANGED:
        return _moved(mask, term, i)
    axes = _axes_of_meeting(term)
    if axes is None:
        return None
    gone = tuple(a for a in axes if -a <= mask.ndim and mask.shape[a] != 1)
    met = ops.any(mask, gone, keepdims=True) if gone else mask
    return _any_to(met, arg.shape)


def _moved(mask: Any, term: Term, i: int) -> Any:
    """The mask where the derivative goes, by the rule of the op."""
    op = term.op
    assert isinstance(op, Op) and isinstance(op.vjp, tuple)
    rule = op.vjp[0 if op.variadic else i]
    if rule is None or (op.name == "pad" and i != 0):
        return None
    whole = ops.broadcast_to(mask, term.shape)
    args = [a.attrs[0] if a.op is SCALAR else Tracer(a) for a in term.args]
    attrs = op.attr_dict(term) | ({"which": i} if op.variadic else {})
    if op.name in ARRANGED:
        return rule(whole, *args, Tracer(term), **attrs)
    counts = ops.cast(whole, _dtype_name(term))
    return not_equal(rule(counts, *args, Tracer(term), **attrs), 0)


def _axes_of_meeting(term: Term) -> frozenset[int] | None:
    """Trailing axes along which elements of the arguments meet in one of ``term``; all
    others match by position. None where it is not known."""
    op = term.op
    assert isinstance(op, Op)
    if op.kind in ("pointwise", "leaf"):
        return frozenset()
    if op.kind == "reduce" or op.name in ALONG:
        return frozenset(op.attr_dict(term)["axis"])
    body = body_of(term)
    if body is None:
        return None
    each = [_axes_of_meeting(t) for t in inner([body], term.args)]
    known = [axes for axes in each if axes is not None]
    return frozenset().union(*known) if len(known) == len(each) else None


def _any_to(mask: Any, shape: Shape) -> Any:
    """Whether the mask holds anywhere along the axes that ``shape`` lacks or has with
    size 1."""
    if not _shrinks(mask.shape, shape):
        return mask
    tail = (1,) * (mask.ndim - len(shape)) + tuple(shape)
    rows = zip(mask.shape, tail[len(tail) - mask.ndim :], strict=True)
    gone = tuple(a for a, (m, n) in enumerate(rows, -mask.ndim) if n == 1 != m)
    met = ops.any(mask, gone, keepdims=True) if gone else mask
    return reshape(met, met.shape[max(mask.ndim - len(shape), 0) :])


def _shrinks(mask: Shape, shape: Shape) -> bool:
    """Whether a mask of that shape must become smaller to broadcast to ``shape``."""
    if len(mask) > len(shape):
        return True
    tail = shape[len(shape) - len(mask) :]
    return any(n == 1 != m for m, n in zip(mask, tail, strict=True))
