"""Decisions: ops that jump, and what flows into them.

A comparison, a rounding, a position of the largest jumps where its operand moves by a
rounding. What it is computed from should be what the user wrote, bit for bit, as far as
a backend promises bits: through elementwise ops and those that round nothing, up to
sums, products and other functions of many elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.kernels.kernel import View, inner, likeness
from eqsat.kernels.program import Program
from eqsat.terms import EXACT, FLAT, HALF, SCALAR, Op, Term, is_float
from eqsat.trace import body_of


def decides(t: Term) -> bool:
    """Whether ``t`` jumps where a floating operand moves by a rounding."""
    op = t.op
    if not isinstance(op, Op) or not _of_floats(t):
        return False
    if op.decides is not None:
        return op.decides
    return not is_float(t.dtype) or op.vjp == FLAT


def _of_floats(t: Term) -> bool:
    return any(a.op is not SCALAR and is_float(a.dtype) for a in t.args)


def _is_widened(t: Term) -> bool:
    """Whether ``t`` is a half in a wider dtype, in which its rounding shows."""
    wide = t.dtype not in HALF and isinstance(t.op, Op) and t.op.name == "cast"
    return wide and t.args[0].dtype in HALF


def zones(terms: Sequence[Term]) -> list[list[Term]]:
    """The decisions among ``terms``, which are given arguments first, with what they
    are computed from: a list for all that hang together."""
    inside: set[Term] = set()
    for t in reversed(terms):
        if t in inside or decides(t):
            inside.add(t)
            inside.update(a for a in t.args if _passes(a))
    group: dict[Term, list[Term]] = {}
    for t in terms:
        if t not in inside:
            continue
        group[t] = mine = [t]
        for a in t.args:
            other = group.get(a, mine)
            if other is not mine:
                small, large = sorted((mine, other), key=len)
                large += small
                group.update(dict.fromkeys(small, large))
                mine = large
    distinct = {id(g): g for g in group.values()}
    return [sorted(g, key=lambda t: t.id) for g in distinct.values()]


def _passes(t: Term) -> bool:
    """Whether each element of ``t`` is computed of few others, or rounds nothing."""
    op = t.op
    if not isinstance(op, Op) or not t.args or not is_float(t.dtype):
        return False
    if op.body is not None:
        return _is_pointwise(t)
    return op.kind in ("pointwise", "view") or op.roundings == EXACT


def _is_pointwise(t: Term) -> bool:
    """Whether a composite is made of pointwise ops alone."""
    body = body_of(t)
    assert body is not None
    return all(
        isinstance(u.op, Op) and u.op.kind == "pointwise" for u in inner([body], t.args)
    )


def rounds(t: Term) -> bool:
    """Whether ``t``, which a decision is computed from, rounds."""
    return not decides(t) and isinstance(t.op, Op) and t.op.roundings != EXACT


# -- in programs -----------------------------------------------------------------------


def decided(program: Program) -> frozenset[Term]:
    """The kernels, by their terms, whose divisions and roundings to half precision flow
    into decisions, or whose halves are read in a wider dtype."""
    distinct = {likeness(k.term, k.results): k for k in program.kernels}
    some = (inner(k.bodies, k.term.args) for k in distinct.values())
    if not any(_ends(t) for own in some for t in own):
        return frozenset()
    computed = {k.term: inner(k.bodies, k.term.args) for k in program.kernels}
    todo = [t for own in computed.values() for t in own if _ends(t)]
    bodies = {
        r: b for k in program.kernels for r, b in zip(k.results, k.bodies, strict=True)
    }
    bases = {s.term: s.base for s in program.steps if isinstance(s, View)}
    shown: set[Term] = set()
    seen = set(todo)
    while todo:
        t = todo.pop()
        if _ends(t):
            shown.update(a for a in t.args if a.dtype in HALF)
        elif not _passes(t):
            continue
        for a in t.args:
            a = bases.get(a, a)
            a = bodies.get(a, a)
            if a not in seen:
                seen.add(a)
                todo.append(a)
    shown |= {t for t in seen if _passes(t) and (_is_quotient(t) or t.dtype in HALF)}
    return frozenset(k for k, own in computed.items() if not shown.isdisjoint(own))


def _ends(t: Term) -> bool:
    return decides(t) or _is_widened(t)


def _is_quotient(t: Term) -> bool:
    return isinstance(t.op, Op) and t.op.name == "divide"


__all__ = ["decided", "decides", "rounds", "zones"]
