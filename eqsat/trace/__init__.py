"""A Python function, run once on stand-ins for arrays, as terms.

Knows calls, arguments, and writes to arrays. Does not know what becomes of
the terms. Start with ``trace.py``.
"""

from eqsat.trace.aliasing import Refusal
from eqsat.trace.call_arguments import (
    Arguments,
    Leaf,
    argument_names,
    dtype_of_array,
    flatten_arguments,
    is_array,
    is_mlx,
    is_taken,
    never_written,
    to_mlx,
    to_numpy,
)
from eqsat.trace.contents import Contents, is_immutable
from eqsat.trace.error_kinds import of_numpys_kinds
from eqsat.trace.expressions import define_op, define_pointwise, traced_over
from eqsat.trace.in_place import fitted, replaced
from eqsat.trace.kernel_body import (
    KERNEL,
    RESULT,
    BodyStep,
    KernelBody,
    body_above,
    kernel_terms,
    label,
    outline,
)
from eqsat.trace.known_array import with_known_as_arrays
from eqsat.trace.open_composites import body_of, primitives, rebuilt
from eqsat.trace.outside import MISSING, Outside, OutsideName
from eqsat.trace.reductions import pairs_of, reduction
from eqsat.trace.trace import Spec, Trace, trace
from eqsat.trace.tracer import VALUES, Tracer
