"""Half precision as users write it: cast to float32, compute, cast back.

A composite of float16 or bfloat16 means just that: it is computed in float32 and
rounded once. So these rules keep every bit, and those that look for a softmax or a
product of half precision find it in this spelling too.
"""

from eqsat.op import Op
from eqsat.ops import sigmoid
from eqsat.ops.contract import matmul_op
from eqsat.recognition import of_casts

CATALOGUE = [
    op
    for op in Op.registry.values()
    if op.kind == "composite" and op.reference.__module__.startswith("eqsat.ops.")
]


def _takes_integers(op):
    return op.name == "dequantize"


def _numerics(op):
    """Libraries add products in an order of their own, and their attention rounds what
    weighs the values too."""
    product = op is matmul_op or op.name.startswith("attention")
    return "reassociate" if product else "exact"


of_halves = [
    of_casts(op, dtype, _numerics(op))
    for op in (*CATALOGUE, sigmoid, matmul_op)
    for dtype in ("float16", "bfloat16")
    if not _takes_integers(op)
]
