"""Loop nests as LLVM IR: vectors, passes over rows, reductions.

Knows one nest at a time. Start with ``emit_nest.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from . import sweep_direction
    from .addresses import Addresses, without
    from .counted_loops import end_of_steps, loop
    from .emit_nest import emit_nest
    from .nest_code import PTR, NestCode, Strand, begun
    from .prefetch import ask
    from .statements import Statements
    from .vector_memory import VectorMemory
    from .vector_shape import (
        alike,
        check,
        is_map,
        is_wide,
        lanes,
        overlaps,
        runs,
        shape_of,
        stretch,
        with_lane_axis,
    )

__getattr__ = lazy_room(__name__, __file__)
