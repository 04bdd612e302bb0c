"""Kernels as loops: what a kernel is before it is code of any machine.

A kernel is a :class:`~.nest.Nest`: a grid of independent rows, and passes over the
elements of a row. Backends print it as LLVM IR, Metal or CUDA. Knows no machine. Start
with ``nest.py``; ``lower.py`` makes nests from terms.
"""

from .computed_operands import (
    Mapped,
    mapped,
    work,
)
from .deferred_constants import (
    Late,
    opened,
    source_of_pairs,
)
from .index_maps import (
    ZERO,
    Affine,
    Layout,
    LoopVar,
    Unsupported,
    address,
)
from .lower import (
    copy_of,
    pieces_of,
)
from .narrow_products import (
    is_short,
)
from .nest import (
    REDUCTIONS,
    Accumulate,
    Buffer,
    Compute,
    Const,
    DType,
    Gather,
    Joining,
    Keep,
    Kept,
    Load,
    Nest,
    Operand,
    Pass,
    Position,
    Running,
    Scatter,
    Statement,
    Store,
    Within,
    operands,
    variables,
)
from .nesting import (
    ELIMINATIONS,
)
from .op_costs import (
    is_function,
    weight,
)
from .pieces import (
    Contraction,
    Convolution,
    Factoring,
    Loops,
    Network,
    Ordering,
    Piece,
    Pieces,
    Product,
)
from .schedule import (
    LoopTarget,
)
from .tuning import (
    EPYC,
    LoopTuning,
    number,
)
from .values import (
    FAR,
)
from .verify import (
    broken_piece,
    extent_of,
)
from .verify_nest import (
    Extent,
    broken_nest,
)

__all__ = [
    "ELIMINATIONS",
    "EPYC",
    "FAR",
    "REDUCTIONS",
    "ZERO",
    "Accumulate",
    "Affine",
    "Buffer",
    "Compute",
    "Const",
    "Contraction",
    "Convolution",
    "DType",
    "Extent",
    "Factoring",
    "Gather",
    "Joining",
    "Keep",
    "Kept",
    "Late",
    "Layout",
    "Load",
    "LoopTarget",
    "LoopTuning",
    "LoopVar",
    "Loops",
    "Mapped",
    "Nest",
    "Network",
    "Operand",
    "Ordering",
    "Pass",
    "Piece",
    "Pieces",
    "Position",
    "Product",
    "Running",
    "Scatter",
    "Statement",
    "Store",
    "Unsupported",
    "Within",
    "address",
    "broken_nest",
    "broken_piece",
    "copy_of",
    "extent_of",
    "is_function",
    "is_short",
    "mapped",
    "number",
    "opened",
    "operands",
    "pieces_of",
    "source_of_pairs",
    "variables",
    "weight",
    "work",
]
