"""Values of a kernel that are known before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from eqsat.terms import CONSTANT, SCALAR, Op, Term, Weak

from ..interpret import evaluate

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
