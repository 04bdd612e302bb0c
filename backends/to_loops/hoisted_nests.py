"""What a nest needs that had better be computed by another one before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

from eqsat.kernels import packed
from eqsat.ops import add
from eqsat.terms import HALF, Cost, Op, Term, postorder

from ..loop_ir import (
    Layout,
    Operand,
    Split,
)
from .computed_again import (
    Again,
    cost_of,
)
from .schedule import (
    LoopTarget,
)
from .values import (
    Conflict,
    Values,
    computed_dtype,
)


def has_parts(term: Term) -> bool:
    """Whether a reduction can reduce the results of its parts."""
    op = cast(Op, term.op)
    return op.join is not None or op.fold is not None


@dataclass(frozen=True)
class HoistedNests:
    """What is computed apart, for a target, beside what is in memory."""

    target: LoopTarget
    memory: Mapping[Term, Any]
    again: Again
    rounds: bool
    """See :class:`Values`."""

    def terms(self, values: Values, results: Sequence[Term]) -> list[Term]:
        """What to compute before a nest of ``values`` that makes ``results``; then more
        may follow."""
        reductions = (
            [] if values.reductions.row is None else self._reductions(values, results)
        )
        return reductions or self._of_columns(values)

    def shared(self, term: Term, roots: Sequence[Term]) -> list[Term]:
        """What a nest of ``roots`` computes as well as ``term``, which it is part of,
        where that takes longer than to have it in memory as well."""
        found = [
            t
            for t in self.again.both(term, roots)
            if self.again.is_too_much(t, t.size, self._additions(t))
        ]
        below = {x for t in found for x in self.again.computed(t) if x is not t}
        return [t for t in found if t not in below]

    def _additions(self, term: Term) -> int:
        """What one element of ``term`` takes, in additions."""
        memory, splits = dict(self.memory), dict[str, int]()
        while True:
            values = Values(memory, splits, self.rounds)
            try:
                number = values.root(term, values.index("i", term.shape))
                return values.additions(number)
            except Split as split:
                splits[split.var.name] = split.inner
            except Conflict as conflict:
                splits.clear()
                t = conflict.term
                if t is term:
                    return 0
                there = Operand("temporary", -1, computed_dtype(t))
                memory[t] = there, Layout(packed(t.shape))

    def _reductions(self, values: Values, results: Sequence[Term]) -> list[Term]:
        """Those of them that are reductions, where there are any."""
        assert values.reductions.row is not None
        rows = prod(v.size for v in values.reductions.grid)
        once = all(r.size <= rows for r in results)
        tall = [t for t in values.reductions.terms if self._is_tall(t)]
        if tall and [*results] != values.reductions.terms:
            found = tall if once else self._first_of(tall)
            if found:
                return found
        if self.target.threads == 1 and not once:
            return []  # what else a nest computes of the row would be computed again
        apart = [
            t for t in values.reductions.terms if t not in self.memory and has_parts(t)
        ]
        elements = rows * prod(v.size for v in values.reductions.row)
        return [t for t in apart if self.is_parted(t, rows, elements)]

    def _first_of(self, tall: Sequence[Term]) -> list[Term]:
        """Which reductions of tall columns come first where elements are used again:
        not those of functions, which would be computed twice, unless these are computed
        into memory before."""
        heavy = [t.args[0] for t in tall if self._calls(t.args[0])]
        light = [t for t in tall if t.args[0] not in heavy]
        uses = Counter(x for h in heavy for x in {*self.again.computed(h)})
        whole = self.target.tuning.whole_panels
        kept = [x for x in heavy if x.shape[-1] % whole or uses[x] > 1]
        return light or kept[:1]

    def _of_columns(self, values: Values) -> list[Term]:
        """What takes long to compute of columns, where each of many rows would compute
        it again."""
        lane = values.base[-1] if values.base else None
        if not self.target.sweeps or lane is None or lane in values.reductions.grid:
            return []
        domain = prod(v.size for v in values.base)
        least = self.target.tuning.again_rows
        found: list[Term] = []
        for term, index in values.known:
            near = {v for e in index for v in e.variables}
            often = domain // max(prod(v.size for v in near), 1) >= least
            own = cast(Op, term.op).kind == "pointwise" and term.dtype not in HALF
            if lane in near and often and own and self._takes_long(term):
                found.append(term)
        below = {t for f in found for t in postorder(f.args)}
        return [t for t in dict.fromkeys(found) if t not in below]

    def _takes_long(self, term: Term) -> bool:
        """Whether computing ``term`` takes long."""
        return any(cost_of(t) > Cost.LIGHT for t in self.again.computed(term))

    def _is_tall(self, term: Term) -> bool:
        """Whether columns are better reduced before what follows is computed: a nest of
        both goes through memory for a few columns at a time, each time anew. Those of
        halves stay in float32."""
        known = term in self.memory or term.dtype in HALF
        if not self.target.sweeps or known or not has_parts(term):
            return False
        (x,), axes, least = term.args, _axes(term), self.target.tuning
        beside = x.ndim - 1 not in axes and x.shape[-1] >= least.tall_width
        tall = x.size >= term.size * least.tall_elements
        tall &= x.nbytes > least.tall_bytes
        return beside and tall

    def _calls(self, term: Term) -> bool:
        """Whether functions are computed to compute ``term``."""
        return any(cost_of(t) is Cost.FUNCTION for t in self.again.computed(term))

    def is_parted(self, term: Term, rows: int, elements: int) -> bool:
        """Whether so many rows of so many elements in all are reduced in two steps: few
        rows of many elements, which would leave threads idle, or run in one
        direction."""
        known = self.target.tuning
        if self.target.threads > 1:
            return rows < self.target.threads and elements >= known.split_elements
        if not self.target.sweeps or elements < known.swept_elements:
            return False
        x = term.args[0]
        beside = x.ndim - 1 not in _axes(term)
        long = elements >= rows * known.parts * known.least_part
        long &= x.nbytes < known.most_beside_bytes
        return rows == 1 or (beside and long) or self.ends(term) > 0

    def ends(self, term: Term) -> int:
        """The share of a sum that each of its ends has, as :class:`Nest` says it: of
        one row of columns in memory that are longer than parts should be; 0 for
        others."""
        x, axes, known = term.args[0], _axes(term), self.target.tuning
        kept = [a for a in range(x.ndim) if a not in axes and x.shape[a] > 1]
        whole = len(kept) == 1 and max(axes) < kept[0]
        large = known.most_beside_bytes <= x.nbytes <= known.most_with_ends_bytes
        large &= term.size <= known.ends_width
        one = self.target.threads == 1 and self.target.sweeps
        plain = cast(Op, term.op).join is add and x in self.memory
        return (
            x.nbytes // known.sum_ends_bytes if one and plain and whole and large else 0
        )


def _axes(term: Term) -> set[int]:
    """The axes of its argument that a reduction runs over."""
    axes = cast(Op, term.op).attr_dict(term)["axis"]
    return {a % term.args[0].ndim for a in axes}
