"""Kernels as loops: what a kernel is before it is code of any machine.

A kernel is a :class:`~.nest.Nest`: a grid of independent rows, and passes over the
elements of a row. Backends print it as LLVM IR, Metal or CUDA. Knows no machine, and
not how nests are made: that is ``to_loops``. Start with ``nest.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from .index_maps import (
        ZERO,
        Affine,
        Extent,
        Index,
        Layout,
        LoopVar,
        Split,
        Unsupported,
        address,
        bounds,
        broadcast_index,
        covers,
        reshape_index,
        slice_index,
        spread,
        transpose_index,
    )
    from .nest import (
        CDF,
        FAR,
        FAULT,
        INDEX,
        NEAR,
        REDUCTIONS,
        RUNNING,
        WIDE,
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
        over,
        variables,
    )
    from .op_costs import is_function, weight
    from .pieces import (
        Contraction,
        Convolution,
        Factoring,
        Loops,
        Mapped,
        Network,
        Ordering,
        Piece,
        Pieces,
        Product,
        Window,
    )
    from .tuning import EPYC, LOOPS, LoopTuning, number
    from .verify_nest import broken_nest
    from .verify_pieces import broken_piece, extent_of, verify

__getattr__ = lazy_room(__name__, __file__)
