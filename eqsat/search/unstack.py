"""Reductions over arrays that were stacked, as arithmetic of the arrays: the mean of
``np.stack([a, b, c])`` over its first axis is ``(a + b + c) / 3``, without a copy.

Pointwise operations may lie between: each is done for the parts one by one, so that
variances, weighted sums and norms over a stack are covered too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

import numpy as np

from eqsat.ops import concatenate_op, mean_op, reshape_op
from eqsat.terms import EXACT, HALF, Op, Term, apply, make, postorder
from eqsat.trace import rebuilt

MOST = 512
"""Operations that may become of one reduction: each takes a millisecond to optimise."""


def unstacked(roots: Sequence[Term]) -> list[Term]:
    """``roots`` with no stack that only reductions over its parts read.

    Sums and products are added up from the first part to the last; those of float16 and
    bfloat16 in float32, rounded once.
    """
    if not any(map(_is_stack, terms := list(postorder(roots)))):
        return list(roots)
    users: dict[Term, list[Term]] = {}
    for t in terms:
        for a in dict.fromkeys(t.args):
            users.setdefault(a, []).append(t)
    within: dict[Term, int] = {}
    for t in terms:
        if _is_stack(t):
            within |= _closed(t, users, frozenset(roots)) or {}
    return rebuilt(roots, {}, partial(_opened, within=within))


def _is_stack(t: Term) -> bool:
    """Whether each argument is one place of the axis along which it joins them."""
    if t.op is not concatenate_op:
        return False
    (axis,) = t.attrs
    assert isinstance(axis, int)
    return all(a.shape[axis] == 1 for a in t.args)


def _closed(
    stack: Term, users: dict[Term, list[Term]], roots: frozenset[Term]
) -> dict[Term, int] | None:
    """What is computed from ``stack`` up to reductions over its parts, these among it,
    with the axis of the parts; None where something else reads it."""
    (axis,) = stack.attrs
    assert isinstance(axis, int)
    n = stack.shape[axis]
    found = {stack: axis}
    todo = [stack]
    count = 0
    while todo:
        t = todo.pop()
        count += n
        if t in roots or count > MOST:
            return None
        for user in users[t]:
            if user in found:
                continue
            if _reduces(user, axis):
                found[user] = axis
                count += n
            elif _is_pointwise(user) and user.shape[axis] == n:
                found[user] = axis
                todo.append(user)
            else:
                return None
    return found


def _reduces(t: Term, axis: int) -> bool:
    is_bool = t.dtype == np.dtype(bool)
    return _join_of(t) is not None and t.attrs == ((axis,),) and not is_bool


def _join_of(t: Term) -> Op | None:
    """What joins two parts of a reduction."""
    return t.op.join if isinstance(t.op, Op) else None


def _is_pointwise(t: Term) -> bool:
    return isinstance(t.op, Op) and t.op.kind == "pointwise" and not t.op.lowerings


def _opened(t: Term, within: dict[Term, int]) -> Term | None:
    """A reduction over the parts of a stack as arithmetic of these."""
    join = _join_of(t)
    if t not in within or join is None:
        return None
    axis, op, (x,) = within[t], t.op, t.args
    assert isinstance(op, Op)
    n = x.shape[axis]
    parts = [_part(x, axis, i, within) for i in range(n)]
    is_half = x.dtype in HALF and op.roundings != EXACT
    if is_half:
        parts = [_applied("cast", p, dtype="float32") for p in parts]
    total = reduce(lambda a, b: apply(join, t.graph, [a, b], {}), parts)
    if op is mean_op:
        total = _applied("divide", total, n)
    if is_half:
        total = _applied("cast", total, dtype=t.dtype.name)
    return _reshaped(total, t.shape)


def _part(x: Term, axis: int, i: int, within: dict[Term, int]) -> Term:
    """Part ``i`` of ``x``, without the axis."""
    known: dict[Term, Term] = {}
    stack = [x]
    while stack:
        t = stack[-1]
        computed = t in within and _is_pointwise(t)
        missing = [a for a in t.args if a not in known] if computed else []
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if computed:
            op = t.op
            assert isinstance(op, Op)
            args = [known[a] for a in t.args]
            known[t] = make(op, t.graph, args, op.attr_dict(t))
        elif t in within and t.op is concatenate_op:
            known[t] = _without(t.args[i], axis)
        else:
            known[t] = _read(t, axis, i)
    return known[x]


def _read(t: Term, axis: int, i: int) -> Term:
    """Part ``i`` of what was not stacked; itself where it lacks the axis."""
    if t.ndim < -axis:
        return t
    if t.shape[axis] > 1:
        behind = t.shape[t.ndim + axis + 1 :]
        starts, sizes = (i, *(0 for _ in behind)), (1, *behind)
        ones = tuple(1 for _ in sizes)
        t = _applied("slice", t, starts=starts, sizes=sizes, steps=ones)
    return _without(t, axis)


def _without(t: Term, axis: int) -> Term:
    """``t`` without an axis of size 1, itself where that was added."""
    shape = list(t.shape)
    del shape[axis]
    if t.op is reshape_op and t.args[0].shape == tuple(shape):
        return t.args[0]
    return _reshaped(t, tuple(shape))


def _reshaped(t: Term, shape: tuple[int, ...]) -> Term:
    return t if t.shape == shape else _applied("reshape", t, shape=shape)


def _applied(name: str, *args: Term | int, **attrs: object) -> Term:
    t = args[0]
    assert isinstance(t, Term)
    return apply(Op.registry[name], t.graph, args, attrs)
