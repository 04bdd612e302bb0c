"""Results of kernels that lie where a join wants them, so that nothing is copied."""

from __future__ import annotations

from eqsat.kernels import LINE, Kernel, Program, bases_of, is_reshaped, starts_in
from eqsat.ops import concatenate_op
from eqsat.terms import Term

Placed = dict[Term, tuple[Term, int]]
"""A result, the join that it is a part of, and where it starts there (bytes)."""


def placed_parts(program: Program, owners: set[int]) -> Placed:
    """The results that are computed where a join wants them. Those whose slots are
    ``owners`` are returned, and lie elsewhere."""
    found: Placed = {}
    plan = program.plan
    bases = bases_of(program.steps)
    steps = [s for s in program.steps if isinstance(s, Kernel)]
    made = {r for k in steps for r in k.results}
    returned = {bases.get(r, r) for r in program.roots}
    for k in reversed(steps):  # a join that is a part of a later one goes there
        term = k.term
        if k.op is not concatenate_op:
            continue
        slot = plan.slot_of[term]
        if slot in owners and plan.slots[slot].values != (term,):
            continue  # what is returned lies there, and others before it
        for a, start in zip(term.args, starts_in(term), strict=False):
            part = bases.get(a, a)
            if part not in made or part in found or part in returned:
                continue
            if start % LINE == 0 and part.nbytes and is_reshaped(a, part):
                found[part] = term, start
    return found
