"""Products that loops compute: of matrices that are narrower than vectors."""

from __future__ import annotations

from eqsat.ops import matmul_op
from eqsat.terms import Term

from ..loop_ir import (
    LOOPS,
)


def is_short(term: Term) -> bool:
    """Whether a term is a product of matrices so narrow that vectors run over many rows
    of the result, or over many results, rather than along a row."""
    if term.op is not matmul_op or term.dtype not in ("float32", "float64"):
        return False
    x, y = term.args
    m, k = x.shape[-2:]
    most = LOOPS.short_sum if m <= LOOPS.few_short_rows else LOOPS.short_sum_of_many
    same = x.dtype == y.dtype == term.dtype
    return same and 0 < k <= most and 0 < term.shape[-1] <= LOOPS.short_sum
