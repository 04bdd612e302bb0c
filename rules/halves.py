"""Half precision as users write it: cast to float32, compute, cast back.

A composite of float16 or bfloat16 means just that: it is computed in float32 and
rounded once. So rules that look for a softmax or a product of half precision find it in
this spelling too. They keep every bit, but where libraries do not round just once.
"""

from eqsat.ops import Wide, layer_norm, matmul_op, rms_norm, sigmoid
from eqsat.rulelang import of_casts
from eqsat.terms import Op

CATALOGUE = [
    op
    for op in Op.registry.values()
    if op.kind == "composite"
    and op.reference.__module__.startswith("eqsat.ops.")
    and not isinstance(op.type_rule, Wide)
]


def _takes_integers(op):
    return op.name == "dequantize"


def _numerics(op):
    """Libraries add products in an order of their own; those of GPUs round between the
    steps of norms with weights, and the weights of attention."""
    own = op in (matmul_op, rms_norm, layer_norm) or op.name.startswith("attention")
    return "reassociate" if own else "exact"


of_halves = [
    of_casts(op, dtype, _numerics(op))
    for op in (*CATALOGUE, sigmoid, matmul_op)
    for dtype in ("float16", "bfloat16")
    if not _takes_integers(op)
]
