"""What is computed again where it is used again, and what had better be in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from eqsat.terms import Cost, Op, Term

from ..loop_ir import LoopTuning, weight
from .value_graph import (
    KernelValue,
    below,
    followed,
)


def cost_of(term: Term) -> Cost:
    """How long an element of ``term`` takes."""
    return cast(Op, term.op).cost


@dataclass(frozen=True)
class Again:
    """What it takes to compute values again, where ``memory`` holds some."""

    memory: Collection[Term]
    tuning: LoopTuning

    def computed(self, term: Term) -> Iterator[Term]:
        """What is computed to compute ``term``, up to reductions and the like."""
        seen, stack = {term}, [term]
        while stack:
            t = stack.pop()
            if t in self.memory or cast(Op, t.op).kind not in ("pointwise", "view"):
                continue
            yield t
            stack += set(t.args) - seen
            seen.update(t.args)

    def is_too_much(self, term: Term, more: int, additions: int) -> bool:
        """Whether ``more`` elements of ``term`` than it has, of so many ``additions``
        each, take longer to compute than to write and to read all that it has."""
        near, far = self.tuning.again
        memory = near if term.nbytes < self.tuning.again_bytes else far
        return more * additions > term.size * memory

    def both(self, term: Term, roots: Iterable[Term]) -> list[Term]:
        """What is computed to compute ``term``, and for ``roots`` beside it as well."""
        reached, stack = {term}, [r for r in roots if r is not term]
        while stack:
            t = stack.pop()
            if t not in reached and t not in self.memory:
                reached.add(t)
                stack += t.args
        reached.remove(term)
        return [
            t
            for t in self.computed(term)
            if t in reached and cast(Op, t.op).kind == "pointwise"
        ]


def additions(values: Sequence[KernelValue], number: int) -> int:
    """What a value takes, in additions; a load counts as one. What does not follow all
    of its variables is computed outside of the innermost loop."""
    near = followed(values, below(values, [number]))
    most = near[number]
    return sum(weight(values[i].op) for i, own in near.items() if own == most)
