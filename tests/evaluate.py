"""What terms compute, by the NumPy references of their ops alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat.op import CONSTANT, INPUT, SCALAR, Op
from eqsat.term import Term, postorder


def evaluate(outputs: Sequence[Term], inputs: Sequence[Any]) -> list[Any]:
    """The values of ``outputs``; INPUT leaf i is ``inputs[i]``.

    Every value must have the shape and dtype that its term says.
    """
    values: dict[Term, Any] = {}
    for term in postorder(outputs):
        values[term] = _value(term, [values[a] for a in term.args], inputs)
        if term.op is not SCALAR:
            found = np.asarray(values[term])
            assert (found.dtype, found.shape) == term.type, f"{term}: {found.dtype}"
    return [values[t] for t in outputs]


def _value(term: Term, args: Sequence[Any], inputs: Sequence[Any]) -> Any:
    if term.op is INPUT:
        return np.asarray(inputs[term.attrs[0]])
    if term.op is CONSTANT:
        return term.graph.arrays[term.attrs[0]]
    if term.op is SCALAR:
        return term.attrs[0]
    assert isinstance(term.op, Op)
    return term.op.reference(*args, **term.op.attr_dict(term))
