"""What the forms of a program have in common: how it is called, as plain data, and the
processors that it is for."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

import numpy as np

from eqsat.saved import (
    LEVELS,
    NATIVE,
    ArrayType,
    NamedTree,
    SavedArgument,
    SavedCalls,
    SavedResult,
    digest_of,
    tree_of,
)
from eqsat.support import OptionError, SavedProgramError, nearest
from eqsat.terms import Term
from eqsat.trace import Trace

_BEST = [NATIVE, *reversed(LEVELS)]
"""Processors that code can be for, the one with the most features first."""


def refuse_others(trace: Trace, name: str) -> None:
    """Raise :class:`SavedProgramError` for a function that is more than its program of
    arrays: what a file cannot hold, nor a model of ONNX."""
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


def calls_of(trace: Trace, name: str) -> SavedCalls:
    """How the function of a trace is called. Raises :class:`SavedProgramError` for what
    a file cannot hold."""
    refuse_others(trace, name)
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


def best_first(cpus: Iterable[str]) -> list[str]:
    """Processors, the best one first. Raises :class:`OptionError`."""
    named = [cpus] if isinstance(cpus, str) else [*cpus]
    for cpu in named:
        if cpu not in _BEST:
            known = ", ".join(map(repr, _BEST))
            raise OptionError(f"cpu={cpu!r}: expected {known}{nearest(cpu, _BEST)}")
    if not named:
        raise OptionError("cpu=(): expected one or more processors, such as 'native'")
    return sorted(set(named), key=_BEST.index)
