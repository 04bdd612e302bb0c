"""Half precision as users write it: cast to float32, compute, cast back.

A composite of float16 or bfloat16 means just that: it is computed in float32 and
rounded once. So these rules keep every bit, and those that look for a softmax or a norm
of half precision find it in this spelling too.
"""

from eqsat.op import Op
from eqsat.recognition import of_casts

COMPOSITES = [
    op
    for op in Op.registry.values()
    if op.kind == "composite" and op.reference.__module__.startswith("eqsat.ops.")
]


def _takes_integers(op):
    return op.name == "dequantize"


def _numerics(op):
    """Kernels of attention that GPUs' libraries have round the weights of the values
    too."""
    return "reassociate" if op.name.startswith("attention") else "exact"


of_halves = [
    of_casts(op, dtype, _numerics(op))
    for op in COMPOSITES
    for dtype in ("float16", "bfloat16")
    if not _takes_integers(op)
]
