"""Half precision as users write it: cast to float32, compute, cast back.

A composite of float16 or bfloat16 means just that: it is computed in float32 and
rounded once. So these rules keep every bit, and the rules that look for a softmax or a
norm of half precision find it in this spelling too.
"""

from eqsat.op import Op
from eqsat.recognition import of_casts
from eqsat.typerule import BF16

PHASE = "recognise"


def _takes_integers(op):
    return op.name == "dequantize"


composites = [
    op
    for op in Op.registry.values()
    if op.kind == "composite" and op.reference.__module__.startswith("eqsat.ops.")
]
of_halves = [
    of_casts(op, dtype)
    for op in composites
    for dtype in ("float16", BF16.name)
    if not _takes_integers(op)
]
