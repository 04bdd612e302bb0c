"""Portions of inputs that a loop goes through: ``x[0]``, ``x[1]``, ….

The steps of a loop differ in which portion they read and else are alike. A portion that
is a view costs nothing wherever it is made, so that it may come from outside, as an
input does: what is left of the steps is equal, and is optimised once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eqsat.cost import VIEWS
from eqsat.kernel import strides_of_view
from eqsat.op import INPUT, Op
from eqsat.term import Term

LEAST = 8
"""Portions of one input from which on they are those of a loop. Fewer are parts that a
rule may know: the gates of a network, the halves of a rotation."""


def portions(terms: Iterable[Term]) -> frozenset[Term]:
    """Those of ``terms``, given arguments first, that are portions of inputs or views
    of them. The portions of an input have one shape and share no element."""
    families: dict[tuple[object, ...], list[Term]] = {}
    readers: dict[Term, list[Term]] = {}
    for t in terms:
        if isinstance(t.op, Op) and t.op.name in VIEWS:
            (source,) = t.args
            readers.setdefault(source, []).append(t)
            if t.op.name == "slice" and source.op is INPUT:
                _, sizes, steps = t.attrs
                families.setdefault((source, sizes, steps), []).append(t)
    found: dict[Term, tuple[int, ...]] = {}
    for (source, *_), family in families.items():
        assert isinstance(source, Term)
        if len(family) < LEAST or sum(t.size for t in family) > source.size:
            continue
        for t in family:
            strides = _strides(t, None)
            if strides is not None:
                found[t] = strides
    stack = list(found)
    while stack:
        t = stack.pop()
        for view in readers.get(t, ()):
            strides = _strides(view, found)
            if view.op.name == "reshape" and strides is not None:
                found[view] = strides
                stack.append(view)
    return frozenset(found)


def _strides(
    t: Term, known: Mapping[Term, tuple[int, ...]] | None
) -> tuple[int, ...] | None:
    """Strides of a view of an input or of something ``known``; None when it has to
    copy."""
    op, (source,) = t.op, t.args
    assert isinstance(op, Op)
    strides = None if known is None else known[source]
    return strides_of_view(op, op.attr_dict(t), source.shape, strides)
