"""What the steps of a loop differ in: portions of inputs, ``x[0]``, ``x[1]``, …, and
numbers that count steps, ``0.9**t``.

Both may come from outside, as an input does: a portion that is a view costs nothing
wherever it is made. What is left of the steps is equal, and is optimised once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eqsat.kernels import strides_of_view
from eqsat.ops import VIEWS, reshape_op, slice_op
from eqsat.terms import INPUT, SCALAR, Op, Term

LEAST = 8
"""Portions of one input from which on they are those of a loop. Fewer are parts that a
rule may know: the gates of a network, the halves of a rotation."""
MANY = 32
"""Numbers in one place from which on they are those of steps, and not the coefficients
of a function that a rule may know."""
PLACES = frozenset("add subtract multiply divide".split())
"""Ops whose rules, but for folding, do not depend on which number it is."""
KNOWN = frozenset((-1, 0, 1))
"""Numbers that rules look for there."""


def varying(terms: Sequence[Term]) -> frozenset[Term]:
    """Those of ``terms``, given arguments first, that the steps of loops differ in."""
    return portions(terms) | numbers(terms)


def numbers(terms: Iterable[Term]) -> frozenset[Term]:
    """Bare numbers that one or two of ``terms`` read, of which there are many in the
    same place of alike terms."""
    reads: Counter[Term] = Counter()
    places: dict[tuple[Any, ...], dict[Term, None]] = {}
    for t in terms:
        for i, a in enumerate(t.args):
            if a.op is SCALAR:
                reads[a] += 1
                key = (t.op, t.type, i, a.type) if _is_place(t.op) else None
                places.setdefault((key,), {})[a] = None
    structural = places.pop((None,), {})
    found: set[Term] = set()
    for family in places.values():
        few = [
            a
            for a in family
            if reads[a] <= 2 and a not in structural and a.attrs[0] not in KNOWN
        ]
        if len(few) >= MANY:
            found.update(few)
    return frozenset(found)


def _is_place(op: object) -> bool:
    return isinstance(op, Op) and op.name in PLACES


def portions(terms: Iterable[Term]) -> frozenset[Term]:
    """Those of ``terms``, given arguments first, that are portions of inputs or views
    of them. The portions of an input have one shape and share no element."""
    families: dict[tuple[Term, Any], list[Term]] = {}
    readers: dict[Term, list[Term]] = {}
    for t in terms:
        if isinstance(t.op, Op) and t.op in VIEWS:
            (source,) = t.args
            readers.setdefault(source, []).append(t)
            if t.op is slice_op and source.op is INPUT:
                _, sizes, steps = t.attrs
                families.setdefault((source, (sizes, steps)), []).append(t)
    found: dict[Term, tuple[int, ...]] = {}
    for (source, _), family in families.items():
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
            if view.op is reshape_op and strides is not None:
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
