"""Composites opened: the body of an op as terms, one level or down to primitives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from eqsat.numpy_api import AtEnd
from eqsat.support import watched_call
from eqsat.terms import Op, Term, Weak, cast_to
from eqsat.trace.tracer import Tracer


def body_of(term: Term) -> Term | None:
    """The body of a composite applied to its arguments, in the dtype that the composite
    has; None for a primitive."""
    op = term.op
    assert isinstance(op, Op)
    if op.body is None:
        return None
    args = (Tracer(a) for a in term.args)
    out = watched_call(op.body, *args, **op.attr_dict(term))
    if isinstance(out, AtEnd):
        out.refuse(f"{op.name}: {{}} as the result of an op")
    assert isinstance(out, Tracer)
    if isinstance(term.dtype, Weak):
        return out.term
    return cast_to(out.term, term.dtype)


def primitives(
    root: Term,
    leaves: Mapping[Term, Term] | None = None,
    closed: Callable[[Term], bool] = lambda term: False,
) -> Term:
    """``root`` with every composite above ``leaves`` opened, but those that are to stay
    ``closed``; ``leaves`` are replaced as given."""
    return rebuilt(
        [root], leaves or {}, lambda term: None if closed(term) else body_of(term)
    )[0]


def rebuilt(
    roots: Iterable[Term],
    leaves: Mapping[Term, Term],
    opened: Callable[[Term], Term | None] = lambda term: None,
) -> list[Term]:
    """``roots`` with every term above ``leaves`` replaced by what it ``opened`` to, if
    anything; ``leaves`` are replaced as given."""
    roots = list(roots)
    done: dict[Term, Term] = dict(leaves)
    for root in roots:
        with root.graph.lines() as now:
            _rebuild(root, done, opened, now)
    return [done[root] for root in roots]


def _rebuild(
    root: Term,
    done: dict[Term, Term],
    opened: Callable[[Term], Term | None],
    now: Callable[[Term], None],
) -> None:
    """Put what ``root`` becomes into ``done``; ``now`` is told the term at hand."""
    bodies: dict[Term, Term | None] = {}
    stack = [root]
    while stack:
        term = stack[-1]
        if term in done:
            stack.pop()
            continue
        now(term)
        if term not in bodies:
            bodies[term] = opened(term)
        body = bodies[term]
        needs = [body] if body is not None else [a for a in term.args if a not in done]
        missing = [t for t in needs if t not in done]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if body is not None:
            done[term] = done[body]
        else:
            args = [done[a] for a in term.args]
            done[term] = term.graph.node(term.op, args, term.attrs, term.type)
