"""Constants that are computed where they are read: what they are made of."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.ops import cast_op
from eqsat.terms import BF16, CONSTANT, Term, Weak
from eqsat.trace import primitives

from ..loop_ir import (
    LOOPS,
)


@dataclass(frozen=True, eq=False)
class DeferredConstant:
    """A constant that a product computes."""

    term: Term
    """In primitives."""
    leaves: tuple[Term, ...]
    """What it is made of: constants, and small parts that are computed beforehand."""


def opened(term: Term) -> DeferredConstant:
    """What the constant ``term`` is made of."""
    whole = primitives(term)
    leaves: dict[Term, None] = {}
    seen, stack = {whole}, [whole]
    while stack:
        t = stack.pop()
        for a in t.args:
            if a in seen or isinstance(a.dtype, Weak):
                continue
            seen.add(a)
            kind = getattr(a.op, "kind", "")
            is_small = a.size * LOOPS.small_source <= whole.size
            if a.op is CONSTANT or is_small or kind not in ("pointwise", "view"):
                leaves[a] = None
            else:
                stack.append(a)
    return DeferredConstant(whole, tuple(leaves))


def source_of_pairs(of: DeferredConstant) -> Term | None:
    """The bfloat16 that are the whole of a constant in float32."""
    source, *others = of.leaves
    is_cast = of.term.op is cast_op and of.term.args == (source,)
    return source if is_cast and not others and source.dtype == BF16 else None
