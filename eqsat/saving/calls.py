"""How the function of a trace is called, as plain data."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

import numpy as np

from eqsat.saved import (
    ArrayType,
    NamedTree,
    SavedArgument,
    SavedCalls,
    SavedResult,
    digest_of,
    tree_of,
)
from eqsat.support import SavedProgramError
from eqsat.terms import Term
from eqsat.trace import Trace


def calls_of(trace: Trace, name: str) -> SavedCalls:
    """How the function of a trace is called. Raises :class:`SavedProgramError` for what
    a file cannot hold."""
    if trace.ends:
        raise SavedProgramError(
            f"{name!r} cannot be saved: NumPy makes a result when the program has "
            "ended, since its shape depends on values"
        )
    if not trace.is_current():
        raise SavedProgramError(
            f"{name!r} cannot be saved: what it reads outside of its arguments has "
            "changed since it was lowered; lower it again"
        )
    if trace.strides:
        raise SavedProgramError(
            f"{name!r} cannot be saved: how its arguments lie in memory decides what "
            "it computes, since it writes to views of them"
        )
    call = trace.call
    given = tuple(
        NamedTree(n, tree_of(part, f"argument {n}"))
        for n, part in zip(call.names, call.parts, strict=True)
    )
    fixed = iter(trace.constants)
    arguments = tuple(
        SavedArgument(
            leaf.path,
            ArrayType(leaf.dtype.name, leaf.shape),
            digest_of(np.asarray(next(fixed))) if leaf.constant else "",
        )
        for leaf in call.leaves
    )
    numbers = (*trace.numbers, *(False for _ in trace.writes.places))
    results = tuple(
        SavedResult(_type(t), is_number)
        for t, is_number in zip(trace.outputs, numbers, strict=True)
    )
    return SavedCalls(
        name,
        given[: call.by_position],
        given[call.by_position :],
        arguments,
        tree_of(trace.out_tree, "the result"),
        results,
        tuple(trace.writes.places),
        tuple(trace.writes.returned.items()),
    )


def _type(term: Term) -> ArrayType:
    return ArrayType(cast("np.dtype[Any]", term.dtype).name, term.shape)


def made_by() -> str:
    """This version of eqsat, in words."""
    try:
        return f"eqsat {version('eqsat')}"
    except PackageNotFoundError:  # it runs from a source tree
        return "eqsat"
