"""The oracle: terms evaluated one by one through the references of their ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from eqsat.support import BackendError
from eqsat.terms import CONSTANT, INPUT, SCALAR, Op, Term, Weak, postorder

Array = np.ndarray[Any, Any]
Value = Array | float
"""An array, or the bare number that a term without a dtype of its own stands for."""


def interpret(roots: Sequence[Term], inputs: Sequence[Array]) -> list[Array]:
    """The values of ``roots``; ``inputs[i]`` is the value of the INPUT leaf ``i``.

    Results share no memory with the inputs or one another. Raises :class:`BackendError`
    when a reference breaks the type of its term.
    """
    leaves = {
        t: np.asarray(inputs[cast(int, t.attrs[0])])
        for t in postorder(roots)
        if t.op is INPUT
    }
    values = evaluate(roots, leaves)
    return [np.array(values[r], order="C") for r in roots]


def evaluate(roots: Sequence[Term], known: Mapping[Term, Value]) -> dict[Term, Value]:
    """The values of all terms from ``known`` ones up to ``roots``."""
    values = dict(known)
    with np.errstate(all="ignore"):
        for t in postorder(roots):
            if t not in values:
                values[t] = _value(t, [values[a] for a in t.args])
    return values


def _value(term: Term, args: Sequence[Value]) -> Value:
    op = cast(Op, term.op)
    if op is SCALAR:
        return cast(float, term.attrs[0])
    if op is CONSTANT:
        return term.graph.arrays[cast(int, term.attrs[0])]
    if op is INPUT:
        raise BackendError(f"no value for input {term.attrs[0]}")
    result = np.asarray(op.reference(*args, **op.attr_dict(term)))
    if result.shape != term.shape:
        raise BackendError(
            f"{op.name}: the reference gave shape {result.shape}, not {term.shape}"
        )
    if isinstance(term.dtype, Weak):
        flat = result.reshape(-1)
        uniform = bool(flat.size) and bool(np.all((flat == flat[0]) | (flat != flat)))
        return term.dtype.value(flat[0]) if uniform else result
    if result.dtype != term.dtype:
        raise BackendError(
            f"{op.name}: the reference gave {result.dtype}, not {term.dtype}"
        )
    return result
