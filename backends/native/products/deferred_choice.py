"""Constants that are computed where products read them, and not beforehand.

A matrix in few bits is a fourth of the float32 that it stands for. What a program makes
of constants is computed once; but where that takes more memory than the constants do,
a product that reads it from memory waits.
"""

from __future__ import annotations

from math import prod
from typing import Any, cast

import numpy as np

from eqsat.kernels import Kernel, Program, View, inner, packed
from eqsat.ops import cast_op, matmul_op
from eqsat.terms import BF16, Term

from ...loop_ir import (
    Layout,
    Unsupported,
)
from ...to_loops import (
    DeferredConstant,
    is_short,
    opened,
    source_of_pairs,
)
from ..machine import Host


def deferred(program: Program, host: Host) -> tuple[int, ...]:
    """The positions in ``program.folded`` of what products are to compute."""
    found = []
    for i, t in enumerate(program.folded):
        if t.dtype == np.float32 and t.ndim == 2 and _is_worth_it(program, t, host):
            found.append(i)
    return tuple(found)


def _is_worth_it(program: Program, term: Term, host: Host) -> bool:
    of = opened(term)
    size = sum(a.nbytes for a in of.leaves)
    if 2 * size > term.nbytes:
        return False
    rows = _rows(program, term)
    if rows is None:
        return False
    if 3 * size > term.nbytes and rows > host.tuning.waiting_rows:
        is_paired = source_of_pairs(of) is not None and host.has_bfloat_pairs
        if not (is_paired and _are_bfloats(program, term)):
            return False
    return _can_compute(of, host)


def _are_bfloats(program: Program, term: Term) -> bool:
    """Whether all that is multiplied by ``term`` is made of bfloat16."""
    for kernel in program.kernels:
        for t in inner(kernel.bodies, kernel.term.args):
            if term in t.args:
                x = t.args[0]
                is_made = x.op is cast_op and x not in kernel.term.args
                if not is_made or x.args[0].dtype != BF16:
                    return False
    return True


def _rows(program: Program, term: Term) -> int | None:
    """Most rows of the products whose right operand ``term`` is; None where it is read
    otherwise."""
    if term in program.roots:
        return None
    most = 0
    for step in program.steps:
        if isinstance(step, View):
            if step.base is term:
                return None
        elif term in step.inputs:
            found = _rows_of(step, term)
            if found is None:
                return None
            most = max(most, found)
    return most


def _rows_of(kernel: Kernel, term: Term) -> int | None:
    if term in kernel.bodies or "numpy" in kernel.op.lowerings:
        return None
    most = 0
    for t in inner(kernel.bodies, kernel.term.args):
        if term in t.args:
            if t.op is not matmul_op or t.args[0] is term:
                return None
            if t.dtype != np.float32 or t.size == 0 or is_short(t):
                return None
            most = max(most, prod(t.shape[:-1]))
    return most


def _can_compute(of: DeferredConstant, host: Host) -> bool:
    """Whether there is code for it."""
    # Not where a program is on disk: what there is is known then.
    from ...loop_ir import (
        Operand,
    )
    from ...to_loops import (
        mapped,
        work,
    )
    from ..loops import check
    from . import gemm_plan
    from .computed_operand import nest_of

    if not gemm_plan.is_better(host):
        return False
    memory = {
        a: (
            Operand("array", a, cast("np.dtype[Any]", a.dtype)),
            Layout(packed(a.shape)),
        )
        for a in of.leaves
    }
    found = mapped(of.term, memory)
    if found is None or work(found) > host.tuning.light_additions:
        return False
    try:
        check(nest_of(found), host)
    except Unsupported:
        return False
    return True
