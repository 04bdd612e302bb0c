"""Values of a kernel that are known before it runs, and constants that are computed
where they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from eqsat.ops import cast_op
from eqsat.terms import BF16, CONSTANT, SCALAR, Op, Term, Weak
from eqsat.trace import primitives

from ..interpret import evaluate
from ..loop_ir import (
    LOOPS,
)

_SUMS = ("reduce", "contract")
"""Kinds of ops that make elements of arrays without any."""


def fixed_terms(
    terms: Sequence[Term], roots: Sequence[Term], leaves: Sequence[Term]
) -> dict[Term, Any]:
    """The ``terms`` above ``leaves`` that are known beforehand and that others or
    ``roots`` are made of, with their values."""
    given = set(leaves)
    known: set[Term] = set()

    def is_known(t: Term) -> bool:
        bare = isinstance(t.dtype, Weak) or t.op is CONSTANT or t.op is SCALAR
        return t in known or (bare and t not in given)

    for t in terms:
        if t not in given and all(is_known(a) for a in t.args):
            known.add(t)
    used = {a for t in terms if t not in known for a in t.args if is_known(a)}
    used |= {r for r in roots if is_known(r)}
    found = {}
    for t in sorted(used - given, key=lambda t: t.id):
        if not isinstance(t.dtype, Weak):
            found[t] = np.asarray(evaluate([t], {})[t])
    return found


def sums_of_nothing(terms: Sequence[Term]) -> dict[Term, np.ndarray[Any, Any]]:
    """Those of ``terms`` whose elements are made of arrays without any, with the number
    that all of their elements are."""
    return {
        t: _of_nothing(t)
        for t in terms
        if cast(Op, t.op).kind in _SUMS and t.size and any(a.size == 0 for a in t.args)
    }


def _of_nothing(term: Term) -> np.ndarray[Any, Any]:
    """The number that all elements of ``term`` are, whose argument has none."""
    op = cast(Op, term.op)
    args = [np.empty(a.shape, cast("np.dtype[Any]", a.dtype)) for a in term.args]
    with np.errstate(invalid="ignore"):
        value = np.asarray(op.reference(*args, **op.attr_dict(term)))
    return value.reshape(-1)[:1].copy()


# -- constants that products compute ---------------------------------------------------


@dataclass(frozen=True, eq=False)
class DeferredConstant:
    """A constant that a product computes."""

    term: Term
    """In primitives."""
    leaves: tuple[Term, ...]
    """What it is made of: constants, and small parts that are computed beforehand."""


def opened(term: Term) -> DeferredConstant:
    """What the constant ``term`` is made of."""
    whole = primitives(term)
    leaves: dict[Term, None] = {}
    seen, stack = {whole}, [whole]
    while stack:
        t = stack.pop()
        for a in t.args:
            if a in seen or isinstance(a.dtype, Weak):
                continue
            seen.add(a)
            kind = getattr(a.op, "kind", "")
            is_small = a.size * LOOPS.small_source <= whole.size
            if a.op is CONSTANT or is_small or kind not in ("pointwise", "view"):
                leaves[a] = None
            else:
                stack.append(a)
    return DeferredConstant(whole, tuple(leaves))


def source_of_pairs(of: DeferredConstant) -> Term | None:
    """The bfloat16 that are the whole of a constant in float32."""
    source, *others = of.leaves
    is_cast = of.term.op is cast_op and of.term.args == (source,)
    return source if is_cast and not others and source.dtype == BF16 else None
