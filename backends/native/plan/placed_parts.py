"""Results of kernels that lie where a join wants them, so that nothing is copied."""

from __future__ import annotations

from eqsat.kernels import LINE, Kernel, Program, View, part_starts
from eqsat.ops import concatenate_op, reshape_op
from eqsat.terms import Term

Placed = dict[Term, tuple[Term, int]]
"""A result, the join that it is a part of, and where it starts there (bytes)."""


def placed_parts(program: Program, owners: set[int]) -> Placed:
    """The results that are computed where a join wants them. Those whose slots are
    ``owners`` are returned, and lie elsewhere."""
    found: Placed = {}
    plan = program.plan
    bases = {s.term: s.base for s in program.steps if isinstance(s, View)}
    steps = [s for s in program.steps if isinstance(s, Kernel)]
    made = {r for k in steps for r in k.results}
    returned = {bases.get(r, r) for r in program.roots}
    for k in reversed(steps):  # a join that is a part of a later one goes there
        term = k.term
        if k.op is not concatenate_op or "numpy" in k.op.lowerings:
            continue
        slot = plan.slot_of[term]
        if slot in owners and plan.slots[slot].values != (term,):
            continue  # what is returned lies there, and others before it
        types = [a.type for a in term.args]
        starts = part_starts(k.op, term.attrs, types)
        for a, start in zip(term.args, starts, strict=False):
            part = _whole(a, bases)
            if part not in made or part in found or part in returned:
                continue
            if start % LINE == 0 and part.nbytes:
                found[part] = term, start
    return found


def _whole(term: Term, bases: dict[Term, Term]) -> Term | None:
    """What ``term`` is, or only a reshape of."""
    base = bases.get(term, term)
    while term is not base:
        if term.op is not reshape_op:
            return None
        term = term.args[0]
    return base
