"""Products that loops compute: of matrices that are narrower than vectors."""

from __future__ import annotations

from eqsat.terms import Term

MOST = 8
"""Elements of a sum, and columns of the result, up to which a product is written out.
"""
FEW, MOST_OF_MANY = 16, 4
"""Rows of a matrix beyond which products in panels are faster, but for sums of so few
elements: 100,000 rows of 8 by 8×8 take 0.86 of the time in panels, of 3 by 3×3 1.06."""


def is_short(term: Term) -> bool:
    """Whether a term is a product of matrices so narrow that vectors run over many rows
    of the result, or over many results, rather than along a row."""
    if term.op.name != "matmul" or term.dtype not in ("float32", "float64"):
        return False
    x, y = term.args
    m, k = x.shape[-2:]
    most = MOST if m <= FEW else MOST_OF_MANY
    same = x.dtype == y.dtype == term.dtype
    return same and 0 < k <= most and 0 < term.shape[-1] <= MOST
