"""Cheaper arithmetic for kernels that write halves only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from eqsat.terms import HALF

from ...loop_ir import (
    Compute,
    Const,
    Nest,
    Pass,
    Statement,
    operands,
)

PLUS_ONE = "erf_plus_one"
HALF_PLUS_ONE = "half_erf_plus_one"


def fuse_erf(nest: Nest) -> Nest:
    """``nest`` with ``1 + erf x``, and half of it in a GELU, as one op each, where
    all that is written is of half precision."""
    if not all(b.dtype in HALF for b in nest.buffers if b.written):
        return nest
    numbers = {s.target: s.value for s in nest.statements() if isinstance(s, Const)}
    uses = Counter(a for s in nest.statements() for a in operands(s))
    passes = tuple(
        Pass(
            _shorter(p.before, numbers, uses), p.loops, _shorter(p.body, numbers, uses)
        )
        for p in nest.passes
    )
    return replace(nest, passes=passes)


def _shorter(
    statements: Sequence[Statement], numbers: dict[int, float], uses: Counter[int]
) -> tuple[Statement, ...]:
    found = {s.target: s for s in statements if isinstance(s, Compute)}

    def number_and(s: Compute, op: str, value: float) -> int | None:
        """What ``s`` applies ``op`` to besides this number."""
        if s.op == op:
            for a, b in (s.args, s.args[::-1]):
                if numbers.get(a) == value:
                    return b
        return None

    for s in list(found.values()):
        inner = number_and(s, "add", 1.0)
        of = found.get(inner) if inner is not None else None
        if of is not None and of.op == "erf":
            found[s.target] = replace(s, op=PLUS_ONE, args=of.args)
    for s in list(found.values()):
        if s.op != "multiply":
            continue
        for a, b in (s.args, s.args[::-1]):
            x = number_and(found[a], "multiply", 0.5) if a in found else None
            if x is not None and b in found and uses[b] == 1:
                if found[b].op == PLUS_ONE:
                    found[b] = replace(found[b], op=HALF_PLUS_ONE)
                    found[s.target] = replace(s, args=(x, b))
                    break
    changed = [found[s.target] if isinstance(s, Compute) else s for s in statements]
    return _without_idle(changed, statements, uses)


def _without_idle(
    statements: list[Statement], before: Sequence[Statement], uses: Counter[int]
) -> tuple[Statement, ...]:
    """``statements`` without those that only what was there ``before`` used."""
    left = uses.copy()
    left.subtract(Counter(a for s in before for a in operands(s)))
    left.update(Counter(a for s in statements for a in operands(s)))
    kept: list[Statement] = []
    for s in reversed(statements):
        if isinstance(s, Compute) and left[s.target] <= 0 < uses[s.target]:
            left.subtract(s.args)
        else:
            kept.append(s)
    return tuple(reversed(kept))
