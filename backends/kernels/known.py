"""Values of a kernel that are known before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat.op import CONSTANT, SCALAR
from eqsat.term import Term, Weak

from ..interpret import evaluate


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
