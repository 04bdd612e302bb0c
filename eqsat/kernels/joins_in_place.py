"""Joins whose parts lie one behind the other: kernels can compute these where they go,
so that nothing is copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, cast

from eqsat.ops import VIEWS, concatenate_op, reshape_op
from eqsat.terms import Op, Term, Type, Weak

LINE = 64
"""Where a part has to start (bytes, a multiple): on a line of the cache, as what a
kernel writes by itself does."""


def _starts(op: object, attrs: Sequence[Any], types: Sequence[Type]) -> list[int]:
    """Where each array starts in the result that joins them (bytes); none where they do
    not lie one behind the other, as along an axis that has others before it."""
    if op is not concatenate_op or any(isinstance(dtype, Weak) for dtype, _ in types):
        return []
    (axis,) = attrs
    if any(prod(shape[:axis]) != 1 for _, shape in types):
        return []
    starts = [0]
    for dtype, shape in types:
        starts.append(starts[-1] + cast(Any, dtype).itemsize * prod(shape))
    return starts[:-1]


def starts_in(join: Term) -> list[int]:
    """The same of a term."""
    return _starts(join.op, join.attrs, [a.type for a in join.args])


def in_place(
    op: Op, attrs: Sequence[Any], types: Sequence[Type], made: Sequence[bool]
) -> list[bool]:
    """Which parts of a join are computed where they go, of those that a kernel has
    ``made``; none where none is."""
    starts = _starts(op, attrs, types)
    found = [is_ and s % LINE == 0 for s, is_ in zip(starts, made, strict=False)]
    return found if any(found) else []


def made_parts(term: Term) -> Iterator[bool]:
    """Whether a kernel writes each argument, or what it is a reshape of, for ``term``
    first."""
    known: set[Term] = set()
    for a in term.args:
        base = a
        while base.op is reshape_op:
            base = base.args[0]
        assert isinstance(base.op, Op)
        is_view = base.op.kind == "leaf" or base.op in VIEWS
        yield not is_view and base not in known
        known.add(base)
