"""Matrix products: tiles in registers, packed panels, BLAS.

Knows how a product is cut among threads and which code multiplies it. Start with
``gemm_plan.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from . import causal_columns, gemm_plan, symmetric
    from .blas_calls import BlasCalls, Calls
    from .causal_columns import Reach, reach_of
    from .deferred_choice import deferred
    from .function_names import name_of, signature
    from .gemm_calls import OwnCalls, ThreadPart, Values
    from .gemm_code_base import FunctionCode
    from .gemm_plan import LINE, GemmPlan, Packing, height, parts_of
    from .mask_code import Reaches
    from .matvec_code import Vectors, mask
    from .pack_code import Order
    from .symmetric import Mirroring, mirror
    from .tile_code import Pairs, Tiles
    from .tiles import CHAIN, Panels, Tile, TileSpan, padded, spans, tile

__getattr__ = lazy_room(__name__, __file__)
