"""What a nest needs that had better be computed by another one before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

from eqsat.terms import HALF, Op, Term, postorder

from .schedule import LoopTarget
from .values import FUNCTIONS, Values

MANY = 1 << 16
"""Elements from which a reduction of few rows is split."""
SWEPT = 1 << 19
"""Elements from which a reduction to one number is split for one thread, too."""
CHUNKS = 32
"""Parts of a reduction of few rows."""
PART, MOST_BESIDE = 32, 1 << 23
"""Where rows lie side by side, elements that a part has of each at least, and bytes in
all from which parts take as long, or up to 1.05 times as long from memory."""
ENDS_BYTES, ENDS_WIDTH, MOST_WITH_ENDS = 17 << 17, 1024, 1 << 26
"""A little more than a second cache keeps of columns that are reduced from end to end;
columns that are read at once; and bytes in all up to which it counts. Of larger ones
than ``MOST_BESIDE`` only the ends are parts of their own. A call that runs the other
way finds most of one in the cache: on an Intel Xeon with 2 MiB of it 32 MB take 0.98
and 16 MB 0.97 of the time, in 32 equal parts, which begin anew each, 1.01. In several
panels maxima and sums of squares take 1.04."""
SUM_ENDS_BYTES = 3 << 19
"""The same for sums of what is in memory, which a second cache keeps whole: 32 MB take
0.97 and 16 MB 0.95 of the time. Maxima and sums of squares would take 1.03, since what
they read next comes slower than what follows ends that are kept in part."""
TALL_WIDTH, TALL, TALL_BYTES = 64, 1024, 1 << 20
"""Columns from which, their elements from which, and bytes of all above which, they are
reduced before what follows is computed: less of them a second cache holds. Variances
of 8192×1024 and 65,536×100 float32 take 0.46 and 0.30 of the time by that, means taken
off them 0.7 and 0.34, by two threads 0.6 and 0.3; of 300×3000 they would take 1.6."""
EVEN = 128
"""Columns, or multiples, of which a nest goes through memory in whole panels: softmax
down 65,536 rows of 100 takes 0.45 of the time where exponentials are kept in memory, of
64 0.66, of 256 1.1."""
AGAIN = 16
"""Rows from which what takes long to compute of columns is computed before them: with
the roots of 512 variances, batch norms of 512 rows take half the time."""
LONG = FUNCTIONS.union("divide sqrt rsqrt reciprocal floor_divide remainder".split())
"""Ops that take long."""


def has_parts(term: Term) -> bool:
    """Whether a reduction can reduce the results of its parts."""
    return term.op.name not in ("argmax", "argmin")


@dataclass(frozen=True)
class Apart:
    """What is computed apart, for a target, beside what is in memory."""

    target: LoopTarget
    memory: Mapping[Term, Any]

    def terms(self, values: Values, results: Sequence[Term]) -> list[Term]:
        """What to compute before a nest of ``values`` that makes ``results``; then more
        may follow."""
        reductions = (
            [] if values.reductions.row is None else self._reductions(values, results)
        )
        return reductions or self._of_columns(values)

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
        uses = Counter(x for h in heavy for x in {*self._computed(h)})
        kept = [x for x in heavy if x.shape[-1] % EVEN or uses[x] > 1]
        return light or kept[:1]

    def _of_columns(self, values: Values) -> list[Term]:
        """What takes long to compute of columns, where each of many rows would compute
        it again."""
        lane = values.base[-1] if values.base else None
        if not self.target.sweeps or lane is None or lane in values.reductions.grid:
            return []
        domain = prod(v.size for v in values.base)
        found: list[Term] = []
        for term, index in values.known:
            near = {v for e in index for v in e.variables}
            often = domain // max(prod(v.size for v in near), 1)
            own = cast(Op, term.op).kind == "pointwise" and term.dtype not in HALF
            if lane in near and often >= AGAIN and own and self._takes_long(term):
                found.append(term)
        below = {t for f in found for t in postorder(f.args)}
        return [t for t in dict.fromkeys(found) if t not in below]

    def _takes_long(self, term: Term) -> bool:
        """Whether computing ``term`` takes long."""
        return any(t.op.name in LONG for t in self._computed(term))

    def _computed(self, term: Term) -> Iterator[Term]:
        """What is computed to compute ``term``, up to reductions and the like."""
        seen, stack = {term}, [term]
        while stack:
            t = stack.pop()
            if t in self.memory or cast(Op, t.op).kind not in ("pointwise", "view"):
                continue
            yield t
            stack += set(t.args) - seen
            seen.update(t.args)

    def _is_tall(self, term: Term) -> bool:
        """Whether columns are better reduced before what follows is computed: a nest of
        both goes through memory for a few columns at a time, each time anew. Those of
        halves stay in float32."""
        known = term in self.memory or term.dtype in HALF
        if not self.target.sweeps or known or not has_parts(term):
            return False
        (x,), axes = term.args, _axes(term)
        beside = x.ndim - 1 not in axes and x.shape[-1] >= TALL_WIDTH
        tall = x.nbytes > TALL_BYTES and x.size >= term.size * TALL
        return beside and tall

    def _calls(self, term: Term) -> bool:
        """Whether functions are computed to compute ``term``."""
        return any(t.op.name in FUNCTIONS for t in self._computed(term))

    def is_parted(self, term: Term, rows: int, elements: int) -> bool:
        """Whether so many rows of so many elements in all are reduced in two steps: few
        rows of many elements, which would leave threads idle, or run in one
        direction."""
        if self.target.threads > 1:
            return rows < self.target.threads and elements >= MANY
        if not self.target.sweeps or elements < SWEPT:
            return False
        x = term.args[0]
        beside = x.ndim - 1 not in _axes(term)
        long = elements >= rows * CHUNKS * PART and x.nbytes < MOST_BESIDE
        return rows == 1 or (beside and long) or self.ends(term) > 0

    def ends(self, term: Term) -> int:
        """The share of a reduction that each of its ends has, as :class:`Nest` says it:
        of one row of columns that are longer than parts should be; 0 for others."""
        x, axes = term.args[0], _axes(term)
        kept = [a for a in range(x.ndim) if a not in axes and x.shape[a] > 1]
        whole = len(kept) == 1 and max(axes) < kept[0]
        large = MOST_BESIDE <= x.nbytes <= MOST_WITH_ENDS and term.size <= ENDS_WIDTH
        one = self.target.threads == 1 and self.target.sweeps
        plain = term.op.name in ("sum", "mean") and x in self.memory
        size = SUM_ENDS_BYTES if plain else ENDS_BYTES
        return x.nbytes // size if one and whole and large else 0


def _axes(term: Term) -> set[int]:
    """The axes of its argument that a reduction runs over."""
    axes = cast(Op, term.op).attr_dict(term)["axis"]
    return {a % term.args[0].ndim for a in axes}
