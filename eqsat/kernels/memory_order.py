"""An order of evaluation that keeps little in memory at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from eqsat.kernels.cost_model import nbytes
from eqsat.ops import VIEWS
from eqsat.terms import Op, Term
from eqsat.trace import KERNEL, RESULT, KernelBody


def least_memory_order(terms: Sequence[Term], roots: Sequence[Term]) -> list[Term]:
    """``terms``, which have arguments before users, in another such order: of the
    arguments of a term, the one comes first that takes the most memory beside what it
    leaves behind.

    That is the best order of a tree (J. W. H. Liu, 1986), where the value of a node
    takes up memory until it is read; of terms that share values it is a good one.
    """
    there = set(terms)
    need: dict[Term, int] = {}
    """Most memory of what a term is made of (bytes)."""
    args: dict[Term, list[Term]] = {}
    for t in terms:
        args[t] = _in_order([a for a in dict.fromkeys(t.args) if a in there], need)
        need[t] = _peak(args[t], need, _made(t))
    order: dict[Term, None] = {}
    stack = _in_order([r for r in dict.fromkeys(roots) if r in there], need)[::-1]
    while stack:
        missing = [a for a in args[stack[-1]] if a not in order]
        if missing:
            stack += missing[::-1]
        else:
            order[stack.pop()] = None
    return list(order)


def _in_order(terms: Sequence[Term], need: Mapping[Term, int]) -> list[Term]:
    return sorted(terms, key=lambda t: _held(t) - need[t])


def _peak(terms: Sequence[Term], need: Mapping[Term, int], made: int) -> int:
    """Most memory of terms one after another, and of what is made of them (bytes)."""
    peak = held = 0
    for t in terms:
        peak = max(peak, held + need[t])
        held += _held(t)
    return max(peak, held + made)


def _made(term: Term) -> int:
    """Memory that comes into being with a term (bytes)."""
    if term.op is KERNEL:
        body = cast(KernelBody, term.attrs[0])
        return int(sum(map(nbytes, body.types)))
    return 0 if term.op is RESULT else _held(term)


def _held(term: Term) -> int:
    """Memory that is given back when a term is read for the last time (bytes)."""
    op = cast(Op, term.op)
    several = op is KERNEL and len(cast(KernelBody, term.attrs[0]).types) > 1
    return 0 if several or op.kind == "leaf" or op in VIEWS else term.nbytes
